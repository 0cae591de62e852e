"""Sparse tools and the C++ core's: each trains what a plain loop in NumPy trains; memory; what the points tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matgrad.bench.experiments.sparse import break_even, fit
from matgrad.bench.measuring import memory
from matgrad.bench.measuring.files import read_parameters, write_parameters, write_problem
from matgrad.bench.measuring.problems import generated, initial_parameters, sparse_parameters
from matgrad.bench.measuring.processes import Team
from matgrad.bench.tools import standalone
from matgrad.bench.tools.baselines.openblas import OpenBLASProducts
from matgrad.bench.tools.matgrad_tool import densely
from matgrad.bench.tools.registry import ALL_TOOLS, NATIVE_TOOLS, PRODUCTS, SPARSE_TOOLS, chosen_tools
from matgrad.bench.tools.training_tool import Parameters, Setting
from matgrad.sparse.matrix import SparseMatrix, values_of
from support import assert_close

SETTING = Setting((40, 30, 20, 5), batch_size=8, learning_rate=0.1, momentum=0.0, dtype="float64")
FLOAT32 = replace(SETTING, dtype="float32")


def train_by_hand(parameters: Parameters, X: np.ndarray, t: np.ndarray, setting: Setting) -> Parameters:
    """One epoch in NumPy, with dense weights whose gradients are 0 outside the supports."""
    masks = [densely([(W.with_values(np.ones_like(W.values)), b)])[0][0] if isinstance(W, SparseMatrix) else 1.0
             for W, b in parameters]  # fmt: skip
    P = [[np.array(A) for A in pair] for pair in densely(parameters)]
    V = [[np.zeros_like(A) for A in pair] for pair in P]
    B = setting.batch_size
    for i in range(0, len(X), B):
        A = [X[i : i + B]]
        for k, (W, b) in enumerate(P):
            Z = A[-1] @ W.T + b
            A.append(np.maximum(Z, 0) if k < len(P) - 1 else Z)
        E = np.exp(A[-1] - A[-1].max(axis=1, keepdims=True))
        D = (E / E.sum(axis=1, keepdims=True) - np.eye(setting.sizes[-1])[t[i : i + B]]) / B
        for k in reversed(range(len(P))):
            gradients = (D.T @ A[k]) * masks[k], D.sum(axis=0, keepdims=True)
            D = (D @ P[k][0]) * (A[k] > 0)
            for j, g in enumerate(gradients):
                V[k][j] = setting.momentum * V[k][j] - setting.learning_rate * g
                P[k][j] = P[k][j] + V[k][j]
    return [(W, b) for W, b in P]


Trained = tuple[Parameters, dict[str, Parameters], dict[str, Any]]


def train(names: list[str], cases: list[tuple[Setting, Parameters]], folder: Path) -> Iterator[Trained]:
    """For each case what the loop by hand and the tools make of the parameters in an epoch, and their start-up."""
    with Team(names, folder, 1, "float64", lambda text: None) as team:
        for setting, initial in cases:
            data = generated(setting.sizes[0], setting.sizes[-1], 5 * setting.batch_size, 1)
            X = data.Xtrain.astype(setting.dtype)
            write_problem(folder, X, data.Ttrain, initial)
            startup = team.setup(setting, folder)
            seconds = team.rounds(1)
            found = team.parameters()
            assert not team.failures
            assert list(found) == names
            assert all(s >= 0 for name in names for s in seconds[name])  # the program of its own tells milliseconds
            yield train_by_hand(initial, X, data.Ttrain, setting), found, startup


def compare(found: Parameters, expected: Parameters, dtype: str, context: str) -> None:
    for k, (A, E) in enumerate(zip(densely(found), expected, strict=True), start=1):
        for letter, a, e in zip("Wb", A, E, strict=True):
            tolerance = {"float32": 2e-5, "float64": 1e-12}[dtype]
            assert_close(a, e, tolerance=tolerance, dtype=dtype, context=f"{context}, {dtype}, {letter}{k}")


def test_all_sparse_tools_train_the_same(tmp_path):
    # at the second density one layer is dense, and PyTorch takes another one as dense
    varied = [(SETTING, 0.1), (SETTING, 0.45), (replace(SETTING, momentum=0.9), 0.1), (FLOAT32, 0.1), (FLOAT32, 0.45)]
    cases = [(setting, sparse_parameters(setting, density, seed=1)) for setting, density in varied]
    names = [name for name in SPARSE_TOOLS if name != "matgrad-native-dense"]
    trained = train(names, cases, tmp_path)

    for (setting, density), (_, initial), (expected, found, startup) in zip(varied, cases, trained, strict=True):
        assert [isinstance(W, SparseMatrix) for W, _ in initial] == [True, True, density < 0.2]
        for name in names:
            compare(found[name], expected, setting.dtype, f"{name}, density {density}, momentum {setting.momentum}")
            assert [type(W) for W, _ in found[name]] == [type(W) for W, _ in initial], name
            assert startup[name]["memory"]["training"] >= 0, name


def test_masked_weights_stay_zero_outside_their_support():
    from matgrad.bench.tools.baselines.pytorch import MaskedPyTorch

    data = generated(40, 5, 16, 1)
    initial = sparse_parameters(SETTING, 0.1, seed=1)
    tool = MaskedPyTorch(SETTING)
    tool.load(data.Xtrain.astype("float64"), data.Ttrain)
    tool.start(initial)
    tool.train(2)
    for (W, _), module in zip(initial, list(tool.model)[::2], strict=True):
        trained = module.weight.detach().numpy()
        assert np.array_equal(trained != 0, W.to_dense() != 0)
        assert not np.array_equal(trained, W.to_dense())


def test_dense_training_from_sparse_weights_is_another_training(tmp_path):
    initial = sparse_parameters(SETTING, 0.1, seed=1)
    ((_, found, _),) = train(["matgrad-native-dense"], [(SETTING, initial)], tmp_path)
    (dense,) = found.values()
    assert all((W != 0).mean() > 0.3 for W, _ in dense)


# -- the C++ core's dense tools ------------------------------------------------------------------


def test_the_core_trains_what_pytorch_trains(tmp_path):
    settings = [SETTING, replace(SETTING, momentum=0.875), FLOAT32]
    cases = [(setting, initial_parameters(setting, seed=1)) for setting in settings]
    names = list(NATIVE_TOOLS) if standalone.missing() is None else ["pytorch", "matgrad-native", *PRODUCTS]
    for setting, (expected, found, _) in zip(settings, train(names, cases, tmp_path), strict=True):
        for name in names:
            if name in PRODUCTS:
                assert found[name] == []
            else:
                compare(found[name], expected, setting.dtype, f"{name}, momentum {setting.momentum}")


def test_products_are_those_of_a_step():
    tool = OpenBLASProducts(SETTING)
    rng = np.random.default_rng(0)
    X = rng.random((16, 40))
    initial = initial_parameters(SETTING, seed=1)
    tool.load(X, np.zeros(16, int))
    tool.start(initial)
    tool.DY[-1][:] = rng.random(tool.DY[-1].shape)
    tool.train(2)
    (U, _), (V, _), (W, _) = initial
    A = X[8:] @ U.T
    D = tool.DY[2] @ W
    assert_close(tool.Y[2], A @ V.T @ W.T, tolerance=1e-13)
    assert_close(tool.DW[0], (D @ V).T @ X[8:], tolerance=1e-13)
    assert_close(tool.DW[1], D.T @ A, tolerance=1e-13)


def test_without_cmake_or_a_compiler_the_stand_alone_program_is_missing(monkeypatch, tmp_path):
    tool = ALL_TOOLS["matgrad-cpp"]
    monkeypatch.setattr(standalone, "_compiler", lambda: None)
    monkeypatch.setattr(standalone, "_cmake", lambda: "cmake")
    assert tool.missing() == "there is no C++ compiler"
    monkeypatch.setattr(standalone, "_cmake", lambda: None)
    assert tool.missing() == "cmake is not installed"
    monkeypatch.setattr(standalone, "SOURCES", tmp_path)
    assert "needs a checkout of matgrad" in tool.missing()


def test_a_program_that_fails_is_an_error_with_its_last_lines(tmp_path):
    with pytest.raises(RuntimeError, match=r"sh ended with exit status 3: hello"):
        standalone._run("sh", "-c", "echo hello; exit 3")


# -- parameters, memory, and what the points tell ------------------------------------------------


def test_sparse_parameters_have_erdos_renyi_densities_and_survive_a_file(tmp_path):
    parameters = sparse_parameters(SETTING, 0.1, seed=3)
    nnz = sum(values_of(W).size for W, _ in parameters)
    assert nnz == pytest.approx(0.1 * (40 * 30 + 30 * 20 + 20 * 5), abs=1.5)
    assert all(b.all() for _, b in parameters)
    write_parameters(tmp_path / "p.npz", parameters)
    for (W, b), (U, c), (again, _) in zip(
        parameters, read_parameters(tmp_path / "p.npz"), sparse_parameters(SETTING, 0.1, seed=3), strict=True
    ):
        assert np.array_equal(W.to_dense(), U.to_dense())
        assert np.array_equal(W.to_dense(), again.to_dense())
        assert np.array_equal(b, c)
    write_parameters(tmp_path / "none.npz", [])
    assert read_parameters(tmp_path / "none.npz") == []


@pytest.mark.skipif(not memory.is_known(), reason="the system does not tell the memory of a process")
def test_memory_has_data_and_training_apart():
    growth = memory.Growth()
    growth.before_load()
    data = np.ones(4_000_000)
    growth.after_load()
    forgotten = np.ones(6_000_000)
    del forgotten
    growth.before_training()
    for _ in range(3):
        np.ones(2_000_000)
    growth.after_training()
    assert growth.data == pytest.approx(data.nbytes, rel=0.05)
    assert growth.training == pytest.approx(16_000_000, rel=0.1)


def point(density: float, seconds: float, to_dense: float) -> dict:
    """A point of 10 steps with a million weights at density 1."""
    row = {"best": seconds, "ratios": {"matgrad-native-dense": {"median": to_dense}}}
    return {"density": density, "nnz": 1e6 * density, "steps": 10, "tools": {"matgrad-native": row,
            "matgrad-native-dense": {}}}  # fmt: skip


def test_cost_of_a_step_and_of_a_weight():
    points = [point(d, 10 * (2e-4 + 3e-9 * 1e6 * d), 1) for d in (0.001, 0.01, 0.3)]
    found = fit(points)
    assert found is not None
    assert found["step"] == pytest.approx(2e-4)
    assert found["weight"] == pytest.approx(3e-9)
    assert found["largest_error"] < 1e-9
    assert fit(points[:1]) is None


def test_break_even_is_interpolated_on_logarithmic_scales():
    assert break_even([point(0.4, 1, 2.0), point(0.1, 1, 0.5)]) == pytest.approx(0.2)
    assert break_even([point(0.1, 1, 0.5), point(0.3, 1, 0.9)]) is None
    assert break_even([]) is None


def test_tools_of_one_name_are_made_alike():
    for name, tool in (SPARSE_TOOLS | NATIVE_TOOLS).items():
        known = ALL_TOOLS[name]
        assert (tool.class_name, tool.arguments, tool.threads) == (known.class_name, known.arguments, known.threads)
        assert all(other in ALL_TOOLS for other in tool.baselines)
    assert chosen_tools(("products-torch", "pytorch"), NATIVE_TOOLS) == ["pytorch", "products-torch"]
    with pytest.raises(ValueError, match="unknown tool 'jax'; known: matgrad-native, "):
        chosen_tools(("jax",), SPARSE_TOOLS)
