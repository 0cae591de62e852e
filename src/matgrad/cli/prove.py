"""`matgrad prove`: whether the gradients that foreign code computes are right, for all sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from matgrad.cli.commands import STANDARD_OUTPUT, Command, Writes, echo, latex_option, option, write_text
from matgrad.cli.options import POSITIVE
from matgrad.cli.sarif import sarif_log
from matgrad.foundation.writing import as_json
from matgrad.writers.claims import Claim, claims_of, found, has_claims, loaded
from matgrad.writers.specifications import argument
from matgrad.writers.verdicts import Verdict, latex_document

EXPECTED = "expected FILE:NAME, such as losses.py:SoftCrossEntropy, then ARGUMENT=SHAPE; or FILE.py with @mg.proved"


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="FILE:NAME [ARGUMENT=SHAPE]…")
@option("Options", "--backward", metavar="NAME", help="The function with the gradients, if NAME has none of its own.")
@option("Options", "--wrt", metavar="NAMES", help="Only these arguments, separated by commas; none may be None.")
@option(
    "Options",
    "--reference",
    multiple=True,
    metavar="KERNEL=NAME",
    help="What computes the same as a kernel. Repeatable.",
)
@option("Options", "--surrogate", is_flag=True, help="It is no gradient by design: say what it is instead.")
@option("Options", "--kinks", is_flag=True, help="Also say what is returned at kinks and ties.")
@option("Options", "--explain", is_flag=True, help="Also print the derivation of the gradients, step by step.")
@option("Options", "--seconds", type=POSITIVE, default=60, help="At most so long for each function.")
@option("Options", "--if-claimed", is_flag=True, help="Pass over files without @mg.proved, as a hook of git does.")
@option(
    "Output",
    "--json",
    is_flag=False,
    flag_value=STANDARD_OUTPUT,
    type=Writes(".json", prints=True),
    metavar="[FILE]",
    help="Write a list of verdicts as JSON, or print it alone.",
)
@option("Output", "--coq", type=Writes(), metavar="FILE", help="Print what is proved as theorems for Coq.")
@option("Output", "--sarif", type=Writes(), metavar="FILE", help="Write what is not proved as SARIF 2.1.0.")
@latex_option
def prove(words: tuple[str, ...], json: Path | None, sarif: Path | None, latex: Path | None, **options: Any) -> None:
    """Prove for all sizes that NAME in a Python FILE computes its own gradients, or say what is missing.

    NAME is a torch.autograd.Function, an operator of torch.library.custom_op with register_autograd, a jax.custom_vjp
    or jax.custom_jvp, or a function or module with --backward. Its arguments are given by their shapes, of named sizes:

        matgrad prove losses.py:SoftCrossEntropy z="N K" t="N K, Σ_K = 1"

    Others are "> 0", a positive number; "N < K", labels; "T S ?", a mask; "= H", a size; or a number, as it is. There
    can be several functions, each followed by its arguments. A FILE alone stands for all functions in it with
    @mg.proved(z="N K", …). The exit status is 0 if everything is proved, 1 if something is refuted, with numbers that
    show it, and otherwise 2.

    Equations are proved too, in the notation of `matgrad derive` or in LaTeX, typed or in a FILE.txt or FILE.tex:

        matgrad prove "Y = X @ W.T" "W: K D" "DX = DY @ W" "DW = DY.T @ X"
    """
    coq, verdicts = options.pop("coq"), []
    claims = equations(words, _given(options)) or claimed(targets(words), **options)
    is_silent = STANDARD_OUTPUT in (json, latex)
    for claim in claims:
        verdicts.append(claim.verdict())
        if not is_silent:
            echo(str(verdicts[-1]))
    if coq is not None:
        write_text(coq, theorems(verdicts), "theorems")
    if json is not None:
        write_text(json, as_json([verdict.as_json() for verdict in verdicts]) + "\n", "JSON")
    if sarif is not None:
        write_text(sarif, as_json(sarif_log(verdicts)) + "\n", "SARIF")
    if latex is not None:
        write_text(latex, latex_document(verdicts), "LaTeX")
    raise click.exceptions.Exit(exit_status(verdicts))


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """1 if something is refuted, otherwise 2 if something is not proved."""
    statuses = {verdict.status for verdict in verdicts}
    return next((n for n in (1, 2) if n in statuses), 0)


def equations(words: Sequence[str], said: dict[str, Any]) -> list[Claim]:
    """The claim of typed equations, or of those in a file, if the words are that."""
    if len(words) == 1 and words[0].endswith((".txt", ".tex")):
        return [Claim(Path(words[0]).read_text(encoding="utf-8"), said, words[0])]
    is_typed = bool(re.match(r"[^:=]*(=|:\s)", words[0])) and bool(re.search(r"\bY\s*=", "\n".join(words)))
    return [Claim("\n".join(words), said, "")] if is_typed else []


class Target(NamedTuple):
    """A function in a file, with what is said of its arguments; without a name, all that the file claims."""

    path: Path
    name: str
    said: dict[str, Any]


def targets(words: Sequence[str]) -> list[Target]:
    """What is to be proved, by the words of a command line."""
    result: list[Target] = []
    for word in words:
        name, sign, value = (part.strip() for part in word.partition("="))
        if sign:
            if not result or not result[-1].name or not name:
                raise ValueError(f"{word!r}: {EXPECTED}")
            result[-1].said[name] = argument(value)
        elif word.endswith(".py"):
            result.append(Target(Path(word), "", {}))
        else:
            path, _, name = word.rpartition(":")
            if not path or not name:
                raise ValueError(f"{word!r}: {EXPECTED}")
            result.append(Target(Path(path), name, {}))
    return result


def claimed(
    chosen: Sequence[Target], backward: str | None, wrt: str | None, reference: Sequence[str], **options: Any
) -> Iterator[Claim]:
    """What is claimed of functions: what is said of them here, or in their files."""
    skips = options.pop("if_claimed")
    for path, name, said in chosen:
        if skips and not name and not has_claims(path):
            continue
        module = loaded(path)
        claims = [claim for claim in claims_of(module) if not name or claim.function is found(module, name)]
        if claims and not said:
            yield from (claim._replace(said=claim.said | _given(options)) for claim in claims)
            continue
        if not name:
            raise ValueError(f"{path}: no function in it has @mg.proved; {EXPECTED}")
        kernels = dict(_pair(text) for text in reference)
        own = {
            "backward": found(module, backward) if backward else None,
            "wrt": wrt.split(",") if wrt else None,
            "reference": {kernel: found(module, text) for kernel, text in kernels.items()},
        }
        yield Claim(found(module, name), said | own | options, str(path))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that hold for what files claim too."""
    return {"seconds": options["seconds"]} | {name: True for name in ("kinks", "explain") if options[name]}


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ValueError(f"{text!r}: expected KERNEL=NAME")
    return name.strip(), value.strip()


def theorems(verdicts: list[Verdict]) -> str:
    """The certificates of what is proved."""
    from matgrad.certificates.claims import HEADER, gradient_certificate
    from matgrad.certificates.terms import NotPrintableError

    found = [HEADER]
    for verdict in verdicts:
        for entry, value, returned in verdict.entries():
            try:
                found.append(str(gradient_certificate(f"{verdict.name} {entry.name}", entry, value, returned)))
            except NotPrintableError as error:
                raise ValueError(f"--coq: ∂/∂{entry.name} of {verdict.name} cannot be printed: {error}") from None
    if len(found) == 1:
        raise ValueError("--coq: nothing is proved")
    return "\n".join(found)
