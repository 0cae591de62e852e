"""The command line on sparse models: training, records, saved files, and bad densities."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import scipy.sparse

from cli_support import arrays, last_number, rows, run, save_blobs, succeed

FAST = ("--load-dataset", "data.npz", "--layers", "ReLU;ReLU;Linear", "--layer-sizes", "4;20;10;3", "--batch-size", 10)
FAST = (*FAST, "--epochs", 4, "--eager")
SPARSE = ("--densities", "0.3;0.1;1")


@pytest.fixture(autouse=True)
def data(folder) -> dict[str, np.ndarray]:
    """Tiny data, in data.npz too."""
    return save_blobs(folder / "data.npz")


def dense(content: dict[str, np.ndarray], name: str, D: int) -> np.ndarray:
    """The weights of a layer in a file, by SciPy."""
    if f"{name}.starts" not in content:
        return content[name]
    index = content[f"{name}.columns"], content[f"{name}.starts"]
    return scipy.sparse.csr_array((content[name][0], *index), shape=(len(index[1]) - 1, D)).toarray()


def test_a_sparse_run_learns_and_leaves_its_densities(folder):
    output = succeed("train", *FAST, *SPARSE, "--epochs", 40, "--output", "out")

    assert last_number(output) > 0.8
    assert float(rows(output)[-1]["loss"]) < float(rows(output)[0]["loss"])
    assert "density" in output
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["model"]["densities"] == "0.3;0.1;1"
    assert record["configuration"]["densities"] == "0.3;0.1;1"
    content = arrays(folder / "out" / "model.npz")
    assert content["W1"].shape == (1, 24)
    assert content["W2.columns"].shape == (20,)
    assert content["W3"].shape == (3, 10)


def test_an_overall_density_is_shared_out():
    """By the rule d ∝ (D+K)/(D·K): 0.2·310 = 62 weights for layers of 80, 200 and 30."""
    record = json.loads(succeed("train", *FAST, "--densities", "ER(0.2)", "--json"))
    found = [float(d) for d in record["model"]["densities"].split(";")]
    epsilon = 62 / (24 + 30 + 13)
    expected = [round(epsilon * n) for n in (24, 30, 13)]
    assert [round(d * n) for d, n in zip(found, (80, 200, 30), strict=True)] == expected
    assert record["configuration"]["densities"] == "ER(0.2)"


def test_equal_seeds_give_equal_sparse_runs_on_every_backend():
    losses = []
    for options in ((), (), ("--backend", "torch"), ("--seed", 1)):
        output = succeed("train", *FAST, *SPARSE, "--dropouts", 0.2, "--dtype", "float64", "--json", *options)
        losses.append([row["loss"] for row in json.loads(output)["epochs"]])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-9)
    assert losses[3] != losses[0]


def test_saved_sparse_models_are_measured_and_predict(folder, data):
    trained = last_number(succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz", "--normalize", "none"))
    assert last_number(succeed("evaluate", "m.npz", "--load-dataset", "data.npz")) == pytest.approx(trained, abs=5e-4)
    succeed("predict", "m.npz", "p.npz", "--load-dataset", "data.npz")

    content = arrays(folder / "m.npz")
    Y = data["Xtest"].astype(np.float64)
    for k, D in enumerate((4, 20, 10), start=1):
        Y = Y @ dense(content, f"W{k}", D).T.astype(np.float64) + content[f"b{k}"]
        Y = np.maximum(Y, 0) if k < 3 else Y
    np.testing.assert_allclose(arrays(folder / "p.npz")["Y"], Y, rtol=1e-4, atol=1e-5)


def test_saved_sparse_models_are_inspected_and_checked():
    succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz")
    found = json.loads(succeed("inspect", "m.npz", "--json"))
    shapes = {row["name"]: row["shape"] for row in found["arrays"]}
    assert [shapes[name] for name in ("W1", "W1.starts", "W1.columns")] == [[1, 24], [21], [24]]
    assert found["model"]["densities"] == "0.3;0.1;1"
    assert "densities: 0.3;0.1;1" in succeed("inspect", "m.npz")
    assert "all 12 equations agree" in succeed("check", "m.npz")
    sizes = ("--layer-sizes", "5;6;4", "--densities", "0.4;0.5", "--loss", "SoftmaxCrossEntropy")
    assert "all 8 equations agree" in succeed("check", "--layers", "ReLU;Linear", *sizes)


def test_training_goes_on_from_sparse_weights(folder):
    succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz")
    for options in ((), SPARSE):
        succeed("train", *FAST, *options, "--load-weights", "m.npz", "--save-weights", "n.npz")
        before, after = arrays(folder / "m.npz"), arrays(folder / "n.npz")
        np.testing.assert_array_equal(after["W2.columns"], before["W2.columns"])
        assert not np.array_equal(after["W2"], before["W2"])


def test_everything_that_looks_at_a_run_takes_sparse_layers():
    options = ("--clip", 0.5, "--gradient-step", 1e-5, "--show", "parameters", "--dtype", "float64")
    output = succeed("train", *FAST, *SPARSE, *options, "--epochs", 1, "--optimizers", "Adam(weight_decay=0.01)")
    assert "gradients agree with central differences" in output
    assert "1.W (1, 24)" in output
    shown = succeed("train", *FAST, *SPARSE, "--epochs", 1, "--show", "batches", "--dropouts", 0.2, "--timer", "full")
    assert "batch 1 layer 1 DW" in shown
    assert re.search(r"layer \S+ \w*Layer\.", shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--densities", "0.5;0.5"), "expected 1 or 3 densities for 3 linear layers, found 2"),
        (("--densities", "0.5;0;1"), "density 2: expected a number in (0, 1], found 0.0"),
        (("--densities", "2"), "density 1: expected a number in (0, 1], found 2.0"),
        (("--densities", "few"), "density 1: expected a number, found 'few'"),
        (("--densities", "0.001"), "layer 1: density: 0.001 of the 20 × 4 weights is less than one weight"),
        (("--densities", "ER(0)"), "overall density: expected a number in (0, 1], found 0"),
        (("--densities", "ER(few)"), "expected a finite float32 number for 'density', found 'few'"),
        (("--overall-density", "0.5"), '--overall-density is gone: use --densities "ER(0.05)"'),
    ],
)
def test_bad_densities_are_refused(options, message: str):
    result = run("train", *FAST, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
