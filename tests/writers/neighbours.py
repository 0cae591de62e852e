"""Right and wrong gradients of slices, shifts, padding, rolls, convolutions and joined tensors, for the tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F


class Diff(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, 1:] - x[:, :-1]

    @staticmethod
    def backward(ctx, g):
        return F.pad(g, (1, 0)) - F.pad(g, (0, 1))


class DiffInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.diff(x, dim=1)

    @staticmethod
    def backward(ctx, g):
        d = g.new_zeros(g.shape[0], g.shape[1] + 1)
        d[:, 1:] += g
        d[:, :-1] -= g
        return d


class DiffJoined(Diff):
    @staticmethod
    def backward(ctx, g):
        return torch.cat([-g[:, :1], g[:, :-1] - g[:, 1:], g[:, -1:]], 1)


class DiffTurned(Diff):
    @staticmethod
    def backward(ctx, g):
        return torch.cat([-g[:, :1], g[:, 1:] - g[:, :-1], g[:, -1:]], 1)


class DiffAround(Diff):
    """Right but for the first and the last entry."""

    @staticmethod
    def backward(ctx, g):
        g = F.pad(g, (0, 1))
        return torch.roll(g, 1, -1) - g + F.pad(g[:, -2:-1], (0, g.shape[1] - 1)) * 0.5


class TotalVariation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        d = x[..., 1:] - x[..., :-1]
        ctx.save_for_backward(d)
        return (d * d).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        d = 2 * g * d / d.numel()
        return F.pad(d, (1, 0)) - F.pad(d, (0, 1))


class TotalVariationOfT(TotalVariation):
    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        d = 2 * g * d / (d.shape[0] * (d.shape[1] + 1))
        return F.pad(d, (1, 0)) - F.pad(d, (0, 1))


class TokenShift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mu):
        previous = F.pad(x, (0, 0, 1, -1))
        ctx.save_for_backward(x, previous, mu)
        return x * mu + previous * (1 - mu)

    @staticmethod
    def backward(ctx, g):
        x, previous, mu = ctx.saved_tensors
        return g * mu + F.pad(g * (1 - mu), (0, 0, -1, 1)), (g * (x - previous)).sum((0, 1))


class TokenShiftForward(TokenShift):
    @staticmethod
    def backward(ctx, g):
        x, previous, mu = ctx.saved_tensors
        return g * mu + F.pad(g * (1 - mu), (0, 0, 1, -1)), (g * (x - previous)).sum((0, 1))


class NextToken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, t):
        p = torch.softmax(z[:, :-1], -1)
        ctx.save_for_backward(p, t)
        return -(t[:, 1:] * torch.log(p)).sum()

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        t = t[:, 1:]
        return F.pad(g * (p * t.sum(-1, keepdim=True) - t), (0, 0, 0, 1)), None


class NextTokenOfAll(NextToken):
    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        s = t.sum(-1, keepdim=True)
        return F.pad(g * (p * s[:, :-1] - t[:, 1:]), (0, 0, 0, 1)), None


class Rolled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.roll(x, 1, -1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.roll(1, -1) + torch.roll(g * x, -1, -1)


class RolledAgain(Rolled):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.roll(1, -1) + torch.roll(g * x, 1, -1)


class Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.conv1d(x, w, b, padding=1)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        windows = F.pad(x, (1, 1)).unfold(-1, 3, 1)
        dx = F.conv1d(g, w.transpose(0, 1).flip(2), padding=1)
        return dx, torch.einsum("not,nctk->ock", g, windows), g.sum((0, 2))


class ConvolutionTransposed(Convolution):
    @staticmethod
    def backward(ctx, g):
        _, w = ctx.saved_tensors
        return F.conv_transpose1d(g, w, padding=1), None, None


class ConvolutionNotFlipped(Convolution):
    @staticmethod
    def backward(ctx, g):
        _, w = ctx.saved_tensors
        return F.conv1d(g, w.transpose(0, 1), padding=1), None, None


class CausalByChannel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return F.conv1d(F.pad(x, (2, 0)), w, groups=x.shape[1])

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        dx = F.conv1d(F.pad(g, (0, 2)), w.flip(-1), groups=g.shape[1])
        return dx, torch.einsum("bct,bctk->ck", g, F.pad(x, (2, 0)).unfold(2, 3, 1)).unsqueeze(1)


class WithClassToken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, c):
        y = torch.cat([c.expand(x.shape[0], 1, -1), x], 1)
        ctx.save_for_backward(y)
        return (y * y).sum((1, 2))

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        d = 2 * g[:, None, None] * y
        return d[:, 1:], d[:, :1].sum(0)


class WithClassTokenLast(WithClassToken):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        d = 2 * g[:, None, None] * y
        return d[:, :-1], d[:, :1].sum(0)


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.split([1, x.shape[1] - 1], 1)
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return torch.cat([(g * b).sum(1, keepdim=True), g * a], 1)


class FirstAndLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x[:, 0] * x[:, -1]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = torch.zeros_like(x)
        d[:, 0] += g * x[:, -1]
        d[:, -1] += g * x[:, 0]
        return d


class FirstAndLastPut(FirstAndLast):
    """Right unless there is one entry."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = torch.zeros_like(x)
        d[:, 0] = g * x[:, -1]
        d[:, -1] = g * x[:, 0]
        return d


class Shuffled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return F.pixel_shuffle(x, 2)

    @staticmethod
    def backward(ctx, g):
        return F.pixel_unshuffle(g, 2)


TOKENS, WINDOWS = {"x": "B T C", "mu": "C"}, {"x": "N C T", "w": "O C 3", "b": "O"}
RIGHT = {
    Diff: {"x": "N T"},
    DiffInPlace: {"x": "N T"},
    DiffJoined: {"x": "N T"},
    TotalVariation: {"x": "N T"},
    TokenShift: TOKENS,
    NextToken: {"z": "B T V", "t": "B T V"},
    Rolled: {"x": "N T"},
    Convolution: WINDOWS,
    ConvolutionTransposed: WINDOWS,
    CausalByChannel: {"x": "B C T", "w": "C 1 3"},
    WithClassToken: {"x": "B T C", "c": "C"},
    Split: {"x": "N T"},
    FirstAndLast: {"x": "N T"},
    Shuffled: {"x": "B C H W"},
}
WRONG = {
    DiffTurned: {"x": "N T"},
    DiffAround: {"x": "N T"},
    TotalVariationOfT: {"x": "N T"},
    TokenShiftForward: TOKENS,
    NextTokenOfAll: {"z": "B T V", "t": "B T V"},
    RolledAgain: {"x": "N T"},
    ConvolutionNotFlipped: WINDOWS,
    WithClassTokenLast: {"x": "B T C", "c": "C"},
    FirstAndLastPut: {"x": "N T"},
}
