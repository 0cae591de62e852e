"""Files of Keras models, which end in .keras: zip archives with a configuration in JSON, and weights in HDF5.

They are read without Keras, so that nothing in them is run: only known layers, and plain arrays.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from matgrad.exchange.chain import model_of
from matgrad.exchange.keras_layers import Config, Part, layers_of, operations_of
from matgrad.foundation.files import naming, parse_json
from matgrad.foundation.limits import JSON, check_bytes, check_count, file_limit, limit_from
from matgrad.multilayer_perceptron import MultilayerPerceptron

CONFIGURATION, WEIGHTS = "config.json", "model.weights.h5"
MEMBERS = {"metadata.json", CONFIGURATION, WEIGHTS}


def load_keras(path: str | Path) -> MultilayerPerceptron:
    """The model in a .keras file; it is compared with the layers of Keras, where that is installed."""
    with naming(path, kind="a .keras file"):
        parts = parts_in(path)
        try:
            from matgrad.exchange.keras_models import outputs_of
        except ImportError:
            return model_of(operations_of(parts))
        return model_of(operations_of(parts), partial(outputs_of, parts))


def parts_in(path: str | Path) -> list[Part]:
    """The layers in a .keras file."""
    configuration, weights = _read(path)
    model = parse_json(configuration.decode())
    try:
        file = h5py.File(io.BytesIO(weights), "r")
    except OSError as error:
        raise ValueError(f"{WEIGHTS}: not an HDF5 file, or a damaged one ({error})") from None
    parts, limit = [], limit_from(len(weights))
    with file:
        for places in layers_of(model):
            kind, config = places[-1]["class_name"], places[-1]["config"]
            parts.append(Part(kind, config, _arrays(file, _group(model, places), limit)))
    return parts


def _read(path: str | Path) -> tuple[bytes, bytes]:
    """The configuration and the weights in an archive, after a check of what is in it, and how large."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
        if {*sizes} != MEMBERS or len(archive.infolist()) != len(MEMBERS):
            found = ", ".join(map(repr, [*sizes][:10]))
            raise ValueError(f"expected the files {', '.join(sorted(MEMBERS))} in it, found {found}")
        check_bytes(sum(sizes.values()), "the content", file_limit(path))
        check_count(sizes[CONFIGURATION], JSON, CONFIGURATION, "bytes")
        return archive.read(CONFIGURATION), archive.read(WEIGHTS)


def _group(model: Config, places: tuple[Config, ...]) -> list[str]:
    """The names of the groups in which the arrays of a layer are: layers, dense_1, vars for the second dense layer."""
    names, parent = [], model
    for layer in places:
        kind, others = layer["class_name"], parent["config"]["layers"]
        index = next(i for i, other in enumerate(others) if other is layer)  # some may be equal to it
        before = sum(other["class_name"] == kind for other in others[:index])
        name = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)).lower()
        names += ["layers", f"{name}_{before}" if before else name]
        parent = layer
    return [*names, "vars"]


def _arrays(file: h5py.File, names: list[str], limit: int) -> list[np.ndarray]:
    """The arrays 0, 1, … in a group."""
    with naming(f"{WEIGHTS}: {'/'.join(names)}"):
        group: Any = file
        for name in names:
            group = _member(group, name, h5py.Group)
        return [_array(_member(group, str(i), h5py.Dataset), limit) for i in range(len(group))]


def _member(group: h5py.Group, name: str, kind: type) -> Any:
    """A group or array in a group, which must be there itself, not a link to another place or file."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink) or not isinstance(group[name], kind):
        raise ValueError(f"{name}: expected {'a group' if kind is h5py.Group else 'an array'}")
    return group[name]


def _array(dataset: h5py.Dataset, limit: int) -> np.ndarray:
    """An array in a file; raise if it is outside of the file, or too large."""
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{dataset.name}: is in another file, expected all arrays in this one")
    if dataset.dtype.kind not in "fiu" or dataset.shape is None:
        raise ValueError(f"{dataset.name}: found {dataset.dtype}, expected numbers")
    check_bytes(math.prod(dataset.shape) * dataset.dtype.itemsize, f"{dataset.name}", limit)
    return dataset[()].astype(dataset.dtype.newbyteorder("="), copy=False)
