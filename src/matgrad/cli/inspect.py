"""`matgrad inspect`, `pictures` and `convert` for files, and `matgrad info` for the machine."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad import exchange
from matgrad.backends import BACKENDS, automatic_backend
from matgrad.callbacks.statistics import MEASURES
from matgrad.cli.commands import READS, WRITES, Command, Writes, echo, echo_json, json_option, option
from matgrad.datasets import Features
from matgrad.exchange.files import format_of, save_original
from matgrad.foundation.files import is_safetensors, naming, read_safetensors
from matgrad.foundation.imports import check_matplotlib
from matgrad.foundation.machine import instruction_sets, machine, thread_pools, versions
from matgrad.foundation.writing import atomic_write, columns, visible
from matgrad.inspection.figures import FIGURES, parse_shape, snapshot, write_png
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.checkpoints import read_checkpoint
from matgrad.storage.models import load, read_arrays, read_description
from matgrad.storage.programs import load_program

NAMES = (*(f"{name}.gif" for name in FIGURES), *(f"epoch_*_{name}.png" for name in FIGURES))
PICTURES = Writes(names=NAMES, settings={"epochs": lambda text: parse_numbers(text, "epoch"), "shape": parse_shape})

HELP = 'Draw the weights, as PNG files and animations: "DIR, epochs=0,5,10, shape=28x28".'
picture_option = option("Output", "--pictures", type=PICTURES, metavar="DIR", help=HELP)


@click.command(cls=Command)
@click.argument("file", type=READS)
@click.option("--shapes-only", is_flag=True, help="Do not compute ranges and means.")
@json_option
def inspect(file: Path, shapes_only: bool, as_json: bool) -> None:
    """Show what is in an npz or safetensors FILE of weights, programs, checkpoints, data or predictions."""
    content = read_arrays(file)  # those of the model, if the file describes one
    model, information = read_description(content["matgrad"], file) if "matgrad" in content else ({}, {})
    parts: dict[str, dict[str, Any]] = {"model": model, "information": information, "program": {}, "run": {}}
    if is_safetensors(file):
        content, metadata = read_safetensors(file)
        if "matgrad" in metadata:
            found = load_program(file)[0]
            inputs, outputs = (
                ", ".join(f"{name} {_cell(list(x.shape))}" for name, x in values.items() if "." not in name)
                for values in (found.inputs, found.outputs)  # besides the state
            )
            outputs = outputs or "the state after a training step"
            parts["program"] = {"operations": len(found.instructions), "inputs": inputs, "outputs": outputs}
        if "checkpoint" in metadata:
            at = read_checkpoint(file).run
            last = {f"last {name}": x for row in at.rows[-1:] for name, x in row.items() if name.endswith(MEASURES)}
            parts["run"] = {"epochs": at.epoch, "batches since": at.batch, "steps": at.step, **last}
    if not content:
        raise ValueError(f"{file}: no arrays in it")
    measures = () if shapes_only else (np.min, np.max, np.mean)
    rows = [
        {"name": name, "shape": list(A.shape), "dtype": str(A.dtype)}
        | {f.__name__: float(f(A)) if A.size and A.dtype.kind in "fiub" else None for f in measures}
        for name, A in content.items()
        if name != "matgrad"
    ]
    if as_json:
        echo_json({"arrays": rows} | {name: part or None for name, part in parts.items()})
        return
    if information.get("features") is not None:
        with naming(file):
            information |= Features.from_json(information["features"]).summary()
    for name, value in (pair for part in parts.values() for pair in part.items()):
        echo(visible(f"{name}: {value}"))
    echo(columns([[*row] for row in rows[:1]] + [[*map(_cell, row.values())] for row in rows]))


@click.command(cls=Command)
@json_option
def info(as_json: bool) -> None:
    """Show versions, installed backends, and the processor's instruction sets and threads."""
    values: dict[str, Any] = {
        "versions": versions(),
        "backends": {name: find_spec(roots[0]) is not None for name, (_, _, roots) in BACKENDS.items()},
        "auto": automatic_backend(),
        "machine": machine(),
        "instruction_sets": instruction_sets(),
        "threads": thread_pools(),
    }
    if as_json:
        echo_json(values)
        return
    lines = {f"backend {name}": "installed" if found else "not installed" for name, found in values["backends"].items()}
    lines = values["versions"] | lines | {"backend auto": values["auto"]} | values["machine"]
    lines |= {"instructions": " ".join(values["instruction_sets"])}
    lines |= {f"threads of {name}": number for name, number in values["threads"].items()}
    echo(columns([(name, str(value)) for name, value in lines.items()]))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(map(str, value)) or "scalar"
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


@click.command("pictures", cls=Command)
@click.argument("file", type=READS)
@click.argument("folder", type=Writes(names=tuple(f"{name}.png" for name in FIGURES)), metavar="DIR")
@click.option("--shape", metavar="HxW", help="Of the images, with channels if any: 32x32x3.  [default: square]")
@click.option("--overwrite", is_flag=True, help="Replace the pictures that DIR has.")
def pictures_command(file: Path, folder: Path, shape: str | None, overwrite: bool) -> None:
    """Draw the connections of the inputs, the connectivity of the layers and histograms of the weights.

    FILE is a model that matgrad train or M.save wrote; inputs.png, connectivity.png and weights.png are written to DIR.
    """
    check_matplotlib()
    shot = snapshot(load(file), file.stem, None if shape is None else parse_shape(shape))
    folder.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        with atomic_write(folder / f"{name}.png") as png:
            write_png(draw(shot, [shot]), png)
        echo(folder / f"{name}.png")


@click.command(cls=Command)
@click.argument("source", type=READS)
@click.argument("target", type=WRITES)
@click.option("--sparse", is_flag=True, help="Write sparse weights to ONNX as sparse initializers.")
@click.option("--only-weights", is_flag=True, help="Write an npz file of the original library: W1, b1, … alone.")
def convert(source: Path, target: Path, sparse: bool, only_weights: bool) -> None:
    """Convert the model in the file SOURCE to the file TARGET.

    Names end in .npz (a model of matgrad), .safetensors (a state dictionary of PyTorch), .onnx or .keras.
    """
    (read, _), (_, write) = format_of(source), format_of(target)
    for flag, is_given, suffix in (("--sparse", sparse, ".onnx"), ("--only-weights", only_weights, ".npz")):
        if is_given and target.suffix != suffix:
            raise ValueError(f"{flag}: expected a target that ends in {suffix}, found {target}")
    M = read(source)
    (partial(exchange.to_onnx, sparse=True) if sparse else save_original if only_weights else write)(M, target)
    echo(M)
    if only_weights and M.normalization is not None:
        echo(f"the {M.normalization} normalization of the inputs is not in {target}", err=True)
