"""IDX files: hand-made ones in every spelling, damaged ones, and the real MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError, fashion_mnist, mnist
from support import DATA, assert_close, read_idx

RNG = np.random.default_rng(0)
IMAGES, TEST_IMAGES = (
    RNG.integers(256, size=(7, 3, 5), dtype=np.uint8),
    RNG.integers(256, size=(4, 3, 5), dtype=np.uint8),
)
LABELS, TEST_LABELS = np.arange(7, dtype=np.uint8), np.array([9, 0, 3, 3], dtype=np.uint8)
TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"


def idx(A: np.ndarray) -> bytes:
    return struct.pack(f">{1 + A.ndim}I", 0x800 + A.ndim, *A.shape) + A.tobytes()


def write(folder: Path, dotted: bool = False, gz: bool = False) -> Path:
    for part, images, labels in (("train", IMAGES, LABELS), ("t10k", TEST_IMAGES, TEST_LABELS)):
        for kind, A in (("images", images), ("labels", labels)):
            name = f"{part}-{kind}{'.' if dotted else '-'}idx{A.ndim}-ubyte{'.gz' if gz else ''}"
            (folder / name).write_bytes(gzip.compress(idx(A)) if gz else idx(A))
    return folder


@pytest.mark.parametrize("reader", [mnist, fashion_mnist])
@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
def test_all_spellings_are_read(tmp_path: Path, dotted: bool, gz: bool, reader):
    data = reader(str(write(tmp_path, dotted, gz)))

    assert_close(data.Xtrain, IMAGES.reshape(7, 15).astype(np.float32), tolerance=0.0)
    assert_close(data.Xtest, TEST_IMAGES.reshape(4, 15).astype(np.float32), tolerance=0.0)
    assert (data.Ttrain.tolist(), data.Ttest.tolist()) == (LABELS.tolist(), TEST_LABELS.tolist())
    assert (data.name, data.classes) == (reader.__name__.replace("_", "-"), 10)
    assert len(data.class_names) == 10
    assert_close(data.normalize("unit").Xtest, (data.Xtest / 255).astype(np.float32), tolerance=1e-7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (TRAIN, None, "no file train-images-idx3-ubyte; expected it, or train-images.idx3-ubyte, .*.gz"),
        (TRAIN, b"", "train-images-idx3-ubyte: found 0 bytes, expected a header of 16"),
        (TRAIN, idx(IMAGES)[:10], "found 10 bytes, expected a header of 16"),
        (TRAIN, idx(IMAGES)[:-1], "found only 104 bytes after the header, expected 105"),
        (TRAIN, idx(IMAGES) + b"\0", "found more bytes after the header, expected 105"),
        (TRAIN, idx(LABELS) + bytes(20), "found the magic number 2049, expected 2051"),
        (TRAIN, b"PK\3\4" + bytes(20), "found the magic number 1347093252, expected 2051"),
        (TRAIN, struct.pack(">4I", 2051, 7, 0, 5), "found the size 7×0×5, expected no zero"),
        (TRAIN, struct.pack(">4I", 2051, *[2**32 - 1] * 3) + b"xyz", "found only 3 bytes after the header"),
        (TRAIN, idx(IMAGES[:6]), "has 6 images and .*train-labels-idx1-ubyte has 7 labels: expected equal numbers"),
        (TRAIN, gzip.compress(idx(IMAGES))[:-12], "train-images-idx3-ubyte: the compressed content ends too early"),
        (TRAIN, gzip.compress(idx(IMAGES))[:-8] + bytes(8), "the compressed content is damaged"),
        (TRAIN, b"\x1f\x8b" + bytes(30), "the compressed content is damaged"),
        (TEST, idx(TEST_IMAGES[:, 1:]), "has images of 3×5 and .*t10k-images-idx3-ubyte of 2×5: expected equal sizes"),
        ("t10k-labels-idx1-ubyte", idx(np.array([1, 2, 10, 3], np.uint8)), "idx1-ubyte: label 10 in row 2: .* 0 to 9"),
        ("train-labels-idx1-ubyte", idx(IMAGES), "found the magic number 2051, expected 2049"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str):
    write(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        mnist(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="nowhere: no such folder"):
        mnist(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file: found a file, expected a folder"):
        mnist(tmp_path / "file")


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_the_real_mnist():
    data = mnist(DATA / "mnist")

    assert (data.Xtrain.shape, data.Xtest.shape) == ((60000, 784), (10000, 784))
    expected = read_idx(DATA / "mnist" / "t10k-images-idx3-ubyte.gz").reshape(10000, 784)
    np.testing.assert_array_equal(data.Xtest, expected)
    # the counts of the classes and the mean and deviation of the pixels, as published
    assert np.bincount(data.Ttrain).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert (data.Xtrain.mean(dtype=float) / 255, data.Xtrain.std(dtype=float) / 255) == pytest.approx(
        (0.1307, 0.3081), abs=5e-5
    )
