"""The definitions of layers, losses and activation functions of the package, in index notation.

Derivatives cannot see whether a layer computes the values that it should. So these are compared with what stands here,
which is written for one entry and uses nothing from the table but random numbers. A class from outside the package has
no definition.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions
from matgrad.index_notation.entries import FIRST, Index
from matgrad.index_notation.expressions import ONE, Expression
from matgrad.index_notation.functions import Function, arbitrary, erf, exp, log, sqrt, step
from matgrad.index_notation.sums import summed
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import uniform
from matgrad.proofs.matrices import IndexMatrix, lifted, matrix

Values = dict[str, IndexMatrix]  # matrices by name, such as 'Z' and 'Y'
HALF = Fraction(1, 2)


def number(x: Any) -> Expression:
    """A number, a size or a scalar as an expression."""
    return lifted(x).entry


# -- layers ------------------------------------------------------------------------------------


def definition_of_layer(layer: Layer, X: IndexMatrix) -> Values | None:
    """What feedforward should compute for an input X, by name; None if that is not known."""
    if type(layer) not in LAYERS:
        return None
    if isinstance(layer, layers.ActivationLayer) and type(layer.act) not in ACTIVATIONS:
        return None
    return LAYERS[type(layer)](layer, X)


def _dropout(layer: Any, A: IndexMatrix) -> Values:
    """r_ij = 1/(1 - p) if u_ij ≥ p, else 0; without dropout and in evaluation mode there is no R"""
    if not layer.training or not layer.dropout:
        return {}
    m, n = A.shape
    p, U = number(layer.dropout), uniform(m, n, seed=layer.seed, count=layer.renewals, like=A)
    return {"R": matrix(A.shape, lambda i, j: step(U[i, j] - p) / (1 - p))}


def _dropout_layer(layer: Any, X: IndexMatrix) -> Values:
    """y_ij = x_ij·r_ij, with r_ij = 1 in evaluation mode"""
    values = _dropout(layer, X)
    return values | {"Y": matrix(X.shape, lambda i, j: X[i, j] * (values["R"][i, j] if values else ONE))}


def _linear(layer: Any, X: IndexMatrix, name: str = "Z") -> Values:
    """z_ik = Σ_j x_ij·w_kj·r_kj + b_k, with r_kj = 1 without dropout and in evaluation mode"""
    W, b = layer.W, layer.b
    values = _dropout(layer, W)

    def weight(k: Index, j: Index) -> Expression:
        return W[k, j] * (values["R"][k, j] if values else ONE)

    def entry(i: Index, k: Index) -> Expression:
        return summed(lambda j: X[i, j] * weight(k, j), X.columns) + b[FIRST, k]

    return values | {name: matrix((X.shape[0], W.shape[0]), entry)}


def _linear_layer(layer: Any, X: IndexMatrix) -> Values:
    return _linear(layer, X, "Y")


def _of_entries(f: Callable[[Any, IndexMatrix, Index, Index], Expression]) -> Callable[[Any, IndexMatrix], Values]:
    """Z as in a linear layer, and y_ik = f(layer, Z, i, k)"""

    def definition(layer: Any, X: IndexMatrix) -> Values:
        values = _linear(layer, X)
        Z = values["Z"]
        return values | {"Y": matrix(Z.shape, lambda i, k: f(layer, Z, i, k))}

    return definition


def _row_total(Z: IndexMatrix, i: Index) -> Expression:
    """Σ_j e^z_ij"""
    return summed(lambda j: exp(Z[i, j]), Z.columns)


def _batch_normalization(layer: Any, X: IndexMatrix) -> Values:
    """y_ij = γ_j·(x_ij - μ_j)/√(σ_j² + ε) + β_j; the running variance is the unbiased one, and N = 1 changes none"""
    shape, row = X.shape, (1, X.shape[1])
    N, m, epsilon = number(shape[0]), number(layer.momentum), number(layer.epsilon)
    mu, Sigma = layer.running_mean, layer.running_variance
    mean, variance = mu, Sigma
    if layer.training:
        mu = matrix(row, lambda _, j: summed(lambda i: X[i, j], X.rows) / N)
        Sigma = matrix(row, lambda _, j: summed(lambda i: (X[i, j] - mu[FIRST, j]) ** 2, X.rows) / N)
    if layer.training and X.rows != FIRST.size:
        mean = matrix(row, lambda _, j: (1 - m) * layer.running_mean[_, j] + m * mu[_, j])
        variance = matrix(row, lambda _, j: (1 - m) * layer.running_variance[_, j] + m * Sigma[_, j] * N / (N - 1))
    S = matrix(row, lambda _, j: 1 / sqrt(Sigma[_, j] + epsilon))
    R = matrix(shape, lambda i, j: X[i, j] - mu[FIRST, j])
    Z = matrix(shape, lambda i, j: R[i, j] * S[FIRST, j])
    Y = matrix(shape, lambda i, j: layer.gamma[FIRST, j] * Z[i, j] + layer.beta[FIRST, j])
    values = {"mu": mu, "R": R, "Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}
    return values | {"running_mean": mean, "running_variance": variance}


def _layer_normalization(layer: Any, X: IndexMatrix) -> Values:
    """y_ij = γ_j·(x_ij - μ_i)/√(σ_i² + ε) + β_j, with the mean μ_i and the variance σ_i² of the i-th row"""
    column, D, epsilon = (X.shape[0], 1), number(X.shape[1]), number(layer.epsilon)
    mu = matrix(column, lambda i, _: summed(lambda j: X[i, j], X.columns) / D)
    R = matrix(X.shape, lambda i, j: X[i, j] - mu[i, FIRST])
    Sigma = matrix(column, lambda i, _: summed(lambda j: (X[i, j] - mu[i, FIRST]) ** 2, X.columns) / D)
    S = matrix(column, lambda i, _: 1 / sqrt(Sigma[i, _] + epsilon))
    Z = matrix(X.shape, lambda i, j: (X[i, j] - mu[i, FIRST]) * S[i, FIRST])
    Y = matrix(X.shape, lambda i, j: layer.gamma[FIRST, j] * Z[i, j] + layer.beta[FIRST, j])
    return {"mu": mu, "R": R, "Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}


def _rms_normalization(layer: Any, X: IndexMatrix) -> Values:
    """y_ij = γ_j·x_ij/√(s_i + ε), with the mean s_i of the squares of the i-th row"""
    column, D, epsilon = (X.shape[0], 1), number(X.shape[1]), number(layer.epsilon)
    Sigma = matrix(column, lambda i, _: summed(lambda j: X[i, j] ** 2, X.columns) / D)
    S = matrix(column, lambda i, _: 1 / sqrt(Sigma[i, _] + epsilon))
    Z = matrix(X.shape, lambda i, j: X[i, j] * S[i, FIRST])
    Y = matrix(X.shape, lambda i, j: layer.gamma[FIRST, j] * Z[i, j])
    return {"Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}


LAYERS: dict[type[Layer], Callable[[Any, IndexMatrix], Values]] = {
    layers.LinearLayer: _linear_layer,
    layers.ActivationLayer: _of_entries(lambda layer, Z, i, k: ACTIVATIONS[type(layer.act)](layer.act, Z[i, k], k)),
    layers.SReLULayer: _of_entries(lambda layer, Z, i, k: _srelu(layer, Z[i, k], FIRST if layer.shared else k)),
    layers.SoftmaxLayer: _of_entries(lambda layer, Z, i, k: exp(Z[i, k]) / _row_total(Z, i)),
    layers.LogSoftmaxLayer: _of_entries(lambda layer, Z, i, k: Z[i, k] - log(_row_total(Z, i))),
    layers.BatchNormalizationLayer: _batch_normalization,
    layers.LayerNormalizationLayer: _layer_normalization,
    layers.RMSNormalizationLayer: _rms_normalization,
    layers.DropoutLayer: _dropout_layer,
}


# -- activation functions: f(x) in column k ------------------------------------------------------


def _pieces(left: Expression, x: Expression, right: Expression) -> Expression:
    """`left` where x < 0, and `right` where x ≥ 0"""
    return (1 - step(x)) * left + step(x) * right


def _srelu(p: Any, x: Expression, k: Index) -> Expression:
    """al·(x - tl) + tl if x ≤ tl, ar·(x - tr) + tr if x ≥ tr, else x; `p` has the four 1×K parameters"""
    al, tl, ar, tr = (getattr(p, name)[FIRST, k] for name in ("al", "tl", "ar", "tr"))
    return _pieces(_pieces(x, x - tr, ar * (x - tr) + tr), tl - x, al * (x - tl) + tl)


class ArbitraryActivation(activations.ActivationFunction):
    """act(x) and act'(x), of which nothing else is known."""

    function: Function = arbitrary("act")

    def __call__(self, X: IndexMatrix) -> IndexMatrix:
        """act(x)"""
        return IndexMatrix(X.shape, self.function(X.entry))

    def gradient(self, X: IndexMatrix) -> IndexMatrix:
        """act'(x)"""
        return IndexMatrix(X.shape, self.function.derivative(X.entry))


def _sigma(x: Expression) -> Expression:
    """1/(1 + e^-x)"""
    return 1 / (1 + exp(-x))


def _gelu(x: Expression) -> Expression:
    """x·(1 + erf(x/√2))/2"""
    return x * (1 + erf(x * Fraction(2) ** -1 * sqrt(ONE + ONE))) * HALF


ACTIVATIONS: dict[type[activations.ActivationFunction], Callable[[Any, Expression, Index], Expression]] = {
    activations.ReLUActivation: lambda act, x, k: _pieces(0 * x, x, x),
    activations.LeakyReLUActivation: lambda act, x, k: _pieces(number(act.alpha) * x, x - number(act.alpha) * x, x),
    activations.AllReLUActivation: lambda act, x, k: _pieces(number(act.alpha) * x, x, x),
    activations.TReLUActivation: lambda act, x, k: _pieces(0 * x, x - number(act.epsilon), x),
    activations.SReLUActivation: _srelu,
    activations.HyperbolicTangentActivation: lambda act, x, k: (exp(x) - exp(-x)) / (exp(x) + exp(-x)),
    activations.SigmoidActivation: lambda act, x, k: _sigma(x),
    activations.GELUActivation: lambda act, x, k: _gelu(x),
    activations.SiLUActivation: lambda act, x, k: x * _sigma(x),
    activations.ELUActivation: lambda act, x, k: _pieces(number(act.alpha) * (exp(x) - 1), x, x),
    activations.SoftplusActivation: lambda act, x, k: log(1 + exp(x)),
    ArbitraryActivation: lambda act, x, k: act.function(x),
}


# -- losses: the value for N×K matrices Y and T, whose targets are smoothed already, and the loss itself ---------


def definition_of_loss(loss: LossFunction, Y: IndexMatrix, T: IndexMatrix) -> Expression | None:
    """The value of a loss, with smoothed targets if it smooths them; None if that is not known."""
    if type(loss) not in LOSSES:
        return None
    S = T
    if isinstance(loss, loss_functions._SmoothedLoss):
        s, K = number(loss.label_smoothing), number(T.shape[1])
        S = matrix(T.shape, lambda i, k: (1 - s) * T[i, k] + s / K)
    return LOSSES[type(loss)](Y, S, loss)


Loss = Callable[[IndexMatrix, IndexMatrix, Any], Expression]


def _sum(f: Callable[[Expression, Expression, Any], Expression]) -> Loss:
    """Σ_ik f(y_ik, t_ik)"""
    return lambda Y, T, loss: summed(lambda i: summed(lambda k: f(Y[i, k], T[i, k], loss), Y.columns), Y.rows)


_squared_error = _sum(lambda y, t, loss: (y - t) ** 2)


def _huber(y: Expression, t: Expression, loss: Any) -> Expression:
    """d²/2 if |d| ≤ δ, else δ·(|d| - δ/2), for d = y - t"""
    d, delta = y - t, number(loss.delta)
    left, right = delta * (-d - delta * HALF), delta * (d - delta * HALF)
    return _pieces(_pieces(d**2 * HALF, -d - delta, left), d - delta, right)


def _multi_margin(Y: IndexMatrix, T: IndexMatrix, loss: Any) -> Expression:
    """Σ_i Σ_k (1 - t_ik)·max(0, m + y_ik - Σ_j t_ij·y_ij) / K"""

    def term(i: Index, k: Index) -> Expression:
        own = summed(lambda j: T[i, j] * Y[i, j], Y.columns)
        return (1 - T[i, k]) * _at_least_zero(number(loss.margin) + Y[i, k] - own)

    return summed(lambda i: summed(lambda k: term(i, k), Y.columns), Y.rows) / number(Y.shape[1])


def _at_least_zero(x: Expression) -> Expression:
    """max(0, x)"""
    return _pieces(0 * x, x, x)


def _softmax_cross_entropy(Y: IndexMatrix, T: IndexMatrix, loss: Any) -> Expression:
    """-Σ_ik t_ik·log(e^y_ik / Σ_j e^y_ij)"""
    return -summed(
        lambda i: summed(lambda k: T[i, k] * log(exp(Y[i, k]) / _row_total(Y, i)), Y.columns),
        Y.rows,
    )


LOSSES: dict[type[LossFunction], Loss] = {
    loss_functions.SquaredErrorLoss: _squared_error,
    loss_functions.MeanSquaredErrorLoss: lambda Y, T, loss: (
        _squared_error(Y, T, loss) / (number(Y.shape[0]) * number(Y.shape[1]))
    ),
    loss_functions.HuberLoss: _sum(_huber),
    loss_functions.CrossEntropyLoss: _sum(lambda y, t, loss: -t * log(y)),
    loss_functions.SoftmaxCrossEntropyLoss: _softmax_cross_entropy,
    loss_functions.LogProbabilityLoss: _sum(lambda y, t, loss: -t * y),
    loss_functions.NegativeLogLikelihoodLoss: lambda Y, T, loss: (
        -summed(lambda i: log(summed(lambda k: Y[i, k] * T[i, k], Y.columns)), Y.rows)
    ),
    loss_functions.LogisticCrossEntropyLoss: _sum(lambda y, t, loss: -t * log(_sigma(y))),
    loss_functions.BinaryCrossEntropyLoss: _sum(lambda y, t, loss: -t * log(_sigma(y)) - (1 - t) * log(_sigma(-y))),
    loss_functions.HingeLoss: _sum(lambda y, t, loss: _at_least_zero(1 - (2 * t - 1) * y)),
    loss_functions.MultiMarginLoss: _multi_margin,
}
