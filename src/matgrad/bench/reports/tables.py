"""The record of a benchmark as tables, in plain text for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from matgrad.bench.reports.distributed_tables import distributed_notes, distributed_tables
from matgrad.bench.reports.gpu_tables import gpu_notes, gpu_tables
from matgrad.bench.reports.method_tables import method_notes, method_tables
from matgrad.bench.reports.record import Record
from matgrad.bench.tools.registry import DENSE, MASKED, SPARSE
from matgrad.foundation.table import Table


def text(record: Record) -> str:
    """The tables and notes for a terminal."""
    return "\n\n".join([*(table.text() for table in tables(record)), "\n".join(notes(record))])


def markdown(record: Record) -> str:
    """The content of table.md: the tables, and what they were measured with."""
    lines = [f"- {line}" for line in [*notes(record), *circumstances(record)]]
    heading = f"## {TITLES[record['kind']]}"
    return "\n\n".join([heading, *(table.markdown() for table in tables(record)), "\n".join(lines)]) + "\n"


def tables(record: Record) -> list[Table]:
    """The tables of a record."""
    if record["kind"] == "sparse":
        return sparse_tables(record)
    if record["kind"] == "sparse-methods":
        return method_tables(record)
    if record["kind"] == "distributed":
        return distributed_tables(record)
    if record["kind"] == "gpu":
        return list(gpu_tables(record).values())
    if record["kind"] == "cost":
        return [_curve(curve, record["tools"]) for curve in record["curves"]]
    columns = COLUMNS if record["kind"] == "paper" else NATIVE_COLUMNS
    return [_experiment(experiment, columns) for experiment in record["experiments"]]


TITLES = {
    "paper": "The paper's experiments",
    "cost": "Time per example",
    "native": "Dense training in the C++ core",
    "sparse": "Sparse training",
    "sparse-methods": "Methods of sparse training",
    "distributed": "Training on several processes",
    "gpu": "Training on a GPU",
}

# heading and content of every column of the paper's table
COLUMNS: dict[str, Callable[[Record], str]] = {
    "tool": lambda row: row["title"],
    "loss": lambda row: _number(row["measures"]["loss"], ".3f"),
    "train": lambda row: _number(row["measures"]["train_accuracy"], ".3f"),
    "test": lambda row: _number(row["measures"]["test_accuracy"], ".3f"),
    "paper's": lambda row: _paper(row),
    "seconds (best)": lambda row: f"{row['median']:.3f} ({row['best']:.3f})",
    "÷ PyTorch (best)": lambda row: _ratio(row["ratios"]["reference"]),
    "paper's ÷": lambda row: "" if row["paper"] is None else f"{row['paper']['ratio']:.2f}",
    "÷ by hand (best)": lambda row: _named_ratio(row["ratios"]["own"]),
    "start-up s": lambda row: _number(row["startup"]["prepare"], ".2f"),
    "difference": lambda row: _difference(row),
}


NATIVE_COLUMNS: dict[str, Callable[[Record], str]] = {
    **{name: COLUMNS[name] for name in ("tool", "seconds (best)", "÷ PyTorch (best)")},
    "÷ products (best)": COLUMNS["÷ by hand (best)"],
    **{name: COLUMNS[name] for name in ("start-up s", "difference")},
}


def _experiment(experiment: Record, columns: dict[str, Callable[[Record], str]]) -> Table:
    """The table of one experiment."""
    data = experiment["data"]
    title = f"{experiment['title']}, {experiment['steps']} steps of batch {experiment['batch_size']}"
    if data["is_generated"]:
        title = f"GENERATED data of the shape of {title}"
    if not experiment["is_whole_epoch"]:
        title += ", NOT A WHOLE EPOCH"
    rows = [[column(row) for column in columns.values()] for row in experiment["tools"]]
    return Table(title, list(columns), rows)


def _curve(curve: Record, tools: Record) -> Table:
    """Microseconds per example for each tool and each value of an axis."""
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    title = f"µs per example against {curve['title']} ({fixed})"
    return _by_point(tools, curve["points"], "value", title, _microseconds)


def _by_point(tools: Record, points: list[Record], key: str, title: str, cell: Callable[[Record], str]) -> Table:
    """One row per tool and one column per point, headed by the value of the point under `key`."""
    rows = [
        [tool["title"], *(cell(point["tools"][name]) if name in point["tools"] else "" for point in points)]
        for name, tool in tools.items()
    ]
    return Table(title, ["tool", *(f"{point[key]:g}" for point in points)], rows)


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    lines = [f"{name} was left out: {reason}" for name, reason in record["missing"].items()]
    experiments = record.get("experiments", [])
    for part in [*experiments, record] if experiments else [record]:
        lines += [f"{name} {reason}" for name, reason in part.get("failures", {}).items()]
    for experiment in experiments:
        if experiment["data"]["is_generated"] and record["kind"] == "paper":
            lines.append(f"no real data for {experiment['title']}: loss and accuracies say nothing about it")
    options = record["options"]
    if "rounds" in options and "threads" in options:
        lines.append(
            f"{record['machine']['threads']} threads, {options['dtype']}, seed {options['seed']}; times are medians of "
            f"{options['rounds']} interleaved rounds of net training time, each tool in its own process"
        )
    return lines + EXPLANATIONS[record["kind"]](record)


_DIFFERENCE = (
    "difference: largest relative difference of a parameter from the baseline's, which grows in float32 when "
    "rounding decides about a ReLU near 0"
)
EXPLANATIONS: dict[str, Callable[[Record], list[str]]] = {
    "paper": lambda record: [
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ by hand: to the fastest code written by "
        "hand in the tool's framework; start-up: recording, compiling and first batches, not in the seconds; "
        f"{_DIFFERENCE}"
    ],
    "native": lambda record: [
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ products: to the faster library for only the "
        "products of a step, which train nothing; start-up: recording and first batches, not in the seconds; "
        f"{_DIFFERENCE}"
    ],
    "cost": lambda record: [],
    "sparse": lambda record: [
        *findings(record),
        "÷: medians of the rounds' ratios; memory: how much the process grows for model and training, without data "
        f"and libraries; {_DIFFERENCE}",
    ],
    "sparse-methods": lambda record: method_notes(record),
    "distributed": lambda record: distributed_notes(record),
    "gpu": lambda record: gpu_notes(record),
}


def circumstances(record: Record) -> list[str]:
    """Machine, versions, setting and command."""
    machine = record["machine"]
    setting = record.get("setting", {})
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_GB']} GB, {machine['system']}",
        f"{versions}; NumPy's BLAS {machine['blas']}",
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items()),
        f"{record['started']}: `{record['command']}`",
    ]
    return [line for line in lines if line]


# -- sparse training ------------------------------------------------------------------------------

# the columns of ratios: what the time of matgrad's sparse training is divided by
RATIOS = {
    MASKED: "÷ masked (best)",
    "pytorch-csr": "÷ CSR (best)",
    DENSE: "÷ dense (best)",
    "matgrad-native-1": "÷ 1 thread (best)",
}


def sparse_tables(record: Record) -> list[Table]:
    """Seconds, ratios, memory, and microseconds per example against the batch size."""
    sizes = ";".join(map(str, record["sizes"]))
    what = f"{record['steps']} steps of batch {record['batch_size']}, layers {sizes}"
    by_density = partial(_by_point, record["tools"], record["points"], "density")
    tables = [
        by_density(f"seconds against density, {what}", lambda row: f"{row['median']:.3f}"),
        by_density("memory for model and training in MB, against density", _megabytes),
        by_density("largest difference from masked PyTorch's parameters, against density", _difference),
    ]
    if any(SPARSE in point["tools"] for point in record["points"]):
        tables.insert(1, _ratios(record))
    batches = record["batches"]
    if batches:
        title = f"µs per example against batch size, density {batches[0]['density']:g}"
        tables.append(_by_point(record["tools"], batches, "batch_size", title, _microseconds))
    return tables


def _ratios(record: Record) -> Table:
    """One row per density, with the ratios of matgrad's sparse training to the other tools."""
    rows = []
    for point in record["points"]:
        if SPARSE in point["tools"]:
            ratios = point["tools"][SPARSE]["ratios"]
            cells = (_ratio(ratios.get(name), ".3f") for name in RATIOS)
            rows.append([f"{point['density']:g}", f"{point['nnz']:,}", *cells])
    title = record["tools"][SPARSE]["title"]
    return Table(f"seconds of {title} ÷ those of the others", ["density", "weights", *RATIOS.values()], rows)


def findings(record: Record) -> list[str]:
    """What the points show, in words."""
    fit, density = record["fit"], record["break_even"]
    lines = []
    if fit is not None:
        lines.append(
            f"a step of {record['tools'][SPARSE]['title']} takes at best about {1e6 * fit['step']:.0f} µs + "
            f"{1e9 * fit['weight']:.2f} ns per stored weight (off by at most {100 * fit['largest_error']:.0f} %)"
        )
    if density is not None:
        lines.append(f"sparse training is as fast as dense training at density {density:.2g}")
    return lines


# -- cells ----------------------------------------------------------------------------------------


def _number(value: float | None, form: str) -> str:
    """A number as a string; a number that is not finite is None in JSON."""
    return "nan" if value is None else f"{value:{form}}"


def _ratio(ratio: Record | None, form: str = ".2f") -> str:
    """The median ratio and the best."""
    return "" if ratio is None else f"{ratio['median']:{form}} ({ratio['best']:{form}})"


def _named_ratio(ratio: Record | None) -> str:
    """The same after the name of what it is the ratio to."""
    return "" if ratio is None else f"{ratio['to']} {_ratio(ratio)}"


def _difference(row: Record) -> str:
    found = row["difference"]
    return "" if found is None else _number(found["relative"], ".1e")


def _megabytes(row: Record) -> str:
    bytes_ = row["memory"]["training"]
    return "" if bytes_ is None else f"{bytes_ / 1e6:.1f}"


def _paper(row: Record) -> str:
    paper = row["paper"]
    keys = ("loss", "train_accuracy", "test_accuracy")
    return "" if paper is None else " ".join(f"{paper[key]:.3f}" for key in keys)


def _microseconds(row: Record) -> str:
    return f"{1e6 * row['per_example']:.2f}"
