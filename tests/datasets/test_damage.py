"""Files with random damage are read, or refused with a DataError; nothing else may be raised."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matgrad import datasets
from matgrad.datasets import DataError

RNG = np.random.default_rng(0)
BATCH = {b"data": RNG.integers(256, size=(1, 3072), dtype=np.uint8), b"labels": [3], b"filenames": [b"a.png"]}
TABLE = "x,y,class\n" + "".join(f'{i},{i / 7:.3f},"{"ab"[i % 2]}"\n' for i in range(20))


def npz(save: Callable) -> bytes:
    buffer = io.BytesIO()
    save(buffer, Xtrain=np.eye(4), Ttrain=np.arange(4), Xtest=np.eye(4), Ttest=np.arange(4))
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
            member = tarfile.TarInfo(name)
            member.size = 3073
            archive.addfile(member, io.BytesIO(bytes(3073)))
    return buffer.getvalue()


def idx(content: Callable[[bytes], bytes]) -> bytes:
    return content(struct.pack(">4I", 2051, 2, 2, 2) + bytes(8))


def in_mnist(folder: Path, content: bytes) -> Callable:
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(content)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 2) + bytes([1, 2]))
    return lambda: datasets.mnist(folder)


def in_cifar(folder: Path, content: bytes) -> Callable:
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(content)
    return lambda: datasets.cifar10(folder)


def in_file(reader: Callable) -> Callable:
    def write(folder: Path, content: bytes) -> Callable:
        (folder / "file").write_bytes(content)
        return lambda: reader(folder / "file")

    return write


FORMATS = {
    "npz": (npz(np.savez), in_file(datasets.npz)),
    "compressed npz": (npz(np.savez_compressed), in_file(datasets.npz)),
    "csv": (TABLE.encode(), in_file(datasets.csv)),
    "csv.gz": (gzip.compress(TABLE.encode()), in_file(datasets.csv)),
    "features": (b"1,2\n3,4\n", in_file(datasets.csv_features)),
    "tar.gz": (tar(), in_file(datasets.cifar10)),
    "tar": (gzip.decompress(tar()), in_file(datasets.cifar10)),
    "idx": (idx(bytes), in_mnist),
    "idx.gz": (idx(gzip.compress), in_mnist),
    "idx.xz": (idx(lzma.compress), in_mnist),
    "pickle": (pickle.dumps(BATCH, protocol=3), in_cifar),
}


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The content with some bytes replaced, or cut off, or a part removed or repeated."""
    kind, (i, j) = rng.integers(4), sorted(rng.integers(len(content) + 1, size=2))
    if kind == 0:
        return content[:i]
    if kind == 1:
        return content[:i] + content[j:]
    if kind == 2:
        return content[:j] + content[i:]
    changed = np.frombuffer(content, np.uint8).copy()
    # the first and last bytes, where headers are, as often as all others
    span = len(changed) if rng.integers(2) else min(100, len(changed))
    places = rng.integers(span, size=rng.integers(1, 5)) * (1 if rng.integers(2) else -1)
    changed[places] = rng.integers(256, size=len(places))
    return changed.tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_random_damage(tmp_path: Path, name: str):
    content, write = FORMATS[name]
    write(tmp_path, content)()  # whole, it can be read
    messages = []
    for seed in range(150):
        try:
            write(tmp_path, damaged(content, np.random.default_rng(seed)))()
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert all(str(tmp_path) in message for message in messages)
