"""CIFAR-10: the binary and the Python version, in a folder or in the archive as downloaded."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import DataError, Dataset, check_labels
from matgrad.datasets.reading import read_up_to, reading
from matgrad.datasets.restricted_pickle import restricted_load
from matgrad.foundation.limits import EXTENDED_HEADER, MEMBERS, check_count

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32  # channel, row, column
RECORD = 1 + PIXELS
LIMIT = 1 << 26  # bytes in one batch file: the real ones have 31 million

TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
BATCHES = (*TRAIN, "test_batch")
BINARY, PYTHON = ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"), ("cifar-10-batches-py", "cifar-10-python.tar.gz")

Batch = tuple[np.ndarray, np.ndarray]  # N×3072 pixels and N labels, unsigned bytes


def cifar10(path: str | os.PathLike[str]) -> Dataset:
    """CIFAR-10: images as rows of 3072 bytes 0 to 255 (channel, row, column), and classes 0 to 9.

    `path` is an archive, `cifar-10-binary.tar.gz` or `cifar-10-python.tar.gz`; or a folder with one of
    them, or with the batches `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin` (each as it
    is, or `.xz`, or `.gz`), or with the Python batches, there or in the subfolder of the archive's name.
    """
    path = Path(path)
    batches = _from_archive(path) if path.is_file() else _from_folder(path)
    X, T = (np.concatenate([batches[name][i] for name in TRAIN]) for i in (0, 1))
    return Dataset.checked(
        "cifar10",
        X,
        T,
        *batches["test_batch"],
        source=str(path),
        classes=len(CLASSES),
        class_names=CLASSES,
        value_range=(0, 255),
    )


def _from_folder(folder: Path) -> dict[str, Batch]:
    """The batches in a folder, in its subfolder, or in an archive in it."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such file or folder")
    for (subfolder, archive), suffixes, decode in (
        (BINARY, (".bin", ".bin.xz", ".bin.gz"), _decode_binary),
        (PYTHON, ("",), _decode_python),
    ):
        for place in (folder, folder / subfolder):
            found = {name: _find(place, name, suffixes) for name in BATCHES}
            if any(found.values()):
                return _read_files(place, found, decode)
        if (folder / archive).is_file():
            return _from_archive(folder / archive)
    raise DataError(
        f"{folder}: found no CIFAR-10, expected {BATCHES[0]}.bin to {TRAIN[-1]}.bin and test_batch.bin "
        f"(or .xz, .gz), a folder {BINARY[0]} or {PYTHON[0]}, {BINARY[1]} or {PYTHON[1]}"
    )


def _find(folder: Path, name: str, suffixes: tuple[str, ...]) -> Path | None:
    """The file of a batch with one of the suffixes."""
    paths = (folder / f"{name}{suffix}" for suffix in suffixes)
    return next((path for path in paths if path.is_file()), None)


def _read_files(folder: Path, found: dict[str, Path | None], decode: Callable[[bytes, str], Batch]) -> dict[str, Batch]:
    """The batches in the files that were found; none may be missing."""
    _check_complete(str(folder), [name for name, path in found.items() if path is not None])
    batches = {}
    for name, path in found.items():
        assert path is not None
        with reading(path) as file:
            content = read_up_to(file, LIMIT + 1)
        batches[name] = decode(content, str(path))
    return batches


def _from_archive(path: Path) -> dict[str, Batch]:
    """The batches in a tar file, which is read once, from beginning to end; nothing is unpacked to disk."""
    batches = {}
    try:
        with reading(path) as stream, tarfile.open(str(path), "r|", stream, tarinfo=_Member) as archive:
            for count, member in enumerate(archive, start=1):
                check_count(count, MEMBERS, str(path), "files or more")
                name = Path(member.name).name
                stem = name.removesuffix(".bin")
                file = archive.extractfile(member) if stem in BATCHES and member.isfile() else None
                if file is not None:
                    decode = _decode_binary if name.endswith(".bin") else _decode_python
                    batches[stem] = decode(read_up_to(file, LIMIT + 1), f"{path}: {member.name}")
    except (tarfile.TarError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(f"{path}: not a tar archive, or a damaged one ({reason})") from error
    _check_complete(str(path), list(batches))
    return batches


class _Member(tarfile.TarInfo):
    """A member of a tar file: neither it nor its name and other attributes are endless."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        largest = LIMIT if self.isreg() or self.isdir() else EXTENDED_HEADER
        if not 0 <= self.size <= largest:
            raise DataError(f"{archive.name!s}: {self.name}: found {self.size} bytes, expected at most {largest}")
        return super()._proc_member(archive)  # type: ignore[misc]


def _check_complete(where: str, found: list[str]) -> None:
    """Refuse an incomplete set of batches."""
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise DataError(f"{where}: no {', '.join(missing)}; expected data_batch_1 to data_batch_5 and test_batch")


def _decode_binary(content: bytes, where: str) -> Batch:
    """The records of a file of the binary version: each has 1 byte for the label and 3072 for the pixels."""
    _check_size(content, where)
    if not content or len(content) % RECORD:
        raise DataError(
            f"{where}: found {len(content)} bytes, expected a multiple of {RECORD} (1 label, {PIXELS} pixels)"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0]
    check_labels(labels, len(CLASSES), where)
    return records[:, 1:], labels


def _decode_python(content: bytes, where: str) -> Batch:
    """The data and labels of a file of the Python version."""
    _check_size(content, where)
    batch = restricted_load(io.BytesIO(content), where)
    if not isinstance(batch, dict):
        raise DataError(f"{where}: found a {type(batch).__name__}, expected a dictionary with data and labels")
    values = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    missing = [name for name in ("data", "labels") if name not in values]
    if missing:
        raise DataError(f"{where}: no {missing[0]!r}; found {', '.join(map(str, values)) or 'nothing'}")
    X, labels = values["data"], values["labels"]
    if not isinstance(X, np.ndarray) or X.dtype != np.uint8 or X.ndim != 2 or X.shape[1] != PIXELS:
        found = f"{X.dtype} of shape {X.shape}" if isinstance(X, np.ndarray) else type(X).__name__
        raise DataError(f"{where}: data: found {found}, expected uint8 with {PIXELS} columns")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{where}: labels: expected a list of integers")
    if len(labels) != len(X) or not labels:
        raise DataError(f"{where}: found {len(X)} images and {len(labels)} labels, expected equal numbers, at least 1")
    check_labels(np.array(labels, dtype=object), len(CLASSES), where)
    return X, np.array(labels, dtype=np.uint8)


def _check_size(content: bytes, where: str) -> None:
    """Refuse a file that is larger than any batch."""
    if len(content) > LIMIT:
        raise DataError(f"{where}: found more than {LIMIT} bytes, expected about {10000 * RECORD}")
