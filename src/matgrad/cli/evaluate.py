"""`matgrad evaluate` and `matgrad predict`, on saved models."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.cli.examples import PARTS, check_features, examples_for, part_of, part_option, seed_option, show
from matgrad.cli.files import READS, WRITES
from matgrad.cli.groups import GroupedCommand, option
from matgrad.cli.options import (
    data_options,
    data_sources,
    machine_options,
    move,
    plugin_option,
)
from matgrad.cli.saved_models import class_names, load_data_for
from matgrad.datasets import DataLoader
from matgrad.datasets.tables import read_features
from matgrad.evaluation.measures import Measures, measure, predicted_classes, probabilities
from matgrad.foundation.machine import set_threads
from matgrad.foundation.writing import as_json as as_json_text
from matgrad.foundation.writing import atomic_write, write_or_rescue
from matgrad.storage.models import SavedModel, load_model


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
    targets as they were scaled in training. The columns of a table are found by their names.
    """
    set_threads(options["threads"])
    saved = load_model(model)
    X, T, data = examples_for(saved, model, options)
    names = class_names(saved)
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
@option(
    "Data",
    "--part",
    type=click.Choice(PARTS),
    help="The part of the data to use; all is the training part, then the test part.  [default: of a table, which "
    "needs no targets, all rows in their order; else test]",
)
@seed_option
@machine_options
@plugin_option
def predict(model: Path, output: Path, **options: Any) -> None:
    """Write what the saved MODEL predicts to OUTPUT, a .csv or .npz file.

    Each row has the predicted class and the probabilities of all classes or, for a regression, the prediction. The
    columns of a table are found by their names, in any order; others are ignored.
    """
    if output.suffix not in (".csv", ".npz"):
        raise ValueError(f"{output}: expected a file that ends in .csv or .npz")
    set_threads(options["threads"])
    saved = load_model(model)
    if options["part"] is None and [*data_sources(options).values()] == ["table"]:
        if len(options["table"]) > 1 or options["target"] or options["task"]:
            raise ValueError("--table with a test file, --target or --task: expected --part beside it")
        name = str(options["table"][0])
        X, notes = read_features(name, like=saved.model.features)
    else:
        data = load_data_for(saved, options)
        (X, _), notes, name = part_of(data, options["part"] or "test"), list(data.notes), data.name
    check_features(saved.model, X, model, name)
    show(notes)
    M = move(saved.model, options)
    with np.errstate(all="ignore"):  # an overflow raises below
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
        """The predictions of a saved model from its outputs Y."""
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
