"""CIFAR-10: small hand-made batches in every form, damaged ones, and real batches."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError, cifar10
from support import DATA, assert_close

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
RNG = np.random.default_rng(0)
PIXELS = {name: RNG.integers(256, size=(2, 3072), dtype=np.uint8) for name in NAMES}
LABELS = {name: [i, 9 - i] for i, name in enumerate(NAMES)}


def binary(name: str) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(LABELS[name], PIXELS[name], strict=True))


def pickled(name: str, **changes) -> bytes:
    batch = {b"batch_label": b"x", b"data": PIXELS[name], b"labels": LABELS[name], b"filenames": [b"a.png", b"b.png"]}
    batch |= {key.encode(): value for key, value in changes.items()}
    return pickle.dumps(batch, protocol=3)


BINARY = {f"{name}.bin": binary(name) for name in NAMES}
PYTHON = {name: pickled(name) for name in NAMES}


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
    "python": lambda path: write(path, PYTHON),
    "python subfolder": lambda path: write(path / "cifar-10-batches-py", PYTHON).parent,
    "python archive": lambda path: archive(path / "any.tar.gz", inside("cifar-10-batches-py", PYTHON)),
    "python archive in folder": lambda path: archive(path / "cifar-10-python.tar.gz", inside("b", PYTHON)).parent,
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


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def only(files: dict[str, bytes], name: str, content: bytes | None) -> dict[str, bytes]:
    return {key: value for key, value in (files | {name: content}).items() if value is not None}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "found no CIFAR-10, expected data_batch_1.bin to data_batch_5.bin and test_batch.bin"),
        (only(BINARY, "data_batch_3.bin", None), "no data_batch_3; expected data_batch_1 to data_batch_5"),
        (only(BINARY, "data_batch_3.bin", b""), r"data_batch_3.bin: found 0 bytes, expected a multiple of 3073"),
        (only(BINARY, "test_batch.bin", binary("test_batch")[:-1]), "test_batch.bin: found 6145 bytes, expected a mul"),
        (only(BINARY, "test_batch.bin", binary("test_batch") + b"1"), "found 6147 bytes, expected a multiple of 3073"),
        (only(BINARY, "data_batch_1.bin", bytes([0] * 3073 + [17] * 3073)), "1.bin: label 17 in row 1: expected a cla"),
        (only(BINARY, "test_batch.bin", lzma.compress(BINARY["test_batch.bin"])[:-30]), "compressed content ends too"),
        (only(BINARY, "test_batch.bin", lzma.compress(b"")[:6] + bytes(99)), "the compressed content is damaged"),
        (only(PYTHON, "test_batch", None), "no test_batch; expected data_batch_1"),
        (only(PYTHON, "test_batch", b"hello"), "test_batch: not a pickle, or a damaged one"),
        (only(PYTHON, "test_batch", pickle.dumps([1])), "test_batch: found a list, expected a dictionary"),
        (only(PYTHON, "test_batch", pickle.dumps({"data": 1})), "test_batch: no 'labels'; found data"),
        (only(PYTHON, "test_batch", pickle.dumps({})), "test_batch: no 'data'; found nothing"),
        (only(PYTHON, "test_batch", pickled("test_batch", data=7)), "data: found int, expected uint8 with 3072 col"),
        (
            only(PYTHON, "test_batch", pickled("test_batch", data=np.zeros((2, 9), np.uint8))),
            r"data: found uint8 of shape \(2, 9\), expected uint8 with 3072 columns",
        ),
        (
            only(PYTHON, "test_batch", pickled("test_batch", data=np.zeros((2, 3072)))),
            "data: found float64 of shape",
        ),
        (only(PYTHON, "test_batch", pickled("test_batch", labels=[1])), "found 2 images and 1 labels, expected equal"),
        (only(PYTHON, "test_batch", pickled("test_batch", labels=[1, 10])), "label 10 in row 1: expected a class from"),
        (only(PYTHON, "test_batch", pickled("test_batch", labels=[1, -(2**70)])), "in row 1: expected a class from 0"),
        (only(PYTHON, "test_batch", pickled("test_batch", labels=[1, 2.5])), "labels: expected a list of integers"),
        (only(PYTHON, "test_batch", pickled("test_batch", labels="12")), "labels: expected a list of integers"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, files: dict[str, bytes], message: str):
    with pytest.raises(DataError, match=message) as error:
        cifar10(write(tmp_path, files))
    assert str(tmp_path) in str(error.value)


def test_a_malicious_batch_executes_nothing(tmp_path: Path):
    trace = tmp_path / "trace"
    write(tmp_path / "data", only(PYTHON, "data_batch_1", pickled("data_batch_1", labels=Touch(trace))))
    with pytest.raises(DataError, match=r"data_batch_1: the pickle asks for (posix|nt).system, which is refused"):
        cifar10(tmp_path / "data")
    assert not trace.exists()


def test_bad_archives_are_refused(tmp_path: Path):
    path = archive(tmp_path / "a.tar.gz", inside("x", BINARY))
    content = path.read_bytes()
    for damaged, message in (
        (b"", "not a tar archive, or a damaged one"),
        (b"no archive" * 100, "not a tar archive, or a damaged one"),
        (content[: len(content) // 2], "ends too early|damaged"),
        (content[:500] + bytes(500) + content[1000:], "damaged"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"a.tar.gz: .*({message})"):
            cifar10(path)
    archive(path, only(BINARY, "test_batch.bin", None))
    with pytest.raises(DataError, match=r"a.tar.gz: no test_batch; expected"):
        cifar10(path)
    archive(path, only(BINARY, "test_batch.bin", b"123"))
    with pytest.raises(DataError, match=r"a.tar.gz: test_batch.bin: found 3 bytes"):
        cifar10(path)
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
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
