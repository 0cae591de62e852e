"""Hostile files of other tools: ONNX, Keras and PyTorch."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import onnx
from hostile_mutants import zipped
from hostile_readers import READERS, Case
from onnx import TensorProto, helper


def changed_onnx(change: Callable[[onnx.ModelProto], object], reader: str = "onnx") -> bytes:
    proto = onnx.ModelProto.FromString(READERS[reader].good())
    change(proto)
    return proto.SerializeToString()


def sized(*dims: int) -> bytes:
    """The first weights claim these sizes."""
    return changed_onnx(
        lambda proto: proto.graph.initializer[2].ClearField("dims") or proto.graph.initializer[2].dims.extend(dims)
    )


def sparse_sized(*dims: int) -> bytes:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.sparse_initializer[0].ClearField("dims")
        proto.graph.sparse_initializer[0].dims.extend(dims)

    return changed_onnx(change, "sparse onnx")


def external(proto: onnx.ModelProto) -> None:
    tensor = proto.graph.initializer[2]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def node(kind: str, **attributes: Any) -> bytes:
    """The first linear layer is another node."""
    return changed_onnx(
        lambda proto: proto.graph.node[2].CopyFrom(helper.make_node(kind, ["Div2.Y"], ["Gemm3.Y"], **attributes))
    )


def inside(field: int, content: bytes) -> bytes:
    """A message in a field of a message, as protobuf writes it."""
    size, length = bytearray(), len(content)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([field << 3 | 2, *size, length]) + content


def nested(depth: int) -> bytes:
    """Graphs in attributes of nodes of graphs."""
    graph = b""
    for _ in range(depth):
        graph = inside(1, inside(5, inside(6, graph)))
    return inside(7, graph) + inside(8, b"\x10\x14")


ONNX: list[Case] = [
    ("empty", b"", "operators version"),
    ("text", b"hello" * 100, "not an ONNX file"),
    ("a name in Latin-1", READERS["onnx"].good().replace(b"Gemm3.2", b"Gemm\xe9.2"), "expected a string in UTF-8"),
    ("a terabyte of weights", sized(2**20, 2**20), "elements, expected a tensor of shape (1048576, 1048576)"),
    ("negative sizes", sized(-4, -3), "expected a tensor of shape (-4, -3)"),
    ("2^126 weights", sized(2**63 - 1, 2**63 - 1), "expected a tensor of shape"),
    ("weights in another file", changed_onnx(external), "is in another file"),
    ("a loop", node("Loop"), "node 3, Loop: unknown operator"),
    ("Python", node("PyOp", domain="mine"), "belongs to 'mine'"),
    ("20 graphs in each other", nested(20), "found 0 inputs"),
    ("10,000 graphs in each other", nested(10_000), "not an ONNX file"),
    ("20,000 nodes", lambda: changed_onnx(lambda p: p.graph.node.extend([p.graph.node[0]] * 20_000)), "found 20"),
    ("2,000,000 empty nodes", lambda: inside(7, b"\x0a\x00" * 2_000_000), "operators version"),
]  # fmt: skip

SPARSE_ONNX: list[Case] = [
    ("2^31 rows", sparse_sized(2**31 - 1, 3), "asks for"),
    ("2^31 columns", sparse_sized(4, 2**31 - 1), "asks for"),
    ("negative sizes", sparse_sized(-4, -3), "shape: expected two whole numbers"),
    ("three sizes", sparse_sized(4, 3, 1), "shape: expected two whole numbers"),
    ("fewer rows", sparse_sized(1, 3), "starts: expected"),
]


def changed_keras(**members: bytes | None) -> bytes:
    with zipfile.ZipFile(io.BytesIO(READERS["keras"].good())) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content |= {name.replace("__", "."): value for name, value in members.items()}
    return zipped([(name, value) for name, value in content.items() if value is not None])


def configured(change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """A configuration with other layers."""
    with zipfile.ZipFile(io.BytesIO(READERS["keras"].good())) as archive:
        configuration = json.loads(archive.read("config.json"))
    change(configuration["config"]["layers"])
    return changed_keras(config__json=json.dumps(configuration).encode())


def weights(change: Callable[[h5py.Group], object]) -> bytes:
    """Other weights of the first dense layer."""
    with zipfile.ZipFile(io.BytesIO(READERS["keras"].good())) as archive:
        buffer = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(buffer, "a") as file:
        group = file["layers/dense/vars"]
        del group["0"]
        change(group)
    return changed_keras(model__weights__h5=buffer.getvalue())


def virtual(group: h5py.Group) -> None:
    layout = h5py.VirtualLayout((3, 4), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (3, 4))
    group.create_virtual_dataset("0", layout)


def linked(link: Any) -> bytes:
    """A link in place of weights."""

    def change(group: h5py.Group) -> None:
        group["0"] = link

    return weights(change)


HUGE = {"shape": (2**20, 2**20), "dtype": "f4", "chunks": (1024, 1024)}
OUTSIDE = {"shape": (3, 4), "dtype": "f4", "external": "/etc/passwd"}
KERAS: list[Case] = [
    ("empty", b"", "not a .keras file"),
    ("no weights", changed_keras(model__weights__h5=None), "expected the files config.json"),
    ("weights of text", changed_keras(model__weights__h5=b"hello"), "not an HDF5 file"),
    ("a configuration of 20 MB", lambda: changed_keras(config__json=b"[" * (20 << 20)), "expected at most"),
    ("a configuration that is deep", changed_keras(config__json=b"[" * 100_000), "nested too deeply"),
    ("a zip bomb", lambda: changed_keras(model__weights__h5=bytes(200 << 20)), "asks for"),
    ("os.system", configured(lambda x: x[2].update(module="os", class_name="system")), "the class 'system' of 'os'"),
    ("a lambda", configured(lambda x: x[2].update(class_name="Lambda")), "found the class 'Lambda'"),
    ("a layer in itself", configured(lambda x: x.append({"class_name": "Sequential", "config": 3})), "expected one of"),
    ("a trillion units", configured(lambda x: x[2]["config"].update(units=10**12)), None),  # of which nothing is made
    ("a terabyte of weights", weights(lambda group: group.create_dataset("0", **HUGE)), "asks for"),
    ("weights in another file", weights(lambda group: group.create_dataset("0", **OUTSIDE)), "is in another file"),
    ("virtual weights", weights(virtual), "is in another file"),
    ("a link to another file", linked(h5py.ExternalLink("/etc/passwd", "x")), "expected an array"),
    ("a link to itself", linked(h5py.SoftLink("/layers/dense/vars/0")), "expected an array"),
    ("weights of strings", linked(b"x"), "expected numbers"),
]  # fmt: skip


def state(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A state dictionary with another header."""
    good = READERS["torch"].good()
    (size,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + good[8 + size :]


def described(**changes: str) -> bytes:
    """A state dictionary of another model."""

    def change(header: dict[str, Any]) -> None:
        description = json.loads(header["__metadata__"]["exchange"])
        description["model"] |= changes
        header["__metadata__"]["exchange"] = json.dumps(description)

    return state(change)


TORCH: list[Case] = [
    ("empty", b"", "not a safetensors file"),
    ("a header of 2^60 bytes", struct.pack("<Q", 2**60) + b"{", "header: found 1152921504606846976 bytes"),
    ("a pickle", b"\x80\x02}q\x00.", "not a safetensors file"),
    ("no description", state(lambda header: header.pop("__metadata__")), "without the description of a model"),
    ("gigabytes", described(sizes="3;40000;40000;2"), "asks for"),
    ("other sizes", described(sizes="3;4;5;2"), "expected float32 of shape"),
    ("other layers", described(layers="ReLU;BatchNormalization;SReLU;Softmax"), "layer 3, SReLU(shared=False)"),
    ("other tensors", state(lambda header: header.update({"x": header.pop("1.bias")})), "no 1.bias in it"),
]  # fmt: skip
