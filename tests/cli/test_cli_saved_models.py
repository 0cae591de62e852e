"""A model file says what the model is: options need not be repeated, nor contradict it; run.json repeats a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cli_support import arrays, blobs, plane, run, save_blobs, succeed, write_csv
from matgrad.storage.models import load

DATA = ("--load-dataset", "data.npz", "--batch-size", 10)
MODEL = ("--layers", "GELU;BatchNormalization;AllReLU(0.3);Linear", "--layer-sizes", "4;9;7;3", "--dropouts", "0.2;0;0",
         "--densities", "0.5;0.4;1", "--loss", "SquaredError", "--normalize", "standard", "--dtype", "float64",
         "--optimizers", "Adam", "--learning-rate", 0.01)  # fmt: skip


@pytest.fixture(autouse=True)
def files(folder) -> None:
    """Data, and a model with nothing in it that is a default."""
    save_blobs(folder / "data.npz")
    succeed("train", *DATA, *MODEL, "--epochs", 2, "--save-weights", "m.npz")


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr.splitlines()[-1]


def assert_same(first: object, second: object) -> None:
    """Both files have the same arrays, bit by bit."""
    A, B = arrays(first), arrays(second)
    assert A.keys() == B.keys()
    for name in A.keys() - {"matgrad"}:
        assert A[name].dtype == B[name].dtype, name
        np.testing.assert_array_equal(A[name], B[name], err_msg=name)


# -- --load-weights ----------------------------------------------------------------------------


def test_a_model_is_rebuilt_from_its_file():
    succeed("train", *DATA, "--load-weights", "m.npz", "--epochs", 0, "--save-weights", "n.npz")
    assert_same("m.npz", "n.npz")
    expected, found = (json.loads(str(arrays(name)["matgrad"])) for name in ("m.npz", "n.npz"))
    assert found["model"] == expected["model"]
    assert found["model"]["dropouts"] == "0.2;0.0;0.0"
    for name in ("loss", "normalize", "classes"):
        assert found["information"][name] == expected["information"][name]


def test_training_goes_on_as_if_the_options_had_been_repeated():
    go_on = ("train", *DATA, "--load-weights", "m.npz", "--optimizers", "Adam", "--learning-rate", 0.01, "--epochs", 2)
    succeed(*go_on, "--save-weights", "short.npz")
    succeed(*go_on, *MODEL, "--save-weights", "long.npz")
    assert_same("short.npz", "long.npz")
    assert not np.array_equal(arrays("short.npz")["W1"], arrays("m.npz")["W1"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--layers", "ReLU;ReLU;Linear"), ("--layers ReLU;ReLU;Linear", "GELU;BatchNormalization(")),
        (("--layer-sizes", "4;9;8;3"), ("--layer-sizes 4;9;8;3", "4;9;7;3")),
        (("--layer-sizes", "4;3"), ("--layer-sizes", "4;9;7;3")),
        (("--dropouts", "0"), ("--dropouts 0", "0.2;0.0;0.0")),
        (("--densities", "0.5;0.5;1"), ("--densities 0.5;0.5;1", "0.5;0.4;1")),
        (("--densities", "ER(0.9)"), ("--densities ER(0.9)", "0.5;0.4;1")),
        (("--layer-weights", "Xavier"), ("--layer-weights", "m.npz")),
        (("--normalize", "unit"), ("--normalize unit", "standard")),
    ],
)
def test_options_that_contradict_the_file_are_refused(options, words):
    message = refused("train", *DATA, "--load-weights", "m.npz", *options)
    assert all(word in message for word in ("--load-weights", *words)), message


def test_the_inputs_are_scaled_as_they_were(folder):
    """With the offsets and scales of the first data, not of what the model is trained on next."""
    data = blobs(seed=7)
    np.savez(folder / "other.npz", **{name: 3 * A + 5 if name[0] == "X" else A for name, A in data.items()})
    succeed("train", "--load-dataset", "other.npz", "--load-weights", "m.npz", "--epochs", 1, "--save-weights", "n.npz")
    for name in ("extra.offset", "extra.scale"):
        np.testing.assert_array_equal(arrays("n.npz")[name], arrays("m.npz")[name])


def test_the_element_type_is_that_of_the_file_unless_told():
    for options, dtype in (((), np.float64), (("--dtype", "float32"), np.float32)):
        succeed("train", *DATA, "--load-weights", "m.npz", *options, "--epochs", 1, "--save-weights", "n.npz")
        assert arrays("n.npz")["W1"].dtype == dtype
    evaluate = ("evaluate", "m.npz", *DATA[:2], "--json")
    exact, rounded = (json.loads(succeed(*evaluate, *more))["loss"] for more in ((), ("--dtype", "float32")))
    assert exact != rounded
    assert exact == pytest.approx(rounded, rel=1e-5)


def test_a_table_is_read_as_it_was(folder):
    """Its columns are found by name, its targets scaled as they were."""
    rows = plane()
    write_csv(folder / "t.csv", ["x", "y", "z"], rows)
    write_csv(folder / "swapped.csv", ["y", "u", "z", "x"], [[y, 0, 10 * z, x] for x, y, z in rows])
    table = ("--features", "columns=x,y; missing=median")
    succeed("train", "--table", "t.csv", *table, "--epochs", 2, "--save-weights", "t.npz")
    go_on = ("train", "--table", "swapped.csv", "--target", "z", "--load-weights", "t.npz", "--epochs", 1)
    succeed(*go_on, "--save-weights", "u.npz")
    for name in ("extra.offset", "extra.scale", "extra.target_offset", "extra.target_scale"):
        np.testing.assert_array_equal(arrays("u.npz")[name], arrays("t.npz")[name], err_msg=name)
    assert [column.name for column in load("u.npz").features.columns] == ["x", "y"]
    succeed("train", "--table", "t.csv", *table, "--load-weights", "t.npz", "--epochs", 1)
    assert "--features columns=x" in refused(
        "train", "--table", "t.csv", "--features", "columns=x", "--load-weights", "t.npz"
    )
    assert "the model has 4 features, but the data digits needs 64" in refused("train", "--load-weights", "m.npz")
    message = refused("train", "--table", "t.csv", "--load-weights", "t.npz", "--normalize-targets", "unit")
    assert "--normalize-targets unit and --load-weights t.npz contradict each other" in message


# -- run.json ----------------------------------------------------------------------------------

RUNS = {
    "a model": (*DATA, *MODEL, "--epochs", 3, "--seed", 3, "--validation", 0.2, "--early-stopping", 2),
    "going on": (*DATA, "--load-weights", "m.npz", "--epochs", 2, "--clip", 0.5, "--optimizers", "Adam(l1=0.01)"),
    "generated": ("--generate-dataset", "mini(50)", "--densities", "ER(0.5)", "--epochs", 2),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_record_of_a_run_repeats_it(folder, name):
    """Bit by bit, into another folder, without touching the first."""
    succeed("train", *RUNS[name], "--output", "run1", "--save-weights", "w.npz", "--save-dataset", "d.npz")
    before = {path: path.read_bytes() for path in [*(folder / "run1").iterdir(), folder / "w.npz", folder / "d.npz"]}
    files = {"a model": DATA, "going on": (*DATA, "--load-weights", "m.npz"), "generated": ()}[name]
    succeed("train", "--config", "run1/run.json", *files, "--output", "run2")

    assert_same("run1/model.npz", "run2/model.npz")
    first, second = (json.loads((folder / run / "run.json").read_text()) for run in ("run1", "run2"))
    assert second["results"] == first["results"]
    assert second["data"] == first["data"]
    assert [row["loss"] for row in second["epochs"]] == [row["loss"] for row in first["epochs"]]
    assert {path: path.read_bytes() for path in before} == before


def test_a_record_notes_other_data_and_is_not_overwritten(folder):
    note = "note: the data are not those of the run in run1/run.json"
    write_csv(folder / "d.csv", ["x", "y", "z"], plane())
    succeed("train", "--table", "d.csv", "--epochs", 1, "--output", "run1")
    repeat = ("train", "--config", "run1/run.json", "--table", "d.csv")
    assert "same file as --config run1/run.json, which is read" in refused(*repeat, "--output", "run1", "--overwrite")
    assert note not in run(*repeat).stderr
    write_csv(folder / "d.csv", ["x", "y", "z"], plane(70))
    assert note in run(*repeat).stderr
