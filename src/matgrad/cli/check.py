"""`matgrad check`: compares the gradients of a model with central differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.cli.files import READS, Command
from matgrad.cli.options import POSITIVE, SEED, plugin_option
from matgrad.foundation.writing import as_json as json_text
from matgrad.inspection.gradient_check import check_gradients, first_wrong
from matgrad.loss_functions import check_loss, create_loss
from matgrad.specifications.models import create_model
from matgrad.storage.models import load_model


@click.command(cls=Command, short_help="Compare the gradients of a model with central differences.")
@click.argument("model", type=READS, required=False)
@click.option("--layers", metavar="LIST", help="Check a new model with these layers instead of a saved one.")
@click.option("--layer-sizes", metavar="LIST", help="The sizes of its layers.")
@click.option("--dropouts", default="0", metavar="LIST", help="Dropout rates of its linear layers.")
@click.option("--densities", default="1", metavar="LIST", help="Densities of its linear layers.")
@click.option("--loss", metavar="NAME", help="The loss function.  [default: that of the saved model, or squared error]")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=7, show_default=True, help="Number of random examples."
)
@click.option(
    "--gradient-step", type=POSITIVE, default=1e-5, show_default=True, metavar="H", help="Size of the differences."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the weights and the examples.")
@plugin_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON, and nothing else.")
def check(model: Path | None, layers: str | None, layer_sizes: str | None, **options: Any) -> None:
    """Compare every gradient equation of a model with central differences in float64, on random data.

    If an equation is wrong, the first one in the order of backpropagation is named, and the exit status is 1; it is
    1 as well if a gradient cannot be judged, because a wrong one would not be noticed.
    """
    if (model is None) == (layers is None) or (layers is None) != (layer_sizes is None):
        raise ValueError("expected the file of a saved model, or --layers with --layer-sizes")
    mg.manual_seed(options["seed"])
    loss_name = options["loss"]
    if model is not None:
        saved = load_model(model)
        M, loss_name = saved.model, loss_name or saved.information.get("loss")
    else:
        M = create_model(str(layers), str(layer_sizes), dropouts=options["dropouts"], densities=options["densities"])
    loss = create_loss(loss_name or "SquaredError")
    check_loss(M, loss)
    rng = np.random.default_rng(options["seed"])
    N, K = options["batch_size"], M.layers[-1].output_size
    X = rng.normal(size=(N, M.layers[0].input_size))
    T = rng.dirichlet(np.ones(K), N) if K > 1 else rng.random((N, 1))
    results = check_gradients(M, loss, X, T, h=options["gradient_step"])
    wrong, silent = first_wrong(results), [r for r in results if not r.tells]
    if options["as_json"]:
        rows = [
            {"name": r.name, "relative_error": r.relative_error, "checked": r.checked, "ok": r.ok and r.tells}
            for r in results
        ]
        click.echo(json_text({"equations": rows, "first_wrong": wrong and wrong.name}))
    else:
        width = max(len(r.name) for r in results)
        for r in results:
            verdict = "WRONG" if not r.ok else "ok" if r.tells else "cannot be judged"
            click.echo(f"{r.name:<{width}}  relative error {r.relative_error:.1e}  {verdict}")
        count = f"{len(results) - len(silent)} of" if silent else "all"
        agreement = f"{count} {len(results)} equations agree with central differences"
        click.echo(str(wrong) if wrong else "\n".join([*map(str, silent), agreement]))
    if wrong or silent:
        raise click.exceptions.Exit(1)
