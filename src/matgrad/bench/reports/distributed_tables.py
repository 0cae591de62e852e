"""Tables of training on several processes: times, what they exchange, and what a model of the cost predicts."""

from __future__ import annotations

from matgrad.bench.reports.record import Record
from matgrad.bench.tools.registry import DDP, RANKS, RANKS_OF
from matgrad.foundation.table import Table


def distributed_tables(record: Record) -> list[Table]:
    """Milliseconds per step, what is exchanged, the fitted rates, and predictions."""
    tables = [_steps(record), _exchange(record)]
    tables += [_fits(record)] if record["fits"] else []
    return tables + ([_predictions(record)] if record["predictions"] else [])


def _steps(record: Record) -> Table:
    """One row per tool, one column per point."""
    rows = []
    for name, tool in record["tools"].items():
        times = [p["tools"][name]["per_step"] if name in p["tools"] else None for p in record["points"]]
        cells = ["" if t is None else f"{1e3 * t:.2f}" for t in times]
        rows.append([tool["title"], f"{tool['processes']} × {tool['threads']}", *cells])
    columns = [f"batch {p['batch_size']}, density {p['density']:g}" for p in record["points"]]
    title = f"ms per step, layers {';'.join(map(str, record['sizes']))}"
    return Table(title, ["tool", "processes × threads", *columns], rows)


def _exchange(record: Record) -> Table:
    """One row per point and engine on several processes: messages, bytes, waiting, and ratios."""
    rows = []
    for p in record["points"]:
        cost, tools = p["costs"][str(RANKS)], p["tools"]
        for alone, ranks in RANKS_OF.items():
            if ranks in tools:
                what = f"{record['tools'][ranks]['title']}, batch {p['batch_size']}, density {p['density']:g}"
                exchanged = [str(cost["messages"]), f"{cost['bytes']:,}", f"{100 * tools[ranks]['waiting']:.0f} %"]
                rows.append([what, *exchanged, *(_ratio(tools[ranks], other) for other in (alone, DDP))])
    headings = ["what", "messages", "bytes", "waiting", "÷ 1 process", "÷ DDP"]
    return Table("what a rank exchanges in a step, and ratios of times", headings, rows)


def _ratio(row: Record, other: str) -> str:
    """The median ratio to another tool."""
    return f"{row['ratios'][other]['median']:.2f}" if other in row["ratios"] else ""


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
    machines = list(record["predictions"][0]["seconds"])
    rows = []
    for p in record["predictions"]:
        alone = p["seconds"][machines[0]]
        cells = [f"{1e3 * p['seconds'][n]:.2f} ({alone / p['seconds'][n]:.1f})" for n in machines[1:]]
        rows.append(
            [f"batch {p['batch_size']:,}, density {p['density']:g}, {p['network']}", f"{1e3 * alone:.2f}", *cells]
        )
    headings = ["what", "1 machine", *(f"{n} machines" for n in machines[1:])]
    return Table("PREDICTED ms per step (how many times faster than one machine)", headings, rows)


def distributed_notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    lines = [
        "÷: medians of the rounds' ratios; waiting: the share of the time that rank 0 spends on sending and waiting; "
        "bytes: of the matrices that are added up, of which 2 (p - 1) / p go through the network of each of p ranks",
        "predictions: machines like this one; nothing overlaps, the ring has no contention, and a machine computes a "
        "few rows as fast per row as many",
    ]
    if record["network"] is not None:
        bandwidth, latency = record["network"]
        lines.append(f"between the processes: {bandwidth / 1e9:.2f} GB/s, {1e6 * latency:.0f} µs per message")
    return lines
