"""Checks of what a class starts with: default settings, constants, initial state, and the second step from it."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import sympy as sp

from matgrad import activation_functions as activations
from matgrad import layers, loss_functions, optimizers
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.equations import assignment, last_line
from matgrad.inspection.verdicts import Check, origin_of
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.symbolic.equality import symbols, verdict
from matgrad.symbolic.numbers import numeric_verdict

_LINEAR = {"b": 0}
_DROPOUT = {"dropout": 0.5, "renewals": 0, "renew": "step"}
_PENALTIES = {"weight_decay": 0, "l1": 0}
_MOMENTUM = _PENALTIES | {"mu": 0.9, "delta": 0}
_ADAM = _PENALTIES | {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "m": 0, "v": 0, "c1": 0, "c2": 0}

# the attributes of a new object: numbers, or what all elements of a matrix are
DEFAULTS: dict[type, dict[str, Any]] = {
    layers.LinearLayer: _LINEAR,
    layers.ActivationLayer: _LINEAR,
    layers.SoftmaxLayer: _LINEAR,
    layers.LogSoftmaxLayer: _LINEAR,
    layers.SReLULayer: _LINEAR | {"shared": False, "al": 0, "tl": 0, "ar": 0, "tr": 1},
    layers.BatchNormalizationLayer: {
        **{"epsilon": 1e-5, "momentum": 0.1, "gamma": 1, "beta": 0},
        **{"running_mean": 0, "running_variance": 1},
    },
    layers.LayerNormalizationLayer: {"epsilon": 1e-5, "gamma": 1, "beta": 0},
    layers.RMSNormalizationLayer: {"epsilon": 1e-5, "gamma": 1},
    layers.DropoutLayer: _DROPOUT,
    activations.LeakyReLUActivation: {"alpha": 0.01},
    activations.AllReLUActivation: {"alpha": 0.01},
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
    optimizers.MomentumOptimizer: _MOMENTUM,
    optimizers.NesterovOptimizer: _MOMENTUM,
    optimizers.AdagradOptimizer: _PENALTIES | {"epsilon": 1e-10, "v": 0},
    optimizers.RMSPropOptimizer: _PENALTIES | {"alpha": 0.99, "epsilon": 1e-8, "v": 0},
    optimizers.AdamOptimizer: _ADAM,
    optimizers.AdamWOptimizer: _ADAM | {"weight_decay": 0.01},
}
DEFAULTS |= {with_dropout: DEFAULTS[cls] | _DROPOUT for cls, with_dropout in DROPOUT_LAYERS.items()}


def check_defaults(thing: Any) -> list[Check]:
    """The settings, constants and initial state of a new object against the numbers written here."""
    cls, checks = type(thing), []
    for name, value in DEFAULTS.get(cls, {}).items():
        start, found = time.perf_counter(), getattr(thing, name)
        where = assignment(cls, "__init__", name)
        if isinstance(value, str):
            found, value = float(found == value), 1
        shape = np.shape(found) if np.ndim(found) == 2 else (1, 1)
        found = np.reshape(np.asarray(found, dtype=float), shape)
        origin, expected = (where.location, where.source), np.full(shape, float(value))
        checks.append(numeric_verdict(cls, name, origin, "default", found, expected, start, tolerance=1e-15))
    return checks


def check_second_batch() -> list[Check]:
    """Batch normalization after two batches from the beginning: running statistics, and its output in evaluation."""
    start, D, m = time.perf_counter(), 2, sp.Rational(1, 10)
    layer = layers.BatchNormalizationLayer(D)
    for name in (*layer.parameters, *layer.buffers):
        setattr(layer, name, SympyMatrix(getattr(layer, name).tolist()))
    mean, variance = sp.zeros(1, D), sp.ones(1, D)
    for X in (symbols("A", 3, D), symbols("B", 2, D)):
        layer.feedforward(X)
        mu = [sum(X.col(j)) / sp.Integer(X.rows) for j in range(D)]
        unbiased = [sum((x - mu[j]) ** 2 for x in X.col(j)) / sp.Integer(X.rows - 1) for j in range(D)]
        mean = sp.Matrix(1, D, lambda _, j, mean=mean, mu=mu: (1 - m) * mean[j] + m * mu[j])
        variance = sp.Matrix(1, D, lambda _, j, old=variance, new=unbiased: (1 - m) * old[j] + m * new[j])
    layer.training, C = False, symbols("C", 3, D)
    epsilon = sp.Rational(1, 10**5)
    Y = sp.Matrix(3, D, lambda i, j: (C[i, j] - mean[j]) / sp.sqrt(variance[j] + epsilon))
    found = {"Y": layer.feedforward(C), "running_mean": layer.running_mean, "running_variance": layer.running_variance}
    expected = {"Y": Y, "running_mean": mean, "running_variance": variance}
    return [
        verdict(type(layer), name, origin_of(layer, name), "second batch", found[name], value, start)
        for name, value in expected.items()
    ]


def check_renewals() -> list[Check]:
    """Dropout's R is renewed after every step, or after every epoch: it counts two steps and an epoch as 2 or 1."""
    checks = []
    by_step, by_epoch = (layers.LinearDropoutLayer(2, 3, dropout=0.3, renew=renew) for renew in ("step", "epoch"))
    for layer, count in ((layers.DropoutLayer(2), 2), (by_step, 2), (by_epoch, 1)):
        start, renew = time.perf_counter(), layer.renew
        for _ in range(2):
            for name in layer.parameters:
                setattr(layer, f"D{name}", 0 * getattr(layer, name))
            layer.optimize(0.1)
        layer.end_epoch()
        origin = last_line(type(layer).end_epoch if renew == "epoch" else type(layer).optimize)
        found = np.reshape(layer.renewals, (1, 1))
        checks.append(
            numeric_verdict(type(layer), "renewals", origin, f"renew={renew}", found, np.array([[count]]), start)
        )
    return checks
