"""LaTeX as MathML, which browsers show without a script."""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape
from typing import Literal
from xml.etree.ElementTree import tostring


@lru_cache(maxsize=4096)
def mathml(latex: str, display: Literal["inline", "block"] = "inline") -> str:
    """The LaTeX of an equation, as this package writes it, as a MathML element ``<math>``."""
    from latex2mathml.converter import convert_to_element

    latex = latex.replace("{aligned}", "{split}")
    latex = re.sub(r"\\(?:operatorname|mathrm)\{((?:[^{}\\]|\\[ _&%#$])+)\}", _word, latex)
    root = convert_to_element(latex, display=display)
    for element in root.iter():
        element.text = unescape(element.text or "")  # it has entities for symbols; what is left is escaped below
        if (element.tag, element.text) == ("mi", "′"):
            element.tag = "mo"
        if align := element.attrib.pop("columnalign", ""):
            element.set("style", f"text-align: {align}")  # MathML Core leaves alignment to CSS
    return tostring(root, encoding="unicode")


def _word(found: re.Match[str]) -> str:
    """A word as one piece of upright text: a hyphen in it is no minus sign."""
    return rf"\text{{{found[1].replace(chr(92) + ' ', ' ')}}}"
