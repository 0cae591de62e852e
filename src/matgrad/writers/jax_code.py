"""Code of JAX with a gradient of its own: custom_vjp, custom_jvp, functions with a backward, by their jaxprs."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from matgrad.index_notation.expressions import ONE, is_equal
from matgrad.writers.operations import OPERATIONS, cat, cumsum, einsum, flip
from matgrad.writers.sizes import Atoms, Size, UnsupportedError
from matgrad.writers.slots import axis, keys
from matgrad.writers.subjects import Code, RefutedError, Run, by_name, parameters
from matgrad.writers.tensors import Tensor, gradient, lift, positions, symbols
from matgrad.writers.views import Part, sliced

LETTERS = "abcdefghijklmnopqrstuvwxyz"


# -- sizes ---------------------------------------------------------------------------------------


def atoms(n: Any) -> Atoms:
    """The atoms of a size in a jaxpr: of 1, D, 2*D or H*K."""
    words = re.sub(r"\s", "", str(n)).split("*")
    if not all(re.fullmatch(r"\w+(\^\d+)?", word) for word in words):
        raise UnsupportedError(f"a size {n}")
    pairs = (word.partition("^") for word in words)
    found = [a for a, _, p in pairs for _ in range(int(p or 1))]
    return tuple(int(a) if a.isdigit() else a for a in found if a != "1")


def sizes(shape: Sequence[Any]) -> list[Size]:
    """A shape."""
    return [Size(atoms(n)) for n in shape]


# -- primitives ----------------------------------------------------------------------------------


def dot_general(a: Tensor, b: Tensor, dimension_numbers: Any, **_: Any) -> Tensor:
    """Σ of a product, over some dimensions, for each entry of others."""
    (contracted_a, contracted_b), (batch_a, batch_b) = dimension_numbers
    left = list(LETTERS[: len(a.dims)])
    right = list(LETTERS[len(a.dims) : len(a.dims) + len(b.dims)])
    for i, j in (*zip(contracted_a, contracted_b, strict=True), *zip(batch_a, batch_b, strict=True)):
        right[j] = left[i]
    batch = [left[i] for i in batch_a]
    free = [c for c in (*left, *right) if (c in left) != (c in right)]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join((*batch, *free))}", a, b)


def broadcast_in_dim(x: Tensor, *_: Any, shape: Any, broadcast_dimensions: Any, **__: Any) -> Tensor:
    """Repeated along new dimensions."""
    target = sizes(shape)
    own = [x.sizes[broadcast_dimensions.index(i)] if i in broadcast_dimensions else 1 for i in range(len(target))]
    return x.reshape(*own).broadcast_to([n.atoms for n in target])


def slice_(x: Tensor, start_indices: Any, limit_indices: Any, strides: Any) -> Tensor:
    """x[a:b]"""
    for d, (a, b) in enumerate(zip(start_indices, limit_indices, strict=True)):
        start, stop = (n if isinstance(n, int) else Size(atoms(n)) for n in (a, b))
        part = sliced(x.dims, d, slice(start, stop, None if strides is None else strides[d]))
        x = x if part is None else part.get(x)
    return x


def split(x: Tensor, sizes: Any, axis: int) -> list[Tensor]:
    """Equal parts."""
    whole, n = x.dims[axis], len(sizes)
    if len(set(map(str, sizes))) > 1 or not whole or not isinstance(whole[0], int) or whole[0] % n:
        raise UnsupportedError(f"{n} parts of a size {Size(whole)}: give it as a product, such as '{n}*K'")
    step = whole[0] // n
    return [Part((len(x.dims) - 1 - axis, 0), i * step, (i + 1) * step).get(x) for i in range(n)]


def iota(*_: Any, shape: Any, dimension: int, **__: Any) -> Tensor:
    """Positions along a dimension."""
    own = [n if i == dimension else 1 for i, n in enumerate(sizes(shape))]
    return positions(sizes(shape)[dimension]).reshape(*own).broadcast_to([n.atoms for n in sizes(shape)])


def maximum(a: Any, b: Any) -> Tensor:
    """The greater; of -∞ and a number, the number."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Tensor) and x.scalar is not None and x.scalar == lift(-math.inf).scalar:
            return lift(y)
    return OPERATIONS["maximum"](a, b)


def shifted(name: str, nothing: int) -> Callable[..., Any]:
    """A sum or a product, which leaves positions as they are if nothing is added to them."""

    def f(x: Tensor, y: Tensor) -> Any:
        for a, b in ((x, y), (y, x)):
            if a.is_index and b.scalar is not None and b.scalar.constant == nothing:
                return a
        return OPERATIONS[name](x, y)

    return f


def same(x: Any, *_: Any, **__: Any) -> Any:
    """Itself."""
    return x


RENAMED = {
    "add": "add add_any",
    "logical_and": "and",
    "logical_or": "or",
    "logical_not": "not",
    "sigmoid": "logistic",
    "minimum": "min",
}
SAME = [
    "exp",
    "log",
    "erf",
    "sin",
    "cos",
    "tanh",
    "sqrt",
    "abs",
    "sign",
    "neg",
    "square",
    "rsqrt",
    "expm1",
    "log1p",
    "log2",
    "exp2",
    "erfc",
    "sinh",
    "cosh",
]
SAME += ["sub", "mul", "div", "pow", "gt", "lt", "ge", "le", "eq", "ne"]
PRIMITIVES: dict[str, Callable[..., Any]] = {
    **{name: OPERATIONS[name] for name in SAME},
    **{name: OPERATIONS[own] for own, names in RENAMED.items() for name in names.split()},
    **dict.fromkeys(["convert_element_type", "stop_gradient", "copy", "copy_p", "reduce_precision"], same),
    "max": maximum,
    "add": shifted("add", 0),
    "mul": shifted("mul", 1),
    "integer_pow": lambda x, y: x**y,
    "clamp": lambda low, x, high: OPERATIONS["clamp"](x, low, high),
    "select_n": lambda c, no, yes: OPERATIONS["where"](c, yes, no),
    "is_finite": lambda x: x.map(lambda e: ONE, is_bool=True),
    "reduce_sum": lambda x, axes, **_: x.sum(axes),
    "reduce_max": lambda x, axes, **_: x.max(axes),
    "reduce_min": lambda x, axes, **_: -(-x).max(axes),
    "cumsum": lambda x, axis, reverse: flip(cumsum(flip(x, axis), axis), axis) if reverse else cumsum(x, axis),
    "rev": lambda x, dimensions: flip(x, *dimensions),
    "dot_general": dot_general,
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": lambda x, *_, new_sizes, **__: x.reshape(*sizes(new_sizes)),
    "squeeze": lambda x, dimensions: x.reshape(
        *(n for i, n in enumerate(x.sizes) if i not in [axis(x.dims, d) for d in dimensions])
    ),
    "transpose": lambda x, permutation: x.permute(permutation),
    "slice": slice_,
    "split": split,
    "concatenate": lambda *xs, dimension: cat(xs, dimension),
    "iota": iota,
    "dim_as_value": lambda dim: lift(Size(atoms(dim))),
}
CALLS = [
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "checkpoint",
    "custom_vjp_call_jaxpr",
]
NO_OPTIONS = {*SAME, *(name for names in RENAMED.values() for name in names.split()), "max", "stop_gradient"}


def interpreted(closed: Any, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a jaxpr on tensors of index notation."""
    jaxpr = getattr(closed, "jaxpr", closed)
    constants = [lift(c.item()) if np.ndim(c) == 0 else _constants(c) for c in getattr(closed, "consts", [])]
    values = dict(zip(jaxpr.constvars, constants, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))

    def value(v: Any) -> Any:
        return lift(v.val.item() if hasattr(v.val, "item") else v.val) if hasattr(v, "val") else values[v]

    for equation in jaxpr.eqns:
        name, options = equation.primitive.name, equation.params
        inputs = [value(v) for v in equation.invars]
        if name in CALLS:
            inner = options.get("jaxpr") or options.get("call_jaxpr") or options.get("fun_jaxpr")
            found: Any = interpreted(inner, inputs)
        elif name not in PRIMITIVES:
            raise UnsupportedError(f"the primitive {name} of JAX")
        else:
            found = PRIMITIVES[name](*inputs, **({} if name in NO_OPTIONS else options))
        outputs = found if isinstance(found, list | tuple) else [found]
        values |= dict(zip(equation.outvars, outputs, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _constants(x: Any) -> Tensor:
    return OPERATIONS["stack"]([_constants(p) if np.ndim(p) else lift(p.item()) for p in np.asarray(x)])


# -- code ----------------------------------------------------------------------------------------


class JaxCode(Code):
    """Code whose gradients are a function of arguments and of gradients of outputs."""

    keeps, edits = "keepdims", 60

    def __init__(self, name: str, functions: Sequence[Callable[..., Any]]) -> None:
        self.name, self.functions = name, list(functions)

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> JaxRun:
        """Forward."""
        return JaxRun(self, arguments, numeric)

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The outputs that go with the gradients, if there are any, and the gradients by argument."""
        raise NotImplementedError


class JaxRun(Run):
    """A run of forward."""

    def __init__(self, code: JaxCode, arguments: Mapping[str, Any], numeric: bool) -> None:
        self.code, self.arguments, self.numeric = code, dict(arguments), numeric
        self.lines = dict.fromkeys(arguments, _line(code.functions[-1]))
        self.outputs = self._run(lambda own, gs: self._forward(own), [])

    def _forward(self, own: Mapping[str, Any]) -> list[Any]:
        return list(jax.tree.leaves(self.code.functions[0](*own.values())))

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """What backward returns."""
        names: list[str] = []

        def pull(own: Mapping[str, Any], given: Sequence[Any]) -> list[Any]:
            outputs, found = self.code.pulled(own, self._forward(own), given)
            names[:] = [n for n, d in found.items() if d is not None]
            return [*jax.tree.leaves(outputs), *(found[n] for n in names)]

        found = self._run(pull, gs)
        again, gradients = found[: len(found) - len(names)], found[len(found) - len(names) :]
        for y, z in zip(self.outputs, again, strict=False):
            differs = not np.allclose(y, z) if self.numeric else self._differs(y, z)
            if differs and self.numeric:
                raise RefutedError("what goes with the gradient has another value than the function")
        return dict.fromkeys(self.arguments) | dict(zip(names, gradients, strict=True))

    def _differs(self, y: Tensor, z: Tensor) -> bool:
        return y.dims != z.dims or not all(is_equal(y.data[k], z.data[k]) for k in keys(y.dims))

    def _run(self, f: Callable[[Mapping[str, Any], Sequence[Any]], list[Any]], gs: Sequence[Any]) -> list[Any]:
        """f on arrays; or its jaxpr for symbolic sizes, on symbols."""
        with jax.enable_x64(True), _roots_of_sizes():
            if self.numeric:
                own = {n: jnp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in self.arguments.items()}
                return [np.asarray(x) for x in f(own, [jnp.asarray(g) for g in gs])]
            symbolic = {n: x for n, x in self.arguments.items() if isinstance(x, Tensor)}
            known = self._sizes()

            def traced(own: Sequence[Any], given: Sequence[Any]) -> list[Any]:
                values = dict(zip(symbolic, own, strict=True))
                fixed = {n: _size(x, known) if isinstance(x, Size) else x for n, x in self.arguments.items()}
                return f({n: values.get(n, x) for n, x in fixed.items()}, given)

            structures = [[_structure(x, known) for x in group] for group in (symbolic.values(), gs)]
            return interpreted(jax.make_jaxpr(traced)(*structures), [*symbolic.values(), *gs])

    def _sizes(self) -> dict[str, Any]:
        found = {a for x in self.arguments.values() for n in _sizes_of(x) for a in n.names}
        found |= {x.data[()].size for x in self.arguments.values() if isinstance(x, Tensor) and x.is_index}
        names = sorted(found)
        return dict(zip(names, jax.export.symbolic_shape(", ".join(names)), strict=True)) if names else {}


def _sizes_of(x: Any) -> list[Size]:
    return x.sizes if isinstance(x, Tensor) else [x] if isinstance(x, Size) else []


def _size(n: Size, known: Mapping[str, Any]) -> Any:
    return math.prod(known[a] if isinstance(a, str) else a for a in n.atoms)


def _structure(x: Tensor, known: Mapping[str, Any]) -> Any:
    kind = jnp.bool_ if x.is_bool else jnp.int64 if x.is_index else jnp.float64
    return jax.ShapeDtypeStruct(tuple(_size(n, known) for n in x.sizes), kind)


def _line(f: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(f, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


@contextlib.contextmanager
def _roots_of_sizes() -> Iterator[None]:
    """math.sqrt of a symbolic size is that of JAX."""
    root = math.sqrt

    def sqrt(x: Any) -> Any:
        return root(x) if isinstance(x, int | float | np.number) else jnp.sqrt(x)

    with mock.patch.object(math, "sqrt", sqrt):
        yield


class CustomVJP(JaxCode):
    """jax.custom_vjp, with fwd and bwd."""

    backward_at = 2

    def __init__(self, f: Any) -> None:
        super().__init__(f.fun.__name__, [f.fun, f.fwd, f.bwd])
        self.fixed = [n for i, n in enumerate(parameters(f.fun)) if i in f.nondiff_argnums]

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The output of fwd, and the gradients of bwd."""
        y, kept = self.functions[1](*arguments.values())
        g = jax.tree.unflatten(jax.tree.structure(y), list(gs))
        found = self.functions[2](*(arguments[n] for n in self.fixed), kept, g)
        names = [n for n in arguments if n not in self.fixed]
        if len(found) != len(names):
            raise RefutedError(f"bwd returns {len(found)} gradients for {len(names)} arguments")
        return y, dict(zip(names, found, strict=True))


class CustomJVP(JaxCode):
    """jax.custom_jvp: the tangent of the output is linear in those of the arguments, with the gradients in it."""

    backward_at = None

    def __init__(self, f: Any) -> None:
        super().__init__(f.fun.__name__, [f.fun, f.jvp])

    def run(self, arguments: Mapping[str, Any], numeric: bool) -> JaxRun:
        """Forward."""
        return TangentRun(self, arguments, numeric)


class TangentRun(JaxRun):
    """A run whose gradients are those of Σ g·dy with respect to dx."""

    def gradients(self, gs: Sequence[Any]) -> dict[str, Any]:
        """The gradients in the rule for tangents."""
        jvp, names = self.code.functions[1], [n for n, x in self.arguments.items() if is_differentiable(x)]

        def rule(own: Mapping[str, Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            given = dict(zip(names, tangents, strict=True))
            found = jvp(tuple(own.values()), tuple(given.get(n, 0.0) for n in own))
            return jax.tree.leaves(found[0]), jax.tree.leaves(found[1])

        if self.numeric:

            def pull(own: Mapping[str, Any], given: Sequence[Any]) -> list[Any]:
                zeros = [jnp.zeros_like(own[n]) for n in names]
                return list(jax.vjp(lambda *tangents: rule(own, tangents)[1], *zeros)[1](list(given)))

            return dict.fromkeys(self.arguments) | dict(zip(names, self._run(pull, gs), strict=True))
        tangents = [symbols(f"d.{n}", self.arguments[n].dims) for n in names]
        found = self._run(lambda own, given: [y for part in rule(own, given) for y in part], tangents)
        slopes = found[len(self.outputs) :]
        return dict.fromkeys(self.arguments) | {
            n: gradient(t, slopes, gs) for n, t in zip(names, tangents, strict=True)
        }


def is_differentiable(x: Any) -> bool:
    """Whether an argument is a tensor of numbers."""
    if isinstance(x, Tensor):
        return not x.is_bool and not x.is_index
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


class WithBackward(JaxCode):
    """A function, and a function of arguments, outputs (`output` or `y`) and gradients of them, by name."""

    def pulled(self, arguments: Mapping[str, Any], outputs: Sequence[Any], gs: Sequence[Any]) -> tuple[Any, Any]:
        """The gradients."""
        return [], by_name(self.functions[1], arguments, outputs, gs)


def jax_code(x: Any, backward: Callable[..., Any] | None) -> JaxCode:
    """The code that an object of JAX is."""
    if backward is not None:
        return WithBackward(x.__name__, [x, backward])
    for name, make in (("bwd", CustomVJP), ("jvp", CustomJVP)):
        if getattr(x, name, None) is not None:
            return make(x)
    raise ValueError(f"{x!r} has no gradient of its own: give it as backward=")
