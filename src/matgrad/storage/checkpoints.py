"""Checkpoints: files with everything that is needed to resume a run of training exactly.

A checkpoint is one safetensors file, ``step-00001200.safetensors`` in a folder. Its tensors are the state of the model
under its own names (``1.W``, ``1.W.delta``, ``1.W.support.columns`` …) and what callbacks keep; its header has the JSON
strings ``checkpoint`` (a `Checkpoint` without the model) and ``model``, as in a program file, which makes it a model
file too; see `matgrad.storage.models`. A digest detects damage.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.foundation.files import conform, naming, parse_json, read_safetensors
from matgrad.foundation.writing import atomic_write
from matgrad.layers.state import State
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.support import Support
from matgrad.specifications.origins import Origin, check_origins
from matgrad.storage.models import INDEX, model_description, model_tensors, read_description, replace_state

FORMAT = 1
MATRIX, SUPPORT_KEY = "$matrix", "$support"  # what stands in JSON for a matrix, and for a support with its sizes
DIGEST = "sha256"
FILES, BEST = "step-*.safetensors", "best.safetensors"
KEYS = ("layers", "sizes", "dropouts", "renew")  # what a model must have in common with that of a checkpoint


@dataclass
class RunState:
    """What a run of training is at between two batches, apart from its model."""

    epoch: int  # finished epochs
    batch: int  # batches of the present epoch
    batches: int | None  # that it has, if known
    step: int  # batches of all epochs
    examples: int  # of the present epoch
    seconds: float  # of finished epochs
    epoch_seconds: float  # of the present epoch
    is_stopped: bool  # whether a callback has ended the run
    settings: dict[str, str]  # that should be the same when it is resumed: the loss, and so on
    rows: list[dict[str, Any]]  # one per finished epoch
    order: dict[str, Any] | None  # the generator of the order of the examples, before it gave that of this epoch
    generator: dict[str, Any]  # the generator that is used where none is given
    callbacks: list[tuple[str, dict[str, Any]]]  # the state of each callback that has one, after its name
    plugins: dict[str, dict[str, Origin]] = field(default_factory=dict)  # of the 'model', and of its 'training'


@dataclass
class Checkpoint:
    """The state of a model and of its training at one moment, and a record of what was asked for."""

    format: int
    run: RunState
    state: State
    record: dict[str, Any]
    model: dict[str, Any]  # how to make the model, see `model_description`
    path: Path = Path()

    def restore(self, M: MultilayerPerceptron) -> None:
        """Give M the whole state, also that of its optimizers; M must be made as the model was."""
        with naming(self.path):
            found = model_description(M)["model"]
            for key in KEYS:
                if key in found and (known := self.model.get(key, found[key])) != found[key]:
                    raise ValueError(f"its model has {key} {known}, but this one has {key} {found[key]}")
            check_origins(self.run.plugins.get("model", {}), (layer for _, layer in M.walk()))
            replace_state(M, self.state, is_whole=True)


# -- files -------------------------------------------------------------------------------------


def write_checkpoint(path: Path, M: MultilayerPerceptron, run: RunState, record: Mapping[str, Any]) -> None:
    """Write the state of the model and of its training to a file."""
    from safetensors.numpy import save

    tensors: dict[str, np.ndarray] = {}
    state = {name: X if isinstance(X, Support) else M.backend.to_numpy(X) for name, X in M.state().items()}
    content = {
        "format": FORMAT,
        "run": packed(vars(run), "run", tensors),
        "state": packed(state, "", tensors),
        "record": dict(record),
    }
    others, description = model_tensors(M)  # its normalization too
    tensors |= others
    header = {"checkpoint": json.dumps(content, ensure_ascii=False), "model": description}
    data = save(tensors, header | {DIGEST: digest_of(header, tensors)})
    with atomic_write(path) as file:
        file.write(data)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in a file."""
    tensors, header = read_safetensors(path)
    with naming(path, "invalid checkpoint: "):
        if header.pop(DIGEST) != digest_of(header, tensors):
            raise ValueError("its content does not agree with its digest")
        content = parse_json(header["checkpoint"], finite=False)
        content["model"], _ = read_description(header["model"], path)
        checkpoint = conform(content, Checkpoint)
        if checkpoint.format != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {checkpoint.format}")
        run, checkpoint.state, checkpoint.path = checkpoint.run, unpacked(checkpoint.state, tensors), Path(path)
        run.rows, run.callbacks = unpacked(run.rows, tensors), unpacked(run.callbacks, tensors)
    return checkpoint


def find_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in a file or, for a folder, in the newest valid one; warns of damaged ones."""
    if not (folder := Path(path)).is_dir():
        return read_checkpoint(path)
    for file in reversed(checkpoint_files(folder)):
        try:
            return read_checkpoint(file)
        except ValueError as error:
            warnings.warn(f"{error}; the one before it is used", stacklevel=2)
    raise ValueError(f"{path}: expected a folder with checkpoints ({FILES}), found no valid one")


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints in a folder, in the order of their steps."""
    return sorted((file for file in folder.glob(FILES) if step_of(file) >= 0), key=step_of)


def step_of(file: Path) -> int:
    """The number of steps in the name of a checkpoint; -1 if it is none."""
    digits = file.stem.partition("-")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() else -1


# -- trees of plain values and matrices: JSON in the header of a safetensors file, and its tensors --------


def packed(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """The value with names in place of its matrices and supports, whose arrays are added to the tensors.

    A table, a list or a tuple may contain others; `name` is that of the value, and 'name.key' that of an item.
    """
    if isinstance(value, Mapping):
        return {key: packed(item, f"{name}.{key}" if name else key, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [packed(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, Support):
        tensors |= {f"{name}.{part}": getattr(value, part) for part in INDEX}
        return {SUPPORT_KEY: name, "shape": list(value.shape)}
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value.item() if isinstance(value, np.generic) else value
    try:
        A = backend_of(value).to_numpy(value)
    except TypeError:
        raise TypeError(f"{name}: expected plain values and matrices, found {type(value).__name__}") from None
    tensors[name] = np.ascontiguousarray(A).reshape(A.shape)
    return {MATRIX: name}


def unpacked(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The value that was packed, with matrices of NumPy."""
    if isinstance(value, list | tuple):
        return [unpacked(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if MATRIX in value:
        return tensors[value[MATRIX]]
    if (name := value.get(SUPPORT_KEY)) is not None:
        return Support(tuple(value["shape"]), *(tensors[f"{name}.{part}"] for part in INDEX))
    return {key: unpacked(item, tensors) for key, item in value.items()}


def digest_of(header: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything in a file."""
    digest = hashlib.sha256(repr(sorted(header.items())).encode())
    for name, A in sorted(tensors.items()):
        digest.update(repr((name, A.dtype.str, A.shape)).encode())
        digest.update(np.ascontiguousarray(A).data if A.size else b"")
    return digest.hexdigest()
