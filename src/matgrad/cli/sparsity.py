"""Options that make a model sparse, and that train it sparse."""

from __future__ import annotations

from typing import Any

from matgrad.callbacks import Callback
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.cli.files import READS
from matgrad.cli.groups import all_of, option
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_rule, layer_densities
from matgrad.specifications.models import model_specification
from matgrad.specifications.parsing import parse_call, parse_numbers
from matgrad.storage.models import load_supports

SPARSITY = ("densities", "supports")  # of which at most one is given

density_options = all_of(
    option(
        "Sparsity",
        "--densities",
        metavar="LIST",
        help="Densities of the linear layers, or ER(0.05): Erdős–Rényi. Loaded weights are pruned.",
    ),
    option(
        "Sparsity", "--supports", type=READS, metavar="FILE", help="Connect only what is not 0 in a file of W1, W2 …"
    ),
)

sparse_training_option = option(
    "Sparsity",
    "--sparse-training",
    metavar="METHOD",
    help="SET, RigL(0.3, every=100, decay=cosine), SNIP, GMP, or your own rules: "
    "Topology(Magnitude(0.2), grow=Random, weights=Xavier, every=100).",
)


def check_sparsity(options: dict[str, Any]) -> None:
    """Raise if options contradict each other."""
    if options["densities"] is not None and options["supports"] is not None:
        raise ValueError("--densities and --supports: expected one of them")


def sparsity_of(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `create_model` that make a model as sparse as the options say; without any, it is dense."""
    check_sparsity(options)
    if options["supports"] is not None:
        return {"supports": load_supports(options["supports"])}
    return {"densities": options["densities"]}


def starts_dense(options: dict[str, Any]) -> bool:
    """Whether the method of sparse training starts from a dense model."""
    specification = options["sparse_training"]
    return specification is not None and parse_call(specification).name in FROM_DENSE


def sparse_training(options: dict[str, Any], M: MultilayerPerceptron) -> Callback | None:
    """The method of sparse training that the options describe, if any; one that starts dense reaches the densities."""
    specification, densities = options["sparse_training"], options["densities"]
    if specification is None:
        return None
    if not starts_dense(options):
        return create_method(specification)
    if options["supports"] is not None:
        raise ValueError(f"--supports and --sparse-training {specification}: it starts from a dense model")
    call = parse_call(specification)
    if bool(call.arguments or "density" in call.keywords) == (densities is not None):
        expected = f"expected --densities or {call.name}(density), and only one of them"
        raise ValueError(f"--sparse-training {specification}: {expected}")
    if densities is None:
        return create_method(specification)
    rule = erdos_renyi_rule(densities)
    if rule is not None and call.name == "SNIP":
        return create_method(specification, density=rule.density)  # which it divides among the layers itself
    sizes = parse_numbers(model_specification(M)["sizes"], "layer size")
    return create_method(specification, density=layer_densities(densities, sizes))
