"""A proof that can be read: equations, one after the other, each with the rule or definition that it is by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from matgrad.foundation.notation import document, escape
from matgrad.index_notation.entries import FIRST, Entry
from matgrad.index_notation.equality import is_equal
from matgrad.index_notation.expressions import Expression, Factor, Index
from matgrad.index_notation.text import Latex, Names, Text
from matgrad.inspection.verdicts import Check
from matgrad.proofs.calculus import at, entry_of
from matgrad.proofs.matrices import IndexMatrix
from matgrad.proofs.symbolic_layers import SymbolicSizes, Symbols

Definition = tuple[IndexMatrix, IndexMatrix]  # symbols, and what they stand for
WRITERS = Text(), Latex()
_TEX = {
    **{"∂": r"\partial", "Σ": r"\Sigma", "σ": r"\sigma", "π": r"\pi", "μ": r"\mu", "ε": r"\varepsilon", "γ": r"\gamma"},
    **{"α": r"\alpha", "β": r"\beta", "δ": r"\delta", "·": r"\cdot", "⊙": r"\odot", "≥": r"\geq", "≤": r"\leq"},
    **{"ᵀ": r"^\top", "²": "^2", "⁻": "^-", "¹": "^1", "∇": r"\nabla", "√": r"\surd", "′": "'", "…": r"\ldots"},
    **{"⟨": r"\langle", "⟩": r"\rangle", "ℒ": r"\mathcal{L}", "₂": "_2", "ᵢ": "_i", "×": r"\times", "½": r"\frac12"},
}
SIGNS = {sign: f"${tex}$" for sign, tex in _TEX.items()}  # in the words of a rule


class Written(NamedTuple):
    """A part of an equation, as text and in LaTeX."""

    text: str
    latex: str


@dataclass(frozen=True)
class Line:
    """left = right, by a rule; without a left side, that of the line before is meant.

    `value` is the expression that the right side stands for; None where it is the name of something that is given.
    """

    rule: str
    left: Written | None
    right: Written
    value: Expression | None = None
    matrices: str = ""  # the same in matrix form, as code
    latex: str = ""  # and in LaTeX
    other: Expression | None = None  # of an equation by itself: the side that `value` is equal to


@dataclass
class Explanation:
    """The lines of a derivation; `definitions` are put into its expressions in order, to compare them."""

    check: Check
    lines: list[Line] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)

    def add(
        self, rule: str, left: Written | None, value: Expression, names: Names, matrices: str = "", latex: str = ""
    ) -> None:
        """Another line, whose right side is an expression."""
        self.lines.append(Line(rule, left, written(value, names), value, matrices, latex))

    def expanded(self, e: Expression) -> Expression:
        """The expression with all definitions put in."""
        for V, value in self.definitions:
            e = put(e, V, value)
        return e

    def gaps(self) -> Iterator[Line]:
        """The lines that are not proved to be equal to an earlier one: none, or the explanation is wrong.

        That is the line before or, if a left side is repeated, the line where it was first.
        """
        values: dict[str, Expression | None] = {}
        name = ""
        for line in self.lines:
            if line.other is not None:
                if not self._is_equal(line.value, line.other):
                    yield line
                continue
            is_new = line.left is not None and line.left.text not in values
            name = line.left.text if line.left else name
            if is_new:
                values[name] = line.value
            elif not self._is_equal(values.get(name), line.value):
                yield line

    def _is_equal(self, a: Expression | None, b: Expression | None) -> bool:
        return a is not None and b is not None and is_equal(self.expanded(a), self.expanded(b))

    def __str__(self) -> str:
        """As text: numbered steps, with the rule before the equation."""
        steps = [f"{self.check.name}, {self.check.sizes}  ({self.check.location})"]
        for number, line in enumerate(self.lines, 1):
            left = f"{line.left.text} = " if line.left else "  = "
            steps.append(f"{number:3}. {line.rule}")
            steps += [f"       {x}" for x in (line.matrices, left + line.right.text) if x]
        return "\n".join(steps)

    def latex(self) -> str:
        """As a LaTeX document."""
        items = []
        for line in self.lines:
            equation = f"{line.left.latex if line.left else ''} = {line.right.latex}"
            code = rf" \texttt{{{escape(line.matrices)}}}" if line.matrices and not line.latex else ""
            matrices = f"\\[\n{line.latex}\n\\]\n" if line.latex else ""
            items.append(f"\\item {_in_words(line.rule)}{code}\n{matrices}\\[\n{equation}\n\\]")
        title = rf"\section*{{{escape(self.check.name)}, {escape(self.check.sizes)}}}"
        return document(title, r"\begin{enumerate}", *items, r"\end{enumerate}")


def _in_words(rule: str) -> str:
    """The name of a rule in LaTeX, with its symbols."""
    return "".join(SIGNS.get(c, c) for c in escape(rule))


def written(e: Expression, names: Names) -> Written:
    """An expression as text and in LaTeX."""
    return Written(*(writer.expression(e, names) for writer in WRITERS))


def entry_written(name: str, indices: tuple[Index, ...], names: Names) -> Written:
    """name_ij"""
    found = [names.get(i, i.name) for i in indices if i != FIRST]
    return Written(*(writer.entry(name, found) for writer in WRITERS))


def joined(write: Callable[[Text, list[str]], str], *parts: Written) -> Written:
    """What is made of some parts, as text and in LaTeX."""
    return Written(*(write(writer, [part[k] for part in parts]) for k, writer in enumerate(WRITERS)))


def own_names(A: IndexMatrix, letters: str = "ij") -> Names:
    """Letters for the indices of a matrix."""
    return {i: x for i, x in zip(A.indices, letters, strict=False) if i != FIRST}


def put(e: Expression, V: IndexMatrix, value: IndexMatrix) -> Expression:
    """e with the entries of a matrix for the symbols V."""
    return at(IndexMatrix((), e), V, value).entry


def depends_on(A: IndexMatrix, V: IndexMatrix) -> bool:
    """Whether symbols V occur in a matrix."""
    name, found = entry_of(V).name, set()

    def note(f: Factor) -> None:
        if isinstance(f, Entry):
            found.add(f.name)

    A.entry.mapped(note)
    return name in found


def explained_value(check: Check, name: str, found: IndexMatrix, expected: IndexMatrix) -> Explanation:
    """A value of the code that is equal to its definition."""
    explanation, names = Explanation(check), own_names(expected)
    left = entry_written(name, expected.indices, names)
    explanation.add("definition, for one entry", left, expected.entry, names)
    explanation.add("what the code computes; both have the same canonical form", None, found.entry, names, check.source)
    return explanation


def first_without_gaps(explain: Callable[[Symbols], Explanation], check: Check) -> Explanation:
    """The explanation with symbols for numbers or, if the code decides something by them, with the numbers."""
    sizes = frozenset(re.findall(r"(\w+) = 1\b", check.sizes))
    try:
        return explain(Symbols(SymbolicSizes(sizes)))
    except Exception:  # as in proofs: whatever the code of a user leads to
        return explain(Symbols(SymbolicSizes(sizes), keep_numbers=True))
