"""Programs in files: one safetensors file with the matrices, and the program as JSON in its header.

The header has a string ``matgrad``, the program, and where the model is known a string ``model``, its description,
which makes the file one that `load` reads; see `matgrad.storage.models`. What C++ has trained is such a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matgrad.foundation.files import naming, parse_json, read_safetensors
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.writing import atomic_write
from matgrad.layers.state import SUPPORT, State, matrices_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.description import as_dictionary, from_dictionary
from matgrad.program.program import Program, Value
from matgrad.sparse.support import Support
from matgrad.storage.models import INDEX, model_tensors, tensor_names


def save_program(program: Program, path: str | Path, of: MultilayerPerceptron | Mapping[str, Any]) -> None:
    """Write the program, and the model that it is of, or the state alone that it starts with, to one file."""
    from safetensors.numpy import save

    metadata = {"matgrad": json.dumps(as_dictionary(program), ensure_ascii=False)}
    if isinstance(of, MultilayerPerceptron):
        others, metadata["model"] = model_tensors(of)
        state = {name: X for name, X in of.state().items() if name in {*program.inputs, *program.supports}}
    else:
        others, state = {}, dict(of)
    matrices = {name: np.ascontiguousarray(A).reshape(A.shape) for name, A in matrices_of(state).items()}
    _check_matrices(program, matrices)
    for name, value in program.supports.items():
        S = value.support or state[name]
        others |= {f"{name}.{part}": getattr(S, part) for part in INDEX}
    with atomic_write(path) as file:
        file.write(save(others | matrices, metadata))


def load_program(path: str | Path) -> tuple[Program, State]:
    """The program, and the matrices and supports it starts with, in a file that `save_program` wrote."""
    matrices, metadata = read_safetensors(path)
    if "matgrad" not in metadata:
        raise ValueError(f"{path}: there is no program in it; expected a file of `matgrad program --save`")
    of_model = set(tensor_names(metadata["model"], path).values()) if "model" in metadata else set()
    with naming(path, "invalid program: "):
        program = from_dictionary(parse_json(metadata["matgrad"], finite=False))
        supports = {name: _support(value, matrices, file_limit(path)) for name, value in program.supports.items()}
        matrices = {name: A for name, A in matrices.items() if name in program.inputs or name not in of_model}
        _check_matrices(program, matrices)
    return program, matrices | supports


def _support(value: Value, matrices: State, limit: int) -> Support:
    """The support that a value stands for, whose index is taken out of the matrices of a file."""
    check_bytes(16 * sum(value.shape), f"{value.name}: a support with {value.shape[1]} columns", limit)
    S = Support(value.shape[:2], *(matrices.pop(f"{value.name}.{part}") for part in INDEX))
    if S.nnz != value.shape[2]:
        raise ValueError(f"{value.name}: expected {value.shape[2]} elements, found {S.nnz}")
    if not value.name.endswith(SUPPORT):
        value.support = S  # it is no part of a state
    return S


def _check_matrices(program: Program, matrices: Mapping[str, np.ndarray]) -> None:
    """Raise if a matrix is missing, is no input, or has another shape or dtype."""
    state = [name for name in program.inputs if name in program.outputs or "." in name]
    if missing := [name for name in matrices_of(dict.fromkeys(state)) if name not in matrices]:
        raise ValueError(f"no matrix for {', '.join(missing)}")
    for name, A in matrices.items():
        if (value := program.inputs.get(name)) is None:
            raise ValueError(f"{name} is not an input of the program")
        if A.shape != value.shape or A.dtype != value.dtype:
            expected = f"{tuple(map(int, value.shape))} {value.dtype}"
            raise ValueError(f"{name}: expected {expected}, found {A.shape} {A.dtype}")
