"""`matgrad explain`: every equation of a training step, with its values, in the terminal or as a page."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

import matgrad as mg
from matgrad.cli import options as shared
from matgrad.cli.commands import READS, WRITES, Command, echo, echo_wrong, option
from matgrad.cli.examples import examples_for, given_sources, part_option, random_examples
from matgrad.cli.options import COUNT, POSITIVE, flag, is_given
from matgrad.cli.saved_models import chosen_loss, new_model
from matgrad.foundation.writing import visible
from matgrad.specifications.models import set_optimizers
from matgrad.training import LEARNING_RATE

NEW = ("layers", "layer_sizes", "layer_weights", "dropouts", "densities", "supports")  # the options of a new model
EXAMPLES = 6
IMAGES = {"digits": (8, 8), "mnist": (28, 28), "fashion-mnist": (28, 28)}  # height and width, by the name of the data
VERIFY = "Check the equations symbolically, which takes seconds.  [default: with --html, if SymPy is installed]"


@click.command(cls=Command)
@click.argument("model", type=READS, required=False)
@shared.model_options("ReLU;Linear", "4;5;3")
@shared.data_options
@part_option
@option("Data", "--examples", type=COUNT, default=EXAMPLES, help="How many examples the batch has.")
@shared.seed_option
@shared.optimizers_option
@option("Training", "--learning-rate", type=POSITIVE, default=LEARNING_RATE, metavar="η", help="The learning rate.")
@option("Output", "--equation", metavar="NAME", help="Show only this equation, such as 'layer 2 DW', 'DW2' or 'loss'.")
@option("Output", "--html", type=WRITES, metavar="FILE", help="Write a page to step through in a browser.")
@option("Output", "--verify/--no-verify", default=None, help=VERIFY)
def explain(model: Path | None, **options: Any) -> None:
    """Show every equation of one training step in order: LaTeX, source, verdict, size and value.

    The step is one of the saved MODEL, on examples of its data, from all classes in turn, or of a new model on random
    examples. It is computed in float64 and changes nothing; a file keeps no optimizer, so it is that of --optimizers.
    Small matrices are shown in full, large ones as a summary; the page of --html shows all, and where each entry comes
    from. If an equation is wrong, it is named at the end, and the exit status is 1.
    """
    html, verify, name = options["html"], options["verify"], options["equation"]
    if html is not None and name is not None:
        raise ValueError("--equation and --html: the page has all equations")
    mg.manual_seed(options["seed"])
    M, X, T, shape = (*_new(options), ()) if model is None else _saved(model, options)
    set_optimizers(M, options["optimizers"])
    if verify is None:
        verify = html is not None and find_spec("sympy") is not None

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            echo(f"checking {name} …", err=True)

    rate, loss = options["learning_rate"], options["loss"]
    more = {"shape": shape, "verify": verify, "progress": progress}
    explanation = mg.explain(M, X, T, loss=loss, eta=rate, equation=name, **more)
    if html is not None:
        explanation.save(html)
        echo(f"{len(explanation)} equations in {visible(html)}: open it in a browser")
    else:
        echo(explanation if name is None else explanation[name])
    for e in explanation.wrong:
        echo_wrong(f"WRONG: {e.title}: {'; '.join(e.verdict.details)}")
    if explanation.wrong:
        raise click.exceptions.Exit(1)


def _new(options: dict[str, Any]) -> tuple[mg.MultilayerPerceptron, np.ndarray, np.ndarray]:
    """A new model, and random examples."""
    if given := given_sources(options):
        raise ValueError(f"{' and '.join(map(flag, given))}: expected a saved model to explain on this data")
    M = new_model(options)
    rng = np.random.default_rng(options["seed"])
    return M, *random_examples(M, chosen_loss(options, M), options["examples"], rng)


def _saved(path: Path, options: dict[str, Any]) -> tuple[mg.MultilayerPerceptron, Any, np.ndarray, tuple[int, ...]]:
    """The saved model, the first examples of its data, and their height and width if they are images."""
    for name in NEW:
        if is_given(name):
            raise ValueError(f"{flag(name)} and {path}: it describes a new model, not a saved one")
    M = mg.load(path)
    X, T, data = examples_for(M, path, options)
    before = np.zeros(len(T), dtype=np.int64)  # how many of the same class are before an example
    for k in () if data.classes is None or T.ndim > 1 else np.unique(T):
        before[T == k] = np.arange(np.count_nonzero(T == k))
    chosen = np.argsort(before, kind="stable")[: options["examples"]]  # the first of every class, the second, and so on
    return M, X[chosen], T[chosen], IMAGES.get(data.name, ())
