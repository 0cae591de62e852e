"""Mutants of good files: damaged bytes, odd tokens, and odd values inside what checksums and tables would protect."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import safetensors.numpy

from matgrad.storage.checkpoints import digest_of

NUMBERS = (
    *("0", "-1", "1", "2.5", "1e308", "-1e308", "1e-320", "1e999", "nan", "inf", "-0", "65536", "300000000", "1_0"),
    *("2147483648", "4294967296", "9007199254740993", "18446744073709551616", "9" * 400, "0x10", "1e5", ".5", "٣"),
)
WORDS = (
    *("", "x", "ReLU", "SReLU", "Linear(1)", "Softmax", "None", "True", "yes", "no", "null", "~", "é", "\udce9"),
    *("a\0b", "A" * 5000, "(" * 300, "[" * 300, ";" * 50, "=", "==", "Adam(", "Momentum(mu=mu)", "--epochs", "\n"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**64, 10**400, 1e308, 1e-320, 0.5, float("nan"), float("inf")),
    *("", "x", "3;4", "1;1", "20000;20000", "300000000;2", "Linear", "BatchNormalization", "standard", "A" * 5000),
    *([], {}, [1], ["a", "a"], [[]], {"a": None}, [None] * 3, json.loads("[" * 100 + "]" * 100)),
)


Inside = Callable[[bytes, np.random.Generator], bytes]  # a mutation that keeps a format whole, so that it goes deep


def mutant(content: bytes, rng: np.random.Generator, inside: Inside | None = None) -> bytes:
    """A mutant of a file, often by what changes the inside of its format, if that can still be read."""
    if inside is not None and rng.random() < 0.8:
        with suppress(Exception):  # the content is a mutant itself
            return inside(content, rng)
    return _any(content, rng)


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
    if not len(changed):
        return content
    # the first and last bytes, where headers are, as often as all others
    span = len(changed) if rng.integers(2) else min(100, len(changed))
    places = rng.integers(span, size=rng.integers(1, 5)) * (1 if rng.integers(2) else -1)
    changed[places] = rng.choice([rng.integers(256), 0, 127, 128, 255], size=len(places))
    return changed.tobytes()


def with_odd_tokens(content: bytes, rng: np.random.Generator) -> bytes:
    """The content as text, with some numbers and words replaced by odd ones."""
    text = content.decode("latin1")
    for _ in range(rng.integers(1, 4)):
        tokens = [m.span() for m in re.finditer(r"[\w.+-]+|[^\w\s]", text)]
        i, j = tokens[rng.integers(len(tokens))] if tokens else (0, 0)
        pool = NUMBERS if rng.random() < 0.6 else WORDS
        text = text[:i] + pool[rng.integers(len(pool))] + text[j:]
    return text.encode("utf-8", "surrogateescape")


def _any(content: bytes, rng: np.random.Generator) -> bytes:
    return (damaged if rng.random() < 0.5 else with_odd_tokens)(content, rng)


# -- inside files ---------------------------------------------------------------------------------


def in_gzip(content: bytes, rng: np.random.Generator) -> bytes:
    """A mutant that is compressed correctly."""
    return gzip.compress(_any(gzip.decompress(content), rng), 1)


def in_npz(content: bytes, rng: np.random.Generator) -> bytes:
    """An npz file, with correct checksums, in which one array is a mutant, gone, renamed or there twice."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(member.filename, archive.read(member)) for member in archive.infolist()]
    k = rng.integers(len(members))
    name, array = members[k]
    if name == "matgrad.npy" or ("matgrad.npy" in dict(members) and rng.random() < 0.6):
        return zipped([(n, _description(a, rng)) if n == "matgrad.npy" else (n, a) for n, a in members])
    kind = rng.integers(5)
    if kind == 0:
        members.pop(k)
    elif kind == 1:
        members.append((str(rng.choice(["W1.npy", "extra.npy", "matgrad", "../x.npy", name])), array))
    else:
        members[k] = (name, _array(array, rng))
    return zipped(members)


def zipped(members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in dict(members).items():
            archive.writestr(name, array)
    return buffer.getvalue()


def _array(content: bytes, rng: np.random.Generator) -> bytes:
    """An npy file with other numbers, shape or element type, or a damaged one."""
    if rng.random() < 0.3:
        return damaged(content, rng)
    A = np.load(io.BytesIO(content)) if content.startswith(b"\x93NUMPY") else np.zeros(3)
    dtype = str(rng.choice(["f8", "f4", "i8", "u8", "i1", "b1", "U3", "c8", "f2"]))
    if rng.random() < 0.5 and A.dtype.kind != "U":
        A = A.astype(dtype)
    elif rng.random() < 0.5:
        A = A.reshape(-1)[: rng.integers(A.size + 1)]
    elif A.size and A.dtype.kind in "fiu":
        A = A.copy()
        odd = [np.nan, np.inf, -1e30, 1e4] if A.dtype.kind == "f" else [-1, 2**31 - 1, 65535, 1]
        A.reshape(-1)[rng.integers(A.size)] = np.array(odd[rng.integers(4)]).astype(A.dtype)
    return _npy(A)


def _description(content: bytes, rng: np.random.Generator) -> bytes:
    text = str(np.load(io.BytesIO(content)))
    return _npy(np.array(in_json(text.encode(), rng).decode("utf-8", "replace")))


def in_json(content: bytes, rng: np.random.Generator) -> bytes:
    """A JSON string with odd values or names somewhere in it."""
    if rng.random() < 0.2:
        return with_odd_tokens(content, rng)
    value = json.loads(content)
    for _ in range(rng.integers(1, 3)):
        places = list(_places(value))
        holder, key = places[rng.integers(len(places))] if places else ([0], 0)
        kind = rng.integers(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[WORDS[rng.integers(len(WORDS))]] = holder.pop(key)
        elif kind == 2 and isinstance(holder[key], int | float | str):
            holder[key] = with_odd_tokens(str(holder[key]).encode(), rng).decode("utf-8", "replace")
        else:
            holder[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
    return json.dumps(value).encode()


def in_json_lines(content: bytes, rng: np.random.Generator) -> bytes:
    """JSON lines of which one is a mutant, gone or there twice."""
    lines = content.splitlines()
    k, kind = rng.integers(len(lines)), rng.integers(6)
    lines[k : k + 1] = [] if kind == 0 else [lines[k]] * 2 if kind == 1 else [in_json(lines[k], rng)]
    return b"\n".join(lines) + b"\n"


def _places(value: Any):
    """Every place (list or table, key) in a value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def in_safetensors(content: bytes, rng: np.random.Generator) -> bytes:
    """A safetensors file with an odd header, or odd JSON strings in its header."""
    (size,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    strings = header["__metadata__"]
    if rng.random() < 0.7:
        name = list(strings)[rng.integers(len(strings))]
        strings[name] = in_json(strings[name].encode(), rng).decode("utf-8", "replace")
        changed = json.dumps(header).encode()
    else:
        changed = in_json(json.dumps(header).encode(), rng)
    return struct.pack("<Q", len(changed)) + changed + body


def in_checkpoint(content: bytes, rng: np.random.Generator) -> bytes:
    """A checkpoint with an odd JSON string or tensor, and the digest of all that it has."""
    (size,) = struct.unpack("<Q", content[:8])
    tensors, strings = safetensors.numpy.load(content), json.loads(content[8 : 8 + size])["__metadata__"]
    del strings["sha256"]
    if rng.random() < 0.3:
        name = list(tensors)[rng.integers(len(tensors))]
        tensors[name] = np.load(io.BytesIO(_array(_npy(tensors[name]), rng)))
    else:
        name = list(strings)[rng.integers(len(strings))]
        strings[name] = in_json(strings[name].encode(), rng).decode("utf-8", "replace")
    return safetensors.numpy.save(tensors, strings | {"sha256": digest_of(strings, tensors)})


def _npy(A: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, A)
    return buffer.getvalue()


def in_onnx(content: bytes, rng: np.random.Generator) -> bytes:
    """An ONNX file with odd names, sizes or numbers, or with messages that are gone or there twice."""
    proto = onnx.ModelProto.FromString(content)
    for _ in range(rng.integers(1, 3)):
        places = list(_fields(proto))
        message, field, value = places[rng.integers(len(places))]
        kind = rng.integers(4)
        if kind == 0:
            message.ClearField(field.name)
        elif field.is_repeated:
            i = rng.integers(len(value))
            if kind == 1:
                del value[i]
            elif field.message_type is not None:
                value.add().CopyFrom(value[i])
            else:
                value[i] = _odd(value[i], rng)
        elif field.enum_type is not None:
            setattr(message, field.name, rng.choice([x.number for x in field.enum_type.values]))
        elif field.message_type is None:
            setattr(message, field.name, _odd(value, rng))
    return proto.SerializeToString()


def _fields(message: Any):
    """Every field that is set in a message and in those inside it: (message, field, value)."""
    for field, value in message.ListFields():
        yield message, field, value
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _fields(inner)


def _odd(value: Any, rng: np.random.Generator) -> Any:
    """Another value of the same type."""
    if isinstance(value, bytes):
        return damaged(value, rng)
    if isinstance(value, str):
        words = ("", "X", "Y", "W", "Relu", "Gemm", "Loop", "If", "Tanh", "Dropout", "Scan", "\n", "A" * 5000)
        return str(rng.choice(words)) if rng.random() < 0.7 else _in_json_or_text(value, rng)
    odd = (0, 1, 2, 7, 11, -1, 2**31 - 1) if isinstance(value, int) else (0.0, -1.0, 1e30, float("nan"), float("inf"))
    return odd[rng.integers(len(odd))]


def _in_json_or_text(text: str, rng: np.random.Generator) -> str:
    """A mutant of a JSON string, or of another one."""
    change = in_json if text.startswith("{") else with_odd_tokens
    return change(text.encode(), rng).decode("utf-8", "replace")


def in_keras(content: bytes, rng: np.random.Generator) -> bytes:
    """A .keras file, with correct checksums, with an odd configuration, damaged weights or other members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    kind = rng.random()
    if kind < 0.5:
        members["config.json"] = in_json(members["config.json"], rng)
    elif kind < 0.95:
        members["model.weights.h5"] = damaged(members["model.weights.h5"], rng)
    else:
        members[str(rng.choice(["assets/a.txt", "../x", "model.weights.json"]))] = b"{}"
    return zipped(list(members.items()))
