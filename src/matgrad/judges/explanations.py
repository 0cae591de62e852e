"""A proof that can be read: equations, one after the other, each with the rule or definition that it is by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.notation import document, escape
from matgrad.index_notation.entries import FIRST, Entry, delta, new_index
from matgrad.index_notation.expressions import Expression, Factor, Index, is_equal
from matgrad.index_notation.rules import folded, rules_of
from matgrad.index_notation.text import Latex, Names, Text
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import Lemma
from matgrad.judges.claims import by_rows
from matgrad.judges.index_judge import SymbolicSizes, Symbols
from matgrad.judges.matrices import IndexMatrix, at, entry_of
from matgrad.loss_functions import LossFunction

Definition = tuple[IndexMatrix, IndexMatrix]  # symbols, and what they stand for
WRITERS = Text(), Latex()
SAME = "what the code computes; both have the same canonical form"
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
        for position, line in enumerate(self.lines, 1):
            left = f"{line.left.text} = " if line.left else "  = "
            steps.append(f"{position:3}. {line.rule}")
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
    explanation.add(SAME, None, found.entry, names, check.source)
    return explanation


def first_without_gaps(explain: Callable[[Symbols], Explanation], check: Check) -> Explanation:
    """The explanation with symbols for numbers or, if the code decides something by them, with the numbers."""
    sizes = frozenset(re.findall(r"(\w+) = 1\b", check.sizes))
    try:
        return explain(Symbols(SymbolicSizes(sizes)))
    except Exception:  # as in proofs: whatever the code of a user leads to
        return explain(Symbols(SymbolicSizes(sizes), keep_numbers=True))


# -- losses, functions and lemmas -------------------------------------------------------------


def _defined(thing: Any, symbols: Symbols) -> Callable[..., Any]:
    """The definition of a value, which is proved to be equal to it."""
    define = symbols.defined(thing)
    assert define is not None
    return define


def explain_activation(make: Callable[[], ActivationFunction], check: Check) -> Explanation:
    """f(x) by its definition, or f'(x) from f(x)."""
    return first_without_gaps(lambda symbols: _activation(make(), symbols, check), check)


def _activation(act: ActivationFunction, symbols: Symbols, check: Check) -> Explanation:
    act, X = symbols.numbers(act), symbols.symbols("X", symbols.sizes("N"), symbols.sizes("K"))
    Y, D = act(X), act.gradient(X)
    if check.name.endswith(".value"):
        return explained_value(check, "Y", Y, _defined(act, symbols)(X))
    explanation, (i, j), (k, l) = Explanation(check), X.indices, map(new_index, (X.rows, X.columns))
    names = own_names(X) | {index: letter for index, letter in ((k, "k"), (l, "l")) if index != FIRST}
    _differentiate(explanation, "Y", Y, X, (k, l), names)
    rule = "the entry of the gradient in the code, for the same indices; both have the same canonical form"
    explanation.add(rule, None, delta(i, k) * delta(j, l) * D.entry, names, check.source)
    return explanation


def _differentiate(
    found: Explanation, name: str, Y: IndexMatrix, X: IndexMatrix, at: tuple[Index, ...], names: Names, remark: str = ""
) -> tuple[Written, Expression]:
    """Two lines, y_ij as it is computed and ∂y_ij/∂x_kl; the latter as it is written, and as an expression."""
    x, y = entry_of(X), entry_written(name, Y.indices, names)
    found.add("definition: what the code computes", y, Y.entry, names)
    left = joined(lambda writer, parts: writer.derivative(*parts), y, entry_written(x.name, at, names))
    slope = Y.entry.derivative(x.at(*at))
    rules = "; ".join(rules_of(Y.entry, x.at(*at))) or f"{x.name} does not occur"
    found.add(rules + remark, left, slope, names)
    return left, slope


def explain_loss(make: Callable[[], LossFunction], check: Check) -> Explanation:
    """A loss by its definition, or its gradients from its value."""
    return first_without_gaps(lambda symbols: _loss(make(), symbols, check), check)


def _loss(loss: LossFunction, symbols: Symbols, check: Check) -> Explanation:
    loss, N = symbols.numbers(loss), symbols.sizes("N")
    Y, T = (symbols.symbols(name, N, symbols.sizes("K")) for name in "YT")
    s = symbols.symbols("s", N, 1) if "weighted" in check.sizes else None
    quantity, weights = check.name.rpartition(".")[2], () if s is None else (s,)
    define = symbols.defined(loss) if quantity == "value" and s is None else None
    value: Any = loss(Y, T, *weights) if s is None or quantity == "value" else by_rows(symbols, loss, Y, T, s)
    if define is not None:
        return explained_value(check, "L", value, IndexMatrix((), define(Y, T)))
    if quantity in ("value", "is_mean"):
        return explained_value(check, "L", value, by_rows(symbols, loss, Y, T, s) / (N if loss.is_mean else 1))
    explanation, at = Explanation(check), tuple(map(new_index, (Y.rows, Y.columns)))
    names, of_delta = dict(zip(at, "ij", strict=True)), "; a sum over a delta [k=i] has the term for k = i alone"
    left, slope = _differentiate(explanation, "L", value, Y, at, names, of_delta)
    if quantity == "mean_gradient":
        if s is not None or not loss.is_mean:
            left = joined(lambda writer, parts: writer.times(writer.quotient(["1"], ["N"]), parts[0]), left)
            explanation.add("the mean over the examples", left, slope / symbols.number(N), names)
        found = loss.mean_gradient(Y, T, *weights)
    else:
        found = loss.gradient(Y, T)
    explanation.add(SAME, None, found[at], names, check.source)
    return explanation


def explain_softmax(name: str, check: Check) -> Explanation:
    """A softmax function by its definition, or its Jacobian from the function."""
    return first_without_gaps(lambda symbols: _softmax(name, symbols, check), check)


def _softmax(name: str, symbols: Symbols, check: Check) -> Explanation:
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    D = symbols.sizes("D")
    if check.name == f.__name__:
        X = symbols.symbols("X", symbols.sizes("N"), D)
        return explained_value(check, "Y", f(X), _defined(f, symbols)(X))
    x = symbols.symbols("x", 1, D)
    y, explanation, k = f(x), Explanation(check), new_index(x.columns)
    names, at = {x.indices[1]: "i", k: "j"}, (x.indices[0], k)
    _, slope = _differentiate(explanation, "Y", y, x, at, names)
    Y = symbols.symbols("Y", 1, D)
    explanation.definitions.append((Y, y))
    if (short := folded(slope, entry_of(Y), y.entry)) != slope:
        explanation.add("definition of Y", None, short, names)
    J = of_row(x)
    found = J.entry.substituted(dict(zip(J.indices, (x.indices[1], k), strict=True)))
    explanation.add(SAME, None, found, names, check.source)
    return explanation


def explain_lemma(lemma: Lemma, check: Check) -> Explanation:
    """The steps of a lemma, with the entry that both sides of each have."""
    explanation, before = Explanation(check), 0
    for position, step in enumerate(lemma.steps(Symbols()), 1):
        names = own_names(step.left)
        sides = (entry_written(side, step.left.indices, names) for side in ("left", "right"))
        left = joined(lambda writer, parts: " = ".join(parts), *sides)
        right, lines = written(step.left.entry, names), explanation.lines
        if before and lines[before - 1].right == right:
            words = f"as in step {before}"
            right = Written(words, rf"\text{{{words}}}")
        else:
            before = position
        lines.append(Line(step.text, left, right, step.left.entry, other=step.right.entry))
    return explanation
