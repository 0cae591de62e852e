"""All checks of the package and of plugins as one suite, which `matgrad verify` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from matgrad.activation_functions import ACTIVATIONS
from matgrad.layers import ActivationLayer, Layer, LinearLayer, SReLULayer
from matgrad.loss_functions import LOSSES, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import lookup
from matgrad.symbolic.checks.definitions import (
    check_definition_of_activation,
    check_definition_of_layer,
    check_definition_of_loss,
)
from matgrad.symbolic.checks.derivatives import (
    OPTIMIZER_RULES,
    check_activation,
    check_layer,
    check_loss,
    check_optimizer,
    check_softmax,
)
from matgrad.symbolic.checks.verdicts import Check
from matgrad.symbolic.derivations import Derivation, check_derivation, derivations

SOFTMAX_FUNCTIONS = ("softmax", "stable_softmax", "log_softmax", "stable_log_softmax")
QUICK = ("Linear", "ReLU", "Softmax", "BatchNormalization", "SoftmaxCrossEntropy", "MeanSquaredError", "Momentum")
D, K = 2, 4  # with batches of 3: all sizes differ


@dataclass(frozen=True)
class Case:
    """Something to check: its name in specifications, and the function that checks it."""

    name: str
    run: Callable[[], list[Check]]


def cases(only: tuple[str, ...] = (), *, quick: bool = False) -> list[Case]:
    """The cases of all layers, losses, activations, softmax functions, optimizers and derivations.

    `only` selects some of them by name, such as 'Softmax' or 'GELU'; `quick` selects some that take only seconds.
    """
    found = [*_layers(), *_losses(), *_functions(), *_optimizers(), *_derivations()]
    known = {case.name: case for case in found}
    for name in only:
        lookup(name, known, "equation")
    chosen = QUICK if quick and not only else only
    return [case for case in found if case.name in chosen] if chosen else found


def _layers() -> Iterator[Case]:
    """Every layer, in training and evaluation mode and with dropout, and one layer per activation function."""
    for name, cls in LAYERS.items():
        yield from _modes(name, partial(cls, K if cls.keeps_size else D, K))
    yield from _modes("SReLU", partial(SReLULayer, D, K, shared=True))
    for name in ACTIVATIONS:
        yield from _modes(name, partial(ActivationLayer, D, K, name))


def _modes(name: str, make: Callable[[], Layer]) -> Iterator[Case]:
    """A layer in training mode, in evaluation mode, and with dropout if it has dropout."""
    for training, dropout in ((True, False), (False, False), (True, True)):
        yield Case(name, partial(_check_layer, make, training, dropout))


def _check_layer(make: Callable[[], Layer], training: bool, dropout: bool) -> list[Check]:
    layer = make()
    M = MultilayerPerceptron([layer]).train(training)
    if dropout and not any(isinstance(part, LinearLayer) for _, part in M.walk()):
        return []
    return [*check_definition_of_layer(layer, dropout=dropout), *check_layer(layer, dropout=dropout)]


def _losses() -> Iterator[Case]:
    """Every loss for one example and for a batch, with arbitrary and one-hot targets."""
    for name, cls in LOSSES.items():
        yield Case(name, partial(check_definition_of_loss, cls()))
        yield Case(name, partial(check_loss, cls()))
        yield Case(name, partial(check_loss, cls(), N=1))
        yield Case(name, partial(check_loss, cls(), one_hot=True))
        if "label_smoothing" in vars(cls()):
            smoothed = create_loss(f"{name}(label_smoothing=0.1)")
            yield Case(name, partial(check_loss, smoothed))


def _functions() -> Iterator[Case]:
    """Every activation function and every softmax function."""
    for name, cls in ACTIVATIONS.items():
        yield Case(name, partial(check_definition_of_activation, cls()))
        yield Case(name, partial(check_activation, cls()))
    for name in SOFTMAX_FUNCTIONS:
        yield Case(name, partial(check_softmax, name))


def _optimizers() -> Iterator[Case]:
    """Every optimizer."""
    for name in OPTIMIZER_RULES:
        yield Case(name.removesuffix("Optimizer"), partial(check_optimizer, name))


def _derivations() -> Iterator[Case]:
    """Every lemma, property and derivation of the paper."""
    for derivation in derivations():
        yield Case(derivation.name, partial(_check_derivation, derivation))


def _check_derivation(derivation: Derivation) -> list[Check]:
    return [check_derivation(derivation)]
