"""Options that several commands share: the data, the model, the machine, and configuration files."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from matgrad import datasets
from matgrad.backends import BACKENDS
from matgrad.backends.base import DTYPES
from matgrad.datasets import Dataset
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications import load_plugin

F = TypeVar("F", bound=Callable[..., Any])

NUMERIC_BACKENDS = [name for name in BACKENDS if name != "sympy"]
PATH = click.Path(path_type=Path)


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order given."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


data_options = _all(
    click.option("--mnist", type=PATH, metavar="DIR", help="MNIST: a folder with the four IDX files, gzipped or not."),
    click.option("--fashion-mnist", type=PATH, metavar="DIR", help="Fashion-MNIST, likewise."),
    click.option(
        "--cifar10", type=PATH, metavar="PATH", help="CIFAR-10: its folder or tar.gz, binary or Python version."
    ),
    click.option("--load-dataset", type=PATH, metavar="FILE", help="An npz file with Xtrain, Ttrain, Xtest, Ttest."),
    click.option("--csv", type=PATH, metavar="FILE", help="A CSV file; a fifth of its rows is held out for the test."),
    click.option(
        "--target", metavar="COLUMN", help="The target column of the CSV file: name or number.  [default: last]"
    ),
    click.option(
        "--task",
        type=click.Choice(["classification", "regression"]),
        help="What the CSV file is for.  [default: as its target column looks]",
    ),
    click.option(
        "--preprocessed", type=PATH, metavar="DIR", help="A folder with epoch0.npz, epoch1.npz …, one for each epoch."
    ),
    click.option("--generate-dataset", type=click.Choice(["checkerboard", "mini"]), help="Data made on the spot."),
    click.option("--dataset-size", type=click.IntRange(min=1), metavar="N", help="How much to generate."),
    click.option(
        "--normalize",
        type=click.Choice(["none", "unit", "standard"]),
        default="unit",
        show_default=True,
        help="Scale the inputs: not at all, to [0, 1], or to mean 0 and standard deviation 1 by column.",
    ),
)

machine_options = _all(
    click.option("--backend", type=click.Choice(NUMERIC_BACKENDS), default="numpy", show_default=True),
    click.option("--device", metavar="NAME", help="Where the backend computes, such as cuda or cpu."),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True),
    click.option("--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads to use.  [default: all]"),
)


def _plugins(ctx: click.Context, parameter: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    for file in files:
        load_plugin(file)
    return files


plugin_option = click.option(
    "--plugin",
    type=PATH,
    multiple=True,
    metavar="FILE",
    is_eager=True,
    callback=_plugins,
    help="A Python file whose own layers, activation functions and losses become usable by name.",
)


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Let a configuration file give the defaults of the options."""
    if path is None:
        return None
    known = {p.name: p for p in ctx.command.params if isinstance(p, click.Option) and p.name != "config"}
    values = {str(key).replace("-", "_"): value for key, value in _read_configuration(path).items()}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{path}: unknown option {name!r}; known: {', '.join(sorted(known))}")
        if isinstance(value, list) and not known[name].multiple:
            values[name] = ";".join(map(str, value))
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def _read_configuration(path: Path) -> dict[str, Any]:
    """The table in a TOML, YAML or JSON file."""
    try:
        text = path.read_text()
        if path.suffix == ".toml":
            content = tomllib.loads(text)
        elif path.suffix == ".json":
            content = json.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            try:
                content = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(str(error).replace("\n", " ")) from None
        else:
            raise ValueError("expected a file that ends in .toml, .yaml, .yml or .json")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    return content


config_option = click.option(
    "--config",
    type=PATH,
    metavar="FILE",
    is_eager=True,
    callback=_configuration,
    help="A TOML, YAML or JSON file with values of these options; the command line has precedence.",
)


def load_data(options: dict[str, Any], seed: int) -> Dataset:
    """The data set that the options name, not normalized yet; the embedded digits where they name none."""
    sources = ("mnist", "fashion_mnist", "cifar10", "load_dataset", "csv", "preprocessed", "generate_dataset")
    given = [name for name in sources if options[name] is not None]
    if len(given) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"{flags}: expected one data set")
    if options["csv"] is None and (options["target"] or options["task"]):
        raise ValueError("--target and --task belong to --csv")
    if options["generate_dataset"] is None and options["dataset_size"]:
        raise ValueError("--dataset-size belongs to --generate-dataset")
    if not given:
        return datasets.digits()
    (name,) = given
    value = options[name]
    if name == "generate_dataset":
        make = {"checkerboard": datasets.checkerboard, "mini": datasets.mini}[value]
        size = {"size": options["dataset_size"]} if options["dataset_size"] else {}
        return make(seed=seed, **size)
    if name == "csv":
        return datasets.csv(value, target=options["target"], task=options["task"])
    readers = {
        "mnist": datasets.mnist,
        "fashion_mnist": datasets.fashion_mnist,
        "cifar10": datasets.cifar10,
        "load_dataset": datasets.npz,
        "preprocessed": lambda folder: datasets.preprocessed(folder)[0],
    }
    return readers[name](value)


def set_threads(threads: int | None) -> None:
    """Limit the threads of the libraries that are loaded, and of those that will be."""
    if threads is None:
        return
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ[name] = str(threads)
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
        " --xla_cpu_multi_thread_eigen=false" if threads == 1 else ""
    )


def move(M: MultilayerPerceptron, options: dict[str, Any]) -> MultilayerPerceptron:
    """The model on the backend, with the dtype and on the device that the options name."""
    if options["backend"] == "jax" and options["dtype"] == "float64":
        import importlib

        importlib.import_module("jax").config.update("jax_enable_x64", True)
    return M.to(options["backend"], dtype=options["dtype"], device=options["device"])
