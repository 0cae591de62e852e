"""Symbolic validation of the code that trains: SymPy matrices go through the same classes.

A user's own layer, activation function or loss is checked in three lines:

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(2, 4)):
        assert check.ok, check.message
"""

from matgrad.symbolic.checks import check_activation, check_layer, check_loss, check_optimizer, check_softmax
from matgrad.symbolic.equality import Check, compare, symbols

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
