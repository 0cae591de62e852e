r"""The letters and operators of the paper's notation, as LaTeX with parentheses where they are needed.

A name is a letter (``gamma`` is \gamma, ``DZ`` is \mathsf{D}Z, ``T'`` an updated T) or a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMES = "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega"
_GREEK = {*_NAMES.split(), *re.findall(r"\w+", "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega")}
SYMBOLS = {"al": "a_l", "tl": "t_l", "ar": "a_r", "tr": "t_r"}  # names that are not written with their own letters
SYMBOLS |= {"epsilon": r"\varepsilon", "delta": r"\Delta", "weight_decay": r"\lambda"}
_SIGNS = r"""∂ \partial Σ \Sigma σ \sigma π \pi μ \mu ε \varepsilon γ \gamma α \alpha β \beta δ \delta · \cdot ⊙ \odot
≥ \geq ≤ \leq → \to ᵀ ^\top ² ^2 ⁻ ^- ¹ ^1 ∇ \nabla √ \surd ′ ' … \ldots ⟨ \langle ⟩ \rangle ℒ \mathcal{L} ₂ _2 ᵢ _i
× \times ½ \frac12 − - ∞ \infty"""
SIGNS = dict(zip(_SIGNS.split()[::2], _SIGNS.split()[1::2], strict=True))  # of a rule
FUNCTIONS = {  # that are not written with their names
    "sigmoid": r"\sigma",
    "tanh": r"\tanh",
    "hyperbolic_tangent": r"\tanh",
    "log": r"\log",
    **{name: rf"\mathrm{{{name}}}" for name in ("act", "relu", "softmax")},
}

FUNCTION_LETTERS = {"sigmoid": "σ", "hyperbolic_tangent": "tanh"}  # likewise in characters


def escape(text: str) -> str:
    """The string with TeX's special characters made printable."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def words(text: str) -> str:
    """Words of a text in LaTeX, with mathematical signs in them."""
    return "".join(f"${SIGNS[c]}$" if c in SIGNS else c for c in escape(text))


def symbol(name: str) -> str:
    r"""A variable: ``c1`` is c_1, ``DX`` \mathsf{D}X, ``sqrt_2`` \sqrt{2}, ``inv_sqrt_Sigma`` \Sigma^{-\frac12}."""
    plain = name.rstrip("'")
    primes = name[len(plain) :]
    if plain.startswith("inv_sqrt_"):
        power = rf"{symbol(plain.removeprefix('inv_sqrt_'))}^{{-\frac12}}"
        return f"({power}){primes}" if primes else power
    if plain.startswith("sqrt_"):
        factors = " ".join(_letter(part) or _word(part) for part in plain.split("_")[1:])
        return rf"\sqrt{{{factors}}}{primes}"
    return (gradient(plain) or _letter(plain) or _word(plain)) + primes


def is_power(symbol: str) -> bool:
    r"""Whether a symbol is \Sigma^{-\frac12} or the like, which binds less tightly than a letter."""
    return symbol.endswith(r"^{-\frac12}")


def _letter(name: str) -> str | None:
    """A letter, Greek or not, perhaps with an index; None for words."""
    if "\\" in name or name in SYMBOLS:
        return SYMBOLS.get(name, name)
    if name in _GREEK or len(name) == 1:
        return f"\\{name}" if name in _GREEK else name
    if match := re.fullmatch(r"([A-Za-z]+?)(?:_?(\d+)|_(\w+))", name):
        base, index = _letter(match[1]), match[2] or _letter(match[3]) or _word(match[3])
        return f"{base}_{index if len(index) == 1 else f'{{{index}}}'}" if base and "_" not in base else None
    return None


def gradient(name: str) -> str | None:
    """``DX`` is the gradient of X, but D, Delta and Data are none."""
    of = _letter(name[1:]) if name[:1] == "D" and name not in _GREEK and not name[1:2].isdigit() else None
    return rf"\mathsf{{D}}{of}" if of and not name.startswith("D_") else None


def _word(name: str) -> str:
    """A name that is not a letter, upright."""
    words = escape(name.strip("_")).replace(r"\_", r"\ ")
    return rf"\mathrm{{{words}}}"


def function_name(cls: type) -> str:
    """The name of the function that an activation function computes: ``leaky_relu``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", cls.__name__.removesuffix("Activation")).lower()


def function_symbol(name: str) -> str:
    r"""A function by its notation, else by its name: ``row_norm`` is \operatorname{row-norm}."""
    name = name.lstrip("_") or name
    known = FUNCTIONS.get(name) or _letter(name)
    return known or rf"\operatorname{{{escape(name.replace('_', '-'))}}}"


def parenthesized(text: str) -> str:
    """(text), with parentheses that grow with its height."""
    tall = re.search(r"\\frac\{|\\begin", text)
    return rf"\left( {text} \right)" if tall else f"({text})"


def is_word(name: str) -> bool:
    """Whether a name is neither a letter nor the gradient of one."""
    return not (_letter(name) or gradient(name))


def aligned(lines: Iterable[str]) -> str:
    """Equations below one another, aligned at &, in a display of their own."""
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}"


def document(*parts: str) -> str:
    """A document for pdflatex."""
    head = (
        r"\documentclass[a4paper,fleqn]{article}",
        r"\usepackage{amsmath,amssymb}",
        r"\setlength{\oddsidemargin}{0pt} \setlength{\textwidth}{160mm}",
        r"\setlength{\topmargin}{-15mm} \setlength{\textheight}{240mm}",
        r"\begin{document}",
    )
    return "\n".join([*head, *parts, "", r"\end{document}", ""])
