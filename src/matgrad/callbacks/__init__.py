"""Callbacks, which watch or steer training: statistics, early stopping, progress and others, or a user's own."""

from matgrad.callbacks.callback import Callback as Callback
from matgrad.callbacks.debugging import GradientCheck as GradientCheck
from matgrad.callbacks.debugging import Matrices as Matrices
from matgrad.callbacks.debugging import Pictures as Pictures
from matgrad.callbacks.ending import Checkpoints as Checkpoints
from matgrad.callbacks.ending import EarlyStopping as EarlyStopping
from matgrad.callbacks.ending import Interruption as Interruption
from matgrad.callbacks.methods import GMP as GMP
from matgrad.callbacks.methods import SET as SET
from matgrad.callbacks.methods import SNIP as SNIP
from matgrad.callbacks.methods import RigL as RigL
from matgrad.callbacks.report import LiveTable as LiveTable
from matgrad.callbacks.report import Log as Log
from matgrad.callbacks.report import Report as Report
from matgrad.callbacks.report import TensorBoard as TensorBoard
from matgrad.callbacks.report import default_report as default_report
from matgrad.callbacks.statistics import Accounting as Accounting
from matgrad.callbacks.statistics import Statistics as Statistics
from matgrad.callbacks.topology import Topology as Topology
from matgrad.callbacks.topology import TopologyCallback as TopologyCallback
