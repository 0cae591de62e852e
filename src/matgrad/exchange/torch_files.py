"""State dictionaries of PyTorch in safetensors files, under PyTorch's own names: ``0.weight``, ``0.bias``, …

`safetensors.torch.load_file` reads them, and `load_state_dict` of `to_torch(M)` takes them. A string ``exchange`` in
the header has the description of a model file (see `matgrad.storage.models`), from which the model can be made again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from matgrad.datasets.normalization import KINDS, Normalization
from matgrad.exchange.torch_models import from_torch, to_torch
from matgrad.foundation.files import naming, read_safetensors
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.numbers import preserved_generator
from matgrad.foundation.writing import atomic_write
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.specifications.models import create_model, model_bytes
from matgrad.storage.models import model_description, read_description, with_information

DESCRIPTION = "exchange"  # its name in the header


def save_torch(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write the state dictionary of `to_torch(M)` to a safetensors file."""
    tensors = {name: tensor.contiguous() for name, tensor in to_torch(M).state_dict().items()}
    description = json.dumps(model_description(M))
    with atomic_write(path) as file:
        file.write(save(tensors, metadata={DESCRIPTION: description}))


def load_torch(path: str | Path) -> MultilayerPerceptron:
    """The model in a file that `save_torch` wrote."""
    arrays, metadata = read_safetensors(path)
    if DESCRIPTION not in metadata:
        raise ValueError(
            f"{path}: a state dictionary alone, without the description of a model; make the module, let it "
            "load_state_dict(safetensors.torch.load_file(...)), and use mg.from_torch"
        )
    with naming(path):
        description, information = read_description({"matgrad": np.array(metadata[DESCRIPTION])}, "the description")
        check_bytes(model_bytes(description["layers"], description["sizes"]), "the model", file_limit(path))
        module = to_torch(_like(description, information))
        module.load_state_dict({name: torch.from_numpy(A) for name, A in arrays.items()}, assign=True)
        return with_information(from_torch(module), information, "the description")


def _like(description: dict[str, Any], information: dict[str, Any]) -> MultilayerPerceptron:
    """A model of the same kind as the one that was saved."""
    with preserved_generator():
        M = create_model(**description)
    for attribute, kind, size in (
        ("normalization", information.get("normalize"), M.layers[0].input_size),
        ("target_normalization", information.get("normalize_targets"), M.layers[-1].output_size),
    ):
        if kind is not None:
            if kind not in KINDS:
                raise ValueError(f"unknown normalization {kind!r}; known: {', '.join(KINDS)}")
            rows = Normalization.none(size)
            setattr(M, attribute, Normalization(kind, rows.offset, rows.scale))
    return M
