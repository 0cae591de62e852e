"""The model that a command starts with: a new one, that of `--load-weights`, or that of `--resume`."""

from __future__ import annotations

from typing import Any

import matgrad as mg
from matgrad.callbacks.methods import create_method, starts_dense
from matgrad.cli.commands import echo
from matgrad.cli.options import contradiction, is_given
from matgrad.foundation.numbers import own_generator
from matgrad.layers.weights import with_densities
from matgrad.loss_functions import create_loss, default_loss
from matgrad.sparse.densities import erdos_renyi_rule
from matgrad.specifications.models import model_specification, set_optimizers
from matgrad.specifications.parsing import parse_call
from matgrad.storage.models import OnlyWeightsError, load_supports

# the options that describe a model, and what they are called in its specification
DESCRIPTION = {"layers": "layers", "layer_sizes": "sizes", "dropouts": "dropouts"}


def new_model(options: dict[str, Any], sizes: str = "", *, is_dense: bool = False) -> mg.MultilayerPerceptron:
    """The model that the options describe; without layer sizes, it has these."""
    names = {"layers": options["layers"], "sizes": options["layer_sizes"] or sizes, "dropouts": options["dropouts"]}
    return mg.create_model(**names, weights=options["layer_weights"], **({} if is_dense else sparsity_of(options)))


def known_model(options: dict[str, Any]) -> mg.MultilayerPerceptron | None:
    """The model of --load-weights as its file describes it, which becomes that of the options.

    None without it, or for a file that has only weights, as the original writes it. Raise if the options describe
    another model.
    """
    if options["load_weights"] is None:
        return None
    try:
        M = mg.load(options["load_weights"])
    except OnlyWeightsError:
        return None
    found = model_specification(M)
    if is_given("layer_weights"):
        raise contradiction("layer_weights", options, "its weights")
    for name, key in DESCRIPTION.items():
        if is_given(name):
            try:
                with own_generator():
                    described = model_specification(mg.create_model(**found | {key: options[name]}))
            except ValueError as error:
                raise contradiction(name, options, f"{key} {found[key]} ({error})") from None
            if described[key] != found[key]:
                raise contradiction(name, options, f"{key} {found[key]}")
        options[name] = found[key]
    if options["densities"] is None and options["supports"] is None:
        options["densities"] = found.get("densities")
    return M


def starting_model(
    options: dict[str, Any], known: mg.MultilayerPerceptron | None, sizes: str = ""
) -> tuple[mg.MultilayerPerceptron, str | None]:
    """The known model or, without one, a new one, both as sparse as the options say; and a line on what was pruned."""
    is_loaded, is_dense = options["load_weights"] is not None, starts_dense(options.get("sparse_training"))
    M = new_model(options, sizes, is_dense=is_loaded or is_dense) if known is None else known
    if is_loaded and known is None:
        mg.load_weights(M, options["load_weights"])
    return M, make_sparse(M, options) if is_loaded and not is_dense else None


def described_model(options: dict[str, Any]) -> mg.MultilayerPerceptron:
    """The model that the options describe or load, with its optimizers and its element type."""
    mg.manual_seed(options["seed"])
    M, note = starting_model(options, known_model(options))
    if note is not None:
        echo(note, err=True)
    set_optimizers(M, options["optimizers"])
    return M.to(dtype=options["dtype"])


def chosen_loss(options: dict[str, Any], M: mg.MultilayerPerceptron) -> mg.LossFunction:
    """The loss that the options name, or the one that M was trained with, or that fits it."""
    return create_loss(options["loss"]) if options["loss"] else default_loss(M)


# -- sparsity --------------------------------------------------------------------------------------


def sparsity_of(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `create_model` that make a model as sparse as the options say; without any, it is dense."""
    if options["supports"] is None:
        return {"densities": options["densities"]}
    if options["densities"] is not None:
        raise ValueError("--densities and --supports: expected one of them")
    return {"supports": load_supports(options["supports"])}


def make_sparse(M: mg.MultilayerPerceptron, options: dict[str, Any]) -> str | None:
    """Prune a model that has the weights of a file as the options say; a line that says so, if weights were dropped."""
    ((name, value),) = sparsity_of(options).items()
    if value is None:
        return None
    layers = M.linear_layers()
    before, found = [x.nnz for x in layers], model_specification(M).get("densities", "1")
    try:
        if name == "supports":
            M.set_supports(value)
        else:
            wanted = [round(d * x.input_size * x.output_size) for x, d in with_densities(layers, value)]
            if wanted == before:
                return None  # it has these densities
            rule = erdos_renyi_rule(value)
            if rule is not None and rule.power != 1:
                raise ValueError("pruning has one threshold, not a power")
            M.prune(None if rule else value, overall=rule.density if rule else None)
    except ValueError as error:
        raise contradiction(name, options, f"densities {found} ({error})") from None
    if (after := [x.nnz for x in layers]) == before:
        return None
    how = "by magnitude" if name == "densities" else f"to the supports in {options['supports']}"
    return f"pruned {how}: {sum(after)} of {sum(before)} weights stay"


def sparse_training(options: dict[str, Any], M: mg.MultilayerPerceptron) -> mg.Callback | None:
    """The method of sparse training that the options describe, if any; one that starts dense reaches the densities."""
    specification, densities = options["sparse_training"], options["densities"]
    if not starts_dense(specification):
        return None if specification is None else create_method(specification)
    call, what = parse_call(specification), f"--sparse-training {specification}"
    if options["supports"] is not None:
        raise ValueError(f"--supports and {what}: it starts from a dense model")
    if bool(call.arguments or "density" in call.keywords) == (densities is not None):
        raise ValueError(f"{what}: expected --densities or {call.name}(density), and only one of them")
    if densities is None:
        return create_method(specification)
    rule = erdos_renyi_rule(densities) if call.name == "SNIP" else None  # which divides it among the layers itself
    own = [d for _, d in with_densities(M.linear_layers(), densities)]
    return create_method(specification, density=rule.density if rule else own)
