"""Which code of users a proof can follow: it depends on matrices, sizes and named settings, and changes nothing else.

A `Follower` notes what code runs, and the errors that it catches; `problems` says what a proof cannot follow in it: a
function may use what is listed here, what users have written, and nothing else.
"""

from __future__ import annotations

import builtins
import dis
import gc
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from inspect import CO_VARARGS
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.callers import PACKAGE, is_of_user
from matgrad.inspection.settings import CODE, Setting, UnfollowedError, is_known, is_of_users, settings
from matgrad.program.entries import BACKEND, IndexMatrix
from matgrad.program.operations import ROWS
from matgrad.program.purity import COMPONENTS
from matgrad.program.shapes import Size

Uses = Callable[[str, Any], bool]  # whether something of a library may be used, by its name there
ROOMS = (
    *("matrix_operations", "activation_functions", "softmax_functions", "loss_functions", "layers", "optimizers"),
    *("weight_initializers", "sparse"),
)
LIBRARIES: dict[str, Uses] = {  # that code may refer to, apart from those of users
    "matgrad": lambda name, x: "." not in name or name.split(".")[1] in ROOMS,
    "numpy": lambda name, x: isinstance(x, np.ufunc | int | float) or x in (np.float32, np.float64, np.ndarray, np),
    "operator": lambda name, x: name.partition(".")[2] not in ("is_", "is_not", "attrgetter", "methodcaller"),
    **dict.fromkeys(("math", "cmath", "functools", "itertools", "collections", "fractions"), lambda name, x: True),
    **dict.fromkeys(("numbers", "dataclasses", "enum", "copy", "contextlib", "re"), lambda name, x: True),
}
OF_NOTEBOOKS = (
    "input",
    "display",
    "get_ipython",
    "execfile",
    "runfile",
)  # builtins of Jupyter; nothing calls them
BUILTINS = (  # that it may use, besides errors
    *("abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int"),
    *("isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "pow", "print", "property"),
    *("range", "reversed", "round", "set", "slice", "sorted", "str", "sum", "super", "tuple", "zip"),
)
ATTRIBUTES = (  # that it may not: what training sets in layers, ways to frames and counters, texts that read attributes
    *("optimizer", "_optimizer", "_optimizers", "_observation", "_Y", "_DY", "cache_info", "gi_frame", "cr_frame"),
    *("ag_frame", "tb_frame", "f_back", "f_globals", "f_locals", "f_builtins", "f_code", "gi_code", "cr_code"),
    *("format", "format_map"),
)
SPECIAL = ("__init__", "__call__", "__name__", "__qualname__")
TRUSTED = (
    "index_notation",
    "program",
    "judges",
    "inspection",
    "backends",
    "foundation",
    "matrix_operations",
    "writers",
)
FIXED = (  # methods of layers that proofs rely on
    *("clone", "walk", "forget", "state", "__getattribute__", "__setattr__", "__delattr__", "__getstate__"),
    *("__class__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__"),
)


class Instruction(NamedTuple):
    """An instruction of CPython's bytecode, as version 3.11 has it, and its line."""

    opname: str
    argval: Any
    line: int


Instructions = list[Instruction]

NEWEST = 3, 13  # the version of Python whose bytecode is known
IDLE = {"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "TO_BOOL"}
SPELLINGS = {  # those of newer versions, and those of 3.11
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR": "LOAD_FAST",
    "LOAD_FROM_DICT_OR_DEREF": "LOAD_DEREF",
    "LOAD_FROM_DICT_OR_GLOBALS": "LOAD_NAME",
    "LOAD_SUPER_ATTR": "LOAD_ATTR",
}
PAIRS = {f"{x}_{y}": (x, y) for x in ("LOAD_FAST", "STORE_FAST") for y in ("LOAD_FAST", "STORE_FAST")}


@cache
def instructions_of(code: CodeType) -> Instructions:
    """The bytecode of a function, in one form for all versions of Python."""
    found, line = [], code.co_firstlineno
    for x in dis.get_instructions(code):
        line = (x.positions and x.positions.lineno) or line
        if x.opname in PAIRS:  # of 3.13
            found += [Instruction(*pair, line) for pair in zip(PAIRS[x.opname], x.argval, strict=True)]
        elif x.opname not in IDLE:
            found.append(Instruction(SPELLINGS.get(x.opname, x.opname), x.argval, line))
    return found


class Scope(NamedTuple):
    """What the names in a function may stand for; whether its first argument is an object that it may change."""

    names: dict[str, Any]
    free: dict[str, Any]
    is_method: bool


@contextmanager
def unfollowed() -> Iterator[None]:
    """Follow nothing while the package computes, which calls no code of users: that takes longer than to compute."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)
        sys.settrace(trace)


class Follower:
    """What the code of users does while it runs.

    It may use `libraries` too, of which nothing is `refused`; objects of some `types` are given to it to be changed.
    """

    def __init__(
        self,
        libraries: Mapping[str, Uses] | None = None,
        refused: tuple[str, ...] = (),
        types: tuple[type, ...] = COMPONENTS,
    ) -> None:
        self.libraries, self.refused, self.types = LIBRARIES | dict(libraries or {}), refused, types
        self.scopes: dict[CodeType, Scope] = {}  # of the code that ran
        self.caught: list[str] = []
        self._raised: dict[FrameType, Any] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what runs while the context lasts, but no callbacks of the garbage collector."""
        before, is_collecting = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._called)
        try:
            yield
        finally:
            if sys.gettrace() != self._called:  # as after an error in it, such as too deep a recursion
                self.caught.append("stops being followed")
            sys.settrace(before)
            self._raised.clear()
            if is_collecting:
                gc.enable()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) or not is_of_user(code):  # the first is fast, as most calls need
            return None
        values = frame.f_locals
        free = {name: values[name] for name in code.co_freevars if name in values}
        first = values.get(code.co_varnames[0]) if code.co_argcount else None
        is_method = isinstance(first, self.types) or (not isinstance(first, type) and is_of_users(type(first)))
        known = self.scopes.get(code)
        self.scopes[code] = Scope(frame.f_globals, free, is_method and (known is None or known.is_method))
        return self._running

    def _running(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            self._raised[frame] = argument[0].__name__
        elif event == "line" and frame in self._raised:
            self.caught.append(f"catches a {self._raised.pop(frame)}{_place(frame.f_code, frame.f_lineno)}")
        return self._running

    # -- afterwards -----------------------------------------------------------------------------
    def problems(self, *, of_constructor: bool = False) -> Iterator[str]:
        """What a proof cannot follow; each continues a sentence that begins with: the code.

        A constructor may do whatever stays in the settings of its object.
        """
        yield from () if of_constructor else self.caught
        if self.scopes and sys.version_info[:2] > NEWEST:
            yield f"runs on Python {platform.python_version()}; expected at most {'.'.join(map(str, NEWEST))}"
        for code, scope in self.scopes.items():
            for line, problem in self._problems(code, scope):
                if not of_constructor or problem.startswith("changes"):
                    yield problem + _place(code, line)

    def decides(self) -> bool:
        """Whether what runs has a condition, a loop or a handler, by other things than a parameter or a constant."""
        return any(_decides(code) for code in self.scopes)

    def attributes(self) -> set[str]:
        """The names of the attributes that the code uses."""
        return {str(x.argval) for code in self.scopes for x in instructions_of(code) if x.opname in ATTRIBUTE}

    def kept(self) -> Iterator[Setting]:
        """What the code refers to: variables of modules and of outer functions, and what these consist of."""
        for code, scope in self.scopes.items():
            found = {name: x for name, x in scope.free.items() if name not in ("__class__", "self")}
            instructions = instructions_of(code)
            for i, x in enumerate(instructions):
                if x.opname in NAME and x.argval in scope.names:
                    name, value, _ = _resolved(scope, instructions[i:])
                    found |= {} if isinstance(value, ModuleType) or _is_of_library(scope, x) else {name: value}
            is_inner = any(code in outer.co_consts for outer in self.scopes)  # of a function that ran too
            for name, value in found.items():
                if isinstance(value, IndexMatrix | Size) and not (is_inner and name in scope.free):
                    raise UnfollowedError(f"{name} keeps a matrix or a size of another run")
                if not isinstance(value, self.types) and not (is_inner and name in scope.free):
                    yield from settings(name, value, is_code=isinstance(value, CODE))

    def _problems(self, code: CodeType, scope: Scope) -> Iterator[tuple[int, str]]:
        """What a proof cannot follow in a function, with its line."""
        instructions = instructions_of(code)
        for i, x in enumerate(instructions):
            (operation, _, kind), name, problem = x.opname.partition("_"), str(x.argval), ""
            is_stored = operation in ("STORE", "DELETE")
            if x.opname in NAME:
                problem = self._of_name(code, scope, instructions[i:])
            elif is_stored and kind == "GLOBAL":
                problem = f"changes the global variable {name}"
            elif is_stored and kind == "DEREF" and name in code.co_freevars:
                problem = f"changes {name}, a variable of an outer function"
            elif is_stored and kind == "ATTR" and not _is_first(code, scope, _base(instructions[:i])):
                problem = f"changes the attribute {name} of something that is not the layer"
            elif x.opname == "IMPORT_NAME" and self._is_unknown(name, name, sys.modules.get(name)):
                problem = f"imports {name}"
            elif x.opname == "IS_OP" and instructions[i - 1].opname != "LOAD_CONST":
                problem = "compares identities"
            elif kind in ("ATTR", "METHOD") and (name in self.refused or _is_hidden(code, scope, instructions, i)):
                problem = f"{'changes' if is_stored else 'uses'} the attribute {name}"
            if problem:
                yield x.line, problem

    def _of_name(self, code: CodeType, scope: Scope, instructions: Instructions) -> str:
        """What a proof cannot follow in something that the first of these instructions, or more of them, name."""
        name, x, following = _resolved(scope, instructions)
        root = scope.names.get(instructions[0].argval)
        if isinstance(x, self.types):
            return ""
        if name.startswith("__") or name in self.refused:
            return f"uses {name}"
        if (called := _name_of_builtin(x)) is not None:
            is_right = called in BUILTINS or (isinstance(x, type) and issubclass(x, BaseException))
            if called in self.refused:
                is_right = False
            elif called == "type":
                is_right = bool(following) and _is_first(code, scope, following[0])
            elif called in ("getattr", "setattr"):
                is_right = _is_by_name(code, scope, following, called == "getattr")
            return "" if is_right else f"calls {name}"
        module = root.__name__ if isinstance(root, ModuleType) else _module_of(x)
        if module is None:
            return ""
        path = name.partition(".")[2] if isinstance(root, ModuleType) else getattr(x, "__name__", name)
        return f"uses {name}, of {module}" if self._is_unknown(module, f"{module}.{path}".rstrip("."), x) else ""

    def _is_unknown(self, module: str, name: str, x: Any) -> bool:
        """Whether it is not known what something of a module does: of a library, or of compiled code."""
        root = module.partition(".")[0].lstrip("_")
        if root in self.libraries:
            return not self.libraries[root](name.lstrip("_"), x)
        file = getattr(sys.modules.get(module), "__file__", None) or ""
        return (is_known(module) and root != "main__") or file.endswith((".so", ".pyd"))


NAME, ATTRIBUTE = ("LOAD_GLOBAL", "LOAD_NAME"), ("LOAD_ATTR", "LOAD_METHOD")


def _place(code: CodeType, line: int) -> str:
    return f", in {code.co_qualname}, {Path(code.co_filename).name}, line {line}"


def _resolved(scope: Scope, instructions: Instructions) -> tuple[str, Any, Instructions]:
    """What the first instructions name, such as np.exp, with its name and the instructions that follow."""
    first, *following = instructions
    name, value = first.argval, scope.names.get(first.argval, vars(builtins).get(first.argval))
    while isinstance(value, ModuleType) and following and following[0].opname in ATTRIBUTE:
        attribute = following.pop(0).argval
        name, value = f"{name}.{attribute}", getattr(value, attribute, None)
    return name, value, following


def _name_of_builtin(x: Any) -> str | None:
    is_builtin = callable(x) and getattr(x, "__module__", None) == "builtins"
    return next((name for name, y in vars(builtins).items() if y is x), None) if is_builtin else None


def _is_of_library(scope: Scope, x: Instruction) -> bool:
    """Whether a name is that of a module which is not of users."""
    root = scope.names[x.argval]
    return isinstance(root, ModuleType) and is_known(root.__name__) and root.__name__ != "__main__"


def _module_of(value: Any) -> str | None:
    """The module of a function or a class."""
    if not callable(value):
        return None
    return getattr(value, "__module__", None) or type(getattr(value, "__self__", value)).__module__


def _base(instructions: Instructions) -> Instruction:
    """What is loaded for X.attribute = …, where the attribute is set now."""
    i = len(instructions) - 1
    if instructions[i].opname == "SWAP":  # X.attribute += …
        i = next(k for k in range(i, 0, -1) if instructions[k].opname == "COPY") - 1
    return instructions[i]


def _is_first(code: CodeType, scope: Scope, x: Instruction) -> bool:
    """Whether the object is loaded that a method is of."""
    return scope.is_method and x.opname == "LOAD_FAST" and x.argval == code.co_varnames[0]


def _is_hidden(code: CodeType, scope: Scope, instructions: Instructions, i: int) -> bool:
    """Whether an attribute is one that code may not use; type(self) and self.__class__ are only for names."""
    name, before = instructions[i].argval, instructions[i - 1]
    if name == "__class__" and instructions[i].opname == "LOAD_ATTR":
        return not (_is_first(code, scope, before) and instructions[i + 1].argval in SPECIAL)
    return name in ATTRIBUTES or (name[:2] == name[-2:] == "__" and name not in SPECIAL)


def _is_by_name(code: CodeType, scope: Scope, following: Instructions, is_read: bool) -> bool:
    """Whether an attribute is set in the object itself or, without a default, read there or by a name that is written.

    What an object lacks is no setting: an answer to hasattr, or a default, would hold for other objects.
    """
    thing, name, *rest = following
    if not is_read:
        return _is_first(code, scope, thing)
    is_plain = name.opname == "LOAD_CONST" and not str(name.argval).startswith("_")
    is_own = _is_first(code, scope, thing) and name.opname == "LOAD_FAST"
    return (is_own or (is_plain and thing.opname == "LOAD_FAST")) and rest[0].opname == "CALL" and rest[0].argval == 2


def _decides(code: CodeType) -> bool:
    """Whether a function may do something or not, except by a parameter, what it is compared with, or a constant."""
    instructions = instructions_of(code)
    changed = {x.argval for x in instructions if x.opname.startswith("STORE")}
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    given = {*code.co_varnames[:count]} - changed

    def is_known(x: Instruction) -> bool:
        return x.opname == "LOAD_CONST" or (x.opname == "LOAD_FAST" and x.argval in given)

    for i, x in enumerate(instructions):
        if ("JUMP" in x.opname and "IF" in x.opname and "NONE" not in x.opname) or x.opname == "GET_ITER":
            decided = instructions[i - 1]
            compared = instructions[i - 3 : i - 1] if decided.opname == "COMPARE_OP" else [decided]
            if not all(map(is_known, compared)):
                return True
    return bool(code.co_exceptiontable)


# -- the package itself ---------------------------------------------------------------------------


def changed() -> str | None:
    """A function that proofs rest on, if it is not the one in the source of the package."""
    for name in [x for x in sys.modules if x.startswith("matgrad.") and x.split(".")[1] in TRUSTED]:
        module = sys.modules[name]
        for place, code in _in_source(name):
            if not {code, type} & {*_codes_at(module, place)}:
                return f"{name}.{'.'.join(place)}"
        classes = [x for x in vars(module).values() if isinstance(x, type) and x.__module__ == name]
        for owner in (module, *classes):
            for found, x in vars(owner).items():
                if _is_of_user(x):
                    return f"{name}.{found}"
    tables = {**vars(builtins), **vars(BACKEND), **{k: x for row in ROWS.values() for k, x in vars(row).items()}}
    for name in OF_NOTEBOOKS:
        tables.pop(name, None)
    return next((name for name, x in tables.items() if _is_of_user(x)), None)


@cache
def _in_source(name: str) -> list[tuple[list[str], CodeType]]:
    """The functions in the source of a module, with their places."""
    loader = getattr(sys.modules[name].__spec__, "loader", None)
    found = _inner(loader.get_code(name)) if isinstance(loader, SourceFileLoader) else ()
    return [(code.co_qualname.split("."), code) for code in found if "<" not in code.co_qualname]


def _is_of_user(x: Any) -> bool:
    x = getattr(x, "__func__", x)
    return isinstance(x, FunctionType) and is_of_user(x.__code__)


def _inner(code: Any) -> Iterator[CodeType]:
    for x in code.co_consts if code is not None else ():
        if isinstance(x, CodeType):
            yield x
            yield from _inner(x)


def _codes_at(owner: Any, place: list[str]) -> list[Any]:
    """The code of the functions that are at a place of a module, such as a property; `type` if it is a class."""
    for name in place:
        owner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
    if isinstance(owner, type):
        return [type]
    if isinstance(owner, property):
        return [f.__code__ for f in (owner.fget, owner.fset, owner.fdel) if f is not None]
    for name in ("__func__", "func", "__wrapped__"):
        owner = getattr(owner, name, owner)
    return [getattr(owner, "__code__", None)]
