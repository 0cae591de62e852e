"""Your own layers, activation function and loss, written in the same matrix operations as the package's.

matgrad verify --plugin docs/custom.py --layer Scale --layer Residual --layer SquaredReLU --layer PseudoHuber
matgrad train --plugin docs/custom.py --layers "SquaredReLU;Scale;Residual;Linear" --learning-rate 0.01
"""

import numpy as np

import matgrad as mg
from matgrad.matrix_operations import columns_sum, elements_sum, hadamard, reciprocal, row_repeat, sqrt


class ScaleLayer(mg.Layer):
    """Y = (1_N s) ⊙ X, with a trained row vector s"""

    keeps_size = True
    parameters = ("s",)

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.s = np.ones((1, input_size), dtype=np.float32)
        self.set_optimizer("GradientDescent")

    def feedforward(self, X):
        s = self.s
        N, _ = X.shape

        Y = hadamard(row_repeat(s, N), X)

        self.X = X
        return Y

    def backpropagate(self, Y, DY):
        X, s = self.X, self.s
        N, _ = X.shape

        Ds = columns_sum(hadamard(DY, X))
        DX = hadamard(row_repeat(s, N), DY)

        self.Ds, self.DX = Ds, DX


class ShortcutLayer(mg.Layer):
    """Y = X + f(X), where f is the composition of inner layers: by default ReLU and linear"""

    keeps_size = True
    intermediates = ("Z",)

    def __init__(self, input_size: int, output_size: int, *layers: mg.Layer) -> None:
        super().__init__(input_size, output_size)
        D = input_size
        self.layers = layers or (mg.ActivationLayer(D, D, "ReLU"), mg.LinearLayer(D, D))

    def parts(self):
        """The layers of f, whose parameters are trained too."""
        return self.layers

    def feedforward(self, X):
        Z = self.f(X)
        Y = X + Z

        self.X, self.Z = X, Z
        return Y

    def backpropagate(self, Y, DY):
        Z = self.Z

        DX = DY + self.Df(Z, DY)

        self.DX = DX

    def f(self, X):
        """f(X)"""
        for layer in self.layers:
            X = layer.feedforward(X)
        return X

    def Df(self, Z, DZ):
        """The gradient of X, from Z = f(X) and its gradient; sets those of the inner layers too."""
        for layer in reversed(self.layers):
            layer.backpropagate(Z, DZ)
            Z, DZ = layer.X, layer.DX
        return DZ


class SquaredReLUActivation(mg.ActivationFunction):
    """max(0, x)²"""

    relu = mg.ReLUActivation()

    def __call__(self, X):
        """relu(x)·relu(x)"""
        return hadamard(self.relu(X), self.relu(X))

    def gradient(self, X):
        """2·relu(x)"""
        return 2 * self.relu(X)


class PseudoHuberLoss(mg.LossFunction):
    """Σ √(1 + (y - t)²) - 1"""

    def root(self, Y, T):
        """√(1 + (Y - T) ⊙ (Y - T))"""
        return sqrt(1 + hadamard(Y - T, Y - T))

    def __call__(self, Y, T, s=None):
        """1_Nᵀ (√(1 + (Y - T) ⊙ (Y - T)) - 1) 1_K"""
        return elements_sum(self.root(Y, T) - 1, s)

    def gradient(self, Y, T):
        """(Y - T) ⊙ 1/√(1 + (Y - T) ⊙ (Y - T))"""
        return hadamard(Y - T, reciprocal(self.root(Y, T)))
