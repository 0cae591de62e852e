"""The layer: a function of a batch, its gradients, and the update of its parameters; `base.py` has the rest."""

from __future__ import annotations

from matgrad.backends.base import Matrix, Scalar
from matgrad.foundation.imports import deferred
from matgrad.foundation.numbers import as_number
from matgrad.layers.base import LayerBase
from matgrad.sparse.matrix import values_of, with_values


class Layer(LayerBase):
    """A function of a batch X with parameters θ, their gradients Dθ, and an optimizer for them.

    A subclass names its trained matrices in `parameters`; the gradient of `W` is `DW`. `buffers` names the
    other values that persist from batch to batch, such as running statistics, and `intermediates` those that
    feedforward keeps for backpropagate and for inspection, such as `Z`. A composite layer returns its inner
    layers in `parts`, and keeps them in attributes, lists, tuples or dictionaries; whatever is done to it is
    done to them too. An eager pass of a model leaves in its layers the input `X`, the output `Y`, and their
    gradients. Matrices are created with NumPy; `to` moves them to another backend. Only the values of a
    sparse parameter are trained: optimizers see a dense 1×nnz matrix, and the state has that and the support.
    """

    def feedforward(self, X: Matrix) -> Matrix:
        """Y = f_θ(X)"""
        raise NotImplementedError

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        """Set DX and the gradients of the parameters, from the output Y and its gradient DY."""
        raise NotImplementedError

    def optimize(self, eta: Scalar) -> None:
        """θ' for every parameter θ, by its optimizer with learning rate η."""
        eta = as_number(eta)
        for name, optimizer in self._optimizers.items():
            parameter, gradient = getattr(self, name), getattr(self, f"D{name}")
            if gradient is None:
                problem = f"D{name} is not computed yet; run feedforward and backpropagate first"
                raise RuntimeError(f"{type(self).__name__}.optimize: {problem}")
            values = optimizer.apply(values_of(parameter), values_of(gradient), eta)
            setattr(self, name, with_values(parameter, values))
        for part in self.parts():
            part.optimize(eta)

    def end_epoch(self) -> None:
        """Update what changes between epochs, not in the parts: the model calls this method of every part."""

    _repr_html_ = deferred("matgrad.explanation.notebook", "layer_html")
