"""Checks of layers, losses, activation functions, softmax functions and optimizers.

SymPy matrices run through the very classes that train, and what they compute is compared with SymPy's
own differentiation. No check is vacuous: the batch has at least 3 examples, all sizes differ, and the
upstream gradient G is an arbitrary matrix of symbols.

    from matgrad.symbolic import check_layer
    for check in check_layer(MyLayer(4, 5)):
        assert check.ok, check.message
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import sympy as sp

from matgrad import optimizers, softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.inspection.equations import Equation, equations, observed
from matgrad.inspection.variables import input_changed, stand_in_equation
from matgrad.layers.layer import Layer, check_layers
from matgrad.layers.linear import ActivationLayer, LinearLayer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import Matrix
from matgrad.symbolic.checks.equality import symbols
from matgrad.symbolic.checks.exact import exact, numbers_as_symbols
from matgrad.symbolic.checks.verdicts import Check, last_line, verdict

DROPOUT = sp.Rational(3, 10)  # the rate with which dropout is checked


def check_layer(layer: Layer, *, N: int = 3, dropout: bool = False) -> list[Check]:
    """Every gradient equation of a layer, in its present mode, against SymPy's derivatives of ⟨G, Y⟩.

    The parameters of the layer, and the numbers in it such as ε or α, are replaced by symbols. With
    `dropout`, a linear-type layer drops three tenths of its weights.
    """
    layer = symbolic_layer(layer, dropout)
    X = symbols("X", N, layer.input_size)
    sizes = f"N={N} D={layer.input_size} K={layer.output_size}"
    if isinstance(layer, ActivationLayer):
        sizes += f" {type(layer.act).__name__.removesuffix('Activation')}"
    sizes += "" if layer.training else " evaluation"
    sizes += " dropout" if dropout else ""
    checks = []
    for path, part in layer.walk():
        prefix = f"{type(layer).__name__}.{path} " if path else ""
        for equation in _gradients(part):
            start = time.perf_counter()
            sides = _both_sides(layer, path, part, X, equation)
            if sides is not None:
                found, expected, equation = sides
                origin = equation.location, equation.source
                checks.append(verdict(type(part), equation.name, origin, sizes, found, expected, start, prefix))
    return checks


def check_loss(loss: LossFunction, *, N: int = 3, K: int = 4, one_hot: bool = False) -> list[Check]:
    """The gradient of a loss, and of its mean, against SymPy's derivatives, for arbitrary or one-hot targets."""
    loss = numbers_as_symbols(loss)
    is_probability = "real" not in loss.accepts and "probability" in loss.accepts
    Y = symbols("Y", N, K, positive=is_probability or None)
    T = sp.Matrix(N, K, lambda i, j: int(j == (2 * i + 1) % K)) if one_hot else symbols("T", N, K)
    sizes = f"N={N} K={K}" + (" one-hot" if one_hot else "")
    checks = []
    for name, scale in (("gradient", 1), ("mean_gradient", 1 if loss.is_mean else sp.Rational(1, N))):
        start = time.perf_counter()
        found = getattr(loss, name)(Y, T)
        expected = scale * derivative(loss(Y, T), Y)
        origin = last_line(getattr(type(loss), name))
        checks.append(verdict(type(loss), name, origin, sizes, found, expected, start))
    return checks


def check_activation(act: ActivationFunction, *, m: int = 2, n: int = 3) -> list[Check]:
    """f' of an activation function against SymPy's derivative of f, at every element of a matrix."""
    start = time.perf_counter()
    act = numbers_as_symbols(act)
    X = symbols("X", m, n)
    Y, found = exact(act(X)), act.gradient(X)
    expected = sp.Matrix(m, n, lambda i, j: sp.diff(Y[i, j], X[i, j]))
    return [verdict(type(act), "gradient", last_line(type(act).gradient), f"{m}×{n}", found, expected, start)]


def check_softmax(name: str, *, N: int = 3, D: int = 4) -> list[Check]:
    """A softmax function against its definition for each row, and its Jacobian against SymPy's."""
    start = time.perf_counter()
    f = getattr(softmax_functions, name)
    jacobian = getattr(softmax_functions, f"{name}_jacobian")
    X, x = symbols("X", N, D), symbols("x", 1, D)
    plain = sp.Matrix(N, D, lambda i, j: sp.exp(X[i, j]) / sum(sp.exp(X[i, k]) for k in range(D)))
    expected = plain.applyfunc(sp.log) if "log" in name else plain
    by_rows = verdict(f, "", last_line(f), f"N={N} D={D}", f(X), expected, start)
    start = time.perf_counter()
    by_sympy = verdict(jacobian, "", last_line(jacobian), f"D={D}", jacobian(x), f(x).jacobian(x), start)
    return [by_rows, by_sympy]


# the definitions: (x, Dx, η, the optimizer before the update) ↦ everything after it, by name
OPTIMIZER_RULES: dict[str, Callable[..., dict[str, Any]]] = {
    "GradientDescentOptimizer": lambda x, Dx, eta, o: {"x": x - eta * Dx},
    "MomentumOptimizer": lambda x, Dx, eta, o: {
        "delta": o.mu * o.delta - eta * Dx,
        "x": x + o.mu * o.delta - eta * Dx,
    },
    "NesterovOptimizer": lambda x, Dx, eta, o: {
        "delta": o.mu * o.delta - eta * Dx,
        "x": x + o.mu * (o.mu * o.delta - eta * Dx) - eta * Dx,
    },
    "AdamOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x),
    "AdamWOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x - eta * o.weight_decay * x),
}


def check_optimizer(name: str, *, K: int = 2, D: int = 3) -> list[Check]:
    """The update rule of an optimizer, from an arbitrary state, against its definition."""
    start = time.perf_counter()
    cls = getattr(optimizers, name)
    x, Dx, eta = symbols("x", K, D), symbols("Dx", K, D), sp.Symbol("eta", positive=True)
    optimizer = numbers_as_symbols(cls(x, Dx))
    for key in optimizer.state_names:
        value = getattr(optimizer, key)
        is_scalar = not hasattr(value, "shape")
        setattr(optimizer, key, sp.Symbol(key, positive=True) if is_scalar else symbols(key, K, D, positive=True))
    decay = getattr(optimizer, "weight_decay", 0)
    gradient = Dx if optimizer.decoupled else Dx + decay * x
    expected = OPTIMIZER_RULES[name](x, gradient, eta, optimizer)
    found = {"x": optimizer.apply(x, Dx, eta)} | {key: getattr(optimizer, key) for key in optimizer.state_names}
    origin = last_line(cls.update)
    return [
        verdict(cls, key, origin, f"{K}×{D}", _matrix(found[key]), _matrix(value), start)
        for key, value in expected.items()
    ]


def symbolic_layer(layer: Layer, dropout: bool = False) -> Layer:
    """The layer with symbols for its parameters, its statistics and the numbers in its equations, parts included."""
    check_layers([layer])
    layer = layer.clone()
    for path, part in layer.walk():
        vars(part).update(vars(numbers_as_symbols(part, path)))
        if isinstance(part, ActivationLayer):
            part.act = numbers_as_symbols(part.act, path)
        for name in part.parameters:
            setattr(part, name, symbols(_suffixed(name, path), *getattr(part, name).shape))
        for name in part.buffers:
            value = getattr(part, name)
            if value.ndim == 2:
                is_positive = "variance" in name or None
                setattr(part, name, symbols(_suffixed(name, path), *value.shape, positive=is_positive))
        if isinstance(part, LinearLayer):
            part.dropout = DROPOUT if dropout else 0
    return layer


def derivative(value: sp.Expr, V: sp.Matrix) -> sp.Matrix:
    """∇_V of a scalar: the matrix of its derivatives with respect to the elements of V."""
    return sp.Matrix(*V.shape, lambda i, j: sp.diff(value, V[i, j]))


# -- one equation ------------------------------------------------------------------------------


def _gradients(layer: Layer) -> list[Equation]:
    """The equations DV of a layer, where V is its input, a parameter, or assigned in feedforward.

    Of several equations with the same name, the last one counts. The gradient of an input or a parameter
    without an equation is whatever `backpropagate` stores in the layer.
    """
    assigned = {equation.name for equation in equations(type(layer), "feedforward")} - {"Y"}
    needed = {f"D{name}" for name in (*layer.parameters, "X")}
    known = needed | {f"D{name}" for name in assigned}
    found = {e.name: e for e in equations(type(layer), "backpropagate") if e.name in known}
    return [
        *found.values(),
        *(stand_in_equation(layer, "backpropagate", name) for name in sorted(needed - found.keys())),
    ]


def _both_sides(
    layer: Layer, path: str, part: Layer, X: sp.Matrix, equation: Equation
) -> tuple[Matrix, sp.Matrix, Equation] | None:
    """What a part computes as the gradient of V, SymPy's derivative of ⟨G, Y⟩ by V, and the equation that ran.

    That can differ from the given equation if each mode has its own. The part may be the layer itself; the result
    is None if the layer does not run a part exactly once, unless V is a parameter.
    """
    name = equation.name[1:]
    is_parameter = name in part.parameters
    with _replacing(part, None if is_parameter else name, _suffixed(name, path)) as (replaced, ran):
        Y = layer.feedforward(X)
        G = symbols("G", *Y.shape)
        layer.backpropagate(Y, G)
    if path and not is_parameter and len(replaced) != 1:
        return None
    found = getattr(part, equation.name)
    V = getattr(part, name) if is_parameter else replaced[0]
    expected = derivative(sum(g * y for g, y in zip(G, exact(Y), strict=True)), V)
    return found, expected, ran.get(equation.name, equation)


@contextmanager
def _replacing(layer: Layer, name: str | None, symbol: str) -> Iterator[tuple[list[sp.Matrix], dict[str, Equation]]]:
    """Replace the input, or what feedforward assigns to `name`, by symbols to differentiate with respect to.

    Yields those symbols, and for every name the last equation that assigned to it.
    """
    replaced: list[sp.Matrix] = []
    ran: dict[str, Equation] = {}

    def replace(value: Any) -> sp.Matrix:
        replaced.append(symbols(symbol, *value.shape))
        return replaced[-1]

    def hook(layer: Layer, equation: Equation, value: Any) -> Any:
        ran[equation.name] = equation
        return replace(value) if equation.method == "feedforward" and equation.name == name else value

    with observed([layer], hook), input_changed(layer, replace) if name == "X" else nullcontext():
        yield replaced, ran


def _suffixed(name: str, path: str) -> str:
    """A name for symbols that is different for every part."""
    return f"{name}.{path}" if path else name


def _adam(x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, o: Any, decayed: sp.Matrix) -> dict[str, Any]:
    """Adam's definition, with x already decayed."""
    beta1, beta2, epsilon = o.beta1, o.beta2, o.epsilon
    m = beta1 * o.m + (1 - beta1) * Dx
    v = beta2 * o.v + (1 - beta2) * Dx.applyfunc(lambda d: d**2)
    c1, c2 = 1 - beta1 * (1 - o.c1), 1 - beta2 * (1 - o.c2)
    update = sp.Matrix(*x.shape, lambda i, j: m[i, j] / c1 / (sp.sqrt(v[i, j] / c2) + epsilon))
    return {"m": m, "v": v, "c1": c1, "c2": c2, "x": decayed - eta * update}


def _matrix(value: Any) -> sp.Matrix:
    return value if hasattr(value, "shape") else sp.Matrix([[value]])
