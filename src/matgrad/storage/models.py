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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from matgrad.backends import backend_of, convert
from matgrad.backends.base import Array
from matgrad.datasets.checking import all_finite
from matgrad.datasets.dataset import Normalization
from matgrad.datasets.features import Features
from matgrad.foundation.files import conform, is_safetensors, naming, parse_json, read_npz, read_safetensors
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.writing import atomic_write
from matgrad.layers.linear import LinearLayer
from matgrad.layers.state import SUPPORT, State, matrices_of, supports_of
from matgrad.loss_functions import LOSSES
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model, model_bytes, model_specification
from matgrad.specifications.origins import Origin, check_origins, origins

FORMAT = 1
DAMAGED = "the model description is damaged: "
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
    plugins: dict[str, Origin]  # of the classes of its layers and activation functions
    loss_plugins: dict[str, Origin]


def save_model(M: MultilayerPerceptron, path: str | Path, *, information: Mapping[str, Any] | None = None) -> None:
    """Write the model, with its normalization and what else is to be known of it, to one npz file.

    A model that no specification describes, because a layer has parts of its own, is saved too: `load_weights`
    reads it into such a model, and `load` says why it cannot make one.
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
    for name, normalization in (("normalize", M.normalization), ("normalize_targets", M.target_normalization)):
        if normalization is not None:
            information[name] = normalization.kind
    if M.features is not None:
        information["features"] = asdict(M.features)
    for name, things in _definitions(M, information).items():
        information.pop(name, None)
        if found := origins(things):
            information[name] = found
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
    content = read_arrays(path)
    model, information = read_description(content.get("matgrad"), path)
    if "problem" in model:
        raise OnlyWeightsError(f"{path}: {model['problem']}; make the model and use mg.load_weights")
    with naming(path):
        with _plugins_named(information):
            wanted = model_bytes(model["layers"], model["sizes"], model.get("densities", 1))
        check_bytes(wanted, f"the model with sizes {model['sizes']}", file_limit(path))
        with _plugins_named(information):
            M = create_model(**model)
        if any(A.dtype == np.float64 for name, A in content.items() if not name.startswith("extra.")):
            M.to(dtype="float64")
        _fill(M, content)
        M.normalization = _normalization(content, information, "", M.layers[0].input_size)
        M.target_normalization = _normalization(content, information, "target_", M.layers[-1].output_size)
    return with_information(M, information, path)


@contextmanager
def _plugins_named(information: Mapping[str, Any]) -> Iterator[None]:
    """Errors inside, such as an unknown layer, say which plugins a file needs."""
    try:
        yield
    except ValueError as error:
        plugins = information.get("plugins", {}).values()
        known = ", ".join({f"{x['plugin']!r} with the SHA-256 {x['sha256']!r}" for x in plugins})
        needed = f"the plugin {known}" if known else "its plugin"
        raise ValueError(f"{error} (a layer of your own needs {needed}: --plugin or mg.load_plugin)") from None


def with_information(M: MultilayerPerceptron, information: Mapping[str, Any], path: str | Path) -> MultilayerPerceptron:
    """M with what a file says of it beside its layers, after a check that it fits, but without the results of a run."""
    D, K, names = M.layers[0].input_size, max(M.layers[-1].output_size, 2), information.get("class_names") or []
    if str(information.get("loss")).startswith("TokenCrossEntropy"):  # so many for each of D tokens
        K //= D
    with naming(path):
        if information.get("classes", K) not in (None, K):
            raise ValueError(f"expected {K} classes as the model has outputs, found {information['classes']}")
        if names and (len(names) != K or len(set(names)) < K):
            raise ValueError(f"expected the different names of {K} classes, found {len(names)}: {names[:10]}")
        features = information.get("features")
        M.features = None if features is None else Features.from_json(features)
        if M.features is not None and M.features.size != D:
            raise ValueError(f"the features have {M.features.size} columns, expected {D} as the model has inputs")
        definitions = _definitions(M, information)
        for name, things in definitions.items():  # a loss is needed where it is used
            check_origins(information.get(name, {}), things, are_all_needed=name == "plugins")
    M.information = {name: x for name, x in information.items() if name not in ("results", *definitions)}
    return M


def _definitions(M: MultilayerPerceptron, information: Mapping[str, Any]) -> dict[str, list[object]]:
    """What plugins may have defined of a model, by the name that the origins have in its information."""
    loss = LOSSES.get(str(information.get("loss")).partition("(")[0])
    return {"plugins": [layer for _, layer in M.walk()], "loss_plugins": [loss]}


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


def tensor_names(text: str, path: str | Path) -> dict[str, str]:
    """The tensors of a program file that are the arrays of its model, by the names of these."""
    with naming(path, DAMAGED):
        return conform(parse_json(text)["tensors"], dict[str, str])


def read_description(text: object, path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """How to make the model of a file, or its 'problem' where no specification can, and the information in it."""
    if text is None:
        problem = "no model description in it, only weights"
        raise OnlyWeightsError(f"{path}: {problem}; make the model and use mg.load_weights")
    with naming(path, DAMAGED):
        description = conform(parse_json(str(text)), Description)
        if description.format != FORMAT:
            raise ValueError(f"expected format {FORMAT}, found {description.format}")
        conform(description.information, Information)
    return description.model, description.information


def load_weights(M: MultilayerPerceptron, path: str | Path) -> None:
    """Give M the weights in a file of a model or a program, or in one of the original library with only W1, b1, …

    A layer that is sparse in the file becomes sparse in M, with the support in the file. M keeps its normalization.
    """
    content = read_arrays(path)
    with naming(path):
        _fill(M, content)


def _normalization(
    content: Mapping[str, np.ndarray], information: Mapping[str, Any], prefix: str, size: int
) -> Normalization | None:
    """The normalization of the inputs, or with the prefix target_ of the targets, that a file asks for."""
    kind = information.get("normalize_targets" if prefix else "normalize")
    if kind in (None, "none"):
        return None
    rows = [content.get(f"extra.{prefix}{name}", np.empty(0)) for name in NORMALIZATION]
    if not all(row.shape == (1, size) and row.dtype.kind in "fiu" for row in rows):
        what = " and ".join(f"{prefix}{name}" for name in NORMALIZATION)
        raise ValueError(f"expected finite {what} of size 1 × {size} for the {kind} normalization")
    return Normalization(str(kind), *rows)


def state_names(M: MultilayerPerceptron) -> dict[str, str]:
    """The name in the state of everything that is saved, by its name in the file: '1.W' for W1 of the first layer."""
    linear = [path for path, layer in M.walk() if isinstance(layer, LinearLayer)]
    special = {f"{path}.{name}": f"{name}{k}" for k, path in enumerate(linear, start=1) for name in ("W", "b")}
    saved = [f"{path}.{name}" for path, layer in M.walk() for name in (*layer.parameters, *layer.buffers)]
    return {special.get(name, name): name for name in saved}


def model_tensors(M: MultilayerPerceptron) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a model as tensors, of which those of its state have the names there; and the string ``model``."""
    arrays, names = model_arrays(M), state_names(M)
    names |= {f"{stored}.{part}": f"{name}{SUPPORT}.{part}" for stored, name in names.items() for part in INDEX}
    tensors = {name: names.get(name, name) for name in arrays}
    description = json.dumps(model_description(M) | {"tensors": tensors}, ensure_ascii=False)
    return {tensors[name]: A for name, A in arrays.items()}, description


def _fill(M: MultilayerPerceptron, content: Mapping[str, np.ndarray]) -> None:
    """Replace the saved part of M's state, after a check that everything is there and fits.

    Only the weights of a linear layer can be dense in M and sparse in the file.
    """
    state, known = M.state(), {"matgrad"}
    loaded: State = {}
    for stored, name in state_names(M).items():
        if stored not in content and "matgrad" not in content and "." in stored:
            continue  # the original saves weights and biases only
        A, own = content[stored], state.get(f"{name}{SUPPORT}")
        A = A.reshape(1, -1) if name.endswith(".b") and A.ndim == 1 else A
        with np.errstate(over="ignore"):
            loaded[name] = A.astype(M.backend.to_numpy(state[name]).dtype) if A.dtype.kind in "fiu" else A
        parts = [f"{stored}.{part}" for part in INDEX]
        known |= {stored, *parts}
        if (own is not None or stored.startswith("W")) and content.keys() & {*parts}:
            shape = state[name].shape if own is None else own.shape
            with naming(stored):
                loaded[f"{name}{SUPPORT}"] = Support(tuple(shape), *(content[part] for part in parts))
        elif own is not None:
            raise ValueError(f"{stored} is a dense matrix, but the layer is sparse")
    if unknown := [name for name in content if name not in known and not name.startswith("extra.")]:
        raise ValueError(f"{', '.join(unknown)} in it, which this model does not have")
    replace_state(M, loaded)


def replace_state(M: MultilayerPerceptron, state: State, *, is_whole: bool = False) -> None:
    """Replace some or all of M's state by matrices of NumPy and supports; M stays as it is if they do not fit."""
    state = on_backend(state, M)
    for model in (M.clone(), M):
        layers = dict(model.walk())
        for name, support in supports_of(state).items():
            path, _, attribute = name.removesuffix(SUPPORT).rpartition(".")
            if path in layers and attribute in layers[path].parameters:
                layers[path].restrict(attribute, support)
        model.load_state(state if is_whole else model.state() | state)


def on_backend(state: Mapping[str, Any], M: MultilayerPerceptron) -> State:
    """A state in matrices of NumPy as one on the backend and device of M, after a check of the types."""
    counters = {name for name, X in matrices_of(M.state()).items() if "int" in str(X.dtype)}
    for name, A in matrices_of(state).items():
        if not isinstance(A, np.ndarray):
            raise ValueError(f"{name}: expected a matrix, found {type(A).__name__}")
        if A.dtype != M.dtype and not (name in counters and A.dtype.kind in "iu"):
            raise ValueError(f"{name} is {A.dtype}, but the model is {M.dtype}")
        if not all_finite(A):
            raise ValueError(f"{name} has elements that are not finite")
    for name, S in supports_of(state).items():
        if not isinstance(S, Support) or not S.nnz:
            raise ValueError(f"{name}: expected a support with at least one element, found {S}")
    moved = {name: convert(A, M.backend, None, M.device) for name, A in matrices_of(state).items()}
    return moved | supports_of(state)


# -- supports ----------------------------------------------------------------------------------


def load_supports(path: str | Path) -> list[Support | None]:
    """The supports of the linear layers, in their order, that a file has; None for a matrix without zeros.

    In a model file, a sparse layer has its support, and a dense one the positions where its weights are not 0. Other
    npz files have masks or matrices ``W1, W2, …``, one per linear layer, and possibly ``b1, b2, …``.
    """
    content = read_arrays(path)
    if "matgrad" in content:
        return [_support_of(layer.W) for layer in load(path).linear_layers()]
    found = [name for name in content if not re.fullmatch(r"b[1-9]\d*", name)]
    matrices = [content.get(f"W{k}", np.empty(0)) for k in range(1, len(found) + 1)]
    if not found or not all(A.ndim == 2 and A.dtype.kind in "biuf" and all_finite(A) for A in matrices):
        expected = "expected a model, or finite matrices W1, W2, … of all its linear layers (a dense one has no 0)"
        raise ValueError(f"{path}: {expected}, found {', '.join(found) or 'none'}")
    return [_support_of(A) for A in matrices]


def _support_of(W: Array) -> Support | None:
    if isinstance(W, SparseMatrix):
        return W.support
    return None if (mask := W != 0).all() else Support.from_mask(mask)
