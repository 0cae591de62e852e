"""Rewiring: the step from one support to another, in which some elements are dropped and others are new."""

from __future__ import annotations

import numpy as np

from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.sparse.support import Support


class Rewiring:
    """A new support: the elements of `old` that are kept, a vector of booleans, and the positions that are grown.

    `grown` has the numbers i·D + j of the new positions (i, j) in increasing order; none of them may be kept as well.
    `new_elements` are the places of the grown elements in the new `support`.
    """

    def __init__(self, old: Support, kept: np.ndarray, grown: np.ndarray) -> None:
        self._kept = kept
        flat = np.concatenate([old.kept_flat()[kept], grown])
        self._order = np.argsort(flat, kind="stable")  # which merges two increasing sequences
        flat = flat[self._order]
        self.support = Support.from_flat(old.shape, flat)
        self.support.cached("flat", lambda: flat)
        self.new_elements = np.flatnonzero(self._order >= len(flat) - len(grown))

    def moved(self, values: Array, new: np.ndarray | float = 0.0) -> Array:
        """The 1×nnz values of the old support on the new one, with the values `new` where elements are new."""
        backend = backend_of(values)
        A = backend.to_numpy(values)
        fresh = np.broadcast_to(np.asarray(new, dtype=A.dtype), len(self.new_elements))
        return backend.from_numpy(np.concatenate([A[0, self._kept], fresh])[self._order][None], backend.device(values))
