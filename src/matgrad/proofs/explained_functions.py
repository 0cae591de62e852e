"""Explanations of losses, activation functions, softmax functions and lemmas."""

from __future__ import annotations

from collections.abc import Callable

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.index_notation.entries import FIRST, delta, new_index
from matgrad.index_notation.expressions import Expression, Index
from matgrad.index_notation.rules import folded, rules_of
from matgrad.inspection.verdicts import Check
from matgrad.loss_functions import LossFunction
from matgrad.proofs.calculus import derivative, entry_of
from matgrad.proofs.definitions import ACTIVATIONS, ENTRIES, definition_of_loss, number
from matgrad.proofs.explanations import (
    Explanation,
    Line,
    Written,
    entry_written,
    explained_value,
    first_without_gaps,
    joined,
    own_names,
    written,
)
from matgrad.proofs.layers import by_rows, softmax_entry
from matgrad.proofs.matrices import IndexMatrix, matrix
from matgrad.proofs.statements import Algebra, Lemma
from matgrad.proofs.symbolic_layers import Symbols

SAME = "what the code computes; both have the same canonical form"


def explain_activation(make: Callable[[], ActivationFunction], check: Check) -> Explanation:
    """f(x) by its definition, or f'(x) from f(x)."""
    return first_without_gaps(lambda symbols: _activation(make(), symbols, check), check)


def _activation(act: ActivationFunction, symbols: Symbols, check: Check) -> Explanation:
    cls = type(act)
    act, X = symbols.numbers(act), symbols.calculus.symbols("X", symbols.sizes("N"), symbols.sizes("K"))
    Y, D = act(X), act.gradient(X)
    if check.name.endswith(".value"):
        return explained_value(check, "Y", Y, matrix(X.shape, lambda i, j: ACTIVATIONS[cls](ENTRIES, act, X[i, j], j)))
    explanation = Explanation(check)
    new = tuple(map(new_index, (X.rows, X.columns)))
    names = own_names(X) | {k: letter for k, letter in zip(new, "kl", strict=True) if k != FIRST}
    left, slope = _defined(explanation, Y, X, new, names)
    explanation.add(_rules(Y.entry, X), left, slope, names)
    (i, j), (k, l) = X.indices, new
    found = delta(i, k) * delta(j, l) * D.entry
    explanation.add(
        "the entry of the gradient in the code, for the same indices; both have the same canonical form",
        None,
        found,
        names,
        check.source,
    )
    return explanation


def _defined(
    explanation: Explanation, Y: IndexMatrix, X: IndexMatrix, at: tuple[Index, ...], names: dict[Index, str]
) -> tuple[Written, Expression]:
    """A first line with y_ij as it is computed; ∂y_ij/∂x_kl as it is written, and as an expression."""
    y = entry_written("Y", Y.indices, names)
    x = entry_written(entry_of(X).name, at, names)
    explanation.add("definition: what the code of the function computes", y, Y.entry, names)
    return joined(lambda writer, parts: writer.derivative(*parts), y, x), Y.entry.derivative(entry_of(X).at(*at))


def _rules(e: Expression, V: IndexMatrix) -> str:
    """The rules that the derivatives of e with respect to the entries of V are by."""
    rules = rules_of(e, entry_of(V).at(*(new_index(i.size) for i in V.indices)))
    return "; ".join(rules) or f"{entry_of(V).name} does not occur"


def explain_loss(make: Callable[[], LossFunction], check: Check) -> Explanation:
    """A loss by its definition, or its gradients from its value."""
    return first_without_gaps(lambda symbols: _loss(make(), symbols, check), check)


def _loss(loss: LossFunction, symbols: Symbols, check: Check) -> Explanation:
    loss, N = symbols.numbers(loss), symbols.sizes("N")
    Y, T = (symbols.calculus.symbols(name, N, symbols.sizes("K")) for name in "YT")
    s = symbols.calculus.symbols("s", N, 1) if "weighted" in check.sizes else None
    quantity, scale = check.name.rpartition(".")[2], 1 / number(N) if loss.is_mean else number(1)
    weights = () if s is None else (s,)
    value = loss(Y, T, *weights).entry if s is None or quantity == "value" else by_rows(loss, Y, T, s)
    if quantity in ("value", "is_mean"):
        definition = definition_of_loss(loss, Y, T) if quantity == "value" and s is None else None
        expected = by_rows(loss, Y, T, s) * scale if definition is None else definition
        return explained_value(check, "L", IndexMatrix((), value), IndexMatrix((), expected))
    explanation, names = Explanation(check), own_names(Y)
    L, y = Written("L", "L"), entry_written("Y", Y.indices, names)
    explanation.add("definition: what the code of the loss computes", L, value, {})
    slope, left = derivative(value, Y).entry, joined(lambda writer, parts: writer.derivative(*parts), L, y)
    explanation.add(f"{_rules(value, Y)}; a sum over a delta [k=i] has the term for k = i alone", left, slope, names)
    if quantity == "mean_gradient":
        if s is not None or not loss.is_mean:
            left = joined(lambda writer, parts: writer.times(writer.quotient(["1"], ["N"]), parts[0]), left)
            explanation.add("the mean over the examples", left, slope / number(N), names)
        found = loss.mean_gradient(Y, T, *weights)
    else:
        found = loss.gradient(Y, T)
    explanation.add(SAME, None, found.entry, names, check.source)
    return explanation


def explain_softmax(name: str, check: Check) -> Explanation:
    """A softmax function by its definition, or its Jacobian from the function."""
    return first_without_gaps(lambda symbols: _softmax(name, symbols, check), check)


def _softmax(name: str, symbols: Symbols, check: Check) -> Explanation:
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    D = symbols.sizes("D")
    if check.name == f.__name__:
        X = symbols.calculus.symbols("X", symbols.sizes("N"), D)
        return explained_value(check, "Y", f(X), matrix(X.shape, softmax_entry(name, X)))
    x = symbols.calculus.symbols("x", 1, D)
    y, explanation, k = f(x), Explanation(check), new_index(x.columns)
    names, at = {x.indices[1]: "i", k: "j"}, (x.indices[0], k)
    left, slope = _defined(explanation, y, x, at, names)
    explanation.add(_rules(y.entry, x), left, slope, names)
    Y = symbols.calculus.symbols("Y", 1, D)
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
    for position, step in enumerate(lemma.steps(Algebra()), 1):
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
