"""Tensors of PyTorch code on index notation: functions and methods, shared memory, and in-place operations."""

from __future__ import annotations

import dis
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch

from matgrad.foundation.callers import is_asked_by_user
from matgrad.inspection.following import unfollowed
from matgrad.writers.labels import put, taken
from matgrad.writers.operations import OPERATIONS, expanded, full, like, where
from matgrad.writers.sizes import (
    Atoms,
    Dims,
    DivisionError,
    ShapeError,
    Size,
    UnsupportedError,
    atoms_of,
    shown,
)
from matgrad.writers.slots import axis, flat
from matgrad.writers.tensors import Tensor, lift, summed_to
from matgrad.writers.texts import LIBRARIES
from matgrad.writers.views import (
    Expanded,
    Part,
    View,
    part_count,
    permutation,
    reshaping,
    selected,
    sliced,
    squeezing,
    transposition,
    unsqueezing,
)

NAMES = """mul multiply; div true_divide divide truediv; sub subtract; neg negative; abs absolute fabs; clamp clip;
matmul mm bmm mv dot; outer ger; cat concat concatenate; gt greater; ge greater_equal; lt less; le less_equal;
ne not_equal; logical_not bitwise_not invert; logical_and bitwise_and and; logical_or bitwise_or or; norm linalg_norm
linalg_vector_norm vector_norm; logsigmoid log_sigmoid; view reshape; view_as reshape_as; expand broadcast_to;
transpose swapaxes swapdims; sigmoid expit"""  # of the same function
ALIASES = {alias: name for name, *aliases in map(str.split, NAMES.split(";")) for alias in aliases}
SAME = "contiguous float double half bfloat16 detach requires_grad_ retain_grad cpu cuda alias type_as positive pos"
IGNORED = """dtype device layout memory_format non_blocking copy pin_memory requires_grad generator size_average reduce
scale_grad_by_freq sparse norm_type compute_mode"""  # options that make no difference here
MATCH_CLASS = dis.opmap["MATCH_CLASS"]
PLACES = (*LIBRARIES, str(Path(torch.__file__).parent))


MADE: ContextVar[Callable[[SymbolicTensor], None]] = ContextVar(
    "made", default=lambda x: None
)  # is told of new tensors


class Places:
    """The places of maxima, which nothing is known of."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"{name} of the places of a maximum")


class Pair(tuple):
    """Values, and their places."""

    values, indices = property(lambda self: self[0]), property(lambda self: self[1])


class Shape(tuple):
    """Sizes."""

    __class__ = property(lambda self: torch.Size if is_asked_by_user() else Shape)

    def numel(self) -> Size:
        """Their product."""
        return math.prod(self, start=Size(()))


def class_for_users(cls: type) -> type:
    """torch.Tensor, for Python code that asks; the C++ code of PyTorch, where it wants a number, would read memory."""
    code = sys._getframe(2).f_code
    if {"isinstance", "__class__"}.isdisjoint(code.co_names) and MATCH_CLASS not in code.co_code[::2]:
        raise UnsupportedError("a tensor of one number that PyTorch takes for a number")
    return torch.Tensor if is_asked_by_user(2) else cls


class SymbolicTensor:
    """What code gets for a tensor: a value of its own, or a view of another one."""

    requires_grad, is_cuda, is_leaf, grad_fn, grad, names = True, False, True, None, None, (None,)
    device, layout, is_sparse = torch.device("cpu"), torch.strided, False
    __class__ = property(lambda self: class_for_users(SymbolicTensor))

    def __init__(self, value: Tensor, base: SymbolicTensor | None = None, view: View | None = None) -> None:
        self.own, self.base, self.seen = value, base, view
        self._viewed: tuple[Tensor, Tensor] | None = None  # what the base was when it was viewed, and the view
        self.line = line_of_code()
        self.versions: list[str] = [] if base is None else base.versions  # the operations that changed it in place
        if base is None:
            MADE.get()(self)

    @property
    def value(self) -> Tensor:
        """The expressions of its entries."""
        if self.base is None or self.seen is None:
            return self.own
        base = self.base.value
        if self._viewed is None or self._viewed[0] is not base:
            with unfollowed():
                self._viewed = base, self.seen.get(base)
        return self._viewed[1]

    @value.setter
    def value(self, value: Tensor) -> None:
        if self.base is None or self.seen is None:
            self.own = value
        else:
            self.base.value = self.seen.put(self.base.value, value)

    @classmethod
    def __torch_function__(cls, f: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        return call(f.__name__, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not is_known(name):
            raise UnsupportedError(f"Tensor.{name}")
        return lambda *args, **options: call(name, self, *args, **options)

    shape = property(lambda self: Shape(self.value.sizes))
    ndim = property(lambda self: len(self.value.dims))
    T = property(lambda self: call("permute", self, list(range(self.ndim))[::-1]))
    mT = property(lambda self: call("transpose", self, -1, -2))
    data = property(lambda self: self)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bool if self.value.is_bool else torch.int64 if self.value.is_index else torch.float64

    def size(self, d: int | None = None) -> Any:
        return self.shape if d is None else self.shape[d]

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> Size:
        return self.value.count()

    def is_floating_point(self) -> bool:
        return self.dtype == torch.float64

    def is_contiguous(self, **options: Any) -> bool:
        return True

    def stride(self, d: int | None = None) -> Any:
        n = self.ndim
        strides = [Size(a for dim in self.value.dims[i + 1 :] for a in dim) for i in range(n)]
        return tuple(strides) if d is None else strides[d]

    def _number(self) -> Any:
        raise UnsupportedError("a branch on the values of a tensor, or a number from it")

    __bool__ = __float__ = __int__ = __index__ = item = tolist = _number

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        return iter(call("unbind", self))

    def __getitem__(self, key: Any) -> Any:
        return entries(self, key if isinstance(key, tuple) else (key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        new, own = lift(unwrapped(value)), self.value
        if all(isinstance(k, SymbolicTensor) for k in keys):
            tensors = [k.value for k in keys]
            is_mask = tensors[0].is_bool and not new.dims
            result = where(tensors[0], new, own) if is_mask else put(own, tensors, new)
            assign(self, result, "an assignment")
        else:
            target = self[key]
            assign(target, new.broadcast_to(target.value.dims), "an assignment")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if is_asked_by_user():
            raise UnsupportedError("the text of a tensor")
        return f"tensor{shown(self.value.dims)}"


def _method(name: str, swapped: bool = False) -> Callable[..., Any]:
    if swapped:
        return lambda self, other: call(name, wrapped(lift(unwrapped(other))), self)
    return lambda self, *other: call(name, self, *other)


for _name in ["add", "sub", "mul", "truediv", "pow", "matmul"]:
    setattr(SymbolicTensor, f"__{_name}__", _method(_name))
    setattr(SymbolicTensor, f"__r{_name}__", _method(_name, swapped=True))
    setattr(SymbolicTensor, f"__i{_name}__", _method(f"{_name}_"))
for _name in ["gt", "ge", "lt", "le", "eq", "ne", "neg", "pos", "invert", "and", "or", "abs"]:
    setattr(SymbolicTensor, f"__{_name}__", _method(_name))


def line_of_code() -> tuple[str, int]:
    """The file and line of the code that is run, which is not of a library."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PLACES):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def wrapped(x: Any) -> Any:
    """Tensors of index notation as those that code gets."""
    if isinstance(x, Tensor):
        return SymbolicTensor(x)
    return tuple(map(wrapped, x)) if isinstance(x, tuple | list) else x


def unwrapped(x: Any) -> Any:
    """The other way round; small tensors of PyTorch are constants."""
    if isinstance(x, SymbolicTensor):
        return x.value
    if isinstance(x, torch.Tensor) and x.ndim:
        return stack_of_numbers(x)
    return type(x)(map(unwrapped, x)) if type(x) in (tuple, list) else x


def stack_of_numbers(x: torch.Tensor) -> Tensor:
    """The numbers of a tensor, whose sizes are numbers."""
    parts = [stack_of_numbers(p) if p.ndim else lift(p.item()) for p in x]
    result: Tensor = OPERATIONS["stack"](parts)
    return result


def viewed(x: SymbolicTensor, *views: View | None) -> SymbolicTensor:
    """A view of a view of … a tensor."""
    for view in views:
        if view is not None:
            x = SymbolicTensor(x.own, x, view)
            assert x.value  # fails here if it does
    return x


def assign(x: SymbolicTensor, value: Tensor, what: str) -> SymbolicTensor:
    """Change a tensor, and whatever shares its memory."""
    if value.dims != x.value.dims:
        raise ShapeError(f"{what}: {shown(value.dims)} does not fit in {shown(x.value.dims)}")
    x.value = value
    x.versions.append(what)
    x.line = line_of_code()
    return x


# -- views ---------------------------------------------------------------------------------------


def _flattened(dims: Dims, start_dim: int = 0, end_dim: int = -1) -> View:
    sizes, a, b = [Size(dim) for dim in dims], axis(dims, start_dim), axis(dims, end_dim)
    return reshaping(dims, [*sizes[:a], Shape(sizes[a : b + 1]).numel(), *sizes[b + 1 :]])


def _unflattened(dims: Dims, dim: int, sizes: Sequence[Any]) -> View:
    own, d = [Size(a) for a in dims], axis(dims, dim)
    if -1 in [n for n in sizes if isinstance(n, int)]:
        rest = own[d] // Shape(n for n in sizes if not (isinstance(n, int) and n == -1)).numel()
        sizes = [rest if isinstance(n, int) and n == -1 else n for n in sizes]
    return reshaping(dims, [*own[:d], *sizes, *own[d + 1 :]])


VIEWS: dict[str, Callable[..., View]] = {
    "view": lambda dims, *shape: reshaping(dims, flat(shape)),
    "view_as": lambda dims, other: reshaping(dims, other.shape),
    "permute": lambda dims, *order: permutation(dims, flat(order)),
    "transpose": transposition,
    "t": lambda dims: permutation(dims, range(len(dims))[::-1]),
    "adjoint": lambda dims: transposition(dims, -1, -2),
    "unsqueeze": unsqueezing,
    "squeeze": lambda dims, dim=None: squeezing(dims, dim),
    "flatten": _flattened,
    "unflatten": _unflattened,
    "expand_as": lambda dims, other: Expanded(other.value.dims),
}


@unfollowed()
def entries(x: SymbolicTensor, key: tuple[Any, ...]) -> Any:
    """x[key]: slices, numbers, None and …, or labels for the first dimensions."""
    if all(isinstance(k, SymbolicTensor | torch.Tensor) for k in key):
        return wrapped(taken(x.value, [unwrapped(k) for k in key]))
    if Ellipsis in [k for k in key if k is Ellipsis]:
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        rest = x.ndim - sum(k is not None and k is not Ellipsis for k in key)
        key = (*key[:at], *[slice(None)] * rest, *key[at + 1 :])
    d = 0
    for k in key:
        dims = x.value.dims
        if k is None:
            x = viewed(x, unsqueezing(dims, d))
        elif isinstance(k, slice):
            x = viewed(x, sliced(dims, d, k))
        elif isinstance(k, int):
            x = viewed(x, *selected(dims, d, k))
            continue
        else:
            raise UnsupportedError(f"an index of type {type(k).__name__}")
        d += 1
    return x


def parts(
    x: SymbolicTensor, dim: int, counts: Callable[[Atoms], Sequence[int]], number: int = 2
) -> tuple[SymbolicTensor, ...]:
    """A dimension in numbers of the parts that it has."""
    d = axis(x.value.dims, dim)
    own = x.value.dims[d]
    if not own or not isinstance(own[0], int):
        raise DivisionError(f"parts of a size {Size(own)}", own[0] if own else 1, number, is_last=False)
    stops = list(accumulate(counts(own)))
    if stops[-1] != own[0]:
        raise UnsupportedError(f"parts of a size {Size(own)} that are not equal")
    slot = (x.ndim - 1 - d, 0)
    return tuple(viewed(x, Part(slot, *pair)) for pair in pairwise([0, *stops]))


def split(x: SymbolicTensor, size: Any, dim: int = 0) -> tuple[SymbolicTensor, ...]:
    """Parts of a size, or of sizes."""
    if isinstance(size, list | tuple) and any(isinstance(a, str) for a in x.value.dims[axis(x.value.dims, dim)]):
        ends = [0, *accumulate(size)]
        return tuple(call("narrow", x, dim, a, n) for a, n in zip(ends, size, strict=False))

    def counts(own: Atoms) -> list[int]:
        sizes = size if isinstance(size, list | tuple) else [size] * (int(own[0]) // part_count(own, size, 1))
        return [part_count(own, n, 1) for n in sizes]

    return parts(x, dim, counts)


def unbind(x: SymbolicTensor, dim: int = 0) -> tuple[SymbolicTensor, ...]:
    """The entries along a dimension that is a number."""
    dims, d = x.value.dims, axis(x.value.dims, dim)
    return tuple(viewed(x, *selected(dims, d, i)) for i in range(int(Size(dims[d]))))


# -- functions -----------------------------------------------------------------------------------


def greatest_or_least(name: str, along: str) -> Callable[..., Any]:
    """The greatest or least, with places if it is along a dimension; or the greater or less of two."""

    def f(x: SymbolicTensor, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, SymbolicTensor):
            return call(name, x, dim)
        values = call(along, x, dim, keepdim)
        return values if dim is None else Pair((values, Places()))

    return f


def to(x: SymbolicTensor, *kinds: Any, **options: Any) -> SymbolicTensor:
    """Another type of number, which makes no difference but for booleans and integers."""
    dtypes = [k for k in (*kinds, options.get("dtype")) if isinstance(k, torch.dtype)]
    if not dtypes or dtypes[0].is_floating_point or x.value.is_bool or x.value.is_index:
        return wrapped(Tensor(x.value.dims, x.value.data)) if dtypes and x.value.is_bool else x
    if dtypes[0] is torch.bool:
        return call("ne", x, 0)
    raise UnsupportedError(f"rounding to {dtypes[0]}")


def dropout(x: SymbolicTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> SymbolicTensor:
    """Itself, if nothing is dropped."""
    if training and p:
        raise UnsupportedError("random numbers: dropout")
    return x


def filled(value: Any) -> Callable[..., Any]:
    """A tensor of a shape, filled with a number; without one, with an argument."""

    def f(*shape: Any, fill_value: Any = None, **options: Any) -> Any:
        if value is not None:
            return wrapped(full(flat(shape), value))
        return wrapped(full(shape[0], unwrapped(shape[1] if fill_value is None else fill_value)))

    return f


SPECIAL: dict[str, Callable[..., Any]] = {
    **{name: lambda x, *args, **options: x for name in SAME.split()},
    "clone": lambda x, **options: SymbolicTensor(x.value),
    "to": to,
    "type": to,
    "long": lambda x: to(x, torch.int64),
    "int": lambda x: to(x, torch.int32),
    "bool": lambda x: to(x, torch.bool),
    "max": greatest_or_least("maximum", "amax"),
    "min": greatest_or_least("minimum", "amin"),
    "dropout": dropout,
    "chunk": lambda x, n, dim=0: parts(x, dim, lambda own: [int(own[0]) // n] * n, n),
    "split": split,
    "split_with_sizes": split,
    "unbind": unbind,
    "select": lambda x, dim, number: viewed(x, *selected(x.value.dims, axis(x.value.dims, dim), number)),
    "narrow": lambda x, dim, start, length: entries(
        x, (*[slice(None)] * axis(x.value.dims, dim), slice(start, start + length))
    ),
    "expand": lambda x, *shape: viewed(x, Expanded(tuple(expanded(x.value, flat(shape))))),
    "index_select": lambda x, dim, index: wrapped(taken(x.value.swapped(0, dim), [index.value]).swapped(0, dim)),
    "sum_to_size": lambda x, *shape: wrapped(summed_to(x.value, [atoms_of(n) for n in flat(shape)])),
    "new_zeros": lambda x, *shape, **options: filled(0)(*shape, **options),
    "new_ones": lambda x, *shape, **options: filled(1)(*shape, **options),
    "new_empty": lambda x, *shape, **options: filled(0)(*shape, **options),
    "new_full": lambda x, *shape, **options: filled(None)(*shape, **options),
    "empty_like": lambda x, **options: wrapped(like(x.value, 0)),
    "numel": lambda x: x.numel(),
    "take_along_dim": lambda x, t, dim: call("gather", x, dim, t),
    "is_floating_point": lambda x: x.is_floating_point(),
    "is_tensor": lambda x: True,
    "zero_": lambda x: assign(x, like(x.value, 0), "zero_"),
    "fill_": lambda x, value: assign(x, like(x.value, unwrapped(value)), "fill_"),
    "copy_": lambda x, y, *args: assign(x, lift(unwrapped(y)).broadcast_to(x.value.dims), "copy_"),
}


def is_known(name: str) -> bool:
    """Whether there is a function or method of that name."""
    own = ALIASES.get(name, name)
    in_place = name.endswith("_") and is_known(name[:-1])
    return own in OPERATIONS or own in VIEWS or own in SPECIAL or in_place


def call(name: str, *args: Any, **options: Any) -> Any:
    """A function or method of PyTorch, by its name."""
    with unfollowed():
        return _called(name, *args, **options)


def _called(name: str, *args: Any, **options: Any) -> Any:
    name = name.strip("_") if name.startswith("__") else name
    name = ALIASES.get(name, name)
    if name == "rsub":
        return call("sub", args[1], args[0], *args[2:], **options)
    if name in SPECIAL:
        return SPECIAL[name](*args, **options)
    if options.pop("inplace", False):
        name += "_"
    if name.endswith("_") and is_known(name[:-1]):
        result = call(name[:-1], *args, **options)
        return assign(args[0], result.value.broadcast_to(args[0].value.dims), name)
    out = options.pop("out", None)
    options = {key: unwrapped(v) for key, v in options.items() if v is not None and key not in IGNORED.split()}
    if "axis" in options:
        options["dim"] = options.pop("axis")
    if name in VIEWS:
        return viewed(args[0], VIEWS[name](args[0].value.dims, *args[1:], **options))
    if name not in OPERATIONS:
        raise UnsupportedError(f"torch.{name}")
    result = wrapped(OPERATIONS[name](*map(unwrapped, args), **options))
    return result if out is None else assign(out, result.value, name)
