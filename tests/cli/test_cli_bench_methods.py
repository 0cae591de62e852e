"""`matgrad bench sparse-methods` on tiny data: record, tables, plots, going on, failures and bad input."""

from __future__ import annotations

import json
import re
import signal
import struct
import sys
from pathlib import Path
from statistics import mean, stdev
from xml.etree import ElementTree

import numpy as np
import pytest

from cli_support import run, start, succeed
from support import PATIENCE

QUICK = ("bench", "sparse-methods", "--epochs", 2, "--hidden", "12,8", "--batch-size", 20, "--threads", 1, "--jobs", 2)
METHODS = ("dense", "static", "SET", "masked-static")


def images(N: int, D: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of one random image per class, as bytes, and their classes."""
    rng = np.random.default_rng(seed)
    t = np.arange(N) % 10
    centres = np.random.default_rng(7).integers(0, 200, (10, D))
    return (centres[t] + rng.integers(0, 50, (N, D))).astype(np.uint8), t.astype(np.uint8)


def write_mnist(folder: Path) -> None:
    """Images of 4 × 4, in the files of MNIST."""
    folder.mkdir()
    for part, N in (("train", 120), ("t10k", 50)):
        X, t = images(N, 16, N)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, N, 4, 4) + X.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, N) + t.tobytes())


def write_cifar10(folder: Path) -> None:
    """A few images in the files of CIFAR-10's binary version."""
    folder.mkdir()
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        X, t = images(10, 3072, i)
        (folder / f"{name}.bin").write_bytes(np.hstack([t[:, None], X]).tobytes())


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist")
    write_cifar10(folder / "cifar10")
    return folder


@pytest.fixture(scope="module")
def measured(data, tmp_path_factory) -> tuple[Path, str, str]:
    """The folder, the output and the messages of a quick run."""
    folder = tmp_path_factory.mktemp("bench") / "out"
    options = ("--only", "mnist,fashion-mnist", "--methods", ",".join(METHODS), "--densities", "0.6", "--seeds", 2)
    result = run(*QUICK, *options, "--data", data, "--output", folder)
    assert result.exit_code == 0, result.output
    return folder, result.stdout, result.stderr


def read(folder: Path) -> dict:
    return json.loads((folder / "bench.json").read_text())


def runs_of(record: dict, **values) -> list[dict]:
    return [x for x in record["runs"] if all(x[name] == value for name, value in values.items())]


def test_every_method_is_trained_at_every_density_with_every_seed(measured):
    record = read(measured[0])
    assert (record["kind"], record["missing"], record["failures"]) == ("sparse-methods", {}, {})
    assert record["data"]["mnist"]["sizes"] == [16, 12, 8, 10]
    assert record["data"]["mnist"]["training_examples"] == 120
    expected = {("dense", 1, s) for s in (0, 1)}
    expected |= {(method, d, s) for method in METHODS[1:] for d in (0.6,) for s in (0, 1)}
    assert {(x["method"], x["density"], x["seed"]) for x in record["runs"]} == expected
    assert len(record["runs"]) == len(expected)
    for x in record["runs"]:
        assert len(x["accuracies"]) == len(x["epoch_seconds"]) == 2
        assert x["accuracies"][-1] == x["test_accuracy"]
        assert x["seconds"] == pytest.approx(sum(x["epoch_seconds"]), abs=1e-3)
        assert x["dense_flops"] == 2 * 2 * 120 * (2 * 16 * 12 + 3 * 12 * 8 + 3 * 8 * 10)


def test_masked_pytorch_computes_what_static_training_does_with_fewer_operations(measured):
    record = read(measured[0])
    for x in runs_of(record, method="static"):
        (other,) = runs_of(record, method="masked-static", density=x["density"], seed=x["seed"])
        assert other["accuracies"] == pytest.approx(x["accuracies"], abs=0.021)  # one of 50 examples
        assert other["explored"] == pytest.approx(x["explored"])
        assert other["flops"] == other["dense_flops"] > 1.2 * x["flops"]
    for x in runs_of(record, method="SET"):
        assert x["explored"] > x["density"] + 0.01


def test_the_tables_have_means_and_spreads(measured):
    folder, output, _ = measured
    record = read(folder)
    values = [x["test_accuracy"] for x in runs_of(record, method="SET", density=0.6)]
    line = next(line for line in output.splitlines() if line.startswith("SET "))
    assert line.split(None, 1)[1].strip() == f"{mean(values):.4f} ± {stdev(values):.4f}"
    assert output.startswith("MNIST (16;12;8;10): test accuracy, against density\n\nmethod")
    assert "MNIST (16;12;8;10): seconds of training, against density" in output
    assert "THEIR SECONDS ARE NOT COMPARABLE" in output
    assert re.search(r"^\| masked-static \|.*± ", (folder / "table.md").read_text(), re.M)


def test_data_that_is_not_there_is_left_out_with_a_line(measured):
    _, output, messages = measured
    assert re.search(r"fashion-mnist is left out: there is no .*fashion-mnist", messages)
    assert re.search(r"fashion-mnist was left out: there is no .*fashion-mnist", output)


def test_the_plots_are_pictures_and_redrawing_gives_the_same(measured, tmp_path):
    folder, *_ = measured
    assert ElementTree.parse(folder / "plot.svg").getroot().tag.endswith("svg")
    succeed("bench", "plot", folder / "bench.json", "--output", tmp_path / "again")
    for name in ("plot.png", "plot.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_a_benchmark_goes_on_where_it_was(data, tmp_path):
    options = (*QUICK, "--data", data, "--only", "mnist", "--densities", "0.3", "--no-plot", "--output", tmp_path)
    first = run(*options, "--methods", "static", "--seeds", 2)
    assert "2 of 2 runs to do" in first.stderr
    again = run(*options, "--methods", "static", "--seeds", 2)
    assert "0 of 2 runs to do" in again.stderr
    assert again.stdout.split("means over")[0] == first.stdout.split("means over")[0]

    record = read(tmp_path)
    accuracies = {x["seed"]: x["accuracies"] for x in record["runs"]}
    record["runs"] = runs_of(record, seed=1)  # as if it had been interrupted
    (tmp_path / "bench.json").write_text(json.dumps(record))
    more = run(*options, "--methods", "static,RigL(0.5, every=2)", "--seeds", 2)
    assert "3 of 4 runs to do" in more.stderr
    record = read(tmp_path)
    assert {x["seed"]: x["accuracies"] for x in runs_of(record, method="static")} == accuracies
    assert len(runs_of(record, method="RigL(0.5, every=2)")) == 2
    assert len(record["earlier"]) == 2

    refused = run(*options, "--methods", "static", "--batch-size", 10)
    assert refused.exit_code == 2
    assert "the record has batch size 20, and these runs 10; expected another folder, or --overwrite" in refused.stderr
    anew = run(*options, "--methods", "static", "--seeds", 1, "--batch-size", 10, "--overwrite")
    assert "1 of 1 runs to do" in anew.stderr


def test_control_c_keeps_the_runs_that_are_done(data, tmp_path):
    options = ("--data", data, "--only", "mnist", "--methods", "static", "--densities", "0.5", "--seeds", 500)
    process = start(*QUICK, *options, "--no-plot", "--output", tmp_path)
    assert process.stderr is not None
    assert any("1 of 500: mnist static 0.5 seed" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert errors.rstrip().endswith("interrupted")
    assert 1 <= len(read(tmp_path)["runs"]) < 100


def test_methods_that_start_dense_reach_the_density(data):
    options = ("--data", data, "--only", "cifar10", "--densities", "0.1", "--seeds", 1, "--methods", "SNIP,GMP")
    result = run(*QUICK, *options, "--json")
    assert result.exit_code == 0, result.output
    assert not result.stderr
    record = json.loads(result.stdout)
    assert record["data"]["cifar10"]["sizes"] == [3072, 12, 8, 10]
    densities = {x["method"]: x["stored"] for x in record["runs"]}
    assert densities == {"SNIP": pytest.approx(0.1, abs=1e-4), "GMP": pytest.approx(0.1, abs=1e-4)}


def test_a_run_that_fails_is_noted_and_tried_again(data, tmp_path):
    options = ("--data", data, "--only", "mnist", "--seeds", 1, "--no-plot", "--output", tmp_path, "--densities", "0.5")
    result = run(*QUICK, *options, "--methods", "static", "--learning-rate", "1e30")
    assert result.exit_code == 1
    assert re.search(r"mnist static 0.5 seed 0 failed: FloatingPointError: .*not finite", result.stdout)
    assert read(tmp_path)["runs"] == []
    again = run(*QUICK, *options, "--methods", "static", "--learning-rate", "1e30")
    assert "1 of 1 runs to do" in again.stderr


def test_without_pytorch_its_methods_are_left_out(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    options = ("--data", data, "--only", "mnist", "--seeds", 1, "--densities", "0.5", "--methods", "masked-RigL,static")
    output = succeed(*QUICK, *options)
    assert "masked-RigL was left out: torch is not installed" in output
    assert re.search(r"^static +0\.\d{4}$", output, re.M)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "RIGL"), "unknown method of sparse training 'RIGL'"),
        (("--methods", "RigL(2)"), "fraction"),
        (("--only", "cifar"), "unknown data set 'cifar'; known: mnist, fashion-mnist, cifar10"),
        (("--only", "fashion-mnist"), "expected a folder with fashion-mnist, found none of them"),
        (("--densities", "0"), "not a list of numbers"),
        (("--learning-rate", "Cosin(1)"), "unknown learning rate scheduler"),
        (("--only", "mnist", "--examples", "121"), "--examples 121: .*mnist has only 120 training examples"),
        (("--data", "nowhere"), "nowhere: no such folder"),
    ],
)
def test_bad_input(data, arguments: tuple, message: str):
    result = run(*QUICK, "--data", data, *arguments)
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.stderr.split())), result.stderr


def test_data_is_needed(monkeypatch):
    monkeypatch.delenv("MATGRAD_DATA", raising=False)
    assert "no data: expected --data DIR" in run(*QUICK).stderr


def test_the_record_of_another_benchmark_is_not_overwritten(data, tmp_path):
    (tmp_path / "bench.json").write_text(json.dumps({"kind": "cost", "format": 1}))
    result = run(*QUICK, "--data", data, "--output", tmp_path, "--no-plot")
    assert result.exit_code == 2
    assert "a record of bench cost; expected another folder, or --overwrite" in result.stderr
