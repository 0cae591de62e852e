"""Training on several processes: one process and two, beside DistributedDataParallel, and what they exchange.

A model of the cost of a step, fitted to these times, predicts those on many machines: see baselines/prediction.py.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from baselines.own import model
from baselines.prediction import LATENCY, RANKS, RANKS_OF, SUMS, fits, network, predictions, rank_cost
from harness.problems import Setting, generated, initial_parameters
from harness.reports import (
    Record,
    bars,
    common_notes,
    difference,
    finish,
    footnote,
    head,
    installed,
    numbers,
    parser,
    ratio,
    say,
    script,
    times,
)
from harness.team import Team, Turns
from harness.tools import NATIVE, PYTORCH, Tool, baseline, matgrad
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Training on several processes"
DDP = "pytorch-ddp"
_alone = {"matgrad-native": NATIVE, "matgrad-torch": matgrad("torch", "PyTorch", "pytorch")}


def _on_ranks(tool: Tool, *baselines: str) -> Tool:
    """The tool as several processes that train together."""
    return replace(tool, title=f"{tool.title}, {RANKS} processes", processes=RANKS, baselines=baselines)


def _sums(title: str, *arguments: Any) -> Tool:
    """Sums over the ranks alone."""
    return Tool(title, "sums", "PyTorch", "baselines.ddp.AllReduce", arguments, ("torch",), processes=RANKS)


TOOLS = {
    "pytorch": PYTORCH,
    **_alone,
    DDP: _on_ranks(baseline("PyTorch DDP", "ddp.DistributedPyTorch", "PyTorch", "torch")),
    **{ranks: _on_ranks(_alone[name], DDP, name) for name, ranks in RANKS_OF.items()},
    SUMS: _sums("all-reduce alone"),
    LATENCY: _sums("all-reduce of one number", True),
}


def is_for_sparse(tool: Tool) -> bool:
    """Whether a tool trains sparse weights in reasonable time: PyTorch takes a second per step."""
    return tool.kind == "sums" or tool.framework == "C++"


def main() -> None:
    """Measure one point per density and batch size."""
    found = parser(__doc__, tools=list(TOOLS))
    found.add_argument("--batch-sizes", type=numbers(int), default="100,1000", metavar="LIST")
    found.add_argument("--densities", type=numbers(float), default="1,0.05", metavar="LIST")
    found.add_argument("--examples", type=int, default=10000, help="per round")
    found.add_argument("--sizes", type=numbers(int), default="3072,1024,512,10", metavar="LIST", help="of the layers")
    options, started = found.parse_args(), time.time()
    tools, missing = installed(options, TOOLS)
    points, failures = [], dict[str, str]()
    for density in options.densities:
        chosen = {name: tool for name, tool in tools.items() if density == 1 or is_for_sparse(tool)}
        with Team(chosen, threads=options.threads, dtype=options.dtype, report=say) as team:
            points += [_point(team, options, density, B) for B in options.batch_sizes]
        failures |= {f"{name}, density {density:g}": text for name, text in team.failures.items()}
    fitted, sizes = fits(points), tuple(options.sizes)
    record = head("distributed", started, options) | {
        "missing": missing,
        "setting": script("paper").DESCRIPTION | {"order": "as generated, not shuffled"},
        "sizes": options.sizes,
        "tools": {name: tool.about() | _processes(tool, options.threads) for name, tool in tools.items()},
        "points": points,
        "network": network(points),
        "fits": fitted,
        "predictions": predictions(fitted, sizes, options.dtype, options.seed),
        "failures": failures,
    }
    finish(record, options.output)


def _processes(tool: Tool, threads: int) -> dict[str, int]:
    return {"processes": tool.processes, "threads": max(threads // tool.processes, 1)}


def _point(team: Team, options: argparse.Namespace, density: float, batch_size: int) -> Record:
    """The times of the tools for one batch size and density, and what the programs of their ranks cost."""
    setting = Setting(tuple(options.sizes), batch_size, dtype=options.dtype)
    steps = max(options.examples // batch_size, 2)
    data = generated(setting.sizes[0], setting.sizes[-1], steps * batch_size, seed=options.seed)
    parameters = initial_parameters(setting, options.seed, density)
    say(f"density {density:g}, batch size {batch_size}")
    turns, M = team.train(setting, data, parameters, options.rounds), model(setting, parameters)
    return {
        "density": density,
        "batch_size": batch_size,
        "steps": steps,
        "data": data.about(),
        "costs": {str(p): asdict(rank_cost(M, batch_size, p)) for p in (1, RANKS)},
        "tools": {name: _row(name, turns, steps) for name in turns.parameters},
    }


def _row(name: str, turns: Turns, steps: int) -> Record:
    """The times of a tool, per step too, the share of waiting, ratios to the others, and the difference."""
    found = times(turns.seconds[name])
    shares = [a / b for a, b in zip(turns.waiting[name], turns.seconds[name], strict=True)]
    alone = [x for x, ranks in RANKS_OF.items() if ranks == name]
    others = [DDP, *alone] if alone else ["pytorch"]
    ratios = {other: ratio(turns.seconds, name, other) for other in others if other in turns.seconds}
    return found | {
        "per_step": found["median"] / steps,
        "waiting": median(shares),
        "ratios": {other: found for other, found in ratios.items() if found is not None},
        "difference": difference(name, turns.parameters, ("pytorch", *TOOLS[name].baselines)),
    }


# -- tables and plot --------------------------------------------------------------------------------


def tables(record: Record) -> list[Table]:
    """Milliseconds per step, what is exchanged, the fitted rates, and predictions."""
    found = [_steps(record), _exchange(record)]
    found += [_fits(record)] if record["fits"] else []
    return found + ([_predictions(record)] if record["predictions"] else [])


def _steps(record: Record) -> Table:
    """One row per tool, one column per point."""
    rows = []
    for name, tool in record["tools"].items():
        found = [p["tools"][name]["per_step"] if name in p["tools"] else None for p in record["points"]]
        cells = ["" if t is None else f"{1e3 * t:.2f}" for t in found]
        rows.append([tool["title"], f"{tool['processes']} × {tool['threads']}", *cells])
    columns = [_where(point) for point in record["points"]]
    title = f"ms per step, layers {';'.join(map(str, record['sizes']))}"
    return Table(title, ["tool", "processes × threads", *columns], rows)


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
                rows.append(
                    [
                        f"{record['tools'][ranks]['title']}, {_where(point)}",
                        str(cost["messages"]),
                        f"{cost['bytes']:,}",
                        f"{100 * row['waiting']:.0f} %",
                        *("" if found is None else f"{found['median']:.2f}" for found in ratios),
                    ]
                )
    headings = ["what", "messages", "bytes", "waiting", "÷ 1 process", "÷ DDP"]
    return Table("what a rank exchanges in a step, and ratios of times", headings, rows)


def _fits(record: Record) -> Table:
    """One row per engine and density."""
    rows = [
        [
            f"{record['tools'][fit['engine']]['title']}, density {fit['density']:g}",
            f"{fit['flops'] / 1e9:.0f}",
            f"{fit['memory'] / 1e9:.1f}",
            f"{100 * fit['largest_error']:.0f} %",
        ]
        for fit in record["fits"]
    ]
    return Table("rates that fit these times", ["what", "Gflop/s", "GB/s of memory", "off by at most"], rows)


def _predictions(record: Record) -> Table:
    """One row per density, batch size and network, one column per number of machines."""
    first, *others = record["predictions"][0]["seconds"]
    rows = []
    for p in record["predictions"]:
        alone = p["seconds"][first]
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


def figure(record: Record) -> Figure:
    """One panel per point: the milliseconds per step of each tool as a bar."""
    from matgrad.inspection.figures import new_figure

    points, tools = record["points"], record["tools"]
    drawn, axes = new_figure(1.2 + 5 * len(points), 1.5 + 0.36 * len(tools), len(points))
    for ax, point in zip(axes, points, strict=True):
        rows = [tools[name] for name in point["tools"]]
        values = [1e3 * row["per_step"] for row in point["tools"].values()]
        bars(ax, rows, values, [f"{value:.3g}" for value in values])
        ax.set(title=_where(point), xlabel="ms per step")
    footnote(drawn, record)
    return drawn


if __name__ == "__main__":
    main()
