"""What tensors of frameworks are computed with, by the names of PyTorch, on tensors of index notation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matgrad.index_notation.conditions import order
from matgrad.index_notation.expressions import Expression, multiplied
from matgrad.index_notation.functions import exp, log, sqrt
from matgrad.index_notation.indices import Index, new_index, opposite, shifted
from matgrad.index_notation.sums import summed_over
from matgrad.writers.contractions import diag, diagonal, einsum
from matgrad.writers.functions import COMPARISONS, FUNCTIONS, by_sign, clamp, elementwise, gelu, softplus
from matgrad.writers.joining import JOINING, cat, piece, stacked
from matgrad.writers.labels import gather, index_add, one_hot, scattered, taken
from matgrad.writers.sizes import Question, ShapeError, Size, UnsupportedError, asked, atoms_of, parted, shown
from matgrad.writers.slots import axis, counted, flat, index
from matgrad.writers.tensors import MINUS_INFINITY, Tensor, greatest, lift

SMALL = 1e-6  # an ε that only keeps from dividing by 0


def finite_or_not(x: Any) -> Any:
    """-∞ for a number that stands for it, where something is masked."""
    constants = [e.constant if isinstance(e, Expression) else None for e in lift(x).data.values()]
    return -math.inf if all(c is not None and c <= MINUS_INFINITY for c in constants) else x


def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, otherwise y."""
    return condition.where(finite_or_not(x), finite_or_not(y))


def tril(x: Any, diagonal: int = 0) -> Tensor:
    """Zeros above a diagonal: [i + d ≥ j]·x_ij"""
    x = lift(x)
    j, i = (index(x.dims, (d, 0)) for d in (0, 1))
    if [len(d) for d in x.dims[-2:]] != [1, 1] or counted(x.dims[-2:]):
        raise UnsupportedError(f"triangles of shape {shown(x.dims)}")
    return Tensor(x.dims, {k: e * order(j, i, -diagonal) for k, e in x.data.items()}, x.is_bool)


# -- reductions ----------------------------------------------------------------------------------


def var(x: Tensor, dim: Any = None, unbiased: bool = True, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    """Σ (x - μ)² / (n - 1), or with another correction than 1"""
    c = int(unbiased) if correction is None else correction
    d = x - x.mean(dim, True)
    return (d * d).sum(dim, keepdim) / (lift(x.count(dim)) - c)


def std_mean(x: Tensor, dim: Any = None, keepdim: bool = False, root: bool = True, **more: Any) -> tuple[Tensor, ...]:
    """σ, or σ², and μ"""
    found = var(x, dim, keepdim=keepdim, **more)
    return found.map(sqrt) if root else found, x.mean(dim, keepdim)


def product_of(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Π, of numbers that are counted, or exp(Σ log) of positive ones"""

    def over(bound: list[Index], e: Expression, inside: Expression) -> Expression:
        if bound and not e.is_positive:
            raise UnsupportedError("a product over a named size of numbers that are not said to be positive")
        return exp(summed_over(bound, log(e) * inside)) if bound else e

    return x.reduced(dim, keepdim, multiplied, over)


def norm(x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None) -> Tensor:
    """(Σ |x|^p)^(1/p), for p = 1 or 2"""
    p = p if ord is None else ord
    if p in (1, 2, "fro", None):
        return x.map(FUNCTIONS["abs"]).sum(dim, keepdim) if p == 1 else (x * x).sum(dim, keepdim).map(sqrt)
    raise UnsupportedError(f"the norm {p}")


def softmax(x: Tensor, dim: int = -1, _stacklevel: int = 3) -> Tensor:
    """e^x / Σ e^x"""
    e = x.map(exp)
    return e / e.sum(dim, True)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """Σ_k [k ≤ j]·x_k"""
    d = axis(x.dims, dim)
    if len(x.dims[d]) != 1 or not isinstance(x.dims[d][0], str):
        raise UnsupportedError(f"a cumulative sum over a size {Size(x.dims[d])}")
    j = index(x.dims, (len(x.dims) - 1 - d, 0))
    k = new_index(j.size)
    return x.map(lambda e: summed_over([k], order(k, j, 0) * e.substituted({j: k})))


def flip(x: Tensor, *dims: Any) -> Tensor:
    """x_-i: the entries of dimensions in the other order"""
    for d in (axis(x.dims, d) for d in flat(dims)):
        if (n := x.sizes[d].constant) is not None:
            x = cat([piece(x, d, k, k + 1) for k in reversed(range(n))], d)
            continue
        if len(x.dims[d]) != 1 or not isinstance(x.dims[d][0], str):
            raise UnsupportedError(f"the opposite order of a size {Size(x.dims[d])}")
        i = index(x.dims, (len(x.dims) - 1 - d, 0))
        other = shifted(opposite(i), -parted(x.dims[d][0])[1])
        x = Tensor(x.dims, {k: e.substituted({i: other}) for k, e in x.data.items()}, x.is_bool)
    return x


def cdist(x: Tensor, y: Tensor, p: Any = 2.0) -> Tensor:
    """The norms of x_i - y_j"""
    return norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def normalized(x: Tensor, shape: Sequence[Any], weight: Any, bias: Any, eps: Any, centered: bool) -> Tensor:
    """(x - μ) / √(σ² + ε)·w + b, or without μ"""
    if eps is None:
        raise UnsupportedError("rms_norm without eps, which depends on the dtype")
    dims = list(range(-len(shape), 0))
    d = x - x.mean(dims, True) if centered else x
    y = d * ((d * d).mean(dims, True) + eps).map(FUNCTIONS["rsqrt"])
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def by_channel(x: Tensor, v: Tensor) -> Tensor:
    """v_c, where c is dimension 1 of x"""
    return v.reshape(-1, *[1] * (len(x.dims) - 2)) if v.dims else v


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x·w_c + b_c, where c is dimension 1 of x"""
    x = x if weight is None else x * by_channel(x, weight)
    return x if bias is None else x + by_channel(x, bias)


def by_batch(x: Tensor, weight: Any, bias: Any, eps: Any, dims: Sequence[int]) -> Tensor:
    """(x - μ) / √(σ² + ε)·w_c + b_c, with μ and σ over some dimensions, for channels in dimension 1"""
    d = x - x.mean(dims, True)
    y = d * ((d * d).mean(dims, True) + eps).map(FUNCTIONS["rsqrt"])
    return scaled(y, weight, bias)


def batch_norm(
    x: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Batch normalization in training."""
    if not training:
        raise UnsupportedError("batch normalization with running statistics")
    return by_batch(x, weight, bias, eps, [0, *range(2, len(x.dims))])


def group_norm(x: Tensor, groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Tensor:
    """Normalization over the channels of a group and all positions."""
    rest = x.sizes[1] // groups
    y = by_batch(x.reshape(x.sizes[0], groups, rest, *x.sizes[2:]), None, None, eps, list(range(2, len(x.dims) + 1)))
    return scaled(y.reshape(*x.sizes), weight, bias)


def instance_norm(
    x: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalization over all positions."""
    if not use_input_stats:
        raise UnsupportedError("instance normalization with running statistics")
    return by_batch(x, weight, bias, eps, list(range(2, len(x.dims))))


# -- losses --------------------------------------------------------------------------------------


def reduced(x: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or as it is."""
    if reduction not in ("mean", "sum", "none"):
        raise UnsupportedError(f"the reduction {reduction}")
    return x if reduction == "none" else x.sum() if reduction == "sum" else x.mean()


def picked(y: Tensor, t: Tensor) -> Tensor:
    """-Σ_k t_k·y_k, for labels or distributions t, over the dimension of classes"""
    d = 0 if len(y.dims) == 1 else 1
    return -squeezed(gather(y, d, t.unsqueeze(d)), d) if t.is_index else -(y * t).sum(d)


def squeezed(x: Tensor, d: int) -> Tensor:
    """Without a dimension of size 1."""
    return x.reshape(*(n for i, n in enumerate(x.sizes) if i != d))


def cross_entropy(
    x: Tensor, t: Tensor, ignore_index: int = -100, reduction: str = "mean", label_smoothing: Any = 0.0
) -> Tensor:
    """-Σ_k t_k·log softmax(x)_k"""
    d = 0 if len(x.dims) == 1 else 1
    y = OPERATIONS["log_softmax"](x, d)
    losses = picked(y, t)
    if label_smoothing:
        uniform = -y.mean(d) if t.is_index else -y.mean(d) * t.sum(d)
        losses = losses * (1 - lift(label_smoothing)) + uniform * label_smoothing
    return reduced(losses, reduction)


def huber_loss(x: Tensor, t: Tensor, reduction: str = "mean", delta: Any = 1.0) -> Tensor:
    """d²/2 for |d| ≤ δ, otherwise δ·(|d| - δ/2), for d = x - t"""
    d = x - t
    a = d.map(FUNCTIONS["abs"])
    return reduced(COMPARISONS["le"](a, delta).where(d * d / 2, (a - lift(delta) / 2) * delta), reduction)


def kl_div(x: Tensor, t: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """t·(log t - x)"""
    losses = t.map(exp) * (t - x) if log_target else t * (t.map(log) - x)
    return losses.sum() / Size(x.dims[0]) if reduction == "batchmean" else reduced(losses, reduction)


def norm_above(x: Tensor, p: Any, dim: Any, eps: Any, keepdim: bool = False) -> Tensor:
    """max(|x|, ε); a small ε only counts where a norm is as small, which is asked about."""
    if isinstance(eps, float) and eps <= SMALL:
        asked(Question(f"norms > {eps:g}", True, lambda sizes: True))
        return norm(x, p, dim, keepdim)
    return clamp(norm(x, p, dim, keepdim), eps)


# -- shapes --------------------------------------------------------------------------------------


def expanded(x: Tensor, shape: Sequence[Any]) -> list[Any]:
    """The dimensions that are meant by those of expand, where -1 is that of x."""
    n = len(shape) - len(x.dims)
    if n < 0:
        raise ShapeError(f"{shown(x.dims)} expanded to ({', '.join(map(str, shape))})")
    return [x.dims[i - n] if isinstance(s, int) and s == -1 else atoms_of(s) for i, s in enumerate(shape)]


def interleaved(x: Tensor, repeats: Any, dim: int, output_size: Any = None) -> Tensor:
    """Every entry of a dimension, so many times one after the other."""
    d, sizes = axis(x.dims, dim), x.sizes
    wide = x.unsqueeze(d + 1).broadcast_to([*x.dims[: d + 1], atoms_of(repeats), *x.dims[d + 1 :]])
    return wide.reshape(*sizes[:d], sizes[d] * repeats, *sizes[d + 1 :])


def full(shape: Sequence[Any], value: Any) -> Tensor:
    """A number, repeated."""
    return lift(value).broadcast_to([atoms_of(n) for n in shape])


def like(x: Tensor, value: Any) -> Tensor:
    """A number, in the shape of a tensor."""
    return lift(value).broadcast_to(x.dims)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: elementwise(f) for name, f in FUNCTIONS.items()},
    **COMPARISONS,
    "add": lambda x, y, alpha=1: lift(x) + (y if isinstance(alpha, int) and alpha == 1 else lift(y) * alpha),
    "sub": lambda x, y, alpha=1: lift(x) - (y if isinstance(alpha, int) and alpha == 1 else lift(y) * alpha),
    "mul": lambda x, y: lift(x) * y,
    "div": lambda x, y: lift(x) / y,
    "pow": lambda x, p: lift(x) ** p,
    "matmul": lambda x, y: x @ y,
    "outer": lambda x, y: x.unsqueeze(1) * y.unsqueeze(0),
    "addmm": lambda b, x, y, beta=1, alpha=1: lift(b) * beta + x @ y * alpha,
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "lerp": lambda a, b, w: a + (b - a) * w,
    "maximum": lambda x, y: lift(x).map(greatest, y),
    "minimum": lambda x, y: -(-lift(x)).map(greatest, -lift(y)),
    "logical_and": lambda x, y: lift(x).map(lambda a, b: a * b, y, is_bool=True),
    "logical_or": lambda x, y: lift(x).map(lambda a, b: a + b - a * b, y, is_bool=True),
    "logical_xor": lambda x, y: lift(x).map(lambda a, b: a + b - 2 * a * b, y, is_bool=True),
    "logaddexp": lambda x, y: x.map(lambda a, b: log(exp(a) + exp(b)), y),
    "gelu": gelu,
    "leaky_relu": lambda x, negative_slope=0.01: by_sign(x, lambda e, s, c: e * s + c * e * (1 - s), negative_slope),
    "elu": lambda x, alpha=1.0: by_sign(x, lambda e, s, a: e * s + a * (exp(e) - 1) * (1 - s), alpha),
    "softplus": lambda x, beta=1, threshold=20: (x * beta).map(softplus) / beta,
    "clamp": clamp,
    "clamp_min": lambda x, min: clamp(x, min),
    "clamp_max": lambda x, max: clamp(x, None, max),
    "where": where,
    "masked_fill": lambda x, mask, value: where(mask, value, x),
    "tril": tril,
    "triu": lambda x, diagonal=0: lift(x) - tril(x, diagonal - 1),
    "sum": lambda x, dim=None, keepdim=False: x.sum(dim, keepdim),
    "mean": lambda x, dim=None, keepdim=False: x.mean(dim, keepdim),
    "amax": lambda x, dim=None, keepdim=False: x.max(dim, keepdim),
    "amin": lambda x, dim=None, keepdim=False: -(-x).max(dim, keepdim),
    "var": var,
    "std": lambda x, *dim, **more: var(x, *dim, **more).map(sqrt),
    "std_mean": std_mean,
    "var_mean": lambda x, dim=None, unbiased=True, **more: std_mean(x, dim, root=False, unbiased=unbiased, **more),
    "prod": product_of,
    "norm": norm,
    "logsumexp": lambda x, dim=None, keepdim=False: x.map(exp).sum(dim, keepdim).map(log),
    "softmax": softmax,
    "log_softmax": lambda x, dim=-1, _stacklevel=3: x - x.map(exp).sum(dim, True).map(log),
    "cumsum": cumsum,
    "flip": flip,
    "normalize": lambda x, p=2.0, dim=1, eps=1e-12: x / norm_above(x, p, dim, eps, True),
    "cosine_similarity": lambda x, y, dim=1, eps=1e-8: (x * y).sum(dim)
    / (norm_above(x, 2, dim, eps) * norm_above(y, 2, dim, eps)),
    "einsum": einsum,
    "linear": lambda x, w, b=None: x @ w.swapped() + (0 if b is None else b),
    "rms_norm": lambda x, shape, w=None, eps=None: normalized(x, shape, w, None, eps, centered=False),
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "diagonal": diagonal,
    "diag": diag,
    "diag_embed": diag,
    "trace": lambda x: diagonal(x).sum(),
    "cdist": cdist,
    "repeat_interleave": interleaved,
    "prelu": lambda x, a: OPERATIONS["leaky_relu"](x, by_channel(x, a)),
    "binary_cross_entropy": lambda x, t, reduction="mean": reduced(
        -(t * x.map(log) + (1 - t) * (1 - x).map(log)), reduction
    ),
    "layer_norm": lambda x, shape, w=None, b=None, eps=1e-5: normalized(x, shape, w, b, eps, centered=True),
    "nll_loss": lambda x, t, ignore_index=-100, reduction="mean": reduced(picked(x, t), reduction),
    "cross_entropy": cross_entropy,
    "binary_cross_entropy_with_logits": lambda x, t, reduction="mean": reduced(x.map(softplus) - x * t, reduction),
    "mse_loss": lambda x, t, reduction="mean": reduced((x - t) * (x - t), reduction),
    "l1_loss": lambda x, t, reduction="mean": reduced((x - t).map(FUNCTIONS["abs"]), reduction),
    "huber_loss": huber_loss,
    "smooth_l1_loss": lambda x, t, reduction="mean", beta=1.0: huber_loss(x, t, reduction, beta) / beta,
    "kl_div": kl_div,
    "one_hot": one_hot,
    "gather": gather,
    "embedding": lambda t, weight: taken(weight, [t]),
    "scatter": lambda x, dim, index, src=None, value=None: scattered(
        x, dim, index, value if src is None else src, add=False
    ),
    "scatter_add": lambda x, dim, index, src: scattered(x, dim, index, src, add=True),
    "index_add": index_add,
    **JOINING,
    "stack": lambda tensors, dim=0: stacked(tensors, axis(tensors[0].dims, dim, 1), merged=False),
    "zeros_like": lambda x: like(x, 0),
    "ones_like": lambda x: like(x, 1),
    "full_like": like,
}  # fmt: skip
