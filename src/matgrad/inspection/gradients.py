"""All gradients of a layer, compared with derivatives of ⟨G, Y⟩ by SymPy or in index notation."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

from matgrad.backends.base import Matrix, Scalar
from matgrad.inspection.equations import assignment
from matgrad.inspection.variables import Variable, Watch, drop_gradients
from matgrad.inspection.verdicts import Check, judged
from matgrad.layers.layer import Layer

if TYPE_CHECKING:
    from matgrad.judges.algebra import SymbolicAlgebra


def gradient_checks(layer: Layer, X: Matrix, algebra: SymbolicAlgebra) -> list[Check]:
    """The verdicts on the gradients of a layer with symbols in it and of its parts, in order of backpropagation."""
    run, cls, sizes = _Run(layer, X, algebra), type(layer), algebra.about
    if run.problem:
        where = assignment(cls, "feedforward", "Y")
        return [judged(cls, "Y", where.origin, sizes, f"is wrong: {run.problem}")]
    checks = []
    for V in run.watch.variables("", algebra.is_same):
        part = run.watch.parts[V.path]
        prefix = f"{cls.__name__}.{V.path} " if V.path else ""
        about = type(part), V.equation.name, V.equation.origin, sizes
        if V.problem:  # in evaluation mode a part may have nothing to do
            wrong, note = (f"is wrong: {V.problem}", "") if part.training else ("", V.problem)
            checks.append(judged(*about, wrong, prefix=prefix, note=note))
            continue
        own, symbols = run, V.value  # parameters and the input of the layer are symbols already
        if V.position is not None or (V.path and V.name == "X"):
            symbols = algebra.symbols(suffixed(V.name, V.path), *V.value.shape)
            own = _Run(layer, X, algebra, V, symbols)
        checks.append(algebra.verdict(*about, own.watch.gradient(V), algebra.gradient(own.value, symbols), prefix))
    return checks


class _Run:
    """One run of feedforward and backpropagate on a copy of a layer, in which V can be replaced by symbols."""

    def __init__(
        self, layer: Layer, X: Matrix, algebra: SymbolicAlgebra, V: Variable | None = None, symbols: Any = None
    ) -> None:
        layer, self.algebra = layer.clone(), algebra
        self.watch = Watch(dict(layer.walk()))
        self.G = algebra.symbols("G", X.shape[0], layer.output_size)
        changed = nullcontext() if V is None else self.watch.changed(V, lambda _: symbols)
        with self.watch.watching(), changed:
            self.Y = layer.feedforward(X)
            self.problem = algebra.problem_of(self.Y, self.G)
            if not self.problem:
                drop_gradients(layer)
                layer.backpropagate(self.Y, self.G)

    @cached_property
    def value(self) -> Scalar:
        """⟨G, Y⟩"""
        return self.algebra.pairing(self.G, self.Y)


def suffixed(name: str, path: str) -> str:
    """A name for symbols that is different for every part."""
    return f"{name}.{path}" if path else name
