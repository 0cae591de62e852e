"""`matgrad train` in a terminal: the progress bar, and Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli_support import start, succeed
from matgrad.storage.models import load, read_arrays
from support import PATIENCE

FIRST_ROW = r" 1 +0\.05 +\d\.\d{4} "


class Terminal:
    """A command whose input, output and errors are a pseudo-terminal that controls it."""

    def __init__(self, *arguments: object, columns: int = 120) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = start(
            *arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=os.environ | {"TERM": "xterm-256color"},
        )
        os.close(slave)
        self.text = ""

    def read_until(self, pattern: str | None) -> None:
        """Read what is shown until it matches; without a pattern to the end."""
        end = time.monotonic() + PATIENCE
        while pattern is None or not re.search(pattern, self.text, re.M):
            assert time.monotonic() < end, f"not shown: {pattern}\n{self.text}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    part = os.read(self.master, 65536)
                except OSError:  # the other side is closed
                    part = b""
                if not part:
                    assert pattern is None, f"not shown: {pattern}\n{self.text}"
                    return
                self.text += part.decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def plain(self) -> str:
        """All that was shown, line by line, without control sequences."""
        lines = self.text.replace("\r\n", "\n").replace("\x1b[2K", "\n").replace("\r", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lines)


@contextmanager
def terminal(*arguments: object, columns: int = 120) -> Iterator[Terminal]:
    session = Terminal(*arguments, columns=columns)
    try:
        yield session
    finally:
        if session.process.poll() is None:
            session.process.kill()
        session.process.wait()
        os.close(session.master)


def test_a_terminal_shows_a_bar_rows_and_the_last_line():
    with terminal("train", "--epochs", 30, "--layer-sizes", "64;512;512;10") as session:
        session.read_until(None)
        assert session.process.wait(PATIENCE) == 0

    plain = session.plain()
    assert re.search(r"epoch \d+/30 .*\d+/29 batches", plain), "the bar"
    assert "\x1b[" in session.text
    assert len(re.findall(r"^ +\d+ +0\.05 +\d\.\d{4}", plain, re.M)) == 30
    assert re.fullmatch(r"test accuracy 0\.\d{3}", plain.rstrip().splitlines()[-1].strip())
    assert "\x1b[?25h" in session.text.rpartition("\x1b[?25l")[2], "the cursor is visible again"


def test_quiet_shows_no_bar():
    with terminal("train", "--epochs", 1, "--quiet") as session:
        session.read_until(None)
    assert "\x1b" not in session.text


def test_control_c_in_a_terminal_saves_the_model(folder):
    with terminal("train", "--epochs", 100_000, "--save-weights", "m.npz", "--output", "out") as session:
        session.read_until(FIRST_ROW)
        session.type("\x03")
        session.read_until(None)
        assert session.process.wait(PATIENCE) == 130

    plain = session.plain()
    assert "Traceback" not in plain
    assert re.search(r"interrupted in epoch \d+", plain)
    assert re.fullmatch(r"test accuracy 0\.\d{3}", plain.rstrip().splitlines()[-1].strip())
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["interrupted"] is True
    assert 1 <= len(record["epochs"]) < 100_000
    for file in ("m.npz", "out/model.npz"):
        assert load(file).layers[0].input_size == 64
    accuracy = json.loads(succeed("evaluate", "m.npz", "--json"))["accuracy"]
    assert accuracy == pytest.approx(record["results"]["test_accuracy"])


def interrupted(*arguments: object) -> tuple[int, str, str]:
    """Exit status, output and errors of a long training that gets SIGINT after its first rows."""
    process = start("train", "--epochs", 100_000, *arguments)
    seen = ""
    while not re.search(FIRST_ROW, seen):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        seen += line
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, seen + output, errors


def test_control_c_keeps_the_best_epoch_of_early_stopping(folder):
    status, output, errors = interrupted("--validation", 0.2, "--early-stopping", 100_000, "--output", "out")

    assert (status, errors) == (130, "")
    record = json.loads((folder / "out" / "run.json").read_text())
    assert record["results"]["validation_loss"] == min(row["validation_loss"] for row in record["epochs"])
    assert "kept the model of epoch" in output


def test_a_terminal_that_lacks_characters():
    """× and η become question marks, and nothing fails."""
    command = ("program", "--layers", "Linear", "--layer-sizes", "2;2")
    process = start(*command, text=False, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, b""), errors.decode()
    assert any(line.startswith(b"b1'") for line in output.splitlines())


@pytest.mark.parametrize("sink", ["| head -n 1", "> /dev/full"])
def test_a_model_is_saved_though_nothing_can_be_printed(sink: str):
    command = f'"$0" -m matgrad train --epochs 3 --save-weights model.npz {sink}'
    result = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, timeout=PATIENCE)
    description = json.loads(str(read_arrays("model.npz")["matgrad"]))
    assert description["information"]["results"]["test_accuracy"] > 0.5
    assert result.stdout.startswith("MultilayerPerceptron") == sink.startswith("|")
    assert "Traceback" not in result.stderr
