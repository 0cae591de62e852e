"""Training on several processes: one process and two, beside DistributedDataParallel, and what they exchange.

A model of the cost of a step, fitted to these times, predicts those on many machines: see baselines/prediction.py.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from baselines.own import model
from baselines.prediction import LATENCY, MACHINES, RANKS, RANKS_OF, SUMS, fits, network, predictions, rank_cost
from harness.problems import Setting, generated, initial_parameters
from harness.reports import common_notes, finish, installed, items, parser
from harness.team import Record, measure
from harness.tools import NATIVE, PYTORCH, Tool, baseline, matgrad
from matgrad.foundation.writing import Table
from paper import DESCRIPTION

TITLE = "Training on several processes"
DDP = "pytorch-ddp"
_alone = {"matgrad-native": NATIVE, "matgrad-torch": matgrad("torch", "PyTorch", "pytorch")}


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


def main() -> None:
    """Measure one point per density and batch size."""
    found = parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=items(int), default="100,1000", metavar="LIST")
    found.add_argument("--densities", type=items(float), default="1,0.05", metavar="LIST")
    found.add_argument("--examples", type=int, default=10000, help="per round")
    found.add_argument("--sizes", type=items(int), default="3072,1024,512,10", metavar="LIST", help="of the layers")
    options = found.parse_args()
    tools, about = installed(options, TOOLS)
    for name, tool in tools.items():
        about["tools"][name] |= {"processes": tool.processes, "threads": max(options.threads // tool.processes, 1)}
    points = []
    for density in options.densities:
        # sparse weights in reasonable time: PyTorch takes a second per step
        chosen = {
            x: tool for x, tool in tools.items() if density == 1 or tool.kind == "sums" or tool.framework == "C++"
        }
        for B in options.batch_sizes:
            setting = Setting(tuple(options.sizes), B, dtype=options.dtype)
            data = generated(options.sizes[0], options.sizes[-1], max(options.examples // B, 2) * B, seed=options.seed)
            title = f"batch {B}, density {density:g}"
            record, _ = measure(title, chosen, setting, data, options, density=density)
            M = model(setting, initial_parameters(setting, options.seed, density))
            points.append(record | {"costs": {str(p): asdict(rank_cost(M, B, p)) for p in (1, RANKS)}})
    fitted = fits(points)
    record = {
        **about,
        "setting": DESCRIPTION | {"order": "as generated, not shuffled"},
        "sizes": options.sizes,
        "points": points,
        "network": network(points),
        "fits": fitted,
        "predictions": predictions(fitted, tuple(options.sizes), options.dtype, options.seed),
    }
    finish("distributed", options, record)


# -- tables and plot --------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """Milliseconds per step, what is exchanged, the fitted rates, and predictions."""
    shown = [_steps(record), _exchange(record), _fits(record), _predictions(record)]
    return [table for table in shown if table.rows]


def _steps(record: Record) -> Table:
    """One row per tool, one column per point."""
    rows = []
    for name, tool in record["tools"].items():
        found = [p["tools"].get(name) for p in record["points"]]
        cells = ["" if row is None else f"{1e3 * row['per_step']:.2f}" for row in found]
        rows.append([tool["title"], f"{tool['processes']} × {tool['threads']}", *cells])
    title = f"ms per step, layers {';'.join(map(str, record['sizes']))}"
    return Table(title, ["tool", "processes × threads", *map(_where, record["points"])], rows)


def _where(point: Record) -> str:
    return f"batch {point['batch_size']}, density {point['density']:g}"


def _exchange(record: Record) -> Table:
    """One row per point and engine on several processes: messages, bytes, waiting, and ratios."""
    rows = []
    for point in record["points"]:
        cost = point["costs"][str(RANKS)]
        for alone, ranks in RANKS_OF.items():
            if row := point["tools"].get(ranks):
                ratios = [row["ratios"].get(other) for other in (alone, DDP)]
                what, waiting = f"{TOOLS[ranks].title}, {_where(point)}", f"{100 * row['waiting']:.0f} %"
                rows.append([what, str(cost["messages"]), f"{cost['bytes']:,}", waiting])
                rows[-1] += ["" if found is None else f"{found['median']:.2f}" for found in ratios]
    headings = ["what", "messages", "bytes", "waiting", "÷ 1 process", "÷ DDP"]
    return Table("what a rank exchanges in a step, and ratios of times", headings, rows)


def _fits(record: Record) -> Table:
    """One row per engine and density."""
    rows = []
    for fit in record["fits"]:
        what, error = f"{TOOLS[fit['engine']].title}, density {fit['density']:g}", 100 * fit["largest_error"]
        rows.append([what, f"{fit['flops'] / 1e9:.0f}", f"{fit['memory'] / 1e9:.1f}", f"{error:.0f} %"])
    return Table("rates that fit these times", ["what", "Gflop/s", "GB/s of memory", "off by at most"], rows)


def _predictions(record: Record) -> Table:
    """One row per density, batch size and network, one column per number of machines."""
    rows, others = [], [str(n) for n in MACHINES[1:]]
    for p in record["predictions"]:
        alone = p["seconds"]["1"]
        cells = [f"{1e3 * p['seconds'][n]:.2f} ({alone / p['seconds'][n]:.1f})" for n in others]
        what = f"batch {p['batch_size']:,}, density {p['density']:g}, {p['network']}"
        rows.append([what, f"{1e3 * alone:.2f}", *cells])
    headings = ["what", "1 machine", *(f"{n} machines" for n in others)]
    return Table("PREDICTED ms per step (how many times faster than one machine)", headings, rows)


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    found = [
        *common_notes(record),
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
