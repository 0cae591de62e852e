"""Programs: training steps recorded once, as straight lines of table operations, and run in place."""

from matgrad.program.program import Program, Value
from matgrad.program.recorder import record, record_step
from matgrad.program.rules import optimized
from matgrad.program.storage import load_program, save_program

__all__ = ["Program", "Value", "load_program", "optimized", "record", "record_step", "save_program"]
