"""What a benchmark tells: its command line, its record, tables of the record, and plots."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.memory import total_memory
from harness.problems import Parameters, values_of
from harness.team import FOLDER
from harness.tools import Tool
from matgrad.foundation.machine import cores, machine, versions
from matgrad.foundation.writing import Table, as_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = dict[str, Any]
COLOURS = {"PyTorch": "#d1495b", "NumPy": "#2e5eaa", "JAX": "#3d8b5f", "TensorFlow": "#d9822b", "C++": "#6a4c93"}
GREY = "#555555"
DIFFERENCE = (
    "difference: largest relative difference of a parameter from the baseline's, which grows in float32 when "
    "rounding decides about a ReLU near 0"
)


# -- the command line -------------------------------------------------------------------------------


def numbers(kind: type) -> Callable[[str], list[Any]]:
    """The type of an option that is a list of positive numbers, separated by commas."""

    def convert(text: str) -> list[Any]:
        found = [kind(item) for item in text.split(",")]
        if not all(x > 0 for x in found):
            raise ValueError
        return found

    convert.__name__ = f"list of positive {kind.__name__}s"
    return convert


def parser(description: str | None, rounds: int = 3, tools: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The options that all benchmarks share; a benchmark with these tools lets one choose of them."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    found.add_argument("--rounds", type=int, default=rounds, help="how often everything is measured")
    found.add_argument("--threads", type=int, default=cores(), help="CPU threads of each tool")
    found.add_argument("--seed", type=int, default=0, help="seed of the weights and of generated data")
    found.add_argument("--output", type=Path, metavar="DIR", help="write bench.json, table.md and plots to this folder")
    if tools:
        found.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="element type")
        known = ",".join(tools)
        found.add_argument("--tools", type=lambda text: text.split(","), default=known, metavar="LIST", help="which")
    return found


def installed(options: argparse.Namespace, known: Mapping[str, Tool]) -> tuple[dict[str, Tool], dict[str, str]]:
    """The chosen tools in the order of the list, and why others cannot be measured."""
    for name in options.tools:
        if name not in known:
            raise SystemExit(f"unknown tool {name!r}; known: {', '.join(known)}")
    chosen = {name: tool for name, tool in known.items() if name in options.tools}
    missing = {name: reason for name, tool in chosen.items() if (reason := tool.missing()) is not None}
    return {name: tool for name, tool in chosen.items() if name not in missing}, missing


def say(text: str) -> None:
    """Show where a benchmark is."""
    print(text, file=sys.stderr, flush=True)


# -- the record -------------------------------------------------------------------------------------


def head(kind: str, started: float, options: argparse.Namespace) -> Record:
    """What a benchmark was run with: machine, versions, date and command."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    about = machine() | {"memory_GB": round(total_memory() / 1e9, 1), "threads": given.get("threads", 1)}
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    try:
        keras = {"keras": metadata.version("keras")}
    except metadata.PackageNotFoundError:
        keras = {}
    return {
        "kind": kind,
        "format": 1,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": round(time.time() - started, 1),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "options": given,
        "versions": versions() | keras,
        "machine": about | {"blas": f"{blas['name']} {blas['version']}"},
    }


def times(seconds: list[float]) -> Record:
    """The net seconds of the rounds, their median and their minimum."""
    return {"seconds": seconds, "median": median(seconds), "best": min(seconds)}


def ratio(seconds: Mapping[str, list[float]], name: str, baseline: str | None) -> Record | None:
    """The ratios of the rounds; None without a baseline, or if the tool is the baseline."""
    if baseline not in seconds or baseline == name:
        return None
    values = [a / b for a, b in zip(seconds[name], seconds[baseline], strict=True)]
    return {"to": baseline, "values": values, "median": median(values), "best": min(values)}


def fastest(names: Iterable[str], seconds: Mapping[str, list[float]]) -> str | None:
    """The tool with the smallest median, of those that were measured."""
    return min((name for name in names if name in seconds), key=lambda name: median(seconds[name]), default=None)


def difference(name: str, parameters: Mapping[str, Parameters], baselines: Iterable[str]) -> Record | None:
    """The largest max|θ - θ'| / max|θ'| over the parameters θ, with θ' those of the first baseline that trains."""
    other = next((x for x in baselines if parameters.get(x)), None)
    if other is None or other == name or not parameters.get(name):
        return None
    found, expected = ([values_of(A) for pair in parameters[x] for A in pair] for x in (name, other))
    pairs = zip(found, expected, strict=True)
    return {"to": other, "relative": max(float(np.abs(A - B).max() / np.abs(B).max()) for A, B in pairs)}


# -- tables -----------------------------------------------------------------------------------------


def by_point(tools: Record, points: list[Record], key: str, title: str, cell: Callable[[Record], str]) -> Table:
    """One row per tool and one column per point, headed by the value of the point under `key`."""
    rows = [
        [tool["title"], *(cell(point["tools"][name]) if name in point["tools"] else "" for point in points)]
        for name, tool in tools.items()
    ]
    return Table(title, ["tool", *(f"{point[key]:g}" for point in points)], rows)


def number(value: float | None, form: str) -> str:
    """A number as a string; a number that is not finite is None in JSON."""
    return "nan" if value is None else f"{value:{form}}"


def ratio_cell(found: Record | None, form: str = ".2f") -> str:
    """The median ratio and the best."""
    return "" if found is None else f"{found['median']:{form}} ({found['best']:{form}})"


def difference_cell(row: Record) -> str:
    """The difference of the parameters from the baseline's."""
    return "" if row["difference"] is None else number(row["difference"]["relative"], ".1e")


def common_notes(record: Record) -> list[str]:
    """What a reader of any table must know."""
    lines = [f"{name} was left out: {reason}" for name, reason in record.get("missing", {}).items()]
    for part in [*record.get("experiments", []), record]:
        lines += [f"{name} {reason}" for name, reason in part.get("failures", {}).items()]
    options = record["options"]
    if {"rounds", "threads", "dtype"} <= options.keys():
        lines.append(
            f"{record['machine']['threads']} threads, {options['dtype']}, seed {options['seed']}; times are medians of "
            f"{options['rounds']} interleaved rounds of net training time, each tool in its own process"
        )
    return lines


def circumstances(record: Record) -> list[str]:
    """Machine, versions, setting and command."""
    about = record["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"{about['processor']}, {about['cores']} cores, {about['memory_GB']} GB, {about['system']}",
        f"{packages}; NumPy's BLAS {about['blas']}",
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in record.get("setting", {}).items()),
        f"{record['started']}: `{record['command']}`",
    ]
    return [line for line in lines if line]


# -- files ------------------------------------------------------------------------------------------


def script(kind: str) -> ModuleType:
    """The benchmark that makes records of a kind; it has a TITLE, tables(record), notes(record) and figure(record)."""
    path = FOLDER / f"{kind.replace('-', '_')}.py"
    found = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


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


def finish(record: Record, folder: Path | None) -> None:
    """Print the tables, and write all files if a folder is given; exit status 1 if a tool failed."""
    if folder is not None:
        write(record, folder)
    module = script(record["kind"])
    print("\n\n".join([*(table.text() for table in module.tables(record)), "\n".join(module.notes(record))]))
    if any(part.get("failures") for part in (record, *record.get("experiments", []))):
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


def lines(ax: Axes, tools: Record, points: list[Record], x: str, value: Callable[[Record], float | None]) -> None:
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
