"""What a computation can reach besides its state: attributes, containers, closures, globals and random generators.

A recorded program stands for a computation that changes nothing but its state. Code from outside the package may do
anything: so everything that it can reach is looked at before and after, and restored if it has changed. What cannot
be looked at, such as an open file or an iterator, is refused.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import functools
import logging
import numbers
import pathlib
import random
import re
import sys
import types
from collections import _tuplegetter, deque  # type: ignore[attr-defined]
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from matgrad.backends.base import RecordingError
from matgrad.foundation import random_numbers
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.sparse.support import Support

# their functions and classes are not looked into
LIBRARIES = {*sys.stdlib_module_names, "numpy", "scipy", "torch", "jax", "jaxlib", "tensorflow", "keras", "sympy"} - {
    "__main__"
}
# what cannot change, or does not matter
ATOMS = (
    *(type(None), numbers.Number, str, bytes, range, slice, enum.Enum, np.generic, np.dtype, np.ufunc, Support),
    *(decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(re.Pattern, pathlib.PurePath, logging.Logger, types.ModuleType, types.BuiltinFunctionType, types.CodeType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType),
    *(type(Ellipsis), type(NotImplemented), type(sys.float_info), _tuplegetter),
)


def is_own(*things: object) -> bool:
    """Whether all code of some models, layers, optimizers and functions is the package's, as far as it can be seen."""
    return all(map(_is_own, things))


def _is_own(thing: Any) -> bool:
    if isinstance(thing, MultilayerPerceptron):
        return _has_own_class(thing) and is_own(*vars(thing)["layers"])
    if isinstance(thing, list | tuple | dict):
        return is_own(*(thing.values() if isinstance(thing, dict) else thing))
    if isinstance(thing, ATOMS) or _is_matrix(thing):
        return True
    if not _has_own_class(thing):
        return False
    return is_own(*(value for name, value in vars(thing).items() if name not in _left_out(thing)))


def _has_own_class(thing: Any) -> bool:
    """Whether the class and all functions in it are the package's, also those that were put there later."""
    classes = [cls for cls in type(thing).__mro__ if cls is not object]
    members = [x for cls in classes for x in vars(cls).values() if isinstance(x, types.FunctionType)]
    return all((x.__module__ or "").partition(".")[0] == "matgrad" for x in (*classes, *members))


def _is_matrix(thing: Any) -> bool:
    """Whether it is a matrix of a framework or of the package, whose numbers are data."""
    root = type(thing).__module__.partition(".")[0]
    return hasattr(type(thing), "shape") and root in ("numpy", "torch", "jax", "jaxlib", "tensorflow", "matgrad")


class Surroundings:
    """The contents of everything that can be reached from a model and its loss, except the state.

    The global random generators are included unless `generators` is False.
    """

    def __init__(self, M: MultilayerPerceptron, loss: LossFunction | None, *, generators: bool = True) -> None:
        self._items: dict[int, _Item] = {}
        own = {id(layer): layer for _, layer in M.walk()}
        state = {id(X): name for name, X in M.state().items()}
        pending: list[tuple[str, Any]] = [(type(M).__name__, M), ("loss", loss)]
        pending += _generators() if generators else ()
        while pending:
            name, thing = pending.pop()
            if _is_recorded(thing) or isinstance(thing, ATOMS) or id(thing) in self._items:
                continue
            if isinstance(thing, Layer) and id(thing) not in own:
                raise RecordingError(f"{name} is a layer that is not a part of this one")
            if id(thing) in state:
                raise RecordingError(f"{name} is {state[id(thing)]} of the model, which a step changes")
            kind = _kind_of(name, thing)
            item = _Item(_short(name, thing), thing, kind, kind.read(thing))
            self._items[id(thing)] = item
            pending += [(f"{item.name}{key}", x) for key, x in kind.inner(thing, item.contents)]

    def changes(self) -> list[str]:
        """The names of what has other contents now."""
        return [item.name for item in self._items.values() if not _same(item.kind.read(item.thing), item.contents)]

    def restore(self) -> None:
        """Give everything that has changed its contents back."""
        for item in self._items.values():
            if not _same(item.kind.read(item.thing), item.contents):
                item.kind.write(item.thing, item.contents)


@contextmanager
def preserved(M: MultilayerPerceptron, loss: LossFunction | None) -> Iterator[None]:
    """Restore afterwards what can be reached from a model with code from outside the package, except its state."""
    if is_own(M, loss):
        yield
        return
    before = Surroundings(M, loss)
    try:
        yield
    finally:
        before.restore()


def _generators() -> Iterator[tuple[str, Any]]:
    """The global random generators."""
    yield "the random generator of NumPy", np.random.mtrand._rand
    yield "the random generator of Python", random._inst
    yield "the random generator of matgrad", random_numbers.generator()
    if "torch" in sys.modules:
        yield "the random generator of PyTorch", sys.modules["torch"].default_generator


def _short(name: str, thing: Any) -> str:
    """A layer, optimizer, loss or function begins a new name, that of its class."""
    starts = isinstance(thing, Layer | Optimizer | LossFunction) or type(thing).__name__.endswith("Activation")
    return type(thing).__name__ if starts else name


# -- kinds of things ---------------------------------------------------------------------------

Inner = Callable[[Any, Any], Iterator[tuple[str, Any]]]


def _nothing(thing: Any, contents: Any) -> Iterator[tuple[str, Any]]:
    yield from ()


@dataclass(frozen=True)
class _Kind:
    """How the contents of a thing are read and written, and what is inside it, with the ends of its names."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    inner: Inner = _nothing


@dataclass(frozen=True)
class _Item:
    name: str
    thing: Any  # kept, so that no other object gets its identity
    kind: _Kind
    contents: Any


class _Globals:
    """The global variables that a function names, and those of other modules that it may mean."""

    def __init__(self, namespace: dict[str, Any], names: frozenset[str]) -> None:
        self.namespace, self.names = namespace, names

    def read(self) -> dict[str, Any]:
        """Their values."""
        return {name: self.namespace[name] for name in self.names if name in self.namespace}

    def write(self, values: dict[str, Any]) -> None:
        """Set them, and delete those that are new."""
        for name in self.read().keys() - values.keys():
            del self.namespace[name]
        self.namespace.update(values)


def _kind_of(name: str, thing: Any) -> _Kind:
    """How to look at a thing; RecordingError if there is no way."""
    for types_, kind in _KINDS:
        if isinstance(thing, types_):
            return kind
    root = type(thing).__module__.partition(".")[0]
    if root == "torch":
        if hasattr(thing, "get_state"):  # a generator
            return _Kind(lambda x: x.get_state(), lambda x, state: x.set_state(state))
        if hasattr(thing, "detach"):
            return _Kind(lambda x: x.detach().clone(), lambda x, values: x.detach().copy_(values))
        if not hasattr(thing, "__dict__"):
            return _Kind(lambda x: None, lambda x, contents: None)  # a dtype, a device
    if root in ("jax", "jaxlib", "tensorflow") and not hasattr(thing, "assign"):
        return _Kind(lambda x: None, lambda x, contents: None)  # their arrays cannot change
    if (hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")) and not isinstance(thing, Iterator):
        return _OBJECT
    raise RecordingError(f"{name} is a {type(thing).__name__}: whether a step changes it cannot be seen")


def _write_list(x: Any, contents: list) -> None:
    x.clear()
    x.extend(contents)


def _write_dict(x: Any, contents: Mapping) -> None:
    x.clear()
    x.update(contents)


def _items(x: Any, contents: Any) -> Iterator[tuple[str, Any]]:
    for i, value in enumerate(contents):
        yield f"[{i}]", value


def _values(x: Any, contents: Mapping) -> Iterator[tuple[str, Any]]:
    for key, value in contents.items():
        yield f"[{key!r}]", value


def _attributes(x: Any, contents: Mapping) -> Iterator[tuple[str, Any]]:
    for key, value in contents.items():
        yield f".{key}", value


def _read_object(x: Any) -> dict[str, Any]:
    """The attributes of an object, without its state and the matrices of its last batch."""
    slots = [name for cls in type(x).__mro__ for name in _names_of(vars(cls).get("__slots__", ()))]
    found = {name: getattr(x, name) for name in slots if hasattr(x, name)} | getattr(x, "__dict__", {})
    left_out = _left_out(x)
    return {name: value for name, value in found.items() if name not in left_out}


def _names_of(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if not name.startswith("__"))


def _left_out(x: Any) -> set[str]:
    """The attributes that a step may change: they are part of the state, or of the batch."""
    if isinstance(x, Layer):
        observation = vars(x).get("_observation")
        added = ("_observation", *observation.methods) if observation else ()
        return {*x.parameters, *x.buffers, *x.batch_matrices, *added, "training"}  # a computation sets the mode itself
    if isinstance(x, Optimizer):
        return {"x", "Dx", *x.state_names}
    return {"_checked", "information", "history"} if isinstance(x, MultilayerPerceptron) else set()


def _write_object(x: Any, contents: Mapping[str, Any]) -> None:
    for name in _read_object(x).keys() - contents.keys():
        object.__delattr__(x, name)
    for name, value in contents.items():
        object.__setattr__(x, name, value)


def _inside_object(x: Any, contents: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from _attributes(x, contents)
    yield "", type(x)


def _read_class(cls: type) -> dict[str, Any]:
    """The methods and other attributes of a class that is not a library's."""
    if cls.__module__.partition(".")[0] in LIBRARIES:
        return {}
    is_special = re.compile("__.*__").fullmatch
    return {
        name: value
        for name, value in vars(cls).items()
        if isinstance(value, types.FunctionType) or not is_special(name)
    }


def _write_class(cls: type, contents: Mapping[str, Any]) -> None:
    for name in _read_class(cls).keys() - contents.keys():
        delattr(cls, name)
    for name, value in contents.items():
        if vars(cls).get(name) is not value:
            setattr(cls, name, value)


def _inside_class(cls: type, contents: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in contents.items():
        yield f".{name}", value
    for base in cls.__bases__:
        yield "", base


def _is_known(module: str | None) -> bool:
    """Whether a module is the package's or a library's."""
    return (module or "").partition(".")[0] in {*LIBRARIES, "matgrad"}


def _read_function(f: types.FunctionType) -> tuple:
    return f.__code__, f.__defaults__, f.__kwdefaults__


def _write_function(f: types.FunctionType, contents: tuple) -> None:
    f.__code__, f.__defaults__, f.__kwdefaults__ = contents


def _inside_function(f: types.FunctionType, contents: tuple) -> Iterator[tuple[str, Any]]:
    """The defaults, what it encloses and, unless it is a library's, the global variables that it names."""
    if _is_known(f.__module__):
        return
    _, defaults, keyword_defaults = contents
    yield "()", defaults
    yield "()", keyword_defaults
    yield "", vars(f)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        yield f":{name}", cell
    names = _names_in(f.__code__)
    yield ":globals", _Globals(f.__globals__, names)
    for name in names & f.__globals__.keys():
        module = f.__globals__[name]
        if isinstance(module, types.ModuleType) and not _is_known(module.__name__):
            yield f":{name}", _Globals(vars(module), names)


@functools.cache
def _names_in(code: types.CodeType) -> frozenset[str]:
    """The names of global variables and attributes in some code and the functions in it."""
    inner = (_names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def _read_cell(cell: types.CellType) -> tuple:
    try:
        return (cell.cell_contents,)
    except ValueError:  # it is empty
        return ()


def _write_cell(cell: types.CellType, contents: tuple) -> None:
    if contents:
        cell.cell_contents = contents[0]
    else:
        del cell.cell_contents


def _read_bits(x: np.random.BitGenerator) -> tuple:
    """The state of a bit generator and of the seeds that it gives to others, where that can be written."""
    seeds = x.seed_seq.__reduce__()[2] if hasattr(x.seed_seq, "__setstate__") else None
    return x.state, seeds


def _write_bits(x: np.random.BitGenerator, contents: tuple) -> None:
    x.state, seeds = contents
    if seeds is not None:
        x.seed_seq.__setstate__(seeds)  # type: ignore[attr-defined]


def _whole(x: Any) -> None:
    """The contents of what never changes itself."""


def _keep(x: Any, contents: Any) -> None:
    """What never changes itself needs no writing."""


_OBJECT = _Kind(_read_object, _write_object, _inside_object)
_KINDS: list[tuple[Any, _Kind]] = [
    (_Globals, _Kind(_Globals.read, _Globals.write, _attributes)),
    (list, _Kind(list, _write_list, _items)),
    (deque, _Kind(list, _write_list, _items)),
    (dict, _Kind(dict, _write_dict, _values)),
    (set, _Kind(set, _write_dict, _items)),
    (bytearray, _Kind(bytes, lambda x, contents: x.__setitem__(slice(None), contents))),
    ((tuple, frozenset), _Kind(_whole, _keep, lambda x, _: _items(x, x))),
    (types.MappingProxyType, _Kind(_whole, _keep, lambda x, _: _values(x, x))),
    (np.ndarray, _Kind(np.ndarray.copy, lambda x, contents: np.copyto(x, contents))),
    (np.random.Generator, _Kind(_whole, _keep, lambda x, _: iter([("", x.bit_generator)]))),
    (np.random.BitGenerator, _Kind(_read_bits, _write_bits)),
    (np.random.RandomState, _Kind(lambda x: x.get_state(legacy=False), lambda x, state: x.set_state(state))),
    (random.Random, _Kind(random.Random.getstate, random.Random.setstate)),
    (types.CellType, _Kind(_read_cell, _write_cell, _items)),
    (types.FunctionType, _Kind(_read_function, _write_function, _inside_function)),
    (types.MethodType, _Kind(_whole, _keep, lambda x, _: iter([("", x.__self__), ("", x.__func__)]))),
    (
        functools.partial,
        _Kind(_whole, _keep, lambda x, _: iter([("", x.func), ("()", x.args), ("()", x.keywords)])),
    ),
    ((staticmethod, classmethod), _Kind(_whole, _keep, lambda x, _: iter([("", x.__func__)]))),
    (property, _Kind(_whole, _keep, lambda x, _: iter([("", x.fget), ("", x.fset)]))),
    (
        functools._lru_cache_wrapper,
        _Kind(lambda x: x.cache_info()[1:], lambda x, _: x.cache_clear(), lambda x, _: iter([("", x.__wrapped__)])),
    ),
    (type, _Kind(_read_class, _write_class, _inside_class)),
]


def _is_recorded(thing: Any) -> bool:
    """Whether it is a matrix or a support of the recorder, whose module imports this one."""
    return getattr(type(thing), "is_recorded", False)


# -- comparing contents ------------------------------------------------------------------------


def _same(a: Any, b: Any, inside: tuple[int, ...] = ()) -> bool:
    """Whether contents are the same; recorded matrices are new each time, and not looked at."""
    if a is b or id(a) in inside:
        return True
    if type(a) is not type(b):
        return False
    if _is_recorded(a):
        return True
    inside = (*inside, id(a))
    if isinstance(a, float | complex | np.floating | np.complexfloating):
        return repr(a) == repr(b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and _equal_arrays(a, b, inside)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(_same(x, y, inside) for x, y in zip(a, b, strict=True))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[key], b[key], inside) for key in a)
    if isinstance(a, (*ATOMS, set, frozenset, bytearray)):
        return bool(a == b)
    if hasattr(a, "detach"):  # a tensor
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, types.FunctionType):
        return _same(_read_function(a), _read_function(b), inside) and a.__closure__ == b.__closure__
    if isinstance(a, types.MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    if hasattr(a, "__dict__"):
        return _same(_read_object(a), _read_object(b), inside)
    return False


def _equal_arrays(a: np.ndarray, b: np.ndarray, inside: tuple[int, ...]) -> bool:
    if a.dtype.hasobject:
        return all(_same(x, y, inside) for x, y in zip(a.flat, b.flat, strict=True))
    return a.tobytes() == b.tobytes()
