"""Programs of models: their training step or feedforward as the equations that are executed, and what products cost."""

from __future__ import annotations

import math
from collections import Counter
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from matgrad.backends.base import Array, Matrix
from matgrad.layers.state import State
from matgrad.loss_functions import LossFunction, create_loss, default_loss, target_size
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.program.buffers import base
from matgrad.program.computations import Feedforward, Step
from matgrad.program.operations import OPERATIONS
from matgrad.program.program import Program, Value
from matgrad.program.recorder import record_computation
from matgrad.program.rules import optimized
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.support import Support

if TYPE_CHECKING:
    from matgrad.engines.fallback import TrainingStep

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
    X = _zeros(M, batch_size, M.layers[0].input_size)
    if feedforward:
        if loss is not None or clip_norm is not None:
            raise ValueError("feedforward has neither a loss nor gradients to clip: they belong to the training step")
        recorded = record_computation(Feedforward(M), M.state(), X)
    else:
        loss = default_loss(M) if loss is None else create_loss(loss)
        T = _zeros(M, batch_size, target_size(M, loss))
        recorded = record_computation(Step(M, loss, clip_norm), M.state(), X, T)
    return optimized(recorded) if fused else recorded


def _zeros(M: MultilayerPerceptron, N: int, columns: int) -> Array:
    """A batch of N examples or targets, of which only the shape matters."""
    return M.backend.from_numpy(np.zeros((N, columns), M.dtype), M.device)


# -- costs of products ---------------------------------------------------------------------------


class Cost(NamedTuple):
    """The number of floating-point operations, and of bytes that must be read or written."""

    flops: int
    bytes: int


def product_cost(value: Value) -> Cost | None:
    """2·m·n·k operations for an m×k times a k×n matrix, 2·nnz·N for a sparse matrix times N columns; else None.

    The bytes are those of the operands, including the index of a sparse matrix, and of the result. What is
    fused into a product, such as adding a bias, counts with its bytes but not its operations.
    """
    operation = OPERATIONS[value.operation]
    if not operation.flops:
        return None
    sizes = operation.shapes.sizes(value.shape, [x.shape for x in value.operands])
    assert sizes is not None, value
    flops = 2 * math.prod(int(sizes[name]) for name in operation.flops.split())
    return Cost(flops, value.nbytes + sum(operand_bytes(x, value) for x in value.operands))


def operand_bytes(x: Value, user: Value) -> int:
    """The bytes of an operand; a view has those of the matrix behind it."""
    if x.operation == "support":
        K, D, nnz = map(int, x.shape)
        # by columns, the positions of the elements are read too
        by_columns = user.operation in ("sparse_transposed_product", "transposed_sum")
        return 8 * (D + 1) + 8 * nnz if by_columns else 8 * (K + 1) + 4 * nnz
    return 0 if x.is_scalar else base(x).nbytes


def equations_of(program: Program) -> dict[Value, str]:
    """The equation of every value that is computed, if it has one.

    A value that a rule has inserted, such as a copy, belongs to the equation that reads it first.
    """
    found = {value: value.equation for value in program.instructions}
    for value in reversed(program.instructions):
        found |= {x: found[value] for x in value.operands if x.kind != "source" and not x.equation}
    return {value: equation for value, equation in found.items() if equation and value.kind != "view"}


def costs_of(program: Program) -> dict[str, Cost | None]:
    """The cost of the products of every equation; None for an equation without products."""
    costs: dict[str, Cost | None] = {}
    for value, equation in equations_of(program).items():
        before, own = costs.get(equation), product_cost(value)
        costs[equation] = Cost(*map(add, before, own)) if before and own else before or own
    return costs


def costs_by_equation(step: TrainingStep, X: Matrix, T: Matrix, *s: Matrix) -> dict[str, Cost | None]:
    """The costs of a step whose equations run one by one, none fused or omitted; {} if it cannot be recorded."""
    try:
        whole = _WholeStep(step.M, step.loss, step.clip_norm)
        return costs_of(record_computation(whole, step.M.state(), X, T, None, *s))
    except Exception:  # a layer may do anything; then its costs are unknown
        return {}


class _WholeStep(Step):
    """A step that keeps everything its equations compute, even the gradient of X, which nothing needs."""

    def run(self, model: MultilayerPerceptron, state: State, *inputs: Any) -> State:
        """The new state, and the gradient of X."""
        result = super().run(model, state, *inputs)
        DX = model.layers[0].DX
        return result if DX is None else result | {"DX": DX}


# -- a training step with any supports -----------------------------------------------------------

DENSE = ""  # the name for the dense matrices of a step


def step_cost(step: Step, is_sparse: bool = False) -> Counter[str] | None:
    """The operations of the products of a step per stored element of each support, by name, and per example, as DENSE.

    What the step does not need, such as the gradient of X, does not count. None if the step cannot be recorded.
    """
    M = step.template
    X, T = _zeros(M, 1, M.layers[0].input_size), _zeros(M, 1, target_size(M, step.loss))
    if is_sparse:
        X = SparseMatrix(Support(X.shape, [0, 1], [0]), X[:, :1])
    try:
        program = record_computation(step, M.state(), X, T)
    except Exception:  # a layer may do anything; then its costs are unknown
        return None
    found = Counter[str]()
    for value in program.instructions:
        if cost := product_cost(value):
            support = next((x for x in value.operands if x.operation == "support"), None)
            found[support.name if support else DENSE] += cost.flops // (int(support.shape[2]) if support else 1)
    return found
