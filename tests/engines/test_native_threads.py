"""Threads and the C++ core: several that share an executor, forks, too many, and arrays that are bound as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import numpy as np
import pytest

import matgrad as mg
import matgrad._native as _native
from matgrad.engines.engine import compile_step, get_engine
from matgrad.engines.native import NativeExecutor
from matgrad.layers.state import State
from matgrad.program.computations import Feedforward
from matgrad.specifications.models import create_model
from support import PATIENCE

D, K, N = 20, 5, 100


def model() -> mg.MultilayerPerceptron:
    mg.manual_seed(1)
    layers = create_model("ReLU;Linear", f"{D};30;{K}", densities="0.5;1", optimizers="Momentum(0.9)")
    return layers.to("native", dtype="float64")


def training() -> tuple[NativeExecutor, State]:
    """The executor of a training step, and the matrices that it changes."""
    step: Any = compile_step(model(), mg.SoftmaxCrossEntropyLoss())
    step.load(model().state())
    return step.prepare(np.zeros((N, D)), np.zeros((N, K))), step.matrices


def examples(batches: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    size = batches * N
    X, rates, labels = rng.normal(size=(size, D)), np.full(batches, 0.1), rng.integers(0, K, size)
    return {"X": X, "T": np.eye(K), "rates": rates, "order": rng.permutation(size), "labels": labels}


# -- several threads ---------------------------------------------------------------------------


def test_threads_train_with_one_executor_in_turn():
    (shared, found), (single, expected) = training(), training()
    batches, times, users = examples(), 30, 4
    with ThreadPoolExecutor(users) as threads:
        done = [threads.submit(shared.core.train, **batches) for _ in range(times)]
        assert [x.result(timeout=PATIENCE) for x in done] == [None] * times
    for _ in range(times):
        single.core.train(**batches)
    assert shared.runs == single.runs == times * len(batches["rates"])
    for name in ("1.W", "2.W", "2.b"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_every_thread_gets_the_outputs_for_its_own_inputs():
    M, rng = model(), np.random.default_rng(3)
    evaluation: Any = get_engine("native").evaluation(Feedforward(M))
    inputs = [rng.normal(size=(N, D)) for _ in range(40)]
    evaluation(M.state(), inputs[0])
    executor = evaluation.executor_for(inputs[0])
    expected = [executor.execute(X=X)["Y"] for X in inputs]
    assert not np.array_equal(expected[0], expected[1])
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda X: executor.execute(X=X)["Y"], inputs * 10, timeout=PATIENCE))
    for i, Y in enumerate(found):
        np.testing.assert_array_equal(Y, expected[i % len(inputs)], err_msg=f"call {i}")


def test_poll_may_not_use_its_own_program():
    executor, _ = training()
    batches = examples()
    with pytest.raises(RuntimeError, match="the program is running: it cannot be used by what it calls"):
        executor.core.train(**batches, poll=lambda done: executor.core.train(**batches))
    executor.core.train(**batches)


@pytest.mark.timeout(PATIENCE)
def test_a_thread_that_waits_for_its_turn_does_not_hold_the_others_up():
    executor, _ = training()
    batches, others = examples(), []

    def poll(done: int) -> None:
        others.append(Thread(target=executor.core.train, kwargs=batches))
        others[-1].start()
        for _ in range(1000):  # the other thread gets as far as it can
            os.sched_yield() if hasattr(os, "sched_yield") else None

    executor.core.train(**batches, poll=poll)
    for other in others:
        other.join(PATIENCE)
    assert executor.runs == (len(others) + 1) * len(batches["rates"])


# -- forks -------------------------------------------------------------------------------------

FORKED = """
import os, sys, threading
sys.path += {path!r}
import numpy as np
from test_native_threads import examples, training

def trained():
    executor, state = training()
    executor.core.train(**examples())
    return executor, state["1.W"].copy()

executor, expected = trained()
{parent}
child = os.fork()
if child == 0:
    {child}
_, status = os.waitpid(child, 0)
assert status == 0, status
assert np.array_equal(trained()[1], expected)
{finally_}
print("done")
"""
EXIT = "sys.exit()"
DURING_AN_EPOCH = """
forking, forked = threading.Event(), threading.Event()
def poll(done):
    forking.set()
    forked.wait()
thread = threading.Thread(target=lambda: executor.core.train(**examples(), poll=poll), daemon=True)
thread.start()
forking.wait()
"""
REFUSED = """
    try:
        executor.core.train(**examples())
    except RuntimeError as error:
        assert "was running in another thread when this process was forked" in str(error)
        assert np.array_equal(trained()[1], expected)
        os._exit(0)
    os._exit(1)
"""
CHILDREN = {
    "exits": ("", EXIT, ""),
    "trains and exits at once": ("", "os._exit(0 if np.array_equal(trained()[1], expected) else 1)", ""),
    "goes on training": ("", f"executor.core.train(**examples()); {EXIT}", ""),
    "is forked during an epoch": (DURING_AN_EPOCH, REFUSED, "forked.set(); thread.join()"),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("kind", CHILDREN)
def test_a_forked_child(kind: str):
    parent, child, finally_ = CHILDREN[kind]
    check_script(FORKED.format(path=sys.path, parent=parent, child=child.strip(), finally_=finally_))


WORKERS = """
import sys
sys.path += {path!r}
import multiprocessing
from test_native_threads import data_loss
if __name__ == "__main__":
    expected = data_loss(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(data_loss, range(4)) == [expected] * 4
    print("done")
"""


def data_loss(_: int) -> float:
    batches = examples()
    return model().fit(batches["X"], batches["labels"], epochs=2, batch_size=50, seed=4)["loss"][-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_pool_of_forked_processes_trains():
    check_script(WORKERS.format(path=sys.path))


def check_script(script: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]  # of forks with threads
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


# -- too many threads --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1025, 0])
def test_a_pool_of_too_many_threads_is_refused(size: int):
    with pytest.raises(ValueError, match=f"threads: expected 1 to 1024, found {size}"):
        _native.ThreadPool(size)


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is limited as on Linux")
def test_threads_that_cannot_be_started_are_an_error():
    """There is memory for the stacks of some; these are ended, and a smaller pool works."""
    script = """
import resource
import matgrad._native as native
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 28),) * 2)
try:
    native.ThreadPool(1000)
except ValueError as error:
    assert "threads: only " in str(error) and " of 1000 can be started: " in str(error), error
    assert native.ThreadPool(2).size == 2
    print("done")
"""
    check_script(script)


# -- arrays ------------------------------------------------------------------------------------

STRIDED = {
    "strided": lambda A: np.repeat(A, 2, axis=-1)[..., ::2],
    "by columns": np.asfortranarray,
}


@pytest.mark.parametrize("layout", STRIDED)
def test_an_array_with_another_layout_is_not_bound(layout: str):
    """nanobind would train a copy of it, and nobody would ever see the result."""
    executor, state = training()
    W = STRIDED[layout](state["2.W"])
    with pytest.raises(
        ValueError, match=r"2\.W: expected an array that can be changed, with its elements one after another"
    ):
        executor.core.bind("2.W", W)
    X = STRIDED[layout](np.zeros((N, D)))
    with pytest.raises(ValueError, match="X: expected an array, with its elements one after another"):
        executor.core.run({"X": X})
    for name in ("X", "T"):
        batches = examples()
        with pytest.raises(ValueError, match=f"{name}: expected an array, with"):
            executor.core.train(**batches | {name: STRIDED[layout](batches[name])})


def test_a_read_only_array_is_not_trained():
    executor, state = training()
    W = state["2.W"].copy()
    W.flags.writeable = False
    with pytest.raises(ValueError, match=r"2\.W: expected an array that can be changed"):
        executor.core.bind("2.W", W)


@pytest.mark.parametrize("name", ["order", "labels"])
@pytest.mark.parametrize("convert", [np.int32, np.float64, lambda x: np.repeat(x, 2)[::2], lambda x: x[:, None]])
def test_indices_are_not_converted(name: str, convert):
    executor, _ = training()
    batches = examples()
    with pytest.raises(ValueError, match=f"{name}: expected a vector of int64"):
        executor.core.train(**batches | {name: convert(batches[name])})


def test_a_bound_array_stays_where_it_is():
    executor, state = training()
    before = state["2.W"].copy()
    with pytest.raises(ValueError, match="cannot resize"):
        state["2.W"].resize((1000, 1000))
    W = state.pop("2.W")
    del state  # the executor has it still
    executor.core.train(**examples())
    assert not np.array_equal(W, before)
