"""Claims about equations, stated once, and their judges: index notation for all sizes, SymPy, and numbers.

    from matgrad.judges import prove_layer
    for check in prove_layer(MyLayer):                # for all sizes; `sympy_judge` has check_layer
        assert check.ok, check.message

    from matgrad.judges.suite import explain
    print(explain("SoftmaxLayer.DZ"))

`claims` and `lemmas` state what is claimed, with the definitions in `definitions`; `algebra` has the
interface of a judge, `suite` all claims about the package and plugins, which `matgrad verify` runs. An
`Explanation` has the steps of a proof, which `explanations` finds.
"""

from matgrad.judges.index_judge import prove_activation, prove_layer, prove_loss, prove_softmax

__all__ = ["prove_activation", "prove_layer", "prove_loss", "prove_softmax"]
