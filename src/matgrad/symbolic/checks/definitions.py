"""Checks of what derivatives cannot see: the values of layers, losses and activation functions.

SymPy matrices run through the code that trains, and the result is compared with a definition written here
for one element, with plain sums, exponentials and piecewise functions: nothing from the table is used. A class
from outside the package has no definition here, which the verdict on it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.numpy_backend import NumpyBackend
from matgrad.inspection.equations import assignment, last_line
from matgrad.inspection.feedforward import feedforward_values, origin_of
from matgrad.inspection.verdicts import Check, without_verdict
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.symbolic.checks.derivatives import GRID
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.checks.exact import numbers_as_symbols, symbolic_layer
from matgrad.symbolic.checks.verdicts import verdict

Values = dict[str, sp.Matrix]  # matrices by name, such as 'Z' and 'Y'


def check_definition_of_layer(layer: Layer, *, N: int = 3, dropout: bool = False) -> list[Check]:
    """Everything that a layer's feedforward computes, in its present mode, against its elementwise definition.

    For batch normalization in training mode this includes the running statistics and a batch of one
    example; with `dropout` it includes R.
    """
    if not has_definition(layer):
        where = assignment(type(layer), "feedforward", "Y")
        return [_undefined(type(layer), "feedforward", (where.location, where.source))]
    checks = _check_feedforward(symbolic_layer(layer, dropout), N, " dropout" if dropout else "")
    if type(layer) is layers.BatchNormalizationLayer and layer.training and N != 1:
        checks += _check_feedforward(symbolic_layer(layer), 1)
    return checks


def check_definition_of_loss(loss: LossFunction, *, N: int = 3, K: int = 4) -> list[Check]:
    """The value of a loss against its elementwise definition, for arbitrary targets."""
    if type(loss) not in LOSS_DEFINITIONS:
        return [_undefined(type(loss), "value", last_line(type(loss).__call__))]
    start = time.perf_counter()
    loss = numbers_as_symbols(loss)
    is_probability = loss.accepts == {"probability"}
    Y, T = symbols("Y", N, K, positive=is_probability or None), symbols("T", N, K)
    found, expected = sp.Matrix([[loss(Y, T)]]), sp.Matrix([[defined_loss(loss, Y, T)]])
    return [verdict(type(loss), "value", last_line(type(loss).__call__), f"N={N} K={K}", found, expected, start)]


def check_definition_of_activation(act: ActivationFunction) -> list[Check]:
    """The values of an activation function against its definition, and its derivative at the corners."""
    if type(act) not in ACTIVATION_DEFINITIONS:
        return [_undefined(type(act), "value", last_line(type(act).__call__))]
    start = time.perf_counter()
    act = numbers_as_symbols(act)
    if isinstance(act, activations.SReLUActivation):
        act = activations.SReLUActivation(*(symbols(p, 1, 3) for p in ("al", "tl", "ar", "tr")))
    f, origin, checks = ACTIVATION_DEFINITIONS[type(act)], last_line(type(act).__call__), []
    for sizes, X in (("2×3", symbols("X", 2, 3)), ("-430 … 430", sp.Matrix(len(GRID), 3, lambda i, j: GRID[i]))):
        expected = sp.Matrix(*X.shape, lambda i, j, X=X: f(act, X[i, j], j))
        checks.append(verdict(type(act), "value", origin, sizes, act(X), expected, start))
        start = time.perf_counter()
    for x, slope in CORNERS.get(type(act), ()):
        start = time.perf_counter()
        C = sp.Matrix(2, 3, lambda i, j, x=x: x(act, j))
        expected = sp.Matrix(2, 3, lambda i, j, slope=slope: slope(act, j))
        origin = last_line(type(act).gradient)
        checks.append(verdict(type(act), "gradient", origin, f"x={C[0]}", act.gradient(C), expected, start))
    return checks


def _undefined(cls: type, quantity: str, origin: tuple[str, str]) -> Check:
    return without_verdict(cls, quantity, origin, "", f"{quantity} has no definition to compare with")


# -- layers ------------------------------------------------------------------------------------


def has_definition(layer: Layer) -> bool:
    """Whether the feedforward of a layer, and its activation function, are defined here."""
    is_activation_layer = type(layer) is layers.ActivationLayer
    return type(layer) in LAYER_DEFINITIONS and (
        not is_activation_layer or type(layer.act) in ACTIVATION_DEFINITIONS  # type: ignore[attr-defined]
    )


def _check_feedforward(layer: Layer, N: int, remark: str = "") -> list[Check]:
    """Each equation of feedforward, and whatever else it stores in the layer, against the definition."""
    start = time.perf_counter()
    X = symbols("X", N, layer.input_size)
    sizes = f"N={N} D={layer.input_size} K={layer.output_size}{'' if layer.training else ' evaluation'}{remark}"
    expected = LAYER_DEFINITIONS[type(layer)](layer, X)  # before the run, which changes the running statistics
    found = feedforward_values(layer, X, expected)
    checks = []
    for name, value in expected.items():
        checks.append(verdict(type(layer), name, origin_of(layer, name), sizes, found[name], value, start))
        start = time.perf_counter()
    return checks


def _dropout(layer: Any, m: int, n: int) -> Values:
    """r_ij = 1 / (1 - p) if u_ij ≥ p, else 0; without dropout and in evaluation mode there is no R"""
    p = sp.sympify(layer.dropout)
    if not layer.training or p.is_zero:
        return {}
    U = NumpyBackend().uniform(m, n, int(layer.seed), int(layer.renewals), like=np.zeros((1, 1)))
    return {"R": sp.Matrix(m, n, lambda i, j: 1 / (1 - p) if sp.Rational(float(U[i, j])) >= p else 0)}


def _dropout_layer(layer: Any, X: sp.Matrix) -> Values:
    """y_ij = x_ij·r_ij, with r_ij = 1 in evaluation mode"""
    values = _dropout(layer, *X.shape)
    R = values.get("R", sp.ones(*X.shape))
    return values | {"Y": sp.Matrix(*X.shape, lambda i, j: X[i, j] * R[i, j])}


def _linear(layer: Any, X: sp.Matrix) -> Values:
    """z_ik = Σ_j x_ij·w_kj·r_kj + b_k, with r_kj = 1 without dropout and in evaluation mode"""
    K, D = layer.W.shape
    values = _dropout(layer, K, D)
    R = values.get("R", sp.ones(K, D))
    Z = sp.Matrix(X.rows, K, lambda i, k: sum(X[i, j] * layer.W[k, j] * R[k, j] for j in range(D)) + layer.b[0, k])
    return values | {"Z": Z}


def _linear_layer(layer: Any, X: sp.Matrix) -> Values:
    values = _linear(layer, X)
    values["Y"] = values.pop("Z")
    return values


def _activation_layer(layer: Any, X: sp.Matrix) -> Values:
    values = _linear(layer, X)
    Z, f = values["Z"], ACTIVATION_DEFINITIONS[type(layer.act)]
    return values | {"Y": sp.Matrix(*Z.shape, lambda i, k: f(layer.act, Z[i, k], k))}


def _srelu_layer(layer: Any, X: sp.Matrix) -> Values:
    values = _linear(layer, X)
    Z = values["Z"]
    return values | {"Y": sp.Matrix(*Z.shape, lambda i, k: _srelu(layer, Z[i, k], 0 if layer.shared else k))}


def _softmax_layer(layer: Any, X: sp.Matrix) -> Values:
    """y_ik = e^z_ik / Σ_j e^z_ij"""
    values = _linear(layer, X)
    Z = values["Z"]
    Y = sp.Matrix(*Z.shape, lambda i, k: sp.exp(Z[i, k]) / sum(sp.exp(z) for z in Z.row(i)))
    return values | {"Y": Y}


def _log_softmax_layer(layer: Any, X: sp.Matrix) -> Values:
    """y_ik = z_ik - ln Σ_j e^z_ij"""
    values = _linear(layer, X)
    Z = values["Z"]
    return values | {"Y": sp.Matrix(*Z.shape, lambda i, k: Z[i, k] - sp.log(sum(sp.exp(z) for z in Z.row(i))))}


def _batch_normalization(layer: Any, X: sp.Matrix) -> Values:
    """y_ij = γ_j·(x_ij - μ_j) / √(σ_j² + ε) + β_j; the running variance is the unbiased one, and N = 1 changes none"""
    N, D = X.shape
    mean, variance, m = layer.running_mean, layer.running_variance, layer.momentum
    mu, Sigma = mean, variance
    if layer.training:
        mu = sp.Matrix(1, D, lambda _, j: sum(X[i, j] for i in range(N)) / sp.Integer(N))
        Sigma = sp.Matrix(1, D, lambda _, j: sum((X[i, j] - mu[j]) ** 2 for i in range(N)) / sp.Integer(N))
    if layer.training and N > 1:
        mean = sp.Matrix(1, D, lambda _, j: (1 - m) * mean[j] + m * mu[j])
        variance = sp.Matrix(1, D, lambda _, j: (1 - m) * variance[j] + m * Sigma[j] * N / (N - 1))
    S = sp.Matrix(1, D, lambda _, j: 1 / sp.sqrt(Sigma[j] + layer.epsilon))
    R = sp.Matrix(N, D, lambda i, j: X[i, j] - mu[j])
    Z = sp.Matrix(N, D, lambda i, j: R[i, j] * S[j])
    Y = sp.Matrix(N, D, lambda i, j: layer.gamma[j] * Z[i, j] + layer.beta[j])
    values = {"mu": mu, "R": R, "Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}
    return values | {"running_mean": mean, "running_variance": variance}


def _layer_normalization(layer: Any, X: sp.Matrix) -> Values:
    """y_ij = γ_j·(x_ij - μ_i) / √(σ_i² + ε) + β_j, with the mean μ_i and the variance σ_i² of row i"""
    N, D = X.shape
    mu = sp.Matrix(N, 1, lambda i, _: sum(X[i, j] for j in range(D)) / sp.Integer(D))
    Sigma = sp.Matrix(N, 1, lambda i, _: sum((X[i, j] - mu[i]) ** 2 for j in range(D)) / sp.Integer(D))
    S = sp.Matrix(N, 1, lambda i, _: 1 / sp.sqrt(Sigma[i] + layer.epsilon))
    R = sp.Matrix(N, D, lambda i, j: X[i, j] - mu[i])
    Z = sp.Matrix(N, D, lambda i, j: R[i, j] * S[i])
    Y = sp.Matrix(N, D, lambda i, j: layer.gamma[j] * Z[i, j] + layer.beta[j])
    return {"mu": mu, "R": R, "Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}


def _rms_normalization(layer: Any, X: sp.Matrix) -> Values:
    """y_ij = γ_j·x_ij / √(Σ_k x_ik² / D + ε)"""
    N, D = X.shape
    Sigma = sp.Matrix(N, 1, lambda i, _: sum(X[i, j] ** 2 for j in range(D)) / sp.Integer(D))
    S = sp.Matrix(N, 1, lambda i, _: 1 / sp.sqrt(Sigma[i] + layer.epsilon))
    Z = sp.Matrix(N, D, lambda i, j: X[i, j] * S[i])
    Y = sp.Matrix(N, D, lambda i, j: layer.gamma[j] * Z[i, j])
    return {"Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}


LAYER_DEFINITIONS: dict[type[Layer], Callable[[Any, sp.Matrix], Values]] = {
    layers.LinearLayer: _linear_layer,
    layers.ActivationLayer: _activation_layer,
    layers.SReLULayer: _srelu_layer,
    layers.SoftmaxLayer: _softmax_layer,
    layers.LogSoftmaxLayer: _log_softmax_layer,
    layers.BatchNormalizationLayer: _batch_normalization,
    layers.LayerNormalizationLayer: _layer_normalization,
    layers.RMSNormalizationLayer: _rms_normalization,
    layers.DropoutLayer: _dropout_layer,
}


# -- losses: the value for N×K matrices Y and T, whose targets are smoothed already, and numbers such as δ ----


def _sum(f: Callable[..., sp.Expr]) -> Callable[..., sp.Expr]:
    """Σ_ij f(y_ij, t_ij)"""
    return lambda Y, T, **numbers: sp.Add(*(f(y, t, **numbers) for y, t in zip(Y, T, strict=True)))


def _log_sigma(x: sp.Expr) -> sp.Expr:
    return sp.log(1 / (1 + sp.exp(-x)))


_squared_error = _sum(lambda y, t: (y - t) ** 2)


def _huber(y: sp.Expr, t: sp.Expr, delta: sp.Expr) -> sp.Expr:
    """d²/2 if |d| ≤ δ, else δ·(|d| - δ/2), for d = y - t"""
    d, half = y - t, sp.Rational(1, 2)
    left, right = delta * (-d - delta * half), delta * (d - delta * half)
    return sp.Piecewise((left, d < -delta), (right, d > delta), (half * d**2, True))


def _multi_margin(Y: sp.Matrix, T: sp.Matrix, margin: sp.Expr) -> sp.Expr:
    """Σ_i Σ_k (1 - t_ik)·max(0, m + y_ik - Σ_j t_ij·y_ij) / K"""
    N, K = Y.shape
    own = [sum(T[i, j] * Y[i, j] for j in range(K)) for i in range(N)]
    terms = ((1 - T[i, k]) * _at_least_zero(margin + Y[i, k] - own[i]) for i in range(N) for k in range(K))
    return sp.Add(*terms) / K


def _at_least_zero(x: sp.Expr) -> sp.Expr:
    """max(0, x)"""
    return _pieces(0, x < 0, x)


LOSS_DEFINITIONS: dict[type[LossFunction], Callable[..., sp.Expr]] = {
    loss_functions.SquaredErrorLoss: _squared_error,
    loss_functions.MeanSquaredErrorLoss: lambda Y, T: _squared_error(Y, T) / sp.Integer(len(Y)),
    loss_functions.HuberLoss: _sum(_huber),
    loss_functions.CrossEntropyLoss: _sum(lambda y, t: -t * sp.log(y)),
    loss_functions.SoftmaxCrossEntropyLoss: lambda Y, T: (
        -sp.Add(
            *(
                T[i, k] * sp.log(sp.exp(Y[i, k]) / sum(sp.exp(y) for y in Y.row(i)))
                for i in range(Y.rows)
                for k in range(Y.cols)
            )
        )
    ),
    loss_functions.LogProbabilityLoss: _sum(lambda y, t: -t * y),
    loss_functions.NegativeLogLikelihoodLoss: lambda Y, T: (
        -sp.Add(*(sp.log(sum(Y[i, k] * T[i, k] for k in range(Y.cols))) for i in range(Y.rows)))
    ),
    loss_functions.LogisticCrossEntropyLoss: _sum(lambda y, t: -t * _log_sigma(y)),
    loss_functions.BinaryCrossEntropyLoss: _sum(lambda y, t: -t * _log_sigma(y) - (1 - t) * _log_sigma(-y)),
    loss_functions.HingeLoss: _sum(lambda y, t: _at_least_zero(1 - (2 * t - 1) * y)),
    loss_functions.MultiMarginLoss: _multi_margin,
}


def defined_loss(loss: LossFunction, Y: sp.Matrix, T: sp.Matrix) -> sp.Expr:
    """The value of a loss by its definition, with smoothed targets if it smooths them."""
    S, K, numbers = T, Y.cols, dict(vars(loss))
    if isinstance(loss, loss_functions._SmoothedLoss):
        s = numbers.pop("label_smoothing")
        S = T.applyfunc(lambda t: (1 - s) * t + sp.sympify(s) / K)
    return LOSS_DEFINITIONS[type(loss)](Y, S, **numbers)


# -- activation functions: f(x) in column k ------------------------------------------------------


def _pieces(left: sp.Expr, condition: sp.Expr, right: sp.Expr) -> sp.Expr:
    return sp.Piecewise((left, condition), (right, True))


def _srelu(p: Any, x: sp.Expr, k: int) -> sp.Expr:
    """al·(x - tl) + tl if x ≤ tl, ar·(x - tr) + tr if x ≥ tr, else x; `p` has the four 1×K parameters"""
    al, tl, ar, tr = (getattr(p, name)[0, k] for name in ("al", "tl", "ar", "tr"))
    return sp.Piecewise((al * (x - tl) + tl, x <= tl), (ar * (x - tr) + tr, x >= tr), (x, True))


ACTIVATION_DEFINITIONS: dict[type[ActivationFunction], Callable[[Any, sp.Expr, int], sp.Expr]] = {
    activations.ReLUActivation: lambda act, x, k: _pieces(0, x < 0, x),
    activations.LeakyReLUActivation: lambda act, x, k: _pieces(act.alpha * x, x < act.alpha * x, x),
    activations.AllReLUActivation: lambda act, x, k: _pieces(act.alpha * x, x < 0, x),
    activations.TReLUActivation: lambda act, x, k: _pieces(0, x < act.epsilon, x),
    activations.SReLUActivation: _srelu,
    activations.HyperbolicTangentActivation: lambda act, x, k: (sp.exp(x) - sp.exp(-x)) / (sp.exp(x) + sp.exp(-x)),
    activations.SigmoidActivation: lambda act, x, k: 1 / (1 + sp.exp(-x)),
    activations.GELUActivation: lambda act, x, k: x * (1 + sp.erf(x / sp.sqrt(2))) / 2,
    activations.SiLUActivation: lambda act, x, k: x / (1 + sp.exp(-x)),
    activations.ELUActivation: lambda act, x, k: _pieces(act.alpha * (sp.exp(x) - 1), x < 0, x),
    activations.SoftplusActivation: lambda act, x, k: sp.log(1 + sp.exp(x)),
}

# the corners of f, and f' there: that of the right-hand piece, as in the paper; SReLU's outer pieces are closed
_at_zero = ((lambda act, k: sp.S.Zero, lambda act, k: sp.S.One),)
CORNERS: dict[type[ActivationFunction], tuple[tuple[Callable, Callable], ...]] = {
    activations.ReLUActivation: _at_zero,
    activations.LeakyReLUActivation: _at_zero,
    activations.AllReLUActivation: _at_zero,
    activations.ELUActivation: _at_zero,
    activations.TReLUActivation: ((lambda act, k: act.epsilon, lambda act, k: sp.S.One),),
    activations.SReLUActivation: (
        (lambda act, k: act.tl[0, k], lambda act, k: act.al[0, k]),
        (lambda act, k: act.tr[0, k], lambda act, k: _pieces(act.al[0, k], act.tr[0, k] <= act.tl[0, k], act.ar[0, k])),
    ),
}
