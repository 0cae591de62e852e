"""The table on JAX: NumPy's, from `jax.numpy`."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from matgrad.backends.base import Backend
from matgrad.backends.numpy_backend import NumpyBackend


class JaxBackend(NumpyBackend):
    """JAX arrays and the tracers of `jax.jit`."""

    name = "jax"
    np = jnp

    has_sparse = False  # NumPy's sparse products are SciPy's
    sparse_product = Backend.sparse_product
    sparse_transposed_product = Backend.sparse_transposed_product
    sampled_product = Backend.sampled_product
    uniform_on = Backend.uniform_on
    shown = Backend.shown
    shares_memory = Backend.shares_memory  # arrays cannot be changed in place

    def erf(self, X):
        return jax.scipy.special.erf(X)

    def log_sigmoid(self, X):
        return jax.nn.log_sigmoid(X)

    def from_numpy(self, A, device=None):
        where = None if device is None else find_device(device)
        return jax.device_put(jnp.array(A), where)

    def rows(self, X, start, stop):
        return _slice(X, start, stop - start)

    def take_rows(self, X, indices):
        return _take(X, indices)

    def wait(self, X):
        jax.block_until_ready(X)

    def device(self, X):
        if isinstance(X, jax.core.Tracer):
            return None
        (device,) = X.devices()
        return f"{device.platform}:{jax.local_devices(backend=device.platform).index(device)}"

    def check_device(self, device):
        try:
            find_device(device)
        except (RuntimeError, IndexError, ValueError) as error:
            known = ", ".join(f"{d.platform}:{i}" for i, d in enumerate(jax.local_devices()))
            raise ValueError(f"device {device!r}: {str(error).splitlines()[0]}; found {known}") from None

    def check_dtype(self, dtype):
        super().check_dtype(dtype)
        if dtype == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                "JAX computes in 32 bits by default and cannot hold float64: "
                "call jax.config.update('jax_enable_x64', True) first"
            )


# compiled, they take half the time of X[start:stop] and jnp.take
_slice = jax.jit(jax.lax.dynamic_slice_in_dim, static_argnums=2)
_take = jax.jit(partial(jnp.take, axis=0))


def find_device(name: str) -> jax.Device:
    """The device of this process called `name`, such as 'cpu', 'gpu' or 'gpu:1'."""
    platform, _, index = name.partition(":")
    return jax.local_devices(backend=platform)[int(index or 0)]
