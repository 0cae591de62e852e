"""All claims of the package and of plugins as one suite, with their judges, which `matgrad verify` runs.

It claims that the equations of every layer, loss, activation function, softmax function and optimizer, of the package
and of plugins, are right: gradients against derivatives, values against definitions; in training and evaluation mode;
and that every lemma and derivation of the paper holds.

- *For all sizes* means sizes N, D and K of 1 or more, and all real numbers for which both sides are defined, except
  where a condition, such as x ≥ 0, or a maximum changes. Numbers of floating point stand for exact ones.
- SymPy judges the same at fixed sizes, and also updates of optimizers, second steps and the corners of functions.
- In numbers, the code runs on NumPy for one, two and many examples, one feature, equal sizes and far from 0; and
  defaults, constants and the initial state are those written in `state`.

It does not claim that the backends and engines compute the table of operations in the same way, that rounding is
harmless, or anything about initial weights, schedules, data and training: that is left to the tests.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from matgrad import layers, softmax_functions
from matgrad.activation_functions import ACTIVATIONS, ActivationFunction
from matgrad.inspection.latex import function_latex, latex_document, mode_latex, update_latex
from matgrad.inspection.verdicts import Check, crash
from matgrad.judges import blocks, explanations
from matgrad.judges.algebra import Subject, for_equal_sizes, made
from matgrad.judges.claims import of_activation, of_layer, of_lemma, of_loss, of_softmax
from matgrad.judges.definitions import SOFTMAX, ArbitraryActivation
from matgrad.judges.explanations import Explanation
from matgrad.judges.index_judge import SMALL
from matgrad.judges.lemmas import LEMMAS
from matgrad.layers.dropout import DROPOUT_LAYERS
from matgrad.loss_functions import LOSSES, create_loss
from matgrad.optimizers import OPTIMIZERS, Optimizer
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import lookup

ALL_SIZES, SYMPY, NUMBERS = "all sizes", "SymPy", "numbers"
JUDGES = {ALL_SIZES: "index_judge", SYMPY: "sympy_judge", NUMBERS: "numbers_judge"}  # with their modules
QUICK = (
    *("Linear", "ReLU", "stable_softmax", "BatchNormalization", "SoftmaxCrossEntropy", "MeanSquaredError"),
    *("Momentum", "chain rule"),
)
SMOOTHING = 0.1  # of targets
TABLES: tuple[dict[str, Any], ...] = (LAYERS, LOSSES, ACTIVATIONS, OPTIMIZERS)


@dataclass(frozen=True)
class Case:
    """A subject and its judge."""

    subject: Subject
    judge: str

    @property
    def name(self) -> str:
        """The name of the subject in specifications."""
        return self.subject.name

    def run(self) -> list[Check]:
        """The verdicts; an error is one too."""
        try:
            return list(import_module(f"matgrad.judges.{JUDGES[self.judge]}").verdicts(self.subject))
        except Exception as error:
            return [crash(error, default=self.name)]


def cases(
    only: tuple[str, ...] = (), *, quick: bool = False, basic: bool = False, judges: Iterable[str] = JUDGES
) -> list[Case]:
    """What is claimed of all layers, losses, activations, softmax functions, optimizers and lemmas, with each judge.

    `only` selects some of them by name, such as 'Softmax' or 'GELU'; `quick` selects some that take only seconds, and
    `basic` what SymPy says of batches in training mode.
    """
    judges = [SYMPY] if basic else list(judges)
    found = [*_subjects(), *(_of_state() if judges != [ALL_SIZES] else ())]
    known = {subject.name: subject for subject in found}
    for name in only:
        if name in OPTIMIZERS and name not in known:
            raise ValueError(f"{name} has no sizes to prove it for: an optimizer works element by element")
        lookup(name, known, "equation")
    chosen = QUICK if quick and not only else only
    return [
        Case(subject, judge)
        for subject in found
        for judge in subject.judges or JUDGES
        if judge in judges and (not chosen or subject.name in chosen) and (subject.is_basic or not basic)
    ]


def with_causes(found: Iterable[tuple[Case, Check]]) -> list[tuple[Case, Check]]:
    """The checks, where those that are wrong name the first wrong equation on which they depend.

    A layer depends on its activation function, and what follows a wrong gradient in backpropagation depends on it,
    unless it is that of a parameter, or of the input.
    """
    found = list(found)
    wrong = {check.name for _, check in found if not check.ok}
    first: dict[Case, str] = {}
    result = []
    for case, check in found:
        cause = ""
        if not check.ok:
            functions, ends = _parts(case.subject)
            cause = next((x for x in (*functions, first.get(case, "")) if x in wrong), "")
            cause = "" if cause == check.name else cause
            if not cause and check.name.rpartition(".")[2] not in ends:
                first[case] = check.name
        result.append((case, replace(check, cause=cause)))
    return result


def _parts(subject: Subject) -> tuple[list[str], set[str]]:
    """The functions that a layer applies, and the gradients that nothing in it depends on."""
    if subject.claims in (of_layer, blocks.of_declared, blocks.of_composite):
        with suppress(Exception):  # whatever the code of a user leads to
            layer = subject.thing(*SMALL.values())
            things = [x for _, part in layer.walk() for x in vars(part).values() if isinstance(x, ActivationFunction)]
            functions = [f"{type(x).__name__}.{y}" for x in things for y in ("value", "gradient")]
            return functions, {f"D{x}" for x in (*layer.parameters, "X")}
    return [], set()


def explain(name: str, only: tuple[str, ...] = ()) -> Explanation:
    """The derivation of an equation that is proved for all sizes, such as 'SoftmaxLayer.DZ', in steps.

    `only` selects layers, losses and functions as in `cases`: layers.ActivationLayer.DZ is that of the first activation
    function, unless one is selected.
    """
    chosen = [(case, list(_owners(case.subject))) for case in cases(only, judges=[ALL_SIZES])]
    own = [case for case, owners in chosen if name in owners or name.partition(".")[0] in owners]
    if not own:
        owners = sorted({x for _, owners in chosen for x in owners})
        raise ValueError(f"unknown equation {name!r}; known are those, such as SoftmaxLayer.DZ, of {', '.join(owners)}")
    known: dict[str, None] = {}
    for case in own:
        for check in case.run():
            known[check.name] = None
            if check.name == name:
                return explained(case.subject, check)
    raise ValueError(f"unknown equation {name!r}; known: {', '.join(sorted(known))}")


def _owners(subject: Subject) -> Iterator[str]:
    """What the names of its equations begin with: a class, a function or a lemma."""
    if isinstance(subject.thing, str):  # a softmax function
        yield from (subject.thing, f"{subject.thing}_jacobian")
    elif not callable(subject.thing):
        yield subject.name
    else:
        with suppress(Exception):  # whatever the code of a user leads to, which a proof reports
            yield type(subject.thing(*SMALL.values()) if subject.claims is of_layer else subject.thing()).__name__


def explained(subject: Subject, check: Check) -> Explanation:
    """The derivation of what is proved of a subject, with symbols for its numbers if it does not decide by them."""
    if not check.ok:
        raise ValueError(f"{check.name} has no derivation, as it is not proved\n{check.message}")
    if check.note:
        raise ValueError(f"{check.name} has no derivation: {check.note}")
    ones = frozenset(re.findall(r"(\w+) = 1\b", check.sizes))
    try:
        return explanations.explained(subject, check, ones, "positive")
    except Exception:  # as in proofs: whatever the code of a user leads to
        return explanations.explained(subject, check, ones, "kept")


# -- subjects -----------------------------------------------------------------------------------


def _subjects() -> Iterator[Subject]:
    """Every function, layer, with each activation function and an arbitrary one, loss, with smoothing, and lemma."""
    yield from (Subject(name, of_activation, cls) for name, cls in ACTIVATIONS.items())
    yield from (Subject(name, of_softmax, name) for name in SOFTMAX)
    for name, make, *judges in _layers():
        for training in (True, False):
            yield Subject(name, of_layer, partial(made, make, training), is_basic=training, judges=tuple(judges))
    yield from _of_blocks()
    for name, cls in LOSSES.items():
        claims: Any = blocks.of_tokens if cls.has_tokens else of_loss
        only = (ALL_SIZES,) if cls.has_tokens else ()
        yield Subject(name, claims, cls, is_basic=True, judges=only)
        if "label_smoothing" in getattr(cls.__init__, "__annotations__", {}):
            smoothed = partial(create_loss, f"{name}(label_smoothing={SMOOTHING})")
            yield Subject(name, claims, smoothed, judges=only)
    yield from (Subject(lemma.name, of_lemma, lemma, judges=(ALL_SIZES, SYMPY)) for lemma in LEMMAS)


def _layers() -> Iterator[tuple[Any, ...]]:
    """The name and the constructor of every layer, with the names of its judges if these are not all."""
    for name, cls in LAYERS.items():
        yield name, cls
        if cls in DROPOUT_LAYERS:
            yield name, DROPOUT_LAYERS[cls]
    yield "SReLU", partial(layers.SReLULayer, shared=True)
    yield from ((name, partial(layers.ActivationLayer, act=name)) for name in ACTIVATIONS)
    yield "ReLU", partial(layers.ActivationDropoutLayer, act="ReLU")
    for arbitrary in (layers.ActivationLayer, layers.ActivationDropoutLayer):
        yield "Activation", partial(arbitrary, act=ArbitraryActivation()), ALL_SIZES


def _of_blocks() -> Iterator[Subject]:
    """Layers of images and tokens, and of layers: with declared sizes, for arbitrary parts, and as they are made."""
    for name in blocks.DECLARED | blocks.COMPOSITES | blocks.MADE:
        declared, composites = blocks.DECLARED.get(name, []), blocks.COMPOSITES.get(name, [])
        yield from (Subject(name, blocks.of_declared, x, judges=(ALL_SIZES,)) for x in declared)
        yield from (Subject(name, blocks.of_composite, x, judges=(ALL_SIZES,)) for x in composites)
        yield from (Subject(name, of_layer, x, judges=(SYMPY, NUMBERS)) for x in blocks.MADE.get(name, []))


def _of_state() -> Iterator[Subject]:
    """What has no sizes: optimizers, defaults, corners of activation functions, second steps."""
    from matgrad.judges import state
    from matgrad.judges.sympy_judge import CORNERS, of_corners, symbols

    of_sympy, in_numbers = (partial(Subject, judges=(judge,)) for judge in (SYMPY, NUMBERS))
    kinds = [x for table in TABLES for x in table.items()]
    kinds += [(name, DROPOUT_LAYERS[cls]) for name, cls in LAYERS.items() if cls in DROPOUT_LAYERS]
    for name, cls in kinds:
        if cls in state.DEFAULTS:
            arguments: tuple[Any, ...] = (2, 2 if cls.keeps_size else 4) if issubclass(cls, layers.Layer) else ()
            arguments = (symbols("x", 2, 3), None) if issubclass(cls, Optimizer) else arguments
            yield in_numbers(name, state.of_defaults, partial(cls, *arguments))
    yield from (of_sympy(name, of_corners, act) for name, act in ACTIVATIONS.items() if act in CORNERS)
    yield of_sympy("BatchNormalization", state.of_second_batch, partial(layers.BatchNormalizationLayer, 2))
    yield in_numbers("Dropout", state.of_renewals, partial(layers.DropoutLayer, 2))
    for renew in ("step", "epoch"):
        layer = partial(layers.LinearDropoutLayer, 2, 3, dropout=0.3, renew=renew)
        yield in_numbers("Linear", state.of_renewals, layer)
    for name, optimizer in OPTIMIZERS.items():
        yield of_sympy(name, state.of_update, optimizer, is_basic=True)
        yield of_sympy(name, state.of_first_updates, optimizer)


def validated_equations(checks: Iterable[Check]) -> str:
    """A LaTeX document with the equations of every class and function that passes all its checks; lemmas have none."""
    verdicts: dict[str, bool] = {}
    for check in checks:
        name = check.name.partition(".")[0].removesuffix("_jacobian")
        verdicts[name] = verdicts.get(name, True) and check.ok
    known: dict[str, Any] = {name: getattr(softmax_functions, name) for name in SOFTMAX}
    known |= {cls.__name__: cls for table in ({"": layers.ActivationLayer}, *TABLES) for cls in table.values()}
    sections = [(name, _equations(known[name])) for name, ok in verdicts.items() if ok and name in known]
    return latex_document([(name, lines) for name, lines in sections if lines])


def _equations(thing: Any) -> list[str]:
    """The equations of a class or function in order of execution; a layer without readable ones has none to print."""
    if not isinstance(thing, type):
        return [function_latex(f) for f in (thing, getattr(softmax_functions, f"{thing.__name__}_jacobian"))]
    if issubclass(thing, layers.Layer):
        with suppress(Exception):  # whatever the constructor of a user leads to
            return [x for lines in mode_latex(example_of(thing)).values() for x in lines]
        return []
    if issubclass(thing, Optimizer):
        return [*update_latex(thing(np.zeros((2, 3)), None)).values()]
    example: Any = thing()
    return [function_latex(method) for method in (example.__call__, example.gradient)]


def example_of(cls: type[layers.Layer]) -> layers.Layer:
    """A small layer of a class, with an arbitrary activation function if it takes one."""
    make: Any = for_equal_sizes(cls)
    if "act" in inspect.signature(cls).parameters:
        make = partial(make, act=ArbitraryActivation())
    return make(*SMALL.values())
