"""What C++ writes: complete or not at all, behind symbolic links, with modes as they were, never over what it reads."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from native_support import needs_compiler, run
from safetensors.numpy import load_file, save_file

from matgrad.specifications.models import create_model
from matgrad.storage.programs import save_program
from support import PATIENCE

pytestmark = needs_compiler


@pytest.fixture
def predict(binaries: Path, tmp_path, monkeypatch) -> list:
    """A command that writes predictions of 5 kB, but for the name of its result."""
    monkeypatch.chdir(tmp_path)
    M = create_model("Linear", "3;2")
    save_program(M.program(feedforward=True, batch_size=10), "p", M)
    save_file({"X": np.ones((200, 3), np.float32), "t": np.zeros(200, np.int64)}, "d")
    return [binaries / "predict", "p", "d"]


@pytest.fixture
def train(predict, binaries) -> list:
    """A command that trains, but for the name of its result, which may be that of the program: to go on with."""
    M = create_model("Linear", "3;2")
    save_program(M.program(batch_size=10), "s", M)
    return [binaries / "train", "s", "d"]


def refused(command: list, result: str) -> str:
    """The error of a command, which must have changed nothing."""
    before = {path.name: path.lstat() for path in Path().iterdir()}
    done = subprocess.run([*map(str, command), result], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert {path.name: path.lstat() for path in Path().iterdir()}.keys() == before.keys()
    assert all(path.lstat().st_ino == before[path.name].st_ino for path in Path().iterdir())
    return done.stderr


@pytest.mark.parametrize("mode", [0o600])
def test_modes_and_links_stay(predict, mode):
    Path("sub").mkdir()
    Path("sub/r").write_text("old")
    Path("sub/r").chmod(mode)
    Path("link").symlink_to("other")
    Path("other").symlink_to("sub/r")
    run([*predict, "link"])
    assert Path("link").is_symlink()
    assert Path("other").is_symlink()
    assert stat.S_IMODE(Path("sub/r").stat().st_mode) == mode
    assert load_file("sub/r")["Y"].shape == (200, 2)
    assert os.listdir("sub") == ["r"]


def test_a_new_file_has_the_usual_mode(predict):
    Path("usual").touch()
    run([*predict, "r"])
    assert Path("r").stat().st_mode == Path("usual").stat().st_mode


def test_what_is_no_file_is_refused_before_anything_runs(predict, train):
    Path("folder").mkdir()
    Path("nowhere").symlink_to("absent/x")
    Path("loop").symlink_to("loop")
    for command in (predict, train):
        assert "folder: cannot be written (expected a file, found a folder)" in refused(command, "folder")
        assert "/dev/null: cannot be written (expected a file, found a device" in refused(command, "/dev/null")
        assert "nowhere: cannot be written (there is no folder absent)" in refused(command, "nowhere")
        assert "loop: cannot be written (too many symbolic links)" in refused(command, "loop")
        assert ": cannot be written (" in refused(command, "")


def test_what_is_read_is_not_written(predict, train):
    Path("link").symlink_to("d")
    os.link("p", "hard")
    Path("sub").mkdir()
    for command, names in ((predict, ["p", "d", "link", "hard"]), (train, ["d", "sub/../d", "link"])):
        for name in names:
            assert f"{name}: is read too; expected another file" in refused(command, name)


def test_a_killed_write_leaves_the_old_file(predict):
    Path("r").write_text("old")
    limited = f"ulimit -f 1 && exec {shlex.join(map(str, predict))} r"
    assert subprocess.run(["bash", "-c", limited], timeout=PATIENCE).returncode < 0
    assert Path("r").read_text() == "old"
