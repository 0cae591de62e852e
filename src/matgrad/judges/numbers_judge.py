"""The judge in numbers: the classes as they train, at other sizes, in large batches and far from 0.

Symbols are slow, and a batch of 128 examples is out of their reach. So the definitions are evaluated with numbers of 40
digits, and compared with what the code computes on NumPy in float64. Its gradients are compared with central
differences: those of layers in float64, all others of the definitions, with 40 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import mpmath
import numpy as np

from matgrad.backends import get_backend
from matgrad.inspection.gradient_check import GradientResult, check_gradients
from matgrad.inspection.verdicts import Check, judged
from matgrad.judges import claims
from matgrad.judges.algebra import Algebra, MakeLayer, Subject, at_all
from matgrad.judges.definitions import definition_of
from matgrad.judges.equality import evaluated, symbols
from matgrad.judges.sympy_judge import DROPOUT, GRID
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import uniform

# N, D, K and the magnitude of X: one and two examples, D = K, one feature or output, far from 0, a large batch
SIZES = (
    *((1, 3, 2, 1), (1, 2, 5, 1), (2, 3, 3, 1), (4, 1, 2, 1), (12, 2, 1, 1)),
    *((3, 2, 3, 30), (5, 2, 3, 500), (128, 2, 3, 1)),
)
LOSS_SIZES = ((1, 2, 1), (2, 3, 1), (4, 2, 1), (3, 1, 1), (3, 3, 30), (5, 3, 500), (100, 2, 1))  # N, K, magnitude
DIGITS = 40
TOLERANCE = 1e-9
STEP = mpmath.mpf("1e-12")  # of central differences, relative to the element
ELEMENTS = 8  # of each gradient of a layer, the number that is compared; half as many of that of a loss


class NumbersAlgebra(Algebra):
    """Random matrices in float64, or given ones, for the code; numbers of 40 digits for definitions."""

    method, half = "numbers", mpmath.mpf(1) / 2
    exp, log = staticmethod(mpmath.exp), staticmethod(mpmath.log)
    erf, sqrt = staticmethod(mpmath.erf), staticmethod(mpmath.sqrt)
    number = staticmethod(lambda x: x if isinstance(x, mpmath.mpf) else mpmath.mpf(float(x)))
    pieces = staticmethod(lambda left, x, right: left if x < 0 else right)
    numbers = staticmethod(lambda thing: thing)

    scale: float = 1  # of random matrices
    tolerance = TOLERANCE
    by_element = False  # whether an error is relative to each element above 1, not to the largest one

    def __init__(self, sizes: Mapping[str, int], **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.about += f" ±{self.scale}" if self.scale > 1 else ""
        self.rng = np.random.default_rng(sizes.get("N", 0))

    def symbols(self, name: str, *shape: int, is_positive: bool = False) -> np.ndarray:
        return self.given.get(name, self.scale * self.rng.normal(size=shape))

    def output(self, loss: LossFunction, N: int, K: int) -> np.ndarray:
        """Real numbers, probabilities or their logarithms."""
        if "real" in loss.accepts:
            return self.scale * self.rng.normal(size=(N, K))
        Y = self.rng.uniform(0.05, 0.95, (N, K)) ** min(self.scale, 20)
        return Y if "probability" in loss.accepts else np.log(Y)

    def targets(self, N: int, K: int) -> np.ndarray:
        return self.rng.dirichlet(np.ones(K), N)

    def weights(self, N: int) -> np.ndarray:
        return self.rng.uniform(0, 3, (N, 1))

    @staticmethod
    def matrix(shape: tuple[int, int], entry: Callable[[int, int], Any]) -> np.ndarray:
        m, n = shape
        return np.array([[entry(i, j) for j in range(n)] for i in range(m)], dtype=object)

    @staticmethod
    def uniform(m: int, n: int, *, seed: Any, count: Any, like: np.ndarray) -> np.ndarray:
        return _exact(uniform(m, n, seed=seed, count=count, like=np.zeros((1, 1))))

    # -- definitions and derivatives ---------------------------------------------------------------
    def defined(self, thing: Any) -> Callable[..., Any] | None:
        if isinstance(thing, Layer):
            thing = thing.clone()
            for name in (*thing.parameters, *thing.buffers):
                if np.ndim(getattr(thing, name)) == 2:
                    setattr(thing, name, _exact(getattr(thing, name)))
        f = definition_of(thing, self)
        return f and (lambda *matrices: f(*map(_exact, matrices)))

    def reference(self, thing: Any) -> Any:
        """The definition or, if there is none, the function that SymPy finds for the code, which may round more."""
        define = self.defined(thing)
        if define is None:
            self.tolerance = TOLERANCE
        return define or _by_sympy(thing)

    def slope(self, f: Callable[[Any], Any], V: np.ndarray) -> np.ma.MaskedArray:
        """∇_V f(V) at some elements, by central differences"""
        found = np.ma.masked_all(V.shape)
        places = np.random.default_rng(0).permutation(V.size)[: ELEMENTS // 2]
        for element in (divmod(int(i), V.shape[1]) for i in places):
            H = np.zeros(V.shape, dtype=object)
            H[element] = STEP * abs(self.number(V[element]))
            found[element] = float(_difference(f, V, H) / (2 * H[element]))
        return found

    def slopes(self, f: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
        H = np.diag(STEP * abs(_exact(x[0])))
        return np.vstack([_difference(f, x, h[None]) / (2 * h[j]) for j, h in enumerate(H)]).T

    def elementwise(self, f: Callable[[Any], Any], X: np.ndarray, D: np.ndarray) -> tuple[Any, Any]:
        """D, and the central differences for all elements together"""
        H = STEP * abs(_exact(X))
        return D, _difference(f, X, H) / (2 * H)

    def layer(self, make: MakeLayer) -> Layer:
        """The layer in float64 on NumPy, with parameters and statistics that are not 0 or 1.

        Those of a user-defined layer stay near the initial ones: perhaps they must not be negative.
        """
        layer = make(self.sizes["D"], self.sizes["K"]).clone()
        self.name = type(layer).__name__
        spread = 0.3 if definition_of(layer, self) is None else 1
        layer.to(get_backend("numpy"), "float64")
        for _, part in layer.walk():
            for name in (*part.parameters, *part.buffers):
                value = getattr(part, name)
                if isinstance(value, np.ndarray) and value.ndim == 2:
                    noise = spread * self.rng.uniform(0.3, 1.3, value.shape) * self.rng.choice([-1, 1], value.shape)
                    setattr(part, name, value + (np.abs(noise) if name in part.buffers else noise))
            if isinstance(part, LayerWithDropout) and part.dropout:
                part.dropout = float(DROPOUT)
                part.renewals = part.renewals + 2  # R is not the first one
        return layer

    def gradients(self, layer: Layer, X: np.ndarray) -> list[Check]:
        """Against central differences in float64, for a squared error; not far from 0, where these are not exact."""
        if self.scale > 1:
            return []
        T = self.rng.normal(size=(len(X), layer.output_size))
        _, *results = check_gradients(layer, "SquaredError", X, T, max_elements=ELEMENTS)  # the first is of the loss
        return [self._of_result(result) for result in results]

    def _of_result(self, result: GradientResult) -> Check:
        """The result of the gradient check as a verdict."""
        place, _, name = result.name.removeprefix("layer 1").partition(" ")
        name = f"{self.name}{place} {name}" if place else name
        location, source = result.equation.origin
        message = "" if result.ok else f"{name}{str(result).removeprefix(result.name)}  [{self.about}]"
        note = "" if result.tells else "a wrong gradient would not be noticed"
        return Check(name, location, "", self.about, "differences", 0.0, result.ok, message, source, note)

    @staticmethod
    def problem_of(found: Any, expected: Any) -> str:
        if np.shape(found) == np.shape(expected):
            return ""
        return f"found {found!r}, expected size {' × '.join(map(str, np.shape(expected)))}"

    def compared(self, found: Any, expected: Any) -> str:
        """Where two matrices of numbers differ, and how; elements of the second that are masked are not compared."""
        if problem := self.problem_of(found, expected):
            return f"is wrong for {self.about}: {problem}"
        found, expected = (np.ma.asarray(A, dtype=float).reshape(np.shape(A) or (1, 1)) for A in (found, expected))
        size = np.abs(expected)
        size = np.maximum(size, 1) if self.by_element else np.full(size.shape, max(float(size.max()), 1e-3))
        error = np.abs(found - expected)
        is_wrong = ~(error <= self.tolerance * size).filled(True) if error.count() else np.ones(error.shape, bool)
        if not is_wrong.any():
            return ""
        worst = np.where(is_wrong, np.nan_to_num((error / size).filled(0), nan=np.inf), -1)
        row, column = divmod(int(np.argmax(worst)), worst.shape[1])
        entries = f"\n  found     {found[row, column]:.17g}\n  expected  {expected[row, column]:.17g}"
        return f"is wrong for {self.about} at row {row + 1}, column {column + 1}:{entries}"


def _exact(A: Any) -> np.ndarray:
    """The matrix with the same numbers, of 40 digits."""
    return np.frompyfunc(NumbersAlgebra.number, 1, 1)(A)


def _difference(f: Callable[[Any], Any], V: np.ndarray, H: np.ndarray) -> Any:
    """f(V + H) - f(V - H)"""
    V = _exact(V)
    return f(V + H) - f(V - H)


def _by_sympy(thing: Callable[..., Any]) -> Callable[..., Any]:
    """A loss or an activation function as a function of matrices of 40 digits, by one run on symbols for each size."""

    @cache
    def function(*shapes: tuple[int, int]) -> Callable[..., Any]:
        matrices = [symbols(name, *shape) for name, shape in zip("YT", shapes, strict=False)]
        value = thing(*matrices)
        f = evaluated([x for A in matrices for x in A], [*value] if hasattr(value, "shape") else [value])
        return lambda *numbers: np.reshape(np.array(f(*numbers), dtype=object), getattr(value, "shape", ()))[()]

    def on_numbers(*matrices: np.ndarray) -> Any:
        return function(*(A.shape for A in matrices))(*(x for A in matrices for x in _exact(A).flat))

    return on_numbers


# -- what is judged -----------------------------------------------------------------------------


def verdicts(subject: Subject) -> list[Check]:
    """The verdicts on a subject at all sizes and points."""
    notes: list[Check] = []
    with mpmath.workdps(DIGITS):
        return at_all(NumbersAlgebra, subject, _settings(subject, notes)) + notes


def _settings(subject: Subject, notes: list[Check]) -> Iterator[dict[str, Any]]:
    """What algebras are made with; `notes` gets the reasons why there is none for some sizes.

    A layer may not exist in some, such as a softmax over one class, and needs a definition far from 0.
    """
    match subject.claims:
        case claims.of_layer:
            usual = subject.thing(2, 4)
            is_builtin = type(usual).__module__.startswith("matgrad.")
            define = definition_of(usual, NumbersAlgebra({}))
            for N, D, K, scale in SIZES:
                try:
                    subject.thing(D, K)
                except ValueError as error:
                    note, about = f"not checked with D={D} and K={K}: {error}", f"N={N} D={D} K={K}"
                    if not is_builtin:
                        notes.append(judged(type(usual), "feedforward", ("", ""), about, "", note=note))
                    continue
                if scale == 1 or define is not None:
                    yield {"sizes": {"N": N, "D": D, "K": K}, "scale": scale}
        case claims.of_loss:
            yield from ({"sizes": {"N": N, "K": K}, "scale": scale} for N, K, scale in LOSS_SIZES)
        case claims.of_softmax:
            for N, D, scale in LOSS_SIZES:
                yield {"sizes": {"N": N, "D": D}, "scale": scale if "stable" in subject.thing else 1}
        case claims.of_activation:
            X = np.array([[float(x) for x in GRID]])
            for A in (X, X.T, X.reshape(2, -1), X.reshape(-1, 2), np.tile(X, 10).reshape(-1, 2)):
                N, K = A.shape
                options = {"sizes": {"N": N, "K": K}, "remark": f"-430 … 430, {N}×{K}", "given": {"X": A}}
                yield options | {"tolerance": 1e-12, "by_element": True}
        case _:
            yield {"sizes": {}, "tolerance": 1e-15}
