"""Which code of users a proof can follow: it depends on matrices, sizes and named settings, and changes nothing else.

A `Follower` notes what code runs, and the errors that it catches; `problems` says what a proof cannot follow in it.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from inspect import CO_VARARGS
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from matgrad.foundation.callers import is_of_user
from matgrad.judges.settings import Setting, settings
from matgrad.program.entries import BACKEND
from matgrad.program.operations import ROWS

MODULES = (  # that code may refer to, apart from those of users
    *("matgrad", "numpy", "math", "cmath", "operator", "functools", "itertools", "collections", "fractions", "decimal"),
    *("numbers", "typing", "types", "abc", "dataclasses", "enum", "copy", "contextlib", "warnings", "string", "re"),
)
TRUSTED = ("index_notation", "program", "judges", "inspection", "backends", "foundation", "matrix_operations")
# what draws numbers, or has to do with proofs; what code may not call; what it may read of an object
ROOMS = ("numpy.random", "numpy.ctypeslib", *(f"matgrad.{x}" for x in (*TRUSTED[:-1], "engines", "datasets")))
INSPECTING = (
    *("eval", "exec", "compile", "globals", "locals", "vars", "id", "dir", "open", "input", "__import__", "delattr"),
)
SPECIAL = ("__init__", "__call__", "__name__", "__qualname__", "__class__")
NOT_SELF = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "CALL")  # what comes before an attribute of something else
FIXED = (  # methods of layers that proofs rely on
    *("clone", "walk", "forget", "state", "__getattribute__", "__setattr__", "__delattr__", "__getstate__"),
    *("__class__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__"),
)


class Follower:
    """What the code of users does while it runs."""

    def __init__(self) -> None:
        self.scopes: dict[CodeType, dict[str, Any]] = {}  # the code that ran, with what its names may stand for
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
            sys.settrace(before)
            self._raised.clear()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not is_of_user(code):
            return None
        free = {name: frame.f_locals[name] for name in code.co_freevars if name in frame.f_locals}
        self.scopes[code] = {"": frame.f_globals, **free}
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
            for line, problem in _problems(code, scope[""]):
                if not of_constructor or problem.startswith("changes"):
                    yield problem + _place(code, line)

    def decides(self) -> bool:
        """Whether what runs has a condition, other than that a parameter is given."""
        return any(_has_condition(code) for code in self.scopes)

    def kept(self) -> Iterator[Setting]:
        """What the code refers to: variables of modules, where plain ones are constants, and of outer functions."""
        for code, scope in self.scopes.items():
            names = {x.argval for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
            for name in sorted(names & scope[""].keys()):
                for setting in settings(name, scope[""][name]):
                    yield setting._replace(is_named=setting.is_named and setting.name != name)
            for name in scope.keys() - {"", "__class__", "self"}:
                is_code = isinstance(scope[name], FunctionType | type)
                for setting in settings(name, scope[name]):
                    yield setting._replace(is_named=setting.is_named and not (is_code and setting.name == name))


def _place(code: CodeType, line: int) -> str:
    return f", in {code.co_qualname}, {Path(code.co_filename).name}, line {line}"


def _problems(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """What a proof cannot follow in a function, with its line."""
    instructions, line = list(dis.get_instructions(code)), code.co_firstlineno
    for i, x in enumerate(instructions):
        line, (operation, _, kind), name, problem = x.starts_line or line, x.opname.partition("_"), str(x.argval), ""
        is_stored = operation in ("STORE", "DELETE")
        if operation == "LOAD" and kind in ("GLOBAL", "NAME"):
            problem = _of_name(code, names, instructions[i:])
        elif is_stored and kind == "GLOBAL":
            problem = f"changes the global variable {name}"
        elif is_stored and kind == "DEREF" and name in code.co_freevars:
            problem = f"changes {name}, a variable of an outer function"
        elif is_stored and kind == "ATTR" and instructions[i - 1].opname in NOT_SELF:
            problem = f"changes the attribute {name} of something that is not the layer"
        elif x.opname == "IMPORT_NAME" and name.partition(".")[0] not in MODULES:
            problem = f"imports {name}"
        elif kind in ("ATTR", "METHOD") and name[:2] == name[-2:] == "__" and (is_stored or name not in SPECIAL):
            problem = f"uses the attribute {name}"
        if problem:
            yield line, problem


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


def _of_name(code: CodeType, names: dict[str, Any], instructions: list[dis.Instruction]) -> str:
    """What a proof cannot follow in something that the first of these instructions, or more of them, name."""
    first, *following = instructions
    name, value = first.argval, names.get(first.argval, vars(builtins).get(first.argval))
    for x in following:  # np.random, if np is a module
        if not isinstance(value, ModuleType) or _foreign_module(value) or x.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        name, value = f"{name}.{x.argval}", getattr(value, x.argval, None)
    is_of_self = any(x.opname == "LOAD_FAST" and x.argval == code.co_varnames[0] for x in following[:2])
    if value is type and not is_of_self:
        return "asks for a type"
    if any(value is getattr(builtins, inspecting) for inspecting in INSPECTING):
        return f"calls {name}"
    module = _foreign_module(value)
    return "" if module is None else f"uses {name}, of {module}"


def _foreign_module(value: Any) -> str | None:
    """The module that something belongs to, if a proof cannot follow what that does."""
    if isinstance(value, ModuleType):
        name = value.__name__
    elif callable(value):
        name = getattr(value, "__module__", None) or type(getattr(value, "__self__", value)).__module__
    else:
        return None
    if name.startswith(tuple(ROOMS)):
        return name
    root, file = name.partition(".")[0].lstrip("_"), getattr(sys.modules.get(name), "__file__", None) or ""
    is_known = root in (*MODULES, "builtins", "__main__")
    is_foreign = root in sys.stdlib_module_names or file.endswith((".so", ".pyd"))
    return name if is_foreign and not is_known else None


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
