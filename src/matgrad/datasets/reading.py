"""Reading files, compressed or not, with errors that name the file."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from matgrad.datasets.dataset import DataError

try:
    import lzma
except ImportError:  # some builds of Python lack it
    lzma = None  # type: ignore[assignment]

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"  # the first bytes of a compressed file
CHUNK = 1 << 20
_DAMAGED = (gzip.BadGzipFile, zlib.error, *(() if lzma is None else (lzma.LZMAError,)))


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file; gzip and xz are recognized by their first bytes and decompressed.

    Errors in opening and reading it become a DataError that names the file.
    """
    with file_errors(path), path.open("rb") as file:
        start = file.read(len(XZ))
        file.seek(0)
        if start.startswith(GZIP):
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield cast(IO[bytes], unzipped)
        elif start == XZ:
            with _xz(file) as unzipped:
                yield unzipped
        else:
            yield file


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn the errors of opening and reading a file into a DataError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: found a folder, expected a file") from error
    except EOFError as error:
        raise DataError(f"{path}: the compressed content ends too early") from error
    except _DAMAGED as error:
        raise DataError(f"{path}: the compressed content is damaged ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def read_up_to(file: IO[bytes], count: int) -> bytes:
    """The next `count` bytes, or all that are left; memory grows with what is read, not with `count`."""
    parts = []
    while count > 0 and (part := file.read(min(count, CHUNK))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path, after a check that it is one."""
    path = Path(folder)
    if not path.is_dir():
        raise DataError(f"{path}: {'found a file, expected a folder' if path.exists() else 'no such folder'}")
    return path


def _xz(file: IO[bytes]) -> IO[bytes]:
    """The decompressed content of an xz file."""
    if lzma is None:
        raise DataError(f"{file.name}: this Python has no lzma module for xz files")
    return cast(IO[bytes], lzma.LZMAFile(file))
