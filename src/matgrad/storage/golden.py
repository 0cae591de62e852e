"""Golden values: all that a program computes, in float64 and in float32, to compare other kernels with.

A golden file is a safetensors file with the program in its header, as program files have it. Its tensors are the inputs
by name, the outputs, with a prime where they replace an input (``1.W'``), and the other values by the names that
programs have for them (``DZ1``), or by their numbers in the list of values (``17``). ``DZ1`` is in float64; if the
program is in float32, ``DZ1.float32`` is what the interpreter computes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.backends.base import DTYPES
from matgrad.foundation.files import is_safetensors, naming, parse_json, read_npz, read_safetensors
from matgrad.foundation.writing import atomic_write
from matgrad.layers.state import State
from matgrad.program.description import as_dictionary, from_dictionary
from matgrad.program.interpreter import matrix, run
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program
from matgrad.program.rounding import Rounded
from matgrad.program.text import Printer
from matgrad.sparse.support import Support
from matgrad.storage.models import INDEX


def names_of(program: Mapping[str, Any]) -> list[str]:
    """The name of each value in golden files."""
    lines = program["values"]
    inputs = {line["name"]: i for i, line in enumerate(lines) if line["operation"] in ("input", "support")}
    outputs = {f"{name}'" if name in inputs else name: i for name, i in program["outputs"].items()}
    own = {i: name for name, i in (inputs | outputs).items()}
    often = Counter([*own.values(), *(line.get("name", "") for i, line in enumerate(lines) if i not in own)])
    return [
        own.get(i) or (line["name"] if often[line.get("name", "")] == 1 and line.get("name") else str(i))
        for i, line in enumerate(lines)
    ]


def save_golden(program: Program, path: str | Path, state: State, inputs: State) -> None:
    """Write the values of a program for a state and inputs, which are rounded to the dtype of the program before."""
    from safetensors.numpy import save

    description = as_dictionary(program)
    tensors: dict[str, np.ndarray] = {}
    for name, x in (state | {x.name: x.support for x in program.supports.values() if x.support} | inputs).items():
        if isinstance(x, Support):
            tensors |= {f"{name}.{part}": getattr(x, part) for part in INDEX}
        elif name in program.inputs:
            tensors[name] = np.asarray(x).astype(program.inputs[name].dtype)
    dtype = next(x.dtype for x in program.values if x.dtype in DTYPES)
    own, names = run(description, tensors), names_of(description)
    exact = run(description | {"values": [_as(line, "float64") for line in description["values"]]}, tensors)
    for name, line, x, y in zip(names, description["values"], exact, own, strict=True):
        if line["operation"] == "input" or OPERATIONS[line["operation"]].kind not in ("source", "view"):
            tensors |= {f"{name}.{dtype}": y, name: x} if dtype == "float32" else {name: x}
    contiguous = {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in tensors.items()}
    with atomic_write(path) as file:
        file.write(save(contiguous, {"matgrad": json.dumps(description, ensure_ascii=False)}))


def _as(line: dict[str, Any], dtype: str) -> dict[str, Any]:
    """A line in another dtype, unless it counts."""
    return line | {"dtype": dtype} if line["dtype"] in DTYPES else line


@dataclass
class Compared:
    """A value that was compared, and the element of it that is the furthest out of its bound, or the closest to it."""

    name: str
    equation: str  # where it is from
    text: str  # how it is computed
    place: tuple[int, ...]  # row and column, from 1
    found: float
    expected: float
    error: float  # in units in the last place of what is expected, as is its bound
    bound: float
    is_right: bool
    unbounded: int  # elements that differ, and have no bound

    @property
    def where(self) -> str:
        """The place in words."""
        return " ".join(f"{what} {n}" for what, n in zip(("row", "column"), self.place, strict=False))


def compared(mine: str | Path, golden: str | Path) -> list[Compared]:
    """The values of a file, each compared with what follows from those before it there.

    What is not there follows from what is, or from the inputs in the golden file.
    """
    arrays = read_safetensors(mine)[0] if is_safetensors(mine) else read_npz(mine)
    tensors, strings = read_safetensors(golden)
    if "matgrad" not in strings:
        raise ValueError(f"{golden}: there is no program in it; expected a file of `matgrad program --values`")
    with naming(golden, "invalid: "):
        description = parse_json(strings["matgrad"], finite=False)
        program, names = from_dictionary(description), names_of(description)
    listed = f"{golden} has {', '.join(name for name in names if name in tensors)}"
    if unknown := arrays.keys() - tensors.keys() - {*names}:
        raise ValueError(f"{mine}: {min(unknown)} is no value of the program; {listed}")
    if not (found := {name: arrays[name] for name in names if name in arrays}):
        raise ValueError(f"{mine}: found no values of the program; {listed}")
    with naming(mine):
        judged = _judged(description, tensors, found)
    values, printer = {value.order: value for value in program.all_values}, Printer(program)
    texts = {i: f"{printer.names.get(values[i], names[i])} = {printer.expression(values[i])[0]}" for i in judged}
    return [Compared(names[i], values[i].equation, texts[i], *facts) for i, facts in judged.items()]


def _judged(description: dict[str, Any], tensors: State, found: State) -> dict[int, tuple[Any, ...]]:
    """What is known of each value that is found, by its number."""
    dtype = "float32" if any(x.dtype == np.float32 for x in found.values()) else "float64"
    names, judged = names_of(description), dict[int, tuple[Any, ...]]()
    numbers = (i for i, line in enumerate(description["values"]) if line["operation"] != "support")

    def known(x: Any, line: dict[str, Any], shape: tuple[int, ...]) -> Any:
        i = next(numbers)
        own, is_whole = found.get(names[i]), line["dtype"] not in DTYPES
        if is_whole:
            x = matrix(x, line, shape)
        if not isinstance(x, Rounded):  # what is given is rounded to the dtype
            exact = np.asarray(x, np.float64)
            x = Rounded(exact, np.abs(exact.astype(dtype) - exact), dtype)
        if own is not None:
            if own.shape != shape or own.dtype.name not in (line["dtype"] if is_whole else DTYPES):
                kind = f"{shape} of {line['dtype'] if is_whole else ' or '.join(DTYPES)}"
                raise ValueError(f"{names[i]}: expected {kind}, found {own.shape} of {own.dtype}")
            judged[i] = _facts(own, x.reshape(shape), dtype)
            x = Rounded(own, 0, dtype)
        return matrix(x.value, line, shape) if is_whole else x.reshape(shape)

    run(description, tensors, known)
    return judged


def _facts(own: np.ndarray, x: Rounded, dtype: str) -> tuple[Any, ...]:
    """The place, the values, the error and its bound, whether it holds, and how many elements have none."""
    with np.errstate(all="ignore"):
        ulp = np.spacing(np.maximum(np.abs(x.value), np.finfo(dtype).tiny).astype(dtype)).astype(np.float64)
        error = np.abs(own.astype(np.float64) - x.value)
        is_equal = (own == x.value) | (np.isnan(own) & np.isnan(x.value))
        error = np.where(is_equal, 0, np.where(np.isnan(error), np.inf, error))
        share = np.nan_to_num(error / np.maximum(x.error, 1e-300), nan=1)
    k = int(np.argmax(share))
    place = tuple(int(n) + 1 for n in np.unravel_index(k, x.shape))
    facts = (float(np.reshape(a, -1)[k]) for a in (own, x.value, error / ulp, x.error / ulp))
    is_right = bool((error <= x.error).all())
    return place, *facts, is_right, int((np.isinf(x.error) & ~is_equal).sum())
