"""Options that several commands share: models, data, plugins and engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.backends import BACKENDS, get_backend
from matgrad.backends.base import DTYPES, MATMULS
from matgrad.cli.commands import READS, Reads, ReadsFiles, all_of, option
from matgrad.datasets.dataset import KINDS
from matgrad.datasets.tables import TASKS
from matgrad.foundation.limits import FLOAT32, THREADS
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.models import BATCH_SIZE
from matgrad.specifications.models import OPTIMIZER, WEIGHTS
from matgrad.specifications.origins import PLUGINS
from matgrad.specifications.parsing import lookup, parse_numbers
from matgrad.specifications.plugins import load_plugin

NUMERIC_BACKENDS = [name for name in BACKENDS if name != "sympy"]
TINY = 1e-37  # a number that float32 does not round to 0


class _Finite(click.FloatRange):
    """A number in a range, which nan is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, if it is finite."""
        if math.isnan(number := super().convert(value, param, ctx)):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


POSITIVE, TEMPERATURE = _Finite(min=TINY, max=FLOAT32), _Finite(min=0, max=FLOAT32)
COUNT = click.IntRange(1, 2**31 - 1)
SEED = click.IntRange(0, 2**32 - 1)
SCALING = click.Choice(KINDS)
BACKEND = click.Choice(["auto", *NUMERIC_BACKENDS])
FILES, EPOCHS = ReadsFiles(), Reads("epoch*.npz")
TEXTS = ReadsFiles(settings={"context": lambda text: parse_numbers(text, "context")[0]})
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
    option("Data", "--text", type=TEXTS, metavar="FILE[;TEST]", help="By character; FILE, context=N.  [default: 64]"),
    option("Data", "--preprocessed", type=EPOCHS, metavar="DIR", help="A folder with epoch0.npz, epoch1.npz …"),
    option("Data", "--generate-dataset", metavar="NAME", help="checkerboard(1000) or mini(1000): generated examples."),
)


def _plugins(ctx: click.Context, parameter: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Run the plugins, before other options are read, and remember which ones they are."""
    modules = [load_plugin(path, **settings) for path, settings in map(PLUGIN_FILES.split, files)]
    ctx.meta[LOADED] = [PLUGINS[module.__name__] for module in modules]
    return files


LOADED = "matgrad.plugins"  # in a context: the plugins of the command
PLUGIN_FILES = Reads(settings={"changed": lambda text: lookup(text, {"allow": True}, "word for changed")})
PLUGIN = 'A Python file with your own layers … to use by name. "FILE, changed=allow" if files are of another version.'
plugin_option = option(
    "Model", "--plugin", type=PLUGIN_FILES, metavar="FILE", is_eager=True, multiple=True, callback=_plugins, help=PLUGIN
)


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
