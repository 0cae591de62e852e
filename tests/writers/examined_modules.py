"""Right and wrong code as people write it: modules, functions with a backward, operators, and more autograd functions."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from examined_functions import adder
from torch.autograd import Function

CASES = []
case = adder(CASES)


def given(right, f, backward, **s):
    CASES.append((getattr(f, "__name__", None) or type(f).__name__, f, {"backward": backward}, right, s))


# nn.Module
class RMS(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        v = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(v + self.eps))


def rms_b(x, weight, g):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    gy = g * weight
    return r * gy - x * r**3 * (gy * x).mean(-1, keepdim=True), (g * x * r).sum(0)


given(True, RMS(4), rms_b, x="N D", weight="D")


def rms_b2(x, weight, g):
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    gy = g * weight
    return r * gy - x * r**2 * (gy * x).mean(-1, keepdim=True), (g * x * r).sum(0)


given(False, RMS(4), rms_b2, x="N D", weight="D")


class MLP(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.up = nn.Linear(d, h)
        self.act = nn.SiLU()
        self.down = nn.Linear(h, d)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def mlp_b(x, up_weight, up_bias, down_weight, down_bias, g):
    z = x @ up_weight.T + up_bias
    s = torch.sigmoid(z)
    a = z * s
    ga = g @ down_weight
    gz = ga * (s + a * (1 - s))
    return {
        "x": g + gz @ up_weight,
        "up_weight": gz.T @ x,
        "up_bias": gz.sum(0),
        "down_weight": g.T @ a,
        "down_bias": g.sum(0),
    }


given(True, MLP(3, 4), mlp_b, x="N D", up_weight="H D", up_bias="H", down_weight="D H", down_bias="D")


def mlp_b3(x, up_weight, up_bias, down_weight, down_bias, g):
    z = x @ up_weight.T + up_bias
    s = torch.sigmoid(z)
    a = z * s
    ga = g @ down_weight
    gz = ga * (s + a * (1 - s))
    return {
        "x": gz @ up_weight,
        "up_weight": gz.T @ x,
        "up_bias": gz.sum(0),
        "down_weight": g.T @ a,
        "down_bias": g.sum(0),
    }


given(False, MLP(3, 4), mlp_b3, x="N D", up_weight="H D", up_bias="H", down_weight="D H", down_bias="D")

ln = nn.LayerNorm(5)


def ln_b(input, weight, bias, g):
    mu = input.mean(-1, keepdim=True)
    v = input.var(-1, unbiased=False, keepdim=True)
    r = 1 / torch.sqrt(v + 1e-5)
    xh = (input - mu) * r
    gh = g * weight
    return r * (gh - gh.mean(-1, True) - xh * (gh * xh).mean(-1, True)), (g * xh).sum(0), g.sum(0)


given(True, ln, ln_b, input="N D", weight="D", bias="D")

bn = nn.BatchNorm1d(5)


def bn_b(input, weight, bias, g):
    n = input.shape[0]
    mu = input.mean(0)
    v = input.var(0, unbiased=False)
    xh = (input - mu) / torch.sqrt(v + 1e-5)
    gh = g * weight
    return (gh - gh.mean(0) - xh * (gh * xh).mean(0)) / torch.sqrt(v + 1e-5), (g * xh).sum(0), g.sum(0)


given(True, bn, bn_b, input="N D", weight="D", bias="D")

emb = nn.Embedding(7, 3)


def emb_b(input, weight, g):
    return None, torch.zeros_like(weight).index_add_(0, input, g)


given(True, emb, emb_b, input="N < V", weight="V D")
given(
    False,
    emb,
    lambda input, weight, g: (None, torch.zeros_like(weight).index_add_(0, input, g) / input.shape[0]),
    input="N < V",
    weight="V D",
)


# functions with ordinary losses
def ce(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


given(
    True,
    ce,
    lambda logits, target, g: (g[:, None] * (logits.softmax(1) - F.one_hot(target, logits.shape[1])), None),
    logits="N K",
    target="N < K",
)


def ce_ign(logits, target, w):
    return (F.cross_entropy(logits, target, reduction="none") * w).sum() / w.sum()


given(
    True,
    ce_ign,
    lambda logits, target, w, g: (
        g * (w / w.sum())[:, None] * (logits.softmax(1) - F.one_hot(target, logits.shape[1])),
        None,
        None,
    ),
    logits="N K",
    target="N < K",
    w="N, > 0",
)


def tokens_ce(logits, target):  # B T V
    return F.cross_entropy(logits.view(-1, logits.size(-1)), target.view(-1))


def tokens_ce_b(logits, target, g):
    B, T, V = logits.shape
    d = logits.softmax(-1) - F.one_hot(target, V).float()
    return g * d / (B * T), None


given(True, tokens_ce, tokens_ce_b, logits="B T V", target="B T < V")
given(
    False,
    tokens_ce,
    lambda logits, target, g: (g * (logits.softmax(-1) - F.one_hot(target, logits.shape[-1])) / logits.shape[0], None),
    logits="B T V",
    target="B T < V",
)


def focal_bin(x, t):
    p = torch.sigmoid(x)
    t = t.to(p.dtype)
    pt = p * t + (1 - p) * (1 - t)
    return (-((1 - pt) ** 2) * torch.log(pt)).mean()


def focal_bin_b(x, t, g):
    p = torch.sigmoid(x)
    t = t.to(p.dtype)
    pt = p * t + (1 - p) * (1 - t)
    dpt = p * (1 - p) * (2 * t - 1)
    return g * dpt * (2 * (1 - pt) * torch.log(pt) - (1 - pt) ** 2 / pt) / x.numel(), None


given(True, focal_bin, focal_bin_b, x="N", t="N ?")


def nll_gauss(mu, logvar, y):
    return 0.5 * (logvar + (y - mu) ** 2 / logvar.exp()).sum(-1).mean()


given(
    True,
    nll_gauss,
    lambda mu, logvar, y, g: (
        g * (mu - y) * torch.exp(-logvar) / mu.shape[0],
        g * 0.5 * (1 - (y - mu) ** 2 * (-logvar).exp()) / mu.shape[0],
        g * (y - mu) / logvar.exp() / mu.shape[0],
    ),
    mu="N D",
    logvar="N D",
    y="N D",
)


def vae_kl(mu, logvar):
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()


given(
    True,
    vae_kl,
    lambda mu, logvar, g: (g * mu / mu.size(0), g * 0.5 * (logvar.exp() - 1) / mu.size(0)),
    mu="N D",
    logvar="N D",
)
given(
    False,
    vae_kl,
    lambda mu, logvar, g: (g * mu / mu.size(0), g * (logvar.exp() - 1) / mu.size(0)),
    mu="N D",
    logvar="N D",
)


def logcosh(x, t):
    d = x - t
    return (d + F.softplus(-2 * d) - math.log(2)).mean()


given(
    True,
    logcosh,
    lambda x, t, g: (g * torch.tanh(x - t) / x.numel(), -g * torch.tanh(x - t) / x.numel()),
    x="N D",
    t="N D",
)


def tversky(p, t, a, b):
    tp = (p * t).sum(-1)
    fp = (p * (1 - t)).sum(-1)
    fn = ((1 - p) * t).sum(-1)
    return 1 - (tp + 1) / (tp + a * fp + b * fn + 1)


def tversky_b(p, t, a, b, g):
    tp = (p * t).sum(-1, keepdim=True)
    fp = (p * (1 - t)).sum(-1, keepdim=True)
    fn = ((1 - p) * t).sum(-1, keepdim=True)
    d = tp + a * fp + b * fn + 1
    return -g[:, None] * (t / d - (tp + 1) * (t + a * (1 - t) - b * t) / d**2), None


given(True, tversky, tversky_b, p="N D", t="N D", a=0.3, b=0.7)


def cosface(x, w, t, s, m):
    c = F.normalize(x) @ F.normalize(w).T
    oh = F.one_hot(t, w.shape[0])
    return F.cross_entropy(s * (c - m * oh), t)


def cosface_b(x, w, t, s, m, g):
    nx, nw = x.norm(dim=1, keepdim=True), w.norm(dim=1, keepdim=True)
    xh, wh = x / nx, w / nw
    c = xh @ wh.T
    oh = F.one_hot(t, w.shape[0]).to(x.dtype)
    dc = g * s * (torch.softmax(s * (c - m * oh), 1) - oh) / x.shape[0]
    dxh, dwh = dc @ wh, dc.T @ xh
    return (dxh - xh * (dxh * xh).sum(1, True)) / nx, (dwh - wh * (dwh * wh).sum(1, True)) / nw, None


given(True, cosface, cosface_b, x="N D", w="K D", t="N < K", s=30.0, m=0.35)


def hinge_multi(x, t):
    correct = x.gather(1, t[:, None])
    m = (x - correct + 1).clamp(min=0)
    return (m.sum(1) - 1).mean()


def hinge_multi_b(x, t, g):
    correct = x.gather(1, t.unsqueeze(1))
    m = ((x - correct + 1) > 0).float()
    m = m.scatter_add(1, t.unsqueeze(1), -m.sum(1, keepdim=True))
    return g * m / x.shape[0], None


given(True, hinge_multi, hinge_multi_b, x="N K", t="N < K")


def poly(x, a):
    return a[0] + a[1] * x + a[2] * x * x


given(
    True,
    poly,
    lambda x, a, g: (g * (a[1] + 2 * a[2] * x), torch.stack([g.sum(), (g * x).sum(), (g * x * x).sum()])),
    x="N",
    a="3",
)


def prelu(x, a):
    return torch.where(x > 0, x, a * x)


given(
    True,
    prelu,
    lambda x, a, g: (
        torch.where(x > 0, g, a * g),
        torch.where(x > 0, torch.zeros_like(x), g * x).sum((0, 2, 3), keepdim=True).squeeze(0),
    ),
    x="N C H W",
    a="C 1 1",
)


def prelu2(x, a):
    return F.prelu(x, a)


given(
    True,
    prelu2,
    lambda x, a, g: (torch.where(x > 0, g, a[:, None] * g), torch.where(x > 0, 0, g * x).sum((0, 2))),
    x="N C T",
    a="C",
)


def maxpool(x):
    return x.unflatten(1, (-1, 2)).amax(-1)


def maxp_b(x, y, g):
    u = x.view(x.shape[0], -1, 2)
    return ((u == y.unsqueeze(-1)).to(g.dtype) * g.unsqueeze(-1)).view_as(x)


given(True, maxpool, maxp_b, x="N K*2")


def sinkhorn1(x):
    x = x - torch.logsumexp(x, 1, keepdim=True)
    return x - torch.logsumexp(x, 0, keepdim=True)


def sink_b(x, g):
    u = x - torch.logsumexp(x, 1, keepdim=True)
    g = g - torch.softmax(u, 0) * g.sum(0, keepdim=True)
    return g - torch.softmax(x, 1) * g.sum(1, keepdim=True)


given(True, sinkhorn1, sink_b, x="N M")


def attn_sink(q, k, v, sink):
    s = q @ k.T
    e = torch.exp(s - s.max(-1, keepdim=True).values) if False else torch.exp(s)
    p = e / (e.sum(-1, keepdim=True) + torch.exp(sink))
    return p @ v


def attn_sink_b(q, k, v, sink, y, g):
    e = torch.exp(q @ k.T)
    z = e.sum(-1, keepdim=True) + torch.exp(sink)
    p = e / z
    dp = g @ v.T
    ds = p * (dp - (g * y).sum(-1, keepdim=True))
    return ds @ k, ds.T @ q, p.T @ g, -(torch.exp(sink) / z * (g * y).sum(-1, keepdim=True)).sum()


given(True, attn_sink, attn_sink_b, q="T D", k="S D", v="S E", sink="")


@torch.library.custom_op("matgrad_examined::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap)


def _setup(ctx, inputs, output):
    x, cap = inputs
    ctx.save_for_backward(output)
    ctx.cap = cap


def _bw(ctx, g):
    (y,) = ctx.saved_tensors
    return g * (1 - (y / ctx.cap) ** 2), None


softcap.register_autograd(_bw, setup_context=_setup)
case(True, x="N D", cap="> 0")(softcap)


@torch.library.custom_op("matgrad_examined::softcap2", mutates_args=())
def softcap2(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap)


def _bw2(ctx, g):
    (y,) = ctx.saved_tensors
    return g * (1 - y**2) / ctx.cap, None


softcap2.register_autograd(_bw2, setup_context=_setup)
case(False, x="N D", cap="> 0")(softcap2)


class SeveralOut(Function):
    @staticmethod
    def forward(ctx, x, w):
        a = x @ w
        b = torch.relu(a)
        ctx.save_for_backward(x, w, a)
        return a, b

    @staticmethod
    def backward(ctx, ga, gb):
        x, w, a = ctx.saved_tensors
        g = ga + gb * (a > 0)
        return g @ w.T, x.T @ g


case(True, x="N D", w="D K")(SeveralOut)


class SeveralOutForgot(SeveralOut):
    @staticmethod
    def backward(ctx, ga, gb):
        x, w, a = ctx.saved_tensors
        g = gb * (a > 0)
        return g @ w.T, x.T @ g


case(False, x="N D", w="D K")(SeveralOutForgot)


class AddInPlace(Function):  # forward changes x in place and saves it: stale
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = x.mul_(2)
        ctx.mark_dirty(x)
        return y**2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 8 * x


case(False, x="N")(AddInPlace)


class FusedLinearCE(Function):
    @staticmethod
    def forward(ctx, x, w, t):
        logits = x @ w.t()
        lse = torch.logsumexp(logits, -1)
        loss = (lse - logits.gather(1, t[:, None]).squeeze(1)).mean()
        p = torch.exp(logits - lse[:, None])
        p.scatter_add_(1, t[:, None], -torch.ones_like(t, dtype=p.dtype)[:, None])
        p /= x.shape[0]
        ctx.save_for_backward(p @ w, p.t() @ x)
        return loss

    @staticmethod
    def backward(ctx, g):
        dx, dw = ctx.saved_tensors
        return g * dx, g * dw, None


case(True, x="N D", w="V D", t="N < V")(FusedLinearCE)


class ZLoss(Function):
    @staticmethod
    def forward(ctx, z, t, alpha):
        lse = z.logsumexp(-1)
        ctx.save_for_backward(z, t, lse)
        ctx.alpha = alpha
        return (lse - z.gather(-1, t.unsqueeze(-1)).squeeze(-1) + alpha * lse**2).mean()

    @staticmethod
    def backward(ctx, g):
        z, t, lse = ctx.saved_tensors
        p = (z - lse[:, None]).exp()
        d = p * (1 + 2 * ctx.alpha * lse)[:, None]
        d[torch.arange(z.shape[0]), t] -= 1
        return g * d / z.shape[0], None, None


case(True, z="N V", t="N < V", alpha=1e-4)(ZLoss)


class ZLossWrong(ZLoss):
    @staticmethod
    def backward(ctx, g):
        z, t, lse = ctx.saved_tensors
        p = (z - lse[:, None]).exp()
        d = p * (1 + ctx.alpha * lse)[:, None]
        d[torch.arange(z.shape[0]), t] -= 1
        return g * d / z.shape[0], None, None


case(False, z="N V", t="N < V", alpha=1e-4)(ZLossWrong)


class DropPath(Function):
    @staticmethod
    def forward(ctx, x, mask, keep_prob):
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        m = mask.view(shape) / keep_prob
        ctx.save_for_backward(m)
        return x * m

    @staticmethod
    def backward(ctx, g):
        (m,) = ctx.saved_tensors
        return g * m, None, None


case(True, x="B T D", mask="B ?", keep_prob=0.9)(DropPath)


class Softmax1(Function):
    @staticmethod
    def forward(ctx, x, temperature: float = 1.0):
        y = F.softmax(x / temperature, dim=-1)
        ctx.save_for_backward(y)
        ctx.T = temperature
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return (y * (g - torch.einsum("...i,...i->...", g, y).unsqueeze(-1))) / ctx.T, None


case(True, x="B T K", temperature="> 0")(Softmax1)


class Standardize(Function):
    @staticmethod
    def forward(ctx, x):
        std, mean = torch.std_mean(x, dim=0)
        y = (x - mean) / std
        ctx.save_for_backward(y, std)
        return y

    @staticmethod
    def backward(ctx, g):
        y, std = ctx.saved_tensors
        n = y.shape[0]
        return (g - g.mean(0) - y * (g * y).sum(0) / (n - 1)) / std


case(True, x="N D")(Standardize)


class StandardizeN(Standardize):
    @staticmethod
    def backward(ctx, g):
        y, std = ctx.saved_tensors
        return (g - g.mean(0) - y * (g * y).mean(0)) / std


case(False, x="N D")(StandardizeN)


class Trace(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.trace(a @ b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b.T, g * a.T


case(True, a="N K", b="K N")(Trace)


class Diag(Function):
    @staticmethod
    def forward(ctx, a, d):
        ctx.save_for_backward(a, d)
        return torch.diag(d) @ a

    @staticmethod
    def backward(ctx, g):
        a, d = ctx.saved_tensors
        return torch.diag(d) @ g, torch.diagonal(g @ a.T)


case(True, a="N K", d="N")(Diag)


class Prod(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.prod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y).unsqueeze(-1) / x


case(True, x="N 3")(Prod)
case(True, x="N D, > 0")(Prod)


class PairDist(Function):
    @staticmethod
    def forward(ctx, a, b):
        d = torch.cdist(a, b) ** 2
        ctx.save_for_backward(a, b)
        return d

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return 2 * (g.sum(1, keepdim=True) * a - g @ b), 2 * (g.sum(0)[:, None] * b - g.T @ a)


case(True, a="N D", b="M D")(PairDist)


class AdaIN(Function):
    @staticmethod
    def forward(ctx, x, s, b):
        v, m = torch.var_mean(x, dim=(2, 3), keepdim=True, correction=0)
        n = (x - m) * torch.rsqrt(v + 1e-5)
        ctx.save_for_backward(n, v, s)
        return n * (1 + s[..., None, None]) + b[..., None, None]

    @staticmethod
    def backward(ctx, g):
        n, v, s = ctx.saved_tensors
        gs, gb = (g * n).sum(dim=[-1, -2]), g.sum(dim=[-1, -2])
        gn = g * (1 + s[:, :, None, None])
        gx = torch.rsqrt(v + 1e-5) * (
            gn - gn.mean((-2, -1), keepdim=True) - n * torch.mean(gn * n, dim=(-2, -1), keepdim=True)
        )
        return gx, gs, gb


case(True, x="B C H W", s="B C", b="B C")(AdaIN)


class CEIgnoreIndex(Function):
    @staticmethod
    def forward(ctx, z, t, ignore_index):
        lp = F.log_softmax(z, 1)
        valid = t != ignore_index
        ctx.save_for_backward(lp, t, valid)
        return -(lp.gather(1, t.clamp(min=0).unsqueeze(1)).squeeze(1) * valid).sum() / valid.sum()

    @staticmethod
    def backward(ctx, g):
        lp, t, valid = ctx.saved_tensors
        d = lp.exp() - F.one_hot(t.clamp(min=0), lp.shape[1])
        return g * d * valid[:, None] / valid.sum(), None, None


case(True, z="N K", t="N < K", ignore_index=-100)(CEIgnoreIndex)
