"""Optimizers: rules that update a parameter x from its gradient Dx and the learning rate η.

An optimizer belongs to one parameter of one layer. Assigned to ``layer.optimizer``, it is bound to
the parameter whose matrix it was made with; from then on the layer hands it x and Dx and takes the
updated x back. `CompositeOptimizer` joins the optimizers of several parameters. A rule never
changes a matrix in place, so the same code runs in `jax.jit` and `tf.function`.

Momentum and Nesterov have the form of Keras; with a changing learning rate they differ from
PyTorch, which multiplies by η after accumulating. The others are PyTorch's; Keras has ε inside the root of
RMSProp and Adagrad, where 1/√(v + ε) replaces 1/(√v + ε), and other defaults.
"""

from __future__ import annotations

from typing import Any

from matgrad.backends import backend_of
from matgrad.foundation.numbers import check_number
from matgrad.matrix_operations import Matrix, Scalar, hadamard, reciprocal, sign, sqrt, zeros
from matgrad.specifications.parsing import create, describe

RATE = "a number in [0, 1)"


class Optimizer:
    """Updates one parameter x; `state_names` lists the attributes that persist between updates.

    Weight decay λ adds λ·x to the gradient, and L1 adds λ₁·sign(x), the gradients of λ/2·‖x‖² and of λ₁·Σ|x_ij|;
    every rule takes them as the keywords `weight_decay` and `l1`.
    """

    state_names: tuple[str, ...] = ()
    decoupled = False  # whether `update` applies the weight decay itself

    x: Any  # the parameter and its gradient, while they are updated; else None
    Dx: Any

    def __init__(self, x: Matrix, Dx: Matrix | None, *, weight_decay: float = 0.0, l1: float = 0.0) -> None:
        self.x = x
        self.Dx = Dx
        self.weight_decay = check_number("weight_decay", weight_decay)
        self.l1 = check_number("l1", l1)

    def update(self, eta: Scalar) -> None:
        """Replace x, using Dx and the learning rate η."""
        raise NotImplementedError

    def apply(self, x: Matrix, Dx: Matrix, eta: Scalar) -> Matrix:
        """x after one update, by the gradient Dx + λ·x + λ₁·sign(x); decoupled, λ is left to the update."""
        decay = 0.0 if self.decoupled else getattr(self, "weight_decay", 0.0)
        l1 = getattr(self, "l1", 0.0)
        Dx = Dx + decay * x if decay else Dx
        self.x, self.Dx = x, (Dx + l1 * sign(x) if l1 else Dx)
        if type(self).__module__ != __name__:  # a rule of one's own may change a matrix in place: it is given copies
            for name in ("x", *self.state_names):
                setattr(self, name, 1 * getattr(self, name))
        self.update(eta)
        x, self.x, self.Dx = self.x, None, None
        return x

    def parts(self) -> list[Optimizer]:
        """The optimizers of single parameters that this one consists of."""
        return [self]

    def specification(self) -> str:
        """The string that names the rule with its settings; of several different rules, all of them."""
        return ", ".join(dict.fromkeys(describe(part, "Optimizer", without=("x", "Dx")) for part in self.parts()))


class CompositeOptimizer(Optimizer):
    """The optimizers of several parameters of a layer as one."""

    def __init__(self, *optimizers: Optimizer) -> None:
        self.optimizers = optimizers

    def update(self, eta: Scalar) -> None:
        for optimizer in self.optimizers:
            optimizer.update(eta)

    def parts(self) -> list[Optimizer]:
        return [part for optimizer in self.optimizers for part in optimizer.parts()]


class GradientDescentOptimizer(Optimizer):  # appendix:optimization
    """x' = x - η·Dx"""

    def update(self, eta: Scalar) -> None:
        self.x = self.x - eta * self.Dx


class MomentumOptimizer(Optimizer):  # appendix:optimization
    """Δ' = μ·Δ - η·Dx;  x' = x + Δ'"""

    state_names = ("delta",)

    def __init__(self, x: Matrix, Dx: Matrix | None, mu: float = 0.9, **penalties: float) -> None:
        super().__init__(x, Dx, **penalties)
        self.mu = check_number("mu", mu, RATE)
        self.delta = zeros(*x.shape, like=x)

    def accumulate(self, eta: Scalar) -> None:
        """Δ' = μ·Δ - η·Dx"""
        self.delta = self.mu * self.delta - eta * self.Dx

    def update(self, eta: Scalar) -> None:
        self.accumulate(eta)
        self.x = self.x + self.delta


class NesterovOptimizer(MomentumOptimizer):  # appendix:optimization
    """Δ' = μ·Δ - η·Dx;  x' = x + μ·Δ' - η·Dx"""

    def update(self, eta: Scalar) -> None:
        self.accumulate(eta)
        self.x = self.x + self.mu * self.delta - eta * self.Dx


class AdagradOptimizer(Optimizer):
    """v' = v + Dx⊙Dx;  x' = x - η·Dx ⊙ 1/(√v' + ε)"""

    state_names = ("v",)

    def __init__(self, x: Matrix, Dx: Matrix | None, epsilon: float = 1e-10, **penalties: float) -> None:
        super().__init__(x, Dx, **penalties)
        self.epsilon = check_number("epsilon", epsilon)
        self.v = zeros(*x.shape, like=x)

    def accumulate(self) -> None:
        """v' = v + Dx⊙Dx"""
        self.v = self.v + hadamard(self.Dx, self.Dx)

    def update(self, eta: Scalar) -> None:
        self.accumulate()
        root = sqrt(self.v) + self.epsilon
        self.x = self.x - eta * hadamard(self.Dx, reciprocal(root))


class RMSPropOptimizer(AdagradOptimizer):
    """v' = α·v + (1-α)·Dx⊙Dx;  x' = x - η·Dx ⊙ 1/(√v' + ε)"""

    def __init__(
        self, x: Matrix, Dx: Matrix | None, alpha: float = 0.99, epsilon: float = 1e-8, **penalties: float
    ) -> None:
        super().__init__(x, Dx, epsilon, **penalties)
        self.alpha = check_number("alpha", alpha, RATE)

    def accumulate(self) -> None:
        """v' = α·v + (1-α)·Dx⊙Dx"""
        self.v = self.alpha * self.v + (1 - self.alpha) * hadamard(self.Dx, self.Dx)


class AdamOptimizer(Optimizer):
    """m' = β₁·m + (1-β₁)·Dx;  v' = β₂·v + (1-β₂)·Dx⊙Dx;  x' = x - η·m̂ ⊙ 1/(√v̂ + ε)

    with m̂ = m' / c₁' and v̂ = v' / c₂', where c' = β·c + (1-β) is 1 - βᵗ after t updates. With β₁² > β₂ the root
    forgets a gradient before m does, and an update after it has no bound: such rates are invalid.
    """

    state_names = ("m", "v", "c1", "c2")

    def __init__(
        self, x: Matrix, Dx: Matrix, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **penalties: float
    ) -> None:
        super().__init__(x, Dx, **penalties)
        self.beta1, self.beta2 = check_number("beta1", beta1, RATE), check_number("beta2", beta2, RATE)
        if all(isinstance(b, int | float) for b in (self.beta1, self.beta2)) and self.beta1**2 > self.beta2:
            raise ValueError(f"beta2: expected beta1² or more, found beta1 = {beta1} and beta2 = {beta2}")
        self.epsilon = check_number("epsilon", epsilon)
        self.m = zeros(*x.shape, like=x)
        self.v = zeros(*x.shape, like=x)
        self.c1 = backend_of(x).scalar(0, like=x)
        self.c2 = backend_of(x).scalar(0, like=x)

    def update(self, eta: Scalar) -> None:
        beta1, beta2 = self.beta1, self.beta2

        self.m = beta1 * self.m + (1 - beta1) * self.Dx
        self.v = beta2 * self.v + (1 - beta2) * hadamard(self.Dx, self.Dx)
        self.c1 = beta1 * self.c1 + (1 - beta1)
        self.c2 = beta2 * self.c2 + (1 - beta2)
        root = sqrt(self.v / self.c2) + self.epsilon
        self.x = self.x - eta * hadamard(self.m / self.c1, reciprocal(root))


class AdamWOptimizer(AdamOptimizer):
    """x' = x - η·λ·x, then Adam: the decay is not part of the gradient"""

    decoupled = True

    def __init__(
        self,
        x: Matrix,
        Dx: Matrix,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        *,
        weight_decay: float = 0.01,
        **penalties: float,
    ) -> None:
        super().__init__(x, Dx, beta1, beta2, epsilon, weight_decay=weight_decay, **penalties)

    def update(self, eta: Scalar) -> None:
        self.x = self.x - eta * self.weight_decay * self.x
        super().update(eta)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "GradientDescent": GradientDescentOptimizer,
    "Momentum": MomentumOptimizer,
    "Nesterov": NesterovOptimizer,
    "Adagrad": AdagradOptimizer,
    "RMSProp": RMSPropOptimizer,
    "Adam": AdamOptimizer,
    "AdamW": AdamWOptimizer,
}


def create_optimizer(specification: str, x: Matrix, Dx: Matrix | None) -> Optimizer:
    """The optimizer of parameter x that a string such as ``Momentum(0.9)`` names."""
    return create(specification, OPTIMIZERS, "optimizer", x, Dx)
