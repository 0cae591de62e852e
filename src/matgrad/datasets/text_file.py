"""Texts by character: each example is a window of the text, and its targets are the characters that come next."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from matgrad.datasets.dataset import Dataset
from matgrad.foundation.files import naming
from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import check_size

CONTEXT = 64  # characters of a window
GOLDEN = 0.618  # multiples of it are spread evenly, modulo 1


@dataclass(frozen=True, eq=False)
class Text(Dataset):
    """Windows of L characters, as labels: row n of T is row n of X one character later, both N×L.

    The `class_names` are the characters of the vocabulary, in order. `M.fit(text)` trains on `text(epoch)`, whose
    windows begin at other places in every epoch, and measures `Xtest` and `Ttest`, from the end of the text.
    """

    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))  # of the characters of the training part

    def __call__(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows X of an epoch, side by side in the text, and their targets T."""
        return windows(self.labels, self.context, int(GOLDEN * epoch * self.context) % self.context)

    @property
    def context(self) -> int:
        """L, the number of characters of a window."""
        return self.input_size

    @property
    def output_size(self) -> int:
        """L·V, the logits of V characters after each of L."""
        return self.context * len(self.class_names or ())

    def layers(self, specification: str) -> str:
        """The layers with the size V of the vocabulary: of an Embedding that has none, and of a Linear at the end.

        >>> text.layers("Embedding(64);Positions;Transformer(4, heads=4);Linear")
        'Embedding(64, vocabulary=65);Positions;Transformer(4, heads=4);Each(Linear(65))'
        """
        V = len(self.class_names or ())
        found = re.sub(r"^\s*Embedding\(\s*(\d+)\s*\)", rf"Embedding(\1, vocabulary={V})", specification)
        found = re.sub(r"(^|;)\s*Linear\s*$", rf"\1Each(Linear({V}))", found)
        return re.sub(r"\bLinear\s*\)\s*$", f"Linear({V}))", found)


def windows(labels: np.ndarray, L: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """As many windows of L labels as there are from any start below L, and the labels that follow each label."""
    N = (len(labels) - L) // L
    X, T = (labels[first : first + N * L].reshape(N, L) for first in (start, start + 1))
    return X, T


def text(
    file: str | Path,
    *,
    context: int = CONTEXT,
    test: str | Path | float = 0.1,
    vocabulary: str | None = None,
) -> Text:
    """The text in a file (UTF-8), by character; `test` is another file, or the fraction at the end to hold out.

    The vocabulary has the characters of both parts in order, unless that of a model is given.
    """
    if (L := check_size("context", context)) < 2:
        raise ValueError(f"context: expected at least 2 characters, found {L}")
    whole = _read(file)
    split = len(whole) if not isinstance(test, float) else round((1 - test) * len(whole))
    held_out = whole[split:] if isinstance(test, float) else _read(test)
    known = "".join(sorted({*whole, *held_out})) if vocabulary is None else vocabulary
    parts = []
    for path, part in ((file, whole[:split]), (file if isinstance(test, float) else test, held_out)):
        with naming(path):
            parts.append(encoded(part, known))
            if len(part) < 2 * L:
                least = f"expected at least {2 * L}, two windows of {L} (fewer with a smaller context)"
                raise ValueError(f"found {len(part)} characters to {'test' if len(parts) == 2 else 'train'}, {least}")
    (X, T), (Xt, Tt) = (windows(part, L) for part in parts)
    return Text(Path(file).name, X, T, Xt, Tt, len(known), tuple(known), labels=parts[0])


load_text = text


def encoded(characters: str, vocabulary: str) -> np.ndarray:
    """The label of each character: its place in the vocabulary."""
    places = {character: i for i, character in enumerate(vocabulary)}
    if unknown := next((x for x in characters if x not in places), None):
        raise ValueError(f"found the character {unknown!r}, expected one of the {len(vocabulary)} of the vocabulary")
    return np.fromiter(map(places.__getitem__, characters), np.int32, len(characters))


def _read(file: str | Path) -> str:
    """The text in a file."""
    with naming(file):
        check_bytes(12 * os.path.getsize(file), "the text")
        try:
            return Path(file).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"expected a text in UTF-8, found byte {error.object[error.start]:#x}") from None
