"""What a recorded program fixes: the numbers, strings and supports in layers, optimizers and losses."""

from __future__ import annotations

from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.optimizers import Optimizer
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support


def settings(thing: Any, inside: tuple[Any, ...] = ()) -> Any:
    """The numbers, strings and supports in layers, optimizers and losses, and in their parts: fixed in a compiled step.

    Parameters are not among them: they and their supports are part of the state. `inside` has what `thing` is in.
    """
    if type(thing) in (bool, int, float, str):
        return thing
    if isinstance(thing, SparseMatrix):
        return id(thing.support) if isinstance(thing.support, Support) else None  # a recorded one is an input
    if any(thing is x for x in inside):
        return None
    if isinstance(thing, list | tuple):
        return [settings(x, (*inside, thing)) for x in thing]
    if isinstance(thing, dict):
        return {key: settings(x, (*inside, thing)) for key, x in thing.items()}
    if isinstance(thing, Layer | ActivationFunction | Optimizer | LossFunction):
        trained = thing.parameters if isinstance(thing, Layer) else ()
        fixed = {name: x for name, x in vars(thing).items() if name not in trained}
        return [type(thing), settings(fixed, (*inside, thing))]
    return None
