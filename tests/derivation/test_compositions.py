"""Feedforwards that `mg.derive` has not seen: random compositions of the table, against torch's autograd."""

from __future__ import annotations

import pytest
import torch
from compositions import SHAPES, Composer, gradients_by_autograd

import matgrad as mg

SIZES = ({"N": 3, "D": 4, "K": 5, "1": 1}, {"N": 1, "D": 3, "K": 2, "1": 1}, {"N": 6, "D": 1, "K": 4, "1": 1})


def error_of(found: mg.Derivation, seed: int, sizes: dict[str, int]) -> float:
    """The greatest difference between a derived gradient and that of autograd, in float64."""
    rng = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=rng)

    inputs = {name: random(*(sizes[n] for n in shape)) for name, shape in SHAPES.items()}
    layer = object.__new__(found.layer)
    vars(layer).update({name: x for name, x in inputs.items() if name != "X"})
    Y = layer.feedforward(inputs["X"])
    DY = random(*Y.shape)
    layer.backpropagate(Y, DY)
    expected = gradients_by_autograd(object.__new__(found.layer), inputs, DY)
    errors = [(getattr(layer, f"D{n}") - expected[n]).abs().max() / (1 + expected[n].abs().max()) for n in inputs]
    return float(max(errors))


def check(seeds: range) -> None:
    """All gradients are right, and at least 10 of 12 feedforwards have all of theirs proved."""
    proved = 0
    for seed in seeds:
        text = Composer(seed).feedforward()
        found = mg.derive(text)
        proved += found.is_proved
        for sizes in SIZES:
            error = error_of(found, seed, sizes)
            assert error < 1e-10, f"seed {seed}, sizes {sizes}, error {error}: {text}\n{found}"
    assert 12 * proved >= 10 * len(seeds), f"{proved} of {len(seeds)} are proved, from seed {seeds[0]}"


def test_random_compositions():
    check(range(2000, 2006))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1240, 24))
def test_more_random_compositions(first):
    check(range(first, first + 24))
