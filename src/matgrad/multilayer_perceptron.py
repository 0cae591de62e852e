"""The multilayer perceptron: a list of layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from itertools import pairwise
from operator import is_not
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from matgrad.backends import Backend, automatic_backend, backend_of, get_backend
from matgrad.backends.base import MATMULS, Matrix, Scalar
from matgrad.datasets.checking import as_array
from matgrad.foundation.deferred import deferred
from matgrad.foundation.random_numbers import Generator
from matgrad.layers import sparsity
from matgrad.layers.layer import Layer, check_layers, check_sharing, keep
from matgrad.layers.linear import LinearLayer
from matgrad.layers.state import State, matrices_of, sized_by_supports
from matgrad.sparse.densities import format_density
from matgrad.sparse.matrix import SparseMatrix, values_of
from matgrad.specifications.parsing import Items

if TYPE_CHECKING:
    from matgrad import training as _training
    from matgrad.datasets.features import Features
    from matgrad.datasets.normalization import Normalization
    from matgrad.evaluation import measures as _measures
    from matgrad.program import models as _programs
    from matgrad.storage import models as _storage


class MultilayerPerceptron:
    """Y = f_Θ(X), the composition of its layers.

        >>> M = MultilayerPerceptron([ActivationLayer(64, 32, ReLUActivation()), LinearLayer(32, 10)])

    If it has a `normalization`, as a model saved by `matgrad train` does, `fit`, `predict` and `score` apply it to X.
    If it has a `target_normalization`, it is trained on normalized targets: `fit` and `score` take T, and `predict`
    returns Y, in the units of the data. The `features` say which columns of a table X has.
    """

    normalization: Normalization | None = None
    target_normalization: Normalization | None = None
    features: Features | None = None
    # what `fit` or its file says of it beside: the loss, the number of classes, their names …
    information: Mapping[str, Any] = MappingProxyType({})
    history: Mapping[str, list] = MappingProxyType({})  # of the last training, also if that was interrupted or failed

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self.layers: list[Layer] = list(layers)
        self._engine: str | None = None  # if not the backend's: the C++ core works on NumPy's matrices
        self._matmul = MATMULS[0]
        self._checked: list[Layer] = []  # the layers when they were last checked
        self._check_layers()

    # -- the paper's three steps --------------------------------------------------------------
    def feedforward(self, X: Matrix) -> Matrix:
        """Y = f_Θ(X)"""
        self._check_input(X)
        with self.products():
            for layer in self.layers:
                X = layer.feedforward(X)
                keep(layer, Y=X)
        return X

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        """Set DX and Dθ in every layer, from the output Y and its gradient DY."""
        with self.products():
            for layer in reversed(self.layers):
                keep(layer, DY=DY)
                layer.backpropagate(Y, DY)
                Y, DY = layer.X, layer.DX

    def optimize(self, eta: Scalar) -> None:
        """θ' for every parameter θ of every layer, with learning rate η."""
        with self.products():
            for layer in self.layers:
                layer.optimize(eta)

    def walk(self) -> Iterator[tuple[str, Layer]]:
        """All layers and their parts, with their names: ('1', layer 1), ('2', layer 2), ('2.1', its first part), …"""
        check_layers(self.layers)
        for i, layer in enumerate(self.layers, start=1):
            yield from layer.walk(str(i))

    # -- modes --------------------------------------------------------------------------------
    @property
    def training(self) -> bool:
        """Whether batch statistics and dropout are on."""
        return any(layer.training for _, layer in self.walk())

    def train(self, mode: bool = True) -> MultilayerPerceptron:
        """Turn batch statistics and dropout on (or off); returns M."""
        self._check_layers()
        for top in self.layers:
            for _, layer in top.walk():
                layer.training = mode
        return self

    def eval(self) -> MultilayerPerceptron:
        """Use the running statistics and all weights; returns M."""
        return self.train(False)

    def end_epoch(self) -> None:
        """Tell every layer and every part that an epoch has ended."""
        for top in self.layers:
            for _, layer in top.walk():
                layer.end_epoch()

    # -- set-up -------------------------------------------------------------------------------
    def set_optimizer(self, specification: str) -> None:
        """Give every parameter of every layer an optimizer, such as ``Momentum(0.9)``."""
        for layer in self.layers:
            layer.set_optimizer(specification)

    def set_weights(self, specification: str, rng: Generator | None = None) -> None:
        """Draw all weights from a distribution, such as ``Xavier``, and set the biases to 0."""
        for layer in self.linear_layers():
            layer.set_weights(specification, rng)

    def set_densities(self, densities: Items, rng: Generator | None = None) -> None:
        """Give every linear layer a random support; densities are a list such as ``0.01;0.05;1``, or one for all.

        The list includes linear layers that are parts, in the order of `walk`. A layer keeps its weights at
        the support, so those of a new model are too small for it until `set_weights`; with density 1 it stays as it is.
        """
        sparsity.set_densities(self.linear_layers(), densities, rng)

    def set_supports(self, supports: Sequence[Any]) -> None:
        """Give every linear layer its support: a `Support`, a mask or a SciPy matrix; None leaves it as it is.

        The list includes linear layers that are parts, in the order of `walk`. A layer keeps its weights and the state
        of its optimizer at the support; weights that it did not store are 0.
        """
        sparsity.set_supports(self.linear_layers(), supports)

    def prune(self, densities: Items | None = None, *, overall: float | None = None) -> None:
        """Keep the weights that are farthest from 0: in each linear layer by its density, or over all layers.

        The densities are a list such as ``0.01;0.05;1``, or one for all. With an `overall` density there is one
        threshold for all layers, but each keeps at least one weight. Numbers of weights are exact: equal weights are
        dropped in the order of their positions. The optimizers keep their state for the weights that stay.
        """
        sparsity.prune(self.linear_layers(), densities, overall)

    def linear_layers(self) -> list[LinearLayer]:
        """The layers that have weights W and b, parts of layers included, in the order of `walk`."""
        return [layer for _, layer in self.walk() if isinstance(layer, LinearLayer)]

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

    def to(
        self,
        backend: str | None = None,
        *,
        dtype: str | None = None,
        device: str | None = None,
        matmul: str | None = None,
    ) -> MultilayerPerceptron:
        """Move the whole state to another backend, element type or device, in place; returns M.

        The backend ``auto`` is the C++ core where it is built, else NumPy; with a device it is PyTorch. The device
        ``auto`` is a GPU if the backend sees one, else the processor; with the backend ``auto`` it is PyTorch's GPU, or
        as without a device if there is none. By default PyTorch computes on the processor, and JAX and TensorFlow where
        they like to, on a GPU if they see one.

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
            target.check_memory(self._count() * np.dtype(kind).itemsize, device, "the model")
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
        return {f"{i}.{name}": X for i, layer in enumerate(self.layers, start=1) for name, X in layer.state().items()}

    def load_state(self, state: Mapping[str, Matrix]) -> None:
        """Replace the whole state; names and sizes must be exactly those of `self.state()`.

        A support may be a different one, also with more or fewer elements; its values must fit it. A sparse matrix
        without a support in `state` becomes dense.
        """
        own = self.state()
        missing, unknown = sorted(matrices_of(own).keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise ValueError(f"the state does not fit the model: missing {missing}, unknown {unknown}")
        shapes = {name: tuple(X.shape) for name, X in own.items()}
        for name, support in sized_by_supports(own).items():
            shapes[name] = (1, state[support].nnz) if support in state else own[support].shape
        for name, X in state.items():
            if tuple(X.shape) != shapes[name]:
                raise ValueError(
                    f"the state does not fit the model: {name} is {tuple(X.shape)}, expected {shapes[name]}"
                )
        for i, layer in enumerate(self.layers, start=1):
            prefix = f"{i}."
            layer.load_state({key.removeprefix(prefix): X for key, X in state.items() if key.startswith(prefix)})

    def scalar(self, value: float) -> Scalar:
        """A number, such as the learning rate, as a 0-d array of the same kind as the parameters."""
        return self.backend.scalar(value, like=self._parameter)

    def clone(self) -> MultilayerPerceptron:
        """A model that shares the matrices of this one; assigning to its attributes leaves this one as it is."""
        self._check_layers()
        clone = copy(self)
        clone.layers = [layer.clone() for layer in self.layers]
        return clone

    def forget(self) -> None:
        """Drop the matrices of the last batch."""
        for layer in self.layers:
            layer.forget()

    # -- fit, predict, score, save, program ---------------------------------------------------
    if TYPE_CHECKING:
        fit, predict, score, save = _training.fit, _measures.predict, _measures.score, _storage.save_model
        program = _programs.program
    else:  # their modules import this one
        fit = deferred("matgrad.training", "fit")
        predict = deferred("matgrad.evaluation.measures", "predict")
        score = deferred("matgrad.evaluation.measures", "score")
        save = deferred("matgrad.storage.models", "save_model")
        program = deferred("matgrad.program.models", "program")

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

    def __repr__(self) -> str:
        lines: list[tuple[str, ...]] = [("", "layer", "sizes", "density", "parameters")]
        for name, layer in self.walk():
            sizes, count = f"{layer.input_size} → {layer.output_size}", f"{parameter_count(layer):,}"
            lines.append((name, f"{'  ' * name.count('.')}{layer!r}", sizes, density_of(layer), count))
        lines.append(("", "total", "", "", f"{sum(parameter_count(layer) for _, layer in self.walk()):,}"))
        if not any(layer.is_sparse for layer in self.layers):
            lines = [(*line[:3], line[4]) for line in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = "><<>>"
        table = ("  ".join(f"{x:{s}{n}}" for x, s, n in zip(line, sides, widths, strict=False)) for line in lines)
        return "\n".join([self.headline(), *table])

    _repr_html_ = deferred("matgrad.explanation.notebook", "model_html")

    def headline(self) -> str:
        """The name of the class, and where the model lives."""
        where = f" on {self.engine}, {self.dtype}" if self.layers else ""
        if self._matmul != MATMULS[0]:
            where += f", products in {self._matmul}"
        if self.normalization is not None and self.normalization.kind != "none":
            where += f", inputs normalized ({self.normalization})"
        if self.target_normalization is not None:
            where += f", targets normalized ({self.target_normalization})"
        return f"MultilayerPerceptron{where}"

    # -- checks -------------------------------------------------------------------------------
    @property
    def _parameter(self) -> Matrix:
        """The first parameter; the others have the same backend, element type and device."""
        for top in self.layers:
            for _, layer in top.walk():
                for name in layer.parameters:
                    return values_of(getattr(layer, name))
        raise ValueError("the model has no parameters: expected at least one layer with parameters")

    def _count(self) -> int:
        """The number of elements of the whole state, without supports."""
        return sum(int(np.prod(X.shape)) for X in matrices_of(self.state()).values())

    def _check_layers(self) -> None:
        """Refuse layers that occur twice or hide others; only a list that has changed is checked again."""
        if len(self._checked) != len(self.layers) or any(map(is_not, self._checked, self.layers)):
            check_sharing(self.layers)
            self._checked = list(self.layers)

    def _check_input(self, X: Matrix) -> None:
        """Refuse an X whose backend, dtype or size does not fit the model."""
        self._check_layers()
        like, D = self._parameter, self.layers[0].input_size
        for i, (before, after) in enumerate(pairwise(self.layers), start=1):
            if before.output_size != after.input_size:
                raise ValueError(
                    f"layer {i} has {before.output_size} outputs, but layer {i + 1} has {after.input_size} inputs"
                )
        backend = backend_of(like, values_of(X))
        if isinstance(X, SparseMatrix):
            self._check_sparse_input()
        if len(X.shape) != 2 or X.shape[1] != D:
            sizes = " × ".join(map(str, X.shape))
            raise ValueError(f"expected a batch X of size N × {D}, found {sizes}")
        if X.shape[0] == 0:
            raise ValueError("the batch X is empty: expected at least one example")
        if (dtype := backend.dtype(values_of(X))) != backend.dtype(like):
            raise TypeError(
                f"X is {dtype} but the model is {backend.dtype(like)}; use M.to(dtype=...) or loader.to(dtype=...)"
            )

    def _check_sparse_input(self) -> None:
        """Refuse a sparse X if the backend has no sparse matrices, or the first layer would make it dense."""
        self.backend.check_sparse()
        first = self.layers[0]
        if first.keeps_size:
            raise TypeError(
                f"layer 1, {first!r}, cannot take a sparse X, of which it would compute every element; "
                "put a linear layer before it, or give a dense X, such as X.toarray()"
            )


def parameter_count(layer: Layer) -> int:
    """The number of trained numbers in a layer, not counting its parts."""
    return sum(int(np.prod(values_of(getattr(layer, name)).shape)) for name in layer.parameters)


def density_of(layer: Layer) -> str:
    """The density of a linear-type layer as a string; empty for other layers."""
    if not isinstance(layer, LinearLayer):
        return ""
    return format_density(layer.W.support) if isinstance(layer.W, SparseMatrix) else "1"
