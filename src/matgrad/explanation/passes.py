"""A training step that keeps the value of every equation, as numbers and as a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.layers.state import SUPPORT, State, sized_by_supports
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.program.computations import Step
from matgrad.program.naming import full_name
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.sparse.operands import OneHot

Phase = Literal["feedforward", "loss", "backpropagate", "optimize"]
LOSS = "ℒ"  # the mean loss of the batch


@dataclass(frozen=True)
class Result:
    """The value of an equation, and what computed it."""

    phase: Phase
    layer: str  # or part that executes it, such as '2' or '3.1'; '' for the loss
    owner: Layer | LossFunction | Optimizer  # what computes it
    part: str  # what its class calls it, such as DW, or x for what an optimizer updates
    name: str  # of the value, such as DW2 or W2'
    quantity: str  # that in the equations of the layer, such as DW or W
    value: Any
    equation: Equation | None = None  # of a layer
    key: str = ""  # in the outputs of a pass

    @property
    def title(self) -> str:
        """The equation with its layer: ``layer 2 ActivationLayer.DW``."""
        return full_name(self.layer, self.owner, self.quantity)

    @property
    def names(self) -> tuple[str, str, str]:
        """The names by which it is found."""
        short = f"layer {self.layer} {self.quantity}" if self.layer else "loss" if self.name == LOSS else self.name
        return short, self.title, self.name


R = TypeVar("R", bound=Result)


def named(results: Sequence[R], name: str) -> R:
    """The result of this name; of several values of one name, the last one counts."""
    found = {known: r for r in results for known in r.names}
    if name not in found:
        raise ValueError(f"unknown equation {name!r} (known: {', '.join(r.names[0] for r in results)})")
    return found[name]


class Pass(Step):
    """``pass(state, X, T, η)`` is a step that also returns the loss and the value of every equation."""

    results: list[Result]

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The new state, and the value of every equation by its name."""
        _, T, _, *s = inputs
        names = {id(layer): name for name, layer in model.walk()}
        found: list[Result] = []

        def keep(layer: Layer, equation: Equation, value: Any) -> Any:
            path, phase = names[id(layer)], cast(Phase, equation.method)
            R = layer.R if isinstance(layer, LayerWithDropout) else None
            if phase == "feedforward" and R is not None and not any(r.value is R for r in found):
                found.append(Result(phase, path, layer, "R", f"R{path}", "R", R))
            if hasattr(value, "shape") and not isinstance(value, OneHot):  # which is never formed
                name = equation.name
                found.append(Result(phase, path, layer, name, f"{name}{path}", name, value, equation))
            return value

        with observed((layer for _, layer in model.walk()), keep):
            new = super().run(model, state, *inputs)
        for path, layer in reversed(list(model.walk())):
            found += _stored(path, layer, found)
        Y, DY = (vars(model.layers[-1])[name] for name in ("_Y", "_DY"))  # whatever else the layer calls Y
        loss = self.loss(Y, T, *s)
        loss = loss if self.loss.is_mean else loss / Y.shape[0]
        parts = ("value", LOSS, loss), ("gradient", "DY", DY)
        place = sum(r.phase == "feedforward" for r in found)
        found[place:place] = [Result("loss", "", self.loss, part, name, name, x) for part, name, x in parts]
        self.results = list(_with_keys([*found, *_updates(model, state, new)], state))
        return new | {r.key: values_of(r.value) for r in self.results if r.key not in new}


def _stored(path: str, layer: Layer, found: list[Result]) -> Iterator[Result]:
    """The gradients in a layer that are not the value of an equation, but of whatever statement stored them."""
    known = {id(r.value) for r in found if r.owner is layer}
    for name in (*layer.parameters, "X"):
        D = getattr(layer, f"D{name}", None)
        if hasattr(D, "shape") and id(D) not in known:
            yield Result("backpropagate", path, layer, f"D{name}", f"D{name}{path}", f"D{name}", D)


def _updates(model: MultilayerPerceptron, old: State, new: State) -> Iterator[Result]:
    """The matrices of the state that a step replaces: for each parameter its optimizer's, then itself."""
    supports = sized_by_supports(new)
    for path, layer in model.walk():
        own = [name.removeprefix(f"{path}.") for name in new if name.startswith(f"{path}.")]
        ranks = {name: i for i, name in enumerate(layer._optimizers)}
        for name in sorted(own, key=lambda name: (ranks.get(name.partition(".")[0], len(ranks)), "." not in name)):
            key, (parameter, dot, part) = f"{path}.{name}", name.partition(".")
            value = new[key]
            is_part = parameter.isdigit()  # of a layer, which has its own turn
            if is_part or name.endswith(SUPPORT) or value is old[key] or len(value.shape) != 2:
                continue
            if key in supports:
                value = SparseMatrix(new[supports[key]], value)
            optimizer = layer._optimizers.get(parameter)
            called = part or "x" if optimizer else name
            new_name = f"{parameter}{path}{dot}{part}'"
            yield Result("optimize", path, optimizer or layer, called, new_name, name, value, key=key)


def _with_keys(results: Iterable[Result], state: State) -> Iterator[Result]:
    """The results, each with a key of its own: its name, and a number if it comes again."""
    count = Counter(state)
    for r in results:
        count[r.name] += not r.key
        yield replace(r, key=r.key or (r.name if count[r.name] == 1 else f"{r.name}_{count[r.name]}"))
