"""Proofs for all sizes: the code that trains runs on matrices of symbolic sizes, in index notation.

    from matgrad.proofs import prove_layer
    for check in prove_layer(MyLayer):
        assert check.ok, check.message

    from matgrad.proofs.suite import explain
    print(explain("SoftmaxLayer.DZ"))

`matrices` has the matrix type, the table on it, derivatives and the comparison of two matrices, and `suite` what
`matgrad verify --all-sizes` runs: the proofs of `layers`, `lemmas` and `derivations`. An `Explanation` has the steps
of a proof, which `explanations` and `explained_layers` find.
"""

from matgrad.proofs.layers import prove_activation, prove_layer, prove_loss, prove_softmax
from matgrad.proofs.matrices import IndexMatrix, Size, gradient, is_proved, jacobian, symbols

__all__ = [
    "IndexMatrix",
    "Size",
    "gradient",
    "is_proved",
    "jacobian",
    "prove_activation",
    "prove_layer",
    "prove_loss",
    "prove_softmax",
    "symbols",
]
