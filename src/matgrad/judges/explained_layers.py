"""Explanations of the equations of layers: gradients from the output backwards, by the chain rule, value by value.

The values of feedforward have names, so that an expression has a few of them in it instead of all that they stand for.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from matgrad.index_notation.entries import FIRST, new_index
from matgrad.index_notation.expressions import Expression, Index, is_equal, total
from matgrad.index_notation.rules import folded, rules_of
from matgrad.index_notation.sums import summed
from matgrad.index_notation.text import Names, Text
from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import drop_gradients, input_changed
from matgrad.inspection.verdicts import Check, feedforward_values, suffixed
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.judges.explanations import (
    Definition,
    Explanation,
    Line,
    Written,
    depends_on,
    entry_written,
    explained_value,
    first_without_gaps,
    joined,
    own_names,
    put,
    written,
)
from matgrad.judges.index_judge import Symbols
from matgrad.judges.matrices import IndexMatrix, entry_of
from matgrad.layers.layer import Layer
from matgrad.typesetting.latex import latex_equation


class Value(NamedTuple):
    """A value of feedforward: symbols for it, and what it is in terms of those before it."""

    name: str
    symbols: IndexMatrix
    value: IndexMatrix
    gradient: IndexMatrix  # symbols for the gradient of the loss with respect to it
    equation: Equation | None


class NamedRun:
    """One run of a layer in which every value of feedforward is replaced by symbols with its name.

    In `found` are the gradients that the layer computes, in terms of these symbols and of those for the gradients of
    later values.
    """

    def __init__(self, layer: Layer, X: IndexMatrix, symbols: Symbols) -> None:
        self.layer, self.symbols = layer.clone(), symbols
        self.parts = dict(self.layer.walk())
        self.values: dict[str, Value] = {}
        self.found: dict[str, Any] = {}
        self.equations: dict[str, Equation] = {}
        with ExitStack() as stack:
            stack.enter_context(observed(self.parts.values(), self._hook))
            for path, part in self.parts.items():
                if path:
                    stack.enter_context(input_changed(part, partial(self._named, suffixed("X", path))))
            output: Any = self.layer.feedforward(X)
            self.output = self._output(output)
            drop_gradients(self.layer)
            self.layer.backpropagate(self.output.symbols, self.output.gradient)
        for path, part in self.parts.items():
            self.found |= {suffixed(f"D{name}", path): getattr(part, f"D{name}", None) for name in part.parameters}
            if path:  # symbols were put for what it computes
                self.found.setdefault(suffixed("DX", path), part.DX)
            else:
                self.found["DX"] = part.DX

    def _hook(self, layer: Layer, equation: Equation, value: Any) -> Any:
        path = next(path for path, part in self.parts.items() if part is layer)
        name = suffixed(equation.name, path)
        self.equations[name] = equation
        if not isinstance(value, IndexMatrix):
            return value
        if equation.method == "feedforward":
            return self._named(name, value, equation)
        self.found[name] = value
        of = self.values.get(suffixed(equation.name[1:], path)) if equation.name.startswith("D") else None
        return of.gradient if of else value

    def _named(self, name: str, value: Any, equation: Equation | None = None) -> Any:
        if not isinstance(value, IndexMatrix):
            return value
        V = self.symbols.own_symbols(name, *value.shape, is_positive=value.entry.is_positive)
        name = entry_of(V).name
        gradient = self.symbols.own_symbols(f"D{name}", *value.shape)
        self.values[name] = Value(name, V, value, gradient, equation)
        return V

    def _output(self, Y: IndexMatrix) -> Value:
        """The value that is the output, which gets a name if it has none."""
        for value in self.values.values():
            if value.symbols.entry == Y.entry:
                return value
        return self.values[entry_of(self._named("Y", Y)).name]

    def depending_on(self, V: IndexMatrix) -> list[Value]:
        """The values between V and the output, in order, the output included."""
        forward: list[Value] = []
        for value in self.values.values():
            if any(depends_on(value.value, U) for U in (V, *(x.symbols for x in forward))):
                forward.append(value)
        backward = [self.output]
        for value in reversed(forward):
            if value.name != self.output.name and any(depends_on(x.value, value.symbols) for x in backward):
                backward.append(value)
        return backward[::-1]


def explain_layer(make: MakeLayer, check: Check) -> Explanation:
    """How a gradient of the layer make(D, K) follows from its feedforward, or a value from its definition."""

    def explain(symbols: Symbols) -> Explanation:
        layer = symbols.layer(for_equal_sizes(make))
        X = symbols.own_symbols("X", symbols.sizes("N"), layer.input_size)
        path = check.name.partition(" ")[0].partition(".")[2] if " " in check.name else ""
        quantity = check.name.rpartition(".")[2]
        define = symbols.defined(layer.clone())
        definitions = define(X) if define else {}
        if not path and quantity in definitions:
            found = feedforward_values(layer, X, definitions)[quantity]
            return explained_value(check, quantity, found, definitions[quantity])
        return _Gradient(layer, X, symbols, path, quantity).explanation(check)

    return first_without_gaps(explain, check)


class _Gradient:
    """The derivation of one gradient, DV."""

    def __init__(self, layer: Layer, X: IndexMatrix, symbols: Symbols, path: str, quantity: str) -> None:
        self.run = NamedRun(layer, X, symbols)
        part, V = self.run.parts[path], quantity[1:]
        self.name, self.layer = suffixed(quantity, path), part
        own = self.run.values.get(suffixed(V, path))
        if V in part.parameters:
            self.V = getattr(dict(layer.walk())[path], V)
        else:
            self.V = own.symbols if own else X
        self.between = self.run.depending_on(self.V)

    def explanation(self, check: Check) -> Explanation:
        """What is given, the values of feedforward, the gradients of these from the last to the first, and the code."""
        run, output = self.run, self.run.output
        found = Explanation(check, definitions=self._definitions())
        names = own_names(output.symbols)
        given = [entry_written(A.name, A.symbols.indices, names) for A in (output,)]
        loss = joined(lambda w, parts: w.derivative(w.other("L"), parts[0]), *given)
        left = entry_written(entry_of(output.gradient).name, output.symbols.indices, names)
        found.lines.append(Line("given: the gradient of the loss L with respect to the output", left, loss))
        for value in self.between:
            self._define(found, value)
        for value in reversed(self.between[:-1]):
            self._differentiate(found, value.symbols, entry_of(value.gradient).name)
        if not depends_on(output.symbols, self.V):
            self._differentiate(found, self.V, self.name)
        self._compare(found, run.found.get(self.name), check)
        return found

    def _definitions(self) -> list[Definition]:
        """Of the gradients of values, each in terms of later ones, and of the values, each in terms of earlier ones.

        V has none: it can be any matrix.
        """
        values = [x for x in self.run.values.values() if x.symbols is not self.V]
        gradients = [(x.gradient, self._total(x.symbols)) for x in values if x.name != self.run.output.name]
        return [*gradients, *((x.symbols, x.value) for x in reversed(values))]

    def _define(self, found: Explanation, value: Value) -> None:
        names, equation = own_names(value.symbols), value.equation
        left = entry_written(value.name, value.symbols.indices, names)
        of = "the output" if value.equation is None else "feedforward"
        code = f"{equation.name} = {equation.source.partition(' = ')[2]}" if equation else ""
        found.add(f"definition of {value.name} by {of}", left, value.value.entry, names, code, self._latex(equation))

    def _latex(self, equation: Equation | None) -> str:
        """An equation in matrix form, in LaTeX; '' if it cannot be read."""
        with suppress(ValueError, SyntaxError, AttributeError):
            return latex_equation(equation, self.layer) if equation else ""
        return ""

    def _uses(self, V: IndexMatrix) -> list[Value]:
        return [x for x in self.run.values.values() if depends_on(x.value, V)]

    def _slope(self, of: Value, V: IndexMatrix) -> tuple[tuple[Index, ...], Expression]:
        """∂w_kl/∂v_ij, and its indices k, l"""
        new = tuple(new_index(i.size) for i in of.symbols.indices)
        entry = of.value.entry.substituted(dict(zip(of.symbols.indices, new, strict=True)))
        return new, entry.derivative(entry_of(V).at(*V.indices))

    def _total(self, V: IndexMatrix, fold: bool = True) -> IndexMatrix:
        """Σ_w Σ_kl dw_kl·∂w_kl/∂v_ij, over all values w that v occurs in; with `fold`, w is put back into its slopes"""
        terms = []
        for of in self._uses(V):
            new, slope = self._slope(of, V)
            slope = folded(slope, entry_of(of.symbols), of.value.entry) if fold else slope
            terms.append(_sum(new, _at(of.gradient, new) * slope))
        return IndexMatrix(V.shape, total(terms))

    def _differentiate(self, found: Explanation, V: IndexMatrix, name: str) -> None:
        """The chain rule, the derivatives in it, and what they give together."""
        uses = [x for x in self._uses(V) if any(x.name == y.name for y in self.between)]
        own = own_names(V)
        left, v = (entry_written(x, V.indices, own) for x in (name, entry_of(V).name))
        lines: list[tuple[str, Written | None, Expression, Names]] = []
        terms = []
        for of in uses:
            new, slope = self._slope(of, V)
            names = own | {k: x for k, x in zip(new, "kl", strict=False) if k != FIRST}
            w, dw = (entry_written(x, new, names) for x in (of.name, entry_of(of.gradient).name))
            derivative = joined(lambda writer, parts: writer.derivative(*parts), w, v)
            indices = [names[k] for k in new if k != FIRST]
            term = joined(lambda writer, parts: writer.times(*parts), dw, derivative)
            terms.append(joined(partial(_over, indices), term) if indices else term)
            rules = rules_of(of.value.entry, entry_of(V).at(*(new_index(i.size) for i in V.indices)))
            lines.append(("; ".join(rules) or "it does not occur", derivative, slope, names))
            short = folded(slope, entry_of(of.symbols), of.value.entry)
            if short != slope:
                lines.append((f"definition of {of.name}", None, short, names))
        through = ", ".join(x.name for x in uses)
        right = joined(lambda writer, parts: " + ".join(parts), *terms)
        plain, value = (self._total(V, fold).entry for fold in (False, True))
        found.lines.append(Line(f"chain rule: L depends on {v.text} by way of {through}", left, right, plain))
        for rule, derivative_or_none, e, names in lines:
            found.add(rule, derivative_or_none, e, names)
        found.lines.append(
            Line(
                "the derivatives put into the chain rule; a sum over a delta [k=i] has the term for k = i alone",
                left,
                written(value, own),
                value,
            )
        )

    def _compare(self, found: Explanation, code: Any, check: Check) -> None:
        """The last line: the entry of the equation in the code, and what makes it the same."""
        assert isinstance(code, IndexMatrix)
        derived, used = found.lines[-1].value, []
        assert derived is not None
        sides = derived, code.entry
        for V, value in found.definitions:
            if is_equal(*sides):
                break
            if any(depends_on(IndexMatrix((), e), V) for e in sides):
                sides = put(sides[0], V, value), put(sides[1], V, value)
                used.append(entry_of(V).name)
        rule = "the equation of the layer, entry by entry"
        if used:
            rule += f"; it is the same after the definitions of {', '.join(used)} are put in"
        equation = self.run.equations.get(self.name)
        equation = equation if equation and equation.location == check.location else None
        found.add(rule, None, code.entry, own_names(code), check.source, self._latex(equation))


def _over(indices: list[str], writer: Text, parts: list[str]) -> str:
    return writer.over("Σ", indices, parts[0])


def _at(A: IndexMatrix, indices: tuple[Index, ...]) -> Expression:
    """The entry of A at indices; that of a scalar has none."""
    return A.entry.substituted(dict(zip(A.indices, indices, strict=True)))


def _sum(indices: tuple[Index, ...], e: Expression) -> Expression:
    """Σ_kl e"""
    if not indices:
        return e
    k, *others = indices
    inner = _sum(tuple(others), e)
    return inner if k == FIRST else summed(lambda n: inner.substituted({k: n}), k.size)
