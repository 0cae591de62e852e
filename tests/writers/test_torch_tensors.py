"""Functions and methods of PyTorch on symbols have the values that they have on tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from matgrad.writers.sizes import QUESTIONS, ShapeError, UnsupportedError
from matgrad.writers.specifications import part_values, specification
from matgrad.writers.torch_running import symbolic_code
from matgrad.writers.torch_tensors import SymbolicTensor

SIZES = {"N": 3, "D": 2, "K": 4, "H": 2}
SHAPES = {  # of arguments, by their names
    "x": "N D", "y": "N D", "z": "N K", "w": "K D", "v": "D",
    "c": "", "p": "N D, > 0", "s": "N N", "h": "N 2*K", "e": "N K*2",
    "t": "N < K", "u": "N < D", "m": "N D ?", "q": "N H*K", "r": "N 3", "f": "N 6*D",
}  # fmt: skip


def in_place(h):
    y = h.clone()
    a, b = y.chunk(2, -1)
    a.mul_(b).add_(1)
    b[:, :] = a.exp()
    a.T.sub_(2)
    return y


def entries_in_place(r):
    y = r.clone()
    first, _, last = y.unbind(1)
    first += last
    y[:, 1] = first * 3
    F.relu(last, inplace=True)
    return y


def assigned(h):
    y = torch.zeros_like(h)
    k = h.shape[-1] // 2
    y[..., :k] = h[..., k:]
    y[..., k:] += h[..., :k] ** 2
    return y


def scattered(z, t):
    return torch.zeros(z.shape[0], z.shape[1]).scatter_(1, t.unsqueeze(1), 1.0) * z


def summed_by_label(z, x, t):
    return torch.zeros(z.shape[1], x.shape[1], dtype=x.dtype).index_add_(0, t, x)


CODE = {
    "arithmetic": lambda x, y, c: (x + 2 * y - 1) / (1 + y * y) - c * x @ y.t() @ y,
    "powers": lambda x, p: x**3 + p**0.5 + p**-1 + p.rsqrt() + p.reciprocal() + p**p,
    "exponentials": lambda x, p: x.exp() + torch.log(p) + torch.log1p(p) + x.expm1() + torch.exp2(x) + p.log2(),
    "sigmoids": lambda x: torch.sigmoid(x) + x.tanh() + F.silu(x) + F.softplus(x) + F.logsigmoid(x) + F.mish(x),
    "gelu": lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + torch.erf(x) + torch.erfc(x),
    "kinks": lambda x: F.relu(x) + x.abs() + x.sign() + F.leaky_relu(x, 0.1) + F.elu(x, 0.5) + F.softsign(x),
    "hard": lambda x: F.hardswish(4 * x) + F.hardsigmoid(4 * x) + F.relu6(8 * x),
    "trigonometry": lambda x: torch.sin(x) * torch.cos(x) + torch.cosh(x) - torch.sinh(x),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5) + torch.clamp(x, min=0.1) + x.clamp_max(0.2) + torch.minimum(x, y),
    "maxima": lambda x, y: torch.maximum(x, y) + x.max(dim=1, keepdim=True)[0] - x.amin(0) + torch.max(x, y) + x.max(),
    "comparisons": lambda x, y: (x > y).float() + (x <= 0.3) * 2 + (x == x.max(1, keepdim=True).values) * x + (x != y),
    "logic": lambda x, y, m: torch.where((x > 0) & ~m | (y > 0), x, y) + m.to(x.dtype) * 2,
    "masks": lambda x, m: torch.softmax(x.masked_fill(m, float("-inf")), -1) + x.masked_fill(m, 0.0),
    "masked, stable": lambda x, m: (x.masked_fill(m, -1e9) - x.masked_fill(m, -1e9).max(-1, keepdim=True)[0]).exp(),
    "reductions": lambda x: x.sum(0, keepdim=True) + x.mean(-1, keepdim=True) + x.sum() + x.mean((0, 1)),
    "variances": lambda x: x - x.var(0) + x.std(-1, keepdim=True) + torch.var_mean(x, 1, correction=0, keepdim=True)[0],
    "norms": lambda x: x.norm(dim=1, keepdim=True) + torch.linalg.vector_norm(x) + x.norm(1) + F.normalize(x, dim=-1),
    "softmax": lambda z: F.softmax(z, 1) + F.log_softmax(z, dim=-1) + torch.logsumexp(z, 1, keepdim=True),
    "products": lambda x, w, v: F.linear(x, w).sum(1) + x @ v + torch.mv(x, v) + (x[:, None] @ w.mT).squeeze(1).sum(1),
    "einsum": lambda x, w: torch.einsum("nd,kd->nk", x, w) * torch.einsum("ij->i", x)[:, None]
    + torch.einsum("kd,nd", w, x).T,
    "outer": lambda v: torch.outer(v, v) + torch.addmm(v, v[:, None], v[None], beta=2, alpha=3),
    "cumulative sums": lambda x: x.cumsum(0) + torch.cumsum(x, -1) + x.flip(0).cumsum(0).flip(0),
    "triangles": lambda s: torch.tril(s) + 2 * s.triu(1) + torch.ones(s.shape[0], s.shape[0]).tril(-1),
    "positions": lambda s: s * (torch.arange(s.shape[0])[:, None] > torch.arange(s.shape[0])) + torch.eye(s.shape[0]),
    "views": lambda q: q.view(q.shape[0], 2, -1).transpose(1, 2).flatten(1).unsqueeze(0).expand(2, -1, -1)[0]
    if type(q) is torch.Tensor else q.view(q.shape[0], H, -1).transpose(1, 2).flatten(1),
    "parts": lambda h: torch.cat([h[:, h.shape[1] // 2 :], -h.chunk(2, 1)[0]], -1),
    "splits": lambda h: torch.stack(h.split(h.shape[1] // 2, 1), 1).flatten(1) * h.unflatten(1, (2, -1))[:, 0].sum(),
    "every second": lambda e: e[:, ::2] - e[:, 1::2],
    "entries": lambda r: r[:, 0] * r[..., -1] + r[:, 1:].sum(1) + r.select(1, 2) + r.narrow(1, 0, 2).sum(1),
    "numbers": lambda r: r * torch.tensor([1.0, 2.0, 4.0]) + torch.tensor(0.5),
    "in place": in_place,
    "assignments": assigned,
    "entries in place": entries_in_place,
    "sizes": lambda x: x * x.shape[-1] ** -0.5 + math.sqrt(x.size(0)) / x.numel() - (x.shape[0] - 1) * len(x.shape),
    "new tensors": lambda x: x.new_full((x.shape[0], x.shape[1]), 2.0) + torch.full_like(x, 3) + x.new_zeros(x.shape),
    "labels": lambda z, t: z.gather(1, t[:, None]) + F.one_hot(t, z.shape[1]) * z,
    "labels of rows": lambda z, t: z[torch.arange(z.shape[0]), t] + torch.take_along_dim(z, t[:, None], 1)[:, 0],
    "embeddings": lambda w, t: F.embedding(t, w) + w[t] + torch.index_select(w, 0, t),
    "scattered": scattered,
    "sums by label": summed_by_label,
    "normalization": lambda x, v: F.layer_norm(x, (x.shape[-1],), v, v) + F.rms_norm(x, (x.shape[-1],), v, 1e-5),
    "cross-entropy": lambda z, t: F.cross_entropy(z, t, label_smoothing=0.1) + F.nll_loss(F.log_softmax(z, 1), t),
    "losses": lambda x, y: F.mse_loss(x, y) + F.l1_loss(x, y, reduction="sum") + F.huber_loss(x, y, delta=0.3),
    "more losses": lambda x, p: F.kl_div(x, p, reduction="batchmean") + F.binary_cross_entropy_with_logits(x, p),
    "soft cross-entropy": lambda x, p: F.cross_entropy(x, p) + F.smooth_l1_loss(x, p, beta=0.7),
    "moments": lambda x: torch.std_mean(x, 0)[0] * torch.std_mean(x, dim=1, keepdim=True)[1] + x.std(0, unbiased=False),
    "products of numbers": lambda r, p: r.prod(1, keepdim=True) * p.prod(),
    "diagonals": lambda s, v: torch.diag(v) @ torch.diag(v) * s.trace() + torch.einsum("ii->i", s).sum() * v,
    "dots in einsum": lambda x, y, w: torch.einsum("...d,...d->...", x, y)[:, None]
    * torch.einsum("...d,kd->...k", x, w),
    "distances": lambda x, w: torch.cdist(x, w) ** 2 + torch.cdist(x, w, p=1.0),
    "norms of layers": lambda x, v, f: F.batch_norm(x, None, None, v, v, training=True) + F.prelu(x, v)
    + F.group_norm(f, 2)[:, f.shape[1] // 3 :].sum(1, keepdim=True),
    "norms of instances": lambda h: F.instance_norm(h[None]) + F.group_norm(h[None], 1).sum(),
    "entropy": lambda x: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(2 * x)),
    "distances of positions": lambda s: s * (torch.arange(s.shape[0]) - torch.arange(s.shape[0])[:, None]).abs(),
    "numbers of labels": lambda z, t: z * t[:, None] + (t != -1)[:, None] + (t.clamp(min=0) == 1)[:, None],
    "labels along rows": lambda w, x, t: torch.zeros_like(w).scatter_add_(0, t[:, None].expand_as(x), x),
    "parts of parts": lambda f: f.view(f.shape[0], 2, 3, -1).transpose(1, 2).flatten(1).view(f.shape[0], 2, -1).sum(1),
    "similarity": lambda x, y: F.cosine_similarity(x, y, dim=-1),
}  # fmt: skip
H = None  # the size H, while code runs on symbols


@pytest.mark.parametrize("name", CODE)
def test_values(name: str):
    global H
    code, rng = CODE[name], np.random.default_rng(3)
    names = code.__code__.co_varnames[: code.__code__.co_argcount]
    said = {n: specification(SHAPES[n]) for n in names}
    arrays = {n: s.sample(SIZES, rng) for n, s in said.items()}
    expected = code(*(torch.tensor(x) for x in arrays.values()))

    H = specification("= H").symbol("H")
    QUESTIONS.set([])
    values = {}
    for n, s in said.items():
        values |= {n: arrays[n]} if s.kind.startswith("<") else part_values(n, s.dims, arrays[n], SIZES)
    with symbolic_code():
        found = code(*(SymbolicTensor(s.symbol(n)) for n, s in said.items())).value.numeric(values, SIZES)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-9, err_msg=name)


REFUSED = {
    "topk": (lambda x: x.topk(1), "Tensor.topk"),
    "a branch": (lambda x: x if x.sum() > 0 else -x, "a branch on the values of a tensor"),
    "a number": (lambda x: x * float(x.mean()), "a number from it"),
    "a loop over a size": (lambda x: [x[i] for i in range(x.shape[0])], "needs the number that N is"),
    "uneven parts": (lambda x: x.chunk(2, 1), "such as '2*K'"),
    "random numbers": (lambda x: F.dropout(x), "random numbers"),
    "sizes in another order": (lambda x: x.reshape(x.shape[1], x.shape[0]), "sizes in another order"),
    "a sum of sizes": (lambda x, w: torch.cat([x, w]), "a sum of sizes"),
    "rounding": (lambda x: x.long(), "rounding"),
    "numbers for labels": (lambda z, t: z[torch.arange(z.shape[0]), t + 1], "does not have labels"),
    "a product over a size": (lambda x: x.prod(0), "not said to be positive"),
    "a size compared with another": (lambda x: x.shape[0] < x.shape[1], "whether N < D"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str):
    code, message = REFUSED[name]
    names = code.__code__.co_varnames[: code.__code__.co_argcount]
    with symbolic_code(), pytest.raises(UnsupportedError, match=message.replace("(", r"\(").replace("*", r"\*")):
        code(*(SymbolicTensor(specification(SHAPES[n]).symbol(n)) for n in names))


@pytest.mark.parametrize(
    "code",
    [
        lambda x, z: x + z,
        lambda x, w: x @ w,
        lambda x: x.view(x.shape[0], 2, -1),
        lambda x, w: torch.einsum("ij,ij", x, w),
    ],
)
def test_shapes_that_fit_for_equal_sizes_only(code):
    names = code.__code__.co_varnames[: code.__code__.co_argcount]
    with symbolic_code(), pytest.raises((ShapeError, UnsupportedError)):
        code(*(SymbolicTensor(specification(SHAPES[n]).symbol(n)) for n in names))


def test_questions_about_sizes_are_answered_and_recorded():
    questions = []
    token = QUESTIONS.set(questions)
    with symbolic_code():
        x = SymbolicTensor(specification("N 2*D").symbol("x"))
        N, D2 = x.shape
        answers = [N == D2, N == 1, N == N, D2 % 2 == 0, N > 0, N <= 64, N * D2 == D2 * N, D2 != 2 * N, N % 8 == 0]
        x.squeeze()
    QUESTIONS.reset(token)
    assert answers == [False, False, True, True, True, True, True, True, True]
    assert list(map(str, questions)) == [
        "N = 2·D: no", "N = 1: no", "N ≤ 64: yes", "2·D = 2·N: no", "N % 8 = 0: yes", "2·D = 1: no",
    ]  # fmt: skip
    agrees = [all(q.agrees({"N": n, "D": d}) for q in questions) for n, d in ((8, 3), (8, 4), (8, 8), (72, 3), (1, 3))]
    assert agrees == [True, False, False, False, False]
