"""The examples that a saved model is used on: which part of which data, and whether they fit the model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.cli.commands import option
from matgrad.cli.saved_models import class_names, load_data_for
from matgrad.datasets import Dataset
from matgrad.datasets.checking import stacked
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.storage.models import SavedModel

PARTS = ("train", "test", "all")
HELP = "The part of the data to use.  [default: test; of a table to predict without targets, all rows]"
part_option = option("Data", "--part", type=click.Choice(PARTS), help=HELP)


def examples_for(saved: SavedModel, path: Path, options: dict[str, Any]) -> tuple[Any, np.ndarray, Dataset]:
    """X and T of the part that the options name, with classes in the model's numbering, and the data they are from."""
    data = load_data_for(saved, options)
    X, T = part_of(data, options["part"] or "test")
    check_features(saved.model, X, path, data.name)
    names = class_names(saved)
    if data.classes is not None:
        T = _as_classes_of(names, T, data, path)
    elif names is not None:
        raise ValueError(f"{path}: the model distinguishes {len(names)} classes, but {data.name} is for regression")
    show(data.notes)
    return X, T, data


def show(notes: Iterable[str]) -> None:
    """Print what was decided on the data, beside the results."""
    for note in notes:
        click.echo(note, err=True)


def check_features(M: MultilayerPerceptron, X: Any, path: Path, name: str) -> None:
    """Raise if the examples have more or fewer features than the model."""
    D = M.layers[0].input_size
    if X.shape[1] != D:
        raise ValueError(
            f"{path}: the model has {D} features, but {name} has {X.shape[1]}; name its data, such as with --table FILE"
        )


def part_of(data: Dataset, part: str) -> tuple[Any, np.ndarray]:
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
