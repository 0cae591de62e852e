"""The experiments: real and generated data, initial weights, ratios and differences, measures."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.bench.experiments.comparison import difference, ratios
from matgrad.bench.experiments.paper import measures, paper_row
from matgrad.bench.measuring.problems import EXPERIMENTS, Data, generated, initial_parameters, load
from matgrad.bench.tools.training_tool import Setting
from support import DATA


def test_generated_data_has_the_shape_and_the_range_of_the_real_data():
    data = load(EXPERIMENTS["mnist"], None, steps=3, seed=4)
    assert data.is_generated
    assert data.Xtrain.shape == (300, 784)
    assert data.Xtest.shape == (10000, 784)
    assert data.Xtrain.dtype == np.float32
    assert 0 <= data.Xtrain.min() < 0.01
    assert 0.9 < data.Xtrain.max() <= 1
    assert set(data.Ttrain) == set(range(10))
    again = load(EXPERIMENTS["mnist"], None, steps=3, seed=4)
    assert np.array_equal(again.Xtrain, data.Xtrain)


def test_a_folder_without_the_data_gives_generated_data(tmp_path):
    assert load(EXPERIMENTS["cifar10"], tmp_path, steps=2).Xtrain.shape == (200, 3072)


@pytest.mark.skipif(not (DATA / "mnist").is_dir(), reason="no MNIST: set MATGRAD_DATA to a folder with mnist/*.gz")
def test_real_data_is_divided_by_255_and_in_the_order_of_the_file():
    data = load(EXPERIMENTS["mnist"], DATA, steps=2)
    assert not data.is_generated
    assert data.Ttrain[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.Xtrain.shape == (200, 784)
    assert data.Xtrain.max() == 1
    assert np.array_equal(np.round(255 * data.Xtrain), (255 * data.Xtrain).round(4))


def test_damaged_data_is_an_error(tmp_path):
    (tmp_path / "mnist").mkdir()
    with pytest.raises(ValueError, match="no file train-images-idx3-ubyte"):
        load(EXPERIMENTS["mnist"], tmp_path)


def test_initial_weights_are_normalized_xavier_and_the_same_for_a_seed():
    setting = Setting((30, 20, 10))
    P, Q = initial_parameters(setting, 3), initial_parameters(setting, 3)
    for (W, b), (U, c), (D, K) in zip(P, Q, setting.layers, strict=True):
        assert W.shape == (K, D)
        assert W.dtype == np.float32
        assert np.array_equal(W, U)
        assert 0.9 < np.abs(W).max() * np.sqrt((D + K) / 6) <= 1
        assert not b.any()
        assert not c.any()


def test_ratios_are_taken_round_by_round_and_to_the_faster_baseline():
    seconds = {"pytorch": [2.0, 4.0, 2.0], "tensorflow": [4.0, 5.0, 4.0], "keras": [3.0, 9.0, 9.0],
               "matgrad-tensorflow": [2.0, 10.0, 6.0]}  # fmt: skip
    found = ratios("matgrad-tensorflow", seconds)
    assert found["reference"] == {"to": "pytorch", "values": [1.0, 2.5, 3.0], "median": 2.5, "best": 1.0}
    assert found["own"] == {"to": "tensorflow", "values": [0.5, 2.0, 1.5], "median": 1.5, "best": 0.5}
    assert ratios("pytorch", seconds) == {"reference": None, "own": None}
    assert ratios("matgrad-jax", {"matgrad-jax": [1.0]}) == {"reference": None, "own": None}


def test_the_difference_is_relative_to_the_largest_element_of_a_parameter():
    a = [(np.array([[1.0, 2.0]]), np.array([[0.1]]))]
    b = [(np.array([[1.0, 4.0]]), np.array([[0.2]]))]
    found = {"pytorch": a, "matgrad-numpy": b}
    assert difference("matgrad-numpy", found) == {"to": "pytorch", "relative": pytest.approx(1.0)}
    assert difference("pytorch", found) is None
    assert difference("matgrad-jax", {"jax": a, "matgrad-jax": a}) == {"to": "jax", "relative": 0.0}


def test_measures_of_known_parameters():
    setting = Setting((2, 3), dtype="float64")
    W, b = np.zeros((3, 2)), np.array([[0.0, 1.0, 0.0]])
    X = np.zeros((4, 2), np.float32)
    data = Data(X, np.array([1, 1, 1, 0]), X, np.array([1, 1, 0, 0]), "here")
    found = measures(setting, [(W, b)], data)
    log_sum = np.log(np.e + 2)
    assert found == pytest.approx({"loss": log_sum - 0.75, "train_accuracy": 0.75, "test_accuracy": 0.5})


def test_the_rows_of_the_paper():
    row = paper_row(EXPERIMENTS["cifar10"], "matgrad-torch")
    assert row == {"loss": 1.643, "train_accuracy": 0.415, "test_accuracy": 0.417, "seconds": 11.277, "ratio": 1.43}
    assert paper_row(EXPERIMENTS["mnist"], "jax") is None
    assert generated(4, 2, 5, 3).Xtest.shape == (3, 4)
