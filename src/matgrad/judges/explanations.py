"""A proof that can be read: equations, one after the other, each with the rule or definition that it is by.

Those of a layer go from the output backwards, by the chain rule, value by value. The values of feedforward have names,
so that an expression has a few of them in it instead of all that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.notation import document, escape
from matgrad.index_notation.expressions import FIRST, Entry, Expression, Factor, Index, delta, is_equal, new_index
from matgrad.index_notation.rules import folded, rules_of
from matgrad.index_notation.text import Latex, Names, Text
from matgrad.inspection.equations import Equation
from matgrad.inspection.latex import latex_equation
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import drop_gradients, input_changed
from matgrad.inspection.verdicts import Check, feedforward_values, suffixed
from matgrad.judges.algebra import Lemma, MakeLayer, for_equal_sizes
from matgrad.judges.claims import by_rows
from matgrad.judges.index_judge import Symbols, chained, entry_of, put, slope_of
from matgrad.layers.layer import Layer
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
    Y, D, define = act(X), act.gradient(X), symbols.defined(act)
    if check.name.endswith(".value") and define:
        return explained_value(check, "Y", Y, define(X))
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
    if quantity == "value" and not weights and (define := symbols.defined(loss)):
        return explained_value(check, "L", value, IndexMatrix((), define(Y, T)))
    if quantity in ("value", "is_mean"):
        of_rows = by_rows(symbols, loss, Y, T, *weights)
        return explained_value(check, "L", value, of_rows / (N if loss.is_mean else 1))
    explanation, at = Explanation(check), tuple(map(new_index, (Y.rows, Y.columns)))
    names: Names = dict(zip(at, "ij", strict=True))
    left, slope = _differentiate(explanation, "L", value, Y, at, names, f"; {OF_DELTA}")
    is_mean = quantity == "mean_gradient"
    if is_mean and (weights or not loss.is_mean):
        mean = partial(lambda left, writer: writer.times(writer.quotient(["1"], ["N"]), left(writer)), left)
        explanation.add("the mean over the examples", mean, slope / symbols.number(N), names)
    found: Any = loss.mean_gradient(Y, T, *weights) if is_mean else loss.gradient(Y, T)
    explanation.add(SAME, None, found[at], names, check.source)
    return explanation


def explain_softmax(symbols: Symbols, name: str, check: Check) -> Explanation:
    """A softmax function by its definition, or its Jacobian from the function."""
    f, of_row = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    D, define = symbols.size("D"), symbols.defined(f)
    if check.name == f.__name__ and define:
        X = symbols.symbols("X", symbols.size("N"), D)
        return explained_value(check, "Y", f(X), define(X))
    x = symbols.symbols("x", 1, D)
    y, explanation, k = f(x), Explanation(check), new_index(x.columns)
    names, at = {x.indices[1]: "i", k: "j"}, (x.indices[0], k)
    _, slope = _differentiate(explanation, "Y", y, x, at, names)
    Y = symbols.symbols("Y", 1, D)
    explanation.definitions.append((Y, y))
    if (short := folded(slope, entry_of(Y), y.entry)) != slope:
        explanation.add("definition of Y", None, short, names)
    explanation.add(SAME, None, of_row(x)[x.indices[1], k], names, check.source)
    return explanation


def explain_lemma(symbols: Symbols, lemma: Lemma, check: Check) -> Explanation:
    """The steps of a lemma, with the entry that both sides of each have."""
    explanation, before, known = Explanation(check), 0, ""
    for position, step in enumerate(lemma.steps(symbols), 1):
        names = own_names(step.left)
        sides = [entry_written(side, step.left.indices, names) for side in ("left", "right")]
        right = written(step.left.entry, names)
        if right(Text()) == known:
            right = partial(lambda words, writer: writer.words(words), f"as in step {before}")
        else:
            before, known = position, right(Text())
        left = partial(lambda sides, writer: " = ".join(side(writer) for side in sides), sides)
        explanation.lines.append(Line(step.text, left, right, step.left.entry, other=step.right.entry))
    return explanation


# -- layers -------------------------------------------------------------------------------------


class Value(NamedTuple):
    """A value of feedforward: symbols for it, and what it is in terms of those before it."""

    name: str
    symbols: IndexMatrix
    value: IndexMatrix
    gradient: IndexMatrix  # symbols for the gradient of the loss with respect to it
    equation: Equation | None


def explain_layer(symbols: Symbols, make: MakeLayer, check: Check) -> Explanation:
    """How a gradient of the layer make(D, K) follows from its feedforward, or a value from its definition."""
    layer = symbols.layer(for_equal_sizes(make))
    X = symbols.own_symbols("X", symbols.size("N"), layer.input_size)
    path = check.name.partition(" ")[0].partition(".")[2] if " " in check.name else ""
    quantity = check.name.rpartition(".")[2]
    define = symbols.defined(layer.clone())
    definitions = define(X) if define else {}
    if not path and quantity in definitions:
        found = feedforward_values(layer, X, definitions)[quantity]
        return explained_value(check, quantity, found, definitions[quantity])
    return _Run(layer, X, symbols).explanation(check, path, quantity)


class _Run:
    """One run of a layer in which every value of feedforward is replaced by symbols with its name.

    In `found` are the gradients that the layer computes, in terms of these symbols and of those for the gradients of
    later values.
    """

    def __init__(self, layer: Layer, X: IndexMatrix, symbols: Symbols) -> None:
        self.layer, self.X, self.symbols = layer.clone(), X, symbols
        self.parts = dict(self.layer.walk())
        self.values: dict[str, Value] = {}
        self.found: dict[str, Any] = {}
        self.equations: dict[str, Equation] = {}
        with ExitStack() as stack:
            stack.enter_context(observed(self.parts.values(), self._hook))
            for path, part in self.parts.items():
                if path:
                    stack.enter_context(input_changed(part, partial(self._named, suffixed("X", path))))
            Y: Any = self.layer.feedforward(X)
            output = next((x for x in self.values.values() if x.symbols.entry == Y.entry), None)
            self.output = output or self.values[entry_of(self._named("Y", Y)).name]
            drop_gradients(self.layer)
            self.layer.backpropagate(self.output.symbols, self.output.gradient)
        for path, part in self.parts.items():
            self.found |= {suffixed(f"D{name}", path): getattr(part, f"D{name}", None) for name in part.parameters}
            if not path or suffixed("DX", path) not in self.found:  # symbols were put for what a part computes
                self.found[suffixed("DX", path)] = part.DX

    def _hook(self, layer: Layer, equation: Equation, value: Any) -> Any:
        path = next(path for path, part in self.parts.items() if part is layer)
        name = suffixed(equation.name, path)
        self.equations[name] = equation
        if equation.method == "feedforward":
            return self._named(name, value, equation)
        self.found[name] = value
        of = self.values.get(suffixed(equation.name[1:], path)) if equation.name.startswith("D") else None
        return of.gradient if of and isinstance(value, IndexMatrix) else value

    def _named(self, name: str, value: Any, equation: Equation | None = None) -> Any:
        """Symbols for a value."""
        if not isinstance(value, IndexMatrix):
            return value
        V = self.symbols.own_symbols(name, *value.shape, is_positive=value.entry.is_positive)
        name = entry_of(V).name
        gradient = self.symbols.own_symbols(f"D{name}", *value.shape)
        self.values[name] = Value(name, V, value, gradient, equation)
        return V

    # -- the explanation of one gradient, DV ------------------------------------------------------
    def explanation(self, check: Check, path: str, quantity: str) -> Explanation:
        """What is given, the values of feedforward, the gradients of these from the last to the first, and the code.

        V, which can be any matrix, has no definition.
        """
        name, part, output = suffixed(quantity, path), self.parts[path], self.output
        own = self.values.get(suffixed(quantity[1:], path))
        is_parameter = quantity[1:] in part.parameters
        V = getattr(part, quantity[1:]) if is_parameter else own.symbols if own else self.X
        between = self._between(V)
        # gradients, each in terms of later ones, and values, each in terms of earlier ones
        values = [x for x in self.values.values() if x.symbols is not V]
        gradients = [(x.gradient, self._total(x.symbols)) for x in values if x.name != output.name]
        found = Explanation(check, definitions=[*gradients, *((x.symbols, x.value) for x in reversed(values))])

        at = output.symbols.indices, own_names(output.symbols)
        loss = slope_written(lambda writer: writer.other("L"), entry_written(output.name, *at))
        left = entry_written(entry_of(output.gradient).name, *at)
        found.lines.append(Line("given: the gradient of the loss L with respect to the output", left, loss))
        for x in between:
            of, code, names = "the output", "", own_names(x.symbols)
            if x.equation:
                of, code = "feedforward", f"{x.equation.name} = {x.equation.source.partition(' = ')[2]}"
            left = entry_written(x.name, x.symbols.indices, names)
            found.add(f"definition of {x.name} by {of}", left, x.value.entry, names, code, _latex(x.equation, part))
        for x in reversed(between[:-1]):
            self._differentiate(found, x.symbols, entry_of(x.gradient).name, between)
        if not depends_on(output.symbols.entry, V):
            self._differentiate(found, V, name, between)
        self._compare(found, name, part)
        return found

    def _between(self, V: IndexMatrix) -> list[Value]:
        """The values between V and the output, in order, the output included."""
        forward: list[Value] = []
        for value in self.values.values():
            if any(depends_on(value.value.entry, U) for U in (V, *(x.symbols for x in forward))):
                forward.append(value)
        backward = [self.output]
        for value in reversed(forward):
            if value.name != self.output.name and any(depends_on(x.value.entry, value.symbols) for x in backward):
                backward.append(value)
        return backward[::-1]

    def _uses(self, V: IndexMatrix) -> list[Value]:
        return [x for x in self.values.values() if depends_on(x.value.entry, V)]

    def _total(self, V: IndexMatrix) -> IndexMatrix:
        """The chain rule over all values w that v occurs in, which are put back into their slopes."""
        return chained(((x.gradient, x.value, x.symbols) for x in self._uses(V)), V)

    def _differentiate(self, found: Explanation, V: IndexMatrix, name: str, between: list[Value]) -> None:
        """The chain rule, the derivatives in it, and what they give together."""
        own, terms = own_names(V), []
        lines: list[tuple[str, Written | None, Expression, Names]] = []
        left, v = (entry_written(x, V.indices, own) for x in (name, entry_of(V).name))
        uses = [x for x in self._uses(V) if any(x.name == y.name for y in between)]
        for of in uses:
            new, slope = slope_of(of.value, V)
            short = folded(slope, entry_of(of.symbols), of.value.entry)
            names = own | {k: x for k, x in zip(new, "kl", strict=False) if k != FIRST}
            w, dw = (entry_written(x, new, names) for x in (of.name, entry_of(of.gradient).name))
            derivative = slope_written(w, v)
            terms.append(partial(_term, dw, derivative, [names[k] for k in new if k != FIRST]))
            rules = rules_of(of.value.entry, entry_of(V).at(*(new_index(i.size) for i in V.indices)))
            lines.append(("; ".join(rules) or "it does not occur", derivative, slope, names))
            if short != slope:
                lines.append((f"definition of {of.name}", None, short, names))
        plain = chained(((x.gradient, x.value, None) for x in self._uses(V)), V).entry
        rule = f"chain rule: L depends on {v(Text())} by way of {', '.join(x.name for x in uses)}"
        found.lines.append(Line(rule, left, lambda writer: " + ".join(term(writer) for term in terms), plain))
        for line in lines:
            found.add(*line)
        found.add(f"the derivatives put into the chain rule; {OF_DELTA}", left, self._total(V).entry, own)

    def _compare(self, found: Explanation, name: str, part: Layer) -> None:
        """The last line: the entry of the equation in the code, and what makes it the same."""
        code, check = self.found.get(name), found.check
        derived, used = found.lines[-1].value, []
        assert isinstance(code, IndexMatrix)
        assert derived is not None
        sides = derived, code.entry
        for V, value in found.definitions:
            if is_equal(*sides):
                break
            if any(depends_on(e, V) for e in sides):
                sides = put(sides[0], V, value), put(sides[1], V, value)
                used.append(entry_of(V).name)
        rule = "the equation of the layer, entry by entry"
        if used:
            rule += f"; it is the same after the definitions of {', '.join(used)} are put in"
        equation = self.equations.get(name)
        latex = _latex(equation, part) if equation and equation.location == check.location else ""
        found.add(rule, None, code.entry, own_names(code), check.source, latex)


def _latex(equation: Equation | None, layer: Layer) -> str:
    """An equation in matrix form, in LaTeX; '' if it cannot be read."""
    with suppress(ValueError, SyntaxError, AttributeError):
        return latex_equation(equation, layer) if equation else ""
    return ""


def _term(dw: Written, derivative: Written, indices: list[str], writer: Text) -> str:
    """Σ_kl dw_kl·∂w_kl/∂v_ij"""
    product = writer.times(dw(writer), derivative(writer))
    return writer.over("Σ", indices, product) if indices else product
