"""`matgrad plot` and `matgrad runs`: what they show of runs, and of files that are no runs."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from cli_support import plane, run, save_blobs, succeed, write_csv
from matgrad.runs.records import Run, colours, read_run, runs_figure

FAST = ("train", "--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 3, "--batch-size", 10)


@pytest.fixture(autouse=True)
def data(folder) -> None:
    save_blobs(folder / "data.npz")
    (folder / "runs").mkdir()


def train(name: str, *options: object) -> dict:
    """The record of a run in runs/NAME."""
    succeed(*FAST, "--output", f"runs/{name}", *options)
    return json.loads(Path(f"runs/{name}/run.json").read_text())


def train_regression(name: str) -> None:
    write_csv(Path("plane.csv"), ["x", "y", "z"], plane())
    succeed("train", "--table", "plane.csv", "--layers", "Linear", "--epochs", 2, "--output", f"runs/{name}")


# -- plot -----------------------------------------------------------------------------------------


def lines_of(*runs: Run) -> dict[str, list[tuple[str, str, list[float]]]]:
    """By panel: the colour, the line style and the values of each line."""
    figure = runs_figure(runs)
    return {
        ax.get_title(loc="left") or ax.get_title(): [
            (line.get_color(), line.get_linestyle(), [float(y) for y in line.get_ydata()]) for line in ax.get_lines()
        ]
        for ax in figure.axes
    }


def test_a_picture_has_the_values_of_the_runs():
    records = [train("a", "--validation", 0.2), train("b", "--learning-rate", "MultiStepLR(0.5; 2; 0.1)")]
    panels = lines_of(*(read_run(Path("runs") / name) for name in "ab"))
    assert [*panels] == ["loss", "accuracy", "learning rate", "training time (s)"]
    first, second = colours(2)
    for measure in ("loss", "accuracy"):
        expected = [
            (colour, style, [epoch[f"{prefix}{measure}"] for epoch in record["epochs"]])
            for record, colour in zip(records, (first, second), strict=True)
            for prefix, style in (("", "-"), ("validation_", "--"), ("test_", ":"))
            if f"{prefix}{measure}" in record["epochs"][0]
        ]
        assert panels[measure] == expected
    assert panels["learning rate"] == [
        (colour, "-", [epoch["learning_rate"] for epoch in record["epochs"]])
        for record, colour in zip(records, (first, second), strict=True)
    ]
    assert len({*panels["learning rate"][1][2]}) == 2
    sums = np.cumsum([epoch["seconds"] for epoch in records[1]["epochs"]])
    np.testing.assert_allclose(panels["training time (s)"][1][2], sums)


def test_an_error_has_a_panel_of_its_own():
    train("a")
    train_regression("c")
    panels = lines_of(read_run(Path("runs/a")), read_run(Path("runs/c")))
    assert [*panels] == ["loss", "accuracy", "root mean squared error", "training time (s)"], "and no constant rate"
    assert {colour for colour, _, _ in panels["root mean squared error"]} == {colours(2)[1]}


def test_values_that_are_not_finite_are_gaps():
    rows = [{"epoch": 1.0, "loss": 1.0}, {"epoch": 2.0, "loss": None}, {"epoch": 3.0}]
    ((_, _, values),) = lines_of(Run(Path("x"), rows))["loss"]
    assert values[0] == 1.0
    assert all(map(math.isnan, values[1:]))


def test_a_log_has_what_the_record_has():
    train("a", "--validation", 0.2, "--log", "a.csv", "--log", "a.jsonl", "--densities", 0.5)
    record, table, lines = (read_run(Path(name)).rows for name in ("runs/a", "a.csv", "a.jsonl"))
    assert record == lines
    assert [{name: x for name, x in row.items() if not name.startswith("nnz")} for row in table] == record


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", "[1]\n", "x.jsonl: line 1: Expected `object`, got `array`"),
        ("x.jsonl", '{"epoch": 1}\n{"epo', "x.jsonl: line 2: "),
        ("x.jsonl", '{"loss": 1}\n', "x.jsonl: line 1: expected an epoch after 0, found None"),
        ("x.jsonl", '{"epoch": 2}\n{"epoch": 2}\n', "x.jsonl: line 2: expected an epoch after 2, found 2"),
        ("x.jsonl", '{"epoch": NaN}\n', "x.jsonl: line 1: found NaN, expected a finite number"),
        ("x.jsonl", "", "x.jsonl: found no epochs, expected at least one"),
        ("x.csv", "epoch,loss\n1,2,3\n", "x.csv: line 2: found 3 columns, expected 2"),
        ("x.csv", "epoch,epoch\n1,2\n", "x.csv: line 1: found two columns with the same name"),
        ("x.csv", 'epoch,loss\n1,"2\n', "x.csv: line 2: unexpected end of data"),
        ("x.csv", "epoch,loss\nred,2\n", "x.csv: line 2: expected an epoch after 0, found 'red'"),
        ("x.json", "{}", "x.json: Object missing required field `started`"),
        ("x.json", "[" * 1000, "x.json: "),
        ("x.txt", "hello", "x.txt: "),
    ],
)
def test_what_is_no_run_is_refused(name, content, message):
    Path(name).write_text(content)
    result = run("plot", name)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")
    assert not Path("plot.png").exists()


def test_a_log_is_not_drawn_over():
    Path("a.svg").write_text("x")
    assert "the same file as RUN… a.svg, which is read" in run("plot", "a.svg", "--output", "a.svg").stderr
    assert "expected a name that ends in .png or .svg, found 'a.pdf'" in run("plot", "x", "--output", "a.pdf").stderr


# -- runs -----------------------------------------------------------------------------------------


def test_runs_are_listed_and_compared():
    a = train("a")
    Path("runs/deep").mkdir()
    b = train("deep/b", "--seed", 7, "--learning-rate", 0.5, "--epochs", 4)
    found = {row["name"]: row for row in json.loads(succeed("runs", "runs", "--json"))}
    assert [*found] == ["a", "deep/b"]
    for name, record in (("a", a), ("deep/b", b)):
        row = found[name]
        assert row["accuracy"] == record["results"]["test_accuracy"]
        assert row["best_accuracy"] == max(epoch["test_accuracy"] for epoch in record["epochs"])
        assert row["best_loss"] == min(epoch["test_loss"] for epoch in record["epochs"])
        assert row["rmse"] is None
        assert (row["seed"], row["seconds"], row["started"]) == tuple(record[x] for x in ("seed", "seconds", "started"))
        assert (row["data"], row["layers"], row["sizes"]) == ("data", "ReLU;Linear", "4;128;3")
    assert found["a"]["options"] == {"learning_rate": "0.05", "epochs": 3}
    assert found["deep/b"]["options"] == {"learning_rate": "0.5", "epochs": 4}, "and not seed and output"

    title, _, headings, first, second = succeed("runs", "runs").splitlines()
    assert title == "2 runs"
    assert "rmse" not in headings
    assert first.split()[0] == "a"
    assert second.endswith("epochs=4 learning_rate=0.5")


@pytest.mark.parametrize(
    ("key", "order"),
    [("name", "abc"), ("accuracy", "bac"), ("best_accuracy", "bac"), ("loss", "cab"), ("rmse", "cab"), ("seed", "bca")],
)
def test_the_order_is_the_users_choice(key, order):
    """Highest accuracy and smallest error first; runs without a value come last."""
    for name, seed, results in (
        ("a", 3, {"test_accuracy": 0.5, "test_loss": 0.2}),
        ("b", 1, {"test_accuracy": 0.9, "test_loss": 0.3}),
        ("c", 2, {"test_rmse": 0.5, "test_loss": 0.1}),
    ):
        record = {"started": "2026", "seconds": 1, "seed": seed, "data": {"name": "d"}, "model": {}}
        record |= {"configuration": {}, "epochs": [{"epoch": 1, **results}], "results": results}
        Path(f"runs/{name}").mkdir()
        Path(f"runs/{name}/run.json").write_text(json.dumps(record))
    assert "".join(row["name"] for row in json.loads(succeed("runs", "runs", "--sort", key, "--json"))) == order


def test_damaged_records_are_named_and_skipped():
    train("a")
    for name, content in (("b", b"{"), ("c", b"\xff"), ("d", b'{"seed": 1}'), ("e", b"[]")):
        Path(f"runs/{name}").mkdir()
        Path(f"runs/{name}/run.json").write_bytes(content)
    os.mkfifo("runs/e/pipe")
    result = run("runs", "runs")
    assert result.exit_code == 0
    assert [line.split(":")[1] for line in result.stderr.splitlines()] == [
        f" skipped runs/{name}/run.json" for name in "bcde"
    ]
    assert result.stdout.splitlines()[0] == "1 run"


def test_what_could_command_a_terminal_is_not_printed():
    record = train("a")
    record["data"]["name"] = "\x1b[31mred\r\n"
    Path("runs/a/run.json").write_text(json.dumps(record))
    assert r"\x1b[31mred\r\n" in succeed("runs", "runs")
