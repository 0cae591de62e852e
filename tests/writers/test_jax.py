"""Verdicts on code of JAX: custom_vjp, custom_jvp and functions with a backward, with symbolic sizes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import matgrad as mg

BACKENDS = ("jax",)
jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("backend")
CASES = {}


def case(verdict, missing="", **shapes):
    def add(make):
        CASES[make.__name__] = (make, verdict, missing, shapes)
        return make

    return add


def with_vjp(fun, fwd, bwd, **more):
    f = jax.custom_vjp(fun, **more)
    f.defvjp(fwd, bwd)
    return f


def rms(x, w):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * w


def rms_fwd(x, w):
    r = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    return x * r * w, (x, w, r)


@case("proved", x="N D", w="D")
def rms_norm():
    def bwd(res, g):
        x, w, r = res
        gy, xh = g * w, x * r
        return r * (gy - xh * jnp.mean(gy * xh, -1, keepdims=True)), (g * xh).sum(0)

    return with_vjp(rms, rms_fwd, bwd)


@case("refuted", "∂/∂x_ij: true − returned = ", x="N D", w="D")
def rms_norm_with_the_mean_over_all():
    def bwd(res, g):
        x, w, r = res
        gy, xh = g * w, x * r
        return r * (gy - xh * jnp.mean(gy * xh, keepdims=True)), (g * xh).sum(0)

    return with_vjp(rms, rms_fwd, bwd)


@case("refuted", "the output that goes with the gradient is another one", x="N D", w="D")
def rms_norm_with_another_fwd():
    def bwd(res, g):
        x, w, r = res
        gy, xh = g * w, x * r
        return r * (gy - xh * jnp.mean(gy * xh, -1, keepdims=True)), (g * xh).sum(0)

    return with_vjp(lambda x, w: rms(x, w) + 1, rms_fwd, bwd)


def softmax_fwd(x):
    y = jax.nn.softmax(x, axis=-1)
    return y, y


@case("proved", x="N D")
def softmax():
    return with_vjp(
        lambda x: jax.nn.softmax(x, axis=-1), softmax_fwd, lambda y, g: (y * (g - (g * y).sum(-1, keepdims=True)),)
    )


@case("refuted", "Incompatible shapes", x="N D")
def softmax_without_keepdims():
    return with_vjp(lambda x: jax.nn.softmax(x, axis=-1), softmax_fwd, lambda y, g: (y * (g - (g * y).sum(-1)),))


@case("proved", q="T D", k="T D", v="T E")
def causal_attention():
    def probabilities(q, k):
        s = q @ k.T / jnp.sqrt(q.shape[-1])
        i = jnp.arange(q.shape[0])
        return jax.nn.softmax(jnp.where(i[:, None] >= i, s, -jnp.inf), axis=-1)

    def fwd(q, k, v):
        p = probabilities(q, k)
        return p @ v, (q, k, v, p)

    def bwd(res, g):
        q, k, v, p = res
        dp = g @ v.T
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / jnp.sqrt(q.shape[-1])
        return ds @ k, ds.T @ q, p.T @ g

    return with_vjp(lambda q, k, v: probabilities(q, k) @ v, fwd, bwd)


@case("proved", x="N 2*F")
def swiglu():
    def fun(x):
        a, b = jnp.split(x, 2, -1)
        return jax.nn.silu(a) * b

    def bwd(x, g):
        a, b = jnp.split(x, 2, -1)
        s = jax.nn.sigmoid(a)
        return (jnp.concatenate([g * b * s * (1 + a * (1 - s)), g * a * s], -1),)

    return with_vjp(fun, lambda x: (fun(x), x), bwd)


def cross_entropy(z, t):
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(z) * jax.nn.one_hot(t, z.shape[1]), -1))


@case("proved", z="N K", t="N < K")
def cross_entropy_of_labels():
    def bwd(res, g):
        z, t = res
        return g * (jax.nn.softmax(z) - jax.nn.one_hot(t, z.shape[1])) / z.shape[0], None

    return with_vjp(cross_entropy, lambda z, t: (cross_entropy(z, t), (z, t)), bwd)


@case("refuted", "∂/∂z_ij: true = returned · 1 / N", z="N K", t="N < K")
def cross_entropy_without_the_number():
    def bwd(res, g):
        z, t = res
        return g * (jax.nn.softmax(z) - jax.nn.one_hot(t, z.shape[1])), None

    return with_vjp(cross_entropy, lambda z, t: (cross_entropy(z, t), (z, t)), bwd)


@case("proved", x="N T")
def cumulative_sum():
    return with_vjp(
        lambda x: jnp.cumsum(x, 1),
        lambda x: (jnp.cumsum(x, 1), None),
        lambda _, g: (jnp.flip(jnp.cumsum(jnp.flip(g, 1), 1), 1),),
    )


@case("proved", x="N D", power=3)
def power_that_is_no_argument_of_the_gradient():
    f = partial(jax.custom_vjp, nondiff_argnums=(1,))(lambda x, power: x**power)
    f.defvjp(lambda x, power: (x**power, x), lambda power, x, g: (power * x ** (power - 1) * g,))
    return f


@case("proved", x="N D", y="N D")
def product_by_its_tangent():
    f = jax.custom_jvp(lambda x, y: jnp.sin(x) * y)
    f.defjvp(lambda p, t: (jnp.sin(p[0]) * p[1], jnp.cos(p[0]) * p[1] * t[0] + jnp.sin(p[0]) * t[1]))
    return f


@case("refuted", "true − returned = ", x="N D", y="N D")
def product_by_a_wrong_tangent():
    f = jax.custom_jvp(lambda x, y: jnp.sin(x) * y)
    f.defjvp(lambda p, t: (jnp.sin(p[0]) * p[1], jnp.sin(p[0]) * p[1] * t[0] + jnp.sin(p[0]) * t[1]))
    return f


@case("refused", "the primitive sort of JAX is not supported", x="N D")
def sorted_rows():
    return with_vjp(lambda x: jnp.sort(x), lambda x: (jnp.sort(x), None), lambda _, g: (g,))


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name: str):
    make, expected, missing, shapes = CASES[name]
    verdict = mg.prove(make(), shapes)
    assert verdict.verdict == expected, verdict
    assert missing in str(verdict)


def test_a_function_with_a_backward():
    def log_sum(x):
        return jax.nn.logsumexp(x, axis=1)

    def backward(x, y, g):
        return jnp.exp(x - y[:, None]) * g[:, None]

    assert mg.prove(log_sum, backward=backward, x="N K").verdict == "proved"
    verdict = mg.prove(log_sum, backward=lambda x, y, g: jnp.exp(x) * g[:, None], x="N K")
    assert verdict.verdict == "refuted"
    witness = verdict.witness
    with jax.enable_x64(True):
        x, g = jnp.asarray(witness.arguments["x"]), jnp.asarray(witness.gradients[0])
        true = jax.vjp(log_sum, x)[1](g)[0][witness.place]
    np.testing.assert_allclose(float(true), witness.true, rtol=1e-6)
