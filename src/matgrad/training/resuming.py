"""Resuming a run from a checkpoint, as if it had not ended: what is kept of it, restored, and compared."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matgrad.callbacks import Callback, Checkpoints
from matgrad.datasets import DataLoader
from matgrad.distributed.group import is_first
from matgrad.engines.engine import Batches
from matgrad.foundation.files import naming
from matgrad.foundation.machine import threads, versions
from matgrad.foundation.numbers import generator
from matgrad.optimizers import CompositeOptimizer
from matgrad.program.purity import Snapshot
from matgrad.specifications.origins import check_origins, origins
from matgrad.storage.checkpoints import Checkpoint, RunState
from matgrad.training.view import Data

if TYPE_CHECKING:
    from matgrad.training.run import Training


def snapshot(run: Training) -> RunState:
    """What a checkpoint has of a run, apart from its model: between two batches, or two epochs."""
    is_partial = run._is_in_epoch
    return RunState(
        epoch=run.epoch,
        batch=run.batch if is_partial else 0,
        batches=run.batches if is_partial else None,
        step=run.step,
        examples=run.examples if is_partial else 0,
        seconds=sum(row["seconds"] for row in run.rows),
        epoch_seconds=time.perf_counter() - run._start_of_epoch if is_partial else 0.0,
        is_stopped=run.is_stopped and not run.is_interrupted,
        settings=settings(run) | conditions(run),
        rows=run.rows,
        order=run._order if is_partial else generator_of(run.data),
        generator=dict(generator().bit_generator.state),
        callbacks=[(type(callback).__name__, callback.state(run)) for callback in run.callbacks],
        plugins={
            "model": origins(layer for _, layer in run.M.walk()),
            "training": origins([run.loss, *run.callbacks]),
        },
    )


def restore(run: Training, checkpoint: Checkpoint, callbacks: Sequence[Callback]) -> None:
    """Set the run and its model to a checkpoint."""
    if run.epochs < checkpoint.run.epoch:
        expected = f"expected as many epochs or more, found {run.epochs}"
        raise ValueError(f"{checkpoint.path}: {checkpoint.run.epoch} epochs are done, {expected}")
    checkpoint.restore(run.M)
    with naming(checkpoint.path):
        check_origins(checkpoint.run.plugins.get("training", {}), [run.loss, *callbacks], are_all_needed=False)
    saved = run._resumed = checkpoint.run
    run.resumed_from = checkpoint.path
    run.epoch, run.step, run.rows, run.seconds = saved.epoch, saved.step, list(saved.rows), saved.seconds
    run.is_stopped = saved.is_stopped


def started(run: Training) -> Iterator[Callback]:
    """Start the callbacks of this rank, those that the checkpoint has a state of with that."""
    saved = [] if run._resumed is None else list(run._resumed.callbacks)
    names = {type(callback).__name__ for callback in run.callbacks}
    for missing in {name for name, state in saved if state} - {*names, Checkpoints.__name__}:
        warnings.warn(f"the checkpoint has a callback {missing}, and is resumed without it", stacklevel=3)
    for callback in run.callbacks:
        if callback.only_first and not is_first():
            continue
        own = next((item for item in saved if item[0] == type(callback).__name__), None)
        if own is None:
            callback.start(run)
        else:
            saved.remove(own)
            callback.resume(run, own[1])
        yield callback
    if run._resumed is not None and is_first():
        compare(run, run._resumed.settings)


def resume_epoch(run: Training, data: Batches) -> None:
    """Resume the epoch of a checkpoint, with the generators of random numbers as they were when it began."""
    saved, run._resumed = run._resumed, None
    if saved is None:
        return
    run._generator = saved.generator if saved.batch else None
    if saved.batch and saved.batches != run.batches:
        raise ValueError(f"the checkpoint is of data with {saved.batches} batches, found {run.batches}")
    run.batch, run.examples = saved.batch, saved.examples
    run._start_of_epoch -= saved.epoch_seconds
    with naming(f"{run.resumed_from}", "a damaged state of a random generator: "):
        generator().bit_generator.state = saved.generator
        if isinstance(data, DataLoader) and saved.order is not None:
            run._order = data.rng.bit_generator.state = saved.order


def restore_generator(run: Training) -> None:
    """Give the generator its state in the checkpoint, when the order of the batches has been drawn from it."""
    if run._generator is not None:
        generator().bit_generator.state, run._generator = run._generator, None


def generator_of(data: Data) -> dict[str, Any] | None:
    """The state of the generator from which the order of the data comes, if it is known."""
    return dict(data.rng.bit_generator.state) if isinstance(data, DataLoader) else None


# -- what should be the same in all parts of a run, in words ------------------------------------------


def settings(run: Training) -> dict[str, str]:
    """What was asked for."""
    rules = CompositeOptimizer(*(layer.optimizer for _, layer in run.M.walk()))
    return {
        "the loss": run.loss.specification(),
        "the optimizers": rules.specification(),
        "the clip norm": "none" if run.clip_norm is None else f"{run.clip_norm:g}",
        "products in": run.M.matmul,
    }


def conditions(run: Training) -> dict[str, str]:
    """What must be the same to end with the same bits."""
    M, known = run.M, versions()
    return {
        "its equations": "one by one" if run._step.compiled is None else "compiled",
        "the engine": M.engine,
        "the device": M.device or "cpu",
        "the number of threads": str(threads()),
        "the number of ranks": str(run.group.size),
        **{f"the version of {x}": known[x] for x in ("matgrad", "numpy", M.backend.name) if x in known},
        **Snapshot(M, run.loss).kept(),
    }


def compare(run: Training, before: Mapping[str, str]) -> None:
    """Warn of what differs from the run in a checkpoint."""
    present = settings(run) | conditions(run)
    for name, had in before.items():
        if (now := present.get(name, "none")) != had:
            warnings.warn(f"the run in the checkpoint had {name} {had}, and is resumed with {now}", stacklevel=4)
