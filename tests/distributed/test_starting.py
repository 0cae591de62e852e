"""How a process finds its rank: the variables of torchrun and SLURM, and what is wrong with them."""

from __future__ import annotations

import threading

import pytest
from threads import ThreadGroup, using

import matgrad as mg
from matgrad.distributed import current, is_first
from matgrad.distributed import group as group_module
from matgrad.distributed.group import Alone, Place, _Joined, first_host, join, leave, place_of

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
SLURM = {
    **{"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "12345", "SLURM_STEP_ID": "2"},
    "SLURM_STEP_NODELIST": "gpu[003-004,7]",
}


def test_the_variables_of_torchrun():
    assert place_of(TORCHRUN) == Place(1, 4, 0, "node7", 29500)
    again = TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert place_of(again) == Place(1, 4, 0, "node7", 29500, attempt=2, is_served=True)


def test_the_variables_of_slurm():
    assert place_of(SLURM) == Place(3, 8, 1, "gpu003", 10_000 + 12347)
    assert place_of(SLURM | TORCHRUN) == place_of(TORCHRUN)  # torchrun within a job


@pytest.mark.parametrize(
    ("variables", "is_local"),
    [
        (TORCHRUN, False),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4"}, True),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}, False),
        (TORCHRUN | {"MASTER_ADDR": "127.0.0.1"}, True),
        (TORCHRUN | {"MASTER_ADDR": "localhost"}, True),
        (SLURM, False),
        (SLURM | {"SLURM_STEP_NODELIST": "gpu003"}, True),
        (SLURM | {"SLURM_STEP_NODELIST": "gpu003,gpu004"}, False),
    ],
)
def test_whether_all_ranks_are_on_one_machine(variables: dict[str, str], is_local: bool):
    assert place_of(variables).is_local == is_local


def test_on_several_machines_the_first_rank_says_that_the_network_must_be_trusted(monkeypatch):
    from matgrad.distributed import torch_group

    monkeypatch.setattr(torch_group, "connected", lambda place, timeout: Alone())
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    leave(mg.distributed.start())
    monkeypatch.setenv("RANK", "0")
    with pytest.warns(UserWarning, match="the network must be trusted"):
        leave(mg.distributed.start())


def test_a_batch_script_of_slurm_that_starts_no_steps_is_alone():
    assert place_of({name: x for name, x in SLURM.items() if name != "SLURM_STEP_NODELIST"}) is None
    assert place_of({}) is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node[01-04,7]", "node01"),
        ("node[7,01-04],other[1-2]", "node7"),
        ("a-b.example.org,c", "a-b.example.org"),
        ("rack[2-3]-gpu", "rack2-gpu"),
    ],
)
def test_the_first_host_of_a_list(nodes: str, first: str):
    assert first_host(nodes) == first


def test_a_list_of_hosts_that_is_none():
    with pytest.raises(ValueError, match=r"^SLURM_STEP_NODELIST: expected names such as node\[01-04,7\], found"):
        first_host("node[1-2")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RANK", "one", "RANK: expected an integer of 0 or more, found 'one'"),
        ("RANK", "4", "found rank 4 of 4 ranks, expected one of 0 to 3"),
        ("WORLD_SIZE", "", "WORLD_SIZE: expected an integer of 0 or more, found ''"),
    ],
)
def test_malformed_variables_are_named(name: str, value: str, message: str):
    with pytest.raises(ValueError, match=message):
        place_of(TORCHRUN | {name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "tensorflow"}, "tensorflow cannot train on several ranks; expected one of numpy, native, torch"),
        ({"timeout": 0}, "timeout: expected a positive number of seconds, found 0"),
    ],
)
def test_what_cannot_start(options: dict, message: str, monkeypatch):
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=message):
        mg.distributed.start(**options)
    assert mg.distributed.current() is None
    assert mg.distributed.is_first()


def test_a_process_that_was_started_alone_is_a_group_of_one(monkeypatch):
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)
    X, t = mg.load_digits()
    M = mg.create_model("Linear", [64, 10])
    with mg.distributed.start() as group:
        assert isinstance(group, Alone)
        assert (group.rank, group.size, group.is_first) == (0, 1, True)
        assert group.exchange({"a": 1}) == [{"a": 1}]
        assert mg.distributed.current() is None  # it trains as ever
        M.fit(X[:20] / 16, t[:20], epochs=1)


def test_a_missing_framework_names_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(group_module, "find_spec", lambda name: None)
    expected = "^several ranks need torch, which is not installed: .*pip install 'matgrad\\[torch\\]'$"
    with pytest.raises(ModuleNotFoundError, match=expected):
        mg.distributed.start()


def test_a_group_is_that_of_all_threads_of_its_process():
    group = ThreadGroup(1, 2, threading.Barrier(1), [None])
    join(group)
    try:
        found: list = []
        thread = threading.Thread(target=lambda: found.extend([current(), is_first()]))
        thread.start()
        thread.join()
        with using(None):
            assert current() is None
    finally:
        leave(group)
        still_first = is_first()
        _Joined.last = None
    assert found == [group, False]
    assert current() is None
    assert not still_first  # what a script does after its group has ended is still done by one rank
