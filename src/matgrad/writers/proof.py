"""The steps to a verdict: code runs on symbols, forms are compared, and then numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from matgrad.index_notation.conditions import trichotomy
from matgrad.index_notation.expressions import ONE, Expression, UndefinedError, is_equal, total
from matgrad.index_notation.functions import not_above, without_ties
from matgrad.index_notation.sums import summed_over
from matgrad.inspection.settings import UnfollowedError
from matgrad.writers import texts
from matgrad.writers.divisions import Divisions
from matgrad.writers.explaining import Shown
from matgrad.writers.hypotheses import Hypothesis, SumIs, hypotheses, under
from matgrad.writers.kinks import conventions
from matgrad.writers.repairs import repaired
from matgrad.writers.samples import Samples
from matgrad.writers.sizes import DivisionError, OrderError, ShapeError, UnsupportedError
from matgrad.writers.slots import Key, indices, keys, within
from matgrad.writers.specifications import Specification, specification
from matgrad.writers.subjects import MISSING, Code, RefutedError
from matgrad.writers.tensors import Tensor, gradient, summed_to, symbols
from matgrad.writers.trust import Trust
from matgrad.writers.verdicts import Gradient, Verdict

# what code raises where it is wrong, or where symbols cannot stand for numbers
CODE_ERRORS = (IndexError, TypeError, ValueError, AttributeError, KeyError, RuntimeError, AssertionError, MemoryError)


@dataclass
class Compared:
    """The returned and the true gradient of an argument, and the keys of parts for which forms differ."""

    returned: Tensor
    true: Tensor
    unequal: list[Key] = field(default_factory=list)


class Proof:
    """The steps to a verdict."""

    def __init__(
        self,
        code: Code,
        shapes: Mapping[str, Any],
        wrt: Sequence[str] | None,
        divisions: Divisions,
        surrogate: bool = False,
        kinks: bool = False,
        explains: bool = False,
        repairs: bool = True,
    ) -> None:
        self.error: Exception | None = None
        self.code, self.shapes, self.divisions = code, shapes, divisions
        self.surrogate, self.kinks, self.explains, self.repairs = surrogate, kinks, explains, repairs
        known = code.parameters
        if unknown := [name for name in (*shapes, *(wrt or ())) if name not in known]:
            raise ValueError(f"{code.name} has no argument {unknown[0]!r}; it has {', '.join(known)}")
        given = {name: shapes.get(name, default) for name, default in known.items()}
        if given.get("self") is MISSING:
            raise ValueError(f"{code.name} is a method: expected one of an object, such as layer.{code.name}")
        if missing := [name for name, x in given.items() if x is MISSING]:
            raise ValueError(f'{code.name}: what is {missing[0]}? Give its shape, such as {missing[0]}="N D"')
        self.specifications = {n: divisions.of(specification(x)) for n, x in given.items() if isinstance(x, str)}
        self.constants = {n: x for n, x in given.items() if not isinstance(x, str)}
        self.order = list(given)
        self.wrt = [n for n, s in self.specifications.items() if s.is_differentiable and (not wrt or n in wrt)]
        self.is_chosen = wrt is not None
        self.verdict = Verdict(code.name, "undecided")
        self.compared: dict[str, Compared] = {}
        self.trust = Trust(code)
        self.returned: dict[str, Any] = {}

    def end(self, verdict: str, *lines: str) -> None:
        """The verdict, with lines that say why."""
        self.verdict.verdict = verdict
        self.verdict.lines += lines

    def arguments(self, make: Callable[[str, Specification], Any]) -> dict[str, Any]:
        """The arguments in their order."""
        found = {n: make(n, s) for n, s in self.specifications.items()}
        return {n: found[n] if n in found else self.constants[n] for n in self.order}

    def try_to_run(self, seconds: float) -> None:
        """Run; an error is a verdict too."""
        try:
            self.run()
        except TimeoutError:
            self.end("undecided", f"no answer in {seconds:g} s")
        except RefutedError as error:
            self.end("refuted", str(error))
        except (UndefinedError, UnsupportedError, ShapeError, *CODE_ERRORS) as error:
            self.error = error
            self.end(*reason(error))

    def run(self) -> None:
        """Compare forms, and then numbers."""
        self.symbols = self.arguments(lambda n, s: s.symbol(n))
        with self.trust.following():
            self.model = self.code.run(self.symbols, numeric=False)
        self.outputs: list[Tensor] = self.model.outputs
        g = self.code.gradient_name
        names = [g] if len(self.outputs) == 1 else [f"{g}{n}" for n in range(1, len(self.outputs) + 1)]
        while set(names) & set(self.symbols):
            names = [f"d{name}" for name in names]
        self.gs = [symbols(name, y.dims) for name, y in zip(names, self.outputs, strict=True)]
        samples = Samples(self)
        try:
            with self.trust.following():
                self.returned = self.model.gradients(self.gs)
            self.trust.look()
            self._compare()
        except (OrderError, DivisionError) as error:
            self.error = error
            return self._by_numbers(samples, *reason(error))
        except (UndefinedError, UnsupportedError, ShapeError, *CODE_ERRORS) as error:
            return self._by_numbers(samples, *reason(error))
        self.verdict.lines += self.model.remarks
        self.verdict.gradients = list(self.compared)
        if not self.compared:
            return self.end("refused", "there is no gradient to prove")
        samples.run()
        if samples.problems:
            return self._by_numbers(samples, "undecided", *samples.problems)
        self._decide(samples)
        if self.repairs:
            shown = Shown(samples)
            self.verdict.formulas = shown.formulas()
            self.verdict.steps = shown.steps() if self.explains else []

    def _compare(self) -> None:
        """The forms of gradients; equal ones need no more."""
        self.rules = hypotheses(self.specifications)
        for n in self.wrt:
            d, x = self.returned[n], self.symbols[n]
            if d is None:
                if self.is_chosen:
                    raise RefutedError(f"∂/∂{n}: None is returned")
                self.verdict.lines.append(f"∂/∂{n}: None is returned, and was not compared")
                continue
            same_shape = summed_to(d, x.dims) if self.code.sums_gradients or d.dims == x.dims else None
            if same_shape is None:
                raise ShapeError(f"∂/∂{n}: the gradient has another shape than the argument")
            if same_shape.dims != d.dims:
                self.verdict.lines.append(f"∂/∂{n}: autograd sums what is returned over dimensions that {n} lacks")
            found = Compared(same_shape, gradient(x, self.outputs, self.gs))
            found.unequal = [k for k in keys(x.dims) if not self.is_equal(found, k)]
            self.compared[n] = found

    def is_equal(self, found: Compared, key: Key, rules: Sequence[Hypothesis] = ()) -> bool:
        """Whether two forms are equal, with the rules that hold."""
        a, b = found.returned.data[key], found.true.data[key]
        if is_equal(a, b) or ((here := within(found.true.dims)) != ONE and is_equal(a * here, b * here)):
            return True
        chosen = [*(rule.of for rule in (*self.rules, *rules)), not_above, without_ties, trichotomy]
        return is_equal(under(chosen, a), under(chosen, b))

    def _by_numbers(self, samples: Samples, verdict: str, *lines: str) -> None:
        """What has no form can be refuted by numbers, if those of forward are right; otherwise it is as it was."""
        with np.errstate(all="ignore"):
            found = next((x for seed in range(2) if (x := samples.refutation(seed, self.wrt))), [])
        self.verdict.witness = next(iter(samples.witnesses.values()), None)
        if found:
            given = [n for n in self.wrt if self.returned.get(n, ()) is not None]
            found += repaired(samples, {n: None for n in given if not self.proves(self.code, [n])})
        wrong = "surrogate" if self.surrogate else "refuted"
        self.end(wrong if found else verdict, *lines, *found)

    def _decide(self, samples: Samples) -> None:
        """The verdict, by forms and numbers."""
        lines = self.verdict.lines
        unknown, wrong = False, dict[str, Expression | None]()
        for n, found in self.compared.items():
            for key in found.unequal:
                difference, own = found.true.data[key] - found.returned.data[key], texts.letters(found.true)
                if texts.is_rounding(difference, found.returned.data[key], found.true.data[key]):
                    rounding = texts.shorten(texts.text(difference, own), 120)
                    lines.append(f"∂/∂{n}: equal up to the rounding of a constant: {rounding}")
                elif n in samples.witnesses:
                    self.verdict.place = self.verdict.place or self.model.lines.get(n)
                    lines += Shown(samples).wrong(n, key, found.returned.data[key], found.true.data[key])
                    wrong[n] = texts.ratio(found.returned.data[key], found.true.data[key])
                else:
                    unknown = True
                    lines.append(
                        f"∂/∂{n}: forms differ, and numbers do not: {texts.shorten(texts.text(difference, own), 300)}"
                    )
        if wrong:
            self.verdict.witness = samples.witness()
            lines.append(f"for example, with {self.verdict.witness}")
            lines += repaired(samples, wrong)
            return self.end("surrogate" if self.surrogate else "refuted", *self._suggestion(samples))
        if unknown:
            return self.end("undecided", "perhaps a rule is missing, or a hypothesis")
        if problem := self.trust.problem():
            return self.end("undecided", problem)
        if small := samples.refutation_of_small(list(self.compared)):
            self.verdict.witness = next(iter(samples.witnesses.values()), None)
            return self.end("refuted", *small)
        names = sorted({self.divisions.given(a)[0] for s in self.specifications.values() for a in s.names})
        sizes = f"for all sizes {', '.join(names)}" if names else "for all numbers"
        lines.append(f"{sizes}: {', '.join(f'∂/∂{n}' for n in self.compared)}")
        self.verdict.assumptions += map(str, self.rules)
        self.verdict.assumptions += [f"{n} > 0" for n, s in self.specifications.items() if s.kind == ">0"]
        self.verdict.assumptions += [f"{n} = {x!r}" for n, x in self.constants.items()] + self.trust.conditions
        compared = [t for c in self.compared.values() for t in (c.returned, c.true)]
        if kinks := texts.kinks([*self.outputs, *compared]):
            lines.append(f"except where {texts.either(list(kinks))}")
            if self.kinks:
                self.verdict.conventions = conventions(samples, kinks)
                lines += self.verdict.conventions
        self.verdict.entries = self._entries
        self.end("proved")

    def _entries(self) -> list[Gradient]:
        """What is proved."""
        outputs = [(y, g, within(y.dims)) for y, g in zip(self.outputs, self.gs, strict=True)]
        pairs = [(y, y.data[k] * g.data[k] * inside) for y, g, inside in outputs for k in keys(y.dims)]
        value = total(summed_over(indices(y.dims), e) for y, e in pairs)
        found = []
        for n, compared in self.compared.items():
            for key, symbol in self.symbols[n].data.items():
                (entry,) = symbol.factors()
                free = [rule.free for rule in self.rules]
                found.append(Gradient(entry, under(free, value), under(free, compared.returned.data[key])))
        return found

    def proves(self, code: Code, names: Sequence[str]) -> bool:
        """Whether other code for the same function is proved to compute these gradients."""
        proof = Proof(code, self.shapes, names, self.divisions, repairs=False)
        proof.try_to_run(0)
        return proof.verdict.verdict == "proved"

    def _suggestion(self, samples: Samples) -> list[str]:
        """A hypothesis that would make it right: that an argument without gradients sums to 1."""
        unequal = [(n, key) for n in samples.witnesses for key in self.compared[n].unequal]
        for name, s in self.specifications.items():
            if s.kind or s.sums or s.facts or name in self.compared or not s.dims or len(s.dims[-1]) != 1:
                continue
            size = str(s.dims[-1][0])
            rule = SumIs(name, size, Fraction(1))
            if all(self.is_equal(self.compared[n], key, [rule]) for n, key in unequal):
                shape = " ".join("*".join(map(str, d)) for d in s.dims)
                return [f'if Σ_{size} of {name} is 1, it is right: say {name}="{shape}, Σ_{size} = 1"']
        return []


def reason(error: Exception) -> tuple[str, str]:
    """The verdict that an error is, and why."""
    match error:
        case UndefinedError():
            return "undecided", f"no canonical form: {error}"
        case UnsupportedError():
            return "refused", f"{error} is not supported{texts.place_of(error)}"
        case ShapeError():
            return "refused", f"{error}{texts.place_of(error)}"
        case UnfollowedError():
            return "undecided", str(error)
    return "refused", f"the code raises {type(error).__name__}: {error}{texts.place_of(error)}"
