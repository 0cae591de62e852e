"""Programs: training steps and other computations, recorded once as straight lines of table operations."""

from matgrad.program.program import Program, Value
from matgrad.program.recorder import record, record_computation
from matgrad.program.rules import optimized

__all__ = ["Program", "Value", "optimized", "record", "record_computation"]
