"""`matgrad bench sparse-methods`: its options, and a record that grows run by run."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from matgrad.bench.measuring.method_worker import PYTORCH, check_method
from matgrad.cli.bench import PLOTS, Densities, Names, Sizes
from matgrad.cli.files import CIFAR10, MNIST, Command, Reads, WritesFolder
from matgrad.cli.options import COUNT, NOT_NEGATIVE
from matgrad.datasets.normalization import KINDS
from matgrad.datasets.reading import existing_folder
from matgrad.foundation.files import as_json as json_text
from matgrad.foundation.installing import check_matplotlib, how_to_install
from matgrad.foundation.limits import THREADS
from matgrad.foundation.machine import machine
from matgrad.foundation.writing import atomic_write, make_folder, write_json
from matgrad.learning_rate import create_scheduler

DATA = {"mnist": MNIST, "fashion-mnist": MNIST, "cifar10": CIFAR10}
DEFAULT = ("dense", "static", "SET", "RigL", "SNIP", "GMP", "masked-static", "masked-RigL")


class MethodNames(click.ParamType):
    """Methods separated by commas, which may have arguments: SET,RigL(0.5, every=50)."""

    name = "methods"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The methods, each once."""
        if isinstance(value, tuple):
            return value
        items = (item.strip() for item in re.split(r",(?![^(]*\))", value))
        return tuple(dict.fromkeys(item for item in items if item))


@click.command("sparse-methods", cls=Command, short_help="Compare methods of sparse training.")
@click.option(
    "--data",
    type=Reads(*(f"{name}/{pattern}" for name, patterns in DATA.items() for pattern in patterns)),
    envvar="MATGRAD_DATA",
    metavar="DIR",
    help="A folder with mnist/, fashion-mnist/ and cifar10/; what is not there is left out.  [default: $MATGRAD_DATA]",
)
@click.option("--only", type=Names(), default="", metavar="LIST", help=f"Only these data sets: {', '.join(DATA)}.")
@click.option(
    "--methods",
    type=MethodNames(),
    default=",".join(DEFAULT),
    show_default=True,
    metavar="LIST",
    help="Methods, which may have arguments: SET,RigL(0.5, every=50). There is also dense-PyTorch.",
)
@click.option(
    "--densities",
    type=Densities(),
    default="0.01,0.02,0.05,0.1,0.2",
    show_default=True,
    metavar="LIST",
    help="Fractions of the weights that are stored.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of each method.")
@click.option("--epochs", type=COUNT, default=20, show_default=True, help="Passes over the data.")
@click.option("--batch-size", type=COUNT, default=100, show_default=True, help="Examples per step.")
@click.option(
    "--learning-rate",
    metavar="RATE",
    help="A number or a schedule, the same for all methods.  [default: MultiStepLR(0.1; 10, 15; 0.2), for CIFAR-10 "
    "MultiStepLR(0.03; 10, 15; 0.2)]",
)
@click.option(
    "--momentum",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Of Nesterov's method.",
)
@click.option(
    "--weight-decay",
    type=NOT_NEGATIVE,
    metavar="λ",
    help="Add λθ to the gradients.  [default: 0.0005, for CIFAR-10 0.001]",
)
@click.option("--normalize", type=click.Choice(KINDS), default="standard", show_default=True, help="Scale the inputs.")
@click.option(
    "--hidden",
    type=Sizes(),
    metavar="LIST",
    help="Sizes of the hidden layers.  [default: 1000,1000,1000, for CIFAR-10 1024,1024]",
)
@click.option("--examples", type=COUNT, metavar="N", help="Only the first N training examples, for a quick trial.")
@click.option("--threads", type=click.IntRange(1, THREADS), metavar="N", help="CPU threads per run.  [default: all]")
@click.option(
    "--jobs",
    type=click.IntRange(1, THREADS),
    default=1,
    show_default=True,
    help="Runs at a time; more than one slow each other down, so that their seconds are not comparable.",
)
@click.option(
    "--output",
    type=WritesFolder("bench.json", "table.md", *PLOTS, keeps=False),
    metavar="DIR",
    help="Write bench.json, after every run, table.md, plot.png and plot.svg to this folder. Runs that it has already "
    "are not repeated.",
)
@click.option("--overwrite", is_flag=True, help="Let --output begin anew instead.")
@click.option("--no-plot", is_flag=True, help="Do not draw a plot; drawing needs matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON, and nothing else.")
def sparse_methods(**options: Any) -> None:
    """Train MNIST, Fashion-MNIST and CIFAR-10 with each method of sparse training, at several densities, with seeds.

    Beside them are dense training and masked PyTorch. The record has test accuracy and training time against
    density. It is written after every run: a benchmark that was interrupted goes on where it was if the command
    is repeated, and more methods, densities, seeds or data sets are added to it. The exit status is 1 if a run fails.
    """
    from matgrad.bench.experiments.sparse_methods import Plan, run_methods

    if options["learning_rate"] is not None:
        create_scheduler(options["learning_rate"])
    for method in options["methods"]:
        check_method(method)
    if options["output"] is not None and not options["no_plot"]:
        check_matplotlib()
    cores, jobs = machine()["cores"], options["jobs"]
    threads = options["threads"] or max(1, cores // jobs)
    missing = _missing(options["methods"])
    chosen = {field.name: options[field.name] for field in fields(Plan)}
    plan = Plan(**(chosen | {"methods": tuple(m for m in options["methods"] if m not in missing)}))
    results = MethodsRecord(options, plan.setting(), threads, missing)
    places = results.places()
    run_methods(plan, places, results.record, threads=threads, jobs=jobs, report=results.say, save=results.save)
    results.finish()


def _missing(methods: tuple[str, ...]) -> dict[str, str]:
    """The methods that need PyTorch if it is not installed, and what to do."""
    if find_spec("torch") is not None:
        return {}
    return {name: f"torch is not installed: {how_to_install('torch')}" for name in methods if name in PYTORCH}


class MethodsRecord:
    """The record of a benchmark that grows run by run, and the files that it is written to."""

    def __init__(self, options: dict[str, Any], setting: dict[str, Any], threads: int, missing: dict[str, str]) -> None:
        from matgrad.bench.experiments.sparse_methods import check_same
        from matgrad.bench.reports.record import read_record, record

        self.options, self.started, self.folder = options, time.time(), options["output"]
        head = record("sparse-methods", self.started, threads, options)
        self.record: dict[str, Any] = head | {"setting": setting, "missing": missing, "skipped": {}, "data": {}}
        self.record |= {"runs": [], "failures": {}, "earlier": []}
        file: Path | None = None if self.folder is None else self.folder / "bench.json"
        if file is not None and file.exists() and not options["overwrite"]:
            old = read_record(file)
            if old["kind"] != "sparse-methods":
                raise ValueError(f"{file}: a record of bench {old['kind']}; expected another folder, or --overwrite")
            check_same(old["setting"], setting, str(file))
            self.record |= {name: old[name] for name in ("data", "runs", "failures")}
            self.record["earlier"] = [*old["earlier"], {name: old[name] for name in ("started", "command", "machine")}]
            methods = dict.fromkeys([*options["methods"], *old["options"]["methods"]])
            self.record["options"]["methods"] = list(methods)

    def places(self) -> dict[str, Path]:
        """The folders of the data sets; those that are not there are skipped with a note."""
        folder: Path | None = self.options["data"]
        if folder is None:
            raise ValueError(f"no data: expected --data DIR, a folder with {', '.join(DATA)}")
        existing_folder(folder)
        for name in self.options["only"]:
            if name not in DATA:
                raise ValueError(f"unknown data set {name!r}; known: {', '.join(DATA)}")
        places = {name: folder / name for name in DATA if not self.options["only"] or name in self.options["only"]}
        for name, place in places.items():
            if not place.exists():
                self.record["skipped"][name] = f"there is no {place}"
                self.say(f"{name} is left out: there is no {place}")
        found = {name: place for name, place in places.items() if place.exists()}
        if not found:
            raise ValueError(f"{folder}: expected a folder with {', '.join(places)}, found none of them")
        return found

    def say(self, line: str) -> None:
        """Show where the benchmark is."""
        if not self.options["as_json"]:
            click.echo(line, err=True)

    def save(self) -> None:
        """Write bench.json, if files were asked for."""
        self.record["seconds"] = round(time.time() - self.started, 1)
        if self.folder is not None:
            make_folder(self.folder)
            write_json(self.folder / "bench.json", self.record)

    def finish(self) -> None:
        """Write and print the tables, and draw the plots; exit status 1 if a run failed."""
        from matgrad.bench.reports import plots, tables

        self.save()
        if self.folder is not None:
            with atomic_write(self.folder / "table.md") as file:
                file.write(tables.markdown(self.record).encode())
            if not self.options["no_plot"] and self.record["runs"]:
                plots.draw(self.record, self.folder)
        click.echo(json_text(self.record) if self.options["as_json"] else tables.text(self.record))
        if self.record["failures"]:
            raise click.exceptions.Exit(1)
