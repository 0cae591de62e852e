"""What models have besides the paper's steps: where they live, their state, normalization, checks and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from operator import is_not
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from matgrad.backends import Backend, automatic_backend, backend_of, get_backend
from matgrad.backends.base import MATMULS, Matrix, Scalar
from matgrad.datasets.checking import as_array
from matgrad.foundation.imports import deferred
from matgrad.foundation.numbers import Generator
from matgrad.layers.base import check_input, check_sharing
from matgrad.layers.layer import Layer
from matgrad.layers.linear import LinearLayer
from matgrad.layers.state import State, matrices_of, places_of, put, sized_by_supports, taken
from matgrad.layers.weights import WeightedLayer, largest_supports, with_densities
from matgrad.sparse.densities import format_density, random_support
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.specifications.parsing import Items, at_position

if TYPE_CHECKING:
    from matgrad.datasets.dataset import Normalization
    from matgrad.datasets.features import Features


class ModelBase:
    """Place, layers, state and normalization of a model; see `MultilayerPerceptron`."""

    layers: list[Layer]
    normalization: Normalization | None = None
    target_normalization: Normalization | None = None
    features: Features | None = None
    # what `fit` or its file says of it beside: the loss, the number of classes, their names …
    information: Mapping[str, Any] = MappingProxyType({})
    history: Mapping[str, list[Any]] = MappingProxyType({})  # of the last training, also one that did not end

    _engine: str | None = None  # if not the backend's: the C++ core works on NumPy's matrices
    _matmul = MATMULS[0]
    _checked: Sequence[Layer] = ()  # the layers when they were last checked

    # -- where the model lives ----------------------------------------------------------------
    @property
    def backend(self) -> Backend:
        """The backend of the parameters."""
        return backend_of(self._parameter)

    @property
    def engine(self) -> str:
        """The name of the engine that trains the model: that of its backend, or ``native`` for the C++ core."""
        return self._engine or self.backend.name

    @property
    def dtype(self) -> str:
        """The element type of the parameters."""
        return self.backend.dtype(self._parameter)

    @property
    def device(self) -> str | None:
        """The device of the parameters."""
        return self.backend.device(self._parameter)

    @property
    def matmul(self) -> str:
        """How products are computed: ``float32``, which is in M's own element type, or ``tf32`` or ``bf16``.

        These round the factors of dense products to 10 and 7 bits after the leading one; the sums are in float32.
        """
        return self._matmul

    def products(self) -> AbstractContextManager[Any]:
        """Within it, products of matrices of M's backend are computed as `matmul` says; M's own methods see to it."""
        return self.backend.products(self._matmul)

    def scalar(self, value: float) -> Scalar:
        """A number, such as the learning rate, as a 0-d array of the same kind as the parameters."""
        return self.backend.scalar(value, like=self._parameter)

    @property
    def _parameter(self) -> Matrix:
        """The first parameter; the others have the same backend, element type and device."""
        for top in self.layers:
            for _, layer in top.walk():
                for name in layer.parameters:
                    return values_of(getattr(layer, name))
        raise ValueError("the model has no parameters: expected at least one layer with parameters")

    def to(
        self,
        backend: str | None = None,
        *,
        dtype: str | None = None,
        device: str | None = None,
        matmul: str | None = None,
    ) -> Self:
        """Move the whole state to another backend, element type or device, in place; returns M.

        The backend ``auto`` is the C++ core where it is built, else NumPy; with a device it is PyTorch. The device
        ``auto`` is a GPU if the backend sees one, else the processor; with the backend ``auto`` it is PyTorch's GPU, or
        as without a device if there is none. By default PyTorch computes on the processor, and JAX and TensorFlow on
        their default device.

        How products are computed, `matmul`, stays as it is, but is float32 again where there is no choice.
        """
        is_moved = not backend is dtype is device is None
        if backend == "auto":
            backend = automatic_backend(device)
        target = self.backend if backend is None else get_backend(backend)
        if self.backend.name == "sympy" and dtype is None:
            dtype = "float64"
        target.check_dtype(kind := dtype or self.dtype)
        if any(layer.is_sparse for layer in self.layers):
            target.check_sparse()
        device = self.device if device is None and target is self.backend else target.find_device(device)
        if matmul is not None:
            target.check_matmul(matmul, kind, device)
        if (target, device) != (self.backend, self.device):
            count = sum(int(np.prod(X.shape)) for X in matrices_of(self.state()).values())
            target.check_memory(count * np.dtype(kind).itemsize, device, "the model")
        for layer in self.layers if is_moved else ():
            layer.to(target, dtype, device)
        if backend is not None:
            self._engine = backend if backend != target.name else None
        is_kept = kind == "float32" and self._matmul in target.matmuls(device)
        self._matmul = matmul or (self._matmul if is_kept else MATMULS[0])
        return self

    # -- state --------------------------------------------------------------------------------
    def state(self) -> State:
        """Everything that training changes, by name: '3.W' and '3.W.delta' in layer 3, '3.1.W' in its first part, …"""
        return taken(places_of(self.walk()))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the whole state; names and sizes must be exactly those of `self.state()`.

        A support may be a different one, also with more or fewer elements; its values must fit it. A sparse matrix
        without a support in `state` becomes dense.
        """
        places, problem = places_of(self.walk()), "the state does not fit the model"
        own = taken(places)
        if own.keys() != state.keys():  # it may lack supports
            missing, unknown = sorted(matrices_of(own).keys() - state.keys()), sorted(state.keys() - own.keys())
            if missing or unknown:
                raise ValueError(f"{problem}: missing {missing}, unknown {unknown}")
        sized = sized_by_supports(own)
        for name, X in state.items():
            shape = own[name].shape
            if support := sized.get(name):
                shape = (1, state[support].nnz) if support in state else own[support].shape
            if tuple(X.shape) != tuple(shape):
                raise ValueError(f"{problem}: {name} is {tuple(X.shape)}, expected {tuple(shape)}")
        put(state, places)

    def clone(self) -> Self:
        """A model that shares the matrices of this one; assigning to its attributes leaves this one as it is."""
        self.check_layers()
        clone = copy(self)
        clone.layers = [layer.clone() for layer in self.layers]
        return clone

    def forget(self) -> None:
        """Drop the matrices of the last batch."""
        for layer in self.layers:
            layer.forget()

    # -- layers -------------------------------------------------------------------------------
    def walk(self) -> Iterator[tuple[str, Layer]]:
        """All layers and their parts, with their names: ('1', layer 1), ('2', layer 2), ('2.1', its first part), …"""
        self.check_layers()
        for i, layer in enumerate(self.layers, start=1):
            yield from layer.walk(str(i))

    def linear_layers(self) -> list[LinearLayer]:
        """The layers that have weights W and b, parts of layers included, in the order of `walk`."""
        return [layer for _, layer in self.walk() if isinstance(layer, LinearLayer)]

    def set_densities(self, densities: Items, rng: Generator | None = None) -> None:
        """Give every linear layer a random support: by densities such as ``0.01;1``, one for all, or ``ER(0.05)``.

        A layer keeps its weights at the support, so those of a new model are too small for it until `set_weights`;
        with density 1 it stays as it is.
        """
        pairs = with_densities(self.linear_layers(), densities)
        self.set_supports([random_support(x.output_size, x.input_size, d, rng, within=x.within) for x, d in pairs])

    def set_supports(self, supports: Sequence[Any]) -> None:
        """Give every linear layer its support: a `Support`, a mask or a SciPy matrix; None leaves it as it is.

        A layer keeps its weights and the state of its optimizer at the support; weights that it did not store are 0.
        Nothing is changed unless all supports fit.
        """
        layers, checked = self.linear_layers(), []
        if len(supports) != len(layers):
            raise ValueError(f"expected {len(layers)} supports for {len(layers)} linear layers, found {len(supports)}")
        for position, (layer, support) in enumerate(zip(layers, supports, strict=True), start=1):
            with at_position("linear layer", position):
                checked.append(None if support is None else layer.checked_support(support))
        for layer, support in zip(layers, checked, strict=True):
            if support is not None:
                layer.set_support(support)

    def prune(self, densities: Items | None = None, *, overall: float | None = None) -> None:
        """Keep the weights that are farthest from 0: in each linear layer by its density, or over all layers.

        The densities are a list such as ``0.01;1``, one for all, or ``ER(0.05)``. An `overall` density is that of one
        threshold for all layers, but each keeps at least one weight. Numbers of weights are exact: equal weights are
        dropped in the order of their positions. The optimizers keep their state for the weights that stay.
        """
        layers = self.linear_layers()
        if densities is not None and overall is None:
            supports = []
            for position, (layer, d) in enumerate(with_densities(layers, densities), start=1):
                with at_position("linear layer", position):
                    supports += largest_supports([layer], d, "density")
        elif overall is not None and densities is None:
            supports = largest_supports(layers, overall, "overall density")
        else:
            raise ValueError("prune: expected either densities or an overall density")
        for layer, support in zip(layers, supports, strict=True):
            if support.nnz < layer.nnz:
                layer.set_support(support)

    # -- normalization ------------------------------------------------------------------------
    def normalize(self, X: Any) -> Any:
        """The examples as the layers expect them: (X - offset) / scale if M has a normalization, else X."""
        X = as_array(X, "X")
        return X if self.normalization is None else self.normalization.apply(X)

    def normalize_targets(self, T: np.ndarray) -> np.ndarray:
        """The targets as the loss expects them: (T - offset) / scale if M has a normalization of them, else T."""
        T, normalization = np.asarray(T), self.target_normalization
        return T if normalization is None else normalization.apply(T.reshape(len(T), -1))

    def denormalize(self, Y: np.ndarray) -> np.ndarray:
        """The outputs of the layers, or the targets of the loss, in the units of the data: Y·scale + offset, or Y."""
        return Y if self.target_normalization is None else self.target_normalization.invert(Y)

    # -- checks and printing ------------------------------------------------------------------
    def check_layers(self) -> None:
        """Raise if a layer occurs twice or hides another; only a list that has changed is checked again."""
        if len(self._checked) != len(self.layers) or any(map(is_not, self._checked, self.layers)):
            check_sharing(self.layers)
            self._checked = list(self.layers)

    def check_input(self, X: Matrix) -> None:
        """Raise if the layers do not fit each other, or X has another size, backend or dtype than the first expects."""
        self.check_layers()
        check_input(self.layers, X, self._parameter)

    def __repr__(self) -> str:
        """The headline and a table: of each layer and part its name, sizes, density (if any is sparse), parameters."""
        layers = list(self.walk())
        lines: list[tuple[str, ...]] = [("", "layer", "sizes", "density", "parameters")]
        for name, layer in layers:
            sizes, count = f"{layer.input_size} → {layer.output_size}", f"{parameter_count(layer):,}"
            lines.append((name, f"{'  ' * name.count('.')}{layer!r}", sizes, density_of(layer), count))
        lines.append(("", "total", "", "", f"{sum(parameter_count(layer) for _, layer in layers):,}"))
        if not any(layer.is_sparse for layer in self.layers):
            lines = [(*line[:3], line[4]) for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ("  ".join(f"{x:{s}{n}}" for x, s, n in zip(line, "><<>>", widths, strict=False)) for line in lines)
        return "\n".join([headline(self), *table])

    _repr_html_ = deferred("matgrad.explanation.notebook", "model_html")


def headline(M: ModelBase) -> str:
    """The name of the class, and where the model lives."""
    where = f" on {M.engine}, {M.dtype}" if M.layers else ""
    if M.matmul != MATMULS[0]:
        where += f", products in {M.matmul}"
    if M.normalization is not None and M.normalization.kind != "none":
        where += f", inputs normalized ({M.normalization})"
    if M.target_normalization is not None:
        where += f", targets normalized ({M.target_normalization})"
    return f"MultilayerPerceptron{where}"


def parameter_count(layer: Layer) -> int:
    """The number of trained numbers in a layer, not counting its parts."""
    return sum(int(np.prod(values_of(getattr(layer, name)).shape)) for name in layer.parameters)


def density_of(layer: Layer) -> str:
    """The density of a linear-type layer as a string; empty for other layers."""
    if not isinstance(layer, WeightedLayer):
        return ""
    return format_density(layer.W.support) if isinstance(layer.W, SparseMatrix) else "1"
