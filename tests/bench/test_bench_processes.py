"""Processes and turns: who begins, what a failing tool does to the rest, and replies that chatter cannot spoil."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from matgrad.bench.measuring.files import write_problem
from matgrad.bench.measuring.problems import generated, initial_parameters
from matgrad.bench.measuring.processes import Process, Team, ToolError
from matgrad.bench.tools.training_tool import Setting
from support import PATIENCE

SETTING = Setting((6, 4, 3), batch_size=5)
NOISY = """
import os
from matgrad.bench.measuring import worker
from matgrad.bench.tools import registry
create = registry.Tool.create
def noisy(*arguments):
    print("chatter")
    os.write(1, b"more chatter\\n")
    return create(*arguments)
registry.Tool.create = noisy
worker.main("matgrad-numpy", 1)
"""


@pytest.fixture
def problem(tmp_path):
    data = generated(6, 3, 20, 1)
    write_problem(tmp_path, data.Xtrain, data.Ttrain, initial_parameters(SETTING, 0))
    return tmp_path


class Recorder:
    """In place of a process: writes down who is asked."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name, self.asked = name, asked

    def ask(self, **request):
        self.asked.append(self.name)
        return {"seconds": float(len(self.asked)), "waiting": 0.0}

    def close(self):
        pass


def test_the_tools_take_turns_and_another_begins_every_round(tmp_path):
    asked: list[str] = []
    with Team([], tmp_path, 1, "float32", lambda text: None) as team:
        team._keep = True
        team._processes = {name: Recorder(name, asked) for name in "abc"}  # type: ignore[assignment,misc]
        seconds = team.rounds(4)

    assert "".join(asked) == "abcbcacababc"
    assert seconds == {"a": [1.0, 6.0, 8.0, 10.0], "b": [2.0, 4.0, 9.0, 11.0], "c": [3.0, 5.0, 7.0, 12.0]}


def test_a_tool_that_dies_leaves_the_others_at_work(problem):
    said: list[str] = []
    with Team(["matgrad-numpy", "matgrad-numpy-eager"], problem, 1, "float32", said.append) as team:
        team.setup(SETTING, problem)
        team._processes["matgrad-numpy"].process.kill()
        seconds = team.rounds(2)
        found = team.parameters()

    assert list(seconds) == list(found) == ["matgrad-numpy-eager"]
    assert len(seconds["matgrad-numpy-eager"]) == 2
    assert team.failures == {"matgrad-numpy": "ended with exit status -9"}
    assert "matgrad-numpy ended with exit status -9" in said


def test_an_error_has_its_reason_and_the_last_lines(problem):
    process = Process("matgrad-numpy", problem, 1, "float32")
    try:
        with pytest.raises(ToolError, match=r"failed: ValueError: .*no such file; it printed last: .*initial\.npz"):
            process.ask(do="setup", setting={"sizes": [6, 4, 3]}, folder=str(problem / "nowhere"), keep=True)
    finally:
        process.close()


def test_what_a_framework_prints_is_no_reply(problem):
    request = {"do": "setup", "setting": {"sizes": [6, 4, 3], "batch_size": 5}, "folder": str(problem), "keep": True}
    lines = [json.dumps(request), json.dumps({"do": "epoch", "keep": True})]
    result = subprocess.run(
        [sys.executable, "-c", NOISY], input="\n".join(lines), capture_output=True, text=True, timeout=PATIENCE
    )

    replies = [json.loads(line) for line in result.stdout.splitlines()]
    expected = [{"import", "load", "prepare", "pools", "memory"}, {"seconds", "waiting"}]
    assert [set(reply) for reply in replies] == expected
    assert "chatter" in result.stderr
    assert "more chatter" in result.stderr
