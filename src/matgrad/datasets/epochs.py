"""A folder of preprocessed data, for instance augmented images: one npz file per epoch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from matgrad.datasets.dataset import DataError, Dataset
from matgrad.datasets.normalization import Normalization
from matgrad.datasets.npz_file import npz
from matgrad.datasets.reading import existing_folder


class Preprocessed:
    """The data sets of a folder with epoch0.npz, epoch1.npz, …, which are repeated as needed.

    A file is read when its epoch begins. Every data set must have the sizes of the first.
    """

    def __init__(self, folder: str | os.PathLike[str], normalization: Normalization | None = None) -> None:
        self.folder = existing_folder(folder)
        found = {path.name for path in self.folder.iterdir() if re.fullmatch(r"epoch\d+\.npz", path.name)}
        expected = [f"epoch{i}.npz" for i in range(len(found))]
        missing = [name for name in expected if name not in found]
        if not found or missing:
            others = ", ".join(sorted(found - set(expected))) or "no file epoch0.npz"
            raise DataError(
                f"{self.folder}: found {others}, expected {', '.join(missing) or 'epoch0.npz, epoch1.npz …'}"
            )
        self._files = [self.folder / name for name in expected]
        self._normalization = normalization
        self.first = self._normalized(npz(self._files[0]))
        self._last = (0, self.first)

    def __len__(self) -> int:
        """The number of files."""
        return len(self._files)

    def __iter__(self) -> Iterator[Dataset]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Dataset:
        """The data set of epoch i, from 0: the content of file i mod the number of files."""
        number = i % len(self)
        if number == 0:
            return self.first
        if self._last[0] != number:
            self._last = (number, self._checked(number))
        return self._last[1]

    def normalize(self, how: str | Normalization) -> Preprocessed:
        """The same folder, with the normalization of the first epoch's training data applied to every epoch."""
        return Preprocessed(self.folder, self.first.normalize(how).normalization)

    def _normalized(self, dataset: Dataset) -> Dataset:
        """The data set, normalized if that was asked for."""
        return dataset if self._normalization is None else dataset.normalize(self._normalization)

    def _checked(self, number: int) -> Dataset:
        """The data set in a file, after a check that it has the sizes of the first, and as many classes."""
        first, dataset = self.first, npz(self._files[number])
        sizes = [f"{d.input_size} inputs and {_outputs(d)}" for d in (first, dataset)]
        if first.classes is None or dataset.classes is None:
            fits = first.classes == dataset.classes and dataset.output_size == first.output_size
        else:
            fits = dataset.classes <= first.classes
        if dataset.input_size != first.input_size or not fits:
            raise DataError(f"{self._files[number]}: found {sizes[1]}, expected {sizes[0]} as in {self._files[0].name}")
        return replace(self._normalized(dataset), classes=first.classes)


def preprocessed(folder: str | os.PathLike[str]) -> Preprocessed:
    """The data sets [0], [1], … of a folder with epoch0.npz, epoch1.npz, …, which are repeated as needed."""
    return Preprocessed(folder)


def _outputs(dataset: Dataset) -> str:
    """The number of classes or of columns of numbers."""
    return f"{dataset.output_size} {'columns of numbers' if dataset.classes is None else 'classes'}"
