"""Symbolic validation of the code that trains: SymPy matrices run through the same classes.

Three lines check a layer, activation function or loss of your own:

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(2, 4)):
        assert check.ok, check.message

`suite` is what `matgrad verify` runs: the checks of every class that trains, and the paper's derivations.
"""

from matgrad.inspection.verdicts import Check
from matgrad.symbolic.derivatives import (
    check_activation,
    check_layer,
    check_loss,
    check_softmax,
)
from matgrad.symbolic.equality import compare, symbols
from matgrad.symbolic.state import check_optimizer

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
