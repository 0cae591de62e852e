"""Npz and safetensors files, which are read without pickle, and values as JSON."""

from __future__ import annotations

import json
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays in an npz file; pickled objects are refused."""
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise ValueError(f"{path}: found a single array (npy), expected an npz file")
            return {name: _array(content, name, path) for name in content.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: found a folder, expected a file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    except MemoryError as error:
        raise ValueError(f"{path}: an array does not fit into memory ({error})") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path}: not an npz file, or a damaged one ({error})") from None
    except ValueError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise ValueError(f"{path}: not an npz file (a zip archive of arrays)") from None


def _array(content: np.lib.npyio.NpzFile, name: str, path: str | Path) -> np.ndarray:
    """One array of an npz file."""
    try:
        return content[name]
    except (ValueError, SyntaxError, tokenize.TokenError) as error:  # the header of an array is a Python expression
        if "allow_pickle" in str(error):
            raise ValueError(f"{path}: {name}: found an array of objects (pickled), expected numbers") from None
        raise ValueError(f"{path}: {name}: not an array, or a damaged one ({error})") from None


def is_safetensors(path: str | Path) -> bool:
    """Whether a file begins as safetensors files do: with the length of a JSON table, and the table."""
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False


def read_safetensors(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All arrays in a safetensors file, and the strings in its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (SafetensorError, OSError, AttributeError, TypeError) as error:  # the last two for a dtype NumPy lacks
        raise ValueError(f"{path}: not a safetensors file, or a damaged one ({error})") from None


def as_json(value: Any) -> str:
    """The value as an indented JSON string, in which numbers that are not finite are null.

    What is no Unicode, in the name of a file, is escaped as JSON does: it comes back, and can be printed.
    """
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode()


def _finite(value: Any) -> Any:
    """The value with None in place of nan and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
