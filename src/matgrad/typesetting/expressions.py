r"""Expressions with operations of the table in the paper's notation, generated from their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from string import Formatter

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
_UNKNOWN: SizeSymbols = (None, None)
_RULES = {name: row.rule.replace("*", "m n") for name, row in program_operations.ROWS.items()}  # of their sizes
_RULES |= dict.fromkeys(("positive", *FUNCTIONS), "m n -> m n") | {"product_on": "K D, K N, N D -> K D"}


class Typesetter:
    """Typesets expressions; `sizes` has the symbols for the numbers of rows and columns of the matrices, by name."""

    def __init__(self, sizes: dict[str, SizeSymbols]) -> None:
        self.sizes = sizes

    def __call__(self, node: ast.expr) -> Tex:
        """The expression in LaTeX; what has no notation is quoted."""
        match node:
            case ast.Name(id=name):
                return symbol(name)
            case ast.Constant(value=value):
                return number(value)
            case ast.Attribute(value=X, attr="T"):
                return superscript(self(X), r"\top")
            case ast.Attribute(attr=name):
                return symbol(name)
            case ast.UnaryOp(op=ast.USub(), operand=X):
                return minus(self(X))
            case ast.UnaryOp(op=ast.Not(), operand=X):
                return Tex(rf"\text{{not }} {bracketed(self(X))}", SUM)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self(left), self(right))
            case ast.BoolOp(op=op, values=values):
                word = r" \text{ and } " if isinstance(op, ast.And) else r" \text{ or } "
                return Tex(word.join(bracketed(self(v), *range(SUM, ATOM)) for v in values), CASES)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
                return Tex(f"{self(left).text} {_RELATIONS[type(op)]} {self(right).text}", CASES)
            case ast.Subscript(value=ast.Attribute(value=X, attr="shape"), slice=ast.Constant(value=0 | 1 as k)):
                rows, columns = self.size(X)
                named = (rows or rf"\operatorname{{rows}}({self(X).text})") if k == 0 else columns
                return Tex(named or rf"\operatorname{{columns}}({self(X).text})")
            case ast.IfExp():
                return self._cases(node)
            case ast.Call():
                return self._call(node)
        return Tex(rf"\texttt{{{escape(ast.unparse(node))}}}")

    def condition(self, test: ast.expr) -> str:
        """A condition in LaTeX; a name that is tested as a boolean is a number."""
        is_letter = isinstance(test, ast.Name) and not is_word(test.id)
        return self(test).text + (r" \neq 0" if is_letter else "")

    def _cases(self, node: ast.expr) -> Tex:
        rows = []
        while isinstance(node, ast.IfExp):
            rows.append(rf"{self(node.body).text} & \text{{if }} {self.condition(node.test)}")
            node = node.orelse
        rows.append(rf"{self(node).text} & \text{{otherwise}}")
        return Tex(r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}", CASES)

    def _call(self, node: ast.Call) -> Tex:
        name, args = function_name(node), list(node.args)
        plain = not any(isinstance(arg, ast.Starred) for arg in args)
        operation = OPERATIONS.get(name)
        if operation and plain and len(args) in operation[0]:
            tex = operation[1](self, *args)
            if tex is not None:
                return tex
        match node.func:
            case ast.Attribute(value=f, attr="gradient"):
                head = (function_symbol(f.id) if isinstance(f, ast.Name) else bracketed(self(f))) + "'"
            case ast.Attribute(value=X) if not (isinstance(X, ast.Name) and is_word(X.id)):
                head, args = function_symbol(name), [X, *args]
            case ast.Name() | ast.Attribute() if name.endswith("_jacobian") and len(args) == 1:
                x = self(args[0]).text
                head = rf"\frac{{\partial}}{{\partial {x}}} {function_symbol(name.removesuffix('_jacobian'))}"
            case ast.Name() | ast.Attribute():
                head = function_symbol(name)
            case _:
                head = bracketed(self(node.func))
        options = [rf"{symbol(k.arg).text} = {self(k.value).text}" for k in node.keywords if k.arg and k.arg != "like"]
        inner = ", ".join([*(self(arg).text for arg in args), *options])
        return Tex(head + parenthesized(inner), PRODUCT if head.startswith(r"\frac") else ATOM)

    # -- sizes -----------------------------------------------------------------------------------
    def size(self, node: ast.expr) -> SizeSymbols:
        """The symbols for the numbers of rows and columns, as far as they follow from known sizes."""
        match node:
            case ast.Name(id=name):
                return self._size_of_name(name)
            case ast.Attribute(value=X, attr="T"):
                return self.size(X)[::-1]
            case ast.UnaryOp(operand=X) | ast.BinOp(left=X, op=ast.Div()):
                return self.size(X)
            case ast.BinOp(left=X, op=ast.MatMult(), right=Y):
                return self.size(X)[0], self.size(Y)[1]
            case ast.BinOp(left=X, right=Y) | ast.IfExp(body=X, orelse=Y):
                return known(self.size(X), self.size(Y))
            case ast.Call(args=args) if args:
                return self._size_of_call(function_name(node), args)
        return _UNKNOWN

    def _size_of_name(self, name: str) -> SizeSymbols:
        """A gradient has the size of its matrix, and an updated matrix that of the matrix before."""
        size = self.sizes.get(name, _UNKNOWN)
        if None in size and name.endswith("'"):
            size = known(size, self._size_of_name(name[:-1]))
        return known(size, self._size_of_name(name[1:])) if None in size and gradient(name) else size

    def _size_of_call(self, name: str, args: list[ast.expr]) -> SizeSymbols:
        """By the rule of the operation, in which each size has its first symbol that is known."""
        if name in ("ones", "zeros"):
            return self(args[0]).text, self(args[1]).text if args[1:] else "1"
        operands, _, result = _RULES.get(name, "").partition(" -> ")
        found = {"m": self(args[1]).text} if name == "row_repeat" else {}
        found |= {"n": self(args[1]).text} if name == "column_repeat" else {}
        for sizes, X in zip(operands.split(", "), args, strict=False):
            found = dict(zip(sizes.split(), self.size(X), strict=False)) | {k: n for k, n in found.items() if n}
        rows, columns = (n if n == "1" else found.get(n) for n in result.split() or "mn")
        return rows, columns

    def ones(self, *sizes: str | None) -> Tex:
        """1_N or 1_{NK}; 1 if the size is unknown."""
        return Tex(f"1{index(sizes)}")

    def total(self, X: ast.expr, over: str) -> Tex:
        """1_Nᵀ · X, X · 1_K, or 1_Nᵀ · X · 1_K, without what is 1 for a column vector or a row vector."""
        N, K = self.size(X)
        result = self(X)
        if over == "N" or (over == "NK" and N != "1"):
            result = product(superscript(self.ones(N), r"\top"), result)
        return product(result, self.ones(K)) if over == "K" or (over == "NK" and K != "1") else result

    def mean(self, X: ast.expr, over: str) -> Tex | None:
        """The sum over the rows or columns divided by their number, if that is known."""
        count = self.size(X)[over == "K"]
        return fraction(self.total(X, over), Tex(count)) if count else None

    def dot(self, x: ast.expr, y: ast.expr) -> Tex:
        """The product xᵀy of column vectors or xyᵀ of row vectors; ⟨x, y⟩ if it is unknown which they are."""
        rows, columns = known(self.size(x), self.size(y))
        if "1" not in (rows, columns):
            return Tex(rf"\langle {self(x).text}, {self(y).text} \rangle")
        a, b = self(x), self(y)
        return product(*((a, superscript(b, r"\top")) if rows == "1" else (superscript(a, r"\top"), b)), dot=None)


def known(*sizes: SizeSymbols) -> SizeSymbols:
    """For rows and for columns, the first symbol that is known."""
    rows, columns = (next((s for s in symbols if s), None) for symbols in zip(*sizes, strict=True))
    return rows, columns


def function_name(node: ast.Call) -> str:
    """The name of the called function, without the object or module before it."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


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


def _as_in_programs(template: str, binds: str) -> Callable[[Typesetter, ast.expr], Tex]:
    """The notation that a function has in programs."""
    template = template.replace("({0:sum})", "{0:()}")
    return lambda t, X: Tex(template.format(t(X)), {"sum": SUM, "unary": POWER, "atom": ATOM}[binds])


# the table: the possible numbers of arguments, and the notation (None if a size is unknown)
OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[..., Tex | None]]] = {
    **{
        name: ((1,), _as_in_programs(*row.latex))
        for name, row in program_operations.OPERATIONS.items()
        if isinstance(row.latex, program_operations.Notation) and name not in FUNCTIONS
        if [field for _, field, _, _ in Formatter().parse(row.latex.template) if field] == ["0"]
    },
    "zeros": ((1, 2), lambda t, *n: Tex(f"0{index(tuple(t(k).text for k in n))}")),
    "ones": ((1, 2), lambda t, *n: t.ones(*(t(k).text for k in n))),
    "identity": ((1,), lambda t, n: Tex(rf"\mathbb{{I}}{index((t(n).text,))}")),
    "dot": ((2,), lambda t, x, y: t.dot(x, y)),
    "hadamard": ((2,), lambda t, X, Y: product(t(X), t(Y), HADAMARD, r"\odot")),
    "elements_sum": ((1,), lambda t, X: t.total(X, "NK")),
    "column_repeat": ((2,), lambda t, x, n: product(t(x), superscript(t.ones(t(n).text), r"\top"))),
    "row_repeat": ((2,), lambda t, x, m: product(t.ones(t(m).text), t(x))),
    "columns_sum": ((1,), lambda t, X: t.total(X, "N")),
    "rows_sum": ((1,), lambda t, X: t.total(X, "K")),
    "columns_mean": ((1,), lambda t, X: t.mean(X, "N")),
    "rows_mean": ((1,), lambda t, X: t.mean(X, "K")),
    "apply": ((2,), lambda t, f, X: t(ast.Call(f, [X], [])) if isinstance(f, ast.Name | ast.Attribute) else None),
    "inv_sqrt": ((1, 2), lambda t, X, *e: superscript(total(t(X), "+", t(*e)) if e else t(X), r"-\frac12")),
    "log_sigmoid": ((1,), lambda t, X: Tex(r"\log" + parenthesized(r"\sigma" + parenthesized(t(X).text)))),
    "positive": ((1,), lambda t, X: t(X)),  # it only changes zeros
    "product_on": ((3,), lambda t, W, A, B: product(t(A), t(B))),  # on the support of W
}
