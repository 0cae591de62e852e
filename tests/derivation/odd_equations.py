"""Typed equations of all kinds: right, wrong and odd, drawn at random by a seed."""

from __future__ import annotations

import random
import re

from compositions import Composer

NAMES = """
X Y Z W b g c N D K P Q DX DY DW DV0 DN V0 E A s U G H R x y act self mg np super int print None True lambda if is def
nan inf training parameters buffers intermediates feedforward backpropagate input_size output_size optimizer X1 X_1 _x
__class__ __init__ Layer hadamard exp tanh ones softmax ReLU SReLU γ ﬁ É Δ X.T
"""
NUMBERS = """
0 1 2 -1 3 0.5 -0.5 1.5 50 1000 -1000 1e3 1e-3 1e30 1e-30 1e300 1e308 1e309 1e400 1e-320 1e-400 0.1 0.3 1_000 0x10 1j
9999999999999999999999 1e-20 -0.0 007 1e 10**10**10 2**2**2**2**2 (-1)**0.5 0**-1 1/0 nan inf True
"""
FUNCTIONS = """
exp log sqrt tanh erf log1p reciprocal step sign log_sigmoid inv_sqrt clip diag Diag dot hadamard rows_sum columns_sum
rows_mean columns_mean rows_max columns_max elements_sum row_repeat column_repeat ones zeros identity softmax ReLU SiLU
stable_softmax log_softmax GELU AllReLU apply uniform positive product_on relu eval __import__ lambda
"""
SIGNS = "+ - * / @ ** .T % // < == != >= and or not ~ ^ & | = := : ; , ( ) [ ] { } ' \" # \\ ! ? … × · ⊙ \0 \x1b \u202e"
LINES = "Y = X; V0 = X; b: 1 D; b: 1 D = nan; W: K D = 1e400; g: D 1 = 0.5; P: P P; W: X Y; N: 1 D; Y += X"
KINDS = [*(x.split() for x in (NAMES, NUMBERS, FUNCTIONS)), SIGNS.split(" "), [f"; {x}; " for x in LINES.split("; ")]]
DECLARATIONS = "W: K D; b: 1 K; g: 1 D = 1; c: N 1"


def odd_equations(seed: int) -> str:
    """One to three lines of small equations, in which up to three words are replaced, left out, doubled or added."""
    rng, composer = random.Random(seed), Composer(seed)
    shapes = {"X": ("N", "D"), "W": ("K", "D"), "b": ("1", "K"), "g": ("1", "D"), "c": ("N", "1")}
    shape = rng.choice([("N", "D"), ("N", "K"), ("N", "1"), ("1", "D")])
    text = f"{DECLARATIONS}; Y = {composer.expression(shape, rng.randint(1, 3), shapes)}"
    words = re.findall(r"\w+(?:\.\d+)?|\*\*|\.T|[^\w\s]|\s+", text)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(words))
        new = rng.choice(rng.choice(KINDS))
        match rng.randrange(5):
            case 0 | 1:
                words[at] = new
            case 2:
                del words[at : at + rng.randint(1, 3)]
            case 3:
                words[at:at] = words[at : at + rng.randint(1, 4)]
            case 4:
                words.insert(at, f" {new} ")
        words = words or ["Y"]
    return "".join(words)
