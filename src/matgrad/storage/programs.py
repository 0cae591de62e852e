"""Programs in files: one safetensors file with the matrices, and the program as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.foundation.files import atomic_write
from matgrad.layers.state import SUPPORT, State, matrices_of
from matgrad.program.description import as_dictionary, from_dictionary
from matgrad.program.program import Program, Value
from matgrad.sparse.support import Support

INDEX = ("starts", "columns")  # what is saved of a support


def save_program(program: Program, path: str | Path, state: Mapping[str, Any]) -> None:
    """Write the program, and the matrices and supports that it starts with, to one file."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(A).reshape(A.shape) for name, A in matrices_of(state).items()}
    _check_matrices(program, arrays)
    for name, value in program.supports.items():
        S = value.support or state[name]
        arrays |= {f"{name}.{part}": getattr(S, part) for part in INDEX}
    text = json.dumps(as_dictionary(program), ensure_ascii=False)
    with atomic_write(path) as file:
        file.write(save(arrays, metadata={"matgrad": text}))


def load_program(path: str | Path) -> tuple[Program, State]:
    """The program, and the matrices and supports it starts with, in a file that `save_program` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("matgrad")
            matrices = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (SafetensorError, OSError, AttributeError, TypeError) as error:  # the last two for a dtype NumPy lacks
        raise ValueError(f"{path}: not a safetensors file, or a damaged one ({error})") from None
    if text is None:
        raise ValueError(f"{path}: there is no program in it; expected a file of `matgrad program --save`")
    try:
        program = from_dictionary(json.loads(text))
        supports = {name: _support(value, matrices) for name, value in program.supports.items()}
        _check_matrices(program, matrices)
    except KeyError as error:
        raise ValueError(f"{path}: not a sound program: there is no {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not a sound program: {error}") from None
    return program, matrices | supports


def _support(value: Value, matrices: State) -> Support:
    """The support that a value stands for, whose index is taken out of the matrices of a file."""
    S = Support(value.shape[:2], *(matrices.pop(f"{value.name}.{part}") for part in INDEX))
    if S.nnz != value.shape[2]:
        raise ValueError(f"{value.name}: expected {value.shape[2]} elements, found {S.nnz}")
    if not value.name.endswith(SUPPORT):
        value.support = S  # it is no part of a state
    return S


def _check_matrices(program: Program, matrices: Mapping[str, np.ndarray]) -> None:
    """Refuse matrices that are no inputs, that have other shapes or dtypes, and that are missing."""
    if missing := [name for name in program.inputs if name in program.outputs and name not in matrices]:
        raise ValueError(f"no matrix for {', '.join(missing)}")
    for name, A in matrices.items():
        if name not in program.inputs:
            raise ValueError(f"{name} is not an input of the program")
        value = program.inputs[name]
        if A.shape != value.shape or A.dtype != value.dtype:
            found = f"{A.shape} {A.dtype}"
            raise ValueError(f"{name}: expected {tuple(map(int, value.shape))} {value.dtype}, found {found}")
