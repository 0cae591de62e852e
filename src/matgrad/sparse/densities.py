"""How sparse the layers of a model are: densities from strings or by the Erdős–Rényi rule, and random supports.

A density is the fraction of a layer's weights that is stored, in (0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matgrad.foundation.numbers import Generator, check_number, check_size, generator
from matgrad.sparse.support import LARGEST, Support
from matgrad.specifications.parsing import Items, create, parse_numbers


def erdos_renyi_densities(sizes: Sequence[int], overall: float, power: float = 1.0) -> list[float]:
    """Densities d = min(1, ε·((D+K)/(D·K))^power) of D→K layers, with ε such that Σ d·D·K = overall·Σ D·K.

    `sizes` are the number of features, then the sizes of the layers. Small layers keep more of their
    weights than large ones, as in SET and RigL, the more so the larger the power; with power 0 all densities
    are equal. A layer whose density would exceed 1 is dense, and the other layers share the rest.
    """
    for position, size in enumerate(sizes, start=1):
        if check_size(f"layer size {position}", size) > LARGEST:
            raise ValueError(f"layer size {position}: expected at most {LARGEST}, found a larger one")
    return divided_densities(sizes[:-1], sizes[1:], overall, power)


def divided_densities(inputs: Sequence[int], outputs: Sequence[int], overall: float, power: float = 1.0) -> list[float]:
    """The same for layers with these numbers of inputs and outputs."""
    check_density("overall density", overall)
    check_number("power", power)
    D, K = np.array(inputs, dtype=float), np.array(outputs, dtype=float)
    weights, ratios = D * K, (D + K) / (D * K)
    densities = np.ones(len(weights))
    free = np.full(len(weights), overall < 1)  # the layers that are not dense
    while free.any():
        shares = (ratios[free] / ratios[free].max()) ** power
        rest = overall * weights.sum() - weights[~free].sum()
        densities[free] = shares * (rest / (weights[free] @ shares))
        free = densities < 1
        if (densities <= 1).all():
            break
        densities[~free] = 1
    return densities.tolist()


@dataclass(frozen=True)
class ErdosRenyi:
    """A density of the whole model, divided among the layers: ``ER(0.05)`` or ``ER(0.05, power=0.5)``."""

    density: float
    power: float = 1.0


def erdos_renyi_rule(items: Items | None) -> ErdosRenyi | None:
    """The rule that a string such as ``ER(0.05)`` names; None for a list of densities."""
    is_rule = isinstance(items, str) and items.strip().startswith("ER")
    return create(str(items), {"ER": ErdosRenyi}, "densities") if is_rule else None


def layer_densities(items: Items, sizes: Sequence[int]) -> list[float]:
    """The densities of layers: a list such as ``0.01;0.05;1``, or ``ER(0.05)`` for layers with these sizes."""
    rule = erdos_renyi_rule(items)
    return parse_densities(items) if rule is None else erdos_renyi_densities(sizes, rule.density, rule.power)


def parse_densities(items: Items) -> list[float]:
    """The densities of a list such as ``0.01;0.05;1``."""
    densities = parse_numbers(items, "density", float)
    for position, density in enumerate(densities, start=1):
        check_density(f"density {position}", density)
    return densities


def random_support(
    K: int, D: int, density: float, rng: Generator | None = None, within: Support | None = None
) -> Support | None:
    """A random support with round(density·K·D) elements; None, for a dense matrix, if these are all.

    Every support with that number of elements is equally likely. With another support, such as that of the groups of a
    convolution, it is in that, and None if it would be all of it.
    """
    check_density("density", density)
    nnz = round(density * K * D)
    if nnz and within is not None:
        rng = rng if rng is not None else generator()
        few = nnz < within.nnz
        return Support.from_flat((K, D), np.sort(rng.choice(within.flat(), nnz, replace=False))) if few else None
    if not nnz:
        raise ValueError(f"density: {density:.6g} of the {K} × {D} weights is less than one weight")
    return None if nnz == K * D else Support.random(K, D, nnz, rng if rng is not None else generator())


def format_density(support: Support) -> str:
    """The density as the shortest number for which `random_support` gives as many elements."""
    K, D = support.shape
    candidates = (f"{support.density:.{digits}g}" for digits in range(1, 18))
    return next(number for number in candidates if round(float(number) * K * D) == support.nnz)


def check_density(name: str, density: float) -> None:
    """Raise if a density is not in (0, 1]."""
    if not 0 < density <= 1:
        raise ValueError(f"{name}: expected a number in (0, 1], found {density}")
