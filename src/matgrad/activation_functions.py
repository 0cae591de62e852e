"""Activation functions: f and its derivative f' side by side, applied to every element of X.

They are written in the operations of the table; `step` selects the pieces of a piecewise function. At a
corner they follow the paper, which takes the right-hand piece: relu'(0) = 1, where PyTorch has 0.
"""

from __future__ import annotations

import math

from matgrad.foundation.numbers import as_number
from matgrad.matrix_operations import Kind, Matrix, erf, exp, hadamard, log_sigmoid, reciprocal, row_repeat, step, tanh
from matgrad.specifications.parsing import describe, resolve


class ActivationFunction:
    """A function ℝ → ℝ with its derivative, both applied element-wise to a matrix."""

    output = "real"  # the kind of its values, see `Layer.output`

    def __call__(self, X: Kind) -> Kind:
        """f(X)"""
        raise NotImplementedError

    def gradient(self, X: Kind) -> Kind:
        """f'(X)"""
        raise NotImplementedError

    def __repr__(self) -> str:
        return describe(self, "Activation")


class _PiecewiseLinear(ActivationFunction):
    """f(x) = x·f'(x): pieces of lines through the origin, defined by their slopes."""

    def __call__(self, X: Kind) -> Kind:
        """x·f'(x)"""
        return hadamard(X, self.gradient(X))


class ReLUActivation(_PiecewiseLinear):  # appendix:activation-functions
    """relu(x) = max(0, x)"""

    def gradient(self, X: Kind) -> Kind:
        """[x ≥ 0]"""
        return step(X)


class LeakyReLUActivation(_PiecewiseLinear):  # appendix:activation-functions
    """leaky-relu(x) = max(αx, x)"""

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = as_number(alpha)

    def gradient(self, X: Kind) -> Kind:
        """[x ≥ αx] + α·[x < αx]"""
        right = step(X - self.alpha * X)
        return right + self.alpha * (1 - right)


class AllReLUActivation(_PiecewiseLinear):
    """all-relu(x) = αx if x < 0, else x"""

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = as_number(alpha)

    def gradient(self, X: Kind) -> Kind:
        """[x ≥ 0] + α·[x < 0]"""
        return step(X) + self.alpha * (1 - step(X))


class TReLUActivation(_PiecewiseLinear):
    """trelu(x) = 0 if x < ε, else x"""

    def __init__(self, epsilon: float = 0.01) -> None:
        self.epsilon = as_number(epsilon)

    def gradient(self, X: Kind) -> Kind:
        """[x ≥ ε]"""
        return step(X - self.epsilon)


class SReLUActivation(ActivationFunction):
    """srelu(x) = al·(x - tl) + tl if x ≤ tl, ar·(x - tr) + tr if x ≥ tr, else x.

    The parameters are 1×K row vectors, one value per column of X; `SReLULayer` trains them.
    Where the two outer pieces overlap (tl ≥ tr), the left one applies.
    """

    def __init__(self, al: Matrix, tl: Matrix, ar: Matrix, tr: Matrix) -> None:
        self.al, self.tl, self.ar, self.tr = al, tl, ar, tr

    def left(self, X: Kind) -> Kind:
        """[x ≤ tl]"""
        N, _ = X.shape
        return step(row_repeat(self.tl, N) - X)

    def right(self, X: Kind) -> Kind:
        """[x ≥ tr]·[x > tl]"""
        N, _ = X.shape
        return hadamard(step(X - row_repeat(self.tr, N)), 1 - self.left(X))

    def middle(self, X: Kind) -> Kind:
        """[tl < x < tr]"""
        return 1 - self.left(X) - self.right(X)

    def __call__(self, X: Kind) -> Kind:
        """[middle]·x + al·[left]·(x - tl) + [left]·tl + ar·[right]·(x - tr) + [right]·tr"""
        N, _ = X.shape
        al, tl, ar, tr = (row_repeat(p, N) for p in (self.al, self.tl, self.ar, self.tr))
        # al·(x - tl) could overflow where it is not used, and 0·inf is nan
        L = hadamard(al, hadamard(self.left(X), X - tl)) + hadamard(self.left(X), tl)
        R = hadamard(ar, hadamard(self.right(X), X - tr)) + hadamard(self.right(X), tr)
        return hadamard(self.middle(X), X) + L + R

    def gradient(self, X: Kind) -> Kind:
        """[middle] + [left]·al + [right]·ar"""
        N, _ = X.shape
        L = hadamard(self.left(X), row_repeat(self.al, N))
        R = hadamard(self.right(X), row_repeat(self.ar, N))
        return self.middle(X) + L + R


class HyperbolicTangentActivation(ActivationFunction):  # appendix:activation-functions
    """tanh(x) = (e^x - e^-x) / (e^x + e^-x)"""

    def __call__(self, X: Kind) -> Kind:
        """tanh(x)"""
        return tanh(X)

    def gradient(self, X: Kind) -> Kind:
        """1 - tanh(x)²"""
        Y = tanh(X)
        return 1 - hadamard(Y, Y)


class SigmoidActivation(ActivationFunction):  # appendix:activation-functions
    """σ(x) = 1 / (1 + e^-x)"""

    output = "probability"

    def __call__(self, X: Kind) -> Kind:
        """1 / (1 + e^-x)"""
        return reciprocal(1 + exp(-X))

    def gradient(self, X: Kind) -> Kind:
        """σ(x)·(1 - σ(x))"""
        Y = self(X)
        return hadamard(Y, 1 - Y)


sigmoid = SigmoidActivation()
relu = ReLUActivation()


class GELUActivation(ActivationFunction):
    """gelu(x) = x·Φ(x), with Φ the distribution function of the standard normal distribution"""

    sqrt_2, sqrt_2_pi = math.sqrt(2), math.sqrt(2 * math.pi)  # attributes: verification makes them exact

    def __call__(self, X: Kind) -> Kind:
        """x·Φ(x)"""
        return hadamard(X, self._Phi(X))

    def gradient(self, X: Kind) -> Kind:
        """Φ(x) + x·φ(x), with φ(x) = e^(-x²/2) / √(2π)"""
        phi = exp(-hadamard(X, X) / 2) / self.sqrt_2_pi
        return self._Phi(X) + hadamard(X, phi)

    def _Phi(self, X: Kind) -> Kind:
        """(1 + erf(x / √2)) / 2"""
        return (1 + erf(X / self.sqrt_2)) / 2


class SiLUActivation(ActivationFunction):
    """silu(x) = x·σ(x)"""

    def __call__(self, X: Kind) -> Kind:
        """x·σ(x)"""
        return hadamard(X, sigmoid(X))

    def gradient(self, X: Kind) -> Kind:
        """σ(x) + x·σ'(x)"""
        return sigmoid(X) + hadamard(X, sigmoid.gradient(X))


class ELUActivation(ActivationFunction):
    """elu(x) = α·(e^x - 1) if x < 0, else x"""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = as_number(alpha)

    def __call__(self, X: Kind) -> Kind:
        """relu(x) + α·(e^x̄ - 1) with x̄ = min(x, 0), and e^x̄ - 1 = (e^x̄ + 1)·tanh(x̄/2)"""
        negative = X - relu(X)
        expm1 = hadamard(exp(negative) + 1, tanh(negative / 2))
        return relu(X) + self.alpha * expm1

    def gradient(self, X: Kind) -> Kind:
        """[x ≥ 0] + α·e^x̄·[x < 0]"""
        negative = X - relu(X)
        return step(X) + self.alpha * hadamard(exp(negative), 1 - step(X))


class SoftplusActivation(ActivationFunction):
    """softplus(x) = ln(1 + e^x)"""

    def __call__(self, X: Kind) -> Kind:
        """-ln σ(-x)"""
        return -log_sigmoid(-X)

    def gradient(self, X: Kind) -> Kind:
        """σ(x)"""
        return sigmoid(X)


ACTIVATIONS: dict[str, type[ActivationFunction]] = {
    "ReLU": ReLUActivation,
    "LeakyReLU": LeakyReLUActivation,
    "AllReLU": AllReLUActivation,
    "TReLU": TReLUActivation,
    "HyperbolicTangent": HyperbolicTangentActivation,
    "Sigmoid": SigmoidActivation,
    "GELU": GELUActivation,
    "SiLU": SiLUActivation,
    "ELU": ELUActivation,
    "Softplus": SoftplusActivation,
}


def create_activation(specification: ActivationFunction | str) -> ActivationFunction:
    """The activation function that a string such as ``AllReLU(0.3)`` names; a function is returned as it is."""
    return resolve(specification, ActivationFunction, ACTIVATIONS, "activation function")
