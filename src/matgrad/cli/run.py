"""One run of `matgrad train`: options → data set → model → `M.fit` → files and the last line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad import callbacks, datasets
from matgrad.callbacks.ending import diverged
from matgrad.callbacks.report import SUFFIXES
from matgrad.cli.commands import echo, warnings_to
from matgrad.cli.configuration import checkpoints, plain, recorded_plugins, saved_run
from matgrad.cli.examples import load_data
from matgrad.cli.inspect import PICTURES
from matgrad.cli.options import contradiction, is_given, move
from matgrad.cli.saved_models import known_model, sparse_training, starting_model
from matgrad.distributed import current, is_first
from matgrad.foundation.machine import machine, set_threads, threads, versions
from matgrad.foundation.writing import as_json, write_json, write_or_rescue
from matgrad.specifications.models import count_linear, model_specification, set_optimizers
from matgrad.storage.models import check_ending
from matgrad.training import Training

# the options that are arguments of `M.fit` as they are
ARGUMENTS = ("loss", "learning_rate", "epochs", "batch_size", "seed", "validation", "early_stopping", "normalize")

DEFAULTS_OF_TEXTS = {
    "layers": "Embedding(64);Positions;Transformer(2, heads=4);Each(LayerNormalization;Linear)",
    "optimizers": "Adam",
    "learning_rate": "0.002",
    "epochs": 5,
    "normalize": "none",
}

SHOWN = ("parameters", "batches")  # matrices that --show prints


class TrainingRun(mg.Callback):
    """One run: everything is checked before training starts, and only logs and pictures are written before it ends."""

    training: Training  # once it has started
    profile: mg.Profile | None  # of its training, with --timer

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        set_threads(options["threads"])
        self.shown = shown(options["show"])
        mg.manual_seed(options["seed"])
        if options["save_weights"] is not None:
            check_ending(options["save_weights"])
        self.saved, self.pruned = saved_run(options), None
        self.resumed = None if self.saved is None else self.saved.checkpoint
        for name, default in DEFAULTS_OF_TEXTS.items() if options["text"] is not None else ():
            options[name] = options[name] if is_given(name) else default
        known = known_model(options) if self.resumed is None else mg.load(self.resumed.path)
        self.data = load_data(options, known)
        self.sha256 = cache(self.data.sha256)  # which takes a while
        self.text = self.data if isinstance(self.data, datasets.Text) else None
        self.metric = "perplexity" if self.text else "accuracy" if self.data.classes else "rmse"
        self._check_data()
        if self.resumed is None:
            if self.text is not None:
                options["layers"] = self.text.layers(options["layers"])
            hidden = count_linear(options["layers"]) - 1
            sizes = [self.data.input_size, *([128] + [64] * hidden)[:hidden], self.data.output_size]
            sizes = sizes if self.text is None or hidden >= 0 else [self.text.context]
            known, self.pruned = starting_model(options, known, ";".join(map(str, sizes)))
        assert known is not None
        self.M = known
        self.topology = sparse_training(options, self.M)
        set_optimizers(self.M, options["optimizers"])
        move(self.M, options)
        options["dtype"] = self.M.dtype
        self._prepare()
        is_checkpointed = any(options[name] is not None for name in ("checkpoint", "resume")) and is_first()
        self.checkpoints = checkpoints(options, self.resumed, self.sha256() if is_checkpointed else "")
        is_saved = any(options[name] for name in ("output", "save_weights", "save_dataset", "checkpoint"))
        is_silent = options["quiet"] or options["as_json"] or not is_first()
        self.report = callbacks.Report(silent=is_silent, patient=is_saved)

    def _callback(self, kind: type) -> Any:
        """The callback of this class; None if there is none."""
        return next((callback for callback in self.training.callbacks if isinstance(callback, kind)), None)

    def _check_data(self) -> None:
        """Raise if the data cannot be those of this run; warn if the run that --config repeats had others."""
        data = self.data
        if data.classes is not None and data.classes < 2:
            raise ValueError(f"{data.name}: all examples have the same class; expected at least 2 classes")
        if data.classes is not None and self.options["normalize_targets"] is not None:
            raise ValueError(f"--normalize-targets: {data.name} has classes, expected a regression")
        if self.saved is not None and self.saved.sha256 != self.sha256():
            if self.resumed is not None:
                raise ValueError(f"the data {data.name} are not those of the run in {self.saved.path}")
            echo(f"note: the data are not those of the run in {self.saved.path}", err=True)

    def _prepare(self) -> None:
        """Check that model, data and options fit, and give the model what its file says beside its layers."""
        M, data, options, known = self.M, self.data, self.options, self.M.information
        for name, found, expected in (
            ("features", M.layers[0].input_size, data.input_size),
            ("outputs", M.layers[-1].output_size, data.output_size),
        ):
            if found != expected:
                raise ValueError(f"the model has {found} {name}, but the data {data.name} needs {expected}")
        is_trained = "classes" in known and (known["classes"] is None) == (data.classes is None)  # for this task
        kinds = {"normalize": known.get("normalize")}
        if is_trained and data.classes is None:
            kinds["normalize_targets"] = "none" if M.target_normalization is None else M.target_normalization.kind
        for name, kind in kinds.items():
            if kind is not None:
                if is_given(name) and options[name] != kind:
                    raise contradiction(name, options, f"the normalization {kind}")
                options[name] = kind
        M.information = {"classes": data.classes, "class_names": list(data.class_names or []), "data": data.name}
        if data.first_index is not None:
            M.information["first_index"] = data.first_index
        if is_trained:
            M.information["loss"] = known.get("loss")
        else:
            M.target_normalization = None
        M.features = data.features
        if options["normalize"] == "unit" and M.normalization is None and data.value_range is not None:
            M.normalization = datasets.Normalization.of("unit", data.Xtrain, data.value_range, M.dtype)

    # -- the run ------------------------------------------------------------------------------
    def run(self) -> None:
        """Train, measure, write what was asked for, and print the last line."""
        started, is_timed = time.time(), self.options["timer"] != "disabled" or self.options["trace"]
        try:
            say = self._note if self.report.silent else self.report.say
            with mg.profile(self.M) if is_timed else nullcontext() as self.profile, warnings_to(say):
                try:
                    self.fit([self, *self._callbacks()])
                except KeyboardInterrupt:
                    if not self.training.is_interrupted:
                        raise
            self._conclude()
            results = self._results()
        except ArithmeticError as error:
            raise click.ClickException(str(error)) from None
        if is_first():
            self._finish(results, started)
        if self.training.is_interrupted:
            raise click.exceptions.Exit(130)

    def _note(self, message: str) -> None:
        """Print a warning beside standard output, which --quiet and --json keep for the result."""
        if is_first():
            echo(f"note: {message}", err=True)

    def fit(self, watching: Sequence[mg.Callback]) -> None:
        """Call `M.fit` as the options say."""
        options, data = self.options, self.data
        examples: tuple = (data.Xtrain, data.Ttrain) if self.text is None else (self.text,)
        if options["preprocessed"]:
            files = datasets.preprocessed(options["preprocessed"], dtype=self.M.dtype)
            examples = (lambda epoch: (files[epoch].Xtrain, files[epoch].Ttrain),)
        self.M.fit(
            *examples,
            **{name: options[name] for name in ARGUMENTS},
            shuffle=not options["no_shuffle"],
            class_weight=options["class_weights"],
            test=(data.Xtest, data.Ttest),
            normalize_targets=None if data.classes else options["normalize_targets"] or "auto",
            metric=self.metric,
            per_step=options["per_step"],
            clip_norm=options["clip"],
            compiled=not (options["eager"] or "batches" in self.shown),
            statistics=options["statistics"] != "none" or options["early_stopping"] is not None,
            callbacks=watching,
            resume=None if self.resumed is None else self.resumed.path,
        )

    def _callbacks(self) -> list[mg.Callback]:
        """The callbacks that the options ask for."""
        options, report, pictures = self.options, self.report, None
        if options["pictures"] is not None:
            folder, settings = PICTURES.split(options["pictures"])
            pictures = callbacks.Pictures(folder, **settings)
        asked = (
            options["gradient_step"] and callbacks.GradientCheck(options["gradient_step"], say=report.say),
            "batches" in self.shown and callbacks.Matrices(report.say),
            self.topology,
            options["statistics"] == "costs" and callbacks.Accounting(),
            pictures,
            self.checkpoints,
            *((callbacks.Log if path.suffix in SUFFIXES else callbacks.TensorBoard)(path) for path in options["log"]),
            report,
        )
        return [callback for callback in asked if isinstance(callback, mg.Callback)]

    def _results(self) -> dict[str, float]:
        """The measures of the final model: those of the last epoch, if nothing has changed since."""
        run, statistics = self.training, self._callback(callbacks.Statistics)
        is_last = run.rows and not run.is_interrupted and not self.options["early_stopping"]
        measured = run.row if is_last and statistics.every_epoch else statistics.measured(run)
        results = {name: x for name, x in measured.items() if name.endswith(("loss", "accuracy", "rmse", "perplexity"))}
        if not math.isfinite(loss := results["loss"]):
            raise FloatingPointError(diverged(f"the loss is {loss}", run.epoch))
        return results

    # -- what is printed ----------------------------------------------------------------------
    def start(self, run: Training) -> None:
        """Print the model, and what it is trained on, when all is checked."""
        self.training = run
        M, data, options, say = self.M, self.data, self.options, self.report.say
        say(f"{M}\n")
        if (group := current()) is not None:
            say(f"{group.size} ranks, with {threads()} thread{'' if threads() == 1 else 's'} each\n")
        sizes = f"{data.Xtrain.shape[0]} training and {data.Xtest.shape[0]} test examples, {data.input_size} features"
        outputs = "1 output" if data.output_size == 1 else f"{data.output_size} outputs"
        what = f"{data.classes} classes" if data.classes else f"regression with {outputs}"
        what = what if self.text is None else f"a vocabulary of {data.classes} characters"
        weights = options["load_weights"] or options["layer_weights"]
        if self.resumed is not None:
            weights = f"of {self.resumed.path} after epoch {run.epoch}, step {run.step}"
        parts = {
            f"data {data.name}: {sizes}, {what}": True,
            f"validation with {options['validation']} of the training examples": options["validation"],
            f"normalize {M.normalization}": True,
            f"normalize targets {M.target_normalization}": M.target_normalization,
            f"loss {run.loss.specification()}": True,
            f"class weights {options['class_weights']}": options["class_weights"],
            f"weights {weights}": True,
            f"sparse training {self.topology!r}": self.topology,
        }
        say("; ".join(text for text, applies in parts.items() if applies) + "\n")
        for note in filter(None, (self.pruned, *data.notes)):
            say(note)
        if "parameters" in self.shown:
            matrices = {name: M.backend.to_numpy(X) for name, X in M.state().items() if name.count(".") == 1}
            for name, A in ({"Xtrain": data.Xtrain, "Ttrain": data.Ttrain} | matrices).items():
                say(f"{name} {A.shape}\n{A}")

    def _conclude(self) -> None:
        """Say how training ended."""
        run, say = self.training, self.report.say
        if self.resumed is not None and run.step == self.resumed.run.step:
            say("nothing was left to train")
        if run.is_interrupted:
            say(f"interrupted in epoch {run.epoch + 1}")
        stopping: mg.EarlyStopping | None = self._callback(mg.EarlyStopping)
        if stopping is not None and stopping.best is not None and not run.is_rescued:  # which the warning says
            say(f"kept the model of epoch {stopping.best_epoch}, with validation loss {stopping.best:.4f}")
        if self.M.device not in (None, "cpu"):  # where compiling takes long
            say(f"compiling took {run.history.compilation_seconds:.2f} of the train seconds")
        if self.profile is not None and self.options["timer"] != "disabled":
            say(self.profile.text(self.options["timer"]))

    # -- what is written ----------------------------------------------------------------------
    def _finish(self, results: dict[str, float], started: float) -> None:
        """Write the files that were asked for, and print the last line."""
        options, M, folder = self.options, self.M, self.options["output"]
        M.information = {**M.information, "classes": self.data.classes}
        save = partial(M.save, information={"results": results})
        files: list[tuple[Path | None, Callable[[Path], object]]] = [(options["save_weights"], save)]
        record = self._record(results, started) if folder or options["as_json"] else None  # which hashes the data
        if folder:
            with suppress(OSError):  # reported for its files
                folder.mkdir(exist_ok=True)
            files += [(folder / "model.npz", save), (folder / "run.json", lambda path: write_json(path, record))]
        files.append((options["save_dataset"], partial(datasets.save_npz, self.data)))
        if self.profile is not None:
            files.append((options["trace"], partial(write_json, value=self.profile.trace())))
        problems = [write_or_rescue(path, write) for path, write in files if path is not None]
        if self.checkpoints is not None and self.checkpoints.failure is not None:
            problems.append(f"the last checkpoint could not be written: {self.checkpoints.failure}")
        if options["as_json"]:
            click.echo(as_json(record))
        elif self.report.failure is None:
            echo(f"test {self.metric.replace('rmse', 'RMSE')} {results[f'test_{self.metric}']:.3f}")
        if any(problems):
            raise ValueError("; ".join(filter(None, problems)))
        if self.report.failure is not None:
            raise self.report.failure

    def _record(self, results: dict[str, float], started: float) -> dict[str, Any]:
        """Seed, versions, machine, hash of the data as read, full configuration, epochs, results and times of a run.

        `seconds` are those of the whole run, or of its last part if it was resumed, and in an epoch those of its
        training, with compiling, which took `compilation_seconds` in all, without statistics.
        """
        M, data, training, options = self.M, self.data, self.training, self.options
        return {
            "seed": options["seed"],
            "backend": M.engine,
            "device": M.device or "cpu",
            "matmul": M.matmul,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
            "seconds": round(time.time() - started, 3),
            "compilation_seconds": round(training.history.compilation_seconds, 3),
            "resumed_from": plain(training.resumed_from),
            "interrupted": training.is_interrupted,
            "diverged": training.is_rescued,
            "versions": versions(),
            "machine": machine(),
            "data": {
                "name": data.name,
                "sha256": self.sha256(),
                "training_examples": self._callback(callbacks.Statistics).parts[""].size,  # without those held out
                "test_examples": data.Xtest.shape[0],
                "features": data.input_size,
                "classes": data.classes,
                "normalize": None if M.normalization is None else M.normalization.kind,
                "normalize_targets": None if M.target_normalization is None else M.target_normalization.kind,
            },
            "model": model_specification(M) | {"loss": training.loss.specification()},
            "configuration": {name: plain(value) for name, value in options.items() if name != "resume"},
            "plugins": recorded_plugins(),
            "epochs": training.rows,
            "results": results,
            "timer": [] if self.profile is None else [asdict(row) for row in self.profile.rows(options["timer"])],
        }


def shown(text: str | None) -> set[str]:
    """The matrices to print, of a list such as ``parameters, batches, precision=6``; sets how NumPy prints them."""
    words = {part.strip() for part in (text or "").split(",")} - {""}
    settings = {"precision": 4, "edgeitems": 3}
    for item in words - {*SHOWN}:
        name, _, number = (part.strip() for part in item.partition("="))
        if name not in settings or not number.isdecimal() or not 0 < int(number) <= 1000:
            known = ", ".join([*SHOWN, *(f"{name}=N" for name in settings)])
            raise ValueError(f"--show: expected a list of {known}, found {item!r}")
        settings[name] = int(number)
    np.set_printoptions(**settings, threshold=100)  # type: ignore[arg-type]
    return words & {*SHOWN}
