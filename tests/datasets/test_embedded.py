"""The embedded digits, beside scikit-learn's."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits as sklearn_digits

import matgrad as mg
from matgrad import datasets
from support import assert_close


def test_the_embedded_digits_are_those_of_uci():
    pixels, classes = mg.load_digits()
    expected = sklearn_digits()

    assert_close(pixels, expected.data.astype(np.float32), tolerance=0.0)
    np.testing.assert_array_equal(classes, expected.target)


def test_every_fifth_digit_is_held_out_and_the_order_is_kept():
    data, expected = datasets.digits(), sklearn_digits()
    rest = [i for i in range(1797) if i % 5 != 0]

    assert_close(data.Xtest, expected.data[::5].astype(np.float32), tolerance=0.0)
    assert_close(data.Xtrain, expected.data[rest].astype(np.float32), tolerance=0.0)
    np.testing.assert_array_equal(data.Ttest, expected.target[::5])
    np.testing.assert_array_equal(data.Ttrain, expected.target[rest])
    assert (data.name, data.classes, data.input_size, data.output_size) == ("digits", 10, 64, 10)
    assert data.normalization.kind == "none"


def test_unit_digits_are_sixteenths():
    data, expected = datasets.digits().normalize("unit"), sklearn_digits()
    assert_close(data.Xtest, (expected.data[::5] / 16).astype(np.float32), tolerance=0.0)
