"""Callbacks, which watch or steer training: statistics, early stopping, progress and others.

A callback is one class here, or a user's own; `matgrad.training` calls it.
"""

from matgrad.callbacks.accounting import Accounting, is_sparse_training
from matgrad.callbacks.callback import Callback
from matgrad.callbacks.checkpoints import Checkpoints
from matgrad.callbacks.early_stopping import EarlyStopping
from matgrad.callbacks.gradients import GradientCheck
from matgrad.callbacks.interruption import Interruption
from matgrad.callbacks.logging import Log, TensorBoard
from matgrad.callbacks.matrices import Matrices
from matgrad.callbacks.methods import GMP, SET, SNIP, RigL
from matgrad.callbacks.pictures import Pictures
from matgrad.callbacks.report import LiveTable, Report, default_report
from matgrad.callbacks.statistics import Divergence, Statistics
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
