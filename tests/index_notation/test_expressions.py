"""Canonical forms: what is equal by the rules of algebra is proved, and what only looks so is not."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from matgrad.index_notation.conditions import step
from matgrad.index_notation.expressions import (
    ONE,
    ZERO,
    Entry,
    Expression,
    UndefinedError,
    as_expression,
    delta,
    is_equal,
    of,
    size,
)
from matgrad.index_notation.functions import arbitrary, erf, exact, exp, log, maximum, sqrt, tanh
from matgrad.index_notation.indices import FIRST, index, new_index
from matgrad.index_notation.powers import PI
from matgrad.index_notation.sums import summed
from matgrad.index_notation.text import text

i, j, k, l = index("i", "N"), index("j", "N"), index("k", "D"), index("l", "D")
N, D = size("N"), size("D")
HALF = Fraction(1, 2)


def entry(name: str, *indices, is_positive: bool = False) -> Expression:
    return of(Entry(name, indices, is_positive=is_positive))


x, y, z = (entry(name) for name in "xyz")
a, b = (entry(name, is_positive=True) for name in "ab")


def X(*indices):
    return entry("X", *indices)


def Y(*indices):
    return entry("Y", *indices)


def over(f, size="N"):
    return summed(f, size)


EQUAL = {
    "products": ((x + y) * (x - y), x * x - y * y),
    "quotients": (1 / (1 + 1 / x), x / (x + 1)),
    "a difference of fractions": (1 / (x + 1) - 1 / (x + 2), 1 / ((x + 1) * (x + 2))),
    "powers of powers": (sqrt(x * x + 1) * sqrt(x * x + 1), x * x + 1),
    "roots of positive numbers": (sqrt(a * a), a),
    "roots of positive factors": (sqrt(4 * a * x), 2 * sqrt(a) * sqrt(x)),
    "a root of a square, squared": (sqrt(x * x) ** 2, x * x),
    "roots of roots": (sqrt(sqrt(x) * y) ** 3, x ** Fraction(3, 4) * sqrt(y) ** 3),
    "roots of numbers": (sqrt(as_expression(8)), 2 * sqrt(as_expression(2))),
    "roots of fractions": (sqrt(as_expression(HALF)), sqrt(as_expression(2)) * HALF),
    "exponentials": (exp(x + 2 * y), exp(x) * exp(y) ** 2),
    "logarithms": (log(exp(x) * a / 6), x + log(a) - log(as_expression(2)) - log(as_expression(3))),
    "an exponential of a logarithm": (exp(2 * log(x)), x * x),
    "tanh": (tanh(x), 2 / (1 + exp(-2 * x)) - 1),
    "sigmoids": (1 / (1 + exp(-x)) + 1 / (1 + exp(x)), ONE),
    "erf is odd": (erf(x - y), -erf(y - x)),
    "erf'": (erf(x).derivative(Entry("x")), 2 / sqrt(PI) * exp(-x * x)),
    "sums of products": (over(lambda i: over(lambda j: X(i) * Y(j))), over(X) * over(Y)),
    "orders of sums": (over(lambda i: over(lambda j: X(i, j) * Y(j))), over(lambda j: over(lambda i: X(i, j) * Y(j)))),
    "names of sums": (
        over(lambda i: X(i) * over(lambda j: X(j) * Y(i, j))),
        over(lambda j: over(lambda i: X(i) * Y(j, i)) * X(j)),
    ),
    "many sums": (
        over(lambda i: over(lambda j: X(i, j)) ** 7 * Y(i)),
        over(lambda j: Y(j) * over(lambda i: X(j, i)) ** 7),
    ),
    "a sum without its index": (over(lambda i: x), N * x),
    "a sum and its reciprocal": (over(lambda i: X(i) / over(X)), ONE),
    "a sum over a delta": (over(lambda j: delta(i, j) * X(j)), X(i)),
    "a sum of a delta": (over(lambda i: over(lambda j: delta(i, j))), N),
    "a sum of size 1": (summed(lambda k: X(i, k), "1"), X(i, FIRST)),
    "deltas": (delta(i, j) * X(i), delta(i, j) * X(j)),
    "functions of deltas": (tanh(delta(i, j) * X(i)), delta(i, j) * tanh(X(i))),
    "powers of deltas": (1 / (1 + delta(i, j) * a), 1 - delta(i, j) * a / (1 + a)),
    "steps": (step(x) * step(x), step(x)),
    "steps of positive multiples": (step(3 * a * exp(x) * y), step(y)),
    "steps of positive numbers": (step(a + exp(x)), ONE),
    "steps that exclude each other": (step(x - a) * step(-x - a), ZERO),
    "steps that imply each other": (step(x + a) * step(x), step(x)),
    "functions of steps": (exp(x * step(x)), step(x) * exp(x) + 1 - step(x)),
    "steps of steps": (step(x - x * step(x)), step(x)),
    "maxima": (maximum(lambda k: 2 * X(i, k) + Y(i), "D"), 2 * maximum(lambda k: X(i, k), "D") + Y(i)),
    "a maximum without its index": (maximum(lambda k: Y(i), "D"), Y(i)),
    "floating-point numbers": (exact(0.1 + 0.2), as_expression(Fraction(3, 10))),
    "floating-point roots": (exact(1 / 2**0.5) ** 2, as_expression(HALF)),
    "under a sum": (
        over(lambda i: 1 / (exp(X(i)) * (1 + exp(X(i))))),
        over(lambda i: exp(-X(i)) - 1 / (1 + exp(X(i)))),
    ),
    "two units under a sum": (
        over(lambda i: exp(Y(i)) / (exp(X(i)) * (exp(X(i)) + exp(Y(i))))),
        over(lambda i: exp(-X(i)) - 1 / (exp(X(i)) + exp(Y(i)))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_expressions(name: str):
    left, right = EQUAL[name]
    assert is_equal(left, right), f"{text(left)}  and  {text(right)}"
    assert is_equal(right, left)
    assert not is_equal(left, right + 1)
    assert not is_equal(left, right + x)


DIFFERENT = {
    "a root of a square": (sqrt(x * x), x),
    "roots of factors that may be negative": (sqrt(x * y), sqrt(x) * sqrt(y)),
    "a logarithm of a square": (log(x * x), 2 * log(x)),
    "logarithms of factors that may be negative": (log(x * y), log(x) + log(y)),
    "squares of sums": (over(lambda i: X(i) * X(i)), over(X) * over(X)),
    "two sums": (over(lambda i: X(i) * Y(i)), over(X) * over(Y)),
    "sizes": (summed(X, "N"), summed(X, "D")),
    "equal at size 1": (over(lambda i: X(i) * Y(i)) * N, over(X) * over(Y)),
    "transposes": (over(lambda j: X(i, j)), over(lambda j: X(j, i))),
    "a sum inside a sum": (over(lambda i: X(i) * over(X)), over(lambda i: X(i) * X(i))),
    "a delta": (delta(i, j) * X(i), X(i)),
    "steps of multiples": (step(x * y), step(y)),
    "opposite steps": (step(-x), 1 - step(x)),  # not at 0, nor where x is 0 for a reason that is not seen
    "steps of sums": (step(x + y), step(x) * step(y)),
    "steps that meet at a number": (step(x - a) * step(a - x), ZERO),
    "maxima of negative multiples": (maximum(lambda k: -X(i, k), "D"), -maximum(lambda k: X(i, k), "D")),
    "maxima over different indices": (maximum(lambda k: X(i, k), "D"), maximum(lambda k: X(j, k), "D")),
    "arbitrary functions": (arbitrary("f")(x), arbitrary("g")(x)),
    "an arbitrary function and its derivative": (arbitrary("f")(x), arbitrary("f'")(x)),
    "numbers": (exact(1.41421), sqrt(as_expression(2))),
    "a positive symbol and another": (entry("x", is_positive=True), x),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_expressions(name: str):
    left, right = DIFFERENT[name]
    assert not is_equal(left, right), f"{text(left)}  and  {text(right)}"


def test_undefined_expressions_are_refused():
    for e in (
        lambda: ONE / ZERO,
        lambda: 1 / (x - x),
        lambda: 1 / delta(i, j),
        lambda: log(ZERO),
        lambda: sqrt(as_expression(-1)),
        lambda: log(as_expression(-2)),
    ):
        with pytest.raises(UndefinedError):
            e()


def test_exact_numbers_alone_are_taken():
    with pytest.raises(TypeError, match="exact number"):
        x + 0.1
    with pytest.raises(ArithmeticError, match="finite"):
        exact(float("nan"))


def test_names_have_no_meaning_in_keys():
    for name in ("", "_x", "x]", "x,y", "x+", "~1.0", "x[i:N]"):
        with pytest.raises(ValueError, match="name"):
            Entry(name)
    with pytest.raises(ValueError, match="known"):
        arbitrary("exp")


def test_bound_indices_are_not_captured():
    inner = over(lambda j: X(i, j))
    assert is_equal(inner.substituted({i: j}), over(lambda k: X(j, k)))
    squared = over(lambda m: inner.substituted({i: m}) ** 2)
    twice = over(lambda i: over(lambda j: over(lambda k: X(i, j) * X(i, k))))
    assert is_equal(squared, twice)
    row_of_maxima = over(lambda i: maximum(lambda k: X(i, k), "D") * over(lambda j: Y(i, j)))
    assert "max_" in text(row_of_maxima)
    assert is_equal(row_of_maxima, over(lambda j: over(lambda i: maximum(lambda k: X(j, k), "D") * Y(j, i))))


def test_indices_are_put_at_the_same_time():
    assert is_equal(X(i, j).substituted({i: j, j: i}), X(j, i))
    assert is_equal((X(i, j) / (X(i, j) - X(j, i))).substituted({i: j, j: i}), X(j, i) / (X(j, i) - X(i, j)))


def test_derivatives():
    v = Entry("X", (new_index("N"), new_index("N")))
    m, n = v.indices
    assert is_equal(over(lambda i: over(lambda j: X(i, j) ** 3)).derivative(v), 3 * of(v) ** 2)
    assert is_equal(X(i, j).derivative(v), delta(i, m) * delta(j, n))
    assert not X(i).derivative(v)  # another matrix with the same name
    slope = over(lambda i: maximum(lambda j: X(i, j), "N")).derivative(v)
    largest = maximum(lambda j: X(m, j), "N")
    assert is_equal(slope, step(of(v) - largest) / over(lambda j: step(X(m, j) - largest)))  # equal shares
    act = arbitrary("act")
    assert is_equal(act(x * x).derivative(Entry("x")), 2 * x * act.derivative(x * x))
    f = of(Entry("f", (i,), variable="x"))
    assert is_equal((f * f).derivative(Entry("x")), 2 * f * entry("f'x", i))
    assert not f.derivative(Entry("y"))


def test_factors_are_replaced():
    def rule(f):
        return over(lambda j: Y(f.indices[0], j)) if isinstance(f, Entry) and f.name == "X" else None

    e = over(lambda i: exp(X(i)) * maximum(lambda j: X(j), "N")) + log(1 + X(i)) * step(X(i))
    rows = over(lambda j: Y(i, j))
    expected = over(lambda i: exp(over(lambda j: Y(i, j))) * maximum(lambda k: over(lambda j: Y(k, j)), "N"))
    assert is_equal(e.mapped(rule), expected + log(1 + rows) * step(rows))


def test_text():
    e = over(lambda j: X(i, j) * Y(j)) / N - 2 * sqrt(x + 1) + delta(i, j)
    assert text(e) == "(Σ_k X_ik·Y_k) / N + [i=j] - 2·(1 + x)^(1/2)"


def test_the_engine_needs_the_standard_library_only():
    code = (
        "import sys; from matgrad.index_notation import functions, text; "
        "assert not {'sympy', 'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
