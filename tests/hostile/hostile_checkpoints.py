"""Hostile checkpoints, whose digest is that of what they have."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy
from hostile_models import safetensors as as_safetensors
from hostile_models import setting
from hostile_readers import Case, checkpoint

from matgrad.storage.trees import digest_of


def resealed(change: Callable[[dict], Any] = lambda content: None, **tensors: np.ndarray) -> bytes:
    """The good checkpoint after a change of its JSON, with other tensors, and with the digest of all that."""
    good = checkpoint()
    (size,) = struct.unpack("<Q", good[:8])
    strings = json.loads(good[8 : 8 + size])["__metadata__"]
    content = json.loads(strings["checkpoint"])
    change(content)
    strings["checkpoint"] = json.dumps(content)
    del strings["sha256"]
    arrays = safetensors.numpy.load(good) | tensors
    return safetensors.numpy.save(arrays, strings | {"sha256": digest_of(strings, arrays)})


def of_callback(name: str, key: str, value: Any) -> bytes:
    """The good checkpoint with another value in the state of a callback."""

    def change(content: dict) -> None:
        next(state for kind, state in content["run"]["callbacks"] if kind == name)[key] = value

    return resealed(change)


DICT, LIST, INT = "expected a matrix, found dict", "expected a support, found list", "expected a matrix, found int"
CHECKPOINT: list[Case] = [
    ("as it is", resealed(), None),
    ("another digest", as_safetensors({"__metadata__": {"sha256": "0"}}), "does not agree with its digest"),
    ("no digest", as_safetensors({"__metadata__": {}}), "found another safetensors file"),
    ("a parameter as a table", resealed(setting("state", "1.b", {})), f"1.b: {DICT}"),
    ("a parameter as a number", resealed(setting("state", "1.b", 3)), f"1.b: {INT}"),
    ("a support as a list", resealed(setting("state", "1.W.support", [])), f"1.W.support: {LIST}"),
    ("a tensor that is not there", resealed(setting("state", "1.b", {"$matrix": "9.b"})), "there is no tensor '9.b'"),
    ("a tensor without a name", resealed(setting("state", "1.b", {"$matrix": []})), "there is no tensor []"),
    ("integers", resealed(**{"1.b": np.ones((1, 4), np.int64)}), "1.b is int64, but the model is float32"),
    ("float64", resealed(**{"1.b": np.ones((1, 4))}), "1.b is float64, but the model is float32"),
    ("nan", resealed(**{"1.b": np.full((1, 4), np.nan, np.float32)}), "1.b has elements that are not finite"),
    ("other shapes", resealed(**{"1.b": np.ones((1, 5), np.float32)}), "1.b is (1, 5), expected (1, 4)"),
    ("-1 epochs", resealed(setting("run", "epoch", -1)), "epoch: expected a number of 0 or more"),
    ("10^400 epochs", resealed(setting("run", "epoch", 10**400)), "epoch: expected a number of 0 or more, below 2^53"),
    ("steps as a truth value", resealed(setting("run", "step", True)), "$.step"),
    ("rows as a number", resealed(setting("run", "rows", 3)), "$.rows"),
    ("format 99", resealed(setting("format", 99)), "expected format 1, found 99"),
    ("the best loss as a table", of_callback("EarlyStopping", "best", {}), "state of EarlyStopping (best: "),
    ("the best model as a list", of_callback("EarlyStopping", "_state", []), "state of EarlyStopping (_state: "),
    ("the best model of numbers", of_callback("EarlyStopping", "_state", {"1.b": 3}), f"1.b: {INT}"),
    ("updates as a word", of_callback("RigL", "updates", "many"), "damaged state of RigL (updates: "),
]  # fmt: skip
