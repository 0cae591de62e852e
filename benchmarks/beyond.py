"""A training step of LeNet, a small VGG and a GPT, in the C++ core and in torch.nn, on generated data."""

from __future__ import annotations

import argparse

import numpy as np

from baselines.beyond import VOCABULARY, Network
from harness.problems import generated
from harness.reports import common_notes, finish, installed, items, parser, ratio_cell
from harness.team import Record, Team, ratio, say, times
from harness.tools import Tool
from matgrad.foundation.writing import Table

TITLE = "Convolution and attention in the C++ core"
TORCH = ("torch",)
TOOLS = {
    "pytorch": Tool("PyTorch native", "baseline", "PyTorch", "beyond.Torch", requires=TORCH),
    "pytorch-last": Tool("PyTorch, channels last", "baseline", "PyTorch", "beyond.Torch", (True,), TORCH),
    "matgrad-native": Tool("matgrad C++", "compiled", "C++", "beyond.Ours", requires=("matgrad._native",)),
}
POOLED = "MaxPool(2)"
LENET = f"Conv(6, 5, padding=2, act=ReLU);{POOLED};Conv(16, 5, act=ReLU);{POOLED};ReLU;ReLU;Linear"
VGG = "".join(f"{2 * f'Conv({C}, 3, padding=1, act=ReLU);'}{POOLED};" for C in (32, 64, 128)) + "ReLU;Linear"
GPT = f"Embedding(128, vocabulary={VOCABULARY});Positions;Transformer(4, heads=4);Each(Linear({VOCABULARY}))"
NETWORKS = {
    "LeNet": Network((784, 120, 84, 10), 100, name="LeNet", layers_text=LENET, shape=(28, 28, 1)),
    "VGG": Network((3072, 128, 10), 32, name="VGG", layers_text=VGG, shape=(32, 32, 3)),
    "GPT": Network((64,), 12, 1e-3, name="GPT", layers_text=GPT, shape=(64,)),
}
STEPS = {"LeNet": 20, "VGG": 3, "GPT": 5}  # of a round


def main() -> None:
    """Measure one point per network."""
    found = parser(__doc__, rounds=15, tools=list(TOOLS))
    found.add_argument("--networks", type=items(), default=",".join(NETWORKS), metavar="LIST", help="which")
    options = found.parse_args()
    tools, about = installed(options, TOOLS)
    points = [point(NETWORKS[name], tools, options) for name in options.networks]
    finish("beyond", options, {**about, "points": points})


def examples(network: Network, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and their classes, or texts of random characters and the characters that follow."""
    if not network.is_text:
        data = generated(network.sizes[0], 10, count, seed=seed)
        return data.Xtrain, data.Ttrain
    labels = np.random.default_rng(seed).integers(VOCABULARY, size=(count, network.shape[0] + 1))
    return labels[:, :-1], labels[:, 1:]


def point(network: Network, tools: dict[str, Tool], options: argparse.Namespace) -> Record:
    """The times and the memory of the tools on a network."""
    say(network.name)
    steps = STEPS[network.name]
    X, t = examples(network, steps * network.batch_size, options.seed)
    with Team(tools, network, options.threads) as team:
        np.save(team.folder / "X.npy", X.astype(options.dtype))
        np.save(team.folder / "t.npy", t)
        startup = team.ask("setup", network, team.folder, [], False)
        rounds = team.rounds(options.rounds)
    seconds = {name: [x for x, _ in rounds[name]] for name in startup}
    rows = {}
    for name in startup:
        found = times(seconds[name])
        ratios = {other: ratio(seconds, name, other) for other in seconds if other != name}
        about = {"per_step": found["median"] / steps, "startup": startup[name], "ratios": ratios}
        rows[name] = tools[name].about() | found | about
    failures = {f"{network.name}: {name}": reason for name, reason in team.failures.items()}
    about = {"title": network.name, "layers": network.layers_text, "batch_size": network.batch_size, "steps": steps}
    return {**about, "optimizer": network.update, "tools": rows, "failures": failures}


def tables(record: Record) -> list[Table]:
    """One table per network."""
    return [
        Table(
            f"{point['title']}, batches of {point['batch_size']}, {point['optimizer']}",
            ["tool", "ms per step", "÷ PyTorch (best)", "÷ channels last (best)", "MB"],
            [row(tool) for tool in point["tools"].values()],
        )
        for point in record["points"]
    ]


def row(tool: Record) -> list[str]:
    """The cells of a tool."""
    memory = tool["startup"]["memory"]["training"]
    found = [ratio_cell(tool, name) for name in ("pytorch", "pytorch-last")]
    return [tool["title"], f"{1e3 * tool['per_step']:.2f}", *found, "" if memory is None else f"{memory / 1e6:.0f}"]


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    return [*common_notes(record), "÷: median of the rounds' ratios; MB: growth of the process from model and training"]


if __name__ == "__main__":
    main()
