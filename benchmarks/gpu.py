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

import matgrad as mg
from harness.problems import Setting, generated, initial_parameters
from harness.reports import Record, bars, difference, finish, head, log_scales, parser, ratio, say, script, times, write
from harness.team import Team
from harness.tools import Tool, baseline, matgrad
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from baselines.sparse_layers import SparseLayer

TITLE = "Training on a GPU"
NATIVE, GRAPH, OWN, OWN_JAX, STEPS, FIT = (
    *("gpu-pytorch", "gpu-pytorch-graph", "matgrad-torch", "matgrad-jax"),
    *("matgrad-torch-steps", "matgrad-torch-fit"),
)


def _gpu(title: str, class_name: str, *baselines: str) -> Tool:
    """Native PyTorch on a GPU."""
    return baseline(title, f"gpu_pytorch.{class_name}", "PyTorch", "torch", baselines=baselines)


_own = matgrad("torch", "PyTorch", NATIVE)
TOOLS = {
    NATIVE: _gpu("PyTorch native", "GPUPyTorch"),
    "gpu-pytorch-compile": _gpu("PyTorch, torch.compile", "CompiledPyTorch", NATIVE),
    GRAPH: _gpu("PyTorch, CUDA graph", "GraphPyTorch", NATIVE),
    STEPS: replace(_own, title="matgrad PyTorch, bare steps", class_name="baselines.own.MatgradSteps"),
    OWN: _own,
    FIT: replace(_own, title="M.fit", class_name="baselines.own.MatgradFit"),
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

# the features, hidden layers, neurons, connections per neuron, classes and batch size of very wide networks
NETWORKS = {
    "1,000,000 → 1,000,000": (1_000_000, 1, 1_000_000, 10, 10, 100),
    "50 million neurons": (784, 10, 5_000_000, 10, 10, 8),
}


# -- parts ------------------------------------------------------------------------------------------


def _measured(
    options: argparse.Namespace, names: list[str], cases: list[Any], steps: int, compare: bool
) -> list[Record]:
    """The records of tools that train models in several settings, with their titles; the processes stay the same."""
    tools = {name: TOOLS[name] for name in names if TOOLS[name].missing() is None}
    found = []
    with Team(tools, threads=options.threads, device=options.device, report=say) as team:
        for title, sizes, batch_size, momentum, matmul in cases:
            setting = Setting(sizes, batch_size, momentum=momentum, device=options.device, matmul=matmul)
            say(f"{title}, {setting.optimizer}, {matmul}")
            known = dict(team.failures)  # tools that have left the team
            data = generated(sizes[0], sizes[-1], steps * batch_size, seed=options.seed)
            initial, compared = initial_parameters(setting, options.seed), min(COMPARED, steps)
            turns = team.train(setting, data, initial, options.rounds, compared=compared if compare else None)
            rows = {}
            for name, seconds in turns.seconds.items():
                row = TOOLS[name].about() | times(seconds)
                row |= {"per_step": row["median"] / steps, "startup": turns.startup[name]}
                row["ratios"] = {x: ratio(turns.seconds, name, x) for x in turns.seconds if x != name}
                parameters = turns.parameters if compare else {}
                rows[name] = row | {"difference": difference(name, parameters, TOOLS[name].baselines)}
            about = {"title": title, "optimizer": setting.optimizer, "matmul": matmul, "sizes": list(sizes)}
            about |= {"batch_size": batch_size, "steps": steps, "compared_after": compared if compare else None}
            failures = {name: reason for name, reason in team.failures.items() if name not in known}
            found.append(about | {"tools": rows, "failures": failures})
    return found


def _paper_models(*momenta: float) -> list[Any]:
    """The paper's models in float32 and TF32."""
    models = {"MNIST": MNIST, "CIFAR-10": CIFAR}
    return [(x, models[x], 100, momentum, m) for m in ("float32", "tf32") for x in models for momentum in momenta]


def _steps(options: argparse.Namespace) -> list[Record]:
    names = [NATIVE, "gpu-pytorch-compile", GRAPH, OWN]
    return _measured(options, names, _paper_models(0.0, 0.9), options.steps, compare=True)


def _jax(options: argparse.Namespace) -> list[Record]:
    return _measured(options, ["jax", OWN_JAX], _paper_models(0.9), options.steps, compare=True)


def _epoch(options: argparse.Namespace) -> list[Record]:
    cases = [("MNIST", MNIST, 100, 0.9, "float32")]
    return _measured(options, [STEPS, OWN, FIT], cases, 3 * options.steps, compare=False)


def _large(options: argparse.Namespace) -> list[Record]:
    cases = [("large", LARGE, 1024, 0.9, matmul) for matmul in ("float32", "tf32")]
    return _measured(options, [NATIVE, GRAPH, OWN], cases, 5, compare=False)


def _sparse(options: argparse.Namespace) -> Record:
    n, N, densities = 16384, 1024, (0.1, 0.03, 0.01, 0.003, 0.001)
    return {"neurons": n, "batch_size": N, "points": [layer_point(options, n, N, d) for d in densities]}


def _wide(options: argparse.Namespace) -> list[Record]:
    return [wide_network(options, name, *sizes) for name, sizes in NETWORKS.items()]


PARTS = {"steps": _steps, "jax": _jax, "epoch": _epoch, "large": _large, "sparse": _sparse, "wide": _wide}


def layer_point(options: argparse.Namespace, n: int, N: int, density: float) -> Record:
    """Times, memory and differences of a sparse n→n layer, for every way; a way that fails is left out."""
    import torch

    from baselines.sparse_layers import PHASES, WAYS

    rng, device = np.random.default_rng(options.seed), options.device
    S = mg.Support.random(n, n, round(density * n * n), rng)
    values = rng.standard_normal(S.nnz, dtype=np.float32)
    generator = torch.Generator(device=device).manual_seed(options.seed)
    X, DY = (torch.randn(N, n, device=device, generator=generator) for _ in range(2))
    ways: dict[str, SparseLayer] = {}
    rows, failures = dict[str, Record](), {}
    for name, (title, way) in WAYS.items():
        try:
            make = partial(way, S, values, device)
            memory = _memory(make, X[:8], DY[:8])  # what a few examples take is little beside the weights
            layer = make()
            layer.batch(X, DY)
            layer.whole()
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
            continue
        ways[name] = layer
        rows[name] = {"title": title, "memory": memory, "seconds": {phase: [] for phase in (*PHASES, "whole")}}
    expected = ways["masked"].weights()
    for name, layer in ways.items():
        rows[name]["difference"] = float(np.abs(layer.weights() - expected).max() / np.abs(expected).max())
    for r in range(options.rounds):
        for name, layer in ways.items():
            for phase, seconds in rows[name]["seconds"].items():
                seconds.append(_timed(getattr(layer, phase), X.is_cuda))
        say(f"sparse layer, density {density:g}: round {r + 1} of {options.rounds}")
    for name, row in rows.items():
        row["medians"] = {phase: median(seconds) for phase, seconds in row["seconds"].items()}
        pairs = {x: zip(row["seconds"]["whole"], rows[x]["seconds"]["whole"], strict=True) for x in rows if x != name}
        row["ratios"] = {x: median(b / a for a, b in pair) for x, pair in pairs.items()}
    return {"density": density, "nnz": S.nnz, "ways": rows, "failures": failures}


def _memory(make: Callable[[], SparseLayer], X: torch.Tensor, DY: torch.Tensor) -> int | None:
    """The most bytes of the GPU that a layer takes while it is trained: parameters, gradient and indices."""
    import torch

    if not X.is_cuda:
        return None
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    layer = make()
    layer.batch(X, DY)
    for _ in range(3):
        layer.whole()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


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


def wide_network(
    options: argparse.Namespace, name: str, D: int, layers: int, neurons: int, connections: int, K: int, N: int
) -> Record:
    """A network that is built, moved to the device, and trained on one generated batch: seconds per step and memory."""
    import torch

    brain, is_cuda, steps = script("brain"), torch.device(options.device).type == "cuda", 5
    gc.collect()
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    network = {"layers": layers, "neurons": neurons, "connections": connections, "features": D, "classes": K}
    start = time.perf_counter()
    mg.manual_seed(options.seed)
    M = brain.build(network).to("torch", device=options.device)
    built = time.perf_counter()
    data = generated(D, K, N, seed=options.seed)
    loader = mg.DataLoader(data.Xtrain, data.Ttrain, N, classes=K).to("torch", device=options.device)
    (X, T), loss, eta = next(iter(loader)), mg.SoftmaxCrossEntropyLoss(), M.scalar(brain.RATE / neurons)
    losses = [mg.compute_loss(M, loader, loss)]
    step = mg.compile_step(M, loss)
    step.load(M.state())
    seconds = []
    for _ in range(1 + steps):
        begin = time.perf_counter()
        step(X, T, eta)
        if is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    M.load_state(step.state())
    losses.append(mg.compute_loss(M, loader, loss))
    say(f"{name}: built in {built - start:.1f} s, {sum(seconds[1:]) / steps:.4g} s per step")
    return {"name": name, **network, "batch_size": N, "steps": steps} | {
        "weights": sum(layer.nnz for layer in M.linear_layers()),
        "optimizer": "GradientDescent",
        "build_seconds": built - start,
        "first_step_seconds": seconds[0],
        "seconds_per_step": sum(seconds[1:]) / steps,
        "losses": losses,
        "peak_bytes": torch.cuda.max_memory_allocated() if is_cuda else None,
    }


def main() -> None:
    """Measure the chosen parts; the record is written after each of them."""
    found = parser(__doc__, rounds=5)
    found.add_argument("--parts", type=lambda text: text.split(","), default=",".join(PARTS), metavar="LIST")
    found.add_argument("--device", default="cuda", help="of PyTorch and of JAX")
    found.add_argument("--steps", type=int, default=200, help="per round; an epoch has three times as many")
    options, started = found.parse_args(), time.time()
    mg.create_model("Linear", [1, 1]).to("torch", device=options.device)  # an error if there is no such device
    missing = {name: reason for name, tool in TOOLS.items() if (reason := tool.missing()) is not None}
    record: Record = {"setting": DESCRIPTION, "gpu": _device(options.device), "missing": missing}
    for part in options.parts:
        record[part] = PARTS[part](options)
        if options.output is not None:
            write(head("gpu", started, options) | record, options.output)
    finish(head("gpu", started, options) | record, options.output)


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
PHASES = ("feedforward", "DW", "DX", "update", "whole")
MEMORY = ("matgrad", "masked")  # the ways whose memory is shown


def tables(record: Record) -> list[Table]:
    """Those of the parts that were measured."""
    return list(named_tables(record).values())


def named_tables(record: Record) -> dict[str, Table]:
    """The tables by the names that docs/gpu.md has for them."""
    return {name: make(record[part]) for name, (part, make) in TABLES.items() if part in record}


def _steps_table(parts: list[Record]) -> Table:
    return _times("µs per step, batch 100", parts, 1e6, ".0f")


def _large_table(parts: list[Record]) -> Table:
    sizes = ";".join(map(str, parts[0]["sizes"]))
    return _times(f"ms per step, layers {sizes}, batch {parts[0]['batch_size']}", parts, 1e3, ".2f")


def _times(title: str, parts: list[Record], scale: float, form: str) -> Table:
    """One row per setting and one column per tool, then columns of ratios."""
    titles = {name: row["title"] for part in parts for name, row in part["tools"].items()}
    pairs = {pair: heading for pair, heading in RATIOS.items() if any(_ratio(part, *pair) for part in parts)}
    rows = [
        [
            _heading(part),
            *(f"{scale * tools[name]['per_step']:{form}}" if name in tools else "" for name in titles),
            *(_ratio(part, *pair) for pair in pairs),
        ]
        for part in parts
        for tools in [part["tools"]]
    ]
    ratios = [f"{titles[name]} {heading}" for (name, _), heading in pairs.items()]
    return Table(title, ["model", *titles.values(), *ratios], rows)


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
    titles = {name: row["title"] for point in record["points"] for name, row in point["ways"].items()}
    others = [name for name in titles if name != "matgrad"]
    shown = [name for name in MEMORY if name in titles]
    headings = [
        *titles.values(),
        *(f"times faster than {titles[name]}" for name in others),
        *(f"MB, {titles[name]}" for name in shown),
    ]
    rows = []
    for point in record["points"]:
        ways = point["ways"]
        ratios = ways.get("matgrad", {"ratios": {}})["ratios"]
        memory = [ways[name]["memory"] if name in ways else None for name in shown]
        rows.append(
            [
                f"{point['density']:g}",
                *(_milliseconds(point, name, "whole") for name in titles),
                *(f"{ratios[name]:.1f}" if name in ratios else "" for name in others),
                *("" if x is None else f"{x / 1e6:.0f}" for x in memory),
            ]
        )
    return Table(f"ms for feedforward, DW, DX and update, {_layer(record)}", ["density", *headings], rows)


def _phases_table(record: Record) -> Table:
    """One row per way and phase, one column per density."""
    points = record["points"]
    titles = {name: row["title"] for point in points for name, row in point["ways"].items()}
    rows = [
        [f"{title}: {phase}", *(_milliseconds(point, name, phase) for point in points)]
        for name, title in titles.items()
        for phase in PHASES
    ]
    headings = ["what", *(f"{point['density']:g}" for point in points)]
    return Table(f"ms of each phase, {_layer(record)}, against density", headings, rows)


def _layer(record: Record) -> str:
    return f"{record['neurons']} → {record['neurons']} neurons, batch {record['batch_size']}"


def _milliseconds(point: Record, name: str, phase: str) -> str:
    return f"{1e3 * point['ways'][name]['medians'][phase]:.3f}" if name in point["ways"] else ""


def _wide_table(networks: list[Record]) -> Table:
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
    "steps": ("steps", _steps_table),
    "jax": ("jax", _steps_table),
    "epoch": ("epoch", _epoch_table),
    "large": ("large", _large_table),
    "sparse": ("sparse", _sparse_table),
    "phases": ("sparse", _phases_table),
    "wide": ("wide", _wide_table),
}


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    gpu, lines = record["gpu"], []
    for part in (part for name in ("steps", "jax", "epoch", "large") for part in record.get(name, [])):
        lines += [f"{_heading(part)}: {name} {why}" for name, why in part["failures"].items()]
    for point in record.get("sparse", {"points": []})["points"]:
        lines += [f"density {point['density']:g}: {name} failed: {why}" for name, why in point["failures"].items()]
    about = [gpu["name"], *([f"{gpu['memory_GB']} GB", f"CUDA {gpu['cuda']}"] if "cuda" in gpu else [])]
    return [
        *(f"{name} was left out: {reason}" for name, reason in record["missing"].items()),
        *lines,
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
    drawn.supxlabel(text, fontsize=8, color="#555555")
    return drawn


if __name__ == "__main__":
    main()
