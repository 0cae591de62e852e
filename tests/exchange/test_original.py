"""The original library's npz files of weights and data, both ways; its own readers are written out here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exchange_support import D, K, examples, trained

import matgrad as mg
from cli_support import blobs, forward, succeed
from matgrad import datasets
from matgrad.exchange.files import save_original


def as_the_original_reads(path) -> dict[str, torch.Tensor]:
    """Integers as LongTensors, everything else as floats; what is no number fails."""
    return {
        name: torch.LongTensor(A) if np.issubdtype(A.dtype, np.integer) else torch.tensor(A)
        for name, A in dict(np.load(path, allow_pickle=False)).items()
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_out_and_in(tmp_path, dtype: str):
    M = trained("ReLU;ReLU;Linear", f"{D};6;4;{K}", dtype, densities="0.5;1;1")
    save_original(M, tmp_path / "weights.npz")
    weights = as_the_original_reads(tmp_path / "weights.npz")

    assert list(weights) == ["W1", "b1", "W2", "b2", "W3", "b3"]
    assert {tuple(weights[name].shape) for name in ("W1", "b1")} == {(6, D), (1, 6)}
    assert all(str(A.dtype) == f"torch.{dtype}" for A in weights.values())
    X, _ = examples(dtype)
    found = forward({name: A.numpy() for name, A in weights.items()}, X)
    np.testing.assert_allclose(found, M.predict(X), rtol=1e-4, atol=1e-5)
    again = mg.create_model("ReLU;ReLU;Linear", f"{D};6;4;{K}").to(dtype=dtype)
    mg.load_weights(again, tmp_path / "weights.npz")
    np.testing.assert_array_equal(again.layers[0].W, M.layers[0].W.to_dense())
    np.testing.assert_allclose(again.predict(X), M.predict(X), rtol=1e-4, atol=1e-5)


def test_parameters_that_would_be_lost_are_refused(tmp_path):
    for layers, message in (
        (
            "ReLU;BatchNormalization;Linear",
            r"^layer 2, BatchNormalization.*: the original library saves W and b",
        ),
        ("SReLU;Linear", r"^layer 1, SReLU\(shared=False\): other tools have no such layer"),
    ):
        with pytest.raises(ValueError, match=message):
            save_original(mg.create_model(layers, f"{D};4;{K}"), tmp_path / "w.npz")
    assert not list(tmp_path.iterdir())


def test_data_out_and_in(tmp_path):
    data = datasets.Dataset.checked("blobs", *blobs().values())
    datasets.save_npz(data, tmp_path / "data.npz")
    found = as_the_original_reads(tmp_path / "data.npz")

    assert {"Xtrain", "Ttrain", "Xtest", "Ttest"} <= found.keys()
    assert (found["Xtrain"].dtype, found["Ttrain"].dtype) == (torch.float32, torch.int64)
    np.testing.assert_array_equal(found["Xtrain"].numpy(), data.Xtrain)
    np.testing.assert_array_equal(datasets.npz(tmp_path / "data.npz").Ttest, data.Ttest)


def test_a_folder_of_preprocessed_epochs_out_and_in(tmp_path):
    sets = [datasets.Dataset.checked("blobs", *blobs(seed=seed).values()) for seed in range(2)]
    for i, data in enumerate(sets):
        datasets.save_npz(data, tmp_path / f"epoch{i}.npz")
        assert as_the_original_reads(tmp_path / f"epoch{i}.npz")["Xtrain"].shape == (60, 4)
    for i, data in enumerate(datasets.preprocessed(tmp_path)):
        np.testing.assert_array_equal(data.Xtrain, sets[i].Xtrain)
    options = ("--layers", "ReLU;Linear", "--layer-sizes", "4;8;3", "--epochs", 2, "--quiet")
    assert "accuracy" in succeed("train", "--preprocessed", tmp_path, *options)
