"""One run of `matgrad train`, from its options to its files."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad import datasets
from matgrad.cli.options import check_writable, load_data, move, set_threads
from matgrad.cli.report import Interruptible, Report
from matgrad.cli.run_record import run_record
from matgrad.cli.timer import Timer
from matgrad.datasets import DataLoader, Dataset
from matgrad.engines.training_step import check_loss
from matgrad.evaluation.measures import measure
from matgrad.foundation.files import as_json, write_json
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.learning_rate import learning_rate as create_scheduler
from matgrad.loss_functions import LossFunction, create_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_densities
from matgrad.sparse.matrix import values_of
from matgrad.specifications.models import count_linear, create_model
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.models import load_weights, save_model
from matgrad.training import default_loss, stochastic_gradient_descent


class Training:
    """One run: everything is checked before training starts, and nothing is written before it ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        set_threads(options["threads"])
        np.set_printoptions(precision=options["precision"], edgeitems=options["edgeitems"], threshold=100)
        _check_targets(options)
        mg.manual_seed(options["seed"])
        self.raw = load_data(options, options["seed"])
        self.data, self.validation = self._data()
        self.M = self._model()
        self.loss = self._loss()
        check_loss(self.M, self.loss)
        self.schedule = create_scheduler(options["learning_rate"])
        self.timer = Timer(self.M, options["timer"])
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
        if self.raw.classes is not None and self.raw.classes < 2:
            raise ValueError(f"{self.raw.name}: all examples are of one class; expected at least 2 to tell apart")
        data = self.raw.normalize(options["normalize"])
        if options["early_stopping"] and not options["validation"]:
            raise ValueError("--early-stopping needs --validation FRACTION")
        if options["validation"] and options["preprocessed"]:
            raise ValueError("--validation cannot hold out examples of --preprocessed data")
        if not options["validation"]:
            return data, None
        return data.split(options["validation"], options["seed"])

    def _model(self) -> MultilayerPerceptron:
        options, data = self.options, self.data
        sizes = options["layer_sizes"] or default_sizes(options["layers"], data)
        M = create_model(
            options["layers"],
            sizes,
            weights=options["layer_weights"],
            optimizers=options["optimizers"],
            dropouts=options["dropouts"],
            densities=_densities(options, sizes),
        )
        _check_fit(M, data)
        for layer in M.layers:
            for part in layer.optimizer.parts():
                if options["weight_decay"] is not None:
                    part.weight_decay = options["weight_decay"]
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
            try:
                with (
                    self.timer.running(),
                    _warnings_in(report),
                    np.errstate(all="ignore"),
                ):  # divergence is told in words
                    stochastic_gradient_descent(
                        M,
                        options["epochs"],
                        self.loss,
                        self.schedule,
                        Epochs(self, report, interrupt),
                        per_step=options["per_step"],
                        clip_norm=options["clip"],
                        compiled=not (options["eager"] or options["debug"]),
                        on_epoch=lambda epoch, lr: self._end_epoch(epoch, lr, report),
                    )
            except KeyboardInterrupt:
                interrupted = True
                report.say(f"interrupted in epoch {len(self.rows) + 1}")
            if self.best is not None:
                M.load_state(self.best[2])
                report.say(f"kept the model of epoch {self.best[1]}, with validation loss {self.best[0]:.4f}")
        self.timer.show(report)
        with np.errstate(all="ignore"):
            results = self._measure(("train", "validation", "test"))
        self._check_finite(results["loss"], len(self.rows))
        sha256 = self.raw.sha256()
        timer = self.timer.record()
        record = run_record(options, self.data, sha256, M, self.loss, self.rows, results, timer, started, interrupted)
        self._write(record)
        if options["as_json"]:
            click.echo(as_json(record))
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
        for note in data.notes:
            report.say(note)
        if self.options["info"]:
            matrices = {name: self.M.backend.to_numpy(X) for name, X in self.M.state().items() if name.count(".") == 1}
            for name, A in ({"Xtrain": data.Xtrain, "Ttrain": data.Ttrain} | matrices).items():
                report.say(f"{name} {A.shape}\n{A}")

    def _end_epoch(self, epoch: int, lr: float, report: Report) -> bool:
        """Measure and show the epoch; whether to stop now."""
        row = {"epoch": epoch + 1, "lr": lr, "seconds": time.perf_counter() - self.epoch_start}
        if not self.options["no_statistics"] or self.options["early_stopping"]:
            row |= self._measure(("train", "validation", "test"))
        self.rows.append(row)
        report.row(row)
        self._check_finite(row.get("loss", 0.0), epoch + 1)
        patience = self.options["early_stopping"]
        if not patience:
            return False
        if self.best is None or row["validation_loss"] < self.best[0]:
            self.best = row["validation_loss"], epoch + 1, dict(self.M.state())
        return epoch + 1 - self.best[1] >= patience

    @staticmethod
    def _check_finite(loss: float, epoch: int) -> None:
        """End a run that has diverged."""
        if not math.isfinite(loss):
            raise click.ClickException(
                f"the loss is {loss} after epoch {epoch}: a smaller --learning-rate or --clip may help"
            )

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
            datasets.save_npz(self.raw, options["save_dataset"])
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

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
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
        with training.timer.paused():
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
                X = values_of(getattr(layer, name))
                if X is not None:
                    self.report.say(f"batch {number} layer {i} {name}\n{backend.to_numpy(X)}")


@contextmanager
def _warnings_in(report: Report) -> Iterator[None]:
    """Show what the package warns of as lines of the report."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: report.say(str(message))
        yield


def default_sizes(layers: str, data: Dataset) -> str:
    """The number of features, 128, then 64 for further hidden layers, and the number of outputs."""
    hidden = count_linear(layers) - 1
    return ";".join(map(str, [data.input_size, *([128] + [64] * hidden)[:hidden], data.output_size]))


def _densities(options: dict[str, Any], sizes: str) -> str:
    """The densities that the options ask for; without any, all layers are dense."""
    if options["densities"] is not None and options["overall_density"] is not None:
        raise ValueError("--densities and --overall-density: expected one of them")
    if options["overall_density"] is None:
        return options["densities"] if options["densities"] is not None else "1"
    numbers = parse_numbers(sizes, "layer size")
    return ";".join(map(str, erdos_renyi_densities(numbers, options["overall_density"])))


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
    seen: dict[Path, str] = {}
    for name in ("save_dataset", "save_weights", "output"):
        path: Path | None = options[name]
        flag = f"--{name.replace('_', '-')}"
        if path is not None:
            check_writable(path, f"{flag} {path}", is_folder=name == "output")
            if path.absolute() in seen:
                raise ValueError(f"{flag} {path}: {seen[path.absolute()]} has the same name")
            seen[path.absolute()] = flag
