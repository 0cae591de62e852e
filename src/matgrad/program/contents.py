"""The contents of Python objects of all kinds: how they are read, written back and compared, and what is inside.

Attributes, containers, arrays, random generators, functions with what they enclose and the globals that they name,
and classes. What has contents that cannot be read, such as an iterator, is refused.
"""

from __future__ import annotations

import datetime
import decimal
import dis
import fractions
import functools
import gc
import io
import logging
import operator
import pathlib
import random
import re
import sys
import threading
import types
import weakref
from array import array
from collections import OrderedDict, _tuplegetter, defaultdict, deque  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from matgrad.backends.base import RecordingError
from matgrad.layers.layer import Layer
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.sparse.support import Support

# the functions and classes of these are not looked into
LIBRARIES = {*sys.stdlib_module_names, "numpy", "scipy", "torch", "jax", "jaxlib", "tensorflow", "keras", "sympy"} - {
    "__main__"
}
PLAIN = {type(None), bool, int, float, complex, str, bytes}
# values that cannot change
VALUES = (
    *(type(None), int, float, complex, str, bytes, range, slice, np.generic, np.dtype, np.ufunc, Support),
    *(decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(type(Ellipsis), type(NotImplemented), re.Pattern, pathlib.PurePath),
)
# what is not looked at
PASSED_OVER = (
    *(types.ModuleType, types.CodeType, logging.Logger, io.IOBase, type(threading.Lock()), type(threading.RLock())),
    *(threading.Event, threading.local, operator.itemgetter, operator.attrgetter, operator.methodcaller, _tuplegetter),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType, types.GenericAlias),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.UnionType, type(sys.float_info)),
)

Inside = Iterator[tuple[str, Any]]  # the things inside another one, with the ends of their names


def is_library(module: str | None) -> bool:
    """Whether a module belongs to a library that is not looked into."""
    return (module or "").partition(".")[0] in LIBRARIES


def is_own_function(function: types.FunctionType) -> bool:
    """Whether a function was defined in the package; a wrapper may say so of itself without being it."""
    return str(function.__globals__.get("__name__")).partition(".")[0] == "matgrad"


def is_foreign(function: types.FunctionType) -> bool:
    """Whether a function was defined neither in the package nor in a library."""
    return not is_own_function(function) and not is_library(function.__globals__.get("__name__"))


def is_recorded(thing: object) -> bool:
    """Whether it is a matrix or a support of the recorder, whose module imports this one."""
    return type(thing).__module__ == "matgrad.program.recorder"


def is_passed_over(thing: object) -> bool:
    """Whether a thing has no contents that could change, or none that matter."""
    if type(thing) in PLAIN or type(thing) is object or is_recorded(thing) or isinstance(thing, PASSED_OVER):
        return True
    return isinstance(thing, VALUES) and (isinstance(thing, Support) or not hasattr(thing, "__dict__"))


@dataclass(frozen=True)
class Kind:
    """How contents are read and written, and what is inside; `has_names` tells that they are a dictionary by name."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    inside: Callable[[Any, Any], Inside] = lambda thing, contents: iter(())
    has_names: bool = False
    is_memory: bool = False  # whether it may grow, because the same calls give the same results


def kind_of(thing: Any) -> Kind | None:
    """How to look at a thing; None if there is no way."""
    for types_, kind in _KINDS:
        if isinstance(thing, types_):
            return kind
    root = type(thing).__module__.partition(".")[0]
    if root == "torch":
        if hasattr(thing, "get_state"):  # a generator
            return Kind(lambda x: x.get_state(), lambda x, state: x.set_state(state))
        if hasattr(thing, "detach"):
            return Kind(lambda x: x.detach().clone(), lambda x, values: x.detach().copy_(values))
        if not hasattr(thing, "__dict__"):  # a dtype, a device
            return _UNCHANGING
    if root in ("jax", "jaxlib", "tensorflow") and not hasattr(thing, "assign"):  # their arrays cannot change
        return _UNCHANGING
    # Python's own objects; those of other languages have contents that their attributes do not show
    is_python = all(cls is object or cls.__flags__ & (1 << 9) for cls in type(thing).__mro__)
    has_attributes = hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")
    return OBJECT if (is_python or isinstance(thing, VALUES)) and has_attributes and not _is_iterator(thing) else None


def _is_iterator(thing: Any) -> bool:
    return isinstance(thing, Iterator) and not type(thing).__flags__ & (1 << 9)


# -- attributes --------------------------------------------------------------------------------


def left_out(x: Any) -> set[str]:
    """The attributes that a step may change: they are part of the state, or a computation sets them itself."""
    if isinstance(x, Layer):
        observation = vars(x).get("_observation")
        added = ("_observation", *observation.methods) if observation else ()
        found = vars(x)
        batch = (name for name in x.batch_matrices if type(found.get(name)) not in PLAIN - {type(None)})
        return {*x.parameters, *x.buffers, *batch, *added, "training"}
    if isinstance(x, Optimizer):
        return {"x", "Dx", *x.state_names}
    return {"_checked", "information", "history"} if isinstance(x, MultilayerPerceptron) else set()


def _read_object(x: Any) -> dict[str, Any]:
    found = {name: getattr(x, name) for name in _slots(type(x)) if hasattr(x, name)} | getattr(x, "__dict__", {})
    names = found.keys() - left_out(x)
    return {name: value for name, value in found.items() if name in names}


def _slots(cls: type) -> Iterator[str]:
    """The names of the slots of a class, with those beginning with two underscores as Python has them."""
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            if is_private or not name.startswith("__"):
                yield f"_{base.__name__.lstrip('_')}{name}" if is_private else name


def _write_object(x: Any, contents: Mapping[str, Any]) -> None:
    """Write the attributes that differ, past the class's own way of setting them."""
    now, own = _read_object(x), getattr(x, "__dict__", {})
    for name in now.keys() - contents.keys():
        own.pop(name, None) if name in own else object.__delattr__(x, name)
    for name, value in contents.items():
        if name in now and now[name] is value:
            continue
        if name in _slots(type(x)):
            object.__setattr__(x, name, value)
        else:
            own[name] = value


def _inside_object(x: Any, contents: Mapping[str, Any]) -> Inside:
    yield from _attributes(x, contents)
    yield "", type(x)


def _attributes(x: Any, contents: Mapping[str, Any]) -> Inside:
    for name, value in contents.items():
        yield f".{name}", value


# -- containers --------------------------------------------------------------------------------


def _items(x: Any, contents: Iterable[Any]) -> Inside:
    for i, value in enumerate(contents):
        if type(value) not in PLAIN:
            yield f"[{i}]", value
    yield from _own_attributes(x)


def _values(x: Any, contents: Mapping) -> Inside:
    for key, value in contents.items():
        if type(value) not in PLAIN:
            yield f"[{key!r}]" if type(key) in PLAIN else "[…]", value
        if type(key) not in PLAIN:
            yield "", key
    if isinstance(x, defaultdict):
        yield "", x.default_factory
    yield from _own_attributes(x)


def _own_attributes(x: Any) -> Inside:
    """The attributes and the class of an object whose class is derived from a built-in one."""
    if hasattr(x, "__dict__"):
        yield "", x.__dict__
    if not is_library(type(x).__module__):
        yield "", type(x)


def _write_list(x: list, contents: list) -> None:
    list.__setitem__(x, slice(None), contents)


def _write_deque(x: deque, contents: list) -> None:
    deque.clear(x)
    deque.extend(x, contents)


def _write_dict(x: dict, contents: Mapping) -> None:
    cls = OrderedDict if isinstance(x, OrderedDict) else dict
    cls.clear(x)
    for key, value in contents.items():
        cls.__setitem__(x, key, value)


def _write_set(x: set, contents: set) -> None:
    set.clear(x)
    set.update(x, contents)


def _write_array(x: np.ndarray, contents: np.ndarray) -> None:
    is_writeable = x.flags.writeable
    x.flags.writeable = True
    np.copyto(x, contents)
    x.flags.writeable = is_writeable


def _inside_array(x: np.ndarray, contents: np.ndarray) -> Inside:
    if x.dtype.hasobject:
        yield from _items(x, x.flat)
    yield from _own_attributes(x)


# -- functions and classes -----------------------------------------------------------------------


class Names:
    """The variables of a module that some code names, and those of the modules among them."""

    def __init__(self, namespace: dict[str, Any], names: frozenset[str]) -> None:
        self.namespace, self.names = namespace, names

    def read(self) -> dict[str, Any]:
        """Their values."""
        return {name: self.namespace[name] for name in self.names if name in self.namespace}

    def write(self, values: Mapping[str, Any]) -> None:
        """Set them, and delete those that are new."""
        for name in self.read().keys() - values.keys():
            del self.namespace[name]
        self.namespace.update(values)

    def inside(self, values: Mapping[str, Any]) -> Inside:
        """Their values and, of modules, the variables in them."""
        for name, value in values.items():
            if isinstance(value, types.ModuleType):
                yield from self.module(name, value)
            else:
                yield f".{name}", value

    def module(self, name: str, module: types.ModuleType) -> Inside:
        """The variables of a module that is neither a library's nor the package's."""
        if not is_library(module.__name__) and not module.__name__.startswith("matgrad"):
            yield f".{name}", Names(vars(module), self.names)


def _read_function(f: types.FunctionType) -> dict[str, Any]:
    return {"__code__": f.__code__, "__defaults__": f.__defaults__, "__kwdefaults__": f.__kwdefaults__}


def _write_function(f: types.FunctionType, contents: Mapping[str, Any]) -> None:
    for name, value in contents.items():
        setattr(f, name, value)


def _inside_function(f: types.FunctionType, contents: Mapping[str, Any]) -> Inside:
    """The defaults, what it encloses and, unless it is a library's or the package's, the variables that it names."""
    if not is_foreign(f):
        return
    yield "()", contents["__defaults__"]
    yield "()", contents["__kwdefaults__"]
    yield "", vars(f)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        yield f":{name}", cell
    names = _names_in(f.__code__)
    own = Names(f.__globals__, names)
    yield ":globals", own
    for name in names & sys.modules.keys():  # imported inside
        yield from own.module(name, sys.modules[name])


@functools.cache
def _names_in(code: types.CodeType) -> frozenset[str]:
    """The names of variables and attributes in some code and the functions in it, also those in strings."""
    inner = (_names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    strings = (x for x in code.co_consts if isinstance(x, str) and x.isidentifier())
    return frozenset((*code.co_names, *strings)).union(*inner)


@functools.cache
def looks_at_types(code: types.CodeType) -> bool:
    """Whether a function, other than one for setting up, asks for the type of something else than itself.

    ``isinstance(X, np.ndarray)`` answers for a recorded matrix as it does for an array, but ``type(X)`` does not.
    """
    if code.co_name.startswith("__") and code.co_name != "__call__":
        return False
    found = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL", "PUSH_NULL")]
    return any(
        call.argval == "type" and thing.opname.startswith("LOAD") and thing.argval not in ("self", "cls")
        for call, thing in pairwise(found)
        if call.opname == "LOAD_GLOBAL"
    )


_OF_CLASSES = re.compile("__(module|dict|weakref|doc|slots|qualname|annotations|parameters|orig_bases)__|_abc_impl")


def _read_class(cls: type) -> dict[str, Any]:
    """The methods and other attributes of a class that is not a library's."""
    if is_library(cls.__module__):
        return {}
    return {name: value for name, value in vars(cls).items() if not _OF_CLASSES.fullmatch(name)}


def _write_class(cls: type, contents: Mapping[str, Any]) -> None:
    for name in _read_class(cls).keys() - contents.keys():
        type.__delattr__(cls, name)
    for name, value in contents.items():
        if vars(cls).get(name) is not value:
            type.__setattr__(cls, name, value)


def _inside_class(cls: type, contents: Mapping[str, Any]) -> Inside:
    yield from _attributes(cls, contents)
    for base in (*cls.__bases__, type(cls)):
        yield "", base


def _read_cell(cell: types.CellType) -> dict[str, Any]:
    try:
        return {"contents": cell.cell_contents}
    except ValueError:  # it is empty
        return {}


def _write_cell(cell: types.CellType, contents: Mapping[str, Any]) -> None:
    if contents:
        cell.cell_contents = contents["contents"]
    else:
        del cell.cell_contents


def _clear_new_cache(f: Any, size: int) -> None:
    """Empty a cache that was empty; what a user has in one is never lost."""
    if size == 0:
        f.cache_clear()


# -- random generators ---------------------------------------------------------------------------


def _read_bits(x: np.random.BitGenerator) -> tuple:
    """The state of a bit generator and of the seeds that it gives to others, where that can be written."""
    seeds = x.seed_seq.__reduce__()[2] if hasattr(x.seed_seq, "__setstate__") else None
    return x.state, seeds


def _write_bits(x: np.random.BitGenerator, contents: tuple) -> None:
    x.state, seeds = contents
    if seeds is not None:
        x.seed_seq.__setstate__(seeds)  # type: ignore[attr-defined]


# -- the list ------------------------------------------------------------------------------------


def _unchanging(inside: Callable[[Any], Iterable[Any]]) -> Kind:
    """A kind of things that do not change themselves, with the things inside them."""
    return Kind(lambda x: None, lambda x, contents: None, lambda x, _: (("", y) for y in inside(x)))


_UNCHANGING = _unchanging(lambda x: ())
OBJECT = Kind(_read_object, _write_object, _inside_object, has_names=True)
_KINDS: list[tuple[Any, Kind]] = [
    (Names, Kind(Names.read, Names.write, Names.inside, has_names=True)),
    (list, Kind(list, _write_list, _items)),
    (deque, Kind(list, _write_deque, _items)),
    (dict, Kind(dict, _write_dict, _values, has_names=True)),
    (set, Kind(set, _write_set, _items)),
    (bytearray, Kind(bytes, lambda x, contents: x.__setitem__(slice(None), contents))),
    ((tuple, frozenset), Kind(lambda x: None, lambda x, contents: None, lambda x, _: _items(x, x))),
    (types.MappingProxyType, Kind(lambda x: None, lambda x, contents: None, lambda x, _: _values(x, x))),
    (np.ndarray, Kind(lambda x: np.array(x, copy=True), _write_array, _inside_array)),
    (np.random.Generator, _unchanging(lambda x: [x.bit_generator])),
    (np.random.BitGenerator, Kind(_read_bits, _write_bits)),
    (np.random.RandomState, Kind(lambda x: x.get_state(legacy=False), lambda x, state: x.set_state(state))),
    (random.Random, Kind(random.Random.getstate, random.Random.setstate)),
    (types.CellType, Kind(_read_cell, _write_cell, lambda x, c: _attributes(x, c), has_names=True)),
    (types.FunctionType, Kind(_read_function, _write_function, _inside_function)),
    (types.MethodType, _unchanging(lambda x: [x.__self__, x.__func__])),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _unchanging(lambda x: [x.__self__])),
    (functools.partial, _unchanging(lambda x: [x.func, x.args, x.keywords])),
    ((staticmethod, classmethod), _unchanging(lambda x: [x.__func__])),
    (property, _unchanging(lambda x: [x.fget, x.fset])),
    (functools.cached_property, _unchanging(lambda x: [x.func])),
    (weakref.ref, _unchanging(lambda x: [x()])),
    (
        functools._lru_cache_wrapper,
        Kind(lambda x: x.cache_info().currsize, _clear_new_cache, lambda x, _: _cached(x), is_memory=True),
    ),
    (types.SimpleNamespace, OBJECT),
    (array, Kind(array.tolist, lambda x, contents: x.__setitem__(slice(None), array(x.typecode, contents)), _items)),
    (type, Kind(_read_class, _write_class, _inside_class, has_names=True)),
]


def _cached(f: Any) -> Inside:
    """The function behind a cache, and the values in it."""
    yield "", f.__wrapped__
    for x in gc.get_referents(f):
        if type(x) is dict and x is not vars(f):
            for value in x.values():
                is_link = type(value).__name__ == "_lru_list_elem"
                yield from (("()", y) for y in (gc.get_referents(value) if is_link else [value]))


# -- comparing -----------------------------------------------------------------------------------


def same(a: Any, b: Any, inside: frozenset[int] = frozenset()) -> bool:
    """Whether contents are the same; recorded matrices are new each time, and not looked at."""
    if a is b or id(a) in inside:
        return True
    if type(a) is not type(b):
        return False
    if is_recorded(a):
        return True
    if type(a) in PLAIN:
        return repr(a) == repr(b)  # nan is the same as nan
    inside = inside | {id(a)}
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and _same_arrays(a, b, inside)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and (_are_equal(a, b) or all(same(x, y, inside) for x, y in zip(a, b, strict=True)))
    if isinstance(a, Mapping):
        return _are_equal(list(a), list(b)) and all(same(a[key], b[key], inside) for key in a)
    if isinstance(a, (*VALUES, set, frozenset, bytearray)):
        return bool(a == b)
    if hasattr(a, "detach"):  # a tensor
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, types.FunctionType):
        return same(_read_function(a), _read_function(b), inside) and a.__closure__ == b.__closure__
    if isinstance(a, types.MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return hasattr(a, "__dict__") and same(_read_object(a), _read_object(b), inside)


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two sequences have the same objects, or equal ones of plain types, in the same order."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(x is y or (type(x) is type(y) and type(x) in PLAIN and x == y) for x, y in pairs)


def _same_arrays(a: np.ndarray, b: np.ndarray, inside: frozenset[int]) -> bool:
    if a.dtype.hasobject:
        return all(same(x, y, inside) for x, y in zip(a.flat, b.flat, strict=True))
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))


def unreadable(name: str, thing: Any) -> RecordingError:
    """The error for a thing of no kind."""
    return RecordingError(f"{name} is a {type(thing).__name__}: whether a step changes it cannot be seen")
