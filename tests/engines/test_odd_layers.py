"""Compiled = eager, whatever users write: the generator of odd layers on NumPy, PyTorch and the C++ core."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from odd_layers import Kind, kinds, train

from support import spread

ENGINES = ("numpy", "torch", "native")
KINDS = list(kinds())


def test_there_are_many_kinds():
    assert len(KINDS) >= 200
    assert len({kind.name for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(("kind", "engine"), spread(KINDS, ENGINES, name=lambda kind: kind.name))
def test_compiled_training_computes_what_the_equations_do(kind: Kind, engine: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = train(kind, engine, compiled=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = train(kind, engine, compiled=True)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    for name, A in expected.items():
        np.testing.assert_allclose(found[name], A, rtol=1e-9, atol=1e-12, err_msg=name)
    messages = [str(w.message) for w in caught if "uncompiled" in str(w.message)]
    assert len(messages) <= 1  # one warning is enough
    if kind.twist.is_pure:
        assert not messages
