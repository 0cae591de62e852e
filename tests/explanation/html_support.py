"""What the tests of HTML share: a strict parser, and the text of what it finds."""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

MATH = "{http://www.w3.org/1998/Math/MathML}"


def parsed(html: str) -> Element:
    """The elements of HTML that is also well-formed XML, and has nothing that acts or is loaded."""
    root = ElementTree.fromstring(f"<body>{html}</body>")
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "style", "link", "iframe", "object"}, tags
    for element in root.iter():
        assert not [name for name in element.attrib if name.startswith("on")]
        assert element.get("src", "data:").startswith("data:")
        assert "url(" not in element.get("style", "")
    return root


def text(element: Element) -> str:
    """The characters of an element, without spaces; those of formulas in their plain form."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", "".join(element.itertext())))


def formulas(element: Element) -> list[str]:
    """The formulas in an element, in order."""
    return [text(math) for math in element.iter(f"{MATH}math")]


def rows(table: Element) -> list[list[str]]:
    """The cells of a table, as they are read."""
    return [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in table.iter("tr")]


def numbers(cells: list[str]) -> np.ndarray:
    return np.array([float(cell) for cell in cells])
