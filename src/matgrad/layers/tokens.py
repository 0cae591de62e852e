"""Layers for texts: embeddings, positions and self-attention.

A text is a row of L·d numbers, the d features of a token side by side, or of L labels, one for each token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from matgrad.foundation.limits import check_bytes
from matgrad.foundation.numbers import check_size, size_text
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import (
    Diag,
    Matrix,
    column_repeat,
    columns_sum,
    diag_product,
    hadamard,
    one_hot,
    row_repeat,
    rows_sum,
    stack,
    unstack,
    zeros,
)
from matgrad.softmax_functions import stable_softmax
from matgrad.weight_initializers import initial_weights


class EmbeddingLayer(Layer):
    """E = one_hot(stack(X, L), V);  Y = unstack(E W, L), with a row of the V×d matrix W for each label"""

    parameters = ("W",)
    input = "labels"

    def feedforward(self, X: Matrix) -> Matrix:
        W, L, V = self.W, self.L, self.V

        E = one_hot(stack(X, L), V)
        Y = unstack(E @ W, L)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X, L, V = self.X, self.L, self.V
        N, _ = DY.shape

        E = one_hot(stack(X, L), V)
        DW = E.T @ stack(DY, L)
        DX = zeros(N, L, like=DY)

        self.DW, self.DX = DW, DX

    def __init__(self, tokens: int, size: int, vocabulary: int) -> None:
        self.L, self.V = check_size("Embedding: tokens", tokens), check_size("Embedding: vocabulary", vocabulary)
        self.size = check_size("Embedding: size", size)
        super().__init__(tokens, tokens * size)
        self.W = initial_weights("Normal(0, 0.02)", vocabulary, size).astype(np.float32)
        self.set_optimizer("GradientDescent")
        self.input_shape, self.output_shape = (tokens,), (tokens, size)

    def specification(self) -> str:
        return f"Embedding({self.size}, vocabulary={self.V})"

    def __repr__(self) -> str:
        return f"{self.specification()}: {self.L} → {self.L} × {self.size}"


class PositionsLayer(Layer):
    """Y = X + 1_N b, where b has a vector for each position"""

    keeps_size = True
    parameters: tuple[str, ...] = ("b",)

    def feedforward(self, X: Matrix) -> Matrix:
        b = self.b
        N, _ = X.shape

        Y = X + row_repeat(b, N)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Db = columns_sum(DY)
        DX = DY

        self.Db, self.DX = Db, DX

    def __init__(self, input_size: int, output_size: int | None = None) -> None:
        super().__init__(input_size, input_size if output_size is None else output_size)
        self.b = initial_weights("Normal(0, 0.02)", 1, input_size).astype(np.float32)
        self.set_optimizer("GradientDescent")

    def specification(self) -> str:
        return "Positions"


class SinusoidalLayer(PositionsLayer):
    """Y = X + 1_N b, with sines and cosines of the positions: b_(l,2i) = sin(l·10000^(-2i/d)), b_(l,2i+1) = cos(…)"""

    parameters = ()
    buffers = ("b",)

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        DX = DY

        self.DX = DX

    def __init__(self, tokens: int, size: int) -> None:
        Layer.__init__(self, tokens * size, tokens * size)
        angles = angles_of(tokens, size)
        self.b = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(tokens, -1)[:, :size]
        self.b = self.b.reshape(1, -1).astype(np.float32)
        self.input_shape = self.output_shape = (tokens, size)

    def specification(self) -> str:
        return "Positions(sinusoidal)"


def angles_of(tokens: int, size: int) -> np.ndarray:
    """l·10000^(-2i/d), for each position l and each pair i of d features."""
    pairs = np.arange((size + 1) // 2)
    return np.arange(tokens)[:, None] * 10000.0 ** (-2 * pairs / size)


class RotaryLayer(Layer):
    """Y = (1_N c) ⊙ X + (1_N s) ⊙ (X Eᵀ): each pair of features of the queries and keys is turned by an angle

    E exchanges the halves of the e features of a head, c and s have cosines and, with signs, sines of the angles
    l·10000^(-2i/e). A token has the queries of all heads, the keys and the values, side by side; the values stay.
    """

    buffers = ("c", "s")
    keeps_size = True

    def feedforward(self, X: Matrix) -> Matrix:
        E, c, s = self.E, self.c, self.s
        N, _ = X.shape

        Y = hadamard(row_repeat(c, N), X) + hadamard(row_repeat(s, N), X @ E.T)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        E, c, s = self.E, self.c, self.s
        N, _ = DY.shape

        DX = hadamard(row_repeat(c, N), DY) + hadamard(row_repeat(s, N), DY) @ E

        self.DX = DX

    def __init__(self, shape: tuple[int, int], heads: int = 1, *, groups: int = 0) -> None:
        L, width, e = token_sizes("Rotary", shape, heads, groups)
        turned = heads + (groups or heads)
        if e % 2:
            raise ValueError(f"Rotary: expected an even number of features of a head, found {e}")
        check_bytes(64 * L * width, "Rotary")
        super().__init__(L * width, L * width)
        self.heads, self.groups, self.input_shape, self.output_shape = heads, groups, shape, shape
        angles = np.tile(angles_of(L, e), (1, 2 * turned))
        signs = np.tile(np.repeat([-1.0, 1.0], e // 2), turned)
        rest = np.zeros((L, width - turned * e))
        self.c = np.hstack([np.cos(angles), rest + 1]).reshape(1, -1).astype(np.float32)
        self.s = np.hstack([np.sin(angles) * signs, rest]).reshape(1, -1).astype(np.float32)
        columns = np.arange(L * width).reshape(L, -1, 2, e // 2)
        self.E = one_hot(columns[:, :, ::-1].reshape(-1), L * width)

    def specification(self) -> str:
        return f"Rotary({self.heads}{f', groups={self.groups}' if self.groups else ''})"


def token_sizes(name: str, shape: tuple[int, ...], heads: int, groups: int) -> tuple[int, int, int]:
    """L tokens, their features, and the e features of a head: queries of all heads, keys and values of all groups."""
    if len(shape) != 2:
        raise ValueError(f"{name}: expected tokens (L × d), found {size_text(shape)}")
    check_size(f"{name}: heads", heads)
    (L, width), groups = shape, groups or heads
    if heads % groups:
        raise ValueError(f"{name}: expected a number of heads that {groups} groups divide, found {heads}")
    if width % (heads + 2 * groups):
        expected = f"a multiple of {heads + 2 * groups} features ({heads} heads, {groups} keys and values)"
        raise ValueError(f"{name}: expected tokens with {expected}, found {width}")
    return L, width, width // (heads + 2 * groups)


class AttentionLayer(Layer):
    """A = softmax(diag_L(Q Kᵀ) / √e + B);  Z = Diag_L(A) V, with a block of L rows for each text and head

    X has for each token the queries of all heads, the keys and the values, which E_Q, E_K and E_V take out, head by
    head; E_Y puts the heads of Z side by side. With fewer groups than heads, several heads share keys and values. B is
    -10⁹ where a token may not look: at what follows it, if the layer is `causal`, or where a given mask is False.
    """

    buffers = ("B",)
    intermediates: tuple[str, ...] = ("Q", "K", "V", "A", "DQ", "DK", "DV", "DA", "DS", "DZ")

    def feedforward(self, X: Matrix) -> Matrix:
        L, HL, c, E_Q, E_K, E_V, E_Y, B = self.L, self.HL, self.c, self.E_Q, self.E_K, self.E_V, self.E_Y, self.B
        N, _ = X.shape

        Q = stack(X @ E_Q.T, HL)
        K = stack(X @ E_K.T, HL)
        V = stack(X @ E_V.T, HL)
        S = diag_product(Q, K.T, L) / c + stack(row_repeat(B, N), HL)
        A = stable_softmax(S)
        Z = Diag(A, L) @ V
        Y = unstack(Z, HL) @ E_Y.T

        self.X, self.Q, self.K, self.V, self.A = X, Q, K, V, A
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        L, HL, c, E_Q, E_K, E_V, E_Y = self.L, self.HL, self.c, self.E_Q, self.E_K, self.E_V, self.E_Y
        Q, K, V, A = self.Q, self.K, self.V, self.A

        DZ = stack(DY @ E_Y, HL)
        DV = Diag(A, L).T @ DZ
        DA = diag_product(DZ, V.T, L)
        DS = hadamard(A, DA - column_repeat(rows_sum(hadamard(DA, A)), L))
        DQ = Diag(DS, L) @ K / c
        DK = Diag(DS, L).T @ Q / c
        DX = unstack(DQ, HL) @ E_Q + unstack(DK, HL) @ E_K + unstack(DV, HL) @ E_V

        self.DZ, self.DV, self.DA, self.DS, self.DQ, self.DK, self.DX = DZ, DV, DA, DS, DQ, DK, DX

    def __init__(
        self, shape: tuple[int, int], heads: int = 1, *, causal: bool = True, groups: int = 0, mask: Any = None
    ) -> None:
        L, width, e = token_sizes("Attention", shape, heads, groups)
        check_bytes(64 * L * (width + L * heads), "Attention")
        G = groups or heads
        super().__init__(L * width, L * heads * e)
        self.heads, self.causal, self.groups = heads, causal, groups
        self.input_shape, self.output_shape = shape, (L, heads * e)
        self.L, self.HL, self.c = L, heads * L, math.sqrt(e)
        columns = np.arange(L * width).reshape(L, -1, e)
        Q, K, V = np.split(columns, [heads, heads + G], axis=1)
        K, V = (np.repeat(x, heads // G, axis=1) for x in (K, V))
        self.E_Q, self.E_K, self.E_V = (one_hot(x.transpose(1, 0, 2).reshape(-1), L * width) for x in (Q, K, V))
        of_heads = np.arange(L * heads * e).reshape(heads, L, e).transpose(1, 0, 2)
        self.E_Y = one_hot(of_heads.reshape(-1), L * heads * e)
        allowed = np.tril(np.ones((L, L), bool)) if causal else np.ones((L, L), bool)
        self.has_mask = mask is not None
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (L, L) or mask.dtype != bool:
                raise ValueError(f"Attention: expected a mask of {L} × {L} booleans, found {mask.dtype} {mask.shape}")
            allowed &= mask
        if not allowed.any(axis=1).all():
            raise ValueError("Attention: a token may look at no token: expected a mask with a True in each row")
        self.B = np.tile(np.where(allowed, 0, -1e9).astype(np.float32).reshape(1, -1), heads)

    def specification(self) -> str:
        if self.has_mask:
            raise ValueError("Attention: a given mask is in no specification")
        options = [str(self.heads), *(() if self.causal else ("causal=False",))]
        return f"Attention({', '.join([*options, *([f'groups={self.groups}'] if self.groups else [])])})"

    def __repr__(self) -> str:
        L, width = self.input_shape
        return f"AttentionLayer({L} × {width} → {L} × {self.output_shape[1]}, heads={self.heads})"
