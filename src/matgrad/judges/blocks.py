"""Claims about images, tokens and layers of layers, for all sizes: their matrices have declared sizes, such as P·Q × D.

E is a matrix of arbitrary symbols, so what is proved of windows holds for every stride, padding, dilation and layout,
and what is proved of an embedding for all labels. Layers of layers are proved for arbitrary parts: of a part F only its
output V = F(U) and the gradient DU that it gives are used, and the chain rule. At fixed sizes, SymPy and numbers judge
the layers that constructors make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import mul
from typing import Any, NamedTuple

from matgrad import layers
from matgrad.index_notation.indices import FIRST, Index, divided, joined
from matgrad.inspection.equations import assignment
from matgrad.inspection.verdicts import Check, feedforward_values, origin_of
from matgrad.judges.definitions import ArbitraryActivation, definition_of
from matgrad.layers.layer import Layer
from matgrad.loss_functions import LossFunction
from matgrad.matrix_operations import Matrix, elements_sum, identity, one_hot, stack

Define = Callable[[Any, Any, Any], Any]  # of an algebra, a layer and X: what Y should be


class Declared(NamedTuple):
    """A layer with symbols in it, by the sizes of its matrices, and the definition of its output, if it has one."""

    make: Callable[[Sizes], Layer]
    define: Define | None = None


class Sizes:
    """The sizes and symbols of an algebra: ``s("P·Q")`` is a size."""

    def __init__(self, algebra: Any) -> None:
        self.algebra = algebra

    def __call__(self, names: str) -> Any:
        """A size, or a product of sizes."""
        return reduce(mul, (1 if name == "1" else self.algebra.size(name) for name in names.split("·")))

    def symbols(self, name: str, *shape: str, is_positive: bool = False) -> Any:
        """A matrix of symbols; a scalar without sizes."""
        return self.algebra.own_symbols(name, *map(self, shape), is_positive=is_positive)

    def layer(self, cls: type[Layer], D: str, K: str, *parts: Layer, **attributes: Any) -> Any:
        """A layer of a class, from D to K, with these parts and attributes."""
        layer = object.__new__(cls)
        layer.layers = list(parts)  # type: ignore[attr-defined]
        Layer.__init__(layer, 1, 1)
        layer.input_size, layer.output_size = self(D), self(K)
        vars(layer).update(attributes)
        return layer

    def linear(self, D: str, K: str, act: Any = None, path: str = "1") -> Layer:
        """A linear layer, or one with an activation function."""
        W, b = self.symbols(f"W.{path}", K, D), self.symbols(f"b.{path}", "1", K)
        kind, options = (layers.LinearLayer, {}) if act is None else (layers.ActivationLayer, {"act": act})
        return self.layer(kind, D, K, W=W, b=b, **options)

    def normalization(self, cls: type[Layer], D: str) -> Layer:
        """A normalization."""
        epsilon = self.symbols("epsilon", is_positive=True)
        found = {name: self.symbols(f"{name}.1", "1", D) for name in (*cls.parameters, *cls.buffers)}
        return self.layer(cls, D, D, epsilon=epsilon, momentum=self.symbols("momentum"), **found)


def _windows(s: Sizes, inner: Layer, K: str) -> Layer:
    return s.layer(
        layers.WindowsLayer, "D", f"P·{K}" if K != "1" else "P", inner, E=s.symbols("E", "P·Q", "D"), P=s("P")
    )


def _each(s: Sizes, inner: Layer, D: str, K: str) -> Layer:
    return s.layer(layers.EachLayer, f"P·{D}", f"P·{K}", inner, P=s("P"))


def _attention(s: Sizes) -> Layer:
    E = {name: s.symbols(name, "H·L·C", "D") for name in ("E_Q", "E_K", "E_V")}
    B, E_Y, c = s.symbols("B", "1", "H·L·L"), s.symbols("E_Y", "K", "H·L·C"), s.symbols("c", is_positive=True)
    return s.layer(layers.AttentionLayer, "D", "K", L=s("L"), HL=s("H·L"), c=c, B=B, E_Y=E_Y, **E)


def _rotary(s: Sizes) -> Layer:
    c, sines = s.symbols("c", "1", "D"), s.symbols("s", "1", "D")
    return s.layer(layers.RotaryLayer, "D", "D", E=s.symbols("E", "D", "D"), c=c, s=sines)


# -- definitions of entries ----------------------------------------------------------------------


def _convolution(a: Any, layer: Any, X: Any) -> Any:
    """y_n(p,k) = Σ_q w_kq · Σ_d e_(p,q)d · x_nd + b_k"""
    inner, E = layer.layers[0], layer.E
    W, b = inner.W, inner.b

    def entry(n: Index, at: Index) -> Any:
        p, k = divided(at, len(W.indices[0].parts))
        return (
            a.sum(lambda q: W[k, q] * a.sum(lambda d: E[joined(p, q), d] * X[n, d], X.shape[1]), W.shape[1])
            + b[FIRST, k]
        )

    return a.matrix((X.shape[0], layer.output_size), entry)


def _mean(a: Any, layer: Any, X: Any) -> Any:
    """y_np = Σ_q Σ_d e_(p,q)d · x_nd / Q"""
    E, Q = layer.E, a.size("Q")

    def entry(n: Index, p: Index) -> Any:
        return a.sum(lambda q: a.sum(lambda d: E[joined(p, q), d] * X[n, d], X.shape[1]), Q) / a.number(Q)

    return a.matrix((X.shape[0], layer.output_size), entry)


def _of_tokens(a: Any, layer: Any, X: Any) -> Any:
    """y_n(p,k) = v_(n,p)k with V = F(U) and u_(n,p)c = x_n(p,c)"""
    (F,) = layer.layers
    rows = X.shape[0] * layer.P

    def token(i: Index, c: Index) -> Any:
        n, p = divided(i, 0 if a.is_one(layer.P) else 1)
        return X[n, joined(p, c)]

    V = _output(a, F, a.matrix((rows, F.input_size), token))

    def entry(n: Index, at: Index) -> Any:
        p, k = divided(at, 0 if a.is_one(F.output_size) else 1)
        return V[joined(n, p), k]

    return a.matrix((X.shape[0], layer.output_size), entry)


def _output(a: Any, layer: Layer, X: Any) -> Any:
    """Y of a layer of rows, by its definition."""
    define: Any = definition_of(layer, a)
    return define(X)["Y"]


def _residual(a: Any, layer: Any, X: Any) -> Any:
    """y_nd = x_nd + z_nd with Z = F(X)"""
    (F,) = layer.layers
    Z = _output(a, F, X)
    return a.matrix(X.shape, lambda n, d: X[n, d] + Z[n, d])


def _sequence(a: Any, layer: Any, X: Any) -> Any:
    """Y = G(F(X))"""
    return reduce(lambda Z, part: _output(a, part, Z), layer.layers, X)


def _gated(a: Any, layer: Any, X: Any) -> Any:
    """y_nk = a_nk · b_nk with A = F(X) and B = G(X)"""
    A, B = (_output(a, part, X) for part in layer.layers)
    return a.matrix(A.shape, lambda n, k: A[n, k] * B[n, k])


def _function(a: Any, layer: Any, X: Any) -> Any:
    """y_nd = act(x_nd)"""
    define: Any = definition_of(layer.act, a)
    return define(X)


def _positions(a: Any, layer: Any, X: Any) -> Any:
    """y_nd = x_nd + b_d"""
    return a.matrix(X.shape, lambda n, d: X[n, d] + layer.b[FIRST, d])


def _turned(a: Any, layer: Any, X: Any) -> Any:
    """y_nd = c_d · x_nd + s_d · Σ_k e_dk · x_nk"""
    c, s, E = layer.c, layer.s, layer.E

    def entry(n: Index, d: Index) -> Any:
        return c[FIRST, d] * X[n, d] + s[FIRST, d] * a.sum(lambda k: E[d, k] * X[n, k], X.shape[1])

    return a.matrix(X.shape, entry)


def _self_attention(a: Any, layer: Any, X: Any) -> Any:
    """y_nk = Σ_(h,i,e) (Σ_j a_nhij·v_nhje) · (E_Y)_k(h,i,e), with a_nhij = e^s_nhij / Σ_j e^s_nhij"""
    H, L, C = a.size("H"), a.size("L"), a.size("C")

    def part(E: Any, n: Index, h: Index, i: Index, e: Index) -> Any:
        return a.sum(lambda d: X[n, d] * E[joined(h, i, e), d], X.shape[1])

    def weight(n: Index, h: Index, i: Index, j: Index) -> Any:
        product = a.sum(lambda e: part(layer.E_Q, n, h, i, e) * part(layer.E_K, n, h, j, e), C)
        return a.exp(product / a.number(layer.c) + layer.B[FIRST, joined(h, i, j)])

    def head(n: Index, h: Index, i: Index, e: Index) -> Any:
        values = a.sum(lambda j: weight(n, h, i, j) * part(layer.E_V, n, h, j, e), L)
        return values / a.sum(lambda j: weight(n, h, i, j), L)

    def entry(n: Index, k: Index) -> Any:
        of_head = partial(lambda h, i, e: head(n, h, i, e) * layer.E_Y[k, joined(h, i, e)])
        return a.sum(lambda h: a.sum(lambda i: a.sum(lambda e: of_head(h, i, e), C), L), H)

    return a.matrix((X.shape[0], layer.output_size), entry)


DECLARED: dict[str, list[Declared]] = {
    "Conv": [
        Declared(lambda s: _windows(s, s.linear("Q", "K"), "K"), _convolution),
        Declared(lambda s: _windows(s, s.linear("Q", "K", ArbitraryActivation()), "K")),
    ],
    "AvgPool": [Declared(lambda s: _windows(s, s.layer(layers.MeanLayer, "Q", "1"), "1"), _mean)],
    "MaxPool": [Declared(lambda s: _windows(s, s.layer(layers.MaxLayer, "Q", "1"), "1"))],
    "Function": [Declared(lambda s: s.layer(layers.FunctionLayer, "D", "D", act=ArbitraryActivation()), _function)],
    "Each": [
        Declared(lambda s: _each(s, s.normalization(layers.BatchNormalizationLayer, "C"), "C", "C"), _of_tokens),
        Declared(lambda s: _each(s, s.normalization(layers.LayerNormalizationLayer, "C"), "C", "C"), _of_tokens),
        Declared(lambda s: _each(s, s.normalization(layers.RMSNormalizationLayer, "C"), "C", "C"), _of_tokens),
    ],
    "Residual": [Declared(lambda s: s.layer(layers.ResidualLayer, "D", "D", s.linear("D", "D")), _residual)],
    "Sequence": [
        Declared(
            lambda s: s.layer(layers.SequenceLayer, "D", "K", s.linear("D", "C"), s.linear("C", "K", path="2")),
            _sequence,
        )
    ],
    "Gated": [
        Declared(
            lambda s: s.layer(
                layers.GatedLayer, "D", "K", s.linear("D", "K", ArbitraryActivation()), s.linear("D", "K", path="2")
            ),
            _gated,
        )
    ],
    "Embedding": [
        Declared(lambda s: s.layer(layers.EmbeddingLayer, "L", "L·C", W=s.symbols("W", "V", "C"), L=s("L"), V=s("V")))
    ],
    "Positions": [
        Declared(lambda s: s.layer(layers.PositionsLayer, "D", "D", b=s.symbols("b", "1", "D")), _positions),
        Declared(lambda s: s.layer(layers.SinusoidalLayer, "D", "D", b=s.symbols("b", "1", "D")), _positions),
    ],
    "Rotary": [Declared(_rotary, _turned)],
    "Attention": [Declared(_attention, _self_attention)],
}


def of_declared(a: Any, declared: Declared) -> Iterator[Check]:
    """Y is its definition, and every gradient is the derivative of ⟨G, Y⟩."""
    layer = declared.make(Sizes(a))
    cls, X = type(layer), a.symbols("X", a.size("N"), layer.input_size)
    if declared.define is not None:
        expected = declared.define(a, layer, X)
        found = feedforward_values(layer.clone(), X, {"Y": expected})
        yield a.claim(cls, "Y", origin_of(layer, "Y"), found["Y"], expected)
    yield from a.gradients(layer, X)


# -- the loss of tokens --------------------------------------------------------------------------


def of_tokens(a: Any, make: Callable[[], LossFunction]) -> Iterator[Check]:
    """The loss is -Σ_n s_n Σ_l Σ_v e_(n,l)v·log(e^y_n(l,v) / Σ_w e^y_n(l,w)) / L, and its gradients are derivatives.

    Here e_(n,l)v may be any numbers, and so those of one_hot(stack(T, L), V).
    """
    s, loss = Sizes(a), a.numbers(make())
    cls, N, L, V = type(loss), s("N"), s("L"), s("V")
    a.name = cls.__name__
    Y, T, weights = a.symbols("Y", N, s("L·V")), a.symbols("T", N, L), a.weights(N)
    labels = stack(T, L)  # while they are kept, one_hot of them is always the same
    E = loss.targets(one_hot(labels, V) @ identity(V, like=Y))

    def token(n: Index, l: Index) -> Any:
        total = a.sum(lambda v: a.exp(Y[n, joined(l, v)]), V)
        return a.sum(lambda v: E[joined(n, l), v] * a.log(a.exp(Y[n, joined(l, v)]) / total), V)

    def value(s: Any = None) -> Any:
        of = a.matrix((N, 1), lambda n, _: -a.sum(lambda l: token(n, l), L) / a.number(L))
        return elements_sum(of) if s is None else elements_sum(of, s)

    yield a.claim(cls, "value", cls.__call__, loss(Y, T), value())
    yield a.claim(cls, "gradient", cls.gradient, loss.gradient(Y, T), a.gradient(value(), Y))
    yield a.claim(cls, "mean_gradient", cls.mean_gradient, loss.mean_gradient(Y, T), a.gradient(value(), Y) / N)
    yield a.claim(cls, "value", cls.__call__, loss(Y, T, weights), value(weights), "weighted")
    mean = a.gradient(value(weights), Y) / N
    yield a.claim(cls, "mean_gradient", cls.mean_gradient, loss.mean_gradient(Y, T, weights), mean, "weighted")


# -- layers of layers, for arbitrary parts ----------------------------------------------------------


class AnyLayer(Layer):
    """V = F(U), of which nothing is known but V and the gradient DU that it gives."""

    V: Matrix
    given: tuple[Matrix, Matrix]  # V and DV, as they are given back

    def feedforward(self, U: Matrix) -> Matrix:
        """V"""
        self.X = U
        self.V = self.algebra.symbols(f"V.{self.number}", U.shape[0], self.output_size)
        return self.V

    def backpropagate(self, V: Matrix, DV: Matrix) -> None:
        """Keep what the part is given."""
        self.given = V, DV
        self.DX = self.algebra.symbols(f"DU.{self.number}", *self.X.shape)

    algebra: Any
    number: int


def _any(s: Sizes, number: int, D: str, K: str) -> Layer:
    return s.layer(AnyLayer, D, K, algebra=s.algebra, number=number)


COMPOSITES: dict[str, list[Callable[[Sizes], Layer]]] = {
    "Conv": [lambda s: _windows(s, _any(s, 1, "Q", "K"), "K")],
    "Each": [lambda s: _each(s, _any(s, 1, "D", "K"), "D", "K")],
    "Residual": [
        lambda s: s.layer(layers.ResidualLayer, "D", "D", _any(s, 1, "D", "D")),
        lambda s: s.layer(
            layers.ResidualLayer, "D", "D", _any(s, 1, "D", "K"), _any(s, 2, "K", "V"), _any(s, 3, "V", "D")
        ),
    ],
    "Sequence": [lambda s: s.layer(layers.SequenceLayer, "D", "V", _any(s, 1, "D", "K"), _any(s, 2, "K", "V"))],
    "Gated": [lambda s: s.layer(layers.GatedLayer, "D", "K", _any(s, 1, "D", "K"), _any(s, 2, "D", "K"))],
    "Transformer": [  # the half with attention of a block
        lambda s: s.layer(
            layers.ResidualLayer,
            "P·D",
            "P·D",
            s.layer(layers.EachLayer, "P·D", "P·K", _any(s, 1, "D", "C"), _any(s, 2, "C", "K"), P=s("P")),
            _any(s, 3, "P·K", "P·V"),
            s.layer(layers.EachLayer, "P·V", "P·D", _any(s, 4, "V", "D"), P=s("P")),
        )
    ],
}


def of_composite(a: Any, make: Callable[[Sizes], Layer]) -> Iterator[Check]:
    """DX and the gradients that the parts are given are those of ⟨G, Y⟩, by the chain rule, whatever they compute."""
    layer = make(Sizes(a))
    cls, X = type(layer), a.symbols("X", a.size("N"), layer.input_size)
    Y = layer.feedforward(X)
    G = a.symbols("G", *Y.shape)
    layer.backpropagate(Y, G)
    parts = [part for _, part in layer.walk() if isinstance(part, AnyLayer)]
    value = a.pairing(G, Y)
    for part in parts:  # the loss depends on X by way of Y and of the input U of each part
        value = value + a.pairing(part.DX, part.X)
    code, about = assignment(cls, "backpropagate", "DX").origin, "any parts"
    yield a.claim(cls, "DX", code, layer.DX, a.gradient(value, X), about)
    for part in parts:
        V, DV = part.given
        yield a.claim(cls, f"V{part.number}", code, V, part.V, about)
        yield a.claim(cls, f"DV{part.number}", code, DV, a.gradient(value, part.V), about)


# -- at fixed sizes -----------------------------------------------------------------------------

MADE: dict[str, list[Callable[..., Layer]]] = {
    "Conv": [
        lambda D, K: layers.ConvolutionLayer((2, 3, 1), 2, 2, padding=1),
        lambda D, K: layers.ConvolutionLayer((5, 2), 2, 2, stride=2, dilation=2, act="HyperbolicTangent"),
    ],
    "AvgPool": [lambda D, K: layers.MeanPoolingLayer((4, 4, 2), 2)],
    "MaxPool": [
        lambda D, K: layers.MaxPoolingLayer((4, 2, 2), 2),
        lambda D, K: layers.MaxPoolingLayer((3, 1), 2, padding=1),
    ],
    "Function": [lambda D, K: layers.FunctionLayer(3, "HyperbolicTangent")],
    "Each": [lambda D, K: layers.EachLayer(2, layers.LayerNormalizationLayer(3))],
    "Residual": [lambda D, K: layers.ResidualLayer(layers.ActivationLayer(3, 3, "HyperbolicTangent"))],
    "Sequence": [lambda D, K: layers.SequenceLayer(layers.LinearLayer(2, 3), layers.LinearLayer(3, 2))],
    "Gated": [lambda D, K: layers.GatedLayer(layers.ActivationLayer(3, 2, "SiLU"), layers.LinearLayer(3, 2))],
    "Positions": [lambda D, K: layers.PositionsLayer(4), lambda D, K: layers.SinusoidalLayer(2, 3)],
    "Rotary": [lambda D, K: layers.RotaryLayer((2, 6)), lambda D, K: layers.RotaryLayer((2, 8), 2, groups=1)],
    "Attention": [
        lambda D, K: layers.AttentionLayer((2, 6), causal=False),
        lambda D, K: layers.AttentionLayer((3, 4), 2, groups=1),
    ],
}
