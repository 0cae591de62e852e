"""`matgrad train`."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad import datasets
from matgrad.cli.options import (
    PATH,
    config_option,
    data_options,
    load_data,
    machine_options,
    move,
    plugin_option,
    set_threads,
)
from matgrad.cli.report import Interruptible, Report
from matgrad.cli.run_record import run_record
from matgrad.datasets import DataLoader, Dataset
from matgrad.files import write_json
from matgrad.gradient_check import check_gradients, first_wrong
from matgrad.learning_rate import learning_rate as create_scheduler
from matgrad.loss_functions import LossFunction, create_loss
from matgrad.measures import measure
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications import count_linear, create_model
from matgrad.storage import load_weights, save_model
from matgrad.training import check_loss, default_loss, stochastic_gradient_descent


@click.command()
@click.option("--layers", default="ReLU;ReLU;Linear", show_default=True, metavar="LIST", help="The layers' types.")
@click.option(
    "--layer-sizes",
    metavar="LIST",
    help="Features, then the size of every linear layer: 784;1024;512;10.  [default: hidden sizes 128, 64 …]",
)
@click.option("--layer-weights", default="XavierNormalized", show_default=True, metavar="LIST", help="Initial weights.")
@click.option("--dropouts", default="0", show_default=True, metavar="LIST", help="Dropout rates of the linear layers.")
@click.option("--optimizers", default="Momentum(0.9)", show_default=True, metavar="LIST", help="One, or one a layer.")
@click.option("--loss", metavar="NAME", help="The loss function.  [default: the one that fits the last layer]")
@click.option("--learning-rate", default="0.05", show_default=True, metavar="RATE", help="A number or a schedule.")
@click.option("--per-step", is_flag=True, help="Count the schedule in steps instead of epochs.")
@click.option("--epochs", type=click.IntRange(min=0), default=20, show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--weight-decay", type=click.FloatRange(min=0), default=0.0, metavar="λ", help="Add λθ to the gradients.")
@click.option("--clip", type=click.FloatRange(min=0, min_open=True), metavar="C", help="Clip gradients to norm C.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--no-shuffle", is_flag=True, help="Take the examples in the order of the data.")
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="FRACTION",
    help="Hold out this part of the training data, and measure it too.",
)
@click.option(
    "--early-stopping",
    type=click.IntRange(min=1),
    metavar="EPOCHS",
    help="Stop when the validation loss has not improved for so many epochs, and keep the best model.",
)
@data_options
@click.option("--save-dataset", type=PATH, metavar="FILE", help="Write the data, as used, to an npz file.")
@click.option("--load-weights", type=PATH, metavar="FILE", help="Start from the weights in a file.")
@click.option("--save-weights", type=PATH, metavar="FILE", help="Write the trained model to an npz file.")
@click.option("--output", type=PATH, metavar="DIR", help="Write run.json and model.npz there.")
@machine_options
@plugin_option
@config_option
@click.option(
    "--gradient-step",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    help="Check gradients by central differences of this size on the first batch of each epoch.",
)
@click.option("--no-statistics", is_flag=True, help="Do not measure loss and accuracies after each epoch.")
@click.option(
    "--timer",
    type=click.Choice(["disabled", "brief", "full"]),
    default="disabled",
    help="Time the steps (brief), or every layer (full).",
)
@click.option("--info", is_flag=True, help="Print the data and the parameters before training.")
@click.option("--debug", is_flag=True, help="Print the matrices of every batch.")
@click.option(
    "--precision", type=click.IntRange(min=1), default=4, show_default=True, help="Digits of printed matrices."
)
@click.option(
    "--edgeitems",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Printed rows and columns at the edges.",
)
@click.option("--quiet", is_flag=True, help="Print only the last line.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole record of the run as JSON, and nothing else.")
def train(**options: Any) -> None:
    """Train a multilayer perceptron; without options on the embedded handwritten digits.

    Lists are separated by semicolons; items may have arguments: --layers "AllReLU(0.3);Linear",
    --learning-rate "MultiStepLR(0.1; 10, 15; 0.1)". One value serves all layers. The last line printed is
    the test accuracy, or for a regression the root mean squared error.
    """
    Training(options).run()


class Training:
    """One run: everything is checked before training starts, and nothing is written before it ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        set_threads(options["threads"])
        np.set_printoptions(precision=options["precision"], edgeitems=options["edgeitems"], threshold=100)
        _check_targets(options)
        mg.manual_seed(options["seed"])
        self.data, self.validation = self._data()
        self.M = self._model()
        self.loss = self._loss()
        check_loss(self.M, self.loss)
        self.schedule = create_scheduler(options["learning_rate"])
        self.loaders = {"train": self._loader(self.data.Xtrain, self.data.Ttrain)}
        if self.validation is not None:
            self.loaders["validation"] = self._loader(*self.validation)
        self.loaders["test"] = self._loader(self.data.Xtest, self.data.Ttest)
        self.rows: list[dict[str, Any]] = []
        self.epoch_start = 0.0
        self.best: tuple[float, int, dict[str, Any]] | None = None  # validation loss, epoch, state

    # -- set-up -------------------------------------------------------------------------------
    def _data(self) -> tuple[Dataset, tuple[np.ndarray, np.ndarray] | None]:
        """The normalized data, and the part of its training examples that is held out for validation."""
        options = self.options
        data = load_data(options, options["seed"]).normalize(options["normalize"])
        if options["early_stopping"] and not options["validation"]:
            raise ValueError("--early-stopping needs --validation FRACTION")
        if options["validation"] and options["preprocessed"]:
            raise ValueError("--validation cannot hold out examples of --preprocessed data")
        if not options["validation"]:
            return data, None
        return data.split(options["validation"], options["seed"])

    def _model(self) -> MultilayerPerceptron:
        options, data = self.options, self.data
        M = create_model(
            options["layers"],
            options["layer_sizes"] or default_sizes(options["layers"], data),
            weights=options["layer_weights"],
            optimizers=options["optimizers"],
            dropouts=options["dropouts"],
        )
        _check_fit(M, data)
        for layer in M.layers:
            for part in layer.optimizer.parts():
                part.weight_decay = options["weight_decay"] or part.weight_decay
        if options["load_weights"]:
            load_weights(M, options["load_weights"])
        return move(M, options)

    def _loss(self) -> LossFunction:
        if self.options["loss"]:
            return create_loss(self.options["loss"])
        if self.data.classes is None:
            return create_loss("MeanSquaredError")
        return default_loss(self.M)

    def _loader(self, X: np.ndarray, T: np.ndarray, **shuffling: Any) -> DataLoader:
        loader = DataLoader(X, T, self.options["batch_size"], classes=self.data.classes, **shuffling)
        return loader.to(self.M.backend.name, dtype=self.M.dtype, device=self.M.device)

    # -- the run ------------------------------------------------------------------------------
    def run(self) -> None:
        """Train, measure, write what was asked for, and print the last line."""
        options, M = self.options, self.M
        started = time.time()
        interrupted = False
        with Report(silent=options["quiet"] or options["as_json"]) as report, Interruptible() as interrupt:
            self._introduce(report)
            timer = Timer(M, options["timer"])
            try:
                stochastic_gradient_descent(
                    M,
                    options["epochs"],
                    self.loss,
                    self.schedule,
                    Epochs(self, report, interrupt),
                    per_step=options["per_step"],
                    clip_norm=options["clip"],
                    on_epoch=lambda epoch, lr: self._end_epoch(epoch, lr, report),
                )
            except KeyboardInterrupt:
                interrupted = True
                report.say(f"interrupted in epoch {len(self.rows) + 1}")
            if self.best is not None:
                M.load_state(self.best[2])
                report.say(f"kept the model of epoch {self.best[1]}, with validation loss {self.best[0]:.4f}")
            timer.show(report)
        results = self._measure(("train", "validation", "test"))
        record = run_record(options, self.data, M, self.loss, self.rows, results, started, interrupted)
        self._write(record)
        if options["as_json"]:
            click.echo(json.dumps(record, indent=2))
        else:
            metric = "accuracy" if self.data.classes else "rmse"
            name = "accuracy" if self.data.classes else "RMSE"
            click.echo(f"test {name} {results[f'test_{metric}']:.3f}")
        if interrupted:
            raise click.exceptions.Exit(130)

    def _introduce(self, report: Report) -> None:
        data = self.data
        what = f"{data.classes} classes" if data.classes else f"regression with {data.output_size} outputs"
        report.say(f"{self.M}\n")
        report.say(
            f"data {data.name}: {len(data.Xtrain)} training and {len(data.Xtest)} test examples, "
            f"{data.input_size} features, {what}; "
            f"normalize {self.options['normalize']}; loss {self.loss.specification()}\n"
        )
        if self.options["info"]:
            for name, X in self.M.state().items():
                report.say(f"{name} {tuple(X.shape)}\n{self.M.backend.to_numpy(X)}")

    def _end_epoch(self, epoch: int, lr: float, report: Report) -> bool:
        """Measure and show the epoch; whether to stop now."""
        row = {"epoch": epoch + 1, "lr": lr, "seconds": time.perf_counter() - self.epoch_start}
        if not self.options["no_statistics"] or self.options["early_stopping"]:
            row |= self._measure(("train", "validation", "test"))
        self.rows.append(row)
        report.row(row)
        if not math.isfinite(row.get("loss", 0.0)):
            raise click.ClickException(
                f"the loss is {row['loss']} after epoch {epoch + 1}: a smaller --learning-rate or --clip may help"
            )
        patience = self.options["early_stopping"]
        if not patience:
            return False
        if self.best is None or row["validation_loss"] < self.best[0]:
            self.best = row["validation_loss"], epoch + 1, dict(self.M.state())
        return epoch + 1 - self.best[1] >= patience

    def _measure(self, parts: tuple[str, ...]) -> dict[str, float]:
        """Loss, and accuracy or root mean squared error, on the parts of the data that there are."""
        values: dict[str, float] = {}
        for part in parts:
            if part in self.loaders:
                measures = measure(self.M, self.loaders[part], self.loss)
                values["loss" if part == "train" else f"{part}_loss"] = measures.loss
                metric = "accuracy" if self.data.classes else "rmse"
                values[f"{part}_{metric}"] = getattr(measures, metric)
        return values

    def _write(self, record: dict[str, Any]) -> None:
        options = self.options
        if options["save_dataset"]:
            datasets.save_npz(self.data, options["save_dataset"])
        files = [options["save_weights"]] if options["save_weights"] else []
        if options["output"]:
            options["output"].mkdir(exist_ok=True)
            files.append(options["output"] / "model.npz")
        normalization = self.data.normalization
        for file in files:
            save_model(
                self.M,
                file,
                arrays={"offset": normalization.offset, "scale": normalization.scale},
                information={
                    "normalize": normalization.kind,
                    "loss": self.loss.specification(),
                    "classes": self.data.classes,
                    "class_names": list(self.data.class_names or []),
                    "data": self.data.name,
                    "results": record["results"],
                },
            )
        if options["output"]:
            write_json(options["output"] / "run.json", record)


class Epochs:
    """The training batches, anew for every epoch, with all that happens around them."""

    def __init__(self, training: Training, report: Report, interrupt: Interruptible) -> None:
        self.training, self.report, self.interrupt = training, report, interrupt
        self.epoch = 0
        options, data = training.options, training.data
        self.shuffling = {"shuffle": not options["no_shuffle"], "seed": options["seed"]}
        folder = options["preprocessed"]
        self.preprocessed = datasets.preprocessed(folder).normalize(data.normalization) if folder else None
        self.loader = training._loader(data.Xtrain, data.Ttrain, **self.shuffling)

    def __iter__(self):
        """The batches of the next epoch."""
        training, options = self.training, self.training.options
        if self.preprocessed is not None and self.epoch:
            data = self.preprocessed[self.epoch]
            self.loader = training._loader(data.Xtrain, data.Ttrain, **self.shuffling)
        self.epoch += 1
        training.epoch_start = time.perf_counter()
        batches = self.report.batches(self.loader, f"epoch {self.epoch}/{options['epochs']}")
        for number, (X, T) in enumerate(batches, start=1):
            self.interrupt.check()
            if options["gradient_step"] and number == 1:
                self._check_gradients(X, T)
            yield X, T
            if options["debug"]:
                self._show_batch(number)
        self.interrupt.check()

    def _check_gradients(self, X: Any, T: Any) -> None:
        training = self.training
        results = check_gradients(training.M, training.loss, X[:10], T[:10], h=training.options["gradient_step"])
        wrong = first_wrong(results)
        if wrong is not None:
            raise click.ClickException(str(wrong))
        self.report.say(f"gradients agree with central differences: {len(results)} equations")

    def _show_batch(self, number: int) -> None:
        backend = self.training.M.backend
        for i, layer in enumerate(self.training.M.layers, start=1):
            names = ["X", "DX", *layer.intermediates, *layer.parameters, *(f"D{name}" for name in layer.parameters)]
            for name in names:
                if getattr(layer, name) is not None:
                    self.report.say(f"batch {number} layer {i} {name}\n{backend.to_numpy(getattr(layer, name))}")


class Timer:
    """Seconds spent in the three steps of the model (brief), or of each of its layers (full)."""

    def __init__(self, M: MultilayerPerceptron, kind: str) -> None:
        self.seconds: dict[str, float] = {}
        if kind == "brief":
            self._watch(M, "model")
        if kind == "full":
            for i, layer in enumerate(M.layers, start=1):
                self._watch(layer, f"layer {i} {type(layer).__name__}")

    def _watch(self, thing: Any, name: str) -> None:
        for method in ("feedforward", "backpropagate", "optimize"):
            setattr(thing, method, self._timed(getattr(thing, method), f"{name}.{method}"))

    def _timed(self, method: Any, name: str) -> Any:
        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = method(*arguments)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return timed

    def show(self, report: Report) -> None:
        """Print the seconds and the share of each part."""
        total = sum(self.seconds.values())
        for name, seconds in self.seconds.items():
            report.say(f"{name:<50} {seconds:9.3f} s {100 * seconds / total:5.1f} %")


def default_sizes(layers: str, data: Dataset) -> str:
    """The number of features, 128, then 64 for further hidden layers, and the number of outputs."""
    hidden = count_linear(layers) - 1
    return ";".join(map(str, [data.input_size, *([128] + [64] * hidden)[:hidden], data.output_size]))


def _check_fit(M: MultilayerPerceptron, data: Dataset) -> None:
    """Refuse a model whose sizes are not those of the data."""
    for name, found, expected in (
        ("features", M.layers[0].input_size, data.input_size),
        ("outputs", M.layers[-1].output_size, data.output_size),
    ):
        if found != expected:
            raise ValueError(f"the model has {found} {name}, but the data {data.name} needs {expected}")


def _check_targets(options: dict[str, Any]) -> None:
    """Refuse files that could not be written at the end of the run."""
    for name in ("save_dataset", "save_weights", "output"):
        path: Path | None = options[name]
        flag = f"--{name.replace('_', '-')}"
        if path is None:
            continue
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{flag} {path}: the folder {path.absolute().parent} does not exist")
        if name == "output" and path.exists() and not path.is_dir():
            raise ValueError(f"{flag} {path}: expected a folder, found a file")
        if name != "output" and path.is_dir():
            raise ValueError(f"{flag} {path}: expected a file, found a folder")
