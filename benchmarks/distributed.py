"""Training on several processes: one process and two, beside DistributedDataParallel, and what they exchange.

A model of the time of a step on p machines is fitted to these times, and predicts those on many machines:

    T(p) = flops(p)/F + passes(p)/m + 2·(p-1)/p·bytes/b + 2·(p-1)·messages·l

with the floating-point operations of the products of a rank, the bytes that it reads and writes, and the bytes and
messages that it exchanges, which all follow from its program; F operations and m bytes per second of a machine; and b
bytes per second and l seconds per message of the network, in which sums go round in a ring. Nothing overlaps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from baselines.own import model
from harness import reports
from harness.problems import Setting, generated, initial_parameters
from harness.reports import items
from harness.team import TINY, Record, measure
from harness.tools import NATIVE, PYTORCH, Tool, baseline, matgrad
from matgrad.foundation.writing import Table
from matgrad.program.models import operand_bytes, product_cost
from matgrad.program.schedule import executable, traffic
from matgrad.program.sharding import data_parallel, sharded
from paper import DESCRIPTION

TITLE = "Training on several processes"
RANKS, DDP, SUMS, LATENCY = 2, "pytorch-ddp", "all-reduce", "all-reduce-small"
_alone = {"matgrad-native": NATIVE, "matgrad-torch": matgrad("torch", "PyTorch", "pytorch")}
RANKS_OF = {name: f"{name}-ranks" for name in _alone}


def _on_ranks(tool: Tool, *baselines: str) -> Tool:
    """The tool as several processes that train together."""
    return replace(tool, title=f"{tool.title}, {RANKS} processes", processes=RANKS, baselines=baselines)


_sums = Tool("all-reduce alone", "sums", "PyTorch", "pytorch.AllReduce", requires=("torch",), processes=RANKS)
TOOLS = {
    "pytorch": PYTORCH,
    **_alone,
    DDP: _on_ranks(baseline("PyTorch DDP", "pytorch.DistributedPyTorch", "PyTorch", "torch")),
    **{ranks: _on_ranks(_alone[name], DDP, name) for name, ranks in RANKS_OF.items()},
    SUMS: _sums,
    LATENCY: replace(_sums, title="all-reduce of one number", arguments=(True,)),
}

# what is predicted
NETWORKS = {"10 Gb/s": (1.25e9, 30e-6), "100 Gb/s": (12.5e9, 10e-6)}  # bytes per second, and seconds per message
MACHINES, BATCH_SIZES = (1, 8, 64), (100, 1000, 10_000)


def main() -> None:
    """Measure one point per density and batch size."""
    found = reports.parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=items(int), default="100,1000", metavar="LIST")
    found.add_argument("--densities", type=items(float), default="1,0.05", metavar="LIST")
    found.add_argument("--examples", type=int, default=10000, help="per round")
    found.add_argument("--sizes", type=items(int), default="3072,1024,512,10", metavar="LIST", help="of the layers")
    options = found.parse_args()
    tools, about = reports.installed(options, TOOLS)
    for name, tool in tools.items():
        about["tools"][name] |= {"processes": tool.processes, "threads": max(options.threads // tool.processes, 1)}
    points = []
    for density in options.densities:  # PyTorch takes a second per step for sparse weights
        chosen = {x: y for x, y in tools.items() if density == 1 or y.kind == "sums" or y.framework == "C++"}
        for B in options.batch_sizes:
            setting = Setting(tuple(options.sizes), B, dtype=options.dtype)
            data = generated(options.sizes[0], options.sizes[-1], max(options.examples // B, 2) * B, seed=options.seed)
            record, _ = measure(f"batch {B}, density {density:g}", chosen, setting, data, options, density=density)
            costs = {str(p): asdict(rank_cost(setting, options.seed, density, p)) for p in (1, RANKS)}
            points.append(record | {"costs": costs})
    fitted = fits(points)
    about |= {"setting": DESCRIPTION | {"order": "as generated, not shuffled"}, "sizes": options.sizes}
    about |= {"points": points, "network": network(points), "fits": fitted}
    about["predictions"] = predictions(fitted, tuple(options.sizes), options.dtype, options.seed)
    reports.finish("distributed", options, about)


# -- the model of the time of a step ------------------------------------------------------------------


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

    def exchange(self, bandwidth: float, latency: float) -> float:
        """The seconds of exchanging, on a network of these rates."""
        return self.sent / bandwidth + 2 * (self.size - 1) * self.messages * latency

    def seconds(self, flops: float, memory: float, network: tuple[float, float]) -> float:
        """The time of a step, for a machine and a network of these rates."""
        return self.flops / flops + self.passes / memory + self.exchange(*network)


def rank_cost(setting: Setting, seed: int, density: float, size: int) -> RankCost:
    """The cost of a step for the first of `size` ranks, from its program."""
    M = model(setting, initial_parameters(setting, seed, density))
    recorded = M.program(batch_size=setting.batch_size, fused=False)
    if size > 1:
        recorded = sharded(recorded, data_parallel(recorded, size), 0, size)
    own = executable(recorded)
    flops = sum(cost.flops for cost in map(product_cost, own.instructions) if cost)
    computed = [x for x in own.instructions if x.kind not in ("view", "collective")]
    passes = sum(x.nbytes + sum(operand_bytes(y, x) for y in x.operands) for x in computed)
    messages = traffic(own)
    return RankCost(size, flops, passes, sum(x.nbytes for x in messages), len(messages))


def network(points: list[Record]) -> tuple[float, float] | None:
    """Bytes per second and seconds per message between the processes that were measured; None if they were not."""
    point = next((p for p in points if {SUMS, LATENCY} <= p["tools"].keys()), None)
    if point is None:
        return None
    large, small = (point["tools"][name]["per_step"] for name in (SUMS, LATENCY))
    return RankCost(**point["costs"][str(RANKS)]).sent / max(large - small, TINY), small / 2


def fits(points: list[Record]) -> list[Record]:
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
            sums = np.array([cost.exchange(*between) for *_, cost in cases])
            A = np.array([[cost.size * cost.flops, cost.size * cost.passes] for *_, cost in cases], dtype=float)
            rates, *_ = np.linalg.lstsq(A / seconds[:, None], 1 - sums / seconds, rcond=None)
            f, m = np.maximum(rates, 1e-15)
            predicted = A @ (f, m) + sums
            steps = [
                {"batch_size": p["batch_size"], "processes": cost.size, "measured": float(t), "predicted": float(u)}
                for (p, _, cost), t, u in zip(cases, seconds, predicted, strict=True)
            ]
            error = float(np.abs(predicted / seconds - 1).max())
            known = {"flops": float(1 / f), "memory": float(1 / m), "largest_error": error, "steps": steps}
            found.append({"engine": name, "density": density, **known})
    return found


def predictions(found: list[Record], sizes: tuple[int, ...], dtype: str, seed: int) -> list[Record]:
    """Seconds per step on several machines like the one that was measured, for each network, batch size and density."""
    rows = []
    for fit in (x for x in found if x["engine"] == "matgrad-native"):
        for batch_size in BATCH_SIZES:
            setting, density = Setting(sizes, batch_size, dtype=dtype), fit["density"]
            costs = [rank_cost(setting, seed, density, p) for p in MACHINES]
            for name, rates in NETWORKS.items():
                seconds = {str(c.size): c.seconds(fit["flops"], fit["memory"], rates) for c in costs}
                rows.append({"density": density, "batch_size": batch_size, "network": name, "seconds": seconds})
    return rows


# -- tables -----------------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """Milliseconds per step, what is exchanged, the fitted rates, and predictions."""
    fitted = {
        "what": lambda fit: f"{TOOLS[fit['engine']].title}, density {fit['density']:g}",
        "Gflop/s": lambda fit: f"{fit['flops'] / 1e9:.0f}",
        "GB/s of memory": lambda fit: f"{fit['memory'] / 1e9:.1f}",
        "off by at most": lambda fit: f"{100 * fit['largest_error']:.0f} %",
    }
    shown = [_steps(record), _exchange(record), reports.listed("rates that fit these times", record["fits"], fitted)]
    return [table for table in (*shown, _predictions(record)) if table.rows]


def _steps(record: Record) -> Table:
    """One row per tool, one column per point."""
    rows = []
    for name, tool in record["tools"].items():
        found = [p["tools"].get(name) for p in record["points"]]
        cells = ["" if row is None else f"{1e3 * row['per_step']:.2f}" for row in found]
        rows.append([tool["title"], f"{tool['processes']} × {tool['threads']}", *cells])
    title = f"ms per step, layers {';'.join(map(str, record['sizes']))}"
    return Table(title, ["tool", "processes × threads", *map(_where, record["points"])], rows)


def _predictions(record: Record) -> Table:
    """One row per density, batch size and network, one column per number of machines."""
    rows, (one, *others) = [], map(str, MACHINES)
    for p in record["predictions"]:
        alone = p["seconds"][one]
        cells = [f"{1e3 * p['seconds'][n]:.2f} ({alone / p['seconds'][n]:.1f})" for n in others]
        what = f"batch {p['batch_size']:,}, density {p['density']:g}, {p['network']}"
        rows.append([what, f"{1e3 * alone:.2f}", *cells])
    headings = ["what", "1 machine", *(f"{n} machines" for n in others)]
    return Table("PREDICTED ms per step (how many times faster than one machine)", headings, rows)


def _where(point: Record) -> str:
    return f"batch {point['batch_size']}, density {point['density']:g}"


def _exchange(record: Record) -> Table:
    """One row per point and engine on several processes: messages, bytes, waiting, and ratios."""
    rows = []
    for point in record["points"]:
        cost = point["costs"][str(RANKS)]
        for alone, ranks in RANKS_OF.items():
            if row := point["tools"].get(ranks):
                ratios = [reports.ratio_cell(row, other, best=False) for other in (alone, DDP)]
                what, waiting = f"{TOOLS[ranks].title}, {_where(point)}", f"{100 * row['waiting']:.0f} %"
                rows.append([what, str(cost["messages"]), f"{cost['bytes']:,}", waiting, *ratios])
    headings = ["what", "messages", "bytes", "waiting", "÷ 1 process", "÷ DDP"]
    return Table("what a rank exchanges in a step, and ratios of times", headings, rows)


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    found = [
        *reports.common_notes(record),
        "÷: medians of the rounds' ratios; waiting: the share of the time that rank 0 spends on sending and waiting; "
        "bytes: of the matrices that are added up, of which 2 (p - 1) / p go through the network of each of p ranks",
        "predictions: machines like this one; nothing overlaps, the ring has no contention, and a machine computes a "
        "few rows as fast per row as many",
    ]
    if record["network"] is not None:
        bandwidth, latency = record["network"]
        found.append(f"between the processes: {bandwidth / 1e9:.2f} GB/s, {1e6 * latency:.0f} µs per message")
    return found


if __name__ == "__main__":
    main()
