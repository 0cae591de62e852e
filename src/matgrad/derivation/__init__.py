"""Backpropagation derived from feedforward: `matgrad derive` and `mg.derive`.

`terms` are matrices that remember how they are computed, `polynomials` and `normal_form` have a normal form of terms,
`folding` puts values of feedforward into gradients, `backpropagation` has the adjoint of every operation and makes
lines of gradients, `writing` makes the code of a layer, and `proving` proves that code for all sizes. A feedforward
comes from `sources`, as equations, or from `layers`, as code.
"""

from matgrad.derivation.derivation import Derivation, derive

__all__ = ["Derivation", "derive"]
