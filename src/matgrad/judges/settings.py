"""What code keeps besides matrices: numbers, texts, functions …, by name, so that a verdict can say what it is for.

A constructor is given sizes that remember what it asks about them: the answers belong to the verdict too.
"""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.callers import NAMES, is_asked_by_user, is_of_user
from matgrad.foundation.numbers import as_number
from matgrad.layers.base import LayerBase
from matgrad.program.entries import IndexMatrix
from matgrad.program.shapes import Questions, Size
from matgrad.sparse.matrix import SparseMatrix

PLAIN = (bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset, deque)
UNNAMED = ("training", "output", "_optimizer", "_optimizers", "seed", "renewals", "renew", "input_size", "output_size")


class UnfollowedError(TypeError):
    """Something that a proof cannot follow."""


class Setting(NamedTuple):
    """Something that code keeps: its place, such as 'act.alpha', and its text; whether a verdict names it."""

    name: str
    text: str
    is_named: bool = True
    is_array: bool = False


def settings(name: str, x: Any, seen: set[int] | None = None) -> Iterator[Setting]:
    """Everything that x consists of, except matrices of symbols and layers."""
    x, seen = as_number(x), set() if seen is None else seen
    if x is None or type(x) in PLAIN:
        is_whole = type(x) is float and x.is_integer() and abs(x) < 1e15
        yield Setting(name, repr(int(x) if is_whole else x))
        return
    if id(x) in seen or isinstance(x, LayerBase | Size | IndexMatrix):
        return
    seen.add(id(x))
    parts: dict[str, Any] = {}
    match x:
        case np.ndarray():
            yield Setting(name, f"{x.shape} {x.dtype} {x.tobytes()!r}", False, True)
        case np.random.Generator():
            yield Setting(name, repr(x.bit_generator.state), False, True)
        case dict():
            yield Setting(name, f"{type(x).__name__} of {len(x)}", not x)
            parts = {f"{name}[{key!r}]": value for key, value in x.items()}
        case _ if type(x) in CONTAINERS:
            yield Setting(name, f"{type(x).__name__} of {len(x)}", not x)
            elements = sorted(x, key=repr) if isinstance(x, set | frozenset) else x
            parts = {f"{name}[{i}]": element for i, element in enumerate(elements)}
        case FunctionType():
            yield Setting(name, x.__qualname__)
            parts = {f"{name}.{key}": value for key, value in _of_function(x).items()}
        case MethodType():
            parts = {name: x.__func__, f"{name}.self": x.__self__}
        case partial():
            parts = {name: x.func, f"{name}.args": x.args, f"{name}.keywords": x.keywords}
        case type():
            yield Setting(name, x.__qualname__)
            parts = {f"{name}.{key}": value for key, value in of_class(x).items()}
        case ModuleType() | BuiltinFunctionType() | np.ufunc() | property():
            yield Setting(name, getattr(x, "__name__", ""), False)
        case _ if hasattr(x, "__dict__"):
            yield Setting(name, type(x).__qualname__, False)
            parts = {f"{name}.{key}": value for key, value in (of_class(type(x)) | vars(x)).items()}
        case _:
            raise UnfollowedError(f"{name} is a {type(x).__name__}, which a proof cannot follow")
    for key, value in parts.items():
        yield from settings(key, value, seen)


def texts(found: Iterable[Setting], *, arrays: bool = True) -> dict[str, str]:
    """What is equal for equal settings, with or without the numbers in arrays."""
    return {x.name: x.text for x in found if arrays or not x.is_array}


def check_type(name: str, x: Any) -> None:
    """Raise if something is a number or an array with operators of its own."""
    exact = (bool, int, float, Given) if isinstance(x, int | float) else (np.ndarray, SparseMatrix)
    if isinstance(x, int | float | np.ndarray) and not isinstance(x, np.generic) and type(x) not in exact:
        raise UnfollowedError(f"{name} is a {type(x).__name__}, whose operators a proof cannot follow")


def _of_function(f: FunctionType) -> dict[str, Any]:
    """Defaults that can change, variables of outer functions and attributes, of a function of a user."""
    if not is_of_user(f.__code__):
        return {}
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    kept = {name: cell.cell_contents for name, cell in cells.items() if name != "__class__" and _is_full(cell)}
    defaults = dict(enumerate(f.__defaults__ or ())) | (f.__kwdefaults__ or {})
    changing = {f"default {name}": x for name, x in defaults.items() if x is not None and type(x) not in PLAIN}
    return kept | changing | {name: x for name, x in vars(f).items() if name != "__wrapped__"}


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # it has no value yet
        return False


def of_class(cls: type) -> dict[str, Any]:
    """The attributes of a user's class and its bases that are neither methods nor known to the package."""
    users = [base for base in cls.__mro__ if is_of_users(base)]
    known = {key for base in cls.__mro__ if base not in users for key in vars(base)}
    own = {key: x for base in reversed(users) for key, x in vars(base).items() if not key.startswith("__")}
    skipped = (FunctionType, staticmethod, classmethod, property, type)
    return {key: x for key, x in own.items() if key not in known and not isinstance(x, skipped)}


def methods_of(cls: type) -> dict[str, FunctionType]:
    """The functions that are defined in a class by a user."""
    found = {name: getattr(x, "fget", getattr(x, "__func__", x)) for name, x in vars(cls).items()}
    return {name: f for name, f in found.items() if isinstance(f, FunctionType) and is_of_user(f.__code__)}


def is_of_users(cls: type) -> bool:
    """Whether a class is of a user, or has a method of one."""
    is_known = cls.__module__.partition(".")[0] in ("matgrad", *NAMES, *(sys.stdlib_module_names - {"__main__"}))
    return not is_known or bool(methods_of(cls))


# -- constructors ---------------------------------------------------------------------------------

_COMPARISONS = {
    "lt": ("<", "≥"),
    "le": ("≤", ">"),
    "gt": (">", "≤"),
    "ge": ("≥", "<"),
    "eq": ("=", "≠"),
    "ne": ("≠", "="),
}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "·", "floordiv": "//", "mod": "%", "pow": "^"}


class Given(int):
    """A size that a constructor is given: `answers` gets what it asks, unless the answer is the same for all sizes."""

    name: str
    questions: Questions
    answers: list[str]

    def __new__(cls, number: int, name: str, questions: Questions, answers: list[str]) -> Given:
        """The number, called `name`."""
        given = super().__new__(cls, number)
        given.name, given.questions, given.answers = name, questions, answers
        return given

    def _compare(self, comparison: str, other: Any) -> Any:
        answer = getattr(int, f"__{comparison}__")(self, other)
        if answer is NotImplemented or not is_asked_by_user(2):
            return answer
        of = [getattr(operator, comparison)(n, other) for n in (1, 2, 10**9)]
        if self.name.isalpha() and type(other) in (int, float) and (other < 2 or other != int(other)):
            if of[0] != of[1]:
                self.questions.ones.add(self.name)
            if of[1] == of[2]:
                return answer
        is_same = isinstance(other, Given) and other.name == self.name
        if not is_same:
            holds, fails = _COMPARISONS[comparison]
            self.answers.append(f"{self.name} {holds if answer else fails} {getattr(other, 'name', other)}")
        return answer

    def _computed(self, operation: str, is_reflected: bool, other: Any) -> Any:
        result = getattr(int, f"__{'r' * is_reflected}{operation}__")(self, other)
        if type(result) is not int:
            return result
        left, right = (other, self) if is_reflected else (self, other)
        names = (getattr(x, "name", x) for x in (left, right))
        return Given(result, f"({f' {_ARITHMETIC[operation]} '.join(map(str, names))})", self.questions, self.answers)

    def _text(self, *options: Any) -> str:
        if is_asked_by_user():
            self.questions.others.append(f"for the text of the size {self.name}")
        return format(int(self), *options)

    __repr__ = __str__ = __format__ = _text

    def __hash__(self) -> int:
        if is_asked_by_user():
            self.questions.others.append(f"for the hash of the size {self.name}")
        return hash(int(self))


for _name in _COMPARISONS:
    setattr(Given, f"__{_name}__", lambda self, other, name=_name: self._compare(name, other))
for _name in _ARITHMETIC:
    setattr(Given, f"__{_name}__", lambda self, other, name=_name: self._computed(name, False, other))
    setattr(Given, f"__r{_name}__", lambda self, other, name=_name: self._computed(name, True, other))
