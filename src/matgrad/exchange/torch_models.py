"""PyTorch: a model as an `nn.Sequential`, and from one, and its state dictionary in a safetensors file.

`safetensors.torch.load_file` reads such a file, and `load_state_dict` of `to_torch(M)` takes what is in it, under
PyTorch's own names: ``0.weight``, ``0.bias``, … A string ``exchange`` in the header has the description of a model
file (see `matgrad.storage.models`), from which the model can be made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import save
from torch import nn
from torch.nn.utils import prune, skip_init

from matgrad import activation_functions as af
from matgrad import layers as ly
from matgrad.backends.base import DTYPES
from matgrad.datasets.dataset import Normalization
from matgrad.exchange import chain
from matgrad.exchange.chain import Operation, chain_of, check_settings, counterpart, dense, model_of, rows_of
from matgrad.exchange.torch_reading import Reader, array, example, flattened, rows_in
from matgrad.exchange.torch_shapes import CONVOLUTIONS, MODULES, Residual, Writer
from matgrad.foundation.files import naming, read_safetensors
from matgrad.foundation.limits import check_bytes, file_limit
from matgrad.foundation.numbers import own_generator
from matgrad.foundation.writing import atomic_write, visible
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model, model_bytes
from matgrad.storage.models import model_description, read_description, with_information

DESCRIPTION = "exchange"  # its name in the header of a file

Module = TypeVar("Module", bound=nn.Module)


class _Rows(nn.Module):
    """The offset and scale of a normalization, as buffers."""

    offset: torch.Tensor
    scale: torch.Tensor

    def __init__(self, x: Normalization) -> None:
        super().__init__()
        self.kind = x.kind
        self.register_buffer("offset", torch.tensor(x.offset))
        self.register_buffer("scale", torch.tensor(x.scale))

    def extra_repr(self) -> str:
        return self.kind


class NormalizeInputs(_Rows):
    """X' = (X - offset) / scale"""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """(X - offset) / scale"""
        return (X - self.offset) / self.scale


class DenormalizeOutputs(_Rows):
    """Y' = Y·scale + offset"""

    def forward(self, Y: torch.Tensor) -> torch.Tensor:
        """Y·scale + offset"""
        return Y * self.scale + self.offset


COUNTERPARTS: dict[type, tuple[type[nn.Module], dict[str, str]]] = {  # and what PyTorch calls our settings
    ly.BatchNormalizationLayer: (nn.BatchNorm1d, {"epsilon": "eps", "momentum": "momentum"}),
    ly.LayerNormalizationLayer: (nn.LayerNorm, {"epsilon": "eps"}),
    ly.RMSNormalizationLayer: (nn.RMSNorm, {"epsilon": "eps"}),
    ly.DropoutLayer: (nn.Dropout, {"dropout": "p"}),
    chain.Softmax: (nn.Softmax, {}),
    chain.LogSoftmax: (nn.LogSoftmax, {}),
    **{function: (getattr(nn, name), {}) for function, name in chain.FUNCTIONS.items()},
    af.AllReLUActivation: (nn.LeakyReLU, {"alpha": "negative_slope"}),
    af.TReLUActivation: (nn.Threshold, {"epsilon": "threshold"}),
    af.ELUActivation: (nn.ELU, {"alpha": "alpha"}),
}
# the values that other settings may have, of which the first one is written
FIXED: dict[type, dict[str, tuple[Any, ...]]] = {
    nn.Flatten: {"start_dim": (1,), "end_dim": (-1, 1)},
    **{kind: {"track_running_stats": (True,)} for kind in (nn.BatchNorm1d, nn.BatchNorm2d)},
    nn.Softmax: {"dim": (1, -1, None)},
    nn.LogSoftmax: {"dim": (1, -1, None)},
    nn.GELU: {"approximate": ("none",)},
    nn.Threshold: {"value": (0.0,)},
    nn.Softplus: {"beta": (1.0,), "threshold": (40.0, 20.0)},  # ln(1 + e^x) is x from 40 on, also in float64
}
OURS = {kind: (cls, settings) for cls, (kind, settings) in COUNTERPARTS.items()}
OURS[nn.BatchNorm2d] = OURS[nn.BatchNorm1d]
NORMALIZATIONS: dict[type, type[_Rows]] = {Normalization: NormalizeInputs, chain.Denormalize: DenormalizeOutputs}

KNOWN = (nn.Sequential, nn.Linear, nn.Flatten, nn.Identity, *OURS, *NORMALIZATIONS.values(), *MODULES)

# -- from a model ---------------------------------------------------------------------------------


def to_torch(M: MultilayerPerceptron) -> nn.Sequential:
    """The model as a `torch.nn.Sequential` with the same outputs and gradients, in the same mode and dtype.

    It takes raw examples and gives outputs in the units of the data, as `M.predict` does. A sparse layer is a linear
    one with the masks of `torch.nn.utils.prune`.
    """
    writer = Writer(_module_of)
    writer.write([*chain_of(M)])
    writer.to("rows", ())
    return nn.Sequential(*writer.modules).to(M.device if M.backend.name == "torch" else None).train(M.training)


def _module_of(x: Any) -> nn.Module:
    """The module that does the same."""
    if isinstance(x, Normalization):
        return NORMALIZATIONS[type(x)](x)
    if isinstance(x, ly.LinearLayer):
        module = _filled(skip_init(nn.Linear, x.input_size, x.output_size), dense(x.W), dense(x.b)[0])
        if isinstance(x.W, SparseMatrix):
            ones = x.W.with_values(np.ones_like(x.W.values))
            prune.custom_from_mask(module, "weight", torch.tensor(ones.to_dense()))
        return module
    kind, names = counterpart(COUNTERPARTS, x, "PyTorch has no such module")
    settings = {theirs: getattr(x, ours) for ours, theirs in names.items()}
    settings |= {name: values[0] for name, values in FIXED.get(kind, {}).items()}
    is_normalizing = type(x) in chain.NORMALIZING.values()
    return _filled(kind(x.input_size, **settings), *rows_of(x)) if is_normalizing else kind(**settings)


def _filled(module: Module, *arrays: np.ndarray) -> Module:
    """The module with copies of these arrays as its first parameters and buffers, in their dtype."""
    tensors = dict(zip(module.state_dict(), map(torch.tensor, arrays), strict=False))
    module.load_state_dict(tensors, strict=False, assign=True)
    return module


# -- to a model -----------------------------------------------------------------------------------


def from_torch(module: nn.Module, shape: Sequence[int] | None = None) -> MultilayerPerceptron:
    """The model that a `torch.nn.Sequential` is; a missing bias becomes 0, and is trained.

    A module that takes images (N×C×H×W), sequences (N×C×L), tokens (N×L×d) or labels (N×L) needs the `shape` of an
    example of the model, whose channels come last: (H, W, C), (L, C), (L, d) or (L,).
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(module).__name__}")
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in module.parameters()})
    if len(dtypes) != 1 or dtypes[0] not in DTYPES:
        found = ", ".join(dtypes) or "no parameters"
        raise ValueError(f"expected parameters of one dtype, {' or '.join(DTYPES)}, found {found}")
    if len({part.training for part in module.modules()}) > 1:
        raise ValueError("some modules are in training mode and others are not: call train() or eval() first")
    modules = [(_place(name, part), part) for name, part in module.named_modules(remove_duplicate=False)]
    for where, part in modules:
        with naming(where):
            _check_own(part)
    parts = [(_place(name, part), part) for name, part in flattened([("", module)])]
    _check_unshared(parts)
    mode, shape = module.training, None if shape is None else tuple(shape)
    try:
        M = model_of(_chain(parts, dtypes[0], shape), lambda X: _outputs(module.eval(), parts, X, shape))
    finally:
        module.train(mode)
    return M.train(mode)


Parts = list[tuple[str, nn.Module]]
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
METHODS = ("forward", "__call__", "_call_impl", "__iter__", "__getattr__")  # by which a chain computes


def _check_own(module: nn.Module) -> None:
    """Raise if a module is of an unknown type, or runs code of users, or has tensors that cannot be read."""
    kind = nn.Sequential if isinstance(module, nn.Sequential) and type(module) is not Residual else type(module)
    if kind not in KNOWN:
        names = ", ".join(kind.__name__ for kind in KNOWN)
        raise ValueError(f"expected an nn.Sequential of modules of these types, not of derived ones: {names}")
    hooks = [hook for name in HOOKS for hook in getattr(module, name).values()]
    masks = [hook for hook in hooks if isinstance(hook, prune.BasePruningMethod)]
    if len(masks) < len(hooks):
        raise ValueError("has a hook, which may compute anything; expected none but those of torch.nn.utils.prune")
    if {hook._tensor_name for hook in masks} - ({"weight"} if type(module) in (nn.Linear, *CONVOLUTIONS) else set()):
        raise ValueError("is pruned; expected masks of the weights of linear modules and convolutions only")
    own = (x for x in METHODS if x in vars(module) or getattr(type(module), x, None) != getattr(kind, x, None))
    if name := next(own, None):
        raise ValueError(f"has a method {name} of its own, which may compute anything")
    tensors = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if any(A.is_meta or A.layout is not torch.strided for A in tensors):
        raise ValueError("has a sparse tensor, or one without values; expected dense tensors")


def _check_unshared(parts: Parts) -> None:
    """Raise if two modules have a tensor in common, or parts of one: a model would have a copy for each."""
    spans = []
    for i, (_, part) in enumerate(parts):
        for A in (*part.parameters(), *part.buffers()):
            if A.numel():
                length = 1 + sum((n - 1) * step for n, step in zip(A.shape, A.stride(), strict=True))
                spans.append((A.data_ptr(), A.data_ptr() + length * A.element_size(), i))
    for (_, end, i), (start, _, j) in pairwise(sorted(spans)):
        if start < end:
            raise ValueError(f"{parts[max(i, j)][0]}: shares weights with {parts[min(i, j)][0]}; expected its own")


@torch.no_grad()
def _outputs(module: nn.Module, parts: Parts, X: np.ndarray, shape: tuple[int, ...] | None) -> chain.Outputs:
    """What a module and its parts compute, with products in full precision."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        Y = torch.tensor(X, device=next(module.parameters()).device)
        Y = Y if shape is None else example(Y, shape, parts[0][1])
        yield "", array(rows_in(module(Y) if not isinstance(module, nn.MultiheadAttention) else module(Y, Y, Y)[0]))
        for where, part in parts:
            Y = part(Y) if type(part) is not nn.MultiheadAttention else part(Y, Y, Y)[0]
            yield where, array(rows_in(Y))
    finally:
        torch.set_float32_matmul_precision(precision)


def _chain(parts: Parts, dtype: str, shape: tuple[int, ...] | None) -> Iterator[tuple[str, Operation]]:
    """The operations of modules, with their places."""
    reader = Reader(partial(_operation, dtype=dtype), shape)
    for where, part in parts:
        with naming(where):
            operations = list(reader.read(part))
        yield from ((where, operation) for operation in operations)
    with naming(parts[-1][0]):
        reader.check_end()


def _place(name: str, module: nn.Module) -> str:
    """The place of a module in messages."""
    kind = f"{type(module).__name__}({' '.join(module.extra_repr().split())})"
    return visible(f"module {name}, {kind}" if name else kind)


def _operation(module: Any, dtype: str) -> Operation | None:
    """What a module does; None if that is nothing."""
    kind = type(module)
    check_settings(FIXED.get(kind, {}), partial(getattr, module))
    if kind is nn.Flatten:
        return None
    if isinstance(module, nn.Linear):
        return _linear(module)
    if kind in NORMALIZATIONS.values():
        normalize = Normalization if kind is NormalizeInputs else chain.Denormalize
        return chain.normalization(normalize, array(module.offset), array(module.scale), module.kind)
    cls: Any
    cls, names = OURS[kind]
    settings = {ours: getattr(module, theirs) for ours, theirs in names.items()}
    if kind is nn.RMSNorm and module.eps is None:
        settings["epsilon"] = float(np.finfo(dtype).eps)
    if wrong := [names[ours] for ours, x in settings.items() if not isinstance(x, int | float)]:
        raise ValueError(f"found {wrong[0]}={getattr(module, wrong[0])}, expected a number")
    if cls not in chain.NORMALIZING.values():
        return cls(1, **settings) if cls is ly.DropoutLayer else cls(**settings)
    rows = {ours: array(A) for name, ours in ROWS.items() if (A := getattr(module, name, None)) is not None}
    D = module.num_features if cls is ly.BatchNormalizationLayer else module.normalized_shape[-1]
    return chain.normalizing(cls, rows, D, dtype, **settings)


ROWS = {"weight": "gamma", "bias": "beta", "running_mean": "running_mean", "running_var": "running_variance"}


def _linear(module: nn.Linear) -> Operation:
    """A linear layer, sparse if PyTorch has pruned its weights."""
    b = array(module.bias)
    if not hasattr(module, "weight_mask"):
        return chain.linear(array(module.weight), b)
    support = Support.from_mask(array(module.weight_mask) != 0)
    return chain.linear(SparseMatrix.from_dense(array(module.weight_orig), support), b)


# -- files -----------------------------------------------------------------------------------------


def save_torch(M: MultilayerPerceptron, path: str | Path) -> None:
    """Write the state dictionary of `to_torch(M)` to a safetensors file, under PyTorch's own names (``0.weight``)."""
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
        description, information = read_description(metadata[DESCRIPTION], "the description")
        check_bytes(model_bytes(description["layers"], description["sizes"]), "the model", file_limit(path))
        with own_generator():
            M = create_model(**description)
        for name, key, D in (
            ("normalization", "normalize", M.layers[0].input_size),
            ("target_normalization", "normalize_targets", M.layers[-1].output_size),
        ):
            if (kind := information.get(key)) is not None:  # with numbers that are replaced
                setattr(M, name, Normalization(kind, *np.ones((2, 1, D), np.float32)))
        module = to_torch(M)
        module.load_state_dict({name: torch.from_numpy(A) for name, A in arrays.items()}, assign=True)
        return with_information(from_torch(module), information, "the description")
