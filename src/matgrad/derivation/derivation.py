"""From a feedforward to a layer with its gradients: derived, written as code, and proved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from matgrad.derivation.backpropagation import backpropagation
from matgrad.derivation.proving import MOST_TERMS, executed, facts, prove
from matgrad.derivation.sources import LayerSource, Source, TextSource
from matgrad.derivation.writing import LayerCode, Line
from matgrad.foundation.imports import deferred
from matgrad.foundation.notation import aligned
from matgrad.index_notation.expressions import TooLongError, bounded
from matgrad.inspection.latex import latex_lines
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import MakeLayer
from matgrad.layers.layer import Layer


@dataclass(frozen=True)
class Derivation:
    """A derived layer: its equations, its code, and what is proved about it."""

    code: str
    layer: type[Layer]
    feedforward: list[Line]
    backpropagation: list[Line]
    verdicts: list[Check]

    @property
    def is_proved(self) -> bool:
        """Whether the output and all gradients are proved for all sizes."""
        return all(verdict.ok for verdict in self.verdicts)

    @property
    def problems(self) -> list[str]:
        """What is not proved, and why."""
        return [f"{x.name} is not proved: {x.message}" for x in self.verdicts if not x.ok]

    @property
    def equations(self) -> dict[str, str]:
        """The equations of backpropagation, by name."""
        return {line.name: line.code for line in self.backpropagation}

    @cached_property
    def latex(self) -> str:
        """The equations of feedforward and backpropagation in the paper's notation."""
        values = {x.name: x.term for x in (*self.feedforward, *self.backpropagation)}
        return aligned(re.sub(r":?=", r"&\g<0>", x, count=1) for x in latex_lines(values))

    def __str__(self) -> str:
        """The equations as text, with what is proved."""
        proved = {verdict.name: verdict.ok for verdict in self.verdicts}
        width = max(len(line.name) for line in (*self.feedforward, *self.backpropagation))

        def shown(line: Line) -> str:
            mark = {True: "  # proved", False: "  # NOT PROVED", None: ""}[proved.get(line.name)]
            return f"{line.name:<{width}} = {line.code}{mark}"

        return "\n".join([*map(shown, self.feedforward), "", *map(shown, self.backpropagation)])

    __repr__ = __str__
    _repr_html_ = deferred("matgrad.explanation.notebook", "derivation_html")


def derive(feedforward: str | MakeLayer | Layer, *, name: str = "", training: bool = True) -> Derivation:
    """The gradients of a feedforward, in matrix form, with the code of a layer, proved for all sizes.

    `feedforward` is the class of a layer, of which only `feedforward` is read, a function that makes one from D
    and K, or equations such as ``gamma: 1 D = 1; Y = hadamard(row_repeat(gamma, N), X)``.
    """
    best: Derivation | None = None
    for source, is_folded in _ways(feedforward, name, training):
        try:
            found = _derived(source, name, is_folded)
        except (TooLongError, RecursionError):
            continue
        if found.is_proved:
            return found
        best = best or found
    if best is None:
        raise ValueError("the feedforward is too long to derive its gradients; give its parts names, in more equations")
    return best


def _ways(feedforward: str | MakeLayer | Layer, name: str, training: bool) -> Iterator[tuple[Source, bool]]:
    """What gradients are derived from, and whether they are folded: first those that are shortest, if they are proved.

    In the code of a layer, activation functions have names, and are looked into at last.
    """
    if isinstance(feedforward, str):
        source: Source = TextSource(feedforward, name or "New")
    else:
        make = feedforward if callable(feedforward) else type(feedforward)
        source = LayerSource(make, training=training)
    yield source, True
    yield source, False
    if not isinstance(feedforward, str):
        yield LayerSource(make, training=training, named_functions=False), False


def _derived(source: Source, name: str, is_folded: bool) -> Derivation:
    """One way to derive the gradients."""
    with bounded(MOST_TERMS):
        gradients = backpropagation(source.feedforward, facts(source), folded=is_folded)
    written = LayerCode(name or source.class_name, source, gradients)
    layer = executed(str(written), written.class_name)
    verdicts = prove(layer, source, written.forward)
    return Derivation(written.claiming(verdicts), layer, written.forward, written.backward, verdicts)
