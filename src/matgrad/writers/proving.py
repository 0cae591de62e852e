"""Gradients of foreign code, proved for all sizes, or refuted with what is missing and numbers that show it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from matgrad.index_notation.indices import DISTANCES
from matgrad.writers.divisions import Divisions
from matgrad.writers.kernels import kernels_replaced, tested
from matgrad.writers.proof import Proof
from matgrad.writers.sizes import QUESTIONS, distances
from matgrad.writers.subjects import code_of
from matgrad.writers.verdicts import Place, Verdict


def prove(
    function: Any,
    shapes: Mapping[str, Any] | None = None,
    /,
    *,
    backward: Callable[..., Any] | None = None,
    wrt: Sequence[str] | None = None,
    reference: Mapping[Any, Callable[..., Any]] | None = None,
    surrogate: bool = False,
    kinks: bool = False,
    explain: bool = False,
    seconds: float = 60,
    **more: Any,
) -> Verdict:
    """Whether the gradients that code computes are those of its output, for all sizes.

    The function is a torch.autograd.Function, a torch.library.custom_op with register_autograd, a jax.custom_vjp or
    jax.custom_jvp, any function or module with a function `backward` of arguments and gradients, or a text of equations
    such as "Y = softmax(X); DX = hadamard(Y, DY - column_repeat(rows_sum(hadamard(DY, Y)), D))". What is said of
    its arguments, in `shapes` or by name, is a shape such as "N D" (docs/prove.md), or a number, which is itself. With
    `kinks`, the gradient at kinks and ties is compared with the one-sided derivatives. With `explain`,
    the derivation is in the verdict, step by step.
    """
    start = time.perf_counter()
    code = code_of(function, backward)
    divisions = Divisions()
    with kernels_replaced(code.functions, reference or {}) as kernels, _limited(seconds):
        while True:
            proof = Proof(code, {**(shapes or {}), **more}, wrt, divisions, surrogate, kinks, explain)
            tokens = QUESTIONS.set([]), DISTANCES.set({})
            try:
                proof.try_to_run(seconds)
                if kernels:
                    tested(proof, kernels)
            finally:
                questions = [*QUESTIONS.get(), *distances()]
                QUESTIONS.reset(tokens[0])
                DISTANCES.reset(tokens[1])
            if not divisions.add(proof.error, proof.specifications):
                break
    verdict = proof.verdict
    verdict.assumptions += divisions.assumptions
    verdict.assumptions += [f"{kernel.name} computes what its reference does" for kernel in kernels]
    verdict.assumptions += [f"{q}, as was answered to the code" for q in questions if q.above is None]
    verdict.assumptions += divisions.bounds(questions)
    verdict.place = verdict.place or place_of_function(code.functions)
    verdict.seconds = time.perf_counter() - start
    return verdict


def place_of_function(functions: Sequence[Any]) -> Place | None:
    """Where the first function begins."""
    code = getattr(functions[0], "__code__", None) if functions else None
    return (code.co_filename, code.co_firstlineno) if code else None


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """TimeoutError after some time, in the main thread, where there are signals."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
