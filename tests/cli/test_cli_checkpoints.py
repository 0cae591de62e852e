"""`matgrad train --checkpoint` and `--resume`: runs that are killed, and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from cli_support import arrays, in_process_of_its_own, run, start, succeed
from matgrad.storage.checkpoints import checkpoint_files, find_checkpoint, read_checkpoint, step_of
from support import PATIENCE

ENGINES = ("native", "numpy", "torch")
MODEL = (
    *("--layers", "ReLU;BatchNormalization;ReLU;Linear", "--layer-sizes", "64;40;30;10", "--dropouts", "0.1;0;0"),
    *("--densities", "0.3;0.5;1", "--sparse-training", "SET(0.2;20)", "--optimizers", "Adam", "--epochs", "4"),
    *("--learning-rate", "0.003", "--validation", "0.2", "--early-stopping", "50", "--quiet"),
)


def assert_equal(file: object, other: object) -> None:
    """Both files have the same arrays, bit by bit."""
    A, B = arrays(file), arrays(other)
    assert A.keys() == B.keys()
    for name in A.keys() - {"matgrad"}:
        np.testing.assert_array_equal(A[name], B[name], err_msg=name)


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder."""
    return [step_of(file) for file in checkpoint_files(folder)] if folder.is_dir() else []


def killed(*arguments: object, seconds: float = PATIENCE, files: Path | None = None, count: int = 0) -> bool:
    """Whether `matgrad ARGUMENTS` was killed: after some seconds, or when a folder has the checkpoint of a step."""
    process = start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if files is not None and max(steps(files), default=-1) >= count:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("engine", [ENGINES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in ENGINES[1:])])
def test_a_killed_run_is_resumed(tmp_path, engine):
    """Killed when it has reached a step, and resumed to the same weights as without that."""
    options = (*MODEL, "--backend", engine)
    succeed("train", *options, "--save-weights", tmp_path / "whole.npz")
    folder = tmp_path / "checkpoints"
    saved = ("--save-weights", tmp_path / "resumed.npz")
    first = ("train", *options, *saved, "--checkpoint", f"{folder}, every=7s")
    killed(*first, files=folder, count=14)  # unless this process is so late that it has ended
    assert succeed("train", "--resume", folder, *saved).splitlines()[-1].startswith("test accuracy")
    assert_equal(tmp_path / "whole.npz", tmp_path / "resumed.npz")
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]  # what killed writes have left


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_fifty_kills(tmp_path, engine):
    """At random moments, some of them while a checkpoint is written, which is most of the time. Nothing is lost.

    Every file that a kill leaves is good, what was written before is still there, and the final model is the same.
    """
    rng = np.random.default_rng(ENGINES.index(engine))
    options = (*MODEL, "--backend", engine)
    succeed("train", *options, "--save-weights", tmp_path / "whole.npz")
    kills = 0
    for trial in range(50):
        folder, file = tmp_path / f"checkpoints{trial}", tmp_path / f"{trial}.npz"
        command, newest = ("train", *options, "--save-weights", file, "--checkpoint", f"{folder}, every=1s"), -1
        while kills < 50 and killed(*command, seconds=rng.uniform(0.5, 4)):
            kills += 1
            if found := steps(folder):
                assert {read_checkpoint(path).run.step for path in checkpoint_files(folder)} == {*found}
                assert max(found) >= newest, f"trial {trial}, kill {kills}"
                command, newest = ("train", "--resume", folder, "--save-weights", file), max(found)
        if not file.exists():
            assert in_process_of_its_own(*command)[0] == 0
        assert_equal(tmp_path / "whole.npz", file)
        if kills >= 50:
            break


def test_the_options_of_a_run_are_those_of_its_checkpoint(tmp_path):
    folder = tmp_path / "checkpoints"
    succeed("train", "--epochs", 2, "--checkpoint", folder, "--batch-size", 60, "--layers", "ReLU;Linear")
    for options, problem in (
        (("--batch-size", 50), "--batch-size 50 and --resume .* contradict each other: the run has --batch-size 60"),
        (("--layers", "ReLU;ReLU;Linear"), "has --layers 'ReLU;Linear'"),
        (("--dtype", "float64"), "the run has --dtype 'float32'"),
    ):
        result = run("train", "--resume", folder, *options)
        assert result.exit_code == 2
        assert re.search(problem, result.output), result.output
    assert "expected another folder, --overwrite or --resume" in run("train", "--checkpoint", folder).output
    output = succeed("train", "--resume", folder, "--epochs", 4, "--backend", "numpy", "--output", tmp_path / "run")
    assert f"{folder}/step-00000048.safetensors after epoch 2, step 48" in output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [row["epoch"] for row in record["epochs"]] == [1, 2, 3, 4]
    assert record["configuration"]["batch_size"] == 60
    repeated = succeed("train", "--config", tmp_path / "run" / "run.json", "--save-weights", tmp_path / "again.npz")
    assert repeated.splitlines()[-1] == output.splitlines()[-1]


def test_a_finished_run_is_extended_in_its_own_folder(tmp_path):
    folder, output = tmp_path / "checkpoints", tmp_path / "run"
    first = succeed("train", "--epochs", 2, "--checkpoint", folder, "--output", output, "--quiet")
    assert succeed("train", "--resume", folder, "--quiet") == first
    found = json.loads(succeed("inspect", checkpoint_files(folder)[-1], "--json"))["run"]
    assert (found["epochs"], found["batches since"], found["steps"]) == (2, 0, 58)
    assert f"test accuracy {found['last test_accuracy']:.3f}\n" == first

    again = ("--output", output, "--overwrite")
    shown = succeed("train", "--resume", folder, "--epochs", 3, "--learning-rate", 0.01, *again)
    assert len(shown.splitlines()) > 5, "what was quiet was the first command"
    record = json.loads((output / "run.json").read_text())
    assert [row["learning_rate"] for row in record["epochs"]] == [0.05, 0.05, 0.01]
    assert record["resumed_from"].endswith("step-00000058.safetensors")
    assert "3 epochs are done" in run("train", "--resume", folder, "--epochs", 1).output
    assert "nothing was left to train" in succeed("train", "--resume", folder)
    other = tmp_path / "other"
    succeed("train", "--epochs", 1, "--output", other, "--quiet")
    assert "has run.json already" in run("train", "--resume", folder, "--output", other).output


def test_sigterm_writes_a_checkpoint(tmp_path):
    folder, log = tmp_path / "checkpoints", tmp_path / "log.csv"
    process = start("train", "--epochs", 100_000, "--checkpoint", f"{folder}, every=100000", "--log", log)
    while not log.exists() or len(log.read_text().splitlines()) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert find_checkpoint(folder).run.epoch >= 2


def test_one_file_is_resumed_without_writing_to_its_folder(tmp_path):
    folder = tmp_path / "checkpoints"
    whole = succeed("train", "--epochs", 3, "--checkpoint", folder, "--quiet")
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert succeed("train", "--resume", checkpoint_files(folder)[0], "--quiet") == whole
    assert {file.name: file.stat().st_mtime_ns for file in folder.iterdir()} == before


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_runs_on_tables_and_from_loaded_models_are_resumed(tmp_path, task):
    """What a model starts from is no longer needed; the table is, wherever it is, and must be the same."""
    A = np.random.default_rng(0).normal(size=(80, 2)).round(4)
    targets = [f"{a + b:.4f}" if task == "regression" else "xy"[int(a > b)] for a, b in A]
    lines = ["a,b,c", *(f"{a},{b},{t}" for (a, b), t in zip(A, targets, strict=True))]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    data = ("--table", table, "--normalize", "standard", "--quiet")
    succeed("train", *data, "--epochs", 1, "--save-weights", tmp_path / "start.npz")
    begin = ("train", *data, "--load-weights", tmp_path / "start.npz", "--epochs", 4)
    folder = tmp_path / "checkpoints"
    succeed(*begin, "--checkpoint", f"{folder}, keep=9", "--save-weights", tmp_path / "whole.npz")
    (tmp_path / "start.npz").unlink()
    file = next(file for file in checkpoint_files(folder) if read_checkpoint(file).run.epoch == 2)
    moved = table.rename(tmp_path / "moved.csv")
    resume = ("train", "--resume", file, "--table", moved, "--save-weights", tmp_path / "resumed.npz")
    succeed(*resume)
    assert_equal(tmp_path / "whole.npz", tmp_path / "resumed.npz")

    moved.write_text("\n".join(lines[:-1]) + "\n")
    assert "are not those of the run in" in run(*resume).output
    moved.unlink()
    result = run(*resume)
    assert (result.exit_code, "moved.csv: no such file" in result.output) == (2, True)


@pytest.mark.filterwarnings("default:no checkpoint")
@pytest.mark.skipif(not Path("/dev/full").exists() or os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_full_disk_ends_with_a_message_and_the_last_good_checkpoint(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        result = run("train", "--epochs", 5, "--quiet", "--checkpoint", f"{disk}/checkpoints, keep=9")
        assert result.exit_code == 2
        assert result.stdout.startswith("test accuracy")
        assert "the last checkpoint could not be written: " in result.stderr
        assert 0 < find_checkpoint(disk / "checkpoints").run.epoch < 5
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("option", [("--checkpoint", "{}/file"), ("--resume", "{}/file"), ("--resume", "{}/empty")])
def test_what_is_no_folder_of_checkpoints_is_refused(tmp_path, option):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    result = run("train", option[0], option[1].format(tmp_path))
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert (tmp_path / "file").read_text() == "x"


def test_a_resumed_run_keeps_its_settings_unless_told(tmp_path):
    folder = tmp_path / "checkpoints"
    succeed("train", "--epochs", 2, "--checkpoint", f"{folder}, every=20s, keep=2", "--quiet")
    assert steps(folder) == [40, 58]
    succeed("train", "--resume", folder, "--epochs", 3, "--quiet")
    assert steps(folder) == [80, 87]
    succeed("train", "--resume", f"{folder}, keep=4", "--epochs", 4, "--quiet")
    assert steps(folder) == [80, 87, 100, 116]
