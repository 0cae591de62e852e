"""Right and wrong autograd functions, in the styles in which people write them: RIGHT and WRONG, with their shapes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

RIGHT, WRONG = ({}, {})


def case(right=True, **shapes):

    def add(cls):
        (RIGHT if right else WRONG)[cls.__name__] = (cls, shapes)
        return cls

    return add


@case(x="N D", w="K D", b="K")
class Linear(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = g.mm(w)
        if ctx.needs_input_grad[1]:
            gw = g.t().mm(x)
        if ctx.needs_input_grad[2]:
            gb = g.sum(0)
        return (gx, gw, gb)


@case(x="B T D", w="K D")
class Linear3D(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return F.linear(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = torch.matmul(g, w)
        gw = g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])
        return (gx, gw)


@case(x="B T D", w="D", eps=">0")
class RMSNorm(Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, rstd)
        return x * rstd * w

    @staticmethod
    def backward(ctx, g):
        x, w, rstd = ctx.saved_tensors
        xhat = x * rstd
        gw = (g * xhat).sum(dim=tuple(range(g.dim() - 1)))
        gy = g * w
        gx = rstd * (gy - xhat * (gy * xhat).mean(-1, keepdim=True))
        return (gx, gw, None)


@case(x="N D", w="D", b="D", eps=">0")
class LayerNorm(Function):
    @staticmethod
    def forward(ctx, x, w, b, eps):
        mu = x.mean(dim=-1, keepdim=True)
        var = ((x - mu) ** 2).mean(dim=-1, keepdim=True)
        rstd = 1.0 / torch.sqrt(var + eps)
        xhat = (x - mu) * rstd
        ctx.save_for_backward(xhat, rstd, w)
        return w * xhat + b

    @staticmethod
    def backward(ctx, g):
        xhat, rstd, w = ctx.saved_tensors
        gy = g * w
        c1 = (xhat * gy).mean(-1, keepdim=True)
        c2 = gy.mean(-1, keepdim=True)
        gx = (gy - (xhat * c1 + c2)) * rstd
        return (gx, (g * xhat).sum(0), g.sum(0), None)


@case(x="B T D")
class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        m = x.max(dim=-1, keepdim=True).values
        e = torch.exp(x - m)
        y = e / e.sum(dim=-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(dim=-1, keepdim=True))


@case(x="N K")
class LogSoftmax(Function):
    @staticmethod
    def forward(ctx, x):
        x = x - x.amax(dim=1, keepdim=True)
        y = x - x.exp().sum(1, keepdim=True).log()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g - y.exp() * g.sum(1, keepdim=True)


@case(z="N K", t="N K")
class SoftCrossEntropy(Function):
    @staticmethod
    def forward(ctx, z, t):
        p = torch.softmax(z, dim=1)
        ctx.save_for_backward(p, t)
        return -(t * F.log_softmax(z, dim=1)).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        return (g * (p * t.sum(1, keepdim=True) - t) / p.shape[0], None)


@case(z="N K", t="N < K")
class LabelCrossEntropy(Function):
    @staticmethod
    def forward(ctx, z, t):
        logp = z - torch.logsumexp(z, dim=1, keepdim=True)
        ctx.save_for_backward(logp, t)
        return -logp.gather(1, t.unsqueeze(1)).squeeze(1).mean()

    @staticmethod
    def backward(ctx, g):
        logp, t = ctx.saved_tensors
        n, k = logp.shape
        return (g * (logp.exp() - F.one_hot(t, k)) / n, None)


@case(x="B T 2*F")
class SwiGLU(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, dim=-1)
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        da = g * b * s * (1 + a * (1 - s))
        db = g * a * s
        return torch.cat([da, db], dim=-1)


@case(x="N D")
class GELUTanh(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        c = math.sqrt(2 / math.pi)
        return 0.5 * x * (1 + torch.tanh(c * (x + 0.044715 * x**3)))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        c = math.sqrt(2 / math.pi)
        t = torch.tanh(c * (x + 0.044715 * x**3))
        return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x**2))


@case(x="N D")
class GELUErf(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        pdf = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return g * (cdf + x * pdf)


@case(x="N D", y="N D")
class CosineSimilarity(Function):
    @staticmethod
    def forward(ctx, x, y):
        nx, ny = (x.norm(dim=-1, keepdim=True), y.norm(dim=-1, keepdim=True))
        c = (x * y).sum(-1, keepdim=True) / (nx * ny)
        ctx.save_for_backward(x, y, nx, ny, c)
        return c.squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        x, y, nx, ny, c = ctx.saved_tensors
        g = g.unsqueeze(-1)
        return (g * (y / (nx * ny) - c * x / nx**2), g * (x / (nx * ny) - c * y / ny**2))


@case(x="N K", y="N K")
class SquaredHinge(Function):
    @staticmethod
    def forward(ctx, x, y):
        m = torch.clamp(1 - x * y, min=0)
        ctx.save_for_backward(m, y)
        return (m**2).mean()

    @staticmethod
    def backward(ctx, g):
        m, y = ctx.saved_tensors
        return (-2 * g * m * y / m.numel(), None)


@case(x="N D", t="N D", delta=">0")
class Huber(Function):
    @staticmethod
    def forward(ctx, x, t, delta):
        d = x - t
        ctx.save_for_backward(d)
        ctx.delta = delta
        a = d.abs()
        return torch.where(a <= delta, 0.5 * d * d, delta * (a - 0.5 * delta)).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        gx = g * torch.where(d.abs() <= ctx.delta, d, ctx.delta * torch.sign(d)) / d.numel()
        return (gx, -gx, None)


@case(x="N D")
class ReLUInPlace(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        y = y.clamp_(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y > 0).to(g.dtype)


@case(x="B T 2*F", cos="T F", sin="T F")
class RoPE(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        d = x.shape[-1] // 2
        x1, x2 = (x[..., :d], x[..., d:])
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        g1, g2 = g.chunk(2, dim=-1)
        return (torch.cat((g1 * cos + g2 * sin, g2 * cos - g1 * sin), dim=-1), None, None)


@case(q="B T D", k="B S D", v="B S E")
class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v):
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.softmax(q @ k.transpose(-2, -1) * scale, dim=-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        dv = p.transpose(-2, -1) @ g
        dp = g @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        return (ds @ k, ds.transpose(-2, -1) @ q, dv)


@case(q="B T D", k="B S D", v="B S E", mask="T S ?")
class FlashStyleMaskedAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        s = torch.einsum("btd,bsd->bts", q, k) * q.size(-1) ** (-0.5)
        p = F.softmax(s.masked_fill(mask, float("-inf")), dim=-1)
        o = torch.einsum("bts,bse->bte", p, v)
        ctx.save_for_backward(q, k, v, p, o)
        return o

    @staticmethod
    def backward(ctx, g):
        q, k, v, p, o = ctx.saved_tensors
        delta = (g * o).sum(-1, keepdim=True)
        ds = p * (torch.einsum("bte,bse->bts", g, v) - delta) * q.size(-1) ** (-0.5)
        return (
            torch.einsum("bts,bsd->btd", ds, k),
            torch.einsum("bts,btd->bsd", ds, q),
            torch.einsum("bts,bte->bse", p, g),
            None,
        )


@case(x="N C T", w="C", b="C", eps=1e-05)
class BatchNorm(Function):
    @staticmethod
    def forward(ctx, x, w, b, eps):
        n = x.shape[0] * x.shape[2]
        mu = x.sum(dim=(0, 2), keepdim=True) / n
        var = ((x - mu) ** 2).sum(dim=(0, 2), keepdim=True) / n
        istd = (var + eps) ** (-0.5)
        xhat = (x - mu) * istd
        ctx.save_for_backward(xhat, istd, w)
        ctx.n = n
        return w[None, :, None] * xhat + b[None, :, None]

    @staticmethod
    def backward(ctx, g):
        xhat, istd, w = ctx.saved_tensors
        gw, gb = ((g * xhat).sum(dim=(0, 2)), g.sum(dim=(0, 2)))
        gx = w[None, :, None] * istd / ctx.n * (ctx.n * g - gb[None, :, None] - xhat * gw[None, :, None])
        return (gx, gw, gb, None)


@case(x="N G*C T", groups="= G", eps=">0")
class GroupNorm(Function):
    @staticmethod
    def forward(ctx, x, groups, eps):
        n, c, t = x.shape
        z = x.view(n, groups, -1)
        v, m = torch.var_mean(z, dim=-1, unbiased=False, keepdim=True)
        rstd = torch.rsqrt(v + eps)
        zhat = (z - m) * rstd
        ctx.save_for_backward(zhat, rstd)
        return zhat.view(n, c, t)

    @staticmethod
    def backward(ctx, g):
        zhat, rstd = ctx.saved_tensors
        gz = g.reshape(zhat.shape)
        gx = rstd * (gz - gz.mean(-1, keepdim=True) - zhat * (gz * zhat).mean(-1, keepdim=True))
        return (gx.reshape(g.shape), None, None)


@case(x="N D", dim_scale="")
class L2Normalize(Function):
    @staticmethod
    def forward(ctx, x, dim_scale):
        n = torch.sqrt((x * x).sum(-1, keepdim=True))
        y = x / n
        ctx.save_for_backward(y, n, dim_scale)
        return y * dim_scale

    @staticmethod
    def backward(ctx, g):
        y, n, s = ctx.saved_tensors
        return (s * (g - y * (g * y).sum(-1, keepdim=True)) / n, (g * y).sum())


@case(x="N D", t="N D")
class BCEWithLogits(Function):
    @staticmethod
    def forward(ctx, x, t):
        ctx.save_for_backward(x, t)
        return (torch.clamp(x, min=0) - x * t + torch.log1p(torch.exp(-x.abs()))).mean()

    @staticmethod
    def backward(ctx, g):
        x, t = ctx.saved_tensors
        return (g * (torch.sigmoid(x) - t) / x.numel(), None)


@case(p="N K", q="N K")
class KLFromLogits(Function):
    @staticmethod
    def forward(ctx, p, q):
        lp, lq = (F.log_softmax(p, -1), F.log_softmax(q, -1))
        ctx.save_for_backward(lp, lq)
        return (lp.exp() * (lp - lq)).sum() / p.shape[0]

    @staticmethod
    def backward(ctx, g):
        lp, lq = ctx.saved_tensors
        P, Q, n = (lp.exp(), lq.exp(), lp.shape[0])
        d = lp - lq
        return (g * P * (d - (P * d).sum(-1, keepdim=True)) / n, g * (Q - P) / n)


@case(x="B T H*K", w="3*H*K H*K", heads="= H")
class MultiHeadFromView(Function):
    """one projection, split in heads with view: qkv of x, summed"""

    @staticmethod
    def forward(ctx, x, w, heads):
        B, T, C = x.shape
        H = heads
        q, k, v = F.linear(x, w).chunk(3, -1)
        q, k, v = (t.view(B, T, H, C // H).transpose(1, 2) for t in (q, k, v))
        p = torch.softmax(q @ k.transpose(-2, -1), -1)
        ctx.save_for_backward(x, w, q, k, v, p)
        return (p @ v).transpose(1, 2).reshape(B, T, C)

    @staticmethod
    def backward(ctx, g):
        x, w, q, k, v, p = ctx.saved_tensors
        B, T, C = x.shape
        H = q.shape[1]
        g = g.view(B, T, H, C // H).transpose(1, 2)
        dv = p.transpose(-2, -1) @ g
        dp = g @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        dq, dk = (ds @ k, ds.transpose(-2, -1) @ q)
        d = torch.cat([t.transpose(1, 2).reshape(B, T, C) for t in (dq, dk, dv)], -1)
        return (d @ w, d.flatten(0, 1).t() @ x.flatten(0, 1), None)


@case(x="N T H*K", w="3*H*K H*K", b="3*H*K", wo="H*K H*K", bo="H*K", heads="= H")
class MultiHeadAttention(Function):
    """projections in and out"""

    @staticmethod
    def forward(ctx, x, w, b, wo, bo, heads):
        N, T, D = x.shape
        q, k, v = (t.view(N, T, heads, D // heads).transpose(1, 2) for t in F.linear(x, w, b).chunk(3, -1))
        ctx.scale = 1 / math.sqrt(D // heads)
        p = torch.softmax(q @ k.transpose(-2, -1) * ctx.scale, -1)
        o = (p @ v).transpose(1, 2).reshape(N, T, D)
        ctx.save_for_backward(x, w, wo, q, k, v, p, o)
        return F.linear(o, wo, bo)

    @staticmethod
    def backward(ctx, g):
        x, w, wo, q, k, v, p, o = ctx.saved_tensors
        N, T, D = x.shape
        do = (g @ wo).view(N, T, q.shape[1], -1).transpose(1, 2)
        dp = do @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        parts = (ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ do)
        d = torch.cat([t.transpose(1, 2).reshape(N, T, D) for t in parts], -1)
        dw, dwo = (a.flatten(0, 1).t() @ b.flatten(0, 1) for a, b in ((d, x), (g, o)))
        return (d @ w, dw, d.sum((0, 1)), dwo, g.sum((0, 1)), None)


@case(q="T D", k="S D", v="S E")
class FlashRecompute(Function):
    """saves only o and the logsumexp"""

    @staticmethod
    def forward(ctx, q, k, v):
        s = q @ k.t()
        m = s.max(-1, keepdim=True)[0]
        l = (s - m).exp().sum(-1, keepdim=True)
        o = (s - m).exp() @ v / l
        lse = m + l.log()
        ctx.save_for_backward(q, k, v, o, lse)
        return o

    @staticmethod
    def backward(ctx, g):
        q, k, v, o, lse = ctx.saved_tensors
        p = (q @ k.t() - lse).exp()
        delta = (g * o).sum(-1, keepdim=True)
        ds = p * (g @ v.t() - delta)
        return (ds @ k, ds.t() @ q, p.t() @ g)


@case(x="N D", eps=">0")
class LayerNormOnePass(Function):
    """var = E[x²] - μ²"""

    @staticmethod
    def forward(ctx, x, eps):
        mu = x.mean(-1, keepdim=True)
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) - mu * mu + eps)
        ctx.save_for_backward(x, mu, r)
        return (x - mu) * r

    @staticmethod
    def backward(ctx, g):
        x, mu, r = ctx.saved_tensors
        h = (x - mu) * r
        return (r * (g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True)), None)


@case(x="N K", t="N < K", gamma=2.0)
class FocalLoss(Function):
    @staticmethod
    def forward(ctx, x, t, gamma):
        lp = F.log_softmax(x, -1).gather(1, t.unsqueeze(1))
        p = lp.exp()
        ctx.save_for_backward(x, t, p, lp)
        ctx.gamma = gamma
        return (-((1 - p) ** gamma) * lp).mean()

    @staticmethod
    def backward(ctx, g):
        x, t, p, lp = ctx.saved_tensors
        ga = ctx.gamma
        c = ga * (1 - p) ** (ga - 1) * p * lp - (1 - p) ** ga
        return (g * c * (F.one_hot(t, x.shape[1]) - torch.softmax(x, -1)) / x.shape[0], None, None)


@case(x="N K", t="N < K", gamma=">0")
class FocalLossSymbolicGamma(FocalLoss):
    forward = FocalLoss.__dict__["forward"]
    backward = FocalLoss.__dict__["backward"]


@case(a="N D", b="N D", temp="")
class InfoNCE(Function):
    """diagonal of a·bᵀ"""

    @staticmethod
    def forward(ctx, a, b, temp):
        s = a @ b.t() * temp
        p = torch.softmax(s, 1)
        ctx.save_for_backward(a, b, temp, p)
        return (torch.logsumexp(s, 1) - (a * b).sum(1) * temp).mean()

    @staticmethod
    def backward(ctx, g):
        a, b, temp, p = ctx.saved_tensors
        n = a.shape[0]
        g = g / n
        return (g * temp * (p @ b - b), g * temp * (p.t() @ a - a), g * ((p * (a @ b.t())).sum() - (a * b).sum()))


@case(p="N D", t="N D", s=">0")
class Dice(Function):
    @staticmethod
    def forward(ctx, p, t, s):
        i, u = ((p * t).sum(1), (p + t).sum(1))
        ctx.save_for_backward(t, i, u)
        ctx.s = s
        return (1 - (2 * i + s) / (u + s)).mean()

    @staticmethod
    def backward(ctx, g):
        t, i, u = ctx.saved_tensors
        u, i = (u.unsqueeze(1) + ctx.s, 2 * i.unsqueeze(1) + ctx.s)
        return (-g * (2 * t / u - i / u**2) / t.shape[0], None, None)


@case(c="N", r="N", beta=">0")
class DPO(Function):
    @staticmethod
    def forward(ctx, c, r, beta):
        ctx.save_for_backward(c - r)
        ctx.beta = beta
        return -F.logsigmoid(beta * (c - r)).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        x = -g * ctx.beta * torch.sigmoid(-ctx.beta * d) / d.shape[0]
        return (x, -x, None)


@case(x="N T")
class CumSum(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(1)

    @staticmethod
    def backward(ctx, g):
        return g.flip(1).cumsum(1).flip(1)


@case(q="T D", k="T D")
class CausalTriu(Function):
    @staticmethod
    def forward(ctx, q, k):
        T = q.shape[0]
        m = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        p = torch.softmax((q @ k.t()).masked_fill(m, float("-inf")), -1)
        ctx.save_for_backward(q, k, p)
        return p

    @staticmethod
    def backward(ctx, g):
        q, k, p = ctx.saved_tensors
        ds = p * (g - (g * p).sum(-1, keepdim=True))
        return (ds @ k, ds.t() @ q)


@case(x="B T 2*F", theta="T F")
class RotaryInPlace(Function):
    """writes through views, as k-diffusion does"""

    @staticmethod
    def forward(ctx, x, theta):
        ctx.save_for_backward(theta)
        y = x.clone()
        a, b = y.chunk(2, -1)
        u, v = (a * theta, b * theta)
        a.copy_(u - v)
        b.copy_(v + u)
        return y

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        a, b = g.chunk(2, -1)
        return (torch.cat([(a + b) * t, (b - a) * t], -1), None)


@case(x="N D", w="K D")
class WeightNormLinear(Function):
    @staticmethod
    def forward(ctx, x, w):
        n = w.norm(dim=1, keepdim=True)
        ctx.save_for_backward(x, w, n)
        return x @ (w / n).t()

    @staticmethod
    def backward(ctx, g):
        x, w, n = ctx.saved_tensors
        u = w / n
        d = g.t() @ x
        return (g @ u, (d - u * (d * u).sum(1, keepdim=True)) / n)


@case(False, z="N K", t="N K")
class SoftCrossEntropyMissingFactor(Function):
    """p - t, where p·Σt - t is needed unless rows of t sum to 1"""

    @staticmethod
    def forward(ctx, z, t):
        ctx.save_for_backward(torch.softmax(z, dim=1), t)
        return -(t * F.log_softmax(z, dim=1)).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        return (g * (p - t) / p.shape[0], None)


@case(False, x="N D", t="N D")
class MSEForgottenN(Function):
    @staticmethod
    def forward(ctx, x, t):
        ctx.save_for_backward(x, t)
        return ((x - t) ** 2).mean()

    @staticmethod
    def backward(ctx, g):
        x, t = ctx.saved_tensors
        return (g * 2 * (x - t) / x.shape[0], None)


@case(False, z="N K", t="N < K")
class LabelCrossEntropyForgottenN(Function):
    @staticmethod
    def forward(ctx, z, t):
        logp = F.log_softmax(z, dim=-1)
        ctx.save_for_backward(logp, t)
        return -(logp * F.one_hot(t, z.shape[-1])).sum(-1).mean()

    @staticmethod
    def backward(ctx, g):
        logp, t = ctx.saved_tensors
        return (g * (logp.exp() - F.one_hot(t, logp.shape[-1])), None)


@case(False, x="N N2")
class SoftmaxKeepdim(Function):
    """keepdim is forgotten: (N, D) - (N) broadcasts over the other dimension if N = D"""

    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(-1))


@case(False, x="N D", w="D", b="D", eps=">0")
class LayerNormMissingTerm(Function):
    """without the mean of gy"""

    @staticmethod
    def forward(ctx, x, w, b, eps):
        mu = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + eps)
        xhat = (x - mu) * rstd
        ctx.save_for_backward(xhat, rstd, w)
        return w * xhat + b

    @staticmethod
    def backward(ctx, g):
        xhat, rstd, w = ctx.saved_tensors
        gy = g * w
        return (rstd * (gy - xhat * (gy * xhat).mean(-1, keepdim=True)), (g * xhat).sum(0), g.sum(0), None)


@case(False, x="N D", w="D", eps=">0")
class RMSNormWrongSumDim(Function):
    """∂w is summed over the features: has the right shape only for square x"""

    @staticmethod
    def forward(ctx, x, w, eps):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        xhat, gy = (x * r, g * w)
        return (r * (gy - xhat * (gy * xhat).mean(-1, keepdim=True)), (g * xhat).sum(-1), None)


@case(False, x="N D", w="K D")
class LinearNoTranspose(Function):
    """g @ w.t() where g @ w is needed: runs only for square w"""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return (g @ w.t(), g.t() @ x)


@case(False, x="N D", y="N D")
class CosineWrongSign(Function):
    @staticmethod
    def forward(ctx, x, y):
        nx, ny = (x.norm(dim=-1, keepdim=True), y.norm(dim=-1, keepdim=True))
        c = (x * y).sum(-1, keepdim=True) / (nx * ny)
        ctx.save_for_backward(x, y, nx, ny, c)
        return c.squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        x, y, nx, ny, c = ctx.saved_tensors
        g = g.unsqueeze(-1)
        return (g * (y / (nx * ny) + c * x / nx**2), g * (x / (nx * ny) - c * y / ny**2))


@case(False, x="B T D", w="D", eps=">0")
class RMSNormWNotSummed(Function):
    """∂w is averaged over the batch instead of summed"""

    @staticmethod
    def forward(ctx, x, w, eps):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        xhat, gy = (x * r, g * w)
        return (r * (gy - xhat * (gy * xhat).mean(-1, keepdim=True)), (g * xhat).sum(1).mean(0), None)


@case(False, x="N D", eps=1e-05)
class RMSNormEpsOutside(Function):
    """forward has 1/(√mean + ε), backward the derivative of 1/√(mean + ε)"""

    @staticmethod
    def forward(ctx, x, eps):
        r = 1 / (torch.sqrt((x * x).mean(-1, keepdim=True)) + eps)
        ctx.save_for_backward(x, r)
        return x * r

    @staticmethod
    def backward(ctx, g):
        x, r = ctx.saved_tensors
        xhat = x * r
        return (r * (g - xhat * (g * xhat).mean(-1, keepdim=True)), None)


@case(False, x="N D")
class TanhOverwrittenInput(Function):
    """ctx.x is overwritten in place after it was kept"""

    @staticmethod
    def forward(ctx, x):
        h = x * 2
        ctx.h = h
        y = h.tanh_()
        return y * 1

    @staticmethod
    def backward(ctx, g):
        return 2 * g * (1 - torch.tanh(ctx.h) ** 2)


@case(False, x="N D")
class SavedThenOverwritten(Function):
    """as before, with save_for_backward"""

    @staticmethod
    def forward(ctx, x):
        h = x * 2
        ctx.save_for_backward(h)
        return h.sigmoid_() * 1

    @staticmethod
    def backward(ctx, g):
        (h,) = ctx.saved_tensors
        s = torch.sigmoid(h)
        return 2 * g * s * (1 - s)


@case(False, x="N C", eps=1e-05)
class BatchNormWrongMean(Function):
    """the mean of g·x̂ is over the features instead of the batch"""

    @staticmethod
    def forward(ctx, x, eps):
        mu = x.mean(0, keepdim=True)
        r = torch.rsqrt(x.var(0, unbiased=False, keepdim=True) + eps)
        xhat = (x - mu) * r
        ctx.save_for_backward(xhat, r)
        return xhat

    @staticmethod
    def backward(ctx, g):
        xhat, r = ctx.saved_tensors
        return (r * (g - g.mean(0, keepdim=True) - xhat * (g * xhat).mean(1, keepdim=True)), None)


@case(False, x="N D", eps=1e-05)
class LayerNormUnbiased(Function):
    """forward uses the unbiased variance (the default of var), backward divides by D"""

    @staticmethod
    def forward(ctx, x, eps):
        mu = x.mean(-1, keepdim=True)
        r = torch.rsqrt(x.var(-1, keepdim=True) + eps)
        xhat = (x - mu) * r
        ctx.save_for_backward(xhat, r)
        return xhat

    @staticmethod
    def backward(ctx, g):
        xhat, r = ctx.saved_tensors
        return (r * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True)), None)


@case(False, q="B T D", k="B S D", v="B S E")
class AttentionNoScale(Function):
    """the scale is forgotten in backward"""

    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = ctx.saved_tensors
        dp = g @ v.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return (ds @ k, ds.transpose(-2, -1) @ q, p.transpose(-2, -1) @ g)


@case(False, q="T D", k="S D")
class HardCodedScale(Function):
    """backward has 1/2 for 1/√D: right for D = 4, as 0.125 is for 64"""

    @staticmethod
    def forward(ctx, q, k):
        p = torch.softmax(q @ k.t() * q.shape[-1] ** (-0.5), dim=-1)
        ctx.save_for_backward(q, k, p)
        return p

    @staticmethod
    def backward(ctx, g):
        q, k, p = ctx.saved_tensors
        ds = p * (g - (g * p).sum(-1, keepdim=True)) * 0.5
        return (ds @ k, ds.t() @ q)


@case(False, x="B T 2*F")
class SwiGLUSwapped(Function):
    """the halves of the gradient are in the wrong order"""

    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, -1)
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        return torch.cat([g * a * s, g * b * s * (1 + a * (1 - s))], -1)


@case(False, x="N D")
class SiLUMissingTerm(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s + x * (1 - s))


@case(False, x="B T 2*F", cos="T F", sin="T F")
class RoPENotTransposed(Function):
    """rotates the gradient forward instead of back"""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        x1, x2 = x.chunk(2, -1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        g1, g2 = g.chunk(2, -1)
        return (torch.cat((g1 * cos - g2 * sin, g2 * cos + g1 * sin), -1), None, None)


@case(False, x="N D", w="D", eps=1e-05)
class RMSNormWOutside(Function):
    """w is applied after the projection: right for w = 1, which is how it is initialized"""

    @staticmethod
    def forward(ctx, x, w, eps):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        xhat = x * r
        return (w * r * (g - xhat * (g * xhat).mean(-1, keepdim=True)), (g * xhat).sum(0), None)


@case(False, x="N D", t="N D", delta=1.0)
class HuberHalf(Function):
    """the linear part of forward has the wrong offset ½ is right, slope of the square part is doubled"""

    @staticmethod
    def forward(ctx, x, t, delta):
        d = x - t
        ctx.save_for_backward(d)
        ctx.delta = delta
        return torch.where(d.abs() < delta, 0.5 * d * d, delta * (d.abs() - 0.5 * delta)).sum()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        return (g * torch.where(d.abs() < ctx.delta, 2 * d, ctx.delta * d.sign()), None, None)


@case(False, x="N D", h="N D", u="N D")
class GateOverwritten(Function):
    """dh is computed in the memory of dx, which is returned too"""

    @staticmethod
    def forward(ctx, x, h, u):
        z = torch.sigmoid(u)
        ctx.save_for_backward(x, h, z)
        return z * x + (1 - z) * h

    @staticmethod
    def backward(ctx, g):
        x, h, z = ctx.saved_tensors
        dx = g * z
        dh = dx.neg_().add_(g)
        du = g * (x - h) * z * (1 - z)
        return dx, dh, du


@case(False, x="N D", w="K D", b="K")
class LinearOtherOrder(Function):
    """the gradients of w and b are returned in another order"""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx, gw, gb = g @ w, g.t() @ x, g.sum(0)
        gs = gb * 2 - gb
        return gx, gs, gw
