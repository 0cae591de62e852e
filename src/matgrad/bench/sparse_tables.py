"""The record of sparse training as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matgrad.bench.table import Record, Table
from matgrad.bench.tools import DENSE, MASKED, SPARSE

# the columns of ratios: what the time of matgrad's sparse training is divided by
RATIOS = {
    MASKED: "÷ masked (best)",
    "pytorch-csr": "÷ CSR (best)",
    DENSE: "÷ dense (best)",
    "matgrad-native-1": "÷ 1 thread (best)",
}


def sparse_tables(record: Record) -> list[Table]:
    """Seconds, ratios, memory, and microseconds an example against the batch size."""
    sizes = ";".join(map(str, record["sizes"]))
    what = f"{record['steps']} steps of batch {record['batch_size']}, layers {sizes}"
    tables = [
        _by_point(record, "points", f"seconds against density, {what}", lambda row: f"{row['median']:.3f}"),
        _by_point(record, "points", "memory for model and training in MB, against density", _megabytes),
        _by_point(
            record, "points", "largest difference from masked PyTorch's parameters, against density", _difference
        ),
    ]
    if any(SPARSE in point["tools"] for point in record["points"]):
        tables.insert(1, _ratios(record))
    batches = record["batches"]
    if batches:
        title = f"µs an example against batch size, density {batches[0]['density']:g}"
        tables.append(_by_point(record, "batches", title, lambda row: f"{1e6 * row['per_example']:.2f}"))
    return tables


def _by_point(record: Record, key: str, title: str, cell: Callable[[Record], str]) -> Table:
    """A row for every tool and a column for every density or batch size."""
    points = record[key]
    heading = "density" if key == "points" else "batch_size"
    rows = [
        [tool["title"], *(cell(point["tools"][name]) if name in point["tools"] else "" for point in points)]
        for name, tool in record["tools"].items()
    ]
    return Table(title, ["tool", *(f"{point[heading]:g}" for point in points)], rows)


def _ratios(record: Record) -> Table:
    """A row for every density, with the ratios of matgrad's sparse training to the other tools."""
    points = [point for point in record["points"] if SPARSE in point["tools"]]
    rows = [
        [f"{p['density']:g}", f"{p['nnz']:,}", *(_ratio(p["tools"][SPARSE]["ratios"].get(name)) for name in RATIOS)]
        for p in points
    ]
    title = record["tools"][SPARSE]["title"]
    return Table(f"seconds of {title} ÷ those of the others", ["density", "weights", *RATIOS.values()], rows)


def findings(record: Record) -> list[str]:
    """What follows from the points."""
    fit, density = record["fit"], record["break_even"]
    lines = []
    if fit is not None:
        lines.append(
            f"a step of {record['tools'][SPARSE]['title']} takes at best about {1e6 * fit['step']:.0f} µs + "
            f"{1e9 * fit['weight']:.2f} ns a stored weight (off by at most {100 * fit['largest_error']:.0f} %)"
        )
    if density is not None:
        lines.append(f"sparse training is as fast as dense training at density {density:.2g}")
    return lines


def _ratio(ratio: Any) -> str:
    return "" if ratio is None else f"{ratio['median']:.3f} ({ratio['best']:.3f})"


def _megabytes(row: Record) -> str:
    bytes_ = row["memory"]["training"]
    return "" if bytes_ is None else f"{bytes_ / 1e6:.1f}"


def _difference(row: Record) -> str:
    found = row["difference"]
    return "" if found is None else "nan" if found["relative"] is None else f"{found['relative']:.1e}"
