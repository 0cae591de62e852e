"""What all ranks must have in common, compared before they train: ranks that differ would wait, or compute nonsense."""

from __future__ import annotations

from collections.abc import Mapping

from matgrad.distributed.group import Disagreement, Group

HINTS = {
    "the initial model": "mg.manual_seed(n), with the same n on all ranks, before the model is made, makes it the same",
    "the data": "every rank is given all of the data, and takes its rows of each batch",
}


def agree(group: Group, facts: Mapping[str, str], where: str = "the start of a run") -> None:
    """Raise a Disagreement, on all ranks, if facts differ from those of rank 0; it names them all.

    A fact has a name such as 'the batch size'; a hash is abbreviated.
    """
    first, *others = group.exchange(dict(facts), where)
    told = [
        f"rank {rank} differs from rank 0 in {_listed([_difference(name, first, own) for name in names])}"
        for rank, own in enumerate(others, 1)
        if (names := [name for name in {**first, **own} if first.get(name) != own.get(name)])
    ]
    if told:
        hints = [hint for name, hint in HINTS.items() if any(name in text for text in told)]
        raise Disagreement("; ".join([*told, *hints]))


def _difference(name: str, first: Mapping[str, str], own: Mapping[str, str]) -> str:
    found, expected = (_shown(facts.get(name, "none")) for facts in (own, first))
    return f"{name} ({found}, expected {expected})"


def _shown(value: str) -> str:
    return f"{value[:15]}…{value[-8:]}" if value.startswith("sha256 ") else value


def _listed(items: list[str]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
