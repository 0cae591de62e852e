"""Every benchmark on tiny data with one round, and its tools: each trains what a plain loop in NumPy trains."""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from harness.problems import Parameters, Setting, dense, generated, initial_parameters
from harness.reports import FOLDER, finish, script
from harness.team import measure
from support import PATIENCE, Framework, assert_close

BACKENDS = ("numpy", "torch", "jax", "tensorflow")

# Keras rounds rate and momentum to float32, so they are numbers that float32 has
DENSE = Setting((12, 7, 5, 3), batch_size=8, learning_rate=0.0625, momentum=0.875, dtype="float64")
SPARSE = Setting((40, 30, 20, 5), batch_size=8, learning_rate=0.1, momentum=0.0, dtype="float64")
THREAD = ("--threads", "1", "--rounds", "1")


def train_by_hand(parameters: Parameters, X: np.ndarray, t: np.ndarray, setting: Setting) -> Parameters:
    """One epoch in NumPy, with dense weights whose gradients are 0 outside the supports."""
    masks = [W.with_values(np.ones_like(W.values)).to_dense() if isinstance(W, mg.SparseMatrix) else 1.0
             for W, _ in parameters]  # fmt: skip
    P = [[np.array(dense(W)), np.array(b)] for W, b in parameters]
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


def compare(tools: dict, setting: Setting, density: float = 1.0) -> None:
    """The tools train what the loop by hand trains."""
    data = generated(setting.sizes[0], setting.sizes[-1], 5 * setting.batch_size)
    initial = initial_parameters(setting, 1, density)
    expected = train_by_hand(initial, data.Xtrain.astype(setting.dtype), data.Ttrain, setting)
    options = argparse.Namespace(threads=1, rounds=2, seed=1)
    record, parameters = measure("", tools, setting, data, options, density=density)
    assert not record["failures"]
    for name in tools:
        for k, (P, E) in enumerate(zip(parameters[name], expected, strict=True), start=1):
            for letter, a, e in zip("Wb", P, E, strict=True):
                assert_close(dense(a), e, tolerance=1e-12, context=f"{name}, density {density}, {letter}{k}")


def test_all_tools_of_a_framework_train_the_same(backend: Framework):
    tools = {name: tool for name, tool in script("paper").TOOLS.items() if backend.name in tool.requires}
    own = {name: tool for name, tool in script("paper").TOOLS.items() if tool.arguments[:1] == (backend.name,)}
    compare(tools | own, DENSE)


SPARSE_TOOLS = ("matgrad-native", "pytorch-csr", "pytorch-masked")
OTHERS = ("matgrad-native-1", "matgrad-torch", "matgrad-numpy")


# at 0.45 one layer is dense, and PyTorch takes another one as dense
@pytest.mark.parametrize(
    ("names", "density"),
    [(SPARSE_TOOLS, 0.45), *(pytest.param(OTHERS, d, marks=pytest.mark.slow) for d in (0.1, 0.45)),
     pytest.param(SPARSE_TOOLS, 0.1, marks=pytest.mark.slow)],
)  # fmt: skip
def test_all_sparse_tools_train_the_same(names: tuple[str, ...], density: float):
    compare({name: script("sparse").TOOLS[name] for name in names}, SPARSE, density)


@pytest.mark.slow
def test_the_stand_alone_program_trains_the_same():
    compare({"matgrad-cpp": script("paper").TOOLS["matgrad-cpp"]}, DENSE)


def test_products_are_those_of_a_step():
    from baselines.products import OpenBLASProducts

    tool, rng = OpenBLASProducts(SPARSE), np.random.default_rng(0)
    X, initial = rng.random((16, 40)), initial_parameters(SPARSE, 1)
    tool.load(X, np.zeros(16, int))
    tool.start(initial)
    tool.DY[-1][:] = rng.random(tool.DY[-1].shape)
    tool.train(2)
    (U, _), (V, _), (W, _) = initial
    A, D = X[8:] @ U.T, tool.DY[2] @ W
    assert_close(tool.Y[2], A @ V.T @ W.T, tolerance=1e-13)
    assert_close(tool.DW[0], (D @ V).T @ X[8:], tolerance=1e-13)
    assert_close(tool.DW[1], D.T @ A, tolerance=1e-13)


# -- scripts ----------------------------------------------------------------------------------------


def run(name: str, *arguments: object, status: int = 0) -> str:
    """The output of a script."""
    command = [sys.executable, FOLDER / f"{name}.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def read(folder: Path) -> dict:
    return json.loads((folder / "bench.json").read_text())


def test_paper(tmp_path):
    tools = "pytorch,matgrad-native"
    output = run("paper", *THREAD, "--experiments", "mnist", "--steps", 2, "--tools", tools, "--output", tmp_path)
    assert output.startswith("GENERATED data of the shape of MNIST, 2 steps of batch 100, NOT A WHOLE EPOCH\n\ntool")
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "table.md", "plot.png", "plot.svg"}
    record = read(tmp_path)
    assert record["command"].startswith("python benchmarks/paper.py --threads 1 --rounds 1 --experiments mnist")
    torch, native = record["experiments"][0]["tools"]
    assert native["ratios"]["own"]["to"] == native["difference"]["to"] == "pytorch"
    assert native["ratios"]["own"]["values"] == pytest.approx([native["seconds"][0] / torch["seconds"][0]])
    assert native["measures"] == pytest.approx(torch["measures"], abs=1e-4)
    assert native["difference"]["relative"] < 0.1  # a ReLU may differ at 0
    assert set(native["startup"]["pools"].values()) == {1}


def test_native():
    tools = "matgrad-native,products-openblas"
    output = run("native", *THREAD, "--experiments", "mnist", "--steps", 2, "--tools", tools)
    assert output.count("products-openblas ") == 2, "both optimizers are compared with the products"


def test_sparse(tmp_path):
    options = ("--sizes", "30,20,10,4", "--steps", 3, "--batch-sizes", 5, "--densities", "0.2")
    output = run("sparse", *THREAD, *options, "--tools", "matgrad-native,pytorch-masked", "--output", tmp_path)
    assert "seconds against density, 3 steps of batch 100, layers 30;20;10;4" in output
    record = read(tmp_path)
    assert [(p["density"], p["nnz"]) for p in record["points"]] == [(0.2, 168)]
    assert [(p["batch_size"], p["steps"]) for p in record["batches"]] == [(5, 60)]
    for p in (*record["points"], *record["batches"]):
        assert p["tools"]["matgrad-native"]["difference"]["to"] == "pytorch-masked"
        assert p["tools"]["matgrad-native"]["difference"]["relative"] < 1e-5


def test_cost():
    options = ("--batch-sizes", "5,20", "--widths", 8, "--examples", 40, "--tools", "matgrad-numpy")
    assert "µs per example against batch size (width 1024)" in run("cost", *THREAD, *options)


@pytest.mark.slow
def test_distributed():
    options = ("--sizes", "30,20,10,5", "--batch-sizes", 8, "--densities", 1, "--examples", 16, "--rounds", 1)
    output = run("distributed", *options, "--threads", 2, "--tools", "pytorch-ddp,matgrad-native-ranks")
    assert "PyTorch DDP, 2 processes" in output
    assert "matgrad C++, 2 processes, batch 8, density 1" in output


def test_brain(tmp_path):
    sizes = ("--layers", 3, "--neurons", 400, "--features", 50, "--steps", 20)
    output = run("brain", "--threads", 1, *sizes, "--output", tmp_path)
    assert "1,200 hidden neurons in 3 layers" in output
    record = read(tmp_path)
    assert record["weights"] == 3 * 400 * 10 + 400 * 10  # ten inputs per hidden neuron, and a dense output layer
    assert record["losses"][1] < record["losses"][0]


def test_an_unknown_tool_and_a_failing_tool():
    assert not run("paper", "--tools", "torch", status=1)
    absent = ("--experiments", "mnist", "--steps", 2, "--tools", "matgrad-native")
    assert not run("native", *THREAD, *absent, "--rounds", "x", status=2)


@pytest.fixture
def tiny_mnist(tmp_path) -> Path:
    """Images of 4 × 4, in the files of MNIST."""
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    rng, centres = np.random.default_rng(0), np.random.default_rng(7).integers(0, 200, (10, 16))
    for part, N in (("train", 120), ("t10k", 50)):
        t = np.arange(N) % 10
        X = (centres[t] + rng.integers(0, 50, (N, 16))).astype(np.uint8)
        place = tmp_path / "data" / "mnist" / part
        Path(f"{place}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, N, 4, 4) + X.tobytes())
        Path(f"{place}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, N) + bytes(t.tolist()))
    return tmp_path / "data"


def test_sparse_methods_resumes(tiny_mnist, tmp_path):
    options = ("--epochs", 2, "--hidden", "12,8", "--batch-size", 20, "--threads", 1, "--seeds", 1, "--jobs", 2)
    places = ("--data", tiny_mnist, "--only", "mnist,cifar10", "--densities", 0.6, "--output", tmp_path / "out")
    output = run("sparse_methods", *options, *places, "--methods", "static")
    assert "cifar10 was left out: there is no " in output
    first = read(tmp_path / "out")["runs"]
    run("sparse_methods", *options, *places, "--methods", "static,SET(0.5)")
    record = read(tmp_path / "out")
    assert record["runs"][:1] == first
    assert [row["method"] for row in record["runs"][1:]] == ["SET(0.5)"]
    assert len(record["earlier"]) == 1
    for row in record["runs"]:
        assert row["stored"] == pytest.approx(0.6, abs=0.01)
        assert len(row["accuracies"]) == 2


def test_gpu_on_the_cpu(tmp_path, capsys):
    """Tiny problems; a CUDA graph cannot be captured here."""
    gpu = script("gpu")
    options = argparse.Namespace(device="cpu", seed=0, rounds=1, threads=1)
    case = ("large", (12, 9, 7, 3), 10, 0.9, "float32")
    (part,) = gpu.measured(options, ["gpu-pytorch", "gpu-pytorch-graph", "matgrad-torch"], [case], 4)
    assert list(part["tools"]) == ["gpu-pytorch", "matgrad-torch"]
    assert list(part["failures"]) == ["large, Momentum(0.9), float32: gpu-pytorch-graph"]
    assert part["tools"]["matgrad-torch"]["difference"]["relative"] < 1e-5
    sizes = {"features": 50, "layers": 2, "neurons": 100, "connections": 3, "classes": 4}
    network = gpu.wide_network(options, "wide", sizes, 5)
    assert network["weights"] == 2 * 300 + 400
    assert network["losses"][1] < network["losses"][0]
    layer = gpu.layer_point(options, 40, 8, 0.1)
    assert not layer["failures"]
    assert layer["ways"]["matgrad"]["difference"] < 1e-6
    content = {"gpu": {"name": "cpu"}, "missing": {}, "steps": [part], "large": [part], "wide": [network]}
    content |= {"sparse": {"neurons": 40, "batch_size": 8, "points": [layer]}}
    options.output = tmp_path
    with pytest.raises(SystemExit):  # since a tool has failed
        finish("gpu", options, content)
    assert "large, Momentum(0.9), float32: gpu-pytorch-graph failed" in capsys.readouterr().out
    assert (tmp_path / "plot.svg").stat().st_size > 1000


@pytest.mark.slow
def test_m_fit_and_bare_steps_are_tools_too():
    tools = {name: script("gpu").TOOLS[name] for name in ("matgrad-torch-fit", "matgrad-torch-steps")}
    setting, options = replace(DENSE, dtype="float32", device="cpu"), argparse.Namespace(threads=1, rounds=1, seed=0)
    record, _ = measure("", tools, setting, generated(12, 3, 40), options)
    assert not record["failures"]
    assert all(row["median"] > 0 for row in record["tools"].values())
