"""Generated kernels against the instructions and the meaning of programs, in Triton's interpreter on the CPU."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.comparison import SEEDS, assert_equal_states, trained
from matgrad.engines import torch_engine
from matgrad.program.program import Program, Value
from matgrad.program.rules import optimized, with_separate_outputs
from matgrad.sparse.support import Support
from program_support import kernels_of, numbers, outputs, programs
from support import to_numpy
from triton_support import triton  # noqa: F401 (which chooses the interpreter)

from matgrad.engines.cuda import fused  # isort: skip
from matgrad.engines.cuda.kernels import CudaKernels  # isort: skip
from matgrad.engines.cuda.tiles import MOST_PARTS, product_tile  # isort: skip

METHODS = ("library", "tile", "split")
NEVER_EXACT = pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # of the interpreter
pytestmark = NEVER_EXACT


@pytest.fixture
def by(monkeypatch):
    """Chooses how all products are computed, also those of float64 matrices, for which there is cuBLAS otherwise."""
    return lambda method: monkeypatch.setattr(fused, "method", lambda product, matmul: method)


def executed(program: Program, state, given, times: int = 1):
    """The state after the program has run by generated kernels, in memory that is nan until it is written."""
    matrices = {name: torch.tensor(A) for name, A in state.items()}
    executor = fused.FusedExecutor(program, kernels_of("torch"), matrices)
    for A in (*executor.memory.values(), *executor.parts.values()):
        A.fill_(float("nan"))
    for _ in range(times):
        executor.execute(**{name: torch.tensor(A) for name, A in given.items()})
    return {name: to_numpy(A) for name, A in matrices.items()}, executor


def random_programs(examples: int):
    """A test of so many programs, with products in every way."""
    fixtures = [HealthCheck.function_scoped_fixture]
    chosen = given(programs(exact=True), st.integers(0, 100), st.sampled_from(METHODS), st.booleans())
    return lambda test: settings(max_examples=examples, deadline=None, suppress_health_check=fixtures)(chosen(test))


@random_programs(30)
def test_random_programs_equal_their_meaning(by, program: Program, seed: int, method: str, is_optimized: bool):
    assert_equals_its_meaning(by, program, seed, method, is_optimized)


@pytest.mark.slow
@random_programs(1500)
def test_many_random_programs_equal_their_meaning(by, program: Program, seed: int, method: str, is_optimized: bool):
    assert_equals_its_meaning(by, program, seed, method, is_optimized)


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


# -- training ------------------------------------------------------------------------------------


@pytest.fixture
def on_cuda(monkeypatch):
    """Lets models on the CPU train by generated kernels, as those on a CUDA device."""
    monkeypatch.setattr(torch_engine, "_is_on_cuda", lambda M: True)
    chosen = lambda engine, M: (CudaKernels(engine.backend), partial(fused.FusedExecutor, matmul=M.matmul))  # noqa: E731
    monkeypatch.setattr(torch_engine.TorchEngine, "on_cuda", chosen)


FEW = (4, 6, 15, 25, 29)  # seeds of models some of whose matrices are square


@pytest.mark.parametrize(
    "seed", [seed if seed in FEW else pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS]
)
def test_random_architectures_train_by_generated_kernels(on_cuda, seed: int):
    for sparse in (False, True):
        found, expected = (trained(seed, "torch", None, compiled=c, sparse=sparse) for c in (True, False))
        assert_equal_states(found, expected, 1e-11, f"seed {seed}, sparse {sparse}")


@pytest.mark.parametrize("N", [5, 70])
def test_the_step_of_a_sparse_layer_gives_dx_too(on_cuda, N: int):
    from matgrad.bench.tools.sparse_layers import Masked, Matgrad

    rng = np.random.default_rng(0)
    S, values = Support.random(24, 24, 90, rng), rng.standard_normal(90, dtype=np.float32)
    X, DY = (torch.tensor(rng.standard_normal((N, 24), dtype=np.float32)) for _ in range(2))
    layers = [way(S, values, "cpu") for way in (Matgrad, Masked)]
    found = []
    for layer in layers:
        layer.batch(X, DY)
        DX = to_numpy(layer.DX().clone())
        for _ in range(2):
            layer.whole()
        found.append((DX, layer.weights()))
    for own, masked in zip(*found, strict=True):
        np.testing.assert_allclose(own, masked, atol=1e-4)


# -- products ------------------------------------------------------------------------------------


def product(m: int, k: int, n: int) -> Program:
    """C = A B in float32."""
    A, B, C = (Value("input", (), s, "float32", name=x) for x, s in {"A": (m, k), "B": (k, n), "C": (m, n)}.items())
    return Program({"A": A, "B": B, "C": C}, {"C": Value("matmul", (A, B), (m, n), "float32")})


def multiplied(A: np.ndarray, B: np.ndarray, matmul: str = "float32") -> np.ndarray:
    """A B by generated kernels."""
    (m, k), n = A.shape, B.shape[1]
    state = {"C": torch.full((m, n), float("nan"))}
    executor = fused.FusedExecutor(product(m, k, n), kernels_of("torch"), state, matmul)
    executor.execute(A=torch.tensor(A), B=torch.tensor(B))
    return to_numpy(state["C"])


@pytest.mark.parametrize("k", [70, 1000, 64 * 40, 64 * 300])
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
