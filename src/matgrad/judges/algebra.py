"""What claims are written with, and who judges them: matrices of symbols or numbers, their derivatives, and verdicts.

A claim is written once, in `claims`, `lemmas` and `derivations`: a function of an `Algebra` that compares what the code
computes with what it should compute. An algebra also judges these comparisons. There are three: index notation
for all sizes (`index_judge`), SymPy at fixed sizes (`sympy_judge`) and numbers (`numbers_judge`). What differs between
them is in their files only.
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.foundation.numbers import own_generator
from matgrad.inspection.equations import last_line
from matgrad.inspection.verdicts import USE_THE_TABLE, Check, crash, gradient_checks, judged, suffixed
from matgrad.judges.definitions import definition_of
from matgrad.layers.base import check_layers
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import elements_sum, hadamard, uniform
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.shapes import size_name
from matgrad.sparse.matrix import SparseMatrix

T = TypeVar("T")
MakeLayer = Callable[[int, int], Layer]  # from D and K
UNDEFINED = "has no definition to compare with"
SEED = 3  # with which some weights are dropped, and some are not


def for_equal_sizes(make: MakeLayer) -> MakeLayer:
    """The constructor, with D for K if the class says that the output has the size of the input."""
    keeps_size = isinstance(make, type) and getattr(make, "keeps_size", False)
    return (lambda D, K: make(D, D)) if keeps_size else make


def made(make: MakeLayer, training: bool, D: int, K: int) -> Layer:
    """The layer in one of its modes, with the same random weights and the same dropout in every run."""
    with own_generator(SEED):
        return MultilayerPerceptron([for_equal_sizes(make)(D, K)]).train(training).layers[0]


class Algebra:
    """Matrices in which claims are written, at some sizes, and the verdicts on them."""

    method: str  # of comparing
    about = ""  # the sizes, and what else the verdicts are about
    name = ""  # of the class that is judged, for errors that do not say it
    sizes: Mapping[str, int]  # the numbers, at fixed sizes
    given: Mapping[str, Any]  # matrices that are not arbitrary, by name
    started = 0.0  # when the present comparison began

    # what definitions are written with: entries
    first: Any = 0  # the index of the only row or column
    half: Any
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    erf: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    number: Callable[[Any], Any]  # a number, a size or a scalar as an entry
    matrix: Callable[..., Any]  # of a shape, with entries f(i, j)
    uniform: Callable[..., Any] = staticmethod(uniform)  # the random numbers of dropout
    pieces: Callable[[Any, Any, Any], Any]  # (left, x, right): left where x < 0, and right where x ≥ 0

    # what claims are written with: matrices
    symbols: Callable[..., Any]  # (name, m, n): symbols, which can be any real numbers; without sizes, a scalar
    layer: Callable[[MakeLayer], Layer]  # make(D, K), with symbols in it
    numbers: Callable[[Any], Any]  # a copy of an activation function or a loss, with symbols for its numbers
    slope: Callable[[Callable[[Any], Any], Any], Any]  # ∇_V f(V), for a scalar f(V)
    slopes: Callable[[Callable[[Any], Any], Any], Any]  # ∂f(x)/∂x, the Jacobian, for rows f(x) and x
    # (f, X, D): two matrices, which are equal if D has the derivatives of f: ∂f(X)_ij/∂x_kl = [i=k]·[j=l]·d_ij
    elementwise: Callable[[Callable[[Any], Any], Any, Any], tuple[Any, Any]]

    # how they are judged
    gradients: Callable[[Layer, Any], list[Check]]  # (layer, X): all, also of parts, in order of backpropagation
    problem_of: Callable[[Any, Any], str]  # why two cannot be equal for any values of the symbols; '' if they can
    compared: Callable[[Any, Any], str]  # what is wrong with the first: the end of a sentence, or ''

    # -- at fixed sizes -------------------------------------------------------------------------
    def __init__(
        self, sizes: Mapping[str, int], remark: str = "", given: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self.sizes, self.given = sizes, given or {}
        self.about = remark or " ".join(f"{name}={size}" for name, size in sizes.items())
        vars(self).update(settings)

    def size(self, name: str) -> Any:
        """N, D or K"""
        return self.sizes[name]

    is_one: Callable[[Any], bool] = staticmethod(lambda size: bool(size == 1))
    sum: Callable[..., Any] = staticmethod(lambda f, size: sum(map(f, range(size))))  # Σ_i f(i), for entries
    total: Callable[..., Any] = sum  # the same for scalars
    row: Callable[..., Any] = staticmethod(lambda X, i: X[i : i + 1, :])  # x_i, the i-th row of X

    # -- what losses are given -------------------------------------------------------------------
    def output(self, loss: LossFunction, N: Any, K: Any) -> Any:
        """An N×K output of a kind that the loss accepts."""
        return self.symbols("Y", N, K)

    def targets(self, N: Any, K: Any) -> Any:
        """N×K targets."""
        return self.symbols("T", N, K)

    def weights(self, N: Any) -> Any:
        """Weights of N examples."""
        return self.symbols("s", N, 1)

    # -- verdicts -------------------------------------------------------------------------------
    def defined(self, thing: Any) -> Callable[..., Any] | None:
        """What a class or function should compute, by its definition; None if that is not known."""
        return definition_of(thing, self)

    def reference(self, thing: T) -> T:
        """The function whose derivatives are right: the code itself or, for a judge that cannot take them, another."""
        return thing

    def claim(
        self,
        thing: type | Callable[..., Any],
        quantity: str,
        code: Callable[..., Any] | tuple[str, str],
        found: Any,
        expected: Any,
        remark: str = "",
        prefix: str = "",
    ) -> Check:
        """The verdict on a quantity that a class or function computes by some code, a function or its place and source.

        Without something expected, it says so.
        """
        origin, about = last_line(code) if callable(code) else code, ", ".join(x for x in (self.about, remark) if x)
        if expected is None:
            return judged(thing, quantity, origin, about, "", note=f"{quantity} {UNDEFINED}")
        problem = self.compared(found, expected)
        seconds = self.seconds()
        return judged(thing, quantity, origin, about, problem, method=self.method, seconds=seconds, prefix=prefix)

    def seconds(self) -> float:
        """Those of the present comparison, after which the next one begins."""
        before, self.started = self.started, time.perf_counter()
        return self.started - before


Claims = Callable[[Any, Any], Iterable[Check]]  # of an algebra and a thing: the verdicts on it


@dataclass(frozen=True)
class Subject:
    """What something is claimed of: its name in specifications, the claims, and the thing itself.

    The thing is the constructor of a layer, or a function that makes a loss or an activation function anew, as its
    constructor may raise an error; or a softmax function, or a lemma.
    """

    name: str
    claims: Claims
    thing: Any
    is_basic: bool = False  # whether it is about a batch in training mode
    judges: tuple[str, ...] = ()  # their names, if not all can judge it


def attempts(subject: Subject, algebra: Callable[[bool], Algebra]) -> list[Check]:
    """The verdicts with symbols for the numbers of a class or, if it decides something by them, with the numbers.

    algebra(False) has symbols, algebra(True) the numbers. If the code raises errors with both, the verdict says where.
    """
    checks, is_crash = attempt(subject, algebra(False))
    return attempt(subject, algebra(True))[0] if is_crash else checks


def attempt(subject: Subject, a: Algebra) -> tuple[list[Check], bool]:
    """The verdicts in an algebra, and whether the code raises an error; if nothing is compared, it is not right."""
    a.name, a.started = a.name or subject.name, time.perf_counter()
    try:
        checks = list(subject.claims(a, subject.thing))
    except Exception as error:  # whatever the code of a user leads to
        return [crash(error, a.about, a.name)], True
    if all(check.ok for check in checks) and all(check.note for check in checks):
        nothing = f"{a.name} has nothing to check"
        checks.append(Check(a.name, "?", "", a.about, "none", 0.0, False, nothing))
    return checks, False


def at_all(cls: type[Algebra], subject: Subject, settings: Iterable[Mapping[str, Any]]) -> list[Check]:
    """The verdicts of algebras of a class with several settings, such as sizes."""
    algebras = [partial(lambda setting, keep: cls(**setting, keep_numbers=keep), setting) for setting in settings]
    return [check for algebra in algebras for check in attempts(subject, algebra)]


def shape_problem(found: Any, expected: Any, kind: Any, what: str) -> str:
    """Why something cannot be a matrix of this kind with the sizes of another; '' if it can."""
    if found is None:
        return "found nothing, expected a matrix"
    if isinstance(found, np.ndarray):
        return f"found a NumPy array, expected a matrix {what}: {USE_THE_TABLE}"
    if not isinstance(found, kind):
        return f"found {found!r}, expected a matrix"
    sizes = [" × ".join(str(size_name(n)) for n in A.shape) or "1" for A in (found, expected)]
    return "" if sizes[0] == sizes[1] else "found a matrix of size {}, expected {}".format(*sizes)


class SymbolicAlgebra(Algebra):
    """An algebra of symbols, in which the code itself is differentiated."""

    keep_numbers = False  # whether numbers such as ε stay as they are, unless they depend on the sizes

    gradient: Callable[[Any, Any], Any]  # ∇_V of a scalar, for a matrix V of symbols
    jacobian: Callable[[Any, Any], Any]  # ∂y/∂x, for row or column vectors y and x
    at: Callable[[Any, Any, Any], Any]  # (A, V, B): A with a matrix B for the symbols V in it
    is_same: Callable[[Any, Any], bool]
    functions: Callable[[str, Any, Any], Any]  # a matrix of unknown functions of x

    own_symbols: Callable[..., Any]  # like `symbols`, in a layer
    # a layer, and one with other sizes, which tells what depends on them
    made: Callable[[MakeLayer], tuple[Layer, Layer]]
    # the size that is a number in the first of these, and another in the second
    size_of: Callable[[int, int, str], Any]

    def layer(self, make: MakeLayer, *, training: bool | None = None) -> Layer:
        """The layer with symbols for its matrices and numbers, parts included, by default in its own mode."""
        with own_generator():
            layer, other = self.made(make)
        self.name = type(layer).__name__
        check_layers([layer])
        layer = layer.clone()
        for (path, part), (_, like) in zip(layer.walk(), other.walk(), strict=True):
            part.training = part.training if training is None else training
            for name, value in list(vars(part).items()):
                vars(part)[name] = self._attribute(part, suffixed(name, path), value, vars(like).get(name))
        return layer

    def numbers(self, thing: T, other: T | None = None, prefix: str = "") -> T:
        """A copy of an activation function or a loss, in which every attribute that is a number is a symbol."""
        clone = copy.copy(thing)
        for name, value in vars(thing).items():
            if isinstance(value, float):
                setattr(clone, name, self._number(prefix + name, value, vars(other or thing).get(name)))
        return clone

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        """What an attribute is replaced by; `other` is what it is in the layer of other sizes."""
        where = f"{type(part).__name__}.{name}"
        match value:
            case SparseMatrix():
                raise TypeError(f"{where} is sparse: this is for dense matrices")
            case np.ndarray(ndim=2):
                shape = (self.size_of(m, n, where) for m, n in zip(value.shape, np.shape(other), strict=True))
                return self.own_symbols(name, *shape)
            case int() if not isinstance(value, bool) and value != other:
                return self.size_of(value, other, where)
            case float():
                return self._number(name, value, other)
            case ActivationFunction():
                return self.numbers(value, other, f"{name}.")
        return value

    def _number(self, name: str, value: float, other: Any) -> Any:
        """A symbol, which is positive if the number is; 0 stays 0."""
        if not value or (self.keep_numbers and value == other):
            return value
        return self.own_symbols(name, is_positive=value > 0)

    @staticmethod
    def pairing(G: Any, Y: Any) -> Any:
        """⟨G, Y⟩ = Σ_ij g_ij·y_ij"""
        return elements_sum(hadamard(G, Y))

    def by_rows(self, f: Callable[[Any], Any], shape: Any) -> Any:
        """The matrix of a shape with the rows f(i)."""
        return self.matrix(shape, lambda i, j: f(i)[self.first, j])

    # -- derivatives ----------------------------------------------------------------------------
    def slope(self, f: Callable[[Any], Any], V: Any) -> Any:
        """∇_V f(V)"""
        return self.gradient(f(V), V)

    def slopes(self, f: Callable[[Any], Any], x: Any) -> Any:
        """∂f(x)/∂x"""
        return self.jacobian(f(x), x)

    def elementwise(self, f: Callable[[Any], Any], X: Any, D: Any) -> tuple[Any, Any]:
        """G ⊙ D and ∇_X ⟨G, f(X)⟩, for an arbitrary G: all derivatives at once"""
        G = self.symbols("G", *X.shape)
        return hadamard(G, D), self.slope(lambda X: self.pairing(G, f(X)), X)

    def gradients(self, layer: Layer, X: Any) -> list[Check]:
        """Against the derivatives of ⟨G, Y⟩, for an arbitrary G; see `gradient_checks`."""
        return gradient_checks(layer, X, self)


# -- lemmas and derivations ---------------------------------------------------------------------


class Step(NamedTuple):
    """left = right, with a text: the reason, or the equation itself."""

    text: str
    left: Any
    right: Any


def chain(start: Any, *links: tuple[str, Any]) -> Iterator[Step]:
    """start = A_1 = A_2 = …, one step for each equality; the links are pairs (text, A_i)."""
    for text, A in links:
        yield Step(text, start, A)
        start = A


Sides = tuple[Any, Any]  # of the only step, whose text is the docstring
Steps = Callable[..., Iterable[Step] | Sides]  # of an algebra and of what is given


@dataclass(frozen=True)
class Lemma:
    """A lemma, property or derivation of the paper, with a function that yields its steps in an algebra.

    A matrix is given by its sizes, such as `X="m n"`, `y="1 K > 0"` or `f="n 1 of x"`, and a size by a number for the
    judges that need one.
    """

    name: str
    label: str  # in the paper: of the equation, or of its section if the equation has none
    function: Steps
    given: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What it says."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of the sizes."""
        return {name: x for name, x in self.given.items() if isinstance(x, int)}

    def steps(self, a: SymbolicAlgebra) -> Iterable[Step]:
        """The steps, in an algebra."""
        known: dict[str, Any] = {"1": 1} | {name: a.size(name) for name in self.sizes}
        for name, text in self.given.items():
            match text.split() if isinstance(text, str) else ():
                case rows, columns, "of", x:
                    known[name] = a.functions(name, (known[rows], known[columns]), known[x])
                case rows, columns, *positive:
                    known[name] = a.symbols(name, known[rows], known[columns], is_positive=bool(positive))
        wanted = inspect.signature(self.function).parameters
        found = self.function(a, **{name: x for name, x in known.items() if name in wanted})
        return [Step(self.text, *found)] if isinstance(found, tuple) else found
