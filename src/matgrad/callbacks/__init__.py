"""Callbacks, which watch or steer training: statistics, early stopping, progress and others.

A callback is one class here, or a user's own; `matgrad.training` calls it.
"""

from matgrad.callbacks.accounting import Accounting, is_sparse_training
from matgrad.callbacks.callback import Callback
from matgrad.callbacks.checkpoints import Checkpoints
from matgrad.callbacks.debugging import GradientCheck, Matrices
from matgrad.callbacks.ending import Divergence, EarlyStopping, Interruption
from matgrad.callbacks.logging import Log, TensorBoard
from matgrad.callbacks.methods import GMP, SET, SNIP, RigL
from matgrad.callbacks.pictures import Pictures
from matgrad.callbacks.report import LiveTable, Report, default_report
from matgrad.callbacks.statistics import Statistics
from matgrad.callbacks.topology import Topology, TopologyCallback

__all__ = [
    "GMP",
    "SET",
    "SNIP",
    "Accounting",
    "Callback",
    "Checkpoints",
    "Divergence",
    "EarlyStopping",
    "GradientCheck",
    "Interruption",
    "LiveTable",
    "Log",
    "Matrices",
    "Pictures",
    "Report",
    "RigL",
    "Statistics",
    "TensorBoard",
    "Topology",
    "TopologyCallback",
    "default_report",
    "is_sparse_training",
]
