"""An independent oracle: networks of images and tokens by torch's own functions, from the parameters of a model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import matgrad as mg
from matgrad.layers import (
    AttentionLayer,
    ConvolutionLayer,
    EachLayer,
    EmbeddingLayer,
    GatedLayer,
    MaxPoolingLayer,
    MeanPoolingLayer,
    PositionsLayer,
    ResidualLayer,
    RotaryLayer,
    SequenceLayer,
    SinusoidalLayer,
)
from matgrad.sparse.matrix import SparseMatrix

ACTIVATIONS = {
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "HyperbolicTangent": torch.tanh,
    "Sigmoid": torch.sigmoid,
}
Parameters = dict[str, torch.Tensor]


class Reference:
    """Y from X by torch's functions; the parameters are those of the state, by name."""

    def __init__(self, M: mg.MultilayerPerceptron, parameters: Parameters) -> None:
        self.M, self.parameters = M, parameters

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.M.layers, start=1):
            X = self.applied(layer, X, str(i))
        return X

    def chained(self, layers: list[Any], X: torch.Tensor, path: str) -> torch.Tensor:
        for i, layer in enumerate(layers, start=1):
            X = self.applied(layer, X, f"{path}.{i}")
        return X

    def linear(self, layer: Any, X: torch.Tensor, path: str) -> torch.Tensor:
        return self.activated(layer, F.linear(X, self.weights(layer, path), self.parameters[f"{path}.b"][0]))

    def activated(self, layer: Any, Z: torch.Tensor) -> torch.Tensor:
        act = getattr(layer, "act", None)
        return Z if act is None else ACTIVATIONS[type(act).__name__.removesuffix("Activation")](Z)

    def weights(self, layer: Any, path: str) -> torch.Tensor:
        W = self.parameters[f"{path}.W"]
        if not isinstance(layer.W, SparseMatrix):
            return W
        S = layer.W.support
        rows, columns = (torch.tensor(x, dtype=torch.int64) for x in (S.row_indices(), S.columns))
        return W.new_zeros(S.shape).index_put((rows, columns), W[0])

    def applied(self, layer: Any, X: torch.Tensor, path: str) -> torch.Tensor:
        N, p = len(X), self.parameters
        match layer:
            case ConvolutionLayer():
                return self.convolution(layer, X, path)
            case MaxPoolingLayer() | MeanPoolingLayer():
                pools = {3: (F.max_pool2d, F.avg_pool2d), 2: (F.max_pool1d, F.avg_pool1d)}[len(layer.input_shape)]
                pool = pools[isinstance(layer, MeanPoolingLayer)]
                return rows_of(pool(grid_of(X, layer.input_shape), layer.size, layer.stride, layer.padding))
            case ResidualLayer():
                return X + self.chained(layer.layers, X, path)
            case EachLayer():
                return self.chained(layer.layers, X.reshape(N * layer.P, -1), path).reshape(N, -1)
            case SequenceLayer():
                return self.chained(layer.layers, X, path)
            case GatedLayer():
                return self.applied(layer.layers[0], X, f"{path}.1") * self.applied(layer.layers[1], X, f"{path}.2")
            case EmbeddingLayer():
                return F.embedding(X.long(), p[f"{path}.W"]).reshape(N, -1)
            case SinusoidalLayer():
                return X + rounded(sinusoids(*layer.input_shape)).reshape(1, -1)
            case PositionsLayer():
                return X + p[f"{path}.b"]
            case RotaryLayer():
                return rotated(layer, X)
            case AttentionLayer():
                return attention(layer, X)
            case mg.FunctionLayer():
                return self.activated(layer, X)
            case mg.LayerNormalizationLayer():
                gamma, beta = p[f"{path}.gamma"][0], p[f"{path}.beta"][0]
                return F.layer_norm(X, gamma.shape, gamma, beta, layer.epsilon)
            case mg.RMSNormalizationLayer():
                gamma = p[f"{path}.gamma"][0]
                return F.rms_norm(X, gamma.shape, gamma, layer.epsilon)
            case mg.BatchNormalizationLayer():
                gamma, beta = p[f"{path}.gamma"][0], p[f"{path}.beta"][0]
                return F.batch_norm(X, None, None, gamma, beta, True, eps=layer.epsilon)
            case mg.LinearLayer():
                return self.linear(layer, X, path)
        raise TypeError(layer)

    def convolution(self, layer: Any, X: torch.Tensor, path: str) -> torch.Tensor:
        inner, C, k = layer.layers[0], layer.input_shape[-1], len(layer.input_shape) - 1
        W = self.weights(inner, f"{path}.1").reshape(-1, *(layer.size,) * k, C).movedim(-1, 1)
        if layer.groups > 1:  # each kernel has the channels of its group alone
            of = C // layer.groups
            group = torch.arange(len(W)) // (len(W) // layer.groups)
            W = torch.stack([w[g * of : (g + 1) * of] for w, g in zip(W, group.tolist(), strict=True)])
        convolve = F.conv2d if k == 2 else F.conv1d
        options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        Z = convolve(
            grid_of(X, layer.input_shape), W, self.parameters[f"{path}.1.b"][0], groups=layer.groups, **options
        )
        return self.activated(inner, rows_of(Z))


def grid_of(X: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Rows as images or sequences, with channels first."""
    return X.reshape(-1, *shape).movedim(-1, 1)


def rows_of(Y: torch.Tensor) -> torch.Tensor:
    return Y.movedim(1, -1).reshape(len(Y), -1)


def attention(layer: Any, X: torch.Tensor) -> torch.Tensor:
    (L, width), H = layer.input_shape, layer.heads
    G = layer.groups or H
    e = width // (H + 2 * G)
    q, k, v = X.reshape(-1, L, H + 2 * G, e).transpose(1, 2).split([H, G, G], dim=1)
    Y = F.scaled_dot_product_attention(q, k, v, is_causal=layer.causal, enable_gqa=H != G)
    return Y.transpose(1, 2).reshape(len(X), -1)


def rotated(layer: Any, X: torch.Tensor) -> torch.Tensor:
    """As in Llama: x·cos + rotate_half(x)·sin, of queries and keys."""
    (L, width), H = layer.input_shape, layer.heads
    G = layer.groups or H
    e = width // (H + 2 * G)
    steps = torch.arange(0, e, 2, dtype=torch.float64)
    angles = torch.arange(L, dtype=torch.float64)[:, None] * 10000.0 ** (-steps / e)
    cos, sin = (rounded(torch.cat([f(angles), f(angles)], dim=-1))[None, :, None] for f in (torch.cos, torch.sin))
    x = X.reshape(-1, L, H + 2 * G, e)
    turned, rest = x[:, :, : H + G], x[:, :, H + G :]
    half = torch.cat([-turned[..., e // 2 :], turned[..., : e // 2]], dim=-1)
    return torch.cat([turned * cos + half * sin, rest], dim=2).reshape(len(X), -1)


def rounded(A: torch.Tensor) -> torch.Tensor:
    """The constants of a new layer, which is in float32."""
    return A.float().double()


def sinusoids(L: int, d: int) -> torch.Tensor:
    b = torch.zeros((L, d), dtype=torch.float64)
    for l in range(L):
        for i in range(d):
            angle = l / 10000 ** (2 * (i // 2) / d)
            b[l, i] = np.sin(angle) if i % 2 == 0 else np.cos(angle)
    return b


# -- random networks ---------------------------------------------------------------------------------


def random_network(seed: int) -> tuple[str, list[Any]]:
    """Layers and sizes of a small network of images, sequences or tokens."""
    rng = random.Random(seed)
    return (random_images if seed % 2 else random_tokens)(rng)


def random_images(rng: random.Random) -> tuple[str, list[Any]]:
    is_image = rng.random() < 0.7
    side, C = rng.randint(5, 7), rng.choice([1, 2, 4])
    first = ([side, rng.randint(5, 7)] if is_image else [rng.randint(7, 9)]) + [C]
    shape, items = first, list[str]()
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(["Conv", "Conv", "MaxPool", "AvgPool", "Each", "Residual", "Function"])
        least = min(shape[:-1])
        if kind == "Conv" and least >= 2:
            size, stride, padding = rng.randint(1, min(3, least)), rng.randint(1, 2), rng.randint(0, 1)
            dilation = rng.choice([1, 2]) if (size - 1) * 2 + 1 <= least else 1
            groups = 2 if shape[-1] % 2 == 0 and rng.random() < 0.3 else 1
            act = rng.choice(["", ", act=GELU", ", act=HyperbolicTangent", ", act=SiLU"])
            K = rng.choice([2, 4])
            items.append(
                f"Conv({K}, {size}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}{act})"
            )
            span = dilation * (size - 1) + 1
            shape = [(n + 2 * padding - span) // stride + 1 for n in shape[:-1]] + [K]
        elif kind in ("MaxPool", "AvgPool") and least >= 2:
            stride, padding = rng.randint(1, 2), rng.randint(0, 1)
            items.append(f"{kind}(2, stride={stride}, padding={padding})")
            shape = [(n + 2 * padding - 2) // stride + 1 for n in shape[:-1]] + [shape[-1]]
        elif kind == "Residual":
            items.append(f"Residual(Each(LayerNormalization;GELU(3);Linear({shape[-1]})))")
        elif kind == "Function":
            items.append("Function(GELU)")
        else:
            items.append(f"Each({rng.choice(['BatchNormalization', 'LayerNormalization', 'RMSNormalization'])})")
    return ";".join([*items, "Linear"]), ["x".join(map(str, first)), 3]


def random_tokens(rng: random.Random) -> tuple[str, list[Any]]:
    L, heads, e = rng.randint(2, 5), rng.choice([1, 2, 4]), rng.choice([2, 4])
    d, groups, causal = heads * e, rng.choice([0, 1, heads]), rng.random() < 0.5
    width = (heads + 2 * (groups or heads)) * e
    norm = rng.choice(["LayerNormalization", "RMSNormalization"])
    options = "".join([f", groups={groups}" if groups else "", "" if causal else ", causal=False"])
    rotary = [f"Rotary({heads}{f', groups={groups}' if groups else ''})"] if rng.random() < 0.4 else []
    inner = [f"Each({norm};Linear({width}))", *rotary, f"Attention({heads}{options})", f"Each(Linear({d}))"]
    feedforward = rng.choice([f"GELU(5);Linear({d})", f"Gated(SiLU(5);Linear(5));Linear({d})"])
    items = [f"Embedding({d}, vocabulary=7)", rng.choice(["Positions", "Positions(sinusoidal)"])]
    items += [f"Residual({';'.join(inner)})", f"Residual(Each({norm};{feedforward}))"]
    if rng.random() < 0.3:
        items += [f"Transformer(1, heads={heads}{'' if causal else ', causal=False'})"]
    items += rng.choice([[f"Each({norm};Linear(3))"], ["Linear"], ["Conv(2, 2, padding=1)", "Linear"]])
    return ";".join(items), [L] + ([3] if items[-1] == "Linear" else [])


def examples_of(M: mg.MultilayerPerceptron, N: int, rng: np.random.Generator) -> np.ndarray:
    """Random examples: labels, or numbers."""
    first = M.layers[0]
    if isinstance(first, EmbeddingLayer):
        return rng.integers(first.V, size=(N, first.input_size)).astype(float)
    return rng.normal(size=(N, first.input_size))


def is_trained(M: mg.MultilayerPerceptron, name: str) -> bool:
    """Whether an entry of the state is a parameter."""
    return any(f"{path}.{x}" == name for path, layer in M.walk() for x in layer.parameters)
