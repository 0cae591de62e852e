"""`matgrad evaluate` and `matgrad predict`, on saved models."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.cli.files import READS, WRITES
from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import (
    SEED,
    data_options,
    data_sources,
    machine_options,
    move,
    plugin_option,
)
from matgrad.cli.saved_models import class_names, load_data_for
from matgrad.cli.table_options import check_table_options
from matgrad.datasets import DataLoader, Dataset
from matgrad.datasets.checking import stacked
from matgrad.datasets.tables import read_features
from matgrad.evaluation.measures import Measures, measure, predicted_classes, probabilities
from matgrad.foundation.files import as_json as as_json_text
from matgrad.foundation.machine import set_threads
from matgrad.foundation.writing import atomic_write, write_or_rescue
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.storage.models import SavedModel, load_model

part_option = option(
    "Data",
    "--part",
    type=click.Choice(["train", "test", "all"]),
    default="test",
    help="The part of the data to use; all is the training part, then the test part.",
)
seed_option = option("Data", "--seed", type=SEED, default=0, help="The seed of generated data.")


@click.command(cls=GroupedCommand, short_help="Measure a saved model.")
@click.argument("model", type=READS)
@data_options
@part_option
@seed_option
@machine_options
@plugin_option
@option("Output", "--json", "as_json", is_flag=True, help="Print the measures as JSON, and nothing else.")
def evaluate(model: Path, **options: Any) -> None:
    """Measure the saved MODEL: accuracy, loss and confusion matrix, or the errors of a regression.

    The inputs are scaled as they were in training; errors are in the units of the data, and the loss is that of the
    targets as they were scaled in training. The columns of a CSV file are found by their names.
    """
    set_threads(options["threads"])
    saved = load_model(model)
    data = load_data_for(saved, options)
    X, T = _examples(data, options["part"])
    _check_features(saved.model, X, model)
    names = class_names(saved)
    if data.classes is not None:
        T = _as_classes_of(names, T, data, model)
    elif names is not None:
        raise ValueError(f"{model}: the model distinguishes {len(names)} classes, but {data.name} is for regression")
    _show(data.notes)
    M = move(saved.model, options)
    loader = DataLoader(M.normalize(X), M.normalize_targets(T), 1000, classes=M.layers[-1].output_size)
    loader.to(M.backend.name, dtype=M.dtype, device=M.device)
    loss = saved.loss
    measures = measure(M, loader, loss)
    values = summary(measures, names is not None)
    if options["as_json"]:
        confusion = {} if names is None else {"confusion": measures.confusion(len(names)).tolist()}
        click.echo(as_json_text(values | confusion))
        return
    what = f"{X.shape[0]} examples, loss {loss.specification()}"
    click.echo(f"{model} on the {options['part']} part of {data.name}: {what}")
    if names is not None:
        click.echo("\n" + confusion_table(measures.confusion(len(names)), names) + "\n")
    for name, value in values.items():
        click.echo(f"{name} {value:.4f}")


@click.command(cls=GroupedCommand, short_help="Write what a saved model predicts.")
@click.argument("model", type=READS)
@click.argument("output", type=WRITES)
@data_options
@part_option
@option(
    "Data", "--features", type=READS, metavar="FILE", help="A CSV file, with or without targets: predict for each line."
)
@seed_option
@machine_options
@plugin_option
def predict(model: Path, output: Path, **options: Any) -> None:
    """Write what the saved MODEL predicts to OUTPUT, a .csv or .npz file.

    Each row has the predicted class and the probabilities of all classes or, for a regression, the prediction. The
    columns of a CSV file are found by their names, in any order; others are ignored.
    """
    if output.suffix not in (".csv", ".npz"):
        raise ValueError(f"{output}: expected a file that ends in .csv or .npz")
    set_threads(options["threads"])
    saved = load_model(model)
    if options["features"]:
        if given := data_sources(options):
            raise ValueError(f"--features and {' and '.join(given)}: expected one data set")
        check_table_options(options, "features")
        X, notes = read_features(options["features"], like=saved.model.features)
    else:
        data = load_data_for(saved, options)
        (X, _), notes = _examples(data, options["part"]), list(data.notes)
    _check_features(saved.model, X, model)
    _show(notes)
    M = move(saved.model, options)
    with np.errstate(all="ignore"):  # what overflows is refused
        Y = M.predict(X)
    if not (is_finite := np.isfinite(Y).all(axis=1)).all():
        raise ValueError(f"{model}: the prediction for example {int(np.argmin(is_finite)) + 1} is not a finite number")
    predictions = Predictions.of(saved, Y)
    if problem := write_or_rescue(output, predictions.write):
        raise ValueError(problem)
    click.echo(f"{len(Y)} predictions in {output}")


@dataclass
class Predictions:
    """The outputs Y of a model with the names of their columns and, of a classifier, the classes and probabilities.

    `title` is the name of the target.
    """

    Y: np.ndarray
    title: str
    names: list[str]
    classes: np.ndarray | None = None
    P: np.ndarray | None = None

    @classmethod
    def of(cls, saved: SavedModel, Y: np.ndarray) -> Predictions:
        """What the outputs Y of a saved model stand for."""
        M, names = saved.model, class_names(saved)
        target = None if M.features is None else M.features.target.name
        if names is not None:
            title = "class" if target is None else target
            return cls(Y, title, names, predicted_classes(M, Y), probabilities(M, Y, saved.loss))
        title, K = "prediction" if target is None else target, Y.shape[1]
        return cls(Y, title, [title] if K == 1 else [f"{title}{k}" for k in range(1, K + 1)])

    def write(self, path: Path) -> None:
        """Write an npz file or, if its name does not say so, a CSV file."""
        with atomic_write(path) as file:
            if path.suffix == ".npz":
                np.savez(file, **self.arrays())  # type: ignore[arg-type]
            else:
                file.write(self.as_csv().encode())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of an npz file."""
        content = {"Y": self.Y, "classes": self.classes, "P": self.P, "names": np.array(self.names)}
        return {name: A for name, A in content.items() if A is not None}

    def as_csv(self) -> str:
        """A heading, then one row per example: its class and the probabilities (or outputs), or its outputs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        A, letter = (self.Y, "y") if self.P is None else (self.P, "p")
        rows = ([repr(float(x)) for x in row] for row in A)
        if self.classes is None:
            writer.writerow(self.names)
            writer.writerows(rows)
        else:
            names = self.names if A.shape[1] == len(self.names) else self.names[-1:]
            writer.writerow([self.title, *(f"{letter}({name})" for name in names)])
            writer.writerows([self.names[k], *row] for k, row in zip(self.classes, rows, strict=True))
        return text.getvalue()


def _show(notes: Iterable[str]) -> None:
    """Print what was decided on the data, beside the results."""
    for note in notes:
        click.echo(note, err=True)


def _check_features(M: MultilayerPerceptron, X: Any, path: Path) -> None:
    """Refuse examples that do not have as many features as the model."""
    D = M.layers[0].input_size
    if X.shape[1] != D:
        raise ValueError(f"{path}: the model has {D} features, but the data has {X.shape[1]}")


def _examples(data: Dataset, part: str) -> tuple[Any, np.ndarray]:
    """X and T of a part of the data."""
    if part == "all":
        return stacked(data.Xtrain, data.Xtest), np.concatenate([data.Ttrain, data.Ttest])
    return (data.Xtrain, data.Ttrain) if part == "train" else (data.Xtest, data.Ttest)


def _as_classes_of(names: list[str] | None, T: np.ndarray, data: Dataset, path: Path) -> np.ndarray:
    """The class indices T in the model's own numbering, where `names` are the names of its classes."""
    if names is None:
        raise ValueError(f"{path}: the model is for regression, but {data.name} has {data.classes} classes")
    own = [str(k) for k in range(data.classes or 0)] if data.class_names is None else list(data.class_names)
    used = [own[k] for k in np.unique(T)]
    if unknown := [name for name in used if name not in names]:
        raise ValueError(
            f"{path}: the model does not know the class {unknown[0]!r} of {data.name}; it knows {', '.join(names)}"
        )
    number = {k: names.index(name) for k, name in enumerate(own) if name in names}
    return np.array([number[k] for k in T.tolist()], dtype=np.int64)


def summary(measures: Measures, classification: bool) -> dict[str, Any]:
    """The measures to print, by name."""
    if classification:
        return {"loss": measures.loss, "accuracy": measures.accuracy}
    return {"loss": measures.loss, "RMSE": measures.rmse, "MAE": measures.mae, "R2": measures.r2}


def confusion_table(counts: np.ndarray, names: list[str]) -> str:
    """The confusion matrix as a string: one row per true class, one column per predicted class."""
    width = max(len(str(counts.max())), *map(len, names))
    left = max(len("true"), *map(len, names))
    lines = [f"{'true':>{left}}  predicted", " " * left + "".join(f"  {name:>{width}}" for name in names)]
    for name, row in zip(names, counts, strict=True):
        lines.append(f"{name:>{left}}" + "".join(f"  {count:>{width}}" for count in row))
    return "\n".join(lines)
