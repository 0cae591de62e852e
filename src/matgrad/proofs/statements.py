"""Statements of the paper as objects: steps, each with two matrices that must be equal, and the verdict on them.

A statement is written once, over the table of operations and an `Algebra`, which proves it for all
sizes; that of `matgrad.symbolic.derivatives` checks it at fixed sizes with SymPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from matgrad.index_notation.entries import FIRST, DependentEntry, Entry
from matgrad.index_notation.expressions import Expression, Index, of
from matgrad.index_notation.sums import summed
from matgrad.inspection.equations import relative_path
from matgrad.inspection.verdicts import Check
from matgrad.matrix_operations import elements_sum, hadamard
from matgrad.program.shapes import size_name
from matgrad.proofs.matrices import (
    METHOD,
    IndexMatrix,
    Size,
    at,
    column,
    entry_of,
    gradient,
    indices_of,
    is_proved,
    jacobian,
    matrix,
    problem_of,
    row,
    symbols,
)


class Step(NamedTuple):
    """left = right, with a text: the reason, or the equation itself."""

    text: str
    left: Any
    right: Any


class Algebra:
    """What statements are written with: matrices of symbols and their derivatives, in index notation, for all sizes."""

    symbols: Callable[..., Any] = staticmethod(symbols)
    row: Callable[[Any, Any], Any] = staticmethod(row)
    column: Callable[[Any, Any], Any] = staticmethod(column)
    gradient: Callable[[Any, Any], Any] = staticmethod(gradient)
    jacobian: Callable[[Any, Any], Any] = staticmethod(jacobian)
    at: Callable[[Any, Any, Any], Any] = staticmethod(at)
    problem_of: Callable[[Any, Any], str] = staticmethod(problem_of)
    is_same: Callable[[Any, Any], bool] = staticmethod(is_proved)

    def size(self, name: str, number: int) -> Any:
        """A size, which has a name here; the number is for judges that need one."""
        return Size(name)

    def functions(self, name: str, shape: Any, x: Any) -> Any:
        """A matrix of unknown functions of x."""
        return IndexMatrix(shape, of(DependentEntry(name, indices_of(shape), entry_of(x).name)))

    def polynomials(self, p: Any, y: Any) -> Any:
        """g_i(y) = a_i + Σ_j b_ij·y_j + Σ_jk c_ijk·y_j·y_k"""
        m = str(size_name(y.shape[1] if y.rows == FIRST.size else y.shape[0]))

        def element(j: Index) -> Expression:
            return y[j, FIRST] if y.columns == FIRST.size else y[FIRST, j]

        def entry(i: Index, _: Index) -> Expression:
            linear = summed(lambda j: of(Entry("b", (i, j))) * element(j), m)
            square = summed(
                lambda j: summed(lambda k: of(Entry("c", (i, j, k))) * element(j) * element(k), m),
                m,
            )
            return of(Entry("a", (i,))) + linear + square

        return matrix((p, 1), entry)

    def pairing(self, G: Any, Y: Any) -> Any:
        """⟨G, Y⟩ = Σ_ij g_ij·y_ij"""
        return elements_sum(hadamard(G, Y))

    def matrix(self, scalar: Any) -> Any:
        """The 1×1 matrix of a scalar."""
        return IndexMatrix((1, 1), scalar.entry)

    def scaled(self, A: Any, g: Any) -> Any:
        """A times the scalar in the 1×1 matrix g."""
        return IndexMatrix((), g.entry) * A

    def by_rows(self, f: Callable[[Any], Any], shape: Any) -> Any:
        """The matrix with the rows f(i)."""
        return matrix(shape, lambda i, j: f(i)[FIRST, j])

    def by_columns(self, f: Callable[[Any], Any], shape: Any) -> Any:
        """The matrix with the columns f(j)."""
        return matrix(shape, lambda i, j: f(j)[i, FIRST])

    def judge(self, step: Step) -> tuple[str, str]:
        """The method by which both sides were compared, and what is wrong; '' if nothing is."""
        return METHOD, "" if is_proved(*step[1:]) else f"\n  left   {step.left}\n  right  {step.right}"


@dataclass(frozen=True)
class Lemma:
    """A lemma, property or derivation of the paper, with a function that yields its steps in an algebra."""

    name: str
    label: str  # in the paper: of the equation, or of its section if the equation has none
    function: Callable[..., Iterable[Step]]
    sizes: dict[str, int]  # their names, each with a number for judges that need one

    @classmethod
    def of(cls, function: Callable[..., Iterable[Step]], label: str, **sizes: int) -> Lemma:
        """The lemma whose steps the function yields, with the function's name."""
        return cls(function.__name__.replace("_", " "), label, function, sizes)

    def steps(self, algebra: Algebra) -> Iterable[Step]:
        """The steps, in an algebra."""
        return self.function(algebra, **{name: algebra.size(name, number) for name, number in self.sizes.items()})


def judge_lemma(lemma: Lemma, algebra: Algebra, sizes: str, failed: str) -> Check:
    """The verdict on a lemma; the message is about the first step that does not hold."""
    file, (_, line) = inspect.getsourcefile(lemma.function) or "", inspect.getsourcelines(lemma.function)
    location, source = f"{relative_path(file)}:{line}", (inspect.getdoc(lemma.function) or "").partition("\n")[0]
    methods, problem = [], ""
    for number, step in enumerate(lemma.steps(algebra), 1):
        method, problem = algebra.judge(step)
        methods.append(method)
        if problem:
            problem = f"step {number} ({step.text}) {problem}"
            break
    if not methods:
        problem = "it has no steps"
    message = f"{lemma.name} {failed}: {problem}\n  in {location}: {source}" if problem else ""
    method = max(methods, default="none")  # 'points' is above 'algebra'
    return Check(lemma.name, location, lemma.label, sizes, method, not problem, message, source)


def chain(start: Any, *links: tuple[str, Any]) -> Iterator[Step]:
    """start = A_1 = A_2 = …, one step for each equality; the links are pairs (text, A_i)."""
    for text, A in links:
        yield Step(text, start, A)
        start = A


def prove_lemma(lemma: Lemma) -> Check:
    """The verdict on a lemma for all sizes."""
    return judge_lemma(lemma, Algebra(), "all sizes", "is not proved")
