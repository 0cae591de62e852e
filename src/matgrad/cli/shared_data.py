"""Data that the ranks of a machine have in common: the first of them reads it, and all map it into their memory."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from matgrad.datasets import Dataset, Normalization
from matgrad.datasets.dataset import parts_of
from matgrad.datasets.npz_file import KEYS
from matgrad.distributed import current

Held = tuple[Any, np.ndarray] | None  # the examples that are held out for validation, if any
BOOT = Path("/proc/sys/kernel/random/boot_id")  # what tells machines of the same name apart
PLAIN = ("name", "classes", "class_names", "value_range", "notes", "first_index")  # of a data set, which JSON can hold


def read_once(read: Callable[[], tuple[Dataset, Held]], dtype: str) -> tuple[Dataset, Held]:
    """What `read` gives; of several ranks on one machine only the first reads.

    The arrays are mapped from files, which are removed as soon as all have mapped them: every rank then has the pages
    that it uses in common with the others. Only the rank that reads knows the features of a table.
    """
    group = current()
    machines = [] if group is None else group.exchange(_machine())
    if group is None or len(set(machines)) == group.size:
        return read()
    reader = machines.index(machines[group.rank])
    with _folder(group.rank == reader) as folder:
        plain = None
        if folder is not None:
            data, held = read()
            _write(folder, data, held, dtype)
            plain = {name: getattr(data, name) for name in PLAIN} | {"kind": data.normalization.kind}
        where = group.exchange([str(folder), plain])[reader]
        mapped, mapped_held = _mapped(Path(where[0]), where[1])
        group.exchange("mapped")
    return (mapped if folder is None else replace(mapped, features=data.features)), mapped_held


def _machine() -> str:
    return f"{socket.gethostname()} {BOOT.read_text().strip() if BOOT.exists() else ''}"


@contextmanager
def _folder(is_made: bool) -> Iterator[Path | None]:
    """A folder that is there within the block, or none."""
    if not is_made:
        yield None
        return
    with _exit_by(signal.SIGTERM), TemporaryDirectory(prefix="matgrad-") as folder:
        yield Path(folder)


@contextmanager
def _exit_by(number: int) -> Iterator[None]:
    """Let a signal raise SystemExit within the block, so that what has to be removed is removed."""
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return
    before = signal.signal(number, lambda *_: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(number, before)


def _write(folder: Path, data: Dataset, held: Held, dtype: str) -> None:
    """Write the arrays of the data, examples with elements of the model's type."""
    arrays = {key: getattr(data, key) for key in KEYS} | ({} if held is None else {"Xheld": held[0], "Theld": held[1]})
    for key, A in arrays.items():
        B = A.astype(dtype, copy=False) if key.startswith("X") else A
        for name, part in parts_of(key, B).items():
            _save(folder / f"{name}.npy", part)
    for name, A in (("offset", data.normalization.offset), ("scale", data.normalization.scale)):
        _save(folder / f"{name}.npy", A)


def _save(path: Path, A: np.ndarray) -> None:
    try:
        np.save(path, A)
    except OSError as error:
        problem = f"cannot write {A.nbytes:,} bytes of data, which ranks read there"
        raise OSError(f"{path.parent}: {problem} ({error}); TMPDIR names another folder") from None


def _mapped(folder: Path, plain: dict[str, Any]) -> tuple[Dataset, Held]:
    """The data in a folder, with these plain values; what is written to its arrays stays in this process."""
    values: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in plain.items()}
    values["normalization"] = Normalization(values.pop("kind"), _array(folder, "offset"), _array(folder, "scale"))
    data = Dataset(**{key: _array(folder, key) for key in KEYS}, **values)
    has_held = (folder / "Theld.npy").exists()
    return data, (_array(folder, "Xheld"), _array(folder, "Theld")) if has_held else None


def _array(folder: Path, name: str) -> Any:
    """An array in a folder, dense or sparse, without a copy."""
    if (path := folder / f"{name}.npy").exists():
        return np.asarray(np.load(path, mmap_mode="c"))
    from scipy.sparse import csr_array

    values, columns, starts, shape = (
        _array(folder, f"{name}.{part}") for part in ("values", "columns", "starts", "shape")
    )
    return csr_array((values, columns, starts), shape=tuple(shape.tolist()))
