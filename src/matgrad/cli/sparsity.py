"""Options that make a model sparse: the densities or the supports of its linear layers."""

from __future__ import annotations

from typing import Any

from matgrad.cli.files import READS
from matgrad.cli.groups import all_of, option
from matgrad.cli.options import NOT_NEGATIVE
from matgrad.cli.table_options import flag
from matgrad.sparse.densities import erdos_renyi_densities
from matgrad.specifications.parsing import Items, parse_numbers
from matgrad.storage.supports import load_supports

SPARSITY = ("densities", "overall_density", "supports")  # of which at most one is given

density_options = all_of(
    option(
        "Sparsity",
        "--densities",
        metavar="LIST",
        help="Fractions of the weights that the linear layers store, in (0, 1]; with --load-weights, the smallest "
        "weights of each layer are pruned.  [default: 1]",
    ),
    option(
        "Sparsity",
        "--overall-density",
        type=float,
        metavar="FRACTION",
        help="Density of the whole model, by the Erdős–Rényi rule: small layers keep more of their weights; with "
        "--load-weights, the smallest weights of all layers are pruned.",
    ),
    option(
        "Sparsity",
        "--density-power",
        type=NOT_NEGATIVE,
        metavar="P",
        help="Make the density of a D→K layer proportional to ((D+K)/(D·K))^P; 0 gives equal ones.  [default: 1]",
    ),
    option(
        "Sparsity",
        "--supports",
        type=READS,
        metavar="FILE",
        help="Store the weights that are not 0 in a file: a model, or an npz file with masks or matrices W1, W2 …",
    ),
)


def sparsity_of(options: dict[str, Any], sizes: str) -> dict[str, Any]:
    """The arguments of `create_model` that make a model as sparse as the options say; without any, it is dense."""
    wanted = densities(options, sizes)
    if options["supports"] is not None:
        return {"supports": load_supports(options["supports"])}
    return {"densities": wanted}


def densities(options: dict[str, Any], sizes: str) -> Items | None:
    """The densities that --densities, or --overall-density with --density-power, ask for, if any."""
    check_sparsity(options)
    if options["overall_density"] is None:
        return options["densities"]
    power = 1.0 if options["density_power"] is None else options["density_power"]
    return erdos_renyi_densities(parse_numbers(sizes, "layer size"), options["overall_density"], power)


def check_sparsity(options: dict[str, Any]) -> None:
    """Refuse options that contradict each other."""
    given = [flag(name) for name in SPARSITY if options[name] is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: expected one of them")
    if options["density_power"] is not None and options["overall_density"] is None:
        raise ValueError("--density-power needs --overall-density")
