"""Reading files without pickle and within limits: compressed ones, npz, safetensors, JSON, YAML and TOML."""

from __future__ import annotations

import io
import json
import os
import tomllib
import zipfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from matgrad.foundation import limits
from matgrad.foundation.limits import check_bytes, check_count, file_limit
from matgrad.foundation.writing import visible

T = TypeVar("T")

CHUNK = 1 << 20  # bytes that are decompressed at a time
UNREADABLE = {FileNotFoundError: "no such file", IsADirectoryError: "found a folder, expected a file"}


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays in an npz file. Raise if one has pickled objects or is too large."""
    with naming(path, kind="an npz file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_count(len(members), limits.MEMBERS, "archive", "arrays")
        check_bytes(sum(member.file_size for member in members), "archive", file_limit(path))
        return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}


@contextmanager
def naming(where: str | Path, problem: str = "", kind: str = "a file of this kind") -> Iterator[None]:
    """Turn what invalid content makes us or a library raise into a ValueError that begins with its file or part."""
    try:
        yield
        return
    except ValueError as error:
        reason = f"{problem}{error}"
    except KeyError as error:
        reason = f"{problem}there is no {error}"
    except OSError as error:
        reason = UNREADABLE.get(type(error), f"cannot be read ({error.strerror or error})")
    except Exception as error:  # a library may raise anything
        if isinstance(error, MemoryError) or limits.is_out_of_memory(error):
            raise
        reason = f"{problem}not {kind}, or a damaged one ({type(error).__name__}: {' '.join(str(error).split())})"
    raise ValueError(f"{visible(where)}: {visible(' '.join(reason.splitlines()))}") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array of an npz file, after a check that its type is plain."""
    try:
        with archive.open(member) as file:
            A = np.lib.format.read_array(file, allow_pickle=False)
        if A.dtype.kind not in "biufcSU":
            raise ValueError(f"found {A.dtype}")
        return A
    except Exception as error:  # its header is a literal of Python, which may be anything
        name = member.filename.removesuffix(".npy")
        raise ValueError(f"{name}: not an array of numbers or strings, or a damaged one ({error})") from None


def opened(path: Path, *, is_text: bool = False) -> IO[bytes]:
    """The content of a file; if it begins as gzip and xz files do, it is decompressed into memory."""
    limit = file_limit(path, is_text=is_text)
    with naming(path):
        file = path.open("rb")
        start = file.peek(6)
        if not start.startswith((b"\x1f\x8b", b"\xfd7zXZ\0")):
            return file
        decompress = import_module("gzip" if start.startswith(b"\x1f") else "lzma").open  # some Pythons have no lzma
        with file, decompress(file) as compressed:
            content = io.BytesIO()
            while part := compressed.read(CHUNK):
                content.write(part)
                check_bytes(content.tell(), "its content", limit)
        content.seek(0)
        return content


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path, after a check that it is one."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{path}: {'found a file, expected a folder' if path.exists() else 'no such folder'}")
    return path


def is_safetensors(path: str | Path) -> bool:
    """Whether a file begins as safetensors files do: with the length of a JSON table, and the table."""
    try:
        with open(path, "rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False


def read_safetensors(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All arrays in a safetensors file, and the strings in its header."""
    from safetensors import safe_open

    with naming(path, kind="a safetensors file"):
        with open(path, "rb") as header:
            check_count(int.from_bytes(header.read(8), "little"), limits.HEADER, "safetensors header", "bytes")
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


# -- plain values ------------------------------------------------------------------------------


def parse_json(text: str, *, finite: bool = True) -> Any:
    """The value of a JSON string; raise if it nests deeply, has a name twice or, if `finite`, NaN or inf."""
    check_count(len(text), limits.JSON, "JSON", "characters")
    options: dict[str, Any] = {"parse_constant": _raise_constant} if finite else {}
    return _parsed(lambda: json.loads(text, object_pairs_hook=_table, **options))


def parse_yaml(text: str) -> Any:
    """The value of a YAML string; raise if it has aliases, with which a few lines could become billions."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            return _table(self.construct_pairs(node, deep))

    return _parsed(lambda: yaml.load(text, Loader))


PARSERS: dict[str, tuple[Callable[[str], Any], int]] = {  # by the ending of a file, with the most bytes it may have
    ".toml": (lambda text: _parsed(lambda: tomllib.loads(text)), limits.CONFIGURATION),
    ".yaml": (parse_yaml, limits.CONFIGURATION),
    ".yml": (parse_yaml, limits.CONFIGURATION),
    ".json": (parse_json, limits.JSON),
}


def read_plain_values(path: Path) -> Any:
    """The value in a TOML, YAML or JSON file."""
    if path.suffix not in PARSERS:
        raise ValueError(f"{path}: expected a file that ends in .toml, .yaml, .yml or .json")
    return read_text(path, *PARSERS[path.suffix])


def read_text(path: Path, parse: Callable[[str], T], largest: int) -> T:
    """What a parser makes of the content of a file of at most this many bytes."""
    with naming(path):
        with open(path, "rb") as file:
            content = file.read(largest + 1)
        check_count(len(content), largest, "file", "bytes or more")
        return parse(content.decode("utf-8-sig"))


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


def _parsed(parse: Callable[[], Any]) -> Any:
    """What a parser returns, after a check that lists and tables are not nested too deeply."""

    def is_shallow(value: Any, depth: int) -> bool:
        items = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        return depth > 0 and all(is_shallow(item, depth - 1) for item in items)

    with suppress(RecursionError):
        if is_shallow(value := parse(), limits.DEPTH):
            return value
    raise ValueError(f"lists or tables are nested too deeply, expected at most {limits.DEPTH} inside each other")
