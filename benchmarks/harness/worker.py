"""The process of a tool, which answers requests, and how much memory it takes."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import matgrad as mg
from harness.problems import Parameters, Setting, generated, initial_parameters
from harness.tools import Tool
from matgrad.foundation.machine import process_memory, thread_pools

RESET = Path("/proc/self/clear_refs")

_worker: Worker


def start(tool: Tool, threads: int) -> None:
    """Make the worker of this process; what a framework prints is no result."""
    global _worker
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    _worker = Worker(tool, threads)


def answer(request: str, *arguments: Any) -> Any:
    """The reply of the worker to a request, which is the name of a method."""
    return getattr(_worker, request)(*arguments)


class Worker:
    """A tool in its process."""

    def __init__(self, tool: Tool, threads: int) -> None:
        self.description, self.threads = tool, threads

    def setup(self, setting: Setting, folder: Path, initial: Parameters, rehearse: bool) -> dict[str, Any]:
        """Make the tool, for the data in a folder; returns the seconds of each part, and the memory.

        After a rehearsal, the memory does not include what the libraries take at their first use.
        """
        if self.description.processes > 1:
            mg.distributed.start()
        self.initial, begin = initial, time.perf_counter()
        self.tool = tool = self.description.create(setting)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self.threads)
        if rehearse:
            self._rehearse(setting)
        imported, base = time.perf_counter(), memory()
        X, t = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "t"))
        self.batches = len(X) // setting.batch_size
        tool.load(X, np.array(t))
        loaded = memory()
        tool.start(initial)
        memory()  # what was needed only to make the model does not count
        ready = time.perf_counter()
        peak = Peak()
        tool.prepare()
        end = time.perf_counter()
        seconds = {"import": imported - begin, "load": ready - imported, "prepare": end - ready}
        is_known = RESET.exists() and "RssAnon" in process_memory() and not tool.is_own_process
        bytes_ = {"data": loaded - base, "training": max(peak() - loaded, 0)} if is_known else None
        return seconds | {"pools": thread_pools() if find_spec("threadpoolctl") else {}, "memory": bytes_}

    def _rehearse(self, setting: Setting) -> None:
        """Train a tiny sparse model with a tool like this one."""
        tiny = replace(setting, sizes=(8, 6, 4), batch_size=4)
        data, tool = generated(8, 4, 8), self.description.create(tiny)
        tool.load(data.Xtrain.astype(tiny.dtype), data.Ttrain)
        tool.start(initial_parameters(tiny, 0, density=0.5))
        tool.prepare()

    def epoch(self, batches: int | None = None) -> tuple[float, float]:
        """The net seconds of an epoch from the initial parameters, or of its first batches, and those of waiting."""
        self.tool.start(self.initial)
        gc.collect()
        waited, begin = self.tool.waited(), time.perf_counter()
        own = self.tool.train(self.batches if batches is None else batches)
        seconds = time.perf_counter() - begin
        return seconds if own is None else own, self.tool.waited() - waited

    def parameters(self) -> Parameters:
        """The present parameters."""
        return self.tool.parameters()


def memory() -> int:
    """The bytes of the process itself, without files such as libraries; freed memory is returned to the system."""
    gc.collect()
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc
        library.malloc_trim(0)
    return process_memory().get("RssAnon", 0)


class Peak:
    """The most bytes since it was made, provided that mapped files have not shrunk; as Linux tells them."""

    def __init__(self) -> None:
        if RESET.exists():
            RESET.write_text("5")  # the largest size so far is now the present one

    def __call__(self) -> int:
        found = process_memory()
        return found.get("VmHWM", 0) - found.get("RssFile", 0) - found.get("RssShmem", 0)
