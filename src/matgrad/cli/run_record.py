"""The record of a run: all that is needed to know what was done and to repeat it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from matgrad.datasets import Dataset
from matgrad.foundation.machine import machine, versions
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.models import model_specification
from matgrad.training import Training


def run_record(
    options: dict[str, Any],
    data: Dataset,
    sha256: str,
    M: MultilayerPerceptron,
    loss: LossFunction,
    training: Training,
    results: dict[str, float],
    timer: list[dict[str, Any]],
    started: float,
) -> dict[str, Any]:
    """Seed, versions, machine, hash of the data as read, full configuration, epochs, results and times of a run.

    `seconds` are those of the whole run, or of its last part if it was resumed, and in an epoch those of its training,
    with compiling, which took `compilation_seconds` in all, without statistics.
    """
    plain = {
        key: str(value) if isinstance(value, Path) else [str(v) for v in value] if isinstance(value, tuple) else value
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
        "compilation_seconds": round(training.compilation_seconds, 3),
        "resumed_from": None if training.resumed_from is None else str(training.resumed_from),
        "interrupted": training.is_interrupted,
        "diverged": training.is_rescued,
        "versions": versions(),
        "machine": machine(),
        "data": {
            "name": data.name,
            "sha256": sha256,
            "training_examples": data.Xtrain.shape[0],
            "test_examples": data.Xtest.shape[0],
            "features": data.input_size,
            "classes": data.classes,
            "normalize": data.normalization.kind,
            "normalize_targets": None if M.target_normalization is None else M.target_normalization.kind,
        },
        "model": model_specification(M) | {"loss": loss.specification()},
        "configuration": plain,
        "epochs": training.rows,
        "results": results,
        "timer": timer,
    }
