"""Options that several commands share: models, data, plugins, engine and configuration files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.backends import BACKENDS, get_backend
from matgrad.backends.base import DTYPES, MATMULS
from matgrad.cli.commands import all_of, option, renaming
from matgrad.cli.files import READS, Reads, ReadsFiles, Writes
from matgrad.datasets.normalization import KINDS
from matgrad.datasets.tables import TASKS
from matgrad.foundation.files import read_plain_values
from matgrad.foundation.limits import FLOAT32, THREADS
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, WEIGHTS
from matgrad.specifications.plugins import load_plugin

Value = bool | int | float | str | None  # of an option in a configuration file, which may also have lists of them
REPEATED = "matgrad.repeated"  # in a context: the record that --config repeats, and the hash of its data
NUMERIC_BACKENDS = [name for name in BACKENDS if name != "sympy"]
TINY = 1e-37  # a number that float32 does not round to 0


class _Finite(click.FloatRange):
    """A number in a range, which nan is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, if it is finite."""
        if math.isnan(number := super().convert(value, param, ctx)):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE = _Finite(min=TINY, max=FLOAT32)
COUNT = click.IntRange(1, 2**31 - 1)
SEED = click.IntRange(0, 2**32 - 1)
SCALING = click.Choice(KINDS)
BACKEND = click.Choice(["auto", *NUMERIC_BACKENDS])
FILES, EPOCHS = ReadsFiles(), Reads("epoch*.npz")
MNIST, CIFAR10 = Reads("*-ubyte", "*-ubyte.gz"), Reads("*batch*", "*/*batch*", "*.tar.gz")

TABLE = "CSV, Parquet or Arrow.  [default TEST: a fifth]"
data_options = all_of(
    option("Data", "--mnist", type=MNIST, metavar="DIR", help="MNIST: the folder of its four IDX files."),
    option("Data", "--fashion-mnist", type=MNIST, metavar="DIR", help="Fashion-MNIST, likewise."),
    option("Data", "--cifar10", type=CIFAR10, metavar="PATH", help="CIFAR-10: its binary tar.gz, or a folder."),
    option("Data", "--load-dataset", type=READS, metavar="FILE", help="An npz file with Xtrain, Ttrain, Xtest, Ttest."),
    option("Data", "--table", type=FILES, metavar="FILE[;TEST]", help=TABLE),
    option("Data", "--target", metavar="COLUMN", help="Its target: a name, or a number from 0.  [default: last]"),
    option("Data", "--task", type=click.Choice(TASKS), help="[default: guessed from the targets]"),
    option("Data", "--svmlight", type=FILES, metavar="FILE[;TEST]", help="An svmlight (libsvm) file, likewise."),
    option("Data", "--preprocessed", type=EPOCHS, metavar="DIR", help="A folder with epoch0.npz, epoch1.npz …"),
    option("Data", "--generate-dataset", metavar="NAME", help="checkerboard(1000) or mini(1000): generated examples."),
)


def _plugins(ctx: click.Context, parameter: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    for file in files:
        load_plugin(file)
    return files


PLUGIN = "A Python file with your own layers, activations, losses … to use by name."
eager: dict[str, Any] = {"type": READS, "metavar": "FILE", "is_eager": True}  # what is read before other options
plugin_option = option("Model", "--plugin", **eager, multiple=True, callback=_plugins, help=PLUGIN)


def model_options(layers: str | None, sizes: str | None) -> Callable[[Any], Any]:
    """The options that describe a new model, with the layers and sizes that it has by default."""
    inputs = "Features, then outputs of each linear layer: 784;1024;512;10."
    er = "Densities of the linear layers, or ER(0.05): Erdős–Rényi. Loaded weights are pruned."
    supports = "Connect only what is not 0 in a file of W1, W2 …"
    return all_of(
        option("Model", "--layers", default=layers, metavar="LIST", help="The layers, from first to last."),
        option("Model", "--layer-sizes", default=sizes, metavar="LIST", help=inputs),
        option("Model", "--layer-weights", default=WEIGHTS, metavar="LIST", help="Initial weights: Xavier, He …"),
        option("Model", "--dropouts", default="0", metavar="LIST", help="Dropout rates of the linear layers."),
        option("Model", "--loss", metavar="NAME", help="The loss.  [default: of a saved model, or by its layers]"),
        option("Sparsity", "--densities", metavar="LIST", help=er),
        option("Sparsity", "--supports", type=READS, metavar="FILE", help=supports),
        plugin_option,
    )


load_option = option("Model", "--load-weights", type=READS, metavar="FILE", help="Start from the model in a file.")
RULES = "One, or one per layer, such as Adam(weight_decay=1e-4, l1=1e-5)."
optimizers_option = option("Training", "--optimizers", default=OPTIMIZER, metavar="LIST", help=RULES)
SEEDED = "Seed of what is generated or drawn: weights, order of examples, dropout."
seed_option = option("Training", "--seed", type=SEED, default=0, metavar="N", help=SEEDED)
dtype_option = option("Engine", "--dtype", type=click.Choice(DTYPES), help="[default: of the model, or float32]")
step_options = all_of(  # a model and a training step, without data
    model_options("ReLU;ReLU;Linear", "784;1024;512;10"),
    load_option,
    optimizers_option,
    option("Training", "--batch-size", type=COUNT, default=BATCH_SIZE, help="Examples per step."),
    seed_option,
    dtype_option,
)

machine_options = all_of(
    option("Engine", "--backend", type=BACKEND, default="auto", help="auto: the C++ core if it is built, else NumPy."),
    option("Engine", "--device", metavar="NAME", help="cpu, cuda, cuda:1 …, or auto; without --backend on PyTorch."),
    dtype_option,
    option("Engine", "--matmul", hidden=True, type=click.Choice(MATMULS), default=MATMULS[0], help="On GPUs."),
    option("Engine", "--threads", type=click.IntRange(1, THREADS), metavar="N", help="CPU threads.  [default: all]"),
)


def move(M: MultilayerPerceptron, options: dict[str, Any]) -> MultilayerPerceptron:
    """The model with the backend, dtype, device and products that the options name."""
    if options["backend"] == "jax" and (options["dtype"] or M.dtype) == "float64":
        get_backend("jax")  # says what to install if JAX is missing
        import_module("jax").config.update("jax_enable_x64", True)
    return M.to(options["backend"], dtype=options["dtype"], device=options["device"], matmul=options["matmul"])


def flag(name: str) -> str:
    """An option as it is written on the command line."""
    return f"--{name.replace('_', '-')}"


def is_given(name: str) -> bool:
    """Whether an option stands on the command line or, with another value than its default, in a configuration."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def contradiction(name: str, options: dict[str, Any], found: str) -> ValueError:
    """The error for an option that contradicts the model of --load-weights."""
    given = f"{flag(name)} {options[name]} and --load-weights {options['load_weights']}"
    return ValueError(f"{given} contradict each other: the model in the file has {found}")


# -- configuration files --------------------------------------------------------------------------


def _configuration(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Use the values in a configuration file as the defaults of the options."""
    if path is None:
        return None
    if not isinstance(content := read_plain_values(path), dict):
        raise ValueError(f"{path}: expected options with their values, found {type(content).__name__}")
    if isinstance(content.get("configuration"), dict):  # the record of a run, which is repeated but not overwritten
        data = content.get("data")
        ctx.meta[REPEATED] = (path, data.get("sha256") if isinstance(data, dict) else None)
        written = {p.name for p in ctx.command.params if isinstance(p.type, Writes)} | {"overwrite"}
        content = {key: value for key, value in content["configuration"].items() if key not in written}
    set_defaults(ctx, content, path)
    return path


def set_defaults(ctx: click.Context, values: Mapping[str, Any], path: Path) -> None:
    """Use the values of options in a file as their defaults; None, and the value by default, change nothing."""
    options = [p for p in ctx.command.params if isinstance(p, click.Option)]
    known = {name: p for p in options for name in (p.opts[-1].removeprefix("--").replace("-", "_"), str(p.name))}
    found: dict[str, Any] = {}
    for key, value in values.items():
        name, items = str(key).replace("-", "_"), value if isinstance(value, list) else [value]
        if wrong := [x for x in (key, *items) if not isinstance(x, Value)]:
            kind = type(wrong[0]).__name__
            raise ValueError(f"{path}: {str(key)!r}: expected a number, a word or a list of them, found {kind}")
        if name == "config" or value is None:
            continue  # so that the configuration of a run can be used as it is
        if (option := known.get(name)) is None:
            unknown = f"unknown option {str(key)!r}; known: {', '.join(sorted(known))}"
            raise ValueError(f"{path}: {renaming(flag(name)) or unknown}")
        if isinstance(value, bool) and not option.is_flag:
            raise ValueError(f"{path}: {key}: got a boolean, {value}, expected a number or a word in quotes")
        words = [str(item) for item in items]
        given = value if isinstance(value, bool) else words if option.multiple else ";".join(words)
        if str(given) != str(option.default):
            found[str(option.name)] = given
    ctx.default_map = {**(ctx.default_map or {}), **found}


CONFIG = "TOML, YAML or JSON with values of options, or the run.json of a run, to repeat it."
config_option = option("Options", "--config", **eager, callback=_configuration, help=CONFIG)
