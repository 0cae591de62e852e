"""The machine: cores, processor, instruction sets, threads, versions, memory and time."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "torch", "jax", "tensorflow", "tensorflow-cpu", "sympy")


def versions() -> dict[str, str]:
    """The versions of Python, matgrad and the packages it can use, if they are installed."""
    found = {"python": platform.python_version(), "matgrad": sys.modules["matgrad"].__version__}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine() -> dict[str, Any]:
    """The system, the processor and the number of its cores that this process may use."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"system": platform.platform(), "processor": next(names, platform.processor()), "cores": cores()}


def cores() -> int:
    """The cores that the system lets this process run on; the C++ core also knows the CPU quota of a container."""
    with contextlib.suppress(ImportError):
        from matgrad import _native

        return _native.cores()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_memory() -> dict[str, int]:
    """The memory of this process in bytes, as Linux reports it: VmHWM, the peak so far, RssAnon …; empty elsewhere."""
    status = Path("/proc/self/status")
    lines = (line.split() for line in status.read_text().splitlines()) if status.exists() else ()
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1] == "kB"}


def peak_memory() -> int | None:
    """The most bytes of memory that this process has had so far; None if unknown."""
    if "VmHWM" in (found := process_memory()):
        return found["VmHWM"]
    try:
        import resource
    except ImportError:  # on Windows
        return None
    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def threads() -> int:
    """The number of threads of matgrad's own pools: OMP_NUM_THREADS, at most one per core that this process may use.

    More would only wait for one another. Of a list, such as ``2,1``, the first number counts: the others are for
    parallel code within parallel code.
    """
    if not (found := os.environ.get("OMP_NUM_THREADS", "").strip()):
        return cores()
    if (first := re.match(r"0*([1-9][0-9]*)\s*(,|$)", found)) is None:
        raise ValueError(f"OMP_NUM_THREADS: expected a positive integer, or a list of them, found {found!r}")
    return min(int(first[1]), cores())


def instruction_sets() -> list[str]:
    """The vector instruction sets that NumPy finds on this processor."""
    from numpy._core._multiarray_umath import __cpu_features__

    return [name for name, is_there in __cpu_features__.items() if is_there]


def thread_pools() -> dict[str, int]:
    """The number of threads of every loaded thread pool."""
    from threadpoolctl import threadpool_info

    return {f"{x['internal_api']} {x.get('version') or ''}".strip(): x["num_threads"] for x in threadpool_info()}


THREADS = (  # the variables from which libraries that are loaded later take the number of their threads
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),  # NumPy, SciPy, PyTorch
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),  # TensorFlow
    "PJRT_NPROC",  # JAX
)


def set_threads(threads: int | None) -> None:
    """Limit the threads of the libraries that are loaded, and of those that will be.

    JAX and TensorFlow make their threads when they compute for the first time: a later limit is none for them.
    """
    if threads is None:
        return
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    for name in THREADS:
        os.environ[name] = str(threads)
    if threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


class Stopwatch:
    """Counts the seconds that pass inside its context, ``with watch: …``, which may be entered again and again."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._start
