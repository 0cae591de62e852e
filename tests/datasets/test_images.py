"""Images: hand-made files of MNIST and CIFAR-10 in every form, damaged ones, and real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError, cifar10, fashion_mnist, mnist
from support import DATA, assert_close, read_idx

RNG = np.random.default_rng(0)
IMAGES, TEST_IMAGES = (
    RNG.integers(256, size=(7, 3, 5), dtype=np.uint8),
    RNG.integers(256, size=(4, 3, 5), dtype=np.uint8),
)
CLASSES, TEST_LABELS = np.arange(7, dtype=np.uint8), np.array([9, 0, 3, 3], dtype=np.uint8)
TRAIN = "train-images-idx3-ubyte"


def idx(A: np.ndarray) -> bytes:
    return struct.pack(f">{1 + A.ndim}I", 0x800 + A.ndim, *A.shape) + A.tobytes()


def write_idx(folder: Path, dotted: bool = False, gz: bool = False) -> Path:
    for part, images, labels in (("train", IMAGES, CLASSES), ("t10k", TEST_IMAGES, TEST_LABELS)):
        for kind, A in (("images", images), ("labels", labels)):
            name = f"{part}-{kind}{'.' if dotted else '-'}idx{A.ndim}-ubyte{'.gz' if gz else ''}"
            (folder / name).write_bytes(gzip.compress(idx(A)) if gz else idx(A))
    return folder


@pytest.mark.parametrize("reader", [mnist, fashion_mnist])
@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
def test_all_spellings_are_read(tmp_path: Path, dotted: bool, gz: bool, reader):
    data = reader(str(write_idx(tmp_path, dotted, gz)))

    assert_close(data.Xtrain, IMAGES.reshape(7, 15).astype(np.float32), tolerance=0.0)
    assert_close(data.Xtest, TEST_IMAGES.reshape(4, 15).astype(np.float32), tolerance=0.0)
    assert (data.Ttrain.tolist(), data.Ttest.tolist()) == (CLASSES.tolist(), TEST_LABELS.tolist())
    assert (data.name, data.classes) == (reader.__name__.replace("_", "-"), 10)
    assert len(data.class_names) == 10
    assert_close(data.normalize("unit").Xtest, (data.Xtest / 255).astype(np.float32), tolerance=1e-7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (TRAIN, None, "no file train-images-idx3-ubyte; expected it, or train-images.idx3-ubyte, .*.gz"),
        (TRAIN, idx(IMAGES)[:10], "found 10 bytes, expected a header of 16"),
        (TRAIN, idx(IMAGES)[:-1], "found 104 bytes after the header, expected 105"),
        (TRAIN, idx(IMAGES) + b"\0", "found 106 bytes after the header, expected 105"),
        (TRAIN, idx(CLASSES) + bytes(20), "found the magic number 2049, expected 2051"),
        (
            TRAIN,
            struct.pack(">4I", 2051, 7, 0, 5),
            r"Xtrain: expected a matrix with at least one row, found shape \(7, 0\)",
        ),
        (TRAIN, struct.pack(">4I", 2051, *[2**32 - 1] * 3) + b"xyz", "found 3 bytes after the header"),
        (TRAIN, idx(IMAGES[:6]), "Xtrain has 6 rows and .*Ttrain has 7"),
        (
            TRAIN,
            gzip.compress(idx(IMAGES))[:-12],
            r"train-images-idx3-ubyte: not .*or a damaged one \(EOFError: Compressed file ended",
        ),
        (TRAIN, gzip.compress(idx(IMAGES))[:-8] + bytes(8), r"cannot be read \(CRC check failed"),
        ("t10k-labels-idx1-ubyte", idx(np.array([1, 2, 10, 3], np.uint8)), "Ttest: label 10 in row 2: .* 0 to 9"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str):
    write_idx(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        mnist(tmp_path)
    assert str(tmp_path) in str(error.value)


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


# -- CIFAR-10 ----------------------------------------------------------------------------------

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
PIXELS = {name: RNG.integers(256, size=(2, 3072), dtype=np.uint8) for name in NAMES}
LABELS = {name: [i, 9 - i] for i, name in enumerate(NAMES)}


def binary(name: str) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(LABELS[name], PIXELS[name], strict=True))


BINARY = {f"{name}.bin": binary(name) for name in NAMES}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def archive(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, content in reversed(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def inside(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/readme.html": b"<html>"} | {f"{folder}/{name}": content for name, content in files.items()}


FORMS = {
    "plain": lambda path: write(path, BINARY),
    "xz": lambda path: write(path, {f"{name}.xz": lzma.compress(content) for name, content in BINARY.items()}),
    "gz": lambda path: write(path, {f"{name}.gz": gzip.compress(content) for name, content in BINARY.items()}),
    "subfolder": lambda path: write(path / "cifar-10-batches-bin", BINARY).parent,
    "archive": lambda path: archive(path / "any.tar.gz", inside("cifar-10-batches-bin", BINARY)),
    "tar": lambda path: archive(path / "any.tar", BINARY, "w"),
    "archive in folder": lambda path: archive(path / "cifar-10-binary.tar.gz", inside("a", BINARY)).parent,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_data(tmp_path: Path, form: str):
    data = cifar10(str(FORMS[form](tmp_path)))

    assert_close(data.Xtrain, np.concatenate([PIXELS[name] for name in NAMES[:5]]).astype(np.float32), tolerance=0.0)
    assert_close(data.Xtest, PIXELS["test_batch"].astype(np.float32), tolerance=0.0)
    assert data.Ttrain.tolist() == [label for name in NAMES[:5] for label in LABELS[name]]
    assert data.Ttest.tolist() == LABELS["test_batch"]
    assert (data.name, data.classes, data.class_names[0], data.class_names[9]) == ("cifar10", 10, "airplane", "truck")
    assert_close(data.normalize("unit").Xtest, PIXELS["test_batch"].astype(np.float32) / np.float32(255))


def only(files: dict[str, bytes], name: str, content: bytes | None) -> dict[str, bytes]:
    return {key: value for key, value in (files | {name: content}).items() if value is not None}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (only(BINARY, "data_batch_3.bin", None), "no data_batch_3.bin; expected data_batch_1.bin to data_batch_5.bin"),
        (only(BINARY, "test_batch.bin", binary("test_batch")[:-1]), "test_batch.bin: found 6145 bytes, expected a mul"),
        (
            only(BINARY, "data_batch_1.bin", bytes([0] * 3073 + [17] * 3073)),
            "Ttrain: label 17 in row 1: expected a cla",
        ),
        (
            only(BINARY, "test_batch.bin", lzma.compress(BINARY["test_batch.bin"])[:-30]),
            r"or a damaged one \(EOFError: Compressed file ended",
        ),
        (
            only(BINARY, "test_batch.bin", lzma.compress(b"")[:6] + bytes(99)),
            r"or a damaged one \(LZMAError: Corrupt input data",
        ),
        ({"data_batch_1": b"\x80\x03", "test_batch": b""}, "expected .*cifar-10-binary.tar.gz: its binary version"),
    ],
)
def test_bad_batches_are_refused(tmp_path: Path, files: dict[str, bytes], message: str):
    with pytest.raises(DataError, match=message) as error:
        cifar10(write(tmp_path, files))
    assert str(tmp_path) in str(error.value)


def test_bad_archives_are_refused(tmp_path: Path):
    path = archive(tmp_path / "a.tar.gz", inside("x", BINARY))
    content = path.read_bytes()
    for damaged, message in (
        (b"", "not a tar archive, or a damaged one"),
        (b"no archive" * 100, "not a tar archive, or a damaged one"),
        (content[: len(content) // 2], "a damaged one"),
        (content[:500] + bytes(500) + content[1000:], "cannot be read|a damaged one"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"a.tar.gz: .*({message})"):
            cifar10(path)
    archive(path, only(BINARY, "test_batch.bin", None))
    with pytest.raises(DataError, match=r"a.tar.gz: no test_batch.bin; expected"):
        cifar10(path)
    archive(path, only(BINARY, "test_batch.bin", b"123"))
    with pytest.raises(DataError, match=r"a.tar.gz: test_batch.bin: found 3 bytes"):
        cifar10(path)
    with pytest.raises(DataError, match="nowhere: no such folder"):
        cifar10(tmp_path / "nowhere")


@pytest.mark.skipif(
    not (DATA / "cifar10").is_dir(), reason="no CIFAR-10: set MATGRAD_DATA to a folder with cifar10/*.xz"
)
def test_a_real_batch(tmp_path: Path):
    content = lzma.decompress((DATA / "cifar10" / "data_batch_1.bin.xz").read_bytes())
    assert hashlib.md5(content).hexdigest() == "5dd7e06a14cb22eb9f671a540d1b7c25"
    write(tmp_path, BINARY)
    (tmp_path / "test_batch.bin").write_bytes(content)

    data = cifar10(tmp_path)

    assert data.Xtest.shape == (10000, 3072)
    # the first image is a frog
    assert np.bincount(data.Ttest).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert data.class_names[data.Ttest[0]] == "frog"
    assert data.Xtest[0, :5].tolist() == [59, 43, 50, 68, 98]
    assert bytes(data.Xtest[9999].astype(np.uint8)) == content[-3072:]
