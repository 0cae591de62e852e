"""Programs of models: their training step or feedforward as the equations that are executed."""

from __future__ import annotations

import numpy as np

from matgrad.loss_functions import LossFunction, create_loss, default_loss
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.computations import Feedforward, Step
from matgrad.program.program import Program
from matgrad.program.recorder import record_computation
from matgrad.program.rules import optimized

BATCH_SIZE = 100


def program(
    M: MultilayerPerceptron,
    *,
    feedforward: bool = False,
    loss: LossFunction | str | None = None,
    batch_size: int = BATCH_SIZE,
    clip_norm: float | None = None,
    fused: bool = True,
) -> Program:
    """The training step of M as a program, or with `feedforward` the computation of Y in evaluation mode.

    ``print(M.program())`` shows its equations in order of execution, where x' is x after the step. The default loss
    is the cross-entropy that fits the last layer. With ``fused=False`` the operations are those of the
    equations, one by one.
    """
    if not M.layers:
        raise ValueError("the model has no layers")
    if batch_size < 1:
        raise ValueError(f"batch_size: expected 1 or more, found {batch_size}")
    X, T = (
        M.backend.from_numpy(np.zeros((batch_size, n), M.dtype), M.device)
        for n in (M.layers[0].input_size, M.layers[-1].output_size)
    )
    if feedforward:
        if loss is not None or clip_norm is not None:
            raise ValueError("feedforward has neither a loss nor gradients to clip: they belong to the training step")
        recorded = record_computation(Feedforward(M), M.state(), X)
    else:
        loss = default_loss(M) if loss is None else create_loss(loss)
        recorded = record_computation(Step(M, loss, clip_norm), M.state(), X, T)
    return optimized(recorded) if fused else recorded
