"""The judge for all sizes: matrices of symbolic sizes in index notation, and canonical forms of their entries.

What is right has the same canonical form on both sides; if the forms differ, nothing is known. How the sizes of
matrices in a layer depend on D and K is found by making it twice, with different D and K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.numbers import as_number
from matgrad.index_notation import functions
from matgrad.index_notation.expressions import Entry, Expression, Factor, is_equal, of, total
from matgrad.index_notation.indices import FIRST, Index, joined, new_index
from matgrad.index_notation.rules import folded
from matgrad.index_notation.sums import summed
from matgrad.inspection.settings import SET_BY_MODELS, is_of_users, of_class, settings, texts
from matgrad.inspection.verdicts import Check, suffixed
from matgrad.judges import claims
from matgrad.judges.algebra import MakeLayer, Subject, SymbolicAlgebra, attempt, for_equal_sizes, made, shape_problem
from matgrad.judges.constructors import LARGE, SMALL, Given, check_type
from matgrad.judges.definitions import ArbitraryActivation
from matgrad.judges.doubts import RUNS, doubt
from matgrad.layers.base import layers_in
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.program.entries import SYMBOLIC, IndexMatrix, indices_of, lifted, symbols
from matgrad.program.shapes import Questions, Shape, Size, size_name

T = TypeVar("T")
NUMBERS = ("any", "positive", "kept")  # what those that a class keeps stand for, until a proof is found
OF_DROPOUT = ("seed", "renewals", "renew", "output")  # what layers of the package keep, and no proof depends on
MANY = 20  # answers of a constructor, with which a verdict would be for hardly any sizes


def entry_of(V: IndexMatrix) -> Entry:
    """v_ij, for a matrix V of symbols"""
    match [*V.entry.terms.items()]:
        case [(((Entry() as entry, 1),), 1)]:
            return entry
    raise ValueError(f"expected a matrix of symbols, found {V}")


def matrix(shape: Shape, entry: Callable[..., Expression]) -> IndexMatrix:
    """The matrix of this shape with the entries entry(i, j), for which other matrices may be computed."""
    own = indices_of(shape)
    new = [new_index(i.size) for i in own]  # those of other matrices have the same names as its own
    return IndexMatrix(shape, entry(*new).substituted(dict(zip(new, own, strict=True))))


def put(e: Expression, V: IndexMatrix, value: IndexMatrix) -> Expression:
    """e with the entries of a matrix, of the same size, for the symbols V."""
    own = entry_of(V)

    def rule(f: Factor) -> Expression | None:
        if not isinstance(f, Entry) or f != own.at(*f.indices):
            return None
        return value.entry.substituted(dict(zip(own.indices, f.indices, strict=True)))

    return e.mapped(rule)


def gradient(value: IndexMatrix, V: IndexMatrix) -> IndexMatrix:
    """∇_V of a scalar, for a matrix V of symbols."""
    return IndexMatrix(V.shape, slope_of(value, V)[1])


def slope_of(W: IndexMatrix, V: IndexMatrix) -> tuple[tuple[Index, ...], Expression]:
    """New indices k, l, and ∂w_kl/∂v_ij, for a matrix V of symbols."""
    at = tuple(new_index(i.size) for i in W.indices)
    return at, W.entry.substituted(dict(zip(W.indices, at, strict=True))).derivative(entry_of(V).at(*V.indices))


def chained(steps: Iterable[tuple[IndexMatrix, IndexMatrix, IndexMatrix | None]], V: IndexMatrix) -> IndexMatrix:
    """The chain rule: Σ_w Σ_kl dw_kl·∂w_kl/∂v_ij, for steps (DW, W, symbols for W that are put into its slopes)."""
    terms = []
    for DW, W, w in steps:
        at, slope = slope_of(W, V)
        slope = slope if w is None else folded(slope, entry_of(w), W.entry)
        terms.append(_summed_over(at, DW.entry.substituted(dict(zip(DW.indices, at, strict=True))) * slope))
    return IndexMatrix(V.shape, total(terms))


def _summed_over(indices: tuple[Index, ...], e: Expression) -> Expression:
    """Σ_kl e"""
    k = joined(*indices)
    return summed(lambda n: e.substituted({k: n}), k.size)


def jacobian(y: IndexMatrix, x: IndexMatrix) -> IndexMatrix:
    """∂y/∂x, the matrix with the entries ∂y_i/∂x_j, for row or column vectors y and x; x consists of symbols."""
    (m, i), (n, j) = (_axis(v) for v in (y, x))
    entry, k = entry_of(x), new_index(j.size)
    slope = y.entry.derivative(entry.at(k))
    return matrix((m, n), lambda row, column: slope.substituted({i: row, k: column}))


def _axis(v: IndexMatrix) -> tuple[Any, Index]:
    """The size of a vector, and the index of its elements."""
    if v.rows != FIRST.size and v.columns != FIRST.size:
        raise ValueError(f"expected a row or a column vector, found a matrix of shape {v.shape}")
    axis = 0 if v.columns == FIRST.size else 1
    return v.shape[axis], v.indices[axis]


def problem_of(found: Any, expected: Any) -> str:
    """Why a matrix cannot be another, or a scalar an entry; '' if it can."""
    expected = IndexMatrix((), expected) if isinstance(expected, Expression) else expected
    return shape_problem(found, expected, IndexMatrix, "in index notation")


def is_proved(A: IndexMatrix, B: IndexMatrix) -> bool:
    """Whether A = B for all sizes: the canonical forms of their entries are equal. If not, nothing is known."""
    return not problem_of(A, B) and is_equal(A.entry, B.entry)


class Symbols(SymbolicAlgebra):
    """Symbols for the matrices and numbers of a layer, a loss or an activation function, in index notation.

    Sizes have names, except `ones`, which are 1; `questions` has what was asked about them. Symbols of different
    matrices have different names.
    """

    method, first, half = "proof", FIRST, Fraction(1, 2)
    exp, log, erf = functions.exp, functions.log, functions.erf
    sqrt, matrix = staticmethod(functions.sqrt), staticmethod(matrix)
    number = staticmethod(lambda x: lifted(x).entry)
    is_one = staticmethod(lambda size: size_name(size) == 1)
    sum = staticmethod(lambda f, size: summed(f, str(size_name(size))))
    total = staticmethod(lambda f, size: IndexMatrix((), summed(lambda i: f(i).entry, str(size_name(size)))))
    pieces = staticmethod(lambda left, x, right: (1 - functions.step(x)) * left + functions.step(x) * right)

    row = staticmethod(lambda X, i: matrix((1, X.shape[1]), lambda _, j: X[i, j]))
    gradient, jacobian = staticmethod(gradient), staticmethod(jacobian)
    at = staticmethod(lambda A, V, value: IndexMatrix(A.shape, put(A.entry, V, value)))
    functions = staticmethod(
        lambda name, shape, x: IndexMatrix(shape, of(Entry(name, indices_of(shape), variable=entry_of(x).name)))
    )
    is_same = staticmethod(is_proved)

    def __init__(
        self, ones: frozenset[str] = frozenset(), numbers: str = "positive", questions: Questions | None = None
    ) -> None:
        self.ones, self.kind, self.questions = ones, numbers, questions or Questions()
        self.keep_numbers = numbers == "kept"
        self.given: dict[str, str] = {}  # what stays as it is, and what constructors found out about sizes
        self.signs: dict[str, str] = {}  # which numbers stand for positive ones only
        self.about = ", ".join(["all sizes", *(f"{name} = 1" for name in sorted(ones))])
        self.taken: set[str] = set()  # the names of symbols that no others may have

    def size(self, name: str) -> Size | int:
        return 1 if name in self.ones else Size(name, self.questions)

    def symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> IndexMatrix:
        while name in self.taken:
            name += "'"
        return symbols(name, *shape, is_positive=is_positive)

    def own_symbols(self, name: str, *shape: Size | int, is_positive: bool = False) -> Any:
        X = self.symbols(name, *shape, is_positive=is_positive)
        self.taken.add(entry_of(X).name)
        return X

    def made(self, make: MakeLayer) -> tuple[Layer, Layer]:
        layers, answers = [], []
        for sizes in (SMALL, LARGE):
            answers.append(list[str]())
            given = [Given(n, name, self.questions, answers[-1]) for name, n in sizes.items()]
            D, K = (1 if n.name in self.ones else n for n in given)
            layers.append(for_equal_sizes(make)(D, K))
        self.given |= dict.fromkeys(answers[0], "")
        if answers[0] != answers[1] or len(answers[0]) > MANY:
            asked = next((x for x in answers[0] if x not in answers[1]), f"{len(answers[0])} things about sizes")
            self.questions.others.append(f"in a constructor whether {asked}")
        small, large = layers
        return small, large

    def layer(self, make: MakeLayer, *, training: bool | None = None) -> Layer:
        layer = super().layer(make, training=training)
        for path, part in layer.walk():
            for name, value in of_class(type(part))[0].items():
                self._keep(suffixed(name, path), value, None)
            if path and is_of_users(type(part)):
                self.given[f"part {path}"] = type(part).__name__
        return layer

    def numbers(self, thing: T, other: T | None = None, prefix: str = "") -> T:
        clone = super().numbers(thing, other, prefix)
        for name, value in vars(thing).items():
            if isinstance(value, np.ndarray) and not is_of_users(type(thing)):
                continue  # its layer sets it for every batch
            check_type(prefix + name, value)
            if vars(clone)[name] is value and not isinstance(thing, ArbitraryActivation):
                self._keep(prefix + name, value, vars(other or thing)[name])
        for name, value in of_class(type(thing))[0].items():
            self._keep(prefix + name, value, None)
        return clone

    def _number(self, name: str, value: float, other: Any) -> Any:
        if not value or (self.keep_numbers and value == other):
            return value
        is_positive = value > 0 and self.kind != "any"
        if is_positive:
            self.signs[f"{name} > 0"] = ""
        return self.own_symbols(name, is_positive=is_positive)

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        check_type(f"{type(part).__name__}.{name}", value)
        value, other = as_number(value), as_number(other)
        found = super()._attribute(part, name, value, other)
        own = name.partition(".")[0]
        if own in (*SET_BY_MODELS, *part.batch_matrices) or (own in OF_DROPOUT and not is_of_users(type(part))):
            return found
        if found is value:
            self._keep(name, value, other)
        elif type(value) is int:  # it may be a size for other reasons
            self.given[name] = str(size_name(found))
        return found

    def _keep(self, name: str, value: Any, other: Any) -> None:
        """Note what stays as it is, and must be the same in the layer of other sizes."""
        found, like = (list(settings(name, x, {*map(id, layers_in(x))})) for x in (value, other))
        self.given |= {x.name: x.text for x in found if x.is_named}
        if other is not None and texts(found) != texts(like):
            raise TypeError(f"{name} depends on the sizes: expected a size, a matrix or a number")

    def size_of(self, number: int, other: int, what: str) -> Size | int:
        """The name of a size that is one number in the small layer and another in the large one, or 1."""
        if number == other:
            return 1 if number == 1 else self.size(f"C{number}")  # any other constant stands for all sizes
        for name in SMALL:
            if (number, other) == (SMALL[name], LARGE[name]):
                return self.size(name)
        raise ValueError(f"{what}: expected a size of 1, D or K, found {number} for {SMALL} and {other} for {LARGE}")

    problem_of = staticmethod(problem_of)

    @staticmethod
    def compared(found: Any, expected: Any) -> str:
        expected = IndexMatrix((), expected) if isinstance(expected, Expression) else expected
        problem = problem_of(found, expected)
        if not problem and not is_equal(found.entry, expected.entry):
            problem = f"the canonical forms of the entries differ\n  found     {found}\n  expected  {expected}"
        return f"is not proved: {problem}" if problem else ""


def verdicts(subject: Subject) -> list[Check]:
    """The verdicts for all sizes.

    If the code asks whether a size is 1, there are more for sizes of 1, and the first are for the others. If it asks
    anything else about a size, nothing is proved. A lemma needs no more: it is about matrices for which both sides are
    defined, and a variance of one example has no inverse.
    """
    checks, pending, done = list[Check](), [frozenset[str]()], set[frozenset[str]]()
    while pending:
        ones = pending.pop(0)
        questions = Questions()
        checks += _answered(subject, ones, questions)
        done.add(ones)
        if subject.claims != claims.of_lemma:
            pending += [x for more in subsets(questions.ones) if (x := ones | more) not in (*done, *pending)]
    return checks


def _answered(subject: Subject, ones: frozenset[str], asked: Questions) -> list[Check]:
    """The verdicts for sizes of which some are 1, none of which is right if the code asks what has several answers.

    Where it decides by numbers of its own, the verdicts are for these numbers.
    """
    if ones and subject.claims == claims.of_layer:
        try:
            Symbols(ones).made(subject.thing)
        except ValueError:  # it does not exist in these sizes
            return []
    for numbers in NUMBERS:
        a, doubtful = Symbols(ones, numbers, asked), ""
        asked.numbers.clear()
        with SYMBOLIC.asking(asked):
            checks, is_crash = attempt(subject, a)
            is_right = not is_crash and not asked.first() and all(x.ok for x in checks)
            if is_right and subject.claims in RUNS:
                doubtful = doubt(subject, partial(Symbols, ones, numbers, asked), a.given, a.signs)
        if not is_crash and not asked.numbers and (is_right or numbers != "any"):
            break
    if reason := doubtful or asked.first():
        return [replace(x, ok=False, message=f"{x.name} is not proved: {reason}\n  in {x.location}") for x in checks]
    given = ", ".join(f"{name} = {text}" if text else name for name, text in sorted(a.given.items()))
    return [replace(x, given=given) for x in checks]


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
