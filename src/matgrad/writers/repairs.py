"""A right line of code for a wrong one: edits of backward are tried in numbers, until one is proved."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from matgrad.index_notation.expressions import Expression, Factor
from matgrad.writers.samples import Samples
from matgrad.writers.sizes import Atoms, Size
from matgrad.writers.subjects import Code
from matgrad.writers.tensors import Tensor

MOST_PROOFS = 3
SWAPPED: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add},
    **{ast.Mult: ast.Div, ast.Div: ast.Mult},
}
REDUCTIONS = ("sum", "mean")
PARTS: dict[type[ast.expr], tuple[str, ...]] = {  # fields of expressions with others in them
    **{ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",), ast.Attribute: ("value",)},
    **{ast.Call: ("args",), ast.Tuple: ("elts",), ast.List: ("elts",)},
}


class Spot(NamedTuple):
    """An expression in a statement, the field that it is in, and the names that are known there."""

    statement: ast.stmt
    owner: ast.AST
    field: str
    place: int | None  # in a list
    known: list[str]

    @property
    def expression(self) -> ast.expr:
        """What is there."""
        x = getattr(self.owner, self.field)
        return x if self.place is None else x[self.place]

    def put(self, e: ast.expr) -> None:
        """Put another expression there."""
        if self.place is None:
            setattr(self.owner, self.field, e)
        else:
            getattr(self.owner, self.field)[self.place] = e


class Repair:
    """Edits of the function that computes gradients."""

    def __init__(self, code: Code) -> None:
        assert code.backward_at is not None
        self.code, f = code, inspect.unwrap(code.functions[code.backward_at])
        lines, self.start = inspect.getsourcelines(f)
        self.tree = ast.parse(textwrap.dedent("".join(lines)))
        (function,) = self.tree.body
        if not isinstance(function, ast.FunctionDef):
            raise ValueError("expected a function with a name")
        function.decorator_list = []
        self.function, self.statements = function, dict[int, ast.stmt]()  # those that are changed
        closure = inspect.getclosurevars(f).nonlocals
        self.file, self.space = f.__code__.co_filename, {**f.__globals__, **closure}

    def changed(self) -> Code:
        """The code with the function as it is now."""
        space = dict(self.space)
        exec(compile(ast.fix_missing_locations(self.tree), self.file, "exec"), space)
        functions = [*self.code.functions]
        functions[self.code.backward_at or 0] = space[self.function.name]
        return self.code.with_functions(functions)

    def spots(self, names: Sequence[str]) -> Iterator[Spot]:
        """The expressions that these gradients may be wrong by, those of later statements first."""
        parameters = [a.arg for a in self.function.args.args if a.arg not in ("ctx", "self")]
        known, found = list(parameters), list[list[Spot]]()
        others = {i for i, n in enumerate(self.code.parameters) if n not in names}
        for statement in (x for x in ast.walk(self.function) if isinstance(x, ast.Assign | ast.Return | ast.AugAssign)):
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
                places = [i for i in range(len(statement.value.elts)) if i not in others]
                own = [_spots(statement, statement.value, "elts", i, list(known)) for i in places]
                found.append([*chain.from_iterable(own)])
            elif statement.value is not None and not reads_context(statement.value):
                found.append([*_spots(statement, statement, "value", None, list(known))])
            known += [x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        return chain.from_iterable(reversed(found))

    def factor(self, e: Expression | None, variables: Mapping[str, Tensor]) -> str | None:
        """' * 2 / x.shape[1] ** 0.5', for a factor of numbers and sizes."""
        if e is None or len(e.terms) != 1:
            return None
        ((m, c),) = e.terms.items()
        found = [f" * {c.numerator}"] * (c.numerator != 1) + [f" / {c.denominator}"] * (c.denominator != 1)
        for f, p in m:
            shapes = [(n, d) for n, x in variables.items() for d, dim in enumerate(x.dims) if f == size_entry(dim)]
            known = [(n, d) for n, d in shapes if re.search(rf"\b{n}\b", ast.unparse(self.function))]
            if not known:
                return None
            n, d = known[0]
            power = "" if abs(p) == 1 else f" ** {abs(p) if p.denominator == 1 else float(abs(p))}"
            found.append(f" {'*' if p > 0 else '/'} {n}.shape[{d}]{power}")
        return "".join(found)

    def edits(self, names: Sequence[str], hint: str | None) -> Iterator[tuple[Spot, ast.expr]]:
        """What could be put where, the smallest changes first."""
        spots = list(self.spots(names))
        if hint is not None:
            yield from ((spot, parsed(f"e{hint}", e=spot.expression)) for spot in spots)
        for kind in (rearranged, scaled, reduced, extended):
            yield from ((spot, e) for spot in spots for e in kind(spot.expression, spot.known, self.code.keeps))

    def finds(
        self,
        names: Sequence[str],
        hint: str | None,
        agrees: Callable[[Code], bool],
        proves: Callable[[Code], bool],
        most: int,
    ) -> bool:
        """Whether there is an edit with which it is proved, which stays."""
        proofs = 0
        for spot, e in islice(self.edits(names, hint), most):
            old = spot.expression
            spot.put(e)
            with contextlib.suppress(SyntaxError):  # such as of an argument that is given twice
                code = self.changed()
                if agrees(code):
                    proofs += 1
                    if proves(code):
                        self.statements[spot.statement.lineno] = spot.statement
                        return True
            spot.put(old)
            if proofs == MOST_PROOFS:
                break
        return False

    @property
    def lines(self) -> list[str]:
        """file:line: the statement, of those that are changed."""
        place = f"{Path(self.file).name}:"
        return [f"{place}{self.start + n - 1}: {written(x)}" for n, x in sorted(self.statements.items())]


def repaired(samples: Samples, wrong: Mapping[str, Expression | None]) -> list[str]:
    """Lines of code with which gradients are right, of all that are wrong or of each; a factor may be known.

    Those that are right stay so: lines share variables, and change them in place.
    """
    proof = samples.proof
    if proof.error or proof.surrogate or not proof.repairs or proof.code.backward_at is None:
        return []
    try:
        repair = Repair(proof.code)
    except (OSError, TypeError, ValueError, SyntaxError):  # its source cannot be read
        return []
    tensors = {n: x for n, x in proof.symbols.items() if isinstance(x, Tensor)}
    variables = {**tensors, **proof.model.names}
    right = [n for n in proof.wrt if n not in wrong and proof.returned.get(n, ()) is not None]  # no edit may spoil them
    groups = [[*wrong], *([n] for n in wrong if len(wrong) > 1)]
    for names in groups:
        factors = [wrong[n] for n in names]
        hint = repair.factor(factors[0], variables) if factors.count(factors[0]) == len(factors) else None
        kept = [*right, *names]
        proves, most = partial(proof.proves, names=kept), proof.code.edits // len(groups)
        if repair.finds(names, hint, samples.agreeing(kept), proves, most):
            right += names
            if len(names) == len(wrong):
                break
    proof.verdict.suggestions = repair.lines
    return [f"right, and proved: {line}" for line in proof.verdict.suggestions]


def size_entry(dim: Atoms) -> Factor | None:
    """The factor that a size is, if it is one."""
    found = Size(dim).expression
    return next(iter(found.factors()), None) if len(dim) == 1 else None


def reads_context(e: ast.expr) -> bool:
    """Whether an expression is what was saved."""
    return any(isinstance(x, ast.Attribute) and x.attr in ("saved_tensors", "saved_variables") for x in ast.walk(e))


def written(statement: ast.stmt) -> str:
    """A statement as people write it."""
    match statement:
        case ast.Return(value=ast.Tuple(elts=elements)):
            return f"return {', '.join(map(ast.unparse, elements))}"
    return ast.unparse(statement)


def _spots(statement: ast.stmt, owner: ast.AST, field: str, place: int | None, known: list[str]) -> Iterator[Spot]:
    spot = Spot(statement, owner, field, place, known)
    e = spot.expression
    if isinstance(e, ast.BinOp | ast.Call | ast.UnaryOp | ast.Name | ast.List) or (
        isinstance(e, ast.Attribute) and e.attr == "T"
    ):
        yield spot
    method = [e.func] if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) else []
    for part, name in ((x, f) for x in (*method, e) for f in PARTS.get(type(x), ())):
        x = getattr(part, name)
        for n in range(len(x)) if isinstance(x, list) else [None]:
            yield from _spots(statement, part, name, n, known)


# -- edits: functions of an expression, of the names that are known, and of the word for keepdim ---------------------

Edits = Iterable[ast.expr]


def parsed(text: str, **parts: ast.expr) -> ast.expr:
    """An expression, with others in place of names."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, x: ast.Name) -> ast.expr:
            return parts.get(x.id, x)

    found: ast.expr = Put().visit(ast.parse(text, mode="eval").body)
    return found


def rearranged(e: ast.expr, known: Sequence[str], keeps: str) -> Edits:
    """Without a part, with another sign, transposed, or another name."""
    match e:
        case ast.BinOp(left=a, op=op, right=b):
            yield from (a, b)
            if type(op) in SWAPPED:
                yield ast.BinOp(a, SWAPPED[type(op)](), b)
            if isinstance(op, ast.MatMult):
                yield ast.BinOp(b, op, a)
        case ast.UnaryOp(operand=a):
            yield a
        case ast.Call(func=ast.Attribute(value=a, attr=name), args=args, keywords=keywords):
            yield a
            if name in REDUCTIONS:
                other = REDUCTIONS[1 - REDUCTIONS.index(name)]
                yield ast.Call(ast.Attribute(a, other, ast.Load()), args, keywords)
                yield ast.Call(e.func, args, [*keywords, ast.keyword(keeps, ast.Constant(True))])
                others = [k for k in keywords if k.arg not in ("dim", "axis")]
                reduced = args[:1] if isinstance(a, ast.Name) and a.id not in known else []  # jnp.sum(x, 1)
                yield from (ast.Call(e.func, [*reduced, ast.Constant(d)], others) for d in (-1, 0, 1))
        case ast.Attribute(value=a):
            yield a
        case ast.List(elts=elements):
            yield ast.List(elements[::-1], ast.Load())
        case ast.Name(id=name):
            yield from (ast.Name(n, ast.Load()) for n in known if n != name)
    yield parsed("-e", e=e)
    yield parsed("e.T", e=e)


def scaled(e: ast.expr, known: Sequence[str], keeps: str) -> Edits:
    """With a factor: a variable, a size or a number."""
    sizes = [f"{n}.shape[{d}]" for n in known[:3] for d in (0, -1)]
    for f in (f for f in ("2", *known, *sizes) if f != ast.unparse(e)):
        yield parsed(f"e * {f}", e=e)
        yield parsed(f"e / {f}", e=e)


def reductions(x: str, keeps: str) -> list[str]:
    """Sums and means of x along a dimension."""
    return [f"{x}.{name}({d}, {keeps}=True)" for d in (-1, 0) for name in REDUCTIONS]


def reduced(e: ast.expr, known: Sequence[str], keeps: str) -> Edits:
    """Summed, or with a factor or term that is a sum of a variable."""
    yield from (parsed(f"e.sum({d})", e=e) for d in (0, 1, -1))
    yield from (parsed(text, e=e) for text in reductions("e", keeps))
    terms = [text for n in known for text in reductions(n, keeps)]
    yield from (parsed(f"e {sign} {text}", e=e) for text in terms for sign in "*-+")


def extended(e: ast.expr, known: Sequence[str], keeps: str) -> Edits:
    """With another term, or another function of a variable as a factor."""
    for n in known:
        yield from (parsed(text, e=e) for text in (f"e + {n}", f"e - {n}", f"e * (1 - {n})", f"e * (1 + {n})"))
    for a, b in ((a, b) for a in known for b in known):
        yield from (parsed(f"e {sign} {a} * {b}", e=e) for sign in "+-")
