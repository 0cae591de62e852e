"""`matgrad evaluate`, `predict` and `sample`, on saved models."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.cli import examples
from matgrad.cli.commands import READS, Command, Writes, all_of, echo, echo_json, json_option, option
from matgrad.cli.options import SEED, TEMPERATURE, data_options, machine_options, move, plugin_option, seed_option
from matgrad.datasets.tables import read_features
from matgrad.evaluation.measures import measure, predicted_classes, probabilities
from matgrad.foundation.machine import set_threads
from matgrad.foundation.writing import Table, atomic_write, csv_cell, visible, write_or_rescue
from matgrad.loss_functions import default_loss

saved_options = all_of(data_options, examples.part_option, seed_option, machine_options, plugin_option)


@click.command(cls=Command)
@click.argument("model", type=READS)
@saved_options
@json_option
def evaluate(model: Path, as_json: bool, **options: Any) -> None:
    """Measure the saved MODEL: accuracy, loss and confusion matrix, the errors of a regression, or perplexity.

    The inputs are scaled as they were in training; errors are in the units of the data, and the loss is that of the
    targets as they were scaled in training. The columns of a table are found by their names.
    """
    set_threads(options["threads"])
    M = mg.load(model)
    X, T, data = examples.examples_for(M, model, options)
    names, loss = examples.class_names(M), default_loss(M)
    move(M, options)
    loader = mg.DataLoader(M.normalize(X), M.normalize_targets(T), 1000, classes=M.layers[-1].output_size)
    measures = measure(M, loader.to(M.backend.name, dtype=M.dtype, device=M.device), loss)
    values: dict[str, Any] = {"loss": measures.loss}
    if names is None:
        values |= {"RMSE": measures.rmse, "MAE": measures.mae, "R2": measures.r2}
    elif loss.has_tokens:
        values |= {"perplexity": measures.perplexity, "accuracy": measures.accuracy}
    else:
        values |= {"accuracy": measures.accuracy, "confusion": measures.confusion(len(names)).tolist()}
    if as_json:
        echo_json(values)
        return
    what = f"{X.shape[0]} examples, loss {loss.specification()}"
    echo(f"{model} on the {options['part'] or 'test'} part of {data.name}: {what}")
    if "confusion" in values and names is not None:
        cells = [
            ["true", *names],
            *([name, *map(str, row)] for name, row in zip(names, values.pop("confusion"), strict=True)),
        ]
        echo(Table("\npredicted", cells[0], cells[1:]).text() + "\n")
    for name, value in values.items():
        echo(f"{name} {value:.4f}")


@click.command(cls=Command)
@click.argument("model", type=READS)
@click.argument("output", type=Writes(".csv", ".npz"))
@saved_options
def predict(model: Path, output: Path, **options: Any) -> None:
    """Write what the saved MODEL predicts to OUTPUT, a .csv or .npz file.

    Each row has the predicted class and the probabilities of all classes or, for a regression, the prediction. The
    columns of a table are found by their names, in any order; others are ignored.
    """
    set_threads(options["threads"])
    M = mg.load(model)
    if default_loss(M).has_tokens:
        raise ValueError(f"{model}: a model of a text, which `matgrad sample` writes with")
    if options["part"] is None and examples.given_sources(options) == ["table"]:
        if len(options["table"]) > 1 or options["target"] or options["task"]:
            raise ValueError("--table with a test file, --target or --task: expected --part beside it")
        name = str(options["table"][0])
        X, notes = read_features(name, like=M.features, dtype=M.dtype)
    else:
        data = examples.load_data(options, M)
        (X, _), notes, name = examples.part_of(data, options["part"] or "test"), list(data.notes), data.name
    examples.check_features(M, X, model, name)
    for note in notes:
        echo(note, err=True)
    move(M, options)
    with np.errstate(all="ignore"):  # an overflow raises below
        Y = M.predict(X)
    if not (is_finite := np.isfinite(Y).all(axis=1)).all():
        raise ValueError(f"{model}: the prediction for example {int(np.argmin(is_finite)) + 1} is not a finite number")
    arrays, table = predictions(M, Y)
    writer = csv.writer(text := io.StringIO(), lineterminator="\n")
    writer.writerows([csv_cell(x) if isinstance(x, str) else x for x in row] for row in table)

    def write(path: Path) -> None:
        with atomic_write(path) as file:
            if path.suffix == ".npz":
                np.savez(file, **arrays)  # type: ignore[arg-type]
            else:
                file.write(text.getvalue().encode())

    if problem := write_or_rescue(output, write):
        raise ValueError(problem)
    echo(f"{len(Y)} predictions in {visible(output)}")


def predictions(M: mg.MultilayerPerceptron, Y: np.ndarray) -> tuple[dict[str, np.ndarray], list[list[Any]]]:
    """The outputs Y of a model as the arrays of an npz file, and as a table.

    The table has a heading, then one row per example: its class and the probabilities (or outputs), or its outputs.
    """
    names, target = examples.class_names(M), None if M.features is None else M.features.target.name
    if names is None:
        title = target or "prediction"
        names = [title] if Y.shape[1] == 1 else [f"{title}{k}" for k in range(1, Y.shape[1] + 1)]
        return {"Y": Y, "names": np.array(names)}, [names, *Y.astype(float).tolist()]
    classes, P = predicted_classes(M, Y), probabilities(M, Y, default_loss(M))
    A, letter = (Y, "y") if P is None else (P, "p")
    columns = names if A.shape[1] == len(names) else names[-1:]
    rows = [[names[k], *row] for k, row in zip(classes, A.astype(float).tolist(), strict=True)]
    arrays = {"Y": Y, "classes": classes, **({} if P is None else {"P": P}), "names": np.array(names)}
    return arrays, [[target or "class", *(f"{letter}({name})" for name in columns)], *rows]


@click.command(cls=Command)
@click.argument("model", type=READS)
@option("Output", "--prompt", default="\n", metavar="TEXT", help="What the text begins with.")
@option("Output", "--length", type=click.IntRange(min=0), default=500, metavar="N", help="Characters to write.")
@option("Output", "--temperature", type=TEMPERATURE, default=0.8, metavar="T", help="0: always the most probable one.")
@option("Output", "--seed", type=SEED, metavar="N", help="Of the draws.  [default: another one each time]")
@machine_options
def sample(model: Path, prompt: str, **options: Any) -> None:
    """Write the PROMPT, and how MODEL, which `matgrad train --text` has trained, continues it.

    MODEL is a model file or a checkpoint.
    """
    set_threads(options["threads"])
    M = move(mg.load(model), options)
    settings = {name: options[name] for name in ("length", "temperature", "seed")}
    echo(prompt + M.sample(prompt, **settings))
