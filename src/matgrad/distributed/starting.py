"""How a process finds the others that were started with it: by the variables of torchrun or SLURM."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from matgrad.distributed.group import Alone, Group, join
from matgrad.foundation.installing import how_to_install

TIMEOUT = 300.0  # seconds after which a rank that does not answer is lost

# the framework that joins the ranks of a model of each backend: `torch_group` has `adopted(timeout)`, which takes the
# group that there is, and `connected(place, timeout)`; so has `jax_group`
KINDS = {**dict.fromkeys(("numpy", "native", "torch"), "torch"), "jax": "jax"}


@dataclass(frozen=True)
class Place:
    """Where a process stands among the `size` that were started together, and where they meet."""

    rank: int
    size: int
    local_rank: int  # on its machine
    host: str
    port: int
    attempt: int = 0  # how often they were started before
    is_served: bool = False  # whether what started them has the store where they meet, and not rank 0

    def __post_init__(self) -> None:
        if not self.rank < self.size:
            raise ValueError(f"found rank {self.rank} of {self.size} ranks, expected one of 0 to {self.size - 1}")


def start(*, timeout: float = TIMEOUT, backend: str = "torch") -> Group:
    """Join the processes that were started together, which from now on train as the ranks of one group.

    ``with mg.distributed.start() as group: …`` ends it after the block, and tells the others if the block fails. The
    ranks are those of a process group of torch.distributed, if there is one, such as Ray Train's; else those that the
    variables of torchrun or SLURM tell of. A rank that does not answer for `timeout` seconds is lost. JAX has groups of
    its own, also of one process with several devices: `backend` is that of the model. A process that nothing has
    started together with others is a group of one, and trains as ever.
    """
    framework = framework_of(backend)
    if not timeout > 0:
        raise ValueError(f"timeout: expected a number of seconds above 0, found {timeout}")
    kind = import_module(f"matgrad.distributed.{framework}_group")
    group = kind.adopted(timeout)
    if group is None:
        if (place := place_of(os.environ)) is None:
            return Alone()
        group = kind.connected(place, timeout)
    return join(group)


def framework_of(backend: str) -> str:
    """The framework that joins the ranks of a model of a backend, after a check that it is installed."""
    if backend not in KINDS:
        raise ValueError(f"{backend} cannot train on several ranks; expected one of {', '.join(KINDS)}")
    framework = KINDS[backend]
    if find_spec(framework) is None:
        raise ModuleNotFoundError(
            f"several ranks need {framework}, which is not installed: {how_to_install(framework)}", name=framework
        )
    return framework


def place_of(variables: Mapping[str, str]) -> Place | None:
    """The place that environment variables tell; None if they tell nothing."""
    if "RANK" in variables or "WORLD_SIZE" in variables:
        return _place_of_torchrun(variables)
    if "SLURM_STEP_NODELIST" in variables and "SLURM_PROCID" in variables:  # which srun sets
        return _place_of_slurm(variables)
    return None


def _place_of_torchrun(variables: Mapping[str, str]) -> Place:
    host = variables.get("MASTER_ADDR", "")
    if not host:
        raise ValueError("MASTER_ADDR: with RANK or WORLD_SIZE, expected the name of rank 0's machine, found nothing")
    return Place(
        rank=_number(variables, "RANK"),
        size=_number(variables, "WORLD_SIZE", least=1),
        local_rank=_number(variables, "LOCAL_RANK"),
        host=host,
        port=_number(variables, "MASTER_PORT", least=1, most=65535),
        attempt=_number({"TORCHELASTIC_RESTART_COUNT": "0", **variables}, "TORCHELASTIC_RESTART_COUNT"),
        is_served=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


def _place_of_slurm(variables: Mapping[str, str]) -> Place:
    job, step = (_number({"SLURM_STEP_ID": "0", **variables}, name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return Place(
        rank=_number(variables, "SLURM_PROCID"),
        size=_number(variables, "SLURM_NTASKS", least=1),
        local_rank=_number(variables, "SLURM_LOCALID"),
        host=first_host(variables["SLURM_STEP_NODELIST"]),
        port=10_000 + (job + step) % 20_000,  # below those that systems give to anyone
    )


def run_name(variables: Mapping[str, str]) -> str | None:
    """What tells a run that may be started again from all others; None if nothing would start it again.

    torchrun tells it with --rdzv-id or --standalone; else it is torchrun's process that does.
    """
    name = variables.get("TORCHELASTIC_RUN_ID")
    if name != "none":
        return name
    parent = os.getppid()
    try:
        start = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # not on Linux
        start = ""
    return f"{parent} {start}".strip()


def first_host(nodes: str) -> str:
    """The first name in a list of SLURM's: node01 of ``node[01-04,7],other``."""
    match = re.match(r"([\w.-]+)(?:\[(\w+)[\w,-]*\]([\w.-]*))?(?:,|$)", nodes, re.ASCII)
    if match is None:
        raise ValueError(f"SLURM_STEP_NODELIST: expected names such as node[01-04,7], found {nodes!r}")
    return "".join(part or "" for part in match.groups())


def _number(variables: Mapping[str, str], name: str, least: int = 0, most: int | None = None) -> int:
    """The whole number in a variable."""
    found = variables.get(name, "")
    if re.fullmatch("[0-9]{1,18}", found) and least <= int(found) <= (int(found) if most is None else most):
        return int(found)
    limits = f"of {least} or more" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name}: expected a whole number {limits}, found {repr(found) if found else 'nothing'}")
