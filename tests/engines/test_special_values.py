"""Every operation on nan, ±inf, ±0, tiny and huge numbers: programs compute what the table computes one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matgrad._native")

from engine_support import ENGINES, eager, program_of, runner

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.backends import get_backend
from matgrad.backends.base import DTYPES
from matgrad.matrix_operations import one_hot
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.rules import ONES
from matgrad.program.shapes import ANY, SCALAR, Shape
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model
from program_support import executed
from support import Framework, to_numpy

BACKENDS = ("numpy", "torch", "native")
RTOL = {"float32": 4e-6, "float64": 1e-13}
SIZES = {"m": 5, "n": 19, "k": 7, "K": 6, "D": 8, "N": 40, "nnz": 20, "b": 3, "p": 4, "q": 2, "r": 3, "d": 6}
SUPPORT = Support.random(SIZES["K"], SIZES["D"], SIZES["nnz"], np.random.default_rng(1))
SELECTION = one_hot(np.array([3, -1, 0, 3, 7, 2]), SIZES["D"]).support
OTHERS = ("source", "collective")  # these compute nothing
COMPUTED = [name for name, row in OPERATIONS.items() if row.kind not in OTHERS and row.dtypes != "counts"]
ELEMENTWISE = [name for name in COMPUTED if OPERATIONS[name].kind == "elementwise"]
SCALARS = (-0.5, 0.0, 0.5, np.inf, np.nan)  # exact factors, since the core rounds y + c·x only once
EXPONENTS = (*SCALARS, 2.0, 3.0, -1.0)


def special(dtype: str) -> list[float]:
    """Numbers that are easily got wrong."""
    limits = np.finfo(dtype)
    positive = [0.0, float(limits.tiny) / 4, float(limits.tiny), 1e-3, 0.5, 1.0, 3.0, 100.0, 1e30, float(limits.max)]
    return [np.nan, *positive, np.inf, *(-x for x in positive), -np.inf]


def flushed(A: np.ndarray) -> np.ndarray:
    """A with 0 for subnormal numbers, as the core computes."""
    if A.dtype.kind != "f":
        return A
    return np.where(np.abs(A) < np.finfo(A.dtype).tiny, np.copysign(0, A), A).astype(A.dtype)


def check(engine: str, name: str, run: Any, shape: Shape, operands: Sequence[Any], dtype: str) -> None:
    """An operation in a program gives what the table gives: nan, infinities, zeros with their signs, and the rest."""
    is_native = engine.startswith("native")
    backend = get_backend("torch" if engine == "torch" else "numpy")
    arrays = [flushed(x) if is_native and isinstance(x, np.ndarray) else x for x in operands]
    own = [backend.from_numpy(x) if isinstance(x, np.ndarray) else x for x in arrays]
    with np.errstate(all="ignore"):
        like = backend.from_numpy(np.zeros((1, 1), dtype))
        expected = np.array(backend.to_numpy(eager(name, backend, shape, like, own)))
        inputs = {f"x{i}": x for i, x in enumerate(operands) if isinstance(x, np.ndarray)}
        actual = run(inputs)
    context = f"{name} on {engine}, {dtype}"
    is_elementwise = OPERATIONS[name].kind == "elementwise"
    atol = float(np.finfo(dtype).tiny) if is_elementwise else RTOL[dtype]  # sums may cancel
    np.testing.assert_allclose(actual, expected, rtol=RTOL[dtype], atol=atol, err_msg=context)
    if is_elementwise:
        zero = (actual == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(expected[zero]), err_msg=context)


def scalars(name: str) -> Iterator[tuple[float, ...]]:
    """Values for the scalar operands of an operation."""
    count = OPERATIONS[name].shapes.operands.count(SCALAR)
    if count == 2:
        return iter([(-0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (np.inf, 0.5), (0.5, np.nan)])
    return itertools.product(EXPONENTS if name == "power" else SCALARS, repeat=count)


def merged(name: str, matrices: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """The operands in their order, from matrices and supports, and from scalars."""
    rest, c = iter(matrices), iter(numbers)
    return [next(c) if pattern == SCALAR else next(rest) for pattern in OPERATIONS[name].shapes.operands]


# -- elementwise operations: all pairs of numbers -----------------------------------------------------


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operations_on_all_pairs(name: str):
    """Scalars are numbers in the program, or given with the matrices."""
    for engine, dtype, fixed in itertools.product(ENGINES, DTYPES, (True, False)):
        v = np.array([special(dtype)], dtype)
        pairs = [np.repeat(v.T, v.size, axis=1), np.repeat(v, v.size, axis=0)]
        count = OPERATIONS[name].shapes.operands.count(ANY)
        for c in scalars(name):
            numbers = c if fixed else [np.array(x, dtype) for x in c]
            operands = merged(name, pairs[:count], numbers)
            shapes = [np.shape(x) for x in operands]
            run = runner(engine, program_of(name, shapes, pairs[0].shape, operands, dtype))
            check(engine, name, run, pairs[0].shape, operands, dtype)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operations_on_scalars(name: str):
    patterns = OPERATIONS[name].shapes.operands
    for engine, dtype in itertools.product(ENGINES, DTYPES):
        some = special(dtype)[::2] if len(patterns) == 1 else [np.nan, -0.0, -3.0, 1e30, np.inf]
        choices = [EXPONENTS if p == SCALAR and name == "power" else SCALARS if p == SCALAR else some for p in patterns]
        run = runner(engine, program_of(name, [()] * len(patterns), (), [np.array(0, dtype)] * len(patterns), dtype))
        for numbers in itertools.product(*choices):
            check(engine, name, run, (), [np.array(x, dtype) for x in numbers], dtype)


# -- the others: one such number among ordinary ones -----------------------------------------------------


@pytest.mark.parametrize("name", [name for name in COMPUTED if name not in ELEMENTWISE])
def test_other_operations_on_one_special_number(name: str):
    row, rng = OPERATIONS[name], np.random.default_rng(2)
    shapes = [tuple(map(size_of, pattern)) for pattern in row.shapes.operands]
    if name in ONES:
        shapes[0] = (*SELECTION.shape, SELECTION.nnz)
    result = row.shapes.result(shapes, SIZES | ({"nnz": SELECTION.nnz} if name in ONES else {}))
    for engine, dtype in itertools.product(ENGINES, DTYPES):
        support = SELECTION if name in ONES else SUPPORT
        ordinary = [support if len(s) == 3 else rng.uniform(0.25, 0.75, s).astype(dtype) for s in shapes if s]
        for numbers in ([np.array(x, dtype) for x in c] for c in scalars(name)):
            run = runner(engine, program_of(name, shapes, result, merged(name, ordinary, numbers), dtype))
            for matrices in one_special(ordinary, dtype):
                check(engine, name, run, result, merged(name, matrices, numbers), dtype)


def size_of(names: str) -> int:
    """The number that stands for a size of a rule, or for a product of sizes."""
    return math.prod(SIZES.get(name, 1) for name in names.split("·"))


def one_special(ordinary: Sequence[Any], dtype: str) -> Iterator[list[Any]]:
    """The matrices with a special number in one of them: in the last place for float32, else in the first."""
    yield list(ordinary)
    for i, A in enumerate(ordinary):
        for x in special(dtype) if not isinstance(A, Support) else ():
            changed = A.copy()
            changed.flat[-1 if dtype == "float32" else 0] = x
            yield [*ordinary[:i], changed, *ordinary[i + 1 :]]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("operation", ["add_scaled", "product_sum"])
def test_a_factor_of_0_hides_no_nan_in_a_large_matrix_in_place(framework: str, operation: str):
    """W + 0·X, and 0·W + 0·X X, which BLAS would leave out."""
    W = Value("input", (), (200, 200), name="W")
    X, c = Value("input", (), (200, 200), name="X"), Value("input", (), (), name="c")
    operands = (W, c, X) if operation == "add_scaled" else (c, W, c, X, X)
    program = Program({x.name: x for x in (W, X, c)}, {"W": Value(operation, operands, (200, 200), order=1)})
    A = np.ones((200, 200))
    B = A.copy()
    B[3, 4] = np.nan
    with np.errstate(invalid="ignore"):
        result = executed(program, {"W": A}, {"X": B, "c": np.array(0.0)}, backend=framework)["W"]
        assert np.isnan(result[3, 4])
        if operation == "product_sum":
            result = executed(program, {"W": B}, {"X": A, "c": np.array(0.0)}, backend=framework)["W"]
            assert np.isnan(result[3, 4])


# -- in a model ----------------------------------------------------------------------------------------

LAYERS = (*ACTIVATIONS, "SReLU", "LeakyReLU(2)", "Sigmoid;Softmax")
LAYERS += tuple(f"{norm}Normalization;ReLU" for norm in ("Batch", "Layer", "RMS"))


@pytest.mark.parametrize("place", ["X", "W", "rate 0", "momentum 0"])
@pytest.mark.parametrize("layers", LAYERS)
def test_a_compiled_step_hides_no_nan(backend: Framework, layers: str, place: str):
    """Where the equations give nan, one by one, so does the compiled step, and nowhere else.

    XLA makes a selection of A ⊙ [Z ≥ 0], which hides nan.
    """
    hidden = [6 for name in layers.split(";") if not name.endswith("Normalization")]
    momentum = 0.0 if place == "momentum 0" else 0.9
    M = create_model(f"{layers};Linear", sizes=[4, *hidden, 3], optimizers=f"Momentum({momentum})")
    M.to(backend.name, dtype="float64")
    arrays = {name: np.array(to_numpy(A)) for name, A in M.state().items()}
    rng = np.random.default_rng(3)
    X, T = rng.normal(size=(5, 4)), np.eye(3)[rng.integers(0, 3, 5)]
    {
        "X": X,
        "rate 0": X,
        "W": next(A for name, A in arrays.items() if name.endswith(".W")),
        "momentum 0": next(A for name, A in arrays.items() if name.endswith(".W.delta")),
    }[place][1, 2] = np.nan
    state = {name: backend.matrix(A) for name, A in arrays.items()}
    X, T, eta = backend.matrix(X), backend.matrix(T), backend.matrix(0.0 if place == "rate 0" else 0.1)
    loss = mg.SoftmaxCrossEntropyLoss()
    step = mg.compile_step(M, loss)
    step.load(state)
    with np.errstate(all="ignore"):
        expected = {name: to_numpy(A) for name, A in mg.make_step(M, loss)(state, X, T, eta).items()}
        step(X, T, eta)
    assert any(np.isnan(A).any() for A in expected.values())
    for name, A in expected.items():
        np.testing.assert_allclose(to_numpy(step.state()[name]), A, rtol=1e-9, atol=1e-12, err_msg=f"{layers}, {name}")


# -- whole numbers ----------------------------------------------------------------------------------------

WHOLE = (2**53 + 1, 2**62 + 3, -(2**62) - 1, 2**63 - 1, 7)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("add", lambda a, b: a + b),
        ("subtract", lambda a, b: a - b),
        ("hadamard", lambda a, b: a * b),
        ("negative", lambda a: -a),
        ("copy", lambda a: a),
    ],
)
def test_counters_are_exact_below_2_to_the_63(engine: str, name: str, exact):
    """Modulo 2^64 beyond that, and with numbers that are fixed in the program."""
    count = len(OPERATIONS[name].shapes.operands)
    for numbers in itertools.product(WHOLE, repeat=count):
        expected = (exact(*numbers) + 2**63) % 2**64 - 2**63
        for fixed in range(count):
            operands = [np.array(numbers[0]), *(x if fixed else np.array(x) for x in numbers[1:])]
            program = program_of(name, [()] * count, (), operands, "float64")
            with np.errstate(over="ignore"):
                inputs = {f"x{i}": x for i, x in enumerate(operands) if isinstance(x, np.ndarray)}
                assert runner(engine, program)(inputs) == expected, (numbers, fixed)


def hashed(m: int, n: int, seed: int, count: int) -> np.ndarray:
    """`uniform` in Python's integers."""
    from matgrad.backends.numpy_backend import uniform

    H = [[uniform(i * n + j, seed, count, lambda x, c: x * c % 2**32) for j in range(n)] for i in range(m)]
    return np.array(H) / 2**24


@pytest.mark.parametrize("fixed", [True, False], ids=["numbers", "scalars"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["uniform", "uniform_on"])
def test_uniform_numbers_depend_on_all_bits_of_seed_and_count(engine: str, name: str, fixed: bool):
    K, D, nnz = *SUPPORT.shape, SUPPORT.nnz
    for seed, count in itertools.product((2**53 + 1, 2**62 + 3, -5), (0, 2**53 + 3, 2**63 - 1)):
        operands = [seed, count] if fixed else [np.array(seed), np.array(count)]
        U = hashed(K, D, seed, count)
        shapes: list[Shape] = [(), ()]
        if name == "uniform_on":
            operands, shapes = [SUPPORT, *operands], [(K, D, nnz), *shapes]
            U = U.reshape(-1)[SUPPORT.flat()][None]
        run = runner(engine, program_of(name, shapes, U.shape, operands, "float64"))
        actual = run({f"x{i}": x for i, x in enumerate(operands) if isinstance(x, np.ndarray)})
        np.testing.assert_array_equal(actual, U, err_msg=f"seed {seed}, count {count}")
