"""Trees of plain values and matrices: the values become JSON, and the matrices tensors of a safetensors file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.backends import backend_of
from matgrad.foundation.files import parse_json, read_safetensors
from matgrad.foundation.writing import atomic_write
from matgrad.sparse.support import Support
from matgrad.storage.models import INDEX

MATRIX, SUPPORT = "$matrix", "$support"  # what stands in JSON for a matrix, and for a support with its sizes
DIGEST = "sha256"


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
        return {SUPPORT: name, "shape": list(value.shape)}
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return value.item() if isinstance(value, np.generic) else value
    try:
        A = backend_of(value).to_numpy(value)
    except TypeError:
        found = type(value).__name__
        raise TypeError(f"{name}: expected plain values and matrices, found {found}, which cannot be saved") from None
    tensors[name] = np.ascontiguousarray(A).reshape(A.shape)
    return {MATRIX: name}


def unpacked(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The value that was packed, with matrices of NumPy."""
    if isinstance(value, list | tuple):
        return [unpacked(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if MATRIX in value:
        return _tensor(value[MATRIX], tensors)
    if SUPPORT in value:
        index = [_tensor(f"{value[SUPPORT]}.{part}", tensors) for part in INDEX]
        return Support(tuple(value.get("shape", ())), *index)
    return {key: unpacked(item, tensors) for key, item in value.items()}


def _tensor(name: Any, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    if not isinstance(name, str) or name not in tensors:
        raise ValueError(f"there is no tensor {name!r:.100}")
    return tensors[name]


def write_tree(path: str | Path, strings: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors and, as JSON in the header, other values by their names, with a digest of all."""
    from safetensors.numpy import save

    header = {name: json.dumps(value, ensure_ascii=False) for name, value in strings.items()}
    content = save(dict(tensors), header | {DIGEST: digest_of(header, tensors)})
    with atomic_write(path) as file:
        file.write(content)


def read_tree(path: str | Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The JSON strings and the tensors of a file that `write_tree` wrote, after a check of the digest."""
    tensors, header = read_safetensors(path)
    if DIGEST not in header:
        raise ValueError(f"{path}: expected a checkpoint, found another safetensors file")
    found = header.pop(DIGEST)
    if found != digest_of(header, tensors):
        raise ValueError(f"{path}: a damaged file: its content does not agree with its digest")
    return header, tensors


def parse_value(text: str) -> Any:
    """The value of a JSON string in such a file; numbers may be infinite or nan."""
    return parse_json(text, finite=False)


def digest_of(header: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything in a file."""
    digest = hashlib.sha256(repr(sorted(header.items())).encode())
    for name, A in sorted(tensors.items()):
        digest.update(repr((name, A.dtype.str, A.shape)).encode())
        digest.update(np.ascontiguousarray(A).data if A.size else b"")
    return digest.hexdigest()
