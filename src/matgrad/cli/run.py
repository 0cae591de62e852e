"""One run of `matgrad train`: options → data set → model → `M.fit` → files and the last line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

import click

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
)
from matgrad.callbacks.ending import check_finite_loss
from matgrad.cli.checkpoints import checkpoint_of, checkpoints
from matgrad.cli.logs import logs
from matgrad.cli.options import REPEATED, load_data, move
from matgrad.cli.pictures import pictures
from matgrad.cli.run_record import run_record
from matgrad.cli.saved_models import load_data_for, make_sparse, normalization_of, start_of, target_normalization_of
from matgrad.cli.settings import shown
from matgrad.cli.sparsity import sparse_training, sparsity_of, starts_dense
from matgrad.cli.timer import Timer
from matgrad.datasets import Dataset, Normalization
from matgrad.distributed import current, is_first
from matgrad.foundation.machine import set_threads, threads
from matgrad.foundation.writing import as_json, make_folder, write_json, write_or_rescue
from matgrad.layers.dropout import LinearDropoutLayer
from matgrad.layers.linear import LinearLayer
from matgrad.learning_rate import create_scheduler
from matgrad.loss_functions import HuberLoss, SquaredErrorLoss, check_loss, create_loss, default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.models import count_linear, create_model, set_optimizers
from matgrad.storage.models import load_model, load_weights
from matgrad.training import Training


class TrainingRun:
    """One run: everything is checked before training starts, and only logs and pictures are written before it ends."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        set_threads(options["threads"])
        self.shown = shown(options["show"])
        mg.manual_seed(options["seed"])
        self.resumed = checkpoint_of(options)
        self.saved = start_of(options) if self.resumed is None else load_model(self.resumed.path)
        self.data = load_data(options, options["seed"]) if self.saved is None else load_data_for(self.saved, options)
        self._check_data()
        self.M = self._model()
        self.M.information = dict(self.saved.information) if self.saved and self._has_known_task() else {}
        if not self.M.information:
            self.M.target_normalization = None
        targets = self.data.Ttrain
        self.loss = create_loss(options["loss"]) if options["loss"] else default_loss(self.M, targets)
        check_loss(self.M, self.loss)
        self.M.normalization, self.M.features = self._normalization(), self.data.features
        self.M.target_normalization = self._target_normalization()
        self.M.information = self._information()
        self.schedule = create_scheduler(options["learning_rate"])
        self.timer = Timer(self.M, options["timer"])
        self.checkpoints = checkpoints(options, self.resumed, lambda: self.sha256 if is_first() else "")
        is_saved = any(options[name] for name in ("output", "save_weights", "save_dataset", "checkpoint"))
        self.report = Report(silent=options["quiet"] or options["as_json"] or not is_first(), patient=is_saved)

    # -- set-up -------------------------------------------------------------------------------
    @cached_property
    def sha256(self) -> str:
        """The hash of the data, which takes a while."""
        return self.data.sha256()

    def _check_data(self) -> None:
        """Raise if the data cannot be those of this run; warn if the run that --config repeats had others."""
        data = self.data
        if data.classes is not None and data.classes < 2:
            raise ValueError(f"{data.name}: all examples have the same class; expected at least 2 classes")
        if self.resumed is not None and self.resumed.record.get("sha256") != self.sha256:
            raise ValueError(f"the data {data.name} are not those of the run in {self.resumed.path}")
        ctx = click.get_current_context(silent=True)
        path, sha256 = (None, None) if ctx is None else ctx.meta.get(REPEATED, (None, None))
        if sha256 is not None and sha256 != self.sha256:
            click.echo(f"note: the data are not those of the run in {path}", err=True)

    def _model(self) -> MultilayerPerceptron:
        """The model that the options describe, or that of --load-weights or --resume, where it is to be trained."""
        options, data = self.options, self.data
        if self.saved is not None:
            _check_sizes(self.saved.model, data)
        sizes = options["layer_sizes"] or default_sizes(options["layers"], data)
        self.topology = sparse_training(options, sizes)
        M = self._new_model(sizes) if self.saved is None else self.saved.model
        is_started = options["load_weights"] and self.resumed is None and not starts_dense(options)
        self.pruned = make_sparse(M, options) if is_started else None
        set_optimizers(M, options["optimizers"])
        _check_sizes(M, data)
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
            **({} if is_dense else sparsity_of(options)),
        )
        if options["load_weights"]:
            load_weights(M, options["load_weights"])
        return M

    def _has_known_task(self) -> bool:
        """Whether a saved model is known to have been trained, like this run, for classes or for a regression."""
        known = {} if self.saved is None else self.saved.information
        return "classes" in known and (known["classes"] is None) == (self.data.classes is None)

    def _normalization(self) -> Normalization:
        """The normalization of the inputs: that of a saved model, or that of this training data."""
        how = normalization_of(self.options, self.saved)
        return Normalization.of(how, self.data.Xtrain, self.data.value_range) if isinstance(how, str) else how

    def _target_normalization(self) -> Normalization | None:
        """The normalization of the targets of a regression: by default standard, if every output can be any number."""
        kind = self.options["normalize_targets"]
        if self.data.classes is not None:
            if kind is not None:
                raise ValueError(f"--normalize-targets: {self.data.name} has classes, expected a regression")
            return None
        if self.saved is not None and self._has_known_task():
            return target_normalization_of(self.options, self.saved)
        if kind is None:
            is_free = type(self.M.layers[-1]) in (LinearLayer, LinearDropoutLayer) and isinstance(
                self.loss, SquaredErrorLoss | HuberLoss
            )
            kind = "standard" if is_free else "none"
        return None if kind == "none" else Normalization.of(kind, self.data.Ttrain)

    def _information(self) -> dict[str, Any]:
        """What model files say beside the model."""
        data = self.data
        indices = {} if data.first_index is None else {"first_index": data.first_index}
        names = {"class_names": list(data.class_names or []), "data": data.name}
        return {"loss": self.loss.specification(), "classes": data.classes, **names, **indices}

    # -- the run ------------------------------------------------------------------------------
    def run(self) -> None:
        """Train, measure, write what was asked for, and print the last line."""
        started, kept = time.time(), _Kept(self._introduce)
        try:
            try:
                with self.timer.running(), _warnings_in(self.report):
                    self.fit([kept, *self._callbacks()])
            except KeyboardInterrupt:
                if not kept.run.is_interrupted:
                    raise
            self._conclude(kept.run)
            results = self._results(kept.run)
        except ArithmeticError as error:
            raise click.ClickException(str(error)) from None
        if is_first():
            self._finish(kept.run, results, started)
        if kept.run.is_interrupted:
            raise click.exceptions.Exit(130)

    def fit(self, callbacks: list[Callback]) -> None:
        """Call `M.fit` as the options say."""
        options, data = self.options, self.data
        examples: tuple = (data.Xtrain, data.Ttrain)
        if options["preprocessed"]:
            files = datasets.preprocessed(options["preprocessed"])
            examples = (lambda epoch: (files[epoch].Xtrain, files[epoch].Ttrain),)
        self.M.fit(
            *examples,
            loss=self.loss,
            learning_rate=self.schedule,
            epochs=options["epochs"],
            batch_size=options["batch_size"],
            shuffle=not options["no_shuffle"],
            seed=options["seed"],
            class_weight=options["class_weights"],
            validation=options["validation"],
            test=(data.Xtest, data.Ttest),
            early_stopping=options["early_stopping"],
            metric="accuracy" if data.classes else "rmse",
            per_step=options["per_step"],
            clip_norm=options["clip"],
            compiled=not (options["eager"] or "batches" in self.shown),
            statistics=options["statistics"] != "none" or options["early_stopping"] is not None,
            callbacks=callbacks,
            resume=None if self.resumed is None else self.resumed.path,
        )

    def _callbacks(self) -> list[Callback]:
        """The callbacks that the options ask for."""
        options, report = self.options, self.report
        callbacks: list[Callback | None] = [
            GradientCheck(options["gradient_step"], say=report.say) if options["gradient_step"] else None,
            Matrices(report.say) if "batches" in self.shown else None,
            self.topology,
            Accounting() if options["statistics"] == "costs" else None,
            pictures(options),
            self.checkpoints,
            *logs(options),
            report,
        ]
        return [callback for callback in callbacks if callback is not None]

    def _results(self, run: Training) -> dict[str, float]:
        """The measures of the final model: those of the last epoch, if nothing has changed since."""
        statistics = next(callback for callback in run.callbacks if isinstance(callback, Statistics))
        is_last = run.rows and not run.is_interrupted and not self.options["early_stopping"]
        measured = run.row if is_last and statistics.every_epoch else statistics.measured(run)
        results = {name: x for name, x in measured.items() if name.endswith(("loss", "accuracy", "rmse"))}
        check_finite_loss(results["loss"], run.epoch)
        return results

    # -- what is printed ----------------------------------------------------------------------
    def _introduce(self) -> None:
        """Print the model, and what it is trained on."""
        data, options, report = self.data, self.options, self.report
        outputs = "1 output" if data.output_size == 1 else f"{data.output_size} outputs"
        what = f"{data.classes} classes" if data.classes else f"regression with {outputs}"
        scaling = self.M.target_normalization
        report.say(f"{self.M}\n")
        if (group := current()) is not None:
            report.say(f"{group.size} ranks, with {threads()} thread{'' if threads() == 1 else 's'} each\n")
        parts = [
            f"data {data.name}: {data.Xtrain.shape[0]} training and {data.Xtest.shape[0]} test examples, "
            f"{data.input_size} features, {what}",
            f"validation with {options['validation']:g} of the training examples" if options["validation"] else None,
            f"normalize {options['normalize']}{'' if scaling is None else f', targets {scaling}'}",
            f"loss {self.loss.specification()}"
            f"{' with class weights ' + options['class_weights'] if options['class_weights'] else ''}",
            f"weights {self._weights()}",
            None if self.topology is None else f"sparse training {self.topology!r}",
        ]
        report.say("; ".join(filter(None, parts)) + "\n")
        for note in filter(None, (self.pruned, *data.notes)):
            report.say(note)
        if "parameters" in self.shown:
            matrices = {name: self.M.backend.to_numpy(X) for name, X in self.M.state().items() if name.count(".") == 1}
            for name, A in ({"Xtrain": data.Xtrain, "Ttrain": data.Ttrain} | matrices).items():
                report.say(f"{name} {A.shape}\n{A}")

    def _weights(self) -> str:
        """Where the weights come from."""
        if self.resumed is not None:
            run = self.resumed.run
            return f"of {self.resumed.path} after epoch {run.epoch}, step {run.step}"
        return str(self.options["load_weights"] or self.options["layer_weights"])

    def _conclude(self, run: Training) -> None:
        """Say how training ended."""
        if self.resumed is not None and run.step == self.resumed.run.step:
            self.report.say("nothing was left to train")
        if run.is_interrupted:
            self.report.say(f"interrupted in epoch {run.epoch + 1}")
        stopping = next((callback for callback in run.callbacks if isinstance(callback, EarlyStopping)), None)
        if stopping is not None and stopping.best is not None and not run.is_rescued:  # which the warning says
            self.report.say(f"kept the model of epoch {stopping.best_epoch}, with validation loss {stopping.best:.4f}")
        if self.M.device not in (None, "cpu"):  # where compiling takes long
            self.report.say(f"compiling took {run.compilation_seconds:.2f} of the train seconds")
        self.timer.show(self.report)

    # -- what is written ----------------------------------------------------------------------
    def _finish(self, run: Training, results: dict[str, float], started: float) -> None:
        """Write the files that were asked for, and print the last line."""
        options = self.options
        problems = self._write(results)
        if self.checkpoints is not None and self.checkpoints.failure is not None:
            problems.append(f"the last checkpoint could not be written: {self.checkpoints.failure}")
        if options["output"] or options["as_json"]:  # it hashes the data, which takes a while
            timer = self.timer.record()
            record = run_record(options, self.data, self.sha256, run, results, timer, started)
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
            problems.append(write_or_rescue(options["save_dataset"], partial(datasets.save_npz, self.data)))
        return problems


class _Kept(Callback):
    """Says that training starts, when all is checked, and keeps the run, to see how it ended."""

    run: Training

    def __init__(self, introduce: Callable[[], None]) -> None:
        self._introduce = introduce

    def start(self, run: Training) -> None:
        self.run = run
        self._introduce()


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


def _check_sizes(M: MultilayerPerceptron, data: Dataset) -> None:
    """Raise if the sizes of the model do not fit the data."""
    for name, found, expected in (
        ("features", M.layers[0].input_size, data.input_size),
        ("outputs", M.layers[-1].output_size, data.output_size),
    ):
        if found != expected:
            raise ValueError(f"the model has {found} {name}, but the data {data.name} needs {expected}")
