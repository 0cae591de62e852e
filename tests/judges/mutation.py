"""The verdict of the verifier on the mutants of the package.

`python tests/judges/mutation.py` makes all mutants, finds out with torch, or for those that are right almost
everywhere by running both, which ones compute something else, asks the verifier about those, and prints a report.
"""

from __future__ import annotations

import ast
import linecache
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parents[1]))  # where architectures.py is

from equivalents import EQUIVALENT
from mutants import Mutant, Target, mutants
from oracles import Values, cases, differs_from_torch
from special_mutants import LISTED, differs_from, special_mutants, values, verdict_of_verify

from matgrad import activation_functions, matrix_operations, softmax_functions

LIMIT = 120  # seconds of computing for one mutant


@contextmanager
def patched(mutant: Mutant) -> Iterator[None]:
    """The mutant in place of the original, wherever the package refers to it."""
    target = mutant.target
    original = vars(target.owner)[target.name]
    function = _compiled(mutant)
    owners: list[Any] = [target.owner]
    if isinstance(target.owner, ModuleType):  # other modules have imported it by name
        modules = [m for name, m in sys.modules.items() if name.startswith("matgrad") and m is not None]
        owners = [m for m in modules if vars(m).get(target.name) is original]
    for owner in owners:
        setattr(owner, target.name, function)
    try:
        yield
    finally:
        for owner in owners:
            setattr(owner, target.name, original)
        linecache.cache.pop(function.__code__.co_filename, None)


def _compiled(mutant: Mutant) -> FunctionType:
    """The mutant as a function whose source can be read, so that its equations can be observed."""
    original = mutant.target.function
    known = {"__class__": mutant.target.owner} if isinstance(mutant.target.owner, type) else {}
    used = {n.id for n in ast.walk(ast.parse(mutant.source)) if isinstance(n, ast.Name)}
    everything = {**vars(activation_functions), **vars(softmax_functions), **vars(matrix_operations)}
    known |= {name: everything[name] for name in used - original.__globals__.keys() if name in everything}
    text = f"def outer({', '.join(known)}):\n{textwrap.indent(mutant.source, '    ')}\n    return {original.__name__}\n"
    file = f"<mutant {hash((mutant.target, mutant.source))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), original.__globals__, namespace)
    function = namespace["outer"](**known)
    function.__qualname__ = original.__qualname__
    return function


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: equivalent, killed by a check, or a survivor."""

    mutant: Mutant
    equivalent: bool
    killed_by: str = ""
    seconds: float = 0.0

    @property
    def survives(self) -> bool:
        return not self.equivalent and not self.killed_by


def differs(mutant: Mutant) -> bool:
    """Whether the mutant computes something else than torch, at one of a few random points."""
    with patched(mutant):
        return any(differs_from_torch(case) for case in cases(mutant.target))


def killed_by(mutant: Mutant) -> str:
    """The first symbolic check that notices the mutant; empty where none does."""
    with patched(mutant):
        wrong = (check for case in cases(mutant.target) for check in case.checks() if not check.ok)
        return next((f"{check.name} [{check.sizes}]" for check in wrong), "")


class _TooSlow(BaseException):
    """Not an Exception, which would count as noticed."""


@cache
def everything() -> tuple[Mutant, ...]:
    """All mutants, those that are right almost everywhere at the end."""
    return (*mutants(), *special_mutants())


@cache
def _original_values(target: Target) -> Values:
    return values(target)


def judge_special(mutant: Mutant) -> Verdict:
    """The verdict of `matgrad verify` on a mutant that is right almost everywhere; those of the list all differ."""
    start, original = time.perf_counter(), _original_values(mutant.target)
    with patched(mutant):
        if mutant not in special_mutants()[: len(LISTED)] and not differs_from(original, mutant.target):
            return Verdict(mutant, True, "", time.perf_counter() - start)
        check = verdict_of_verify(mutant.target)
    return Verdict(mutant, False, f"{check.name} [{check.sizes}]" if check else "", time.perf_counter() - start)


def judge(mutant: Mutant) -> Verdict:
    start = time.perf_counter()
    if mutant in special_mutants():
        return judge_special(mutant)
    if not differs(mutant):
        return Verdict(mutant, True, "", time.perf_counter() - start)
    killer = killed_by(mutant)
    return Verdict(mutant, False, killer, time.perf_counter() - start)


def judge_number(i: int) -> tuple[bool, str, float]:
    """The verdict on the i-th mutant, in a form that can be sent between processes.

    One that is not decided after `LIMIT` seconds counts as a survivor; what other processes take is not counted.
    """

    def give_up(number: int, frame: object) -> None:
        raise _TooSlow

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        verdict = judge(everything()[i])
    except _TooSlow:
        return False, "", float(LIMIT)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return verdict.equivalent, verdict.killed_by, verdict.seconds


def judge_all(numbers: Sequence[int], processes: int = 1, file: TextIO | None = None) -> list[Verdict]:
    """The verdicts on the mutants with these numbers; a line for each goes to `file` as soon as it is known."""
    verdicts = []
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        results = pool.map(judge_number, numbers, chunksize=4) if pool else map(judge_number, numbers)
        for i, result in zip(numbers, results, strict=True):
            verdict = Verdict(everything()[i], *result)
            verdicts.append(verdict)
            if file is not None:
                fate = "equivalent" if verdict.equivalent else verdict.killed_by or "SURVIVES"
                print(f"{i:5} {verdict.seconds:6.1f} s  {verdict.mutant}: {fate}", file=file, flush=True)
    return verdicts


def report(verdicts: Sequence[Verdict]) -> str:
    """killed / total, the survivors, and the equivalent mutants with their reasons."""
    equivalent = [v for v in verdicts if v.equivalent]
    survivors = [v for v in verdicts if v.survives]
    killed = len(verdicts) - len(equivalent) - len(survivors)
    lines = [
        f"{len(verdicts)} mutants: {killed} of {len(verdicts) - len(equivalent)} killed, "
        f"{len(survivors)} survivors, {len(equivalent)} equivalent ({100 * len(equivalent) / len(verdicts):.1f} %)"
    ]
    lines += [f"SURVIVOR    {v.mutant}" for v in survivors]
    lines += [f"equivalent  {v.mutant}: {reason(v.mutant)}" for v in equivalent]
    return "\n".join(lines)


def reason(mutant: Mutant) -> str:
    """Why a mutant is equivalent; '' if no reason is known."""
    if mutant in special_mutants():
        return "a factor of 0, one that cancels, or never reached"
    return EQUIVALENT.get(mutant.key, "")


def main() -> int:
    start = time.perf_counter()
    verdicts = judge_all(range(len(everything())), processes=2, file=sys.stderr)
    print(report(verdicts))
    print(f"{time.perf_counter() - start:.0f} s; the slowest:")
    for verdict in sorted(verdicts, key=lambda v: -v.seconds)[:10]:
        print(f"{verdict.seconds:6.1f} s  {verdict.mutant}  {verdict.killed_by}")
    return int(any(v.survives or (v.equivalent and not reason(v.mutant)) for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
