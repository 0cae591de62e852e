"""The paper's experiments: one epoch of MNIST and of CIFAR-10 with every tool, from the same weights, in turns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import matgrad as mg
from baselines.own import model
from harness import reports
from harness.problems import Data, Parameters, Setting, generated
from harness.reports import DIFFERENCE, difference_cell, number, ratio_cell
from harness.team import Record, measure
from harness.tools import NATIVE, PYTORCH, STAND_ALONE, Tool, baseline, matgrad
from matgrad import datasets
from matgrad.foundation.writing import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The paper's experiments"
TOOLS = {
    "pytorch": PYTORCH,
    "matgrad-native": NATIVE,
    "matgrad-cpp": STAND_ALONE,
    "matgrad-torch": matgrad("torch", "PyTorch", "pytorch"),
    "matgrad-torch-eager": matgrad("torch", "PyTorch", "pytorch", compiled=False),
    "matgrad-numpy": matgrad("numpy", "NumPy", "pytorch"),
    "matgrad-numpy-eager": matgrad("numpy", "NumPy", "pytorch", compiled=False),
    "jax": baseline("JAX, one loop", "jax_by_hand.Jax", "JAX", "jax"),
    "matgrad-jax": matgrad("jax", "JAX", "jax"),
    "matgrad-jax-eager": matgrad("jax", "JAX", "jax", compiled=False),
    "tensorflow": baseline("TensorFlow, tf.function", "tensorflow_by_hand.TensorFlow", "TensorFlow", "tensorflow"),
    "keras": baseline("Keras, model.fit", "keras_fit.Keras", "TensorFlow", "tensorflow", "keras"),
    "matgrad-tensorflow": matgrad("tensorflow", "TensorFlow", "tensorflow", "keras"),
    "matgrad-tensorflow-eager": matgrad("tensorflow", "TensorFlow", "tensorflow", "keras", compiled=False),
}

# the paper does not state all of it, but this reproduces its table
DESCRIPTION = {
    "layers": "ReLU;ReLU;Linear",
    "loss": "SoftmaxCrossEntropy",
    "optimizer": "Momentum(0.9)",
    "weights": "XavierNormalized",
    "biases": "zero",
    "learning_rate": 0.01,
    "preprocessing": "pixels / 255",
    "order": "as in the files, not shuffled",
    "epochs": 1,
}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
SIZES = {"mnist": (784, 1024, 512, 10), "cifar10": (3072, 1024, 512, 10)}
EXAMPLES = {"mnist": 60000, "cifar10": 50000}
MEASURES = ("loss", "train_accuracy", "test_accuracy")

# loss, train and test accuracy and seconds in the paper, on MNIST and on CIFAR-10, by the start of a tool's name
CPP = ((0.203, 0.940, 0.939, 3.138), (1.640, 0.417, 0.418, 7.423))
PAPER: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "pytorch": ((0.204, 0.940, 0.939, 3.518), (1.649, 0.410, 0.412, 7.885)),
    "matgrad-native": CPP,
    "matgrad-cpp": CPP,
    "matgrad-torch": ((0.204, 0.940, 0.939, 4.909), (1.643, 0.415, 0.417, 11.277)),
    "matgrad-tensorflow": ((0.204, 0.940, 0.939, 12.818), (1.657, 0.407, 0.407, 18.941)),
    "matgrad-jax": ((0.204, 0.940, 0.939, 11.863), (1.646, 0.417, 0.415, 19.707)),
    "matgrad-numpy": ((0.204, 0.940, 0.939, 10.630), (1.670, 0.398, 0.398, 20.985)),
}


def load(name: str, folder: Path | None, steps: int | None, seed: int) -> Data:
    """The data in the subfolder with this name, or generated data of the same shape; only so many batches of it."""
    count = min(EXAMPLES[name], 100 * (steps or EXAMPLES[name]))
    place = None if folder is None else folder / name
    if place is None or not place.exists():
        return generated(SIZES[name][0], 10, count, 10000, seed)
    data = getattr(datasets, name)(place).normalize("unit")
    return Data(data.Xtrain[:count], data.Ttrain[:count], data.Xtest, data.Ttest, str(place))


def measures(setting: Setting, parameters: Parameters, data: Data) -> Record | None:
    """Loss, train and test accuracy of these parameters, computed by matgrad on NumPy for every tool."""
    if not parameters:
        return None
    M = model(setting, parameters)
    pairs = ((data.Xtrain, data.Ttrain), (data.Xtest, data.Ttest))
    train, test = (mg.DataLoader(X.astype(setting.dtype), t, 1000, classes=setting.sizes[-1]) for X, t in pairs)
    with np.errstate(all="ignore"):  # a tool that diverged has a loss that is not finite
        loss = mg.compute_loss(M, train, mg.SoftmaxCrossEntropyLoss())
        return dict(zip(MEASURES, (loss, *(mg.compute_accuracy(M, x) for x in (train, test))), strict=True))


def paper_row(experiment: str, name: str) -> Record | None:
    """The row of the tool in the paper's table, with the ratio to the paper's baseline."""
    if name.removesuffix("-eager") not in PAPER:
        return None
    found, torch = (PAPER[x][list(SIZES).index(experiment)] for x in (name.removesuffix("-eager"), "pytorch"))
    return dict(zip((*MEASURES, "seconds", "ratio"), (*found, round(found[3] / torch[3], 3)), strict=True))


def run(kind: str, description: str | None, known: dict[str, Tool], momenta: tuple[float, ...] = (0.9,)) -> None:
    """Measure the chosen tools on the chosen experiments, with each momentum."""
    found = reports.parser(description, tools=list(known))
    found.add_argument("--data", type=Path, metavar="DIR", help="a folder with mnist/ and cifar10/; else generated")
    found.add_argument("--experiments", type=reports.items(), default="mnist,cifar10", metavar="LIST")
    found.add_argument("--steps", type=int, metavar="N", help="only the first N batches of an epoch")
    options = found.parse_args()
    tools, about = reports.installed(options, known)
    experiments = []
    for name in options.experiments:
        data = load(name, options.data, options.steps, options.seed)
        for momentum in momenta:
            setting = Setting(SIZES[name], momentum=momentum, dtype=options.dtype)
            title = f"{TITLES[name]}, {setting.optimizer}" if len(momenta) > 1 else TITLES[name]
            record, parameters = measure(title, tools, setting, data, options)
            rows = []
            for x, row in record["tools"].items():
                by_hand = [ratio for y in tools[x].baselines if (ratio := row["ratios"].get(y))]
                own = max(by_hand, key=lambda ratio: ratio["median"], default=None)  # to the fastest
                more = {"measures": measures(setting, parameters[x], data), "paper": paper_row(name, x)}
                ratios = {"reference": row["ratios"].get("pytorch"), "own": own}
                rows.append({"tool": x, **row, "ratios": ratios, **more})
            is_whole = len(data.Xtrain) == EXAMPLES[name]
            experiments.append(record | {"experiment": name, "is_whole_epoch": is_whole, "tools": rows})
    optimizers = " and ".join(dict.fromkeys(x["optimizer"] for x in experiments))
    content = {"setting": DESCRIPTION | {"optimizer": optimizers}, "experiments": experiments}
    reports.finish(kind, options, about | content)


# -- tables and plot --------------------------------------------------------------------------------

COLUMNS = {
    "tool": lambda row: row["title"],
    "loss": lambda row: number(row["measures"]["loss"], ".3f"),
    "train": lambda row: number(row["measures"]["train_accuracy"], ".3f"),
    "test": lambda row: number(row["measures"]["test_accuracy"], ".3f"),
    "paper's": lambda row: " ".join(f"{row['paper'][key]:.3f}" for key in MEASURES) if row["paper"] else "",
    "seconds (best)": lambda row: f"{row['median']:.3f} ({row['best']:.3f})",
    "÷ PyTorch (best)": lambda row: ratio_cell(row, "reference") if row["ratios"]["reference"] else "",
    "paper's ÷": lambda row: "" if row["paper"] is None else f"{row['paper']['ratio']:.2f}",
    "÷ by hand (best)": lambda row: f"{own['to']} {ratio_cell(row, 'own')}" if (own := row["ratios"]["own"]) else "",
    "start-up s": lambda row: number(row["startup"]["prepare"], ".2f"),
    "difference": difference_cell,
}


def tables(record: Record, columns: dict[str, Any] = COLUMNS) -> list[Table]:
    """One table per experiment."""
    found = []
    for experiment in record["experiments"]:
        title = f"{experiment['title']}, {experiment['steps']} steps of batch {experiment['batch_size']}"
        if experiment["data"]["is_generated"]:
            title = f"GENERATED data of the shape of {title}"
        if not experiment["is_whole_epoch"]:
            title += ", NOT A WHOLE EPOCH"
        found.append(reports.listed(title, experiment["tools"], columns))
    return found


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    return [
        *reports.common_notes(record),
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ by hand: to the fastest code written by "
        "hand in the tool's framework; start-up: recording, compiling and first batches, not in the seconds; "
        f"{DIFFERENCE}",
    ]


def figure(record: Record) -> Figure:
    """One panel per experiment: the seconds of each tool as a bar, its rounds as ticks."""
    from matgrad.inspection.figures import new_figure

    experiments = record["experiments"]
    most = max(len(experiment["tools"]) for experiment in experiments)
    drawn, axes = new_figure(1.2 + 5.4 * len(experiments), 1.5 + 0.36 * max(most, 3), len(experiments))
    for ax, experiment in zip(axes, experiments, strict=True):
        rows = experiment["tools"]
        ratios = [f"  ×{x['median']:.2f}" if (x := row["ratios"]["reference"]) else "" for row in rows]
        labels = [f"{row['median']:.3g} s{text}" for row, text in zip(rows, ratios, strict=True)]
        reports.bars(ax, rows, [row["median"] for row in rows], labels)
        for y, row in enumerate(rows):
            ax.plot(row["seconds"], [y] * len(row["seconds"]), "|", color="black", markersize=6, markeredgewidth=0.8)
        what = "one epoch" if experiment["is_whole_epoch"] else f"{experiment['steps']} steps"
        generated_data = " (generated data)" if experiment["data"]["is_generated"] else ""
        ax.set(xlabel=f"seconds for {what}", title=experiment["title"] + generated_data)
    reports.footnote(drawn, record, "; × is the ratio to native PyTorch")
    return drawn


if __name__ == "__main__":
    run("paper", __doc__, TOOLS)
