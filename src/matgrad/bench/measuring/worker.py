"""One tool in its own process: `python -m matgrad.bench.measuring.worker TOOL THREADS`.

Requests are lines of JSON on standard input; each is answered by a line of JSON on the original standard
output, and everything else that is printed goes to standard error. The process ends with its input.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.bench.measuring.files import read_parameters, write_parameters
from matgrad.bench.measuring.memory import Growth
from matgrad.bench.measuring.problems import generated, sparse_parameters
from matgrad.bench.tools.registry import ALL_TOOLS
from matgrad.bench.tools.training_tool import Setting, TrainingTool
from matgrad.distributed import is_first, start
from matgrad.foundation.machine import set_threads, thread_pools


class Worker:
    """Answers requests, with one method per kind of request."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self.tool: TrainingTool | None = None
        self.is_loaded = False

    def imports(self) -> dict[str, Any]:
        """Import the framework of the tool."""
        ALL_TOOLS[self.name].load_class()
        return {}

    def setup(self, setting: dict[str, Any], folder: str, keep: bool, rehearse: bool = False) -> dict[str, Any]:
        """Make the tool for a setting and for the data in a folder; returns the seconds of each part, and the memory.

        With `keep` the data stays loaded for the first epoch. After a rehearsal, the memory does not include
        what the libraries take at their first use.
        """
        self.tool = None  # frees the previous one
        gc.collect()
        self.folder = Path(folder)
        self.parameters = read_parameters(self.folder / "initial.npz")
        begin = time.perf_counter()
        tool = ALL_TOOLS[self.name].create(Setting(**setting))
        tool.folder = self.folder
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self.threads)
        imported = time.perf_counter()
        self.tool, self.is_loaded = tool, False
        if rehearse:
            self._rehearse(tool.setting)
            imported = time.perf_counter()
        memory = Growth()
        memory.before_load()
        self._load(tool)
        memory.after_load()
        tool.start(self.parameters)
        memory.before_training()
        loaded = time.perf_counter()
        tool.prepare()
        end = time.perf_counter()
        memory.after_training()
        self._release(tool, keep)
        seconds = {"import": imported - begin, "load": loaded - imported, "prepare": end - loaded}
        return seconds | {"pools": thread_pools(), "memory": None if tool.is_own_process else memory.as_dictionary()}

    def epoch(self, keep: bool, batches: int | None = None) -> dict[str, Any]:
        """The net seconds of an epoch from the initial parameters, or of its first batches.

        With `keep` the data stays loaded for the next.
        """
        tool = self.tool
        assert tool is not None
        self._load(tool)
        tool.start(self.parameters)
        gc.collect()
        waited, begin = tool.waited(), time.perf_counter()
        own = tool.train(self.batches if batches is None else batches)
        seconds = time.perf_counter() - begin
        self._release(tool, keep)
        return {"seconds": seconds if own is None else own, "waiting": tool.waited() - waited}

    def save(self, path: str) -> dict[str, Any]:
        """Write the present parameters."""
        assert self.tool is not None
        if is_first():
            write_parameters(Path(path), self.tool.parameters())
        return {}

    def _rehearse(self, setting: Setting) -> None:
        """Train a tiny sparse model with a tool like this one."""
        tiny = replace(setting, sizes=(8, 6, 4), batch_size=4)
        data = generated(8, 4, 8, 1)
        tool = ALL_TOOLS[self.name].create(tiny)
        tool.folder = self.folder
        tool.load(data.Xtrain.astype(tiny.dtype), data.Ttrain)
        tool.start(sparse_parameters(tiny, 0.5, seed=0))
        tool.prepare()
        tool.release()

    def _load(self, tool: TrainingTool) -> None:
        """Give the tool its data, unless it has it."""
        if not self.is_loaded:
            X, t = (np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in ("X", "t"))
            self.batches = len(X) // tool.setting.batch_size
            tool.load(X, np.array(t))
            self.is_loaded = True

    def _release(self, tool: TrainingTool, keep: bool) -> None:
        """Let the tool drop its data, unless it shall keep it."""
        if not keep:
            tool.release()
            self.is_loaded = False
            gc.collect()


Methods = dict[str, Callable[..., dict[str, Any]]]  # by the kind of request


def answer(methods: Methods, line: str) -> dict[str, Any]:
    """The reply to a request, or the error it ended with."""
    request = json.loads(line)
    try:
        return methods[request.pop("do")](**request)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def serve(methods: Methods) -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is not a reply
    for line in sys.stdin:
        print(json.dumps(answer(methods, line)), file=replies, flush=True)


def main(name: str, threads: int) -> None:
    """Answer requests for a tool."""
    tool = ALL_TOOLS[name]
    threads = max(threads // tool.processes, 1) if tool.threads is None else tool.threads
    set_threads(threads)
    if tool.processes > 1:
        start()
    worker = Worker(name, threads)
    serve({"imports": worker.imports, "setup": worker.setup, "epoch": worker.epoch, "save": worker.save})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
