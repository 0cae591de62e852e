"""Symbolic validation of the code that trains: SymPy matrices go through the same classes.

A user's own layer, activation function or loss is checked in three lines:

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(2, 4)):
        assert check.ok, check.message

`suite` is what `matgrad verify` runs: the `checks` of every class that trains, and the `derivations` of
the paper. `typesetting` writes the equations that ran as LaTeX.
"""

from matgrad.symbolic.checks.derivatives import (
    check_activation,
    check_layer,
    check_loss,
    check_optimizer,
    check_softmax,
)
from matgrad.symbolic.checks.equality import compare, symbols
from matgrad.symbolic.checks.verdicts import Check

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
