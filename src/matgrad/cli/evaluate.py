"""`matgrad evaluate` and `matgrad predict`, on saved models."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad import datasets
from matgrad.cli.options import PATH, data_options, load_data, machine_options, move, plugin_option, set_threads
from matgrad.datasets import DataLoader, Normalization
from matgrad.files import atomic_write
from matgrad.loss_functions import create_loss
from matgrad.measures import Measures, measure, predicted_classes
from matgrad.storage import SavedModel, load_model

part_option = click.option(
    "--part", type=click.Choice(["train", "test"]), default="test", show_default=True, help="Which part of the data."
)


@click.command()
@click.argument("model", type=PATH)
@data_options
@part_option
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of generated data.")
@machine_options
@plugin_option
@click.option("--json", "as_json", is_flag=True, help="Print the measures as JSON, and nothing else.")
def evaluate(model: Path, **options: Any) -> None:
    """Measure the saved MODEL: accuracy, loss and confusion matrix, or the errors of a regression.

    The inputs are scaled as they were in training; --normalize is not needed.
    """
    set_threads(options["threads"])
    saved = load_model(model)
    data = load_data(options, options["seed"])
    X, T = (data.Xtrain, data.Ttrain) if options["part"] == "train" else (data.Xtest, data.Ttest)
    check_features(saved, X, model)
    classes = data.classes
    M = move(saved.model, options)
    K = M.layers[-1].output_size
    if classes is not None and K not in (classes, 1) and K < classes:
        raise ValueError(f"{model}: the model has {K} outputs, but the data {data.name} has {classes} classes")
    loader = DataLoader(normalization(saved).apply(X), T, 1000, classes=None if classes is None else K)
    loader.to(M.backend.name, dtype=M.dtype, device=M.device)
    loss = create_loss(saved.information["loss"])
    measures = measure(M, loader, loss)
    values = summary(measures, classes is not None)
    if options["as_json"]:
        if classes is not None:
            values["confusion"] = measures.confusion(K).tolist()
        click.echo(json.dumps(values, indent=2))
        return
    click.echo(f"{model} on the {options['part']} part of {data.name}: {len(X)} examples, loss {loss!r}")
    if classes is not None:
        names = saved.information.get("class_names") or [str(k) for k in range(K)]
        click.echo("\n" + confusion_table(measures.confusion(K), names) + "\n")
    for name, value in values.items():
        click.echo(f"{name} {value:.4f}")


@click.command()
@click.argument("model", type=PATH)
@click.argument("output", type=PATH)
@data_options
@part_option
@click.option("--features", type=PATH, metavar="FILE", help="A CSV file of features alone, without targets.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of generated data.")
@machine_options
@plugin_option
def predict(model: Path, output: Path, **options: Any) -> None:
    """Write what the saved MODEL predicts to OUTPUT, a .csv or .npz file.

    Every row has the predicted class and the outputs of the model, or the outputs alone for a
    regression.
    """
    if output.suffix not in (".csv", ".npz"):
        raise ValueError(f"{output}: expected a file that ends in .csv or .npz")
    set_threads(options["threads"])
    saved = load_model(model)
    if options["features"]:
        X = datasets.csv_features(options["features"])
    else:
        data = load_data(options, options["seed"])
        X = data.Xtrain if options["part"] == "train" else data.Xtest
    check_features(saved, X, model)
    M = move(saved.model, options)
    Y = M.predict(normalization(saved).apply(X))
    classes = predicted_classes(M, Y) if saved.information["classes"] else None
    with atomic_write(output) as file:
        if output.suffix == ".npz":
            np.savez(file, Y=Y) if classes is None else np.savez(file, Y=Y, classes=classes)
        else:
            file.write(_as_csv(Y, classes, saved.information.get("class_names")).encode())
    click.echo(f"{len(Y)} predictions in {output}")


def normalization(saved: SavedModel) -> Normalization:
    """The scaling of the inputs that the model was trained with."""
    return Normalization(saved.information["normalize"], saved.arrays["offset"], saved.arrays["scale"])


def check_features(saved: SavedModel, X: np.ndarray, path: Path) -> None:
    """Refuse data with another number of features than the model has."""
    D = saved.model.layers[0].input_size
    if X.shape[1] != D:
        raise ValueError(f"{path}: the model has {D} features, but the data has {X.shape[1]}")


def summary(measures: Measures, classification: bool) -> dict[str, Any]:
    """The measures to print, by name."""
    if classification:
        return {"loss": measures.loss, "accuracy": measures.accuracy}
    return {"loss": measures.loss, "RMSE": measures.rmse, "MAE": measures.mae, "R2": measures.r2}


def confusion_table(counts: np.ndarray, names: list[str]) -> str:
    """The confusion matrix as text: a row for each true class, a column for each predicted one."""
    width = max(len(str(counts.max())), *map(len, names))
    left = max(len("true"), *map(len, names))
    lines = [f"{'true':>{left}}  predicted", " " * left + "".join(f"  {name:>{width}}" for name in names)]
    for name, row in zip(names, counts, strict=True):
        lines.append(f"{name:>{left}}" + "".join(f"  {count:>{width}}" for count in row))
    return "\n".join(lines)


def _as_csv(Y: np.ndarray, classes: np.ndarray | None, names: list[str] | None) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    headings = [f"y{k}" for k in range(Y.shape[1])]
    writer.writerow(headings if classes is None else ["class", *headings])
    for i, row in enumerate(Y):
        values = [repr(float(y)) for y in row]
        if classes is None:
            writer.writerow(values)
        else:
            writer.writerow([names[classes[i]] if names else int(classes[i]), *values])
    return text.getvalue()
