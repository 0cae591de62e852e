"""The judge at fixed sizes: SymPy matrices run through the very classes that train, and SymPy differentiates.

The batch has 3 examples, and all sizes differ; a loss is also judged for one example and for one-hot targets, an
activation function also at the numbers of a grid and at its corners.

    from matgrad.judges.sympy_judge import check_layer
    for check in check_layer(MyLayer(4, 5)):
        assert check.ok, check.message
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef

from matgrad import activation_functions as activations
from matgrad.activation_functions import ActivationFunction
from matgrad.backends.sympy_backend import SympyMatrix
from matgrad.inspection.verdicts import Check
from matgrad.judges import claims
from matgrad.judges.algebra import UNDEFINED, Algebra, MakeLayer, Subject, SymbolicAlgebra, at_all, attempts
from matgrad.judges.equality import compare, exact, problem_of, symbols
from matgrad.layers.base import check_layers
from matgrad.layers.dropout import LayerWithDropout
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction

# where activation functions are looked at besides random points: unlikely to be a threshold
POSITIVE = "0.11 0.53 1.3 2.3 3.1 5.7 8.9 12.3 16.1 21.3 27.1 36.7 47.3 66.1 430.3"
GRID = tuple(sign * sp.Rational(x) for x in POSITIVE.split() for sign in (1, -1))
DROPOUT = sp.Rational(3, 10)  # the rate with which dropout is checked
N, D, K = 3, 2, 4


class SymPyAlgebra(SymbolicAlgebra):
    """Matrices of SymPy, with numbers for sizes."""

    method, half = "points", sp.Rational(1, 2)
    exp, log, erf = sp.exp, sp.log, sp.erf
    sqrt, number = staticmethod(sp.sqrt), staticmethod(sp.sympify)
    matrix = staticmethod(lambda shape, entry: SympyMatrix(*shape, entry))
    size_of = staticmethod(lambda number, other, what: number)
    pieces = staticmethod(lambda left, x, right: sp.Piecewise((left, x < 0), (right, True)))

    jacobian, is_same = staticmethod(sp.Matrix.jacobian), staticmethod(sp.Matrix.__eq__)
    functions = staticmethod(
        lambda name, shape, x: SympyMatrix(*shape, lambda i, j: sp.Function(f"{name}_{i + 1}{j + 1}")(*x))
    )
    at = staticmethod(lambda A, V, value: A if V is value else A.xreplace(dict(zip(V, value, strict=True))))

    def symbols(self, name: str, *shape: int, is_positive: bool = False) -> Any:
        if name in self.given:
            return self.given[name]
        if not shape:
            return sp.Symbol(name, real=True, positive=is_positive or None)
        return symbols(name, *shape, positive=is_positive or None)

    def output(self, loss: LossFunction, N: int, K: int) -> sp.Matrix:
        return self.symbols("Y", N, K, is_positive="probability" in loss.accepts and "real" not in loss.accepts)

    def made(self, make: MakeLayer) -> tuple[Layer, Layer]:
        layer = make(self.sizes["D"], self.sizes["K"])
        return layer, layer

    def own_symbols(self, name: str, *shape: int, is_positive: bool = False) -> Any:
        return self.symbols(name, *shape, is_positive=is_positive or "variance" in name)

    def _attribute(self, part: Layer, name: str, value: Any, other: Any) -> Any:
        if isinstance(part, LayerWithDropout) and name.partition(".")[0] == "dropout" and value:
            return DROPOUT
        return super()._attribute(part, name, value, other)

    @staticmethod
    def gradient(value: sp.Expr, V: sp.Matrix) -> sp.Matrix:
        value = exact(value)
        return SympyMatrix(*V.shape, lambda i, j: sp.diff(value, V[i, j]))

    def slope(self, f: Callable[[sp.Matrix], sp.Expr], V: sp.Matrix) -> sp.Matrix:
        S = symbols("_", *V.shape) if not V.free_symbols else V
        return self.at(self.gradient(f(S), S), S, V)

    @staticmethod
    def problem_of(found: Any, expected: Any) -> str:
        return problem_of(*_as_matrices(found, expected))

    @staticmethod
    def compared(found: Any, expected: Any) -> str:
        """At random points, with exact numbers for those that stand for one."""
        return compare(*(_independent(exact(A)) for A in _as_matrices(found, expected)))


def _as_matrices(found: Any, expected: Any) -> list[Any]:
    """Scalars as 1×1 matrices, if a scalar is expected."""
    is_scalar = isinstance(expected, sp.Expr)
    return [sp.Matrix([[A]]) if is_scalar and isinstance(A, sp.Expr | int | float) else A for A in (found, expected)]


def _independent(A: Any) -> Any:
    """A with a symbol for every undefined function f and for every ∂f/∂x_j.

    The symbols are independent: a function can have any value and any first derivatives at a point.
    """
    if not isinstance(A, sp.MatrixBase) or not A.has(AppliedUndef):
        return A
    derivatives = {d: sp.Symbol(f"∂{d.expr.func}/∂{d.variables[0]}", real=True) for d in A.atoms(sp.Derivative)}
    A = A.xreplace(derivatives)
    return A.xreplace({f: sp.Symbol(str(f.func), real=True) for f in A.atoms(AppliedUndef)})


# -- what is judged -----------------------------------------------------------------------------


def verdicts(subject: Subject) -> list[Check]:
    """The verdicts on a subject at all sizes and points."""
    return at_all(SymPyAlgebra, subject, _settings(subject))


def _settings(subject: Subject) -> Iterator[dict[str, Any]]:
    match subject.claims:
        case claims.of_layer:
            yield from ({"sizes": {"N": n, "D": D, "K": K}} for n in (N, 1))
        case claims.of_loss:
            yield from ({"sizes": {"N": n, "K": K}} for n in (N, 1))
            one_hot = SympyMatrix(N, K, lambda i, j: int(j == (2 * i + 1) % K))
            yield {"sizes": {"N": N, "K": K}, "remark": f"N={N} K={K}, one-hot", "given": {"T": one_hot}}
        case claims.of_activation:
            yield {"sizes": {"N": 2, "K": 3}}
            yield {"sizes": {"N": 10, "K": 3}, "remark": "-430 … 430", "given": {"X": SympyMatrix(10, 3, GRID)}}
        case claims.of_softmax:
            yield {"sizes": {"N": N, "D": K}}
        case _:
            yield {"sizes": getattr(subject.thing, "sizes", {})}  # of a lemma


def of_corners(a: Algebra, make: Callable[[], ActivationFunction]) -> Iterator[Check]:
    """f' at the corners of f: that of the right-hand piece, as in the paper; SReLU's outer pieces are closed."""
    act = a.numbers(make())
    for corner in CORNERS.get(type(act), ()):
        C, expected = (SympyMatrix(2, 3, lambda i, j, n=n, at=corner: at(act, j)[n]) for n in (0, 1))
        a.about = f"x={C[0]}"
        yield a.claim(type(act), "gradient", type(act).gradient, act.gradient(C), expected)


def _last_corner(act: Any, k: int) -> tuple[sp.Expr, sp.Expr]:
    return act.tr[0, k], SymPyAlgebra.pieces(act.ar[0, k], act.tl[0, k] - act.tr[0, k], act.al[0, k])


_at_zero = ("ReLU", "LeakyReLU", "AllReLU", "ELU")
CORNERS: dict[type[ActivationFunction], tuple[Callable, ...]] = {  # (x, f'(x)) in column k
    **dict.fromkeys((activations.ACTIVATIONS[name] for name in _at_zero), (lambda act, k: (sp.S.Zero, sp.S.One),)),
    activations.TReLUActivation: (lambda act, k: (act.epsilon, sp.S.One),),
    activations.SReLUActivation: (lambda act, k: (act.tl[0, k], act.al[0, k]), _last_corner),
}


# -- user-defined classes, without a word on definitions that they do not have -------------------


def check_layer(layer: Layer, *, N: int = N) -> list[Check]:
    """Every value and every gradient of a layer, in its present mode, against its definition and SymPy's derivatives.

    The gradients are those of all parameters, also of the parts, and of the input, and those of the values of
    feedforward that have an equation ``DV = …``; they are compared with derivatives of ⟨G, Y⟩. The parameters, and the
    numbers in the layer such as ε or α, are replaced by symbols. A layer with dropout drops three tenths.
    A wrong activation function comes first, as the cause.
    """
    check_layers([layer])
    sizes = {"N": N, "D": layer.input_size, "K": layer.output_size}
    subject = Subject(type(layer).__name__, claims.of_layer, lambda D, K: layer)
    checks = _compared(attempts(subject, lambda keep_numbers: SymPyAlgebra(sizes, keep_numbers=keep_numbers)))
    if all(check.ok for check in checks):
        return checks
    acts = [x for _, part in layer.walk() for x in vars(part).values() if isinstance(x, ActivationFunction)]
    acts = [act for act in acts if not any(np.ndim(x) for x in vars(act).values())]
    causes = [check for act in acts for check in check_activation(act) if not check.ok]
    return [*causes, *(check for check in checks if check.name not in {cause.name for cause in causes})]


def check_loss(loss: LossFunction) -> list[Check]:
    """The value and the gradients of a loss, for several examples and for one, for arbitrary and one-hot targets.

    Whether the value is a mean is checked as well, and value and mean gradient with weights, which are symbols too.
    """
    return _compared(verdicts(Subject(type(loss).__name__, claims.of_loss, lambda: loss)))


def check_activation(act: ActivationFunction) -> list[Check]:
    """f, and f' against SymPy's derivative of f, at symbols, at the numbers of a grid and at corners."""
    name = type(act).__name__
    subjects = [Subject(name, claims.of_activation, lambda: act)]
    if type(act) in CORNERS:
        subjects.append(Subject(name, of_corners, lambda: act))
    return _compared([check for subject in subjects for check in verdicts(subject)])


def _compared(checks: list[Check]) -> list[Check]:
    return [check for check in checks if not check.note.endswith(UNDEFINED)]
