"""Measures of a model on data: mean loss and accuracy, or the errors of a regression."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from matgrad import loss_functions as lf
from matgrad.activation_functions import sigmoid
from matgrad.backends import backend_of
from matgrad.backends.base import Array
from matgrad.datasets.checking import checked_examples
from matgrad.datasets.loader import are_classes, as_matrix, class_indices, rows_of
from matgrad.engines.engine import Batches
from matgrad.engines.fallback import evaluation_of
from matgrad.layers.state import matrices_of
from matgrad.program.computations import check_targets
from matgrad.program.purity import Snapshot
from matgrad.softmax_functions import stable_softmax
from matgrad.sparse.matrix import values_of, with_values

if TYPE_CHECKING:
    from matgrad.multilayer_perceptron import MultilayerPerceptron

EVALUATION_BATCH = 1000  # examples; larger batches are not faster on a processor
DEVICE_BATCH = 10_000  # on another device, which the host then waits for less often
EVALUATION_BYTES = 1 << 30  # of the input and the output of a layer
PART_BYTES = 1 << 26  # of those of a part on all tokens or pixels, of which many are kept at a time


@dataclass
class Measures:
    """The mean loss, weighted if the data is, the outputs Y, the targets T, and the classes that Y and T stand for.

    Y and T are N×K matrices of float64 numbers, in the units of the data; the loss is that of the normalized targets
    if M normalizes them. The classes are vectors of N indices. Of texts they are those of all N·L tokens, and Y and T
    are these classes, since the logits of a whole text would not fit into memory.
    """

    loss: float
    Y: np.ndarray
    T: np.ndarray
    predicted: np.ndarray
    expected: np.ndarray

    @property
    def accuracy(self) -> float:
        """The fraction of examples whose class is predicted correctly."""
        return np.count_nonzero(self.predicted == self.expected) / len(self.expected)

    @property
    def perplexity(self) -> float:
        """e^loss: as if so many characters were equally likely to come next."""
        return float(np.exp(self.loss))

    @property
    def rmse(self) -> float:
        """√(Σ(y - t)² / (N·K)), the root of the mean squared error."""
        return float(np.sqrt(np.mean((self.Y - self.T) ** 2)))

    @property
    def mae(self) -> float:
        """Σ|y - t| / (N·K), the mean absolute error."""
        return float(np.mean(np.abs(self.Y - self.T)))

    @property
    def r2(self) -> float:
        """1 - Σ(y - t)² / Σ(t - t̄)², averaged over the columns; nan where a column of T is constant."""
        total = np.sum((self.T - self.T.mean(axis=0)) ** 2, axis=0)
        error = np.sum((self.Y - self.T) ** 2, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.mean(np.where(total > 0, 1 - error / total, np.nan)))

    def confusion(self, classes: int) -> np.ndarray:
        """Matrix whose element (i, j) counts the examples of class i that were predicted as class j."""
        counts = np.zeros((classes, classes), dtype=np.int64)
        np.add.at(counts, (self.expected, self.predicted), 1)
        return counts


def evaluation_batch(M: MultilayerPerceptron) -> int:
    """How many examples to evaluate at once: fewer if a layer is so wide that they would take much memory."""
    widest = max(layer.input_size + layer.output_size for layer in M.layers)
    most = EVALUATION_BATCH if M.device in (None, "cpu") else DEVICE_BATCH
    pairs = [(getattr(layer, "P", 1), part) for _, layer in M.walk() for part in layer.parts()]
    inner = max((P * (part.input_size + part.output_size) for P, part in pairs), default=1)
    return max(1, min(most, EVALUATION_BYTES // (8 * widest), PART_BYTES // (8 * inner)))


def measure(M: MultilayerPerceptron, data: Batches, loss: lf.LossFunction, *, compiled: bool = True) -> Measures:
    """The measures of M in evaluation mode, in one pass over the data, which is normalized as M expects.

    If its N examples have weights sᵢ, the loss is Σ sᵢℓᵢ / N, as in training; all other measures count each once.
    """
    state = M.state()
    evaluation = evaluation_of(M, loss, compiled=compiled, state=state)
    total, count = 0.0, 0
    Ys: list[np.ndarray] = []
    Ts: list[np.ndarray] = []
    for X, T, *s in data:
        outputs = evaluation(state, X, T, *s)
        N, pair = T.shape[0], [backend_of(T).to_numpy(A) for A in (outputs["Y"], T)]
        for whole, A in zip((Ys, Ts), _tokens(*pair) if loss.has_tokens else pair, strict=True):
            whole.append(A.astype(np.float64))
        total += float(outputs["loss"]) * (N if loss.is_mean else 1)
        count += N
    if not count:
        raise ValueError("the data has no batches, so there is nothing to measure")
    Y, T = np.concatenate(Ys), np.concatenate(Ts)
    predicted = _classes(Y) if loss.has_tokens else predicted_classes(M, Y)
    return Measures(total / count, M.denormalize(Y), M.denormalize(T), predicted, _classes(T))


def _tokens(Y: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The predicted classes and the labels of all tokens, as columns; a label of -1 is left out."""
    T = T.reshape(-1, 1)
    counted = T[:, 0] != -1
    return Y.reshape(len(T), -1).argmax(axis=1)[counted, None], T[counted]


def compute_loss(M: MultilayerPerceptron, data: Batches, loss: lf.LossFunction) -> float:
    """The mean loss per example, in evaluation mode."""
    return measure(M, data, loss).loss


def compute_accuracy(M: MultilayerPerceptron, data: Batches) -> float:
    """The fraction of examples whose class is predicted correctly, in evaluation mode.

    Targets may be one-hot rows or class indices.
    """
    feedforward, state = evaluation_of(M), M.state()
    pairs = ((predicted_classes(M, feedforward(state, X)["Y"]), backend_of(T).to_numpy(T)) for X, T, *_ in data)
    return float(np.mean(np.concatenate([found == _classes(T) for found, T in pairs])))


def predict(M: MultilayerPerceptron, X: Any, batch_size: int | None = None) -> np.ndarray:
    """f_Θ(X) in evaluation mode, for a NumPy array, or a sparse matrix of SciPy, with any number of rows.

    X and Y are in the units of the data: `M.normalize` and `M.denormalize` convert them.
    """
    A = as_matrix(M.normalize(X).astype(M.dtype, copy=False))
    N, backend = A.shape[0], M.backend
    if batch_size is None:
        batch_size = evaluation_batch(M) if N > 1 else 1  # looking at all layers takes longer than one row
    if 0 < N <= batch_size and isinstance(A, np.ndarray) and (copy := _copy_of(M)) is not None:
        Y = copy.feedforward(backend.from_numpy(A, M.device))
        return M.denormalize(np.array(backend.to_numpy(Y)))
    feedforward, state = evaluation_of(M, compiled=N > batch_size), M.state()  # one batch is not worth a program
    batches = (rows_of(A, slice(i, min(i + batch_size, N))) for i in range(0, max(N, 1), batch_size))
    moved = (with_values(B, backend.from_numpy(values_of(B), M.device)) for B in batches)
    return M.denormalize(np.concatenate([np.array(backend.to_numpy(feedforward(state, B)["Y"])) for B in moved]))


KEPT = 10_000_000  # numbers of the state of a model that is kept
_kept = threading.local()  # the copies of models; each thread has its own


def _copy_of(M: MultilayerPerceptron) -> MultilayerPerceptron | None:
    """A copy of M in evaluation mode, which is kept until an attribute of M or of a layer is another object.

    None if M is large, or if code of users runs in it, which may change matrices in place.
    """
    copies = vars(_kept).setdefault("copies", WeakKeyDictionary())
    layers = [layer for _, layer in M.walk()]
    places = [id(x) for part in (M, *layers) for x in (part, *vars(part).values())]
    known = copies.get(M)
    if known is None or known[0] != places:
        is_small = sum(math.prod(X.shape) for X in matrices_of(M.state()).values()) <= KEPT
        copy = M.clone().eval() if is_small and Snapshot(M, None).is_builtin else None
        known = copies[M] = places, copy, [x for layer in layers for x in (layer, *vars(layer).values())]
    return known[1]


def score(M: MultilayerPerceptron, X: Any, T: np.ndarray) -> float:
    """The accuracy of M on examples X with targets T if M is a classifier, else R², as in scikit-learn.

    M is one if its file says so or, where that says nothing, if T stands for classes: a vector or column of integers
    or booleans, or rows of probabilities. With one output the classes are 0 and 1, which may also be floats if
    the output is a probability or the loss in M's file is one for classes; see `predicted_classes`.
    """
    X, T = checked_examples(X, T)
    Y = predict(M, X).astype(np.float64)
    if lf.are_tokens(M, T):
        return float(np.mean(np.equal(*_tokens(Y, T))))
    if _is_classifier(M, T):
        return float(np.mean(predicted_classes(M, Y) == _expected_classes(M, T)))
    T = T.reshape(len(T), -1).astype(np.float64)
    check_targets(Y, T)
    return Measures(0.0, Y, T, np.empty(0), np.empty(0)).r2


def _is_classifier(M: MultilayerPerceptron, T: np.ndarray) -> bool:
    """Whether the outputs of M for targets T stand for classes; see `score`."""
    if M.target_normalization is not None:
        return False
    if "classes" in M.information:
        return M.information["classes"] is not None
    if M.layers[-1].output_size > 1:
        return are_classes(T)
    if M.information.get("loss") is not None:
        return not isinstance(lf.create_loss(M.information["loss"]), lf.SquaredErrorLoss | lf.HuberLoss)
    return bool(np.isin(T, (0, 1)).all()) and (are_classes(T) or M.layers[-1].output == "probability")


def _expected_classes(M: MultilayerPerceptron, T: np.ndarray) -> np.ndarray:
    """The class of each row of targets, after a check that they fit the outputs of M."""
    K = M.layers[-1].output_size
    if T.ndim == 2 and T.shape[1] not in (1, K):
        raise ValueError(f"T has {T.shape[1]} columns, expected {K}, one per class, or one with class indices")
    return _classes(T) if T.ndim == 2 and T.shape[1] > 1 else class_indices(T.reshape(-1), max(K, 2))


def predicted_classes(M: MultilayerPerceptron, Y: Array) -> np.ndarray:
    """The class of each row of an output Y of M: the index of its largest element.

    With one column there are two classes: 1 where a probability is at least 1/2, or where another
    number is at least 0.
    """
    A = backend_of(Y).to_numpy(Y)
    if A.shape[1] > 1:
        return A.argmax(axis=1)
    threshold = 0.5 if M.layers[-1].output == "probability" else 0
    return (A[:, 0] >= threshold).astype(np.int64)


def probabilities(M: MultilayerPerceptron, Y: np.ndarray, loss: lf.LossFunction) -> np.ndarray | None:
    """The probability of each class for each row of an output Y of M, or None where Y and the loss define none.

    They are Y, e^Y or, of logits, softmax(Y) or σ(Y), by the kind of output and the loss. One column has the
    probabilities of class 1, and gets those of class 0 beside it.
    """
    kind = M.layers[-1].output
    if kind == "real" and isinstance(loss, lf.SoftmaxCrossEntropyLoss):
        P = stable_softmax(Y)
    elif kind == "real" and isinstance(loss, lf.BinaryCrossEntropyLoss):
        P = sigmoid(Y)
    elif kind == "real":
        return None
    else:
        P = Y if kind == "probability" else np.exp(Y)
    return np.hstack([1 - P, P]) if P.shape[1] == 1 else P


def _classes(T: np.ndarray) -> np.ndarray:
    """The class of each row of targets, which are one-hot rows, a column or a vector of indices."""
    return T.argmax(axis=1) if T.ndim == 2 and T.shape[1] > 1 else T.reshape(-1).astype(np.int64)
