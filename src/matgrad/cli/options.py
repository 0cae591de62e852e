"""Options that several commands share: data, plugins, engine and configuration files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from matgrad import datasets
from matgrad.backends import BACKENDS, get_backend
from matgrad.backends.base import DTYPES, MATMULS
from matgrad.cli.files import CIFAR10, MNIST, READS, Reads, ReadsFiles, Writes
from matgrad.cli.groups import all_of, option
from matgrad.cli.renamed import renaming
from matgrad.cli.table_options import check_table_options, flag, given_table_options, target_options
from matgrad.datasets import Dataset, Features
from matgrad.datasets.normalization import KINDS
from matgrad.foundation.files import read_plain_values
from matgrad.foundation.limits import FLOAT32, THREADS
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.parsing import create
from matgrad.specifications.plugins import load_plugin

Value = bool | int | float | str | None  # of an option in a configuration file, which may also have lists of them
REPEATED = "matgrad.repeated"  # in a context: the record that --config repeats, and the hash of its data
NUMERIC_BACKENDS = [name for name in BACKENDS if name != "sympy"]
TINY = 1e-37  # a number that float32 does not round to 0


class _Finite(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, if it is finite."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE = _Finite(min=TINY, max=FLOAT32)
NOT_NEGATIVE = _Finite(min=0, max=FLOAT32)
COUNT = click.IntRange(1, 2**31 - 1)
SEED = click.IntRange(0, 2**32 - 1)
SCALING = click.Choice(KINDS)
BACKEND = click.Choice(["auto", *NUMERIC_BACKENDS])
EPOCHS = Reads("epoch*.npz")
READERS: dict[str, Callable[[Path], Dataset]] = {  # of the data sets that need nothing but their place
    "mnist": datasets.mnist,
    "fashion_mnist": datasets.fashion_mnist,
    "cifar10": datasets.cifar10,
    "load_dataset": datasets.npz,
    "preprocessed": lambda folder: datasets.preprocessed(folder)[0],
}

data_options = all_of(
    option("Data", "--mnist", type=Reads(*MNIST), metavar="DIR", help="MNIST: the folder of its four IDX files."),
    option("Data", "--fashion-mnist", type=Reads(*MNIST), metavar="DIR", help="Fashion-MNIST, likewise."),
    option("Data", "--cifar10", type=Reads(*CIFAR10), metavar="PATH", help="CIFAR-10: its binary tar.gz, or a folder."),
    option("Data", "--load-dataset", type=READS, metavar="FILE", help="An npz file with Xtrain, Ttrain, Xtest, Ttest."),
    option(
        "Data",
        "--table",
        type=ReadsFiles(),
        metavar="FILE[;TEST]",
        help="A CSV, Parquet or Arrow file; without TEST, a fifth of its rows is held out.",
    ),
    target_options,
    option("Data", "--svmlight", type=ReadsFiles(), metavar="FILE[;TEST]", help="An svmlight (libsvm) file, likewise."),
    option("Data", "--preprocessed", type=EPOCHS, metavar="DIR", help="A folder with epoch0.npz, epoch1.npz …"),
    option("Data", "--generate-dataset", metavar="NAME", help="checkerboard(1000) or mini(1000): generated examples."),
)

normalize_options = all_of(
    option(
        "Data",
        "--normalize",
        type=SCALING,
        default="unit",
        help="Scale inputs to [0, 1], or to mean 0 and deviation 1.",
    ),
    option(
        "Data",
        "--normalize-targets",
        hidden=True,
        type=SCALING,
        help="Scale the targets of a regression, for training and its loss.  [default: standard after a linear layer, "
        "with a squared error or Huber as loss; else none]",
    ),
)

dtype_option = option("Engine", "--dtype", type=click.Choice(DTYPES), help="[default: of the model, or float32]")

machine_options = all_of(
    option("Engine", "--backend", type=BACKEND, default="auto", help="auto: the C++ core if it is built, else NumPy."),
    option("Engine", "--device", metavar="NAME", help="cpu, cuda, cuda:1 …, or auto; without --backend on PyTorch."),
    dtype_option,
    option(
        "Engine",
        "--matmul",
        hidden=True,
        type=click.Choice(MATMULS),
        default=MATMULS[0],
        help="How float32 matrices are multiplied; tf32 and bf16 round the factors, on GPUs alone.",
    ),
    option("Engine", "--threads", type=click.IntRange(1, THREADS), metavar="N", help="CPU threads.  [default: all]"),
)


def _plugins(ctx: click.Context, parameter: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    for file in files:
        load_plugin(file)
    return files


plugin_option = option(
    "Model",
    "--plugin",
    type=READS,
    multiple=True,
    metavar="FILE",
    is_eager=True,
    callback=_plugins,
    help="A Python file with your own layers, activations, losses … to use by name.",
)


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the values in a configuration file as the defaults of the options."""
    if path is None:
        return None
    content = read_plain_values(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    options = [p for p in ctx.command.params if isinstance(p, click.Option) and p.name != "config"]
    if isinstance(content.get("configuration"), dict):  # the record of a run, which is repeated but not overwritten
        written = [p.name for p in options if isinstance(p.type, Writes)]
        data = content.get("data")
        ctx.meta[REPEATED] = (path, data.get("sha256") if isinstance(data, dict) else None)
        content = {key: value for key, value in content["configuration"].items() if key not in (*written, "overwrite")}
    known = {p.opts[-1].removeprefix("--").replace("-", "_"): p for p in options} | {str(p.name): p for p in options}
    values: dict[str, Any] = {}
    for key, value in content.items():
        _check_plain(key, value, path)
        name = str(key).replace("-", "_")
        if name == "config" or value is None:
            continue  # so that the configuration of a run can be used as it is
        if name not in known:
            unknown = f"unknown option {str(key)!r}; known: {', '.join(sorted(known))}"
            raise ValueError(f"{path}: {renaming(name) or unknown}")
        if (target := str(known[name].name)) in values:
            raise ValueError(f"{path}: {key!r} is given twice, under another name")
        if isinstance(value, bool) and not known[name].is_flag:
            raise ValueError(f"{path}: {key}: got a boolean, {value}, expected a number or a word in quotes")
        values[target] = as_given(value, known[name].multiple)
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def _check_plain(key: Any, value: Any, path: Path) -> None:
    """Raise if an option cannot have a name or a value, such as a table or a date."""
    items = value if isinstance(value, list) else [value]
    if wrong := [x for x in (key, *items) if not isinstance(x, Value)]:
        found = type(wrong[0]).__name__
        raise ValueError(f"{path}: {str(key)!r}: expected a number, a word or a list of them, found {found}")


def as_given(value: Any, multiple: bool) -> Any:
    """A value of a configuration file as it would be on the command line; a list is joined by semicolons."""
    if multiple:
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, list):
        return ";".join(map(str, value))
    return value if isinstance(value, bool) else str(value)


config_option = option(
    "Other",
    "--config",
    type=READS,
    metavar="FILE",
    is_eager=True,
    callback=_configuration,
    help="TOML, YAML or JSON with values of options, or the run.json of a run, to repeat it.",
)


def data_sources(options: dict[str, Any]) -> dict[str, str]:
    """The flags of the data sets that the options name, with the names of those options."""
    known = (*READERS, "table", "svmlight", "generate_dataset")
    return {flag(name): name for name in known if options[name] is not None}


def load_data(
    options: dict[str, Any],
    seed: int,
    like: Features | None = None,
    task: str | None = None,
    indices: Mapping[str, Any] = MappingProxyType({}),
) -> Dataset:
    """The data set that the options name, not yet normalized; the embedded digits if they name none.

    A table has the features and, unless the options name another, the target and the task of the model; an
    svmlight file has its task, and the number and the first index of its features, which are in `indices`.
    """
    given = data_sources(options)
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: expected one data set")
    check_table_options(options, next(iter(given.values()), None))
    if not given:
        return datasets.digits()
    (name,) = given.values()
    value = options[name]
    if name == "generate_dataset":
        known = {"checkerboard": datasets.checkerboard, "mini": datasets.mini}
        return create(value, known, "--generate-dataset", seed=seed)
    if name in ("table", "svmlight"):
        how: dict[str, Any] = {"task": task, "test": value[1] if len(value) > 1 else None}
        how |= given_table_options(options)
        if name == "svmlight":
            return datasets.svmlight(value[0], **how, **indices)
        return datasets.table(value[0], **how, like=like)
    return READERS[name](value)


def move(M: MultilayerPerceptron, options: dict[str, Any]) -> MultilayerPerceptron:
    """The model with the backend, dtype, device and products that the options name."""
    if options["backend"] == "jax" and (options["dtype"] or M.dtype) == "float64":
        get_backend("jax")  # says what to install if JAX is missing
        import_module("jax").config.update("jax_enable_x64", True)
    names = ("dtype", "device", "matmul")
    return M.to(options["backend"], **{name: options[name] for name in names})
