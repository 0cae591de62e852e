"""What is claimed of layers, losses, activation functions, softmax functions and lemmas, for every judge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from matgrad import softmax_functions
from matgrad.activation_functions import ActivationFunction
from matgrad.inspection.equations import assignment, last_line, relative_path
from matgrad.inspection.verdicts import Check, feedforward_values, judged, origin_of
from matgrad.judges.algebra import Algebra, Lemma, MakeLayer, SymbolicAlgebra
from matgrad.layers.linear import ActivationLayer
from matgrad.loss_functions import LossFunction, takes_weights
from matgrad.matrix_operations import elements_sum


def of_layer(a: Algebra, make: MakeLayer) -> Iterator[Check]:
    """Every equation of feedforward is its definition, and every gradient is the derivative of ⟨G, Y⟩."""
    layer = a.layer(make)
    cls, X = type(layer), a.symbols("X", a.size("N"), layer.input_size)
    act = type(layer.act).__name__.removesuffix("Activation") if isinstance(layer, ActivationLayer) else ""
    a.about = ", ".join(x for x in (a.about, act, "" if layer.training else "evaluation") if x)
    define = a.defined(layer)
    if define is None:
        yield a.claim(cls, "feedforward", assignment(cls, "feedforward", "Y").origin, None, None)
    else:
        expected = define(X)
        found = feedforward_values(layer.clone(), X, expected)
        for name, value in expected.items():
            yield a.claim(cls, name, origin_of(layer, name), found[name], value)
    yield from a.gradients(layer, X)


def of_loss(a: Algebra, make: Callable[[], LossFunction]) -> Iterator[Check]:
    """The value of a loss is its definition, and a sum or a mean over the examples; its gradients are derivatives.

    With weights, value and mean gradient are those of Σ sᵢ·ℒ(yᵢ, tᵢ), for each row alone.
    """
    loss = a.numbers(make())
    cls, N, K = type(loss), a.size("N"), a.size("K")
    a.name = cls.__name__
    Y, T, s = a.output(loss, N, K), a.targets(N, K), a.weights(N)
    value, define, reference = loss(Y, T), a.defined(loss), a.reference(loss)
    if problem := a.problem_of(value, a.number(0)):
        yield judged(cls, "value", last_line(cls.__call__), a.about, f"is wrong: {problem}")
        return
    divisor: Any = N if loss.is_mean else 1
    gradient = a.slope(lambda Y: reference(Y, T), Y)
    yield a.claim(cls, "value", cls.__call__, value, None if define is None else define(Y, T))
    yield a.claim(cls, "gradient", cls.gradient, loss.gradient(Y, T), gradient)
    mean = gradient if loss.is_mean else gradient / N
    yield a.claim(cls, "mean_gradient", cls.mean_gradient, loss.mean_gradient(Y, T), mean)
    yield a.claim(cls, "is_mean", cls.__call__, value, by_rows(a, reference, Y, T) / divisor)
    if takes_weights(loss):
        expected = by_rows(a, reference, Y, T, s) / divisor
        yield a.claim(cls, "value", cls.__call__, loss(Y, T, s), expected, "weighted")
    mean = a.slope(lambda Y: by_rows(a, reference, Y, T, s), Y) / N
    yield a.claim(cls, "mean_gradient", cls.mean_gradient, loss.mean_gradient(Y, T, s), mean, "weighted")


def by_rows(a: Algebra, f: Callable[..., Any], Y: Any, T: Any, weights: Any = None) -> Any:
    """Σ_i s_i·ℒ(y_i, t_i), by the losses of the rows alone"""

    def of_row(i: Any) -> Any:
        value = f(a.row(Y, i), a.row(T, i))
        return value if weights is None else value * elements_sum(a.row(weights, i))

    return a.total(of_row, Y.shape[0])


def of_activation(a: Algebra, make: Callable[[], ActivationFunction]) -> Iterator[Check]:
    """f(X) is its definition, and f'(X) has the derivatives of f: ∂f(X)_ij/∂x_kl = [i=k]·[j=l]·f'(X)_ij."""
    act = a.numbers(make())
    cls, X = type(act), a.symbols("X", a.size("N"), a.size("K"))
    a.name = cls.__name__
    Y, D, define = act(X), act.gradient(X), a.defined(act)
    for name, code, A in (("value", cls.__call__, Y), ("gradient", cls.gradient, D)):
        if problem := a.problem_of(A, X):
            yield judged(cls, name, last_line(code), a.about, f"is wrong: {problem}")
            return
    yield a.claim(cls, "value", cls.__call__, Y, None if define is None else define(X))
    yield a.claim(cls, "gradient", cls.gradient, *a.elementwise(a.reference(act), X, D))


def of_softmax(a: Algebra, name: str) -> Iterator[Check]:
    """A softmax function is e^x_ij / Σ_k e^x_ik, or its logarithm, and its Jacobian has the derivatives for one row."""
    f, jacobian = (getattr(softmax_functions, x) for x in (name, f"{name}_jacobian"))
    X, x, define = a.symbols("X", a.size("N"), a.size("D")), a.symbols("x", 1, a.size("D")), a.defined(f)
    assert define is not None
    yield a.claim(f, "", f, f(X), define(X))
    yield a.claim(jacobian, "", jacobian, jacobian(x), a.slopes(a.reference(f), x))


def of_lemma(a: SymbolicAlgebra, lemma: Lemma) -> Iterator[Check]:
    """Both sides of each step are equal; the message is about the first step that does not hold."""
    file, (_, line) = inspect.getsourcefile(lemma.function) or "", inspect.getsourcelines(lemma.function)
    location, source = f"{relative_path(file)}:{line}", lemma.text
    problem = "it has no steps"
    for number, step in enumerate(lemma.steps(a), 1):
        if problem := a.compared(step.left, step.right):
            problem = f"step {number} ({step.text}) {problem}"
            break
    message = f"{lemma.name} does not hold: {problem}\n  in {location}: {source}" if problem else ""
    yield Check(lemma.name, location, lemma.label, a.about, a.method, a.seconds(), not problem, message, source)
