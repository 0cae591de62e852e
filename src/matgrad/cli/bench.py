"""`matgrad bench`: the options of the benchmarks, one command each, and of their plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from matgrad.backends.base import DTYPES
from matgrad.bench.measuring.problems import DESCRIPTION, EXPERIMENTS, OPTIMIZERS, Experiment, load
from matgrad.bench.tools.registry import DISTRIBUTED_TOOLS, NATIVE_TOOLS, SPARSE_DEFAULT, SPARSE_TOOLS, TOOLS, Tool
from matgrad.cli.bench_run import BenchRun
from matgrad.cli.files import CIFAR10, MNIST, READS, CommandGroup, Reads, WritesFolder
from matgrad.cli.groups import all_of
from matgrad.cli.options import SEED
from matgrad.datasets.reading import existing_folder
from matgrad.foundation.installing import check_matplotlib
from matgrad.foundation.writing import make_folder

PLOTS = ("plot.png", "plot.svg")


class Names(click.ParamType):
    """Names separated by commas."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The names."""
        return value if isinstance(value, tuple) else tuple(name.strip() for name in value.split(",") if name.strip())


class Sizes(Names):
    """Positive whole numbers, separated by commas."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The numbers."""
        names = super().convert(value, param, ctx)
        if not names or not all(str(name).isdecimal() and int(name) > 0 for name in names):
            self.fail(f"{value!r} is not a list of positive whole numbers, separated by commas.", param, ctx)
        return tuple(map(int, names))


class Densities(Names):
    """Numbers in (0, 1], separated by commas."""

    name = "densities"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The numbers."""
        try:
            numbers = tuple(map(float, super().convert(value, param, ctx)))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number <= 1 for number in numbers):
            self.fail(f"{value!r} is not a list of numbers in (0, 1], separated by commas.", param, ctx)
        return numbers


def common_options(known: Mapping[str, Tool], default: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """The options that all benchmarks share, for these tools; without a default, all of them are measured."""
    missing = "those that are installed" if default else "all that are installed"
    return all_of(
        click.option(
            "--tools",
            type=Names(),
            default=",".join(default),
            metavar="LIST",
            help=f"The tools to measure, separated by commas: {', '.join(known)}.  "
            f"[default: {', '.join(default) + '; ' if default else ''}{missing}]",
        ),
        click.option(
            "--rounds",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            help="How often each tool is measured.",
        ),
        click.option(
            "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads per tool.  [default: all]"
        ),
        click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Element type."),
        click.option(
            "--seed", type=SEED, default=0, show_default=True, help="Seed of the weights and of generated data."
        ),
        click.option(
            "--output",
            type=WritesFolder("bench.json", "table.md", *PLOTS),
            metavar="DIR",
            help="Write bench.json, table.md, plot.png and plot.svg to this folder.",
        ),
        click.option("--overwrite", is_flag=True, help="Let --output replace the results that a folder has."),
        click.option("--no-plot", is_flag=True, help="Do not draw a plot; drawing needs matplotlib."),
        click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else."),
    )


steps_option = click.option(
    "--steps", type=click.IntRange(min=2), metavar="N", help="Only the first N batches, for a quick trial."
)
experiments_option = click.option(
    "--experiments",
    type=Names(),
    default=",".join(EXPERIMENTS),
    show_default=True,
    metavar="LIST",
    help="The experiments to run.",
)


@click.group(cls=CommandGroup, short_help="Compare the speed with that of the frameworks.")
def bench() -> None:
    """Compare the speed of matgrad with that of code written by hand in PyTorch, JAX, TensorFlow and Keras."""


@bench.command(short_help="Repeat the paper's experiments.")
@experiments_option
@click.option(
    "--data",
    type=Reads(*(f"mnist/{name}" for name in MNIST), *(f"cifar10/{name}" for name in CIFAR10)),
    envvar="MATGRAD_DATA",
    metavar="DIR",
    help="A folder with mnist/ and cifar10/; data that is not there is generated.  [default: $MATGRAD_DATA]",
)
@steps_option
@common_options(TOOLS)
def paper(**options: Any) -> None:
    """Train the models of the paper's experiments for one epoch with every tool, from the same weights.

    The tools take turns, each in its own process. The exit status is 1 if a tool fails; the others are
    still measured.
    """
    chosen = _experiments(options)
    folder: Path | None = options["data"]
    if folder is not None:
        existing_folder(folder)
    with BenchRun("paper", options, settings=len(chosen)) as run:
        from matgrad.bench.experiments.paper import run_experiment

        run.say("loading the data")
        data = {e.name: load(e, folder, steps=options["steps"], seed=options["seed"]) for e in chosen}
        records = [
            run_experiment(experiment, run.tools, data[experiment.name], **run.arguments(f"{experiment.title}: "))
            for experiment in chosen
        ]
        run.finish({"setting": DESCRIPTION, "experiments": records})


@bench.command(short_help="Measure the time per example against batch size and width.")
@click.option(
    "--batch-sizes",
    type=Sizes(),
    default="10,30,100,300,1000",
    show_default=True,
    metavar="LIST",
    help="The batch sizes.",
)
@click.option(
    "--widths",
    type=Sizes(),
    default="128,256,512,1024,2048",
    show_default=True,
    metavar="LIST",
    help="The widths of both hidden layers.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=100, show_default=True, help="The batch size while widths vary."
)
@click.option(
    "--width", type=click.IntRange(min=1), default=1024, show_default=True, help="The width while batch sizes vary."
)
@click.option(
    "--examples", type=click.IntRange(min=1), default=6000, show_default=True, help="Training examples per point."
)
@common_options(TOOLS)
def cost(**options: Any) -> None:
    """Train models with two hidden layers on generated data of MNIST's shape.

    The record has the seconds per example for each batch size and each width.
    """
    points = len(options["batch_sizes"]) + len(options["widths"])
    with BenchRun("cost", options, settings=points) as run:
        from matgrad.bench.experiments.cost import Axis, run_cost

        fixed = options["batch_size"], options["width"]
        axes = [
            Axis("batch_size", "batch size", options["batch_sizes"], *fixed),
            Axis("width", "width", options["widths"], *fixed),
        ]
        run.finish(run_cost(axes, run.tools, examples=options["examples"], **run.arguments()))


@bench.command(short_help="Measure dense training in the C++ core.")
@experiments_option
@click.option(
    "--optimizers",
    type=Names(),
    default=",".join(OPTIMIZERS),
    show_default=True,
    metavar="LIST",
    help="The optimizers to train with.",
)
@steps_option
@common_options(NATIVE_TOOLS)
def native(**options: Any) -> None:
    """Train the paper's models for one epoch in the C++ core, beside PyTorch and the bare products of a step.

    The data is generated. matgrad-cpp is a stand-alone C++ program, which is built if it is measured.
    """
    chosen = _experiments(options)
    optimizers = _known(options["optimizers"], OPTIMIZERS, "optimizer")
    with BenchRun("native", options, settings=len(chosen) * len(optimizers), known=NATIVE_TOOLS) as run:
        from matgrad.bench.experiments.native import run_native

        records = []
        for experiment in chosen:
            data = load(experiment, None, steps=options["steps"], seed=options["seed"])
            for name in optimizers:
                arguments = run.arguments(f"{experiment.title}, {name}: ")
                records.append(run_native(experiment, name, run.tools, data, **arguments))
        run.finish({"setting": DESCRIPTION | {"optimizer": " and ".join(optimizers)}, "experiments": records})


sizes_option = click.option(
    "--sizes",
    type=Sizes(),
    default="3072,1024,512,10",
    show_default=True,
    metavar="LIST",
    help="Layer sizes of the model.",
)


def _check_sizes(sizes: Sequence[int]) -> None:
    """Refuse layer sizes that have no layer."""
    if len(sizes) < 2:
        raise ValueError(f"--sizes: expected the number of features and those of the layers, found {sizes}")


@bench.command(short_help="Measure sparse training against the density.")
@click.option(
    "--densities",
    type=Densities(),
    default="0.001,0.01,0.05,0.1,0.3",
    show_default=True,
    metavar="LIST",
    help="Fractions of the weights that are stored.",
)
@click.option(
    "--batch-sizes",
    type=Sizes(),
    default="10,30,100,300,1000",
    show_default=True,
    metavar="LIST",
    help="Batch sizes that are also measured, at one density.",
)
@sizes_option
@click.option("--steps", type=click.IntRange(min=2), default=500, show_default=True, help="Batches of 100 per epoch.")
@common_options(SPARSE_TOOLS, SPARSE_DEFAULT)
def sparse(**options: Any) -> None:
    """Train sparse models on generated data of CIFAR-10's shape, with plain gradient descent.

    The record has time and memory against the density, for the C++ core, masked PyTorch, PyTorch with CSR
    matrices and dense training in the C++ core, and the time against the batch size.
    """
    _check_sizes(options["sizes"])
    points = len(options["densities"]) + len(options["batch_sizes"])
    with BenchRun("sparse", options, settings=points, known=SPARSE_TOOLS) as run:
        from matgrad.bench.experiments.sparse import Plan, run_sparse

        plan = Plan(*(options[key] for key in ("densities", "batch_sizes", "sizes", "steps")))
        run.finish(run_sparse(plan, run.tools, **run.arguments()))


@bench.command(short_help="Measure training on several processes.")
@click.option(
    "--batch-sizes", type=Sizes(), default="100,1000", show_default=True, metavar="LIST", help="Examples per step."
)
@click.option(
    "--densities",
    type=Densities(),
    default="1,0.05",
    show_default=True,
    metavar="LIST",
    help="Fractions of the weights that are stored; with 1, nothing is sparse.",
)
@sizes_option
@click.option(
    "--examples", type=click.IntRange(min=1), default=20_000, show_default=True, help="Training examples per round."
)
@common_options(DISTRIBUTED_TOOLS)
def distributed(**options: Any) -> None:
    """Train on one process and on two that share its threads, beside PyTorch and its DistributedDataParallel.

    The record has the milliseconds per step, the messages and bytes that ranks exchange, the share of waiting, and
    what a model of the cost, fitted to these times, predicts for many machines.
    """
    _check_sizes(options["sizes"])
    points = len(options["batch_sizes"]) * len(options["densities"])
    with BenchRun("distributed", options, settings=points, known=DISTRIBUTED_TOOLS) as run:
        from matgrad.bench.experiments.distributed import Plan, run_distributed

        plan = Plan(*(options[key] for key in ("batch_sizes", "densities", "examples", "sizes")))
        run.finish(run_distributed(plan, run.tools, **run.arguments()))


def _beside(ctx: click.Context, parameter: click.Parameter, folder: Path | None) -> Path | None:
    """The folder or, if none is given, that of FILE, which is known by then."""
    return ctx.params["file"].absolute().parent if folder is None and "file" in ctx.params else folder


@bench.command(short_help="Redraw the plot of a record.")
@click.argument("file", type=READS)
@click.option(
    "--output",
    type=WritesFolder(*PLOTS, keeps=False),
    metavar="DIR",
    callback=_beside,
    help="Where to write plot.png and plot.svg.  [default: beside FILE]",
)
def plot(file: Path, output: Path) -> None:
    """Redraw the plot of FILE, a bench.json that another `matgrad bench` command wrote."""
    from matgrad.bench.reports.plots import draw
    from matgrad.bench.reports.record import read_record

    check_matplotlib()
    record = read_record(file)
    make_folder(output)
    try:
        paths = draw(record, output)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{file}: the record is damaged ({type(error).__name__}: {error})") from None
    click.echo("\n".join(map(str, paths)))


def _experiments(options: dict[str, Any]) -> list[Experiment]:
    """The experiments with these names; all of them if no name is given."""
    return [EXPERIMENTS[name] for name in _known(options["experiments"], EXPERIMENTS, "experiment")]


def _known(names: tuple[str, ...], registry: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """The names, after a check that the registry has them; all of its names if none is given."""
    for name in names:
        if name not in registry:
            raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(registry)}")
    return names or tuple(registry)
