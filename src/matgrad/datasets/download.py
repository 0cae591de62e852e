"""Downloads of MNIST, Fashion-MNIST and CIFAR-10: resumed after an interruption, and verified."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from matgrad.foundation.files import existing_folder
from matgrad.specifications.parsing import lookup

CHUNK = 1 << 16
PAUSE = 1.0  # seconds before the second attempt, twice as many before the third, …

Progress = Callable[[int, int | None, str], None]


class Source(NamedTuple):
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

    Files that exist with the right checksum are not fetched again. The mirrors are tried in order, each once and
    then up to `retries` times more; an attempt ends when nothing has been received for `timeout` seconds, and the
    next one continues after the bytes in `FILE.part`. A file gets its name when its checksum is right.
    ``progress(done, total, filename)`` reports bytes; the total may be None.
    """
    source = lookup(name, SOURCES, "data set")
    folder, report = Path(directory), progress or (lambda done, total, file: None)
    if folder.exists():
        existing_folder(folder)
    addresses = source.mirrors if mirrors is None else mirrors
    return [_fetch(folder / file, md5, addresses, report, timeout, retries) for file, md5 in source.files.items()]


def _fetch(path: Path, md5: str, mirrors: Sequence[str], report: Progress, timeout: float, retries: int) -> Path:
    """One file, from the first mirror that has it with the right checksum."""
    if path.is_file() and _md5(path) == md5:
        report(path.stat().st_size, path.stat().st_size, path.name)
        return path
    part, reasons = path.with_name(f"{path.name}.part"), []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{path.name}"
        for attempt in range(retries + 1):
            try:
                is_resumed = _receive(url, part, report, timeout)
                if (found := _md5(part)) == md5:
                    return part.replace(path)
                part.unlink()
                reason = f"wrong checksum: found MD5 {found}, expected {md5}; what was received is deleted"
                is_final = not is_resumed  # what was resumed may have been wrong from the start
            except (OSError, HTTPException, ValueError) as error:
                code = getattr(error, "code", None)
                if code == 416:  # nothing follows the part
                    part.unlink(missing_ok=True)
                reason, is_final = f"{error}", code in range(400, 500) and code not in (416, 429)  # too many requests
            if is_final or attempt == retries:
                break
            time.sleep(PAUSE * 2**attempt)
        reasons.append(f"{url}: {reason}")
    raise ValueError(f"{path.name} could not be fetched: {'; '.join(reasons)}")


def _receive(url: str, part: Path, report: Progress, timeout: float) -> bool:
    """Receive the file into the part; returns whether the server resumed it after the bytes that were there."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "matgrad"} | ({"Range": f"bytes={start}-"} if start else {})
    with urlopen(Request(url, headers=headers), timeout=timeout) as response:
        is_resumed = response.status == 206
        done, length = start if is_resumed else 0, response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab" if is_resumed else "wb") as file:
            while chunk := response.read1(CHUNK):
                file.write(chunk)
                done += len(chunk)
                report(done, total, part.name.removesuffix(".part"))
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    return is_resumed


def _md5(path: Path) -> str:
    """The MD5 checksum of a file, which detects damage and is what the publishers provide."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
