"""Conditions, labels, masks and orders as factors: their rules are identities, and their values those of NumPy."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from index_support import INPUTS, Numbers, random_program, symbolic_inputs
from matgrad.index_notation.conditions import Flag, order, positive, step, trichotomy
from matgrad.index_notation.expressions import ONE, ZERO, Entry, as_expression, delta, is_equal, of, size
from matgrad.index_notation.functions import INFINITE, cos, exp, log, maximum, sin, sqrt
from matgrad.index_notation.indices import Label, index, new_index, opposite
from matgrad.index_notation.sums import summed, summed_over
from matgrad.index_notation.text import text
from matgrad.index_notation.values import evaluate
from matgrad.writers.hypotheses import under

i, j, l, k = index("i", "N"), index("j", "N"), index("l", "N"), index("k", "K")
t = Label("t", [i], "K")
SIZES = {"N": 3, "K": 4}
RNG = np.random.default_rng(0)
VALUES = {
    "Z": RNG.normal(size=(3, 4)),
    "X": RNG.normal(size=(3, 3)),
    "v": RNG.normal(size=3),
    "M": RNG.integers(0, 2, (3, 4)),
    "t": np.array([2, 0, 3]),
    "a": np.array(0.7),
}


def Z(*indices):
    return of(Entry("Z", indices))


def X(*indices):
    return of(Entry("X", indices))


def v(i):
    return of(Entry("v", [i]))


def M(*indices):
    return of(Flag("M", indices))


a = of(Entry("a", is_positive=True))
selected = summed(lambda k: delta(t, k) * Z(i, k), "K")
EQUAL = {
    "a label selects": (selected, Z(i, t)),
    "a label selects after a function": (exp(selected), summed(lambda k: delta(k, t) * exp(Z(i, k)), "K")),
    "labels are one of the classes": (summed(lambda k: delta(t, k), "K"), ONE),
    "where the label is k": (delta(t, k) * summed(lambda l: delta(t, l) * Z(i, l), "K"), delta(t, k) * Z(i, k)),
    "what a label selects leaves a sum over rows": (
        summed(lambda i: delta(Label("t", [i], "K"), k) * exp(v(i)) / (1 + Z(j, Label("t", [i], "K")) ** 2), "N"),
        summed(lambda i: delta(Label("t", [i], "K"), k) * exp(v(i)), "N") / (1 + Z(j, k) ** 2),
    ),
    "a sum over rows with labels": (
        summed(lambda j: Z(j, Label("t", [j], "K")), "N"),
        summed(lambda j: summed(lambda k: delta(k, Label("t", [j], "K")) * Z(j, k), "K"), "N"),
    ),
    "one condition holds": (step(v(i) + a) * step(a - v(i)), step(v(i) + a) + step(a - v(i)) - 1),
    "a condition of a multiple follows": (step(1 + 2 * v(i)) * step(v(i)), step(v(i))),
    "conditions of multiples exclude each other": (positive(1 + 3 * v(i)) * positive(-1 - v(i)), ZERO),
    "one condition of multiples holds": (
        step(v(i) + a) * step(2 * a - v(i) / 3),
        step(v(i) + a) + step(2 * a - v(i) / 3) - 1,
    ),
    "the sine of a multiple": (sin(3 * v(i)), 3 * sin(v(i)) - 4 * sin(v(i)) ** 3),
    "the cosine of a multiple": (cos(2 * v(i) * Z(i, k)), 1 - 2 * sin(Z(i, k) * v(i)) ** 2),
    "the cosine of the opposite of a multiple": (cos(-4 * v(i)), 8 * cos(v(i)) ** 4 - 8 * cos(v(i)) ** 2 + 1),
    "sine and cosine": (sin(v(i)) ** 3 / cos(v(i)), sin(v(i)) / cos(v(i)) - sin(v(i)) * cos(v(i))),
    "opposite signs": (positive(-v(i)), 1 - positive(v(i))),
    "opposite signs of differences": (positive(Z(i, k) - v(i)), 1 - positive(v(i) - Z(i, k))),
    "signs after a substitution": (
        positive(2 - X(i, j)).substituted({i: j, j: i}),
        1 - positive(X(j, i) - 2),
    ),
    "the sign of a difference under a sum": (
        summed(lambda j: positive(1 + v(i) - v(j)) * v(j), "N"),
        summed(lambda j: v(j) - positive(v(j) - v(i) - 1) * v(j), "N"),
    ),
    "a flag is its own square": (M(i, k) ** 2, M(i, k)),
    "functions of flags": (exp(M(i, k) * Z(i, k)), M(i, k) * exp(Z(i, k)) + 1 - M(i, k)),
    "not before": (order(i, j, 0), 1 - order(j, i, 1)),
    "before and after": (order(i, j, 1) * order(j, i, 1), ZERO),
    "two and one before": (order(i, j, 2) * order(i, j, 1), order(i, j, 2)),
    "the same place": (order(i, j, 0) * delta(i, j), delta(i, j)),
    "sums over an order": (
        summed(lambda i: summed(lambda j: order(i, j, 0) * X(i, j), "N"), "N"),
        summed(lambda i: summed(lambda j: X(i, j) - order(j, i, 1) * X(i, j), "N"), "N"),
    ),
    "the opposite of the opposite": (X(i, opposite(opposite(j))), X(i, j)),
    "deltas of opposites": (delta(opposite(i), j) * X(i, j), delta(i, opposite(j)) * X(i, opposite(i))),
    "a sum in the other order": (
        summed(lambda j: v(opposite(j)) * X(i, j), "N"),
        summed(lambda j: v(j) * X(i, opposite(j)), "N"),
    ),
    "orders of opposites": (order(opposite(i), opposite(j), 1), order(j, i, 1)),
    "an order of an index and an opposite": (order(i, opposite(j), 0), order(j, opposite(i), 0)),
    "sums from the end": (
        summed(lambda j: order(j, opposite(i), 0) * v(opposite(j)), "N"),
        summed(lambda j: order(i, j, 0) * v(j), "N"),
    ),
    "a sum over what is the opposite": (summed(lambda j: delta(opposite(j), i) * v(j), "N"), v(opposite(i))),
    "minus infinity": (exp(Z(i, k) - 3 * of(INFINITE)), ZERO),
    "where it is minus infinity": (exp((1 - M(i, k)) * Z(i, k) - M(i, k) * of(INFINITE)), (1 - M(i, k)) * exp(Z(i, k))),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_expressions(name: str):
    left, right = EQUAL[name]
    assert is_equal(left, right), f"{text(left)}  and  {text(right)}"
    assert not is_equal(left, right + 1)
    values = [evaluate(e, [i, j, k], VALUES, SIZES) for e in (left, right)]
    np.testing.assert_allclose(*np.broadcast_arrays(*values), err_msg=f"{text(left)}  and  {text(right)}")


before = summed(lambda j: order(i, j, 1) * X(i, j) * v(j), "N")
after = summed(lambda j: order(j, i, 1) * X(i, j) * v(j), "N")
everywhere = summed(lambda j: X(i, j) * v(j), "N")
THREE = {
    "sums": (before + after + X(i, i) * v(i), everywhere),
    "free indices": (order(i, j, 1) + order(j, i, 1) + delta(i, j), ONE),
    "functions": (exp(v(i) * order(i, j, 1)) + exp(v(i) * order(j, i, 1)), 1 + exp(v(i) * (1 - delta(i, j)))),
    "labels": (order(t, k, 1) + order(k, t, 1), 1 - delta(k, t)),
    "inside a function": (log(1 + before**2), log(1 + (everywhere - X(i, i) * v(i) - after) ** 2)),
}


@pytest.mark.parametrize("name", THREE)
def test_one_is_before_at_or_after_another(name: str):
    left, right = (under([trichotomy], e) for e in THREE[name])
    assert is_equal(left, right), f"{text(left)}  and  {text(right)}"
    values = [evaluate(e, [i, j, k], VALUES, SIZES) for e in (*THREE[name], left, right)]
    for found in np.broadcast_arrays(*values)[1:]:
        np.testing.assert_allclose(found, np.broadcast_to(values[0], found.shape))


DIFFERENT = {
    "steps that are both at 0": (step(-v(i)), 1 - step(v(i))),
    "a maximum is not above itself": (
        positive(Z(i, k) - maximum(lambda k: Z(i, k), "K")),
        1 - positive(maximum(lambda k: Z(i, k), "K") - Z(i, k)),
    ),
    "counts are not below 0": (
        positive(summed(lambda k: positive(Z(i, k)), "K")),
        1 - positive(-summed(lambda k: positive(Z(i, k)), "K")),
    ),
    "labels of other rows": (Z(i, t), Z(i, Label("t", [j], "K"))),
    "flags of other entries": (M(i, k), M(j, k)),
    "orders of transposes": (order(i, j, 1), order(j, i, 1)),
    "orders at a distance": (order(i, j, 1), order(i, j, 2)),
    "infinity with an unknown sign": (exp(v(i) * of(INFINITE)), ZERO),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_expressions(name: str):
    assert not is_equal(*DIFFERENT[name])


def test_a_label_of_itself_is_left():
    same = Label("s", [i], "N")
    e = delta(same, i) * X(i, same)
    values = VALUES | {"s": np.array([0, 2, 2])}
    expected = np.where(np.arange(3) == values["s"], np.diag(values["X"]), 0)
    np.testing.assert_allclose(evaluate(e, [i], values, SIZES), expected)
    total = evaluate(summed_over([i], e), [], values, SIZES)
    np.testing.assert_allclose(total, expected.sum())


def test_the_derivative_with_respect_to_what_a_label_selects():
    loss = summed(lambda i: log(summed(lambda k: exp(Z(i, k)), "K")) - Z(i, Label("t", [i], "K")), "N")
    softmax = exp(Z(i, k)) / summed(lambda k: exp(Z(i, k)), "K")
    assert is_equal(loss.derivative(Entry("Z", [i, k])), softmax - delta(k, t))


def test_text():
    assert text(Z(i, t) + delta(t, k) + order(i, j, 1) + order(i, j, 3)) == "Z_i,t_i + [i < j] + [i + 2 < j] + [k=t_i]"
    assert text(positive(v(i)) * M(i, k)) == "M_ik·[v_i > 0]"


@pytest.mark.parametrize("rows", [4, 6])
def test_sums_over_many_indices_have_one_form(rows: int):
    """A path x_ab·x_bc·x_cd·… with sums inside, whatever its indices are called and in which order they are summed."""

    def path(order_of_indices: list[int]):
        indices = [new_index("N") for _ in range(rows)]
        pairs = [(indices[n], indices[n + 1]) for n in range(rows - 1)]
        random.Random(str(order_of_indices)).shuffle(pairs)
        e = as_expression(1)
        for p, q in pairs:
            e = e * X(p, q) / (1 + summed(lambda k, p=p, q=q: exp(Z(p, k) * Z(q, k)), "K"))
        for n in order_of_indices:
            e = summed_over([indices[n]], e)
        return e

    orders = [random.Random(seed).sample(range(rows), rows) for seed in range(3)]
    assert len({path(order).key for order in orders}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_values_are_those_of_the_definitions(seed: int):
    """Random programs, entry by entry and at once."""
    _, result = random_program(random.Random(seed), 6)
    inputs = symbolic_inputs()
    sizes = {"N": 2, "D": 3, "K": 2}
    numbers = Numbers(sizes, inputs.values(), np.random.default_rng(seed))
    axes = [part for i in result.indices for part in i.parts]
    with np.errstate(all="ignore"):
        found = evaluate(result.entry, axes, {n: x.squeeze() for n, x in numbers.matrices.items()}, sizes)
    expected = numbers.matrix(result)
    found = np.broadcast_to(found, [sizes[i.size] for i in axes]).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert set(inputs) == set(INPUTS)


def test_a_constant_is_its_value():
    assert evaluate(size("N") * Fraction(1, 2), [], {}, SIZES) == 1.5


@pytest.mark.parametrize("seed", range(20))
def test_other_indices_permute_axes(seed: int):
    """Of random programs, whose indices exchange names or get new ones."""
    _, result = random_program(random.Random(seed), 6)
    sizes = {"N": 3, "D": 3, "K": 3}
    numbers = Numbers(sizes, symbolic_inputs().values(), np.random.default_rng(seed))
    values = {n: x.squeeze() for n, x in numbers.matrices.items()}
    axes = [part for i in result.indices for part in i.parts]
    new = [new_index(i.size) for i in axes]
    exchanged = axes[::-1] if len({i.size for i in axes}) == 1 else axes
    with np.errstate(all="ignore"):
        expected = evaluate(result.entry, axes, values, sizes)
        for others in (new, exchanged):
            e = result.entry.substituted(dict(zip(axes, others, strict=True)))
            np.testing.assert_allclose(evaluate(e, others, values, sizes), expected, rtol=1e-9)
            assert e.substituted(dict(zip(others, axes, strict=True))) == result.entry


def test_roots_of_what_is_below_0_may_cancel():
    """Σ_j [x_j > 0]·√x_j, as Σ_j √x_j - Σ_j (1 - [x_j > 0])·√x_j"""
    roots = summed(lambda j: sqrt(v(j)), "N"), summed(lambda j: (1 - positive(v(j))) * sqrt(v(j)), "N")
    values = {"v": np.array([2.0, -3.0, 5.0])}
    expected = np.sqrt(values["v"][values["v"] > 0]).sum()
    np.testing.assert_allclose(evaluate(roots[0] - roots[1], [], values, SIZES), expected)
    assert np.isnan(evaluate(roots[0], [], values, SIZES))
