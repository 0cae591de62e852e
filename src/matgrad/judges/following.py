"""Which code of users a proof can follow: it depends on matrices, sizes and named settings, and changes nothing else.

A `Follower` notes what code runs, and the errors that it catches; `problems` says what a proof cannot follow in it.
"""

from __future__ import annotations

import builtins
import dis
import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from inspect import CO_VARARGS
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from matgrad.foundation.callers import is_of_user
from matgrad.judges.settings import PLAIN, Setting, settings
from matgrad.program.entries import BACKEND
from matgrad.program.operations import ROWS
from matgrad.program.purity import COMPONENTS

MODULES = (  # that code may refer to, apart from those of users
    *("matgrad", "numpy", "math", "cmath", "operator", "functools", "itertools", "collections", "fractions"),
    *("numbers", "dataclasses", "enum", "copy", "contextlib", "string", "re", "builtins", "__main__"),
)
ROOMS = (  # of the package, likewise
    *("matrix_operations", "activation_functions", "softmax_functions", "loss_functions", "layers", "optimizers"),
    *("weight_initializers", "sparse"),
)
TRUSTED = ("index_notation", "program", "judges", "inspection", "backends", "foundation", "matrix_operations")
CALLS = (  # what it may not call
    *("eval", "exec", "compile", "globals", "locals", "vars", "id", "dir", "hash", "open", "input", "__import__"),
    *("delattr", "breakpoint"),
)
BY_NAME = ("getattr", "hasattr", "setattr")  # of a layer, or of a name that is written there
OPERATORS = ("is_", "is_not", "attrgetter", "methodcaller")
ATTRIBUTES = (  # what it may not use: of layers what training sets, and ways to frames and counters
    *("optimizer", "_optimizer", "_optimizers", "_observation", "_Y", "_DY", "cache_info", "gi_frame", "cr_frame"),
    *("ag_frame", "tb_frame", "f_back", "f_globals", "f_locals", "f_builtins", "f_code", "gi_code", "cr_code"),
)
SPECIAL = ("__init__", "__call__", "__name__", "__qualname__")
FIXED = (  # methods of layers that proofs rely on
    *("clone", "walk", "forget", "state", "__getattribute__", "__setattr__", "__delattr__", "__getstate__"),
    *("__class__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__"),
)


class Scope(NamedTuple):
    """What the names in a function may stand for; whether its first argument is the object that a proof is about."""

    names: dict[str, Any]
    free: dict[str, Any]
    is_method: bool


class Follower:
    """What the code of users does while it runs."""

    def __init__(self) -> None:
        self.scopes: dict[CodeType, Scope] = {}  # of the code that ran
        self.caught: list[str] = []
        self._raised: dict[FrameType, Any] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what runs while the context lasts."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            if sys.gettrace() != self._called:  # as after an error in it, such as too deep a recursion
                self.caught.append("stops being followed")
            sys.settrace(before)
            self._raised.clear()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code, values = frame.f_code, frame.f_locals
        if not is_of_user(code):
            return None
        free = {name: values[name] for name in code.co_freevars if name in values}
        is_method = isinstance(values.get(code.co_varnames[0]) if code.co_argcount else None, COMPONENTS)
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
        for code, scope in self.scopes.items():
            for line, problem in _problems(code, scope):
                if not of_constructor or problem.startswith("changes"):
                    yield problem + _place(code, line)

    def decides(self) -> bool:
        """Whether what runs has a condition, other than that a parameter is given."""
        return any(_has_condition(code) for code in self.scopes)

    def kept(self) -> Iterator[Setting]:
        """What the code refers to: variables of modules, where plain ones are constants, and of outer functions."""
        for code, scope in self.scopes.items():
            names = {x.argval for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
            for name in sorted(names & scope.names.keys()):
                for setting in settings(name, scope.names[name]):
                    yield setting._replace(is_named=setting.is_named and setting.name != name)
            for name, x in scope.free.items():
                is_code = isinstance(x, FunctionType | type)
                for setting in settings(name, x) if name not in ("__class__", "self") else ():
                    yield setting._replace(is_named=setting.is_named and not (is_code and setting.name == name))


def _place(code: CodeType, line: int) -> str:
    return f", in {code.co_qualname}, {Path(code.co_filename).name}, line {line}"


Instructions = list[dis.Instruction]


def _problems(code: CodeType, scope: Scope) -> Iterator[tuple[int, str]]:
    """What a proof cannot follow in a function, with its line."""
    instructions, line = list(dis.get_instructions(code)), code.co_firstlineno
    for i, x in enumerate(instructions):
        line, (operation, _, kind), name, problem = x.starts_line or line, x.opname.partition("_"), str(x.argval), ""
        is_stored = operation in ("STORE", "DELETE")
        if x.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            problem = _of_name(code, scope, instructions[i:])
        elif is_stored and kind == "GLOBAL":
            problem = f"changes the global variable {name}"
        elif is_stored and kind == "DEREF" and name in code.co_freevars:
            problem = f"changes {name}, a variable of an outer function"
        elif is_stored and kind == "ATTR" and _base(instructions[:i]).opname not in ("LOAD_FAST", "LOAD_CONST"):
            problem = f"changes the attribute {name} of something that is not the layer"
        elif x.opname == "IMPORT_NAME" and _module_problem(name):
            problem = f"imports {name}"
        elif x.opname == "IS_OP" and instructions[i - 1].opname != "LOAD_CONST":
            problem = "compares identities"
        elif kind in ("ATTR", "METHOD") and _is_hidden(code, scope, instructions, i):
            problem = f"uses the attribute {name}"
        if problem:
            yield line, problem


def _base(instructions: Instructions) -> dis.Instruction:
    """What is loaded at the beginning of X.attribute, where the attribute is set now."""
    i = len(instructions) - 1
    if instructions[i].opname == "SWAP":  # X.attribute += …
        i = next(k for k in range(i, 0, -1) if instructions[k].opname == "COPY") - 1
    while i > 0 and instructions[i].opname == "LOAD_ATTR":
        i -= 1
    return instructions[i]


def _is_hidden(code: CodeType, scope: Scope, instructions: Instructions, i: int) -> bool:
    """Whether an attribute is one that code may not use; type(self) and self.__class__ are only for names."""
    name, before = instructions[i].argval, instructions[i - 1]
    if name == "__class__" and instructions[i].opname == "LOAD_ATTR":
        return not (_is_self(code, scope, before) and instructions[i + 1].argval in SPECIAL)
    return name in ATTRIBUTES or (name[:2] == name[-2:] == "__" and name not in SPECIAL)


def _is_self(code: CodeType, scope: Scope, x: dis.Instruction) -> bool:
    return scope.is_method and x.opname == "LOAD_FAST" and x.argval == code.co_varnames[0]


def _has_condition(code: CodeType) -> bool:
    """Whether a function has a condition, other than a parameter, what it is compared with, or whether it is None."""
    instructions = list(dis.get_instructions(code))
    changed = {x.argval for x in instructions if x.opname.startswith("STORE")}
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    given = {*code.co_varnames[:count]} - changed

    def is_known(x: dis.Instruction) -> bool:
        return x.opname == "LOAD_CONST" or (x.opname == "LOAD_FAST" and x.argval in given)

    for i, x in enumerate(instructions):
        if "JUMP" in x.opname and "IF" in x.opname and "NONE" not in x.opname:
            condition = instructions[i - 1]
            compared = instructions[i - 3 : i - 1] if condition.opname == "COMPARE_OP" else [condition]
            if not all(map(is_known, compared)):
                return True
    return False


def _of_name(code: CodeType, scope: Scope, instructions: Instructions) -> str:
    """What a proof cannot follow in something that the first of these instructions, or more of them, name."""
    first, *following = instructions
    name, value = first.argval, scope.names.get(first.argval, vars(builtins).get(first.argval))
    following = [x for x in following if x.opname not in ("PUSH_NULL", "PRECALL", "CACHE")]
    is_of_module = False
    while isinstance(value, ModuleType) and following and following[0].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        if problem := _module_problem(value.__name__):
            return f"uses {name}, of {problem}"
        attribute, is_of_module = following.pop(0).argval, value.__name__ == "numpy"
        name, value = f"{name}.{attribute}", getattr(value, attribute, None)
    if value is type and not (following and _is_self(code, scope, following[0])):
        return "asks for a type"
    if any(value is getattr(builtins, called) for called in CALLS) or name.startswith("__"):
        return f"calls {name}"
    if any(value is getattr(builtins, called) for called in BY_NAME) and not _is_by_name(code, scope, following):
        return f"calls {name} of something"
    if any(value is getattr(operator, called) for called in OPERATORS):
        return f"calls {name}"
    is_number = isinstance(value, np.ufunc | int | float) or value in (np.float32, np.float64, np.ndarray)
    if is_of_module and not is_number:
        return f"uses {name}"
    module = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
    return f"uses {name}, of {module}" if module is not None and _module_problem(module) else ""


def _is_by_name(code: CodeType, scope: Scope, following: Instructions) -> bool:
    """Whether the arguments are the layer and any name, or anything and a name that is written there."""
    thing, name = following[:2]
    is_plain = name.opname == "LOAD_CONST" and not str(name.argval).startswith("_")
    return _is_self(code, scope, thing) or (thing.opname == "LOAD_FAST" and is_plain)


def _module_of(value: Any) -> str | None:
    """The module of a function or a class."""
    if not callable(value):
        return None
    return getattr(value, "__module__", None) or type(getattr(value, "__self__", value)).__module__


def _module_problem(name: str) -> str:
    """The name of a module, if a proof cannot follow what that does."""
    root, _, room = name.partition(".")
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    if root == "matgrad":
        return name if room and room.partition(".")[0] not in ROOMS else ""
    if root.lstrip("_") in MODULES or root in MODULES:
        return name if name in ("numpy.random", "numpy.ctypeslib") else ""
    return name if root in sys.stdlib_module_names or file.endswith((".so", ".pyd")) else ""


# -- the package itself ---------------------------------------------------------------------------


def changed() -> str | None:
    """A function that proofs rest on, if it is not the one in the source of the package."""
    for name, module in [*sys.modules.items()]:
        parts, loader = name.split("."), getattr(getattr(module, "__spec__", None), "loader", None)
        if (
            parts[0] != "matgrad"
            or len(parts) == 1
            or parts[1] not in TRUSTED
            or not isinstance(loader, SourceFileLoader)
        ):
            continue
        for code in _inner(loader.get_code(name)):
            if "<" not in code.co_qualname and _code_at(module, code.co_qualname.split(".")) not in (code, type):
                return f"{name}.{code.co_qualname}"
        classes = [x for x in vars(module).values() if isinstance(x, type) and x.__module__ == name]
        for owner in (module, *classes):
            if (found := _of_user_in(owner)) is not None:
                return f"{name}.{found}"
    tables = {**vars(builtins), **vars(BACKEND), **{k: x for row in ROWS.values() for k, x in vars(row).items()}}
    return next((name for name, x in tables.items() if _is_of_user(x)), None)


def plain_state() -> dict[str, str]:
    """The plain variables of the modules that code may refer to, and of their classes and functions."""
    found = {}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in MODULES or name == "__main__":
            continue
        owners = [x for x in vars(module).values() if isinstance(x, type | FunctionType) and x.__module__ == name]
        for owner in (module, *owners):
            for key, x in vars(owner).items():
                if not key.startswith("__") and (type(x) in PLAIN or isinstance(x, list | dict | set)):
                    place = f"{name}.{getattr(owner, '__name__', '')}.{key}"
                    found[place] = repr(x) if type(x) in PLAIN else str(len(x))
    return found


def _of_user_in(owner: Any) -> str | None:
    return next((name for name, x in vars(owner).items() if _is_of_user(x)), None)


def _is_of_user(x: Any) -> bool:
    x = getattr(x, "__func__", x)
    return isinstance(x, FunctionType) and is_of_user(x.__code__)


def _inner(code: Any) -> Iterator[CodeType]:
    for x in code.co_consts if code is not None else ():
        if isinstance(x, CodeType):
            yield x
            yield from _inner(x)


def _code_at(owner: Any, place: list[str]) -> Any:
    """The code of the function that is at a place of a module; `type` if it is a class."""
    for name in place:
        owner = vars(owner).get(name) if hasattr(owner, "__dict__") else None
    if isinstance(owner, type):
        return type
    for name in ("fget", "__func__", "func", "__wrapped__"):
        owner = getattr(owner, name, owner)
    return getattr(owner, "__code__", None)
