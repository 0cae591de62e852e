"""Imports point one way: what stands higher in this list imports what stands lower, never the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import matgrad

SOURCE = Path(matgrad.__file__).parent
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")}

# from the foundation upwards; a room, or a module of one that stands apart from the rest of it
ORDER = [
    ("foundation",),
    ("index_notation",),
    ("specifications.parsing", "specifications.origins"),
    ("engines.cuda.functions", "engines.cuda.index", "engines.cuda.sparse"),  # kernels, for equations one by one too
    ("backends",),
    ("sparse",),
    ("matrix_operations",),
    ("datasets",),
    ("activation_functions", "softmax_functions", "weight_initializers", "learning_rate"),
    ("loss_functions", "optimizers"),
    ("layers",),
    ("multilayer_perceptron",),
    ("distributed.group",),
    ("program",),
    ("inspection",),
    ("distributed",),
    ("engines",),
    ("evaluation",),
    ("specifications.models", "specifications.shaped"),
    ("storage",),
    ("callbacks",),
    ("training",),
    ("specifications",),
    ("exchange", "sklearn"),
    ("runs",),
    ("judges",),
    ("certificates",),
    ("writers",),
    ("derivation",),
    ("explanation",),
    ("cli",),
]


def rank(module: str) -> int:
    """The place of a module in the list; the longest name that fits counts."""
    places = {name: i for i, names in enumerate(ORDER) for name in names}
    parts = module.split(".")
    prefixes = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((places[p] for p in prefixes if p in places), len(ORDER))  # the package itself is above all


def is_for_types(node: ast.AST) -> bool:
    """Whether the node is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(node: ast.AST) -> Iterator[str]:
    """The modules of the package that a part of a file imports, also inside functions, but not for types alone."""
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            for other in child.orelse:
                yield from imported(other)
            continue
        if isinstance(child, ast.ImportFrom) and child.module and child.module.split(".")[0] == "matgrad":
            names = [alias.name for alias in child.names]
            inner = child.module.partition(".")[2]
            yield from ([inner] if inner else names)
        if isinstance(child, ast.Import):
            yield from (a.name.partition(".")[2] for a in child.names if a.name.startswith("matgrad."))
        yield from imported(child)


def test_imports_point_one_way():
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if module in ("__init__", "__main__"):
            continue
        for other in imported(ast.parse(path.read_text())):
            if rank(other) > rank(module) and other != "_native":
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_the_root_holds_the_chapters_of_the_paper():
    chapters = {
        *("matrix_operations", "activation_functions", "softmax_functions", "loss_functions", "weight_initializers"),
        *("optimizers", "learning_rate", "multilayer_perceptron"),
    }
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "__main__", *chapters}
    assert ROOMS == {name.partition(".")[0] for names in ORDER for name in names} - chapters


def test_every_room_says_what_it_holds():
    for path in SOURCE.glob("*/__init__.py"):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, path
        assert len(docstring) > 20, path


def test_the_page_on_architecture_names_every_room():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    assert [room for room in ROOMS if f"`{room}/`" not in page] == []
