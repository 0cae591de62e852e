"""The launcher, with small scripts as ranks: variables, failures, restarts and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matgrad.distributed import launching
from matgrad.distributed.launching import LOST, launch
from support import PATIENCE

HEAD = "import os, sys, time\nrank, attempt = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"


def launched(code: str, size: int = 2, restarts: int = 0) -> tuple[int, list[str]]:
    """The exit status of ranks that run this code, and what was said about them."""
    said: list[str] = []
    return launch([sys.executable, "-c", HEAD + code], size, restarts=restarts, say=said.append), said


@pytest.fixture(autouse=True)
def _less_patience(monkeypatch):
    monkeypatch.setattr(launching, "GRACE", 0.5)


def test_ranks_have_the_variables_of_torchrun(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    status, said = launched(f"import json; json.dump(dict(os.environ), open(f'{tmp_path}/{{rank}}', 'w'))", size=3)
    assert (status, said) == (0, [])
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    assert [x["RANK"] for x in found] == [x["LOCAL_RANK"] for x in found] == ["0", "1", "2"]
    assert {x["WORLD_SIZE"] for x in found} == {"3"}
    assert {x["MASTER_ADDR"] for x in found} == {"127.0.0.1"}
    assert len({(x["MASTER_PORT"], x["TORCHELASTIC_RUN_ID"]) for x in found}) == 1
    assert all(int(x["OMP_NUM_THREADS"]) >= 1 for x in found)


def test_the_first_failure_ends_all_and_its_output_is_shown():
    code = """
if rank == 1:
    print("something is wrong", file=sys.stderr)
    sys.exit(7)
time.sleep(600)
"""
    assert launched(code, size=3) == (7, ["rank 1: something is wrong"])


def test_ranks_that_only_lost_another_are_not_to_blame():
    code = f"os.kill(os.getpid(), 9) if rank == 2 else sys.exit({LOST})"
    status, said = launched(code, size=3)
    assert status == 128 + 9
    assert said == ["rank 2 was ended by SIGKILL"]


def test_a_rank_that_ignores_sigterm_is_killed():
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 1:
    sys.exit(3)
time.sleep(600)
"""
    assert launched(code)[0] == 3


def test_a_failed_run_starts_again_on_another_port(tmp_path):
    code = f"""
open('{tmp_path}/ports', 'a').write(os.environ['MASTER_PORT'] + ' ')
sys.exit(5 if rank == 1 and attempt < 2 else 0)
"""
    status, said = launched(code, restarts=3)
    assert status == 0
    assert said == ["the run starts again (1 of 3)", "the run starts again (2 of 3)"]
    assert len(set((tmp_path / "ports").read_text().split())) == 3


@pytest.mark.parametrize("status", [2, 130])
def test_what_would_happen_again_is_not_started_again(status: int):
    assert launched(f"sys.exit({status})", restarts=3) == (status, [])


def test_restarts_come_to_an_end():
    assert launched("sys.exit(9)", restarts=1) == (9, ["the run starts again (1 of 1)"])


RANKS = (
    HEAD
    + """
import signal
def said(number, frame):
    open(f"{sys.argv[1]}/{rank} {signal.Signals(number).name}", "a").write("x")
    sys.exit(130)
signal.signal(signal.SIGINT, said)
signal.signal(signal.SIGTERM, said)
open(f"{sys.argv[1]}/{rank}", "w").write(str(os.getpid()))
time.sleep(600)
"""
)
PARENT = """
import sys
from matgrad.distributed import launching
launching.GRACE = 0.5
sys.exit(launching.launch([sys.executable, "-c", sys.argv[1], sys.argv[2]], 2, restarts=5, say=print))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_signals_reach_every_rank_once(name: str, tmp_path: Path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, RANKS, str(tmp_path)])
    _wait_for(lambda: all((tmp_path / rank).exists() and (tmp_path / rank).read_text() for rank in "01"))
    parent.send_signal(getattr(signal, name))
    status = parent.wait(PATIENCE)
    expected = "SIGTERM" if name == "SIGKILL" else name  # a system that tells ranks of the end of their parent does so
    if name != "SIGKILL" or sys.platform == "linux":
        _wait_for(lambda: all((tmp_path / f"{rank} {expected}").exists() for rank in "01"))
        assert all((tmp_path / f"{rank} {expected}").read_text() == "x" for rank in "01")
    assert status == (-9 if name == "SIGKILL" else 130)
    for rank in "01":
        _wait_for(lambda rank=rank: not _is_alive(int((tmp_path / rank).read_text())))


def test_a_second_ctrl_c_ends_ranks_that_do_not_obey(tmp_path: Path):
    ranks = RANKS.replace("sys.exit(130)", "")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, ranks, str(tmp_path)])
    _wait_for(lambda: all((tmp_path / rank).exists() for rank in "01"))
    for count in (1, 2):
        parent.send_signal(signal.SIGINT)
        _wait_for(
            lambda count=count: (tmp_path / "0 SIGINT").exists() and len((tmp_path / "0 SIGINT").read_text()) == count
        )
    assert parent.wait(PATIENCE) == 130


def _wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
