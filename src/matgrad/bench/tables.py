"""The record of a benchmark as tables: plain text for a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Callable

from matgrad.bench.sparse_tables import findings, sparse_tables
from matgrad.bench.table import Record, Table


def text(record: Record) -> str:
    """What a terminal shows."""
    return "\n\n".join([*(table.text() for table in tables(record)), "\n".join(notes(record))])


def markdown(record: Record) -> str:
    """What table.md has: the tables, and what they were measured with."""
    lines = [f"- {line}" for line in [*notes(record), *circumstances(record)]]
    heading = f"## {TITLES[record['kind']]}"
    return "\n\n".join([heading, *(table.markdown() for table in tables(record)), "\n".join(lines)]) + "\n"


def tables(record: Record) -> list[Table]:
    """The tables of a record."""
    if record["kind"] == "sparse":
        return sparse_tables(record)
    if record["kind"] == "cost":
        return [_curve(curve, record["tools"]) for curve in record["curves"]]
    columns = COLUMNS if record["kind"] == "paper" else NATIVE_COLUMNS
    return [_experiment(experiment, columns) for experiment in record["experiments"]]


TITLES = {
    "paper": "The paper's experiments",
    "cost": "Cost of an example",
    "native": "Dense training in the C++ core",
    "sparse": "Sparse training",
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
    "÷ by hand (best)": lambda row: _ratio(row["ratios"]["own"], named=True),
    "start-up s": lambda row: _number(row["startup"]["prepare"], ".2f"),
    "difference": lambda row: "" if row["difference"] is None else _number(row["difference"]["relative"], ".1e"),
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
    """Microseconds an example for every tool and value of an axis."""
    fixed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in curve["fixed"].items())
    rows = [
        [tool["title"], *(_microseconds(point["tools"].get(name)) for point in curve["points"])]
        for name, tool in tools.items()
    ]
    return Table(
        f"µs an example against {curve['title']} ({fixed})",
        ["tool", *(str(point["value"]) for point in curve["points"])],
        rows,
    )


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    lines = [f"{name} was left out: {reason}" for name, reason in record["missing"].items()]
    experiments = record.get("experiments", [])
    for part in [*experiments, record] if experiments else [record]:
        lines += [f"{name} {reason}" for name, reason in part.get("failures", {}).items()]
    for experiment in experiments:
        if experiment["data"]["is_generated"] and record["kind"] == "paper":
            lines.append(f"no real data for {experiment['title']}: loss and accuracies tell nothing about it")
    options = record["options"]
    lines.append(
        f"{record['machine']['threads']} threads, {options['dtype']}, seed {options['seed']}; times are medians of "
        f"{options['rounds']} interleaved rounds of net training time, each tool in a process of its own"
    )
    return lines + EXPLANATIONS[record["kind"]](record)


_DIFFERENCE = (
    "difference: largest relative difference of a parameter from the baseline's, which grows in float32 when "
    "rounding decides about a ReLU near 0"
)
EXPLANATIONS: dict[str, Callable[[Record], list[str]]] = {
    "paper": lambda record: [
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ by hand: to the fastest that is written by "
        "hand in the tool's framework; start-up: recording, compiling and first batches, not in the seconds; "
        f"{_DIFFERENCE}"
    ],
    "native": lambda record: [
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ products: to the faster library for the products "
        "of a step alone, which train nothing; start-up: recording and first batches, not in the seconds; "
        f"{_DIFFERENCE}"
    ],
    "cost": lambda record: [],
    "sparse": lambda record: [
        *findings(record),
        "÷: medians of the rounds' ratios; memory: how much the process grows for model and training, without its data "
        f"and libraries; {_DIFFERENCE}",
    ],
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


def _number(value: float | None, form: str) -> str:
    """A number; one that was not finite is None in JSON."""
    return "nan" if value is None else f"{value:{form}}"


def _ratio(ratio: Record | None, named: bool = False) -> str:
    """The median ratio and the best, with the name of what it is to where that is asked for."""
    if ratio is None:
        return ""
    name = f"{ratio['to']} " if named else ""
    return f"{name}{ratio['median']:.2f} ({ratio['best']:.2f})"


def _paper(row: Record) -> str:
    paper = row["paper"]
    keys = ("loss", "train_accuracy", "test_accuracy")
    return "" if paper is None else " ".join(f"{paper[key]:.3f}" for key in keys)


def _microseconds(times: Record | None) -> str:
    return "" if times is None else f"{1e6 * times['per_example']:.2f}"
