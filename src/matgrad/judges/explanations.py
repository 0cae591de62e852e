"""A proof that can be read: equations, one after the other, each with the rule or definition that it is by.

Those of a layer go from the output backwards, by the chain rule, value by value. The values of feedforward have names,
so that an expression has a few of them in it instead of all that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from matgrad.foundation.notation import document, escape, words
from matgrad.index_notation.expressions import Entry, Expression, Factor, is_equal
from matgrad.index_notation.indices import FIRST, Index, new_index
from matgrad.index_notation.rules import folded, rules_of
from matgrad.index_notation.text import Latex, Names, Text
from matgrad.inspection.equations import Equation
from matgrad.inspection.latex import layer_latex
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import drop_gradients, input_changed
from matgrad.inspection.verdicts import Check, suffixed
from matgrad.judges.algebra import Lemma, Subject
from matgrad.judges.index_judge import Symbols, chained, entry_of, put, slope_of
from matgrad.layers.layer import Layer
from matgrad.program.entries import IndexMatrix
from matgrad.program.program import Value

Definition = tuple[IndexMatrix, IndexMatrix]  # symbols, and what they stand for
Written = Callable[[Text], str]  # a part of an equation, written by a writer of text or of LaTeX
SAME = "what the code computes; both have the same canonical form"
OF_DELTA = "a sum over a delta [k=i] has the term for k = i alone"


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
            items.append(f"\\item {words(line.rule)}{code}\n{matrices}\\[\n{equation}\n\\]")
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


# -- claims -------------------------------------------------------------------------------------


def explained(subject: Subject, check: Check, ones: frozenset[str], numbers: str) -> Explanation:
    """The explanation of a verdict, by the claim that it is about."""
    if isinstance(subject.thing, Lemma):
        return _of_lemma(Symbols(ones), subject.thing, check)
    a = _Explainer(check, ones, numbers)
    for _ in subject.claims(a, subject.thing):
        if a.found.lines:
            return a.found
    raise ValueError(f"{check.name} is not claimed")


def _of_lemma(symbols: Symbols, lemma: Lemma, check: Check) -> Explanation:
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


class Noting(Symbols):
    """The algebra in which claims are made once more, to note what was differentiated."""

    def __init__(self, ones: frozenset[str], numbers: str) -> None:
        super().__init__(ones, numbers)
        self.derivatives: dict[Value, tuple[IndexMatrix, IndexMatrix]] = {}  # ∂Y/∂X: Y and X

    def gradient(self, value: IndexMatrix, V: IndexMatrix) -> IndexMatrix:
        """See `Symbols`."""
        return self._noted(super().gradient(value, V), value, V)

    def jacobian(self, y: IndexMatrix, x: IndexMatrix) -> IndexMatrix:
        """See `Symbols`."""
        return self._noted(super().jacobian(y, x), y, x)

    def _noted(self, D: IndexMatrix, Y: IndexMatrix, X: IndexMatrix) -> IndexMatrix:
        self.derivatives[D.value] = Y, X
        return D


def as_matrix(expected: IndexMatrix | Expression) -> IndexMatrix:
    """The expected side of a claim; that of a scalar may be an expression."""
    return IndexMatrix((), expected) if isinstance(expected, Expression) else expected


class _Explainer(Noting):
    """Explains the claim that a verdict is about."""

    def __init__(self, check: Check, ones: frozenset[str], numbers: str) -> None:
        super().__init__(ones, numbers)
        self.check, self.found = check, Explanation(check)

    def claim(self, thing: Any, quantity: str, code: Any, found: Any, expected: Any, *remarks: str) -> Check:
        check = super().claim(thing, quantity, code, found, expected, *remarks)
        if (check.name, check.sizes) == (self.check.name, self.check.sizes):
            expected = as_matrix(expected)
            of = [x for x in (expected.value, *expected.value.operands) if x in self.derivatives]
            if of:
                self._differentiate(*self.derivatives[of[0]], found, is_mean=of[0] is not expected.value)
            else:
                self._define(quantity, found, expected)
        return check

    def _define(self, quantity: str, found: IndexMatrix, expected: IndexMatrix) -> None:
        """A value of the code that is equal to its definition."""
        name = ("Y" if expected.shape else "L") if quantity in ("", "value", "is_mean") else quantity
        names = own_names(expected)
        left = entry_written(name, expected.indices, names)
        self.found.add("definition, for one entry", left, expected.entry, names)
        self.found.add(SAME, None, found.entry, names, self.check.source)

    def _differentiate(self, Y: IndexMatrix, X: IndexMatrix, code: IndexMatrix, is_mean: bool) -> None:
        """y as it is computed, ∂y/∂x by the rules, and what the code computes."""
        x, found, at = entry_of(X), self.found, tuple(new_index(i.size) for i in X.indices)
        names: Names = dict(zip((i for i in (*Y.indices, *at) if i != FIRST), "ij", strict=True))
        y = entry_written("Y" if Y.shape else "L", Y.indices, names)
        found.add("definition: what the code computes", y, Y.entry, names)
        left, slope = slope_written(y, entry_written(x.name, at, names)), Y.entry.derivative(x.at(*at))
        rules = [*rules_of(Y.entry, x.at(*at)), *([] if Y.shape else [OF_DELTA])]
        found.add("; ".join(rules) or f"{x.name} does not occur", left, slope, names)
        if is_mean:
            slope = slope / self.number(self.size("N"))
            mean = partial(lambda left, writer: writer.times(writer.quotient(["1"], ["N"]), left(writer)), left)
            found.add("the mean over the examples", mean, slope, names)
        if Y.shape:  # softmax of a row is in its own derivatives
            V = self.symbols("Y", *Y.shape)
            found.definitions.append((V, Y))
            if (short := folded(slope, entry_of(V), Y.entry)) != slope:
                found.add("definition of Y", None, short, names)
        row, column = (Y.indices[1], at[1]) if Y.shape else at
        found.add(SAME, None, code[row, column], names, self.check.source)

    def gradients(self, layer: Layer, X: IndexMatrix) -> list[Check]:
        path = self.check.name.partition(" ")[0].partition(".")[2] if " " in self.check.name else ""
        self.taken.add(entry_of(X).name)
        self.found = _Run(layer, X, self).explanation(self.check, path, self.check.name.rpartition(".")[2])
        return [self.check]


# -- gradients of layers --------------------------------------------------------------------------


class Named(NamedTuple):
    """A value of feedforward: symbols for it, and what it is in terms of those before it."""

    name: str
    symbols: IndexMatrix
    value: IndexMatrix
    gradient: IndexMatrix  # symbols for the gradient of the loss with respect to it
    equation: Equation | None


class _Run:
    """One run of a layer in which every value of feedforward is replaced by symbols with its name.

    In `found` are the gradients that the layer computes, in terms of these symbols and of those for the gradients of
    later values.
    """

    def __init__(self, layer: Layer, X: IndexMatrix, symbols: Symbols) -> None:
        self.layer, self.X, self.symbols = layer.clone(), X, symbols
        self.parts = dict(self.layer.walk())
        self.values: dict[str, Named] = {}
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
        self.values[name] = Named(name, V, value, gradient, equation)
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
        latex = layer_latex(part)
        for x in between:
            of, code, names = "the output", "", own_names(x.symbols)
            if x.equation:
                of, code = "feedforward", f"{x.equation.name} = {x.equation.source.partition(' = ')[2]}"
            left, tex = entry_written(x.name, x.symbols.indices, names), latex.get(x.equation, "") if x.equation else ""
            found.add(f"definition of {x.name} by {of}", left, x.value.entry, names, code, tex)
        for x in reversed(between[:-1]):
            self._differentiate(found, x.symbols, entry_of(x.gradient).name, between)
        if not depends_on(output.symbols.entry, V):
            self._differentiate(found, V, name, between)
        self._compare(found, name, part)
        return found

    def _between(self, V: IndexMatrix) -> list[Named]:
        """The values between V and the output, in order, the output included."""
        forward: list[Named] = []
        for value in self.values.values():
            if any(depends_on(value.value.entry, U) for U in (V, *(x.symbols for x in forward))):
                forward.append(value)
        backward = [self.output]
        for value in reversed(forward):
            if value.name != self.output.name and any(depends_on(x.value.entry, value.symbols) for x in backward):
                backward.append(value)
        return backward[::-1]

    def _uses(self, V: IndexMatrix) -> list[Named]:
        return [x for x in self.values.values() if depends_on(x.value.entry, V)]

    def _total(self, V: IndexMatrix) -> IndexMatrix:
        """The chain rule over all values w that v occurs in, which are put back into their slopes."""
        return chained(((x.gradient, x.value, x.symbols) for x in self._uses(V)), V)

    def _differentiate(self, found: Explanation, V: IndexMatrix, name: str, between: list[Named]) -> None:
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
        latex = layer_latex(part).get(equation, "") if equation and equation.location == check.location else ""
        found.add(rule, None, code.entry, own_names(code), check.source, latex)


def _term(dw: Written, derivative: Written, indices: list[str], writer: Text) -> str:
    """Σ_kl dw_kl·∂w_kl/∂v_ij"""
    product = writer.times(dw(writer), derivative(writer))
    return writer.over("Σ", indices, product) if indices else product
