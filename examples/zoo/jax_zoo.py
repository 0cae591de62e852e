"""The functions of torch_zoo.py in JAX, to copy: `matgrad prove jax_zoo.py` proves their gradients for all sizes."""

import jax
import jax.numpy as jnp

import matgrad as mg


def with_backward(function, backward):
    """The function with a gradient of its arguments, which are all that is kept."""
    result = jax.custom_vjp(function)
    result.defvjp(lambda *arguments: (function(*arguments), arguments), backward)
    return result


def mean(x):
    """The mean of a row."""
    return x.mean(-1, keepdims=True)


# -- LayerNorm


def layer_norm(x, w, b, eps=1e-5):
    d = x - mean(x)
    return d * jax.lax.rsqrt(mean(d * d) + eps) * w + b


def layer_norm_backward(kept, Dy):
    x, w, b, eps = kept
    d = x - mean(x)
    r = jax.lax.rsqrt(mean(d * d) + eps)
    h, Dh = d * r, Dy * w
    return r * (Dh - mean(Dh) - h * mean(Dh * h)), (Dy * h).sum(0), Dy.sum(0), None


LayerNorm = mg.proved(x="N D", w="D", b="D", eps="> 0")(with_backward(layer_norm, layer_norm_backward))

# -- RMSNorm


def rms_norm(x, w, eps=1e-6):
    return x * jax.lax.rsqrt(mean(x * x) + eps) * w


def rms_norm_backward(kept, Dy):
    x, w, eps = kept
    r = jax.lax.rsqrt(mean(x * x) + eps)
    h, Dh = x * r, Dy * w
    return r * (Dh - h * mean(Dh * h)), (Dy * h).sum((0, 1)), None


RMSNorm = mg.proved(x="B T D", w="D", eps="> 0")(with_backward(rms_norm, rms_norm_backward))

# -- GroupNorm


def group_norm(x, w, b, eps=1e-5, groups=4):
    z = x.reshape(x.shape[0], groups, -1)
    d = z - mean(z)
    return (d * jax.lax.rsqrt(mean(d * d) + eps)).reshape(x.shape) * w[:, None] + b[:, None]


def group_norm_forward(x, w, b, eps, groups):
    return group_norm(x, w, b, eps, groups), (x, w, b, eps)


def group_norm_backward(groups, kept, Dy):
    x, w, b, eps = kept
    z = x.reshape(x.shape[0], groups, -1)
    d = z - mean(z)
    r = jax.lax.rsqrt(mean(d * d) + eps)
    h, Dh = d * r, (Dy * w[:, None]).reshape(z.shape)
    Dx = r * (Dh - mean(Dh) - h * mean(Dh * h))
    Dw = (Dy * h.reshape(x.shape)).sum((0, 2))
    return Dx.reshape(x.shape), Dw, Dy.sum((0, 2)), None


GroupNorm = jax.custom_vjp(group_norm, nondiff_argnums=(4,))
GroupNorm.defvjp(group_norm_forward, group_norm_backward)
mg.proved(x="N G*C T", w="G*C", b="G*C", eps="> 0", groups="= G")(GroupNorm)

# -- BatchNorm


def batch_norm(x, w, b, eps=1e-5):
    d = x - x.mean(0)
    return d * jax.lax.rsqrt((d * d).mean(0) + eps) * w + b


def batch_norm_backward(kept, Dy):
    x, w, b, eps = kept
    d = x - x.mean(0)
    r = jax.lax.rsqrt((d * d).mean(0) + eps)
    h, N = d * r, x.shape[0]
    Dw, Db = (Dy * h).sum(0), Dy.sum(0)
    return w * r / N * (N * Dy - Db - h * Dw), Dw, Db, None


BatchNorm = mg.proved(x="N D", w="D", b="D", eps="> 0")(with_backward(batch_norm, batch_norm_backward))

# -- SwiGLU


def swiglu(a, b):
    return jax.nn.silu(a) * b


def swiglu_backward(kept, Dy):
    a, b = kept
    s = jax.nn.sigmoid(a)
    return Dy * b * s * (1 + a * (1 - s)), Dy * a * s


SwiGLU = mg.proved(a="N F", b="N F")(with_backward(swiglu, swiglu_backward))

# -- GEGLU


def geglu(a, b):
    return jax.nn.gelu(a, approximate=False) * b


def geglu_backward(kept, Dy):
    a, b = kept
    cdf = 0.5 * (1 + jax.lax.erf(a / jnp.sqrt(2.0)))
    pdf = jnp.exp(-0.5 * a * a) / jnp.sqrt(2 * jnp.pi)
    return Dy * b * (cdf + a * pdf), Dy * a * cdf


GEGLU = mg.proved(a="N F", b="N F")(with_backward(geglu, geglu_backward))

# -- RotaryEmbedding


def rotated(x, cos, sin):
    u, v = jnp.split(x, 2, -1)
    return jnp.concatenate((u * cos - v * sin, u * sin + v * cos), -1)


def rotary_embedding(x, angles):
    return rotated(x, jnp.cos(angles), jnp.sin(angles))


def rotary_embedding_backward(kept, Dy):
    x, angles = kept
    return rotated(Dy, jnp.cos(angles), -jnp.sin(angles)), None


RotaryEmbedding = mg.proved(x="B H T 2*F", angles="T F")(with_backward(rotary_embedding, rotary_embedding_backward))

# -- CrossEntropy


def smoothed(t, K, smoothing):
    return (1 - smoothing) * jax.nn.one_hot(t, K) + smoothing / K


def cross_entropy(z, t, smoothing=0.1):
    return -(smoothed(t, z.shape[1], smoothing) * jax.nn.log_softmax(z)).sum(-1).mean()


def cross_entropy_backward(kept, DL):
    z, t, smoothing = kept
    N, K = z.shape
    return DL * (jax.nn.softmax(z) - smoothed(t, K, smoothing)) / N, None, None


CrossEntropy = mg.proved(z="N K", t="N < K", smoothing="> 0")(with_backward(cross_entropy, cross_entropy_backward))

# -- FocalLoss


def focal_loss(z, t, gamma=2.0):
    own = jnp.take_along_axis(jax.nn.log_softmax(z), t[:, None], 1)
    return -((1 - jnp.exp(own)) ** gamma * own).mean()


def focal_loss_backward(kept, DL):
    z, t, gamma = kept
    N, K = z.shape
    own = jnp.take_along_axis(jax.nn.log_softmax(z), t[:, None], 1)
    p = jnp.exp(own)
    slope = gamma * (1 - p) ** (gamma - 1) * p * own - (1 - p) ** gamma
    return DL / N * slope * (jax.nn.one_hot(t, K) - jax.nn.softmax(z)), None, None


FocalLoss = mg.proved(z="N K", t="N < K", gamma=2.0)(with_backward(focal_loss, focal_loss_backward))

# -- Attention


def probabilities(q, k, mask):
    s = jnp.einsum("btd,bsd->bts", q, k) / jnp.sqrt(q.shape[-1])
    return jax.nn.softmax(jnp.where(mask, -jnp.inf, s), -1)


def attention(q, k, v, mask):
    return probabilities(q, k, mask) @ v


def attention_backward(kept, Dy):
    q, k, v, mask = kept
    p = probabilities(q, k, mask)
    Dp = jnp.einsum("bte,bse->bts", Dy, v)
    Ds = p * (Dp - (Dp * p).sum(-1, keepdims=True)) / jnp.sqrt(q.shape[-1])
    return Ds @ k, jnp.einsum("bts,btd->bsd", Ds, q), jnp.einsum("bts,bte->bse", p, Dy), None


Attention = mg.proved(q="B T D", k="B S D", v="B S E", mask="T S ?")(with_backward(attention, attention_backward))

# -- FlashAttention


def scores(q, k):
    return q @ k.T / jnp.sqrt(q.shape[-1])


def flash_attention(q, k, v):
    return jax.nn.softmax(scores(q, k), -1) @ v


def flash_attention_forward(q, k, v):
    lse = jax.nn.logsumexp(scores(q, k), -1, keepdims=True)
    y = jnp.exp(scores(q, k) - lse) @ v
    return y, (q, k, v, y, lse)


def flash_attention_backward(kept, Dy):
    q, k, v, y, lse = kept
    p = jnp.exp(scores(q, k) - lse)
    delta = (Dy * y).sum(-1, keepdims=True)
    Ds = p * (Dy @ v.T - delta) / jnp.sqrt(q.shape[-1])
    return Ds @ k, Ds.T @ q, p.T @ Dy


FlashAttention = jax.custom_vjp(flash_attention)
FlashAttention.defvjp(flash_attention_forward, flash_attention_backward)
mg.proved(q="T D", k="S D", v="S E")(FlashAttention)

# -- InfoNCE


def info_nce(a, b, scale=10.0):
    s = scale * a @ b.T
    return (jax.nn.logsumexp(s, -1) - jnp.sum(scale * a * b, -1)).mean()


def info_nce_backward(kept, DL):
    a, b, scale = kept
    Ds = DL / a.shape[0] * scale * (jax.nn.softmax(scale * a @ b.T, -1) - jnp.eye(a.shape[0]))
    return Ds @ b, Ds.T @ a, None


InfoNCE = mg.proved(a="N D", b="N D", scale="> 0")(with_backward(info_nce, info_nce_backward))

# -- DPO


def dpo(chosen, rejected, beta=0.1):
    return -jax.nn.log_sigmoid(beta * (chosen - rejected)).mean()


def dpo_backward(kept, DL):
    chosen, rejected, beta = kept
    Dc = -DL * beta * jax.nn.sigmoid(-beta * (chosen - rejected)) / chosen.shape[0]
    return Dc, -Dc, None


DPO = mg.proved(chosen="N", rejected="N", beta="> 0")(with_backward(dpo, dpo_backward))

# -- Huber


def huber(x, t, delta=1.0):
    a = jnp.abs(x - t)
    return jnp.where(a <= delta, 0.5 * a * a, delta * (a - 0.5 * delta)).mean()


def huber_backward(kept, DL):
    x, t, delta = kept
    Dx = DL * jnp.clip(x - t, -delta, delta) / x.size
    return Dx, -Dx, None


Huber = mg.proved(x="N D", t="N D", delta="> 0")(with_backward(huber, huber_backward))

# -- KL


def kl(a, b):
    d = jax.nn.log_softmax(a) - jax.nn.log_softmax(b)
    return (jax.nn.softmax(a) * d).sum() / a.shape[0]


def kl_backward(kept, DL):
    a, b = kept
    p, d, N = jax.nn.softmax(a), jax.nn.log_softmax(a) - jax.nn.log_softmax(b), a.shape[0]
    return DL / N * p * (d - (p * d).sum(-1, keepdims=True)), DL / N * (jax.nn.softmax(b) - p)


KL = mg.proved(a="N K", b="N K")(with_backward(kl, kl_backward))

# -- CosineSimilarity


def norm(x):
    return jnp.sqrt((x * x).sum(-1, keepdims=True))


def cosine_similarity(x, y):
    return (x / norm(x) * (y / norm(y))).sum(-1)


def cosine_similarity_backward(kept, Dc):
    x, y = kept
    u, v, Dc = x / norm(x), y / norm(y), Dc[:, None]
    c = (u * v).sum(-1, keepdims=True)
    return Dc * (v - c * u) / norm(x), Dc * (u - c * v) / norm(y)


CosineSimilarity = mg.proved(x="N D", y="N D")(with_backward(cosine_similarity, cosine_similarity_backward))

# -- LogSumExp


def log_sum_exp(x):
    m = x.max(-1, keepdims=True)
    return (m + jnp.log(jnp.exp(x - m).sum(-1, keepdims=True))).squeeze(-1)


def log_sum_exp_backward(kept, Dy):
    (x,) = kept
    return (Dy[:, None] * jnp.exp(x - log_sum_exp(x)[:, None]),)


LogSumExp = mg.proved(x="N D")(with_backward(log_sum_exp, log_sum_exp_backward))
