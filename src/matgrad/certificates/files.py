"""Files of certificates, and Coq, which checks them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from matgrad.certificates.theorems import Certificate

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
