"""Well-known functions with their gradients in PyTorch, to copy: `matgrad prove torch_zoo.py` proves them for all sizes.

A docstring has the feedforward equations and those of backpropagation; docs/zoo.md shows them as mathematics.
"""

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function

import matgrad as mg


@mg.proved(x="N D", w="D", b="D", eps="> 0")
class LayerNorm(Function):
    r"""Layer normalization

    h_{ij} = r_i\,(x_{ij} - \mu_i), \quad y_{ij} = w_j\,h_{ij} + b_j
    \mu_i = \frac{1}{D}\sum_k x_{ik}, \quad r_i = (\frac{1}{D}\sum_k (x_{ik} - \mu_i)^2 + \varepsilon)^{-1/2}

    \mathsf{D}h_{ij} = \mathsf{D}y_{ij}\,w_j
    \mathsf{D}x_{ij} = r_i(\mathsf{D}h_{ij} - \frac{1}{D}\sum_k \mathsf{D}h_{ik} - h_{ij}\,\frac{1}{D}\sum_k \mathsf{D}h_{ik}\,h_{ik})
    \mathsf{D}w_j = \sum_i \mathsf{D}y_{ij}\,h_{ij}, \quad \mathsf{D}b_j = \sum_i \mathsf{D}y_{ij}
    """

    @staticmethod
    def forward(ctx, x, w, b, eps=1e-5):
        mu = x.mean(-1, keepdim=True)
        r = torch.rsqrt((x - mu).square().mean(-1, keepdim=True) + eps)
        h = (x - mu) * r
        ctx.save_for_backward(h, r, w)
        return h * w + b

    @staticmethod
    def backward(ctx, Dy):
        h, r, w = ctx.saved_tensors
        Dh = Dy * w
        Dx = r * (Dh - Dh.mean(-1, keepdim=True) - h * (Dh * h).mean(-1, keepdim=True))
        return Dx, (Dy * h).sum(0), Dy.sum(0), None


@mg.proved(x="B T D", w="D", eps="> 0")
class RMSNorm(Function):
    r"""RMS normalization

    h_{ij} = r_i\,x_{ij}, \quad y_{ij} = w_j\,h_{ij}, \quad r_i = (\frac{1}{D}\sum_k x_{ik}^2 + \varepsilon)^{-1/2}

    \mathsf{D}x_{ij} = r_i(\mathsf{D}y_{ij}\,w_j - h_{ij}\,\frac{1}{D}\sum_k \mathsf{D}y_{ik}\,w_k\,h_{ik})
    \mathsf{D}w_j = \sum_i \mathsf{D}y_{ij}\,h_{ij}
    """

    @staticmethod
    def forward(ctx, x, w, eps=1e-6):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        h = x * r
        ctx.save_for_backward(h, r, w)
        return h * w

    @staticmethod
    def backward(ctx, Dy):
        h, r, w = ctx.saved_tensors
        Dh = Dy * w
        Dx = r * (Dh - h * (Dh * h).mean(-1, keepdim=True))
        return Dx, (Dy * h).flatten(0, -2).sum(0), None


@mg.proved(x="N G*C T", groups="= G", w="G*C", b="G*C", eps="> 0")
class GroupNorm(Function):
    r"""Group normalization

    h_{ngct} = r_{ng}\,(x_{ngct} - \mu_{ng}), \quad y_{ngct} = w_{gc}\,h_{ngct} + b_{gc}, \quad M = C\,T
    \mu_{ng} = \frac{1}{M}\sum_{ct} x_{ngct}, \quad r_{ng} = (\frac{1}{M}\sum_{ct} (x_{ngct} - \mu_{ng})^2 + \varepsilon)^{-1/2}

    \mathsf{D}h_{ngct} = \mathsf{D}y_{ngct}\,w_{gc}
    \mathsf{D}x_{ngct} = r_{ng}(\mathsf{D}h_{ngct} - \frac{1}{M}\sum_{kl} \mathsf{D}h_{ngkl} - h_{ngct}\,\frac{1}{M}\sum_{kl} \mathsf{D}h_{ngkl}\,h_{ngkl})
    \mathsf{D}w_{gc} = \sum_{nt} \mathsf{D}y_{ngct}\,h_{ngct}, \quad \mathsf{D}b_{gc} = \sum_{nt} \mathsf{D}y_{ngct}
    """

    @staticmethod
    def forward(ctx, x, groups, w, b, eps=1e-5):
        z = x.reshape(x.shape[0], groups, -1)
        mu = z.mean(-1, keepdim=True)
        r = torch.rsqrt((z - mu).square().mean(-1, keepdim=True) + eps)
        h = (z - mu) * r
        ctx.save_for_backward(h, r, w)
        return h.view(x.shape) * w[:, None] + b[:, None]

    @staticmethod
    def backward(ctx, Dy):
        h, r, w = ctx.saved_tensors
        Dh = (Dy * w[:, None]).reshape(h.shape)
        Dx = r * (Dh - Dh.mean(-1, keepdim=True) - h * (Dh * h).mean(-1, keepdim=True))
        return Dx.view(Dy.shape), None, (Dy * h.view(Dy.shape)).sum((0, 2)), Dy.sum((0, 2)), None


@mg.proved(x="N D", w="D", b="D", eps="> 0")
class BatchNorm(Function):
    r"""Batch normalization

    h_{ij} = r_j\,(x_{ij} - \mu_j), \quad y_{ij} = w_j\,h_{ij} + b_j
    \mu_j = \frac{1}{N}\sum_k x_{kj}, \quad r_j = (\frac{1}{N}\sum_k (x_{kj} - \mu_j)^2 + \varepsilon)^{-1/2}

    \mathsf{D}w_j = \sum_i \mathsf{D}y_{ij}\,h_{ij}, \quad \mathsf{D}b_j = \sum_i \mathsf{D}y_{ij}
    \mathsf{D}x_{ij} = \frac{w_j\,r_j}{N}(N\,\mathsf{D}y_{ij} - \mathsf{D}b_j - h_{ij}\,\mathsf{D}w_j)
    """

    @staticmethod
    def forward(ctx, x, w, b, eps=1e-5):
        mu = x.mean(0)
        r = torch.rsqrt((x - mu).square().mean(0) + eps)
        h = (x - mu) * r
        ctx.save_for_backward(h, r, w)
        return h * w + b

    @staticmethod
    def backward(ctx, Dy):
        h, r, w = ctx.saved_tensors
        N = Dy.shape[0]
        Dw, Db = (Dy * h).sum(0), Dy.sum(0)
        return w * r / N * (N * Dy - Db - h * Dw), Dw, Db, None


@mg.proved(a="N F", b="N F")
class SwiGLU(Function):
    r"""SwiGLU

    y = a\,\sigma(a)\,b

    \mathsf{D}a = \mathsf{D}y\,b\,\sigma(a)\,(1 + a\,(1 - \sigma(a))), \quad \mathsf{D}b = \mathsf{D}y\,a\,\sigma(a)
    """

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, Dy):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(a)
        return Dy * b * s * (1 + a * (1 - s)), Dy * a * s


@mg.proved(a="N F", b="N F")
class GEGLU(Function):
    r"""GEGLU

    y = a\,\Phi(a)\,b, \quad \Phi(a) = \frac{1}{2}(1 + \operatorname{erf}(a/\sqrt{2}))

    \mathsf{D}a = \mathsf{D}y\,b(\Phi(a) + \frac{a\,e^{-a^2/2}}{\sqrt{2\pi}}), \quad \mathsf{D}b = \mathsf{D}y\,a\,\Phi(a)
    """

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return F.gelu(a) * b

    @staticmethod
    def backward(ctx, Dy):
        a, b = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(a / math.sqrt(2)))
        pdf = torch.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
        return Dy * b * (cdf + a * pdf), Dy * a * cdf


@mg.proved(x="B H T 2*F", angles="T F")
class RotaryEmbedding(Function):
    r"""Rotary embedding

    (u', v') = (u\cos\theta - v\sin\theta,\; u\sin\theta + v\cos\theta), \quad x = (u, v)

    (\mathsf{D}u, \mathsf{D}v) = (\mathsf{D}u'\cos\theta + \mathsf{D}v'\sin\theta,\; \mathsf{D}v'\cos\theta - \mathsf{D}u'\sin\theta)
    """

    @staticmethod
    def forward(ctx, x, angles):
        cos, sin = angles.cos(), angles.sin()
        ctx.save_for_backward(cos, sin)
        u, v = x.chunk(2, -1)
        return torch.cat((u * cos - v * sin, u * sin + v * cos), -1)

    @staticmethod
    def backward(ctx, Dy):
        cos, sin = ctx.saved_tensors
        Du, Dv = Dy.chunk(2, -1)
        return torch.cat((Du * cos + Dv * sin, Dv * cos - Du * sin), -1), None


@mg.proved(z="N K", t="N < K", smoothing="> 0")
class CrossEntropy(Function):
    r"""Softmax cross-entropy with labels and smoothing

    p_{ij} = \frac{e^{z_{ij}}}{\sum_k e^{z_{ik}}}, \quad q_{ij} = (1 - \alpha)\,[t_i = j] + \frac{\alpha}{K}, \quad L = -\frac{1}{N}\sum_{ij} q_{ij}\log p_{ij}

    \mathsf{D}z_{ij} = \frac{\mathsf{D}L}{N}\,(p_{ij} - q_{ij})
    """

    @staticmethod
    def forward(ctx, z, t, smoothing=0.1):
        log_p = F.log_softmax(z, -1)
        ctx.save_for_backward(log_p, t)
        ctx.smoothing = smoothing
        own = log_p.gather(1, t[:, None]).squeeze(1)
        return -((1 - smoothing) * own + smoothing * log_p.mean(-1)).mean()

    @staticmethod
    def backward(ctx, DL):
        log_p, t = ctx.saved_tensors
        N, K = log_p.shape
        q = (1 - ctx.smoothing) * F.one_hot(t, K).to(log_p.dtype) + ctx.smoothing / K
        return DL * (log_p.exp() - q) / N, None, None


@mg.proved(z="N K", t="N < K", gamma="> 0")
class FocalLoss(Function):
    r"""Focal loss

    p_i = \operatorname{softmax}(z)_{i t_i}, \quad L = -\frac{1}{N}\sum_i (1 - p_i)^\gamma \log p_i

    \mathsf{D}z_{ij} = \frac{\mathsf{D}L}{N}(\gamma\,(1 - p_i)^{\gamma - 1}\,p_i \log p_i - (1 - p_i)^\gamma)([t_i = j] - \operatorname{softmax}(z)_{ij})
    """

    @staticmethod
    def forward(ctx, z, t, gamma=2.0):
        log_p = F.log_softmax(z, -1)
        ctx.save_for_backward(log_p, t)
        ctx.gamma = gamma
        own = log_p.gather(1, t[:, None]).squeeze(1)
        return -((1 - own.exp()) ** gamma * own).mean()

    @staticmethod
    def backward(ctx, DL):
        log_p, t = ctx.saved_tensors
        gamma, (N, K) = ctx.gamma, log_p.shape
        own = log_p.gather(1, t[:, None])
        p = own.exp()
        slope = gamma * (1 - p) ** (gamma - 1) * p * own - (1 - p) ** gamma
        return DL / N * slope * (F.one_hot(t, K) - log_p.exp()), None, None


@mg.proved(q="B T D", k="B S D", v="B S E", mask="T S ?")
class Attention(Function):
    r"""Attention with a mask

    P = \operatorname{softmax}(\frac{QK^\top}{\sqrt{D}}), \quad Y = PV

    \mathsf{D}V = P^\top\,\mathsf{D}Y, \quad \mathsf{D}P = \mathsf{D}Y\,V^\top
    \mathsf{D}S = P \odot (\mathsf{D}P - \operatorname{diag}(\mathsf{D}P\,P^\top)\,1^\top), \quad \mathsf{D}Q = \frac{\mathsf{D}S\,K}{\sqrt{D}}, \quad \mathsf{D}K = \frac{\mathsf{D}S^\top Q}{\sqrt{D}}
    """

    @staticmethod
    def forward(ctx, q, k, v, mask):
        scale = q.shape[-1] ** -0.5
        s = (q @ k.mT * scale).masked_fill(mask, -math.inf)
        p = F.softmax(s, -1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale = scale
        return p @ v

    @staticmethod
    def backward(ctx, Dy):
        q, k, v, p = ctx.saved_tensors
        Dp = Dy @ v.mT
        Ds = p * (Dp - (Dp * p).sum(-1, keepdim=True)) * ctx.scale
        return Ds @ k, Ds.mT @ q, p.mT @ Dy, None


@mg.proved(q="T D", k="S D", v="S E")
class FlashAttention(Function):
    r"""Flash attention: P is computed again

    Y = PV, \quad L_i = \log \sum_k e^{s_{ik}}, \quad S = \frac{QK^\top}{\sqrt{D}}, \quad P_{ij} = e^{s_{ij} - L_i}

    \delta_i = \sum_k \mathsf{D}y_{ik}\,y_{ik}, \quad \mathsf{D}S = P \odot (\mathsf{D}Y\,V^\top - \delta\,1^\top)
    \mathsf{D}Q = \frac{\mathsf{D}S\,K}{\sqrt{D}}, \quad \mathsf{D}K = \frac{\mathsf{D}S^\top Q}{\sqrt{D}}, \quad \mathsf{D}V = P^\top\,\mathsf{D}Y
    """

    @staticmethod
    def forward(ctx, q, k, v):
        s = q @ k.T / math.sqrt(q.shape[-1])
        m = s.amax(-1, keepdim=True)
        e = torch.exp(s - m)
        z = e.sum(-1, keepdim=True)
        y = e @ v / z
        ctx.save_for_backward(q, k, v, y, m + z.log())
        return y

    @staticmethod
    def backward(ctx, Dy):
        q, k, v, y, lse = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        p = torch.exp(q @ k.T * scale - lse)
        delta = (Dy * y).sum(-1, keepdim=True)
        Ds = p * (Dy @ v.T - delta) * scale
        return Ds @ k, Ds.T @ q, p.T @ Dy


@mg.proved(a="N D", b="N D", scale="> 0")
class InfoNCE(Function):
    r"""InfoNCE

    S = c\,A B^\top, \quad P = \operatorname{softmax}(S), \quad L = -\frac{1}{N}\sum_i \log p_{ii}

    \mathsf{D}S = \frac{\mathsf{D}L}{N}\,(P - I), \quad \mathsf{D}A = c\,\mathsf{D}S\,B, \quad \mathsf{D}B = c\,\mathsf{D}S^\top A
    """

    @staticmethod
    def forward(ctx, a, b, scale=10.0):
        s = scale * a @ b.T
        ctx.save_for_backward(a, b, F.softmax(s, -1))
        ctx.scale = scale
        return (torch.logsumexp(s, -1) - s.diagonal()).mean()

    @staticmethod
    def backward(ctx, DL):
        a, b, p = ctx.saved_tensors
        Ds = DL / a.shape[0] * ctx.scale * (p - torch.eye(a.shape[0], dtype=p.dtype, device=p.device))
        return Ds @ b, Ds.T @ a, None


@mg.proved(chosen="N", rejected="N", beta="> 0")
class DPO(Function):
    r"""Direct preference optimization, of log-ratios

    L = -\frac{1}{N}\sum_i \log \sigma(\beta\,(c_i - r_i))

    \mathsf{D}c_i = -\frac{\mathsf{D}L}{N}\,\beta\,\sigma(-\beta\,(c_i - r_i)), \quad \mathsf{D}r_i = -\mathsf{D}c_i
    """

    @staticmethod
    def forward(ctx, chosen, rejected, beta=0.1):
        d = beta * (chosen - rejected)
        ctx.save_for_backward(d)
        ctx.beta = beta
        return -F.logsigmoid(d).mean()

    @staticmethod
    def backward(ctx, DL):
        (d,) = ctx.saved_tensors
        Dc = -DL * ctx.beta * torch.sigmoid(-d) / d.shape[0]
        return Dc, -Dc, None


@mg.proved(x="N D", t="N D", delta="> 0")
class Huber(Function):
    r"""Huber loss

    L = \frac{1}{N D}\sum_{ij} h(d_{ij}), \quad d = x - t, \quad h(d) = \begin{cases} d^2/2 & |d| \leq \delta \\ \delta\,(|d| - \delta/2) & \text{otherwise} \end{cases}

    \mathsf{D}x_{ij} = \frac{\mathsf{D}L}{N D}\,\min(\max(d_{ij}, -\delta), \delta), \quad \mathsf{D}t = -\mathsf{D}x
    """

    @staticmethod
    def forward(ctx, x, t, delta=1.0):
        d = x - t
        ctx.save_for_backward(d)
        ctx.delta = delta
        a = d.abs()
        return torch.where(a <= delta, 0.5 * d * d, delta * (a - 0.5 * delta)).mean()

    @staticmethod
    def backward(ctx, DL):
        (d,) = ctx.saved_tensors
        Dx = DL * d.clamp(-ctx.delta, ctx.delta) / d.numel()
        return Dx, -Dx, None


@mg.proved(a="N K", b="N K")
class KL(Function):
    r"""Kullback–Leibler divergence of two softmaxes

    p = \operatorname{softmax}(a), \quad q = \operatorname{softmax}(b), \quad d_{ij} = \log p_{ij} - \log q_{ij}, \quad L = \frac{1}{N}\sum_{ij} p_{ij}\,d_{ij}

    \mathsf{D}a_{ij} = \frac{\mathsf{D}L}{N}\,p_{ij}(d_{ij} - \sum_k p_{ik}\,d_{ik}), \quad \mathsf{D}b_{ij} = \frac{\mathsf{D}L}{N}\,(q_{ij} - p_{ij})
    """

    @staticmethod
    def forward(ctx, a, b):
        log_p, log_q = F.log_softmax(a, -1), F.log_softmax(b, -1)
        ctx.save_for_backward(log_p, log_q)
        return (log_p.exp() * (log_p - log_q)).sum() / a.shape[0]

    @staticmethod
    def backward(ctx, DL):
        log_p, log_q = ctx.saved_tensors
        p, d, N = log_p.exp(), log_p - log_q, log_p.shape[0]
        return DL / N * p * (d - (p * d).sum(-1, keepdim=True)), DL / N * (log_q.exp() - p)


@mg.proved(x="N D", y="N D")
class CosineSimilarity(Function):
    r"""Cosine similarity

    c_i = \frac{\sum_k x_{ik}\,y_{ik}}{|x_i|\,|y_i|}, \quad u = \frac{x}{|x|}, \quad v = \frac{y}{|y|}

    \mathsf{D}x_{ij} = \mathsf{D}c_i\,\frac{v_{ij} - c_i\,u_{ij}}{|x_i|}, \quad \mathsf{D}y_{ij} = \mathsf{D}c_i\,\frac{u_{ij} - c_i\,v_{ij}}{|y_i|}
    """

    @staticmethod
    def forward(ctx, x, y):
        nx, ny = x.norm(dim=-1, keepdim=True), y.norm(dim=-1, keepdim=True)
        u, v = x / nx, y / ny
        c = (u * v).sum(-1, keepdim=True)
        ctx.save_for_backward(u, v, nx, ny, c)
        return c.squeeze(-1)

    @staticmethod
    def backward(ctx, Dc):
        u, v, nx, ny, c = ctx.saved_tensors
        Dc = Dc[:, None]
        return Dc * (v - c * u) / nx, Dc * (u - c * v) / ny


@mg.proved(x="N D")
class LogSumExp(Function):
    r"""Log-sum-exp

    y_i = m_i + \log \sum_k e^{x_{ik} - m_i}, \quad m_i = \max_k x_{ik}

    \mathsf{D}x_{ij} = \mathsf{D}y_i\,e^{x_{ij} - y_i}
    """

    @staticmethod
    def forward(ctx, x):
        m = x.amax(-1, keepdim=True)
        y = m + torch.exp(x - m).sum(-1, keepdim=True).log()
        ctx.save_for_backward(x, y)
        return y.squeeze(-1)

    @staticmethod
    def backward(ctx, Dy):
        x, y = ctx.saved_tensors
        return Dy[:, None] * torch.exp(x - y)
