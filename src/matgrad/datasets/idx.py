"""MNIST and Fashion-MNIST: IDX files of images and labels, gzipped or not."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import DataError, Dataset, check_labels
from matgrad.datasets.reading import existing_folder, read_up_to, reading

FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
           "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # fmt: skip


def mnist(folder: str | os.PathLike[str]) -> Dataset:
    """The four IDX files in a folder: images as rows of bytes 0 to 255, and classes 0 to 9.

    The files are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    `t10k-labels-idx1-ubyte`, or the same with `.idx3-ubyte` and `.idx1-ubyte`, or any of them with `.gz`.
    """
    return _dataset("mnist", folder, tuple("0123456789"))


def fashion_mnist(folder: str | os.PathLike[str]) -> Dataset:
    """Fashion-MNIST, whose files have the names and the format of MNIST's."""
    return _dataset("fashion-mnist", folder, FASHION)


def _dataset(name: str, folder: str | os.PathLike[str], class_names: tuple[str, ...]) -> Dataset:
    """The data set of the four files in a folder."""
    path = existing_folder(folder)
    files = [_find(path, f"{part}-{kind}") for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    Xtrain, Ttrain, Xtest, Ttest = (
        _read(file, dimensions) for file, dimensions in zip(files, (3, 1, 3, 1), strict=True)
    )
    for X, T, (images, labels) in ((Xtrain, Ttrain, files[:2]), (Xtest, Ttest, files[2:])):
        if len(X) != len(T):
            raise DataError(f"{images} has {len(X)} images and {labels} has {len(T)} labels: expected equal numbers")
        check_labels(T, len(class_names), str(labels))
    if Xtrain.shape[1:] != Xtest.shape[1:]:
        sizes = ["×".join(map(str, X.shape[1:])) for X in (Xtrain, Xtest)]
        raise DataError(f"{files[0]} has images of {sizes[0]} and {files[2]} of {sizes[1]}: expected equal sizes")
    return Dataset.checked(
        name,
        Xtrain.reshape(len(Xtrain), -1),
        Ttrain,
        Xtest.reshape(len(Xtest), -1),
        Ttest,
        source=str(path),
        classes=len(class_names),
        class_names=class_names,
        value_range=(0, 255),
    )


def _find(folder: Path, stem: str) -> Path:
    """The file of a folder that has one of the accepted names, such as train-images-idx3-ubyte.gz."""
    dotted = stem.replace("-idx", ".idx")
    names = [f"{s}-ubyte{suffix}" for suffix in ("", ".gz") for s in (stem, dotted)]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: no file {names[0]}; expected it, or {', '.join(names[1:-1])} or {names[-1]}")


def _read(path: Path, dimensions: int) -> np.ndarray:
    """The array of unsigned bytes in an IDX file: magic number, sizes (big-endian), bytes."""
    with reading(path) as file:
        header = read_up_to(file, 4 + 4 * dimensions)
        if len(header) < 4 + 4 * dimensions:
            raise DataError(f"{path}: found {len(header)} bytes, expected a header of {4 + 4 * dimensions}")
        magic, *shape = struct.unpack(f">{1 + dimensions}I", header)
        if magic != 0x800 + dimensions:
            raise DataError(f"{path}: found the magic number {magic}, expected {0x800 + dimensions}")
        if 0 in shape:
            raise DataError(f"{path}: found the size {'×'.join(map(str, shape))}, expected no zero")
        count = int(np.prod(shape, dtype=object))
        content = read_up_to(file, count + 1)
    if len(content) != count:
        found = f"only {len(content)}" if len(content) < count else "more"
        raise DataError(f"{path}: found {found} bytes after the header, expected {count} ({'×'.join(map(str, shape))})")
    return np.frombuffer(content, np.uint8).reshape(shape)
