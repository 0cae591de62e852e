"""The process of a tool: `python -m harness.worker DESCRIPTION`, with a tool and its threads as JSON.

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import matgrad as mg
from harness.memory import Growth
from harness.problems import Setting, generated, initial_parameters, read_parameters, write_parameters
from harness.tools import TrainingTool, create
from matgrad.foundation.machine import thread_pools

# that of the processor is for a busy machine
CLOCK = time.process_time if os.environ.get("MATGRAD_CLOCK") == "cpu" else time.perf_counter


class Worker:
    """Answers requests, with one method per kind of request."""

    tool: TrainingTool | None = None

    def __init__(self, class_name: str, arguments: list[Any], threads: int) -> None:
        self.class_name, self.arguments, self.threads = class_name, arguments, threads

    def _create(self, setting: Setting) -> TrainingTool:
        tool = create(self.class_name, self.arguments, setting)
        tool.folder = self.folder
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self.threads)
        return tool

    def setup(self, setting: dict[str, Any], folder: str, rehearse: bool = False) -> dict[str, Any]:
        """Make the tool for a setting and for the data in a folder; returns the seconds of each part, and the memory.

        After a rehearsal, the memory does not include what the libraries take at their first use.
        """
        self.tool = None  # frees the previous one
        gc.collect()
        self.folder = Path(folder)
        self.initial = read_parameters(self.folder / "initial.npz")
        begin = time.perf_counter()
        self.tool = tool = self._create(Setting(**setting | {"sizes": tuple(setting["sizes"])}))
        if rehearse:
            self._rehearse(tool.setting)
        imported, memory = time.perf_counter(), Growth()
        X, t = (np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in ("X", "t"))
        self.batches = len(X) // tool.setting.batch_size
        tool.load(X, np.array(t))
        memory.after_load()
        tool.start(self.initial)
        memory.before_training()
        loaded = time.perf_counter()
        tool.prepare()
        end = time.perf_counter()
        memory.after_training()
        bytes_ = None if tool.is_own_process else {"data": memory.data, "training": memory.training}
        seconds = {"import": imported - begin, "load": loaded - imported, "prepare": end - loaded}
        pools = thread_pools() if find_spec("threadpoolctl") else {}
        return seconds | {"pools": pools, "memory": bytes_}

    def _rehearse(self, setting: Setting) -> None:
        """Train a tiny sparse model with a tool like this one."""
        tiny = replace(setting, sizes=(8, 6, 4), batch_size=4)
        data, tool = generated(8, 4, 8), self._create(tiny)
        tool.load(data.Xtrain.astype(tiny.dtype), data.Ttrain)
        tool.start(initial_parameters(tiny, 0, density=0.5))
        tool.prepare()

    def epoch(self, batches: int | None = None) -> dict[str, Any]:
        """The net seconds of an epoch from the initial parameters, or of its first batches."""
        tool = self.tool
        assert tool is not None
        tool.start(self.initial)
        gc.collect()
        waited, begin = tool.waited(), CLOCK()
        own = tool.train(self.batches if batches is None else batches)
        seconds = CLOCK() - begin
        return {"seconds": seconds if own is None else own, "waiting": tool.waited() - waited}

    def save(self, path: str) -> dict[str, Any]:
        """Write the present parameters."""
        assert self.tool is not None
        if os.environ.get("RANK", "0") == "0":
            write_parameters(Path(path), self.tool.parameters())
        return {}


def answer(methods: dict[str, Callable[..., dict[str, Any]]], line: str) -> dict[str, Any]:
    """The reply to a request, or the error it ended with."""
    request = json.loads(line)
    try:
        return methods[request.pop("do")](**request)
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def serve(**methods: Callable[..., dict[str, Any]]) -> None:
    """Answer requests until there are no more."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is not a reply
    for line in sys.stdin:
        print(json.dumps(answer(methods, line)), file=replies, flush=True)


def main(description: str) -> None:
    """Answer requests for a tool."""
    found = json.loads(description)
    source = os.environ.get("MATGRAD_SOURCE")
    if source and not Path(mg.__file__).is_relative_to(source):
        raise RuntimeError(f"expected matgrad from {source}, found {mg.__file__}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        mg.distributed.start()
    worker = Worker(**found)
    serve(setup=worker.setup, epoch=worker.epoch, save=worker.save)


if __name__ == "__main__":
    main(sys.argv[1])
