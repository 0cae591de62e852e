"""MNIST and Fashion-MNIST in IDX files, and CIFAR-10 in its binary version, compressed or not."""

from __future__ import annotations

import math
import os
import struct
import tarfile
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import Dataset
from matgrad.foundation.files import existing_folder, naming, opened
from matgrad.foundation.limits import MEMBERS, check_bytes, check_count, file_limit

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
           "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # fmt: skip
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

RECORD = 1 + 3 * 32 * 32  # bytes of an image of CIFAR-10: its label, then its pixels by channel, row and column
BATCHES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
Batch = tuple[np.ndarray, np.ndarray]  # N×3072 pixels and N labels, unsigned bytes
FOLDER, ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"


def mnist(folder: str | os.PathLike[str]) -> Dataset:
    """The four IDX files in a folder: images as rows of bytes 0 to 255, and classes 0 to 9.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, or the same with `.idx3-ubyte` and `.idx1-ubyte`, or any of them with `.gz`.
    """
    return _dataset("mnist", folder, _idx_arrays(folder), tuple("0123456789"))


def fashion_mnist(folder: str | os.PathLike[str]) -> Dataset:
    """Fashion-MNIST, whose files have the names and the format of MNIST's."""
    return _dataset("fashion-mnist", folder, _idx_arrays(folder), FASHION)


def cifar10(path: str | os.PathLike[str]) -> Dataset:
    """CIFAR-10: images as rows of 3072 bytes 0 to 255 (channel, row, column), and classes 0 to 9.

    `path` is the archive `cifar-10-binary.tar.gz`, or a folder with it, or with the batches `data_batch_1.bin` to
    `data_batch_5.bin` and `test_batch.bin`, each as it is, or `.xz`, or `.gz`, there or in `cifar-10-batches-bin`.
    """
    path = Path(path)
    batches = _from_archive(path) if path.is_file() else _from_folder(existing_folder(path))
    if missing := [name for name in BATCHES if name not in batches]:
        expected = f"{BATCHES[0]} to {BATCHES[4]} and {BATCHES[5]} (or .xz, .gz) or {ARCHIVE}: its binary version"
        raise ValueError(f"{path}: no {', '.join(missing)}; expected {expected}")
    *train, test = (batches[name] for name in BATCHES)
    return _dataset("cifar10", path, [*map(np.concatenate, zip(*train, strict=True)), *test], CIFAR10)


def _dataset(name: str, source: str | os.PathLike[str], arrays: list[np.ndarray], classes: tuple[str, ...]) -> Dataset:
    """The data set of Xtrain, Ttrain, Xtest and Ttest from a file or folder."""
    return Dataset.checked(
        name, *arrays, source=str(source), classes=len(classes), class_names=classes, value_range=(0, 255)
    )


def _idx_arrays(folder: str | os.PathLike[str]) -> list[np.ndarray]:
    """The images and labels for training, and those for testing, one row per example."""
    path, kinds = existing_folder(folder), (("images-idx3", 3), ("labels-idx1", 1))
    return [_read_idx(path, f"{part}-{kind}", dimensions) for part in ("train", "t10k") for kind, dimensions in kinds]


def _read_idx(folder: Path, stem: str, dimensions: int) -> np.ndarray:
    """The rows of unsigned bytes in an IDX file: magic number, sizes (big-endian), bytes."""
    names = [f"{s}-ubyte{suffix}" for suffix in ("", ".gz") for s in (stem, stem.replace("-idx", ".idx"))]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ValueError(f"{folder}: no file {names[0]}; expected it, or {', '.join(names[1:-1])} or {names[-1]}")
    with opened(path) as file:
        content = file.read()
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"{path}: found {len(content)} bytes, expected a header of {start}")
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
    if magic != 0x800 + dimensions:
        raise ValueError(f"{path}: found the magic number {magic}, expected {0x800 + dimensions}")
    if len(content) - start != (count := math.prod(shape)):
        expected = f"{count} ({'×'.join(map(str, shape))})"
        raise ValueError(f"{path}: found {len(content) - start} bytes after the header, expected {expected}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape[0], math.prod(shape[1:]))


# -- CIFAR-10 -------------------------------------------------------------------------------------
def _from_folder(folder: Path) -> dict[str, Batch]:
    """The batches in a folder, in its subfolder, or in the archive in it."""
    found = {}
    for name in BATCHES:
        files = (place / f"{name}{suffix}" for place in (folder, folder / FOLDER) for suffix in ("", ".xz", ".gz"))
        if file := next((file for file in files if file.is_file()), None):
            with opened(file) as content:
                found[name] = _records(content.read(), str(file))
    return _from_archive(folder / ARCHIVE) if not found and (folder / ARCHIVE).is_file() else found


def _from_archive(path: Path) -> dict[str, Batch]:
    """The batches in a tar file, which is read once, from beginning to end; nothing is unpacked to disk."""
    found = {}
    with (
        opened(path) as content,
        naming(path, kind="a tar archive"),
        tarfile.open(fileobj=content, mode="r|") as archive,
    ):
        for count, member in enumerate(archive, start=1):
            check_count(count, MEMBERS, "the archive", "files or more")
            name = Path(member.name).name
            if name in BATCHES and (file := archive.extractfile(member)) is not None:
                check_bytes(member.size, member.name, file_limit(path))  # a sparse file has holes
                found[name] = _records(file.read(), member.name)
    return found


def _records(content: bytes, where: str) -> Batch:
    """The records of a batch, each of which has 1 byte for the label and 3072 for the pixels."""
    if not content or len(content) % RECORD:
        expected = f"a multiple of {RECORD} (1 label, {RECORD - 1} pixels)"
        raise ValueError(f"{where}: found {len(content)} bytes, expected {expected}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]
