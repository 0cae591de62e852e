"""The steps of a derivation: the values of forward by their names in the code, and the chain rule back through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from matgrad.index_notation.expressions import Entry, Expression, Factor, product, total
from matgrad.index_notation.rules import rules_of
from matgrad.writers import texts
from matgrad.writers.samples import Samples, g_name
from matgrad.writers.slots import Key, indices, keys
from matgrad.writers.specifications import part_values
from matgrad.writers.subjects import Run
from matgrad.writers.tensors import Tensor, gradient, summed_to, symbols
from matgrad.writers.verdicts import Formula, Step

GIVEN = "forward"


class Named(NamedTuple):
    """A value of forward: symbols with its name, and what it is in terms of earlier ones."""

    name: str
    symbols: Tensor
    value: Tensor


class Derivation:
    """Gradients in terms of named values, and of the gradients with respect to these."""

    def __init__(self, values: Sequence[Named], outputs: Sequence[Tensor], gs: Sequence[Tensor]) -> None:
        self.values, self.outputs, self.gs = values, outputs, gs
        self.adjoints: dict[str, tuple[Tensor, Tensor]] = {}  # symbols, and what they are in terms of later ones
        for x in reversed(values):
            self.adjoints[x.name] = symbols(f"D{x.name}", x.symbols.dims), self.total(x.symbols)
        self.definitions = {
            entry.name: (entry, tensor.data[key])
            for symbol, tensor in self.adjoints.values()
            for key in keys(symbol.dims)
            for entry in [_entry(symbol, key)]
        }

    def total(self, x: Tensor) -> Tensor:
        """Σ Dv·∂v/∂x over the named values, and Σ g·∂y/∂x over outputs."""
        later = [v for v in self.values if v.name in self.adjoints]
        ys = [*(v.value for v in later), *self.outputs]
        return gradient(x, ys, [*(self.adjoints[v.name][0] for v in later), *self.gs])

    def expanded(self, e: Expression) -> Expression:
        """With what the gradients of named values are."""

        def rule(f: Factor) -> Expression | None:
            if not isinstance(f, Entry) or f.name not in self.definitions:
                return None
            entry, value = self.definitions[f.name]
            return value.substituted(dict(zip(entry.indices, f.indices, strict=True)))

        while (changed := e.mapped(rule)) != e:
            e = changed
        return e

    def forward(self, names: Sequence[str]) -> list[Step]:
        """What the values are, and the outputs."""
        outputs = [(name, y) for name, y in zip(names, self.outputs, strict=True) if not self._named(y)]
        pairs = [*((x.name, x.value) for x in self.values), *outputs]
        return [Step(GIVEN, _of_entry(n, key, x)) for n, x in pairs for key in keys(x.dims)]

    def _named(self, y: Tensor) -> bool:
        return any(y.data == x.symbols.data for x in self.values)

    def backward(self, n: str, x: Tensor) -> list[Step]:
        """The chain rule from the outputs to an argument, through the values that it goes through."""
        total, steps, seen = self.total(x), list[Step](), set[str]()
        wanted = [*names_in(total)]
        while wanted:
            name = wanted.pop().removeprefix("D")
            if name not in self.adjoints or name in seen:
                continue
            seen.add(name)
            wanted += names_in(self.adjoints[name][1])
        for v in reversed(self.values):
            if v.name in seen:
                found = self.adjoints[v.name][1]
                steps += [Step("chain rule", _of_entry(f"D{v.name}", k, found)) for k in keys(found.dims)]
        used = [e for y in (*(v.value for v in self.values), *self.outputs) for e in y.data.values()]
        for key in keys(x.dims):
            rules = dict.fromkeys(rule for e in used for rule in rules_of(e, _entry(x, key)))
            formula = texts.equation(texts.derivative(n, key, texts.letters(x)), total.data[key], x)
            steps.append(Step("; ".join(rules) or f"{n} does not occur", formula))
        return steps


def names_in(t: Tensor) -> set[str]:
    """The names of entries in a tensor."""
    return {f.name for e in t.data.values() for f in e.inner() if isinstance(f, Entry)}


def _entry(symbol: Tensor, key: Key) -> Entry:
    ((m, _),) = symbol.data[key].terms.items()
    factor = m[0][0]
    assert isinstance(factor, Entry)
    return factor


def _of_entry(name: str, key: Key, x: Tensor) -> Formula:
    """x_ij = what it is"""
    return texts.equation(texts.entry(name, key, texts.letters(x)), x.data[key], x)


class Shown:
    """Forms of gradients with the names of the code; what is not equal to them in numbers is not shown."""

    def __init__(self, samples: Samples) -> None:
        self.proof = proof = samples.proof
        model, gs, self.symbols = proof.model, proof.gs, proof.symbols
        self.definitions = definitions(model, {*self.symbols, *(g_name(g) for g in gs)})
        run = model.cut()
        self.definitions += [(_entry(x.symbols, ()), x.value.data[()]) for x in run.values if set(x.value.data) == {()}]
        self.derivation = Derivation(run.values, run.outputs, gs)
        found = run.gradients(gs) if run.values else {}
        self.named = {n: summed_to(d, self.symbols[n].dims) for n, d in found.items() if d is not None}
        self.sizes, arguments = samples.arguments(0)
        run = proof.code.run(arguments, numeric=True)
        self.values = samples.values(self.sizes, arguments, samples.given(run, 0))
        for x in self.derivation.values:
            self.values |= part_values(x.name, x.value.dims, x.value.numeric(self.values, self.sizes), self.sizes)

    def _is(self, e: Expression, expected: Expression, like: Tensor) -> bool:
        """Whether two forms have the same numbers."""
        a, b = (
            Tensor(like.dims, dict.fromkeys(keys(like.dims), x)).numeric(self.values, self.sizes) for x in (e, expected)
        )
        return np.allclose(a, b, rtol=1e-6, equal_nan=True)

    def _in_names(self, n: str, key: Key, e: Expression) -> Expression | None:
        """What code returns, if there are names for what is in it."""
        named = self.named[n].data[key] if n in self.named else None
        return named if named is not None and self._is(named, e, self.symbols[n]) else None

    def returned(self, n: str, key: Key, e: Expression) -> Expression:
        """What code returns."""
        return self._in_names(n, key, e) or texts.short(e, self.definitions)

    def difference(self, n: str, key: Key, returned: Expression, true: Expression) -> Expression:
        """What is missing."""
        found, named = texts.short(true - returned, self.definitions), self._in_names(n, key, returned)
        if named is None:
            return found
        missing = self.derivation.expanded(self.derivation.total(self.symbols[n]).data[key]) - named
        terms = [product(m).scaled(c) for m, c in texts.short(missing, self.definitions).terms.items()]
        zero = total(())
        missing = total(x for x in terms if not self._is(x, zero, self.symbols[n]))  # Σ_k r_kj is 0 if r is centred
        return shortest(found, *([missing] if self._is(missing, true - returned, self.symbols[n]) else []))

    def forms(
        self, n: str, key: Key, returned: Expression, true: Expression
    ) -> tuple[Expression, Expression, Expression]:
        """What code returns, the missing term, and what is true; the missing factor, if there is one."""
        shown = self.returned(n, key, returned)
        if (r := texts.ratio(returned, true)) is not None:
            return shown, r, shown * r
        missing = self.difference(n, key, returned, true)
        return shown, missing, shortest(texts.short(true, self.definitions), shown + missing)

    def wrong(self, n: str, key: Key, returned: Expression, true: Expression) -> list[str | Formula]:
        """What is missing in a gradient that is wrong, and the line that computes it."""
        place = self.proof.model.lines.get(n)
        forms, is_factor = self.forms(n, key, returned, true), texts.ratio(returned, true) is not None
        lines = texts.difference(n, key, self.symbols[n], forms, is_factor)
        return [*lines, *([f"    in {texts.source(*place)}"] if place else [])]

    def formulas(self) -> list[Formula]:
        """The gradients that are proved."""
        found = []
        for n, d in self.proof.compared.items():
            for key in keys(d.true.dims) if not d.unequal else []:
                left = texts.derivative(n, key, texts.letters(d.true))
                found.append(texts.equation(left, self.returned(n, key, d.returned.data[key]), d.true))
        return found

    def steps(self) -> list[Step]:
        """The derivation of gradients, and what code returns for each."""
        returned = {n: d.returned for n, d in self.proof.compared.items()}
        count = len(self.derivation.outputs)
        steps = self.derivation.forward(["y"] if count == 1 else [f"y{i}" for i in range(1, count + 1)])
        for n, d in returned.items():
            steps += [step for step in self.derivation.backward(n, self.symbols[n]) if step not in steps]
            for key, e in d.data.items():
                left = texts.derivative(n, key, texts.letters(d))
                steps.append(Step("what the code returns", texts.equation(left, self.returned(n, key, e), d)))
        return steps


def shortest(*forms: Expression) -> Expression:
    """The form with the shortest text."""
    return min(forms, key=lambda e: len(texts.text(e)))


def definitions(model: Run, used: set[str]) -> list[tuple[Entry, Expression]]:
    """Variables of the code that can be put into an expression."""
    own = {n: x for n, x in model.names.items() if n not in used and not x.is_index and not x.is_bool}
    return [(Entry(n, indices(x.dims)), x.data[()]) for n, x in own.items() if set(x.data) == {()} and texts.is_name(n)]
