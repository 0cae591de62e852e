"""Purity, the contract of compiled steps: what a step computes depends on its state, its settings and its inputs.

Settings are the attributes of models, layers, optimizers, activation functions and losses, apart from the state and
the matrices of a batch; also those of their classes and in slots, but not what a library has added: attributes such as
__cache__, and the values of cached properties. A `Snapshot` has those of a model and its loss, to detect changes. It
is shallow: it looks into lists, dictionaries, arrays and generators, but any other object is the same as long as it is
the same object.
"""

from __future__ import annotations

import copy
import hashlib
from collections import deque
from collections.abc import Iterator
from functools import cache, cached_property
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.sparse.support import Support

PLAIN = {type(None), bool, int, float, complex, str, bytes}
CONTAINERS = {list, tuple, set, frozenset, deque}
UNUSED = ("_checked", "information", "history", "normalization", "target_normalization", "features")
COMPONENTS = (MultilayerPerceptron, Layer, Optimizer, ActivationFunction, LossFunction)
PACKAGE = "matgrad."
LONGEST = 40  # characters, or bytes, of a setting that is kept as it is
DATA = {"numpy", "torch", "jax", "jaxlib", "tensorflow"}  # whose objects are matrices, numbers or generators


class Snapshot:
    """The settings of models, layers, optimizers and losses, and whether all of their code is the package's."""

    def __init__(self, *things: object) -> None:
        self.is_builtin = True
        self.settings: list[tuple[type, dict[str, Any]]] = []  # of each component: its class, and attributes by name
        self._places: dict[int, int] = {}  # of the components in that list, by identity
        self._others: list[object] = []  # kept, so that no object gets the identity of an earlier one
        self.things = [self._frozen(x) for x in things]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and (self.things, self.settings) == (other.things, other.settings)

    def changes(self, other: Snapshot) -> list[str]:
        """The names of the attributes that differ in another snapshot, such as CountingLayer.count."""
        pairs = zip(self.settings, other.settings, strict=False)
        return [f"{cls.__name__}.{x}" for (cls, a), (_, b) in pairs for x in {**a, **b} if a.get(x) != b.get(x)]

    def kept(self) -> dict[str, str]:
        """The settings of code of users, in words, by names such as CountingLayer.count, which several layers may have.

        They are the same in another process that makes the same model, except for the seed of a layer without dropout.
        """
        found: dict[str, str] = {}
        for cls, settings in self.settings:
            for x in settings.keys() - {"seed"} if not _is_ours(cls) else ():
                name = f"{cls.__name__}.{x}"
                found[name] = f"{found[name]}; {settings[x]!r}" if name in found else repr(settings[x])
        return {name: x if len(x) <= LONGEST else _sha256(x.encode()) for name, x in found.items()}

    def _frozen(self, x: Any) -> Any:
        """What is equal for equal settings."""
        if type(x) in PLAIN:
            return x
        if type(x) is dict:
            return "dict", tuple(zip(x, map(self._frozen, x.values()), strict=True))
        if type(x) in CONTAINERS:
            parts = sorted(x, key=repr) if isinstance(x, set | frozenset) else x
            return type(x).__name__, tuple(map(self._frozen, parts))
        module = type(x).__module__
        if module == "matgrad.program.recorder":
            return "recorded"  # another matrix each time
        if type(x) is np.ndarray:
            return x.shape, x.dtype.str, x.tobytes() if x.nbytes <= LONGEST else _sha256(np.ascontiguousarray(x))
        if type(x) is np.random.Generator:
            return repr(x.bit_generator.state)
        if isinstance(x, COMPONENTS) or (module.startswith(PACKAGE) and not isinstance(x, Support)):
            return self._component(x)
        self.is_builtin &= module.partition(".")[0] in DATA or str(getattr(x, "__module__", "")).startswith(PACKAGE)
        self._others.append(x)
        return _Object(type(x), id(x))

    def _component(self, x: Any) -> int:
        """The place of a component, whose attributes become settings when it is first seen."""
        if id(x) not in self._places:
            self._places[id(x)] = len(self.settings)
            attributes: dict[str, Any] = {}
            self.settings.append((type(x), attributes))
            cls: type = type(x)
            is_ours = _is_ours(cls)
            self.is_builtin &= is_ours
            ignored = _ignored(x)
            for name, value in vars(x).items() if is_ours else _attributes(x):
                if type(value) in PLAIN:
                    if value is not None and name != "training" and name[:2] != "__":
                        attributes[name] = value
                elif name not in ignored and name[:2] != "__":
                    attributes[name] = self._frozen(value)
        return self._places[id(x)]


class _Object(NamedTuple):
    """An object that is the same as long as it is the same object."""

    kind: type
    identity: int

    def __repr__(self) -> str:
        return f"an object of {self.kind.__qualname__}"


@cache
def _is_ours(cls: type) -> bool:
    """Whether all code of a class is the package's."""
    return all(base.__module__.startswith(PACKAGE) for base in cls.__mro__[:-1])


def _attributes(x: Any) -> Iterator[tuple[str, Any]]:
    """The attributes by name of an object whose class users have written: those in slots, of its class, and its own."""
    cls, cached = type(x), set[str]()
    for base in cls.__mro__[-2::-1]:
        for name, value in vars(base).items() if not base.__module__.startswith(PACKAGE) else ():
            if isinstance(value, MemberDescriptorType) and hasattr(x, name):  # a slot
                yield name, getattr(x, name)
            elif type(value) in PLAIN | CONTAINERS | {dict, np.ndarray}:
                yield name, value
            elif isinstance(value, cached_property):
                cached.add(name)
    yield from (item for item in vars(x).items() if item[0] not in cached)


def _sha256(content: Any) -> str:
    return f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def _ignored(x: Any) -> tuple[str, ...]:
    """The attributes that, unless numbers, are part of the state, set for every batch, or not used in a step."""
    if isinstance(x, Layer):
        observation = vars(x).get("_observation")
        observed = () if observation is None else ("_observation", *observation.methods)
        return (*x.parameters, *x.buffers, "_optimizer", *x.batch_matrices, *observed)
    if isinstance(x, Optimizer):
        return ("x", "Dx", *x.state_names)
    return UNUSED if isinstance(x, MultilayerPerceptron) else ()


def isolated(M: MultilayerPerceptron, loss: LossFunction | None) -> tuple[MultilayerPerceptron, Any]:
    """Copies that share the state of M; a step that changes attributes of them, also in place, leaves M as it is."""
    clone, own_loss, copies = M.clone(), copy.copy(loss), dict[int, Any]()
    for x in (clone, own_loss, *(part for _, layer in clone.walk() for part in (layer, *layer._optimizers.values()))):
        _own_attributes(x, copies)
    return clone, own_loss


def _own_attributes(x: Any, copies: dict[int, Any]) -> None:
    """Give a copy of a component lists, arrays, generators and activation functions of its own."""
    for name, value in list(getattr(x, "__dict__", {}).items()):
        if name not in ("layers", "_optimizers", *_ignored(x)):
            vars(x)[name] = _own(value, copies)


def _own(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of what a `Snapshot` looks into, one for all who have it; any other object as it is."""
    if id(value) in copies:
        return copies[id(value)]
    found = value
    if isinstance(value, ActivationFunction):
        found = copy.copy(value)
        _own_attributes(found, copies)
    elif type(value) is dict:
        found = {key: _own(item, copies) for key, item in value.items()}
    elif type(value) in (list, tuple):
        found = type(value)(_own(item, copies) for item in value)
    elif type(value) in (set, deque, np.ndarray):
        found = copy.copy(value)
    elif type(value) is np.random.Generator:
        found = copy.deepcopy(value)
    return copies.setdefault(id(value), found) if found is not value else value
