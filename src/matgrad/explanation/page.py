"""The page of `matgrad explain --html`: one file, without a network, that runs the recorded training step."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

_ASSETS = files("matgrad.explanation") / "assets"
_SCRIPTS = ("program", "arithmetic", "expressions", "notation", "matrix", "state", "stage", "network", "view")


def page(data: Mapping[str, Any]) -> str:
    """The page as HTML, from `page_data(explanation)`."""
    return Template(_text("page.html")).substitute(
        title=escape(data["title"]),
        style=_text("page.css"),
        font=base64.b64encode((_ASSETS / "stix-two-math.woff2").read_bytes()).decode(),
        data=_embedded(data),
        script="\n".join(_text(f"{name}.js") for name in _SCRIPTS),
    )


def _text(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _embedded(data: Mapping[str, Any]) -> str:
    """The data as JSON inside a script element, where < would begin a tag."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c")


def _finite(x: Any) -> Any:
    """x with the strings that JavaScript reads as numbers for those that JSON does not have."""
    if isinstance(x, Mapping):
        return {key: _finite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    if isinstance(x, float) and not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    return x
