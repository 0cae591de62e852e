"""What a computation can reach besides its state: attributes, containers, closures, globals and random generators.

A recorded program stands for a computation that changes nothing but its state. Code from outside the package may do
anything: so everything that it can reach is looked at before and after, and restored if it has changed.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from matgrad.backends.base import RecordingError
from matgrad.foundation import random_numbers
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.program.contents import (
    VALUES,
    Kind,
    is_foreign,
    is_own_function,
    is_passed_over,
    kind_of,
    left_out,
    looks_at_types,
    same,
    unreadable,
)


def is_own(*things: object) -> bool:
    """Whether all code of some models, layers, optimizers and functions is the package's, as far as it can be seen."""
    return all(map(_is_own, things))


def _is_own(thing: Any) -> bool:
    if isinstance(thing, MultilayerPerceptron):
        return _has_own_class(thing) and is_own(*vars(thing)["layers"])
    if type(thing) in (list, tuple, dict):
        return is_own(*(thing.values() if isinstance(thing, dict) else thing))
    if isinstance(thing, VALUES) or _is_matrix(thing):
        return True
    if not _has_own_class(thing):
        return False
    aside = left_out(thing)
    return is_own(*(value for name, value in vars(thing).items() if name not in aside))


def _has_own_class(thing: Any) -> bool:
    """Whether the class and all functions in it are the package's, also those that were put there later."""
    classes = [cls for cls in type(thing).__mro__ if cls is not object]
    functions = [x for cls in classes for x in vars(cls).values() if isinstance(x, types.FunctionType)]
    is_own_class = all(cls.__module__.partition(".")[0] == "matgrad" for cls in classes)
    return is_own_class and all(map(is_own_function, functions))


def _is_matrix(thing: Any) -> bool:
    """Whether it is a matrix of a framework, whose numbers are data."""
    root = type(thing).__module__.partition(".")[0]
    return root in ("numpy", "torch", "jax", "jaxlib", "tensorflow") and hasattr(type(thing), "shape")


class Surroundings:
    """The contents of everything that can be reached from a model and its loss, except the state.

    The global random generators are included unless `generators` is False.
    """

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction | None, *, generators: bool = True) -> None:
        self._items: dict[int, _Item] = {}
        own = {id(layer) for _, layer in M.walk()}
        state = {id(X): name for name, X in M.state().items()}
        pending: list[tuple[_Item | None, str, Any]] = [(None, type(M).__name__, M), (None, "loss", loss)]
        pending += [(None, name, thing) for name, thing in (_generators() if generators else ())]
        while pending:
            parent, end, thing = pending.pop()
            if id(thing) in self._items or is_passed_over(thing):
                continue
            kind = kind_of(thing)
            item = _Item(parent, end, thing, kind or _NO_KIND, kind.read(thing) if kind else None)
            if kind is None:
                raise unreadable(item.name, thing)
            if isinstance(thing, Layer) and id(thing) not in own:
                raise RecordingError(f"{item.name} is a layer that is not a part of this one")
            if id(thing) in state:
                raise RecordingError(f"{item.name} is {state[id(thing)]} of the model, which a step changes")
            if isinstance(thing, types.FunctionType) and is_foreign(thing) and looks_at_types(thing.__code__):
                raise RecordingError(f"{thing.__qualname__} looks at the type of a matrix: expected isinstance")
            self._items[id(thing)] = item
            pending += [(item, key, x) for key, x in kind.inside(thing, item.contents)]

    def changes(self) -> list[str]:
        """The names of what has other contents now."""
        return [name for item in self._items.values() for name in item.changes()]

    def restore(self) -> None:
        """Give everything that has changed its contents back, as far as it can be written."""
        for item in self._items.values():
            if item.has_changed:
                with suppress(Exception):
                    item.kind.write(item.thing, item.contents)

    def blank_changes(self) -> tuple[list[str], list[str]]:
        """Replace every attribute, variable and entry that has changed by something that cannot be used.

        Returns the names of these, and of what has changed in other ways.
        """
        blank: list[str] = []
        others: list[str] = []
        for item in self._items.values():
            if item.kind.is_memory or not item.has_changed:
                continue
            now = item.kind.read(item.thing)
            changed = item.changed_keys(now)
            if changed:
                blank += item.changes()
                item.kind.write(item.thing, now | dict.fromkeys((key for key in changed if key in now), BLANK))
            else:
                others.append(item.name)
        return blank, others


@dataclass(frozen=True)
class _Item:
    """A thing that can be reached, and its contents; its name begins with that of the thing it was reached from."""

    parent: _Item | None
    end: str
    thing: Any  # kept, so that no other object gets its identity
    kind: Kind
    contents: Any

    @property
    def name(self) -> str:
        """The name, which a layer, an optimizer, a loss or an activation function begins anew."""
        ends: list[str] = []
        item: _Item | None = self
        while item is not None:
            if isinstance(item.thing, Layer | Optimizer | LossFunction) or type(item.thing).__name__.endswith(
                "Activation"
            ):
                return "".join([type(item.thing).__name__, *reversed(ends)])
            ends.append(item.end)
            item = item.parent
        return "".join(reversed(ends))

    @property
    def has_changed(self) -> bool:
        """Whether the contents are others now."""
        return not same(self.kind.read(self.thing), self.contents)

    def changed_keys(self, now: Any) -> list[Any]:
        """The keys of contents that are named, which differ from the contents now."""
        if not self.kind.has_names:
            return []
        keys = [*now, *(self.contents.keys() - now.keys())]
        return [key for key in keys if not (key in now and key in self.contents and same(now[key], self.contents[key]))]

    def changes(self) -> list[str]:
        """The names of what has changed in it, or its own."""
        now = self.kind.read(self.thing)
        if same(now, self.contents):
            return []
        keys = self.changed_keys(now)
        return [f"{self.name}.{key}" if isinstance(key, str) else self.name for key in keys] or [self.name]


class _Blank:
    """What stands for a value that a step must not use, because an earlier one has set it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return _Blank
        raise RecordingError("something from an earlier step is used, but it is not part of the state")

    def _refuse(self, *others: Any) -> Any:
        raise RecordingError("something from an earlier step is used, but it is not part of the state")

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __call__ = __float__ = __int__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __index__ = __neg__ = __matmul__ = __rmatmul__ = _refuse
    __iadd__ = __isub__ = __imul__ = __and__ = __or__ = __mod__ = __floordiv__ = __abs__ = __str__ = _refuse
    __hash__ = None  # type: ignore[assignment]


BLANK = _Blank()
_NO_KIND = Kind(lambda x: None, lambda x, contents: None)


@contextmanager
def preserved(M: MultilayerPerceptron, loss: LossFunction | None) -> Iterator[Surroundings | None]:
    """Restore afterwards what can be reached from a model with code from outside the package, except its state.

    Yields how it was before; None if all code is the package's.
    """
    if is_own(M, loss):
        yield None
        return
    before = Surroundings(M, loss)
    try:
        yield before
    finally:
        before.restore()


def _generators() -> Iterator[tuple[str, Any]]:
    """The global random generators."""
    yield "the random generator of NumPy", np.random.mtrand._rand
    yield "the random generator of Python", random._inst
    yield "the random generator of matgrad", random_numbers.generator()
    if "torch" in sys.modules:
        yield "the random generator of PyTorch", sys.modules["torch"].default_generator
