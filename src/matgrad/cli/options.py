"""Options that several commands share: data, plugins, engine and configuration files."""

from __future__ import annotations

import math
from collections.abc import Mapping
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

data_options = all_of(
    option(
        "Data",
        "--mnist",
        type=Reads(*MNIST),
        metavar="DIR",
        help="MNIST: a folder with the four IDX files, gzipped or not.",
    ),
    option("Data", "--fashion-mnist", type=Reads(*MNIST), metavar="DIR", help="Fashion-MNIST, likewise."),
    option(
        "Data",
        "--cifar10",
        type=Reads(*CIFAR10),
        metavar="PATH",
        help="CIFAR-10: the folder or tar.gz of its binary version.",
    ),
    option("Data", "--load-dataset", type=READS, metavar="FILE", help="An npz file with Xtrain, Ttrain, Xtest, Ttest."),
    option(
        "Data",
        "--table",
        type=ReadsFiles(),
        metavar="FILE[;TEST]",
        help="A CSV, Parquet or Arrow file, and one with the test examples; else a fifth of its rows are held out.",
    ),
    target_options,
    option(
        "Data",
        "--svmlight",
        type=ReadsFiles(),
        metavar="FILE[;TEST]",
        help="An svmlight (libsvm) file of sparse examples, and one with the test examples, likewise.",
    ),
    option(
        "Data",
        "--preprocessed",
        type=Reads("epoch*.npz"),
        metavar="DIR",
        help="A folder with epoch0.npz, epoch1.npz …, one file per epoch.",
    ),
    option(
        "Data",
        "--generate-dataset",
        metavar="NAME",
        help="Generate the data: checkerboard or mini, with a number of examples, such as checkerboard(1000).",
    ),
)

normalize_options = all_of(
    option(
        "Data",
        "--normalize",
        type=click.Choice(KINDS),
        default="unit",
        help="Scale the inputs: not at all, to [0, 1], or each column to mean 0 and standard deviation 1.",
    ),
    option(
        "Data",
        "--normalize-targets",
        hidden=True,
        type=click.Choice(KINDS),
        help="Scale the targets of a regression in the same way, for training and its loss; predictions and errors are "
        "in the units of the data.  [default: standard after a linear layer, with a squared error or Huber as loss; "
        "else none]",
    ),
)

dtype_option = option(
    "Engine", "--dtype", type=click.Choice(DTYPES), help="Element type.  [default: that of a loaded model, or float32]"
)

machine_options = all_of(
    option(
        "Engine",
        "--backend",
        type=click.Choice(["auto", *NUMERIC_BACKENDS]),
        default="auto",
        help="What computes; auto is the C++ core if it is built, else NumPy; with --device it is PyTorch.",
    ),
    option(
        "Engine",
        "--device",
        metavar="NAME",
        help="Where the backend computes: cpu, cuda, cuda:1 …, or auto, which is a GPU if the backend sees one; with "
        "--backend auto that is PyTorch.  [default: cpu; on JAX and TensorFlow a GPU if they see one]",
    ),
    dtype_option,
    option(
        "Engine",
        "--matmul",
        hidden=True,
        type=click.Choice(MATMULS),
        default=MATMULS[0],
        help="How float32 matrices are multiplied; tf32 and bf16 round the factors, on GPUs alone.",
    ),
    option(
        "Engine",
        "--threads",
        type=click.IntRange(1, THREADS),
        metavar="N",
        help="CPU threads to use, on every backend.  [default: all]",
    ),
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
    help="A Python file with your own layers, activation functions, losses and methods of sparse training, to "
    "use by name.",
)


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the values in a configuration file as the defaults of the options."""
    if path is None:
        return None
    options = [p for p in ctx.command.params if isinstance(p, click.Option) and p.name != "config"]
    known = {p.opts[-1].removeprefix("--").replace("-", "_"): p for p in options}
    known |= {str(p.name): p for p in options}
    values: dict[str, Any] = {}
    content = _read_configuration(path)
    if isinstance(content.get("configuration"), dict):  # the record of a run, which is repeated but not overwritten
        written = [p.name for p in options if isinstance(p.type, Writes)]
        data = content.get("data")
        ctx.meta[REPEATED] = (path, data.get("sha256") if isinstance(data, dict) else None)
        content = {key: value for key, value in content["configuration"].items() if key not in (*written, "overwrite")}
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


def _read_configuration(path: Path) -> dict[Any, Any]:
    """The table in a TOML, YAML or JSON file."""
    content = read_plain_values(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    return content


config_option = option(
    "Other",
    "--config",
    type=READS,
    metavar="FILE",
    is_eager=True,
    callback=_configuration,
    help="A TOML, YAML or JSON file with values for these options, or the run.json of a run, to repeat it; the command "
    "line takes precedence.",
)


def data_sources(options: dict[str, Any]) -> dict[str, str]:
    """The flags of the data sets that the options name, with the names of those options."""
    files = ("mnist", "fashion_mnist", "cifar10", "load_dataset", "table", "svmlight", "preprocessed")
    return {flag(name): name for name in (*files, "generate_dataset") if options[name] is not None}


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
    readers = {
        "mnist": datasets.mnist,
        "fashion_mnist": datasets.fashion_mnist,
        "cifar10": datasets.cifar10,
        "load_dataset": datasets.npz,
        "preprocessed": lambda folder: datasets.preprocessed(folder)[0],
    }
    return readers[name](value)


def move(M: MultilayerPerceptron, options: dict[str, Any]) -> MultilayerPerceptron:
    """The model with the backend, dtype, device and products that the options name."""
    if options["backend"] == "jax" and (options["dtype"] or M.dtype) == "float64":
        get_backend("jax")  # says what to install if JAX is missing
        import_module("jax").config.update("jax_enable_x64", True)
    names = ("dtype", "device", "matmul")
    return M.to(options["backend"], **{name: options[name] for name in names})
