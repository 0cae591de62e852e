"""One run of a method of sparse training, in matgrad or, as it is usually done, in PyTorch with masks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.problems import dense
from harness.worker import Growth
from matgrad.callbacks import Accounting, Callback, Statistics
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.datasets import DataLoader
from matgrad.evaluation.measures import EVALUATION_BATCH
from matgrad.foundation.numbers import manual_seed
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_densities
from matgrad.sparse.matrix import SparseMatrix
from matgrad.specifications.models import create_model
from matgrad.specifications.parsing import parse_call
from matgrad.training import Training

FILES = ("Xtrain", "Ttrain", "Xtest", "Ttest")
DENSE = ("dense", "dense-PyTorch")  # without a density
PYTORCH = ("dense-PyTorch", "masked-static", "masked-RigL")
FRACTION, EVERY, UNTIL = 0.3, 100, 0.75  # RigL's drop fraction, steps between updates, and part of the run with updates
Row = dict[str, Any]


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
    weight_decay: float
    momentum: float = 0.9

    @property
    def starts_dense(self) -> bool:
        """Whether the method is to make a dense model sparse."""
        return self.method not in (*PYTORCH, *DENSE) and parse_call(self.method).name in FROM_DENSE

    def model(self) -> MultilayerPerceptron:
        """The model that training starts from, with densities by the Erdős–Rényi rule."""
        manual_seed(self.seed)
        layers = ["ReLU"] * (len(self.sizes) - 2) + ["Linear"]
        is_dense = self.method in DENSE or self.starts_dense
        densities = [1.0] * len(layers) if is_dense else erdos_renyi_densities(self.sizes, self.density)
        optimizer = f"Nesterov({self.momentum}, weight_decay={self.weight_decay})"
        return create_model(layers, self.sizes, densities=densities, optimizers=optimizer)

    def callbacks(self) -> list[Callback]:
        """The method."""
        if self.method in DENSE:
            return []
        # SNIP divides the density of the whole model among the layers itself
        is_snip = parse_call(self.method).name == "SNIP"
        density = self.density if is_snip else erdos_renyi_densities(self.sizes, self.density)
        return [create_method(self.method, **({"density": density} if self.starts_dense else {}))]


def train(run: Run, folder: Path) -> Row:
    """Train on the data in a folder: the accuracy and seconds of every epoch, and what the run took in all."""
    rows_of: Callable[..., list[Row]] = _rows_of_pytorch if run.method in PYTORCH else _rows
    # what libraries load and take at their first use is not part of the run's time and memory
    X, t = np.eye(8, dtype=np.float32), np.arange(8) % 4
    rows_of(replace(run, sizes=(8, 6, 4), density=0.5, epochs=1, batch_size=4), X, t, X, t)
    arrays = [np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in FILES]
    memory = Growth()
    memory.after_load()  # the files are mapped, which does not count
    memory.before_training()
    rows = rows_of(run, *arrays)
    memory.after_training()
    return {
        **{name: rows[-1][name] for name in ("test_accuracy", "explored")},
        "stored": rows[-1]["density"],  # which is the density asked for, up to rounding
        **{name: sum(row.get(name, 0) for row in rows) for name in ("seconds", "flops", "update_flops", "dense_flops")},
        "memory": memory.training,
        "accuracies": [row["test_accuracy"] for row in rows],
        "epoch_seconds": [round(row["seconds"], 4) for row in rows],
    }


def _rows(run: Run, Xtrain: np.ndarray, Ttrain: np.ndarray, Xtest: np.ndarray, Ttest: np.ndarray) -> list[Row]:
    """The rows of training with matgrad."""
    options: Any = {"batch_size": run.batch_size, "seed": run.seed, "classes": run.sizes[-1]}
    train, test = (
        DataLoader(Xtrain, Ttrain, shuffle=True, **options),
        DataLoader(Xtest, Ttest, shuffle=False, **options),
    )
    loss, schedule = create_loss("SoftmaxCrossEntropy"), create_scheduler(run.learning_rate)
    training = Training(run.model(), loss, train, run.epochs, schedule)
    training.train([*run.callbacks(), Statistics({"test_": test}), Accounting()])
    return training.rows


# -- PyTorch ----------------------------------------------------------------------------------------


def _rows_of_pytorch(run: Run, Xtrain: np.ndarray, Ttrain: np.ndarray, Xtest: np.ndarray, Ttest: np.ndarray) -> list:
    """The rows of training with PyTorch, from the same weights and on the same batches.

    Dense tensors, with masks on the weights and their gradients; masked-RigL moves the masks, by magnitude of the
    weights and of their dense gradients, which are there anyway. All products are dense.
    """
    import torch
    from torch import nn

    M: Any = run.model()
    modules: list[nn.Module] = []
    masks: dict[nn.Parameter, torch.Tensor] = {}
    for layer in M.layers:
        linear = nn.Linear(layer.W.shape[1], layer.W.shape[0])
        linear.weight, linear.bias = (nn.Parameter(torch.tensor(A)) for A in (dense(layer.W), layer.b[0]))
        if isinstance(layer.W, SparseMatrix):
            masks[linear.weight] = torch.tensor(dense(layer.W.with_values(np.ones_like(layer.W.values))) == 1)
        modules += [linear, nn.ReLU()]
    model, criterion = nn.Sequential(*modules[:-1]), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=1.0, momentum=run.momentum, weight_decay=run.weight_decay, nesterov=True
    )
    explored = {weight: mask.clone() for weight, mask in masks.items()}
    total = sum(D * K for D, K in zip(run.sizes, run.sizes[1:], strict=False))
    flops = 2 * len(Xtrain) * (3 * total - run.sizes[0] * run.sizes[1])

    def stored(found: dict[nn.Parameter, torch.Tensor]) -> float:
        """The fraction of the weights that is inside the masks."""
        return 1 - sum(mask.numel() - int(mask.count_nonzero()) for mask in found.values()) / total

    rng, schedule, rows, step = np.random.default_rng(run.seed), create_scheduler(run.learning_rate), [], 0
    steps = run.epochs * -(-len(Xtrain) // run.batch_size)
    for i in range(run.epochs):
        order, start = rng.permutation(len(Xtrain)), time.perf_counter()
        optimizer.param_groups[0]["lr"] = schedule(i)
        for X, t in _batches(Xtrain, Ttrain, run.batch_size, order):
            optimizer.zero_grad(set_to_none=True)
            criterion(model(torch.from_numpy(X)), torch.from_numpy(t)).backward()
            step += 1
            part = step / steps / UNTIL
            for weight, mask in masks.items():
                if run.method == "masked-RigL" and step % EVERY == 0 and part < 1:
                    velocity = optimizer.state[weight].get("momentum_buffer")
                    _move(weight, mask, velocity, FRACTION * (1 + math.cos(math.pi * part)) / 2)
                    explored[weight] |= mask
                assert weight.grad is not None
                weight.grad.mul_(mask)
            optimizer.step()
        row: Row = {"seconds": time.perf_counter() - start, "flops": flops, "dense_flops": flops}
        with torch.no_grad():
            batches = _batches(Xtest, Ttest, EVALUATION_BATCH, np.arange(len(Xtest)))
            right = [model(torch.from_numpy(X)).argmax(dim=1).numpy() == t for X, t in batches]
        accuracy = float(np.concatenate(right).mean())
        rows.append(row | {"test_accuracy": accuracy, "density": stored(masks), "explored": stored(explored)})
    return rows


def _move(weight: Any, mask: Any, velocity: Any, fraction: float) -> None:
    """Drop this fraction of the weights, the smallest, and grow as many, from 0, where gradients are largest."""
    import torch

    W, G, mask = weight.detach().view(-1), weight.grad.reshape(-1), mask.view(-1)
    count = min(round(fraction * int(mask.sum())), int((~mask).sum()))
    grown = torch.where(mask, -1.0, G.abs()).topk(count).indices
    dropped = torch.where(mask, W.abs(), torch.inf).topk(count, largest=False).indices
    mask[dropped], mask[grown] = False, True
    for A in (W, velocity):
        if A is not None:
            A.view(-1)[torch.cat([dropped, grown])] = 0


def _batches(X: np.ndarray, T: np.ndarray, size: int, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((X[rows], T[rows]) for rows in (order[i : i + size] for i in range(0, len(order), size)))
