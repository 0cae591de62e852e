"""Reading files without pickle and within limits: npz, safetensors, and plain values in JSON, YAML and TOML."""

from __future__ import annotations

import json
import math
import struct
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from matgrad.foundation.limits import (
    CONFIGURATION,
    DEPTH,
    HEADER,
    JSON,
    MEMBERS,
    check_bytes,
    check_count,
    file_limit,
)

try:
    import lzma
except ImportError:  # some builds of Python lack it
    lzma = None  # type: ignore[assignment]


T = TypeVar("T")


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


def why_unreadable(error: Exception) -> str:
    """Why a file could not be read, in words."""
    known = {FileNotFoundError: "no such file", IsADirectoryError: "found a folder, expected a file"}
    return known.get(type(error), f"cannot be read ({getattr(error, 'strerror', None) or error})")


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


# -- plain values ------------------------------------------------------------------------------


def parse_json(text: str, *, finite: bool = True) -> Any:
    """The value of a JSON string; raise if it nests deeply, has a name twice or, if `finite`, NaN or inf."""
    check_count(len(text), JSON, "JSON", "characters")
    try:
        value = json.loads(text, object_pairs_hook=_table, parse_constant=_raise_constant if finite else None)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check_depth(value)
    return value


def parse_toml(text: str) -> Any:
    """The table of a TOML string."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    _check_depth(value)
    return value


def parse_yaml(text: str) -> Any:
    """The value of a YAML string; raise if it has aliases, with which a few lines could become billions."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            table = super().construct_mapping(node, deep)
            return table if len(table) == len(node.value) else _table(self.construct_pairs(node))

    try:
        value = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (TypeError, LookupError, AttributeError, OverflowError) as error:  # of scalars with odd tags
        raise ValueError(f"an invalid YAML file ({error})") from None
    _check_depth(value)
    return value


PARSERS: dict[str, tuple[Callable[[str], Any], int]] = {  # by the ending of a file, with the most bytes it may have
    ".toml": (parse_toml, CONFIGURATION),
    ".yaml": (parse_yaml, CONFIGURATION),
    ".yml": (parse_yaml, CONFIGURATION),
    ".json": (parse_json, JSON),
}

TOO_DEEP = f"lists or tables are nested too deeply, expected at most {DEPTH} inside each other"


def read_plain_values(path: Path) -> Any:
    """The value in a TOML, YAML or JSON file."""
    if path.suffix not in PARSERS:
        raise ValueError(f"{path}: expected a file that ends in .toml, .yaml, .yml or .json")
    return read_text(path, *PARSERS[path.suffix])


def read_json(path: Path) -> Any:
    """The value in a JSON file of any name."""
    return read_text(path, *PARSERS[".json"])


def read_text(path: Path, parse: Callable[[str], T], largest: int) -> T:
    """What a parser makes of the content of a file of at most this many bytes."""
    try:
        with open(path, "rb") as file:
            content = file.read(largest + 1)
        check_count(len(content), largest, "file", "bytes or more")
        return parse(content.decode("utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: {why_unreadable(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def conform(value: Any, schema: type[T]) -> T:
    """The plain value as an object of the schema; a ValueError names the first place where it does not fit."""
    import msgspec

    return msgspec.convert(value, schema)


def _table(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The table of these pairs, after a check that no name occurs twice."""
    table: dict[Any, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} occurs twice")
        table[name] = value
    return table


def _raise_constant(name: str) -> None:
    raise ValueError(f"found {name}, expected a finite number")


def _check_depth(value: Any) -> None:
    """Raise if lists and tables are nested too deeply."""
    level = [value]
    for _ in range(DEPTH):
        level = [x for item in level for x in _items(item)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _items(value: Any) -> list[Any]:
    """The values in a list or table."""
    return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
