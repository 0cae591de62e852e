"""No trick in JAX makes a proof of a gradient: questions about sizes, side effects, callbacks, other outputs."""

from __future__ import annotations

import itertools
import operator
import os
import random

import numpy as np
import pytest

import matgrad as mg

BACKENDS = ("jax",)
jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("backend")
BIG = 10**5  # above all sizes with which numbers are compared
COUNTS, NUMBERS, FLAGS, KEY = [0], itertools.count(), {"on": False}, jax.random.PRNGKey(0)


def caught(x):
    try:
        return int(x.shape[0]) > BIG
    except Exception:
        return False


def counted(x):
    COUNTS[0] += 1
    return COUNTS[0] > BIG


def called_back(x):
    seen = []
    jax.debug.callback(seen.append, x)
    return len(seen) > BIG


TRICKS = {  # how a gradient decides
    "a comparison": lambda x: x.shape[0] > BIG,
    "an order": lambda x: x.shape[0] > x.shape[1],
    "an equality": lambda x: x.shape[0] == BIG,
    "an inequality": lambda x: not operator.ne(x.shape[0], BIG),
    "a remainder": lambda x: x.shape[0] % BIG == 0,
    "a difference": lambda x: not (x.shape[0] - BIG),
    "a shape": lambda x: x.shape == (BIG, BIG),
    "a set": lambda x: x.shape[0] in {BIG},
    "a list": lambda x: x.shape[0] in [BIG],
    "a text": lambda x: len(str(x.shape[0])) > 5,
    "a format": lambda x: len(f"{x.shape}") > 15,
    "caught": caught,
    "a list of the module": counted,
    "an iterator": lambda x: next(NUMBERS) > BIG,
    "a dictionary": lambda x: FLAGS["on"],
    "the environment": lambda x: os.environ.get("TRAINING") == "1",
    "a random number": lambda x: random.random() < 1e-5,
    "a random number of NumPy": lambda x: np.random.rand() < 1e-5,
    "precision": lambda x: not jax.config.jax_enable_x64,
    "a dtype": lambda x: x.dtype == jnp.float32,
    "a device": lambda x: len(jax.devices()) > 1,
    "a callback": called_back,
}


def with_gradients(fwd, bwd, fun=lambda x: x * x):
    f = jax.custom_vjp(fun)
    f.defvjp(fwd, bwd)
    return f


@pytest.mark.parametrize("name", TRICKS)
def test_questions_make_no_proof_for_everything(name):
    is_wrong = TRICKS[name]
    verdict = mg.prove(with_gradients(lambda x: (x * x, x), lambda x, g: ((3 if is_wrong(x) else 2) * x * g,)), x="N D")
    assert verdict.verdict != "proved" or set(verdict.assumptions) - {f"BIG = {BIG}"}, verdict


@jax.custom_vjp
def sine(x):
    return jnp.sin(x)


sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.sin(x),))


@jax.custom_jvp
def scaled(x):
    return 2 * x


@scaled.defjvp
def _scaled(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.where(x > 1e4, x, 2 * x), 2 * dx


def saved(x):
    return x * x, x


WRONG = {
    "another output for large numbers": with_gradients(
        lambda x: (jnp.where(x > 1e4, x, x * x), x), lambda x, g: (2 * x * g,)
    ),
    "another output of a rule for tangents": scaled,
    "a gradient for large numbers": with_gradients(saved, lambda x, g: (jnp.where(x > 1e4, 3, 2) * x * g,)),
    "a gradient that stops": with_gradients(saved, lambda x, g: (jax.grad(lambda y: (x * y * g).sum())(x),)),
    "a wrong gradient inside": with_gradients(
        lambda x: (sine(x), x), lambda x, g: (jax.vjp(sine, x)[1](g)[0],), lambda x: sine(x)
    ),
    "a callback": with_gradients(
        saved,
        lambda x, g: (jax.pure_callback(lambda y: 2 * y, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * g,),
    ),
    "random numbers": with_gradients(saved, lambda x, g: (2 * x * g * (jax.random.uniform(KEY) < 2),)),
    "integers": with_gradients(saved, lambda x, g: (2 * x.astype(int) * g,)),
    "a loop": with_gradients(saved, lambda x, g: (jax.lax.fori_loop(0, 3, lambda i, s: s + x * g, 0 * x),)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_not_proved(name):
    assert mg.prove(WRONG[name], x="N D").verdict != "proved"


def test_questions_about_sizes_are_in_the_verdict():
    f = with_gradients(saved, lambda x, g: ((3 if x.shape[0] == 100 else 2) * x * g,))
    assert mg.prove(f, x="N D").check().assumptions == ["N = 100: no, as was answered to the code"]


def test_a_refusal_has_its_line():
    f = with_gradients(saved, lambda x, g: (jax.lax.scan(lambda c, y: (c, 2 * y[0] * y[1]), 0.0, (x, g))[1],))
    verdict = mg.prove(f, x="N D")
    assert verdict.lines[0].startswith("the primitive scan of JAX is not supported, in test_tricks_in_jax.py:")


def test_neighbours():
    def difference(x):
        return x[:, 1:] - x[:, :-1]

    right = with_gradients(
        lambda x: (difference(x), None),
        lambda _, g: (jnp.pad(g, ((0, 0), (1, 0))) - jnp.pad(g, ((0, 0), (0, 1))),),
        difference,
    )
    wrong = with_gradients(lambda x: (difference(x), None), lambda _, g: (-jnp.diff(g, axis=1),), difference)
    assert mg.prove(right, x="N T").check().assumptions == ["T > 1"]
    assert mg.prove(wrong, x="N T").verdict in ("refuted", "refused")

    def before(x):
        return jnp.concatenate([x[:, -1:], x[:, :-1]], 1)

    rolled = with_gradients(
        lambda x: (x * before(x), x),
        lambda x, g: (g * before(x) + jnp.concatenate([(g * x)[:, 1:], (g * x)[:, :1]], 1),),
        lambda x: x * before(x),
    )
    verdict = mg.prove(rolled, x="N T")
    assert verdict.verdict == "proved", verdict


def test_symbolic_zeros():
    def fwd(x, y):
        return x.value * y.value, (x.value, y.value)

    def of_needed(x, y):
        return fwd(x, y) if x.perturbed else None

    for forward, conditions in ((fwd, 0), (of_needed, 1)):  # of which one says that all gradients are needed
        right, wrong = jax.custom_vjp(lambda x, y: x * y), jax.custom_vjp(lambda x, y: x * y)
        right.defvjp(forward, lambda k, g: (g * k[1], g * k[0]), symbolic_zeros=True)
        wrong.defvjp(forward, lambda k, g: (g * k[0], g * k[1]), symbolic_zeros=True)
        verdict = mg.prove(right, x="N D", y="N D").check()
        assert len(verdict.assumptions) == conditions, verdict
        assert mg.prove(wrong, x="N D", y="N D").verdict == "refuted"


def test_parameters_in_a_dictionary_are_refused_in_one_line():
    f = jax.custom_vjp(lambda p, x: x @ p["w"])
    f.defvjp(lambda p, x: (x @ p["w"], (p, x)), lambda k, g: ({"w": k[1].T @ g}, g @ k[0]["w"].T))
    verdict = mg.prove(f, p="D K", x="N D")
    assert verdict.verdict == "refused"
    assert len(verdict.lines) == 1
