"""Tables of training on a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from matgrad.bench.reports.record import Record
from matgrad.bench.tools.registry import FIT, GPU_GRAPH, GPU_NATIVE, GPU_OWN, GPU_OWN_JAX, STEPS
from matgrad.foundation.table import Table

# the columns of ratios of a tool: what its time is divided by
RATIOS = {
    GPU_OWN: {GPU_NATIVE: "÷ native", GPU_GRAPH: "÷ graph"},
    GPU_OWN_JAX: {"jax": "÷ jit by hand"},
}
PHASES = ("feedforward", "DW", "DX", "update", "whole")


def gpu_tables(record: Record) -> list[Table]:
    """Those of the parts that were measured."""
    tables = [_times("µs per step, batch 100", record["steps"], 1e6, ".0f")] if "steps" in record else []
    tables += [_epoch(record["epoch"])] if "epoch" in record else []
    if "large" in record:
        sizes = ";".join(map(str, record["large"][0]["sizes"]))
        title = f"ms per step, layers {sizes}, batch {record['large'][0]['batch_size']}"
        tables.append(_times(title, record["large"], 1e3, ".2f"))
    tables += _sparse(record["sparse"]) if "sparse" in record else []
    return tables + ([_wide(record["wide"])] if "wide" in record else [])


def _times(title: str, parts: list[Record], scale: float, form: str) -> Table:
    """One row per tool and one column per setting, then rows of ratios."""
    names = list(dict.fromkeys(name for part in parts for name in part["tools"]))
    titles = {name: row["title"] for part in parts for name, row in part["tools"].items()}
    rows = [[titles[name], *(_cell(part, name, scale, form) for part in parts)] for name in names]
    for name, others in RATIOS.items():
        for other, heading in others.items():
            cells = [_ratio(part, name, other) for part in parts]
            if any(cells):
                rows.append([f"{titles[name]} {heading}", *cells])
    return Table(title, ["tool", *map(_heading, parts)], rows)


def _heading(part: Record) -> str:
    return f"{part['title']}, {part['optimizer']}, {'TF32' if part['matmul'] == 'tf32' else part['matmul']}"


def _cell(part: Record, name: str, scale: float, form: str) -> str:
    """The time per step of a tool."""
    return f"{scale * part['tools'][name]['per_step']:{form}}" if name in part["tools"] else ""


def _ratio(part: Record, name: str, other: str) -> str:
    """The median of the rounds' ratios."""
    found = part["tools"].get(name, {"ratios": {}})["ratios"].get(other)
    return "" if found is None else f"{found['median']:.2f}"


def _epoch(parts: list[Record]) -> Table:
    """One row per way to train."""
    (part,) = parts
    rows = [
        [row["title"], f"{1e3 * row['median']:.1f}", f"{1e6 * row['per_step']:.0f}", _ratio(part, name, STEPS)]
        for name, row in part["tools"].items()
    ]
    title = f"{part['steps']} steps of {_heading(part)}; M.fit takes shuffled examples"
    return Table(title, ["what", "ms", "µs per step", "÷ bare steps"], rows)


def _sparse(record: Record) -> list[Table]:
    """Times of the phases, how many times faster matgrad is, and memory, against the density."""
    points = record["points"]
    title = f"layer of {record['neurons']} → {record['neurons']} neurons, batch {record['batch_size']}"
    names = list(dict.fromkeys(name for point in points for name in point["ways"]))
    titles = {name: row["title"] for point in points for name, row in point["ways"].items()}
    densities = [f"{point['density']:g}" for point in points]

    def by_density(title: str, rows: Iterable[list[str]]) -> Table:
        return Table(title, ["what", *densities], list(rows))

    times = [
        [f"{titles[name]}: {phase}", *(_milliseconds(point, name, phase) for point in points)]
        for name in names
        for phase in PHASES
    ]
    faster = [
        [f"÷ {titles[name]}", *(_times_faster(point, name) for point in points)] for name in names if name != "matgrad"
    ]
    memory = [[titles[name], *(_megabytes(point, name) for point in points)] for name in names]
    return [
        by_density(f"ms, {title}, against density", times),
        by_density(f"how many times faster matgrad is, {title}", faster),
        by_density("MB of the GPU for parameters, gradient and indices", memory),
    ]


def _milliseconds(point: Record, name: str, phase: str) -> str:
    return f"{1e3 * point['ways'][name]['medians'][phase]:.3f}" if name in point["ways"] else ""


def _times_faster(point: Record, name: str) -> str:
    ratios = point["ways"].get("matgrad", {"ratios": {}})["ratios"]
    return f"{ratios[name]:.1f}" if name in ratios else ""


def _megabytes(point: Record, name: str) -> str:
    memory = point["ways"].get(name, {"memory": None})["memory"]
    return "" if memory is None else f"{memory / 1e6:.0f}"


def _wide(networks: list[Record]) -> Table:
    """One row per network."""
    rows = [
        [
            network["name"],
            f"{network['weights']:,}",
            str(network["batch_size"]),
            f"{1e3 * network['seconds_per_step']:.1f}",
            "" if network["peak_bytes"] is None else f"{network['peak_bytes'] / 1e9:.1f}",
            "{:.2f} → {:.2f}".format(*network["losses"]),
            f"{network['build_seconds']:.0f}",
        ]
        for network in networks
    ]
    headings = ["network", "weights", "batch", "ms per step", "GB of the GPU", "loss", "seconds to build"]
    return Table("very wide networks, 10 connections per neuron", headings, rows)


def gpu_notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    gpu = record["gpu"]
    lines = [f"{_heading(part)}: {name} {why}" for part in _parts(record) for name, why in part["failures"].items()]
    for point in record.get("sparse", {"points": []})["points"]:
        lines += [f"density {point['density']:g}: {name} failed: {why}" for name, why in point["failures"].items()]
    about = [gpu["name"], *([f"{gpu['memory_GB']} GB", f"CUDA {gpu['cuda']}"] if "cuda" in gpu else [])]
    return [
        *lines,
        f"{', '.join(about)}; medians of {record['options']['rounds']} interleaved rounds, each tool that trains a "
        "model in a process of its own; compiling and capturing are not in these times",
        "÷: medians of the rounds' ratios; float32 is float32 everywhere, TF32 only where it is named",
    ]


def _parts(record: Record) -> list[Record]:
    """The settings in which tools took turns."""
    return [part for name in ("steps", "epoch", "large") for part in record.get(name, [])]


def gpu_failures(record: Record) -> bool:
    """Whether something failed."""
    points = record.get("sparse", {"points": []})["points"]
    return any(part["failures"] for part in [*_parts(record), *points])


def fit_ratio(record: Record) -> float:
    """The time of an epoch of `M.fit` divided by that of as many bare steps."""
    return record["epoch"][0]["tools"][FIT]["ratios"][STEPS]["median"]
