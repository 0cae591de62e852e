"""A sparse layer on a GPU against the density: times of its phases and memory, beside masked layers and cuSPARSE."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.bench.measuring.turns import Report
from matgrad.sparse.support import Support

if TYPE_CHECKING:
    import torch

    from matgrad.bench.tools.sparse_layers import SparseLayer

LEAST = 0.01  # seconds of a measurement, in which a phase is repeated
FEW = 8  # examples with which memory is measured: what they take is little beside the weights


@dataclass(frozen=True)
class LayerPlan:
    """The layer, the batch, and the densities."""

    neurons: int = 16384
    batch_size: int = 1024
    densities: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003, 0.001)


LAYER = LayerPlan()


def run_layers(plan: LayerPlan, device: str, seed: int, rounds: int, report: Report) -> dict[str, Any]:
    """The record: one point per density."""
    return {
        "neurons": plan.neurons,
        "batch_size": plan.batch_size,
        "points": [_point(plan, density, device, seed, rounds, report) for density in plan.densities],
    }


def _point(plan: LayerPlan, density: float, device: str, seed: int, rounds: int, report: Report) -> dict[str, Any]:
    """Times, memory and differences at a density; a way that fails is left out."""
    import torch

    from matgrad.bench.tools.sparse_layers import PHASES, WAYS

    n, rng = plan.neurons, np.random.default_rng(seed)
    S = Support.random(n, n, round(density * n * n), rng)
    values = rng.standard_normal(S.nnz, dtype=np.float32)
    generator = torch.Generator(device=device).manual_seed(seed)
    X, DY = (torch.randn(plan.batch_size, n, device=device, generator=generator) for _ in range(2))
    ways: dict[str, SparseLayer] = {}
    rows: dict[str, dict[str, Any]] = {}
    failures = {}
    for name, (title, way) in WAYS.items():
        try:
            make = partial(way, S, values, device)
            memory = _memory(make, X[:FEW], DY[:FEW])
            ways[name] = make()
            ways[name].batch(X, DY)
            ways[name].whole()
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
            ways.pop(name, None)
            continue
        rows[name] = {"title": title, "memory": memory, "seconds": {phase: [] for phase in (*PHASES, "whole")}}
    _compare(ways, rows)
    for r in range(rounds):
        for name, layer in ways.items():
            for phase, seconds in rows[name]["seconds"].items():
                seconds.append(timed(getattr(layer, phase), device))
        report(f"density {density:g}: round {r + 1} of {rounds}")
    for row in rows.values():
        row["medians"] = {phase: median(seconds) for phase, seconds in row["seconds"].items()}
    for name, row in rows.items():
        wholes = {other: rows[other]["seconds"]["whole"] for other in rows if other != name}
        own = row["seconds"]["whole"]
        row["ratios"] = {x: median(b / a for a, b in zip(own, other, strict=True)) for x, other in wholes.items()}
    return {"density": density, "nnz": S.nnz, "ways": rows, "failures": failures}


def _memory(make: Callable[[], SparseLayer], X: torch.Tensor, DY: torch.Tensor) -> int | None:
    """The most bytes of the GPU that a layer takes while it is trained: parameters, gradient and indices."""
    import torch

    if not X.is_cuda:
        return None
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    layer = make()
    layer.batch(X, DY)
    for _ in range(3):
        layer.whole()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _compare(ways: dict[str, SparseLayer], rows: dict[str, dict[str, Any]]) -> None:
    """How far the weights of each way are from those of the masked one after the same updates."""
    if "masked" not in ways:
        return
    expected = ways["masked"].weights()
    for name, way in ways.items():
        rows[name]["difference"] = float(np.abs(way.weights() - expected).max() / np.abs(expected).max())


def timed(f: Callable[[], Any], device: str) -> float:
    """The seconds that a call of f takes, in the mean of as many as take LEAST."""
    import torch

    def wait() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()

    def seconds(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            f()
        wait()
        return time.perf_counter() - start

    count = max(1, min(200, round(LEAST / max(seconds(1), 1e-6))))
    return seconds(count) / count
