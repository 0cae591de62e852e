"""One run of `matgrad train`, from its options to its files."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad import datasets
from matgrad.callbacks import (
    Accounting,
    Callback,
    EarlyStopping,
    GradientCheck,
    Matrices,
    Report,
    Statistics,
    is_sparse_training,
)
from matgrad.callbacks.statistics import check_finite_loss
from matgrad.cli.checkpoints import checkpoint_of, checkpoints
from matgrad.cli.logs import logs
from matgrad.cli.options import REPEATED, load_data, move
from matgrad.cli.pictures import pictures
from matgrad.cli.run_record import run_record
from matgrad.cli.saved_models import load_data_for, make_sparse, normalization_of, start_of, target_normalization_of
from matgrad.cli.shared_data import read_once
from matgrad.cli.sparsity import densities, sparsity_of
from matgrad.cli.table_options import flag
from matgrad.cli.timer import Timer
from matgrad.cli.topology import sparse_training, starts_dense
from matgrad.datasets import DataLoader, Dataset, Normalization
from matgrad.datasets.weighting import class_weights, weights_by_class
from matgrad.distributed import current, is_first
from matgrad.foundation.files import as_json
from matgrad.foundation.machine import set_threads, threads
from matgrad.foundation.writing import make_folder, write_json, write_or_rescue
from matgrad.layers.linear import LinearLayer
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import (
    HuberLoss,
    LossFunction,
    SquaredErrorLoss,
    check_loss,
    check_weighable,
    create_loss,
    default_loss,
)
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.models import count_linear, create_model, set_optimizers
from matgrad.storage.models import SavedModel, load_model, load_weights
from matgrad.training import Data, Training


class TrainingRun:
    """One run: everything is checked before training starts, and only logs and pictures are written before it ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        set_threads(options["threads"])
        np.set_printoptions(precision=options["precision"], edgeitems=options["edgeitems"], threshold=100)
        mg.manual_seed(options["seed"])
        self.resumed = checkpoint_of(options)
        self.saved = start_of(options) if self.resumed is None else load_model(self.resumed.path)
        known = "float32" if self.saved is None else self.saved.model.dtype
        self.data, self.validation = read_once(self._read, options["dtype"] or known)
        self.M = self._model()
        self.loss = self._loss()
        check_loss(self.M, self.loss)
        self.M.target_normalization = self._target_normalization()
        self.schedule = create_scheduler(options["learning_rate"])
        self.timer = Timer(self.M, options["timer"])
        self.class_weights = self._class_weights()
        self.train_loader = self._training_loader(self.data)
        parts = {"": self.train_loader}
        if self.validation is not None:
            parts["validation_"] = self._loader(*self.validation)
        parts["test_"] = self._loader(self.data.Xtest, self.data.Ttest)
        self.statistics = Statistics(parts)
        patience = options["early_stopping"]
        self.early_stopping = EarlyStopping(patience) if patience else None
        self.M.information = self._information()
        self.checkpoints = checkpoints(options, lambda: self.sha256 if is_first() else "")
        is_saved = any(options[name] for name in ("output", "save_weights", "save_dataset", "checkpoint"))
        self.report = Report(silent=options["quiet"] or options["as_json"] or not is_first(), patient=is_saved)

    # -- set-up -------------------------------------------------------------------------------
    def _read(self) -> tuple[Dataset, tuple[Any, np.ndarray] | None]:
        """Read and check the data; normalize them, and hold some out."""
        options = self.options
        self.raw = load_data(options, options["seed"]) if self.saved is None else load_data_for(self.saved, options)
        self._check_data()
        if self.saved is not None:
            _check_fit(self.saved.model, self.raw)
        return self._data()

    @cached_property
    def sha256(self) -> str:
        """The hash of the data, which takes a while."""
        return self.raw.sha256()

    def _check_data(self) -> None:
        """Refuse data other than those of the run that goes on; say so if the run that --config repeats had others."""
        if self.resumed is not None and self.resumed.record.get("sha256") != self.sha256:
            raise ValueError(f"the data {self.raw.name} are not those of the run in {self.resumed.path}")
        ctx = click.get_current_context(silent=True)
        path, sha256 = (None, None) if ctx is None else ctx.meta.get(REPEATED, (None, None))
        if sha256 is not None and sha256 != self.sha256:
            click.echo(f"note: the data are not those of the run in {path}", err=True)

    def _data(self) -> tuple[Dataset, tuple[np.ndarray, np.ndarray] | None]:
        """The normalized data, and the training examples that are held out for validation, if any."""
        options = self.options
        if self.raw.classes is not None and self.raw.classes < 2:
            raise ValueError(f"{self.raw.name}: all examples have the same class; expected at least 2 classes")
        data = self.raw.normalize(normalization_of(options, self.saved))
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
        self.topology = sparse_training(options, densities(options, sizes))
        M = self._new_model(sizes) if self.saved is None else self.saved.model
        is_started = options["load_weights"] and self.resumed is None and not starts_dense(options)
        self.pruned = make_sparse(M, options) if is_started else None
        set_optimizers(M, options["optimizers"])
        _check_fit(M, data)
        for name in ("weight_decay", "l1"):
            if options[name] is not None:
                _set_in_optimizers(M, name, options[name], options["optimizers"])
        M.normalization, M.features = data.normalization, data.features
        move(M, options)
        options["dtype"] = M.dtype
        return M

    def _new_model(self, sizes: str) -> MultilayerPerceptron:
        """The model that the options describe, with the weights of a file that has nothing else."""
        options = self.options
        is_dense = options["load_weights"] or starts_dense(options)
        M = create_model(
            options["layers"],
            sizes,
            weights=options["layer_weights"],
            dropouts=options["dropouts"],
            **({} if is_dense else sparsity_of(options, sizes)),
        )
        if options["load_weights"]:
            load_weights(M, options["load_weights"])
        return M

    def _loss(self) -> LossFunction:
        if self.options["loss"]:
            return create_loss(self.options["loss"])
        if self.saved is not None and self._has_same_task(self.saved):
            return self.saved.loss
        if self.data.classes is None:
            return create_loss("MeanSquaredError")
        return default_loss(self.M)

    def _has_same_task(self, saved: SavedModel) -> bool:
        """Whether a saved model is known to have been trained, like this run, for classes or for a regression."""
        return "classes" in saved.information and (saved.information["classes"] is None) == (self.data.classes is None)

    def _target_normalization(self) -> Normalization | None:
        """The normalization of the targets of a regression: by default standard, if every output can be any number."""
        kind = self.options["normalize_targets"]
        if self.data.classes is not None:
            if kind is not None:
                raise ValueError(f"--normalize-targets: {self.data.name} has classes, expected a regression")
            return None
        if self.saved is not None and self._has_same_task(self.saved):
            return target_normalization_of(self.options, self.saved)
        if kind is None:
            is_free = type(self.M.layers[-1]) is LinearLayer and isinstance(self.loss, SquaredErrorLoss | HuberLoss)
            kind = "standard" if is_free else "none"
        return None if kind == "none" else Normalization.of(kind, self.data.Ttrain)

    def _class_weights(self) -> np.ndarray | None:
        """The weights of the classes in all losses, if the options ask for any."""
        if self.options["class_weights"] is None:
            return None
        check_weighable(self.loss)
        return class_weights(self.options["class_weights"], self.data.Ttrain, self.data.classes)

    def _loader(self, X: np.ndarray, T: np.ndarray, **shuffling: Any) -> DataLoader:
        weights = None if self.class_weights is None else weights_by_class(T, self.class_weights)
        T = self.M.normalize_targets(T)
        loader = DataLoader(X, T, self.options["batch_size"], classes=self.data.classes, weights=weights, **shuffling)
        return loader.to(self.M.backend.name, dtype=self.M.dtype, device=self.M.device)

    def _training_loader(self, data: Dataset) -> DataLoader:
        shuffling = {"shuffle": not self.options["no_shuffle"], "seed": self.options["seed"]}
        return self._loader(data.Xtrain, data.Ttrain, **shuffling)

    def _epochs(self) -> Data:
        """The batches of every epoch, or a function of the epoch if each has its own file."""
        if not self.options["preprocessed"]:
            return self.train_loader
        files = datasets.preprocessed(self.options["preprocessed"]).normalize(self.data.normalization)
        return lambda i: self._training_loader(files[i]) if i else self.train_loader

    def _callbacks(self) -> list[Callback]:
        """The callbacks that the options ask for, in the order in which they are called after an epoch."""
        options, report = self.options, self.report
        callbacks: list[Callback] = []
        if options["gradient_step"]:
            callbacks.append(GradientCheck(options["gradient_step"], say=report.say))
        if options["debug"]:
            callbacks.append(Matrices(report.say))
        if not options["no_statistics"] or self.early_stopping:
            callbacks.append(self.statistics)
        callbacks += filter(None, (self.early_stopping, self.topology))
        if options["accounting"] or is_sparse_training(self.M, callbacks):
            callbacks.append(Accounting())
        callbacks += [*filter(None, [pictures(options), self.checkpoints]), *logs(options)]
        return [*callbacks, report]

    # -- the run ------------------------------------------------------------------------------
    def run(self) -> None:
        """Train, measure, write what was asked for, and print the last line."""
        options, M = self.options, self.M
        started = time.time()
        training = Training(
            M,
            self.loss,
            self._epochs(),
            options["epochs"],
            self.schedule,
            per_step=options["per_step"],
            clip_norm=options["clip"],
            compiled=not (options["eager"] or options["debug"]),
        )
        self._introduce(self.report)
        if self.resumed is not None:
            training.resume(self.resumed)
            if training.epoch == training.epochs or training.is_stopped:
                self.report.say("nothing is left to train\n")
        try:
            with self.timer.running(), _warnings_in(self.report):
                training.train(self._callbacks())
            self._conclude(training)
            results = self._results(training)
        except ArithmeticError as error:
            raise click.ClickException(str(error)) from None
        if is_first():
            self._finish(training, results, started)
        if training.is_interrupted:
            raise click.exceptions.Exit(130)

    def _finish(self, training: Training, results: dict[str, float], started: float) -> None:
        """Write the files that were asked for, and print the last line."""
        options, M = self.options, self.M
        problems = self._write(results)
        if self.checkpoints is not None and self.checkpoints.failure is not None:
            problems.append(f"the last checkpoint could not be written: {self.checkpoints.failure}")
        if options["output"] or options["as_json"]:  # it hashes the data, which takes a while
            timer = self.timer.record()
            record = run_record(options, self.data, self.sha256, M, self.loss, training, results, timer, started)
            if options["output"]:
                problems.append(write_or_rescue(options["output"] / "run.json", lambda path: write_json(path, record)))
        if options["as_json"]:
            click.echo(as_json(record))
        elif self.report.failure is None:
            metric, name = ("accuracy", "accuracy") if self.data.classes else ("rmse", "RMSE")
            click.echo(f"test {name} {results[f'test_{metric}']:.3f}")
        if any(problems):
            raise ValueError("; ".join(filter(None, problems)))
        if self.report.failure is not None:
            raise self.report.failure

    def _conclude(self, training: Training) -> None:
        """Say how training ended."""
        if training.is_interrupted:
            self.report.say(f"interrupted in epoch {training.epoch + 1}")
        best = self.early_stopping
        if best is not None and best.best is not None and not training.is_rescued:  # which the warning says
            self.report.say(f"kept the model of epoch {best.best_epoch}, with validation loss {best.best:.4f}")
        if self.M.device not in (None, "cpu"):  # where compiling takes long
            self.report.say(f"compiling took {training.compilation_seconds:.2f} of the train seconds")
        self.timer.show(self.report)

    def _results(self, training: Training) -> dict[str, float]:
        """The measures of the final model: those of the last epoch, if nothing has changed since."""
        is_last = training.rows and not training.is_interrupted and self.early_stopping is None
        measured = training.row if is_last and not self.options["no_statistics"] else self.statistics.measured(training)
        results = {name: x for name, x in measured.items() if name.endswith(("loss", "accuracy", "rmse"))}
        check_finite_loss(results["loss"], training.epoch)
        return results

    def _introduce(self, report: Report) -> None:
        data = self.data
        outputs = "1 output" if data.output_size == 1 else f"{data.output_size} outputs"
        what = f"{data.classes} classes" if data.classes else f"regression with {outputs}"
        scaling = self.M.target_normalization
        targets = "" if scaling is None else f", targets {scaling}"
        weights = f" with class weights {self.options['class_weights']}" if self.options["class_weights"] else ""
        report.say(f"{self.M}\n")
        if (group := current()) is not None:
            report.say(f"{group.size} ranks, with {threads()} thread{'' if threads() == 1 else 's'} each\n")
        report.say(
            f"data {data.name}: {data.Xtrain.shape[0]} training and {data.Xtest.shape[0]} test examples, "
            f"{data.input_size} features, {what}; "
            f"normalize {self.options['normalize']}{targets}; loss {self.loss.specification()}{weights}; "
            f"weights {self._weights()}"
            f"{'' if self.topology is None else f'; sparse training {self.topology!r}'}\n"
        )
        for note in filter(None, (self.pruned, *data.notes)):
            report.say(note)
        if self.options["info"]:
            matrices = {name: self.M.backend.to_numpy(X) for name, X in self.M.state().items() if name.count(".") == 1}
            for name, A in ({"Xtrain": data.Xtrain, "Ttrain": data.Ttrain} | matrices).items():
                report.say(f"{name} {A.shape}\n{A}")

    def _weights(self) -> str:
        """Where the weights come from."""
        if self.resumed is not None:
            run = self.resumed.run
            return f"of {self.resumed.path} after epoch {run.epoch}, step {run.step}"
        return str(self.options["load_weights"] or self.options["layer_weights"])

    def _information(self) -> dict[str, Any]:
        """What model files say beside the model."""
        data = self.data
        indices = {} if data.first_index is None else {"first_index": data.first_index}
        names = {"class_names": list(data.class_names or []), "data": data.name}
        return {"loss": self.loss.specification(), "classes": data.classes, **names, **indices}

    def _write(self, results: dict[str, float]) -> list[str | None]:
        """Write the model and the data to the files that the options name; what went wrong with each of them."""
        options = self.options
        files = [options["save_weights"]] if options["save_weights"] else []
        if options["output"]:
            with suppress(OSError):  # which is told of its files
                make_folder(options["output"])
            files.append(options["output"] / "model.npz")
        problems = [write_or_rescue(file, partial(self.M.save, information={"results": results})) for file in files]
        if options["save_dataset"]:
            problems.append(write_or_rescue(options["save_dataset"], partial(datasets.save_npz, self.raw)))
        return problems


@contextmanager
def _warnings_in(report: Report) -> Iterator[None]:
    """Show warnings of the package as lines of the report."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: report.say(str(message))
        yield


def default_sizes(layers: str, data: Dataset) -> str:
    """The number of features, 128, then 64 for further hidden layers, and the number of outputs."""
    hidden = count_linear(layers) - 1
    return ";".join(map(str, [data.input_size, *([128] + [64] * hidden)[:hidden], data.output_size]))


def _set_in_optimizers(M: MultilayerPerceptron, name: str, value: float, optimizers: str) -> None:
    """Set a parameter of all optimizers, unless their specification has it too."""
    if re.search(rf"\b{name}\s*=", optimizers):
        raise ValueError(f"{flag(name)} and --optimizers {optimizers}: expected {name} in one of them")
    for _, layer in M.walk():
        for part in layer.optimizer.parts():
            setattr(part, name, value)


def _check_fit(M: MultilayerPerceptron, data: Dataset) -> None:
    """Refuse a model whose sizes do not fit the data."""
    for name, found, expected in (
        ("features", M.layers[0].input_size, data.input_size),
        ("outputs", M.layers[-1].output_size, data.output_size),
    ):
        if found != expected:
            raise ValueError(f"the model has {found} {name}, but the data {data.name} needs {expected}")
