"""Backpropagation derived from feedforward: `matgrad derive` and `mg.derive`.

A feedforward is recorded with symbolic sizes, from equations or the code of a layer (`sources`). `backpropagation`
makes lines of gradients by the adjoints of its operations, `normal_form` has a normal form of values, `folding` puts
values of feedforward into gradients, `writing` makes the code of a layer, and `proving` proves it for all sizes.
"""

from matgrad.derivation.derivation import Derivation, derive

__all__ = ["Derivation", "derive"]
