"""docs/components.md has everything that specifications can name, with its defaults and its equation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from matgrad.activation_functions import ACTIVATIONS
from matgrad.learning_rate import SCHEDULERS
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS
from matgrad.specifications.models import LAYERS
from matgrad.specifications.parsing import signature_of
from matgrad.specifications.shaped import SHAPED
from matgrad.weight_initializers import DENSE, INITIALIZERS

PAGE = (Path(__file__).parents[1] / "docs" / "components.md").read_text()
REGISTRIES = {
    "Layers": LAYERS,
    "Activation functions": ACTIVATIONS,
    "Losses": LOSSES,
    "Optimizers": OPTIMIZERS,
    "Schedules": SCHEDULERS,
    "Initial weights": {name: f for name, f in INITIALIZERS.items() if name not in DENSE},
}


def test_the_page_has_all_layers_of_shapes():
    section = PAGE.partition("## Layers of images and tokens\n")[2].partition("\n## ")[0]
    assert {name for name in SHAPED if f"`{name}" not in section} == set()


GIVEN = {"input_size", "output_size", "x", "Dx", "support", "renew"}  # not by the specification of the component


def rows(title: str) -> list[list[str]]:
    """The cells of the table under a title, without its head."""
    section = re.split(r"^## ", PAGE.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def usage(name: str, component: Callable) -> str:
    """The name with the arguments of its specification and their defaults."""
    is_linear = "support" in signature_of(component).parameters
    chosen = [
        p
        for p in signature_of(component).parameters.values()
        if p.name not in GIVEN and not (is_linear and p.name == "dropout")
    ]
    arguments = (p.name if p.default is p.empty else f"{p.name}={p.default}" for p in chosen)
    return f"{name}({', '.join(arguments)})" if chosen else name


@pytest.mark.parametrize("title", REGISTRIES)
def test_a_table_has_all_components_and_nothing_else(title: str):
    expected = [
        [f"`{usage(name, component)}`", (inspect.getdoc(component) or "").splitlines()[0].removesuffix(".")]
        for name, component in REGISTRIES[title].items()
    ]
    assert rows(title) == expected
