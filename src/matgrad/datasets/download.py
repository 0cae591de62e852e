"""Downloads of MNIST, Fashion-MNIST and CIFAR-10: resumed after an interruption, and verified."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

from matgrad.datasets.dataset import DataError
from matgrad.foundation.writing import replaceable

CHUNK = 1 << 16
LIMIT = 1 << 30  # bytes in one file: the largest has 170 million
PAUSE = 1.0  # seconds before the second attempt, twice as many before the third, …
RETRIED = (408, 425, 429)  # client errors after which to try again, as after all server errors

Progress = Callable[[int, int | None, str], None]


@dataclass(frozen=True)
class Source:
    """Where a data set can be downloaded, and the MD5 checksum of each of its files."""

    mirrors: tuple[str, ...]
    files: dict[str, str]


SOURCES = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Source(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",),
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
}


class _Failure(Exception):
    """An attempt that failed; `final` if another one at the same mirror would fail as well."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


def get(
    name: str,
    directory: str | os.PathLike[str],
    *,
    mirrors: Sequence[str] | None = None,
    progress: Progress | None = None,
    timeout: float = 30,
    retries: int = 3,
) -> list[Path]:
    """Fetch the files of mnist, fashion-mnist or cifar10 into a folder, and return their paths.

    Files that exist with the right checksum are not fetched again. The mirrors (addresses that end with /)
    are tried in order, each once and then up to `retries` times more; an attempt ends when nothing has been
    received for `timeout` seconds, and the next one continues after the bytes in `FILE.part`. A file gets its
    name when its checksum is right. ``progress(done, total, filename)`` reports bytes; the total may be None.
    """
    if name not in SOURCES:
        raise DataError(f"unknown data set {name!r}; known: {', '.join(SOURCES)}")
    addresses = SOURCES[name].mirrors if mirrors is None else tuple(mirrors)
    wrong = [address for address in addresses if not address.startswith(("http://", "https://"))]
    if wrong or not addresses:
        raise DataError(f"mirrors: found {wrong[0] if wrong else 'none'}, expected addresses with http:// or https://")
    folder = Path(directory)
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _fetch(folder / file, md5, addresses, progress, timeout, retries)
            for file, md5 in SOURCES[name].files.items()
        ]
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be written ({error.strerror or error})") from error
    finally:
        if is_new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _fetch(
    path: Path, md5: str, mirrors: tuple[str, ...], progress: Progress | None, timeout: float, retries: int
) -> Path:
    """One file, from the first mirror that has it with the right checksum."""
    report = progress if progress is not None else lambda done, total, file: None
    if path.is_file() and _md5(path) == md5:
        report(path.stat().st_size, path.stat().st_size, path.name)
        return path
    place = replaceable(path)
    part = replaceable(place.with_name(f"{place.name}.part"))
    reasons = []
    for mirror in mirrors:
        url = urljoin(mirror if mirror.endswith("/") else f"{mirror}/", path.name)
        for attempt in range(retries + 1):
            try:
                _attempt(url, part, md5, report, timeout)
            except _Failure as failure:
                reason, final = str(failure), failure.final
            else:
                os.replace(part, place)
                return path
            if final or attempt == retries:
                reasons.append(f"{url}: {reason}")
                break
            time.sleep(PAUSE * 2**attempt)
    raise DataError(f"{path.name} could not be fetched: {'; '.join(reasons)}")


def _attempt(url: str, part: Path, md5: str, report: Progress, timeout: float) -> None:
    """Complete the part, and check the file; if it is wrong, it is deleted."""
    start = part.stat().st_size if part.exists() else 0
    resumed = _receive(url, part, start, report, timeout)
    found = _md5(part)
    if found != md5:
        part.unlink()
        # what was resumed may have been wrong from the start, so the same mirror gets another chance
        raise _Failure(f"wrong checksum: found MD5 {found}, expected {md5}; what was received is deleted", not resumed)


def _receive(url: str, part: Path, start: int, report: Progress, timeout: float) -> bool:
    """Receive the file into the part; returns whether the server resumed it after its first `start` bytes."""
    name = part.name.removesuffix(".part")
    headers = {"User-Agent": "matgrad", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        response = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing follows the part: it is complete, or wrong
            return True
        final = 400 <= error.code < 500 and error.code not in RETRIED
        raise _Failure(f"the server answers {error.code} {error.reason}", final) from error
    except (OSError, HTTPException, ValueError) as error:
        raise _Failure(_reason(error, timeout)) from error
    with response:
        resumed = response.status == 206
        if resumed and not _begins_at(response.headers.get("Content-Range"), start):
            part.unlink()
            raise _Failure(f"the server sends {response.headers.get('Content-Range')!r}, expected bytes from {start}")
        done = start if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        with part.open("ab" if resumed else "wb") as file:
            while chunk := _read(response, timeout):
                file.write(chunk)
                done += len(chunk)
                report(done, total, name)
                if done > LIMIT:
                    break
    if done > LIMIT:
        part.unlink()
        raise _Failure(f"more than {LIMIT} bytes; what was received is deleted", final=True)
    if total is not None and done < total:
        raise _Failure(f"the connection ended after {done} of {total} bytes")
    return resumed


def _read(response: HTTPResponse, timeout: float) -> bytes:
    """The next bytes of a response, as soon as some have arrived; none at its end."""
    try:
        return response.read1(CHUNK)
    except (OSError, HTTPException, ValueError) as error:
        raise _Failure(_reason(error, timeout)) from error


def _begins_at(content_range: str | None, start: int) -> bool:
    """Whether a Content-Range such as `bytes 100-199/200` begins at `start`."""
    match = re.match(r"bytes (\d+)-", content_range or "")
    return match is not None and int(match[1]) == start


def _reason(error: Exception, timeout: float) -> str:
    """Why a connection failed."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"nothing received for {timeout:g} s"
    return f"{cause}" or type(cause).__name__


def _md5(path: Path) -> str:
    """The MD5 checksum of a file, which detects damage and is what the publishers provide."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
