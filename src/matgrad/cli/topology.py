"""Options of `matgrad train` for sparse training, and the method that they describe."""

from __future__ import annotations

from typing import Any

import click

from matgrad.callbacks import Callback
from matgrad.callbacks.methods import FROM_DENSE, METHODS, create_method
from matgrad.callbacks.topology import DECAYS, Topology
from matgrad.cli.groups import all_of, option
from matgrad.cli.table_options import flag
from matgrad.sparse.densities import parse_densities
from matgrad.specifications.parsing import Items, parse_call

topology_options = all_of(
    option(
        "Sparsity",
        "--sparse-training",
        metavar="METHOD",
        help=f"A method with the defaults of its paper: {', '.join(METHODS)}, or such as RigL(0.3, every=50). "
        f"{' and '.join(FROM_DENSE)} start from a dense model and reach the densities.",
    ),
    option(
        "Sparsity",
        "--prune",
        metavar="RULE",
        help="Which weights are dropped in a topology update: Magnitude(fraction), SET(fraction), Threshold(t).",
    ),
    option(
        "Sparsity",
        "--grow",
        metavar="RULE",
        help="Where as many new ones are stored: Random, Gradient, Momentum.  [default: none are]",
    ),
    option("Sparsity", "--grow-weights", metavar="NAME", help="The distribution of new weights.  [default: Zero]"),
    option(
        "Sparsity",
        "--update-every",
        type=click.IntRange(min=1),
        metavar="STEPS",
        help="Steps between two topology updates.  [default: an epoch]",
    ),
    option(
        "Sparsity",
        "--update-until",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="FRACTION",
        help="The part of the run in which there are topology updates.  [default: 1]",
    ),
    option(
        "Sparsity",
        "--drop-decay",
        type=click.Choice([*DECAYS]),
        help="How the drop fraction decays over the updates.  [default: constant]",
    ),
    option("Sparsity", "--regrow", is_flag=True, help="Let weights grow where they have just been dropped."),
)

SETTINGS = {"grow_weights": "weights", "update_every": "every", "update_until": "until", "drop_decay": "decay"}


def starts_dense(options: dict[str, Any]) -> bool:
    """Whether the method starts from a dense model."""
    specification = options["sparse_training"]
    return specification is not None and parse_call(specification).name in FROM_DENSE


def sparse_training(options: dict[str, Any], densities: Items | None) -> Callback | None:
    """The method of sparse training that the options describe, if any; one that starts dense reaches the densities."""
    specification = options["sparse_training"]
    if options["prune"] is not None:
        if specification is not None:
            raise ValueError("--sparse-training and --prune: expected one of them")
        settings = {name: options[key] for key, name in SETTINGS.items() if options[key] is not None}
        return Topology(options["prune"], options["grow"], regrow=options["regrow"], **settings)
    if given := [flag(name) for name in ("grow", *SETTINGS, "regrow") if options[name]]:
        raise ValueError(f"{given[0]} needs --prune; a method has its settings as arguments, as in SET(0.3, every=50)")
    if specification is None:
        return None
    if starts_dense(options) and options["supports"] is not None:
        raise ValueError(f"--supports and --sparse-training {specification}: it starts from a dense model")
    call = parse_call(specification)
    has_density = bool(call.arguments or "density" in call.keywords)
    if starts_dense(options) and has_density == (densities is not None):
        expected = f"expected --densities, --overall-density or {call.name}(density), and only one of them"
        raise ValueError(f"--sparse-training {specification}: {expected}")
    if densities is None or not starts_dense(options):
        return create_method(specification)
    density = parse_densities(densities)
    if options["overall_density"] is not None and call.name == "SNIP":
        density = options["overall_density"]  # which it divides among the layers itself
    return create_method(specification, density=density)
