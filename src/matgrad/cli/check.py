"""`matgrad check`: compares the gradients of a model with central differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.cli.commands import Command, echo_columns, echo_json, json_option, option
from matgrad.cli.files import READS
from matgrad.cli.options import COUNT, POSITIVE, model_options, seed_option
from matgrad.cli.saved_models import new_model
from matgrad.inspection.gradient_check import first_wrong
from matgrad.loss_functions import check_loss, create_loss


@click.command(cls=Command, short_help="Compare the gradients of a model with central differences.")
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
    X = rng.normal(size=(N, M.layers[0].input_size))
    T = rng.dirichlet(np.ones(K), N) if K > 1 else rng.random((N, 1))
    results = mg.check_gradients(M, loss, X, T, h=options["gradient_step"])
    wrong, silent = first_wrong(results), [r for r in results if not r.tells]
    if as_json:
        keys = ("name", "relative_error", "checked")
        rows = [{key: getattr(r, key) for key in keys} | {"ok": r.ok and r.tells} for r in results]
        echo_json({"equations": rows, "first_wrong": wrong and wrong.name})
    else:
        verdicts = ("WRONG" if not r.ok else "ok" if r.tells else "cannot be judged" for r in results)
        errors = (f"relative error {r.relative_error:.1e}" for r in results)
        echo_columns([*zip((r.name for r in results), errors, verdicts, strict=True)])
        count = f"{len(results) - len(silent)} of" if silent else "all"
        agreement = f"{count} {len(results)} equations agree with central differences"
        click.echo(str(wrong) if wrong else "\n".join([*map(str, silent), agreement]))
    if wrong or silent:
        raise click.exceptions.Exit(1)
