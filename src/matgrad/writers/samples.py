"""Numbers: the model against the code, and gradients against finite differences of the code."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from itertools import product as combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.index_notation.expressions import Entry
from matgrad.index_notation.values import Array
from matgrad.writers.sizes import QUESTIONS, ShapeError, Size, UnsupportedError, distances
from matgrad.writers.specifications import Specification, part_values
from matgrad.writers.subjects import Code, RefutedError, Run
from matgrad.writers.tensors import Tensor, gradient
from matgrad.writers.texts import place_of
from matgrad.writers.verdicts import Witness

if TYPE_CHECKING:
    from matgrad.writers.proof import Proof

SAMPLES, MORE_SAMPLES = 2, 6  # sizes and values that are tried; more if they do not tell two forms apart
STEP = 1e-6  # of finite differences


class Samples:
    """Runs of a proof's code on numbers: `problems` are where the model is wrong, `witnesses` where the code is."""

    def __init__(self, proof: Proof) -> None:
        self.proof, self.problems = proof, list[str]()
        self.witnesses: dict[str, Witness] = {}
        self.names = sorted({a for s in proof.specifications.values() for a in s.names})
        self.fixed = proof.code.sizes({n: s.dims for n, s in proof.specifications.items()})

    def sizes(self, seed: int) -> dict[str, int]:
        """Different sizes, for which the answers to the code's questions hold."""
        rng = np.random.default_rng(seed)
        for most in (4, 4, 4, 5, 6, 8, 12, 16):
            ranges = [[self.fixed[n]] if n in self.fixed else range(2, most + 1) for n in self.names]
            values = list(islice(combinations(*ranges), 20000))
            rng.shuffle(values)
            for found in sorted(values, key=lambda v: -len(set(v))):
                sizes = {n: int(v) for n, v in zip(self.names, found, strict=True)}
                if self.admits(sizes):
                    return sizes
        raise UnsupportedError("no small sizes for which the answers hold that the code was given: numbers")

    def admits(self, sizes: Mapping[str, int], is_small: bool = False) -> bool:
        """Whether answers to the code hold, there are such arguments, and forms hold, unless sizes are small."""
        asked = [q for q in [*QUESTIONS.get(), *distances()] if not (is_small and q.above)]
        known = [*(q.agrees for q in asked), *(s.admits for s in self.proof.specifications.values())]
        return all(agrees(sizes) for agrees in known)

    def arguments(self, seed: int) -> tuple[dict[str, int], dict[str, Any]]:
        """Sizes and arguments."""
        sizes = self.sizes(seed)
        return sizes, self.numbers(sizes, seed)

    def numbers(self, sizes: Mapping[str, int], seed: int, change: Callable[[Array], Array] = np.asarray) -> Any:
        """Arguments of these sizes, of which those are changed that can be any numbers."""
        rng = np.random.default_rng(seed)

        def number(n: str, s: Specification) -> Any:
            x = s.sample(sizes, rng)
            x = change(x) if not s.kind and not s.sums and not s.facts else x
            return float(x) if s.kind == ">0" and not s.dims else x

        return self.proof.arguments(number)

    def entries(self, sizes: Mapping[str, int]) -> int:
        """The number of entries of all arguments."""
        return sum(math.prod(Size(d).value(sizes) for d in s.dims) for s in self.proof.specifications.values())

    def given(self, run: Run, seed: int) -> list[Array]:
        """Gradients of the outputs."""
        rng = np.random.default_rng(seed + 1000)
        return [np.asarray(np.round(rng.normal(size=np.shape(y)), 2)) for y in run.outputs]

    def run(self) -> None:
        """As many samples as it takes."""
        unequal = {n for n, c in self.proof.compared.items() if c.unequal}
        for seed in range(MORE_SAMPLES):
            if self.problems or (seed >= SAMPLES and unequal <= set(self.witnesses)):
                return
            with np.errstate(all="ignore"):
                self._sample(seed)

    def witness(self) -> Witness:
        """The first."""
        return next(iter(self.witnesses.values()))

    def _sample(self, seed: int) -> None:
        proof, code = self.proof, self.proof.code
        sizes, arguments = self.arguments(seed)
        try:
            run = code.run(_copied(arguments), numeric=True)
            gs = self.given(run, seed)
            returned = run.gradients([g.copy() for g in gs])
        except (UnsupportedError, ShapeError, RefutedError):
            raise
        except Exception as error:
            self.problems.append(f"the code raises {type(error).__name__} with numbers: {error}{place_of(error)}")
            return
        values = self.values(sizes, arguments, gs)
        self._outputs(run, values, sizes)
        for n, found in proof.compared.items():
            real = summed_as(np.asarray(returned[n], float), np.shape(arguments[n]))
            true = found.true.numeric(values, sizes)
            self._model(f"∂/∂{n}", found.returned.numeric(values, sizes), real, sizes)
            self._check(n, true, arguments, gs)
            wrong = np.argwhere(~np.isclose(real, true, rtol=1e-6, atol=1e-7 * (1 + np.abs(true).max(initial=0))))
            if len(wrong) and n not in self.witnesses:
                place = max(map(tuple, wrong), key=lambda p: abs(real[p] - true[p]))
                self.witnesses[n] = Witness(
                    sizes, arguments, gs, n, tuple(map(int, place)), float(real[place]), float(true[place])
                )

    def values(self, sizes: Mapping[str, int], arguments: Mapping[str, Any], gs: Sequence[Array]) -> dict[str, Array]:
        """What symbols stand for, by the names of their entries."""
        values: dict[str, Array] = {}
        for n, s in self.proof.specifications.items():
            if s.kind.startswith("<"):
                values[n] = arguments[n]
            elif s.kind != "=":
                values |= part_values(n, s.dims, arguments[n], sizes)
        for symbol, g, y in zip(self.proof.gs, gs, self.proof.outputs, strict=True):
            values |= part_values(g_name(symbol), y.dims, g, sizes)
        return values

    def _outputs(self, run: Run, values: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Whether outputs are those of the model."""
        for number, (y, real) in enumerate(zip(self.proof.outputs, run.outputs, strict=True)):
            self._model(f"output {number}", y.numeric(values, sizes), real, sizes)

    def _model(self, what: str, model: Array, real: Any, sizes: Mapping[str, int]) -> None:
        """Whether index notation has the numbers that the code has."""
        real = np.asarray(real, float)
        if model.shape != real.shape:
            self.problems.append(
                f"{what}: the model has shape {model.shape}, and the code {real.shape}, for {dict(sizes)}"
            )
        elif not np.allclose(model, real, rtol=1e-6, atol=1e-8 * (1 + np.abs(real).max(initial=0))):
            self.problems.append(
                f"{what}: the model and the code differ by {np.abs(model - real).max():.2g}, for {dict(sizes)}"
            )

    def output(self, arguments: Mapping[str, Any], gs: Sequence[Array]) -> float:
        """Σ g·y"""
        ys = self.proof.code.run(_copied(arguments), numeric=True).outputs
        return sum(float(np.sum(g * np.asarray(y, float))) for g, y in zip(gs, ys, strict=True))

    def difference(self, n: str, direction: Array, arguments: Mapping[str, Any], gs: Sequence[Array]) -> list[float]:
        """The derivative of Σ g·y in a direction, with two steps."""

        def slope(h: float) -> float:
            above, below = ({**arguments, n: arguments[n] + x * direction} for x in (h, -h))
            return (self.output(above, gs) - self.output(below, gs)) / (2 * h)

        return [slope(STEP), slope(10 * STEP)]

    def _check(self, n: str, true: Array, arguments: Mapping[str, Any], gs: Sequence[Array]) -> None:
        """Whether what is called true is the derivative of the code's output, in a random direction."""
        direction = np.random.default_rng(7).normal(size=np.shape(arguments[n]))
        expected = float(np.sum(direction * true))
        found = self.difference(n, direction, arguments, gs)
        if not min(abs(x - expected) for x in found) < 1e-4 * (1 + float(np.abs(direction * true).sum())):
            self.problems.append(f"∂/∂{n}: the engine says {expected:.6g}, and finite differences {found[0]:.6g}")

    def agreeing(self, names: Sequence[str]) -> Callable[[Code], bool]:
        """Whether other code for gradients returns the right ones, in one sample."""
        proof = self.proof
        sizes, arguments = self.arguments(0)
        gs = self.given(proof.code.run(_copied(arguments), numeric=True), 0)
        values = self.values(sizes, arguments, gs)
        true = {n: gradient(proof.symbols[n], proof.outputs, proof.gs).numeric(values, sizes) for n in names}

        def agrees(code: Code) -> bool:
            with np.errstate(all="ignore"), warnings.catch_warnings(), contextlib.suppress(Exception):  # many fail
                warnings.simplefilter("ignore")
                returned = code.run(_copied(arguments), numeric=True).gradients([g.copy() for g in gs])
                return all(np.allclose(np.asarray(returned[n], float), x, rtol=1e-6) for n, x in true.items())
            return False

        return agrees

    def refutation_of_small(self, names: Sequence[str]) -> list[str]:
        """Why the code is wrong for sizes that are too small for the forms which are equal for all greater ones.

        Where slices are empty, that it is, or fails, is only said.
        """
        limits = [q.above for q in [*QUESTIONS.get(), *distances()] if q.above and q.above[0] in self.names]
        empty = [q.above for q in QUESTIONS.get() if q.above]
        for size in dict(limits):
            for n in range(1, max(most for a, most in limits if a == size) + 1):
                sizes = self.sizes(0) | {size: n}
                if not self.admits(sizes, is_small=True):
                    continue
                found = self._of_small(names, sizes)
                if found and not any(a == size and n <= most for a, most in empty):
                    return found
                name, more = self.proof.divisions.given(size)
                said = found[0] if found else "right by finite differences"
                self.proof.verdict.tested.append(f"{name} = {n - more}: tested, not proved: {said}")
        return []

    def _of_small(self, names: Sequence[str], sizes: dict[str, int]) -> list[str]:
        """Why the code is wrong for some sizes, or has no numbers there."""
        try:
            with np.errstate(all="ignore"):
                outputs = self.proof.code.run(self.numbers(sizes, 0), numeric=True).outputs
                is_number = all(np.isfinite(np.asarray(y, float)).all() for y in outputs)
                return self.refutation(0, names, sizes) if is_number else ["the output is not a number"]
        except Exception as error:
            return [f"the code raises {type(error).__name__}: {error}{place_of(error)}"]

    def refutation(self, seed: int, names: Sequence[str], sizes: dict[str, int] | None = None) -> list[str]:
        """Why the code is wrong, by its numbers alone: it fails, or differs from finite differences in some entry."""
        is_small = sizes is not None
        sizes = sizes or self.sizes(seed)
        arguments = self.numbers(sizes, seed)
        shown = ", ".join(f"{n} = {x}" for n, x in sizes.items()) or "numbers"
        run = self.proof.code.run(_copied(arguments), numeric=True)
        gs, known = self.given(run, seed), len(self.problems)
        if not is_small:
            self._outputs(run, self.values(sizes, arguments, gs), sizes)
        if any(x.startswith("output") for x in self.problems):  # finite differences would be those of another function
            del self.problems[known:]
            return []
        try:
            returned = run.gradients([g.copy() for g in gs])
        except RefutedError as error:
            return [f"with {shown} {error}"]
        except Exception as error:
            return [f"with {shown} backward raises {type(error).__name__}: {error}{place_of(error)}"]
        for n in (n for n in names if returned[n] is not None):
            real, shape = np.asarray(returned[n], float), np.shape(arguments[n])
            if not (fits(real.shape, shape) if self.proof.code.sums_gradients else real.shape == shape):
                return [f"with {shown} ∂/∂{n} has shape {real.shape}, and {n} {shape}"]
            real = summed_as(real, shape)
            for place in np.ndindex(*shape):
                direction = np.zeros(shape)
                direction[place] = 1
                slopes = self.difference(n, direction, arguments, gs)
                if abs(slopes[0] - slopes[1]) < 1e-4 and not min(abs(x - real[place]) for x in slopes) < 1e-2:
                    self.witnesses[n] = Witness(sizes, arguments, gs, n, place, float(real[place]), slopes[0])
                    return [f"by finite differences, with {self.witnesses[n]}"]
        return []


def g_name(g: Tensor) -> str:
    """The name of a gradient of an output."""
    ((m, _),) = next(iter(g.data.values())).terms.items()
    factor = m[0][0]
    assert isinstance(factor, Entry)
    return factor.name.partition(".")[0]


def _copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in arguments.items()}


def fits(d: tuple[int, ...], x: tuple[int, ...]) -> bool:
    """Whether autograd takes a gradient of shape d for an argument of shape x."""
    n = len(d) - len(x)
    return n >= 0 and all(b in (1, a) for a, b in zip(d[n:], x, strict=True))


def summed_as(x: Array, shape: tuple[int, ...]) -> Array:
    """A gradient, summed as autograd does it."""
    x = x.sum(tuple(range(x.ndim - len(shape)))) if x.ndim > len(shape) else x
    return x.sum(tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1), keepdims=True)
