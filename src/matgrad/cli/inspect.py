"""`matgrad inspect` for files and `matgrad info` for the machine."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from matgrad.backends import BACKENDS, automatic_backend
from matgrad.callbacks.statistics import MEASURES
from matgrad.cli.commands import Command, echo_columns, echo_json, json_option
from matgrad.cli.files import READS
from matgrad.datasets import Features
from matgrad.foundation.files import is_safetensors, naming, read_safetensors
from matgrad.foundation.machine import instruction_sets, machine, thread_pools, versions
from matgrad.program.program import Program, Value
from matgrad.storage.checkpoints import RunState, read_checkpoint
from matgrad.storage.models import read_arrays, read_description
from matgrad.storage.programs import load_program


@click.command(cls=Command, short_help="Show what is in an npz or safetensors file.")
@click.argument("file", type=READS)
@click.option("--shapes-only", is_flag=True, help="Do not compute ranges and means.")
@json_option
def inspect(file: Path, shapes_only: bool, as_json: bool) -> None:
    """Show what is in an npz or safetensors FILE of weights, programs, checkpoints, data or predictions."""
    content = read_arrays(file)  # those of the model, if the file describes one
    model, information = read_description(content["matgrad"], file) if "matgrad" in content else ({}, {})
    program: dict[str, Any] = {}
    run: dict[str, Any] = {}
    if is_safetensors(file):
        content, metadata = read_safetensors(file)
        program = _summary(load_program(file)[0]) if "matgrad" in metadata else {}
        run = _position(read_checkpoint(file).run) if "checkpoint" in metadata else {}
    if not content:
        raise ValueError(f"{file}: no arrays in it")
    rows = [_row(name, A, shapes_only) for name, A in content.items() if name != "matgrad"]
    if as_json:
        parts = {"model": model, "information": information, "program": program, "run": run}
        echo_json({"arrays": rows} | {name: part or None for name, part in parts.items()})
        return
    if information.get("features") is not None:
        with naming(file):
            information |= Features.from_json(information["features"]).summary()
    for name, value in (model | information | program | run).items():
        click.echo(f"{name}: {value}")
    echo_columns([[*row] for row in rows[:1]] + [[*map(_cell, row.values())] for row in rows])


@click.command(cls=Command, short_help="Show versions, backends and the machine.")
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
    installed = {name: "installed" if is_found else "not installed" for name, is_found in values["backends"].items()}
    lines = {
        **values["versions"],
        **{f"backend {name:<12}": text for name, text in (*installed.items(), ("auto", values["auto"]))},
        **values["machine"],
        "instructions": " ".join(values["instruction_sets"]),
        **{f"threads of {name}": number for name, number in values["threads"].items()},
    }
    for name, value in lines.items():
        click.echo(f"{name:<16} {value}")


def _summary(program: Program) -> dict[str, Any]:
    """The number of operations of a program, and its inputs and outputs besides the state."""

    def sizes(values: Mapping[str, Value]) -> str:
        return ", ".join(f"{name} {_cell(list(x.shape))}" for name, x in values.items() if "." not in name)

    return {
        "operations": len(program.instructions),
        "inputs": sizes(program.inputs),
        "outputs": sizes(program.outputs) or "the state after a training step",
    }


def _position(run: RunState) -> dict[str, Any]:
    """Where the run of a checkpoint is, and what was measured after its last epoch."""
    last = {f"last {name}": x for name, x in (run.rows[-1] if run.rows else {}).items() if name.endswith(MEASURES)}
    return {"epochs": run.epoch, "batches since": run.batch, "steps": run.step, **last}


def _row(name: str, A: np.ndarray, shapes_only: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "shape": list(A.shape), "dtype": str(A.dtype)}
    if not shapes_only:
        numeric = A.size and A.dtype.kind in "fiub"
        row |= {f.__name__: float(f(A)) if numeric else None for f in (np.min, np.max, np.mean)}
    return row


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(map(str, value)) or "scalar"
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
