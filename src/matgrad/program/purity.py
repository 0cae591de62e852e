"""Purity, the contract of compiled steps: what a step computes depends on its state, its settings and its inputs.

Settings are the attributes of models, layers, optimizers, activation functions and losses, apart from the state and
the matrices of a batch. A `Snapshot` has those of a model and its loss, to detect changes. It is shallow: it looks into
lists, dictionaries, arrays and generators, but any other object is the same as long as it is the same object.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np

from matgrad.activation_functions import ActivationFunction
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import Optimizer
from matgrad.sparse.support import Support

PLAIN = {type(None), bool, int, float, complex, str, bytes}
CONTAINERS = {list, tuple, set, frozenset, deque}
MUTABLE = {list, dict, set, deque, np.ndarray, np.random.Generator}  # which `isolated` copies
UNUSED = ("_checked", "information", "history", "normalization", "target_normalization", "features")
COMPONENTS = (MultilayerPerceptron, Layer, Optimizer, ActivationFunction, LossFunction)
PACKAGE = "matgrad."
DATA = {"numpy", "torch", "jax", "jaxlib", "tensorflow"}  # whose objects are matrices, numbers or generators


class Snapshot:
    """The settings of models, layers, optimizers and losses, and whether all of their code is the package's."""

    def __init__(self, *things: object) -> None:
        self.is_builtin = True
        self.settings: list[tuple[type, dict[str, Any]]] = []  # of each component: its class, and attributes by name
        self._places: dict[int, int] = {}  # of the components in that list, by identity
        self._others: list[object] = []  # kept, so that no object gets the identity of an earlier one
        for x in things:
            self._frozen(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.settings == other.settings

    def changes(self, other: Snapshot) -> list[str]:
        """The names of the attributes that differ in another snapshot, such as CountingLayer.count."""
        pairs = zip(self.settings, other.settings, strict=False)
        return [f"{cls.__name__}.{x}" for (cls, a), (_, b) in pairs for x in {**a, **b} if a.get(x) != b.get(x)]

    def _frozen(self, x: Any) -> Any:
        """What is equal for equal settings."""
        if type(x) in PLAIN:
            return x
        if type(x) is dict:
            return dict, tuple(zip(x, map(self._frozen, x.values()), strict=True))
        if type(x) in CONTAINERS:
            parts = sorted(x, key=repr) if isinstance(x, set | frozenset) else x
            return type(x), tuple(map(self._frozen, parts))
        module = type(x).__module__
        if module == "matgrad.program.recorder":
            return "recorded"  # another matrix each time
        if type(x) is np.ndarray:
            return x.shape, x.dtype.str, x.tobytes()
        if type(x) is np.random.Generator:
            return repr(x.bit_generator.state)
        if isinstance(x, COMPONENTS) or (module.startswith(PACKAGE) and not isinstance(x, Support)):
            return self._component(x)
        self.is_builtin &= module.partition(".")[0] in DATA or str(getattr(x, "__module__", "")).startswith(PACKAGE)
        self._others.append(x)
        return type(x), id(x)

    def _component(self, x: Any) -> int:
        """The place of a component, whose attributes become settings when it is first seen."""
        if id(x) not in self._places:
            self._places[id(x)] = len(self.settings)
            attributes: dict[str, Any] = {}
            self.settings.append((type(x), attributes))
            self.is_builtin &= all(base.__module__.startswith(PACKAGE) for base in type(x).__mro__[:-1])
            ignored = _ignored(x)
            for name, value in vars(x).items():
                if type(value) in PLAIN:
                    if value is not None and name != "training":
                        attributes[name] = value
                elif name not in ignored:
                    attributes[name] = self._frozen(value)
        return self._places[id(x)]


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
    clone, own_loss = M.clone(), copy.copy(loss)
    for x in (clone, own_loss, *(part for _, layer in clone.walk() for part in (layer, *layer._optimizers.values()))):
        _own_attributes(x)
    return clone, own_loss


def _own_attributes(x: Any) -> None:
    """Give a copy of a component lists, arrays, generators and activation functions of its own."""
    for name, value in list(getattr(x, "__dict__", {}).items()):
        if name in ("layers", "_optimizers", *_ignored(x)):
            continue
        if isinstance(value, ActivationFunction):
            vars(x)[name] = copy.copy(value)
            _own_attributes(vars(x)[name])
        elif type(value) in MUTABLE:
            vars(x)[name] = copy.deepcopy(value) if type(value) is np.random.Generator else copy.copy(value)
