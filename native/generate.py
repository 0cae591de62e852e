"""Writes the operations of a program as C++, from their rows in matgrad/program/operations.py.

    python generate.py ../src/matgrad/program build/generated/matgrad

operation_list.h has them as an enumeration and a table, operation_lines.h what they do with elements. This script reads
the rows without running them, so it needs the standard library alone.
"""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LETTERS = {"nnz": "e"}  # a size is one letter there
NONE = 99


class Row(NamedTuple):
    """What the core needs of a row."""

    name: str
    rule: str
    kind: str
    scalar: str
    dtypes: str
    in_place: int


def rows(source: Path) -> Iterator[Row]:
    """The rows of the operations, in order."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_ROWS":
            for call in node.value.elts:  # type: ignore[attr-defined]
                yield _row(call)


def _row(call: ast.Call) -> Row:
    given = {k: x.value for k, x in enumerate(call.args) if isinstance(x, ast.Constant)}
    named: dict[str | None, Any] = {x.arg: x.value for x in call.keywords}
    dtypes = ast.literal_eval(named["dtypes"]) if "dtypes" in named else given.get(5, "float")
    in_place = ast.literal_eval(named["in_place"])[0] if "in_place" in named else NONE
    function = ast.unparse(call.func)
    if function == "_function":
        given |= {1: "* -> *", 2: f"{given[0]}(x)"}
    kind, scalar = (given[2], "") if function == "Operation" else ("elementwise", given[2])
    return Row(given[0], given[1], kind, scalar, "floats" if dtypes == "float" else dtypes, in_place)


def patterns(rule: str) -> str:
    """The shapes of a rule in C++: strings in which every size is a letter, and a product has brackets."""
    operands, _, result = rule.partition("->")
    shapes = [*(operands.split(",") if operands.strip() else ()), result]
    letters = ("".join(map(_letters, shape.replace("()", "").split())) for shape in shapes)
    return "{" + ", ".join(f'"{x}"' for x in letters) + "}"


def _letters(name: str) -> str:
    found = "".join(LETTERS.get(x, x) for x in name.split("·"))
    return f"[{found}]" if "·" in name else found


MADE = "// Made by native/generate.py from matgrad/program/operations.py."


def headers(folder: Path) -> dict[str, str]:
    """The two headers, by name."""
    found = sorted(rows(folder / "operations.py"), key=lambda row: row.kind != "elementwise")
    lines = [row for row in found if row.scalar]
    language = runpy.run_path(str(folder / "scalars.py"))

    class Element(language["ScalarWriter"]):  # type: ignore[misc]
        call, power = "element::{function}({argument})", "element::power({base}, {exponent})"
        step, number = "element::step<T>({argument})", "T({number})"

    class Library(Element):  # type: ignore[misc]
        call, power = "std::{function}({argument})", "library_power({base}, {exponent})"
        step = "T({argument} >= 0 ? 1 : 0)"

    rules = {row: ", ".join(map(patterns, row.rule.split(" or "))) for row in found}
    rows_text = [
        f'    {{"{x.name}", Kind::{x.kind}, Dtypes::{x.dtypes}, {x.in_place}, {{{rules[x]}}}}},' for x in found
    ]
    scalars = [f"        case Op::{row.name}: return {Library()(row.scalar)};" for row in lines]
    elements = [f"    if constexpr (operation == Op::{row.name}) return {Element()(row.scalar)};" for row in lines]
    arithmetic = (row.name for row in lines if not language["functions_in"](row.scalar) and "**" not in row.scalar)
    return {
        "operation_list.h": LIST.format(
            made=MADE,
            names=",\n    ".join(row.name for row in found),
            count=len(lines),
            none=NONE,
            rows="\n".join(rows_text),
            arithmetic=" ||\n           ".join(f"operation == Op::{x}" for x in arithmetic),
            scalars="\n".join(scalars),
        ),
        "operation_lines.h": LINES.format(made=MADE, elements="\n".join(elements)),
    }


LIST = """\
{made}
#pragma once

#include <cmath>

namespace matgrad {{

// Those on elements come first.
enum class Op {{
    {names}
}};
inline constexpr int elementwise_count = {count};

// How a value is produced: it is given, it is another view of an operand's memory, or it is computed, by all ranks
// together if it is a collective.
enum class Kind {{ source, view, elementwise, reduction, product, sparse, other, collective }};

// The dtypes of operands and result: floats; floats or counters, which are integers; counters for a result of floats.
enum class Dtypes {{ floats, any, counts }};

// Shapes: "mn" of a matrix, "" of a scalar, "*" of either, "KDe" of a support; a letter is the same size everywhere in
// a rule, and "[np]" is the product of two. A rule has those of the operands, then that of the result; if there are
// two, either will do.
struct Row {{
    const char* name;
    Kind kind;
    Dtypes dtypes;
    int in_place;  // the operand whose memory a product may take over, and a collective must; {none} is none
    const char* rules[2][8];
}};
inline constexpr Row kOperations[] = {{
{rows}
}};
inline constexpr const Row& row_of(Op operation) {{ return kOperations[static_cast<int>(operation)]; }}

// Whether an operation is arithmetic, which also works on vectors.
constexpr bool is_arithmetic(Op operation) {{
    return {arithmetic};
}}

// x^c, where 0.5 is the square root, also of -inf
template <class T>
T library_power(T x, T c) {{
    return c == T(0.5) ? std::sqrt(x) : std::pow(x, c);
}}

// f(x, y, c) for every operation, by the C++ library
template <class T>
T library_value(Op operation, T x, [[maybe_unused]] T y, [[maybe_unused]] T c) {{
    switch (operation) {{
{scalars}
        default: return x;
    }}
}}

}}  // namespace matgrad
"""
LINES = """\
{made}
#pragma once

#include "matgrad/operation_list.h"

namespace matgrad {{
namespace {{

// f(x, y, c) for every operation: of elements or, if it is arithmetic, of vectors
template <class T, Op operation, class V>
inline V value([[maybe_unused]] V x, [[maybe_unused]] V y, [[maybe_unused]] T c) {{
{elements}
}}

}}  // namespace
}}  // namespace matgrad
"""


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    for name, text in headers(Path(sys.argv[1])).items():
        (target / name).write_text(text, encoding="utf-8")
