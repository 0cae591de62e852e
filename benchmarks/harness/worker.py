"""The process of a tool, which answers requests, and how much memory it takes."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import traceback
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import matgrad as mg
from harness.problems import Parameters, Setting, generated, initial_parameters
from harness.tools import Tool
from matgrad.foundation.machine import process_memory, thread_pools

RESET = Path("/proc/self/clear_refs")


class ToolError(RuntimeError):
    """A tool failed: the message has the reason and, for the parent of its process, what it printed last."""


class Worker:
    """Answers requests, with one method per kind of request."""

    def __init__(self, tool: Tool, threads: int) -> None:
        self.description, self.threads = tool, threads

    def setup(self, setting: Setting, folder: Path, initial: Parameters, rehearse: bool) -> dict[str, Any]:
        """Make the tool, for the data in a folder; returns the seconds of each part, and the memory.

        After a rehearsal, the memory does not include what the libraries take at their first use.
        """
        self.initial = initial
        begin = time.perf_counter()
        self.tool = tool = self.description.create(setting)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self.threads)
        if rehearse:
            self._rehearse(setting)
        imported, memory = time.perf_counter(), Growth()
        X, t = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "t"))
        self.batches = len(X) // setting.batch_size
        tool.load(X, np.array(t))
        memory.after_load()
        tool.start(self.initial)
        memory.before_training()
        loaded = time.perf_counter()
        tool.prepare()
        end = time.perf_counter()
        memory.after_training()
        seconds = {"import": imported - begin, "load": loaded - imported, "prepare": end - loaded}
        bytes_ = None if tool.is_own_process else {"data": memory.data, "training": memory.training}
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


def serve(connection: Connection, log: Path, tool: Tool, threads: int) -> None:
    """Answer requests, each the name of a method and its arguments; what is printed goes to a file."""
    file = os.open(log, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(file, stream)
    if tool.processes > 1:
        mg.distributed.start()
    worker = Worker(tool, threads)
    while True:
        name, *arguments = connection.recv()
        try:
            reply = getattr(worker, name)(*arguments)
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            reply = ToolError(f"failed: {type(error).__name__}: {error}")
        connection.send(reply)


class Growth:
    """Bytes by which a process grows: for its data, and for model and training on top of that.

    Only the memory of the process itself counts, not files that are mapped into it, such as libraries that are loaded
    at their first use. The numbers are None if the system does not tell: Linux does.
    """

    data: int | None = None
    training: int | None = None

    def __init__(self) -> None:
        self.is_known = "RssAnon" in process_memory() and RESET.exists()
        self._base = self._now()

    def _now(self) -> int:
        """The bytes in memory now; freed memory, which the C library would keep, is returned to the system."""
        gc.collect()
        if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc
            library.malloc_trim(0)
        return process_memory().get("RssAnon", 0)

    def after_load(self) -> None:
        """The data is there; the model comes next."""
        self._loaded = self._now()
        self.data = self._loaded - self._base if self.is_known else None

    def before_training(self) -> None:
        """The model is there; memory that was needed only to make it does not count."""
        self._now()
        if self.is_known:
            RESET.write_text("5")  # the largest size so far is now the present one

    def after_training(self) -> None:
        """Take the largest size since `before_training`, provided that mapped files have not shrunk since."""
        if self.is_known:
            found = process_memory()
            self.training = max(found["VmHWM"] - found["RssFile"] - found["RssShmem"] - self._loaded, 0)
