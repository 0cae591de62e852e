"""Generated kernels against the instructions and the meaning of programs, in Triton's interpreter on the CPU."""

from __future__ import annotations

from functools import partial
from itertools import count

import hypothesis
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import matgrad as mg
from gpu import test_beyond as beyond
from gpu.comparison import SEEDS, assert_equal_states, trained
from matgrad.backends.torch_backend import TorchBackend
from matgrad.engines import torch_engine
from matgrad.program.buffers import Buffer
from matgrad.program.operations import DENSE_PRODUCTS
from matgrad.program.program import Program, Value
from matgrad.program.rules import optimized, with_separate_outputs
from matgrad.sparse.support import Support
from program_support import numbers, outputs, programs
from support import to_numpy
from triton_support import triton  # noqa: F401 (which chooses the interpreter)

from matgrad.engines.cuda import fused, source  # isort: skip
from matgrad.program.grouping import Group  # isort: skip
from matgrad.engines.cuda.fused import CudaKernels  # isort: skip
from matgrad.engines.cuda.source import MOST_PARTS, Tile, power_of_two, product_tile  # isort: skip

KERNELS = CudaKernels(TorchBackend())
METHODS = ("library", "tile", "split", "mixed")
NEVER_EXACT = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # of the interpreter
pytestmark = NEVER_EXACT


@pytest.fixture
def by(monkeypatch):
    """Chooses how all products are computed, also those of float64 matrices, for which there is cuBLAS otherwise.

    Mixed, it depends on its place in the program.
    """

    def choose(method: str) -> None:
        def chosen(product: Value, matmul: str) -> str:
            found = method if method != "mixed" else METHODS[product.order % 3]
            return found if product.operation in DENSE_PRODUCTS else "library"

        monkeypatch.setattr(fused, "method", chosen)

    return choose


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of one element, or of one row or column if it is summed up: many for every matrix."""

    def product_tile(product: Value, matmul: str, kind: str, whole_rows: bool) -> Tile:
        columns = power_of_two(product.shape[1]) if whole_rows else 1
        return Tile(1, columns, 2, 1, 1, 2 if kind == "parts" else 1)

    def map_tile(group: Group, along_rows: bool, along_columns: bool) -> Tile:
        m, n = group.domain
        return Tile(power_of_two(m) if group.whole_columns else 1, power_of_two(n) if group.whole_rows else 1)

    for module in (fused, source):
        monkeypatch.setattr(module, "product_tile", product_tile)
    monkeypatch.setattr(source, "map_tile", map_tile)


def executed(program: Program, state, given, times: int = 1):
    """The state after the program has run by generated kernels, in memory that is nan until it is written."""
    matrices = {name: torch.tensor(A) for name, A in state.items()}
    executor = fused.FusedExecutor(program, KERNELS, matrices)
    for key, A in executor._memory.items():
        if isinstance(key, Buffer):
            A.fill_(float("nan"))
    for _ in range(times):
        executor.execute(**{name: torch.tensor(A) for name, A in given.items()})
    return {name: to_numpy(A) for name, A in matrices.items()}, executor


def random_programs(examples: int):
    """A test of so many programs, with products in every way."""
    fixtures = [HealthCheck.function_scoped_fixture]
    chosen = hypothesis.given(
        program=programs(exact=True),
        seed=st.integers(0, 100),
        method=st.sampled_from(METHODS),
        is_optimized=st.booleans(),
    )
    return lambda test: settings(max_examples=examples, deadline=None, suppress_health_check=fixtures)(chosen(test))


@random_programs(30)
def test_random_programs_equal_their_meaning(by, small_tiles, **case):
    assert_equals_its_meaning(by, **case)


@pytest.mark.slow
@random_programs(800)
def test_many_random_programs_equal_their_meaning(by, small_tiles, **case):
    assert_equals_its_meaning(by, **case)


def assert_equals_its_meaning(by, program: Program, seed: int, method: str, is_optimized: bool) -> None:
    by(method)
    program = optimized(program) if is_optimized else with_separate_outputs(program)
    state, batch = numbers(seed, exact=True)
    with np.errstate(all="ignore"):
        expected = state | outputs(program, state | batch)
        expected = state | outputs(program, expected | batch)
    found, _ = executed(program, state, batch, times=2)
    for name in state:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} of\n{program}")


# -- programs that were wrong once ---------------------------------------------------------------


ORDER = count(1)


def value(operation: str, shape: tuple[int, ...], *operands: Value, number: float | None = None) -> Value:
    return Value(operation, operands, shape, number=number, order=next(ORDER))


def given(**shapes: tuple[int, ...]) -> list[Value]:
    return [Value("input", (), shape, name=name) for name, shape in shapes.items()]


def assert_state(program: Program, state: dict[str, tuple[int, ...]]) -> None:
    """The program changes the state as it means, and its other outputs are what it means."""
    rng = np.random.default_rng(0)
    numbers = {x: np.array(rng.normal(size=v.shape)) for x, v in program.inputs.items()}
    matrices = {x: torch.tensor(numbers[x]) for x in state}
    executor = fused.FusedExecutor(program, KERNELS, matrices)
    others = executor.execute(**{x: torch.tensor(A) for x, A in numbers.items() if x not in state})
    for name, expected in outputs(program, numbers).items():
        found = to_numpy(matrices[name] if name in matrices else others[name])
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_weights_that_are_only_read_stay_as_they_are(by, monkeypatch):
    """As in an evaluation whose first product is the library's, and whose second is not."""
    X, W1, W2 = given(X=(6, 5), W1=(4, 5), W2=(3, 4))
    Z = value("matmul", (6, 4), X, value("transpose", (5, 4), W1))
    Y = value("matmul", (6, 3), Z, value("transpose", (4, 3), W2))
    monkeypatch.setattr(fused, "method", lambda product, matmul: "library" if product is Z else "tile")
    assert_state(Program({"X": X, "W1": W1, "W2": W2}, {"Y": Y}), {"W1": (4, 5), "W2": (3, 4)})


@pytest.mark.parametrize("method", ["tile", "split"])
@pytest.mark.parametrize("operation", ["add", "exp"])
def test_a_product_is_not_written_to_its_own_factor(by, small_tiles, method: str, operation: str):
    by(method)
    A, V, W = given(A=(5, 5), V=(5, 5), W=(5, 5))
    H = value(operation, (5, 5), *([V, V] if operation == "add" else [V]))
    new = value("add", (5, 5), value("matmul", (5, 5), A, W), H)
    assert_state(Program({"A": A, "V": V, "W": W}, {"W": new}), {"W": (5, 5)})


@pytest.mark.parametrize(
    ("shape", "summed", "repeated"), [((5, 1), "rows_sum", "column_repeat"), ((1, 3), "columns_sum", "row_repeat")]
)
def test_random_numbers_of_a_row_or_column_depend_on_their_places_in_it(shape, summed: str, repeated: str):
    X, a, b = given(X=(5, 3), a=(5, 3), b=shape)
    seed, count = (Value("number", (), (), "int64", number=k, order=k) for k in (3, 4))
    u, s = value("uniform", shape, seed, count), value(summed, shape, X)
    product = value("hadamard", (5, 3), X, value(repeated, (5, 3), u))
    new = {"a": value("add", (5, 3), product, value(repeated, (5, 3), s)), "b": value("add", shape, s, u)}
    assert_state(Program({"X": X, "a": a, "b": b}, new), {"a": (5, 3), "b": shape})


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_sums_of_nothing_are_0(shape: tuple[int, int]):
    X, n, c, r = given(X=shape, n=(), c=(1, shape[1]), r=(shape[0], 1))
    new = {"n": value("elements_sum", (), value("hadamard", shape, X, X))}
    new |= {"c": value("columns_sum", (1, shape[1]), X), "r": value("rows_sum", (shape[0], 1), X)}
    assert_state(Program({"X": X, "n": n, "c": c, "r": r}, new), {"n": (), "c": (1, shape[1]), "r": (shape[0], 1)})


# -- training ------------------------------------------------------------------------------------


@pytest.fixture
def on_cuda(monkeypatch):
    """Lets models on the CPU train by generated kernels, as those on a CUDA device."""
    monkeypatch.setattr(torch_engine, "_is_on_cuda", lambda M: True)
    chosen = lambda engine, M: (CudaKernels(engine.backend), partial(torch_engine._executor, matmul=M.matmul))  # noqa: E731
    monkeypatch.setattr(torch_engine.TorchEngine, "on_cuda", chosen)


FEW = (4, 6, 15, 25, 29)  # seeds of models some of whose matrices are square


@pytest.mark.parametrize(
    "seed", [seed if seed in FEW else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
)
def test_random_architectures_train_by_generated_kernels(on_cuda, seed: int):
    for sparse in (False, True):
        found, expected = (trained(seed, "torch", None, compiled=c, sparse=sparse) for c in (True, False))
        assert_equal_states(found, expected, 1e-11, f"seed {seed}, sparse {sparse}")


@pytest.mark.parametrize("name", beyond.MODELS)
def test_layers_of_images_and_texts_train_by_generated_kernels(on_cuda, name: str):
    found, expected = (beyond.trained(name, c, steps=2, device=None) for c in (True, False))
    for key, A in expected.items():
        np.testing.assert_allclose(found[key], A, rtol=2e-4, atol=2e-5, err_msg=f"{name}: {key}")


def test_large_models_are_evaluated_whatever_the_order_of_their_memory(on_cuda, monkeypatch):
    monkeypatch.setattr(torch_engine, "MOST_STATE_BYTES", 0)
    M = mg.create_model("ReLU;Linear", [6, 5, 3]).to("torch", dtype="float64")
    for layer in M.layers:
        layer.W = layer.W.T.contiguous().T
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 6)) * (rng.random((7, 6)) < 0.4)
    expected = to_numpy(M.clone().eval().feedforward(torch.tensor(X)))
    np.testing.assert_allclose(M.predict(X, batch_size=3), expected, rtol=1e-12)
    np.testing.assert_allclose(M.predict(scipy.sparse.csr_array(X), batch_size=3), expected, rtol=1e-12)


@pytest.mark.parametrize("N", [5, 70])
def test_the_step_of_a_sparse_layer_gives_dx_too(on_cuda, N: int):
    from baselines.sparse_layers import masked, matgrad

    rng = np.random.default_rng(0)
    S, values = Support.random(24, 24, 90, rng), rng.standard_normal(90, dtype=np.float32)
    X, DY = (torch.tensor(rng.standard_normal((N, 24), dtype=np.float32)) for _ in range(2))
    found = []
    for way in (matgrad(S, values, X, DY), masked(S, values, X, DY)):
        DX = to_numpy(way.step().clone())
        way.step()
        found.append((DX, way.weights()))
    for own, expected in zip(*found, strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-4)


# -- products ------------------------------------------------------------------------------------


def product(m: int, k: int, n: int) -> Program:
    """C = A B in float32."""
    A, B, C = (Value("input", (), s, "float32", name=x) for x, s in {"A": (m, k), "B": (k, n), "C": (m, n)}.items())
    return Program({"A": A, "B": B, "C": C}, {"C": Value("matmul", (A, B), (m, n), "float32")})


def multiplied(A: np.ndarray, B: np.ndarray, matmul: str = "float32") -> np.ndarray:
    """A B by generated kernels."""
    (m, k), n = A.shape, B.shape[1]
    state = {"C": torch.full((m, n), float("nan"))}
    executor = fused.FusedExecutor(product(m, k, n), KERNELS, state, matmul)
    executor.execute(A=torch.tensor(A), B=torch.tensor(B))
    return to_numpy(state["C"])


@pytest.mark.parametrize("k", [70, 64 * 40])
def test_long_sums_have_a_bounded_number_of_parts(by, k: int):
    by("split")
    rng = np.random.default_rng(k)
    A, B = rng.normal(size=(3, k)).astype("float32"), rng.normal(size=(k, 5)).astype("float32")
    np.testing.assert_allclose(multiplied(A, B), A.astype("float64") @ B, rtol=1e-4, atol=1e-3)
    (C,) = product(8, 5_000_000, 10).outputs.values()
    assert product_tile(C, "float32", "parts", False).parts == MOST_PARTS


def rounded(A: np.ndarray, bits: int) -> np.ndarray:
    """The nearest numbers with so many bits."""
    mantissa, exponent = np.frexp(A.astype("float64"))
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent)


@pytest.mark.parametrize("method", ["tile", "split"])
@pytest.mark.parametrize(("matmul", "bits"), [("float32", 24), ("tf32", 11)])  # in bf16 the interpreter is wrong
def test_factors_are_rounded_to_nearest(by, method: str, matmul: str, bits: int):
    by(method)
    rng = np.random.default_rng(1)
    A, B = rng.normal(size=(20, 70)).astype("float32"), rng.normal(size=(70, 30)).astype("float32")
    expected = rounded(A, bits) @ rounded(B, bits)
    np.testing.assert_allclose(multiplied(A, B, matmul), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("matmul", ["float32", "tf32"])
def test_what_is_not_a_number_stays_so(by, matmul: str):
    by("tile")
    A, B = np.eye(16, dtype="float32"), np.eye(16, dtype="float32")
    A[3, 3], A[5, 5] = np.array(0x7FFFFFFF, dtype="uint32").view("float32"), np.inf
    found = multiplied(A, B, matmul)
    assert np.isnan(found[3, 3])
    assert found[5, 5] == np.inf
