"""Random table programs in pairs: equal ones are proved, and no unequal ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest

from index_support import BINARY, INPUTS, UNARY, Matrix, Program, centered, random_program, run, symbolic_inputs
from matgrad.index_notation.expressions import UndefinedError
from matgrad.judges.index_judge import is_proved
from matgrad.matrix_operations import (
    column_repeat,
    columns_sum,
    diag,
    elements_sum,
    exp,
    hadamard,
    identity,
    inv_sqrt,
    log,
    ones,
    reciprocal,
    row_repeat,
    rows_sum,
)
from matgrad.program.entries import IndexMatrix
from matgrad.softmax_functions import log_softmax, softmax, stable_log_softmax, stable_softmax

# -- equal pairs: the same operation, written in another way --------------------------------------------


def of_ones(A: Matrix) -> Matrix:
    return ones(*A.shape, like=A)


def identity_like(A: Matrix) -> Matrix:
    return identity(A.shape[0], like=A)


def centering(A: Matrix) -> Matrix:
    """(I - 1 1ᵀ / m) A"""
    m = A.shape[0]
    return (identity(m, like=A) - ones(m, m, like=A) / m) @ A


def sigmoid(A: Matrix) -> Matrix:
    return reciprocal(of_ones(A) + exp(-A))


def normalized(A: Matrix) -> Matrix:
    R = centering(A)
    Sigma = diag(R.T @ R).T / A.shape[0]
    return hadamard(R, ones(A.shape[0], 1, like=A) @ inv_sqrt(Sigma, 0.01))


def diagonal(x: Matrix) -> Matrix:
    """Diag(x) as I ⊙ (x repeated); for a column, its rows are repeated."""
    n = x.shape[1] if x.shape[0] == 1 else x.shape[0]
    repeated = ones(n, 1, like=x) @ x if x.shape[0] == 1 else x @ ones(1, n, like=x)
    return hadamard(identity(n, like=x), repeated)


OTHER_UNARY: dict[str, Callable[[Matrix], Matrix]] = {
    "transpose": lambda A: (A + A).T / 2,
    "columns_sum": lambda A: ones(1, A.shape[0], like=A) @ A,
    "rows_sum": lambda A: A @ ones(A.shape[1], 1, like=A),
    "columns_mean": lambda A: (A.T @ ones(A.shape[0], 1, like=A)).T / A.shape[0],
    "rows_mean": lambda A: columns_sum(A.T).T / A.shape[1],
    "columns_max": lambda A: UNARY["rows_max"](A.T).T,
    "rows_max": lambda A: UNARY["columns_max"](A.T).T,
    "exp": lambda A: hadamard(exp(A / 8), exp(A / 8)),
    "tanh": lambda A: 2 * sigmoid(2 * A) - of_ones(A),
    "log_sigmoid": lambda A: -log(of_ones(A) + exp(-A)),
    "cube": lambda A: hadamard(A, hadamard(A, A)),
    "reciprocal": lambda A: exp(-log(hadamard(A, A) + of_ones(A))),
    "inv_sqrt": lambda A: hadamard(
        inv_sqrt(hadamard(A, A), 0.01), hadamard(inv_sqrt(A * 1.0 - A + of_ones(A), 0), of_ones(A))
    ),
    "softmax": stable_softmax,
    "stable_softmax": lambda A: exp(log_softmax(A)),
    "log_softmax": stable_log_softmax,
    "centered": centering,
    "normalized": normalized,
    "Diag": diagonal,
    "diag": lambda A: rows_sum(hadamard(A, identity_like(A))),
    "Gram": lambda A: (A @ A.T).T,
    "weighted": lambda A: (A.shape[0] * A + A) / A.shape[1],
    "minus": lambda A: A - 2 * A,
    "identity": lambda A: (A.T @ identity_like(A)).T,
}
OTHER_BINARY: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "add": lambda A, B: B + A,
    "subtract": lambda A, B: -(B - A),
    "hadamard": lambda A, B: (hadamard(A + B, A + B) - hadamard(A - B, A - B)) / 4,
    "selected": lambda A, B: BINARY["selected"](A.T, B.T).T,
    "product": lambda A, B: (B.T @ A.T).T,
    "product with a transpose": lambda A, B: (A @ identity(A.shape[1], like=A)) @ B.T,
    "product of a transpose": lambda A, B: (A.T + A.T) @ B - A.T @ B,
    "column_repeat": lambda A, B: A @ ones(1, B.shape[1], like=A),
    "row_repeat": lambda A, B: column_repeat(A.T, B.shape[0]).T,
}
AROUND: tuple[Callable[[Matrix], Matrix], ...] = (
    lambda R: R,
    lambda R: R.T.T,
    lambda R: identity_like(R) @ R,
    lambda R: 3 * R - (R + R),
    lambda R: hadamard(R, of_ones(R)),
    lambda R: centered(R) + row_repeat(columns_sum(R), R.shape[0]) / R.shape[0],
    lambda R: R + elements_sum(R) * of_ones(R) - of_ones(R) * elements_sum(R.T),
    lambda R: hadamard(R, rows_sum(softmax(R)) @ ones(1, R.shape[1], like=R)),
)


def rewritten(program: Program, inputs: dict[str, Matrix], rng: random.Random) -> Matrix:
    """The result of a program in which most operations are written in another way."""
    pool = [inputs[name] for name in INPUTS]
    for name, a, b in program:
        other = rng.random() < 0.7
        if name in UNARY:
            pool.append((OTHER_UNARY if other else UNARY)[name](pool[a]))
        else:
            pool.append((OTHER_BINARY if other else BINARY)[name](pool[a], pool[b]))
    return rng.choice(AROUND)(pool[-1])


def values(program: Callable[[dict[str, Matrix]], Matrix], seed: int) -> list[np.ndarray]:
    """The results of a program for several random sizes and numbers."""
    found = []
    for k, (n, d, m) in enumerate(((3, 4, 5), (2, 3, 2), (4, 2, 3))):
        rng = np.random.default_rng((seed, k))
        sizes = {"N": n, "D": d, "K": m, "1": 1}
        shapes = {name: [sizes[str(size)] for size in shape] for name, shape in INPUTS.items()}
        with np.errstate(all="ignore"):
            found.append(np.asarray(program({name: rng.uniform(-1.5, 1.5, shape) for name, shape in shapes.items()})))
    return found


def equal_pair_is_proved(seed: int) -> bool | None:
    """The verdict on an equal pair; None if one has no canonical form."""
    rng = random.Random(seed)
    program, A = random_program(rng, rng.randint(1, 5))
    state = rng.getstate()
    try:
        B = rewritten(program, symbolic_inputs(), rng)
    except (UndefinedError, RecursionError):
        return None
    rng.setstate(state)

    def other(inputs: dict[str, Matrix]) -> Matrix:
        rng.setstate(state)
        return rewritten(program, inputs, rng)

    for x, y in zip(values(partial(run, program), seed), values(other, seed), strict=True):
        if np.isfinite(x).all() and np.isfinite(y).all():
            assert np.allclose(x, y, rtol=1e-6, atol=1e-6 * max(1, np.abs(x).max())), f"seed {seed}: not equal"
    return is_proved(A, B)


# -- unequal pairs: one thing is changed ---------------------------------------------------------------


def changed(program: Program, rng: random.Random) -> Program:
    """A program with another operation or another operand in one place."""
    k = rng.randrange(len(program))
    name, a, b = program[k]
    match rng.randrange(3):
        case 0:
            name = rng.choice([*(UNARY if name in UNARY else BINARY)])
        case 1:
            a = rng.randrange(len(INPUTS) + k)
        case 2:
            b = rng.randrange(len(INPUTS) + k)
    return [*program[:k], (name, a, b), *program[k + 1 :]]


def unequal_pair(seed: int) -> tuple[IndexMatrix, IndexMatrix]:
    """Two similar programs of the same size whose values differ."""
    rng = random.Random(seed)
    while True:
        program, A = random_program(rng, rng.randint(1, 5))
        expected = values(partial(run, program), seed)
        for _ in range(30):
            other = changed(program, rng)
            try:
                if not differ(expected, values(partial(run, other), seed)):
                    continue
                B = run(other, symbolic_inputs())
                assert B.entry.key is not None
            except (TypeError, ValueError, UndefinedError, RecursionError):  # it does not fit, or has no form in reach
                continue
            if [str(n) for n in A.shape] == [str(n) for n in B.shape]:
                return A, B


def differ(A: list[np.ndarray], B: list[np.ndarray]) -> bool:
    """Whether results have the same sizes and are different, more than by rounding."""
    pairs = list(zip(A, B, strict=True))
    finite = [(x, y) for x, y in pairs if np.isfinite(x).all() and np.isfinite(y).all()]
    same_sizes = all(x.shape == y.shape for x, y in pairs)
    return same_sizes and any(np.abs(x - y).max() > 1e-6 * max(1, np.abs(x).max()) for x, y in finite)


def proved_unequal_pairs(seeds: Iterable[int]) -> list[int]:
    """The seeds of unequal pairs that are proved."""
    return [seed for seed in seeds if is_proved(*unequal_pair(seed))]


def share_proved(number: int) -> float:
    """The share of equal pairs that are proved; what has no canonical form is not."""
    return sum(bool(equal_pair_is_proved(seed)) for seed in range(number)) / number


def test_equal_pairs_are_proved():
    assert share_proved(200) >= 0.99


def test_no_unequal_pair_is_proved():
    assert not proved_unequal_pairs(range(300))


@pytest.mark.slow
def test_many_equal_pairs_are_proved():
    assert share_proved(3000) >= 0.99


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_none_of_many_unequal_pairs_is_proved():
    assert not proved_unequal_pairs(range(1_000, 11_000))
