"""The table on JAX: NumPy's, from `jax.numpy`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from matgrad.backends.base import MATMULS, Array
from matgrad.backends.numpy_backend import ArrayBackend


class JaxBackend(ArrayBackend):
    """JAX arrays and the tracers of `jax.jit`."""

    name = "jax"
    xp = jnp
    erf: Any = staticmethod(jax.scipy.special.erf)
    log_sigmoid: Any = staticmethod(jax.nn.log_sigmoid)

    def one_hot_transposed_product(self, x: Array, G: Array, n: int) -> Array:
        return jnp.zeros((n, G.shape[1]), G.dtype).at[self.places(x, n)].add(G, mode="drop")

    def from_numpy(self, A: np.ndarray, device: str | None = None) -> Array:
        if device is None:
            return jnp.array(A)
        where = find_device(device)
        with jax.default_device(where):  # else it comes there by way of JAX's default
            return jax.device_put(jnp.array(A), where)

    def rows(self, X: Array, start: int, stop: int) -> Array:
        return _slice(X, start, stop - start)

    take_rows = staticmethod(jax.jit(partial(jnp.take, axis=0)))

    def wait(self, X: Array) -> None:
        jax.block_until_ready(X)

    def device(self, X: Array) -> str | None:
        if isinstance(X, jax.core.Tracer):
            return None
        (device,) = X.devices()
        return _name(device)

    def find_device(self, name: str | None) -> str | None:
        if name in (None, "auto"):
            return self.device(jnp.zeros(()))
        try:
            return _name(find_device(name))
        except (RuntimeError, IndexError, ValueError):
            known = dict.fromkeys(map(_name, (*jax.local_devices(), *jax.local_devices(backend="cpu"))))
            missing = f"JAX {jax.__version__} sees no {'GPU' if name in ('cuda', 'gpu') else 'such device'}"
            raise ValueError(f"device {name!r}: {missing}; expected {' or '.join(known)}") from None

    def free_memory(self, device: str | None) -> int | None:
        found = find_device(device).memory_stats() or {}
        return found["bytes_limit"] - found["bytes_in_use"] if "bytes_limit" in found else None

    def matmuls(self, device: str | None) -> tuple[str, ...]:
        found = find_device(device)
        is_new = found.platform == "gpu" and float(getattr(found, "compute_capability", 0)) >= 8
        return MATMULS if is_new else MATMULS[:1]

    def products(self, matmul: str) -> AbstractContextManager[Any]:
        return jax.default_matmul_precision(PRECISIONS[matmul])

    def check_dtype(self, dtype: str) -> None:
        super().check_dtype(dtype)
        if dtype == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                "JAX computes in 32 bits by default and cannot hold float64: "
                "call jax.config.update('jax_enable_x64', True) first"
            )


# what JAX calls the choices of `MATMULS`; its own default is tf32 on GPUs
PRECISIONS = {"float32": "highest", "tf32": "TF32_TF32_F32", "bf16": "BF16_BF16_F32"}

# compiled, it takes half the time of X[start:stop], as `take_rows` does of jnp.take
_slice = jax.jit(jax.lax.dynamic_slice_in_dim, static_argnums=2)


def _name(device: jax.Device) -> str:
    """The name of a device of this process."""
    return f"{device.platform}:{jax.local_devices(backend=device.platform).index(device)}"


def find_device(name: str | None) -> jax.Device:
    """The device of this process called `name`, such as 'cpu', 'gpu', 'cuda' or 'gpu:1'."""
    platform, _, index = (name or "cpu").partition(":")
    return jax.local_devices(backend=platform)[int(index or 0)]
