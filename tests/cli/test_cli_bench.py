"""`matgrad bench`: the fastest backend for a model."""

from __future__ import annotations

import json
import re
import sys

import matgrad as mg
from cli_support import run, succeed

QUICK = ("bench", "--rounds", 1, "--threads", "1", "--batch-size", 4)
SMALL = ("--layer-sizes", "6;5;4;3")


def test_the_fastest_comes_first_with_the_options_to_use():
    output = succeed(*QUICK, *SMALL, "--backends", "numpy,native", "--eager")
    assert output.startswith("ms per step, batch 4\n\noptions ")
    lines = output.splitlines()[3:]
    found = {re.split("  +", line)[0] for line in lines}
    names = {f"--backend {name} --threads 1" for name in ("numpy", "native")}
    assert found == names | {f"{name} --eager" for name in names}
    times = [float(re.split("  +", line)[1]) for line in lines]
    assert times == sorted(times)
    assert lines[0].endswith("1.00")


def test_a_saved_sparse_model_as_json(tmp_path):
    M = mg.create_model("ReLU;Linear", [6, 5, 3], densities=[0.5, 1])
    M.save(tmp_path / "m.npz")
    options = ("--load-weights", tmp_path / "m.npz", "--backends", "native,torch", "--optimizers", "Adam", "--json")
    record = json.loads(succeed(*QUICK, *options))
    assert {row["backend"] for row in record["measured"]} == {"native", "torch"}
    assert all(row["seconds_per_step"] > 0 and row["compiled"] for row in record["measured"])
    assert record["problems"] == {}


def test_a_backend_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    result = run(*QUICK, *SMALL, "--backends", "numpy,jax")
    assert result.exit_code == 0, result.output
    assert "jax: not installed" in result.stderr
    assert "--backend numpy" in result.stdout
