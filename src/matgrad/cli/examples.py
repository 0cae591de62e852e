"""The data that options name, and the examples among them that a saved model is used on."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad import datasets
from matgrad.cli.commands import echo, option
from matgrad.cli.options import TEXTS, contradiction, flag
from matgrad.datasets import Dataset
from matgrad.datasets.checking import stacked
from matgrad.specifications.parsing import create, lookup

READERS: dict[str, Callable[..., Dataset]] = {  # of the data sets that need their place and maybe a dtype
    "mnist": lambda place, dtype: datasets.mnist(place),  # bytes
    "fashion_mnist": lambda place, dtype: datasets.fashion_mnist(place),
    "cifar10": lambda place, dtype: datasets.cifar10(place),
    "load_dataset": lambda file, dtype: datasets.npz(file, dtype=dtype),
    "preprocessed": lambda folder, dtype: datasets.preprocessed(folder, dtype=dtype)[0],
}
GENERATED = {"checkerboard": datasets.checkerboard, "mini": datasets.mini}
SOURCES = (
    *READERS,
    "table",
    "svmlight",
    "text",
    "generate_dataset",
)  # the options that name data, of which one is given

# what a specification of features may have, and the arguments of `datasets.table`
FEATURES = {key: key for key in ("columns", "categorical", "missing", "unknown")} | {"drop": "drop_columns"}

PARTS = ("train", "test", "all")
HELP = "The part of the data to use.  [default: test; of a table to predict without targets, all rows]"
part_option = option("Data", "--part", type=click.Choice(PARTS), help=HELP)


def given_sources(options: dict[str, Any]) -> list[str]:
    """The options that name data."""
    return [name for name in SOURCES if options[name] is not None]


def load_data(options: dict[str, Any], M: mg.MultilayerPerceptron | None = None) -> Dataset:
    """The data set that the options name, not yet normalized; the embedded digits if they name none.

    For a saved model M, a table has its features and, unless the options name another, its target and its task; an
    svmlight file has its task, and the number and the first index of its features. Numbers have the type of the model.
    """
    given = given_sources(options)
    if len(given) > 1:
        raise ValueError(f"{' and '.join(map(flag, given))}: expected one data set")
    name = given[0] if given else ""
    for_tables = {"table": (), "svmlight": ("target", "features")}.get(name, ("target", "task", "features"))
    if wrong := [flag(x) for x in for_tables if options.get(x) is not None]:
        raise ValueError(f"{' and '.join(wrong)} need{'s' if len(wrong) == 1 else ''} --table")
    if not given:
        return datasets.digits()
    value, dtype = options[name], options.get("dtype") or ("float32" if M is None else M.dtype)
    if name == "generate_dataset":
        return create(value, GENERATED, "--generate-dataset", seed=options["seed"])
    if name in READERS:
        return READERS[name](value, dtype)
    file, test = [*value, None][:2]
    if name == "text":
        context = datasets.CONTEXT if M is None else M.layers[0].input_size
        vocabulary = None if M is None else "".join(class_names(M) or ())
        (file, settings), (test, _) = TEXTS.split(file), (0.1, {}) if test is None else TEXTS.split(test)
        return datasets.text(file, **{"context": context} | settings, test=test, vocabulary=vocabulary)
    how: dict[str, Any] = {"task": options["task"], "test": test, "dtype": dtype}
    if M is not None and how["task"] is None and ("classes" in M.information or M.target_normalization is not None):
        how["task"] = "regression" if class_names(M) is None else "classification"
    if name == "svmlight":
        if M is not None:
            how |= {"first_index": M.information.get("first_index"), "features": M.layers[0].input_size}
        return datasets.svmlight(file, **how)
    like, chosen = None if M is None else M.features, options.get("features")
    columns = {"like": like} if chosen is None else parse_features(chosen)
    data = datasets.table(file, target=options["target"], **how, **columns)
    if chosen is not None and like is not None and data.features is not None:
        found, known = ([(x.name, x.categories) for x in features.columns] for features in (data.features, like))
        if found != known:
            raise contradiction("features", options, f"the features {', '.join(map(str, like.columns))}")
    return data


def parse_features(text: str) -> dict[str, Any]:
    """The arguments of `datasets.table` in a specification such as ``drop=id,name; missing=median``."""
    found: dict[str, Any] = {}
    for item in text.split(";"):
        key, _, value = (part.strip() for part in item.partition("="))
        if lookup(key, FEATURES, "part of --features") in found:
            raise ValueError(f"--features {text!r}: {key!r} is there twice")
        rows = [*csv.reader(io.StringIO(value, newline=""), skipinitialspace=True)]
        names = [name.strip() for name in rows[0]] if len(rows) == 1 else []
        if not names or "" in names:
            raise ValueError(f"--features {text!r}: {key}: found {value!r}, expected names separated by commas")
        is_list = key in ("columns", "drop") or (key == "categorical" and value != "auto")
        found[FEATURES[key]] = names if is_list else value
    return found


def random_examples(M: mg.MultilayerPerceptron, loss: mg.LossFunction, N: int, rng: Any) -> tuple[Any, Any]:
    """Normal X, or labels, and T with random classes, of which every one occurs if N is large enough."""
    D, K = M.layers[0].input_size, M.layers[-1].output_size
    V = getattr(M.layers[0], "V", None)
    X = rng.normal(size=(N, D)) if V is None else rng.integers(V, size=(N, D)).astype(np.float64)
    if loss.has_tokens:
        return X, rng.integers(K // D, size=(N, D))
    t = rng.permutation(np.arange(N) % max(K, 2))
    return X, np.asarray(mg.one_hot(t, K)) if K > 1 else t[:, None].astype(np.float64)


# -- examples for a saved model -------------------------------------------------------------------


def examples_for(M: mg.MultilayerPerceptron, path: Path, options: dict[str, Any]) -> tuple[Any, np.ndarray, Dataset]:
    """X and T of the part that the options name, with classes in the model's numbering, and the data they are from."""
    data, names = load_data(options, M), class_names(M)
    X, T = part_of(data, options["part"] or "test")
    check_features(M, X, path, data.name)
    if data.classes is not None and names is None:
        raise ValueError(f"{path}: the model is for regression, but {data.name} has {data.classes} classes")
    if data.classes is None and names is not None:
        raise ValueError(f"{path}: the model distinguishes {len(names)} classes, but {data.name} is for regression")
    if data.classes is not None and names is not None:
        own = data.class_names or [str(k) for k in range(data.classes)]
        used, rows = np.unique(T, return_inverse=True)
        if unknown := [own[k] for k in used if own[k] not in names]:
            message = f"the model does not know the class {unknown[0]!r} of {data.name}; it knows {', '.join(names)}"
            raise ValueError(f"{path}: {message}")
        T = np.array([names.index(own[k]) for k in used], dtype=np.int64)[rows]
    for note in data.notes:
        echo(note, err=True)
    return X, T, data


def check_features(M: mg.MultilayerPerceptron, X: Any, path: Path, name: str) -> None:
    """Raise if the examples have more or fewer features than the model."""
    if X.shape[1] != (D := M.layers[0].input_size):
        found = f"the model has {D} features, but {name} has {X.shape[1]}"
        raise ValueError(f"{path}: {found}; name its data, such as with --table FILE")


def part_of(data: Dataset, part: str) -> tuple[Any, np.ndarray]:
    """X and T of a part of the data."""
    if part == "all":
        return stacked(data.Xtrain, data.Xtest), np.concatenate([data.Ttrain, data.Ttest])
    return (data.Xtrain, data.Ttrain) if part == "train" else (data.Xtest, data.Ttest)


def class_names(M: mg.MultilayerPerceptron) -> list[str] | None:
    """The names of the model's classes, or their numbers if they have no names; None for a regression.

    A model that was not saved by `matgrad train`, and does not normalize its targets, has one class per output.
    """
    classes = M.information.get("classes", max(M.layers[-1].output_size, 2))
    if M.target_normalization is not None or classes is None:
        return None
    return [str(name) for name in M.information.get("class_names") or range(classes)]
