"""How a process finds the others that were started with it: by the variables of torchrun or SLURM."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from matgrad.distributed.group import Alone, Group, join
from matgrad.foundation.imports import how_to_install

TIMEOUT = 300.0  # seconds after which a rank that does not answer is lost

# the framework that connects the ranks of a model of each backend: `torch_group` has `adopted(timeout)`, which takes an
# existing group, and `connected(place, timeout)`; so has `jax_group`
KINDS = {**dict.fromkeys(("numpy", "native", "torch"), "torch"), "jax": "jax"}


@dataclass(frozen=True)
class Place:
    """The rank of a process among the `size` that were started together, and the address where they meet."""

    rank: int
    size: int
    local_rank: int  # on its machine
    host: str
    port: int
    attempt: int = 0  # the number of restarts
    is_served: bool = False  # whether torchrun has the store where they meet, and not rank 0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"found rank {self.rank} of {self.size} ranks, expected one of 0 to {self.size - 1}")


def start(*, timeout: float = TIMEOUT, backend: str = "torch") -> Group:
    """Join the processes that were started together, which from now on train as the ranks of one group.

    ``with mg.distributed.start() as group: …`` ends it after the block. The ranks are those of an existing process
    group of torch.distributed, such as Ray Train's, or of jax.distributed; else those of the variables of torchrun,
    SLURM or, for JAX, its own. A rank that does not answer for `timeout` seconds is lost. JAX has groups of its own,
    also of one process with several devices: `backend` is that of the model. A process that was started alone is a
    group of one.
    """
    if backend not in KINDS:
        raise ValueError(f"{backend} cannot train on several ranks; expected one of {', '.join(KINDS)}")
    if not timeout > 0:
        raise ValueError(f"timeout: expected a positive number of seconds, found {timeout}")
    framework = KINDS[backend]
    if find_spec(framework) is None:
        missing = f"several ranks need {framework}, which is not installed: {how_to_install(framework)}"
        raise ModuleNotFoundError(missing, name=framework)
    kind = import_module(f"matgrad.distributed.{framework}_group")
    group = kind.adopted(timeout)
    if group is None:
        if (place := place_of(os.environ)) is None:
            return Alone()
        group = kind.connected(place, timeout)
    return join(group)


def place_of(variables: Mapping[str, str]) -> Place | None:
    """The place in environment variables; None if this process was started alone."""
    if "RANK" in variables or "WORLD_SIZE" in variables:  # of torchrun
        return Place(
            rank=integer(variables, "RANK"),
            size=integer(variables, "WORLD_SIZE"),
            local_rank=integer(variables, "LOCAL_RANK", 0),
            host=variables.get("MASTER_ADDR", "127.0.0.1"),
            port=integer(variables, "MASTER_PORT", 29500),
            attempt=integer(variables, "TORCHELASTIC_RESTART_COUNT", 0),
            is_served=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        )
    if "SLURM_STEP_NODELIST" in variables and "SLURM_PROCID" in variables:  # of srun
        return Place(
            rank=integer(variables, "SLURM_PROCID"),
            size=integer(variables, "SLURM_NTASKS"),
            local_rank=integer(variables, "SLURM_LOCALID", 0),
            host=first_host(variables["SLURM_STEP_NODELIST"]),
            port=10_000 + (integer(variables, "SLURM_JOB_ID") + integer(variables, "SLURM_STEP_ID", 0)) % 20_000,
        )
    return None


def first_host(nodes: str) -> str:
    """The first name in a list of SLURM: node01 of ``node[01-04,7],other``."""
    match = re.match(r"([\w.-]+)(?:\[(\w+)[\w,-]*\]([\w.-]*))?(?:,|$)", nodes, re.ASCII)
    if match is None:
        raise ValueError(f"SLURM_STEP_NODELIST: expected names such as node[01-04,7], found {nodes!r}")
    return "".join(part or "" for part in match.groups())


def integer(variables: Mapping[str, str], name: str, default: int | None = None) -> int:
    """The integer in a variable."""
    found = variables.get(name, "" if default is None else str(default))
    if not re.fullmatch("[0-9]{1,9}", found):
        raise ValueError(f"{name}: expected an integer of 0 or more, found {found!r}")
    return int(found)
