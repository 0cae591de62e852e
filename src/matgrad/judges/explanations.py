"""A proof that can be read: equations, one after the other, each with the rule or definition that it is by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

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
from matgrad.judges.index_judge import Symbols, entry_of, put
from matgrad.loss_functions import LossFunction
from matgrad.program.entries import IndexMatrix

Definition = tuple[IndexMatrix, IndexMatrix]  # symbols, and what they stand for
Written = Callable[[Text], str]  # a part of an equation, written by a writer of text or of LaTeX
SAME = "what the code computes; both have the same canonical form"
OF_DELTA = "a sum over a delta [k=i] has the term for k = i alone"
_TEX = {
    **{"∂": r"\partial", "Σ": r"\Sigma", "σ": r"\sigma", "π": r"\pi", "μ": r"\mu", "ε": r"\varepsilon", "γ": r"\gamma"},
    **{"α": r"\alpha", "β": r"\beta", "δ": r"\delta", "·": r"\cdot", "⊙": r"\odot", "≥": r"\geq", "≤": r"\leq"},
    **{"ᵀ": r"^\top", "²": "^2", "⁻": "^-", "¹": "^1", "∇": r"\nabla", "√": r"\surd", "′": "'", "…": r"\ldots"},
    **{"⟨": r"\langle", "⟩": r"\rangle", "ℒ": r"\mathcal{L}", "₂": "_2", "ᵢ": "_i", "×": r"\times", "½": r"\frac12"},
}
SIGNS = {sign: f"${tex}$" for sign, tex in _TEX.items()}  # in the words of a rule


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
            name = line.left(Text()) if line.left else name
            before = values.setdefault(name, line.value) if line.other is None else line.other
            if before is not line.value and not self._is_equal(before, line.value):
                yield line

    def _is_equal(self, a: Expression | None, b: Expression | None) -> bool:
        return a is not None and b is not None and is_equal(self.expanded(a), self.expanded(b))

    def __str__(self) -> str:
        """As text: numbered steps, with the rule before the equation."""
        steps, writer = [f"{self.check.name}, {self.check.sizes}  ({self.check.location})"], Text()
        for position, line in enumerate(self.lines, 1):
            left = line.left(writer) if line.left else " "
            steps.append(f"{position:3}. {line.rule}")
            steps += [f"       {x}" for x in (line.matrices, f"{left} = {line.right(writer)}") if x]
        return "\n".join(steps)

    def latex(self) -> str:
        """As a LaTeX document."""
        items, writer = [], Latex()
        for line in self.lines:
            equation = f"{line.left(writer) if line.left else ''} = {line.right(writer)}"
            code = rf" \texttt{{{escape(line.matrices)}}}" if line.matrices and not line.latex else ""
            matrices = f"\\[\n{line.latex}\n\\]\n" if line.latex else ""
            rule = "".join(SIGNS.get(c, c) for c in escape(line.rule))
            items.append(f"\\item {rule}{code}\n{matrices}\\[\n{equation}\n\\]")
        title = rf"\section*{{{escape(self.check.name)}, {escape(self.check.sizes)}}}"
        return document(title, r"\begin{enumerate}", *items, r"\end{enumerate}")


# -- parts of equations -------------------------------------------------------------------------


def written(e: Expression, names: Names) -> Written:
    """An expression."""
    return lambda writer: writer.expression(e, names)


def entry_written(name: str, indices: tuple[Index, ...], names: Names) -> Written:
    """name_ij"""
    return lambda writer: writer.entry(name, [names.get(i, i.name) for i in indices if i != FIRST])


def slope_written(y: Written, x: Written) -> Written:
    """∂y/∂x"""
    return lambda writer: writer.derivative(y(writer), x(writer))


def own_names(A: IndexMatrix, letters: str = "ij") -> Names:
    """Letters for the indices of a matrix."""
    return {i: x for i, x in zip(A.indices, letters, strict=False) if i != FIRST}


def depends_on(e: Expression, V: IndexMatrix) -> bool:
    """Whether symbols V occur in an expression."""
    name, found = entry_of(V).name, set()

    def note(f: Factor) -> None:
        if isinstance(f, Entry):
            found.add(f.name)

    e.mapped(note)
    return name in found


# -- values, losses, functions and lemmas ---------------------------------------------------------


def explained_value(check: Check, name: str, found: IndexMatrix, expected: IndexMatrix) -> Explanation:
    """A value of the code that is equal to its definition."""
    explanation, names = Explanation(check), own_names(expected)
    left = entry_written(name, expected.indices, names)
    explanation.add("definition, for one entry", left, expected.entry, names)
    explanation.add(SAME, None, found.entry, names, check.source)
    return explanation


def _defined(symbols: Symbols, thing: Any, *matrices: IndexMatrix) -> Any:
    """What a function is by its definition, which is proved to be equal to it."""
    define = symbols.defined(thing)
    assert define is not None
    return define(*matrices)


def _differentiate(
    found: Explanation, name: str, Y: IndexMatrix, X: IndexMatrix, at: tuple[Index, ...], names: Names, remark: str = ""
) -> tuple[Written, Expression]:
    """Two lines, y_ij as it is computed and ∂y_ij/∂x_kl; the latter as it is written, and as an expression."""
    x, y = entry_of(X), entry_written(name, Y.indices, names)
    found.add("definition: what the code computes", y, Y.entry, names)
    left, slope = slope_written(y, entry_written(x.name, at, names)), Y.entry.derivative(x.at(*at))
    rules = "; ".join(rules_of(Y.entry, x.at(*at))) or f"{x.name} does not occur"
    found.add(rules + remark, left, slope, names)
    return left, slope


def explain_activation(symbols: Symbols, make: Callable[[], ActivationFunction], check: Check) -> Explanation:
    """f(x) by its definition, or f'(x) from f(x)."""
    act, X = symbols.numbers(make()), symbols.symbols("X", symbols.size("N"), symbols.size("K"))
    Y, D = act(X), act.gradient(X)
    if check.name.endswith(".value"):
        return explained_value(check, "Y", Y, _defined(symbols, act, X))
    explanation, (i, j), (k, l) = Explanation(check), X.indices, map(new_index, (X.rows, X.columns))
    names = own_names(X) | {index: letter for index, letter in ((k, "k"), (l, "l")) if index != FIRST}
    _differentiate(explanation, "Y", Y, X, (k, l), names)
    rule = "the entry of the gradient in the code, for the same indices; both have the same canonical form"
    explanation.add(rule, None, delta(i, k) * delta(j, l) * D.entry, names, check.source)
    return explanation


def explain_loss(symbols: Symbols, make: Callable[[], LossFunction], check: Check) -> Explanation:
    """A loss by its definition, or its gradients from its value."""
    loss, N = symbols.numbers(make()), symbols.size("N")
    Y, T = (symbols.symbols(name, N, symbols.size("K")) for name in "YT")
    weights = (symbols.symbols("s", N, 1),) if "weighted" in check.sizes else ()
    quantity = check.name.rpartition(".")[2]
    value: Any = by_rows(symbols, loss, Y, T, *weights) if weights and quantity != "value" else loss(Y, T, *weights)
    if quantity == "value" and not weights and symbols.defined(loss):
        return explained_value(check, "L", value, IndexMatrix((), _defined(symbols, loss, Y, T)))
    if quantity in ("value", "is_mean"):
        of_rows = by_rows(symbols, loss, Y, T, *weights)
        return explained_value(check, "L", value, of_rows / (N if loss.is_mean else 1))
    explanation, at = Explanation(check), tuple(map(new_index, (Y.rows, Y.columns)))
    names: Names = dict(zip(at, "ij", strict=True))
    left, slope = _differentiate(explanation, "L", value, Y, at, names, f"; {OF_DELTA}")
    if quantity == "mean_gradient":
        if weights or not loss.is_mean:
            explanation.add(
                "the mean over the examples",
                lambda writer: writer.times(writer.quotient(["1"], ["N"]), left(writer)),
                slope / symbols.number(N),
                names,
            )
        found = loss.mean_gradient(Y, T, *weights)
    else:
        found = loss.gradient(Y, T)
    explanation.add(SAME, None, found[at], names, check.source)
    return explanation


def explain_softmax(symbols: Symbols, name: str, check: Check) -> Explanation:
    """A softmax function by its definition, or its Jacobian from the function."""
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    D = symbols.size("D")
    if check.name == f.__name__:
        X = symbols.symbols("X", symbols.size("N"), D)
        return explained_value(check, "Y", f(X), _defined(symbols, f, X))
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


def explain_lemma(symbols: Symbols, lemma: Lemma, check: Check) -> Explanation:
    """The steps of a lemma, with the entry that both sides of each have."""
    explanation, before, known = Explanation(check), 0, ""
    for position, step in enumerate(lemma.steps(symbols), 1):
        sides = [entry_written(side, step.left.indices, own_names(step.left)) for side in ("left", "right")]
        right = written(step.left.entry, own_names(step.left))
        if before and right(Text()) == known:
            right = _as_in(before)
        else:
            before, known = position, right(Text())
        left = lambda writer, sides=sides: " = ".join(side(writer) for side in sides)  # noqa: E731
        explanation.lines.append(Line(step.text, left, right, step.left.entry, other=step.right.entry))
    return explanation


def _as_in(step: int) -> Written:
    words = f"as in step {step}"
    return lambda writer: rf"\text{{{words}}}" if isinstance(writer, Latex) else words
