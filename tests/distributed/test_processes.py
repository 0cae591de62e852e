"""`matgrad train` in several processes of torchrun: the result of one, also after a rank was killed, and clear ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from ranks_support import RUN, largest_difference, matgrad, trouble

from cli_support import run, succeed


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The model that one process trains."""
    path = tmp_path_factory.mktemp("alone") / "model.npz"
    succeed(*RUN, "--save-weights", path)
    return path


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """The model that two ranks train, undisturbed."""
    path = tmp_path_factory.mktemp("together") / "model.npz"
    status, _, errors = matgrad(*RUN, "--save-weights", path)
    assert status == 0, errors
    return path


def test_a_killed_rank_is_restarted_from_the_last_checkpoint_and_trains_what_one_process_does(alone, tmp_path):
    plugin = trouble(tmp_path, 1, signal.SIGKILL)
    own = ("--plugin", plugin, "--checkpoint", f"{tmp_path}/ck, every=10s", "--output", tmp_path / "run")
    status, output, errors = matgrad(*RUN, *own, "--log", tmp_path / "log.csv", restarts=1)
    assert status == 0, errors
    assert "rank 0: another rank has ended or does not answer (" in errors
    assert output.count("test accuracy") == 1
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    assert "resumed" in (tmp_path / "run" / "run.json").read_text()
    assert largest_difference(alone, tmp_path / "run" / "model.npz") < 1e-12


@pytest.mark.slow
def test_ranks_on_jax_train_what_one_process_does(alone, tmp_path):
    status, output, errors = matgrad(*RUN, "--backend", "jax", "--save-weights", tmp_path / "model.npz")
    assert status == 0, errors
    assert output.count("test accuracy") == 1
    assert largest_difference(alone, tmp_path / "model.npz") < 1e-12


@pytest.mark.slow
def test_a_restart_does_not_resume_the_checkpoints_of_other_options(tmp_path):
    succeed(*RUN, "--checkpoint", tmp_path / "ck")
    status, _, errors = matgrad(*RUN, "--checkpoint", tmp_path / "ck", "--batch-size", 20, restarts=1)
    assert status
    assert errors.count("rank 0: --checkpoint") == 2
    assert "already" in errors


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "step"), [(0, 3), (1, 11), (0, 20), (1, 35)])
def test_restarted_ranks_end_with_the_same_weights_bit_by_bit(rank, step, together, tmp_path):
    plugin = trouble(tmp_path, rank, signal.SIGKILL, step)
    own = ("--plugin", plugin, "--checkpoint", f"{tmp_path}/ck, every=10s", "--output", tmp_path / "run")
    status, _, errors = matgrad(*RUN, *own, restarts=1)
    assert status == 0, errors
    assert largest_difference(together, tmp_path / "run" / "model.npz") == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run in the checkpoint had the number of")
def test_ctrl_c_on_any_rank_stops_all_after_the_same_step(alone, tmp_path):
    plugin = trouble(tmp_path, 1, signal.SIGINT)
    own = ("--plugin", plugin, "--checkpoint", f"{tmp_path}/ck, every=1000s", "--output", tmp_path / "run")
    status, _, errors = matgrad(*RUN, *own)
    assert status, errors
    assert (tmp_path / "run" / "model.npz").exists()
    # the checkpoint is complete: one process resumes it, and so does a run with another number of ranks
    succeed("train", "--resume", tmp_path / "ck", "--plugin", plugin, "--output", tmp_path / "rest", "--quiet")
    assert largest_difference(alone, tmp_path / "rest" / "model.npz") < 1e-12


@pytest.mark.slow
def test_a_run_is_resumed_with_another_number_of_ranks(alone, tmp_path):
    own = ("--checkpoint", f"{tmp_path}/ck, every=10s", "--plugin", trouble(tmp_path, 1, signal.SIGKILL))
    assert matgrad(*RUN, *own)[0]
    plugin = trouble(tmp_path, 1, signal.SIGKILL, step=10**9)  # another version
    resumed = ("train", "--resume", tmp_path / "ck", "--quiet", "--output", tmp_path / "run")
    resumed += ("--plugin", f"{plugin}, changed=allow")
    status, _, errors = matgrad(*resumed, size=3)
    assert status == 0, errors
    assert largest_difference(alone, tmp_path / "run" / "model.npz") < 1e-12


@pytest.mark.slow
def test_a_rank_that_fails_ends_all_with_its_reason(tmp_path):
    plugin = trouble(tmp_path, 1, None)
    status, output, errors = matgrad(*RUN, "--plugin", plugin)
    assert (status, output) == (1, "")
    assert "there is no such file on this machine" in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "tensorflow"), "tensorflow cannot train on several ranks; expected one of"),
        (("--eager",), "training on 2 ranks needs a compiled step: compiled is False"),
    ],
)
def test_what_several_processes_cannot_do(options, message):
    assert message in matgrad(*RUN, *options)[2]


@pytest.mark.parametrize("option", ["--processes", "--max-restarts"])
def test_old_options_name_torchrun(option):
    result = run("train", option, 2)
    assert result.exit_code == 2
    assert f"{option} is gone: use torchrun" in " ".join(result.output.split())
