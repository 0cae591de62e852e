"""Limits: what a file may become, by its size, by the machine, or by what the user allows."""

from __future__ import annotations

import numpy as np
import pytest

from matgrad.datasets import DataLoader, npz
from matgrad.foundation import limits
from matgrad.foundation.limits import LEAST, RATIO, VARIABLE, check_bytes, file_limit, memory_limit
from matgrad.specifications.models import create_model

ROWS = 10_000_000  # as many zeros take 160 MB as float64, and some kilobytes in a file


@pytest.fixture
def bomb(tmp_path):
    """A small file that becomes 162 MB."""
    zeros = {"Xtrain": np.zeros((ROWS, 2)), "Ttrain": np.zeros(ROWS, np.int8)}
    np.savez_compressed(tmp_path / "bomb.npz", **zeros, Xtest=np.zeros((2, 2)), Ttest=np.arange(2))
    return tmp_path / "bomb.npz"


def test_a_small_file_does_not_become_large_unless_the_user_allows_it(bomb, monkeypatch):
    with pytest.raises(
        ValueError, match=f"bomb.npz: archive: asks for 162 MB, expected at most 128 MB; set .* {VARIABLE}"
    ):
        npz(bomb)
    monkeypatch.setenv(VARIABLE, "500M")
    assert npz(bomb).Xtrain.shape == (ROWS, 2)


def test_the_user_can_allow_less(monkeypatch):
    create_model("Linear", "100;100")
    monkeypatch.setenv(VARIABLE, "100K")
    with pytest.raises(ValueError, match="sizes 100;100: asks for 163200 bytes, expected at most 102400 bytes"):
        create_model("Linear", "100;100")


@pytest.mark.parametrize(
    ("value", "limit"), [("1000", 1000), ("2K", 2048), ("1.5m", 3 << 19), ("8G", 8 << 30), ("1 TB", 1 << 40), ("0", 0)]
)
def test_units(monkeypatch, tmp_path, value, limit):
    monkeypatch.setenv(VARIABLE, value)
    assert memory_limit() == file_limit(tmp_path / "absent") == limit


@pytest.mark.parametrize("value", ["much", "-1", "1e9", "8Q", "nan", "9" * 5000])
def test_a_wrong_limit_is_refused(monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=f"{VARIABLE}: expected a number of bytes such as 500M or 8G, found"):
        memory_limit()


def test_the_limit_grows_with_the_file_up_to_the_memory_of_the_machine(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(2 << 20))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert file_limit(tmp_path / "absent") == LEAST
    assert file_limit(path) == RATIO << 21
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # it takes no space on the disk
    assert file_limit(path) == memory_limit() < 1 << 41


def test_the_memory_of_a_container_counts(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(limits, "CGROUPS", (tmp_path / "memory.max", tmp_path / "absent"))
    assert memory_limit() == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit() > 1_000_000


def test_numbers_of_any_size_are_refused():
    with pytest.raises(ValueError, match=r"X: asks for 9+.* GB, expected at most 10 bytes"):
        check_bytes(10**400 - 1 << 30, "X", 10)


def test_one_hot_targets_of_many_classes_are_refused():
    with pytest.raises(ValueError, match="T: one-hot targets of 1000001 classes: asks for"):
        DataLoader(np.eye(2), np.array([0, 10**6]))
