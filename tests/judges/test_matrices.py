"""The table on matrices in index notation: every operation against its meaning, sizes, and random programs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from index_support import INPUTS, Numbers, random_program, run, symbolic_inputs
from matgrad.index_notation.expressions import UndefinedError
from matgrad.judges.index_judge import Symbols, gradient, is_proved, jacobian, matrix
from matgrad.matrix_operations import (
    column_repeat,
    columns_max,
    columns_sum,
    elements_sum,
    hadamard,
    identity,
    one_hot,
    ones,
    rows_max,
    rows_sum,
    zeros,
)
from matgrad.program.adjoint import gradients
from matgrad.program.entries import SYMBOLIC, IndexMatrix, result, symbols
from matgrad.program.operations import OPERATIONS
from matgrad.program.shapes import SCALAR, Questions, Size
from program_support import MEANING

N, D, K = map(Size, "NDK")
NUMBERS = {"N": 2, "D": 3, "K": 4, "m": 2, "n": 3, "k": 4, "b": 2, "p": 3, "q": 2, "r": 4}
WITHOUT_INDEX = {"uniform", "one_hot_product", "one_hot_transposed_product"}  # numbers that are arbitrary
DEFINED = [name for name, row in OPERATIONS.items() if row.index is not None]


def test_every_operation_of_dense_matrices_has_an_index_definition():
    assert set(DEFINED) == set(MEANING) - WITHOUT_INDEX


def operands(rule: list[tuple[str, ...]]) -> list[IndexMatrix]:
    """Symbols that fit the patterns of a rule; ``*`` is a matrix."""
    shapes = [("m", "n") if pattern == ("*",) else pattern for pattern in rule]
    return [symbols(f"A{i}", *(1 if n == "1" else Size(n) for n in shape)) for i, shape in enumerate(shapes)]


BLOCKS = ("stack", "unstack", "block_product", "block_transposed_product", "diag_product")


@pytest.mark.parametrize("name", DEFINED)
def test_index_definitions_are_what_operations_mean(name: str):
    for *patterns, _ in OPERATIONS[name].shapes.alternatives:
        given = {"row_repeat": {"m": Size("m")}, "column_repeat": {"n": Size("n")}, "identity": {"n": Size("n")}}
        given["full"] = {"m": Size("m"), "n": Size("n")}
        given |= {key: {"p": Size("p")} for key in BLOCKS}
        matrices = operands(patterns)
        if name == "power":
            matrices[1] = 0 * matrices[1] + 3
        found = result(name, *matrices, **given.get(name, {}))
        numbers = Numbers(NUMBERS, (A for A in matrices if A.entry.constant is None), np.random.default_rng(1))
        values = [numbers.matrix(A) for A in matrices]
        values = [float(x) if pattern == SCALAR else x for x, pattern in zip(values, patterns, strict=True)]
        expected = MEANING[name](numbers.shape(found), *values)
        np.testing.assert_allclose(numbers.matrix(found), expected, rtol=1e-12, err_msg=name)


# -- sizes -------------------------------------------------------------------------------------


def test_sizes_are_opaque():
    for use in (int, float, range, iter, lambda n: n % 2, lambda n: n > 2, lambda n: n <= 5, lambda n: n > K):
        with pytest.raises(TypeError):
            use(N)
    with pytest.raises(TypeError):
        np.ones((N, 2))


def test_questions_about_sizes_are_remembered():
    questions = Questions()
    n, m = Size("n", questions), Size("m", questions)
    assert n == n
    assert n == Size("n")
    assert not questions.ones
    assert n > 0
    assert n >= 1
    assert not n < 1
    assert n != 0
    assert not questions.ones
    assert not questions.others
    assert n != 1
    assert m > 1
    assert questions.ones == {"n", "m"}
    assert n >= 2
    assert not n < 2
    assert not questions.others
    assert n != m
    assert n != 5
    assert questions.others == ["whether n = m", "whether n = 5"]


def test_arithmetic_of_sizes():
    X = symbols("X", N, D)
    assert is_proved(N * X / N, X)
    assert is_proved(X * (N - 1) / (N - 1), X)
    assert is_proved((N * K / (K + K)) * X, X * N / 2)
    assert not is_proved((N / D) * X, X)
    assert is_proved(rows_sum(ones(N, D, like=X)), D * ones(N, like=X))


# -- matrices ----------------------------------------------------------------------------------


def test_nothing_broadcasts():
    X, W = symbols("X", N, D), symbols("W", K, D)
    for use in (lambda: X + W, lambda: X @ W, lambda: hadamard(X, W), lambda: column_repeat(X, K), lambda: X + X.T):
        with pytest.raises((TypeError, ValueError), match="expected"):
            use()


def test_what_needs_numbers_is_refused():
    X, s = symbols("X", N, D), symbols("s")
    for use in (bool, float, len, list, abs, np.exp, lambda X: X[0], lambda X: X > 0, lambda X: X == 1):
        with pytest.raises(TypeError):
            use(X)
    with pytest.raises(TypeError, match="in place"):
        X += X
    with pytest.raises(TypeError):
        bool(s)
    with pytest.raises(TypeError):
        X + np.ones((2, 2))
    assert symbols("p", is_positive=True)
    assert s - s == 0
    assert s - s + 2 != 0


def test_rows_and_columns_of_square_matrices():
    A = symbols("A", N, N)

    def column(j: Any) -> IndexMatrix:
        return Symbols.row(A.T, j).T

    assert is_proved(matrix(A.shape, lambda i, j: (Symbols.row(A, i) @ column(j)).entry), A @ A)
    assert is_proved(matrix(A.shape, lambda i, j: Symbols.row(A, i).T[j, column(j).indices[1]]), A)
    assert not is_proved(matrix(A.shape, lambda i, j: Symbols.row(A, i).T[j, column(j).indices[1]]), A.T)


def test_gradients_and_jacobians():
    x, A = symbols("x", N, 1), symbols("A", N, N)
    assert is_proved(jacobian(A @ x, x), A)
    assert not is_proved(jacobian(A @ x, x), A.T)
    assert is_proved(gradient(elements_sum(hadamard(x, A @ x)), x), A @ x + A.T @ x)
    assert is_proved(gradient(elements_sum(A @ A), A), (ones(N, N, like=A) @ A + A @ ones(N, N, like=A)).T)
    assert is_proved(jacobian(x, x), identity(N, like=x))
    assert is_proved(gradient(elements_sum(x), A), zeros(N, N, like=A))
    with pytest.raises(ValueError, match="symbols"):
        gradient(elements_sum(A), 2 * A)


@pytest.mark.parametrize("name", BLOCKS)
def test_adjoints_of_blocks_are_their_gradients(name: str):
    given = operands(OPERATIONS[name].shapes.operands)
    Y = result(name, *given, p=Size("p"))
    G = symbols("G", *Y.shape)
    for A, DA in zip(given, OPERATIONS[name].adjoint(G, Y, *given), strict=True):
        assert is_proved(DA, gradient(elements_sum(hadamard(G, Y)), A))
        assert not is_proved(2 * DA, gradient(elements_sum(hadamard(G, Y)), A))


def test_one_hot_matrices_are_arbitrary():
    x, W, U = symbols("x", N, 1), symbols("W", K, D), symbols("U", N, D)
    E, Y = one_hot(x, K), one_hot(x, K) @ W
    assert is_proved(gradient(elements_sum(hadamard(U, Y)), W), E.T @ U)
    assert not is_proved(Y, one_hot(symbols("t", N, 1), K) @ W)
    assert is_proved((W.T @ E.T).T, Y)


@pytest.mark.parametrize("maximum", [lambda U: rows_max(U).T, lambda U: columns_max(U.T)], ids=["rows", "columns"])
def test_an_element_that_occurs_twice_is_counted_once_in_the_derivative_of_a_maximum(maximum: Any):
    X, E, G = symbols("X", N, D), symbols("E", D, K), symbols("G", 1, N)
    numbers = Numbers({"N": 2, "D": 3, "K": 4}, (X, E, G), np.random.default_rng(0))
    numbers.matrices["E"] = np.eye(3)[:, [0, 1, 2, 2]]  # a window with repeated padding
    numbers.matrices["X"][:, 2] += 2  # so that the greatest element occurs twice
    Y = maximum(X @ E)
    expected = np.zeros((2, 3))
    expected[:, 2] = numbers.matrices["G"][0]
    assert np.allclose(numbers.matrix(gradient(elements_sum(hadamard(G, Y)), X)), expected)
    (DX,) = (D for x, D in gradients(Y.value, G.value, SYMBOLIC).items() if x.name == "X")
    assert np.allclose(numbers.matrix(SYMBOLIC.matrix(DX)), expected)


def test_products_of_sizes_are_pairs_of_indices():
    X, W = symbols("X", N * D, K), symbols("W", K, K)
    assert X.indices[0].parts == (("row1", "N"), ("row2", "D"))
    assert repr(columns_sum(X)) == "Σ_kl X_lkj"
    assert is_proved(gradient(elements_sum(X @ W), W), X.T @ ones(N * D, K, like=X))
    assert is_proved(rows_sum(ones(N * D, K, like=X) @ W), ones(N * D, like=X) * elements_sum(W))
    assert is_proved(elements_sum(ones(N * D, K, like=X)), N * D * K * symbols("s") / symbols("s"))
    with pytest.raises((TypeError, ValueError), match="expected"):
        X + symbols("Y", D * N, K)


# -- random programs ---------------------------------------------------------------------------


def agree(seed: int, length: int, sizes: Mapping[Size, Size] = MappingProxyType({})) -> bool:
    """Whether canonical form and gradient of a random program have the values that torch computes."""
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    program, A = random_program(rng, rng.randint(1, length), sizes)
    inputs = symbolic_inputs(sizes)
    numbers = Numbers({name: rng.randint(1, 3) for name in "NDKPQ"}, inputs.values(), generator)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in numbers.matrices.items()}
    Y = run(program, tensors)
    if not torch.isfinite(Y).all() or Y.abs().max() > 1e6:
        return True
    name = rng.choice(list(INPUTS))
    (slope,) = torch.autograd.grad((Y * Y).sum(), tensors[name], allow_unused=True)
    expected = np.zeros(tensors[name].shape) if slope is None else slope.numpy()
    try:
        found = numbers.matrix(gradient(elements_sum(hadamard(A, A)), inputs[name]))
    except UndefinedError as error:
        return "too many forms" in str(error)
    values = np.allclose(numbers.matrix(A), Y.detach(), rtol=1e-9, atol=1e-10)
    return values and np.allclose(found, expected, rtol=1e-7, atol=1e-8 * max(1, np.abs(expected).max()))


def test_random_programs_have_the_values_and_gradients_of_torch():
    wrong = [seed for seed in range(250) if not agree(seed, 6)]
    assert not wrong


def test_random_programs_with_a_product_of_sizes_have_the_values_and_gradients_of_torch():
    pairs = {N: Size("P") * Size("Q")}
    wrong = [seed for seed in range(60) if not agree(seed, 5, pairs)]
    assert not wrong
