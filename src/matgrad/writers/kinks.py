"""Kinks and ties, of which a proof says nothing: what code returns there, beside the one-sided derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from matgrad.index_notation.conditions import Step
from matgrad.index_notation.functions import Maximum
from matgrad.index_notation.values import Array, evaluate
from matgrad.writers.samples import Samples
from matgrad.writers.texts import Kink

STEP, CLOSE = 1e-6, 1e-4  # of differences, and up to which they are equal
VALUES = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)  # which sums and products are exact of
Arguments = dict[str, Any]
Place = tuple[int, ...]


class Point(NamedTuple):
    """Arguments for which a kink is reached, by an entry of one of them."""

    arguments: Arguments
    name: str
    place: Place
    slope: float  # of what is 0 there


def conventions(samples: Samples, kinks: Mapping[str, Kink]) -> list[str]:
    """What the returned gradient is at each kink."""
    found = []
    with np.errstate(all="ignore"):
        for text, kink in kinks.items():
            said = next((said for seed in range(3) for said in at_kink(samples, kink, seed)), None)
            found.append(f"where {text}: {said or 'not reached by small numbers'}")
    return found


def at_kink(samples: Samples, kink: Kink, seed: int) -> Iterator[str]:
    """What the returned gradient is at points where a kink is reached, if it is one of the output."""
    rng, (sizes, arguments) = np.random.default_rng(seed), samples.arguments(seed)
    for n, s in samples.proof.specifications.items():
        if s.kind in ("", ">0") and not s.sums and not s.facts:
            shape, size = np.shape(arguments[n]), np.size(arguments[n])
            different = rng.permutation(2 * size)[:size].reshape(shape) / 8 + 0.125
            x = different if isinstance(kink, Maximum) else rng.choice(VALUES, shape)
            arguments[n] = np.abs(x) if s.kind == ">0" else x
    run = samples.proof.code.run(arguments, numeric=True)
    gs = [np.abs(g) + 1 for g in samples.given(run, seed)]

    def zero(own: Arguments) -> float:
        return distance(kink, samples.values(sizes, own, gs), sizes)

    for point in points(zero, arguments, list(samples.proof.compared)):
        own = point.arguments
        returned = samples.proof.code.run(own, numeric=True).gradients([g.copy() for g in gs])
        real = np.asarray(returned[point.name], float).reshape(np.shape(own[point.name]))
        left, right = slopes(samples, own, point.name, gs)
        differ = np.abs(right - left) > CLOSE * (1 + np.abs(left) + np.abs(right))
        shares = ((real - left)[differ] / (right - left)[differ]).tolist()
        if not differ[point.place]:
            is_same = abs(real[point.place] - left[point.place]) < CLOSE * (1 + abs(left[point.place]))
            said = f"is {'' if is_same else 'not '}the derivative from both sides"
        elif isinstance(kink, Maximum):
            said = of_ties(shares)
        else:
            said = of_step(shares[0], point.slope > 0)
        yield f"∂/∂{point.name} {said}"


def distance(kink: Kink, values: Mapping[str, Array], sizes: Mapping[str, int]) -> float:
    """What is 0 at a kink: the argument of a condition, or the difference of the two greatest, in the first place."""
    axes = sorted(kink.free)
    if isinstance(kink, Step):
        return float(evaluate(kink.argument, axes, values, sizes).flat[0])
    each = evaluate(kink.argument, [*axes, kink.index], values, sizes)
    row = np.sort(each.reshape(-1, each.shape[-1])[0])
    return float(row[-2] - row[-1]) if len(row) > 1 else float("nan")


def points(zero: Callable[[Arguments], float], arguments: Arguments, names: list[str]) -> Iterator[Point]:
    """Arguments at which zero(arguments) is 0, of which one entry is changed."""
    start = zero(arguments)
    for n in names:
        for place in np.ndindex(np.shape(arguments[n])):

            def moved(by: float, n: str = n, place: Place = place) -> Arguments:
                x = np.array(arguments[n])
                x[place] += by
                return {**arguments, n: x}

            slope = (zero(moved(0.125)) - start) / 0.125
            if slope and zero(moved(-start / slope)) == 0:
                yield Point(moved(-start / slope), n, place, slope)


def slopes(samples: Samples, arguments: Arguments, n: str, gs: list[Array]) -> tuple[Array, Array]:
    """The derivatives from below and above with respect to each entry of an argument."""
    here, x = samples.output(arguments, gs), np.array(arguments[n])

    def slope(place: Place, h: float) -> float:
        moved = x.copy()
        moved[place] += h
        return (samples.output({**arguments, n: moved}, gs) - here) / h

    left, right = (np.array([slope(p, h) for p in np.ndindex(x.shape)]).reshape(x.shape) for h in (-STEP, STEP))
    return left, right


def is_close(a: float, b: float) -> bool:
    """Whether two shares are equal up to the error of differences."""
    return abs(a - b) < 10 * CLOSE


def of_step(share: float, is_rising: bool) -> str:
    """The convention at a kink, for e = 0."""
    share = share if is_rising else 1 - share
    for value, text in {0: "below", 1: "above"}.items():
        if is_close(share, value):
            return f"is the derivative from {text} 0"
    if is_close(share, 0.5):
        return "is the mean of the derivatives from below and above 0"
    if 0 < share < 1:
        return f"is {share:.3g} of the way from the derivative below 0 to that above"
    return "is neither the derivative from below 0 nor from above, nor between them"


def of_ties(shares: list[float]) -> str:
    """The convention for ties: of the greatest, what each gets of the gradient."""
    if all(is_close(x, 1) for x in shares):
        return "goes to all of them, each the whole"
    if all(is_close(x, 0) for x in shares):
        return "goes to none of them"
    if all(is_close(x, 1 / len(shares)) for x in shares):
        return "is shared by them equally"
    if sorted(round(x, 3) for x in shares) == [0] * (len(shares) - 1) + [1]:
        return "goes to one of them"
    return f"goes to them by parts of {', '.join(f'{x:.3g}' for x in shares)}"
