"""Symbolic checks of classes of your own: SymPy matrices run through the very code that trains.

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(2, 4)):
        assert check.ok, check.message

The judge is `matgrad.judges.sympy_judge`; `matgrad verify` has others as well.
"""

from matgrad.inspection.verdicts import Check
from matgrad.judges.equality import compare, symbols
from matgrad.judges.state import check_optimizer
from matgrad.judges.sympy_judge import check_activation, check_layer, check_loss, check_softmax

__all__ = [
    "Check",
    "check_activation",
    "check_layer",
    "check_loss",
    "check_optimizer",
    "check_softmax",
    "compare",
    "symbols",
]
