"""Sparse training as it is usually done in PyTorch: dense tensors, with masks on the weights and their gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.problems import Parameters
from matgrad.sparse.matrix import SparseMatrix

FRACTION, EVERY, UNTIL = 0.3, 100, 0.75  # RigL's drop fraction, steps between updates, and part of the run with updates


class MaskedTraining:
    """ReLU layers and a linear layer with masked weights, cross-entropy, SGD with Nesterov momentum and weight decay.

    With `moves`, masks move as RigL says: by magnitude of the weights and of their dense gradients, which are there
    anyway. Without masks it is dense training.
    """

    def __init__(self, parameters: Parameters, momentum: float, decay: float, steps: int, moves: bool = False) -> None:
        modules: list[nn.Module] = []
        self.masks: dict[nn.Parameter, torch.Tensor] = {}
        for W, b in parameters:
            linear = nn.Linear(W.shape[1], W.shape[0])
            dense = W.to_dense() if isinstance(W, SparseMatrix) else W
            linear.weight, linear.bias = nn.Parameter(torch.tensor(dense)), nn.Parameter(torch.tensor(b[0]))
            if isinstance(W, SparseMatrix):
                mask = W.with_values(np.ones_like(W.values)).to_dense()
                self.masks[linear.weight] = torch.tensor(mask, dtype=torch.bool)
            modules += [linear, nn.ReLU()]
        self.model = nn.Sequential(*modules[:-1])
        options: Any = {"momentum": momentum, "weight_decay": decay, "nesterov": True}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, **options)
        self.explored = {weight: mask.clone() for weight, mask in self.masks.items()}
        self.steps, self.step, self.moves = steps, 0, moves

    def train(self, batches: Iterable[tuple[np.ndarray, np.ndarray]], rate: float) -> float:
        start = time.perf_counter()
        criterion = nn.CrossEntropyLoss()
        self.optimizer.param_groups[0]["lr"] = rate
        for X, t in batches:
            self.optimizer.zero_grad(set_to_none=True)
            criterion(self.model(torch.from_numpy(X)), torch.from_numpy(t)).backward()
            self._mask_gradients()
            self.optimizer.step()
        return time.perf_counter() - start

    def _mask_gradients(self) -> None:
        """Set the gradients outside the masks to 0; when it is time, first move the masks."""
        self.step += 1
        part = self.step / self.steps / UNTIL
        if self.moves and self.step % EVERY == 0 and part < 1:
            for weight in self.masks:
                self._move(weight, FRACTION * (1 + math.cos(math.pi * part)) / 2)
        for weight, mask in self.masks.items():
            assert weight.grad is not None
            weight.grad.mul_(mask)

    @torch.no_grad()
    def _move(self, weight: nn.Parameter, fraction: float) -> None:
        """Drop this fraction of the weights, the smallest, and grow as many, from 0, where gradients are largest."""
        mask = self.masks[weight].view(-1)
        W, G = weight.view(-1), weight.grad.reshape(-1)  # type: ignore[union-attr]
        count = min(round(fraction * int(mask.sum())), int((~mask).sum()))
        grown = torch.where(mask, -1.0, G.abs()).topk(count).indices
        dropped = torch.where(mask, W.abs(), torch.inf).topk(count, largest=False).indices
        mask[dropped], mask[grown] = False, True
        changed = torch.cat([dropped, grown])
        W[changed] = 0
        state = self.optimizer.state[weight]
        if state.get("momentum_buffer") is not None:
            state["momentum_buffer"].view(-1)[changed] = 0
        self.explored[weight] |= self.masks[weight]

    @torch.no_grad()
    def accuracy(self, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
        """The fraction of the examples whose class has the largest output."""
        right = [(self.model(torch.from_numpy(X)).argmax(dim=1).numpy() == t).tolist() for X, t in batches]
        return float(np.mean(np.concatenate(right)))

    def stored(self) -> tuple[float, float]:
        """The fractions of the weights that are inside the masks, and that have been at any time."""
        total = sum(W.numel() for W in self.model.parameters() if W.dim() == 2)
        masked = sum(mask.numel() for mask in self.masks.values())

        def fraction(masks: dict[nn.Parameter, torch.Tensor]) -> float:
            return (total - masked + sum(int(mask.count_nonzero()) for mask in masks.values())) / total

        return fraction(self.masks), fraction(self.explored)
