"""All checks of the package and of plugins as one suite, which `matgrad verify` runs.

It claims that the equations of every layer, loss, activation function, softmax function and optimizer, of the package
and of plugins, are right: gradients against derivatives, values against definitions; in training and evaluation mode;
for arbitrary sizes and numbers, by symbols, and for one, two and many examples, one feature, equal
sizes and numbers far from 0, on NumPy; and that defaults, constants, the initial state and the second step from it
are those written in `checks`. It does not claim that the backends and engines compute the table of operations in
the same way, that rounding is harmless, or anything about initial weights, schedules, data and training: that is left
to the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from matgrad import optimizers, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.foundation.numbers import generator, preserved_generator
from matgrad.inspection.equations import METHODS, equations
from matgrad.inspection.verdicts import Case, Check, judged
from matgrad.layers import ActivationDropoutLayer, ActivationLayer, Layer, SReLULayer
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES, LossFunction, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import OPTIMIZERS, Optimizer
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import lookup
from matgrad.symbolic.definitions import (
    check_definition_of_activation,
    check_definition_of_layer,
    check_definition_of_loss,
)
from matgrad.symbolic.derivatives import (
    check_activation,
    check_layer,
    check_lemma,
    check_loss,
    check_softmax,
    statements,
)
from matgrad.symbolic.equality import symbols
from matgrad.symbolic.numbers import (
    LOSS_SIZES,
    SIZES,
    check_activation_in_numbers,
    check_layer_in_numbers,
    check_loss_in_numbers,
    check_softmax_in_numbers,
)
from matgrad.symbolic.state import (
    check_defaults,
    check_first_updates,
    check_optimizer,
    check_renewals,
    check_second_batch,
)
from matgrad.typesetting.latex import latex_document, latex_equation, latex_function

SOFTMAX_FUNCTIONS = ("softmax", "stable_softmax", "log_softmax", "stable_log_softmax")
QUICK = (
    "Linear",
    "ReLU",
    "stable_softmax",
    "BatchNormalization",
    "SoftmaxCrossEntropy",
    "MeanSquaredError",
    "Momentum",
)
D, K = 2, 4  # with batches of 3: all sizes differ
SEED = 3  # with which some weights are dropped, and some are not


def cases(only: tuple[str, ...] = (), *, quick: bool = False, basic: bool = False) -> list[Case]:
    """The cases of all layers, losses, activations, softmax functions, optimizers and derivations.

    `only` selects some of them by name, such as 'Softmax' or 'GELU'; `quick` selects some that take only seconds, and
    `basic` those that are about symbols, for a batch in training mode.
    """
    found = [*_functions(), *_layers(), *_losses(), *_optimizers(), *_derivations()]
    known = {case.name: case for case in found}
    for name in only:
        lookup(name, known, "equation")
    chosen = QUICK if quick and not only else only
    return [case for case in found if (not chosen or case.name in chosen) and (case.is_basic or not basic)]


def _new(
    name: str, check: Callable[..., list[Check]], make: Callable[[], Any], is_basic: bool = False, **options: Any
) -> Case:
    """The check of a new object, which is made when the case runs: its constructor may raise an error."""
    return Case(name, lambda: check(make(), **options), is_basic)


def _layers() -> Iterator[Case]:
    """Every layer, in training and evaluation mode, and one layer per activation function."""
    for name, cls in LAYERS.items():
        for kind in (cls, DROPOUT_LAYERS[cls]) if cls in DROPOUT_LAYERS else (cls,):
            make = partial(_make_layer, kind)
            yield _new(name, check_defaults, partial(make, D, K))
            yield from _layer(name, make)
    yield from _layer("SReLU", partial(SReLULayer, shared=True))
    for name in ACTIVATIONS:
        yield from _layer(name, partial(ActivationLayer, act=name))
    yield from _layer("ReLU", partial(ActivationDropoutLayer, act="ReLU"))
    yield Case("BatchNormalization", check_second_batch)
    for name in ("Linear", "Dropout"):
        yield Case(name, check_renewals)


def _make_layer(cls: type[Layer], D: int, K: int) -> Layer:
    return cls(D, D if cls.keeps_size else K)


def _layer(name: str, make: Callable[[int, int], Layer]) -> Iterator[Case]:
    """A layer in training mode and in evaluation mode."""
    for training in (True, False):
        yield Case(name, partial(_check_with_symbols, make, training), is_basic=training)
        for sizes in SIZES:
            yield Case(name, partial(_check_with_numbers, make, training, *sizes))


def _check_with_symbols(make: Callable[[int, int], Layer], training: bool) -> list[Check]:
    layer = _made(make, D, K, training)
    return [*check_definition_of_layer(layer), *check_layer(layer)]


def _check_with_numbers(
    make: Callable[[int, int], Layer], training: bool, N: int, d: int, k: int, scale: float
) -> list[Check]:
    try:
        layer = _made(make, d, k, training)
    except ValueError as error:  # a layer may not exist in all sizes, such as a softmax over one class
        cls, note = type(make(D, K)), f"not checked with D={d} and K={k}: {error}"
        is_builtin = cls.__module__.startswith("matgrad.")
        return [] if is_builtin else [judged(cls, "feedforward", ("", ""), f"N={N} D={d} K={k}", "", note=note)]
    return check_layer_in_numbers(layer, N, scale)


def _made(make: Callable[[int, int], Layer], D: int, K: int, training: bool) -> Layer:
    """The layer in one of its modes, with the same random weights and the same dropout in every run."""
    with preserved_generator():
        generator().bit_generator.state = np.random.default_rng(SEED).bit_generator.state
        return MultilayerPerceptron([make(D, K)]).train(training).layers[0]


def _losses() -> Iterator[Case]:
    """Every loss for one example and for a batch, with arbitrary and one-hot targets, with and without smoothing."""
    for name, cls in LOSSES.items():
        yield _new(name, check_defaults, cls)
        yield _new(name, check_definition_of_loss, cls, is_basic=True)
        yield _new(name, check_loss, cls, is_basic=True)
        yield _new(name, check_loss, cls, N=1)
        yield _new(name, check_loss, cls, one_hot=True)
        for N, k, scale in LOSS_SIZES:
            yield _new(name, check_loss_in_numbers, cls, N=N, K=k, scale=scale)
        if "label_smoothing" in getattr(cls.__init__, "__annotations__", {}):
            yield Case(name, partial(_check_smoothed, name))


def _check_smoothed(name: str) -> list[Check]:
    loss = create_loss(f"{name}(label_smoothing=0.1)")
    return [*check_loss(loss), *check_loss_in_numbers(loss, 5, 3)]


def _functions() -> Iterator[Case]:
    """Every activation function and every softmax function."""
    for name, cls in ACTIVATIONS.items():
        for check in (check_defaults, check_definition_of_activation, check_activation, check_activation_in_numbers):
            yield _new(name, check, cls)
    for name in SOFTMAX_FUNCTIONS:
        yield Case(name, partial(check_softmax, name))
        for N, k, scale in LOSS_SIZES:
            yield Case(name, partial(check_softmax_in_numbers, name, N, k, scale))


def _optimizers() -> Iterator[Case]:
    """Every optimizer."""
    for name, cls in OPTIMIZERS.items():
        yield _new(name, check_defaults, partial(cls, symbols("x", 2, 3), None))
        yield Case(name, partial(check_optimizer, cls.__name__), is_basic=True)
        yield Case(name, partial(check_first_updates, cls.__name__))


def _derivations() -> Iterator[Case]:
    """Every lemma, property and derivation of the paper."""
    for lemma in statements():
        yield Case(lemma.name, lambda lemma=lemma: [check_lemma(lemma)])  # type: ignore[misc]


def validated_equations(checks: Iterable[Check]) -> str:
    """A LaTeX document with the equations of every class and function that passes all its checks."""
    verdicts: dict[str, bool] = {}
    for check in checks:
        name = check.name.partition(".")[0].removesuffix("_jacobian")
        verdicts[name] = verdicts.get(name, True) and check.ok
    sections = [(name, _equations(name)) for name, ok in verdicts.items() if ok]
    return latex_document([(name, lines) for name, lines in sections if lines])


def _equations(name: str) -> list[str]:
    """The equations of the class or function with this name, in order of execution."""
    classes: list[type] = [*LAYERS.values(), ActivationLayer, *LOSSES.values(), *ACTIVATIONS.values()]
    known = {cls.__name__: cls for cls in classes}
    thing = known.get(name) or getattr(optimizers, name, None) or getattr(softmax_functions, name, None)
    if thing is None:
        return []  # a lemma or derivation
    if not isinstance(thing, type):
        return [latex_function(thing), latex_function(getattr(softmax_functions, f"{name}_jacobian"))]
    if issubclass(thing, Layer):
        with suppress(ValueError):  # without readable equations it has none to print
            return [latex_equation(equation) for method in METHODS for equation in equations(thing, method)]
        return []
    if issubclass(thing, LossFunction | ActivationFunction):
        return [latex_function(thing.__call__, thing), latex_function(thing.gradient, thing)]
    return [latex_function(thing.update, thing)] if issubclass(thing, Optimizer) else []
