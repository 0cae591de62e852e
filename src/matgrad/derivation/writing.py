"""A derived layer as Python code: a class with feedforward and backpropagate, for a user to paste."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from textwrap import indent
from typing import NamedTuple

from matgrad import matrix_operations
from matgrad.derivation.backpropagation import Equation
from matgrad.derivation.sources import Source
from matgrad.derivation.values import free_name, sizes_of
from matgrad.inspection.verdicts import Check
from matgrad.program.operations import ROWS
from matgrad.program.program import Value, in_order
from matgrad.program.shapes import size_name
from matgrad.program.text import CodePrinter

VIEWS = ("transpose", "row_repeat", "column_repeat", "full", "number", "input", "negative")
WIDTH = 120
LONGEST = 105  # the most characters of an equation, unless there are no sums in it that can have names
TEMPLATE = '''"""{name}: gradients derived by matgrad."""

import numpy as np

import matgrad as mg
{imports}

class {name}(mg.Layer):
    """{docstring}"""

{attributes}    def __init__(self, input_size: int, output_size: int{options}) -> None:
        super().__init__(input_size, output_size)
{settings}
    def feedforward(self, X):
{feedforward}

    def backpropagate(self, Y, {DY}):
{backpropagate}
'''


class Line(NamedTuple):
    """``name = code``, for the value of a term."""

    name: str
    code: str
    term: Value


def written(
    equations: list[Equation], names: dict[Value, str], taken: set[str], like: str, shared: Iterable[Value] = ()
) -> list[Line]:
    """The lines of equations; what they compute twice, or what others share with them, gets a line of its own.

    `names` has what is computed already, and gets what is computed here; `taken` are names that are not free.
    """
    own = {rhs: V.name for V, rhs in equations}
    uses = _visible([rhs for _, rhs in equations if rhs not in names], names)
    repeated = {x for x, n in uses.items() if n > 1 and x.operation not in VIEWS and x not in names}.union(shared)
    lines: list[Line] = []
    printer = CodePrinter(names, like)

    def write(name: str, term: Value) -> None:
        write_parts(term, repeated)
        if len(printer.expression(term)[0]) > LONGEST:
            write_parts(term, {x for x in _visible([term], names) if ROWS[x.operation].kind == "reduction"})
        if name not in {line.name for line in lines}:
            lines.append(Line(name, printer.expression(term)[0], term))
            names.setdefault(term, name)
            taken.add(name)

    def write_parts(term: Value, chosen: set[Value]) -> None:
        for x in _visible([term], names):
            if x in chosen and x is not term and x not in names:
                write(own.get(x) or _new_name(x, taken), x)

    for V, rhs in equations:
        write(V.name, rhs)
    return lines


def _visible(terms: list[Value], names: dict[Value, str]) -> Counter[Value]:
    """How often each term is written in the expressions of terms, operands first: not those inside one with a name."""
    found: dict[Value, None] = {}
    uses: Counter[Value] = Counter(terms)

    def visit(x: Value) -> None:
        if x not in found and (x in terms or x not in names):
            for operand in x.operands:
                uses[operand] += 1
                visit(operand)
            found[x] = None

    for term in terms:
        visit(term)
    return Counter({x: uses[x] for x in found})


def _new_name(x: Value, taken: set[str]) -> str:
    """A name: E for an exponential, otherwise a letter for a matrix, a row, a column or a scalar."""
    return free_name("E" if x.operation == "exp" else "A" if 1 not in sizes_of(x) and x.shape else "s", taken)


class LayerCode:
    """The code of a layer with these feedforward and gradient equations."""

    def __init__(self, name: str, source: Source, gradients: list[Equation]) -> None:
        self.source, self.f = source, source.feedforward
        f = self.f
        given = [x for x in (*f.wanted, *f.inputs) if x.name != "X" and x in f.inputs]
        self.given = {x.name: x for x in given}  # what the constructor sets
        names: dict[Value, str] = {}
        taken = {x.name for x in f.inputs} | {V.name for V, _ in f.equations} | {D.name for D, _ in gradients}
        taken |= {"N", "D", "K", f.DY.name, *source.functions, *(n for x in f.inputs for n in map(str, sizes_of(x)))}
        inner = {x for x in in_order(rhs for _, rhs in f.equations) if x.operation not in VIEWS}
        shared = inner.intersection(in_order(rhs for _, rhs in gradients))
        self.forward = written(f.equations, names, taken, "X", shared)
        self.backward = written(gradients, names, taken, f.DY.name)
        self.parameters = [x.name for x in f.wanted if x.name != "X"]
        used = _words(self.backward) - {f.Y.name}
        self.intermediates = [line.name for line in self.forward if line.name in used]
        self.class_name = name if name.endswith("Layer") else f"{name}Layer"

    def __str__(self) -> str:
        docstring = ";  ".join(f"{line.name} = {line.code}" for line in self.forward)
        attributes = ["keeps_size = True"] if self.f.Y.shape and size_name(self.f.Y.shape[1]) == "D" else []
        for name, found in (("parameters", self.parameters), ("intermediates", self.intermediates)):
            attributes += [f"{name} = {tuple(found)}".replace("'", '"')] if found else []
        more = sorted({str(n) for x in self.given.values() for n in sizes_of(x)} - {"D", "K", "1"})
        return TEMPLATE.format(
            name=self.class_name,
            imports="\n".join([*self._imports(), ""]),
            docstring=docstring if len(docstring) < 100 else f"{self.forward[-1].name} = f(X), as below",
            attributes=_indented(4, *attributes, "") + "\n" if attributes else "",
            options="".join([", *" if more else "", *(f", {n}: int" for n in more)]),
            settings=_indented(8, *self._settings(), ""),
            feedforward=self._method(self.forward, ["X"], []),
            backpropagate=self._method(self.backward, ["Y", self.f.DY.name], ["X"]),
            DY=self.f.DY.name,
        )

    def claiming(self, verdicts: list[Check]) -> str:
        """The code, with what is proved about it and what is not."""
        proved, others = ([x.name for x in verdicts if x.ok is ok] for ok in (True, False))
        claims = [*([f"NOT PROVED: {', '.join(others)}"] if others else [])]
        claims += [f"proved for all sizes: {', '.join(proved)}"] if proved else []
        head = f'"""{self.class_name}: gradients derived by matgrad'
        return str(self).replace(f'{head}."""', f'{head}; {"; ".join(claims)}."""', 1)

    def _imports(self) -> list[str]:
        """What the equations and the constructor need."""
        text = "\n".join(line.code for line in (*self.forward, *self.backward))
        table = [name for name in sorted(matrix_operations.__all__, key=str.lower) if re.search(rf"\b{name}\(", text)]
        line = f"from matgrad.matrix_operations import {', '.join(table)}"
        if len(line) > WIDTH:
            line = "\n".join(["from matgrad.matrix_operations import (", *(f"    {name}," for name in table), ")"])
        weights = any("initial_weights" in line for line in self._settings())
        return [
            *(["from matgrad.activation_functions import create_activation"] if self.source.functions else []),
            *([line] if table else []),
            *(["from matgrad.weight_initializers import initial_weights"] if weights else []),
        ]

    def _settings(self) -> list[str]:
        """The lines of the constructor that set parameters, numbers and functions."""
        names = {"D": "input_size", "K": "output_size"}
        lines = []
        for name, x in self.given.items():
            shape = ", ".join(names.get(str(n), str(n)) for n in sizes_of(x))
            lines.append(f"self.{name} = {_initial(x, self.source.initial.get(name), shape)}")
        lines += [f'self.{name} = create_activation("{text}")' for name, text in self.source.functions.items()]
        return [*lines, *(['self.set_optimizer("GradientDescent")'] if self.parameters else [])]

    # -- methods ----------------------------------------------------------------------------------
    def _method(self, lines: list[Line], known: list[str], also: list[str]) -> str:
        """The body of a method with these lines: what they need, the equations, and what is stored."""
        words, own = _words(lines), {line.name for line in lines}
        attributes = [*also, *self.intermediates, *self.given, *self.source.functions]
        unpacked = [x for x in attributes if x in words and x not in own and x not in known]
        sizes = self._sizes(words, known, unpacked)
        body = [*_assigned(unpacked, [f"self.{x}" for x in unpacked]), *sizes]
        body += [*([""] if body else []), *(f"{line.name} = {line.code}" for line in lines), ""]
        is_forward, gradients = known == ["X"], {f"D{x.name}" for x in self.f.wanted}
        stored = ["X", *self.intermediates] if is_forward else [x.name for x in lines if x.name in gradients]
        body += _assigned([f"self.{x}" for x in stored], stored)
        return _indented(8, *body, *([f"return {self.f.Y.name}"] if is_forward else []))

    def _sizes(self, words: set[str], known: list[str], unpacked: list[str]) -> list[str]:
        """``N, D = X.shape``, for sizes that are used, from the first matrices that have them.

        X and parameters that alone have one are appended to `unpacked`.
        """
        matrices = {x.name: x for x in (*self.f.inputs, self.f.Y, self.f.DY)}
        matrices |= {line.name: line.term for line in self.forward}
        found: list[str] = []
        left = words - {"1"}
        for name in (*known, *unpacked, *(x for x in matrices if x in ("X", *self.given) and x not in unpacked)):
            new = [n if n in left else "_" for n in map(str, sizes_of(matrices[name]))] if name in matrices else []
            if {*new} - {"_"}:
                left -= {*new}
                found.append(f"{', '.join([new[0], new[1] if new[0] != new[1] else '_'])} = {name}.shape")
                unpacked += [] if name in (*known, *unpacked) else [name]
        return found


def _initial(term: Value, value: float | None, shape: str) -> str:
    """What a parameter or a number begins with."""
    if term.shape == ():
        return repr(float(value)) if value is not None else "1.0"
    if value is None and 1 not in sizes_of(term):
        return f'initial_weights("XavierNormalized", {shape}).astype(np.float32)'
    if value is not None and value not in (0, 1):
        return f"np.full(({shape}), {float(value)}, dtype=np.float32)"
    return f"np.{'ones' if value == 1 else 'zeros'}(({shape}), dtype=np.float32)"


def _words(lines: list[Line]) -> set[str]:
    return {word for line in lines for word in re.findall(r"[^\W\d]\w*", line.code)}


def _assigned(left: list[str], right: list[str]) -> list[str]:
    return [f"{', '.join(left)} = {', '.join(right)}"] if left else []


def _indented(n: int, *lines: str) -> str:
    return indent("\n".join(lines), n * " ")
