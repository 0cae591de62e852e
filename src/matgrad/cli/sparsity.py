"""The options that make a model sparse, and that train it sparse: what they mean together."""

from __future__ import annotations

from typing import Any

from matgrad.callbacks import Callback
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_rule, layer_densities
from matgrad.specifications.models import model_specification
from matgrad.specifications.parsing import parse_call, parse_numbers
from matgrad.storage.models import load_supports

SPARSITY = ("densities", "supports")  # of which at most one is given


def sparsity_of(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `create_model` that make a model as sparse as the options say; without any, it is dense."""
    if options["supports"] is None:
        return {"densities": options["densities"]}
    if options["densities"] is not None:
        raise ValueError("--densities and --supports: expected one of them")
    return {"supports": load_supports(options["supports"])}


def densities_for(M: MultilayerPerceptron, densities: str) -> list[float]:
    """The densities of the linear layers of M that ``0.1;0.2`` or ``ER(0.1)`` stands for."""
    return layer_densities(densities, parse_numbers(model_specification(M)["sizes"], "layer size"))


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
    is_divided = rule is not None and call.name == "SNIP"  # which divides it among the layers itself
    return create_method(specification, density=rule.density if rule and is_divided else densities_for(M, densities))
