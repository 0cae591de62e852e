"""What a step costs on p machines: a model of its time, fitted to measurements, and what it predicts.

    T(p) = flops(p)/F + passes(p)/m + 2·(p-1)/p·bytes/b + 2·(p-1)·messages·l

with the floating-point operations of the products of a rank, the bytes that it reads and writes, and the bytes and
messages that it exchanges, which all follow from its program; F operations and m bytes per second of a machine; and b
bytes per second and l seconds per message of the network, in which sums go round in a ring. Nothing overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from baselines.own import model
from harness.problems import Setting, initial_parameters
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.models import operand_bytes, product_cost
from matgrad.program.schedule import executable, traffic
from matgrad.program.sharding import data_parallel, sharded

RANKS = 2
RANKS_OF = {name: f"{name}-ranks" for name in ("matgrad-native", "matgrad-torch")}
SUMS, LATENCY = "all-reduce", "all-reduce-small"

NETWORKS = {"10 Gb/s": (1.25e9, 30e-6), "100 Gb/s": (12.5e9, 10e-6)}  # bytes per second, and seconds per message
MACHINES = (1, 8, 64)
TINY = 1e-15  # seconds, for what takes none
BATCH_SIZES = (100, 1000, 10_000)


@dataclass(frozen=True)
class RankCost:
    """What a step costs one of `size` ranks."""

    size: int
    flops: int  # of products
    passes: int  # bytes that instructions read and write
    bytes: int  # that are added up with the other ranks
    messages: int

    @property
    def sent(self) -> float:
        """The bytes that go through the network of a rank, in a ring."""
        return 2 * (self.size - 1) / self.size * self.bytes

    @property
    def hops(self) -> int:
        """How often a rank waits for a neighbour in the ring."""
        return 2 * (self.size - 1) * self.messages

    def seconds(self, flops: float, memory: float, network: tuple[float, float]) -> float:
        """The time of a step, for a machine and a network of these rates."""
        bandwidth, latency = network
        return self.flops / flops + self.passes / memory + self.sent / bandwidth + self.hops * latency


def rank_cost(M: MultilayerPerceptron, batch_size: int, size: int) -> RankCost:
    """The cost of a step on batches of this size for the first of `size` ranks, from its program."""
    recorded = M.program(batch_size=batch_size, fused=False)
    if size > 1:
        recorded = sharded(recorded, data_parallel(recorded, size), 0, size)
    own = executable(recorded)
    flops = sum(cost.flops for cost in map(product_cost, own.instructions) if cost)
    computed = [x for x in own.instructions if x.kind not in ("view", "collective")]
    passes = sum(x.nbytes + sum(operand_bytes(y, x) for y in x.operands) for x in computed)
    messages = traffic(own)
    return RankCost(size, flops, passes, sum(x.nbytes for x in messages), len(messages))


# -- what was measured ----------------------------------------------------------------------------


def network(points: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Bytes per second and seconds per message between the processes that were measured; None if they were not."""
    point = next((p for p in points if {SUMS, LATENCY} <= p["tools"].keys()), None)
    if point is None:
        return None
    cost, hops = RankCost(**point["costs"][str(RANKS)]), 2
    large, small = (point["tools"][name]["per_step"] for name in (SUMS, LATENCY))
    return cost.sent / max(large - small, TINY), small / hops


def fits(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each engine and density, F and m by least squares of relative errors, with all times and predicted ones.

    Two processes on one machine share it: each has half of F and m.
    """
    found, between = [], network(points)
    for name, ranks in RANKS_OF.items():
        for density in dict.fromkeys(p["density"] for p in points):
            chosen = [p for p in points if p["density"] == density and {name, ranks} <= p["tools"].keys()]
            if between is None or len(chosen) < 2:
                continue
            cases = [(p, x, RankCost(**p["costs"][n])) for p in chosen for x, n in ((name, "1"), (ranks, str(RANKS)))]
            seconds = np.array([p["tools"][x]["per_step"] for p, x, _ in cases])
            sums = np.array([cost.sent / between[0] + cost.hops * between[1] for *_, cost in cases])
            A = np.array([[cost.size * cost.flops, cost.size * cost.passes] for *_, cost in cases], dtype=float)
            rates, *_ = np.linalg.lstsq(A / seconds[:, None], 1 - sums / seconds, rcond=None)
            f, m = np.maximum(rates, TINY)
            predicted = A @ (f, m) + sums
            steps = [
                {"batch_size": p["batch_size"], "processes": cost.size, "measured": float(t), "predicted": float(u)}
                for (p, _, cost), t, u in zip(cases, seconds, predicted, strict=True)
            ]
            error = float(np.abs(predicted / seconds - 1).max())
            rates = {"flops": float(1 / f), "memory": float(1 / m), "largest_error": error}
            found.append({"engine": name, "density": density, **rates, "steps": steps})
    return found


# -- what it predicts -----------------------------------------------------------------------------


def predictions(found: list[dict[str, Any]], sizes: tuple[int, ...], dtype: str, seed: int) -> list[dict[str, Any]]:
    """Seconds per step on several machines like the one that was measured, for each network, batch size and density."""
    rows = []
    for fit in (x for x in found if x["engine"] == next(iter(RANKS_OF))):
        for batch_size in BATCH_SIZES:
            setting, density = Setting(sizes, batch_size, dtype=dtype), fit["density"]
            M = model(setting, initial_parameters(setting, seed, density))
            costs = [rank_cost(M, batch_size, p) for p in MACHINES]
            for name, rates in NETWORKS.items():
                seconds = {str(c.size): c.seconds(fit["flops"], fit["memory"], rates) for c in costs}
                rows.append({"density": density, "batch_size": batch_size, "network": name, "seconds": seconds})
    return rows
