"""Reading files of data, compressed or not, with errors that name the file."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import IO

from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_bytes, file_limit

CHUNK = 1 << 20


def opened(path: Path, *, is_text: bool = False) -> IO[bytes]:
    """The content of a file; if it begins as gzip and xz files do, it is decompressed into memory."""
    limit = file_limit(path, is_text=is_text)
    with naming(path):
        file = path.open("rb")
        start = file.peek(6)
        if not start.startswith((b"\x1f\x8b", b"\xfd7zXZ\0")):
            return file
        with file, _decompressing(file, start) as compressed:
            content = io.BytesIO()
            while part := compressed.read(CHUNK):
                content.write(part)
                check_bytes(content.tell(), "its content", limit)
        content.seek(0)
        return content


def _decompressing(file: IO[bytes], start: bytes) -> IO[bytes]:
    if start.startswith(b"\x1f"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    import lzma  # which some builds of Python lack

    return lzma.LZMAFile(file)


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder as a path, after a check that it is one."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{path}: {'found a file, expected a folder' if path.exists() else 'no such folder'}")
    return path
