"""Checks of the classes as they train, with numbers: at other sizes, in large batches and far from 0.

Symbols are slow, and a batch of 128 examples is out of their reach. So the very definitions of `definitions` are
evaluated with numbers of 40 digits, and compared with what the code computes on NumPy in float64; the gradients of
layers are compared with central differences in float64, and those of losses with central differences of 40 digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.backends import get_backend
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.equations import last_line
from matgrad.inspection.gradient_check import GradientResult, check_gradients
from matgrad.inspection.verdicts import Check, crash, feedforward_values, judged, origin_of
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.proofs.definitions import ACTIVATIONS, LOSSES, definition_of_layer, definition_of_loss, has_definition
from matgrad.symbolic.definitions import SYMPY, defined_activation
from matgrad.symbolic.derivatives import GRID
from matgrad.symbolic.equality import DROPOUT, symbols

# N, D, K and the magnitude of X: one and two examples, D = K, one feature or output, far from 0, a large batch
SIZES = (
    (1, 3, 2, 1),
    (1, 2, 5, 1),
    (2, 3, 3, 1),
    (4, 1, 2, 1),
    (12, 2, 1, 1),
    (3, 2, 3, 30),
    (5, 2, 3, 500),
    (128, 2, 3, 1),
)
LOSS_SIZES = ((1, 2, 1), (2, 3, 1), (4, 2, 1), (3, 1, 1), (3, 3, 30), (5, 3, 500), (100, 2, 1))  # N, K, magnitude
DIGITS = 40
TOLERANCE = 1e-9  # relative to the largest element
ELEMENTS = 8  # of each gradient, the number that is compared


def check_layer_in_numbers(layer: Layer, N: int, scale: float = 1) -> list[Check]:
    """A layer with random weights: feedforward against its definition, and gradients against central differences."""
    mode = "" if layer.training else " evaluation"
    sizes = f"N={N} D={layer.input_size} K={layer.output_size}{mode}" + (f" ±{scale}" if scale > 1 else "")
    rng = np.random.default_rng(N)
    try:
        layer = _numeric_layer(layer, rng)
        X = scale * rng.normal(size=(N, layer.input_size))
        checks = _check_values(layer, X, sizes) if has_definition(layer) else []
        return checks if scale > 1 else [*checks, *_check_gradients(layer, X, rng, sizes)]
    except Exception as error:
        return [crash(error, sizes, type(layer).__name__)]


def check_loss_in_numbers(loss: LossFunction, N: int, K: int, scale: float = 1) -> list[Check]:
    """The value of a loss against its definition, and both gradients against differences of the definition.

    If it has no definition, its own value on SymPy's numbers takes its place. The mean gradient is also compared with
    weights, with which each row of it counts so often.
    """
    sizes = f"N={N} K={K}" + (f" ±{scale}" if scale > 1 else "")
    rng = np.random.default_rng(N)
    Y, T = _output_for(loss, scale, rng, N, K), rng.dirichlet(np.ones(K), N)
    try:
        f, is_defined = _loss_function(loss, N, K), type(loss) in LOSSES
        found, expected = (
            {"value": np.array([[loss(Y, T)]])},
            {"value": np.array([[float(f(Y, T))]])} if is_defined else {},
        )
        elements = [divmod(int(i), K) for i in rng.permutation(N * K)[: ELEMENTS // 2]]
        slopes = np.array([[_slope(f, Y, T, element) for element in elements]])
        for name, divisor in (("gradient", 1), ("mean_gradient", 1 if loss.is_mean else N)):
            D = getattr(loss, name)(Y, T)
            found[name] = np.array([[D[element] for element in elements]]) if np.shape(D) == Y.shape else D
            expected[name] = slopes / divisor
        s = rng.uniform(0, 3, (N, 1))
        D = loss.mean_gradient(Y, T, s)
        found["mean_gradient weighted"] = np.array([[D[element] for element in elements]])
        expected["mean_gradient weighted"] = expected["mean_gradient"] * [s[i, 0] for i, _ in elements]
    except Exception as error:
        return [crash(error, sizes, type(loss).__name__)]
    checks = []
    for key, E in expected.items():
        name, _, weighted = key.partition(" ")
        origin = last_line(getattr(type(loss), "__call__" if name == "value" else name))
        checks.append(numeric_verdict(type(loss), name, origin, f"{sizes} {weighted}".strip(), found[key], E))
    return checks


def _output_for(loss: LossFunction, scale: float, rng: np.random.Generator, N: int, K: int) -> np.ndarray:
    """A random N×K output of a kind that the loss accepts: real numbers, probabilities or their logarithms."""
    if "real" in loss.accepts:
        return scale * rng.normal(size=(N, K))
    Y = rng.uniform(0.05, 0.95, (N, K)) ** min(scale, 20)
    return Y if "probability" in loss.accepts else np.log(Y)


def check_activation_in_numbers(act: ActivationFunction) -> list[Check]:
    """An activation function and its derivative from -430 to 430, in matrices of several sizes, by its definition."""
    if type(act) not in ACTIVATIONS:
        return []
    x = sp.Symbol("x", real=True)
    f = defined_activation(act, x, 0)
    X = np.array([[float(value) for value in GRID]])
    matrices = [X, X.T, X.reshape(2, -1), X.reshape(-1, 2), np.tile(X, 10).reshape(-1, 2)]
    checks = []
    for name, method, g in (("value", act, f), ("gradient", act.gradient, sp.diff(f, x))):
        expected = _floats(_matrix(X).applyfunc(lambda value, g=g: g.subs(x, value)))
        expected = np.hstack([np.resize(expected, (1, A.size)) for A in matrices])
        found = np.hstack([np.reshape(method(A), (1, -1)) for A in matrices])
        origin = last_line(getattr(type(act), "__call__" if name == "value" else name))
        size = np.maximum(1, np.abs(expected))
        if found.shape == expected.shape:
            found, expected = found / size, expected / size
        checks.append(numeric_verdict(type(act), name, origin, "-430 … 430", found, expected, tolerance=1e-12))
    return checks


def check_softmax_in_numbers(name: str, N: int, D: int, scale: float = 1) -> list[Check]:
    """A softmax function and its Jacobian for one row, by their elements; far from 0 only if it is a stable one."""
    f = getattr(softmax_functions, name)
    jacobian = getattr(softmax_functions, f"{name}_jacobian")
    is_log, scale = "log" in name, scale if "stable" in name else 1
    X = scale * np.random.default_rng(N).normal(size=(N, D))
    E = _matrix(X).applyfunc(sp.exp)
    P = sp.Matrix(N, D, lambda i, j: E[i, j] / sum(E.row(i)))
    Y = P.applyfunc(sp.log) if is_log else P
    J = sp.Matrix(D, D, lambda i, j: (1 if is_log else P[0, i]) * (int(i == j) - P[0, j]))
    sizes = f"N={N} D={D}" + (f" ±{scale}" if scale > 1 else "")
    return [
        numeric_verdict(f, "", last_line(f), sizes, f(X), _floats(Y)),
        numeric_verdict(jacobian, "", last_line(jacobian), sizes, jacobian(X[:1]), _floats(J)),
    ]


def numeric_verdict(
    thing: type | Callable[..., Any],
    quantity: str,
    origin: tuple[str, str],
    sizes: str,
    found: Any,
    expected: np.ndarray,
    tolerance: float = TOLERANCE,
) -> Check:
    """The verdict on what was computed in float64; see `judged`."""
    problem = _difference(found, expected, tolerance)
    problem = f"is wrong for {sizes} {problem}" if problem else ""
    return judged(thing, quantity, origin, sizes, problem, method="numbers")


def _difference(found: Any, expected: np.ndarray, tolerance: float) -> str:
    """Where two matrices of numbers differ, and how; '' if they are equal."""
    if np.shape(found) != expected.shape:
        return f": found {found!r}, expected size {' × '.join(map(str, expected.shape))}"
    error = np.abs(np.asarray(found, dtype=float) - expected)
    limit = tolerance * max(float(np.max(np.abs(expected))), 1e-3)
    if np.all(error <= limit):  # not if it is nan
        return ""
    row, column = divmod(int(np.argmax(np.where(error <= limit, 0, np.nan_to_num(error, nan=np.inf)))), error.shape[1])
    found, expected = found[row, column], expected[row, column]
    return f"at row {row}, column {column}:\n  found     {found:.17g}\n  expected  {expected:.17g}"


# -- layers ------------------------------------------------------------------------------------


def _numeric_layer(layer: Layer, rng: np.random.Generator) -> Layer:
    """A copy in float64 on NumPy, whose parameters and statistics are not 0 or 1.

    Those of a layer of one's own stay near the initial ones: perhaps they must not be negative.
    """
    spread = 1 if has_definition(layer) else 0.3
    layer = layer.clone()
    layer.to(get_backend("numpy"), "float64")
    for _, part in layer.walk():
        for name in (*part.parameters, *part.buffers):
            value = getattr(part, name)
            if isinstance(value, np.ndarray) and value.ndim == 2:
                noise = spread * rng.uniform(0.3, 1.3, value.shape) * rng.choice([-1, 1], value.shape)
                setattr(part, name, value + (np.abs(noise) if name in part.buffers else noise))
        if isinstance(part, LayerWithDropout) and part.dropout:
            part.dropout = float(DROPOUT)
            part.renewals = part.renewals + 2  # R is not the first one
    return layer


def _check_values(layer: Layer, X: np.ndarray, sizes: str) -> list[Check]:
    """What feedforward computes against its definition."""
    defined, layer = layer.clone(), layer.clone()
    for name in (*layer.parameters, *layer.buffers):
        if np.ndim(getattr(layer, name)) == 2:
            setattr(defined, name, _matrix(getattr(layer, name)))
    expected = definition_of_layer(defined, _matrix(X), SYMPY) or {}
    found = feedforward_values(layer, X, expected)
    return [
        numeric_verdict(type(layer), name, origin_of(layer, name), sizes, found[name], _floats(value))
        for name, value in expected.items()
    ]


def _check_gradients(layer: Layer, X: np.ndarray, rng: np.random.Generator, sizes: str) -> list[Check]:
    """All gradients against central differences in float64, for a squared error."""
    T = rng.normal(size=(len(X), layer.output_size))
    _, *results = check_gradients(layer, "SquaredError", X, T, max_elements=ELEMENTS)  # the first is that of the loss
    return [_verdict_of(result, type(layer), sizes) for result in results]


def _verdict_of(result: GradientResult, cls: type[Layer], sizes: str) -> Check:
    """The result of the gradient check as a verdict."""
    place, _, name = result.name.removeprefix("layer 1").partition(" ")
    name = f"{cls.__name__}{place} {name}" if place else name
    location, source = result.equation.location, result.equation.source
    message = "" if result.ok else f"{name}{str(result).removeprefix(result.name)}  [{sizes}]"
    note = "" if result.tells else "a wrong gradient would not be noticed"
    return Check(name, location, "", sizes, "differences", result.ok, message, source, note)


# -- numbers -----------------------------------------------------------------------------------


def _matrix(A: np.ndarray) -> sp.Matrix:
    """The matrix with the same numbers, of 40 digits."""
    return SympyMatrix(*A.shape, lambda i, j: sp.Float(float(A[i, j]), DIGITS))


def _floats(A: sp.Matrix) -> np.ndarray:
    """The values of expressions with 40 digits: for 1 + erf(-300), SymPy itself would need 40000."""
    with mpmath.workdps(DIGITS):
        values = A if all(x.is_Number for x in A) else sp.lambdify((), [*A], "mpmath")()
    return np.reshape([float(x) for x in values], A.shape)


Loss = Callable[[np.ndarray, np.ndarray], mpmath.mpf]  # of matrices whose elements are numbers of any precision


def _loss_function(loss: LossFunction, N: int, K: int) -> Loss:
    """The definition of a loss, or if it has none the loss itself, as a function of numbers of 40 digits."""
    Y, T = symbols("Y", N, K), symbols("T", N, K)
    value = definition_of_loss(loss, Y, T, SYMPY) if type(loss) in LOSSES else loss(Y, T)
    f = sp.lambdify(([*Y], [*T]), value, "mpmath")

    def function(Y: np.ndarray, T: np.ndarray) -> mpmath.mpf:
        with mpmath.workdps(DIGITS):
            return f(*([mpmath.mpf(x) for x in A.flat] for A in (Y, T)))

    return function


def _slope(f: Loss, Y: np.ndarray, T: np.ndarray, element: tuple[int, int]) -> float:
    """∂f/∂y of one element of Y, by a central difference of 40 digits."""
    with mpmath.workdps(DIGITS):
        h, values = mpmath.mpf("1e-12") * abs(Y[element]), []
        for delta in (h, -h):
            A = Y.astype(object)
            A[element] = mpmath.mpf(Y[element]) + delta
            values.append(f(A, T))
        return float((values[0] - values[1]) / (2 * h))
