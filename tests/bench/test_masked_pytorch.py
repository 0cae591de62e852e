"""Masked PyTorch with masks that move: what is dropped and grown, and what stays 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matgrad.bench.tools.baselines import masked_pytorch
from matgrad.bench.tools.baselines.masked_pytorch import MaskedTraining
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support


def training(moves: bool = True, steps: int = 8) -> MaskedTraining:
    rng = np.random.default_rng(0)
    W = SparseMatrix(Support.random(6, 10, 20, rng), rng.normal(size=(1, 20)).astype(np.float32))
    V = rng.normal(size=(3, 6)).astype(np.float32)
    b, c = np.zeros((1, 6), np.float32), np.zeros((1, 3), np.float32)
    return MaskedTraining([(W, b), (V, c)], 0.9, 0.0, steps, moves)


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(5, 10)).astype(np.float32), rng.integers(0, 3, 5)) for _ in range(count)]


def test_a_move_drops_the_smallest_weights_and_grows_where_gradients_are_largest():
    T = training()
    T.train(batches(3), 0.1)
    ((weight, mask),) = T.masks.items()
    W, before = weight.detach().numpy().copy(), mask.numpy().copy()
    G = np.random.default_rng(2).normal(size=W.shape).astype(np.float32)
    weight.grad = torch.tensor(G)
    T._move(weight, 0.3)

    after, stored, free = mask.numpy(), np.flatnonzero(before), np.flatnonzero(~before)
    dropped = stored[np.argsort(np.abs(W).flat[stored])[:6]]
    grown = free[np.argsort(-np.abs(G).flat[free])[:6]]
    assert set(np.flatnonzero(after)) == set(stored) - set(dropped) | set(grown)
    new, momentum = weight.detach().numpy(), T.optimizer.state[weight]["momentum_buffer"].numpy()
    kept = before & after
    assert np.array_equal(new[kept], W[kept])
    assert not new[~kept].any()
    assert not momentum[~kept].any()
    assert momentum[kept].all()
    assert T.stored() == ((20 + 18) / 78, (26 + 18) / 78)


@pytest.mark.parametrize("moves", [False, True])
def test_weights_outside_the_masks_stay_0(monkeypatch, moves: bool):
    monkeypatch.setattr(masked_pytorch, "EVERY", 2)
    T = training(moves)
    (mask,) = (mask.clone() for mask in T.masks.values())
    T.train(batches(8), 0.1)
    ((weight, moved),) = T.masks.items()
    assert not weight.detach()[~moved].any()
    assert torch.equal(mask, moved) != moves
    assert int(moved.sum()) == 20
    assert T.stored()[1] == (20 + 18) / 78 if not moves else T.stored()[1] > (20 + 18) / 78
