"""Golden values: other kernels are within the bounds, and faults are found where they are, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import matgrad as mg
from architectures import random_architecture
from cli_support import run, succeed
from matgrad.layers.state import matrices_of
from matgrad.program.rounding import Rounded
from matgrad.storage.golden import compared, save_golden

SMALL = ("--layers", "ReLU;Sigmoid;Linear", "--layer-sizes", "9;7;6;3", "--batch-size", "5", "--optimizers", "Adam")


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "golden.safetensors"
    succeed("program", *SMALL, "--values", path)
    return path


def own_values(golden: Path) -> dict[str, np.ndarray]:
    """What an author of kernels has: the values in float32."""
    found = load_file(golden)
    return {name.removesuffix(".float32"): X for name, X in found.items() if name.endswith(".float32")}


def trained(engine: str, M: mg.MultilayerPerceptron, loss: mg.LossFunction, X, T) -> dict[str, np.ndarray]:
    """The new state after a step of an engine."""
    M = M.clone().to(engine)
    step = mg.compile_step(M, loss)
    step.load(M.state())
    step(*(M.backend.from_numpy(A) for A in (X, T)), M.scalar(0.05))
    return {f"{name}'": np.array(M.backend.to_numpy(A)) for name, A in matrices_of(step.state()).items()}


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("seed", [1, 4, 9, 16, 25])
def test_other_kernels_are_within_the_bounds(engine: str, seed: int, tmp_path: Path):
    """Those of PyTorch and of the core, in float32, of which only the state after the step is known."""
    a = random_architecture(seed, N=20)
    M, X, T = a.M.to(dtype="float32"), a.X.astype("float32"), a.T.astype("float32")
    program = M.program(loss=a.loss, batch_size=20)
    save_golden(program, tmp_path / "golden", M.state(), {"X": X, "T": T, "eta": M.scalar(0.05)})
    found = trained(engine, M, a.loss, X, T)
    np.savez(tmp_path / "mine.npz", **{name: A for name, A in found.items() if name.rstrip("'") in program.outputs})
    rows = compared(tmp_path / "mine.npz", tmp_path / "golden")
    assert len(rows) == len(program.outputs)
    assert [row for row in rows if not row.is_right] == []


def test_values_are_those_of_a_step(golden: Path):
    """In float64, by torch's autograd; the first layer has the weights of the file."""
    g = {name: torch.tensor(A) for name, A in load_file(golden).items()}
    assert all(A.dtype == torch.float64 for name, A in g.items() if not name.endswith(".float32"))
    W = [g[f"{i}.W"].clone().requires_grad_() for i in (1, 2, 3)]
    Y = g["X"]
    for i, f in enumerate((torch.relu, torch.sigmoid, lambda Z: Z)):
        Y = f(Y @ W[i].T + g[f"{i + 1}.b"])
    torch.nn.functional.cross_entropy(Y, g["T"]).backward()
    for i in (1, 2, 3):
        torch.testing.assert_close(g[f"DW{i}"], W[i - 1].grad, rtol=1e-10, atol=1e-14)
        assert g[f"{i}.W.m"].abs().max() > 0  # as in the midst of training


def test_a_fault_is_found_where_it_is(golden: Path, tmp_path: Path):
    """What follows from a wrong value is right; so is what was computed in another order."""
    mine = own_values(golden)
    Z1, W2 = (mine["X"] @ mine["1.W"].T + mine["1.b"], mine["2.W"])
    mine["Z1"] = Z1
    mine["Y1"] = np.maximum(Z1, 0)
    mine["Y1"][2, 3] += 0.01
    mine["Z2"] = mine["Y1"][:, ::-1] @ W2[:, ::-1].T + mine["2.b"]
    np.savez(tmp_path / "mine.npz", **{name: mine[name] for name in ("Z1", "Y1", "Z2")})
    result = run("compare", tmp_path / "mine.npz", golden)
    assert result.exit_code == 1
    first, second, last = result.output.splitlines()
    assert first.startswith("Y1: WRONG in row 3 column 4: found ")
    assert second.startswith("  layer 1 ActivationLayer.Y: Y1 = Z1 ⊙ [Z1 ≥ 0]")
    assert last.startswith("2 of 3 values are within their bounds")


def test_products_of_lower_precision_are_found(golden: Path, tmp_path: Path):
    """The bound is narrow enough for products in bfloat16."""
    mine = own_values(golden)
    X, W = (torch.tensor(mine[name]).bfloat16().float().numpy() for name in ("X", "1.W"))
    save_file({"Z1": X @ W.T + mine["1.b"]}, tmp_path / "mine.safetensors")
    (row,) = compared(tmp_path / "mine.safetensors", golden)
    assert not row.is_right
    assert row.error > 100 * row.bound


def test_values_in_float64_and_counters_are_compared(golden: Path, tmp_path: Path):
    exact = {name: A for name, A in load_file(golden).items() if not name.endswith(".float32")}
    save_file(exact, tmp_path / "mine.safetensors")
    assert "are within their bounds" in succeed("compare", tmp_path / "mine.safetensors", golden)
    exact["DW2"] *= 1 + 1e-13
    save_file(exact, tmp_path / "mine.safetensors")
    assert next(row for row in compared(tmp_path / "mine.safetensors", golden) if not row.is_right).name == "DW2"
    dropout = (*SMALL, "--dropouts", "0.5;0;0")
    succeed("program", *dropout, "--values", tmp_path / "golden.safetensors")
    mine = own_values(tmp_path / "golden.safetensors")
    mine["1.renewals'"] = np.array(mine["1.renewals"] + 2, "int32")
    save_file(mine, tmp_path / "mine.safetensors")
    wrong = [
        row for row in compared(tmp_path / "mine.safetensors", tmp_path / "golden.safetensors") if not row.is_right
    ]
    assert [(row.name, row.found - row.expected) for row in wrong] == [("1.renewals'", 1)]


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        ({"Z9": np.zeros((5, 7))}, "mine.npz: Z9 is no value of the program; "),
        ({}, "mine.npz: found no values of the program; "),
        ({"Z1": np.zeros((7, 5))}, "mine.npz: Z1: expected (5, 7) of float32 or float64, found (7, 5) of float64"),
        ({"Z1": np.zeros((5, 7), "int64")}, "found (5, 7) of int64"),
    ],
)
def test_what_cannot_be_compared_is_one_line(mine, message: str, golden: Path, tmp_path: Path):
    np.savez(tmp_path / "mine.npz", **mine)
    result = run("compare", tmp_path / "mine.npz", golden)
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_without_a_program_is_refused(golden: Path, tmp_path: Path):
    save_file(load_file(golden), tmp_path / "mine.safetensors")
    result = run("compare", golden, tmp_path / "mine.safetensors")
    assert result.exit_code == 2
    assert "there is no program in it; expected a file of `matgrad program --values`" in result.output


# -- bounds ----------------------------------------------------------------------------------------


def exact(rng: np.random.Generator, *shape: int) -> Rounded:
    return Rounded(rng.normal(size=shape).astype("float32"), 0, "float32")


@pytest.mark.parametrize("k", [1, 30, 1000])
def test_sums_in_any_order_are_within_the_bound(k: int):
    rng = np.random.default_rng(k)
    A, B = exact(rng, 7, k), exact(rng, k, 5)
    bound, C = A @ B, np.zeros((7, 5), "float32")
    for i in rng.permutation(k):  # one by one, each rounded
        C += A.value[:, i : i + 1].astype("float32") * B.value[i : i + 1].astype("float32")
    assert (np.abs(C - bound.value) <= bound.error).all()
    limit = (k + 1) * 2.0**-24 * (np.abs(A.value) @ np.abs(B.value))
    assert (bound.error <= 1.01 * limit).all()
    assert (A.sum(axis=1).error <= 1.01 * max(k - 1, 0.01) * 2.0**-24 * np.abs(A.value).sum(axis=1)).all()


def test_errors_of_operands_are_followed():
    x = Rounded([[1.0, 2.0, -1e-9, 0.5]], [[1e-3, 0.5, 1e-8, 0]], "float32")
    np.testing.assert_allclose(np.exp(x).error[0, :2], [np.e * (np.exp(1e-3) - 1), np.exp(2.5) - np.exp(2)], rtol=1e-2)
    assert list((x >= 0).error[0]) == [0, 0, 1, 0]
    assert list(np.isinf((1 / x).error[0])) == [False, False, True, False]
    assert (1 / x).error[0, 1] >= 1 / 1.5 - 1 / 2
    assert np.isinf(np.log(x).error[0, 2])
    assert (x**2).error[0, 1] >= 2.5**2 - 2**2
    assert np.isinf((1e38 * (10 * x)).error)[0, [0, 1, 3]].all()  # out of range
    assert (x * 1e-40).error[0, 3] >= 5e-41  # which may be 0
