"""Hostile models and programs."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from hostile_npz import flooded
from hostile_readers import Case, model, program


def described(path: str, value: Any) -> bytes:
    """The good model with another value at a place such as 'model.sizes'; '' is the whole description."""
    arrays = dict(np.load(io.BytesIO(model())))
    description = json.loads(str(arrays["matgrad"]))
    *places, last = path.split(".")
    table = description
    for place in places:
        table = table[place]
    table[last] = value
    return saved(arrays | {"matgrad": np.array(json.dumps(description))})


def with_arrays(**changes: Any) -> bytes:
    arrays = dict(np.load(io.BytesIO(model())))
    return saved({name: A for name, A in (arrays | changes).items() if A is not None})


def with_text(text: str) -> bytes:
    return with_arrays(matgrad=np.array(text))


def saved(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def sparse(**changes: Any) -> bytes:
    arrays = dict(np.load(io.BytesIO(model("Linear", "3;2", densities="0.7"))))
    return saved({name: A for name, A in (arrays | changes).items() if A is not None})


COLUMN = {"position": 0, "name": "a", "categories": None, "fill": None}


def with_columns(*columns: dict, **changes: Any) -> bytes:
    features = {"columns": list(columns), "width": 3, "target": COLUMN | {"position": 2, "name": "t"}}
    return described("information.features", features | {"missing": "error", "unknown": "error"} | changes)


DEEP = "[" * 100_000
MODEL: list[Case] = [
    ("sizes that ask for gigabytes", described("model.sizes", "3;20000;20000;2"), "asks for"),
    ("300,000,000 outputs", described("model.sizes", "3;4;4;300000000"), "asks for"),
    ("sizes of 400 digits", described("model.sizes", "3;4;4;" + "9" * 400), "asks for"),
    ("sizes of 5000 digits", described("model.sizes", "3;4;4;" + "9" * 5000), "layer size 4"),
    ("sizes as numbers", described("model.sizes", [3, 4, 4, 2]), "$.model"),
    ("sizes of words", described("model.sizes", "a;b;c;d"), "layer size 1"),
    ("size 0", described("model.sizes", "3;0;4;2"), "positive whole number"),
    ("negative sizes", described("model.sizes", "3;-40000;-40000;2"), "positive whole number"),
    ("other sizes", described("model.sizes", "3;4;5;2"), "has shape"),
    ("layers as a list", described("model.layers", ["Linear"]), "$.model"),
    ("layers as a number", described("model.layers", 3), "$.model"),
    ("layers as null", described("model.layers", None), "$.model"),
    ("no layers", described("model.layers", ""), "layer 1"),
    ("5000 layers", described("model.layers", ";".join(["ReLU"] * 5000)), "found 5000 layers"),
    ("unknown layer", described("model.layers", "ReLU;Magic;ReLU;Linear"), "unknown layer 'Magic'"),
    ("parentheses", described("model.layers", "(" * 5000), "cannot read"),
    ("no truth value", described("model.layers", "ReLU;BatchNormalization;SReLU(shared=no);Linear"), "True or False"),
    ("unknown argument", described("model.speed", "3"), "speed"),
    ("weights beyond float32", described("model.weights", "Uniform(-1e308,1e308)"), "float32"),
    ("dropout NaN", described("model.dropouts", "nan"), "dropout"),
    ("density 2", described("model.densities", "2"), "density 1"),
    ("density NaN", described("model.densities", "nan"), "density 1"),
    ("density 1e-300", described("model.densities", "1e-300"), "density"),
    ("renewal", described("model.renew", "never"), "renew"),
    ("model as a list", described("model", []), "$.model"),
    ("model is empty", described("model", {}), "no 'layers'"),
    ("a problem", described("model", {"problem": "it is hers"}), "it is hers"),
    ("information as a string", described("information", "x"), "$.information"),
    ("class names as a string", described("information.class_names", "ab"), "$.class_names"),
    ("class names as numbers", described("information.class_names", [1, 2]), "$.class_names"),
    ("class names in a list", described("information.class_names", [["a"], ["b"]]), "$.class_names"),
    ("class names twice", described("information.class_names", ["a", "a"]), "different names of 2 classes"),
    ("three class names", described("information.class_names", ["a", "b", "c"]), "different names of 2 classes"),
    ("no class names", described("information.class_names", None), None),
    ("300,000,000 classes", described("information.classes", 300_000_000), "expected 2 classes"),
    ("2^53 + 1 classes", described("information.classes", 2**53 + 1), "expected 2 classes"),
    ("classes beyond 2^64", described("information.classes", 10**30), "classes"),
    ("negative classes", described("information.classes", -2), "expected 2 classes"),
    ("classes as a string", described("information.classes", "2"), "$.classes"),
    ("classes as a truth value", described("information.classes", True), "$.classes"),
    ("classes as a list", described("information.classes", [2]), "$.classes"),
    ("no classes", described("information.classes", None), None),
    ("loss as a number", described("information.loss", 3), "$.loss"),
    ("unknown loss", described("information.loss", "Mystery"), "Mystery"),
    ("normalization as a number", described("information.normalize", 3), "$.normalize"),
    ("unknown normalization", described("information.normalize", "magic"), "unknown normalization 'magic'"),
    ("normalization of targets", described("information.normalize_targets", "unit"), "target_offset"),
    ("what users add", described("information.mine", {"a": [1, None]}), None),
    ("format 99", described("format", 99), "expected format 1"),
    ("format as a string", described("format", "1"), "$.format"),
    ("format as a truth value", described("format", True), "$.format"),
    ("features as a list", described("information.features", [1]), "features are damaged"),
    ("no columns", with_columns(), "unexpected columns"),
    ("negative position", with_columns(COLUMN | {"position": -1}), "features are damaged"),
    ("position as a truth value", with_columns(COLUMN | {"position": True}), "features are damaged"),
    ("categories twice", with_columns(COLUMN | {"categories": ["x", "x"]}), "unexpected columns"),
    ("fill is a word", with_columns(COLUMN | {"fill": "x"}), "unexpected columns"),
    ("width 2^70", with_columns(COLUMN, width=2**70), "features"),
    ("two features", with_columns(COLUMN), "the features have 1 columns, expected 3"),
    ("description is a list", with_text("[1, 2]"), "description is damaged"),
    ("description is empty", with_text(""), "description is damaged"),
    ("description is nested", with_text(DEEP), "nested too deeply"),
    ("description is nested and whole", with_text("[" * 500 + "]" * 500), "nested too deeply"),
    ("NaN in the description", with_text('{"format": NaN}'), "found NaN"),
    ("a name twice", with_text('{"format": 1, "format": 1}'), "'format' occurs twice"),
    ("an integer of 10,000 digits", with_text('{"format": ' + "9" * 10_000 + "}"), "description is damaged"),
    ("9 MB of JSON", lambda: with_text("[" + " " * (9 << 20)), "found 9437185 characters"),
    ("a million lists", lambda: with_text("[" + "[]," * 1_000_000 + "[]]"), "description is damaged"),
    ("description is a matrix", with_arrays(matgrad=np.eye(3)), "description is damaged"),
    ("description is bytes", with_arrays(matgrad=np.array(b"{}")), "description is damaged"),
    ("no description", with_arrays(matgrad=None), "no model description"),
    ("no W1", with_arrays(W1=None), "no W1"),
    ("W1 of another shape", with_arrays(W1=np.ones((3, 3))), "W1 has shape (3, 3)"),
    ("W1 of words", with_arrays(W1=np.full((4, 3), "a")), "W1 has elements"),
    ("W1 with NaN", with_arrays(W1=np.full((4, 3), np.nan)), "W1 has elements"),
    ("W1 beyond float32", with_arrays(W1=np.full((4, 3), 1e300)), None),
    ("W1 complex", with_arrays(W1=np.full((4, 3), 1j)), "W1 has elements"),
    ("W1 of truth values", with_arrays(W1=np.full((4, 3), True)), "W1 has elements"),
    ("W9", with_arrays(W9=np.eye(2)), "W9 in it"),
    ("scale 0", with_arrays(**{"extra.scale": np.zeros((1, 3))}), "not positive"),
    ("scale NaN", with_arrays(**{"extra.scale": np.full((1, 3), np.nan)}), "extra.scale"),
    ("no scale", with_arrays(**{"extra.scale": None}), "scale"),
    ("zeros of 160 MB", lambda: flooded("W1.npy"), "asks for 160 MB"),
]

SPARSE: list[Case] = [
    ("as it is", sparse(), None),
    ("no starts", sparse(**{"W1.starts": None}), "no W1.starts"),
    ("starts that decrease", sparse(**{"W1.starts": np.array([0, 5, 4])}), "W1.starts"),
    ("negative starts", sparse(**{"W1.starts": np.array([-1, 2, 4])}), "W1.starts"),
    ("starts of 2^62", sparse(**{"W1.starts": np.array([0, 2**62, 4])}), "W1.starts"),
    ("too many starts", sparse(**{"W1.starts": np.arange(4)}), "W1.starts"),
    ("starts of floats", sparse(**{"W1.starts": np.array([0.0, 2, 4])}), "W1.starts"),
    ("starts in a matrix", sparse(**{"W1.starts": np.zeros((2, 2), int)}), "W1.starts"),
    ("columns outside", sparse(**{"W1.columns": np.array([0, 1, 2, 3])}), "W1.columns"),
    ("negative columns", sparse(**{"W1.columns": np.array([0, 1, 2, -1])}), "W1.columns"),
    ("columns of words", sparse(**{"W1.columns": np.array(["a"] * 4)}), "W1.columns"),
    ("no columns", sparse(**{"W1.starts": np.zeros(3, int), "W1.columns": np.zeros(0, int)}), "W1.columns"),
    ("too few values", sparse(W1=np.ones((1, 2), np.float32)), "W1 has shape (1, 2)"),
    ("dense", sparse(**{"W1.starts": None, "W1.columns": None}), "W1 is a dense matrix"),
]

# -- programs -------------------------------------------------------------------------------------


def safetensors(header: bytes | dict, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | changes


def programmed(change: Callable[[dict], Any], part: str = "matgrad") -> bytes:
    """The good program after a change of its JSON."""
    content = program()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    value = json.loads(header["__metadata__"][part])
    change(value)
    header["__metadata__"][part] = json.dumps(value)
    return safetensors(header, content[8 + size :])


def metadata(**strings: str) -> bytes:
    return safetensors({"__metadata__": strings})


def setting(*places: Any) -> Callable[[dict], None]:
    """Set the value at the places but the last to the last."""

    def change(value: Any) -> None:
        *path, last, new = places
        for place in path:
            value = value[place]
        value[last] = new

    return change


PROGRAM: list[Case] = [
    ("header of 2^63 bytes", struct.pack("<Q", 2**63) + b"{}", "not a safetensors file"),
    ("header of 20 MB", lambda: safetensors(b'{"a": "' + b" " * (20 << 20) + b'"}'), "found 20971529 bytes"),
    ("header that is cut off", struct.pack("<Q", 100) + b"{}", "not a safetensors file"),
    ("header of no JSON", safetensors(b"{hello}"), "not a safetensors file"),
    ("header that is a list", safetensors(b"[]"), "not a safetensors file"),
    ("nested header", safetensors(b'{"a":' * 5000), "not a safetensors file"),
    ("tensors that overlap", safetensors({"a": tensor(), "b": tensor()}, bytes(4)), "not a safetensors file"),
    ("tensor of 2^62 numbers", safetensors({"a": tensor(shape=[2**31, 2**31])}, bytes(4)), "not a safetensors file"),
    ("unknown dtype", safetensors({"a": tensor(dtype="F3")}, bytes(4)), "not a safetensors file"),
    ("bfloat16", safetensors({"a": tensor(dtype="BF16", data_offsets=[0, 2])}, bytes(2)), "safetensors"),
    ("no program", metadata(), "there is no program"),
    ("nested program", metadata(matgrad=DEEP), "nested too deeply"),
    ("empty program", metadata(matgrad=""), "invalid program"),
    ("program as a list", metadata(matgrad="[]"), "invalid program"),
    ("program as a string", metadata(matgrad='"x"'), "invalid program"),
    ("a million values", lambda: metadata(matgrad="[" + "{}," * 1_000_000 + "{}]"), "invalid program"),
    ("format 1", programmed(setting("format", 1)), "format 1"),
    ("sizes as a list", programmed(setting("sizes", [3])), "invalid program"),
    ("size -1", programmed(setting("sizes", "N", -1)), "expected a size"),
    ("size as a string", programmed(setting("sizes", "N", "5")), "expected a size"),
    ("no values", programmed(setting("values", [])), "invalid program"),
    ("values as a table", programmed(setting("values", {})), "invalid program"),
    ("value as a number", programmed(setting("values", 0, 3)), "invalid program"),
    ("unknown operation", programmed(setting("values", -1, "operation", "magic")), "unknown operation 'magic'"),
    ("operation as a list", programmed(setting("values", -1, "operation", [1])), "unknown operation"),
    ("operands ahead", programmed(setting("values", -1, "operands", [10**6])), "expected operands before it"),
    ("operands from the end", programmed(setting("values", -1, "operands", [-1])), "expected operands before it"),
    ("operands as a number", programmed(setting("values", -1, "operands", 3)), "invalid program"),
    ("no operands", programmed(setting("values", -1, "operands", [])), "invalid program"),
    ("shape as a number", programmed(setting("values", -1, "shape", 3)), "invalid program"),
    ("shape of floats", programmed(setting("values", -1, "shape", [1.5, 2])), "expected a size"),
    ("shape of an unknown size", programmed(setting("values", -1, "shape", ["Q", 2])), "invalid program"),
    ("dtype float8", programmed(setting("values", -1, "dtype", "float8")), "invalid program"),
    ("dtype as a list", programmed(setting("values", -1, "dtype", [])), "invalid program"),
    ("number as a list", programmed(setting("values", -1, "number", [1])), "invalid program"),
    ("number as a word", programmed(setting("values", -1, "number", "three")), None),
    ("name as a number", programmed(setting("values", 0, "name", 3)), "expected a string"),
    ("outputs as a list", programmed(setting("outputs", [1])), "invalid program"),
    ("output from the end", programmed(setting("outputs", "1.b", -1)), "expected indices"),
    ("tensors as a list", programmed(setting("tensors", []), "model"), "$.tensors"),
    ("tensors as numbers", programmed(setting("tensors", "W1", 3), "model"), "$.tensors"),
    ("tensor that is not there", programmed(setting("tensors", "W1", "9.W"), "model"), "9.W"),
    ("model of 20,000 inputs", programmed(setting("model", "sizes", "20000;20000;2"), "model"), "asks for"),
]
