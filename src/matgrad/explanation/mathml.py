"""LaTeX as MathML, which browsers show without a script."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal


@lru_cache(maxsize=4096)
def mathml(latex: str, display: Literal["inline", "block"] = "inline") -> str:
    """The LaTeX of an equation, as this package writes it, as a MathML element ``<math>``."""
    from latex2mathml.converter import convert

    latex = latex.replace("{aligned}", "{split}")
    latex = re.sub(r"\\(?:operatorname|mathrm)\{((?:[^{}\\]|\\[ _&%#$])+)\}", _word, latex)
    result = convert(latex, display=display)
    result = re.sub(r"<mi>&#x02032;</mi>", "<mo>&#x02032;</mo>", result)
    return re.sub(r'columnalign="(\w+)"', r'style="text-align: \1"', result)  # MathML Core leaves alignment to CSS


def _word(found: re.Match[str]) -> str:
    """A word as one piece of upright text: a hyphen in it is no minus sign."""
    return rf"\text{{{found[1].replace(chr(92) + ' ', ' ')}}}"
