"""The zoo in JAX: its gradients are proved, and those of automatic differentiation."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import matgrad as mg
from matgrad.writers.specifications import specification

BACKENDS = ("jax",)
jax = pytest.importorskip("jax")
pytestmark = pytest.mark.usefixtures("backend")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs/site"))
import zoo  # noqa: E402

JAX = zoo.claims(zoo.FILES["JAX"])
FEW = ("LayerNorm", "RotaryEmbedding", "CrossEntropy")  # whose proofs in JAX are fast enough for every run


def jax_function(name: str):
    space: dict = {"__name__": "zoo"}
    exec(zoo.jax_code(name), space)
    return space[name]


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in JAX])
def test_jax_is_proved(name: str):
    assert mg.prove(jax_function(name), JAX[name]).check().verdict == "proved"


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in JAX])
def test_jax_on_the_page_is_its_own_differentiation(name: str):
    f, rng = jax_function(name), np.random.default_rng(1)
    sizes = {"B": 2, "C": 3, "D": 4, "E": 5, "F": 3, "G": 2, "H": 2, "K": 4, "N": 3, "S": 5, "T": 4}
    said = {n: specification(s) if isinstance(s, str) else s for n, s in JAX[name].items()}
    values = [s if isinstance(s, float) else s.sample(sizes, rng) for s in said.values()]
    with jax.enable_x64(True):
        places = [i for i, x in enumerate(values) if isinstance(x, np.ndarray) and x.ndim and x.dtype.kind == "f"]
        arguments = [
            x if i in places or not isinstance(x, np.ndarray) else jax.numpy.asarray(x) for i, x in enumerate(values)
        ]

        def gradients(function):
            def of(*own):
                return function(*(own[places.index(i)] if i in places else x for i, x in enumerate(arguments)))

            y, pull = jax.vjp(of, *(arguments[i] for i in places))
            return pull(jax.numpy.cos(jax.numpy.arange(y.size, dtype=float)).reshape(y.shape))

        for x, y in zip(gradients(f), gradients(f.fun), strict=True):
            if np.any(x):  # angles have no gradient
                np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=name)
