"""Functions in the style of public repositories, whose gradients need what others do not."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from examined_functions import adder
from torch.autograd import Function

CASES = []
case = adder(CASES)


@case(anchor="N D", pos="N D", neg="N D", margin=1.0)
class TripletSquared(Function):
    @staticmethod
    def forward(ctx, anchor, pos, neg, margin):
        dp = (anchor - pos).pow(2).sum(1)
        dn = (anchor - neg).pow(2).sum(1)
        loss = torch.relu(dp - dn + margin)
        ctx.save_for_backward(anchor, pos, neg, loss > 0)
        return loss.mean()

    @staticmethod
    def backward(ctx, g):
        a, p, n, m = ctx.saved_tensors
        m = m.unsqueeze(1).to(a.dtype) * 2 * g / a.shape[0]
        return (n - p) * m, (p - a) * m, (a - n) * m, None


@case(z1="N D", z2="N D", tau=0.5)
class NTXentSym(Function):
    """CLIP style symmetric contrastive, no normalization"""

    @staticmethod
    def forward(ctx, z1, z2, tau):
        s = z1 @ z2.t() / tau
        n = z1.shape[0]
        t = torch.arange(n)
        loss = (F.cross_entropy(s, t) + F.cross_entropy(s.t(), t)) / 2
        ctx.save_for_backward(z1, z2, F.softmax(s, 1), F.softmax(s, 0))
        ctx.tau = tau
        return loss

    @staticmethod
    def backward(ctx, g):
        z1, z2, pr, pc = ctx.saved_tensors
        n = z1.shape[0]
        ds = (pr + pc - 2 * torch.eye(n)) / (2 * n * ctx.tau) * g
        return ds @ z2, ds.t() @ z1, None


@case(False, z1="N D", z2="N D", tau=0.5)
class NTXentSymWrong(NTXentSym):
    @staticmethod
    def backward(ctx, g):
        z1, z2, pr, pc = ctx.saved_tensors
        n = z1.shape[0]
        ds = (pr + pc - torch.eye(n)) / (2 * n * ctx.tau) * g
        return ds @ z2, ds.t() @ z1, None


@case(q="B H T D", k="B H T D", v="B H T D", slopes="H")
class ALiBiAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, slopes):
        T = q.shape[2]
        pos = torch.arange(T)
        rel = (pos[None, :] - pos[:, None]).to(q.dtype)
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + slopes[:, None, None] * rel
        mask = torch.ones(T, T, dtype=torch.bool).tril()
        s = s.masked_fill(~mask, float("-inf"))
        p = s.softmax(-1)
        ctx.save_for_backward(q, k, v, p, rel)
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p, rel = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ g
        dp = g @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        dsl = (ds * rel).sum((0, 2, 3))
        c = 1 / math.sqrt(q.shape[-1])
        return ds @ k * c, ds.transpose(-1, -2) @ q * c, dv, dsl


@case(False, q="B H T D", k="B H T D", v="B H T D", slopes="H")
class ALiBiAttentionWrong(ALiBiAttention):
    @staticmethod
    def backward(ctx, g):
        q, k, v, p, rel = ctx.saved_tensors
        dv = p.transpose(-1, -2) @ g
        dp = g @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        dsl = (ds * rel.abs()).sum((0, 2, 3))
        c = 1 / math.sqrt(q.shape[-1])
        return ds @ k * c, ds.transpose(-1, -2) @ q * c, dv, dsl


@case(q="B H*G T D", k="B H T D", v="B H T D", groups="= G")
class GroupedQuery(Function):
    @staticmethod
    def forward(ctx, q, k, v, groups):
        kk = k.repeat_interleave(groups, dim=1)
        vv = v.repeat_interleave(groups, dim=1)
        p = torch.softmax(q @ kk.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1)
        ctx.save_for_backward(q, k, kk, vv, p)
        ctx.groups = groups
        return p @ vv

    @staticmethod
    def backward(ctx, g):
        q, k, kk, vv, p = ctx.saved_tensors
        B, H, T, D = k.shape
        dvv = p.transpose(-2, -1) @ g
        dp = g @ vv.transpose(-2, -1)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) / math.sqrt(D)
        dq = ds @ kk
        dkk = ds.transpose(-2, -1) @ q
        dk = dkk.view(B, H, ctx.groups, T, D).sum(2)
        dv = dvv.view(B, H, ctx.groups, T, D).sum(2)
        return dq, dk, dv, None


@case(False, x="N D")
class CumsumExclusiveWrong(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(-1) - x

    @staticmethod
    def backward(ctx, g):
        return g.flip(-1).cumsum(-1).flip(-1)


@case(x="N D")
class CumsumExclusive(CumsumExclusiveWrong):
    @staticmethod
    def backward(ctx, g):
        return g.sum(-1, keepdim=True) - g.cumsum(-1)


@case(False, x="N D", a="D")
class SnakeWrong(Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.save_for_backward(x, a)
        return x + torch.sin(a * x) ** 2 / a

    @staticmethod
    def backward(ctx, g):
        x, a = ctx.saved_tensors
        s = torch.sin(2 * a * x)
        return g * (1 + s), (g * (x * s / a)).sum(0)  # - sin^2/a^2 missing


@case(x="N D", a="D")
class Snake(SnakeWrong):
    @staticmethod
    def backward(ctx, g):
        x, a = ctx.saved_tensors
        s = torch.sin(2 * a * x)
        return g * (1 + s), (g * (x * s / a - torch.sin(a * x) ** 2 / a**2)).sum(0)


@case(x="N D", t="N D", beta=0.5)
class SmoothL1(Function):
    @staticmethod
    def forward(ctx, x, t, beta):
        d = x - t
        ctx.save_for_backward(d)
        ctx.beta = beta
        a = d.abs()
        return torch.where(a < beta, 0.5 * d * d / beta, a - 0.5 * beta).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        gx = torch.clamp(d / ctx.beta, -1, 1) * g / d.numel()
        return gx, -gx, None


@case(pred="N Q", y="N", taus="Q")
class Quantile(Function):
    @staticmethod
    def forward(ctx, pred, y, taus):
        e = y[:, None] - pred
        ctx.save_for_backward(e, taus)
        return torch.max(taus * e, (taus - 1) * e).mean()

    @staticmethod
    def backward(ctx, g):
        e, taus = ctx.saved_tensors
        de = torch.where(e > 0, taus.expand_as(e), taus - 1) * g / e.numel()
        return -de, de.sum(1), None


@case(False, pred="N Q", y="N", taus="Q")
class QuantileWrong(Quantile):
    @staticmethod
    def backward(ctx, g):
        e, taus = ctx.saved_tensors
        de = torch.where(e > 0, taus.expand_as(e), 1 - taus) * g / e.numel()
        return -de, de.sum(1), None


@case(x="N M", y="N")
class CRPSEnsemble(Function):
    """mean |x_m - y| - 1/2 mean |x_m - x_n|"""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return ((x - y[:, None]).abs().mean(1) - 0.5 * (x[:, :, None] - x[:, None, :]).abs().mean((1, 2))).mean()

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        N, M = x.shape
        a = torch.sign(x - y[:, None]) / M
        b = torch.sign(x[:, :, None] - x[:, None, :]).sum(2) / M**2
        return g * (a - b) / N, -g * a.sum(1) / N


@case(False, x="N M", y="N")
class CRPSEnsembleWrong(CRPSEnsemble):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        N, M = x.shape
        a = torch.sign(x - y[:, None]) / M
        b = torch.sign(x[:, :, None] - x[:, None, :]).sum(2) / M**2
        return g * (a - b / 2) / N, -g * a.sum(1) / N


@case(x="N D")
class PairwiseComplement(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(0) + x.flip(0).cumsum(0).flip(0) - x

    @staticmethod
    def backward(ctx, g):
        return g.sum(0, keepdim=True).expand_as(g)


def label_smoothing_backward(pred, target, g):
    n, k = pred.shape
    p = pred.softmax(-1)
    eps = 0.1
    onehot = torch.zeros_like(pred).scatter_(1, target.unsqueeze(1), 1.0)
    q = onehot * (1 - eps) + eps / k
    return (p - q) * g / n, None


def label_smoothing_timm(pred, target):
    smoothing = 0.1
    logprobs = F.log_softmax(pred, dim=-1)
    nll = -logprobs.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
    smooth = -logprobs.mean(dim=-1)
    return ((1 - smoothing) * nll + smoothing * smooth).mean()


class GRN(nn.Module):
    """ConvNeXt v2 global response norm"""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(4))
        self.beta = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma * (x * nx) + self.beta + x


def grn_backward(x, gamma, g):
    gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    m = gx.mean(-1, keepdim=True) + 1e-6
    nx = gx / m
    dgamma = (g * x * nx).sum((0, 1, 2))
    dbeta = g.sum((0, 1, 2))
    gg = g * gamma
    dnx = (gg * x).sum((1, 2), keepdim=True)
    dgx = dnx / m - (dnx * gx / m**2).mean(-1, keepdim=True)
    return g + gg * nx + dgx * x / gx, dgamma, dbeta


def grn_without_mean(x, gamma, g):
    gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    m = gx.mean(-1, keepdim=True) + 1e-6
    nx = gx / m
    dgamma = (g * x * nx).sum((0, 1, 2))
    dbeta = g.sum((0, 1, 2))
    gg = g * gamma
    dnx = (gg * x).sum((1, 2), keepdim=True)
    dgx = dnx / m - (dnx * gx / m**2).sum(-1, keepdim=True)
    return g + gg * nx + dgx * x / gx, dgamma, dbeta


@case(x="N D", c="K D", alpha="> 0")
class StudentT(Function):
    """DEC soft assignment"""

    @staticmethod
    def forward(ctx, x, c, alpha):
        d2 = ((x[:, None] - c[None]) ** 2).sum(-1)
        u = (1 + d2 / alpha) ** -1.0
        q = u / u.sum(1, keepdim=True)
        ctx.save_for_backward(x, c, u, q)
        ctx.alpha = alpha
        return q

    @staticmethod
    def backward(ctx, g):
        x, c, u, q = ctx.saved_tensors
        du = (g - (g * q).sum(1, keepdim=True)) / u.sum(1, keepdim=True)
        dd = -du * u**2 / ctx.alpha
        diff = 2 * (x[:, None] - c[None]) * dd[..., None]
        return diff.sum(1), -diff.sum(0), None


@case(logp="N", old="N", adv="N", clip=0.2)
class PPOClip(Function):
    @staticmethod
    def forward(ctx, logp, old, adv, clip):
        r = torch.exp(logp - old)
        a, b = r * adv, torch.clamp(r, 1 - clip, 1 + clip) * adv
        ctx.save_for_backward(r, adv, a, b)
        ctx.clip = clip
        return -torch.min(a, b).mean()

    @staticmethod
    def backward(ctx, g):
        r, adv, a, b = ctx.saved_tensors
        inside = (r > 1 - ctx.clip) & (r < 1 + ctx.clip)
        use = (a < b) | inside
        d = -g * adv * r * use / r.numel()
        return d, -d, None, None


@case(False, logp="N", old="N", adv="N", clip=0.2)
class PPOClipWrong(PPOClip):
    @staticmethod
    def backward(ctx, g):
        r, adv, a, b = ctx.saved_tensors
        inside = (r > 1 - ctx.clip) & (r < 1 + ctx.clip)
        d = -g * adv * r * inside / r.numel()
        return d, -d, None, None


@case(x="B T D", k="D W")
class CausalShift(Function):
    """token shift by interpolation, RWKV like: mu per channel, with cumulative mean"""

    @staticmethod
    def forward(ctx, x, k):
        T = x.shape[1]
        n = torch.arange(T).to(x.dtype)[None, :, None] + 1
        m = x.cumsum(1) / n
        ctx.save_for_backward(k, m, n)
        return m @ k

    @staticmethod
    def backward(ctx, g):
        k, m, n = ctx.saved_tensors
        dm = g @ k.t() / n
        dx = dm.flip(1).cumsum(1).flip(1)
        return dx, torch.einsum("btd,btw->dw", m, g)


@case(False, x="B T D", k="D W")
class CausalShiftWrong(CausalShift):
    @staticmethod
    def backward(ctx, g):
        k, m, n = ctx.saved_tensors
        dm = g @ k.t()
        dx = dm.flip(1).cumsum(1).flip(1) / n
        return dx, torch.einsum("btd,btw->dw", m, g)


@case(q="B T D", k="B T D", v="B T E", decay="> 0")
class Retention(Function):
    """decay^(i-j) causal linear attention"""

    @staticmethod
    def forward(ctx, q, k, v, decay):
        T = q.shape[1]
        i = torch.arange(T)
        d = torch.tril(torch.exp(-decay * (i[:, None] - i[None, :]).to(q.dtype)))
        a = (q @ k.transpose(1, 2)) * d
        ctx.save_for_backward(q, k, v, d, a)
        return a @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, d, a = ctx.saved_tensors
        da = g @ v.transpose(1, 2) * d
        return da @ k, da.transpose(1, 2) @ q, a.transpose(1, 2) @ g, None


@case(x="N D", p=2.5)
class PowerPool(Function):
    """GeM"""

    @staticmethod
    def forward(ctx, x, p):
        e = torch.clamp(x, min=1e-6)
        y = e.pow(p).mean(-1).pow(1.0 / p)
        ctx.save_for_backward(x, e, y)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, g):
        x, e, y = ctx.saved_tensors
        d = (g * y.pow(1 - ctx.p)).unsqueeze(-1) * e.pow(ctx.p - 1) / x.shape[-1]
        return d * (x > 1e-6), None


@case(q="B H T D", k="B H T D", v="B H T E")
class LinearAttention(Function):
    """elu + 1 features, non causal, normalized"""

    @staticmethod
    def forward(ctx, q, k, v):
        fq, fk = F.elu(q) + 1, F.elu(k) + 1
        kv = fk.transpose(-2, -1) @ v
        z = 1 / (fq @ fk.sum(-2).unsqueeze(-1))
        o = (fq @ kv) * z
        ctx.save_for_backward(q, k, v, fq, fk, kv, z, o)
        return o

    @staticmethod
    def backward(ctx, g):
        q, k, v, fq, fk, kv, z, o = ctx.saved_tensors
        dn = g * z
        dz = -(g * o).sum(-1, keepdim=True) * z
        dfq = dn @ kv.transpose(-2, -1) + dz * fk.sum(-2).unsqueeze(-2)
        dkv = fq.transpose(-2, -1) @ dn
        dfk = v @ dkv.transpose(-2, -1) + (dz * fq).sum(-2).unsqueeze(-2)
        dv = fk @ dkv
        return (
            dfq * torch.where(q > 0, torch.ones_like(q), torch.exp(q)),
            dfk * torch.where(k > 0, torch.ones_like(k), torch.exp(k)),
            dv,
        )


CASES += [
    (
        "label_smoothing",
        label_smoothing_timm,
        {"backward": label_smoothing_backward},
        True,
        {"pred": "N K", "target": "N < K"},
    ),
    ("GRN", GRN(), {"backward": grn_backward}, True, {"x": "B H W C", "gamma": "C", "beta": "C"}),
    ("GRNWrong", GRN(), {"backward": grn_without_mean}, False, {"x": "B H W C", "gamma": "C", "beta": "C"}),
]
