"""What code keeps besides matrices: numbers, texts, functions …, by name, so that a verdict can say what it is for.

Everything that code can reach from an object or a name is listed, or it is of a kind that a proof cannot follow.
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cached_property, partial, partialmethod
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.callers import NAMES, is_of_user
from matgrad.foundation.numbers import as_number
from matgrad.layers.base import LayerBase
from matgrad.program.entries import IndexMatrix
from matgrad.program.shapes import Size

PLAIN = (bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset, deque)
WRAPPERS = {staticmethod: "__func__", classmethod: "__func__", cached_property: "func", partialmethod: "func"}
FRAMEWORKS = ("dtype", "device", "Size", "layout", "memory_format")  # constants of PyTorch
SET_BY_MODELS = ("training", "_optimizer", "_optimizers", "input_size", "output_size")  # which every layer has
CODE = (FunctionType, type, property, *WRAPPERS)
BASES = ("matgrad.", "torch.", "abc", "typing")  # modules of classes that users may inherit from


class UnfollowedError(TypeError):
    """Something that a proof cannot follow."""


class Setting(NamedTuple):
    """Something that code keeps: its place, such as 'act.alpha', and its text; whether a verdict names it."""

    name: str
    text: str
    is_named: bool = True


def settings(name: str, x: Any, seen: set[int] | None = None, *, is_code: bool = False) -> Iterator[Setting]:
    """Everything that x consists of, except matrices of symbols; functions and classes that are code have no name."""
    x, seen = as_number(x), set() if seen is None else seen
    if x is None or type(x) in PLAIN:
        is_whole = type(x) is float and x.is_integer() and abs(x) < 1e15
        yield Setting(name, repr(int(x) if is_whole else x))
    elif id(x) not in seen and not isinstance(x, Size | IndexMatrix):
        seen.add(id(x))
        text, parts = _parts(name, x, is_code)
        if text:
            yield Setting(name, text, not is_code and type(x) is not np.random.Generator)
        for key, (value, is_inner_code) in parts.items():
            yield from settings(key, value, seen, is_code=is_inner_code)


def _parts(name: str, x: Any, is_code: bool) -> tuple[str, dict[str, tuple[Any, bool]]]:
    """What something is, in words, and what it consists of: objects by name, and whether these are code."""
    plain: dict[str, Any] = {}
    code: dict[str, Any] = {}
    text, kind = "", type(x)
    match x:
        case np.ndarray() if kind is np.ndarray and x.dtype != object:
            text = f"array {x.shape} {_digest(x.tobytes())}"
        case np.random.Generator():
            text = repr(x.bit_generator.state)
        case dict() if kind is dict and all(key is None or type(key) in PLAIN for key in x):
            text = "" if x else "{}"
            plain = {f"{name}[{key!r}]": value for key, value in x.items()}
        case _ if kind in CONTAINERS:
            text = "" if x else f"empty {kind.__name__}"
            elements = sorted(x, key=repr) if isinstance(x, set | frozenset) else x
            plain = {f"{name}[{i}]": element for i, element in enumerate(elements)}
        case FunctionType():
            is_local = "<" in x.__qualname__ and not is_code
            text = x.__qualname__ + (
                f" {_digest(x.__code__.co_code + repr(x.__code__.co_consts).encode())}" if is_local else ""
            )
            plain = {f"{name}.{key}": value for key, value in _of_function(x, is_code).items()}
        case MethodType():
            plain, code = {f"{name}.self": x.__self__}, {name: x.__func__}
        case partial():
            plain = {name: x.func, f"{name}.args": x.args, f"{name}.keywords": x.keywords}
        case partialmethod():
            plain, code = {f"{name}.args": x.args, f"{name}.keywords": x.keywords}, {name: x.func}
        case property():
            code = {f"{name}.{key}": getattr(x, key) for key in ("fget", "fset", "fdel")}
        case _ if kind in WRAPPERS:
            code = {name: getattr(x, WRAPPERS[kind])}
        case Enum():
            text = str(x)
        case type():
            text = x.__qualname__
            plain, code = ({f"{name}.{key}": y for key, y in found.items()} for found in of_class(x))
        case BuiltinFunctionType() if x.__self__ is None or isinstance(x.__self__, ModuleType):
            text = x.__name__
        case np.ufunc() if x in vars(np).values():
            text = repr(x)
        case ModuleType() if is_known(x.__name__):
            text = x.__name__
        case LayerBase():
            skipped = (*x.parameters, *x.buffers, *x.batch_matrices, *SET_BY_MODELS)
            text, plain = kind.__qualname__, {f"{name}.{key}": y for key, y in vars(x).items() if key not in skipped}
            code = {f"{name}.{kind.__qualname__}": kind}
        case _ if kind.__module__.partition(".")[0] in ("torch", "jax", "jaxlib") and {"tolist", "shape"} <= {*dir(x)}:
            text = f"{kind.__name__} {tuple(x.shape)} {_digest(repr(x.tolist()).encode())}"
        case _ if kind.__module__.partition(".")[0] in ("jax", "jaxlib") and hasattr(x, "__wrapped__"):
            text, code = "a function of JAX", {name: x.__wrapped__}
        case _ if kind.__name__ in FRAMEWORKS and kind.__module__.partition(".")[0] == "torch":
            text = repr(x)
        case _ if hasattr(x, "__dict__") and _has_plain_objects(kind):
            text, plain = kind.__qualname__, {f"{name}.{key}": y for key, y in vars(x).items()}
            code = {f"{name}.{kind.__qualname__}": kind}
        case _:
            raise UnfollowedError(f"{name} is of the type {kind.__name__}, which a proof cannot follow")
    return text, {key: (y, False) for key, y in plain.items()} | {key: (y, True) for key, y in code.items()}


def texts(found: Iterable[Setting]) -> dict[str, str]:
    """What is equal for equal settings."""
    return {x.name: x.text for x in found}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


# -- functions and classes ------------------------------------------------------------------------


def _of_function(f: FunctionType, is_code: bool) -> dict[str, Any]:
    """Defaults, variables of outer functions and attributes, of a function of a user; plain defaults are code."""
    if not is_of_user(f.__code__):
        return {}
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    kept = {name: cell.cell_contents for name, cell in cells.items() if name != "__class__" and _is_full(cell)}
    defaults = dict(enumerate(f.__defaults__ or ())) | (f.__kwdefaults__ or {})
    is_plain = {name: x is None or type(x) in PLAIN for name, x in defaults.items()}
    changing = {f"default {name}": x for name, x in defaults.items() if not (is_code and is_plain[name])}
    return kept | changing | {name: x for name, x in vars(f).items() if name != "__wrapped__"}


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # it has no value yet
        return False


def of_class(cls: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of a user's class and its bases that the package does not know, and their code."""
    users = [base for base in cls.__mro__ if is_of_users(base)]
    known = {key for base in cls.__mro__ if base not in users for key in vars(base)}
    found = {key: x for base in reversed(users) for key, x in vars(base).items()}
    code = {key: x for key, x in found.items() if isinstance(x, CODE) and not (isinstance(x, type) and key[:2] == "__")}
    plain = {key: x for key, x in found.items() if key not in known and key not in code and key[:2] != "__"}
    return plain, code


def is_of_users(cls: type) -> bool:
    """Whether a class is of a user, or has a method of one."""
    functions = (getattr(x, "fget", getattr(x, "__func__", x)) for x in vars(cls).values())
    return not is_known(cls.__module__) or any(
        isinstance(f, FunctionType) and is_of_user(f.__code__) for f in functions
    )


def is_known(module: str) -> bool:
    """Whether a module is of the package, of a framework or of Python."""
    return module.partition(".")[0] in ("matgrad", *NAMES, *(sys.stdlib_module_names - {"__main__"}))


def _has_plain_objects(cls: type) -> bool:
    """Whether all that its objects keep is in their dictionaries."""
    return not is_of_users(type(cls)) and all(
        base is object or (is_of_users(base) and "__slots__" not in vars(base)) or base.__module__.startswith(BASES)
        for base in cls.__mro__
    )
