"""`matgrad train` in several processes: the result of one, also after a rank was killed, and clear ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from ranks_support import RUN, ended, largest_difference, matgrad, started, trouble

from cli_support import run, succeed

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The model that one process trains."""
    path = tmp_path_factory.mktemp("alone") / "model.npz"
    succeed(*RUN, "--save-weights", path)
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The model that two processes train, with checkpoints; files that rank 1 does not touch are written once."""
    folder = tmp_path_factory.mktemp("undisturbed")
    own = ("--checkpoint", folder / "ck", "--every", "10s", "--output", folder / "run", "--log", folder / "log.csv")
    status, output, errors = matgrad(*RUN, "--processes", 2, *own)
    assert (status, errors) == (0, "")
    assert output.startswith("test accuracy 0.")
    assert output.count("\n") == 1
    assert len((folder / "log.csv").read_text().splitlines()) == 3
    return folder / "run" / "model.npz"


def test_two_processes_train_what_one_does(alone, undisturbed):
    assert largest_difference(alone, undisturbed) < 1e-12


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_rank_starts_again_from_the_last_checkpoint(rank, undisturbed, tmp_path):
    plugin = trouble(tmp_path, rank, signal.SIGKILL)
    own = ("--plugin", plugin, "--checkpoint", tmp_path / "ck", "--every", "10s", "--output", tmp_path / "run")
    status, _, errors = matgrad(*RUN, "--processes", 2, "--max-restarts", 1, *own)
    assert status == 0, errors
    assert f"rank {rank} was ended by SIGKILL\nthe run starts again (1 of 1)\n" in errors
    assert largest_difference(undisturbed, tmp_path / "run" / "model.npz") == 0


@pytest.mark.slow
@pytest.mark.parametrize("i", range(20))
@pytest.mark.parametrize("start", [("-m", "matgrad"), (*TORCHRUN, "--max-restarts", "1", "-m", "matgrad")])
def test_every_killed_rank_starts_again(i, start, undisturbed, tmp_path):
    plugin = trouble(tmp_path, i % 2, signal.SIGKILL, step=3 + 2 * i)
    own = ("--plugin", plugin, "--checkpoint", tmp_path / "ck", "--every", "10s", "--output", tmp_path / "run")
    ours = () if len(start) > 2 else ("--processes", 2, "--max-restarts", 1)
    status, _, errors = ended(started(*RUN, *ours, *own, program=start))
    assert status == 0, errors
    assert largest_difference(undisturbed, tmp_path / "run" / "model.npz") == 0


def test_ctrl_c_on_any_rank_stops_all_after_the_same_step(alone, tmp_path):
    plugin = trouble(tmp_path, 1, signal.SIGINT)
    own = ("--plugin", plugin, "--checkpoint", tmp_path / "ck", "--every", "1000s", "--output", tmp_path / "run")
    status, _, errors = matgrad(*RUN, "--processes", 2, *own)
    assert status == 130, errors
    assert (tmp_path / "run" / "model.npz").exists()
    # it is whole: one process goes on from there, and so does a run with another number of ranks
    succeed("train", "--resume", tmp_path / "ck", "--output", tmp_path / "rest", "--quiet")
    assert largest_difference(alone, tmp_path / "rest" / "model.npz") < 1e-12


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(alone, undisturbed, tmp_path):
    own = ("--checkpoint", tmp_path / "ck", "--every", "10s")
    trouble_at = ("--plugin", trouble(tmp_path, 1, signal.SIGKILL))
    assert matgrad(*RUN, "--processes", 2, *own, *trouble_at)[0] == 128 + 9
    trouble(tmp_path, 1, signal.SIGKILL, step=10**9)  # which the run has kept, and which is over
    saved = ("--output", tmp_path / "run")
    status, _, errors = matgrad("train", "--resume", tmp_path / "ck", "--processes", 3, "--quiet", *saved)
    assert status == 0, errors
    assert largest_difference(alone, tmp_path / "run" / "model.npz") < 1e-12


def test_torchrun_starts_ranks(undisturbed, tmp_path):
    own = ("--save-weights", tmp_path / "model.npz")
    status, output, errors = ended(started(*RUN, *own, program=(*TORCHRUN, "-m", "matgrad")))
    assert status == 0, errors
    assert output.count("test accuracy") == 1
    assert largest_difference(undisturbed, tmp_path / "model.npz") == 0


def test_a_rank_that_fails_in_the_beginning_ends_all_with_its_reason(tmp_path):
    plugin = trouble(tmp_path, 1, None)
    status, output, errors = matgrad(*RUN, "--plugin", plugin, "--processes", 2)
    assert (status, output) == (2, "")
    assert errors.strip().startswith("Error: rank 1 ended: ")
    assert "there is no such file on this machine" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_rank_that_does_not_answer_is_lost(tmp_path):
    plugin = trouble(tmp_path, 1, signal.SIGSTOP)
    status, _, errors = matgrad(*RUN, "--plugin", plugin, "--processes", 2, "--timeout", 20)
    assert status
    assert "Error: rank 1 is lost (no answer within 20 s)" in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--processes", 2, "--backend", "tensorflow"), "tensorflow cannot train on several ranks; expected one of"),
        (("--processes", 2, "--eager"), "--eager runs the equations one by one, which 2 ranks cannot do together"),
        (("--processes", 2, "--debug"), "--debug runs the equations one by one, which 2 ranks cannot do together"),
        (("--max-restarts", 2), "--max-restarts needs --processes N, with N above 1"),
        (("--processes", 0), "0 is not in the range"),
        (("--processes", 2, "--output", "no/such/folder"), "no/such does not exist"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_before_they_start(options, message):
    result = run("train", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_one_process_is_just_this_one():
    assert succeed("train", "--epochs", 1, "--processes", 1, "--quiet") == succeed("train", "--epochs", 1, "--quiet")
