"""Which equation of a layer, loss or optimizer computes a recorded value, and the name of the value in it.

Source code is not read: a value belongs to the method that runs while it is recorded, and is called what the method's
own variable for it is called. ``Z = super().feedforward(X)`` names what the base class calls Y.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from matgrad.program.program import Value

if TYPE_CHECKING:
    from matgrad.loss_functions import LossFunction
    from matgrad.multilayer_perceptron import MultilayerPerceptron

CLIP = "clip_gradients"


def full_name(path: str, owner: object, quantity: str) -> str:
    """The name of what a layer, loss, function or optimizer computes: ``layer 2 ActivationLayer.DW``.

    Without the path of a layer, as for a loss, it is ``SquaredErrorLoss.gradient``.
    """
    name = f"{type(owner).__name__}.{quantity}"
    return f"layer {path} {name}" if path else name


class _Method(NamedTuple):
    """A method whose calls are looked for, and what it computes apart from equations, such as 'W' for an optimizer."""

    owner: Any
    path: str  # of the layer
    quantity: str

    def __str__(self) -> str:
        return CLIP if self.quantity == CLIP else full_name(self.path, self.owner, self.quantity)


class Naming:
    """The calls that compute the values of a recording, from which the values get equations and names."""

    def __init__(self, model: MultilayerPerceptron, loss: LossFunction | None) -> None:
        found = [(CLIP, _Method(model, "", CLIP)), ("mean_gradient", _Method(loss, "", "gradient"))]
        for path, layer in model.walk():
            found += [(x, _Method(layer, path, x)) for x in ("feedforward", "backpropagate", "optimize")]
            found += [("apply", _Method(part, path, name)) for name, part in layer._optimizers.items()]
        self._methods = {(id(method.owner), name): method for name, method in found}
        self._names = {name for name, _ in found}
        self._top = sys._getframe(1)
        self._known: dict[FrameType, _Method | None] = {}
        self._values: list[
            tuple[Value, list[FrameType]]
        ] = []  # with the calls around each, those of base classes first

    def add(self, value: Value) -> None:
        """Keep which method computes a value that is being recorded."""
        method, frames, frame = None, [], sys._getframe(1)
        while frame is not None and frame is not self._top:
            if frame.f_code.co_name in self._names and (own := self._method(frame)) is not None:
                if method not in (None, own):
                    break
                method = own
                frames.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        if frames:
            self._values.append((value, frames))

    def _method(self, frame: FrameType) -> _Method | None:
        """The method that a frame runs, if it is one of those that are looked for."""
        if frame not in self._known:
            code = frame.f_code
            this = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            self._known[frame] = self._methods.get((id(this), code.co_name))
        return self._known[frame]

    def assign(self, value_of: Callable[[Any], Value | None]) -> None:
        """Give the values their equations and names; `value_of` tells the recorded value of a variable.

        What a method computes on the way to a variable belongs to the equation of that variable.
        """

        @cache
        def variables(frame: FrameType) -> dict[Value, str]:
            found = [(value, name) for name, X in frame.f_locals.items() if (value := value_of(X)) is not None]
            return dict(reversed(found))  # of two variables, the first one counts

        waiting: dict[FrameType, list[Value]] = defaultdict(list)
        for value, frames in self._values:
            method, call = self._known[frames[-1]], frames[-1]
            assert method is not None
            waiting[call].append(value)
            if method.quantity in ("feedforward", "backpropagate"):
                ordered = frames[::-1] if method.quantity == "feedforward" else frames
                name = next((variables(frame)[value] for frame in ordered if value in variables(frame)), None)
                if name is not None:
                    value.name = value.name or f"{name}{method.path}"
                    for x in waiting.pop(call):
                        x.equation = str(method._replace(quantity=name))
        for call, values in waiting.items():
            for x in values:
                x.equation = str(self._known[call])

    def clear(self) -> None:
        """Let go of the calls, and of everything in their variables."""
        self._known.clear()
        self._values.clear()
