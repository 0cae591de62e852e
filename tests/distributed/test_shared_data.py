"""Data in memory: the first rank of a machine reads it, all map it, and nothing that is mapped is copied."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from threads import on_ranks

import matgrad as mg
from cli_support import blobs
from matgrad.backends import backend_of
from matgrad.cli import shared_data
from matgrad.datasets import DataLoader, Dataset
from matgrad.distributed import current

ARRAYS = ("Xtrain", "Ttrain", "Xtest", "Ttest")


def data_set(is_sparse: bool = False) -> Dataset:
    arrays = blobs()
    if is_sparse:
        arrays |= {key: csr_array(arrays[key] * (arrays[key] > 0)) for key in ("Xtrain", "Xtest")}
    data = Dataset.checked("blobs", **arrays, class_names=("a", "b", "c"), notes=("a note",))
    return data.normalize("standard" if not is_sparse else "unit")


def dense(A) -> np.ndarray:
    return A.toarray() if hasattr(A, "toarray") else A


def is_mapped(A: np.ndarray) -> bool:
    while isinstance(A, np.ndarray) and A.base is not None:
        A = A.base
    return isinstance(A, mmap.mmap)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_one_rank_reads_and_all_have_the_same_data(is_sparse, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected, readers = data_set(is_sparse).split(0.2), []

    def read():
        readers.append(current().rank)
        return expected

    for data, held in on_ranks(3, lambda rank: shared_data.read_once(read, dtype)):
        for found, known in zip(
            (*(getattr(data, name) for name in ARRAYS), *held),
            (*(getattr(expected[0], name) for name in ARRAYS), *expected[1]),
            strict=True,
        ):
            assert (dense(found) == dense(known)).all()
            assert is_mapped(found.data if hasattr(found, "toarray") else found)
        assert data.Xtrain.dtype == held[0].dtype == dtype
        assert (data.normalization.scale == expected[0].normalization.scale).all()
        plain = ("name", "classes", "class_names", "value_range", "notes", "first_index")
        assert [getattr(data, name) for name in plain] == [getattr(expected[0], name) for name in plain]
    assert readers == [0]
    assert not list(tmp_path.iterdir())  # no file is left


def test_ranks_on_different_machines_read_for_themselves(monkeypatch):
    monkeypatch.setattr(shared_data, "_machine", lambda: f"machine {current().rank // 2}")
    expected, readers = (data_set(), None), []

    def read():
        readers.append(current().rank)
        return replace(expected[0], name=f"read by {current().rank}"), None

    found = on_ranks(5, lambda rank: shared_data.read_once(read, "float32"))
    assert sorted(readers) == [0, 2, 4]
    assert [data.name for data, _ in found] == [f"read by {rank}" for rank in (0, 0, 2, 2, 4)]


def test_one_process_reads_as_ever():
    data = data_set()
    assert shared_data.read_once(lambda: (data, None), "float64")[0] is data


class Watched(mg.Callback):
    data: DataLoader

    def start(self, run):
        self.data = run.data


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_fit_does_not_copy_what_is_mapped(name, tmp_path: Path):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))
    X, watched = np.load(tmp_path / "X.npy", mmap_mode="c"), Watched()
    M = mg.MultilayerPerceptron([mg.LinearLayer(4, 2)]).to(name)
    M.fit(X, np.arange(50) % 2, epochs=1, callbacks=[watched])
    assert np.shares_memory(M.backend.to_numpy(watched.data.X), X)


def test_examples_move_to_the_backend_of_the_model(backend):
    X = np.random.default_rng(0).normal(size=(6, 3))
    loader = mg.DataLoader(X, np.arange(6) % 2).to(backend.name)
    assert backend_of(loader.X).name == backend.name
    np.testing.assert_array_equal(backend.backend.to_numpy(loader.X), X)
