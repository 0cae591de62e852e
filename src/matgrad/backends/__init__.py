"""Backends: the table of matrix operations on NumPy, PyTorch, JAX, TensorFlow and SymPy.

A backend is one file here and one line in `BACKENDS`. `backend_of` is the only place where
matgrad decides which framework a matrix belongs to.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module

from matgrad.backends.base import Array, Backend
from matgrad.foundation.imports import how_to_install
from matgrad.specifications.parsing import lookup

# name: (the module that implements it, its class, top-level modules of its matrix types)
BACKENDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "numpy": ("matgrad.backends.numpy_backend", "NumpyBackend", ("numpy",)),
    "torch": ("matgrad.backends.torch_backend", "TorchBackend", ("torch",)),
    "jax": ("matgrad.backends.jax_backend", "JaxBackend", ("jax", "jaxlib")),
    "tensorflow": ("matgrad.backends.tensorflow_backend", "TensorflowBackend", ("tensorflow",)),
    "native": ("matgrad.backends.numpy_backend", "NumpyBackend", ("matgrad._native",)),  # with the C++ core
    "sympy": ("matgrad.backends.sympy_backend", "SympyBackend", ("sympy",)),
}

# how to install a backend that is not an extra of the same name
_INSTALL = {
    "sympy": how_to_install("symbolic"),
    "native": "install a C++ compiler, such as Debian's g++, and then matgrad again: "
    "pip install --force-reinstall --no-deps . in a clone of it",
}


@cache
def get_backend(name: str) -> Backend:
    """The backend called `name`; imports its framework."""
    module, class_name, (framework, *_) = lookup(str(name), BACKENDS, "backend")
    try:
        import_module(framework)
        return _instance(module, class_name)
    except ModuleNotFoundError as error:
        if error.name is None or framework not in (error.name, error.name.partition(".")[0]):
            raise
        install = _INSTALL.get(name, how_to_install(name))
        raise ModuleNotFoundError(
            f"the backend {name!r} needs {framework}, which is not installed: {install}", name=error.name
        ) from None


def automatic_backend(device: str | None = None) -> str:
    """What ``auto`` stands for: the C++ core if it is built, else NumPy; PyTorch if a device is given.

    For the device ``auto`` it is PyTorch only if that sees a GPU.
    """
    if device == "auto":
        device = None
        with suppress(ModuleNotFoundError):
            found = get_backend("torch").find_device("auto")
            device = None if found == "cpu" else found
    if device is not None:
        return "torch"
    try:
        import_module("matgrad._native")
    except ImportError:
        return "numpy"
    return "native"


@cache
def _instance(module: str, class_name: str) -> Backend:
    return getattr(import_module(module), class_name)()


_NOT_PLAIN = {("numpy", "MaskedArray"), ("numpy", "matrix")}  # arrays whose operators mean something else
_BACKEND_OF_TYPE: dict[type, Backend] = {}  # one entry per matrix type


def register_matrix_type(matrix_type: type, backend: Backend) -> None:
    """Make the table work on one of matgrad's own matrix types, such as the recorder's."""
    _BACKEND_OF_TYPE[matrix_type] = backend


def _resolve(matrix_type: type) -> Backend:
    """The backend of a matrix type, found by the top-level module of the type or of its bases."""
    if any((base.__module__[:5], base.__name__) in _NOT_PLAIN for base in matrix_type.__mro__):
        raise TypeError(f"a {matrix_type.__qualname__} is not a plain array: give X.filled(…) or np.asarray(X)")
    for base in matrix_type.__mro__:
        root = base.__module__.partition(".")[0]
        for name, (_, _, roots) in BACKENDS.items():
            if root in roots:
                return _BACKEND_OF_TYPE.setdefault(matrix_type, get_backend(name))
    raise TypeError(
        f"{matrix_type.__module__}.{matrix_type.__qualname__} is not a matrix type of matgrad; "
        f"expected a 2-D array of one of: {', '.join(BACKENDS)}"
    )


def backend_of(X: object, *others: object) -> Backend:
    """The backend that X, and every matrix of `others`, belongs to; it is an error to mix them."""
    backend = _BACKEND_OF_TYPE.get(type(X)) or _resolve(type(X))
    for Y in others:
        other = _BACKEND_OF_TYPE.get(type(Y)) or _resolve(type(Y))
        if other is not backend:
            raise TypeError(
                f"mixed backends: {backend.name} and {other.name}; "
                "move the model with M.to(...) and the data with loader.to(...)"
            )
    return backend


def convert(X: Array, backend: Backend, dtype: str | None, device: str | None) -> Array:
    """X on another backend; floating-point elements get the given dtype, counters stay integers."""
    A = backend_of(X).to_numpy(X)
    return backend.from_numpy(A.astype(dtype) if dtype and A.dtype.kind == "f" else A, device)


__all__ = ["BACKENDS", "Backend", "automatic_backend", "backend_of", "convert", "get_backend", "register_matrix_type"]
