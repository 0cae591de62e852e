"""The record of a run: all that is needed to know what was done and to repeat it."""

from __future__ import annotations

import time
from os import PathLike
from typing import TYPE_CHECKING, Any

from matgrad.foundation.machine import machine, versions
from matgrad.specifications.models import model_specification

if TYPE_CHECKING:
    from matgrad.cli.run import TrainingRun


def run_record(run: TrainingRun, results: dict[str, float], started: float) -> dict[str, Any]:
    """Seed, versions, machine, hash of the data as read, full configuration, epochs, results and times of a run.

    `seconds` are those of the whole run, or of its last part if it was resumed, and in an epoch those of its training,
    with compiling, which took `compilation_seconds` in all, without statistics.
    """
    M, data, training = run.M, run.data, run.training
    return {
        "seed": run.options["seed"],
        "backend": M.engine,
        "device": M.device or "cpu",
        "matmul": M.matmul,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": round(time.time() - started, 3),
        "compilation_seconds": round(training.compilation_seconds, 3),
        "resumed_from": _plain(training.resumed_from),
        "interrupted": training.is_interrupted,
        "diverged": training.is_rescued,
        "versions": versions(),
        "machine": machine(),
        "data": {
            "name": data.name,
            "sha256": run.sha256,
            "training_examples": run.statistics.parts[""].size,  # without those held out
            "test_examples": data.Xtest.shape[0],
            "features": data.input_size,
            "classes": data.classes,
            "normalize": None if M.normalization is None else M.normalization.kind,
            "normalize_targets": None if M.target_normalization is None else M.target_normalization.kind,
        },
        "model": model_specification(M) | {"loss": training.loss.specification()},
        "configuration": {name: _plain(value) for name, value in run.options.items() if name != "resume"},
        "epochs": training.rows,
        "results": results,
        "timer": run.timer.record(),
    }


def _plain(value: Any) -> Any:
    """The value of an option as JSON can hold it."""
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return str(value) if isinstance(value, PathLike) else value
