"""Random feedforwards: compositions of operations of the table, as equations, and their gradients by torch."""

from __future__ import annotations

import random

import torch

SHAPES = {"X": ("N", "D"), "W": ("K", "D"), "b": ("1", "K"), "g": ("1", "D"), "c": ("N", "1")}
DECLARATIONS = "W: K D; b: 1 K; g: 1 D; c: N 1"

COMPOSED = {  # matrices of other shapes
    ("N", "K"): "X @ W.T",
    ("K", "N"): "W @ X.T",
    ("D", "D"): "X.T @ X",
    ("N", "N"): "X @ X.T",
    ("K", "K"): "W @ W.T",
    ("1", "1"): "g @ g.T",
}


class Composer:
    """Expressions of a given shape and depth, drawn at random; all of them are defined and smooth for all reals."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def feedforward(self) -> str:
        """Equations with the output Y, of a depth of 4 to 6, on one to three lines."""
        depth = self.rng.randint(4, 6)
        shape = self.rng.choice([("N", "D"), ("N", "K")])
        lines, names = [], dict(SHAPES)
        for k in range(self.rng.randint(0, 2)):
            part = max(2, depth // 2)
            inner = self.rng.choice([("N", "D"), ("N", "K"), ("1", "D"), ("N", "1")])
            lines.append(f"V{k} = {self.expression(inner, part, names)}")
            names[f"V{k}"] = inner
            depth -= part - 1
        return "; ".join([DECLARATIONS, *lines, f"Y = {self.expression(shape, max(depth, 3), names)}"])

    def expression(self, shape: tuple[str, str], depth: int, names: dict[str, tuple[str, str]]) -> str:
        """An expression of this shape."""
        if depth <= 0:
            return self.leaf(shape, names)
        m, n = shape

        def of(*inner: str, less: int = 1) -> str:
            return self.expression((inner[0], inner[1]), depth - less, names)

        choices = [
            lambda: f"{of(m, n)} + {of(m, n, less=2)}",
            lambda: f"{of(m, n)} - ({of(m, n, less=2)})",
            lambda: f"hadamard({of(m, n)}, {of(m, n, less=2)})",
            lambda: f"tanh({of(m, n)})",
            lambda: f"exp(tanh({of(m, n, less=2)}))",
            lambda: f"log(ones({m}, {n}) + exp({of(m, n, less=2)}))",
            lambda: f"reciprocal(ones({m}, {n}) + exp({of(m, n, less=2)}))",
            lambda: f"inv_sqrt(hadamard({of(m, n)}, {self.leaf(shape, names)}) ** 2 + 1)",
            lambda: f"{self.rng.choice([2, 0.5, 3])} * ({of(m, n)})",
            lambda: f"({of(m, n)}) * dot(g, g)",
        ]
        if m != "1":
            choices += [lambda: f"row_repeat({of('1', n)}, {m})"]
            choices += [lambda: f"({of(m, n)}) - row_repeat(columns_mean({self.leaf(shape, names)}), {m})"]
        if n != "1":
            choices += [
                lambda: f"column_repeat({of(m, '1')}, {n})",
                lambda: f"hadamard({of(m, n)}, column_repeat(rows_sum({self.leaf(shape, names)}), {n}))",
                lambda: f"softmax({of(m, n)})",
            ]
        if m == "1":
            choices += [lambda: f"columns_sum({of('N', n)})", lambda: f"columns_mean({of('N', n)})"] * 2
        if n == "1":
            choices += [lambda: f"rows_sum({of(m, 'D')})", lambda: f"rows_mean({of(m, 'K')})"] * 2
        if "1" not in shape:
            if n in "DK":
                other = "K" if n == "D" else "D"
                choices += [lambda: f"({of(m, other)}) @ W{'' if n == 'D' else '.T'}"] * 2
            choices += [lambda: f"({of(n, m)}).T"]
        return self.rng.choice(choices)()

    def leaf(self, shape: tuple[str, str], names: dict[str, tuple[str, str]]) -> str:
        """A name of this shape, or what has this shape because of it."""
        m, n = shape
        found = [name for name, of in names.items() if of == shape]
        found += [f"{name}.T" for name, of in names.items() if of == (n, m) and m != n]
        if found:
            return self.rng.choice(found)
        return COMPOSED[shape]


def gradients_by_autograd(layer: object, inputs: dict[str, torch.Tensor], DY: torch.Tensor) -> dict[str, torch.Tensor]:
    """∇⟨DY, Y⟩ by torch, for the output Y of a layer whose parameters are among the inputs."""
    leaves = {name: x.clone().requires_grad_(True) for name, x in inputs.items()}
    vars(layer).update({name: x for name, x in leaves.items() if name != "X"})
    Y = layer.feedforward(leaves["X"])
    found = torch.autograd.grad((DY * Y).sum(), list(leaves.values()), allow_unused=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(leaves.items(), found, strict=True)}
