"""Hostile data in npz files."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
from hostile_readers import Case, npz

KEYS = ("Xtrain", "Ttrain", "Xtest", "Ttest")


def zipped(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """An npz file with these members, and good arrays for the others."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as good, zipfile.ZipFile(buffer, "w", compression) as archive:
        for key in KEYS:
            archive.writestr(f"{key}.npy", members.pop(key, good.read(f"{key}.npy")))
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(descr="'<f8'", shape="(4, 4)", body=bytes(128), version=b"\x01\x00", order="False") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n".encode("latin1")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + body


def with_X(*arguments: Any, **options: Any) -> bytes:
    return zipped(Xtrain=npy(*arguments, **options))


def patched(content: bytes, old: bytes, new: bytes, times: int = -1) -> bytes:
    assert old in content
    return content.replace(old, new, times)


def entry_with(offset: int, code: str, value: int) -> bytes:
    """An npz file whose first entry in the central directory has another number."""
    content = bytearray(zipped())
    struct.pack_into(code, content, content.index(b"PK\x01\x02") + offset, value)
    return bytes(content)


def flooded(name: str = "Xtrain", megabytes: int = 160, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A small npz file with zeros that take much memory."""
    N = megabytes << 17
    return zipped(compression, **{name: npy(shape=f"({N}, 1)", body=bytes(8 * N))})


def twice() -> bytes:
    buffer = io.BytesIO(zipped())
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("Xtrain", npy())
    return buffer.getvalue()


def many_members() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i in range(10_001):
            archive.writestr(f"{i}.npy", b"")
    return buffer.getvalue()


def objects() -> bytes:
    return npz(Xtrain=np.array([[{}]] * 4, dtype=object))


T = np.arange(4)
NPZ: list[Case] = [
    ("no magic", zipped(Xtrain=b"hello, world"), "Xtrain: not an array"),
    ("empty member", zipped(Xtrain=b""), "Xtrain: not an array"),
    ("magic alone", zipped(Xtrain=b"\x93NUMPY"), "Xtrain: not an array"),
    ("version 9", with_X(version=b"\x09\x00"), "Xtrain: not an array"),
    ("version 3", with_X(version=b"\x03\x00"), "Xtrain: not an array"),
    ("version 2", with_X(version=b"\x02\x00"), None),
    ("header of 4 GB", zipped(Xtrain=b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}"), "Xtrain: not an array"),
    ("long header", with_X(descr="'<f8'" + " " * 30000), "Xtrain: not an array"),
    ("shape of 8 TB", with_X(shape="(1000000, 1000000)"), "Xtrain: not an array"),
    ("shape beyond 2^64", with_X(shape=f"({2**70}, {2**70})"), "Xtrain: not an array"),
    ("negative shape", with_X(shape="(-4, -4)"), "Xtrain: not an array"),
    ("shape of floats", with_X(shape="(4.0, 4.0)"), "Xtrain: not an array"),
    ("shape of truth values", with_X(shape="(True, 16)"), "Xtrain: not an array"),
    ("shape is a list", with_X(shape="[4, 4]"), "Xtrain: not an array"),
    ("too few bytes", with_X(body=bytes(120)), "found 120 bytes"),
    ("too many bytes", with_X(body=bytes(130)), "found 130 bytes"),
    ("nested header", with_X(shape="(" * 400 + ")" * 400), "Xtrain: not an array"),
    ("nested lists in the header", with_X(descr="[" * 4000), "Xtrain: not an array"),
    ("code in the header", with_X(shape="__import__('os').getcwd()"), "Xtrain: not an array"),
    ("order is a string", with_X(order="'no'"), "Xtrain: not an array"),
    ("objects", objects, "found an array of objects"),
    ("objects by hand", with_X(descr="'|O'"), "found an array of objects"),
    ("void", with_X(descr="'|V8'"), "found an array of |V8"),
    ("no bytes per element", with_X(descr="'S0'", shape="(1000000000000,)", body=b""), "found an array of |S0"),
    ("records", with_X(descr="[('a', '<f8')]"), "found an array of"),
    ("arrays in an array", with_X(descr="'(1000000,)f8'"), "Xtrain"),
    ("dates", with_X(descr="'<M8[s]'"), "found an array of datetime64"),
    ("unknown type", with_X(descr="'<q9'"), "Xtrain: not an array"),
    ("columns first", with_X(order="True"), None),
    ("big-endian", with_X(descr="'>f8'"), None),
    ("zeros of 160 MB", flooded, "asks for 160 MB"),
    ("zeros of 160 MB in bzip2", lambda: flooded(compression=zipfile.ZIP_BZIP2), "asks for 160 MB"),
    ("zeros of 160 MB under another name", lambda: flooded("other.npy"), "asks for 160 MB"),
    ("size of 4 GB", entry_with(24, "<I", 2**32 - 2), "asks for 4 GB"),
    ("size too small", entry_with(24, "<I", 100), "Xtrain"),
    ("encrypted", entry_with(8, "<H", 1), "not an npz file"),
    ("unknown compression", entry_with(10, "<H", 99), "not an npz file"),
    ("damaged lzma", patched(zipped(zipfile.ZIP_LZMA), b"\x5d\x00\x00\x80\x00", b"\xff\xff\xff\xff\xff"), "a.npz: "),
    ("offset outside", entry_with(42, "<I", 2**31), "not an npz file"),
    ("wrong checksum", entry_with(16, "<I", 1), "not an npz file"),
    ("name twice", twice, "two arrays with the same name"),
    ("10,001 members", many_members, "found 10001 arrays"),
    ("no members", b"PK\x05\x06" + bytes(18), "no Xtrain"),
    ("name outside the folder", lambda: zipped(**{"../../x.npy": npy()}), "unknown ../../x"),
    ("not a zip file", b"PK\x03\x04 hello", "not an npz file"),
    ("a pickle", pickle.dumps([1]), "not an npz file"),
    ("a single array", npy(), "found a single array"),
    ("a zip file after other bytes", b"#!/bin/sh\n" + npz(), None),
    ("class 65535", npz(Ttrain=np.array([0, 1, 2, 65535])), "one-hot targets of 65536 classes: asks for 16 GB"),
    ("class 2^62", npz(Ttrain=np.array([0, 1, 2, 2**62])), "found class"),
    ("class 2^63", npz(Ttrain=np.array([0, 1, 2, 2**63], dtype=np.uint64)), "Ttrain"),
    ("class 2^53 + 1", npz(Ttrain=np.array([0, 1, 2, 2**53 + 1])), "found class 9007199254740993"),
    ("negative class", npz(Ttrain=np.array([0, 1, 2, -1])), "label -1 in row 3"),
    (
        "one-hot with 20,000 columns",
        lambda: npz(Ttrain=np.eye(4, 20000, dtype=np.uint8)),
        "one-hot",
    ),
    ("NaN", npz(Xtrain=np.full((4, 4), np.nan)), "row 0, column 0: found nan"),
    ("NaN as float16", npz(Xtrain=np.full((4, 4), np.nan, np.float16)), "found nan"),
    ("beyond float32", npz(Xtrain=np.full((4, 4), 1e39)), "found 1e+39"),
    ("complex", npz(Xtrain=np.eye(4) * 1j), "expected numbers"),
    ("words", npz(Xtrain=np.full((4, 4), "a")), "expected numbers"),
    ("no columns", npz(Xtrain=np.zeros((4, 0))), "found shape (4, 0)"),
    ("no rows", npz(Xtrain=np.zeros((0, 4)), Ttrain=T[:0]), "Xtrain"),
    ("three dimensions", npz(Xtrain=np.zeros((4, 2, 2))), "found shape (4, 2, 2)"),
    ("scalar targets", npz(Ttrain=np.array(3)), "Ttrain"),
    ("range the wrong way", npz(value_range=np.array([1, 0])), "value_range"),
    ("range of words", npz(value_range=np.array(["a", "b"])), "value_range"),
    ("range of NaN", npz(value_range=np.array([np.nan, 1])), "value_range"),
]
