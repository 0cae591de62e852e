"""Reasons not to believe a proof about code of a user: it is not followed, it changes, or numbers refute it.

The code of the package needs none of this: tests compare all that it does with independent code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.backends import get_backend
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import drop_gradients
from matgrad.inspection.verdicts import suffixed
from matgrad.judges import claims
from matgrad.judges.algebra import MakeLayer, Subject, SymbolicAlgebra, for_equal_sizes
from matgrad.judges.following import FIXED, Follower, changed, plain_state
from matgrad.judges.settings import (
    UNNAMED,
    Given,
    UnfollowedError,
    is_of_users,
    methods_of,
    of_class,
    settings,
    texts,
)
from matgrad.layers import LinearLayer, LogSoftmaxLayer, SoftmaxLayer
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.loss_functions import LossFunction, takes_weights
from matgrad.program.entries import IndexMatrix
from matgrad.program.shapes import Questions

# N, D and K of the numbers that may refute a proof: sizes of 1, equal sizes, and large ones
SIZES = ((1, 3, 2), (2, 1, 3), (3, 2, 1), (2, 2, 2), (3, 2, 3), (4, 4, 3), (5, 3, 7), (70, 66, 3), (3, 5, 130))
MORE = ((1, 1), (2, 3), (3, 2), (64, 65), (100, 128), (257, 130), (1031, 1021))  # D and K of layers that are looked at
SMALL, LARGE = {"D": 5, "K": 7}, {"D": 11, "K": 13}  # with which layers are made
DECIDES = "a constructor that decides as for {} and {}".format(*(f"{name} = {n}" for name, n in SMALL.items()))
SHRUNK = 0.7  # times every number that a class keeps, for every other of these sizes


class Run(NamedTuple):
    """Something that can be run again: the objects that it consists of, and what one run computes."""

    things: list[Any]
    outputs: Callable[..., dict[str, Any]]  # of whether something has run before


def doubt(subject: Subject, a: SymbolicAlgebra, given: dict[str, str]) -> str:
    """What is doubtful in a proof, or '' if nothing is; `given` gets more settings that it is for."""
    try:
        return _doubt(subject, a, given)
    except UnfollowedError as error:
        return str(error)
    except Exception as error:  # whatever the code of a user leads to
        return f"the code raises {type(error).__name__} in another run: {error}"


def _doubt(subject: Subject, a: SymbolicAlgebra, given: dict[str, str]) -> str:
    constructor, follower = Follower(), Follower()
    with constructor.following():
        run = RUNS[subject.claims](a, subject.thing)
    first = _own(run.things)
    with follower.following():
        outputs = run.outputs()
    if not follower.scopes and not constructor.scopes:
        return ""
    if name := changed():
        return f"{name} is changed, on which proofs rest"
    for problem in (*constructor.problems(of_constructor=True), *follower.problems()):
        return f"the code {problem}, which a proof cannot follow"
    kept = list(follower.kept())
    before, again = texts(kept) | _own(run.things) | plain_state(), run.outputs(is_first=False)
    after = texts(follower.kept()) | _own(run.things) | plain_state()
    if names := [x for x in before if before[x] != after.get(x) or first.get(x, before[x]) != before[x]]:
        return f"the code changes {names[0]} from run to run"
    with ExitStack() as stack:
        stack.enter_context(observed([x for x in run.things if isinstance(x, Layer)], lambda layer, equation, x: x))
        seen = run.outputs()
    for other, what in ((again, "in a second run"), (seen, "than its source says")):
        if names := [name for name, x in outputs.items() if other.get(name) != x]:
            return f"the code computes another {names[0]} {what}"
    given |= {x.name: x.text for x in kept if x.is_named}
    if subject.claims == claims.of_layer:
        if constructor.decides():
            given[DECIDES] = ""
        if reason := misfit(subject.thing):
            return reason
    return refutation(subject, 1 if a.keep_numbers else SHRUNK)


def _own(things: list[Any]) -> dict[str, str]:
    """The settings of layers and functions, without what every batch sets."""
    found = dict[str, str]()
    for thing in things:
        skipped: tuple[str, ...] = UNNAMED
        for base in filter(is_of_users, type(thing).__mro__):
            for name, value in (of_class(base) | methods_of(base)).items():
                found |= texts(settings(f"{base.__name__}.{name}", value))
        if isinstance(thing, Layer):
            skipped += (*thing.parameters, *thing.buffers, *thing.batch_matrices)
        for name, value in vars(thing).items():
            if name not in skipped:
                found |= texts(settings(f"{type(thing).__name__}.{name}", value))
    return found


def _value(x: Any) -> Any:
    return x.value if isinstance(x, IndexMatrix) else repr(x)


def _of_layer(a: SymbolicAlgebra, make: Any) -> Run:
    layer = a.layer(make)
    X, G = (a.symbols(x, a.size("N"), n) for x, n in (("X", layer.input_size), ("G", layer.output_size)))
    parts = dict(layer.walk())
    state = [(x, name, getattr(x, name)) for x in parts.values() for name in (*x.parameters, *x.buffers)]

    def outputs(is_first: bool = True) -> dict[str, Any]:
        for part, name, value in state:
            setattr(part, name, value)
        Y = layer.feedforward(X)
        if is_first:
            drop_gradients(layer)
        else:  # as when it trains
            layer._Y, layer._DY = Y, G
        layer.backpropagate(Y, G)
        gradients = ((path, x, f"D{name}") for path, x in parts.items() for name in ("X", *x.parameters))
        return {"Y": _value(Y)} | {f"{path} {D}".strip(): _value(getattr(x, D)) for path, x, D in gradients}

    return Run([*parts.values()], outputs)


def _of_activation(a: SymbolicAlgebra, make: Callable[[], ActivationFunction]) -> Run:
    act = a.numbers(make())
    X = a.symbols("X", a.size("N"), a.size("K"))
    return Run([act], lambda is_first=True: {"value": _value(act(X)), "gradient": _value(act.gradient(X))})


def _of_loss(a: SymbolicAlgebra, make: Callable[[], LossFunction]) -> Run:
    loss = a.numbers(make())
    Y, T, s = (a.symbols(x, a.size("N"), a.size(n) if n else 1) for x, n in (("Y", "K"), ("T", "K"), ("s", "")))

    def outputs(is_first: bool = True) -> dict[str, Any]:
        found = {"value": loss(Y, T), "gradient": loss.gradient(Y, T), "mean_gradient": loss.mean_gradient(Y, T, s)}
        found |= {"weighted value": loss(Y, T, s)} if takes_weights(loss) else {}
        return {name: _value(x) for name, x in found.items()}

    return Run([loss], outputs)


RUNS: dict[Any, Callable[[Any, Any], Run]] = {
    claims.of_layer: _of_layer,
    claims.of_activation: _of_activation,
    claims.of_loss: _of_loss,
}


# -- sizes ----------------------------------------------------------------------------------------


def misfit(make: MakeLayer) -> str:
    """Where a layer of other sizes is not what the proof takes it for; '' if it is."""
    make = for_equal_sizes(make)
    given = make(*(Given(n, name, Questions(), []) for name, n in SMALL.items()))
    small, large = make(*SMALL.values()), make(*LARGE.values())
    for layer in (given, small, large):
        for cls in {base for _, part in layer.walk() for base in type(part).__mro__ if is_of_users(base)}:
            if changed := next((name for name in FIXED if name in vars(cls)), None):
                return f"{cls.__name__} changes {changed}, which a proof cannot follow"
    for D, K in (tuple(SMALL.values()), *MORE):
        try:
            layer = make(D, K)
        except ValueError:  # it does not exist in these sizes
            continue
        known = dict(zip(zip(SMALL.values(), LARGE.values(), strict=True), (D, K), strict=True))
        walks = [dict(x.walk()) for x in (given, small, large, layer)]
        kinds = [{path: type(part) for path, part in walk.items()} for walk in walks]
        if any(x != kinds[0] for x in kinds):
            return f"{type(given).__name__} has other parts for D = {D} and K = {K}"
        for path, part in walks[0].items():
            for name in vars(part).keys() - UNNAMED:
                if not _fits(known, *(vars(walk[path]).get(name) for walk in walks)):
                    return f"{type(part).__name__}.{suffixed(name, path)} is something else for D = {D} and K = {K}"
    return ""


def _fits(known: dict[tuple[int, int], int], x: Any, a: Any, b: Any, c: Any) -> bool:
    """Whether an attribute is x in a small layer with given sizes, a in it, b in a large one, and c in another."""
    if type(a) is np.ndarray:
        shapes = [np.shape(x) for x in (x, a, b, c)]
        return shapes[0] == shapes[1] and all(known.get((m, n), m) == k for m, n, k in zip(*shapes[1:], strict=True))
    if type(a) is int and (a, b) in known:
        return x == a and known[a, b] == c
    if type(a) is float:
        return type(x) is type(c) is float
    of_x, of_a, of_c = ([y for y in settings("", z) if not y.is_array] for z in (x, a, c))
    return of_x == of_a and [y for y in of_a if not y.is_named] == [y for y in of_c if not y.is_named]


# -- numbers --------------------------------------------------------------------------------------


def refutation(subject: Subject, factor: float) -> str:
    """Where central differences on NumPy disagree with what is proved; '' if they do not.

    Every other time, numbers that a class keeps are multiplied by the factor.
    """
    for i, (N, D, K) in enumerate(SIZES):
        rng = np.random.default_rng(i)
        try:
            layer, loss = _on_numbers(subject, D, K)
        except ValueError:  # it does not exist in these sizes
            continue
        for thing in (loss, *(x for _, part in layer.walk() for x in (part, getattr(part, "act", None)))):
            _randomize(thing, rng, factor if i % 2 else 1)
        X, T = rng.normal(size=(N, layer.input_size)), rng.dirichlet(np.ones(layer.output_size), N)
        try:
            wrong = first_wrong(check_gradients(layer, loss or "SquaredError", X, T, max_elements=4))
        except Exception as error:  # whatever the code of a user leads to
            return f"numbers with N = {N}, D = {D} and K = {layer.output_size} lead to {type(error).__name__}: {error}"
        if wrong is not None:
            return f"numbers with N = {N}, D = {D} and K = {layer.output_size} refute it: {wrong.fault}"
    return ""


def _on_numbers(subject: Subject, D: int, K: int) -> tuple[Layer, LossFunction | None]:
    """A layer in float64 on NumPy, which is the subject or has it in it, and the loss if that is the subject."""
    thing, loss = subject.thing, None
    if subject.claims == claims.of_layer:
        layer = for_equal_sizes(thing)(D, K).clone()
    elif subject.claims == claims.of_activation:
        layer = ActivationLayer(D, K, thing())
    else:
        loss = thing()
        cls = {"real": LinearLayer, "probability": SoftmaxLayer}.get(next(iter(loss.accepts)), LogSoftmaxLayer)
        layer = cls(D, max(K, loss.least_outputs))
    layer.to(get_backend("numpy"), "float64")
    return layer, loss


def _randomize(thing: Any, rng: np.random.Generator, factor: float) -> None:
    """Parameters and buffers that are not 0 or 1 but near the initial ones, and other numbers times a factor."""
    for name, value in vars(thing).items() if thing is not None else ():
        if type(value) is float:
            setattr(thing, name, factor * value)
        elif isinstance(thing, Layer) and name in (*thing.parameters, *thing.buffers) and np.ndim(value) == 2:
            noise = rng.uniform(0.1, 0.4, np.shape(value))
            setattr(thing, name, value + (noise if name in thing.buffers else noise * rng.choice([-1, 1], noise.shape)))
