"""What is claimed of state: defaults and constants, the initial state, the second step, and updates of optimizers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy as sp
from sympy import matrix_multiply_elementwise as hadamard

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions, optimizers
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.equations import assignment
from matgrad.inspection.verdicts import Check, origin_of
from matgrad.judges.equality import exact_number, symbols
from matgrad.judges.numbers_judge import NumbersAlgebra
from matgrad.judges.sympy_judge import SymPyAlgebra
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.optimizers import Optimizer

_LINEAR = {"b": 0}
_DROPOUT = {"dropout": 0.5, "renewals": 0, "renew": "step"}
_PENALTIES = {"weight_decay": 0, "l1": 0}
_MOMENTUM = _PENALTIES | {"mu": 0.9, "delta": 0}
_ADAM = _PENALTIES | {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "m": 0, "v": 0, "c1": 0, "c2": 0}

# the attributes of a new object: numbers, or what all elements of a matrix are
DEFAULTS: dict[type, dict[str, Any]] = {
    **dict.fromkeys((layers.LinearLayer, layers.ActivationLayer), _LINEAR),
    **dict.fromkeys((layers.SoftmaxLayer, layers.LogSoftmaxLayer), _LINEAR),
    layers.SReLULayer: _LINEAR | {"shared": False, "al": 0, "tl": 0, "ar": 0, "tr": 1},
    layers.BatchNormalizationLayer: {
        **{"epsilon": 1e-5, "momentum": 0.1, "gamma": 1, "beta": 0},
        **{"running_mean": 0, "running_variance": 1},
    },
    layers.LayerNormalizationLayer: {"epsilon": 1e-5, "gamma": 1, "beta": 0},
    layers.RMSNormalizationLayer: {"epsilon": 1e-5, "gamma": 1},
    layers.DropoutLayer: _DROPOUT,
    **{cls: {"alpha": 0.01} for cls in (activations.LeakyReLUActivation, activations.AllReLUActivation)},
    activations.TReLUActivation: {"epsilon": 0.01},
    activations.ELUActivation: {"alpha": 1},
    activations.GELUActivation: {"sqrt_2": 2**0.5, "sqrt_2_pi": (2 * math.pi) ** 0.5},
    **{cls: {"is_mean": cls is loss_functions.MeanSquaredErrorLoss} for cls in loss_functions.LOSSES.values()},
    loss_functions.HuberLoss: {"is_mean": False, "delta": 1},
    loss_functions.MultiMarginLoss: {"is_mean": False, "margin": 1},
    loss_functions.CrossEntropyLoss: {"is_mean": False, "label_smoothing": 0},
    loss_functions.SoftmaxCrossEntropyLoss: {"is_mean": False, "label_smoothing": 0},
    loss_functions.LogProbabilityLoss: {"is_mean": False, "label_smoothing": 0},
    optimizers.GradientDescentOptimizer: _PENALTIES,
    **dict.fromkeys((optimizers.MomentumOptimizer, optimizers.NesterovOptimizer), _MOMENTUM),
    optimizers.AdagradOptimizer: _PENALTIES | {"epsilon": 1e-10, "v": 0},
    optimizers.RMSPropOptimizer: _PENALTIES | {"alpha": 0.99, "epsilon": 1e-8, "v": 0},
    optimizers.AdamOptimizer: _ADAM,
    optimizers.AdamWOptimizer: _ADAM | {"weight_decay": 0.01},
}
DEFAULTS |= {with_dropout: DEFAULTS[cls] | _DROPOUT for cls, with_dropout in DROPOUT_LAYERS.items()}


def of_defaults(a: NumbersAlgebra, make: Callable[[], Any]) -> Iterator[Check]:
    """The settings, constants and initial state of a new object are the numbers written here."""
    thing = make()
    cls = type(thing)
    a.about = "default"
    for name, value in DEFAULTS[cls].items():
        found = getattr(thing, name)
        if isinstance(value, str):
            found, value = float(found == value), 1
        expected = np.full(np.shape(found) if np.ndim(found) == 2 else (), float(value))
        found = np.reshape(np.asarray(found, dtype=float), expected.shape)
        yield a.claim(cls, name, assignment(cls, "__init__", name).origin, found, expected)


def of_second_batch(a: SymPyAlgebra, make: Callable[[], layers.BatchNormalizationLayer]) -> Iterator[Check]:
    """Batch normalization after two batches from the beginning: running statistics, and its output in evaluation."""
    layer, expected = make(), make()
    a.about = "second batch"
    for name in (*layer.parameters, *layer.buffers):
        setattr(layer, name, SympyMatrix(getattr(layer, name).tolist()))
        setattr(expected, name, SympyMatrix(getattr(layer, name).tolist()))
    expected.momentum, expected.epsilon = sp.Rational(1, 10), sp.Rational(1, 10**5)
    define: Any = a.defined(expected)
    for X in (symbols("A", 3, layer.input_size), symbols("B", 2, layer.input_size)):
        layer.feedforward(X)
        after = define(X)
        expected.running_mean, expected.running_variance = after["running_mean"], after["running_variance"]
    layer.training = expected.training = False
    C = symbols("C", 3, layer.input_size)
    found = {"Y": layer.feedforward(C), "running_mean": layer.running_mean, "running_variance": layer.running_variance}
    for name, value in found.items():
        yield a.claim(type(layer), name, origin_of(layer, name), value, define(C)[name])


def of_renewals(a: NumbersAlgebra, make: Callable[[], layers.Layer]) -> Iterator[Check]:
    """Dropout's R is renewed after every step, or after every epoch: it counts two steps and an epoch as 2 or 1."""
    layer: Any = make()
    a.about = f"renew={layer.renew}"
    for _ in range(2):
        for name in layer.parameters:
            setattr(layer, f"D{name}", 0 * getattr(layer, name))
        layer.optimize(0.1)
    layer.end_epoch()
    code = type(layer).end_epoch if layer.renew == "epoch" else type(layer).optimize
    yield a.claim(type(layer), "renewals", code, float(layer.renewals), {"step": 2, "epoch": 1}[layer.renew])


# -- optimizers -------------------------------------------------------------------------------

# the definitions: (x, Dx, η, the optimizer before the update) ↦ everything after it, by name
OPTIMIZER_RULES: dict[str, Callable[..., dict[str, Any]]] = {
    "GradientDescentOptimizer": lambda x, Dx, eta, o: {"x": x - eta * Dx},
    "MomentumOptimizer": lambda x, Dx, eta, o: {"delta": (d := o.mu * o.delta - eta * Dx), "x": x + d},
    "NesterovOptimizer": lambda x, Dx, eta, o: {
        "delta": (d := o.mu * o.delta - eta * Dx),
        "x": x + o.mu * d - eta * Dx,
    },
    "AdagradOptimizer": lambda x, Dx, eta, o: _by_root(x, Dx, eta, o, o.v + hadamard(Dx, Dx)),
    "RMSPropOptimizer": lambda x, Dx, eta, o: _by_root(x, Dx, eta, o, o.alpha * o.v + (1 - o.alpha) * hadamard(Dx, Dx)),
    "AdamOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x),
    "AdamWOptimizer": lambda x, Dx, eta, o: _adam(x, Dx, eta, o, x - eta * o.weight_decay * x),
}
DECOUPLED = ("AdamWOptimizer",)  # those whose weight decay is not part of the gradient


def of_update(a: SymPyAlgebra, cls: type[Optimizer]) -> Iterator[Check]:
    """The update of an optimizer, from an arbitrary state, is its definition."""
    x, a.about = symbols("x", 2, 3), "2×3"
    x[0, 0] = 0  # where sign(x) is 0
    optimizer = cls(x, None)
    for name, value in vars(optimizer).items():
        if name in optimizer.state_names or isinstance(value, float):
            is_matrix = hasattr(value, "shape")
            setattr(
                optimizer, name, symbols(name, 2, 3, positive=True) if is_matrix else sp.Symbol(name, positive=True)
            )
    yield from _updates(a, optimizer, x, copy.copy(optimizer), ["Dx"])


def of_first_updates(a: SymPyAlgebra, cls: type[Optimizer]) -> Iterator[Check]:
    """The first two updates of a new optimizer with default settings are those of its definition."""
    x, a.about = symbols("x", 1, 2), "second update"
    optimizer = cls(x, None)
    for name, value in vars(optimizer).items():
        if isinstance(value, float):
            setattr(optimizer, name, exact_number(value))
    numbers = {name: exact_number(float(value)) for name, value in DEFAULTS[cls].items()}
    zeros = {name: sp.zeros(1, 2) for name in {"delta", "m", "v"} & numbers.keys()}
    yield from _updates(a, optimizer, x, SimpleNamespace(**numbers | zeros), ["A", "B"])


def _updates(a: SymPyAlgebra, optimizer: Optimizer, x: sp.Matrix, state: Any, gradients: list[str]) -> Iterator[Check]:
    """What updates by some gradients lead to is what the definition says."""
    cls, eta = type(optimizer), sp.Symbol("eta", positive=True)
    found = expected = x
    for Dx in (symbols(name, *x.shape) for name in gradients):
        found = optimizer.apply(found, Dx, eta)
        after = _defined(cls.__name__, expected, Dx, eta, state)
        expected = after["x"]
        vars(state).update(after)
    values = {"x": found} | {name: getattr(optimizer, name) for name in optimizer.state_names}
    for name, value in after.items():
        yield a.claim(cls, name, cls.update, values.get(name), value)


def _defined(name: str, x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, state: Any) -> dict[str, Any]:
    """Everything after the update by its definition; λ·x and λ₁·sign(x) are added to the gradient."""
    decay = 0 if name in DECOUPLED else state.weight_decay
    signs = x.applyfunc(lambda t: sp.Piecewise((1, t > 0), (-1, t < 0), (0, True)))
    return OPTIMIZER_RULES[name](x, Dx + decay * x + state.l1 * signs, eta, state)


def _by_root(x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, o: Any, v: sp.Matrix) -> dict[str, Any]:
    """The definition of an update by Dx / (√v + ε)."""
    update = sp.Matrix(*x.shape, lambda i, j: Dx[i, j] / (sp.sqrt(v[i, j]) + o.epsilon))
    return {"v": v, "x": x - eta * update}


def _adam(x: sp.Matrix, Dx: sp.Matrix, eta: sp.Expr, o: Any, decayed: sp.Matrix) -> dict[str, Any]:
    """Adam's definition, with x already decayed."""
    beta1, beta2, epsilon = o.beta1, o.beta2, o.epsilon
    m = beta1 * o.m + (1 - beta1) * Dx
    v = beta2 * o.v + (1 - beta2) * hadamard(Dx, Dx)
    c1, c2 = 1 - beta1 * (1 - o.c1), 1 - beta2 * (1 - o.c2)
    update = sp.Matrix(*x.shape, lambda i, j: m[i, j] / c1 / (sp.sqrt(v[i, j] / c2) + epsilon))
    return {"m": m, "v": v, "c1": c1, "c2": c2, "x": decayed - eta * update}
