"""What layers have besides their equations: sizes, parts, optimizers, the state that training carries along; checks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from types import MethodType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from matgrad.backends import Backend, backend_of, convert
from matgrad.backends.base import Matrix, size_of
from matgrad.foundation.numbers import check_size
from matgrad.layers.state import State, matrices_of, places_of, put, taken
from matgrad.optimizers import CompositeOptimizer, Optimizer, create_optimizer
from matgrad.sparse.matrix import SparseMatrix, restricted, values_of, with_values
from matgrad.sparse.rules import Rewiring
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import describe

if TYPE_CHECKING:
    from matgrad.layers.layer import Layer


class _SetByModel:
    """``layer.Y`` is ``layer._Y``, which a model sets, unless the layer has an attribute Y of its own."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else getattr(layer, self.name)


class LayerBase:
    """Sizes, parts, optimizers and state of a layer; see `Layer`."""

    keeps_size = False  # whether output_size is always input_size, as in batch normalization
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    intermediates: tuple[str, ...] = ()
    input = "real"  # the kind of the elements of X: 'real' numbers or 'labels', from 0
    output = "real"  # the kind of the elements of Y: 'real' numbers, 'probability' or 'log-probability'

    X: Matrix
    DX: Matrix
    Y = _SetByModel()
    DY = _SetByModel()
    _Y: Matrix | None = None
    _DY: Matrix | None = None

    def __init__(self, input_size: int, output_size: int) -> None:
        self.input_size = check_size(f"{type(self).__name__}: input_size", input_size)
        self.output_size = check_size(f"{type(self).__name__}: output_size", output_size)
        if self.keeps_size and input_size != output_size:
            sizes = f"{input_size} and {output_size}"
            raise ValueError(f"{type(self).__name__}: input and output size must be equal, found {sizes}")
        self.training = True
        self._optimizer: Optimizer = CompositeOptimizer()
        self._optimizers: dict[str, Optimizer] = {}
        for name in self.batch_matrices:
            setattr(self, name, None)

    # -- parts --------------------------------------------------------------------------------
    def parts(self) -> Sequence[Layer]:
        """The inner layers, always in the same order; most layers have none."""
        return ()

    def walk(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """The layer, its parts and theirs, with their names: ('3', layer), ('3.1', its first part), ('3.1.1', …), …"""
        yield name, self  # type: ignore[misc]  # every layer is a Layer
        for i, part in enumerate(self.parts(), start=1):
            yield from part.walk(f"{name}.{i}" if name else str(i))

    # -- optimizers ---------------------------------------------------------------------------
    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the layer's parameters."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizer) -> None:
        """Bind every part of the optimizer to the parameter whose matrix it was made with."""
        bound: dict[str, Optimizer] = {}
        for part in optimizer.parts():
            name = next((name for name in self.parameters if self._is_made_with(part, name)), None)
            if name is None or name in bound:
                problem = "two optimizers for one parameter" if name else "not made with a parameter"
                expected = f"at most one per parameter: {', '.join(self.parameters)} (made after M.to(...))"
                raise ValueError(f"{type(part).__name__}: {problem} of this {type(self).__name__}; expected {expected}")
            bound[name] = part
        for part in bound.values():
            part.x = part.Dx = None
            for key in part.state_names:  # sparse, if it was made with a sparse matrix
                setattr(part, key, values_of(getattr(part, key)))
        self._optimizer, self._optimizers = optimizer, bound

    def _is_made_with(self, optimizer: Optimizer, name: str) -> bool:
        """Whether an optimizer was made with the matrix of this parameter, or has been bound to it before."""
        A = getattr(self, name)
        return optimizer.x is A or optimizer.x is values_of(A) or self._optimizers.get(name) is optimizer

    def set_optimizer(self, specification: str) -> None:
        """Give every parameter, also of the parts, the optimizer that a string such as ``Momentum(0.9)`` names."""
        self.optimizer = CompositeOptimizer(
            *(create_optimizer(specification, getattr(self, name), None) for name in self.parameters)
        )
        for part in self.parts():
            part.set_optimizer(specification)

    # -- state --------------------------------------------------------------------------------
    def state(self) -> State:
        """Everything that training carries from batch to batch, by name: parameters, supports, buffers, optimizers.

        What belongs to part i has a name such as 'i.W' or 'i.W.delta'. See `matgrad.layers.state`.
        """
        return taken(places_of(self.walk()))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the entries in `state`, which are some of `self.state()`; sparse values come with their support.

        A sparse matrix becomes dense if `state` has all of its elements, without a support.
        """
        places = places_of(self.walk())
        if not state.keys() <= places.keys() and (unknown := sorted(state.keys() - (known := self.state()).keys())):
            raise ValueError(f"{self!r} has no {', '.join(unknown)}; known: {', '.join(known)}")
        put(state, places)

    def to(self, backend: Backend, dtype: str | None = None, device: str | None = None) -> None:
        """Move the state to another backend, element type or device; batch matrices are dropped."""
        state = self.state()
        self.load_state(state | {name: convert(X, backend, dtype, device) for name, X in matrices_of(state).items()})
        self.forget()

    def forget(self) -> None:
        """Drop the matrices of the last batch: the input, the intermediates and all gradients, also of the parts."""
        for name in self.batch_matrices:
            setattr(self, name, None)
        for part in self.parts():
            part.forget()

    @property
    def batch_matrices(self) -> tuple[str, ...]:
        """The attributes that are set for every batch: input, output, intermediates and gradients."""
        return ("X", "DX", "_Y", "_DY", *self.intermediates, *(f"D{name}" for name in self.parameters))

    def clone(self) -> Self:
        """A layer that shares the matrices of this one; assigning to its attributes leaves this one as it is."""
        clone = copy.copy(self)
        clone._optimizers = {name: copy.copy(part) for name, part in self._optimizers.items()}
        clone._optimizer = CompositeOptimizer(*clone._optimizers.values())
        clones_of_parts = {id(part): part.clone() for part in self.parts()}
        for name, value in vars(self).items():
            if next(layers_in(value), None) is not None:
                setattr(clone, name, copy.deepcopy(value, dict(clones_of_parts)))
            elif isinstance(value, MethodType) and value.__self__ is self:
                setattr(clone, name, MethodType(value.__func__, clone))
        clone.forget()
        return clone

    def __getstate__(self) -> dict[str, Any]:
        """The attributes of a copy: all except the methods by which this layer is observed."""
        observation = vars(self).get("_observation")
        ignored = ("_observation", *observation.methods) if observation else ()
        return {name: value for name, value in vars(self).items() if name not in ignored}

    # -- sparse matrices ----------------------------------------------------------------------
    @property
    def is_sparse(self) -> bool:
        """Whether a parameter of the layer or of one of its parts is a sparse matrix."""
        return any(isinstance(getattr(part, name), SparseMatrix) for _, part in self.walk() for name in part.parameters)

    def restrict(self, name: str, support: Support) -> None:
        """Make a matrix of the layer sparse, with its current elements at `support` and 0 where it stored none.

        What the optimizer of a parameter keeps per element, such as momentum, is moved in the same way.
        """
        old = getattr(self, name)
        for optimizer, key in self._kept_per_element(name):
            setattr(optimizer, key, restricted(with_values(old, getattr(optimizer, key)), support).values)
        setattr(self, name, restricted(old, support))
        self.forget()

    def rewire(self, name: str, rewiring: Rewiring, new: np.ndarray | float = 0.0) -> None:
        """Change the support of a sparse matrix of the layer; its new elements have the values `new`.

        What the optimizer keeps per element, such as momentum, stays with the elements that stay; for new ones it is 0.
        """
        for optimizer, key in self._kept_per_element(name):
            setattr(optimizer, key, rewiring.moved(getattr(optimizer, key)))
        values = rewiring.moved(getattr(self, name).values, new)
        setattr(self, name, SparseMatrix(rewiring.support, values))
        self.forget()

    def _kept_per_element(self, name: str) -> list[tuple[Optimizer, str]]:
        """What the optimizer of a parameter keeps for each of its elements: the optimizer, and names of attributes."""
        shape, optimizer = tuple(values_of(getattr(self, name)).shape), self._optimizers.get(name, CompositeOptimizer())
        return [(optimizer, key) for key in optimizer.state_names if tuple(getattr(optimizer, key).shape) == shape]

    # -- names --------------------------------------------------------------------------------
    def specification(self) -> str:
        """The string that names this kind of layer with its settings, without its sizes and what models have lists of.

        By default settings are the attributes that are called like parameters of the constructor. See
        `matgrad.specifications.models`.
        """
        return describe(self, "Layer", without=("input_size", "output_size", "dropout", "renew", "support"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_size}, {self.output_size})"


def layers_in(value: Any) -> Iterator[Layer]:
    """The layers that an attribute is or contains, in lists, tuples and dictionaries."""
    if isinstance(value, LayerBase):
        yield value  # type: ignore[misc]
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from layers_in(item)


def check_layers(layers: Iterable[Layer]) -> None:
    """Raise if a layer occurs twice, or has inner layers other than its parts."""
    places: dict[int, str] = {}
    for path, layer in _walk(layers):
        if (other := places.setdefault(id(layer), path)) != path:
            raise ValueError(f"layers {other} and {path} are the same {layer!r}: expected two layers")
        parts = {id(part): part for part in layer.parts()}
        kept = {id(part): (name, part) for name, value in vars(layer).items() for part in layers_in(value)}
        for key in kept.keys() - parts.keys():  # a layer that is no part, or in no attribute, could not be cloned
            name, part = kept[key]
            raise ValueError(f"layer {path}, {layer!r}: {name} has {part!r}, which is not in parts()")
        for key in parts.keys() - kept.keys():
            raise ValueError(f"layer {path}, {layer!r}: the part {parts[key]!r} is in none of its attributes")


def _walk(layers: Iterable[Layer]) -> Iterator[tuple[str, Layer]]:
    return (found for i, top in enumerate(layers, start=1) for found in top.walk(str(i)))


def check_sharing(layers: Sequence[Layer]) -> None:
    """Raise if `check_layers` does, or if two parameters share a matrix: each is changed without the other."""
    check_layers(layers)
    named = [(f"{path}.{name}", getattr(x, name)) for path, x in _walk(layers) for name in (*x.parameters, *x.buffers)]
    found = [(name, values_of(X)) for name, X in named if len(X.shape) == 2]
    for (name, X), (other, Y) in combinations(found, 2):
        if type(X) is type(Y) and backend_of(X).shares_memory(X, Y):
            raise ValueError(f"{name} and {other} share a matrix: expected two matrices, such as a copy for one")


def check_input(layers: Sequence[Layer], X: Matrix, like: Matrix) -> None:
    """Raise if the sizes of the layers do not fit, or X does not fit the first, with parameters such as `like`."""
    for i, (before, after) in enumerate(pairwise(layers), start=1):
        if (K := before.output_size) != after.input_size:
            raise ValueError(f"layer {i} has {K} outputs, but layer {i + 1} has {after.input_size} inputs")
    first, backend = layers[0], backend_of(like, values_of(X))
    if isinstance(X, SparseMatrix):
        backend.check_sparse()
        if first.keeps_size:
            advice = "put a linear layer before it, or give a dense X, such as X.toarray()"
            raise TypeError(f"layer 1, {first!r}, cannot take a sparse X, which it would make dense; {advice}")
    if len(X.shape) != 2 or X.shape[1] != first.input_size:
        raise ValueError(f"expected a batch X of size N × {first.input_size}, found {size_of(X)}")
    if X.shape[0] == 0:
        raise ValueError("the batch X is empty: expected at least one example")
    if (dtype := backend.dtype(values_of(X))) != backend.dtype(like):
        wanted = backend.dtype(like)
        raise TypeError(f"X is {dtype} but the model is {wanted}; use M.to(dtype=...) or loader.to(dtype=...)")
