"""The command line on sparse models: training, methods of sparse training, records and saved files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from cli_support import arrays, last_number, rows, run, save_blobs, succeed

DATA = ("--load-dataset", "data.npz", "--batch-size", 10, "--epochs", 4)
FAST = (*DATA, "--layers", "ReLU;ReLU;Linear", "--layer-sizes", "4;20;10;3")
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


def test_a_sparse_run_learns_and_leaves_its_densities():
    output = succeed("train", *FAST, *SPARSE, "--epochs", 40, "--output", "out")

    assert last_number(output) > 0.8
    assert float(rows(output)[-1]["loss"]) < float(rows(output)[0]["loss"])
    record = json.loads(Path("out/run.json").read_text())
    assert record["model"]["densities"] == record["configuration"]["densities"] == "0.3;0.1;1"
    content = arrays("out/model.npz")
    assert [content[name].shape for name in ("W1", "W2.columns", "W3")] == [(1, 24), (20,), (3, 10)]


def test_an_overall_density_is_shared_out():
    """By the rule d ∝ (D+K)/(D·K): 0.2·310 = 62 weights for layers of 80, 200 and 30."""
    record = json.loads(succeed("train", *FAST, "--densities", "ER(0.2)", "--json"))
    found = [float(d) for d in record["model"]["densities"].split(";")]
    epsilon = 62 / (24 + 30 + 13)
    expected = [round(epsilon * n) for n in (24, 30, 13)]
    assert [round(d * n) for d, n in zip(found, (80, 200, 30), strict=True)] == expected


def test_equal_seeds_give_equal_sparse_runs_on_every_backend():
    losses = []
    for options in ((), (), ("--backend", "torch"), ("--seed", 1)):
        options = ("--dropouts", 0.2, "--dtype", "float64", "--eager", "--json", *options)
        record = json.loads(succeed("train", *FAST, *SPARSE, *options))
        losses.append([row["loss"] for row in record["epochs"]])
    assert losses[0] == losses[1]
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-9)
    assert losses[3] != losses[0]


def test_a_saved_sparse_model_is_measured_predicts_and_is_checked(data):
    trained = last_number(succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz", "--normalize", "none"))
    assert last_number(succeed("evaluate", "m.npz", "--load-dataset", "data.npz")) == pytest.approx(trained, abs=5e-4)
    succeed("predict", "m.npz", "p.npz", "--load-dataset", "data.npz")
    content, Y = arrays("m.npz"), data["Xtest"].astype(np.float64)
    for k, D in enumerate((4, 20, 10), start=1):
        Y = Y @ dense(content, f"W{k}", D).T.astype(np.float64) + content[f"b{k}"]
        Y = np.maximum(Y, 0) if k < 3 else Y
    np.testing.assert_allclose(arrays("p.npz")["Y"], Y, rtol=1e-4, atol=1e-5)

    found = json.loads(succeed("inspect", "m.npz", "--json"))
    shapes = {row["name"]: row["shape"] for row in found["arrays"]}
    assert [shapes[name] for name in ("W1", "W1.starts", "W1.columns")] == [[1, 24], [21], [24]]
    assert found["model"]["densities"] == "0.3;0.1;1"
    assert "all 12 equations agree" in succeed("check", "m.npz")


def test_everything_that_looks_at_a_run_takes_sparse_layers():
    options = ("--clip", 0.5, "--gradient-step", 1e-5, "--show", "parameters", "--dtype", "float64", "--eager")
    output = succeed("train", *FAST, *SPARSE, *options, "--epochs", 1, "--optimizers", "Adam(weight_decay=0.01)")
    assert "gradients agree with central differences" in output
    assert "1.W (1, 24)" in output
    shown = succeed("train", *FAST, *SPARSE, "--epochs", 1, "--show", "batches", "--dropouts", 0.2, "--timer", "full")
    assert "batch 1 layer 1 DW" in shown
    assert re.search(r"^layer 1 ActivationDropoutLayer\.DW ", shown, re.M), shown


# -- methods of sparse training --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["static", "SET", "RigL(every=3)", "SNIP", "GMP(every=3)"])
def test_every_method_reaches_the_densities(method: str):
    record = json.loads(
        succeed("train", *FAST, *SPARSE, "--sparse-training", method, "--save-weights", "m.npz", "--json")
    )
    assert [arrays("m.npz")[name].size for name in ("W1", "W2", "W3")] == [24, 20, 30]
    assert record["epochs"][-1]["nnz"] == {"1": 24, "2": 20, "3": 30}


def test_SNIP_divides_an_overall_density_itself():
    succeed("train", *FAST, "--densities", "ER(0.2)", "--sparse-training", "SNIP", "--save-weights", "m.npz")
    assert sum(arrays("m.npz")[name].size for name in ("W1", "W2", "W3")) == round(0.2 * (80 + 200 + 30))


def test_rules_of_pruning_and_growing_are_repeated_by_the_record():
    rules = "Topology(SET(0.4), grow=Gradient, weights=Xavier, every=2, until=0.6, decay=linear, regrow=True)"
    succeed("train", *FAST, *SPARSE, "--sparse-training", rules, "--output", "out")
    succeed("train", *FAST, *SPARSE, "--save-weights", "static.npz")
    succeed("train", "--config", "out/run.json", *FAST[:2], "--save-weights", "again.npz")
    found, static, again = (arrays(name) for name in ("out/model.npz", "static.npz", "again.npz"))
    assert found["W1.columns"].shape == static["W1.columns"].shape
    assert (found["W1.columns"] != static["W1.columns"]).any()
    for name in ("W1", "W1.columns", "W2", "W2.columns", "b3"):
        np.testing.assert_array_equal(found[name], again[name], err_msg=name)
    rates = [row["explored"] for row in json.loads(Path("out/run.json").read_text())["epochs"]]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]


@pytest.mark.parametrize("method", [None, "SET"])
def test_a_sparse_model_in_a_file_is_trained_further(method):
    succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz")
    options = () if method is None else ("--sparse-training", method)
    succeed("train", *DATA, "--load-weights", "m.npz", *options, "--save-weights", "n.npz")
    before, after = arrays("m.npz"), arrays("n.npz")
    assert before["W1"].shape == after["W1"].shape
    assert not np.array_equal(after["W2"], before["W2"])
    assert np.array_equal(after["W1.columns"], before["W1.columns"]) == (method is None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--densities", "0.5;0.5"), "expected 1 or 3 densities for 3 linear layers, found 2"),
        (("--densities", "0.5;0;1"), "density 2: expected a number in (0, 1], found 0.0"),
        (("--densities", "few"), "density 1: expected a number, found 'few'"),
        (("--densities", "0.001"), "is less than one weight"),
        (("--densities", "ER(0)"), "overall density: expected a number in (0, 1], found 0"),
        (("--sparse-training", "SET"), "no sparse layer"),
        (("--sparse-training", "GMP"), "expected --densities or GMP(density)"),
        ((*SPARSE, "--sparse-training", "GMP(0.1)"), "GMP(density), and only one of them"),
        ((*SPARSE, "--sparse-training", "Rigl"), "did you mean 'RigL'"),
        ((*SPARSE, "--sparse-training", "Topology(SET(3))"), "fraction: expected a number from 0 to 1"),
        ((*SPARSE, "--sparse-training", "Topology(Threshold(0.1), grow=Random, decay=cosine)"), "no drop fraction"),
        ((*SPARSE, "--sparse-training", "RigL(evry=5)"), "'evry'; usage: RigL(fraction=0.3, every=100"),
        ((*SPARSE, "--sparse-training", "Topology(SET, Randm)"), "unknown rule of growing 'Randm'; did"),
    ],
)
def test_bad_densities_and_methods_are_refused(options, message: str):
    result = run("train", *FAST, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
