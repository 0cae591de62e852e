"""The source of functions: their statements, with lines of the file, and which of them sets a name."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any


def setting_statement(name: str, functions: list[Any]) -> tuple[int, str, str]:
    """Line, file and source of the last statement that sets a variable or attribute, in the first function with one.

    If none has, it is the last ``return`` of the first function, or its first line.
    """
    for function in functions:
        for s in reversed(_statements(function)):
            if name in _assigned(s.node) and not _reads_attribute(s.node, name):
                return s.line, _file(function), s.source
    function, *_ = functions
    for s in reversed(_statements(function)):
        if isinstance(s.node, ast.Return):
            return s.line, _file(function), s.source
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        lines, first = [f"{getattr(function, '__name__', function)}(…)"], 0
    return first, _file(function), lines[0].strip()


@dataclass(frozen=True)
class Statement:
    """A simple statement of a method; `target` is the name that a plain assignment assigns to."""

    node: ast.stmt
    line: int
    source: str
    target: str | None
    value: ast.expr | None  # what is assigned or returned
    calls_base: bool

    @property
    def is_equation(self) -> bool:
        """Whether it assigns to one name and does more than unpack."""
        return self.target is not None and not _unpacks(self.value)


@dataclass(frozen=True)
class Method:
    """A method's syntax tree, with the line numbers of its file, and its statements in order."""

    node: ast.FunctionDef
    file: str
    statements: tuple[Statement, ...]

    @property
    def result(self) -> str | None:
        """The name of the variable that it returns."""
        returned = [s.value for s in self.statements if isinstance(s.node, ast.Return)]
        return returned[-1].id if returned and isinstance(returned[-1], ast.Name) else None


def read(function: FunctionType) -> Method:
    """The method that a function was compiled from."""
    if not isinstance(function, FunctionType):
        raise ValueError(f"the equations of {function!r} cannot be read: expected a plain method")
    return _read_source(function, function.__code__)  # which can be replaced


@cache
def _read_source(function: FunctionType, code: CodeType) -> Method:
    """The method in the source of `code`, which is that of the function."""
    expected = f"expected a plain `def {function.__name__}` in a file"
    try:
        node, source, offset = _definition(code)
    except OSError as error:
        raise ValueError(f"the source of {function.__qualname__} is not available: {expected}") from error
    if node is None or node.name != function.__name__ or node.decorator_list or hasattr(function, "__wrapped__"):
        raise ValueError(f"the equations of {function.__qualname__} cannot be read: {expected}")
    file = _file(code)
    if not any(_is_same_code(code, other) for other in _codes_in(file, "".join(linecache.getlines(file)))):
        raise ValueError(f"the source of {function.__qualname__} is not what runs: it was edited after the import")
    statements = tuple(_statements_of(node, source, offset))
    ast.increment_lineno(node, offset)
    return Method(node, file, statements)


def _definition(function: Any) -> tuple[ast.FunctionDef | None, str, int]:
    """The `def` of a function, if it has one, the source that was parsed, and what to add to its line numbers."""
    lines, first = inspect.getsourcelines(function)
    source = "".join(lines)
    # an indented method goes under an `if`, so that its columns stay the same
    is_indented = source[0].isspace()
    source = f"if True:\n{source}" if is_indented else source
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of something
        return None, source, 0
    node = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    return node, source, first - 1 - is_indented


@cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """The syntax tree of a function, with the line numbers of its file."""
    node, _, offset = _definition(function)
    if node is None:
        raise ValueError(f"{function.__qualname__}: expected a `def`")
    ast.increment_lineno(node, offset)
    return node


def _statements_of(node: ast.FunctionDef, source: str, offset: int) -> Iterator[Statement]:
    """The simple statements of a function, in order of the source."""
    for n in _simple_statements(node.body):
        statement = " ".join((ast.get_source_segment(source, n) or "").split())
        value = n.value if isinstance(n, (ast.Assign, ast.Return)) else None
        target = n.targets[0] if isinstance(n, ast.Assign) and len(n.targets) == 1 else None
        name = target.id if isinstance(target, ast.Name) else None
        calls_base = any(is_base_call(child, node.name) for child in ast.walk(n))
        yield Statement(n, n.lineno + offset, statement, name, value, calls_base)


def _statements(function: Any) -> list[Statement]:
    """The simple statements of any function, also a decorated one; none if its source is not available."""
    try:
        node, source, offset = _definition(inspect.unwrap(function))
    except (OSError, TypeError, ValueError):
        return []
    return list(_statements_of(node, source, offset)) if node else []


def _reads_attribute(node: ast.stmt, name: str) -> bool:
    """Whether it is ``name = self.name``."""
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == name


def _assigned(node: ast.stmt) -> set[str]:
    """The variables and attributes that a statement sets, also by unpacking, ``:=`` and `setattr`."""
    found = set()
    for child in ast.walk(node):
        match child:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                found.add(name)
    return found


def _file(function: Any) -> str:
    """The file of a function or its code, or '?'."""
    if not isinstance(function, CodeType):
        function = getattr(inspect.unwrap(function), "__code__", None)
    return (inspect.getsourcefile(function) or function.co_filename) if function else "?"


def _simple_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements without a body of their own, in order of the source; without those of inner functions."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        clauses = (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))
        own = (getattr(node, name, ()) for name in ("body", "orelse", "finalbody"))
        blocks = [block for block in (*own, *(clause.body for clause in clauses)) if block]
        if not blocks:
            yield node
        for block in blocks:
            yield from _simple_statements(block)


def is_base_call(node: ast.AST | None, method: str) -> bool:
    """Whether the node is ``super().method(...)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name)):
            return name == method
    return False


def _unpacks(node: ast.AST | None) -> bool:
    """Whether the expression is a constant, or an attribute or element of a name, such as ``X.shape[0]``."""
    is_inside = False
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr != "T"):
        node, is_inside = node.value, True
    return isinstance(node, ast.Constant) or (is_inside and isinstance(node, ast.Name))


@cache
def _codes_in(file: str, source: str) -> list[CodeType]:
    """The code of every function in a file."""
    found = [compile(source, file, "exec", dont_inherit=True)]
    for code in found:
        found += (c for c in code.co_consts if isinstance(c, CodeType))
    return found


def _is_same_code(a: Any, b: Any) -> bool:
    """Whether two functions begin at one line and do the same with the same names and constants."""
    if not isinstance(a, CodeType) or not isinstance(b, CodeType):
        return repr(a) == repr(b)
    compared = ("co_name", "co_firstlineno", "co_code", "co_names", "co_varnames")
    if any(getattr(a, name) != getattr(b, name) for name in compared) or len(a.co_consts) != len(b.co_consts):
        return False
    return all(map(_is_same_code, a.co_consts, b.co_consts))
