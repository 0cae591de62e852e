"""Linear layers, with or without an activation function or dropout (the paper's DropConnect)."""

from __future__ import annotations

import numpy as np

from matgrad.activation_functions import ActivationFunction, create_activation
from matgrad.backends import backend_of
from matgrad.backends.conversion import convert
from matgrad.foundation.numbers import as_number
from matgrad.foundation.random_numbers import Generator, generator
from matgrad.layers.layer import Layer
from matgrad.matrix_operations import (
    Matrix,
    Scalar,
    columns_sum,
    hadamard,
    ones,
    product_on,
    row_repeat,
    step,
    uniform,
)
from matgrad.sparse.matrix import SparseMatrix, restricted, values_of, with_values
from matgrad.sparse.support import Support
from matgrad.weight_initializers import initial_weights


class LinearLayer(Layer):
    """Y = X Wᵀ + 1_N b, with W of size K×D and b of size 1×K.

    With `dropout` p, training uses W ⊙ R instead of W: R is 0 with probability p and 1/(1-p)
    elsewhere, and it is renewed after every step or, with ``renew="epoch"``, after every epoch. In
    evaluation mode R = 1. With a `support`, W is a sparse matrix that stores only those elements. All
    linear-type layers derive from this one and share its equations.
    """

    parameters: tuple[str, ...] = ("W", "b")
    intermediates: tuple[str, ...] = ("R",)

    W: Matrix
    b: Matrix
    DW: Matrix
    Db: Matrix
    R: Matrix | None

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        dropout: float = 0.0,
        renew: str = "step",
        support: Support | None = None,
    ) -> None:
        super().__init__(input_size, output_size)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a rate in [0, 1), found {dropout}")
        if renew not in ("step", "epoch"):
            raise ValueError(f"renew: expected 'step' or 'epoch', found {renew!r}")
        self.dropout = as_number(dropout)
        self.renew = renew
        self.seed: Scalar = np.array(generator().integers(2**31), dtype=np.int32)
        self.renewals: Scalar = np.array(0, dtype=np.int32)
        if support is None:
            self.W = np.empty((output_size, input_size), dtype=np.float32)
        else:
            self.W = SparseMatrix(self._checked(support), np.empty((1, support.nnz), dtype=np.float32))
        self.b = np.empty((1, output_size), dtype=np.float32)
        self.set_weights("XavierNormalized")
        self.set_optimizer("GradientDescent")

    @property
    def buffers(self) -> tuple[str, ...]:  # type: ignore[override]
        """What dropout needs to go on, where there is dropout."""
        return ("seed", "renewals") if self.dropout else ()

    def feedforward(self, X: Matrix) -> Matrix:
        W, b = self.W, self.b
        N, _ = X.shape
        self.R = self.dropout_matrix()

        Y = X @ self.drop(W).T + row_repeat(b, N)

        self.X = X
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        X, W = self.X, self.W

        DW = self.drop(product_on(W, DY.T, X))
        Db = columns_sum(DY)
        DX = DY @ self.drop(W)

        self.DW, self.Db, self.DX = DW, Db, DX

    def drop(self, A: Matrix) -> Matrix:
        """A ⊙ R, which is A itself where R = 1: without dropout, and in evaluation mode."""
        return A if self.R is None else hadamard(A, self.R)

    def dropout_matrix(self) -> Matrix | None:
        """R = [U ≥ p] / (1 - p), with U uniform on [0, 1); None stands for R = 1."""
        if not self.training or not self.dropout:
            return None
        K, D = self.W.shape
        p = self.dropout
        U = uniform(K, D, seed=self.seed, count=self.renewals, like=self.W)
        return step(U - p * ones(K, D, like=self.W)) / (1 - p)

    def optimize(self, eta: Scalar) -> None:
        super().optimize(eta)
        if self.renew == "step":
            self.renewals = self.renewals + 1

    def end_epoch(self) -> None:
        if self.renew == "epoch":
            self.renewals = self.renewals + 1

    def set_weights(self, specification: str, rng: Generator | None = None) -> None:
        """Draw W from a distribution such as ``Xavier`` or ``Uniform(-0.1, 0.1)``, and set b to 0.

        For a sparse W the distribution is that of a dense one, as in the original library: D and K in
        Xavier's and He's bounds count all inputs and outputs, not only those that are connected.
        """
        K, D = self.output_size, self.input_size
        like = values_of(self.W)
        backend = backend_of(like)
        for name, A in (("W", initial_weights(specification, K, D, rng, like.shape)), ("b", np.zeros((1, K)))):
            A = convert(A, backend, backend.dtype(like), backend.device(like))
            setattr(self, name, with_values(getattr(self, name), A))

    # -- sparse weights -----------------------------------------------------------------------
    @property
    def density(self) -> float:
        """The part of W's elements that is stored: 1 for a dense W."""
        return self.W.support.density if isinstance(self.W, SparseMatrix) else 1.0

    def set_support(self, support: Support) -> None:
        """Make W the sparse matrix with its present elements at `support`, and 0 where it had none.

        What the optimizer of W keeps for every element, such as momentum, goes with it.
        """
        old, self.W = self.W, restricted(self.W, self._checked(support))
        optimizer = self._optimizers.get("W")
        for key in optimizer.state_names if optimizer else ():
            x = getattr(optimizer, key)
            if tuple(x.shape) == tuple(values_of(old).shape):
                setattr(optimizer, key, restricted(with_values(old, x), support).values)
        self.forget()

    def _checked(self, support: Support) -> Support:
        """The support, after a check that it is one for W and not empty."""
        K, D = self.output_size, self.input_size
        if not isinstance(support, Support) or support.shape != (K, D) or not support.nnz:
            raise ValueError(f"support: expected a Support of size {K} × {D} with elements, found {support!r}")
        return support


class ActivationLayer(LinearLayer):
    """Z = X Wᵀ + 1_N b;  Y = act(Z), for an activation function or its name, such as ``AllReLU(0.3)``"""

    intermediates = ("R", "Z", "DZ")

    def __init__(
        self,
        input_size: int,
        output_size: int,
        act: ActivationFunction | str,
        *,
        dropout: float = 0.0,
        renew: str = "step",
        support: Support | None = None,
    ) -> None:
        super().__init__(input_size, output_size, dropout=dropout, renew=renew, support=support)
        self.act = create_activation(act)
        self.output = self.act.output

    def feedforward(self, X: Matrix) -> Matrix:
        act = self.act

        Z = super().feedforward(X)
        Y = act(Z)

        self.Z = Z
        return Y

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        Z, act = self.Z, self.act

        DZ = hadamard(DY, act.gradient(Z))
        super().backpropagate(Z, DZ)

        self.DZ = DZ

    def specification(self) -> str:
        return repr(self.act)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_size}, {self.output_size}, {self.act!r})"
