"""What models have besides the paper's steps: where they live, their state, normalization, checks and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from matgrad.layers import checks
from matgrad.layers.layer import Layer
from matgrad.layers.sparsity import SparseModel
from matgrad.layers.state import Places, State, matrices_of, put, sized_by_supports
from matgrad.sparse.matrix import values_of

if TYPE_CHECKING:
    from matgrad.datasets.features import Features
    from matgrad.datasets.normalization import Normalization


class ModelBase(SparseModel):
    """Place, state and normalization of a model; see `MultilayerPerceptron`."""

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
        return {f"{i}.{name}": X for i, layer in enumerate(self.layers, start=1) for name, X in layer.state().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the whole state; names and sizes must be exactly those of `self.state()`.

        A support may be a different one, also with more or fewer elements; its values must fit it. A sparse matrix
        without a support in `state` becomes dense.
        """
        own, problem = self.state(), "the state does not fit the model"
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
        places: Places = {}
        for i, layer in enumerate(self.layers, start=1):
            places |= layer._places(str(i))
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
            checks.check_sharing(self.layers)
            self._checked = list(self.layers)

    def check_input(self, X: Matrix) -> None:
        """Raise if the layers do not fit each other, or X has another size, backend or dtype than the first expects."""
        self.check_layers()
        checks.check_input(self.layers, X, self._parameter)

    __repr__ = deferred("matgrad.layers.summary", "summary")
    _repr_html_ = deferred("matgrad.explanation.notebook", "model_html")
