"""Sparse training on the command line: methods, rules, and options that do not go together."""

from __future__ import annotations

import json

import pytest

from cli_support import arrays, run, save_blobs, succeed

FAST = ("--load-dataset", "data.npz", "--layers", "ReLU;ReLU;Linear", "--layer-sizes", "4;20;10;3", "--batch-size", 10)
FAST = (*FAST, "--epochs", 4)
SPARSE = ("--densities", "0.3;0.1;1")


@pytest.fixture(autouse=True)
def data(folder) -> None:
    """Tiny data, in data.npz."""
    save_blobs(folder / "data.npz")


def epochs(folder) -> list[dict]:
    """The rows of the record in out/."""
    return json.loads((folder / "out" / "run.json").read_text())["epochs"]


@pytest.mark.parametrize("method", ["static", "SET", "RigL(every=3)", "SNIP", "GMP", "GMP(every=3)"])
def test_every_method_reaches_the_densities(folder, method: str):
    succeed("train", *FAST, *SPARSE, "--sparse-training", method, "--output", "out", "--quiet")
    model = arrays(folder / "out" / "model.npz")
    assert [model["W1"].size, model["W2"].size, model["W3"].size] == [24, 20, 30]
    assert epochs(folder)[-1]["nnz"] == {"1": 24, "2": 20, "3": 30}


def test_SNIP_divides_an_overall_density_itself(folder):
    succeed("train", *FAST, "--densities", "ER(0.2)", "--sparse-training", "SNIP", "--save-weights", "m.npz", "--quiet")
    model = arrays(folder / "m.npz")
    assert sum(model[name].size for name in ("W1", "W2", "W3")) == round(0.2 * (80 + 200 + 30))


def test_rules_of_pruning_and_growing(folder):
    rules = "Topology(SET(0.4), grow=Gradient, weights=Xavier, every=2, until=0.6, decay=linear, regrow=True)"
    for output, options in (("out", ("--sparse-training", rules)), ("static", ())):
        succeed("train", *FAST, *SPARSE, *options, "--output", output, "--quiet")
    found, static = (arrays(folder / name / "model.npz") for name in ("out", "static"))
    assert found["W1.columns"].shape == static["W1.columns"].shape
    assert (found["W1.columns"] != static["W1.columns"]).any()
    rates = [row["explored"] for row in epochs(folder)]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]


def test_a_run_with_updates_is_repeated(folder):
    succeed("train", *FAST, *SPARSE, "--sparse-training", "RigL(0.5, every=3)", "--output", "out", "--quiet")
    succeed("train", "--config", "out/run.json", "--save-weights", "again.npz", "--quiet")
    first, again = arrays(folder / "out" / "model.npz"), arrays(folder / "again.npz")
    for name in ("W1", "W1.columns", "W2", "W2.columns", "b3"):
        assert (first[name] == again[name]).all()


def test_a_sparse_model_in_a_file_goes_on_with_a_method(folder):
    succeed("train", *FAST, *SPARSE, "--save-weights", "m.npz", "--quiet")
    more = ("--load-dataset", "data.npz", "--load-weights", "m.npz", "--epochs", 3, "--save-weights", "n.npz")
    succeed("train", *more, "--sparse-training", "SET", "--quiet")
    before, after = arrays(folder / "m.npz"), arrays(folder / "n.npz")
    assert before["W1"].shape == after["W1"].shape
    assert (before["W1.columns"] != after["W1.columns"]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sparse-training", "SET"), "no sparse layer"),
        (("--sparse-training", "static"), "no sparse layer"),
        (("--sparse-training", "GMP(2)"), "density: expected a number in (0, 1], found 2"),
        (("--sparse-training", "GMP"), "expected --densities or GMP(density)"),
        ((*SPARSE, "--sparse-training", "Rigl"), "did you mean 'RigL'"),
        ((*SPARSE, "--grow", "Random"), '--grow is gone: use --sparse-training "Topology('),
        ((*SPARSE, "--sparse-training", "Topology(SET(3))"), "fraction: expected a number from 0 to 1"),
        (
            (*SPARSE, "--sparse-training", "Topology(Threshold(0.1), grow=Random, decay=cosine)"),
            "no drop fraction",
        ),
        ((*SPARSE, "--sparse-training", "GMP(0.1)"), "GMP(density), and only one of them"),
        (
            (*SPARSE, "--sparse-training", "RigL(evry=5)"),
            "'evry'; usage: RigL(fraction=0.3, every=100, until=0.75, decay='cosine', ",
        ),
        ((*SPARSE, "--sparse-training", "RigL(regrow=3)"), "expected True or False for 'regrow'"),
        (
            (*SPARSE, "--sparse-training", "Topology(SET, Randm)"),
            "unknown rule of growing 'Randm'; did",
        ),
        (
            (*SPARSE, "--sparse-training", "Topology(Magnitud)"),
            "unknown rule of pruning 'Magnitud'; did",
        ),
    ],
)
def test_options_that_do_not_go_together(options: tuple, message: str):
    result = run("train", *FAST, *options)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
