"""Tables of training on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matgrad.bench.reports.record import Record
from matgrad.bench.tools.registry import GPU_GRAPH, GPU_NATIVE, GPU_OWN, GPU_OWN_JAX, STEPS
from matgrad.foundation.table import Table

# the columns of ratios of a tool: what its time is divided by
RATIOS = {
    GPU_OWN: {GPU_NATIVE: "÷ native", GPU_GRAPH: "÷ graph"},
    GPU_OWN_JAX: {"jax": "÷ jit by hand"},
}
PHASES = ("feedforward", "DW", "DX", "update", "whole")
OWN = "matgrad"
MEMORY = (OWN, "masked")  # the ways whose memory is shown


def gpu_tables(record: Record) -> dict[str, Table]:
    """Those of the parts that were measured, by name."""
    return {name: make(record[part]) for name, (part, make) in TABLES.items() if part in record}


def _steps(parts: list[Record]) -> Table:
    """The paper's models."""
    return _times("µs per step, batch 100", parts, 1e6, ".0f")


def _large(parts: list[Record]) -> Table:
    """The large model."""
    sizes = ";".join(map(str, parts[0]["sizes"]))
    return _times(f"ms per step, layers {sizes}, batch {parts[0]['batch_size']}", parts, 1e3, ".2f")


def _times(title: str, parts: list[Record], scale: float, form: str) -> Table:
    """One row per setting and one column per tool, then columns of ratios."""
    titles = {name: row["title"] for part in parts for name, row in part["tools"].items()}
    pairs = [(name, other, heading) for name, others in RATIOS.items() for other, heading in others.items()]
    pairs = [pair for pair in pairs if any(_ratio(part, *pair[:2]) for part in parts)]
    rows = [
        [
            _heading(part),
            *(f"{scale * tools[name]['per_step']:{form}}" if name in tools else "" for name in titles),
            *(_ratio(part, name, other) for name, other, _ in pairs),
        ]
        for part in parts
        for tools in [part["tools"]]
    ]
    return Table(title, ["model", *titles.values(), *(f"{titles[name]} {heading}" for name, _, heading in pairs)], rows)


def _heading(part: Record) -> str:
    return f"{part['title']}, {part['optimizer']}, {'TF32' if part['matmul'] == 'tf32' else part['matmul']}"


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
    title = f"{part['steps']} steps, {_heading(part)}"
    return Table(title, ["what", "ms", "µs per step", "÷ bare steps"], rows)


def _sparse(record: Record) -> Table:
    """One row per density: ms of all phases, how many times faster matgrad is, and memory."""
    titles = {name: row["title"] for point in record["points"] for name, row in point["ways"].items()}
    others = [name for name in titles if name != OWN]
    headings = [
        *titles.values(),
        *(f"times faster than {titles[name]}" for name in others),
        *(f"MB, {titles[name]}" for name in MEMORY if name in titles),
    ]
    rows = [
        [
            f"{point['density']:g}",
            *(_milliseconds(point, name, "whole") for name in titles),
            *(_times_faster(point, name) for name in others),
            *(_megabytes(point, name) for name in MEMORY if name in titles),
        ]
        for point in record["points"]
    ]
    title = f"ms for feedforward, DW, DX and update, {_layer(record)}"
    return Table(title, ["density", *headings], rows)


def _phases(record: Record) -> Table:
    """One row per way and phase, one column per density."""
    points = record["points"]
    titles = {name: row["title"] for point in points for name, row in point["ways"].items()}
    rows = [
        [f"{title}: {phase}", *(_milliseconds(point, name, phase) for point in points)]
        for name, title in titles.items()
        for phase in PHASES
    ]
    title = f"ms of each phase, {_layer(record)}, against density"
    return Table(title, ["what", *(f"{point['density']:g}" for point in points)], rows)


def _layer(record: Record) -> str:
    return f"{record['neurons']} → {record['neurons']} neurons, batch {record['batch_size']}"


def _milliseconds(point: Record, name: str, phase: str) -> str:
    return f"{1e3 * point['ways'][name]['medians'][phase]:.3f}" if name in point["ways"] else ""


def _times_faster(point: Record, name: str) -> str:
    ratios = point["ways"].get(OWN, {"ratios": {}})["ratios"]
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


# name: the part of the record that it shows, and what makes it
TABLES: dict[str, tuple[str, Callable[[Any], Table]]] = {
    "steps": ("steps", _steps),
    "jax": ("jax", _steps),
    "epoch": ("epoch", _epoch),
    "large": ("large", _large),
    "sparse": ("sparse", _sparse),
    "phases": ("sparse", _phases),
    "wide": ("wide", _wide),
}


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
    return [part for name in ("steps", "jax", "epoch", "large") for part in record.get(name, [])]


def gpu_failures(record: Record) -> bool:
    """Whether something failed."""
    points = record.get("sparse", {"points": []})["points"]
    return any(part["failures"] for part in [*_parts(record), *points])
