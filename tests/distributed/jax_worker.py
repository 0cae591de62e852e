"""One process of a test with JAX: ``jax_worker.py '{"FUNCTION": [ARGUMENT, …], …}'``, with the variables of JAX.

The last line that it prints is what the functions return, by name, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import jax
import numpy as np
from cases import RATE, model, numbers, train
from threads import using
from xla_traffic import N, partitioned, traffic

import matgrad as mg
from matgrad.distributed.group import Disagreement
from matgrad.distributed.jax_group import JaxGroup
from matgrad.training.run import Training

STOP_AT = 3  # steps after which the last rank asks to stop


def same(group: JaxGroup, *names: str) -> dict[str, Any]:
    """For every case how far this group is from one process of NumPy, and what this rank has."""
    found = {}
    for name in names:
        # eight examples are shared out; those of the last batch are not, because five is odd
        options = {} if name == "one" else {"batch_size": N}
        expected = train(name, "numpy", **options)
        with using(group):
            state = train(name, "jax", **options)
        found[name] = {"error": difference(state, expected), "digest": digest(state)}
    return found


def stopped(group: JaxGroup) -> dict[str, Any]:
    """After which step this rank stops if the last one asks for it, and how far it is from NumPy after as many."""
    with using(group):
        state, step = trained("jax", StopAt(STOP_AT, group.size - 1))
    expected, _ = trained("numpy", StopAt(step, 0))
    return {"step": step, "error": difference(state, expected), "digest": digest(state)}


def broken(group: JaxGroup) -> str:
    """The error of this rank if the last one fails, or is killed; the group is then at its end."""
    try:
        with using(group), group:
            trained("jax", FailAt(STOP_AT, group.size - 1))
    except (ValueError, ConnectionError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


class StopAt(mg.Callback):
    """A rank asks to stop after some steps."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank

    def poll(self, run: Training) -> None:
        if run.step == self.step and (run.group.size == 1 or run.group.rank == self.rank):
            run.stop()


class FailAt(StopAt):
    """A rank fails after some steps."""

    def poll(self, run: Training) -> None:
        if run.step == self.step and run.group.rank == self.rank:
            raise ValueError("no luck")


def trained(backend: str, callback: mg.Callback) -> tuple[dict[str, np.ndarray], int]:
    M, loss, _, loader = model("mlp", backend, batch_size=2)
    run = Training(M, loss, loader, 2, mg.ConstantScheduler(RATE))
    run.train([callback])
    return numbers(M), run.step


def fitted(group: JaxGroup) -> dict[str, Any]:
    """How far what is measured and predicted is from NumPy, and whether the model stays on the device of its own."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    models, last = [], f"cpu:{jax.local_device_count() - 1}"
    for backend, device, ranks in (("numpy", None, None), ("jax", last, group)):
        mg.manual_seed(1)
        M = mg.MultilayerPerceptron([mg.ActivationLayer(5, 6, "ReLU"), mg.LinearLayer(6, 3)])
        M.to(backend, dtype="float64", device=device)
        with using(ranks):
            M.fit(X, T, epochs=2, batch_size=N, seed=2, validation=0.25)
        models.append(M)
    A, B = models
    names = ("loss", "accuracy", "validation_loss", "validation_accuracy")
    return {
        "history": max(float(np.abs(np.subtract(A.history[name], B.history[name])).max()) for name in names),
        "prediction": float(np.abs(A.predict(X) - B.predict(X)).max()),
        "is_at_home": B.device == last,
    }


def different_models(group: JaxGroup) -> str:
    """The error if the ranks have different rules."""
    M, loss, _, loader = model("mlp", "jax")
    M.set_optimizer(f"Momentum(0.{9 - group.rank})")
    try:
        one_step(M, loss, loader, group)
    except Disagreement as error:
        return str(error)
    return "none"


def different_weights(group: JaxGroup) -> dict[str, Any]:
    """How far this rank is from NumPy after a step that only rank 0 begins with the right weights."""
    (M, *rest), (expected, *others) = (model("mlp", backend, batch_size=N) for backend in ("jax", "numpy"))
    if group.rank:
        M.load_state({name: np.nan * X for name, X in M.state().items()})
    state = one_step(M, rest[0], rest[-1], group)
    return {"error": difference(state, one_step(expected, others[0], others[-1], None)), "digest": digest(state)}


def one_step(M: Any, loss: Any, loader: Any, group: JaxGroup | None) -> dict[str, np.ndarray]:
    with using(group):
        step = mg.compile_step(M, loss)
    step.load(M.state())
    X, T = loader.batch(0)
    step(X, T, M.scalar(RATE))
    M.load_state(step.state())
    return numbers(M)


def sent(group: JaxGroup, *names: str) -> dict[str, Any]:
    """What our step sends, and what XLA's partitioner sends for the step alone."""
    found = {}
    for name in names:
        M, loss, clip_norm, loader = model(name, "jax", batch_size=N)
        with using(group):
            step: Any = mg.compile_step(M, loss, clip_norm=clip_norm)
        step.load(M.state())
        ours = step.compiled.lower(step.matrices, *step._inputs(N, RATE, *loader.batch(0))).compile().as_text()
        found[name] = {"ours": traffic(ours), "alone": traffic(partitioned(name))}
    return found


def difference(state: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(state[name] - A).max()) for name, A in expected.items())


def digest(state: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(A.tobytes() for A in state.values())).hexdigest()


FUNCTIONS = (same, stopped, broken, fitted, different_models, different_weights, sent)


def main(tasks: dict[str, list[str]]) -> None:
    jax.config.update("jax_enable_x64", True)
    functions = {function.__name__: function for function in FUNCTIONS}
    group = mg.distributed.start(backend="jax")
    with using(None):  # the functions choose
        found = {name: functions[name](group, *arguments) for name, arguments in tasks.items()}
    print(json.dumps(found), flush=True)
    if "broken" in tasks:
        os._exit(0)  # JAX would wait for the other rank
    group.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
