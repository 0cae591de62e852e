r"""Expressions with operations of the table in the paper's notation, generated from their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any

import matgrad.program.operations as program_operations
from matgrad.foundation.notation import (
    ATOM,
    CASES,
    FUNCTIONS,
    HADAMARD,
    POWER,
    PRODUCT,
    SUM,
    Tex,
    bracketed,
    escape,
    fraction,
    function_symbol,
    gradient,
    index,
    is_word,
    minus,
    number,
    parenthesized,
    product,
    superscript,
    symbol,
    total,
)

SizeSymbols = tuple[str | None, str | None]  # the symbols for the numbers of rows and columns; None if unknown
UNKNOWN: SizeSymbols = (None, None)
_RULES = {name: row.rule.replace("*", "m n") for name, row in program_operations.ROWS.items()}  # of their sizes
_RULES |= dict.fromkeys(("positive", *FUNCTIONS), "m n -> m n") | {"product_on": "K D, K N, N D -> K D"}


@dataclass(frozen=True)
class Term:
    """An expression in LaTeX, and what is known of its value."""

    tex: Tex
    size: SizeSymbols = UNKNOWN
    names: frozenset[str] = frozenset()  # of the variables in it
    name: str = ""  # of a variable
    value: Any = ...  # of a constant, or of a condition that is decided

    @property
    def text(self) -> str:
        """The LaTeX."""
        return self.tex.text


class Typesetter:
    """Typesets expressions; `sizes` has the symbols for the numbers of rows and columns of the matrices, by name."""

    this = ""  # the name of the object whose attributes are variables, if any

    def __init__(self, sizes: dict[str, SizeSymbols]) -> None:
        self.sizes = sizes

    def __call__(self, node: ast.expr) -> Term:
        """The expression in LaTeX; what has no notation is quoted."""
        match node:
            case ast.Name(id=name):
                return self.variable(name)
            case ast.Constant(value=value):
                return Term(number(value), value=value)
            case ast.Attribute(value=operand, attr="T"):
                X = self(operand)
                return Term(superscript(X.tex, r"\top"), X.size[::-1], X.names)
            case ast.Attribute(attr=name):
                return Term(symbol(name))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                X = self(operand)
                return Term(minus(X.tex), X.size, X.names)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Term(Tex(rf"\text{{not }} {bracketed(self(operand).tex)}", SUM))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                X, Y = self(left), self(right)
                size = X.size if isinstance(op, ast.Div) else known(X.size, Y.size)
                size = (X.size[0], Y.size[1]) if isinstance(op, ast.MatMult) else size
                return Term(_OPERATORS[type(op)](X.tex, Y.tex), size, X.names | Y.names)
            case ast.BoolOp(op=op, values=values):
                word = r" \text{ and } " if isinstance(op, ast.And) else r" \text{ or } "
                return Term(Tex(word.join(bracketed(self(v).tex, *range(SUM, ATOM)) for v in values), CASES))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
                X, Y = self(left), self(right)
                is_decided = isinstance(op, ast.Is | ast.IsNot) and X.value is Y.value is None
                value = isinstance(op, ast.Is) if is_decided else ...
                return Term(Tex(f"{X.text} {_RELATIONS[type(op)]} {Y.text}", CASES), value=value)
            case ast.Subscript(ast.Attribute(operand, "shape"), ast.Constant(int(k))) if k in (0, 1):
                X, side = self(operand), ("rows", "columns")[k]
                return Term(Tex(X.size[k] or rf"\operatorname{{{side}}}({X.text})"))
            case ast.IfExp():
                return self._cases(node)
            case ast.Call():
                return self.call(node.func, node)
        return Term(Tex(rf"\texttt{{{escape(ast.unparse(node))}}}"))

    def variable(self, name: str) -> Term:
        """A variable; a gradient has the size of its matrix, and an updated matrix that of the matrix before."""
        sizes = [self.sizes.get(name, UNKNOWN)]
        for of in (name[:-1] if name.endswith("'") else "", name[1:] if gradient(name) else ""):
            sizes += [self.variable(of).size] if of and None in sizes[0] else []
        return Term(symbol(name), known(*sizes), frozenset({name}), name)

    def condition(self, test: ast.expr) -> str:
        """A condition in LaTeX; a name that is tested as a boolean is a number."""
        found = self(test)
        return found.text + (r" \neq 0" if found.name and not is_word(found.name) else "")

    def _cases(self, node: ast.expr) -> Term:
        """What a conditional expression is in each case that is possible."""
        rows: list[str] = []
        found: list[Term] = []
        while isinstance(node, ast.IfExp):
            choice = self(node.test).value
            if not isinstance(choice, bool):
                found.append(self(node.body))
                rows.append(rf"{found[-1].text} & \text{{if }} {self.condition(node.test)}")
            node = node.body if choice is True else node.orelse
        found.append(self(node))
        if not rows:
            return found[0]
        rows.append(rf"{found[-1].text} & \text{{otherwise}}")
        tex = Tex(r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}", CASES)
        return Term(tex, known(*(X.size for X in found)), frozenset().union(*(X.names for X in found)))

    def call(self, func: ast.expr, node: ast.Call) -> Term:
        """A function of arguments, of which those that are None are left out."""
        args = [X for X in map(self, node.args) if X.value is not None]
        if isinstance(func, ast.Attribute) and getattr(func.value, "id", None) != self.this:
            name, thing = func.attr, self(func.value)
        else:
            f, thing = self(func), None
            name = f.name
        if name == "apply" and len(node.args) == 2 and isinstance(applied := node.args[0], ast.Name | ast.Attribute):
            return self.call(applied, ast.Call(applied, node.args[1:], []))
        size = self._size_of_call(name, args) if args else UNKNOWN
        names = frozenset({name}).union(*(X.names for X in args))
        counts, write = OPERATIONS.get(name, ((), None))
        is_plain = not any(isinstance(x, ast.Starred) for x in node.args)
        if tex := write(*args) if write and is_plain and len(args) in counts else None:
            return Term(tex, size, names)
        if thing and name == "gradient":
            head = (function_symbol(thing.name) if thing.name else bracketed(thing.tex)) + "'"
        elif thing and not (thing.name and is_word(thing.name)):
            head, args = function_symbol(name), [thing, *args]
        elif name.endswith("_jacobian") and len(args) == 1:
            head = rf"\frac{{\partial}}{{\partial {args[0].text}}} {function_symbol(name.removesuffix('_jacobian'))}"
        else:
            head = function_symbol(name) if name else bracketed(f.tex)
        options = [rf"{symbol(k.arg).text} = {self(k.value).text}" for k in node.keywords if k.arg and k.arg != "like"]
        inner = parenthesized(", ".join([*(X.text for X in args), *options]))
        return Term(Tex(head + inner, PRODUCT if head.startswith(r"\frac") else ATOM), size, names)

    def _size_of_call(self, name: str, args: list[Term]) -> SizeSymbols:
        """By the rule of the operation, in which each size has its first symbol that is known."""
        if name in ("ones", "zeros"):
            return args[0].text, args[1].text if args[1:] else "1"
        operands, _, result = _RULES.get(name, "").partition(" -> ")
        repeated = {"row_repeat": "m", "column_repeat": "n"}.get(name)
        found: dict[str, str | None] = {repeated: args[1].text} if repeated and len(args) == 2 else {}
        for sizes, X in zip(operands.split(", "), args, strict=False):
            found = dict(zip(sizes.split(), X.size, strict=False)) | {k: n for k, n in found.items() if n}
        known_sizes = [n if n == "1" else found.get(n) for n in result.split()]
        return (known_sizes[0], known_sizes[1]) if len(known_sizes) == 2 else UNKNOWN


def known(*sizes: SizeSymbols) -> SizeSymbols:
    """For rows and for columns, the first symbol that is known."""
    rows, columns = (next((s for s in symbols if s), None) for symbols in zip(*sizes, strict=True))
    return rows, columns


_OPERATORS: dict[type[ast.operator], Callable[[Tex, Tex], Tex]] = {
    ast.Add: lambda a, b: total(a, "+", b),
    ast.Sub: lambda a, b: total(a, "-", b),
    ast.MatMult: lambda a, b: product(a, b, dot=None),
    ast.Mult: lambda a, b: product(a, b, dot=None if re.fullmatch(r"[\d.]+", a.text) else r"\cdot"),
    ast.Div: fraction,
    ast.Pow: lambda a, b: superscript(a, b.text),
}
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "=", ast.NotEq: r"\neq", ast.Lt: "<", ast.LtE: r"\leq", ast.Gt: ">", ast.GtE: r"\geq",
    ast.Is: r"\text{ is }", ast.IsNot: r"\text{ is not }", ast.In: r"\in", ast.NotIn: r"\notin",
}  # fmt: skip


# -- the table -----------------------------------------------------------------------------------


def _ones(*sizes: str | None) -> Tex:
    """1_N or 1_{NK}; 1 if the size is unknown."""
    return Tex(f"1{index(sizes)}")


def _row(n: str | None) -> Tex:
    return superscript(_ones(n), r"\top")


def _total(X: Term, over: str) -> Tex:
    """1_Nᵀ · X, X · 1_K, or 1_Nᵀ · X · 1_K, without what is 1 for a column vector or a row vector."""
    N, K = X.size
    result = product(_row(N), X.tex) if over == "N" or (over == "NK" and N != "1") else X.tex
    return product(result, _ones(K)) if over == "K" or (over == "NK" and K != "1") else result


def _mean(X: Term, over: str) -> Tex | None:
    """The sum over the rows or columns divided by their number, if that is known."""
    count = X.size[over == "K"]
    return fraction(_total(X, over), Tex(count)) if count else None


def _dot(x: Term, y: Term) -> Tex:
    """The product xᵀy of column vectors or xyᵀ of row vectors; ⟨x, y⟩ if it is unknown which they are."""
    rows, columns = known(x.size, y.size)
    if "1" not in (rows, columns):
        return Tex(rf"\langle {x.text}, {y.text} \rangle")
    a, b = (x.tex, superscript(y.tex, r"\top")) if rows == "1" else (superscript(x.tex, r"\top"), y.tex)
    return product(a, b, dot=None)


def _as_in_programs(template: str, binds: str) -> Callable[[Term], Tex]:
    """The notation that a function has in programs."""
    template = template.replace("({0:sum})", "{0:()}")
    return lambda X: Tex(template.format(X.tex), {"sum": SUM, "unary": POWER, "atom": ATOM}[binds])


# the possible numbers of arguments, and the notation (None if a size is unknown)
OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[..., Tex | None]]] = {
    **{
        name: ((1,), _as_in_programs(*row.latex))
        for name, row in program_operations.OPERATIONS.items()
        if isinstance(row.latex, program_operations.Notation) and name not in FUNCTIONS
        if [field for _, field, _, _ in Formatter().parse(row.latex.template) if field] == ["0"]
    },
    "zeros": ((1, 2), lambda *n: Tex(f"0{index(tuple(k.text for k in n))}")),
    "ones": ((1, 2), lambda *n: _ones(*(k.text for k in n))),
    "identity": ((1,), lambda n: Tex(rf"\mathbb{{I}}{index((n.text,))}")),
    "dot": ((2,), _dot),
    "hadamard": ((2,), lambda X, Y: product(X.tex, Y.tex, HADAMARD, r"\odot")),
    "elements_sum": ((1,), lambda X: _total(X, "NK")),
    "column_repeat": ((2,), lambda x, n: product(x.tex, _row(n.text))),
    "row_repeat": ((2,), lambda x, m: product(_ones(m.text), x.tex)),
    "columns_sum": ((1,), lambda X: _total(X, "N")),
    "rows_sum": ((1,), lambda X: _total(X, "K")),
    "columns_mean": ((1,), lambda X: _mean(X, "N")),
    "rows_mean": ((1,), lambda X: _mean(X, "K")),
    "inv_sqrt": ((1, 2), lambda X, *e: superscript(total(X.tex, "+", e[0].tex) if e else X.tex, r"-\frac12")),
    "log_sigmoid": ((1,), lambda X: Tex(r"\log" + parenthesized(r"\sigma" + parenthesized(X.text)))),
    "positive": ((1,), lambda X: X.tex),  # it only changes zeros
    "product_on": ((3,), lambda W, A, B: product(A.tex, B.tex)),  # on the support of W
}
