"""Hostile files, made by hand: for each reader, representatives of what can be wrong with its files."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import onnx
import safetensors.numpy
from hostile_mutants import zipped
from hostile_readers import (
    BINARY,
    CONFIGURATION,
    READERS,
    Case,
    checkpoint,
    idx,
    model,
    npz,
    program,
    record,
    svmlight,
    tar,
)
from hostile_readers import table as good_table
from onnx import TensorProto, helper

from matgrad.storage.checkpoints import digest_of

DEEP = "[" * 100_000


def setting(*places: Any) -> Callable[[Any], None]:
    """A change of a tree: the value at the places but the last becomes the last."""

    def change(value: Any) -> None:
        *path, last, new = places
        for place in path:
            value = value[place]
        value[last] = new

    return change


# -- arrays in npz files ---------------------------------------------------------------------------


def with_members(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """A good npz file of data with other members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(npz())) as good, zipfile.ZipFile(buffer, "w", compression) as archive:
        content = {key: good.read(f"{key}.npy") for key in ("Xtrain", "Ttrain", "Xtest", "Ttest")} | members
        for name, member in content.items():
            archive.writestr(f"{name}.npy", member)
    return buffer.getvalue()


def array(descr: str = "'<f8'", shape: str = "(4, 4)", body: bytes = bytes(128)) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def entry_with(offset: int, code: str, value: int) -> bytes:
    """A file whose first entry in the central directory has another number."""
    content = bytearray(with_members())
    struct.pack_into(code, content, content.index(b"PK\x01\x02") + offset, value)
    return bytes(content)


def bomb() -> bytes:
    return with_members(zipfile.ZIP_DEFLATED, Xtrain=array(shape=f"({20 << 20}, 1)", body=bytes(160 << 20)))


NPZ: list[Case] = [
    ("no magic", with_members(Xtrain=b"hello, world"), "Xtrain: not an array"),
    ("shape of 8 TB", with_members(Xtrain=array(shape="(1000000, 1000000)")), "Xtrain: not an array"),
    ("code in the header", with_members(Xtrain=array(shape="__import__('os').getcwd()")), "Xtrain: not an array"),
    ("objects", lambda: npz(Xtrain=np.array([[{}]] * 4, dtype=object)), "not an array of numbers"),
    ("big-endian", with_members(Xtrain=array(descr="'>f8'")), None),
    ("a bomb of 160 MB", bomb, "asks for 160 MB"),
    ("a pickle", pickle.dumps([1]), "not an npz file"),
    (
        "class 65535",
        npz(Ttrain=np.array([0, 1, 2, 65535])),
        "one-hot targets of 65536 classes (numbers are floats): asks for 16 GB",
    ),
]


# -- models, programs and checkpoints --------------------------------------------------------------


def with_arrays(good: bytes = b"", **changes: Any) -> bytes:
    arrays = dict(np.load(io.BytesIO(good or model()))) | changes
    buffer = io.BytesIO()
    np.savez(buffer, **{name: A for name, A in arrays.items() if A is not None})
    return buffer.getvalue()


def with_text(text: str) -> bytes:
    return with_arrays(matgrad=np.array(text))


def described(*places: Any) -> bytes:
    """The good model with another value in its description."""
    description = json.loads(str(np.load(io.BytesIO(model()))["matgrad"]))
    setting(*places)(description)
    return with_text(json.dumps(description))


MODEL: list[Case] = [
    ("sizes that ask for gigabytes", described("model", "sizes", "3;20000;20000;2"), "asks for"),
    ("sizes as numbers", described("model", "sizes", [3, 4, 4, 2]), "$.model"),
    ("5000 layers", described("model", "layers", ";".join(["ReLU"] * 5000)), "found 5000 layers"),
    ("class names twice", described("information", "class_names", ["a", "a"]), "different names of 2 classes"),
    ("unknown normalization", described("information", "normalize", "magic"), "unknown normalization 'magic'"),
    ("features as a list", described("information", "features", [1]), "features are damaged"),
    ("a nested description", with_text(DEEP), "nested too deeply"),
    ("a name twice", with_text('{"format": 1, "format": 1}'), "'format' occurs twice"),
    ("9 MB of JSON", lambda: with_text("[" + " " * (9 << 20)), "found 9437185 characters"),
    ("no W1", with_arrays(W1=None), "no 'W1'"),
    ("scale 0", with_arrays(**{"extra.scale": np.zeros((1, 3))}), "positive scales"),
]


def sparse(**changes: Any) -> bytes:
    return with_arrays(model("Linear", "3;2", densities="0.7"), **changes)


SPARSE: list[Case] = [
    ("starts of 2^62", sparse(**{"W1.starts": np.array([0, 2**62, 4])}), "W1: starts"),
    ("columns outside", sparse(**{"W1.columns": np.array([0, 1, 2, 3])}), "W1: columns"),
]


def tensors(header: bytes | dict, body: bytes = b"") -> bytes:
    """A safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def header_of(content: bytes) -> tuple[dict, bytes]:
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def programmed(*places: Any, part: str = "matgrad") -> bytes:
    """The good program with another value in its JSON."""
    header, body = header_of(program())
    value = json.loads(header["__metadata__"][part])
    setting(*places)(value)
    header["__metadata__"][part] = json.dumps(value)
    return tensors(header, body)


HUGE_TENSOR = {"a": {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 4]}}
PROGRAM: list[Case] = [
    ("header of 2^63 bytes", struct.pack("<Q", 2**63) + b"{}", "safetensors header"),
    ("header of 20 MB", lambda: tensors(b'{"a": "' + b" " * (20 << 20) + b'"}'), "found 20971529 bytes"),
    ("tensor of 2^62 numbers", tensors(HUGE_TENSOR, bytes(4)), "not a safetensors file"),
    ("nested program", tensors({"__metadata__": {"matgrad": DEEP}}), "nested too deeply"),
    ("size -1", programmed("sizes", "N", -1), "expected a size"),
    ("unknown operation", programmed("values", -1, "operation", "magic"), "unknown operation 'magic'"),
    ("operands ahead", programmed("values", -1, "operands", [10**6]), "expected operands before it"),
    ("tensor that is missing", programmed("tensors", "W1", "9.W", part="model"), "9.W"),
    ("20,000 inputs", programmed("model", "sizes", "20000;20000;2", part="model"), "asks for"),
]


def resealed(*places: Any, **arrays: np.ndarray) -> bytes:
    """The good checkpoint with another value in its JSON, other tensors, and the digest of all that."""
    strings = header_of(checkpoint())[0]["__metadata__"]
    content = json.loads(strings["checkpoint"])
    if places:
        setting(*places)(content)
    strings["checkpoint"] = json.dumps(content)
    del strings["sha256"]
    arrays = safetensors.numpy.load(checkpoint()) | arrays
    return safetensors.numpy.save(arrays, strings | {"sha256": digest_of(strings, arrays)})


CHECKPOINT: list[Case] = [
    ("as it is", resealed(), None),
    ("another digest", tensors({"__metadata__": {"sha256": "0"}}), "does not agree with its digest"),
    ("a parameter as a number", resealed("state", "1.b", 3), "1.b: expected a matrix, found int"),
    ("a tensor that is missing", resealed("state", "1.b", {"$matrix": "9.b"}), "there is no '9.b'"),
    ("float64", resealed(**{"1.b": np.ones((1, 4))}), "1.b is float64, but the model is float32"),
    ("nan", resealed(**{"1.b": np.full((1, 4), np.nan, np.float32)}), "1.b has elements that are not finite"),
    ("10^400 epochs", resealed("run", "epoch", 10**400), "epochs are done, expected as many epochs or more"),
]


# -- models of other tools -------------------------------------------------------------------------


def changed_onnx(change: Callable[[onnx.ModelProto], object]) -> bytes:
    proto = onnx.ModelProto.FromString(READERS["onnx"].good())
    change(proto)
    return proto.SerializeToString()


def with_sizes(*sizes: int) -> bytes:
    return changed_onnx(
        lambda p: p.graph.initializer[2].ClearField("dims") or p.graph.initializer[2].dims.extend(sizes)
    )


def outside(proto: onnx.ModelProto) -> None:
    tensor = proto.graph.initializer[2]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


ONNX: list[Case] = [
    ("text", b"hello" * 100, "not an ONNX file"),
    ("a terabyte of weights", with_sizes(2**20, 2**20), "cannot reshape array"),
    ("negative sizes", with_sizes(-4, -3), "one unknown dimension"),
    ("weights in another file", changed_onnx(outside), "is in another file"),
    (
        "a loop",
        changed_onnx(lambda p: p.graph.node[2].CopyFrom(helper.make_node("Loop", ["Div2.Y"], ["Gemm3.Y"]))),
        "node 3, 'Loop': unknown operator",
    ),
    ("20,000 nodes", lambda: changed_onnx(lambda p: p.graph.node.extend([p.graph.node[0]] * 20_000)), "found 20"),
]


def changed_keras(configure: Callable[[Any], object] | None = None, **members: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(READERS["keras"].good())) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    if configure is not None:
        configuration = json.loads(content["config.json"])
        configure(configuration["config"]["layers"])
        content["config.json"] = json.dumps(configuration).encode()
    return zipped(list((content | {name.replace("__", "."): value for name, value in members.items()}).items()))


def with_weights(change: Callable[[h5py.Group], object]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(READERS["keras"].good())) as archive:
        buffer = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(buffer, "a") as file:
        group = file["layers/dense/vars"]
        del group["0"]
        change(group)
    return changed_keras(model__weights__h5=buffer.getvalue())


HUGE = {"shape": (2**20, 2**20), "dtype": "f4", "chunks": (1024, 1024)}
OUTSIDE = {"shape": (3, 4), "dtype": "f4", "external": "/etc/passwd"}
LINK = h5py.ExternalLink("/etc/passwd", "x")
KERAS: list[Case] = [
    ("weights of text", changed_keras(model__weights__h5=b"hello"), "not an HDF5 file"),
    ("a nested configuration", changed_keras(config__json=DEEP.encode()), "nested too deeply"),
    ("a zip bomb", lambda: changed_keras(model__weights__h5=bytes(200 << 20)), "asks for"),
    ("os.system", changed_keras(lambda x: x[2].update(module="os", class_name="system")), "the class 'system' of 'os'"),
    ("a terabyte of weights", with_weights(lambda group: group.create_dataset("0", **HUGE)), "asks for"),
    ("weights in another file", with_weights(lambda group: group.create_dataset("0", **OUTSIDE)), "is in another file"),
    ("a link to another file", with_weights(lambda group: group.__setitem__("0", LINK)), "found 0 arrays"),
]


def of_torch(change: Callable[[dict], object]) -> bytes:
    header, body = header_of(READERS["torch"].good())
    change(header)
    return tensors(header, body)


TORCH: list[Case] = [
    ("a pickle", b"\x80\x02}q\x00.", "safetensors"),
    ("a header of 2^60 bytes", struct.pack("<Q", 2**60) + b"{", "header: found 1152921504606846976 bytes"),
    ("no description", of_torch(lambda header: header.pop("__metadata__")), "without the description of a model"),
    (
        "other tensors",
        of_torch(lambda header: header.update({"x": header.pop("1.bias")})),
        'Missing key(s) in state_dict: "1.bias"',
    ),
]


# -- data ------------------------------------------------------------------------------------------

LINES = b"".join(b"%d,%d\n" % (i, i % 2) for i in range(20))
CSV: list[Case] = [
    ("empty", b"", "the file is empty"),
    ("a quote that is not closed", b'a,b\n1,"2\n', "a quote that is not closed"),
    ("a byte order mark", b"\xef\xbb\xbf" + good_table(), None),
    ("1e39", b"x,t\n1e39,1\n" + LINES, "found '1e39'"),
    ("3000 classes", b"".join(b"%d,class%d\n" % (i, i) for i in range(3000)), "3000 different targets"),
    ("a gzip bomb of lines", lambda: gzip.compress(b"1,2\n" * (10 << 20), 1), "its content: asks for"),
    ("gzip that is cut off", gzip.compress(good_table())[:-9], "ended before"),
]
IDX: list[Case] = [
    ("a header that is cut off", idx()[:10], "found 10 bytes"),
    ("2^96 bytes", struct.pack(">4I", 0x803, *[2**32 - 1] * 3), "found 0 bytes"),
    ("too long", idx() + b"x", "found 9 bytes"),
]
IDX_GZ: list[Case] = [
    ("a bomb", lambda: gzip.compress(struct.pack(">4I", 0x803, 2, 10_000, 8000) + bytes(160 << 20), 1), "128 MB"),
    ("cut off", gzip.compress(idx())[:-9], "ended before"),
]
BATCH: list[Case] = [
    ("65 MB", lambda: bytes(65 << 20), "expected a multiple of 3073"),
]


def member(name: str, size: int, kind: bytes = b"0") -> bytes:
    """The header of a member of a tar file."""
    found = tarfile.TarInfo(name)
    found.size, found.type = size, kind
    return found.tobuf(tarfile.USTAR_FORMAT)[:512]


TAR: list[Case] = [
    ("text", b"hello" * 1000, "not a tar archive"),
    ("pax header of 3 GB", member("x", 3 << 30, b"x") + bytes(512) + tar(), "not a tar archive"),
    ("links", member("data_batch_1.bin", 0, b"2") + tar(names=BINARY[1:]), "not a tar archive"),
    ("10,001 members", lambda: member("x", 0) * 10_001 + tar(), "found 10001 files"),
    ("a bomb", lambda: gzip.compress(member("x", 160 << 20) + bytes(160 << 20) + tar(), 1), "at most 128 MB"),
]
SVMLIGHT: list[Case] = [
    ("index 2^63", svmlight() + b"1 9223372036854775808:1\n", "a.svm"),
    ("index 2^30", svmlight() + b"1 1073741824:1\n", "asks for"),
]


# -- configurations, options, records and logs -----------------------------------------------------

ALIASES = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]" for i in range(10))
YAML: list[Case] = [
    ("an alias bomb", ALIASES.encode(), "aliases are not supported"),
    ("nested lists", b"layers: " + b"[" * 10_000, "nested too deeply"),
    ("a name twice", b"epochs: 1\nepochs: 2", "'epochs' occurs twice"),
    ("an object", b"epochs: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ("200 KB", b"# hello\n" * 25_000, "found 131073 bytes or more"),
]
TOML: list[Case] = [
    ("nested tables", b"layers = " + b"{a=" * 10_000, "nested too deeply"),
]


def configured(**changes: object) -> bytes:
    """The good configuration with some of it changed."""
    return json.dumps(CONFIGURATION | {name.replace("_", "-"): value for name, value in changes.items()}).encode()


JSON: list[Case] = [
    ("nested lists", DEEP.encode(), "nested too deeply"),
    ("a name twice", b'{"epochs": 1, "epochs": 2}', "'epochs' occurs twice"),
    ("NaN", b'{"clip": NaN}', "found NaN"),
    ("a number of 5000 digits", b'{"epochs": ' + b"9" * 5000 + b"}", "c.json"),
    ("shared=no", configured(layers="SReLU(shared=no);Linear"), "True or False for 'shared'"),
    ("a layer that is not UTF-8", configured(layers="\udce9"), "layer 1"),
    ("WarmUp without end", configured(learning_rate="WarmUp(1;" * 20_000 + "1" + ")" * 20_000), "inside each other"),
    ("sizes of 400 digits", configured(layer_sizes=f"64;{'9' * 400};10"), "asks for"),
    ("10^12 examples", configured(generate_dataset="mini(1000000000000)"), "asks for"),
    ("10^30 threads", configured(threads=10**30), "--threads"),
]


def recorded(*places: Any) -> bytes:
    content = json.loads(record())
    setting(*places)(content)
    return json.dumps(content).encode()


RECORD: list[Case] = [
    ("nested", DEEP.encode(), "nested too deeply"),
    ("seconds as a string", recorded("seconds", "3"), "$.seconds"),
    ("what could command a terminal", recorded("data", "name", "\x1b]0;x\x07"), None),
]
LOG: list[Case] = [
    ("a line that is cut off", b'{"epoch": 1}\n{"epo', "line 2: "),
    ("17 MB", lambda: b'{"epoch": 1}\n' * 1_400_000, "bytes or more"),
]
CSV_LOG: list[Case] = [
    ("500,000 columns", lambda: b"1," * 500_000 + b"\n", "same name"),
]

HOSTILE: dict[str, list[Case]] = {
    **{"npz": NPZ, "model": MODEL, "sparse model": SPARSE, "program": PROGRAM, "checkpoint": CHECKPOINT},
    **{"onnx": ONNX, "keras": KERAS, "torch": TORCH},
    **{"csv": CSV, "idx": IDX, "idx.gz": IDX_GZ, "cifar binary": BATCH, "tar": TAR, "svmlight": SVMLIGHT},
    **{"yaml": YAML, "toml": TOML, "json": JSON, "record": RECORD, "log": LOG, "csv log": CSV_LOG},
}
