"""Checks of optimizers: the update from an arbitrary state, and the first two updates from the beginning."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import sympy as sp

from matgrad import optimizers
from matgrad.inspection.equations import last_line
from matgrad.inspection.verdicts import Check
from matgrad.optimizers import Optimizer
from matgrad.symbolic.defaults import DEFAULTS
from matgrad.symbolic.equality import exact_number, numbers_as_symbols, symbols, verdict

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
    "AdagradOptimizer": lambda x, Dx, eta, o: _by_root(x, Dx, eta, o, o.v + _squared(Dx)),
    "RMSPropOptimizer": lambda x, Dx, eta, o: _by_root(x, Dx, eta, o, o.alpha * o.v + (1 - o.alpha) * _squared(Dx)),
    "AdamOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x),
    "AdamWOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x - eta * o.weight_decay * x),
}
DECOUPLED = ("AdamWOptimizer",)  # those whose weight decay is not part of the gradient


def check_optimizer(name: str, *, K: int = 2, D: int = 3) -> list[Check]:
    """The update rule of an optimizer, from an arbitrary state, against its definition."""
    start = time.perf_counter()
    cls = getattr(optimizers, name)
    x, Dx, eta = symbols("x", K, D), symbols("Dx", K, D), sp.Symbol("eta", positive=True)
    x[0, 0] = 0  # where sign(x) is 0
    optimizer = numbers_as_symbols(cls(x, Dx))
    for key in optimizer.state_names:
        value = getattr(optimizer, key)
        is_scalar = not hasattr(value, "shape")
        setattr(optimizer, key, sp.Symbol(key, positive=True) if is_scalar else symbols(key, K, D, positive=True))
    expected = _defined(name, x, Dx, eta, optimizer)
    found = {"x": optimizer.apply(x, Dx, eta)} | {key: getattr(optimizer, key) for key in optimizer.state_names}
    return _verdicts(cls, f"{K}×{D}", found, expected, start)


def check_first_updates(name: str, *, K: int = 1, D: int = 2) -> list[Check]:
    """The first two updates of a new optimizer with default settings, against its definition."""
    start = time.perf_counter()
    cls = getattr(optimizers, name)
    x, eta = symbols("x", K, D), sp.Symbol("eta", positive=True)
    optimizer: Optimizer = cls(x, None)
    for key, value in vars(optimizer).items():
        if isinstance(value, float):
            setattr(optimizer, key, exact_number(value))
    numbers = {key: exact_number(float(value)) for key, value in DEFAULTS[cls].items()}
    matrices = {"delta", "m", "v"} & numbers.keys()
    state = SimpleNamespace(**(numbers | {key: sp.zeros(K, D) for key in matrices}))
    found = expected = x
    for Dx in (symbols("A", K, D), symbols("B", K, D)):
        found = optimizer.apply(found, Dx, eta)
        after = _defined(name, expected, Dx, eta, state)
        expected = after.pop("x")
        vars(state).update(after)
    values = {"x": found} | {key: getattr(optimizer, key) for key in optimizer.state_names}
    return _verdicts(cls, "second update", values, {"x": expected} | after, start)


def _defined(name: str, x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, state: Any) -> dict[str, Any]:
    """Everything after the update by its definition; λ·x and λ₁·sign(x) are added to the gradient."""
    decay = 0 if name in DECOUPLED else state.weight_decay
    signs = x.applyfunc(lambda t: sp.Piecewise((1, t > 0), (-1, t < 0), (0, True)))
    return OPTIMIZER_RULES[name](x, Dx + decay * x + state.l1 * signs, eta, state)


def _verdicts(
    cls: type[Optimizer], sizes: str, found: dict[str, Any], expected: dict[str, Any], start: float
) -> list[Check]:
    origin = last_line(cls.update)
    return [
        verdict(cls, key, origin, sizes, _matrix(found.get(key)), _matrix(value), start)
        for key, value in expected.items()
    ]


def _squared(Dx: sp.Matrix) -> sp.Matrix:
    return Dx.applyfunc(lambda d: d**2)


def _by_root(x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, o: Any, v: sp.Matrix) -> dict[str, Any]:
    """The definition of an update by Dx / (√v + ε)."""
    update = sp.Matrix(*x.shape, lambda i, j: Dx[i, j] / (sp.sqrt(v[i, j]) + o.epsilon))
    return {"v": v, "x": x - eta * update}


def _adam(x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, o: Any, decayed: sp.Matrix) -> dict[str, Any]:
    """Adam's definition, with x already decayed."""
    beta1, beta2, epsilon = o.beta1, o.beta2, o.epsilon
    m = beta1 * o.m + (1 - beta1) * Dx
    v = beta2 * o.v + (1 - beta2) * _squared(Dx)
    c1, c2 = 1 - beta1 * (1 - o.c1), 1 - beta2 * (1 - o.c2)
    update = sp.Matrix(*x.shape, lambda i, j: m[i, j] / c1 / (sp.sqrt(v[i, j] / c2) + epsilon))
    return {"m": m, "v": v, "c1": c1, "c2": c2, "x": decayed - eta * update}


def _matrix(value: Any) -> Any:
    return value if hasattr(value, "shape") or value is None else sp.Matrix([[value]])
