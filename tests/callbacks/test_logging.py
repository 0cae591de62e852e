"""Logs of a run: JSON lines, CSV and event files, whole after a crash and after a resumed run."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import matgrad as mg
from matgrad.callbacks import Callback, Log, TensorBoard
from matgrad.callbacks.report import EVENTS
from support import PATIENCE

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
T = (X[:, 0] > 0).astype(int)


def fit(*callbacks: Callback, epochs: int = 3, layers: str = "ReLU;Linear", **options) -> dict[str, list]:
    M = mg.create_model(layers, [3, 4, 2][-layers.count(";") - 2 :], **options)
    return M.fit(X, T, epochs=epochs, seed=1, validation=0.25, callbacks=callbacks)


def json_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def csv_lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def follow(log: Callback, *rows: dict, before: tuple[dict, ...] = ()) -> None:
    """Give the log the rows of a run, after those that it starts with."""
    run = SimpleNamespace(rows=list(before))
    log.start(run)
    for row in rows:
        run.rows.append(row)
        log.epoch(run)
    log.end(run)


def test_json_lines_have_the_history(tmp_path):
    history = fit(Log(tmp_path / "a.jsonl"))
    lines = json_lines(tmp_path / "a.jsonl")
    assert [*lines[0]] == [*history] >= ["epoch", "learning_rate", "seconds", "loss", "accuracy", "validation_loss"]
    assert {name: [line[name] for line in lines] for name in history} == history


def test_csv_has_the_history(tmp_path):
    history = fit(Log(tmp_path / "a.csv"))
    lines = csv_lines(tmp_path / "a.csv")
    assert {name: [float(line[name]) for line in lines] for name in history} == history


def test_a_log_has_the_values_of_callbacks_that_come_later(tmp_path):
    """Accounting is called after the callbacks of the user, but before logs."""
    history = fit(Log(tmp_path / "a.csv"), Log(tmp_path / "a.jsonl"), densities=0.5)
    (first, *_), (line, *_) = csv_lines(tmp_path / "a.csv"), json_lines(tmp_path / "a.jsonl")
    assert {k: int(first[f"nnz.{k}"]) for k in ("1", "2")} == line["nnz"] == history["nnz"][0]
    assert int(first["flops"]) == line["flops"] == history["flops"][0]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_line_is_in_the_file_when_the_epoch_ends(tmp_path, name):
    code = f"""
import os, numpy as np, matgrad as mg
from matgrad.callbacks import Callback, Log
class Killed(Callback):
    def batch(self, run):
        if run.epoch == 2: os._exit(9)
mg.create_model("Linear", "3;2").fit(np.ones((8, 3)), np.arange(8) % 2, callbacks=[Log({name!r}), Killed()])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 9
    lines = (json_lines if name.endswith("jsonl") else csv_lines)(tmp_path / name)
    assert [int(line["epoch"]) for line in lines] == [1, 2]


def test_a_diverging_run_is_logged_to_its_end(tmp_path):
    with pytest.raises(FloatingPointError):
        mg.create_model("Linear", "3;2").fit(
            X, X[:, :2], learning_rate=1e30, callbacks=[Log(tmp_path / "a.jsonl"), Log(tmp_path / "a.csv")]
        )
    assert json_lines(tmp_path / "a.jsonl")[-1]["loss"] is None, "JSON has no nan"
    assert not math.isfinite(float(csv_lines(tmp_path / "a.csv")[-1]["loss"]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_resumed_run_continues_its_log(tmp_path, name):
    """Lines after the last epoch of the checkpoint are dropped; one that is missing is written."""
    rows = [{"epoch": i, "loss": 1 / i} for i in range(1, 7)]
    whole, parts = tmp_path / f"whole-{name}", tmp_path / name
    follow(Log(whole), *rows)
    for written in (1, 3, 5):
        follow(Log(parts), *rows[:written])
        follow(Log(parts), *rows[3:], before=tuple(rows[:3]))
        assert parts.read_bytes() == whole.read_bytes()


def test_a_column_that_appears_later_joins_the_header(tmp_path):
    rows = [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "f1": 0.5, "loss": 0.5}, {"epoch": 3}]
    follow(Log(tmp_path / "a.csv"), *rows)
    assert (tmp_path / "a.csv").read_text() == "epoch,loss,f1\n1,1.0,\n2,0.5,0.5\n3,,\n"


def test_what_users_add_can_be_anything(tmp_path):
    added = {"epoch": 1, "a": np.float32(0.5), "b": "x,y\n", "c": [1], "d": {"e": np.int64(3)}, "f": None}
    for name in ("a.csv", "a.jsonl"):
        follow(Log(tmp_path / name), added)
    (line,) = json_lines(tmp_path / "a.jsonl")
    assert line == {"epoch": 1, "a": 0.5, "b": "x,y\n", "c": [1], "d": {"e": 3}, "f": None}
    (line,) = csv_lines(tmp_path / "a.csv")
    assert line == {"epoch": "1", "a": "0.5", "b": r"x,y\n", "c": "[1]", "d.e": "3", "f": ""}


def test_a_row_that_could_not_be_written_is_written_with_the_next(tmp_path):
    log, run = Log(tmp_path / "logs" / "a.jsonl"), SimpleNamespace(rows=[])
    log.path.parent.mkdir()
    log.start(run)
    for epoch in (1, 2, 3):
        run.rows.append({"epoch": epoch})
        if epoch == 2:
            log.path.parent.rename(tmp_path / "away")
            with pytest.warns(UserWarning, match=r"a\.jsonl: cannot be written"):
                log.epoch(run)
            (tmp_path / "away").rename(log.path.parent)
        else:
            log.epoch(run)
    assert [line["epoch"] for line in json_lines(log.path)] == [1, 2, 3]


# -- TensorBoard ----------------------------------------------------------------------------------

READER = """
import json, sys
sys.modules["tensorflow"] = None  # TensorBoard then uses its own reader of files
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({tag: [[x.step, x.value] for x in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars in a folder, by TensorBoard's own reader, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", READER, folder], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return {tag: [(step, value) for step, value in pairs] for tag, pairs in json.loads(done.stdout).items()}


def test_tensorboard_reads_the_history(tmp_path):
    history = fit(TensorBoard(tmp_path / "tb"), densities=0.5)
    found = scalars(tmp_path / "tb")
    names = {"loss/training": "loss", "accuracy/training": "accuracy", "loss/validation": "validation_loss"}
    names |= {name: name for name in ("learning_rate", "seconds", "density", "flops", "explored", "peak_memory")}
    for tag, name in names.items():
        assert [step for step, _ in found[tag]] == [1, 2, 3]
        np.testing.assert_allclose([value for _, value in found[tag]], history[name], rtol=1e-6, err_msg=tag)
    assert [value for _, value in found["nnz/1"]] == [nnz["1"] for nnz in history["nnz"]]
    assert "epoch" not in found


def test_events_continue_after_a_resume_and_begin_anew_with_a_run(tmp_path):
    rows = [{"epoch": i, "loss": float(i)} for i in range(1, 6)]
    (tmp_path / "events.out.tfevents.1.other").touch()
    follow(TensorBoard(tmp_path), *rows[:4])
    follow(TensorBoard(tmp_path), *rows[2:], before=tuple(rows[:2]))
    assert scalars(tmp_path) == {"loss/training": [(i, float(i)) for i in range(1, 6)]}
    follow(TensorBoard(tmp_path), *rows[:2])
    assert scalars(tmp_path) == {"loss/training": [(1, 1.0), (2, 2.0)]}
    assert len(list(tmp_path.glob(EVENTS))) == 1
    assert (tmp_path / "events.out.tfevents.1.other").exists(), "a file of another tool"
