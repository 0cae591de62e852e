"""The paper's lemmas and derivations, step by step.

Every step compares two expressions, built with the package's own functions and SymPy's differentiation.
`steps` defines what a derivation is, `lemmas` has the rules that derivations use, and `softmax`, `layers`,
`normalization` and `losses` have the derivations, in the order of the paper.
"""

from matgrad.symbolic.derivations.layers import layer_derivations
from matgrad.symbolic.derivations.lemmas import lemmas
from matgrad.symbolic.derivations.losses import loss_derivations
from matgrad.symbolic.derivations.normalization import normalization_derivations
from matgrad.symbolic.derivations.softmax import softmax_derivations
from matgrad.symbolic.derivations.steps import Derivation, Step, check_derivation

__all__ = ["Derivation", "Step", "check_derivation", "derivations"]


def derivations() -> list[Derivation]:
    """Every lemma, property and derivation of the paper."""
    return [
        *lemmas(),
        *softmax_derivations(),
        *layer_derivations(),
        *normalization_derivations(),
        *loss_derivations(),
    ]
