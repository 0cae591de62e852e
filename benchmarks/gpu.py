"""Training on a GPU, beside native PyTorch (eager, compiled, in a CUDA graph), JAX, masked matrices and cuSPARSE.

Parts: steps of the paper's models on PyTorch and on JAX, an epoch of M.fit, a large dense model, a sparse layer
against the density, very wide networks. It runs from the source tree: PYTHONPATH=src python benchmarks/gpu.py.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import brain
import matgrad as mg
from harness.problems import Setting, generated
from harness.reports import GREY, absent, bars, finish, head, items, log_scales, parser, write
from harness.team import Record, measure, say
from harness.tools import Tool, baseline, matgrad
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from baselines.sparse_layers import Way

TITLE = "Training on a GPU"
NATIVE, GRAPH, OWN, OWN_JAX, STEPS, FIT = (
    *("gpu-pytorch", "gpu-pytorch-graph", "matgrad-torch", "matgrad-jax"),
    *("matgrad-torch-steps", "matgrad-torch-fit"),
)


def _gpu(title: str, class_name: str, *baselines: str) -> Tool:
    """Native PyTorch on a GPU."""
    return baseline(title, f"pytorch.{class_name}", "PyTorch", "torch", baselines=baselines)


_own = matgrad("torch", "PyTorch", NATIVE)
TOOLS = {
    NATIVE: _gpu("PyTorch native", "PyTorch"),
    "gpu-pytorch-compile": _gpu("PyTorch, torch.compile", "CompiledPyTorch", NATIVE),
    GRAPH: _gpu("PyTorch, CUDA graph", "GraphPyTorch", NATIVE),
    STEPS: replace(_own, title="matgrad PyTorch, bare steps", class_name="own.MatgradSteps"),
    OWN: _own,
    FIT: replace(_own, title="M.fit", class_name="own.MatgradFit"),
    "jax": baseline("JAX, jit by hand", "jax_by_hand.Jax", "JAX", "jax"),
    OWN_JAX: matgrad("jax", "JAX", "jax"),
}
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "weights": "XavierNormalized",
    "biases": "zero",
    "learning_rate": 0.01,
    "data": "generated, on the device from the start",
}
MNIST, CIFAR, LARGE = (784, 1024, 512, 10), (3072, 1024, 512, 10), (3072, 16384, 16384, 10)
COMPARED = 20  # steps after which parameters are compared: later, those of float32 and float64 differ by 10 % too

# very wide networks and their batch sizes
NETWORKS = {
    "1,000,000 → 1,000,000": ({**brain.NETWORK, "features": 1_000_000, "layers": 1, "neurons": 1_000_000}, 100),
    "50 million neurons": (brain.NETWORK, 8),
}


# -- parts ------------------------------------------------------------------------------------------


def measured(options: argparse.Namespace, names: list[str], cases: list[Any], steps: int) -> list[Record]:
    """The records of tools that train models in several settings, with their titles."""
    tools, found = {name: TOOLS[name] for name in names if TOOLS[name].missing() is None}, []
    for title, sizes, batch_size, momentum, matmul in cases:
        setting = Setting(sizes, batch_size, momentum=momentum, device=options.device, matmul=matmul)
        data = generated(sizes[0], sizes[-1], steps * batch_size, seed=options.seed)
        about = {
            "title": title,
            "optimizer": setting.optimizer,
            "matmul": matmul,
            "compared_after": min(COMPARED, steps),
        }
        found.append(measure(_heading(about), tools, setting, data, options, compared=COMPARED)[0] | about)
    return found


def _paper_models(*momenta: float) -> list[Any]:
    """The paper's models in float32 and TF32."""
    models = {"MNIST": MNIST, "CIFAR-10": CIFAR}
    return [(x, models[x], 100, momentum, m) for m in ("float32", "tf32") for x in models for momentum in momenta]


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "steps": lambda options: measured(
        options, [NATIVE, "gpu-pytorch-compile", GRAPH, OWN], _paper_models(0.0, 0.9), options.steps
    ),
    "jax": lambda options: measured(options, ["jax", OWN_JAX], _paper_models(0.9), options.steps),
    "epoch": lambda options: measured(
        options, [STEPS, OWN, FIT], [("MNIST", MNIST, 100, 0.9, "float32")], 3 * options.steps
    ),
    "large": lambda options: measured(
        options, [NATIVE, GRAPH, OWN], [("large", LARGE, 1024, 0.9, matmul) for matmul in ("float32", "tf32")], 5
    ),
    "sparse": lambda options: {
        **{"neurons": 16384, "batch_size": 1024},
        "points": [layer_point(options, 16384, 1024, density) for density in (0.1, 0.03, 0.01, 0.003, 0.001)],
    },
    "wide": lambda options: [wide_network(options, name, *network) for name, network in NETWORKS.items()],
}


def layer_point(options: argparse.Namespace, n: int, N: int, density: float) -> Record:
    """Times, memory and differences of a sparse n→n layer, for every way; a way that fails is left out."""
    import torch

    from baselines.sparse_layers import PHASES, WAYS

    rng, device = np.random.default_rng(options.seed), options.device
    S = mg.Support.random(n, n, round(density * n * n), rng)
    values = rng.standard_normal(S.nnz, dtype=np.float32)
    generator = torch.Generator(device=device).manual_seed(options.seed)
    X, DY = (torch.randn(N, n, device=device, generator=generator) for _ in range(2))
    ways: dict[str, Way] = {}
    rows, failures = dict[str, Record](), {}
    for name, (title, make) in WAYS.items():
        try:
            memory = _memory(
                partial(make, S, values, X[:8], DY[:8]), X.is_cuda
            )  # 8 examples: little beside the weights
            ways[name] = make(S, values, X, DY)
            ways[name]["whole"]()
            rows[name] = {"title": title, "memory": memory, "seconds": {phase: [] for phase in PHASES}}
        except Exception as error:
            failures[f"density {density:g}: {name}"] = f"failed: {type(error).__name__}: {error}"
    expected = ways["masked"]["weights"]()
    for name, row in rows.items():
        row["difference"] = float(np.abs(ways[name]["weights"]() - expected).max() / np.abs(expected).max())
    for r in range(options.rounds):
        for name, row in rows.items():
            for phase, seconds in row["seconds"].items():
                seconds.append(_timed(ways[name][phase], X.is_cuda))
        say(f"sparse layer, density {density:g}: round {r + 1} of {options.rounds}")
    for name, row in rows.items():
        row["medians"] = {phase: median(seconds) for phase, seconds in row["seconds"].items()}
        pairs = {x: zip(row["seconds"]["whole"], rows[x]["seconds"]["whole"], strict=True) for x in rows if x != name}
        row["ratios"] = {x: median(b / a for a, b in pair) for x, pair in pairs.items()}
    return {"density": density, "nnz": S.nnz, "ways": rows, "failures": failures}


def _memory(make: Callable[[], Way], is_cuda: bool) -> int | None:
    """The most bytes of the GPU that a layer takes while it is trained: parameters, gradient and indices."""
    import torch

    if not is_cuda:
        return None
    _forget()
    before = torch.cuda.memory_allocated()
    way = make()
    for _ in range(3):
        way["whole"]()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _forget() -> None:
    """Free what was there before, and count the memory of the GPU from now on."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _timed(f: Callable[[], Any], is_cuda: bool) -> float:
    """The seconds that a call of f takes, in the mean of as many as take a hundredth of a second."""
    import torch

    def seconds(count: int) -> float:
        if is_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            f()
        if is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    count = max(1, min(200, round(0.01 / max(seconds(1), 1e-6))))
    return seconds(count) / count


def wide_network(options: argparse.Namespace, name: str, network: dict[str, int], batch_size: int) -> Record:
    """A network that is built, moved to the device, and trained on one batch: seconds per step and memory."""
    import torch

    is_cuda = torch.device(options.device).type == "cuda"
    if is_cuda:
        _forget()
    found = brain.train(network, batch_size, 6, options.seed, batches=1, device=options.device)
    return {"name": name, **network, **found, "peak_bytes": torch.cuda.max_memory_allocated() if is_cuda else None}


def main() -> None:
    """Measure the chosen parts; the record is written after each of them."""
    found = parser(__doc__, rounds=5)
    found.add_argument("--parts", type=items(), default=",".join(PARTS), metavar="LIST")
    found.add_argument("--device", default="cuda", help="of PyTorch and of JAX")
    found.add_argument("--steps", type=int, default=200, help="per round; an epoch has three times as many")
    options = found.parse_args()
    mg.create_model("Linear", [1, 1]).to("torch", device=options.device)  # an error if there is no such device
    missing = {name: reason for name, tool in TOOLS.items() if (reason := tool.missing()) is not None}
    record: Record = {"setting": DESCRIPTION, "gpu": _device(options.device), "missing": missing}
    for part in options.parts:
        record[part] = PARTS[part](options)
        if options.output is not None:
            write(head("gpu", options) | record, options.output)
    finish("gpu", options, record)


def _device(name: str) -> Record:
    """The GPU, and what PyTorch reaches it with."""
    import torch

    if torch.device(name).type != "cuda":
        return {"name": name}
    found = torch.cuda.get_device_properties(name)
    return {"name": found.name, "memory_GB": round(found.total_memory / 1e9, 1), "cuda": torch.version.cuda}


# -- tables and plot --------------------------------------------------------------------------------

# the columns of ratios of a tool: what its time is divided by
RATIOS = {
    (OWN, NATIVE): "÷ native",
    (OWN, GRAPH): "÷ graph",
    (OWN_JAX, "jax"): "÷ jit by hand",
}
MEMORY = ("matgrad", "masked")  # the ways whose memory is shown


def tables(record: Record) -> list[Table]:
    """Those of the parts that were measured."""
    return list(named_tables(record).values())


def named_tables(record: Record) -> dict[str, Table]:
    """The tables by the names that docs/gpu.md has for them."""
    return {name: make(record[part]) for name, (part, make) in TABLES.items() if part in record}


def _times(title: str, scale: float, form: str, parts: list[Record]) -> Table:
    """One row per setting and one column per tool, then columns of ratios."""
    titles = {name: row["title"] for part in parts for name, row in part["tools"].items()}
    pairs = {pair: heading for pair, heading in RATIOS.items() if any(_ratio(part, *pair) for part in parts)}
    rows = []
    for part in parts:
        cells = [f"{scale * row['per_step']:{form}}" if (row := part["tools"].get(name)) else "" for name in titles]
        rows.append([_heading(part), *cells, *(_ratio(part, *pair) for pair in pairs)])
    ratios = [f"{titles[name]} {heading}" for (name, _), heading in pairs.items()]
    where = {"layers": ";".join(map(str, parts[0]["sizes"])), "batch": parts[0]["batch_size"]}
    return Table(title.format(**where), ["model", *titles.values(), *ratios], rows)


def _heading(part: Record) -> str:
    return f"{part['title']}, {part['optimizer']}, {'TF32' if part['matmul'] == 'tf32' else part['matmul']}"


def _ratio(part: Record, name: str, other: str) -> str:
    """The median of the rounds' ratios."""
    found = part["tools"].get(name, {"ratios": {}})["ratios"].get(other)
    return "" if found is None else f"{found['median']:.2f}"


def _epoch_table(parts: list[Record]) -> Table:
    """One row per way to train."""
    (part,) = parts
    rows = [
        [row["title"], f"{1e3 * row['median']:.1f}", f"{1e6 * row['per_step']:.0f}", _ratio(part, name, STEPS)]
        for name, row in part["tools"].items()
    ]
    return Table(f"{part['steps']} steps, {_heading(part)}", ["what", "ms", "µs per step", "÷ bare steps"], rows)


def _sparse_table(record: Record) -> Table:
    """One row per density: ms of all phases, how many times faster matgrad is, and memory."""
    titles = _ways(record)
    others, shown = [name for name in titles if name != "matgrad"], [name for name in MEMORY if name in titles]
    rows = []
    for point in record["points"]:
        ratios = point["ways"].get("matgrad", {"ratios": {}})["ratios"]
        memory = [point["ways"].get(name, {"memory": None})["memory"] for name in shown]
        rows.append([f"{point['density']:g}", *(_milliseconds(point, name) for name in titles)])
        rows[-1] += [f"{ratios[name]:.1f}" if name in ratios else "" for name in others]
        rows[-1] += ["" if x is None else f"{x / 1e6:.0f}" for x in memory]
    headings = [*titles.values(), *(f"times faster than {titles[name]}" for name in others)]
    headings += [f"MB, {titles[name]}" for name in shown]
    return Table(f"ms for feedforward, DW, DX and update, {_layer(record)}", ["density", *headings], rows)


def _ways(record: Record) -> dict[str, str]:
    """The titles of the ways that were measured."""
    return {name: row["title"] for point in record["points"] for name, row in point["ways"].items()}


def _layer(record: Record) -> str:
    return f"{record['neurons']} → {record['neurons']} neurons, batch {record['batch_size']}"


def _milliseconds(point: Record, name: str) -> str:
    return f"{1e3 * point['ways'][name]['medians']['whole']:.3f}" if name in point["ways"] else ""


def _wide_table(networks: list[Record]) -> Table:
    """One row per network."""
    columns: dict[str, Callable[[Record], str]] = {
        "network": lambda x: x["name"],
        "weights": lambda x: f"{x['weights']:,}",
        "batch": lambda x: str(x["batch_size"]),
        "ms per step": lambda x: f"{1e3 * x['seconds_per_step']:.1f}",
        "GB of the GPU": lambda x: "" if x["peak_bytes"] is None else f"{x['peak_bytes'] / 1e9:.1f}",
        "loss": lambda x: "{:.2f} → {:.2f}".format(*x["losses"]),
        "seconds to build": lambda x: f"{x['build_seconds']:.0f}",
    }
    rows = [[cell(network) for cell in columns.values()] for network in networks]
    return Table("very wide networks, 10 connections per neuron", list(columns), rows)


# name: the part of the record that it shows, and what makes it
TABLES: dict[str, tuple[str, Callable[[Any], Table]]] = {
    **{name: (name, partial(_times, "µs per step, batch {batch}", 1e6, ".0f")) for name in ("steps", "jax")},
    "epoch": ("epoch", _epoch_table),
    "large": ("large", partial(_times, "ms per step, layers {layers}, batch {batch}", 1e3, ".2f")),
    "sparse": ("sparse", _sparse_table),
    "wide": ("wide", _wide_table),
}


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    gpu = record["gpu"]
    about = [gpu["name"], *([f"{gpu['memory_GB']} GB", f"CUDA {gpu['cuda']}"] if "cuda" in gpu else [])]
    return [
        *absent(record),
        f"{', '.join(about)}; medians of {record['options']['rounds']} interleaved rounds, each tool that trains a "
        "model in a process of its own; compiling and capturing are not in these times",
        "÷: medians of the rounds' ratios; float32 is float32 everywhere, TF32 only where it is named",
    ]


def figure(record: Record) -> Figure:
    """One panel per experiment, in float32 with momentum, and one for the sparse layer."""
    from matgrad.inspection.figures import new_figure

    rows: dict[str, list[Record]] = {}  # of the tools, by the title of the experiment
    for part in (*record.get("steps", []), *record.get("jax", [])):
        if (part["matmul"], part["optimizer"]) == ("float32", "Momentum(0.9)"):
            rows[part["title"]] = [*rows.get(part["title"], []), *part["tools"].values()]
    panels = max(len(rows) + ("sparse" in record), 1)
    drawn, axes = new_figure(1.2 + 4.6 * panels, 3.8, panels)
    for ax, (title, found) in zip(axes, rows.items(), strict=False):
        values = [1e6 * row["per_step"] for row in found]
        bars(ax, found, values, [f"{value:.0f}" for value in values])
        ax.set(title=f"{title}, Momentum(0.9)", xlabel="µs per step")
    if "sparse" in record:
        points, ax = record["sparse"]["points"], axes[-1]
        for name in {name: None for point in points for name in point["ways"]}:
            known = [(p["density"], p["ways"][name]) for p in points if name in p["ways"]]
            values = [1e3 * way["medians"]["whole"] for _, way in known]
            ax.plot([x for x, _ in known], values, "o-", markersize=4, label=known[0][1]["title"])
        log_scales(ax, [point["density"] for point in points])
        ax.set(title=_layer(record["sparse"]), xlabel="density", ylabel="ms for feedforward, DW, DX and update")
        ax.legend(fontsize=8, frameon=False)
    text = f"{record['gpu']['name']}, float32 unless TF32 is named; medians of {record['options']['rounds']} rounds"
    drawn.supxlabel(text, fontsize=8, color=GREY)
    return drawn


if __name__ == "__main__":
    main()
