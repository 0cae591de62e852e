"""Kernels side by side: those that need nothing from one another are launched on several streams, and become branches
of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

STREAMS = 4


class Launch(NamedTuple):
    """A call that launches a kernel, the addresses of the memory that it reads and writes, and whether it may move."""

    run: Callable[[], None]
    read: frozenset[int]
    written: frozenset[int]
    may_move: bool  # to another stream than the present one


def needed(launches: Sequence[Launch]) -> list[list[int]]:
    """The numbers of the launches that each one has to wait for, without those that these wait for themselves."""
    needs: list[list[int]] = []
    before: list[set[int]] = []  # all that come before
    for k, launch in enumerate(launches):
        conflicts = [
            i
            for i in range(k)
            if launches[i].written & (launch.read | launch.written) or launches[i].read & launch.written
        ]
        implied = set().union(*(before[i] for i in conflicts))
        needs.append([i for i in conflicts if i not in implied])
        before.append(implied | set(conflicts))
    return needs


def placed(launches: Sequence[Launch], needs: Sequence[Sequence[int]]) -> list[int]:
    """The stream of each launch: that of one it waits for if nothing came after that one, else one that is free."""
    last: dict[int, int] = {}  # the last launch on a stream
    streams: list[int] = []
    for k, launch in enumerate(launches):
        own = 0
        if launch.may_move:
            following = [streams[i] for i in reversed(needs[k]) if last[streams[i]] == i]
            unused = [s for s in range(STREAMS) if s not in last]
            oldest = min(range(STREAMS), key=lambda s: last.get(s, -1))
            own = [*following, *unused, oldest][0]
        streams.append(own)
        last[own] = k
    return streams


def run_side_by_side(launches: Sequence[Launch]) -> None:
    """Launch everything, on several streams that begin and end with the present one."""
    needs = needed(launches)
    streams = placed(launches, needs)
    main = torch.cuda.current_stream()
    used = [main, *(torch.cuda.Stream() for _ in range(max(streams, default=0)))]
    awaited = {i for k, before in enumerate(needs) for i in before if streams[i] != streams[k]}
    start = main.record_event()
    events: dict[int, torch.cuda.Event] = {}
    for stream in used[1:]:
        stream.wait_event(start)
    for k, launch in enumerate(launches):
        own = used[streams[k]]
        for i in needs[k]:
            if streams[i] != streams[k]:
                own.wait_event(events[i])
        with torch.cuda.stream(own):
            launch.run()
            if k in awaited:
                events[k] = own.record_event()
    for stream in used[1:]:
        main.wait_stream(stream)
