"""All proofs of the package and of plugins as one suite, which `matgrad verify --all-sizes` runs.

It claims that the equations of every layer, loss, activation function and softmax function, of the package and of
plugins, are right for all sizes N, D and K of 1 or more, and for all real numbers for which both sides are defined,
except where a condition, such as x ≥ 0, or a maximum changes: gradients against derivatives, values against the
definitions in `definitions`. Numbers of floating point stand for exact ones. It does not claim anything
about rounding, optimizers, initial weights, defaults and training: those are left to `matgrad verify` and the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.inspection.verdicts import Case, Check
from matgrad.layers import ActivationDropoutLayer, ActivationLayer, Layer, SReLULayer
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES, LossFunction, create_loss
from matgrad.optimizers import OPTIMIZERS
from matgrad.proofs.definitions import ArbitraryActivation
from matgrad.proofs.derivations import derivations
from matgrad.proofs.explained_layers import explain_layer
from matgrad.proofs.explanations import (
    Explanation,
    explain_activation,
    explain_lemma,
    explain_loss,
    explain_softmax,
)
from matgrad.proofs.layers import prove_activation, prove_layer, prove_loss, prove_softmax
from matgrad.proofs.lemmas import lemmas
from matgrad.proofs.statements import Lemma, prove_lemma
from matgrad.proofs.symbolic_layers import MakeLayer
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import lookup

SOFTMAX_FUNCTIONS = ("softmax", "stable_softmax", "log_softmax", "stable_log_softmax")
QUICK = ("Linear", "ReLU", "Softmax", "stable_softmax", "BatchNormalization", "SoftmaxCrossEntropy", "chain rule")
SMOOTHING = 0.1  # of targets; a symbol stands for it in proofs


@dataclass(frozen=True)
class ProofCase(Case):
    """Something to prove, which can also explain each of its proofs."""

    explain: Callable[[Check], Explanation] | None = None


def explain(name: str, only: tuple[str, ...] = ()) -> Explanation:
    """The derivation of a proved equation, such as 'SoftmaxLayer.DZ', in steps.

    `only` selects layers, losses and functions as in `cases`: ActivationLayer.DZ is that of the first activation
    function, unless one is selected.
    """
    known: dict[str, None] = {}
    for case in sorted(cases(only), key=lambda case: case.name not in name):  # those that are likely come first
        for check in case.run():
            known[check.name] = None
            if check.name == name:
                return _explanation(case, check)
    raise ValueError(f"unknown equation {name!r}; known: {', '.join(sorted(known))}")


def _explanation(case: ProofCase, check: Check) -> Explanation:
    if not check.ok:
        raise ValueError(f"{check.name} has no derivation, as it is not proved\n{check.message}")
    if check.note:
        raise ValueError(f"{check.name} has no derivation: {check.note}")
    assert case.explain is not None
    return case.explain(check)


def cases(only: tuple[str, ...] = (), *, quick: bool = False) -> list[ProofCase]:
    """The proofs of all layers, losses, activation functions, softmax functions, lemmas and derivations.

    `only` selects some of them by name, such as 'Softmax' or 'GELU'; `quick` selects some that take only seconds.
    """
    found = [*_functions(), *_layers(), *_losses(), *_lemmas()]
    known = {case.name: case for case in found}
    for name in only:
        if name in OPTIMIZERS and name not in known:
            raise ValueError(f"{name} has no sizes to prove it for: an optimizer works element by element")
        lookup(name, known, "equation")
    chosen = QUICK if quick and not only else only
    return [case for case in found if not chosen or case.name in chosen]


def _layers() -> Iterator[ProofCase]:
    """Every layer, with and without dropout, and one layer per activation function and for an arbitrary one."""
    for name, cls in LAYERS.items():
        yield from _layer(name, partial(_make_layer, cls))
        if cls in DROPOUT_LAYERS:
            yield from _layer(name, DROPOUT_LAYERS[cls])
    yield from _layer("SReLU", partial(SReLULayer, shared=True))
    for name in ACTIVATIONS:
        yield from _layer(name, partial(ActivationLayer, act=name))
    for kind in (ActivationLayer, ActivationDropoutLayer):
        yield from _layer("Activation", partial(kind, act=ArbitraryActivation()))


def _make_layer(cls: type[Layer], D: int, K: int) -> Layer:
    return cls(D, D if cls.keeps_size else K)


def _layer(name: str, make: MakeLayer) -> Iterator[ProofCase]:
    """A layer in training mode and in evaluation mode."""
    yield _case(name, prove_layer, explain_layer, make, is_basic=True)
    yield _case(name, partial(prove_layer, training=False), partial(explain_layer, training=False), make)


def _case(
    name: str,
    prove: Callable[..., list[Check]],
    explain: Callable[..., Explanation],
    thing: Any,
    *,
    is_basic: bool = False,
) -> ProofCase:
    """The case of a thing, with the functions that prove and explain it."""
    return ProofCase(name, partial(prove, thing), is_basic, partial(explain, thing))


def _losses() -> Iterator[ProofCase]:
    """Every loss, with and without smoothing."""
    for name, cls in LOSSES.items():
        yield _case(name, partial(_new, prove_loss), explain_loss, cls, is_basic=True)
        if "label_smoothing" in getattr(cls.__init__, "__annotations__", {}):
            smoothed = partial(create_loss, f"{name}(label_smoothing={SMOOTHING})")
            yield _case(name, partial(_new, prove_loss), explain_loss, smoothed)


def _functions() -> Iterator[ProofCase]:
    """Every activation function and every softmax function."""
    for name, cls in ACTIVATIONS.items():
        yield _case(name, partial(_new, prove_activation), explain_activation, cls, is_basic=True)
    for name in SOFTMAX_FUNCTIONS:
        yield _case(name, prove_softmax, explain_softmax, name, is_basic=True)


def _new(prove: Callable[..., list[Check]], make: Callable[[], ActivationFunction | LossFunction]) -> list[Check]:
    """The proof of a new object, which is made when the case runs: its constructor may raise an error."""
    return prove(make())


def _lemmas() -> Iterator[ProofCase]:
    """Every lemma, property and derivation of the paper."""
    for lemma in (*lemmas(), *derivations()):
        yield _case(lemma.name, _proved, explain_lemma, lemma)


def _proved(lemma: Lemma) -> list[Check]:
    return [prove_lemma(lemma)]
