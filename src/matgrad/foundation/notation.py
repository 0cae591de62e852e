r"""The letters and operators of the paper's notation, as LaTeX with parentheses where they are needed.

A name is a letter (``gamma`` is \gamma, ``DZ`` is \mathsf{D}Z, ``T'`` an updated T) or a word, and one that
contains a backslash is LaTeX already. ⊙ and · bind equally strongly and are never mixed without parentheses.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

CASES, SUM, MINUS, HADAMARD, PRODUCT, POWER, ATOM = range(7)  # how strongly the outermost operator binds

_NAMES = "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega"
_GREEK = {*_NAMES.split(), *re.findall(r"\w+", "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega")}
SYMBOLS = {"al": "a_l", "tl": "t_l", "ar": "a_r", "tr": "t_r"}  # names that are not written with their own letters
SYMBOLS |= {"epsilon": r"\varepsilon", "delta": r"\Delta"}
SIGNS = {
    **{"∂": r"\partial", "Σ": r"\Sigma", "σ": r"\sigma", "π": r"\pi", "μ": r"\mu", "ε": r"\varepsilon", "γ": r"\gamma"},
    **{
        "α": r"\alpha",
        "β": r"\beta",
        "δ": r"\delta",
        "·": r"\cdot",
        "⊙": r"\odot",
        "≥": r"\geq",
        "≤": r"\leq",
        "→": r"\to",
    },
    **{"ᵀ": r"^\top", "²": "^2", "⁻": "^-", "¹": "^1", "∇": r"\nabla", "√": r"\surd", "′": "'", "…": r"\ldots"},
    **{
        "⟨": r"\langle",
        "⟩": r"\rangle",
        "ℒ": r"\mathcal{L}",
        "₂": "_2",
        "ᵢ": "_i",
        "×": r"\times",
        "½": r"\frac12",
        "−": "-",
        "∞": r"\infty",
    },
}  # in the words of a rule
FUNCTIONS = {  # applied to every element or every row, so that f(X) has the size of X
    "sigmoid": r"\sigma",
    "tanh": r"\tanh",
    "hyperbolic_tangent": r"\tanh",
    "log": r"\log",
    **{name: rf"\mathrm{{{name}}}" for name in ("act", "relu", "softmax")},
    **{f"{kind}_softmax": rf"\operatorname{{{kind}-softmax}}" for kind in ("stable", "log")},
    "stable_log_softmax": r"\operatorname{stable-log-softmax}",
    "erf": r"\operatorname{erf}",
}


class Tex(NamedTuple):
    """A LaTeX string and how strongly its outermost operator binds; after a minus sign also its `operand`."""

    text: str
    level: int = ATOM
    operand: Tex | None = None

    def __format__(self, mark: str) -> str:
        """As an operand in a template, where it may be a sum or must be a product; see `matgrad.program.operations`."""
        return {"sum": self.text, "product": bracketed(self, HADAMARD, PRODUCT), "()": parenthesized(self.text)}[mark]


def escape(text: str) -> str:
    """The string with TeX's special characters made printable."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)


def words(text: str) -> str:
    """Words of a text in LaTeX, with mathematical signs in them."""
    return "".join(f"${SIGNS[c]}$" if c in SIGNS else c for c in escape(text))


def symbol(name: str) -> Tex:
    r"""A variable: ``c1`` is c_1, ``DX`` \mathsf{D}X, ``sqrt_2`` \sqrt{2}, ``inv_sqrt_Sigma`` \Sigma^{-\frac12}."""
    plain = name.rstrip("'")
    primes = name[len(plain) :]
    if plain.startswith("inv_sqrt_"):
        power = superscript(symbol(plain.removeprefix("inv_sqrt_")), r"-\frac12")
        return Tex(f"({power.text}){primes}") if primes else power
    if plain.startswith("sqrt_"):
        factors = " ".join(_letter(part) or _word(part) for part in plain.split("_")[1:])
        return Tex(rf"\sqrt{{{factors}}}{primes}")
    return Tex((gradient(plain) or _letter(plain) or _word(plain)) + primes)


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


def function_symbol(name: str) -> str:
    r"""A function by its notation, else by its name: ``row_norm`` is \operatorname{row-norm}."""
    name = name.lstrip("_") or name
    known = FUNCTIONS.get(name) or _letter(name)
    return known or rf"\operatorname{{{escape(name.replace('_', '-'))}}}"


def parenthesized(text: str) -> str:
    """(text), with parentheses that grow with its height."""
    tall = re.search(r"\\frac\{|\\begin", text)
    return rf"\left( {text} \right)" if tall else f"({text})"


def bracketed(tex: Tex, *levels: int) -> str:
    """The LaTeX string, in parentheses unless its level is one of those given or an atom's."""
    return tex.text if tex.level in (POWER, ATOM, *levels) else parenthesized(tex.text)


def superscript(base: Tex, exponent: str) -> Tex:
    """base^exponent"""
    brief = exponent if exponent == r"\top" else f"{{{exponent}}}"
    return Tex(f"{base.text if base.level == ATOM else parenthesized(base.text)}^{brief}", POWER)


def minus(tex: Tex) -> Tex:
    """-tex"""
    return Tex("-" + bracketed(tex, HADAMARD, PRODUCT), MINUS, tex)


def total(left: Tex, sign: str, right: Tex) -> Tex:
    """left + right or left - right"""
    bare = (HADAMARD, PRODUCT, SUM) if sign == "+" and not right.text.startswith("-") else (HADAMARD, PRODUCT)
    return Tex(f"{bracketed(left, *range(SUM, ATOM))} {sign} {bracketed(right, *bare)}", SUM)


def product(left: Tex, right: Tex, level: int = PRODUCT, dot: str | None = r"\cdot") -> Tex:
    """left ⊙ right or left · right, or without a sign where `dot` is None and the paper has none."""
    if left.operand:
        return minus(product(left.operand, right, level, dot))
    a, b = bracketed(left, level), bracketed(right, level)
    if dot is None:
        letter = r"(\\[a-z]+|[A-Za-z])'*(\^\\top)?"
        joined = (
            (re.fullmatch(letter, a) and re.fullmatch(letter, b))
            or (b.startswith("(") and re.fullmatch(rf"(\\mathsf\{{D\}})?{letter}|.*\)", a))
            or (re.fullmatch(r"[\d.]+", a) and not re.match(r"\d|\\frac|\\mathrm", b))
        )
        dot = "" if joined else r"\cdot"
    return Tex(f"{a} {dot} {b}".replace("  ", " "), level)


def fraction(left: Tex, right: Tex) -> Tex:
    """left over right"""
    return Tex(rf"\frac{{{left.text}}}{{{right.text}}}", POWER)


def number(value: Any) -> Tex:
    """A number; 2.5e-05 is 2.5 · 10^{-5}."""
    mantissa, e, exponent = repr(value).partition("e")
    if not e or not isinstance(value, float):
        return Tex(escape(repr(value)) if isinstance(value, int | float) else rf"\text{{{escape(str(value))}}}")
    power = Tex(f"10^{{{int(exponent)}}}", POWER)
    return power if mantissa == "1" else product(Tex(mantissa), power)


def is_word(name: str) -> bool:
    """Whether a name is neither a letter nor the gradient of one."""
    return not (_letter(name) or gradient(name))


def index(sizes: tuple[str | None, ...]) -> str:
    r"""_N, _{NK} or _{2 \times 3}; nothing where one of the sizes is not known"""
    known_sizes = [size for size in sizes if size]
    brief = all(re.fullmatch(r"[A-Za-z]", size) for size in known_sizes)
    text = ("" if brief else r" \times ").join(known_sizes)
    return "" if len(known_sizes) < len(sizes) else f"_{text}" if len(text) == 1 else f"_{{{text}}}"


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
