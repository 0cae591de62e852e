"""All hostile files that are made by hand, by reader."""

from __future__ import annotations

from hostile_checkpoints import CHECKPOINT
from hostile_data import BATCH, CSV, IDX, TAR
from hostile_models import MODEL, PROGRAM, SPARSE
from hostile_npz import NPZ
from hostile_options import JSON, OPTION, TOML, YAML
from hostile_readers import Case
from hostile_runs import CSV_LOG, LOG, RECORD, SVMLIGHT
from hostile_tools import KERAS, ONNX, SPARSE_ONNX, TORCH

HOSTILE: dict[str, list[Case]] = {
    "npz": NPZ,
    "model": MODEL,
    "sparse model": SPARSE,
    "program": PROGRAM,
    "checkpoint": CHECKPOINT,
    "onnx": ONNX,
    "sparse onnx": SPARSE_ONNX,
    "keras": KERAS,
    "torch": TORCH,
    "csv": CSV,
    "idx": [case for case in IDX if "gzip" not in case[0] and "8 MB" not in case[0]],
    "idx.gz": [case for case in IDX if "gzip" in case[0] or "8 MB" in case[0]],
    "cifar binary": BATCH,
    "tar": TAR,
    "yaml": YAML,
    "toml": TOML,
    "json": JSON,
    "options": OPTION,
    "record": RECORD,
    "log": LOG,
    "csv log": CSV_LOG,
    "svmlight": SVMLIGHT,
}
