"""How a proof is tried: with symbols for numbers, then with numbers; and for sizes of 1 if the code asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from matgrad.inspection.verdicts import Check, crash
from matgrad.proofs.symbolic_layers import SymbolicSizes, Symbols

Prove = Callable[[Symbols, str], list[Check]]  # the verdicts, with symbols and a text about the sizes


def attempts(prove: Prove, name: str, about: str) -> list[Check]:
    """The verdicts of a proof for all sizes.

    If the code asks whether a size is 1, there are more for sizes of 1, and the first are for the others. If it asks
    anything else about a size, nothing is proved. So it is if nothing was compared.
    """
    sizes = SymbolicSizes()
    checks = _attempt(prove, sizes, name, about)
    for ones in _subsets(sizes.questions.ones):
        checks += _attempt(prove, SymbolicSizes(ones), name, f"{about}, {', '.join(f'{n} = 1' for n in sorted(ones))}")
    return checks


def _attempt(prove: Prove, sizes: SymbolicSizes, name: str, about: str) -> list[Check]:
    """The verdicts with symbols for the numbers of a class or, if it decides something by them, with the numbers."""
    try:
        return _verdicts(prove, Symbols(sizes), name, about)
    except Exception:  # whatever the code of a user leads to
        try:
            return _verdicts(prove, Symbols(sizes, keep_numbers=True), name, about)
        except Exception as error:
            return [crash(error, about, name)]


def _verdicts(prove: Prove, symbols: Symbols, name: str, about: str) -> list[Check]:
    checks = prove(symbols, about)
    if not any(check.ok and not check.note for check in checks) and all(check.ok for check in checks):
        return [Check(name, "?", "", about, "none", 0.0, False, f"{name} is not proved: there is nothing to prove")]
    if questions := symbols.sizes.questions.others:
        reason = f"the code asks whether {questions[0]}, and so it differs from size to size"
        return [replace(x, ok=False, message=f"{x.name} is not proved: {reason}\n  in {x.location}") for x in checks]
    return checks


def _subsets(names: set[str]) -> Iterator[frozenset[str]]:
    """The subsets that are not empty."""
    for number in range(1, len(names) + 1):
        yield from map(frozenset, combinations(sorted(names), number))
