"""Where a run starts from: a new model, that of `--load-weights`, or that of `--resume`; and the data that fit it."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from matgrad.callbacks import Callback
from matgrad.callbacks.methods import FROM_DENSE, create_method
from matgrad.cli.options import flag, load_data
from matgrad.datasets import Dataset, Features
from matgrad.foundation.numbers import manual_seed, preserved_generator
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.sparse.densities import erdos_renyi_rule, layer_densities
from matgrad.specifications.models import count_linear, create_model, model_specification, set_optimizers
from matgrad.specifications.parsing import parse_call, parse_numbers
from matgrad.storage.checkpoints import Checkpoint
from matgrad.storage.models import OnlyWeightsError, SavedModel, load_model, load_supports, load_weights

SPARSITY = ("densities", "supports")  # the options of which at most one is given
# the options that describe a model, and what they are called in its specification
DESCRIPTION = {"layers": "layers", "layer_sizes": "sizes", "dropouts": "dropouts"}


def is_given(name: str) -> bool:
    """Whether an option stands on the command line or, with another value than its default, in a configuration."""
    ctx = click.get_current_context()
    if (source := ctx.get_parameter_source(name)) is not ParameterSource.DEFAULT_MAP:
        return source is not ParameterSource.DEFAULT
    return any(p.name == name and ctx.params[name] != p.default for p in ctx.command.params)


def contradiction(name: str, options: dict[str, Any], found: str) -> ValueError:
    """The error for an option that contradicts the model of --load-weights."""
    given = f"{flag(name)} {options[name]} and --load-weights {options['load_weights']}"
    return ValueError(f"{given} contradict each other: the model in the file has {found}")


# -- sparsity --------------------------------------------------------------------------------------


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


# -- models ----------------------------------------------------------------------------------------


def new_model(options: dict[str, Any], sizes: str = "", *, is_dense: bool = False) -> MultilayerPerceptron:
    """The model that the options describe; without layer sizes, it has these."""
    return create_model(
        options["layers"],
        options["layer_sizes"] or sizes,
        weights=options["layer_weights"],
        dropouts=options["dropouts"],
        **({} if is_dense else sparsity_of(options)),
    )


def rebuilt(options: dict[str, Any]) -> SavedModel:
    """The model of --load-weights as its file describes it, which becomes that of the options.

    Raise if the options describe another one.
    """
    saved = load_model(options["load_weights"])
    found = model_specification(saved.model)
    given = [name for name in DESCRIPTION if is_given(name)]
    if is_given("layer_weights"):
        raise contradiction("layer_weights", options, "its weights")
    if given:
        try:
            with preserved_generator():
                made = model_specification(create_model(**found | {DESCRIPTION[x]: options[x] for x in given}))
        except ValueError as error:
            model = f"layers {found['layers']} and sizes {found['sizes']}"
            raise contradiction(given[0], options, f"{model} ({error})") from None
        for name in given:
            if made[DESCRIPTION[name]] != (own := found[DESCRIPTION[name]]):
                raise contradiction(name, options, f"{DESCRIPTION[name]} {own}")
    saved.information.pop("results", None)  # what is trained further has others
    options |= {name: found[key] for name, key in DESCRIPTION.items()}
    if all(options[name] is None for name in SPARSITY):
        options["densities"] = found.get("densities")
    return saved


def described_model(options: dict[str, Any]) -> SavedModel:
    """The model that the options describe or load, with its optimizers and its element type."""
    manual_seed(options["seed"])
    if options["load_weights"]:
        saved = rebuilt(options)
        if note := make_sparse(saved.model, options):
            click.echo(note, err=True)
    else:
        saved = SavedModel(new_model(options))
    set_optimizers(saved.model, options["optimizers"])
    saved.model.to(dtype=options["dtype"])
    return saved


def start_of(options: dict[str, Any], resumed: Checkpoint | None) -> SavedModel | None:
    """The model that training starts from; None if it is new.

    A file that has only weights, as the original library writes them, fills the model that the options describe.
    """
    if resumed is not None:
        return load_model(resumed.path)
    if options["load_weights"] is None:
        return None
    try:
        return rebuilt(options)
    except OnlyWeightsError:
        return None


def starting_model(
    options: dict[str, Any], saved: SavedModel | None, data: Dataset, is_resumed: bool
) -> tuple[MultilayerPerceptron, str | None]:
    """The model to train, and a line that says how it was pruned, if it was."""
    is_loaded, is_dense = options["load_weights"] is not None and not is_resumed, starts_dense(options)
    if saved is None:
        M = new_model(options, default_sizes(options["layers"], data), is_dense=is_loaded or is_dense)
        if is_loaded:
            load_weights(M, options["load_weights"])
    else:
        M = saved.model
    for name, found, expected in (
        ("features", M.layers[0].input_size, data.input_size),
        ("outputs", M.layers[-1].output_size, data.output_size),
    ):
        if found != expected:
            raise ValueError(f"the model has {found} {name}, but the data {data.name} needs {expected}")
    return M, make_sparse(M, options) if is_loaded and not is_dense else None


def default_sizes(layers: str, data: Dataset) -> str:
    """The number of features, 128, then 64 for further hidden layers, and the number of outputs."""
    hidden = count_linear(layers) - 1
    return ";".join(map(str, [data.input_size, *([128] + [64] * hidden)[:hidden], data.output_size]))


def make_sparse(M: MultilayerPerceptron, options: dict[str, Any]) -> str | None:
    """Prune a model that has the weights of a file as the options say; a line that says so, if weights were dropped."""
    ((name, value),) = sparsity_of(options).items()
    if value is None:
        return None
    layers = M.linear_layers()
    before, found = [x.nnz for x in layers], model_specification(M).get("densities", "1")
    rule, how = None, f"to the supports in {options['supports']}"
    try:
        if name == "supports":
            M.set_supports(value)
        else:
            rule, how = erdos_renyi_rule(value), "by magnitude"
            sizes = [x.input_size * x.output_size for x in layers]
            if [round(d * n) for d, n in zip(densities_for(M, value), sizes, strict=False)] == before:
                return None  # it has these densities
            if rule is not None and rule.power != 1:
                raise ValueError("pruning has one threshold, not a power")
            M.prune(None if rule else value, overall=rule.density if rule else None)
    except ValueError as error:
        raise contradiction(name, options, f"densities {found} ({error})") from None
    after = [x.nnz for x in layers]
    return f"pruned {how}: {sum(after)} of {sum(before)} weights stay" if after != before else None


# -- data ------------------------------------------------------------------------------------------


def load_data_for(saved: SavedModel | None, options: dict[str, Any]) -> Dataset:
    """The data set that the options name, with the features, and for the task, of a saved model."""
    if saved is None:
        return load_data(options)
    M, task = saved.model, "regression" if class_names(saved) is None else "classification"
    is_known = "classes" in saved.information or M.target_normalization is not None
    is_chosen = options.get("features") is not None
    indices = {"first_index": saved.information.get("first_index"), "features": M.layers[0].input_size}
    data = load_data(options, None if is_chosen else M.features, task if is_known else None, **indices)
    if is_chosen and M.features is not None and _inputs(data.features) != _inputs(M.features):
        raise contradiction("features", options, f"the features {', '.join(map(str, M.features.columns))}")
    return data


def _inputs(features: Features | None) -> list[tuple[str | None, Any]]:
    """The names and categories of the columns that are the inputs of a model."""
    return [] if features is None else [(column.name, column.categories) for column in features.columns]


def has_task_of(saved: SavedModel | None, data: Dataset) -> bool:
    """Whether a saved model is known to have been trained, as the data are, for classes or for a regression."""
    known = {} if saved is None else saved.information
    return "classes" in known and (known["classes"] is None) == (data.classes is None)


def check_normalization(options: dict[str, Any], saved: SavedModel, data: Dataset) -> None:
    """Raise if options normalize otherwise than the model does; how it normalizes becomes that of the options."""
    if (kind := saved.information.get("normalize")) is not None:
        if is_given("normalize") and options["normalize"] != kind:
            raise contradiction("normalize", options, f"the normalization {kind}")
        options["normalize"] = kind
    if data.classes is None and has_task_of(saved, data):
        targets = saved.model.target_normalization
        kind = "none" if targets is None else targets.kind
        if options["normalize_targets"] not in (None, kind):
            raise contradiction("normalize_targets", options, f"the normalization {kind} of its targets")
        options["normalize_targets"] = kind


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
