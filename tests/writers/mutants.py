"""Mutants of backward passes, and whether they are right: by autograd in double precision, at several sizes.

python tests/writers/mutants.py 1000 proves or refutes so many of them, and counts the verdicts.
"""

from __future__ import annotations

import ast
import copy
import inspect
import random
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import examined_functions
import examined_modules
import examined_repositories
import numpy as np
import torch
import torch_cases

import matgrad as mg
from matgrad.writers.specifications import specification
from matgrad.writers.subjects import code_of


def is_own(f: Any) -> bool:
    """Whether it is a class that defines its backward."""
    return isinstance(f, type) and "backward" in vars(f)


EXAMINED = [*examined_functions.CASES, *examined_modules.CASES, *examined_repositories.CASES]
SUBJECTS: dict[str, tuple[type, dict[str, Any]]] = {  # right functions with a backward of their own
    **{f"{name} examined": (f, shapes) for name, f, _, right, shapes in EXAMINED if right and is_own(f)},
    **torch_cases.RIGHT,
}
OPPOSITE = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def places(f: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every change of one place, with what it is."""

    def put(node: ast.AST, field: str, value: Any) -> Callable[[], None]:
        return lambda: setattr(node, field, value)

    g = f.args.args[1].arg if isinstance(f, ast.FunctionDef) else ""
    for n in ast.walk(f):
        what = ast.unparse(n)[:50] if isinstance(n, ast.expr) else ""
        match n:
            case ast.BinOp(op=op):
                if type(op) in OPPOSITE:
                    yield f"{what}: the opposite of {type(op).__name__}", put(n, "op", OPPOSITE[type(op)]())
                if isinstance(op, ast.Add | ast.Sub):
                    yield f"{what}: a term is dropped", put(n, "right", ast.Constant(0))
                if isinstance(op, ast.Mult):
                    yield f"{what}: a factor is dropped", put(n, "right", ast.Constant(1))
            case ast.Constant(value=int() | float() as x) if not isinstance(x, bool):
                yield f"{x} is {x + 1}", put(n, "value", x + 1)
            case ast.UnaryOp(op=ast.USub(), operand=x) if not isinstance(x, ast.Constant):
                yield f"{what}: the sign is dropped", put(n, "op", ast.UAdd())
            case ast.Attribute(attr="sum" | "mean" as x):
                yield f"{what}: not {x}", put(n, "attr", "mean" if x == "sum" else "sum")
            case ast.keyword(arg="keepdim"):
                yield "keepdim is dropped", put(n, "value", ast.Constant(False))
            case ast.Name(id="gy" | "xhat" | "y" | "w" | "p" | "h" as x, ctx=ast.Load()):
                yield f"{x} is {g}", put(n, "id", g)


def mutants(cls: type) -> Iterator[tuple[str, type]]:
    """All mutants of the backward of an autograd function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    tree.body[0].decorator_list = []

    def backward(t: ast.Module) -> ast.FunctionDef | ast.Pass:
        own = (n for n in t.body[0].body if isinstance(n, ast.FunctionDef) and n.name == "backward")
        return next(own, ast.Pass())

    for i in range(len(list(places(backward(tree))))):
        changed = copy.deepcopy(tree)
        what, change = list(places(backward(changed)))[i]
        change()
        space = dict(vars(sys.modules[cls.__module__]))
        exec(compile(ast.fix_missing_locations(changed), "<mutant>", "exec"), space)
        yield what, space[cls.__name__]


class Nothing:
    """A ctx for autograd."""

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        pass


def is_right(cls: type, shapes: dict[str, Any]) -> bool:
    """Whether backward and autograd agree; not if backward fails."""
    code = code_of(cls, None)
    found = {n: specification(s) if isinstance(s, str) else s for n, s in shapes.items()}
    names = sorted({a for s in found.values() if not isinstance(s, float | int) for a in s.names})
    for seed in range(2):
        rng = np.random.default_rng(seed + 50)
        sizes = {n: int(x) for n, x in zip(names, rng.permutation(range(2, 3 + len(names))), strict=False)}
        arguments: list[Any] = []
        for n, default in code.parameters.items():
            s = found.get(n, default)
            x = s if isinstance(s, float | int) else s.sample(sizes, rng)
            arguments.append(torch.tensor(x) if isinstance(x, np.ndarray) and (x.ndim or s.kind != ">0") else x)
        arguments = [float(x) if isinstance(x, np.ndarray) else x for x in arguments]
        copies = [
            [x.clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in arguments]
            for _ in range(2)
        ]
        try:
            outputs = [cls.apply(*copies[0]), code.functions[0](Nothing(), *copies[1])]
            g = torch.randn_like(outputs[0])
            for y in outputs:
                y.backward(g)
        except Exception:
            return False
        pairs = ((x.grad, y.grad) for x, y in zip(*copies, strict=True) if isinstance(x, torch.Tensor))
        if not all(torch.allclose(a, b, rtol=1e-8, atol=1e-10) for a, b in pairs if a is not None and b is not None):
            return False
    return True


def main(number: int) -> None:
    """Verdicts on so many mutants, with those that are not as they have to be."""
    chosen = [(name, what, m) for name, (f, _) in SUBJECTS.items() for what, m in mutants(f)]
    found = Counter[tuple[str, str]]()
    for name, what, mutant in random.Random(0).sample(chosen, min(number, len(chosen))):
        shapes = SUBJECTS[name][1]
        verdict, expected = mg.prove(mutant, shapes).verdict, "right" if is_right(mutant, shapes) else "wrong"
        found[expected, verdict] += 1
        if (expected, verdict) not in (("right", "proved"), ("wrong", "refuted")):
            print(f"{expected}, {verdict}: {name}: {what}", flush=True)
    for (expected, verdict), count in sorted(found.items()):
        print(f"{expected}, {verdict}: {count}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
