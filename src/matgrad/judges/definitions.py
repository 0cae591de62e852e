"""The definitions of layers, losses and activation functions of the package, for one entry.

Derivatives cannot see whether a layer computes the values that it should. So these are compared with what stands here,
which uses nothing from the table but random numbers. A definition is written once, over the entries of an `Algebra`. A
class from outside the package has no definition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions
from matgrad.index_notation import functions
from matgrad.layers.dropout import DROPOUT_LAYERS, LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction

if TYPE_CHECKING:
    from matgrad.judges.algebra import Algebra

Values = dict[str, Any]  # matrices by name, such as 'Z' and 'Y'


def definition_of(thing: Any, e: Algebra) -> Callable[..., Any] | None:
    """What a layer, loss, activation or softmax function should compute, by its definition; None if that is not known.

    For a layer, that is a function of X whose result has the values of feedforward by name. The targets of a loss that
    smooths them are smoothed first.
    """
    cls = type(thing)
    if isinstance(thing, layers.ActivationLayer) and type(thing.act) not in ACTIVATIONS:
        return None
    if cls in LAYERS:
        return lambda X: LAYERS[cls](e, thing, X)
    if cls in LOSSES:
        return lambda Y, T: LOSSES[cls](e, Y, _smoothed(e, thing, T), thing)
    if cls in ACTIVATIONS:
        return lambda X: e.matrix(X.shape, lambda i, j: ACTIVATIONS[cls](e, thing, X[i, j], j))
    if (name := getattr(thing, "__name__", "")) in SOFTMAX:
        return lambda X: e.matrix(X.shape, lambda i, j: SOFTMAX[name](e, X, i, j))
    return None


# -- layers ------------------------------------------------------------------------------------


def _dropout(e: Algebra, layer: Any, A: Any) -> Values:
    """r_ij = 1/(1 - p) if u_ij ≥ p, else 0; without dropout and in evaluation mode there is no R"""
    if not isinstance(layer, LayerWithDropout) or not layer.training or not layer.dropout:
        return {}
    m, n = A.shape
    p, U = e.number(layer.dropout), e.uniform(m, n, seed=layer.seed, count=layer.renewals, like=A)
    return {"R": e.matrix(A.shape, lambda i, j: e.pieces(0, U[i, j] - p, 1) / (1 - p))}


def _dropout_layer(e: Algebra, layer: Any, X: Any) -> Values:
    """y_ij = x_ij·r_ij, with r_ij = 1 in evaluation mode"""
    values = _dropout(e, layer, X)
    return values | {"Y": e.matrix(X.shape, lambda i, j: X[i, j] * (values["R"][i, j] if values else 1))}


def _linear(e: Algebra, layer: Any, X: Any, name: str = "Z") -> Values:
    """z_ik = Σ_j x_ij·w_kj·r_kj + b_k, with r_kj = 1 without dropout and in evaluation mode"""
    W, b = layer.W, layer.b
    values = _dropout(e, layer, W)

    def entry(i: Any, k: Any) -> Any:
        return e.sum(lambda j: X[i, j] * W[k, j] * (values["R"][k, j] if values else 1), X.shape[1]) + b[e.first, k]

    return values | {name: e.matrix((X.shape[0], W.shape[0]), entry)}


def _of_entries(f: Callable[[Algebra, Any, Any, Any, Any], Any]) -> Callable[[Algebra, Any, Any], Values]:
    """Z as in a linear layer, and y_ik = f(layer, Z, i, k)"""

    def definition(e: Algebra, layer: Any, X: Any) -> Values:
        values = _linear(e, layer, X)
        Z = values["Z"]
        return values | {"Y": e.matrix(Z.shape, lambda i, k: f(e, layer, Z, i, k))}

    return definition


def _row_total(e: Algebra, Z: Any, i: Any) -> Any:
    """Σ_j e^z_ij"""
    return e.sum(lambda j: e.exp(Z[i, j]), Z.shape[1])


def _softmax(e: Algebra, Z: Any, i: Any, k: Any) -> Any:
    """e^z_ik / Σ_j e^z_ij"""
    return e.exp(Z[i, k]) / _row_total(e, Z, i)


def _log_softmax(e: Algebra, Z: Any, i: Any, k: Any) -> Any:
    """log(e^z_ik / Σ_j e^z_ij)"""
    return e.log(_softmax(e, Z, i, k))


SOFTMAX: dict[str, Callable[[Algebra, Any, Any, Any], Any]] = {
    "softmax": _softmax,
    "stable_softmax": _softmax,
    "log_softmax": _log_softmax,
    "stable_log_softmax": _log_softmax,
}


def _batch_normalization(e: Algebra, layer: Any, X: Any) -> Values:
    """y_ij = γ_j·(x_ij - μ_j)/√(σ_j² + ε) + β_j; the running variance is the unbiased one, and N = 1 changes none"""
    shape, row = X.shape, (1, X.shape[1])
    N, m, epsilon = e.number(shape[0]), e.number(layer.momentum), e.number(layer.epsilon)
    mu, Sigma = layer.running_mean, layer.running_variance
    mean, variance = mu, Sigma
    if layer.training:
        mu = e.matrix(row, lambda _, j: e.sum(lambda i: X[i, j], X.shape[0]) / N)
        Sigma = e.matrix(row, lambda _, j: e.sum(lambda i: (X[i, j] - mu[e.first, j]) ** 2, X.shape[0]) / N)
    if layer.training and not e.is_one(X.shape[0]):
        mean = e.matrix(row, lambda _, j: (1 - m) * layer.running_mean[_, j] + m * mu[_, j])
        variance = e.matrix(row, lambda _, j: (1 - m) * layer.running_variance[_, j] + m * Sigma[_, j] * N / (N - 1))
    S = e.matrix(row, lambda _, j: 1 / e.sqrt(Sigma[_, j] + epsilon))
    R = e.matrix(shape, lambda i, j: X[i, j] - mu[e.first, j])
    Z = e.matrix(shape, lambda i, j: R[i, j] * S[e.first, j])
    Y = e.matrix(shape, lambda i, j: layer.gamma[e.first, j] * Z[i, j] + layer.beta[e.first, j])
    values = {"mu": mu, "R": R, "Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}
    return values | {"running_mean": mean, "running_variance": variance}


def _layer_normalization(e: Algebra, layer: Any, X: Any) -> Values:
    """y_ij = γ_j·(x_ij - μ_i)/√(σ_i² + ε) + β_j, with the mean μ_i and the variance σ_i² of the i-th row"""
    D = e.number(X.shape[1])
    mu = e.matrix((X.shape[0], 1), lambda i, _: e.sum(lambda j: X[i, j], X.shape[1]) / D)
    R = e.matrix(X.shape, lambda i, j: X[i, j] - mu[i, e.first])
    values = {"mu": mu, "R": R} | _rms_normalization(e, layer, R)
    Y, beta = values["Y"], layer.beta
    return values | {"Y": e.matrix(X.shape, lambda i, j: Y[i, j] + beta[e.first, j])}


def _rms_normalization(e: Algebra, layer: Any, X: Any) -> Values:
    """y_ij = γ_j·x_ij/√(s_i + ε), with the mean s_i of the squares of the i-th row"""
    column, D, epsilon = (X.shape[0], 1), e.number(X.shape[1]), e.number(layer.epsilon)
    Sigma = e.matrix(column, lambda i, _: e.sum(lambda j: X[i, j] ** 2, X.shape[1]) / D)
    S = e.matrix(column, lambda i, _: 1 / e.sqrt(Sigma[i, _] + epsilon))
    Z = e.matrix(X.shape, lambda i, j: X[i, j] * S[i, e.first])
    Y = e.matrix(X.shape, lambda i, j: layer.gamma[e.first, j] * Z[i, j])
    return {"Sigma": Sigma, "inv_sqrt_Sigma": S, "Z": Z, "Y": Y}


LAYERS: dict[type[Layer], Callable[[Algebra, Any, Any], Values]] = {
    layers.LinearLayer: partial(_linear, name="Y"),
    layers.ActivationLayer: _of_entries(
        lambda e, layer, Z, i, k: ACTIVATIONS[type(layer.act)](e, layer.act, Z[i, k], k)
    ),
    layers.SReLULayer: _of_entries(lambda e, layer, Z, i, k: _srelu(e, layer, Z[i, k], e.first if layer.shared else k)),
    layers.SoftmaxLayer: _of_entries(lambda e, layer, Z, i, k: _softmax(e, Z, i, k)),
    layers.LogSoftmaxLayer: _of_entries(lambda e, layer, Z, i, k: Z[i, k] - e.log(_row_total(e, Z, i))),
    layers.BatchNormalizationLayer: _batch_normalization,
    layers.LayerNormalizationLayer: _layer_normalization,
    layers.RMSNormalizationLayer: _rms_normalization,
    layers.DropoutLayer: _dropout_layer,
}
LAYERS |= {DROPOUT_LAYERS[cls]: LAYERS[cls] for cls in DROPOUT_LAYERS}


# -- activation functions: f(x) in column k ------------------------------------------------------


def _srelu(e: Algebra, p: Any, x: Any, k: Any) -> Any:
    """al·(x - tl) + tl if x ≤ tl, ar·(x - tr) + tr if x ≥ tr, else x; `p` has the four 1×K parameters"""
    al, tl, ar, tr = (getattr(p, name)[e.first, k] for name in ("al", "tl", "ar", "tr"))
    return e.pieces(e.pieces(x, x - tr, ar * (x - tr) + tr), tl - x, al * (x - tl) + tl)


class ArbitraryActivation(activations.ActivationFunction):
    """A function and its derivative, of which nothing is known but the name; for matrices of symbolic sizes."""

    def __init__(self, name: str = "act") -> None:
        self.name = name

    def __call__(self, X: Any) -> Any:
        """f(X)"""
        return X.call(self.name)

    def gradient(self, X: Any) -> Any:
        """f'(X)"""
        return X.call(f"{self.name}.gradient")


def _leaky(e: Algebra, x: Any, y: Any) -> Any:
    """y if x < y, else x"""
    return e.pieces(y, x - y, x)


def _sigma(e: Algebra, x: Any) -> Any:
    """1/(1 + e^-x)"""
    return 1 / (1 + e.exp(-x))


def _gelu(e: Algebra, x: Any) -> Any:
    """x·(1 + erf(x/√2))/2"""
    return x * (1 + e.erf(x * e.half * e.sqrt(e.number(2)))) * e.half


ACTIVATIONS: dict[type[activations.ActivationFunction], Callable[[Algebra, Any, Any, Any], Any]] = {
    activations.ReLUActivation: lambda e, act, x, k: e.pieces(0 * x, x, x),
    activations.LeakyReLUActivation: lambda e, act, x, k: _leaky(e, x, e.number(act.alpha) * x),
    activations.AllReLUActivation: lambda e, act, x, k: e.pieces(e.number(act.alpha) * x, x, x),
    activations.TReLUActivation: lambda e, act, x, k: e.pieces(0 * x, x - e.number(act.epsilon), x),
    activations.SReLUActivation: _srelu,
    activations.HyperbolicTangentActivation: lambda e, act, x, k: (e.exp(x) - e.exp(-x)) / (e.exp(x) + e.exp(-x)),
    activations.SigmoidActivation: lambda e, act, x, k: _sigma(e, x),
    activations.GELUActivation: lambda e, act, x, k: _gelu(e, x),
    activations.SiLUActivation: lambda e, act, x, k: x * _sigma(e, x),
    activations.ELUActivation: lambda e, act, x, k: e.pieces(e.number(act.alpha) * (e.exp(x) - 1), x, x),
    activations.SoftplusActivation: lambda e, act, x, k: e.log(1 + e.exp(x)),
    ArbitraryActivation: lambda e, act, x, k: functions.arbitrary(act.name)(x),
}


# -- losses: the value for N×K matrices Y and T, whose targets are smoothed already, and the loss itself ---------


def _smoothed(e: Algebra, loss: LossFunction, T: Any) -> Any:
    """(1 - s)·t_ik + s/K"""
    if not isinstance(loss, loss_functions._SmoothedLoss):
        return T
    s, K = e.number(loss.label_smoothing), e.number(T.shape[1])
    return e.matrix(T.shape, lambda i, k: (1 - s) * T[i, k] + s / K)


Loss = Callable[["Algebra", Any, Any, Any], Any]


def _sum(f: Callable[[Algebra, Any, Any, Any], Any]) -> Loss:
    """Σ_ik f(y_ik, t_ik)"""
    return lambda e, Y, T, loss: e.sum(lambda i: e.sum(lambda k: f(e, Y[i, k], T[i, k], loss), Y.shape[1]), Y.shape[0])


_squared_error = _sum(lambda e, y, t, loss: (y - t) ** 2)


def _huber(e: Algebra, y: Any, t: Any, loss: Any) -> Any:
    """d²/2 if |d| ≤ δ, else δ·(|d| - δ/2), for d = y - t"""
    d, delta = y - t, e.number(loss.delta)
    left, right = delta * (-d - delta * e.half), delta * (d - delta * e.half)
    return e.pieces(e.pieces(d**2 * e.half, -d - delta, left), d - delta, right)


def _multi_margin(e: Algebra, Y: Any, T: Any, loss: Any) -> Any:
    """Σ_i Σ_k (1 - t_ik)·max(0, m + y_ik - Σ_j t_ij·y_ij) / K"""
    own = e.matrix((Y.shape[0], 1), lambda i, _: e.sum(lambda j: T[i, j] * Y[i, j], Y.shape[1]) - e.number(loss.margin))
    terms = e.matrix(Y.shape, lambda i, k: (1 - T[i, k]) * _at_least_zero(e, Y[i, k] - own[i, e.first]))
    return _sum(lambda e, x, t, loss: x)(e, terms, T, loss) / e.number(Y.shape[1])


def _at_least_zero(e: Algebra, x: Any) -> Any:
    """max(0, x)"""
    return e.pieces(0 * x, x, x)


def _softmax_cross_entropy(e: Algebra, Y: Any, T: Any, loss: Any) -> Any:
    """-Σ_ik t_ik·log(e^y_ik / Σ_j e^y_ij)"""
    return -e.sum(lambda i: e.sum(lambda k: T[i, k] * _log_softmax(e, Y, i, k), Y.shape[1]), Y.shape[0])


LOSSES: dict[type[LossFunction], Loss] = {
    loss_functions.SquaredErrorLoss: _squared_error,
    loss_functions.MeanSquaredErrorLoss: lambda e, Y, T, loss: (
        _squared_error(e, Y, T, loss) / (e.number(Y.shape[0]) * e.number(Y.shape[1]))
    ),
    loss_functions.HuberLoss: _sum(_huber),
    loss_functions.CrossEntropyLoss: _sum(lambda e, y, t, loss: -t * e.log(y)),
    loss_functions.SoftmaxCrossEntropyLoss: _softmax_cross_entropy,
    loss_functions.LogProbabilityLoss: _sum(lambda e, y, t, loss: -t * y),
    loss_functions.NegativeLogLikelihoodLoss: lambda e, Y, T, loss: (
        -e.sum(lambda i: e.log(e.sum(lambda k: Y[i, k] * T[i, k], Y.shape[1])), Y.shape[0])
    ),
    loss_functions.LogisticCrossEntropyLoss: _sum(lambda e, y, t, loss: -t * e.log(_sigma(e, y))),
    loss_functions.BinaryCrossEntropyLoss: _sum(
        lambda e, y, t, loss: -t * e.log(_sigma(e, y)) - (1 - t) * e.log(_sigma(e, -y))
    ),
    loss_functions.HingeLoss: _sum(lambda e, y, t, loss: _at_least_zero(e, 1 - (2 * t - 1) * y)),
    loss_functions.MultiMarginLoss: _multi_margin,
}
