"""Hostile CSV files, MNIST and CIFAR-10."""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile

from hostile_readers import BINARY, Case, idx, table, tar


def lines(*fields: str, count: int = 20) -> bytes:
    rows = (",".join(field.format(i=i, half=i % 2, part=i % 1500) for field in fields) for i in range(count))
    return "".join(f"{row}\n" for row in rows).encode()


CSV: list[Case] = [
    ("empty", b"", "the file is empty"),
    ("blank lines", b"\n" * 1000, "the file is empty"),
    ("zeros", bytes(1000), "found 1 column"),
    ("a line of 5 MB", lambda: b"1," * (5 << 19), "cannot be read as a table"),
    ("a field of 200 KB", lines("{i}", "x" * 200_000), "field limit"),
    ("a quote that is not closed", b'a,b\n1,"2\n', "a quote that is not closed"),
    ("a quote of 4 MB", lambda: b'a,b\n1,"' + b"x\n" * (1 << 22), "table.csv"),
    ("20,000 columns", lambda: lines("{i}," + "1," * 20_000 + "a", count=4), None),
    ("delimiters alone", b",,,\n,,,\n,,,\n", "missing value"),
    ("latin-1", "x,t\n1,é\n".encode("latin1"), "invalid UTF8"),
    ("UTF-16", "x,t\n1,a\n".encode("utf-16"), "table.csv"),
    ("a byte order mark", b"\xef\xbb\xbf" + table(), None),
    ("lines that end in \\r", table().replace(b"\n", b"\r"), None),
    ("a header alone", b"x,t\n", "no lines of data"),
    ("one line", b"1,2\n", "2 rows"),
    ("one column", b"1\n2\n3\n", "found 1 column"),
    ("lines of other lengths", b"1,2\n1,2,3\n", "row 2: found 3 columns"),
    ("a name twice", b"x,x,t\n" + lines("{i}", "{i}", "{half}"), "several columns 'x'"),
    ("infinity", b"x,t\ninf,1\n" + lines("{i}", "{half}"), "found 'inf'"),
    ("1e999", b"x,t\n1e999,1\n" + lines("{i}", "{half}"), "found '1e999'"),
    ("1e39", b"x,t\n1e39,1\n" + lines("{i}", "{half}"), "found '1e39'"),
    ("400 digits", b"x,t\n" + b"9" * 400 + b",1\n" + lines("{i}", "{half}"), "found '999"),
    ("underscores", lines("1_000", "{half}"), None),
    ("3000 classes, one per line", lambda: lines("{i}", "class{i}", count=3000), "3000 different targets"),
    ("1500 categories", lambda: lines("word{part}", "{half}", count=40_000), "one per category: asks for"),
    ("categories above 2^53", b"c,w,t\n" + lines("9007199254740993", "a", "{half}"), None),
    ("a gzip bomb", lambda: gzip.compress(bytes(40 << 20)), "field limit"),
    ("a gzip bomb of lines", lambda: gzip.compress(b"1,2\n" * (10 << 20), 1), "becomes more than"),
    ("an xz bomb", lambda: lzma.compress(b"1,2\n" * (10 << 20), preset=0), "becomes more than"),
    ("gzip in gzip", gzip.compress(gzip.compress(table())), "table.csv"),
    ("gzip that is cut off", gzip.compress(table())[:-9], "ends too early"),
    ("gzip with other bytes after it", gzip.compress(table()) + b"hello", "damaged"),
    ("two gzip files", gzip.compress(table()[:15]) + gzip.compress(table()[15:]), None),
    ("damaged xz", lzma.compress(table())[:-20], "too early"),
]  # fmt: skip

IDX: list[Case] = [
    ("empty", b"", "found 0 bytes"),
    ("header that is cut off", idx()[:10], "found 10 bytes"),
    ("wrong magic number", b"\x00\x00\x0d\x03" + idx()[4:], "magic number"),
    ("labels", idx((2,)), "found"),
    ("no images", idx((0, 2, 2)), "expected no zero"),
    ("2^96 bytes", struct.pack(">4I", 0x803, *[2**32 - 1] * 3), "found only 0 bytes"),
    ("2^32 images", struct.pack(">4I", 0x803, 2**32 - 1, 1, 1) + bytes(8), "found only 8 bytes"),
    ("too short", idx()[:-1], "found only 7 bytes"),
    ("too long", idx() + b"x", "found more bytes"),
    ("three images", idx((3, 2, 2)), "3 images"),
    ("larger images", idx((2, 3, 3)), "expected equal sizes"),
    ("images of 8 MB", lambda: gzip.compress(idx((2, 4000, 1000))), "expected equal sizes"),
    ("a gzip bomb", lambda: gzip.compress(struct.pack(">4I", 0x803, 2, 10_000, 8000) + bytes(160 << 20), 1), "128 MB"),
    ("gzip that is cut off", gzip.compress(idx())[:-9], "ends too early"),
    ("damaged gzip", gzip.compress(idx())[:12] + b"\xff" * 9, "the compressed content"),
]  # fmt: skip

# -- CIFAR-10 -------------------------------------------------------------------------------------


BATCH: list[Case] = [
    ("empty", b"", "found 0 bytes"),
    ("one byte too few", bytes(3072), "found 3072 bytes"),
    ("one byte too many", bytes(3074), "found 3074 bytes"),
    ("label 10", b"\x0a" + bytes(3072), "label 10"),
    ("label 255", b"\xff" + bytes(3072), "label 255"),
    ("65 MB", lambda: bytes(65 << 20), "bytes or more"),
]


def header(name: str, size: int, kind: bytes = b"0", number: bytes | None = None) -> bytes:
    """The header of a member of a tar file."""
    member = tarfile.TarInfo(name)
    member.size, member.type = min(size, 8**11 - 1), kind
    block = bytearray(member.tobuf(tarfile.USTAR_FORMAT)[:512])
    if number is not None:
        block[124:136] = number
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def with_attributes(kind: bytes, size: int) -> bytes:
    return header("./PaxHeaders/x", size, kind) + bytes(512) + tar()


def no_batch(kind: bytes) -> bytes:
    """An archive in which the first batch is not a file."""
    return header("data_batch_1.bin", 0, kind) + tar(names=BINARY[1:])


def sparse_member(size: int) -> bytes:
    """A GNU sparse file of this size without content."""
    block = bytearray(header("data_batch_1.bin", 0, b"S"))
    block[483:495] = b"%011o\0" % size
    block[386:482] = bytes(96)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + tar()


TAR: list[Case] = [
    ("empty", b"", "cifar.tar: "),
    ("zeros", bytes(10240), "no data_batch_1"),
    ("text", b"hello" * 1000, "not a tar archive"),
    ("pax header of 3 GB", with_attributes(b"x", 3 << 30), "bytes, expected at most 1048576"),
    ("global pax header of 3 GB", with_attributes(b"g", 3 << 30), "bytes, expected at most 1048576"),
    ("Solaris header of 3 GB", with_attributes(b"X", 3 << 30), "bytes, expected at most 1048576"),
    ("long name of 3 GB", with_attributes(b"L", 3 << 30), "bytes, expected at most 1048576"),
    ("long link of 3 GB", with_attributes(b"K", 3 << 30), "bytes, expected at most 1048576"),
    ("sparse file of 8 GB", sparse_member(8**11 - 1), "bytes or more"),
    ("member of 8 GB", header("x", 8**11 - 1) + tar(), "cifar.tar"),
    ("member of -1 bytes", header("x", 0, number=b"\xff" * 12) + tar(), "cifar.tar"),
    ("member of 2^80 bytes", header("x", 0, number=b"\x80" + b"\x7f" * 11) + tar(), "cifar.tar"),
    ("size of letters", header("x", 0, number=b"hello world\0") + tar(), "cifar.tar"),
    ("wrong checksum", b"x" + tar()[1:], "not a tar archive"),
    ("cut off", tar()[:5000], "cifar.tar"),
    ("links", no_batch(b"2"), "no data_batch_1"),
    ("folders", no_batch(b"5"), "no data_batch_1"),
    ("a device", no_batch(b"3"), "no data_batch_1"),
    ("names outside the folder", tar(names=tuple(f"../../{name}" for name in BINARY)), None),
    ("10,001 members", lambda: header("x", 0) * 10_001 + tar(), "found 10001 files"),
    ("a gzip bomb", lambda: gzip.compress(header("x", 160 << 20) + bytes(160 << 20) + tar(), 1), "at most 67108864"),
    ("xz", lzma.compress(tar()), None),
    ("gzip in gzip", gzip.compress(gzip.compress(tar())), "not a tar archive"),
    ("damaged gzip", gzip.compress(tar())[:60] + b"\xff" * 50, "cifar.tar"),
]  # fmt: skip
