"""Optimizers: rules that update a parameter x from its gradient Dx and the learning rate η.

An optimizer belongs to one parameter of one layer. Assigned to ``layer.optimizer``, it is bound to
the parameter whose matrix it was made with; from then on the layer hands it x and Dx and takes the
updated x back. `CompositeOptimizer` joins the optimizers of several parameters. A rule never
changes a matrix in place, so the same code runs in `jax.jit` and `tf.function`.

Momentum and Nesterov have the form of Keras; with a changing learning rate they differ from
PyTorch, which multiplies by η after accumulating. Adam and AdamW are PyTorch's.
"""

from __future__ import annotations

from matgrad.backends import backend_of
from matgrad.backends.base import as_number
from matgrad.matrix_operations import Matrix, Scalar, hadamard, ones, reciprocal, sqrt, zeros
from matgrad.parse import create


class Optimizer:
    """Updates one parameter; `state_names` lists the attributes that live on between updates."""

    state_names: tuple[str, ...] = ()
    pure = False  # whether `update` leaves the matrix x as it is; if not, it is given a copy

    x: Matrix
    Dx: Matrix

    def __init__(self, x: Matrix, Dx: Matrix, weight_decay: float = 0.0) -> None:
        self.x = x
        self.Dx = Dx
        self.weight_decay = as_number(weight_decay)

    def update(self, eta: Scalar) -> None:
        """Replace x, using Dx and the learning rate η."""
        raise NotImplementedError

    def apply(self, x: Matrix, Dx: Matrix, eta: Scalar) -> Matrix:
        """x after one update; weight decay λ adds λ·x to the gradient, as in PyTorch."""
        decay = getattr(self, "weight_decay", 0.0)
        self.x, self.Dx = (x if self.pure else 1 * x), (Dx + decay * x if decay else Dx)
        self.update(eta)
        x, self.x, self.Dx = self.x, None, None
        return x

    def parts(self) -> list[Optimizer]:
        """The optimizers of single parameters that this one consists of."""
        return [self]


class CompositeOptimizer(Optimizer):
    """The optimizers of several parameters of a layer as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    def update(self, eta: Scalar) -> None:
        for optimizer in self.optimizers:
            optimizer.update(eta)

    def parts(self) -> list[Optimizer]:
        return [part for optimizer in self.optimizers for part in optimizer.parts()]


class GradientDescentOptimizer(Optimizer):
    """x' = x - η·Dx"""

    pure = True

    def update(self, eta: Scalar) -> None:
        self.x = self.x - eta * self.Dx


class MomentumOptimizer(Optimizer):
    """Δ' = μ·Δ - η·Dx;  x' = x + Δ'"""

    state_names = ("delta",)
    pure = True

    def __init__(self, x: Matrix, Dx: Matrix, mu: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(x, Dx, weight_decay)
        self.mu = as_number(mu)
        self.delta = zeros(*x.shape, like=x)

    def update(self, eta: Scalar) -> None:
        self.delta = self.mu * self.delta - eta * self.Dx
        self.x = self.x + self.delta


class NesterovOptimizer(MomentumOptimizer):
    """Δ' = μ·Δ - η·Dx;  x' = x + μ·Δ' - η·Dx"""

    def update(self, eta: Scalar) -> None:
        self.delta = self.mu * self.delta - eta * self.Dx
        self.x = self.x + self.mu * self.delta - eta * self.Dx


class AdamOptimizer(Optimizer):
    """m' = β₁·m + (1-β₁)·Dx;  v' = β₂·v + (1-β₂)·Dx⊙Dx;  x' = x - η·m̂ ⊙ 1/(√v̂ + ε)

    with m̂ = m' / c₁' and v̂ = v' / c₂', where c' = β·c + (1-β) is 1 - βᵗ after t updates.
    """

    state_names = ("m", "v", "c1", "c2")
    pure = True

    def __init__(
        self,
        x: Matrix,
        Dx: Matrix,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(x, Dx, weight_decay)
        self.beta1, self.beta2, self.epsilon = map(as_number, (beta1, beta2, epsilon))
        self.m = zeros(*x.shape, like=x)
        self.v = zeros(*x.shape, like=x)
        self.c1 = backend_of(x).scalar(0, like=x)
        self.c2 = backend_of(x).scalar(0, like=x)

    def update(self, eta: Scalar) -> None:
        beta1, beta2 = self.beta1, self.beta2
        K, D = self.x.shape

        self.m = beta1 * self.m + (1 - beta1) * self.Dx
        self.v = beta2 * self.v + (1 - beta2) * hadamard(self.Dx, self.Dx)
        self.c1 = beta1 * self.c1 + (1 - beta1)
        self.c2 = beta2 * self.c2 + (1 - beta2)
        root = sqrt(self.v / self.c2) + self.epsilon * ones(K, D, like=self.x)
        self.x = self.x - eta * hadamard(self.m / self.c1, reciprocal(root))


class AdamWOptimizer(AdamOptimizer):
    """x' = x - η·λ·x, then Adam: weight decay apart from the gradient"""

    def __init__(
        self,
        x: Matrix,
        Dx: Matrix,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(x, Dx, beta1, beta2, epsilon)
        self.decoupled_decay = as_number(weight_decay)

    def update(self, eta: Scalar) -> None:
        self.x = self.x - eta * self.decoupled_decay * self.x
        super().update(eta)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "GradientDescent": GradientDescentOptimizer,
    "Momentum": MomentumOptimizer,
    "Nesterov": NesterovOptimizer,
    "Adam": AdamOptimizer,
    "AdamW": AdamWOptimizer,
}


def create_optimizer(specification: str, x: Matrix, Dx: Matrix) -> Optimizer:
    """The optimizer of parameter x that the text names, such as ``Momentum(0.9)``."""
    return create(specification, OPTIMIZERS, "optimizer", x, Dx)
