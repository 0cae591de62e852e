"""Weight initializers: their distributions, at fixed seeds, and the weights that layers get from them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

import matgrad as mg
from matgrad.weight_initializers import INITIALIZERS, initial_weights
from support import assert_close, to_numpy

DTYPES = ("float32", "float64")
K, D = 70, 50  # output and input size: different, so that they cannot be swapped unnoticed


def uniform(a, b):
    return scipy.stats.uniform(a, b - a)


def normal(mean, deviation):
    return scipy.stats.norm(mean, deviation)


GLOROT, HE = np.sqrt(6 / (D + K)), np.sqrt(6 / D)

DISTRIBUTIONS = {
    "Xavier": uniform(-1 / np.sqrt(D), 1 / np.sqrt(D)),
    "XavierNormalized": uniform(-GLOROT, GLOROT),
    "XavierUniform": uniform(-GLOROT, GLOROT),
    "XavierNormal": normal(0, np.sqrt(2 / (D + K))),
    "He": normal(0, np.sqrt(2 / D)),
    "HeNormal": normal(0, np.sqrt(2 / D)),
    "HeUniform": uniform(-HE, HE),
    "Uniform": uniform(-0.1, 0.1),
    "Uniform(-0.5, 2)": uniform(-0.5, 2),
    "Uniform(a=1, b=1.5)": uniform(1, 1.5),
    "Uniform(b=0.7)": uniform(-0.1, 0.7),
    "Normal": normal(0, 0.1),
    "Normal(3, 0.25)": normal(3, 0.25),
    "Normal(b=2, a=-1)": normal(-1, 2),
}
BY_SIZE = ("Xavier", "XavierNormalized", "XavierUniform", "XavierNormal", "He", "HeNormal", "HeUniform")
DISTRIBUTIONS |= {f"Dense{name}": DISTRIBUTIONS[name] for name in BY_SIZE}  # a dense matrix has all connections

# what torch calls the same distribution; torch.nn.Linear starts with the paper's Xavier
TORCH = {
    "Xavier": lambda W: W.copy_(torch.nn.Linear(D, K).weight),
    "XavierUniform": torch.nn.init.xavier_uniform_,
    "XavierNormal": torch.nn.init.xavier_normal_,
    "HeUniform": torch.nn.init.kaiming_uniform_,
    "HeNormal": torch.nn.init.kaiming_normal_,
}


def drawn(specification, seed=1, sizes=(K, D)):
    return initial_weights(specification, *sizes, np.random.default_rng(seed))


# -- distributions -----------------------------------------------------------------------------


def test_every_initializer_is_tested():
    assert INITIALIZERS.keys() <= DISTRIBUTIONS.keys() | {"Zero"}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("specification", DISTRIBUTIONS)
def test_distribution(specification, seed):
    W, distribution = drawn(specification, seed), DISTRIBUTIONS[specification]
    assert W.shape == (K, D)
    assert W.dtype == np.float64
    lowest, highest = distribution.support()
    assert lowest <= W.min() < W.max() <= highest
    pvalue = scipy.stats.kstest(W.ravel(), distribution.cdf).pvalue
    assert pvalue > 0.01, f"{specification}, seed {seed}: p = {pvalue}"


@pytest.mark.parametrize("specification", TORCH)
def test_distribution_is_that_of_torch(specification):
    torch.manual_seed(1)
    with torch.no_grad():
        W = TORCH[specification](torch.empty(K, D)).numpy()
    pvalue = scipy.stats.ks_2samp(drawn(specification).ravel(), W.ravel()).pvalue
    assert pvalue > 0.01, f"{specification}, seed 1: p = {pvalue}"


@pytest.mark.parametrize("specification", DISTRIBUTIONS)
def test_elements_are_independent(specification):
    """Neighbours in a row and in a column are not correlated."""
    W = drawn(specification)
    for A, B in ((W[1:], W[:-1]), (W[:, 1:], W[:, :-1])):
        assert abs(np.corrcoef(A.ravel(), B.ravel())[0, 1]) < 5 / np.sqrt(A.size)


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("Xavierr", r"unknown weight initializer 'Xavierr'; did you mean 'Xavier'\?"),
        ("Uniform(c=1)", r"'c'; usage: Uniform\(a=-0.1, b=0.1\)"),
        ("Uniform(2, 1)", r"Uniform\(2, 1\): expected a <= b"),
        ("Uniform(nan, 1)", r"Uniform\(nan, 1\)': expected a finite float32 number for 'a', found nan"),
        ("Normal(0, -1)", r"Normal\(0, -1\): expected a standard deviation b >= 0"),
    ],
)
def test_bad_specifications_are_refused(specification, message):
    with pytest.raises(ValueError, match=message):
        drawn(specification)


# -- layers ------------------------------------------------------------------------------------

LAYERS = {
    "Linear": mg.LinearLayer,
    "Activation": lambda D, K: mg.ActivationLayer(D, K, mg.ReLUActivation()),
    "Softmax": mg.SoftmaxLayer,
    "SReLU": mg.SReLULayer,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_set_weights_keeps_backend_and_dtype(backend, name, dtype):
    """W is what the generator gives, rounded to the dtype, and b is 0, on every backend."""
    layer = LAYERS[name](3, 4)
    layer.to(backend.backend, dtype)
    layer.load_state({"b": backend.matrix(np.ones((1, 4)), dtype)})
    device = backend.backend.device(layer.W)

    layer.set_weights("He", np.random.default_rng(5))

    where = f"{name} on {backend}, {dtype}, seed 5"
    kind = type(backend.matrix(np.ones((1, 4))))
    assert type(layer.W) is kind, where
    assert type(layer.b) is kind, where
    assert backend.backend.device(layer.W) == device, where
    expected = drawn("He", 5, (4, 3)).astype(dtype)
    np.testing.assert_array_equal(to_numpy(layer.W), expected, err_msg=where)
    assert_close(layer.W, expected, context=where)
    assert_close(layer.b, np.zeros((1, 4), dtype=dtype), context=where)


@pytest.mark.parametrize("name", LAYERS)
def test_manual_seed_makes_construction_reproducible(name):
    """Weights and the seeds of dropout are those of the last time; a second layer has others."""
    found = []
    for seed in (7, 7, 8):
        mg.manual_seed(seed)
        found.append([LAYERS[name](3, 4) for _ in range(2)])
    first, again, other = found
    for A, B in zip(first, again, strict=True):
        np.testing.assert_array_equal(A.W, B.W)
        assert A.seed == B.seed
    for A, B in ((first[0], first[1]), (first[0], other[0])):
        assert not np.array_equal(A.W, B.W)
        assert A.seed != B.seed


def test_models_set_the_weights_of_linear_layers_only():
    model = mg.MultilayerPerceptron([mg.LinearLayer(3, 4), mg.BatchNormalizationLayer(4), mg.SReLULayer(4, 2)])
    model.set_weights("Zero")
    assert not np.any(model.layers[0].W)
    assert not np.any(model.layers[2].W)
    np.testing.assert_array_equal(model.layers[1].gamma, np.ones((1, 4)))
    np.testing.assert_array_equal(model.layers[2].tr, np.ones((1, 2)))
