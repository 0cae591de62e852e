"""Right and wrong code as people write it: autograd functions, modules and functions with a backward, operators."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function

CASES = []


def adder(cases):
    """A decorator that adds a function to cases."""

    def case(right=True, **shapes):
        def add(f):
            cases.append((getattr(f, "__name__", None) or f._qualname, f, {}, right, shapes))
            return f

        return add

    return case


case = adder(CASES)


@case(False, x="N D", w="D")  # dropped sum over batch: mean instead
class BiasScale(Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g * x).mean(0)


@case(True, x="B T D", gamma="D")  # layer scale
class LayerScale(Function):
    @staticmethod
    def forward(ctx, x, gamma):
        ctx.save_for_backward(x, gamma)
        return x + gamma * torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        x, gamma = ctx.saved_tensors
        t = torch.tanh(x)
        return g * (1 + gamma * (1 - t**2)), (g * t).sum((0, 1))


@case(False, x="B T D", gamma="D")
class LayerScaleNoResidual(LayerScale):
    @staticmethod
    def backward(ctx, g):
        x, gamma = ctx.saved_tensors
        t = torch.tanh(x)
        return g * gamma * (1 - t**2), (g * t).sum((0, 1))


@case(True, x="B T 2*F")
class GEGLU(Function):
    @staticmethod
    def forward(ctx, x):
        a, gate = x.chunk(2, dim=-1)
        ctx.save_for_backward(a, gate)
        return a * F.gelu(gate)

    @staticmethod
    def backward(ctx, g):
        a, gate = ctx.saved_tensors
        cdf = 0.5 * (1.0 + torch.erf(gate * 0.7071067811865476))
        pdf = torch.exp(-gate.pow(2) / 2) / math.sqrt(2 * math.pi)
        return torch.cat((g * gate * cdf, g * a * (cdf + gate * pdf)), dim=-1)


@case(False, x="B T 2*F")
class GEGLUWrong(GEGLU):
    @staticmethod
    def backward(ctx, g):
        a, gate = ctx.saved_tensors
        cdf = 0.5 * (1.0 + torch.erf(gate * 0.7071067811865476))
        pdf = torch.exp(-gate.pow(2)) / math.sqrt(2 * math.pi)
        return torch.cat((g * gate * cdf, g * a * (cdf + gate * pdf)), dim=-1)


@case(True, x="B G*K H W", num_groups="= G", weight="G*K", bias="G*K", eps="> 0")
class GroupNormFull(Function):
    @staticmethod
    def forward(ctx, x, num_groups, weight, bias, eps):
        B, C, H, W = x.shape
        xg = x.reshape(B, num_groups, C // num_groups * H * W)
        mean = xg.mean(dim=2, keepdim=True)
        var = xg.var(dim=2, keepdim=True, unbiased=False)
        rstd = (var + eps).rsqrt()
        xhat = ((xg - mean) * rstd).reshape(B, C, H, W)
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.num_groups = num_groups
        return xhat * weight.view(1, C, 1, 1) + bias.view(1, C, 1, 1)

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd, weight = ctx.saved_tensors
        B, C, H, W = dy.shape
        G = ctx.num_groups
        dw = (dy * xhat).sum(dim=(0, 2, 3))
        db = dy.sum(dim=(0, 2, 3))
        dxhat = (dy * weight.view(1, C, 1, 1)).reshape(B, G, -1)
        xh = xhat.reshape(B, G, -1)
        n = (C // G) * H * W
        dx = rstd / n * (n * dxhat - dxhat.sum(2, keepdim=True) - xh * (dxhat * xh).sum(2, keepdim=True))
        return dx.reshape(B, C, H, W), None, dw, db, None


@case(False, x="B G*K H W", num_groups="= G", weight="G*K", bias="G*K", eps="> 0")
class GroupNormWrongSize(GroupNormFull):
    @staticmethod
    def backward(ctx, dy):
        xhat, rstd, weight = ctx.saved_tensors
        B, C, H, W = dy.shape
        G = ctx.num_groups
        dw = (dy * xhat).sum(dim=(0, 2, 3))
        db = dy.sum(dim=(0, 2, 3))
        dxhat = (dy * weight.view(1, C, 1, 1)).reshape(B, G, -1)
        xh = xhat.reshape(B, G, -1)
        n = G * H * W
        dx = rstd / n * (n * dxhat - dxhat.sum(2, keepdim=True) - xh * (dxhat * xh).sum(2, keepdim=True))
        return dx.reshape(B, C, H, W), None, dw, db, None


@case(True, x="N C H W", eps=1e-5)
class InstanceNorm(Function):
    @staticmethod
    def forward(ctx, x, eps):
        mu = x.mean((2, 3), keepdim=True)
        d = x - mu
        inv = 1 / (d.square().mean((2, 3), keepdim=True) + eps).sqrt()
        y = d * inv
        ctx.save_for_backward(y, inv)
        return y

    @staticmethod
    def backward(ctx, g):
        y, inv = ctx.saved_tensors
        return inv * (g - g.mean((2, 3), True) - y * (g * y).mean((2, 3), True)), None


@case(False, x="N C H W", eps=1e-5)
class InstanceNormWrongAxis(InstanceNorm):
    @staticmethod
    def backward(ctx, g):
        y, inv = ctx.saved_tensors
        return inv * (g - g.mean((1, 2), True) - y * (g * y).mean((2, 3), True)), None


@case(True, z="N K", t="N < K", smoothing=0.1)
class SmoothedCE(Function):
    @staticmethod
    def forward(ctx, z, t, smoothing):
        K = z.size(-1)
        logp = F.log_softmax(z, dim=-1)
        nll = F.nll_loss(logp, t)
        smooth = -logp.mean(dim=-1).mean()
        ctx.save_for_backward(logp, t)
        ctx.smoothing = smoothing
        return (1 - smoothing) * nll + smoothing * smooth

    @staticmethod
    def backward(ctx, g):
        logp, t = ctx.saved_tensors
        N, K = logp.shape
        q = torch.full_like(logp, ctx.smoothing / K)
        q.scatter_(1, t.unsqueeze(1), 1 - ctx.smoothing + ctx.smoothing / K)
        return g * (logp.exp() - q) / N, None, None


@case(False, z="N K", t="N < K", smoothing=0.1)
class SmoothedCEWrong(SmoothedCE):
    @staticmethod
    def backward(ctx, g):
        logp, t = ctx.saved_tensors
        N, K = logp.shape
        q = torch.full_like(logp, ctx.smoothing / (K - 1))
        q.scatter_(1, t.unsqueeze(1), 1 - ctx.smoothing)
        return g * (logp.exp() - q) / N, None, None


@case(True, z="N K", t="N < K")
class CEIndexed(Function):
    @staticmethod
    def forward(ctx, z, t):
        p = z.softmax(1)
        ctx.save_for_backward(p, t)
        return -p[torch.arange(len(t)), t].log().sum()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        d = p.clone()
        d[torch.arange(d.shape[0]), t] -= 1
        return d * g, None


@case(False, z="N K", t="N < K")  # p itself is changed ... right once but aliasing ok; wrong: sign
class CEIndexedInPlaceSign(CEIndexed):
    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        p[torch.arange(p.shape[0]), t] += 1
        return p * g, None


@case(True, p="N K", q="N K")
class KL(Function):
    @staticmethod
    def forward(ctx, p, q):
        logq = q.log_softmax(-1)
        tgt = p.softmax(-1)
        ctx.save_for_backward(tgt, logq)
        return F.kl_div(logq, tgt, reduction="batchmean")

    @staticmethod
    def backward(ctx, g):
        tgt, logq = ctx.saved_tensors
        n = tgt.shape[0]
        diff = tgt.log() - logq
        gp = tgt * (diff - (tgt * diff).sum(-1, keepdim=True)) / n
        gq = (logq.exp() - tgt) / n
        return g * gp, g * gq


@case(False, p="N K", q="N K")
class KLWrong(KL):
    @staticmethod
    def backward(ctx, g):
        tgt, logq = ctx.saved_tensors
        n = tgt.shape[0]
        diff = tgt.log() - logq
        gp = tgt * diff / n
        gq = (logq.exp() - tgt) / n
        return g * gp, g * gq


@case(True, x="N D", y="N D", z="N D", margin=1.0)
class Triplet(Function):
    @staticmethod
    def forward(ctx, x, y, z, margin):
        dp = ((x - y) ** 2).sum(1)
        dn = ((x - z) ** 2).sum(1)
        l = torch.relu(dp - dn + margin)
        ctx.save_for_backward(x, y, z, l)
        return l.mean()

    @staticmethod
    def backward(ctx, g):
        x, y, z, l = ctx.saved_tensors
        m = (l > 0).float().unsqueeze(1) * g / l.shape[0]
        return m * 2 * (z - y), m * 2 * (y - x), m * 2 * (x - z), None


@case(False, x="N D", y="N D", z="N D", margin=1.0)
class TripletWrong(Triplet):
    @staticmethod
    def backward(ctx, g):
        x, y, z, l = ctx.saved_tensors
        m = g / l.shape[0]
        return m * 2 * (z - y), m * 2 * (y - x), m * 2 * (x - z), None


@case(True, a="N D", b="N D", y="N ?", margin="> 0")
class Contrastive(Function):
    @staticmethod
    def forward(ctx, a, b, y, margin):
        d = (a - b).norm(dim=1)
        pos = d.pow(2)
        neg = (margin - d).clamp(min=0).pow(2)
        ctx.save_for_backward(a, b, d, y)
        ctx.margin = margin
        return torch.where(y, pos, neg).mean() / 2

    @staticmethod
    def backward(ctx, g):
        a, b, d, y = ctx.saved_tensors
        gd = torch.where(y, d, -(ctx.margin - d).clamp(min=0)) / d.numel() * g
        ga = (gd / d).unsqueeze(1) * (a - b)
        return ga, -ga, None, None


@case(False, a="N D", b="N D", y="N ?", margin="> 0")
class ContrastivePolarity(Contrastive):
    @staticmethod
    def backward(ctx, g):
        a, b, d, y = ctx.saved_tensors
        gd = torch.where(~y, d, -(ctx.margin - d).clamp(min=0)) / d.numel() * g
        ga = (gd / d).unsqueeze(1) * (a - b)
        return ga, -ga, None, None


@case(True, v="K D", s="K", x="N D")
class WeightNorm(Function):
    @staticmethod
    def forward(ctx, v, s, x):
        n = v.norm(2, dim=1, keepdim=True)
        w = s[:, None] * v / n
        ctx.save_for_backward(v, s, x, n, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, g):
        v, s, x, n, w = ctx.saved_tensors
        dw = g.T @ x
        ds = (dw * v / n).sum(1)
        dv = (s[:, None] / n) * (dw - v * (dw * v).sum(1, keepdim=True) / n**2)
        return dv, ds, g @ w


@case(False, v="K D", s="K", x="N D")
class WeightNormWrong(WeightNorm):
    @staticmethod
    def backward(ctx, g):
        v, s, x, n, w = ctx.saved_tensors
        dw = g.T @ x
        ds = (dw * v / n).sum(1)
        dv = (s[:, None] / n) * (dw - v * (dw * v).sum(1, keepdim=True) / n)
        return dv, ds, g @ w


@case(True, w="K D", u="K", v="D", x="N D")
class SpectralScaling(Function):
    @staticmethod
    def forward(ctx, w, u, v, x):
        sigma = torch.dot(u, torch.mv(w, v))
        ws = w / sigma
        ctx.save_for_backward(w, u, v, x, sigma)
        return F.linear(x, ws)

    @staticmethod
    def backward(ctx, g):
        w, u, v, x, sigma = ctx.saved_tensors
        d = g.t().mm(x)
        gw = d / sigma - (d * w).sum() / sigma**2 * torch.outer(u, v)
        return gw, None, None, g.mm(w) / sigma


@case(False, w="K D", u="K", v="D", x="N D")
class SpectralScalingDetached(SpectralScaling):
    @staticmethod
    def backward(ctx, g):
        w, u, v, x, sigma = ctx.saved_tensors
        d = g.t().mm(x)
        return d / sigma, None, None, g.mm(w) / sigma


@case(True, x="B I", y="B J", W="O I J")
class Bilinear(Function):
    @staticmethod
    def forward(ctx, x, y, W):
        ctx.save_for_backward(x, y, W)
        return torch.einsum("bi,oij,bj->bo", x, W, y)

    @staticmethod
    def backward(ctx, g):
        x, y, W = ctx.saved_tensors
        return (
            torch.einsum("bo,oij,bj->bi", g, W, y),
            torch.einsum("bo,oij,bi->bj", g, W, x),
            torch.einsum("bo,bi,bj->oij", g, x, y),
        )


@case(False, x="B D", y="B D", W="O D D")
class BilinearTransposed(Function):
    @staticmethod
    def forward(ctx, x, y, W):
        ctx.save_for_backward(x, y, W)
        return torch.einsum("bi,oij,bj->bo", x, W, y)

    @staticmethod
    def backward(ctx, g):
        x, y, W = ctx.saved_tensors
        return (
            torch.einsum("bo,oji,bj->bi", g, W, y),
            torch.einsum("bo,oij,bi->bj", g, W, x),
            torch.einsum("bo,bi,bj->oij", g, x, y),
        )


@case(True, x="B C 2*H 2*W")
class AvgPool2x2(Function):
    @staticmethod
    def forward(ctx, x):
        B, C, H, W = x.shape
        return x.view(B, C, H // 2, 2, W // 2, 2).mean(dim=(3, 5))

    @staticmethod
    def backward(ctx, g):
        B, C, h, w = g.shape
        return (g[:, :, :, None, :, None].expand(B, C, h, 2, w, 2) / 4).reshape(B, C, 2 * h, 2 * w)


@case(True, x="B C H*2 W*2")
class AvgPool2x2b(AvgPool2x2):
    pass


@case(True, x="B C*4 H W")
class PixelShuffle(Function):
    @staticmethod
    def forward(ctx, x):
        B, C4, H, W = x.shape
        return x.view(B, C4 // 4, 2, 2, H, W).permute(0, 1, 4, 2, 5, 3).reshape(B, C4 // 4, 2 * H, 2 * W)

    @staticmethod
    def backward(ctx, g):
        B, C, H2, W2 = g.shape
        return g.view(B, C, H2 // 2, 2, W2 // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(B, C * 4, H2 // 2, W2 // 2)


@case(True, x="B C*2*2 H W")
class PixelShuffleB(PixelShuffle):
    pass


@case(True, x="B L*P C", w="P*C D")
class PatchEmbed(Function):  # conv1d by unfold with stride = kernel
    @staticmethod
    def forward(ctx, x, w):
        B, T, C = x.shape
        P = w.shape[0] // C
        u = x.reshape(B, T // P, P * C)
        ctx.save_for_backward(u, w)
        ctx.shape = x.shape
        return u @ w

    @staticmethod
    def backward(ctx, g):
        u, w = ctx.saved_tensors
        return (g @ w.t()).reshape(ctx.shape), torch.einsum("blp,bld->pd", u, g)


@case(True, w="V D", t="N < V")
class EmbeddingBag(Function):
    @staticmethod
    def forward(ctx, w, t):
        ctx.save_for_backward(t)
        ctx.V = w.shape[0]
        return w[t].sum(0)

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        gw = torch.zeros(ctx.V, g.shape[0])
        gw.index_add_(0, t, g.expand(t.shape[0], -1))
        return gw, None


@case(True, w="V D", t="B T < V")
class Embedding(Function):
    @staticmethod
    def forward(ctx, w, t):
        ctx.save_for_backward(t, w)
        return F.embedding(t, w)

    @staticmethod
    def backward(ctx, g):
        t, w = ctx.saved_tensors
        gw = torch.zeros_like(w)
        gw.index_add_(0, t.reshape(-1), g.reshape(-1, g.shape[-1]))
        return gw, None


@case(False, w="V D", t="N < V")  # overwrite instead of add
class EmbeddingOverwrite(Function):
    @staticmethod
    def forward(ctx, w, t):
        ctx.save_for_backward(t, w)
        return w[t]

    @staticmethod
    def backward(ctx, g):
        t, w = ctx.saved_tensors
        gw = torch.zeros_like(w)
        gw[t] = g
        return gw, None


@case(True, w="V D", t="N < V")
class EmbeddingScatter(Function):
    @staticmethod
    def forward(ctx, w, t):
        ctx.save_for_backward(t, w)
        return w[t]

    @staticmethod
    def backward(ctx, g):
        t, w = ctx.saved_tensors
        return torch.zeros_like(w).scatter_add_(0, t[:, None].expand_as(g), g), None


@case(True, x="N D", wg="E D", we="E D K")
class MoE(Function):
    @staticmethod
    def forward(ctx, x, wg, we):
        p = torch.softmax(x @ wg.t(), dim=-1)
        h = torch.einsum("nd,edk->nek", x, we)
        ctx.save_for_backward(x, wg, we, p, h)
        return (p.unsqueeze(-1) * h).sum(1)

    @staticmethod
    def backward(ctx, g):
        x, wg, we, p, h = ctx.saved_tensors
        dp = (g.unsqueeze(1) * h).sum(-1)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        dh = p.unsqueeze(-1) * g.unsqueeze(1)
        dx = ds @ wg + torch.einsum("nek,edk->nd", dh, we)
        return dx, ds.t() @ x, torch.einsum("nd,nek->edk", x, dh)


@case(False, x="N D", wg="E D", we="E D K")
class MoEWrong(MoE):
    @staticmethod
    def backward(ctx, g):
        x, wg, we, p, h = ctx.saved_tensors
        dp = (g.unsqueeze(1) * h).sum(-1)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        dh = p.unsqueeze(-1) * g.unsqueeze(1)
        dx = torch.einsum("nek,edk->nd", dh, we)
        return dx, ds.t() @ x, torch.einsum("nd,nek->edk", x, dh)


@case(True, q="B H T D", k="B H S D", v="B H S D", pad="B S ?", keep="B H T S", p_drop=0.1)
class AttnPadDropout(Function):
    @staticmethod
    def forward(ctx, q, k, v, pad, keep, p_drop):
        scale = q.shape[-1] ** -0.5
        s = (q @ k.mT) * scale
        s = s.masked_fill(pad[:, None, None, :], float("-inf"))
        p = s.softmax(-1)
        r = keep / (1 - p_drop)
        d = p * r
        ctx.save_for_backward(q, k, v, p, r, d)
        ctx.scale = scale
        return d @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p, r, d = ctx.saved_tensors
        dv = d.mT @ g
        dp = (g @ v.mT) * r
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.mT @ q, dv, None, None, None


@case(False, q="B H T D", k="B H S D", v="B H S D", pad="B S ?", keep="B H T S", p_drop=0.1)
class AttnPadDropoutWrong(AttnPadDropout):
    @staticmethod
    def backward(ctx, g):
        q, k, v, p, r, d = ctx.saved_tensors
        dv = p.mT @ g
        dp = (g @ v.mT) * r
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * ctx.scale
        return ds @ k, ds.mT @ q, dv, None, None, None


@case(True, q="B H T D", k="B H S D", slopes="H")
class ALiBi(Function):
    @staticmethod
    def forward(ctx, q, k, slopes):
        T, S = q.shape[-2], k.shape[-2]
        dist = torch.arange(S)[None, :] - torch.arange(T)[:, None]
        bias = slopes[:, None, None] * dist
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias, -1)
        ctx.save_for_backward(q, k, p, dist)
        return p

    @staticmethod
    def backward(ctx, g):
        q, k, p, dist = ctx.saved_tensors
        ds = p * (g - (g * p).sum(-1, keepdim=True))
        return (
            ds @ k / math.sqrt(q.shape[-1]),
            ds.transpose(-1, -2) @ q / math.sqrt(q.shape[-1]),
            (ds * dist).sum((0, 2, 3)),
        )


@case(True, q="B H T D", k="B H S D", bias="H T S")
class ALiBiGiven(Function):
    @staticmethod
    def forward(ctx, q, k, bias):
        p = (
            torch.softmax(torch.baddbmm(bias[None].expand(1, -1, -1, -1)[0], q[0], k[0].transpose(1, 2)), -1)
            if False
            else torch.softmax(q @ k.mT + bias, -1)
        )
        ctx.save_for_backward(q, k, p)
        return p

    @staticmethod
    def backward(ctx, g):
        q, k, p = ctx.saved_tensors
        ds = p * (g - (g * p).sum(-1, keepdim=True))
        return ds @ k, ds.mT @ q, ds.sum(0)


@case(False, q="B H T D", k="B H S D", bias="H T S")
class ALiBiNotReduced(ALiBiGiven):
    @staticmethod
    def backward(ctx, g):
        q, k, p = ctx.saved_tensors
        ds = p * (g - (g * p).sum(-1, keepdim=True))
        return ds @ k, ds.mT @ q, ds.mean(0)


@case(True, x="N D")
class LogSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        m, _ = torch.max(x, dim=-1, keepdim=True)
        s = torch.exp(x - m)
        z = s.sum(-1, keepdim=True)
        ctx.save_for_backward(s / z)
        return (m + torch.log(z)).squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * g.unsqueeze(-1)


@case(False, x="N D")
class LogSumExpStale(Function):
    @staticmethod
    def forward(ctx, x):
        m = x.amax(-1, keepdim=True)
        s = torch.exp(x - m)
        ctx.save_for_backward(s)
        z = s.sum(-1, keepdim=True)
        return (m + torch.log(z)).squeeze(-1)

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return p * g.unsqueeze(-1)


@case(True, x="B T H 2*F", freqs="T F")
class RoPEInterleaved(Function):
    @staticmethod
    def forward(ctx, x, freqs):
        c, s = freqs.cos()[:, None], freqs.sin()[:, None]
        x1, x2 = x.unflatten(-1, (2, -1)).unbind(-2)
        ctx.save_for_backward(c, s)
        return torch.stack((x1 * c - x2 * s, x1 * s + x2 * c), -2).flatten(-2)

    @staticmethod
    def backward(ctx, g):
        c, s = ctx.saved_tensors
        g1, g2 = g.unflatten(-1, (2, -1)).unbind(-2)
        return torch.stack((g1 * c + g2 * s, g2 * c - g1 * s), -2).flatten(-2), None


@case(True, x="B T F*2", freqs="T F")
class RoPEEvenOdd(Function):
    @staticmethod
    def forward(ctx, x, freqs):
        c, s = torch.cos(freqs), torch.sin(freqs)
        ctx.save_for_backward(c, s)
        y = torch.empty_like(x)
        y[..., 0::2] = x[..., 0::2] * c - x[..., 1::2] * s
        y[..., 1::2] = x[..., 0::2] * s + x[..., 1::2] * c
        return y

    @staticmethod
    def backward(ctx, g):
        c, s = ctx.saved_tensors
        gx = torch.empty_like(g)
        gx[..., 0::2] = g[..., 0::2] * c + g[..., 1::2] * s
        gx[..., 1::2] = -g[..., 0::2] * s + g[..., 1::2] * c
        return gx, None


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


@case(True, q="B H T 2*F", cos="T 2*F", sin="T 2*F")
class RoPEHFWrongWhenSinGeneral(Function):
    """right only if sin's halves are equal"""

    @staticmethod
    def forward(ctx, q, cos, sin):
        ctx.save_for_backward(cos, sin)
        return q * cos + rotate_half(q) * sin

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return g * cos - rotate_half(g * sin), None, None


@case(False, q="B H T 2*F", cos="T 2*F", sin="T 2*F")
class RoPEHF2(RoPEHFWrongWhenSinGeneral):
    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return g * cos - rotate_half(g) * sin, None, None


@case(True, x="N T D", gate="N T D")
class GLUScan(Function):
    @staticmethod
    def forward(ctx, x, gate):
        y = torch.cumsum(x * torch.sigmoid(gate), dim=1)
        ctx.save_for_backward(x, gate)
        return y

    @staticmethod
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        r = torch.flip(torch.cumsum(torch.flip(g, [1]), 1), [1])
        s = torch.sigmoid(gate)
        return r * s, r * x * s * (1 - s)


@case(False, x="N T D", gate="N T D")
class GLUScanWrong(GLUScan):
    @staticmethod
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        r = torch.cumsum(g, 1)
        s = torch.sigmoid(gate)
        return r * s, r * x * s * (1 - s)


@case(True, x="N D", t="N D", delta=1.0)
class HuberSmoothL1(Function):
    @staticmethod
    def forward(ctx, x, t, delta):
        ctx.save_for_backward(x, t)
        ctx.delta = delta
        return F.huber_loss(x, t, delta=delta)

    @staticmethod
    def backward(ctx, g):
        x, t = ctx.saved_tensors
        gx = (x - t).clamp(-ctx.delta, ctx.delta) * (g / x.numel())
        return gx, -gx, None


@case(False, x="N D", t="N D", delta=0.5)
class HuberWrongDelta(HuberSmoothL1):
    @staticmethod
    def backward(ctx, g):
        x, t = ctx.saved_tensors
        gx = (x - t).clamp(-1, 1) * (g / x.numel())
        return gx, -gx, None


@case(True, x="N D")
class MishNested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.tanh(F.softplus(x))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        t = F.softplus(x).tanh()
        return g * (t + x * s * (1 - t * t))


@case(False, x="N D")
class MishMissingChain(MishNested):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        t = F.softplus(x).tanh()
        return g * (t + x * (1 - t * t))
