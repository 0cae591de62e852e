"""Models from files: what `--load-weights` rebuilds, and the options that may stand beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from matgrad.cli.options import load_data
from matgrad.cli.sparsity import SPARSITY, check_sparsity
from matgrad.cli.table_options import flag
from matgrad.datasets import Dataset, Features, Normalization
from matgrad.foundation.numbers import preserved_generator
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_rule, layer_densities
from matgrad.specifications.models import create_model, model_specification
from matgrad.specifications.parsing import parse_numbers
from matgrad.storage.models import OnlyWeightsError, SavedModel, load_model
from matgrad.storage.supports import load_supports

# the options that describe a model, and what they are called in its specification
DESCRIPTION = {
    "layers": "layers",
    "layer_sizes": "sizes",
    "dropouts": "dropouts",
}


def is_given(name: str) -> bool:
    """Whether an option stands on the command line or, with another value than its default, in a configuration."""
    ctx = click.get_current_context()
    if (source := ctx.get_parameter_source(name)) is not ParameterSource.DEFAULT_MAP:
        return source is not ParameterSource.DEFAULT
    return any(p.name == name and ctx.params[name] != p.default for p in ctx.command.params)


def rebuilt(options: dict[str, Any]) -> SavedModel:
    """The model of --load-weights as its file describes it; raises if options describe another one."""
    path: Path = options["load_weights"]
    saved = load_model(path)
    if is_given("layer_weights"):
        raise ValueError(f"--layer-weights and --load-weights: the weights are those of {path}")
    found = model_specification(saved.model)
    given = [name for name in DESCRIPTION if is_given(name)]
    if given:
        expected = _described(options, given, found)
        for name in given:
            key = DESCRIPTION[name]
            if expected[key] != found[key]:
                raise contradiction(name, options, f"{key} {found[key]}")
    saved.information.pop("results", None)  # what is trained further has others
    return saved


def start_of(options: dict[str, Any]) -> SavedModel | None:
    """The model that training starts from, if --load-weights names one; its description becomes that of the options.

    A file that has only weights, as the original library writes them, fills the model that the options describe.
    """
    if options["load_weights"] is None:
        return None
    try:
        saved = rebuilt(options)
    except OnlyWeightsError:
        return None
    found = model_specification(saved.model)
    options |= {name: found[key] for name, key in DESCRIPTION.items()}
    if all(options[name] is None for name in SPARSITY):
        options["densities"] = found.get("densities")
    return saved


def make_sparse(M: MultilayerPerceptron, options: dict[str, Any]) -> str | None:
    """Prune a model that has the weights of a file as the options say; a line that says so, if weights were dropped."""
    check_sparsity(options)
    given = next((name for name in SPARSITY if options[name] is not None), None)
    rule = erdos_renyi_rule(options["densities"])
    if given is None or (rule is not None and _is_erdos_renyi(M, options["densities"])):
        return None
    if rule is not None and rule.power != 1:
        raise ValueError(
            f"--densities {options['densities']} and --load-weights: pruning has one threshold, not a power"
        )
    before, found = _stored(M), model_specification(M).get("densities", "1")
    try:
        if given == "supports":
            M.set_supports(load_supports(options["supports"]))
        elif rule is not None:
            M.prune(overall=rule.density)
        else:
            M.prune(options["densities"])
    except ValueError as error:
        raise contradiction(given, options, f"densities {found} ({error})") from None
    how = f"to the supports in {options['supports']}" if given == "supports" else "by magnitude"
    return f"pruned {how}: {sum(_stored(M))} of {sum(before)} weights stay" if _stored(M) != before else None


def _is_erdos_renyi(M: MultilayerPerceptron, densities: str) -> bool:
    """Whether M has the densities that ER(density) gives a new model."""
    wanted = layer_densities(densities, parse_numbers(model_specification(M)["sizes"], "layer size"))
    sizes = [x.input_size * x.output_size for x in M.linear_layers()]
    return [round(d * n) for d, n in zip(wanted, sizes, strict=False)] == _stored(M)


def _stored(M: MultilayerPerceptron) -> list[int]:
    """The numbers of weights that the linear layers store."""
    return [layer.nnz for layer in M.linear_layers()]


def load_data_for(saved: SavedModel, options: dict[str, Any]) -> Dataset:
    """The data set that the options name, with the features, and for the task, of the model."""
    M, task = saved.model, "regression" if class_names(saved) is None else "classification"
    is_known = "classes" in saved.information or M.target_normalization is not None
    is_chosen = options.get("features") is not None
    known = {"first_index": saved.information.get("first_index"), "features": M.layers[0].input_size}
    data = load_data(options, options["seed"], None if is_chosen else M.features, task if is_known else None, known)
    if is_chosen and M.features is not None and _inputs(data.features) != _inputs(M.features):
        raise contradiction("features", options, f"the features {', '.join(map(str, M.features.columns))}")
    return data


def _inputs(features: Features | None) -> list[tuple[str | None, Any]]:
    """The names and categories of the columns that are the inputs of a model."""
    return [] if features is None else [(column.name, column.categories) for column in features.columns]


def class_names(saved: SavedModel) -> list[str] | None:
    """The names of the model's classes, or their numbers if they have no names; None for a regression.

    A model that was not saved by `matgrad train`, and does not normalize its targets, has one class per output.
    """
    if saved.model.target_normalization is not None:
        return None
    outputs = saved.model.layers[-1].output_size
    classes = saved.information.get("classes", max(outputs, 2))
    if classes is None:
        return None
    names = saved.information.get("class_names") or [str(k) for k in range(classes)]
    return [str(name) for name in names]


def normalization_of(options: dict[str, Any], saved: SavedModel | None) -> str | Normalization:
    """How the inputs are normalized: as those of the model in the file were, else as the options say."""
    kind = None if saved is None else saved.information.get("normalize")
    if saved is None or kind is None:
        return options["normalize"]
    if is_given("normalize") and options["normalize"] != kind:
        raise contradiction("normalize", options, f"the normalization {kind}")
    options["normalize"] = kind
    return saved.model.normalization or "none"


def target_normalization_of(options: dict[str, Any], saved: SavedModel) -> Normalization | None:
    """How the targets of a regression are normalized: as those of the model in the file were."""
    normalization = saved.model.target_normalization
    kind = "none" if normalization is None else normalization.kind
    if options["normalize_targets"] not in (None, kind):
        raise contradiction("normalize_targets", options, f"the normalization {kind} of its targets")
    return normalization


def contradiction(name: str, options: dict[str, Any], found: str) -> ValueError:
    """The error for an option that contradicts the model of --load-weights."""
    given = f"{flag(name)} {options[name]} and --load-weights {options['load_weights']}"
    return ValueError(f"{given} contradict each other: the model in the file has {found}")


def _described(options: dict[str, Any], given: list[str], found: dict[str, str]) -> dict[str, str]:
    """The specification of the model that the given options describe, and the file where they say nothing."""
    layers, sizes, dropouts = (
        options[name] if name in given else found[DESCRIPTION[name]] for name in ("layers", "layer_sizes", "dropouts")
    )
    try:
        with preserved_generator():
            made = create_model(layers, sizes, dropouts=dropouts, densities=found.get("densities"))
            return model_specification(made)
    except ValueError as error:
        model = f"layers {found['layers']} and sizes {found['sizes']}"
        raise contradiction(given[0], options, f"{model} ({error})") from None
