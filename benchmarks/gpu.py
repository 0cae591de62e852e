"""Training on a GPU, beside native PyTorch (eager, in a CUDA graph, compiled too), JAX, masked matrices and cuSPARSE.

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
from harness import reports
from harness.problems import Setting, generated
from harness.reports import items, ratio_cell
from harness.team import Record, measure, say
from harness.tools import PYTORCH, baseline, matgrad
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Training on a GPU"
NATIVE, GRAPH, COMPILED = "gpu-pytorch", "gpu-pytorch-graph", "gpu-pytorch-compiled-graph"
OWN, OWN_JAX = "matgrad-torch", "matgrad-jax"
STEPS, FIT = "matgrad-torch-steps", "matgrad-torch-fit"
_own = matgrad("torch", "PyTorch", NATIVE)
TOOLS = {
    NATIVE: PYTORCH,
    GRAPH: replace(PYTORCH, title="PyTorch, CUDA graph", class_name="pytorch.GraphPyTorch", baselines=(NATIVE,)),
    COMPILED: replace(
        PYTORCH,
        title="PyTorch, compiled, CUDA graph",
        class_name="pytorch.CompiledGraphPyTorch",
        baselines=(NATIVE,),
    ),
    STEPS: replace(_own, title="matgrad PyTorch, bare steps", class_name="own.MatgradSteps"),
    OWN: _own,
    FIT: replace(_own, title="M.fit", class_name="own.MatgradFit"),
    "jax": baseline("JAX, one loop", "jax_by_hand.Jax", "JAX", "jax"),
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
        about = {"title": title, "optimizer": setting.optimizer, "matmul": matmul}
        about["compared_after"] = min(COMPARED, steps)
        found.append(measure(_heading(about), tools, setting, data, options, compared=COMPARED)[0] | about)
    return found


def _paper_models(*momenta: float) -> list[Any]:
    """The paper's models in float32 and TF32."""
    models = {"MNIST": MNIST, "CIFAR-10": CIFAR}
    return [(x, models[x], 100, momentum, m) for m in ("float32", "tf32") for x in models for momentum in momenta]


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "steps": lambda options: measured(options, [NATIVE, GRAPH, COMPILED, OWN], _paper_models(0.0, 0.9), options.steps),
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

    from baselines.sparse_layers import WAYS

    rng, device = np.random.default_rng(options.seed), options.device
    S = mg.Support.random(n, n, round(density * n * n), rng)
    values = rng.standard_normal(S.nnz, dtype=np.float32)
    generator = torch.Generator(device=device).manual_seed(options.seed)
    X, DY = (torch.randn(N, n, device=device, generator=generator) for _ in range(2))
    ways, rows, failures = dict[str, Any](), dict[str, Record](), {}
    for name, (title, make) in WAYS.items():
        try:
            few = X[:8], DY[:8]  # little beside the weights
            memory = _memory(partial(make, S, values, *few), X.is_cuda)
            ways[name] = make(S, values, X, DY)
            ways[name].step()
            rows[name] = {"title": title, "memory": memory, "seconds": []}
        except Exception as error:
            failures[f"density {density:g}: {name}"] = f"failed: {type(error).__name__}: {error}"
    expected = ways["masked"].weights()
    for name, row in rows.items():
        row["difference"] = float(np.abs(ways[name].weights() - expected).max() / np.abs(expected).max())
    for r in range(options.rounds):
        for name, row in rows.items():
            row["seconds"].append(_timed(ways[name].step, X.is_cuda))
        say(f"sparse layer, density {density:g}: round {r + 1} of {options.rounds}")
    for name, row in rows.items():
        pairs = {x: zip(row["seconds"], rows[x]["seconds"], strict=True) for x in rows if x != name}
        row["median"] = median(row["seconds"])
        row["ratios"] = {x: median(b / a for a, b in pair) for x, pair in pairs.items()}
    return {"density": density, "nnz": S.nnz, "ways": rows, "failures": failures}


def _memory(make: Callable[[], Any], is_cuda: bool) -> int | None:
    """The most bytes of the GPU that a layer takes while it is trained: parameters, gradient and indices."""
    import torch

    if not is_cuda:
        return None
    _forget()
    before = torch.cuda.memory_allocated()
    way = make()
    for _ in range(3):
        way.step()
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
    found = reports.parser(__doc__, rounds=5)
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
            reports.write(reports.head("gpu", options) | record, options.output)
    reports.finish("gpu", options, record)


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
    **{(OWN, NATIVE): "÷ native", (OWN, GRAPH): "÷ graph", (OWN, COMPILED): "÷ compiled"},
    (OWN_JAX, "jax"): "÷ one loop",
}


def tables(record: Record) -> list[Table]:
    """Those of the parts that were measured."""
    return list(named_tables(record).values())


def named_tables(record: Record) -> dict[str, Table]:
    """The tables by the names that docs/gpu.md has for them, which are those of the parts."""
    return {part: make(record[part]) for part, make in TABLES.items() if part in record}


def _heading(part: Record) -> str:
    return f"{part['title']}, {part['optimizer']}, {'TF32' if part['matmul'] == 'tf32' else part['matmul']}"


def _steps_table(title: str, scale: float, form: str, parts: list[Record]) -> Table:
    """One row per setting and one column per tool, then columns of ratios."""
    titles = {name: row["title"] for part in parts for name, row in part["tools"].items()}
    pairs = {pair: heading for pair, heading in RATIOS.items() if {*pair} <= titles.keys()}
    rows = []
    for part in parts:
        found = part["tools"]
        cells = [f"{scale * found[name]['per_step']:{form}}" if name in found else "" for name in titles]
        ratios = [ratio_cell(found.get(name), other, best=False) for name, other in pairs]
        rows.append([_heading(part), *cells, *ratios])
    headings = [f"{titles[name]} {heading}" for (name, _), heading in pairs.items()]
    where = {"layers": ";".join(map(str, parts[0]["sizes"])), "batch": parts[0]["batch_size"]}
    return Table(title.format(**where), ["model", *titles.values(), *headings], rows)


def _epoch_table(parts: list[Record]) -> Table:
    """One row per way to train."""
    (part,) = parts
    columns: dict[str, Callable[[Record], str]] = {
        "what": lambda row: row["title"],
        "ms": lambda row: f"{1e3 * row['median']:.1f}",
        "µs per step": lambda row: f"{1e6 * row['per_step']:.0f}",
        "÷ bare steps": lambda row: ratio_cell(row, STEPS, best=False),
    }
    return reports.listed(f"{part['steps']} steps, {_heading(part)}", part["tools"].values(), columns)


def _sparse_table(record: Record) -> Table:
    """One row per density: ms of all phases, how many times faster matgrad is, and memory."""
    titles = {name: row["title"] for point in record["points"] for name, row in point["ways"].items()}
    others, rows = [name for name in titles if name != "matgrad"], []
    for point in record["points"]:
        ways = point["ways"]
        milliseconds = [f"{1e3 * ways[name]['median']:.3f}" if name in ways else "" for name in titles]
        faster = [f"{ways['matgrad']['ratios'][name]:.1f}" if name in ways else "" for name in others]
        memory = ["" if (x := ways[name]["memory"]) is None else f"{x / 1e6:.0f}" for name in ("matgrad", "masked")]
        rows.append([f"{point['density']:g}", *milliseconds, *faster, *memory])
    headings = [*titles.values(), *(f"times faster than {titles[name]}" for name in others)]
    headings += [f"MB, {titles[name]}" for name in ("matgrad", "masked")]
    return Table(f"ms for feedforward, DW, DX and update, {_layer(record)}", ["density", *headings], rows)


def _layer(record: Record) -> str:
    return f"{record['neurons']} → {record['neurons']} neurons, batch {record['batch_size']}"


def _wide_table(networks: list[Record]) -> Table:
    """One row per network."""
    title = "very wide networks, 10 connections per neuron"
    return reports.listed(title, networks, {"network": lambda x: x["name"], **brain.COLUMNS})


TABLES: dict[str, Callable[[Any], Table]] = {
    **{name: partial(_steps_table, "µs per step, batch {batch}", 1e6, ".0f") for name in ("steps", "jax")},
    "epoch": _epoch_table,
    "large": partial(_steps_table, "ms per step, layers {layers}, batch {batch}", 1e3, ".2f"),
    "sparse": _sparse_table,
    "wide": _wide_table,
}


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    gpu = record["gpu"]
    about = [gpu["name"], *([f"{gpu['memory_GB']} GB", f"CUDA {gpu['cuda']}"] if "cuda" in gpu else [])]
    return [
        *reports.absent(record),
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
        reports.bars(ax, found, values, [f"{value:.0f}" for value in values])
        ax.set(title=f"{title}, Momentum(0.9)", xlabel="µs per step")
    if "sparse" in record:
        points, ax = record["sparse"]["points"], axes[-1]
        for name in {name: None for point in points for name in point["ways"]}:
            known = [(p["density"], p["ways"][name]) for p in points if name in p["ways"]]
            values = [1e3 * way["median"] for _, way in known]
            ax.plot([x for x, _ in known], values, "o-", markersize=4, label=known[0][1]["title"])
        reports.log_scales(ax, [point["density"] for point in points])
        ax.set(title=_layer(record["sparse"]), xlabel="density", ylabel="ms for feedforward, DW, DX and update")
        ax.legend(fontsize=8, frameon=False)
    text = f"{record['gpu']['name']}, float32 unless TF32 is named; medians of {record['options']['rounds']} rounds"
    drawn.supxlabel(text, fontsize=8, color=reports.GREY)
    return drawn


if __name__ == "__main__":
    main()
