"""Models in files of other tools, and what changes the inside of their formats."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 (which starts a process when it is first imported)
import numpy as np
import onnx
from hostile_mutants import damaged, in_json, with_odd_tokens, zipped

import matgrad as mg
from matgrad.datasets import Normalization


def save_exchanged(write: Callable[..., None], path: Path, **options: Any) -> None:
    """Write a model to a file of another tool."""
    M = mg.create_model("ReLU;BatchNormalization;SiLU;Softmax", "3;4;4;2", densities="0.5;1;1")
    M.normalization = Normalization.of("standard", np.random.default_rng(0).normal(size=(5, 3)))
    M.information = {"loss": "NegativeLogLikelihood", "classes": 2, "class_names": ["no", "yes"]}
    write(M, path, **options)


def read_exchanged(read: Callable[[Path], mg.MultilayerPerceptron]) -> Callable[[Path], Any]:
    """A reader of another tool's model, which is used once."""
    return lambda path: (M := read(path)).predict(np.ones((2, M.layers[0].input_size)))


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
        return str(rng.choice(words)) if rng.random() < 0.7 else in_json_or_text(value, rng)
    odd = (0, 1, 2, 7, 11, -1, 2**31 - 1) if isinstance(value, int) else (0.0, -1.0, 1e30, float("nan"), float("inf"))
    return odd[rng.integers(len(odd))]


def in_json_or_text(text: str, rng: np.random.Generator) -> str:
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
