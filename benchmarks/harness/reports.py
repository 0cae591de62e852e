"""What a benchmark tells: its command line, its record, tables of the record, and plots."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.team import Record, say
from harness.tools import Tool
from matgrad.foundation.machine import cores, machine, versions
from matgrad.foundation.writing import Table, as_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[1]
STARTED = time.time()
COLOURS = {"PyTorch": "#d1495b", "NumPy": "#2e5eaa", "JAX": "#3d8b5f", "TensorFlow": "#d9822b", "C++": "#6a4c93"}
GREY = "#555555"
DIFFERENCE = (
    "difference: largest relative difference of a parameter from the baseline's, which grows in float32 when "
    "rounding decides about a ReLU near 0"
)


# -- the command line and the record ----------------------------------------------------------------


def items(kind: Callable[[str], Any] = str) -> Callable[[str], list[Any]]:
    """The type of an option that is a list, separated by commas."""
    return lambda text: [kind(item) for item in text.split(",")]


def parser(description: str | None, rounds: int = 3, tools: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The options that all benchmarks share; a benchmark with these tools lets one choose of them."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    found.add_argument("--rounds", type=int, default=rounds, help="how often everything is measured")
    found.add_argument("--threads", type=int, default=cores(), help="CPU threads of each tool")
    found.add_argument("--seed", type=int, default=0, help="seed of the weights and of generated data")
    found.add_argument("--output", type=Path, metavar="DIR", help="write bench.json, table.md and plots to this folder")
    found.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="element type")
    if tools:
        found.add_argument("--tools", type=items(), default=",".join(tools), metavar="LIST", help="which")
    return found


def installed(options: argparse.Namespace, known: Mapping[str, Tool]) -> tuple[dict[str, Tool], Record]:
    """The chosen tools in the order of the list, and what a record says of them: why others cannot be measured."""
    if unknown := [name for name in options.tools if name not in known]:
        raise SystemExit(f"unknown tool {unknown[0]!r}; known: {', '.join(known)}")
    chosen = {name: tool for name, tool in known.items() if name in options.tools}
    missing = {name: reason for name, tool in chosen.items() if (reason := tool.missing()) is not None}
    tools = {name: tool for name, tool in chosen.items() if name not in missing}
    return tools, {"missing": missing, "tools": {name: tool.about() for name, tool in tools.items()}}


def head(kind: str, options: argparse.Namespace) -> Record:
    """What a benchmark was run with: machine, versions, date and command."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    keras = {x: metadata.version(x) for x in ("keras",) if importlib.util.find_spec(x)}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    about = {"memory_GB": round(memory / 1e9, 1), "threads": given.get("threads", 1)}
    return {
        "kind": kind,
        "format": 1,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(STARTED)),
        "seconds": round(time.time() - STARTED, 1),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "options": given,
        "versions": versions() | keras,
        "machine": machine() | about | {"blas": f"{blas['name']} {blas['version']}"},
    }


# -- tables -----------------------------------------------------------------------------------------


def by_point(tools: Record, points: list[Record], key: str, title: str, cell: Callable[[Record], str]) -> Table:
    """One row per tool and one column per point, headed by the value of the point under `key`."""
    rows = [[tool["title"], *(cell(p["tools"][name]) if name in p["tools"] else "" for p in points)]
            for name, tool in tools.items()]  # fmt: skip
    return Table(title, ["tool", *(f"{point[key]:g}" for point in points)], rows)


def listed(title: str, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], str]]) -> Table:
    """One row per item, with these columns."""
    return Table(title, list(columns), [[cell(row) for cell in columns.values()] for row in rows])


def number(value: float | None, form: str) -> str:
    """A number as a string; a number that is not finite is None in JSON."""
    return "nan" if value is None else f"{value:{form}}"


def ratio_cell(row: Record | None, other: str, form: str = ".2f", *, best: bool = True) -> str:
    """The median ratio of a tool to another one, and the best; nothing if one of them was not measured."""
    found = None if row is None else row["ratios"].get(other)
    return "" if found is None else f"{found['median']:{form}}" + (f" ({found['best']:{form}})" if best else "")


def difference_cell(row: Record) -> str:
    """The difference of the parameters from the baseline's."""
    return "" if row["difference"] is None else number(row["difference"]["relative"], ".1e")


def failures(part: Any) -> Iterator[str]:
    """What failed in a record or in any part of it, and why."""
    if isinstance(part, dict):
        yield from (f"{name} {reason}" for name, reason in part.get("failures", {}).items())
        yield from failures([value for name, value in part.items() if name != "failures"])
    elif isinstance(part, list):
        yield from (text for item in part for text in failures(item))


def absent(record: Record) -> list[str]:
    """What was left out, and what failed."""
    return [*(f"{name} was left out: {reason}" for name, reason in record["missing"].items()), *failures(record)]


def common_notes(record: Record) -> list[str]:
    """What a reader of any table must know."""
    options = record["options"]
    return [
        *absent(record),
        f"{record['machine']['threads']} threads, {options['dtype']}, seed {options['seed']}; times are medians of "
        f"{options['rounds']} interleaved rounds of net training time, each tool in its own process",
    ]


def circumstances(record: Record) -> list[str]:
    """Machine, versions, setting and command."""
    about, setting = record["machine"], record.get("setting", {})
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return [
        f"{about['processor']}, {about['cores']} cores, {about['memory_GB']} GB, {about['system']}",
        f"{packages}; NumPy's BLAS {about['blas']}",
        *([", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items())] if setting else []),
        f"{record['started']}: `{record['command']}`",
    ]


# -- files ------------------------------------------------------------------------------------------


def script(kind: str) -> SimpleNamespace:
    """The benchmark that makes records of a kind; it has a TITLE, tables(record), notes(record) and figure(record)."""
    path = FOLDER / f"{kind.replace('-', '_')}.py"
    return SimpleNamespace(**runpy.run_path(str(path), run_name=path.stem))


def markdown(record: Record) -> str:
    """The content of table.md."""
    module = script(record["kind"])
    tables, lines = module.tables(record), [*module.notes(record), *circumstances(record)]
    listed = "\n".join(f"- {line}" for line in lines)
    return "\n\n".join([f"## {module.TITLE}", *(table.markdown() for table in tables), listed]) + "\n"


def write(record: Record, folder: Path) -> None:
    """Write bench.json, table.md and, if matplotlib is installed, plot.png and plot.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(as_json(record) + "\n")
    (folder / "table.md").write_text(markdown(record))
    module = script(record["kind"])
    if importlib.util.find_spec("matplotlib") is None:
        say(f"no matplotlib: python benchmarks/report.py {folder} draws the plot elsewhere")
    elif hasattr(module, "figure"):
        from matgrad.inspection.figures import write_figure

        write_figure(lambda: module.figure(record), [folder / "plot.png", folder / "plot.svg"])


def finish(kind: str, options: argparse.Namespace, content: Record) -> None:
    """Print the tables, and write all files if a folder is given; exit status 1 if a tool failed."""
    record, module = head(kind, options) | content, script(kind)
    if options.output is not None:
        write(record, options.output)
    print("\n\n".join([*(table.text() for table in module.tables(record)), "\n".join(module.notes(record))]))
    if any(failures(record)):
        raise SystemExit(1)


def read(folder: Path) -> Record:
    """The record in a folder."""
    return json.loads((folder / "bench.json").read_text())


# -- plots ------------------------------------------------------------------------------------------


def footnote(figure: Figure, record: Record, more: str = "") -> None:
    """What it was measured on, below the panels."""
    about, options = record["machine"], record["options"]
    text = f"{about['processor']}, {about['threads']} threads, {options['dtype']}; "
    figure.supxlabel(f"{text}medians of {options['rounds']} interleaved rounds{more}", fontsize=8, color=GREY)


def legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend for all axes, outside, at the right."""
    known = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known.keys(), loc="outside right upper", frameon=False, fontsize=8.5)


def bars(ax: Axes, rows: list[Record], values: list[float], labels: list[str]) -> None:
    """A horizontal bar per row, in the colour of its framework: hatched for a baseline, pale for what is eager."""
    longest = max(values, default=1.0)
    for y, (row, value, label) in enumerate(zip(rows, values, labels, strict=True)):
        colour = COLOURS.get(row["framework"], GREY)
        look: Record = {"facecolor": colour, "alpha": 0.35 if row["kind"] == "eager" else 1}
        if row["kind"] == "baseline":
            look = {"facecolor": "white", "hatch": "////"}
        ax.barh(y, value, height=0.68, edgecolor=colour, linewidth=1, **look)
        ax.text(value + 0.015 * longest, y, label, va="center", fontsize=8.5)
    ax.set_yticks(range(len(rows)), [row["title"] for row in rows])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.33 * longest)


def log_scales(ax: Axes, values: Sequence[float]) -> None:
    """Logarithmic scales, with a tick at each of the values."""
    from matgrad.inspection.figures import grid, log_scale

    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    log_scale(ax)
    grid(ax)


def lines(
    ax: Axes, tools: Record, points: list[Record], x: str, value: Callable[[Record], float | None], title: str
) -> None:
    """One line per tool through its values at the points, on logarithmic scales."""
    looks = ("o-", "s--", "^:", "D-.", "v-")  # of the tools of one framework
    seen: dict[str, int] = {}
    for name, tool in tools.items():
        look = looks[seen.get(tool["framework"], 0) % len(looks)]
        seen[tool["framework"]] = seen.get(tool["framework"], 0) + 1
        pairs = [(point[x], value(point["tools"][name])) for point in points if name in point["tools"]]
        known = sorted((a, b) for a, b in pairs if b)  # a logarithmic scale has no 0
        colour = COLOURS.get(tool["framework"], GREY)
        ax.plot([a for a, _ in known], [b for _, b in known], look, color=colour, label=tool["title"], markersize=4)
    log_scales(ax, sorted(point[x] for point in points))
    ax.set(title=title, xlabel=x.replace("_", " "))
