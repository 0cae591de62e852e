"""A group of ranks: what they do together, and how a process finds the others that were started with it."""

from __future__ import annotations

import os
import re
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from matgrad.backends.base import Array
from matgrad.foundation.imports import how_to_install


class Request(IntEnum):
    """What a rank asks all ranks to do: to continue, to stop, or to stop because its user has interrupted it."""

    NONE = 0
    STOP = 1
    INTERRUPT = 2


REQUESTS = (Request.INTERRUPT, Request.STOP)  # which are counted over all ranks


class Disagreement(ValueError):
    """Ranks have not been given the same model, data or options."""


HINTS = {
    "the initial model": "mg.manual_seed(n), with the same n on all ranks, before the model is made, makes it the same",
    "the data": "every rank is given all of the data, and takes its rows of each batch",
}


def _shown(fact: str | None) -> str:
    """A fact, or none; a hash is abbreviated."""
    return re.sub("^(sha256 .{8}).*(.{8})$", r"\1…\2", fact or "none")


class Group(ABC):
    """`size` ranks that compute together, of which this is number `rank`: from 0 to size - 1.

    All ranks call the same methods in the same order.
    """

    rank: int
    size: int
    asked = Request.NONE  # what this rank asks all to do
    heard = Request.NONE  # the most that any rank was heard to ask for; all ranks hear it after the same step

    def listen(self, news: bool = False) -> bool:
        """Hear what any rank asks for, and whether any has news; all of them listen at the same time."""
        asked, others = zip(*self.exchange([self.asked, news], "the end of a batch or an epoch"), strict=True)
        self.heard = Request(max(self.heard, *asked))
        return any(others)

    def requests(self) -> list[bool]:
        """What this rank asks for, one-hot over `REQUESTS`; the messages of a step carry the sum over all ranks."""
        return [self.asked == request for request in REQUESTS]

    def hear(self, counts: Sequence[float]) -> None:
        """Hear how many ranks ask for each of `REQUESTS`."""
        self.heard = max(self.heard, *(request for n, request in zip(counts, REQUESTS, strict=True) if n), Request.NONE)

    def exchange(self, item: Any, where: str = "an exchange") -> list[Any]:
        """The item of every rank, in the order of the ranks; an item is a value that JSON can hold.

        `where` names the point of a run. Raise a Disagreement if the ranks are at different ones.
        """
        places, items = zip(*self._exchange([where, item]), strict=True)
        for rank, place in enumerate(places):
            if place != places[0]:
                raise Disagreement(f"rank {rank} is at {place}, rank 0 is at {places[0]}")
        return list(items)

    @abstractmethod
    def _exchange(self, item: Any) -> list[Any]:
        """The item of every rank."""

    def agree(self, facts: Mapping[str, str], where: str = "the start of a run") -> None:
        """Raise a Disagreement, on all ranks, if facts differ from those of rank 0, as ranks would then wait.

        A fact has a name such as 'the batch size'; a hash is abbreviated.
        """
        first, *others = self.exchange(dict(facts), where)
        differences = []
        for rank, own in enumerate(others, 1):
            pairs = {name: (own.get(name), first.get(name)) for name in first | own}
            found = [f"{name} ({_shown(x)}, expected {_shown(y)})" for name, (x, y) in pairs.items() if x != y]
            differences += [f"rank {rank} differs from rank 0 in {' and '.join(found)}"] if found else []
        if differences:
            hints = [hint for name, hint in HINTS.items() if any(name in text for text in differences)]
            raise Disagreement("; ".join([*differences, *hints]))

    def fail(self) -> None:
        """End the group on this rank, as when it fails."""
        leave(self)

    def close(self) -> None:
        """End the group, together with all ranks."""
        self.exchange("closed", "the end of the group")
        self.fail()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.fail()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size})"

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which alone prints and writes."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """This rank's share of n things."""
        return part(n, self.rank, self.size)


class Alone(Group):
    """The only process, as a group of one."""

    rank, size = 0, 1

    def listen(self, news: bool = False) -> bool:
        self.heard = max(self.heard, self.asked)
        return news

    def _exchange(self, item: Any) -> list[Any]:
        return [item]


class Collectives(Group):
    """A group whose ranks also exchange matrices: contiguous NumPy arrays or PyTorch tensors.

    Some methods change them in place.
    """

    @abstractmethod
    def start_sum(self, X: Array) -> Any:
        """Begin to replace X by its sum over all ranks; returns the work to `wait` for."""

    @abstractmethod
    def wait(self, work: Any) -> None:
        """Wait until a sum has arrived."""

    @abstractmethod
    def maximum(self, X: Array) -> None:
        """Replace X by its largest elements over all ranks."""

    @abstractmethod
    def broadcast(self, X: Array) -> None:
        """Replace X by that of rank 0."""

    @abstractmethod
    def gather(self, X: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """The X of every rank, which have these shapes."""


def part(n: int, rank: int, size: int) -> slice:
    """The consecutive share of n things that one of `size` ranks has; the first ranks have one more.

    If n is a size with a unit, things are shared out in units: the rows of one example stay together.
    """
    unit = getattr(n, "unit", 1)
    share, rest = divmod(n // unit, size)
    start = rank * share + min(rank, rest)
    return slice(unit * start, unit * (start + share + (rank < rest)))


class _Joined(threading.local):
    """The group of this process; what is set on the class holds in all threads."""

    group: Group | None = None
    last: Group | None = None  # the same, also after it has ended


_joined = _Joined()


def current() -> Group | None:
    """The group that training belongs to now; None if this process trains alone."""
    return _joined.group


def join(group: Group) -> Group:
    """Train as a rank of this group from now on, in all threads."""
    _Joined.group = _Joined.last = group
    return group


def leave(group: Group) -> None:
    """Train alone from now on, if not as a rank of another group."""
    if _Joined.group is group:
        _Joined.group = None


def is_first() -> bool:
    """Whether this process prints and writes: it trains alone, or is rank 0, also after its group has ended."""
    group = _joined.group or _joined.last
    return group is None or group.is_first


def lost(error: Exception) -> ConnectionError:
    """The error of a connection between ranks, with the reason that the library gives, without its source line."""
    reason = str(error).partition("\n")[0]
    return ConnectionError(f"another rank has ended or does not answer ({re.sub(r'^[[].*?[]] ', '', reason)})")


# -- starting: by the variables of torchrun or SLURM ------------------------------------------------------------------

TIMEOUT = 300.0  # seconds after which a rank that does not answer is lost
LOOPBACK = "127.0.0.1"
OPEN = (
    "the ranks are on several machines: their messages are neither encrypted nor signed, and whoever reaches their "
    "ports can read and change them, so the network must be trusted"
)

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
    is_local: bool = False  # whether all of them are on this machine

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
        if not (place.is_local or place.rank):
            warnings.warn(OPEN, stacklevel=2)
        group = kind.connected(place, timeout)
    return join(group)


def place_of(variables: Mapping[str, str]) -> Place | None:
    """The place in environment variables; None if this process was started alone."""
    if "RANK" in variables or "WORLD_SIZE" in variables:  # of torchrun
        size, host = integer(variables, "WORLD_SIZE"), variables.get("MASTER_ADDR", LOOPBACK)
        return Place(
            rank=integer(variables, "RANK"),
            size=size,
            local_rank=integer(variables, "LOCAL_RANK", 0),
            host=host,
            port=integer(variables, "MASTER_PORT", 29500),
            attempt=integer(variables, "TORCHELASTIC_RESTART_COUNT", 0),
            is_served=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            is_local=is_loopback(host) or integer(variables, "LOCAL_WORLD_SIZE", 0) == size,
        )
    if "SLURM_STEP_NODELIST" in variables and "SLURM_PROCID" in variables:  # of srun
        nodes = variables["SLURM_STEP_NODELIST"]
        return Place(
            rank=integer(variables, "SLURM_PROCID"),
            size=integer(variables, "SLURM_NTASKS"),
            local_rank=integer(variables, "SLURM_LOCALID", 0),
            host=first_host(nodes),
            port=10_000 + (integer(variables, "SLURM_JOB_ID") + integer(variables, "SLURM_STEP_ID", 0)) % 20_000,
            is_local=first_host(nodes) == nodes,
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether an address is that of the loopback interface, which only this machine reaches."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


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
