"""What is fixed in a recorded program: all that a model, its layers, optimizers and loss are, except the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.numbers import as_number
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.optimizers import Optimizer

PLAIN = (bool, int, float, str)


class Same:
    """An object that is equal to itself alone; it is kept, so that no other object gets its identity."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    __hash__ = None  # type: ignore[assignment]


def settings(thing: Any, unknown: Callable[[Any], Any] = Same, inside: tuple[Any, ...] = ()) -> Any:
    """The numbers and strings in layers, optimizers, losses and their parts, and ``unknown(x)`` for every other x.

    They are fixed in a compiled step. The state, with its supports, is not among them. `inside` has what `thing` is in.
    """
    thing = as_number(thing)
    if thing is None or type(thing) in PLAIN:
        return thing
    if any(thing is x for x in inside):
        return None
    inner = (*inside, thing)
    if isinstance(thing, list | tuple):
        return [settings(x, unknown, inner) for x in thing]
    if isinstance(thing, dict):
        return {key: settings(x, unknown, inner) for key, x in thing.items()}
    if isinstance(thing, Layer | ActivationFunction | Optimizer | LossFunction):
        constants = {name: x for cls in reversed(type(thing).__mro__) for name, x in vars(cls).items()}
        fixed = {name: x for name, x in constants.items() if type(x) in PLAIN and not name.startswith("__")}
        fixed |= {name: x for name, x in vars(thing).items() if name not in _state_names(thing)}
        return [type(thing), settings(fixed, unknown, inner)]
    return unknown(thing)


def _state_names(thing: Any) -> tuple[str, ...]:
    """The attributes that are part of the state."""
    if isinstance(thing, Layer):
        return (*thing.parameters, *thing.buffers)
    return ("x", "Dx", *thing.state_names) if isinstance(thing, Optimizer) else ()
