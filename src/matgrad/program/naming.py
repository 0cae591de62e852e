"""Which equation of a layer, loss or optimizer computes a recorded value, and the name of the value in it.

Source code is not read: a value belongs to the method that runs while it is recorded, and is called what the method's
own variable for it is called. ``Z = super().feedforward(X)`` names what the base class calls Y. In the same way
the last value of a call of softmax, of an activation function or of its derivative is known to be softmax(Y), say.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.notation import function_name
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.program import Value
from matgrad.sparse.matrix import SparseMatrix

CLIP = "clip_gradients"
PASSES = ("feedforward", "backpropagate")
SOFTMAX = {
    getattr(softmax_functions, f"{prefix}{name}").__code__: name
    for prefix in ("", "stable_")
    for name in ("softmax", "log_softmax")
} | {softmax_functions.half_log_softmax.__code__: "half_log_softmax"}
Method = tuple[str, Any, str]  # whose calls are looked for: the path of its layer, its object, and what it computes


def full_name(path: str, owner: object, quantity: str) -> str:
    """The name of what a layer, loss, function or optimizer computes: ``layer 2 ActivationLayer.DW``.

    Without the path of a layer, as for a loss, it is ``SquaredErrorLoss.gradient``.
    """
    name = CLIP if quantity == CLIP else f"{type(owner).__name__}.{quantity}"
    return f"layer {path} {name}" if path else name


@dataclass(eq=False)
class _Call:
    """A call of a function of one matrix, with the values that are recorded while it runs; the last is its result."""

    function: str
    argument: Any
    values: list[Value] = field(default_factory=list)


class Naming:
    """The calls that compute the values of a recording, from which the values get equations and names."""

    def __init__(self, model: MultilayerPerceptron, loss: LossFunction | None) -> None:
        self._methods: dict[tuple[str, int], Method] = {  # by the name of the method, and its object
            (CLIP, id(model)): ("", model, CLIP),
            ("mean_gradient", id(loss)): ("", loss, "gradient"),
        }
        for path, layer in model.walk():
            self._methods |= {(name, id(layer)): (path, layer, name) for name in (*PASSES, "optimize")}
            self._methods |= {("apply", id(x)): (path, x, name) for name, x in layer._optimizers.items()}
        self._names = {name for name, _ in self._methods}
        self._model, self._top = model, sys._getframe(1)
        self._known: dict[FrameType, Method | None] = {}
        self._values: list[tuple[Value, list[FrameType]]] = []  # with the calls around each, base classes first
        self._calls: dict[FrameType, _Call | None] = {}

    def add(self, value: Value) -> None:
        """Keep which method computes a value that is being recorded."""
        method, frames, frame = None, [], sys._getframe(1)
        while frame is not None and frame is not self._top:
            if (call := self._call(frame)) is not None:
                call.values.append(value)
            if frame.f_code.co_name in self._names and (own := self._method(frame)) is not None:
                if method not in (None, own):
                    break
                method = own
                frames.append(frame)
            frame = frame.f_back  # type: ignore[assignment]
        if frames:
            self._values.append((value, frames))

    def _method(self, frame: FrameType) -> Method | None:
        """The method that a frame runs, if it is one of those that are looked for."""
        if frame not in self._known:
            code = frame.f_code
            this = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            self._known[frame] = self._methods.get((code.co_name, id(this)))
        return self._known[frame]

    def _call(self, frame: FrameType) -> _Call | None:
        """The call of a function that has a name, if a frame runs one."""
        if frame not in self._calls:
            code, call = frame.f_code, None
            this, argument = (frame.f_locals.get(name) for name in (*code.co_varnames, "", "")[:2])
            if code in SOFTMAX:
                call = _Call(SOFTMAX[code], this)
            elif code.co_name in ("__call__", "gradient") and isinstance(this, ActivationFunction):
                call = _Call(function_name(type(this)) + ".gradient" * (code.co_name == "gradient"), argument)
            self._calls[frame] = call
        return self._calls[frame]

    def _compose(self, value_of: Callable[[Any], Value | None]) -> None:
        """Tell the result of each call of a function that it is one; of nested calls, the outermost counts."""
        for call in sorted(filter(None, self._calls.values()), key=lambda call: len(call.values)):
            argument, (*steps, result) = value_of(call.argument), call.values
            if argument is not None and steps:
                read = dict.fromkeys(
                    (argument, *(x for value in call.values for x in value.operands))
                )  # and parameters
                given = (x for x in read if x not in call.values)
                result.composed = Value("call", (*given,), result.shape, result.dtype, function=call.function)

    def assign(self, value_of: Callable[[Any], Value | None]) -> None:
        """Give the values their equations and names; `value_of` tells the recorded value of a variable.

        What a method computes on the way to a variable belongs to the equation of that variable. A value in no variable
        is called what the attribute of the layer is called that it is in.
        """

        self._compose(value_of)

        @cache
        def variables(frame: FrameType) -> dict[Value, str]:
            found = [(value, name) for name, X in frame.f_locals.items() if (value := value_of(X)) is not None]
            return dict(reversed(found))  # of two variables, the first one counts

        waiting: dict[FrameType, list[Value]] = defaultdict(list)
        for value, frames in self._values:
            path, owner, quantity = self._known[frames[-1]]  # type: ignore[misc]
            value.equation = full_name(path, owner, quantity)  # unless a variable follows
            waiting[frames[-1]].append(value)
            ordered = frames[::-1] if quantity == "feedforward" else frames if quantity in PASSES else ()
            name = next((variables(frame)[value] for frame in ordered if value in variables(frame)), None)
            if name is not None:
                value.name = value.name or f"{name}{path}"
                for x in waiting.pop(frames[-1]):
                    x.equation = full_name(path, owner, name)
        stored = [("DY", getattr(self._model.layers[-1], "_DY", None))]
        for path, layer in self._model.walk():
            names = (*layer.intermediates, *(f"D{name}" for name in layer.parameters), "DX")
            stored += [(f"{name}{path}", getattr(layer, name, None)) for name in names]
        for name, X in stored:
            if not isinstance(X, SparseMatrix) and (kept := value_of(X)) is not None:
                kept.name = kept.name or name

    def clear(self) -> None:
        """Let go of the calls, and of everything in their variables."""
        self._known.clear()
        self._calls.clear()
        self._values.clear()
