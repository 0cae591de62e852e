"""Files that are written completely or not at all, where a symbolic link points and with the mode that was there."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from matgrad.foundation.files import as_json

try:
    import fcntl
except ImportError:  # on Windows, where a file that is open cannot be deleted anyway
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears at `path` only when the block ends without an exception.

    A symbolic link stays, and what it points to is replaced. A file that is replaced passes on its mode and owner.
    What killed writes have left at this place is removed.
    """
    place = replaceable(path)
    try:
        temporary, file = _open_temporary(place)
    except OSError as error:  # which names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if place.exists():
                _take_over(temporary, place.stat())
            if fcntl is None:
                file.close()
            os.replace(temporary, place)  # while it is locked
            _keep_name(place.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replaceable(path: str | Path) -> Path:
    """Where a file called `path` is written, behind symbolic links; an OSError if something else must stay there."""
    place = Path(os.path.realpath(path))
    try:
        found = place.stat()
    except FileNotFoundError:
        return place
    if stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, "expected a file, found a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "expected a file, found a device, a pipe or a socket", str(path))
    if not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    folder = place.parent.stat()
    if folder.st_mode & stat.S_ISVTX and os.geteuid() not in (0, found.st_uid, folder.st_uid):
        raise PermissionError(errno.EPERM, "it is another user's, in a folder with the sticky bit", str(path))
    return place


def make_folder(path: Path) -> None:
    """Make a folder, where a symbolic link points, unless it exists."""
    Path(os.path.realpath(path)).mkdir(exist_ok=True)


def lock_folder(folder: Path) -> int:
    """An open handle that keeps a folder for this process, until it is closed or the process ends; else an OSError.

    What killed writes have left in the folder is removed.
    """
    if fcntl is None:
        return os.open(os.devnull, os.O_RDONLY)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # this file system has no locks
        pass
    _remove_leftovers(folder, PREFIX)
    return handle


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as JSON."""
    with atomic_write(path) as file:
        file.write((as_json(value) + "\n").encode())


def write_or_rescue(path: Path, write: Callable[[Path], object]) -> str | None:
    """Call write(path) or, if it fails, write a new file nearby; the error and where the file is, None if all is well.

    Nearby is the same folder, then the working directory, then the folder for temporary files.
    """
    try:
        write(path)
        return None
    except (OSError, ValueError) as error:  # a ValueError where the reason is told in other words
        reason = getattr(error, "strerror", None) or str(error)
    message = reason if str(path) in reason else f"{path}: cannot be written ({reason})"
    name = f"{path.stem[:40]}-rescued-{secrets.token_hex(4)}{path.suffix[:20]}"  # that nobody else has thought of
    for folder_of in (lambda: path.parent, Path.cwd, lambda: Path(tempfile.gettempdir())):
        with suppress(OSError, ValueError):  # there may be no such folder any more
            place = folder_of() / name
            write(place)
            return f"{message}; it is in {place}"
    return f"{message}, nor in the folder, in the working directory or where temporary files are"


# -- temporary files ------------------------------------------------------------------------------


PREFIX = ".matgrad-"


def _open_temporary(place: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside `place`, locked while it is open; its name is short, whatever that of `place` is."""
    prefix = f"{PREFIX}{zlib.crc32(os.fsencode(place.name)):08x}-"  # the C++ core has the same
    _remove_leftovers(place.parent, prefix)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = place.parent / f"{prefix}{secrets.token_hex(4)}"
        # readable by others only as far as the file to be replaced is
        file = os.fdopen(os.open(temporary, flags, 0o600 if place.exists() else 0o666), "wb")
        _lock(file.fileno(), wait=True)
        if temporary.exists():  # not taken for a leftover before it was locked
            return temporary, file
        file.close()


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove the temporary files of processes that are gone: those that nobody holds locked."""
    try:
        leftovers = [path for path in folder.iterdir() if path.name.startswith(prefix)]
    except OSError:
        return
    for path in leftovers:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if _lock(handle, wait=False):
                    path.unlink()
            finally:
                os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Lock an open file, until it is closed or its process ends; whether that could be done."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # it is locked, or this file system has no locks
        return False
    return True


def _keep_name(folder: Path) -> None:
    """See to it that the name of a file that was renamed is still there after a power cut, where that can be done."""
    with suppress(OSError):  # a folder cannot be opened on Windows
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _take_over(path: Path, status: os.stat_result) -> None:
    """Give a file the owner, as far as that is allowed, and the mode of another."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(path, status.st_uid, status.st_gid)
    os.chmod(path, stat.S_IMODE(status.st_mode))
