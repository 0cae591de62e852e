"""The certificates of the equations of the package that are proved for all sizes, and of gradients of foreign code."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from matgrad.certificates.terms import NotPrintableError
from matgrad.certificates.theorems import Certificate, derivative_certificate, equation_certificate, split_if_needed
from matgrad.index_notation.expressions import Entry, Expression, UndefinedError, of
from matgrad.index_notation.indices import FIRST, Index
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import Lemma, Subject, attempt
from matgrad.judges.explanations import Noting, as_matrix
from matgrad.judges.suite import ALL_SIZES, Case, cases
from matgrad.program.entries import SYMBOLIC, IndexMatrix, indices_of
from matgrad.program.program import Value
from matgrad.program.shapes import TIMES, Size


class Certified(NamedTuple):
    """A proved equation, and its certificates: one, or one for each step of a lemma; or why it has none."""

    check: Check
    certificates: list[Certificate]
    problem: str = ""


class _Certifier(Noting):
    """Notes the two sides of claims too."""

    def __init__(self, ones: frozenset[str], numbers: str) -> None:
        super().__init__(ones, numbers)
        self.claimed: list[tuple[Check, IndexMatrix, IndexMatrix]] = []  # two sides that are equal

    def claim(self, thing: Any, quantity: str, code: Any, found: Any, expected: Any, *more: Any, **options: Any) -> Any:
        check = super().claim(thing, quantity, code, found, expected, *more, **options)
        if expected is not None and check.ok:
            self.claimed.append((check, found, as_matrix(expected)))
        return check

    def certificate(self, name: str, found: Value, expected: Value, is_split: bool) -> Certificate:
        """The certificate that two sides are equal."""
        if expected in self.derivatives:
            Y, X = self.derivatives[expected]
            return derivative_certificate(name, Y.value, X.value, found, is_split)
        operands = [x for x in expected.operands if x in self.derivatives]
        if expected.operation == "divide" and operands:  # the mean over the examples
            Y, X = self.derivatives[operands[0]]
            mean = Y / SYMBOLIC.matrix(expected.operands[1])
            return derivative_certificate(name, mean.value, X.value, found, is_split)
        if found in self.derivatives:
            return self.certificate(name, expected, found, is_split)
        if operands or any(x in self.derivatives for x in found.operands):
            raise NotPrintableError("a derivative in an expression")
        return equation_certificate(name, found, expected, is_split)


def certified(only: tuple[str, ...] = ()) -> Iterator[Certified]:
    """Every proved equation of what is selected by name, with its certificates."""
    taken: Counter[str] = Counter()
    for case in cases(only, judges=[ALL_SIZES]):
        yield from _of_case(case, taken)


def _of_case(case: Case, taken: Counter[str]) -> Iterator[Certified]:
    checks = [check for check in case.run() if check.ok and not check.note]
    if isinstance(case.subject.thing, Lemma):
        yield from (_of_lemma(case.subject.thing, check, taken) for check in checks[:1])
        return
    for sizes in dict.fromkeys(ones_of(check) for check in checks):
        wanted = [check for check in checks if ones_of(check) == sizes]
        a = _claimed(case.subject, sizes, len(wanted))
        for check, left, right in a.claimed:
            yield _attempted(check, a, [(check.name, left, right)], taken)


def _claimed(subject: Subject, ones: frozenset[str], count: int) -> _Certifier:
    """The claims with symbols for all numbers or, if the code decides by them, with the numbers."""
    for numbers in ("positive", "kept"):
        a = _Certifier(ones, numbers)
        attempt(subject, a)
        if len(a.claimed) >= count:
            break
    return a


def ones_of(check: Check) -> frozenset[str]:
    """The sizes of 1 that a verdict is for."""
    return frozenset(re.findall(r"(\w+) = 1\b", check.sizes))


def _of_lemma(lemma: Lemma, check: Check, taken: Counter[str]) -> Certified:
    a = _Certifier(frozenset(), "positive")
    steps = [(f"{lemma.name}, step {n}", x.left, x.right) for n, x in enumerate(lemma.steps(a), 1)]
    return _attempted(check, a, steps, taken)


def _attempted(
    check: Check, a: _Certifier, sides: Iterable[tuple[str, IndexMatrix, IndexMatrix]], taken: Counter[str]
) -> Certified:
    found = []
    try:
        for name, left, right in sides:
            make = partial(a.certificate, f"{name}, {check.sizes}", left.value, right.value)
            certificate = split_if_needed(make)
            certificate.owner = re.sub(r"\W+", "_", check.name.partition(".")[0])
            taken[certificate.name] += 1
            if (number := taken[certificate.name]) > 1:
                certificate.name += f"__{number}"
            found.append(certificate)
    except (NotPrintableError, UndefinedError) as error:
        return Certified(check, [], str(error))
    return Certified(check, found)


# -- foreign code ----------------------------------------------------------------------------------


def gradient_certificate(name: str, entry: Entry, value: Expression, returned: Expression) -> Certificate:
    """The theorem that the derivative of a value with respect to an entry is what is returned at its indices."""
    sizes = TIMES.join(i.size for i in entry.indices)
    shape = (1, Size(sizes)) if sizes else ()
    own: tuple[Index, ...] = tuple(part for i in indices_of(shape) if i != FIRST for part in i.parts)
    symbol = IndexMatrix(shape, of(entry.at(*own)))
    claimed = IndexMatrix(shape, returned.substituted(dict(zip(entry.indices, own, strict=True))))
    total = IndexMatrix((), value)
    found = split_if_needed(partial(derivative_certificate, name, total.value, symbol.value, claimed.value))
    found.owner = re.sub(r"\W+", "_", name)
    return found


LIBRARY = "Matgrad"
HEADER = """From Coq Require Import Reals Lra Lia List QArith.
From Coquelicot Require Import Coquelicot.
From Matgrad Require Import Matgrad.
Import ListNotations.
Open Scope R_scope.
"""
INSTALL = "Coq is not installed: expected coqc and coqchk, such as by apt-get install coq libcoq-coquelicot"
QUIET = ("-w", "-ambiguous-paths")


def library() -> str:
    """The definitions of sums and derivatives, and the decision procedure with its proof, that certificates use."""
    return (files("matgrad.certificates") / f"{LIBRARY}.v").read_text(encoding="utf-8")


def write_certificates(folder: Path, certificates: Iterable[Certificate]) -> list[Path]:
    """Write the library, and one file for each class, function or lemma."""
    texts: dict[str, list[str]] = {}
    for x in certificates:
        texts.setdefault(x.owner, []).append(str(x))
    written = [folder / f"{LIBRARY}.v"]
    folder.mkdir(parents=True, exist_ok=True)
    written[0].write_text(library(), encoding="utf-8")
    for owner, modules in texts.items():
        written.append(folder / f"{owner}.v")
        written[-1].write_text("\n".join([HEADER, *modules]), encoding="utf-8")
    return written


def refused(paths: Sequence[Path], is_deep: bool = True, seconds: float = 3600) -> str:
    """What Coq says against the first file that it does not accept, or its independent checker; '' if they accept all.

    The checker, which takes longer, is left out if this is not deep.
    """
    for path in paths:
        if problem := _run("coqc", *QUIET, "-R", ".", LIBRARY, path.name, folder=path.parent, seconds=seconds):
            return problem
    if not is_deep:
        return ""
    names = [f"{LIBRARY}.{path.stem}" for path in paths]
    return _run("coqchk", "-silent", "-R", ".", LIBRARY, *names, folder=paths[0].parent, seconds=seconds)


def is_installed() -> bool:
    """Whether there is Coq."""
    return all(map(shutil.which, ("coqc", "coqchk")))


def _run(*command: str, folder: Path, seconds: float) -> str:
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:g} s"
    return "" if not found.returncode else (found.stdout + found.stderr).strip()
