"""LeNet, a small VGG and a GPT in matgrad's C++ core, and the same models in torch.nn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

import matgrad as mg
from harness.problems import Parameters, Setting
from harness.tools import TrainingTool

VOCABULARY = 65  # characters


@dataclass(frozen=True)
class Network(Setting):
    """A model by its specification, whose `sizes` begin with the shape of an example; texts have classes per token."""

    name: str = ""
    layers_text: str = ""
    shape: tuple[int, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether the examples are texts."""
        return len(self.shape) == 1

    @property
    def update(self) -> str:
        """The specification of the optimizer in matgrad."""
        return "AdamW(0.9, 0.999, 1e-8, weight_decay=0.01)" if self.is_text else f"Momentum({self.momentum})"

    def model(self) -> mg.MultilayerPerceptron:
        """The model."""
        sizes = ["x".join(map(str, self.shape)), *self.sizes[1:]]
        return mg.create_model(self.layers_text, sizes, optimizers=self.update)


class Ours(TrainingTool):
    """The training step in the C++ core, which goes through all batches by itself."""

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        network: Any = self.setting
        options = {} if network.is_text else {"classes": network.sizes[-1]}
        T = t.astype(X.dtype) if network.is_text else t
        self.loader = mg.DataLoader(np.array(X), T, network.batch_size, **options).to("native", dtype=network.dtype)

    def start(self, parameters: Parameters) -> None:
        if hasattr(self, "step"):
            return
        network: Any = self.setting
        mg.manual_seed(0)
        M = network.model().to("native", dtype=network.dtype).train()
        loss = mg.TokenCrossEntropyLoss() if network.is_text else mg.SoftmaxCrossEntropyLoss()
        self.step = mg.compile_step(M, loss)
        self.step.load(M.state())
        self.eta = M.scalar(network.learning_rate)
        self.step.prepare(*next(iter(self.loader)))

    def train(self, batches: int) -> None:
        chosen: Any = self.loader if batches >= len(self.loader) else islice(self.loader, batches)
        self.step.train(chosen, lambda i: self.eta)


class Attention(nn.Module):
    """Causal self-attention by PyTorch's fused kernel, between two linear modules."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inner, self.outer = heads, nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y"""
        N, L, d = x.shape
        q, k, v = self.inner(x).view(N, L, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outer(z.transpose(1, 2).reshape(N, L, d))


class Residual(nn.Sequential):
    """X + F(X)"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y"""
        return x + super().forward(x)


class GPT(nn.Module):
    """Embedding, positions, blocks of attention and feedforward, and a linear module for each token."""

    def __init__(self, vocabulary: int, tokens: int, size: int, blocks: int, heads: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, size), nn.Parameter(torch.zeros(tokens, size))
        parts: list[nn.Module] = []
        for _ in range(blocks):
            parts.append(Residual(nn.LayerNorm(size), Attention(size, heads)))
            feedforward = nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)
            parts.append(Residual(nn.LayerNorm(size), *feedforward))
        self.blocks = nn.Sequential(*parts, nn.Linear(size, vocabulary))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of each token."""
        return self.blocks(self.embedding(x) + self.positions)


def lenet() -> nn.Module:
    """LeNet, with ReLU and maxima."""
    convolutions = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
    parts = [part for conv in convolutions for part in (conv, nn.ReLU(), nn.MaxPool2d(2))]
    linear = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    return nn.Sequential(*parts, nn.Flatten(), *linear)


def vgg() -> nn.Module:
    """Six 3×3 convolutions, with a pooling after each second one."""
    parts: list[nn.Module] = []
    before = 3
    for channels in (32, 64, 128):
        for C in (before, channels):
            parts += [nn.Conv2d(C, channels, 3, padding=1), nn.ReLU()]
        parts.append(nn.MaxPool2d(2))
        before = channels
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 10))


def gpt() -> nn.Module:
    """A GPT of 4 layers."""
    return GPT(VOCABULARY, 64, 128, 4, 4)


class Torch(TrainingTool):
    """The model of this name in torch.nn, with the channels last if they are."""

    def __init__(self, setting: Setting, channels_last: bool = False) -> None:
        super().__init__(setting)
        self.format = torch.channels_last if channels_last else torch.contiguous_format

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        network: Any = self.setting
        self.X, self.t = torch.tensor(X), torch.tensor(t)
        if network.is_text:
            self.X = self.X.long()
        else:
            images = self.X.view(-1, *network.shape).permute(0, 3, 1, 2)
            self.X = images.contiguous(memory_format=self.format)

    def start(self, parameters: Parameters) -> None:
        if hasattr(self, "model"):
            return
        network: Any = self.setting
        torch.manual_seed(0)
        model: Any = {"LeNet": lenet, "VGG": vgg, "GPT": gpt}[network.name]()
        self.model = model.to(getattr(torch, network.dtype), memory_format=self.format)
        weights, rate = list(self.model.parameters()), network.learning_rate
        self.optimizer = (
            torch.optim.AdamW(weights, lr=rate, fused=True)
            if network.is_text
            else torch.optim.SGD(weights, lr=rate, momentum=network.momentum)
        )
        self.criterion = nn.CrossEntropyLoss()

    def train(self, batches: int) -> None:
        B = self.setting.batch_size
        for i in range(0, batches * B, B):
            self.optimizer.zero_grad(set_to_none=True)
            Y = self.model(self.X[i : i + B])
            self.criterion(Y.flatten(0, -2), self.t[i : i + B].flatten()).backward()
            self.optimizer.step()
