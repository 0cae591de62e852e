"""PyTorch: a model as an `nn.Sequential`, and from one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import prune, skip_init

from matgrad import activation_functions as af
from matgrad.backends import backend_of
from matgrad.backends.base import DTYPES
from matgrad.datasets.normalization import Normalization
from matgrad.exchange.chain import (
    Affine,
    BatchNormalization,
    Denormalize,
    Dropout,
    LayerNormalization,
    LogSoftmax,
    Normalize,
    Operation,
    RMSNormalization,
    Softmax,
    above,
    at,
    below,
    chain_of,
    counterpart,
    dense,
    normalization_of,
    slope_of,
    with_slope,
)
from matgrad.exchange.models import model_of
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

LINEAR = 40.0  # where ln(1 + e^x) is x, also in float64


class _Rows(nn.Module):
    """The offset and scale of a normalization, as buffers."""

    offset: torch.Tensor
    scale: torch.Tensor

    def __init__(self, normalization: Normalization, dtype: torch.dtype) -> None:
        super().__init__()
        self.kind = normalization.kind
        self.register_buffer("offset", torch.tensor(normalization.offset, dtype=dtype))
        self.register_buffer("scale", torch.tensor(normalization.scale, dtype=dtype))

    @property
    def normalization(self) -> Normalization:
        """The normalization that it was made from."""
        return normalization_of(_array(self.offset), _array(self.scale), self.kind)

    def extra_repr(self) -> str:
        """The kind of normalization, for the string of the module."""
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


# -- from a model ---------------------------------------------------------------------------------


def to_torch(M: MultilayerPerceptron) -> nn.Sequential:
    """The model as an `nn.Sequential`; see `matgrad.exchange`."""
    modules = []
    for where, operation in chain_of(M):
        with at(where):
            modules.append(counterpart(WRITERS, operation, "PyTorch has no such module")(operation, M.dtype))
    return nn.Sequential(*modules).to(M.device if M.backend.name == "torch" else None).train(M.training)


def _linear(affine: Affine, dtype: str) -> nn.Linear:
    K, D = affine.W.shape
    module = skip_init(nn.Linear, D, K, dtype=getattr(torch, dtype))
    _fill(module.weight, dense(affine.W))
    _fill(module.bias, affine.b)
    if isinstance(affine.W, SparseMatrix):
        ones = SparseMatrix(affine.W.support, np.ones_like(affine.W.values))
        prune.custom_from_mask(module, "weight", torch.tensor(ones.to_dense()))
    return module


def _batch_norm(x: BatchNormalization, dtype: str) -> nn.BatchNorm1d:
    module = nn.BatchNorm1d(len(x.mean), eps=x.epsilon, momentum=x.momentum, dtype=getattr(torch, dtype))
    tensors = (module.weight, module.bias, module.running_mean, module.running_var)
    for tensor, A in zip(tensors, (x.gamma, x.beta, x.mean, x.variance), strict=True):
        _fill(tensor, A)
    return module


def _layer_norm(x: LayerNormalization, dtype: str) -> nn.LayerNorm:
    module = nn.LayerNorm(len(x.gamma), eps=x.epsilon, dtype=getattr(torch, dtype))
    _fill(module.weight, x.gamma)
    _fill(module.bias, x.beta)
    return module


def _rms_norm(x: RMSNormalization, dtype: str) -> nn.RMSNorm:
    module = nn.RMSNorm(len(x.gamma), eps=x.epsilon, dtype=getattr(torch, dtype))
    _fill(module.weight, x.gamma)
    return module


def _fill(tensor: Any, A: np.ndarray) -> None:
    with torch.no_grad():
        tensor.copy_(torch.tensor(A))


WRITERS: dict[type, Callable[[Any, str], nn.Module]] = {
    Affine: _linear,
    Softmax: lambda x, dtype: nn.Softmax(dim=1),
    LogSoftmax: lambda x, dtype: nn.LogSoftmax(dim=1),
    BatchNormalization: _batch_norm,
    LayerNormalization: _layer_norm,
    RMSNormalization: _rms_norm,
    Dropout: lambda x, dtype: nn.Dropout(x.rate),
    Normalize: lambda x, dtype: NormalizeInputs(x.normalization, getattr(torch, dtype)),
    Denormalize: lambda x, dtype: DenormalizeOutputs(x.normalization, getattr(torch, dtype)),
    af.ReLUActivation: lambda f, dtype: nn.ReLU(),
    af.LeakyReLUActivation: lambda f, dtype: nn.LeakyReLU(slope_of(f)),
    af.AllReLUActivation: lambda f, dtype: nn.LeakyReLU(f.alpha),
    af.TReLUActivation: lambda f, dtype: nn.Threshold(below(f.epsilon, dtype), 0.0),
    af.HyperbolicTangentActivation: lambda f, dtype: nn.Tanh(),
    af.SigmoidActivation: lambda f, dtype: nn.Sigmoid(),
    af.GELUActivation: lambda f, dtype: nn.GELU(),
    af.SiLUActivation: lambda f, dtype: nn.SiLU(),
    af.ELUActivation: lambda f, dtype: nn.ELU(f.alpha),
    af.SoftplusActivation: lambda f, dtype: nn.Softplus(threshold=LINEAR),
}


# -- to a model -----------------------------------------------------------------------------------


def from_torch(module: nn.Module) -> MultilayerPerceptron:
    """The model that an `nn.Sequential` is; see `matgrad.exchange`."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(module).__name__}")
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in module.parameters()})
    if len(dtypes) != 1 or dtypes[0] not in DTYPES:
        found = ", ".join(dtypes) or "no parameters"
        raise ValueError(f"expected parameters of one dtype, {' or '.join(DTYPES)}, found {found}")
    if len({part.training for part in module.modules()}) > 1:
        raise ValueError("some modules are in training mode and others are not: call train() or eval() first")
    return model_of(_chain(module, dtypes[0])).train(module.training)


def _chain(module: nn.Module, dtype: str) -> Iterator[tuple[str, Operation]]:
    """The operations of a module, with their places."""
    seen: set[int] = set()
    for name, part in _flat("", module):
        where = f"module {name}, {part}" if name else f"{part}"
        with at(where):
            if id(part) in seen:
                raise ValueError("occurs twice, and would have two copies of its weights")
            seen.add(id(part))
            operations = list(_operations(part, dtype))
        yield from ((where, operation) for operation in operations)


def _flat(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules in nested Sequentials, with their names."""
    is_chain = isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
    if not is_chain or _hooks(module):
        yield name, module
        return
    for key, part in module._modules.items():  # named_children leaves out what occurs twice
        if part is not None:
            yield from _flat(f"{name}.{key}" if name else key, part)


def _hooks(module: nn.Module) -> list[Any]:
    """The functions that change what goes in or comes out of a module, except the masks of pruning."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    hooks += [module.forward] if "forward" in vars(module) else []  # a method of this module alone
    return [hook for hook in hooks if not isinstance(hook, prune.BasePruningMethod)]


def _operations(module: nn.Module, dtype: str) -> Iterator[Operation]:
    """The operation that a module is; none for one that does nothing."""
    if _hooks(module):
        raise ValueError("has hooks or a forward of its own, which cannot be exchanged")
    if type(module) in (nn.Identity, nn.Flatten):
        if isinstance(module, nn.Flatten):
            _expect(module, start_dim=(1,), end_dim=(-1, 1))
        return
    known = ", ".join(kind.__name__ for kind in READERS)
    problem = f"expected an nn.Sequential of modules of these types, not of derived ones: {known}"
    yield counterpart(READERS, module, problem)(module, dtype)


def _expect(module: nn.Module, **allowed: tuple[Any, ...]) -> None:
    """Refuse a module that has an attribute with another value."""
    for name, values in allowed.items():
        if (found := getattr(module, name)) not in values:
            raise ValueError(f"found {name}={found}, expected {' or '.join(map(str, values))}")


def _affine(module: nn.Linear, dtype: str) -> Affine:
    if hasattr(module, "bias_mask"):
        raise ValueError("the bias is pruned; expected masks of weights only")
    b = _array(module.bias) if module.bias is not None else np.zeros(module.out_features, dtype)
    if not hasattr(module, "weight_mask"):
        return Affine(_array(module.weight), b)
    mask = _array(module.weight_mask)
    if not np.isin(mask, (0, 1)).all():
        raise ValueError("weight_mask: expected zeros and ones")
    return Affine(SparseMatrix.from_dense(_array(module.weight_orig), Support.from_mask(mask != 0)), b)


def _batch_normalization(module: nn.BatchNorm1d, dtype: str) -> BatchNormalization:
    D, momentum = module.num_features, module.momentum
    _expect(module, track_running_stats=(True,))
    if momentum is None:
        raise ValueError("found momentum=None, a cumulative average; expected a number")
    gamma = np.ones(D, dtype) if module.weight is None else _array(module.weight)
    beta = np.zeros(D, dtype) if module.bias is None else _array(module.bias)
    mean, variance = _array(module.running_mean), _array(module.running_var)
    return BatchNormalization(gamma, beta, mean, variance, module.eps, momentum)


def _layer_normalization(module: nn.LayerNorm, dtype: str) -> LayerNormalization:
    D = _columns(module)
    gamma = np.ones(D, dtype) if module.weight is None else _array(module.weight)
    beta = np.zeros(D, dtype) if module.bias is None else _array(module.bias)
    return LayerNormalization(gamma, beta, module.eps)


def _rms_normalization(module: nn.RMSNorm, dtype: str) -> RMSNormalization:
    """RMS normalization, whose ε is that of the dtype if the module has none."""
    D = _columns(module)
    gamma = np.ones(D, dtype) if module.weight is None else _array(module.weight)
    return RMSNormalization(gamma, float(np.finfo(dtype).eps) if module.eps is None else module.eps)


def _columns(module: nn.LayerNorm | nn.RMSNorm) -> int:
    """The number of columns over which a module normalizes each row."""
    if len(module.normalized_shape) != 1:
        raise ValueError(f"found normalized_shape={module.normalized_shape}, expected one number of columns")
    return module.normalized_shape[0]


def _softplus(module: nn.Softplus, dtype: str) -> af.SoftplusActivation:
    """Softplus, which PyTorch replaces by the identity above its threshold."""
    _expect(module, beta=(1,))
    if math.exp(-module.threshold) > module.threshold * np.finfo(dtype).eps:
        difference = f"{math.exp(-module.threshold):.0e}"
        raise ValueError(
            f"is linear above {module.threshold}, where ln(1 + e^x) differs from x by up to {difference} in {dtype}; "
            f"expected threshold={LINEAR:g}"
        )
    return af.SoftplusActivation()


def _checked(operation: Operation, **allowed: tuple[Any, ...]) -> Callable[[nn.Module, str], Operation]:
    """A reader of modules that are an operation if their attributes have these values."""

    def read(module: nn.Module, dtype: str) -> Operation:
        _expect(module, **allowed)
        return operation

    return read


def _threshold(module: nn.Threshold, dtype: str) -> af.TReLUActivation:
    _expect(module, value=(0,))
    return af.TReLUActivation(above(module.threshold, dtype))


READERS: dict[type, Callable[[Any, str], Operation]] = {
    nn.Linear: _affine,
    nn.Softmax: _checked(Softmax(), dim=(1, -1)),
    nn.LogSoftmax: _checked(LogSoftmax(), dim=(1, -1)),
    nn.BatchNorm1d: _batch_normalization,
    nn.LayerNorm: _layer_normalization,
    nn.RMSNorm: _rms_normalization,
    nn.Dropout: lambda module, dtype: Dropout(module.p),
    NormalizeInputs: lambda module, dtype: Normalize(module.normalization),
    DenormalizeOutputs: lambda module, dtype: Denormalize(module.normalization),
    nn.ReLU: _checked(af.ReLUActivation()),
    nn.LeakyReLU: lambda module, dtype: with_slope(module.negative_slope),
    nn.Threshold: _threshold,
    nn.Tanh: _checked(af.HyperbolicTangentActivation()),
    nn.Sigmoid: _checked(af.SigmoidActivation()),
    nn.GELU: _checked(af.GELUActivation(), approximate=("none",)),
    nn.SiLU: _checked(af.SiLUActivation()),
    nn.ELU: lambda module, dtype: af.ELUActivation(module.alpha),
    nn.Softplus: _softplus,
}


def _array(tensor: Any) -> np.ndarray:
    """A NumPy array with the elements of a tensor."""
    return backend_of(tensor).to_numpy(tensor)
