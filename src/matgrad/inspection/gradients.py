"""All gradients of a layer, compared with derivatives of ⟨G, Y⟩ by SymPy or in index notation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Protocol

from matgrad.backends.base import Matrix, Scalar
from matgrad.inspection.equations import assignment
from matgrad.inspection.variables import Variable, Watch, drop_gradients
from matgrad.inspection.verdicts import Check, judged
from matgrad.layers.layer import Layer


class Calculus(Protocol):
    """Matrices of symbols, and derivatives with respect to them."""

    def symbols(self, name: str, m: Any, n: Any) -> Matrix:
        """An m×n matrix of symbols."""

    def pairing(self, G: Matrix, Y: Matrix) -> Scalar:
        """⟨G, Y⟩ = Σ_ij g_ij·y_ij"""

    def gradient(self, value: Scalar, V: Matrix) -> Matrix:
        """∇_V of a scalar, for a matrix V of symbols."""

    def is_same(self, A: Matrix, B: Matrix) -> bool:
        """Whether two matrices are the same."""

    def problem_of(self, found: Any, expected: Matrix) -> str:
        """Why they cannot be equal for any values of the symbols; '' if they can."""


def gradient_checks(
    layer: Layer, X: Matrix, calculus: Calculus, sizes: str, verdict: Callable[..., Check]
) -> list[Check]:
    """The gradients of a layer with symbols in it and of its parts, in order of backpropagation.

    ``verdict(class, name, origin, sizes, found, expected, prefix)`` compares a gradient with what it should be.
    """
    run, cls = _Run(layer, X, calculus), type(layer)
    if run.problem:
        where = assignment(cls, "feedforward", "Y")
        return [judged(cls, "Y", where.origin, sizes, f"is wrong: {run.problem}")]
    checks = []
    for V in run.watch.variables("", calculus.is_same):
        part = run.watch.parts[V.path]
        prefix = f"{cls.__name__}.{V.path} " if V.path else ""
        about = type(part), V.equation.name, V.equation.origin, sizes
        if not V.problem:
            checks.append(verdict(*about, *_sides(run, layer, X, V), prefix))
        elif part.training:
            checks.append(judged(*about, f"is wrong: {V.problem}", prefix=prefix))
        else:  # in evaluation mode a part may have nothing to do
            checks.append(judged(*about, "", prefix=prefix, note=V.problem))
    return checks


def _sides(run: _Run, layer: Layer, X: Matrix, V: Variable) -> tuple[Any, Matrix]:
    """DV as the layer computes it, and as it is derived.

    Parameters and the input of the layer are symbols already; another V is replaced by symbols in a run of its own.
    """
    symbols = V.value
    if V.position is not None or (V.path and V.name == "X"):
        symbols = run.calculus.symbols(suffixed(V.name, V.path), *V.value.shape)
        run = _Run(layer, X, run.calculus, V, symbols)
    return run.watch.gradient(V), run.calculus.gradient(run.value, symbols)


class _Run:
    """One run of feedforward and backpropagate on a copy of a layer, in which V can be replaced by symbols."""

    def __init__(
        self, layer: Layer, X: Matrix, calculus: Calculus, V: Variable | None = None, symbols: Matrix | None = None
    ) -> None:
        layer, self.calculus = layer.clone(), calculus
        self.watch = Watch(dict(layer.walk()))
        self.G = calculus.symbols("G", X.shape[0], layer.output_size)
        changed = nullcontext() if V is None else self.watch.changed(V, lambda _: symbols)
        with self.watch.watching(), changed:
            self.Y = layer.feedforward(X)
            self.problem = calculus.problem_of(self.Y, self.G)
            if not self.problem:
                drop_gradients(layer)
                layer.backpropagate(self.Y, self.G)

    @cached_property
    def value(self) -> Scalar:
        """⟨G, Y⟩"""
        return self.calculus.pairing(self.G, self.Y)


def suffixed(name: str, path: str) -> str:
    """A name for symbols that is different for every part."""
    return f"{name}.{path}" if path else name
