"""What all layers share: parameters, their optimizers, and the state that training carries along."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from types import MethodType
from typing import Any

import numpy as np

from matgrad.backends import Backend, backend_of
from matgrad.backends.base import Matrix, Scalar
from matgrad.backends.conversion import convert
from matgrad.foundation.deferred import deferred
from matgrad.foundation.numbers import as_number, check_size
from matgrad.layers.state import SUPPORT, State, flattened, matrices_of
from matgrad.optimizers import CompositeOptimizer, Optimizer, create_optimizer
from matgrad.sparse.matrix import SparseMatrix, restricted, values_of, with_values
from matgrad.sparse.rewiring import Rewiring
from matgrad.sparse.support import Support
from matgrad.specifications.parsing import describe

KEPT = "_kept_by_model"  # the attribute that has the matrices which a model keeps in its layers


class _Kept:
    """The matrix of this name that `keep` was given; a layer may have an attribute of that name instead."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Layer | None, owner: type | None = None) -> Matrix:
        return self if layer is None else (vars(layer).get(KEPT) or {}).get(self.name)


class Layer:
    """A function of a batch X with parameters θ, their gradients Dθ, and an optimizer for them.

    A subclass names its trained matrices in `parameters`; the gradient of `W` is `DW`. `buffers` names the
    other values that persist from batch to batch, such as running statistics, and `intermediates` those that
    feedforward keeps for backpropagate and for inspection, such as `Z`. A composite layer returns its inner
    layers in `parts`, and keeps them in attributes, lists, tuples or dictionaries; whatever is done to it is
    done to them too. An eager pass of a model leaves in its layers the input `X`, the output `Y`, and their
    gradients. Matrices are created with NumPy; `to` moves them to another backend. Only the values of a
    sparse parameter are trained: optimizers see a dense 1×nnz matrix, and the state has that and the support.
    """

    keeps_size = False  # whether output_size is always input_size, as in batch normalization
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    intermediates: tuple[str, ...] = ()
    output = "real"  # the kind of the elements of Y: 'real' numbers, 'probability' or 'log-probability'

    X: Matrix
    DX: Matrix
    Y = _Kept()
    DY = _Kept()

    def __init__(self, input_size: int, output_size: int) -> None:
        self.input_size = check_size(f"{type(self).__name__}: input_size", input_size)
        self.output_size = check_size(f"{type(self).__name__}: output_size", output_size)
        if self.keeps_size and input_size != output_size:
            sizes = f"{input_size} and {output_size}"
            raise ValueError(f"{type(self).__name__}: input and output size must be equal, found {sizes}")
        self.training = True
        self._optimizer: Optimizer = CompositeOptimizer()
        self._optimizers: dict[str, Optimizer] = {}
        self._forget()  # not `forget`: it may have no parts yet

    # -- the paper's three steps --------------------------------------------------------------
    def feedforward(self, X: Matrix) -> Matrix:
        """Y = f_θ(X)"""
        raise NotImplementedError

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        """Set DX and the gradients of the parameters, from the output Y and its gradient DY."""
        raise NotImplementedError

    def optimize(self, eta: Scalar) -> None:
        """θ' for every parameter θ, by its optimizer with learning rate η."""
        eta = as_number(eta)
        for name, optimizer in self._optimizers.items():
            parameter, gradient = getattr(self, name), getattr(self, f"D{name}")
            if gradient is None:
                raise RuntimeError(
                    f"{type(self).__name__}.optimize: D{name} is not computed yet; "
                    "run feedforward and backpropagate first"
                )
            values = optimizer.apply(values_of(parameter), values_of(gradient), eta)
            setattr(self, name, with_values(parameter, values))
        for part in self.parts():
            part.optimize(eta)

    def end_epoch(self) -> None:
        """Update what changes between epochs, not in the parts: the model calls this method of every part."""

    # -- parts --------------------------------------------------------------------------------
    def parts(self) -> Sequence[Layer]:
        """The inner layers, always in the same order; most layers have none."""
        return ()

    def walk(self, name: str = "") -> Iterator[tuple[str, Layer]]:
        """The layer, its parts and theirs, with their names: ('3', layer), ('3.1', its first part), ('3.1.1', …), …"""
        yield name, self
        for i, part in enumerate(self.parts(), start=1):
            yield from part.walk(_join(name, str(i)))

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
            names = [
                name
                for name in self.parameters
                if any(part.x is x for x in (getattr(self, name), values_of(getattr(self, name))))
                or self._optimizers.get(name) is part
            ]
            if not names or names[0] in bound:
                problem = "two optimizers for one parameter" if names else "not made with a parameter"
                raise ValueError(
                    f"{type(part).__name__}: {problem} of this {type(self).__name__}; expected at "
                    f"most one per parameter: {', '.join(self.parameters)} (made after M.to(...))"
                )
            bound[names[0]] = part
        for part in bound.values():
            part.x = part.Dx = None
            for key in part.state_names:  # sparse, if it was made with a sparse matrix
                setattr(part, key, values_of(getattr(part, key)))
        self._optimizer, self._optimizers = optimizer, bound

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
        return flattened({name: getattr(*place) for name, place in self._places().items()})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the entries in `state`, which are some of `self.state()`; sparse values come with their support.

        A sparse matrix becomes dense if `state` has all of its elements, without a support.
        """
        places = self._places()
        if not state.keys() <= places.keys() and (unknown := sorted(state.keys() - (known := self.state()).keys())):
            raise ValueError(f"{self!r} has no {', '.join(unknown)}; known: {', '.join(known)}")
        for name, X in matrices_of(state).items():
            thing, attribute = places[name]
            old = getattr(thing, attribute)
            if f"{name}{SUPPORT}" in state:
                X = SparseMatrix(state[f"{name}{SUPPORT}"], X)
            elif isinstance(old, SparseMatrix) and tuple(X.shape) != old.shape:
                raise ValueError(f"{self!r}: {name} is sparse; expected {name}{SUPPORT} as well")
            setattr(thing, attribute, X)

    def _places(self) -> dict[str, tuple[Any, str]]:
        """The place of each entry of the state: a layer or an optimizer, and the name of its attribute."""
        found: dict[str, tuple[Any, str]] = {}
        for path, layer in self.walk():
            prefix = f"{path}." if path else ""
            for name in (*layer.parameters, *layer.buffers):
                found[prefix + name] = layer, name
            for name, optimizer in layer._optimizers.items():
                for key in optimizer.state_names:
                    found[f"{prefix}{name}.{key}"] = optimizer, key
        return found

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
        shape, optimizer = tuple(values_of(getattr(self, name)).shape), self._optimizers.get(name)
        if optimizer is None:
            return []
        return [(optimizer, key) for key in optimizer.state_names if tuple(getattr(optimizer, key).shape) == shape]

    def to(self, backend: Backend, dtype: str | None = None, device: str | None = None) -> None:
        """Move the state to another backend, element type or device; batch matrices are dropped."""
        state = self.state()
        self.load_state(state | {name: convert(X, backend, dtype, device) for name, X in matrices_of(state).items()})
        self.forget()

    def forget(self) -> None:
        """Drop the matrices of the last batch: the input, the intermediates and all gradients, also of the parts."""
        self._forget()
        for part in self.parts():
            part.forget()

    def _forget(self) -> None:
        for name in self.batch_matrices:
            setattr(self, name, None)

    @property
    def batch_matrices(self) -> tuple[str, ...]:
        """The attributes that feedforward and backpropagate set for every batch: X, DX, intermediates and gradients."""
        return (KEPT, "X", "DX", *self.intermediates, *(f"D{name}" for name in self.parameters))

    def clone(self) -> Layer:
        """A layer that shares the matrices of this one; assigning to its attributes leaves this one as it is."""
        clone = copy.copy(self)
        clone._optimizers = {name: copy.copy(part) for name, part in self._optimizers.items()}
        clone._optimizer = CompositeOptimizer(*clone._optimizers.values())
        clones_of_parts = {id(part): part.clone() for part in self.parts()}
        for name, value in vars(self).items():
            if next(_layers_in(value), None) is not None:
                setattr(clone, name, copy.deepcopy(value, dict(clones_of_parts)))
            elif isinstance(value, MethodType) and value.__self__ is self:
                setattr(clone, name, MethodType(value.__func__, clone))
        clone.forget()
        return clone

    def __getstate__(self) -> dict[str, Any]:
        """The attributes of a copy: all except what `keep` keeps and the methods by which this layer is observed."""
        observation = vars(self).get("_observation")
        left_out = (KEPT, "_observation", *(observation.methods if observation else ()))
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @property
    def is_sparse(self) -> bool:
        """Whether a parameter of the layer or of one of its parts is a sparse matrix."""
        return any(isinstance(getattr(part, name), SparseMatrix) for _, part in self.walk() for name in part.parameters)

    def specification(self) -> str:
        """The string that names this kind of layer with its settings, without its sizes and what models have lists of.

        By default settings are the attributes that are called like parameters of the constructor. See
        `matgrad.specifications.models`.
        """
        return describe(self, "Layer", without=("input_size", "output_size", "dropout", "renew", "support"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_size}, {self.output_size})"

    _repr_html_ = deferred("matgrad.explanation.notebook", "layer_html")


def keep(layer: Layer, **matrices: Matrix) -> None:
    """Keep Y or DY in a layer, for inspection until it forgets them; they are no part of its copies."""
    vars(layer)[KEPT] = {**(vars(layer).get(KEPT) or {}), **matrices}


def check_layers(layers: Iterable[Layer]) -> None:
    """Refuse a layer that occurs twice, and one that has inner layers other than its parts."""
    places: dict[int, str] = {}
    for i, top in enumerate(layers, start=1):
        for path, layer in top.walk(str(i)):
            other = places.setdefault(id(layer), path)
            if other != path:
                raise ValueError(f"layers {other} and {path} are the same {layer!r}: expected two layers")
            _check_parts(path, layer)


def check_sharing(layers: Iterable[Layer]) -> None:
    """Refuse what `check_layers` does, and a matrix that two parameters share: each is changed without the other."""
    layers = list(layers)
    check_layers(layers)
    walked = [x for i, top in enumerate(layers, start=1) for x in top.walk(str(i))]
    named = [(f"{path}.{name}", getattr(x, name)) for path, x in walked for name in (*x.parameters, *x.buffers)]
    found = [(name, values_of(X)) for name, X in named if len(X.shape) == 2]
    for (name, X), (other, Y) in combinations(found, 2):
        if type(X) is type(Y) and backend_of(X).shares_memory(X, Y):
            raise ValueError(
                f"{name} and {other} share a matrix: expected two matrices, such as a copy for one of them"
            )


def _check_parts(path: str, layer: Layer) -> None:
    """Refuse a layer in an attribute that is not a part, and a part in no attribute: they could not be cloned."""
    parts = {id(part): part for part in layer.parts()}
    values = [(name, x) for name, x in vars(layer).items() if isinstance(x, (Layer, list, tuple, dict))]
    kept = {id(part): (name, part) for name, value in values for part in _layers_in(value)}
    for key, (name, part) in kept.items():
        if key not in parts:
            raise ValueError(f"layer {path}, {layer!r}: {name} has {part!r}, which is not in parts()")
    for key, part in parts.items():
        if key not in kept:
            raise ValueError(f"layer {path}, {layer!r}: the part {part!r} is in none of its attributes")


def _layers_in(value: Any, inside: tuple[Any, ...] = ()) -> Iterator[Layer]:
    """The layers that an attribute is or contains, in lists, tuples and dictionaries."""
    if isinstance(value, Layer):
        yield value
    elif isinstance(value, list | tuple | dict) and not any(value is x for x in inside):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _layers_in(item, (*inside, value))


def _join(*names: str) -> str:
    """The names, joined by points: '3.1.W'."""
    return ".".join(filter(None, names))
