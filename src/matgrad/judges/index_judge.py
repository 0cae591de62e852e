"""The judge for all sizes: matrices of symbolic sizes in index notation, and canonical forms of their entries.

What is right has the same canonical form on both sides; if the forms differ, nothing is known. How the sizes of
matrices in a layer depend on D and K is found by making it twice, with different D and K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any

from matgrad.activation_functions import ActivationFunction
from matgrad.index_notation import functions
from matgrad.index_notation.entries import FIRST, Entry
from matgrad.index_notation.expressions import Expression, Index, is_equal, of
from matgrad.index_notation.sums import summed
from matgrad.inspection.verdicts import Check
from matgrad.judges import claims
from matgrad.judges.algebra import MakeLayer, Subject, SymbolicAlgebra, attempts, made
from matgrad.judges.matrices import (
    IndexMatrix,
    Questions,
    Size,
    at,
    column,
    entry_of,
    gradient,
    indices_of,
    is_proved,
    jacobian,
    lifted,
    matrix,
    problem_of,
    row,
    symbols,
)
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import elements_sum, hadamard
from matgrad.program.shapes import size_name

SMALL, LARGE = {"D": 5, "K": 7}, {"D": 11, "K": 13}  # with which layers are made


class SymbolicSizes:
    """N, D and K, of which some may be 1, and what was asked about them."""

    def __init__(self, ones: frozenset[str] = frozenset()) -> None:
        self.ones, self.questions = ones, Questions()

    def __call__(self, name: str) -> Size | int:
        """The size of this name, or the number 1."""
        return 1 if name in self.ones else Size(name, self.questions)

    def of(self, small: int, large: int, what: str) -> Size | int:
        """The size that is `small` in the first layer that was made and `large` in the second."""
        if small == large:
            return 1 if small == 1 else self(f"C{small}")  # any other constant stands for all sizes
        for name in SMALL:
            if (small, large) == (SMALL[name], LARGE[name]):
                return self(name)
        raise ValueError(f"{what}: expected a size of 1, D or K, found {small} for {SMALL} and {large} for {LARGE}")


class Symbols(SymbolicAlgebra):
    """Symbols for the matrices and numbers of a layer, a loss or an activation function, in index notation.

    Symbols of different matrices have different names.
    """

    first, half = FIRST, Fraction(1, 2)
    exp, log, erf = functions.exp, functions.log, functions.erf
    sqrt, matrix = staticmethod(functions.sqrt), staticmethod(matrix)
    pieces = staticmethod(lambda left, x, right: (1 - functions.step(x)) * left + functions.step(x) * right)

    row, column = staticmethod(row), staticmethod(column)
    gradient, jacobian, at = staticmethod(gradient), staticmethod(jacobian), staticmethod(at)
    pairing = staticmethod(lambda G, Y: elements_sum(hadamard(G, Y)))
    as_matrix = staticmethod(lambda scalar: IndexMatrix((1, 1), scalar.entry))
    by_rows = staticmethod(lambda f, shape: matrix(shape, lambda i, j: f(i)[FIRST, j]))
    by_columns = staticmethod(lambda f, shape: matrix(shape, lambda i, j: f(j)[i, FIRST]))
    functions = staticmethod(
        lambda name, shape, x: IndexMatrix(shape, of(Entry(name, indices_of(shape), variable=entry_of(x).name)))
    )
    is_same = staticmethod(is_proved)

    def __init__(self, sizes: SymbolicSizes | None = None, keep_numbers: bool = False) -> None:
        self.sizes, self.keep_numbers = sizes or SymbolicSizes(), keep_numbers
        self.about = ", ".join(["all sizes", *(f"{name} = 1" for name in sorted(self.sizes.ones))])
        self.taken: set[str] = set()  # the names of symbols that no others may have

    def size(self, name: str) -> Size | int:
        """The size of this name, or 1."""
        return self.sizes(name)

    def symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> IndexMatrix:
        """An m×n matrix of symbols with this name, or a similar one if that is taken."""
        while name in self.taken:
            name += "'"
        return symbols(name, *shape, is_positive=is_positive)

    def own_symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> Any:
        """An m×n matrix of symbols whose name is taken from now on."""
        X = self.symbols(name, *shape, is_positive=is_positive)
        self.taken.add(entry_of(X).name)
        return X

    def made(self, make: MakeLayer) -> tuple[Layer, Layer]:
        """A small and a large layer."""
        return make(*SMALL.values()), make(*LARGE.values())

    def size_of(self, number: int, other: int, what: str) -> Size | int:
        """A name, or 1."""
        return self.sizes.of(number, other, what)

    # -- entries --------------------------------------------------------------------------------
    @staticmethod
    def number(x: Any) -> Expression:
        """A number, a size or a scalar as an expression."""
        return lifted(x).entry

    def is_one(self, size: Any) -> bool:
        """Whether a size is 1."""
        return size_name(size) == 1

    def sum(self, f: Callable[[Index], Expression], size: Any) -> Expression:
        """Σ_i f(i)"""
        return summed(f, str(size_name(size)))

    # -- matrices -------------------------------------------------------------------------------
    def total(self, f: Callable[[Index], IndexMatrix], size: Any) -> IndexMatrix:
        """Σ_i f(i)"""
        return IndexMatrix((), self.sum(lambda i: f(i).entry, size))

    def scaled(self, A: IndexMatrix, g: IndexMatrix) -> IndexMatrix:
        """A times the scalar in the 1×1 matrix g."""
        return IndexMatrix((), g.entry) * A

    @staticmethod
    def polynomials(p: Any, y: IndexMatrix) -> IndexMatrix:
        """g_i(y) = a_i + Σ_j b_ij·y_j + Σ_jk c_ijk·y_j·y_k"""
        m = str(size_name(y.shape[1] if y.rows == FIRST.size else y.shape[0]))

        def element(j: Index) -> Expression:
            return y[j, FIRST] if y.columns == FIRST.size else y[FIRST, j]

        def entry(i: Index, _: Index) -> Expression:
            linear = summed(lambda j: of(Entry("b", (i, j))) * element(j), m)
            square = summed(lambda j: summed(lambda k: of(Entry("c", (i, j, k))) * element(j) * element(k), m), m)
            return of(Entry("a", (i,))) + linear + square

        return matrix((p, 1), entry)

    @staticmethod
    def problem_of(found: Any, expected: Any) -> str:
        """Why a matrix cannot be another, or a scalar an entry; '' if it can."""
        return problem_of(found, IndexMatrix((), expected) if isinstance(expected, Expression) else expected)

    @staticmethod
    def compared(found: Any, expected: Any) -> tuple[str, str]:
        """Whether the canonical forms of the entries are the same."""
        expected = IndexMatrix((), expected) if isinstance(expected, Expression) else expected
        problem = problem_of(found, expected)
        if not problem and not is_equal(found.entry, expected.entry):
            problem = f"the canonical forms of the entries differ\n  found     {found}\n  expected  {expected}"
        return "proof", f"is not proved: {problem}" if problem else ""


def verdicts(subject: Subject) -> list[Check]:
    """The verdicts for all sizes.

    If the code asks whether a size is 1, there are more for sizes of 1, and the first are for the others. If it asks
    anything else about a size, nothing is proved. A lemma needs no more: it is about matrices for which both sides are
    defined, and a variance of one example has no inverse.
    """
    sizes = SymbolicSizes()
    checks = _answered(subject, sizes)
    for ones in () if subject.claims == claims.of_lemma else subsets(sizes.questions.ones):
        checks += _answered(subject, SymbolicSizes(ones))
    return checks


def _answered(subject: Subject, sizes: SymbolicSizes) -> list[Check]:
    """The verdicts, none of which is right if the code asks about sizes what has no answer for all of them."""
    checks = attempts(subject, lambda keep_numbers: Symbols(sizes, keep_numbers))
    if questions := sizes.questions.others:
        reason = f"the code asks whether {questions[0]}, and so it differs from size to size"
        return [replace(x, ok=False, message=f"{x.name} is not proved: {reason}\n  in {x.location}") for x in checks]
    return checks


def subsets(names: set[str]) -> Iterator[frozenset[str]]:
    """The subsets that are not empty."""
    for number in range(1, len(names) + 1):
        yield from map(frozenset, combinations(sorted(names), number))


# -- user-defined classes -----------------------------------------------------------------------


def prove_layer(make: MakeLayer, *, training: bool = True) -> list[Check]:
    """Every gradient of the layer make(D, K), for all sizes, and its values if the layer is one of the package.

    `make` may be the class of a layer.
    """
    name = getattr(make, "__name__", "layer")
    return verdicts(Subject(name, claims.of_layer, partial(made, make, training)))


def prove_activation(act: ActivationFunction) -> list[Check]:
    """f(X) against its definition, and f'(X) against the derivatives of f, for all sizes."""
    return verdicts(Subject(type(act).__name__, claims.of_activation, lambda: act))


def prove_loss(loss: LossFunction) -> list[Check]:
    """The value of a loss against its definition, its gradients against derivatives, and whether it is a mean."""
    return verdicts(Subject(type(loss).__name__, claims.of_loss, lambda: loss))


def prove_softmax(name: str) -> list[Check]:
    """A softmax function against its definition, and its Jacobian against the derivatives, for all sizes."""
    return verdicts(Subject(name, claims.of_softmax, name))
