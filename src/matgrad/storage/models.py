"""Saving and loading models: one npz file with the weights under the original's names, or a program file.

``W1, b1, W2, b2, …`` are the weights (K×D) and biases of the linear layers. A sparse layer has its values (1×nnz)
as ``W1``, with the support in ``W1.starts`` and ``W1.columns``; see `matgrad.sparse.support`. Beside them stand all
else that the model needs, under its name in the state (``2.gamma``, ``2.running_mean``, ``3.al``), other sparse
parameters with their supports too (``4.V``, ``4.V.starts``, ``4.V.columns``), and a JSON string ``matgrad`` that says
how to make the model, or why no specification can. The linear layers are numbered in the order of `M.walk`, parts of
layers too. The normalization of the inputs is ``extra.offset`` and ``extra.scale``, that of the targets
``extra.target_offset`` and ``extra.target_scale``. The columns of a table that are the inputs are in the information.
Optimizers are not saved. Nothing is ever unpickled.

A program file (see `matgrad.storage.programs`) is a model file too: in its header there is a JSON string ``model``
with the same description, and with the name of the tensor that each of these arrays is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.backends.conversion import convert
from matgrad.datasets.features import Features
from matgrad.datasets.normalization import KINDS, Normalization
from matgrad.foundation.files import conform, is_safetensors, parse_json, read_npz, read_safetensors
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.writing import atomic_write
from matgrad.layers.layer import Layer
from matgrad.layers.linear import LinearLayer
from matgrad.layers.state import SUPPORT
from matgrad.loss_functions import LossFunction, create_loss, default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model, model_bytes, model_specification

FORMAT = 1
INDEX = ("starts", "columns")  # what is saved of a support
OTHERS = (".onnx", ".keras", ".safetensors", ".h5", ".pt", ".pth")  # how the names of other tools' files end
NORMALIZATION = ("offset", "scale")  # and of a normalization: that of the inputs or, as target_offset …, of the targets


class OnlyWeightsError(ValueError):
    """A file has weights, but does not say how to make their model."""


@dataclass
class Description:
    """The JSON string of a model file: arguments of `create_model`, or a 'problem', and the information."""

    format: int
    model: dict[str, str]
    information: dict[str, Any]


class Information(TypedDict, total=False):
    """What the package itself reads of the information; users add what they like."""

    loss: str | None
    classes: int | None
    class_names: list[str] | None
    normalize: str | None
    normalize_targets: str | None
    first_index: int | None


@dataclass
class SavedModel:
    """A model with what else is in its file: values that JSON can hold."""

    model: MultilayerPerceptron
    information: dict[str, Any] = field(default_factory=dict)

    @property
    def loss(self) -> LossFunction:
        """The loss that the model was trained with, or the one that fits it."""
        name = self.information.get("loss")
        return default_loss(self.model) if name is None else create_loss(name)


def save_model(M: MultilayerPerceptron, path: str | Path, *, information: Mapping[str, Any] | None = None) -> None:
    """Write the model, with its normalization and what else is to be known of it, to one npz file.

    A model that no specification describes, because a layer has parts of its own, is saved too: `load_weights`
    reads it into such a model, and `load_model` says why it cannot make one.
    """
    check_ending(path)
    description = model_description(M, information)
    with atomic_write(path) as file:
        np.savez(file, matgrad=np.array(json.dumps(description)), **model_arrays(M))  # type: ignore[arg-type]


def check_ending(path: str | Path) -> None:
    """Raise if the name of an npz file ends as those of other tools do."""
    if (ending := Path(path).suffix) in OTHERS:
        raise ValueError(f"{path}: expected a name that ends in .npz, found {ending}; `matgrad convert` writes others")


def model_arrays(M: MultilayerPerceptron) -> dict[str, np.ndarray]:
    """The arrays of a model file."""
    state, content = M.state(), {}
    for stored, name in state_names(M).items():
        content[stored] = backend_of(state[name]).to_numpy(state[name])
        if support := state.get(f"{name}{SUPPORT}"):
            content |= {f"{stored}.{part}": getattr(support, part) for part in INDEX}
    for prefix, normalization in (("", M.normalization), ("target_", M.target_normalization)):
        if normalization is not None:
            content |= {f"extra.{prefix}{name}": getattr(normalization, name) for name in NORMALIZATION}
    return content


def model_description(M: MultilayerPerceptron, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How to make the model, or the 'problem' where no specification can, and its information, with more of it."""
    information = {**M.information, **(more or {})}
    if M.normalization is not None:
        information["normalize"] = M.normalization.kind
    if M.target_normalization is not None:
        information["normalize_targets"] = M.target_normalization.kind
    if M.features is not None:
        information["features"] = M.features.as_json()
    try:
        model = model_specification(M)
    except ValueError as error:
        model = {"problem": str(error)}
    return {"format": FORMAT, "model": model, "information": information}


def load(path: str | Path) -> MultilayerPerceptron:
    """The model in a file that `M.save` or `matgrad train` wrote, with the normalization of its inputs and targets.

    It predicts from raw examples, and trains on them, where it was trained by `matgrad train`, and its targets and
    predictions are in the units of the data. What else is known of it, such as its loss and the names of its classes,
    is its `information`, which `M.save` writes again. The optimizers and their state are not saved: it has those of
    a new model.
    """
    return load_model(path).model


def with_information(M: MultilayerPerceptron, information: Mapping[str, Any], path: str | Path) -> MultilayerPerceptron:
    """M with what a file says of it beside its layers, after a check that it fits, but without the results of a run."""
    _check_classes(information, M.layers[-1].output_size, path)
    M.features = _features(information.get("features"), M.layers[0].input_size, path)
    M.information = {name: x for name, x in information.items() if name != "results"}
    return M


def load_model(path: str | Path) -> SavedModel:
    """The model in a file that `save_model` wrote or in the file of a program, and the information in it."""
    content = read_arrays(path)
    model, information = read_description(content, path)
    if "problem" in model:
        raise OnlyWeightsError(f"{path}: {model['problem']}; make the model and use mg.load_weights")
    try:
        wanted = model_bytes(model["layers"], model["sizes"], model.get("densities", 1))
        check_bytes(wanted, f"the model with sizes {model['sizes']}", file_limit(path))
        M = create_model(**model)
    except KeyError as error:
        raise ValueError(f"{path}: the model description is damaged (no {error})") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error} (a layer of your own needs its --plugin or mg.load_plugin)") from None
    if any(A.dtype == np.float64 for name, A in content.items() if not name.startswith("extra.")):
        M.to(dtype="float64")
    _fill(M, content, path)
    M.normalization = _normalization(content, information.get("normalize"), "", M.layers[0].input_size, path)
    kind, K = information.get("normalize_targets"), M.layers[-1].output_size
    M.target_normalization = _normalization(content, kind, "target_", K, path)
    return SavedModel(with_information(M, information, path), information)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a model in an npz file or a program file, its description among them; see above."""
    if Path(path).suffix in (".onnx", ".keras") and Path(path).is_file():
        raise ValueError(f"{path}: expected a model of matgrad; `matgrad convert` makes one of this")
    if not is_safetensors(path):
        return read_npz(path)
    tensors, metadata = read_safetensors(path)
    if "exchange" in metadata:
        raise ValueError(f"{path}: found weights for PyTorch; `matgrad convert` makes a model of matgrad of them")
    if "model" not in metadata:
        return tensors
    names = tensor_names(metadata["model"], path)
    if missing := [tensor for tensor in names.values() if tensor not in tensors]:
        raise ValueError(f"{path}: no {missing[0]} in it; found {', '.join(sorted(tensors))}")
    content = {name: tensors[tensor] for name, tensor in names.items()}
    return content | {"matgrad": np.array(metadata["model"])}


@dataclass
class _Tensors:
    tensors: dict[str, str]


def tensor_names(text: str, path: str | Path) -> dict[str, str]:
    """The tensors of a program file that are the arrays of its model, by the names of these."""
    try:
        return conform(parse_json(text), _Tensors).tensors
    except ValueError as error:
        raise ValueError(f"{path}: the model description is damaged ({error})") from None


def read_description(content: Mapping[str, np.ndarray], path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """How to make the model of a file, or its 'problem' where no specification can, and the information in it."""
    if "matgrad" not in content:
        raise OnlyWeightsError(
            f"{path}: no model description in it, only weights; make the model and use mg.load_weights"
        )
    try:
        description = conform(parse_json(str(content["matgrad"])), Description)
        if description.format != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {description.format}")
        conform(description.information, Information)
    except ValueError as error:
        raise ValueError(f"{path}: the model description is damaged ({error})") from None
    return description.model, description.information


def load_weights(M: MultilayerPerceptron, path: str | Path) -> None:
    """Give M the weights in a file of a model or a program, or in one of the original library with only W1, b1, …

    A layer that is sparse in the file becomes sparse in M, with the support in the file. M keeps its normalization.
    """
    _fill(M, read_arrays(path), path)


def _normalization(
    content: Mapping[str, np.ndarray], kind: str | None, prefix: str, size: int, path: str | Path
) -> Normalization | None:
    """The normalization of the inputs or targets that a file asks for."""
    if kind in (None, "none"):
        return None
    if kind not in KINDS:
        raise ValueError(f"{path}: unknown normalization {kind!r}; known: {', '.join(KINDS)}")
    names = [f"extra.{prefix}{name}" for name in NORMALIZATION]
    rows = [content[name] for name in names if name in content]
    if [row.shape for row in rows] != [(1, size), (1, size)]:
        what = " and ".join(f"{prefix}{name}" for name in NORMALIZATION)
        raise ValueError(f"{path}: expected {what} of size 1 × {size} for the {kind} normalization")
    for name, row in zip(names, rows, strict=True):
        _check_array(name, row, row.shape, path)
    if not (rows[1] > 0).all():
        raise ValueError(f"{path}: {names[1]} has elements that are not positive")
    return Normalization(str(kind), *rows)


def _features(value: Any, D: int, path: str | Path) -> Features | None:
    """The columns of a table that are the D inputs of a model, if its file names them."""
    if value is None:
        return None
    try:
        features = Features.from_json(value)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if features.size != D:
        raise ValueError(f"{path}: the features have {features.size} columns, expected {D} as the model has inputs")
    return features


def _check_classes(information: Mapping[str, Any], outputs: int, path: str | Path) -> None:
    """Raise if there are classes or class names that are not one per output, or two for one output."""
    K, names = max(outputs, 2), information.get("class_names") or []
    if information.get("classes", K) not in (None, K):
        raise ValueError(f"{path}: expected {K} classes as the model has outputs, found {information['classes']}")
    if names and (len(names) != K or len(set(names)) < K):
        raise ValueError(f"{path}: expected the different names of {K} classes, found {len(names)}: {names[:10]}")


def state_names(M: MultilayerPerceptron) -> dict[str, str]:
    """The name in the state of everything that is saved, by its name in the file: '1.W' for W1 of the first layer."""
    linear = [path for path, layer in M.walk() if isinstance(layer, LinearLayer)]
    special = {f"{path}.{name}": f"{name}{k}" for k, path in enumerate(linear, start=1) for name in ("W", "b")}
    return {special.get(name, name): name for name in _places(M)}


def state_tensors(M: MultilayerPerceptron, supports: Container[str]) -> dict[str, str]:
    """The tensor of every array of a model, where matrices of the state and these supports are tensors of that name."""
    names = {name: name for name in model_arrays(M)}
    for stored, name in state_names(M).items():
        names[stored] = name
        if f"{name}{SUPPORT}" in supports:
            names |= {f"{stored}.{part}": f"{name}{SUPPORT}.{part}" for part in INDEX}
    return names


def _places(M: MultilayerPerceptron) -> dict[str, tuple[Layer, str]]:
    """The layer and the attribute of everything in the state of M but its optimizers, by its name there."""
    return {f"{path}.{name}": (layer, name) for path, layer in M.walk() for name in (*layer.parameters, *layer.buffers)}


def _supports(M: MultilayerPerceptron, content: Mapping[str, np.ndarray], path: str | Path) -> dict[str, Support]:
    """The supports in a file, by the names of the parameters, after a check that they are whole and fit the layers.

    Only the weights of a linear layer can be dense in M and sparse in the file.
    """
    supports, state = {}, M.state()
    for stored, name in state_names(M).items():
        own = state.get(f"{name}{SUPPORT}")
        if own is None and not stored.startswith("W"):  # names in the state begin with a number
            continue
        missing = [f"{stored}.{part}" for part in INDEX if f"{stored}.{part}" not in content]
        if len(missing) == len(INDEX):
            if own is not None and stored in content:
                raise ValueError(f"{path}: {stored} is a dense matrix, but the layer is sparse")
            continue
        if missing:
            raise ValueError(f"{path}: no {missing[0]} in it; found {', '.join(sorted(content))}")
        try:
            shape = tuple(state[name].shape) if own is None else own.shape
            supports[stored] = Support(shape, *(content[f"{stored}.{part}"] for part in INDEX))
            if not supports[stored].nnz:
                raise ValueError("columns: expected at least one element")
        except ValueError as error:
            raise ValueError(f"{path}: {stored}.{error}") from None
    return supports


def _fill(M: MultilayerPerceptron, content: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Replace the saved part of M's state, after a check that everything is there and fits."""
    state = M.state()
    supports = _supports(M, content, path)
    loaded: dict[str, Any] = {}
    for stored, name in state_names(M).items():
        if stored not in content:
            if "matgrad" in content or "." not in stored:
                raise ValueError(f"{path}: no {stored} in it; found {', '.join(sorted(content))}")
            continue  # the original saves weights and biases only
        expected = (1, supports[stored].nnz) if stored in supports else tuple(state[name].shape)
        A = content[stored]
        A = A.reshape(1, -1) if name.endswith(".b") and A.ndim == 1 else A
        with np.errstate(over="ignore"):
            A = A.astype(M.backend.to_numpy(state[name]).dtype) if A.dtype.kind in "fiu" else A
        _check_array(stored, A, expected, path)
        loaded[name] = convert(A, M.backend, None, M.device)
    known = {*state_names(M), "matgrad", *(f"{name}.{part}" for name in supports for part in INDEX)}
    unknown = [name for name in content if name not in known and not name.startswith("extra.")]
    if unknown:
        raise ValueError(f"{path}: {', '.join(unknown)} in it, which this model does not have")
    for stored, support in supports.items():
        layer, attribute = _places(M)[state_names(M)[stored]]
        layer.restrict(attribute, support)
    M.load_state(M.state() | loaded)


def _check_array(name: str, A: np.ndarray, expected: tuple[int, ...], path: str | Path) -> None:
    """Raise if an array has another shape, or anything but finite numbers."""
    if A.shape != expected:
        raise ValueError(f"{path}: {name} has shape {A.shape}, expected {expected}")
    if A.dtype.kind not in "fiu" or not np.isfinite(A).all():
        raise ValueError(f"{path}: {name} has elements that are not finite numbers")


# -- supports ----------------------------------------------------------------------------------


def load_supports(path: str | Path) -> list[Support | None]:
    """The supports of the linear layers, in their order, that a file has; None for a matrix without zeros.

    In a model file, a sparse layer has its support, and a dense one the positions where its weights are not 0. Other
    npz files have masks or matrices ``W1, W2, …``, one per linear layer, and possibly ``b1, b2, …``.
    """
    content = read_arrays(path)
    if "matgrad" not in content:
        return [_where_not_zero(A) for A in _masks(content, path)]
    M = load_model(path).model
    return [_support_of(layer.W) for _, layer in M.walk() if isinstance(layer, LinearLayer)]


def _support_of(W: Array) -> Support | None:
    return W.support if isinstance(W, SparseMatrix) else _where_not_zero(W)


def _where_not_zero(A: np.ndarray) -> Support | None:
    mask = A != 0
    return None if mask.all() else Support.from_mask(mask)


def _masks(content: Mapping[str, np.ndarray], path: str | Path) -> list[np.ndarray]:
    """W1, W2, … of a file, after a check that they are matrices of finite numbers and that little else is in it."""
    found = [name for name in content if not re.fullmatch(r"b[1-9]\d*", name)]
    names = [f"W{k}" for k in range(1, len(found) + 1)]
    if not found or {*found} != {*names}:
        expected = "expected a model, or matrices W1, W2, … of all its linear layers (a dense one has no 0)"
        raise ValueError(f"{path}: {expected}, found {', '.join(found) or 'none'}")
    for name in names:
        A = content[name]
        if A.ndim != 2 or A.dtype.kind not in "biuf" or not np.isfinite(A).all():
            raise ValueError(f"{path}: {name}: expected a matrix of numbers, found {A.dtype} of shape {A.shape}")
    return [content[name] for name in names]
