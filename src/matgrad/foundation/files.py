"""Npz and safetensors files, which are read without pickle, and values as JSON."""

from __future__ import annotations

import json
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from matgrad.foundation.limits import HEADER, MEMBERS, check_bytes, check_count, file_limit

try:
    import lzma
except ImportError:  # some builds of Python lack it
    lzma = None  # type: ignore[assignment]


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays in an npz file. Raise if one has pickled objects or is too large."""
    try:
        with open(path, "rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise ValueError(f"{path}: found a single array (npy), expected an npz file")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            check_count(len(members), MEMBERS, str(path), "arrays")
            check_bytes(sum(member.file_size for member in members), f"{path}", file_limit(path))
            names = [member.filename.removesuffix(".npy") for member in members]
            if len(set(names)) < len(names):
                raise ValueError(f"{path}: found two arrays with the same name")
            return {name: _array(archive, m, f"{path}: {name}") for name, m in zip(names, members, strict=True)}
    except DAMAGED_ARCHIVE as error:
        raise ValueError(f"{path}: not an npz file, or a damaged one ({error})") from None
    except OSError as error:
        raise ValueError(f"{path}: {why_unreadable(error)}") from None


def why_unreadable(error: OSError) -> str:
    """Why a file could not be read, in words."""
    known = {FileNotFoundError: "no such file", IsADirectoryError: "found a folder, expected a file"}
    return known.get(type(error), f"cannot be read ({error.strerror or error})")


# what a damaged archive may raise
DAMAGED_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError,
            struct.error, UnicodeError, *(() if lzma is None else (lzma.LZMAError,)))  # fmt: skip


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> np.ndarray:
    """One array of an npz file, after a check that the member has as many bytes as the array needs."""
    try:
        with archive.open(member) as file:
            _check_header(file, member.file_size)
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except _Unexpected as error:
        raise ValueError(f"{where}: {error}") from None
    except _BAD_HEADER as error:
        raise ValueError(f"{where}: not an array, or a damaged one ({error})") from None


class _Unexpected(ValueError):
    """A valid array, but not of numbers or strings."""


_BAD_HEADER = (ValueError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError)  # it is Python


def _check_header(file: IO[bytes], size: int) -> None:
    """Raise unless it is an array of numbers or strings that ends where the file does."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in headers:
        raise ValueError(f"version {version}")
    shape, _, dtype = headers[version](file)
    if dtype.hasobject:
        raise _Unexpected("found an array of objects (pickled), expected numbers")
    if dtype.kind not in "biufcSU" or not dtype.itemsize:
        raise _Unexpected(f"found an array of {dtype}, expected numbers or strings")
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"found {size - file.tell()} bytes, expected a {dtype} array of shape {shape}")


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
        with open(path, "rb") as header:
            check_count(int.from_bytes(header.read(8), "little"), HEADER, "header", "bytes")
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except OSError as error:
        raise ValueError(f"{path}: {why_unreadable(error)}") from None
    except (SafetensorError, ValueError, AttributeError, TypeError) as error:  # the last two for a dtype NumPy lacks
        raise ValueError(f"{path}: not a safetensors file, or a damaged one ({error})") from None


def as_json(value: Any, indent: int | None = 2) -> str:
    """The value as a JSON string in ASCII, for any terminal, on one line without `indent`; nan and inf are null.

    What is no Unicode, in the name of a file, is escaped as JSON does: it comes back, and can be printed.
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    """The value with None in place of nan and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
