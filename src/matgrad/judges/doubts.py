"""Reasons not to believe a proof about code of a user: it is not followed, it changes, or numbers refute it.

The code of the package needs none of this: tests compare all that it does with independent code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.backends import get_backend
from matgrad.inspection.following import Follower, changed
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.inspection.observing import observed
from matgrad.inspection.settings import UnfollowedError, settings, texts
from matgrad.inspection.variables import drop_gradients
from matgrad.judges import claims
from matgrad.judges.algebra import Subject, SymbolicAlgebra, for_equal_sizes
from matgrad.judges.constructors import SMALL, misfit
from matgrad.layers import LinearLayer, LogSoftmaxLayer, SoftmaxLayer
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer
from matgrad.loss_functions import LossFunction, takes_weights
from matgrad.program.entries import IndexMatrix

# N, D and K of the numbers that may refute a proof: sizes of 1, equal sizes, and large ones
SIZES = ((1, 3, 2), (2, 1, 3), (3, 2, 1), (2, 2, 2), (3, 2, 3), (4, 4, 3), (5, 3, 7), (70, 66, 3), (3, 5, 130))
DECIDES = "a constructor that decides as for {} and {}".format(*(f"{name} = {n}" for name, n in SMALL.items()))
SHRUNK = 0.7  # times every number that a class keeps, for every other of these sizes


class Run(NamedTuple):
    """Something that can be run again: the objects that it consists of, and what it computes for some matrices."""

    things: list[Any]
    outputs: Callable[..., dict[str, Any]]  # of marks of the symbols, and of whether something has run before


def doubt(
    subject: Subject, algebra: Callable[[], SymbolicAlgebra], given: dict[str, str], more: Mapping[str, str]
) -> str:
    """What is doubtful in a proof, or '' if nothing is; `given` gets `more` that it is for, if it is of users."""
    try:
        return _doubt(subject, algebra, given, more)
    except UnfollowedError as error:
        return str(error)
    except Exception as error:  # whatever the code of a user leads to
        return f"the code raises {type(error).__name__} in another run: {error}"


def _doubt(
    subject: Subject, algebra: Callable[[], SymbolicAlgebra], given: dict[str, str], more: Mapping[str, str]
) -> str:
    constructor, follower, a = Follower(), Follower(), algebra()
    with constructor.following():
        run = RUNS[subject.claims](a, subject.thing)
    first = _kept(run)
    with follower.following():
        outputs = run.outputs()
    if not follower.scopes and not constructor.scopes:
        return ""
    if name := changed():
        return f"{name} is changed, on which proofs rest"
    for problem in (*constructor.problems(of_constructor=True), *follower.problems()):
        return f"the code {problem}, which a proof cannot follow"
    found, kept = list(follower.kept()), _kept(run)
    before = kept | texts(found)
    other = RUNS[subject.claims](algebra(), subject.thing)  # an object that has seen other matrices
    other.outputs("'")
    again = other.outputs(is_first=False)
    with ExitStack() as stack:
        stack.enter_context(observed([x for x in run.things if isinstance(x, Layer)], lambda layer, equation, x: x))
        seen = run.outputs()
    after = _kept(run) | texts(follower.kept())
    changes = [x for x in before | after if before.get(x) != after.get(x)] + [
        x for x in first if first[x] != kept.get(x)
    ]
    if changes:
        return f"the code changes {changes[0]} from run to run"
    for known, what in ((again, "in a second run"), (seen, "than its source says")):
        if names := [name for name, x in outputs.items() if known.get(name) != x]:
            return f"the code computes another {names[0]} {what}"
    given |= {x.name: x.text for x in found if x.is_named} | dict(more)
    if subject.claims == claims.of_layer:
        if constructor.decides():
            given[DECIDES] = ""
        if reason := misfit(subject.thing):
            return reason
    return refutation(subject, 1 if a.keep_numbers else SHRUNK)


def _kept(run: Run) -> dict[str, str]:
    """The settings of its layers and functions."""
    seen = set[int]()
    return texts(x for thing in run.things for x in settings(type(thing).__name__, thing, seen))


def _value(x: Any) -> Any:
    return (x.shape, x.entry) if isinstance(x, IndexMatrix) else repr(x)


def _of_layer(a: SymbolicAlgebra, make: Any) -> Run:
    layer = a.layer(make)
    parts = dict(layer.walk())
    state = [(x, name, getattr(x, name)) for x in parts.values() for name in (*x.parameters, *x.buffers)]

    def outputs(mark: str = "", is_first: bool = True) -> dict[str, Any]:
        X, G = (a.symbols(x + mark, a.size("N"), n) for x, n in (("X", layer.input_size), ("G", layer.output_size)))
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

    def outputs(mark: str = "", is_first: bool = True) -> dict[str, Any]:
        X = a.symbols("X" + mark, a.size("N"), a.size("K"))
        return {"value": _value(act(X)), "gradient": _value(act.gradient(X))}

    return Run([act], outputs)


def _of_loss(a: SymbolicAlgebra, make: Callable[[], LossFunction]) -> Run:
    loss = a.numbers(make())

    def outputs(mark: str = "", is_first: bool = True) -> dict[str, Any]:
        Y, T, s = (
            a.symbols(x + mark, a.size("N"), a.size(n) if n else 1) for x, n in (("Y", "K"), ("T", "K"), ("s", ""))
        )
        found = {"value": loss(Y, T), "gradient": loss.gradient(Y, T), "mean_gradient": loss.mean_gradient(Y, T, s)}
        found |= {"weighted value": loss(Y, T, s)} if takes_weights(loss) else {}
        return {name: _value(x) for name, x in found.items()}

    return Run([loss], outputs)


RUNS: dict[Any, Callable[[Any, Any], Run]] = {
    claims.of_layer: _of_layer,
    claims.of_activation: _of_activation,
    claims.of_loss: _of_loss,
}


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
