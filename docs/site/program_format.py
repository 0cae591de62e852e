"""The tables of docs/program-format.md, by the rows of operations and src/matgrad/program/interpreter.py.

python docs/site/program_format.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from matgrad.program.operations import OPERATIONS, Notation, Operation

ROOT = Path(__file__).parents[2]
PAGE, INTERPRETER = ROOT / "docs/program-format.md", ROOT / "src/matgrad/program/interpreter.py"
KINDS = {
    "source": "Given",
    "view": "Views, which have no memory of their own: repeats, transposes and rows cut in another way",
    "elementwise": "Element by element, over any operand of the shape of the result",
    "reduction": "Reductions",
    "product": "Products",
    "sparse": "With a support S: w has the elements of a sparse matrix",
    "other": "Others",
    "collective": "Of several ranks: X is that of this rank",
}
GIVEN = {
    "input": "the matrix or scalar `name` of the caller",
    "number": "`number`, or the size of that name",
    "support": "the K×D support `name` with nnz positions",
}


def tree() -> ast.Module:
    """The interpreter."""
    return ast.parse(INTERPRETER.read_text())


def code(name: str) -> str:
    """A function of the interpreter."""
    text = INTERPRETER.read_text()
    (found,) = (n for n in tree().body if isinstance(n, ast.FunctionDef) and n.name == name)
    return ast.get_source_segment(text, found) or ""


def lines() -> dict[str, tuple[list[str], str]]:
    """What each operation is called with, and what it computes, in the interpreter."""
    tables = (n.value for n in tree().body if isinstance(n, ast.AnnAssign))
    (table,) = (x for x in tables if isinstance(x, ast.Dict))
    found = {}
    for key, function in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(function, ast.Lambda)
        _, *operands = (x.arg for x in function.args.args)
        found[str(key.value)] = operands, ast.unparse(function.body)
    return found


def described(row: Operation) -> str:
    """A line of a table."""
    operands, numpy = lines().get(row.name, ([], ""))
    places = row.in_place if row.kind != "elementwise" else ()
    overwritten = " or ".join(operands[k] if operands else "X" for k in places)
    facts = [row.dtypes if row.dtypes != "float" else "", f"over {overwritten}" if overwritten else ""]
    called = f"{row.name}({', '.join(operands)})" if operands else row.name
    meaning = f"`{numpy}`" if numpy else GIVEN.get(row.name, written(row))
    return f"| `{called}` | `{row.rule}` | {', '.join(filter(None, facts))} | {meaning} |"


def written(row: Operation) -> str:
    """How an operation of ranks is written."""
    if not isinstance(row.latex, Notation):
        return ""
    return "$" + re.sub(r"\{0:\w+\}", "X", row.latex.template).replace("{{", "{").replace("}}", "}") + "$"


def operations() -> Iterator[str]:
    """The tables, kind by kind."""
    for kind, title in KINDS.items():
        rows = "\n".join(described(row) for row in OPERATIONS.values() if row.kind == kind)
        yield f"**{title}**\n\n| operation | shapes | details | in NumPy |\n| --- | --- | --- | --- |\n{rows}"


def page() -> str:
    """The page, with what follows from rows and interpreter between its marks."""
    text = PAGE.read_text()
    made = {"run": f'```python title="interpreter.py"\n{code("run")}\n```', "operations": "\n\n".join(operations())}
    for name, part in made.items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{before}<!-- {name} -->\n{part}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
