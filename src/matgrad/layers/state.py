"""The state of a model or a layer: everything that training carries from batch to batch, by name.

It has matrices (``3.W``, ``3.W.delta``, ``3.running_mean``), 0-d counters (``3.renewals``) and the supports of sparse
parameters (``3.W.support``); their matrices have one value per stored element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.sparse.support import Support

if TYPE_CHECKING:
    from matgrad.layers.layer import Layer

State = dict[str, Any]
Places = dict[str, tuple[Any, str]]  # of the entries: a layer or an optimizer, and the name of its attribute
SUPPORT = ".support"  # how the name of a support ends, after that of its parameter


def matrices_of(state: Mapping[str, Any]) -> State:
    """The state without its supports."""
    return {name: X for name, X in state.items() if not name.endswith(SUPPORT)}


def supports_of(state: Mapping[str, Any]) -> dict[str, Support]:
    """The supports in a state."""
    return {name: S for name, S in state.items() if name.endswith(SUPPORT)}


def copied(state: Mapping[str, Any]) -> State:
    """The state in matrices of its own; supports never change."""
    return {name: 1 * X for name, X in matrices_of(state).items()} | supports_of(state)


def places_of(layers: Iterable[tuple[str, Layer]]) -> Places:
    """The place of each entry of the state of layers and parts, whose names precede those of their attributes."""
    found: Places = {}
    for path, layer in layers:
        prefix = f"{path}." if path else ""
        found |= {prefix + name: (layer, name) for name in (*layer.parameters, *layer.buffers)}
        for name, optimizer in layer._optimizers.items():
            found |= {f"{prefix}{name}.{key}": (optimizer, key) for key in optimizer.state_names}
    return found


def taken(places: Places) -> State:
    """The entries of the state in these places."""
    return flattened({name: getattr(*place) for name, place in places.items()})


def flattened(matrices: Mapping[str, Any]) -> State:
    """The matrices, a sparse one as its values and its support, such as X and X.support."""
    supports = {f"{name}{SUPPORT}": X.support for name, X in matrices.items() if isinstance(X, SparseMatrix)}
    return {name: values_of(X) for name, X in matrices.items()} | supports if supports else dict(matrices)


def put(state: Mapping[str, Any], places: Places) -> None:
    """Store the entries of a state in their places; sparse values come with their support."""
    for name, X in state.items():
        if name.endswith(SUPPORT):
            continue
        thing, attribute = places[name]
        old, support = getattr(thing, attribute), state.get(f"{name}{SUPPORT}")
        if support is not None:
            X = SparseMatrix(support, X)
        elif isinstance(old, SparseMatrix) and tuple(X.shape) != old.shape:
            raise ValueError(f"{name} is sparse; expected {name}{SUPPORT} as well")
        setattr(thing, attribute, X)


def sized_by_supports(state: Mapping[str, Any]) -> dict[str, str]:
    """The name of the support of each 1×nnz matrix: the values themselves, and what an optimizer keeps for them."""
    supports = supports_of(state)
    matrices = matrices_of(state) if supports else {}
    return {
        name: support
        for support, S in supports.items()
        for name, X in matrices.items()
        if f"{name}.".startswith(f"{support.removesuffix(SUPPORT)}.") and tuple(X.shape) == (1, S.nnz)
    }
