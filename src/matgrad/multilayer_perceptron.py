"""The multilayer perceptron: a list of layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from matgrad.backends.base import Matrix, Scalar
from matgrad.foundation.imports import deferred
from matgrad.foundation.numbers import Generator
from matgrad.layers.layer import Layer
from matgrad.layers.model_base import ModelBase

if TYPE_CHECKING:
    from matgrad import training as _training
    from matgrad.evaluation import measures as _measures
    from matgrad.evaluation import sampling as _sampling
    from matgrad.program import models as _programs
    from matgrad.storage import models as _storage


class MultilayerPerceptron(ModelBase):
    """Y = f_Θ(X), the composition of its layers.

        >>> M = MultilayerPerceptron([ActivationLayer(64, 32, ReLUActivation()), LinearLayer(32, 10)])

    If it has a `normalization`, as a model saved by `matgrad train` does, `fit`, `predict` and `score` apply it to X.
    If it has a `target_normalization`, it is trained on normalized targets: `fit` and `score` take T, and `predict`
    returns Y, in the units of the data. The `features` say which columns of a table X has.
    """

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self.layers: list[Layer] = list(layers)
        self.check_layers()

    # -- the paper's three steps --------------------------------------------------------------
    def feedforward(self, X: Matrix) -> Matrix:
        """Y = f_Θ(X)"""
        self.check_input(X)
        with self.products():
            for layer in self.layers:
                X = layer._Y = layer.feedforward(X)
        return X

    def backpropagate(self, Y: Matrix, DY: Matrix) -> None:
        """Set DX and Dθ in every layer, from the output Y and its gradient DY."""
        with self.products():
            for layer in reversed(self.layers):
                layer._DY = DY
                layer.backpropagate(Y, DY)
                Y, DY = layer.X, layer.DX

    def optimize(self, eta: Scalar) -> None:
        """θ' for every parameter θ of every layer, with learning rate η."""
        with self.products():
            for layer in self.layers:
                layer.optimize(eta)

    def end_epoch(self) -> None:
        """Tell every layer and every part that an epoch has ended."""
        for _, layer in self.walk():
            layer.end_epoch()

    if TYPE_CHECKING:
        fit, predict, score, save = _training.fit, _measures.predict, _measures.score, _storage.save_model
        program, sample = _programs.program, _sampling.sample
    else:  # their modules import this one
        fit = deferred("matgrad.training", "fit")
        predict = deferred("matgrad.evaluation.measures", "predict")
        score = deferred("matgrad.evaluation.measures", "score")
        sample = deferred("matgrad.evaluation.sampling", "sample")
        save = deferred("matgrad.storage.models", "save_model")
        program = deferred("matgrad.program.models", "program")

    # -- modes --------------------------------------------------------------------------------
    @property
    def training(self) -> bool:
        """Whether batch statistics and dropout are on."""
        return any(layer.training for _, layer in self.walk())

    def train(self, mode: bool = True) -> MultilayerPerceptron:
        """Turn batch statistics and dropout on (or off); returns M."""
        for _, layer in self.walk():
            layer.training = mode
        return self

    def eval(self) -> MultilayerPerceptron:
        """Use the running statistics and all weights; returns M."""
        return self.train(False)

    def set_optimizer(self, specification: str) -> None:
        """Give every parameter of every layer an optimizer, such as ``Momentum(0.9)``."""
        for layer in self.layers:
            layer.set_optimizer(specification)

    def set_weights(self, specification: str, rng: Generator | None = None) -> None:
        """Draw all weights from a distribution, such as ``Xavier``, and set the biases to 0."""
        for layer in self.linear_layers():
            layer.set_weights(specification, rng)
