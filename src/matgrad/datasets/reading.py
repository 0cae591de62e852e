"""Reading files, compressed or not, with errors that name the file."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from matgrad.datasets.dataset import DataError
from matgrad.foundation.files import why_unreadable
from matgrad.foundation.limits import HINT, file_limit, in_words

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"  # the first bytes of a compressed file
CHUNK = 1 << 20


@contextmanager
def reading(path: Path, *, is_text: bool = False) -> Iterator[IO[bytes]]:
    """The content of a file; gzip and xz are recognized by their first bytes and decompressed.

    Errors in opening and reading it become a DataError that names the file.
    """
    limit = file_limit(path, is_text=is_text)
    damaged: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
    try:
        with path.open("rb") as file:
            start = file.read(len(XZ))
            file.seek(0)
            if start.startswith(GZIP):
                yield _limited(gzip.GzipFile(fileobj=file), path, limit)
            elif start == XZ:
                import lzma  # which some builds of Python lack

                damaged += (lzma.LZMAError,)
                with lzma.LZMAFile(file) as content:
                    yield _limited(content, path, limit)
            else:
                yield file
    except EOFError as error:
        raise DataError(f"{path}: the compressed content ends too early") from error
    except damaged as error:
        raise DataError(f"{path}: the compressed content is damaged ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: {why_unreadable(error)}") from error


def read_up_to(file: IO[bytes], count: int) -> bytes:
    """The next `count` bytes, or all that are left; memory grows with what is read, not with `count`."""
    parts = []
    while count > 0 and (part := file.read(min(count, CHUNK))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class _Limited(io.RawIOBase):
    """The bytes of a decompressed file, as long as they are not too many for its compressed size."""

    def __init__(self, file: IO[bytes], path: Path, limit: int) -> None:
        self.file, self.path, self.count, self.limit = file, path, 0, limit

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer."""
        part = self.file.read(min(len(buffer), CHUNK))
        self.count += len(part)
        if self.count > self.limit:
            raise DataError(f"{self.path}: becomes more than {in_words(self.limit)}; {HINT}")
        buffer[: len(part)] = part
        return len(part)


def _limited(file: Any, path: Path, limit: int) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Limited(file, path, limit), CHUNK))


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path, after a check that it is one."""
    path = Path(folder)
    if not path.is_dir():
        raise DataError(f"{path}: {'found a file, expected a folder' if path.exists() else 'no such folder'}")
    return path
