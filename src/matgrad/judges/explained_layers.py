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
from matgrad.index_notation.text import Names, Text
from matgrad.inspection.equations import Equation
from matgrad.inspection.observing import observed
from matgrad.inspection.variables import drop_gradients, input_changed
from matgrad.inspection.verdicts import Check, feedforward_values, suffixed
from matgrad.judges.algebra import MakeLayer, for_equal_sizes
from matgrad.judges.explanations import (
    OF_DELTA,
    Explanation,
    Line,
    Written,
    depends_on,
    entry_written,
    explained_value,
    own_names,
    put,
    slope_written,
)
from matgrad.judges.index_judge import Symbols, entry_of, slope_of, summed_over
from matgrad.layers.layer import Layer
from matgrad.program.entries import IndexMatrix
from matgrad.typesetting.latex import latex_equation


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
            equation, names = x.equation, own_names(x.symbols)
            of = "feedforward" if equation else "the output"
            code = f"{equation.name} = {equation.source.partition(' = ')[2]}" if equation else ""
            left = entry_written(x.name, x.symbols.indices, names)
            latex = _latex(equation, part)
            found.add(f"definition of {x.name} by {of}", left, x.value.entry, names, code, latex)
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

    def _total(self, V: IndexMatrix, fold: bool = True) -> IndexMatrix:
        """Σ_w Σ_kl dw_kl·∂w_kl/∂v_ij, over all values w that v occurs in; with `fold`, w is put back into its slopes"""
        terms = []
        for of in self._uses(V):
            new, slope, short = _slope(of, V)
            dw = of.gradient.entry.substituted(dict(zip(of.gradient.indices, new, strict=True)))
            terms.append(summed_over(new, dw * (short if fold else slope)))
        return IndexMatrix(V.shape, total(terms))

    def _differentiate(self, found: Explanation, V: IndexMatrix, name: str, between: list[Value]) -> None:
        """The chain rule, the derivatives in it, and what they give together."""
        own, terms = own_names(V), []
        lines: list[tuple[str, Written | None, Expression, Names]] = []
        left, v = (entry_written(x, V.indices, own) for x in (name, entry_of(V).name))
        uses = [x for x in self._uses(V) if any(x.name == y.name for y in between)]
        for of in uses:
            new, slope, short = _slope(of, V)
            names = own | {k: x for k, x in zip(new, "kl", strict=False) if k != FIRST}
            w, dw = (entry_written(x, new, names) for x in (of.name, entry_of(of.gradient).name))
            derivative = slope_written(w, v)
            terms.append(partial(_term, dw, derivative, [names[k] for k in new if k != FIRST]))
            rules = rules_of(of.value.entry, entry_of(V).at(*(new_index(i.size) for i in V.indices)))
            lines.append(("; ".join(rules) or "it does not occur", derivative, slope, names))
            if short != slope:
                lines.append((f"definition of {of.name}", None, short, names))
        plain, value = (self._total(V, fold).entry for fold in (False, True))
        rule = f"chain rule: L depends on {v(Text())} by way of {', '.join(x.name for x in uses)}"
        found.lines.append(Line(rule, left, lambda writer: " + ".join(term(writer) for term in terms), plain))
        for line in lines:
            found.add(*line)
        found.add(f"the derivatives put into the chain rule; {OF_DELTA}", left, value, own)

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


def _slope(of: Value, V: IndexMatrix) -> tuple[tuple[Index, ...], Expression, Expression]:
    """The indices k, l of w_kl, and ∂w_kl/∂v_ij as it is and with w put back into it."""
    at, slope = slope_of(of.value, V)
    return at, slope, folded(slope, entry_of(of.symbols), of.value.entry)


def _term(dw: Written, derivative: Written, indices: list[str], writer: Text) -> str:
    """Σ_kl dw_kl·∂w_kl/∂v_ij"""
    product = writer.times(dw(writer), derivative(writer))
    return writer.over("Σ", indices, product) if indices else product
