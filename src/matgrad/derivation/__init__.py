"""Backpropagation derived from feedforward: `matgrad derive` and `mg.derive`.

A feedforward is recorded with symbolic sizes, from equations (`sources`) or the code of a layer (`layers`).
`backpropagation` makes lines of gradients by the adjoints of its operations, `polynomials` and `normal_form` have a
normal form of values, `folding` puts values of feedforward into gradients, `writing` makes the code of a layer, and
`proving` proves that code for all sizes.
"""

from matgrad.derivation.derivation import Derivation, derive

__all__ = ["Derivation", "derive"]
