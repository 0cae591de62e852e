"""`matgrad train --log`: the files, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from cli_support import in_process_of_its_own, run, save_blobs, succeed
from matgrad.callbacks.report import EVENTS

FAST = ("train", "--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 3, "--batch-size", 10)


@pytest.fixture(autouse=True)
def data(folder) -> None:
    save_blobs(folder / "data.npz")


def test_logs_have_the_epochs_of_the_record(folder):
    logs = ("--log", "a.jsonl", "--log", "a.csv", "--log", "tb")
    record = json.loads(succeed(*FAST, "--densities", 0.5, *logs, "--json"))
    assert [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()] == record["epochs"]
    with open("a.csv", newline="") as file:
        assert [float(row["test_loss"]) for row in csv.DictReader(file)] == [x["test_loss"] for x in record["epochs"]]
    assert len(list((folder / "tb").glob(EVENTS))) == 1
    assert record["configuration"]["log"] == ["a.jsonl", "a.csv", "tb"]


def test_a_repeated_run_leaves_the_logs_of_the_first():
    succeed(*FAST, "--log", "a.csv", "--output", "out")
    before = Path("a.csv").read_bytes()
    succeed("train", "--config", "out/run.json", "--load-dataset", "data.npz", "--output", "again", "--quiet")
    assert Path("a.csv").read_bytes() == before


def test_event_files_are_replaced_only_if_told():
    succeed(*FAST, "--log", "tb")
    result = run(*FAST, "--log", "tb")
    assert "already; expected another folder, --overwrite or --resume" in result.stderr
    succeed(*FAST, "--log", "tb", "--overwrite")
    assert len(list(Path("tb").glob(EVENTS))) == 1


ENDING = """
import os
from itertools import count
import matgrad as mg

EPOCHS = count(1)

class EndingLayer(mg.LinearLayer):
    \"\"\"A linear layer; its process ends after the fourth epoch of a run, before that is logged.\"\"\"
    def end_epoch(self):
        super().end_epoch()
        if next(EPOCHS) == 4 and "ENDING" in os.environ:
            os._exit(9)
"""


def values(path: str) -> list[dict[str, str]]:
    """The lines of a log, without what depends on the machine."""
    with open(path, newline="") as file:
        return [{k: x for k, x in row.items() if k not in ("seconds", "peak_memory")} for row in csv.DictReader(file)]


def test_a_resumed_run_goes_on_with_its_logs(folder):
    """From a checkpoint in the third epoch, while three lines are there."""
    (folder / "ending.py").write_text(ENDING)
    plugin = ("--plugin", "ending.py")
    options = (*FAST[:-2], "--batch-size", 10, "--epochs", 5, *plugin, "--layers", "ReLU;Ending", "--quiet")
    succeed(*options, "--log", "whole.csv")
    logs = ("--log", "a.csv", "--log", "a.jsonl", "--log", "tb", "--pictures", "pictures")
    status, _, errors = in_process_of_its_own(*options, *logs, "--checkpoint", "c, every=4s", ENDING="")
    assert (status, len(values("a.csv"))) == (9, 3), errors
    (file,) = [path for path in Path("c").glob("step-*") if int(path.stem[5:]) == 16]
    again = ("train", "--resume", file, *plugin, "--load-dataset", "data.npz", "--quiet", *logs)
    assert "already; expected another folder, --overwrite" in run(*again).stderr
    succeed(*again, "--overwrite")
    assert values("a.csv") == values("whole.csv")
    assert [json.loads(line)["epoch"] for line in Path("a.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 5]
    assert len(list(Path("tb").glob(EVENTS))) == 1
