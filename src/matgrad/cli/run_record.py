"""The record of a run: all that is needed to know what was done and to repeat it."""

from __future__ import annotations

import time
from os import PathLike
from typing import Any

from matgrad.callbacks import Statistics
from matgrad.datasets import Dataset
from matgrad.foundation.machine import machine, versions
from matgrad.specifications.models import model_specification
from matgrad.training import Training


def run_record(
    options: dict[str, Any],
    data: Dataset,
    sha256: str,
    run: Training,
    results: dict[str, float],
    timer: list[dict[str, Any]],
    started: float,
) -> dict[str, Any]:
    """Seed, versions, machine, hash of the data as read, full configuration, epochs, results and times of a run.

    `seconds` are those of the whole run, or of its last part if it was resumed, and in an epoch those of its training,
    with compiling, which took `compilation_seconds` in all, without statistics.
    """
    M, loss = run.M, run.loss
    plain = {
        key: [str(v) for v in value]
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, PathLike)
        else value
        for key, value in options.items()
        if key != "resume"  # the record is that of the whole run
    }
    return {
        "seed": options["seed"],
        "backend": M.engine,
        "device": M.device or "cpu",
        "matmul": M.matmul,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": round(time.time() - started, 3),
        "compilation_seconds": round(run.compilation_seconds, 3),
        "resumed_from": None if run.resumed_from is None else str(run.resumed_from),
        "interrupted": run.is_interrupted,
        "diverged": run.is_rescued,
        "versions": versions(),
        "machine": machine(),
        "data": {
            "name": data.name,
            "sha256": sha256,
            "training_examples": _training_examples(run),
            "test_examples": data.Xtest.shape[0],
            "features": data.input_size,
            "classes": data.classes,
            "normalize": None if M.normalization is None else M.normalization.kind,
            "normalize_targets": None if M.target_normalization is None else M.target_normalization.kind,
        },
        "model": model_specification(M) | {"loss": loss.specification()},
        "configuration": plain,
        "epochs": run.rows,
        "results": results,
        "timer": timer,
    }


def _training_examples(run: Training) -> int:
    """The number of examples of an epoch, without those held out."""
    return next(callback.parts[""].size for callback in run.callbacks if isinstance(callback, Statistics))
