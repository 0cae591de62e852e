"""Files that are written whole or not at all, and npz files that are read without pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that gets its name `path` only when the block ends without an exception."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only the owner can read
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays in an npz file; one of pickled objects is refused."""
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                raise ValueError("a single array")
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: found a folder, expected a file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = "an array of objects, pickled" if "allow_pickle" in str(error) else error
        raise ValueError(f"{path}: expected an npz file of plain arrays, found something else ({reason})") from None


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON."""
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
