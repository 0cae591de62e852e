"""`matgrad train`: what it prints, and every option that changes how it trains."""

from __future__ import annotations

import json
import math
import os
import re
import warnings

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from cli_support import (
    arrays,
    blobs,
    forward,
    last_number,
    plane,
    rows,
    run,
    save_blobs,
    succeed,
    write_csv,
)
from matgrad.datasets.dataset import hold_out
from matgrad.foundation.machine import THREADS

FAST = ("--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 3, "--batch-size", 10)


@pytest.fixture
def data(folder) -> dict[str, np.ndarray]:
    """Tiny data, in data.npz too."""
    return save_blobs(folder / "data.npz")


# -- what is printed ---------------------------------------------------------------------------


def test_alone_it_trains_on_the_digits():
    output = succeed("train")

    assert re.fullmatch(r"test accuracy 0\.\d{3}", output.splitlines()[-1])
    assert last_number(output) >= 0.95
    table = rows(output)
    assert [row["epoch"] for row in table] == [str(i) for i in range(1, 21)]
    assert list(table[0]) == ["epoch", "lr", "loss", "train_acc", "test_acc", "train_seconds"]
    assert float(table[-1]["loss"]) < float(table[0]["loss"])
    assert float(table[-1]["test_acc"]) == pytest.approx(last_number(output), abs=6e-4)
    assert "1437 training and 360 test examples" in output
    assert "normalize unit" in output
    assert not {"\r", "\x1b"} & set(output), "plain rows where the output is not a terminal"


@pytest.mark.usefixtures("data")
def test_quiet_prints_the_last_line_and_json_one_document():
    loud = succeed("train", *FAST)
    shown = ("--show", "parameters, batches", "--timer", "full")

    assert succeed("train", *FAST, "--quiet", *shown) == loud.splitlines()[-1] + "\n"
    record = json.loads(succeed("train", *FAST, "--json", *shown))
    assert [f"{row['loss']:.4f}" for row in record["epochs"]] == [row["loss"] for row in rows(loud)]
    assert f"{record['results']['test_accuracy']:.4f}" == rows(loud)[-1]["test_acc"]


LOOKING = """
import matgrad as mg
from matgrad.matrix_operations import elements_sum


class LookingAtNumbersLayer(mg.LinearLayer):
    def feedforward(self, X):
        return super().feedforward((0.5 if float(elements_sum(X)) > 0 else 0.8) * X)
"""


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_a_run_that_is_not_compiled_says_so_beside_the_result(folder, flag: str):
    (folder / "looking.py").write_text(LOOKING)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("train", *FAST, "--layers", "ReLU;LookingAtNumbers", "--plugin", "looking.py", flag)
    assert result.exit_code == 0, result.output
    assert "note: training continues uncompiled: code cannot depend on the numbers" in result.stderr
    assert "uncompiled" not in result.stdout


def test_a_regression_ends_with_its_error(folder):
    lines = plane()
    write_csv(folder / "plane.csv", ["x", "y", "z"], lines)
    output = succeed("train", "--table", "plane.csv", "--epochs", 30, "--learning-rate", 0.02)

    assert re.fullmatch(r"test RMSE \d+\.\d{3}", output.splitlines()[-1])
    assert last_number(output) < 0.1 < np.std(np.array(lines)[:, 2])
    assert list(rows(output)[0]) == ["epoch", "lr", "loss", "train_rmse", "test_rmse", "train_seconds"]


@pytest.mark.usefixtures("data")
def test_equal_seeds_give_equal_runs():
    def losses(seed: int) -> list[float]:
        record = json.loads(succeed("train", *FAST, "--dropouts", 0.2, "--seed", seed, "--json"))
        return [row["loss"] for row in record["epochs"]]

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


# -- the options that change the updates, against a reference in plain NumPy -------------------


def softmax_regression(batches, rates, decay: float = 0.0, clip: float = math.inf, dimensions=(3, 4)):
    """W and b after gradient descent from zero on the mean cross-entropy of each batch (X, labels)."""
    W, b = np.zeros(dimensions), np.zeros(dimensions[0])
    for (X, labels), eta in zip(batches, rates, strict=True):
        Z = X @ W.T + b
        P = np.exp(Z - Z.max(axis=1, keepdims=True))
        D = (P / P.sum(axis=1, keepdims=True) - np.eye(dimensions[0])[labels]) / len(X)
        DW, Db = D.T @ X, D.sum(axis=0)
        factor = min(1, clip / (np.sqrt((DW**2).sum() + (Db**2).sum()) + 1e-6))  # 1e-6 as in PyTorch
        W, b = W - eta * (factor * DW + decay * W), b - eta * (factor * Db + decay * b)
    return W, b


def batches_in_order(data, size: int = 10) -> list:
    X, T = data["Xtrain"].astype(np.float64), data["Ttrain"]
    return [(X[i : i + size], T[i : i + size]) for i in range(0, len(X), size)]


LINEAR = ("--layers", "Linear", "--layer-weights", "Zero", "--optimizers", "GradientDescent", "--normalize", "none",
          "--dtype", "float64", "--batch-size", 10, "--no-shuffle", "--save-weights", "m.npz")  # fmt: skip


@pytest.mark.parametrize(
    ("options", "rates", "settings"),
    [
        (("--learning-rate", 0.3), [0.3] * 12, {}),
        (("--learning-rate", 0.3, "--clip", 0.05), [0.3] * 12, {"clip": 0.05}),
        (("--learning-rate", 0.3, "--optimizers", "GradientDescent(weight_decay=0.1)"), [0.3] * 12, {"decay": 0.1}),
        (("--learning-rate", "MultiStepLR(0.4; 1, 5; 0.5)"), [0.4] * 6 + [0.2] * 6, {}),
        (("--learning-rate", "MultiStepLR(0.4; 2, 5; 0.5)", "--per-step"), [0.4] * 2 + [0.2] * 3 + [0.1] * 7, {}),
        (("--learning-rate", "Exponential(0.4, 0.1)", "--per-step"), [0.4 * math.exp(-0.1 * i) for i in range(12)], {}),
    ],
    ids=["plain", "clip", "weight decay", "schedule", "schedule per step", "exponential per step"],
)
def test_updates_are_those_of_the_reference(folder, data, options, rates, settings):
    succeed("train", "--load-dataset", "data.npz", *LINEAR, "--epochs", 2, *options)

    W, b = softmax_regression(batches_in_order(data) * 2, rates, **settings)
    saved = arrays(folder / "m.npz")
    np.testing.assert_allclose(saved["W1"], W, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(saved["b1"].reshape(-1), b, rtol=1e-10, atol=1e-12)
    assert saved["W1"].dtype == np.float64


def test_examples_are_shuffled_unless_told_not_to(folder, data):
    succeed("train", "--load-dataset", "data.npz", *(o for o in LINEAR if o != "--no-shuffle"), "--epochs", 1)

    W, _ = softmax_regression(batches_in_order(data), [0.05] * 6)
    assert not np.allclose(arrays(folder / "m.npz")["W1"], W, rtol=1e-6)


def test_preprocessed_files_serve_one_epoch_each(folder):
    (folder / "epochs").mkdir()
    epochs = [save_blobs(folder / "epochs" / f"epoch{i}.npz", seed=i) for i in range(2)]
    succeed("train", "--preprocessed", "epochs", *LINEAR, "--epochs", 3, "--learning-rate", 0.3)

    batches = [batch for i in (0, 1, 0) for batch in batches_in_order(epochs[i])]
    W, _ = softmax_regression(batches, [0.3] * 18)
    np.testing.assert_allclose(arrays(folder / "m.npz")["W1"], W, rtol=1e-10, atol=1e-12)


def test_every_backend_trains_alike(backend, data):
    options = ("train", *FAST, "--json", "--optimizers", "Adam")
    on_numpy, here = (json.loads(succeed(*options, "--backend", name))["epochs"] for name in ("numpy", backend.name))

    for a, b in zip(on_numpy, here, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-4), f"{backend}, epoch {a['epoch']}"
        assert b["test_accuracy"] == pytest.approx(a["test_accuracy"], abs=0.04), f"{backend}, epoch {a['epoch']}"
    assert f"MultilayerPerceptron on {backend.name}, float32" in succeed("train", *FAST, "--backend", backend.name)


# -- validation --------------------------------------------------------------------------------


def test_what_is_held_out_does_not_scale_the_rest(folder):
    write_csv(folder / "plane.csv", ["x", "y", "z"], plane())
    options = ("--table", "plane.csv;plane.csv", "--validation", 0.25, "--seed", 3, "--epochs", 1)
    output = succeed("train", *options, "--normalize", "standard", "--save-weights", "m.npz")

    assert "validation with 0.25 of the training examples" in output
    assert {"val_loss", "val_rmse"} <= set(rows(output)[0])
    kept, _ = hold_out(80, 0.25, 3)
    A, saved = np.array(plane(), dtype=np.float32)[kept], arrays("m.npz")
    np.testing.assert_allclose(saved["extra.offset"][0], A[:, :2].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(saved["extra.target_offset"][0, 0], A[:, 2].mean(), rtol=1e-5)
    np.testing.assert_allclose(saved["extra.target_scale"][0, 0], A[:, 2].std(), rtol=1e-5)


def test_early_stopping_keeps_the_best_epoch(folder):
    rng = np.random.default_rng(0)
    data = blobs(N=60)
    noisy = np.where(rng.random(60) < 0.4, rng.integers(3, size=60), data["Ttrain"])  # soon learned by heart
    np.savez("noisy.npz", **(data | {"Ttrain": noisy}))
    options = ("--load-dataset", "noisy.npz", "--layer-sizes", "4;64;64;3", "--epochs", 200, "--learning-rate", 0.1)
    output = succeed(
        "train", *options, "--validation", 0.3, "--early-stopping", 4, "--output", "out", "--batch-size", 5
    )

    record = json.loads((folder / "out" / "run.json").read_text())
    losses = [row["validation_loss"] for row in record["epochs"]]
    best = int(np.argmin(losses))
    assert len(losses) == best + 1 + 4 < 200
    assert f"kept the model of epoch {best + 1}" in output
    assert record["results"]["validation_loss"] == losses[best]
    assert record["results"]["test_accuracy"] == record["epochs"][best]["test_accuracy"]
    weights = arrays(folder / "out" / "model.npz")
    X = (data["Xtest"] - weights.pop("extra.offset")) / weights.pop("extra.scale")
    del weights["matgrad"]
    accuracy = np.mean(forward(weights, X).argmax(axis=1) == data["Ttest"])
    assert accuracy == pytest.approx(record["epochs"][best]["test_accuracy"], abs=0.04)


# -- what is shown on request ------------------------------------------------------------------


@pytest.mark.usefixtures("data")
def test_no_statistics_leaves_epoch_rate_and_seconds():
    output = succeed("train", *FAST, "--statistics", "none")

    assert [list(row) for row in rows(output)] == [["epoch", "lr", "train_seconds"]] * 3
    assert output.splitlines()[-1] == succeed("train", *FAST).splitlines()[-1]


@pytest.mark.usefixtures("data")
def test_gradients_are_checked_in_every_epoch():
    output = succeed("train", *FAST, "--gradient-step", 1e-5, "--timer", "full")
    assert output.count("gradients agree with central differences: 8 equations") == 3


def test_info_prints_the_parameters_with_the_digits_asked_for(folder, data):
    succeed("train", *FAST, "--epochs", 0, "--save-weights", "m.npz")
    W = arrays(folder / "m.npz")["W1"]
    output = succeed("train", *FAST, "--show", "parameters, precision=2, edgeitems=1")

    assert re.search(rf"W1? \(128, 4\)\n\[\[ *{W[0, 0]:.2f} \.\.\. +{W[0, -1]:.2f}\]\n \.\.\.", output), output[:1500]
    assert re.search(
        rf"\[\[ *{W[0, 0]:.5f} +{W[0, 1]:.5f} ", succeed("train", *FAST, "--show", "parameters, precision=5")
    )


@pytest.mark.usefixtures("data")
def test_debug_prints_the_matrices_of_every_batch():
    output = succeed("train", *FAST, "--epochs", 1, "--show", "batches")
    for number in range(1, 7):
        for name in ("layer 1 X", "layer 1 Z", "layer 1 DY", "layer 2 W", "layer 2 DW", "T", "loss"):
            assert re.search(rf"^batch {number} {name}\b", output, re.MULTILINE), f"batch {number} {name}"
    assert "batch 7" not in output


@pytest.mark.usefixtures("data")
def test_threads_are_limited():
    """Those of the libraries that are loaded, and by variables those of others."""
    before, of_torch = max(pool["num_threads"] for pool in threadpool_info()), torch.get_num_threads()
    try:
        for threads in (2, 1):
            succeed("train", *FAST, "--threads", threads)
            assert {pool["num_threads"] for pool in threadpool_info()} == {threads}
            assert torch.get_num_threads() == threads
            assert {os.environ[name] for name in THREADS} == {str(threads)}
            assert ("--xla_cpu_multi_thread_eigen=false" in os.environ["XLA_FLAGS"]) == (threads == 1)
    finally:
        threadpool_limits(before)
        torch.set_num_threads(of_torch)


@pytest.mark.parametrize("options", [(), ("--epochs", 2, "--statistics", "none", "--json")])
def test_a_loss_that_is_not_finite_ends_the_run_with_advice(folder, options):
    result = run("train", "--learning-rate", "1e10", "--save-weights", "m.npz", *options)

    assert result.exit_code == 1, result.output
    assert "a smaller learning rate or clipping may help" in result.stderr.splitlines()[-1]
    assert "{" not in result.stdout
    assert not list(folder.iterdir())
