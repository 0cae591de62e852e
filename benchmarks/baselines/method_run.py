"""One run of a method of sparse training in its own process: `python -m baselines.method_run`.

See `harness.worker` for requests and replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.memory import Growth
from harness.worker import serve
from matgrad.callbacks import Accounting, Callback, Statistics
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import EVALUATION_BATCH
from matgrad.foundation.numbers import manual_seed
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_densities
from matgrad.specifications.models import create_model
from matgrad.specifications.parsing import parse_call
from matgrad.training import Training

FILES = ("Xtrain", "Ttrain", "Xtest", "Ttest")
DENSE = ("dense", "dense-PyTorch")  # without a density
PYTORCH = ("dense-PyTorch", "masked-static", "masked-RigL")


@dataclass(frozen=True)
class Run:
    """What is trained: a method at a density with a seed, and the setting, which all runs share."""

    method: str
    density: float
    seed: int
    sizes: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: str
    momentum: float
    weight_decay: float

    def model(self) -> MultilayerPerceptron:
        """The model that training starts from: sparse, unless the method is to make it so."""
        manual_seed(self.seed)
        is_dense = self.method in DENSE or starts_dense(self.method)
        layers = ["ReLU"] * (len(self.sizes) - 2) + ["Linear"]
        densities = [1.0] * len(layers) if is_dense else self.densities()
        optimizer = f"Nesterov({self.momentum}, weight_decay={self.weight_decay})"
        return create_model(layers, self.sizes, densities=densities, optimizers=optimizer)

    def densities(self) -> list[float]:
        """Those of the layers, by the Erdős–Rényi rule."""
        return erdos_renyi_densities(self.sizes, self.density)

    def callbacks(self) -> list[Callback]:
        """The method."""
        if self.method in DENSE:
            return []
        # SNIP divides the density of the whole model among the layers itself
        density = self.density if parse_call(self.method).name == "SNIP" else self.densities()
        return [create_method(self.method, **({"density": density} if starts_dense(self.method) else {}))]


def starts_dense(method: str) -> bool:
    """Whether a method is to make a dense model sparse."""
    return method not in PYTORCH and parse_call(method).name in FROM_DENSE


# -- the process ---------------------------------------------------------------------------------


def train(folder: str, **run: Any) -> dict[str, Any]:
    """Train on the data in a folder: the accuracy and seconds of every epoch, and what the run took in all."""
    todo = Run(**{**run, "sizes": tuple(run["sizes"])})
    rows_of = _rows_of_pytorch if todo.method in PYTORCH else _rows
    _rehearse(rows_of, todo)
    arrays = [np.asarray(np.load(Path(folder) / f"{name}.npy", mmap_mode="r")) for name in FILES]
    memory = Growth()
    memory.after_load()  # the files are mapped, which does not count
    memory.before_training()
    rows = rows_of(todo, *arrays)
    memory.after_training()
    return {
        **{name: rows[-1][name] for name in ("test_accuracy", "explored")},
        "stored": rows[-1]["density"],  # which is the density asked for, up to rounding
        **{name: sum(row.get(name, 0) for row in rows) for name in ("seconds", "flops", "update_flops", "dense_flops")},
        "memory": memory.training,
        "accuracies": [row["test_accuracy"] for row in rows],
        "epoch_seconds": [round(row["seconds"], 4) for row in rows],
    }


def _rehearse(rows_of: Callable[..., list], run: Run) -> None:
    """Train a tiny model: what libraries load and take at their first use is not part of the run's time and memory."""
    X, t = np.eye(8, dtype=np.float32), np.arange(8) % 4
    rows_of(replace(run, sizes=(8, 6, 4), density=0.5, epochs=1, batch_size=4), X, t, X, t)


def _rows(run: Run, Xtrain: np.ndarray, Ttrain: np.ndarray, Xtest: np.ndarray, Ttest: np.ndarray) -> list[dict]:
    """The rows of training with matgrad."""
    M = run.model()
    loaders = [
        DataLoader(X, T, run.batch_size, shuffle=X is Xtrain, seed=run.seed, classes=run.sizes[-1])
        for X, T in ((Xtrain, Ttrain), (Xtest, Ttest))
    ]
    loss, schedule = create_loss("SoftmaxCrossEntropy"), create_scheduler(run.learning_rate)
    training = Training(M, loss, loaders[0], run.epochs, schedule)
    training.train([*run.callbacks(), Statistics({"test_": loaders[1]}), Accounting()])
    return training.rows


def _rows_of_pytorch(run: Run, Xtrain: np.ndarray, Ttrain: np.ndarray, Xtest: np.ndarray, Ttest: np.ndarray) -> list:
    """The rows of training with PyTorch, from the same weights and on the same batches; its products are dense."""
    from baselines.masked_pytorch import MaskedTraining

    M: Any = run.model()
    parameters = [(layer.W, layer.b) for layer in M.layers]
    steps = run.epochs * -(-len(Xtrain) // run.batch_size)
    moves = run.method == "masked-RigL"
    training = MaskedTraining(parameters, run.momentum, run.weight_decay, steps, moves)
    rng, schedule = np.random.default_rng(run.seed), create_scheduler(run.learning_rate)
    products = [D * K for D, K in zip(run.sizes, run.sizes[1:], strict=False)]
    flops = 2 * len(Xtrain) * (3 * sum(products) - products[0])
    rows = []
    for i in range(run.epochs):
        order = rng.permutation(len(Xtrain))
        seconds = training.train(_batches(Xtrain, Ttrain, run.batch_size, order), schedule(i))
        accuracy = training.accuracy(_batches(Xtest, Ttest, EVALUATION_BATCH, np.arange(len(Xtest))))
        density, explored = training.stored()
        row = {"epoch": i + 1, "learning_rate": schedule(i), "seconds": seconds, "test_accuracy": accuracy}
        rows.append(row | {"flops": flops, "dense_flops": flops, "density": density, "explored": explored})
    return rows


def _batches(X: np.ndarray, T: np.ndarray, size: int, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((X[rows], T[rows]) for rows in (order[i : i + size] for i in range(0, len(order), size)))


if __name__ == "__main__":
    serve(train=train)
