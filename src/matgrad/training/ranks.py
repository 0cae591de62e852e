"""Ranks agree on what decides the result of a run, an epoch and a batch; matrices are compared by their hashes."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.callbacks import Callback, Interruption, Statistics
from matgrad.datasets import DataLoader
from matgrad.datasets.loader import rows_of
from matgrad.engines.engine import Batches
from matgrad.foundation.callers import is_builtin
from matgrad.foundation.machine import versions
from matgrad.layers.state import flattened
from matgrad.sparse.support import Support
from matgrad.specifications.origins import plugin_of

if TYPE_CHECKING:
    from matgrad.training.run import Training

MOST = 25_000_000  # elements of a matrix that are hashed: rows that are evenly spread, if it has more


def agree_on_run(run: Training, settings: dict[str, str]) -> None:
    """Raise, on all ranks, if something that decides the result of the run is not the same on all of them."""
    if run.group.size == 1:
        return
    M, data, found = run.M, run.data, versions()
    known = {f"the version of {name}": found[name] for name in ("matgrad", "numpy", M.backend.name) if name in found}
    known |= {"the engine": M.engine, "the element type": M.dtype, "the initial model": _sha256(M.state())}
    known |= {"the epochs": str(run.epochs), "the steps that are done": str(run.step), **settings}
    known["the learning rate"] = f"changes every {'step' if run.per_step else 'epoch'}"
    statistics = [callback for callback in run.callbacks if isinstance(callback, Statistics)]
    silent = [callback for callback in statistics if not callback.every_epoch]  # they measure when they are asked to
    steering = [x for x in run.callbacks if not (x.only_first or isinstance(x, Interruption) or x in silent)]
    known["the callbacks"] = ", ".join(map(_named, steering)) or "none"
    for prefix, part in (item for callback in statistics for item in callback.parts.items()):
        if part is not data:
            known[f"the {prefix}data".replace("_", " ")] = _sha256(_arrays(part))
    run.group.agree(known | (_fingerprint_of_data(data) if isinstance(data, DataLoader) else {}))


def agree_on_epoch(run: Training, data: Batches) -> None:
    """The same for an epoch: its first learning rate, the number of batches and, if they are new, the batches."""
    if run.group.size > 1:
        known = {"the learning rate": repr(run.learning_rate), "the number of batches": str(run.batches)}
        if callable(run.data) and isinstance(data, DataLoader):
            known |= _fingerprint_of_data(data)
        run.group.agree(known, "the start of an epoch")


def agree_on_batch(run: Training) -> None:
    """The same for a batch."""
    if run.group.size > 1:
        batch = flattened({str(i): A for i, A in enumerate((run.X, run.T, *run.s))})
        run.group.agree({"the first batch": _sha256(batch)}, "the first batch")


def _fingerprint_of_data(data: DataLoader) -> dict[str, str]:
    """What decides the batches of a loader."""
    order = json.dumps(data.rng.bit_generator.state, default=str).encode()
    return {
        "the examples": str(data.size),
        "the batch size": str(data.batch_size),
        "the data": _sha256(_arrays(data)),
        "the order": "shuffled" if data.shuffle else "that of the data",
        "the seed of the order": f"sha256 {hashlib.sha256(order).hexdigest()}",
    }


def _named(callback: Callback) -> str:
    """The name of a callback; of one of the package with its settings, and of one of a plugin with the hash of that."""
    is_ours, plugin = is_builtin(callback), plugin_of(type(callback))
    name = repr(callback) if is_ours and not isinstance(callback, Statistics) else type(callback).__name__
    return name if plugin is None else f"{name} with the SHA-256 {plugin.sha256[:16]}"


def _arrays(data: DataLoader) -> dict[str, Any]:
    return flattened({"X": data.X, "T": data.T, "s": data.weights, "labels": data.labels})


def _sha256(matrices: dict[str, Any]) -> str:
    """A hash of matrices and supports, by name; of large ones, of a part of their rows."""
    digest = hashlib.sha256()
    for name, X in matrices.items():
        for A in (X.starts, X.columns) if isinstance(X, Support) else () if X is None else (X,):
            digest.update(f"{name} {tuple(A.shape)} {A.dtype}\n".encode())
            size = math.prod(A.shape)
            part = rows_of(A, np.arange(0, A.shape[0], -(-size // MOST))) if size > MOST else A
            digest.update(np.ascontiguousarray(backend_of(part).to_numpy(part)).tobytes())
    return f"sha256 {digest.hexdigest()}"
