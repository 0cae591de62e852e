"""Proofs of layers: every gradient, for all sizes N, D and K, and every value of feedforward that is defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.index_notation.entries import delta, new_index
from matgrad.index_notation.expressions import Expression, Index
from matgrad.index_notation.functions import exp, log
from matgrad.index_notation.sums import summed
from matgrad.inspection.equations import assignment, last_line
from matgrad.inspection.gradients import gradient_checks
from matgrad.inspection.verdicts import Check, feedforward_values, judged, origin_of
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.loss_functions import LossFunction, takes_weights
from matgrad.proofs.definitions import ACTIVATIONS, ENTRIES, definition_of_layer, definition_of_loss, number
from matgrad.proofs.matrices import IndexMatrix, derivative, entry_of, jacobian, matrix, problem_of, row, verdict
from matgrad.proofs.symbolic_layers import SMALL, MakeLayer, Symbols, attempts


def prove_layer(make: MakeLayer, *, training: bool = True) -> list[Check]:
    """Every gradient of the layer make(D, K), for all sizes, and its values if the layer is one of the package.

    `make` may be the class of a layer.
    """
    make = for_equal_sizes(make)
    layer = make(*SMALL.values())
    mode = "" if training else ", evaluation"
    act = f", {type(layer.act).__name__.removesuffix('Activation')}" if isinstance(layer, ActivationLayer) else ""

    def prove(symbols: Symbols, about: str) -> list[Check]:
        layer = symbols.layer(make, training=training)
        return [
            *_values(layer.clone(), symbols, about),
            *gradient_checks(layer, _input(layer, symbols), symbols, about, verdict),
        ]

    return attempts(prove, type(layer).__name__, f"all sizes{act}{mode}")


def for_equal_sizes(make: MakeLayer) -> MakeLayer:
    """The constructor, with D for K if the class says that the output has the size of the input."""
    keeps_size = isinstance(make, type) and getattr(make, "keeps_size", False)
    return (lambda D, K: make(D, D)) if keeps_size else make


def _input(layer: Layer, symbols: Symbols) -> IndexMatrix:
    """X, of size N×D"""
    return symbols.symbols("X", symbols.sizes("N"), layer.input_size)


def _values(layer: Layer, symbols: Symbols, about: str) -> list[Check]:
    """The values of feedforward against their definitions, if the layer has any."""
    X, cls = _input(layer, symbols), type(layer)
    expected = definition_of_layer(layer, X)  # before the run, which changes the running statistics
    if expected is None:
        where = assignment(cls, "feedforward", "Y")
        note = "feedforward has no definition to compare with"
        return [judged(cls, "feedforward", where.origin, about, "", note=note)]
    checks = []
    found = feedforward_values(layer, X, expected)
    for name, value in expected.items():
        checks.append(verdict(cls, name, origin_of(layer, name), about, found[name], value))
    return checks


ALL = "all sizes"


def prove_activation(act: ActivationFunction) -> list[Check]:
    """f(X) against its definition, and f'(X) against the derivatives of f: ∂f(X)_ij/∂x_kl = [i=k]·[j=l]·f'(X)_ij."""
    return attempts(lambda symbols, about: _activation(act, symbols, about), type(act).__name__, ALL)


def _activation(act: ActivationFunction, symbols: Symbols, about: str) -> list[Check]:
    cls = type(act)
    act, X = symbols.numbers(act), symbols.symbols("X", symbols.sizes("N"), symbols.sizes("K"))
    Y, D = act(X), act.gradient(X)
    value, slope = (cls, "value", last_line(cls.__call__), about), (cls, "gradient", last_line(cls.gradient), about)
    for about_it, A in ((value, Y), (slope, D)):
        if problem := problem_of(A, X):
            return [judged(*about_it, f"is wrong: {problem}")]
    checks = [judged(*value, "", note="value has no definition to compare with")]
    if cls in ACTIVATIONS:
        checks = [verdict(*value, Y, matrix(X.shape, lambda i, j: ACTIVATIONS[cls](ENTRIES, act, X[i, j], j)))]
    (i, j), (k, l) = X.indices, map(new_index, (X.rows, X.columns))
    expected = IndexMatrix(X.shape, Y.entry.derivative(entry_of(X).at(k, l)))
    found = IndexMatrix(X.shape, delta(i, k) * delta(j, l) * D.entry)
    return [*checks, verdict(*slope, found, expected)]


def prove_loss(loss: LossFunction) -> list[Check]:
    """The value of a loss against its definition, its gradients against derivatives, and whether it is a mean.

    With weights, which are symbols too, value and mean gradient are those of Σ sᵢ·ℒ(yᵢ, tᵢ), for each row alone.
    """
    return attempts(lambda symbols, about: _loss(loss, symbols, about), type(loss).__name__, ALL)


def _loss(loss: LossFunction, symbols: Symbols, about: str) -> list[Check]:
    cls = type(loss)
    loss, N = symbols.numbers(loss), symbols.sizes("N")
    Y, T = (symbols.symbols(name, N, symbols.sizes("K")) for name in "YT")
    s = symbols.symbols("s", N, 1)
    value: Any = loss(Y, T)
    if problem := problem_of(value, IndexMatrix((), number(1))):
        return [judged(cls, "value", last_line(cls.__call__), about, f"is wrong: {problem}")]
    scale = 1 / number(N) if loss.is_mean else number(1)
    gradient = derivative(value.entry, Y)
    of_rows, weighted = (by_rows(loss, Y, T, weights) for weights in (None, s))
    definition = definition_of_loss(loss, Y, T)
    checks = []

    def compare(name: str, method: str, found: Any, expected: IndexMatrix, remark: str = "") -> None:
        origin = last_line(getattr(cls, method))
        checks.append(verdict(cls, name, origin, about + remark, found, expected))

    if definition is None:
        note = "value has no definition to compare with"
        checks.append(judged(cls, "value", last_line(cls.__call__), about, "", note=note))
    else:
        compare("value", "__call__", value, IndexMatrix((), definition))
    compare("gradient", "gradient", loss.gradient(Y, T), gradient)
    mean = gradient if loss.is_mean else gradient / N
    compare("mean_gradient", "mean_gradient", loss.mean_gradient(Y, T), mean)
    compare("is_mean", "__call__", value, IndexMatrix((), of_rows * scale))
    if takes_weights(loss):
        compare("value", "__call__", loss(Y, T, s), IndexMatrix((), weighted * scale), ", weighted")
    mean = derivative(weighted, Y) / N
    compare("mean_gradient", "mean_gradient", loss.mean_gradient(Y, T, s), mean, ", weighted")
    return checks


def by_rows(loss: LossFunction, Y: IndexMatrix, T: IndexMatrix, s: IndexMatrix | None) -> Expression:
    """Σ_i s_i·ℒ(y_i, t_i), by the losses of the rows alone"""

    def of_row(i: Index) -> Expression:
        value: Any = loss(row(Y, i), row(T, i))
        return value.entry if s is None else row(s, i).entry * value.entry

    return summed(of_row, Y.rows)


def prove_softmax(name: str) -> list[Check]:
    """A softmax function against e^x_ij / Σ_k e^x_ik, or its logarithm, and its Jacobian against the derivatives."""
    return attempts(lambda symbols, about: _softmax(name, symbols, about), name, ALL)


def _softmax(name: str, symbols: Symbols, about: str) -> list[Check]:
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    D = symbols.sizes("D")
    X, x = symbols.symbols("X", symbols.sizes("N"), D), symbols.symbols("x", 1, D)
    values = verdict(f, "", last_line(f), about, f(X), matrix(X.shape, softmax_entry(name, X)))
    return [values, verdict(of_row, "", last_line(of_row), about, of_row(x), jacobian(f(x), x))]


def softmax_entry(name: str, X: IndexMatrix) -> Callable[[Index, Index], Expression]:
    """e^x_ij / Σ_k e^x_ik, or its logarithm"""

    def entry(i: Index, j: Index) -> Expression:
        y = exp(X[i, j]) / summed(lambda k: exp(X[i, k]), X.columns)
        return log(y) if "log" in name else y

    return entry
