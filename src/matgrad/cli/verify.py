"""`matgrad verify`, `check` and `derive`: whether equations and gradients are right, and those of new layers."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.activation_functions import ACTIVATIONS
from matgrad.backends import get_backend
from matgrad.cli.commands import (
    READS,
    STANDARD_OUTPUT,
    WRITES,
    Command,
    echo,
    echo_json,
    echo_wrong,
    json_option,
    latex_option,
    option,
    write_text,
)
from matgrad.cli.examples import random_examples
from matgrad.cli.options import COUNT, POSITIVE, model_options, plugin_option, seed_option
from matgrad.cli.saved_models import new_model
from matgrad.foundation.notation import document
from matgrad.foundation.writing import columns
from matgrad.inspection.gradient_check import first_wrong
from matgrad.inspection.verdicts import Check
from matgrad.judges.algebra import MakeLayer
from matgrad.loss_functions import check_loss, create_loss
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import create, lookup, parse_call

ALL_SIZES = "all sizes"
WIDTH = 100  # of a line
MEANING = (
    "proved: for all sizes of 1 or more, and all real numbers for which both sides are defined, except where a "
    "condition such as x ≥ 0, or a maximum, changes; settings that are positive stand for all positive numbers"
)


@click.command(cls=Command)
@option("Options", "--layer", multiple=True, metavar="NAME", help="Only this layer, loss, optimizer … Repeatable.")
@option("Options", "--quick", is_flag=True, help="Only a selection, which takes seconds.")
@option("Options", "--all-sizes", is_flag=True, help="Only prove the equations for all sizes N, D and K.")
@option("Options", "--explain", metavar="NAME", help="With --all-sizes: print a derivation, such as SoftmaxLayer.DZ.")
@option("Output", "--coq", type=WRITES, metavar="FOLDER", help="Print the proofs for Coq, which checks them.")
@option("Output", "--latex", type=WRITES, metavar="FILE", help="Write the equations as a LaTeX document.")
@json_option
@plugin_option
def verify(
    layer: tuple[str, ...], quick: bool, all_sizes: bool, latex: Path | None, as_json: bool, **more: Any
) -> None:
    """Judge every equation by index notation for all sizes, by SymPy and in numbers, on the classes that train.

    Checks every layer, loss, activation function, softmax function and optimizer, and the lemmas and derivations of the
    paper: values against definitions, gradients against derivatives. There is one line for each equation, with
    what each judge says, and in how many checks. If an equation is wrong, it says where, what was found and what was
    expected, and the exit status is 1; what is wrong only because something else is, "follows". What has nothing to be
    compared with, such as the feedforward of your own layer, is listed.

    With --all-sizes, there are only proofs for all sizes, in seconds and without SymPy, and an equation is proved or
    not; the exit status is 1 if one is not. Optimizers are not included. With --explain, the proof of one equation
    is printed in steps, each with its rule; --layer says for which layer or activation function, if there are several.

    With --coq, the proofs for all sizes are printed as theorems for Coq, with their proofs, into a folder, and Coq
    checks them if it is installed. What cannot be printed is listed.
    """
    from matgrad.judges.suite import JUDGES, cases, explain, validated_equations, with_causes

    if more["explain"] is not None:
        if quick or as_json or not all_sizes:
            raise click.UsageError("--explain goes with --all-sizes, and with --layer, --latex and --plugin alone")
        explanation = explain(more["explain"], layer)
        echo(f"{explanation}\n{_wrapped(MEANING)}")
        if latex is not None:
            write_text(latex, explanation.latex(), "LaTeX")
        return
    if more["coq"] is not None:
        if quick or all_sizes or latex is not None:
            raise click.UsageError("--coq goes with --layer, --json and --plugin alone")
        _certify(layer, more["coq"], as_json)
        return
    if not all_sizes:
        get_backend("sympy")  # says what to install if SymPy is missing
    start = time.perf_counter()
    chosen = cases(layer, quick=quick, judges=[ALL_SIZES] if all_sizes else JUDGES)
    judges = list(dict.fromkeys(case.judge for case in chosen))
    is_silent = as_json or not sys.stderr.isatty()
    progress: dict[str, Any] = {"file": sys.stderr, "item_show_func": lambda case: case.name if case else ""}
    with nullcontext(chosen) if is_silent else click.progressbar(chosen, **progress) as running:
        found = [(case, check) for case in running for check in case.run()]
    if not is_silent:
        click.echo("\033[1A\033[2K", nl=False, err=True)  # the line of the bar, which is done
    checks = [(case.judge, check) for case, check in with_causes(found)]
    judged = {judge: [check.ok for other, check in checks if other == judge and not check.note] for judge in judges}
    if not any(judged.values()):
        raise ValueError(f"no equation was checked: {', '.join(layer) or 'nothing was selected'}")
    not_proved = judged.get(ALL_SIZES, []).count(False)
    wrong = sum(found.count(False) for found in judged.values()) - not_proved
    counted = [check for judge, check in checks if all_sizes or judge != ALL_SIZES]
    causes = [check.name for check in counted if not check.ok and not check.cause]
    if as_json:
        rows = [asdict(check) | {"judge": judge} for judge, check in checks]
        echo_json({"checks": rows, "wrong": wrong, "not_proved": not_proved})
    else:
        _print(checks, judges)
        for judge, own in judged.items():
            echo(f"{judge}: {sum(own)} of {len(own)} checks {'proved' if judge == ALL_SIZES else 'right'}")
        echo(f"in {time.perf_counter() - start:.0f} s")
        if ALL_SIZES in judges:
            echo(_wrapped(MEANING))
        for name in dict.fromkeys(causes):
            echo_wrong(f"{'NOT PROVED' if all_sizes else 'WRONG'}: {name}")
    if latex is not None:
        shown = (check for judge, check in checks if all_sizes or judge != ALL_SIZES)
        write_text(latex, validated_equations(shown), "LaTeX")
    if wrong or (all_sizes and not_proved):
        raise click.exceptions.Exit(1)


def _certify(only: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Print certificates into a folder, and have Coq check them."""
    from matgrad.certificates.claims import INSTALL, certified, is_installed, refused, write_certificates

    found = list(certified(only))
    paths = write_certificates(folder, (x for item in found for x in item.certificates))
    problem = refused(paths) if is_installed() else None
    verdict = INSTALL if problem is None else problem or "coqc and coqchk accept all of them"
    if as_json:
        rows = [
            {"name": x.check.name, "sizes": x.check.sizes, "theorems": [c.name for c in x.certificates]}
            | ({"problem": x.problem} if x.problem else {})
            for x in found
        ]
        echo_json({"certificates": rows, "accepted": None if problem is None else not problem})
    else:
        missing = [f"{x.check.name} [{x.check.sizes}] cannot be printed: {x.problem}" for x in found if x.problem]
        count = f"{len(found) - len(missing)} of {len(found)}"
        echo("\n".join([*dict.fromkeys(missing), f"{folder}: {count} proofs are printed as theorems", verdict]))
    if problem:
        raise click.exceptions.Exit(1)


def _print(checks: list[tuple[str, Check]], judges: list[str]) -> None:
    """One line for each equation, with its verdicts, and what is wrong, not proved or not compared."""
    equations: dict[str, list[tuple[str, Check]]] = {}
    for judge, check in checks:
        equations.setdefault(check.name, []).append((judge, check))
    places = {name: Path(found[0][1].location).name for name, found in equations.items()}
    width = max(len(name) + 1 + len(place) for name, place in places.items())
    rows = [("equation and its source", *judges)]
    for name, found in equations.items():
        line = f"{name}{places[name]:>{width - len(name)}}"
        rows.append((line, *(_verdict(judge, [x for other, x in found if other == judge]) for judge in judges)))
    messages = [check.message for _, check in checks if not check.ok and not check.cause]
    causes: dict[str, dict[str, None]] = {}
    for _, check in checks:
        if check.cause:
            causes.setdefault(check.cause, {})[check.name] = None
    messages += [f"{cause} is wrong, and therefore {', '.join(names)}" for cause, names in causes.items()]
    messages += [f"{x.name} [{x.sizes}] is proved for {x.given}" for _, x in checks if x.ok and x.given and not x.note]
    messages += [f"note: {x.name} {x.location}: {x.note}" for _, x in checks if x.note]
    text = "\n\n".join([columns(rows), *map(_wrapped, dict.fromkeys(messages)), ""])
    echo(text.replace(f"{Path(mg.__file__).parent.parent}/", ""))


def _verdict(judge: str, checks: list[Check]) -> str:
    """What a judge says of an equation, and how many checks it made."""
    own = [x for x in checks if not x.note]
    right, wrong = ("proved", "UNPROVED") if judge == ALL_SIZES else ("right", "WRONG")
    word = right if all(x.ok for x in own) else "follows" if all(x.ok or x.cause for x in own) else wrong
    return f"{word} {len(own)}" if own else "-"


def _wrapped(text: str) -> str:
    """A message of one line in lines of at most 100 characters; one of several lines has formulas, and stays."""
    return text if "\n" in text else fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


@click.command(cls=Command)
@click.argument("model", type=READS, required=False)
@model_options(None, None)
@option("Training", "--batch-size", type=COUNT, default=7, help="Number of random examples.")
@option("Training", "--gradient-step", type=POSITIVE, default=1e-5, metavar="H", help="Size of the differences.")
@seed_option
@json_option
def check(model: Path | None, as_json: bool, **options: Any) -> None:
    """Compare every gradient equation of a model with central differences in float64, on random data.

    The MODEL is that in a file, or a new one with --layers and --layer-sizes; its loss is that of the file, or the
    squared error. If an equation is wrong, the first one in the order of backpropagation is named, and the exit status
    is 1; it is 1 as well if a gradient cannot be judged, because a wrong one would not be noticed.
    """
    layers, sizes = options["layers"], options["layer_sizes"]
    if (model is None) == (layers is None) or (layers is None) != (sizes is None):
        raise ValueError("expected the file of a saved model, or --layers with --layer-sizes")
    mg.manual_seed(options["seed"])
    M = new_model(options) if model is None else mg.load(model)
    loss = create_loss(options["loss"] or M.information.get("loss") or "SquaredError")
    check_loss(M, loss)
    rng = np.random.default_rng(options["seed"])
    N, K = options["batch_size"], M.layers[-1].output_size
    X, T = random_examples(M, loss, N, rng)
    if not loss.has_tokens:
        T = rng.dirichlet(np.ones(K), N) if K > 1 else rng.random((N, 1))
    results = mg.check_gradients(M, loss, X, T, h=options["gradient_step"])
    wrong, silent = first_wrong(results), [r for r in results if not r.tells]
    if as_json:
        keys = ("name", "relative_error", "checked")
        rows = [{key: getattr(r, key) for key in keys} | {"ok": r.ok and r.tells} for r in results]
        echo_json({"equations": rows, "first_wrong": wrong and wrong.name})
    else:
        verdicts = {r.name: "WRONG" if not r.ok else "ok" if r.tells else "cannot be judged" for r in results}
        echo(columns([(r.name, f"relative error {r.relative_error:.1e}", verdicts[r.name]) for r in results]))
        count = f"{len(results) - len(silent)} of" if silent else "all"
        agreement = f"{count} {len(results)} equations agree with central differences"
        echo(str(wrong) if wrong else "\n".join([*map(str, silent), agreement]))
    if wrong or silent:
        raise click.exceptions.Exit(1)


@click.command(cls=Command)
@click.argument("equations", required=False)
@option("Model", "--file", type=READS, metavar="FILE", help="Read the equations from a file.")
@option("Model", "--layer", metavar="NAME", help="The feedforward of a layer instead: Softmax, AllReLU(0.3) …")
@option("Model", "--evaluation", is_flag=True, help="Its feedforward in evaluation mode.")
@option("Model", "--name", default="", metavar="NAME", help="The name of the new layer.")
@plugin_option
@option("Output", "--code", is_flag=True, help="Print the code of the layer, and nothing else.")
@option("Output", "--save", type=WRITES, metavar="FILE", help="Write the code of the layer to a file, a plugin.")
@latex_option
@json_option
def derive(equations: str | None, code: bool, latex: Path | None, as_json: bool, **options: Any) -> None:
    """Derive the gradients of a feedforward in matrix form, and write a layer with them.

    EQUATIONS are separated by semicolons or lines. The last one is that of the output Y; X is the input, of size
    N×D. NAME: ROWS COLUMNS declares a parameter:

        matgrad derive "g: 1 D = 1; Y = hadamard(row_repeat(g, N), X)"

    What is printed is proved for all sizes, by running it on symbols. If something is not, the exit status is 1.
    """
    file, layer, name = options["file"], options["layer"], options["name"]
    given = [x for x in (equations, file, layer) if x is not None]
    if len(given) != 1:
        raise ValueError("expected EQUATIONS, --file FILE or --layer NAME, and only one of them")
    if sum((code, as_json, latex == STANDARD_OUTPUT)) > 1:
        raise ValueError("--code, --json and --latex -: expected one of them, as each prints nothing else")
    if options["evaluation"] and layer is None:
        raise ValueError("--evaluation: expected --layer with it; equations have no modes")
    if layer is not None:
        found = mg.derive(layer_named(layer), name=name, training=not options["evaluation"])
    else:
        found = mg.derive(file.read_text(encoding="utf-8") if file is not None else str(equations), name=name)
    if options["save"] is not None:
        write_text(options["save"], found.code, "code")
    if latex is not None:
        write_text(latex, document(found.latex), "LaTeX")
    if code:
        echo(found.code, nl=False)
    elif as_json:
        proved = {verdict.name: verdict.ok for verdict in found.verdicts}
        lines = {
            method: [{"name": x.name, "code": x.code, "proved": proved.get(x.name)} for x in getattr(found, method)]
            for method in ("feedforward", "backpropagation")
        }
        whole = {"code": found.code, "latex": found.latex, "proved": found.is_proved, "problems": found.problems}
        echo_json(lines | whole)
    elif latex != STANDARD_OUTPUT:
        count = f"{sum(x.ok for x in found.verdicts)} of {len(found.verdicts)} equations are proved for all sizes"
        echo(f"{found}\n\n{found.code}\n{count}\n{_wrapped(MEANING)}")
    if not found.is_proved:
        for problem in found.problems:
            echo(problem, err=True)
        raise click.exceptions.Exit(1)


def layer_named(specification: str) -> MakeLayer:
    """The constructor, from D and K, of the layer that a string such as ``Softmax`` or ``AllReLU(0.3)`` names."""
    name = parse_call(specification).name
    cls = lookup(name, {**LAYERS, **ACTIVATIONS}, "layer")
    if name in ACTIVATIONS:
        return lambda D, K: mg.ActivationLayer(D, K, specification)
    return lambda D, K: create(specification, LAYERS, "layer", D, D if getattr(cls, "keeps_size", False) else K)
