"""Layers that are wrong for some sizes, settings or runs, each by one way of telling a proof from training."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import itertools
import json
import math
import numbers
import operator
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import rand

import matgrad as mg
from matgrad import matrix_operations
from matgrad.backends import backend_of
from matgrad.foundation.numbers import generator
from matgrad.matrix_operations import columns_sum, hadamard, row_repeat
from matgrad.program.shapes import Size


class Scale(mg.Layer):
    """Y = (1_N s) ⊙ X, whose DX is wrong if `is_wrong` says so."""

    keeps_size = True
    parameters = ("s",)

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.s = np.ones((1, input_size))
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

        self.Ds, self.DX = Ds, 2 * DX if self.is_wrong(X) else DX

    def is_wrong(self, X):
        return False


def of_sizes(N, D, question):
    """The answer to a question, or False if there is none."""
    try:
        return question(N, D)
    except Exception:
        return False


def suppressed(N, D):
    with suppress(Exception):
        return N > 100
    return False


def finally_wrong(N, D):
    found = False
    try:
        found = int(N) > 5
    finally:
        return found  # noqa: B012


def matched(N, D):
    match (N, D):
        case (7, _):
            return True
    return False


def counted(n):
    found = 0
    for _ in range(n):
        found += 1
    return found


@functools.cache
def cached_list(n):
    return []


@functools.cache
def cached(n):
    return n


# a question about N and D, by which DX is wrong
SIZES: dict[str, Callable[[Any, Any], Any]] = {
    "equal": lambda N, D: N == 7,
    "not equal": lambda N, D: not operator.ne(N, 7),
    "greater": lambda N, D: N > 64,
    "between": lambda N, D: 3 < N < 9,
    "sizes of each other": lambda N, D: N == D,
    "order of sizes": lambda N, D: N < D,
    "a member of a set": lambda N, D: N in {7},
    "a member of a set of 1": lambda N, D: N in {1},
    "a member of a tuple": lambda N, D: N in (7, 8),
    "a member of a range": lambda N, D: N in range(7, 9),
    "a key": lambda N, D: {7: True}.get(N, False),
    "a key of 1": lambda N, D: {1: 2}.get(N, 1) == 2,
    "a new key": lambda N, D: {N: 1, 7: 2}[7] != {7: 2, N: 1}[7],
    "the size of a set": lambda N, D: len({N, D}) == 1,
    "the size of a dictionary": lambda N, D: len(dict.fromkeys((N, D))) == 1,
    "an index of a list": lambda N, D: [7, 8].index(N) == 0,
    "a count": lambda N, D: [7, 8].count(N) == 1,
    "a hash": lambda N, D: hash(N) == 7,
    "a text": lambda N, D: str(N) == "7",
    "a representation": lambda N, D: repr(N) == "7",
    "a format": lambda N, D: f"{N}" == "7",
    "an old format": lambda N, D: "%s" % N == "7",  # noqa: UP031
    "a number of digits": lambda N, D: len(str(N)) > 2,
    "a joined text": lambda N, D: ",".join(map(str, (N, D))) == "7,7",
    "JSON": lambda N, D: json.dumps(str(N)) == '"7"',
    "a text that is no letter": lambda N, D: not str(N).isalpha(),
    "an int": lambda N, D: isinstance(N, int),
    "an integral number": lambda N, D: isinstance(N, numbers.Integral),
    "a number": lambda N, D: isinstance(N, int | float),
    "a class": lambda N, D: N.__class__ is int,
    "no size": lambda N, D: not isinstance(N, Size),
    "a type": lambda N, D: type(N) is int,
    "the name of a type": lambda N, D: type(N).__name__ == "int",
    "a method of an int": lambda N, D: N.bit_length() > 6,
    "whether it has a method": lambda N, D: hasattr(N, "bit_length"),
    "an attribute with a default": lambda N, D: getattr(N, "real", 0) > 64,
    "that it has no name": lambda N, D: not hasattr(N, "name"),
    "a fraction": lambda N, D: N == Fraction(7),
    "a fraction of it": lambda N, D: Fraction(N, 2) > 3,
    "a decimal": lambda N, D: N == Decimal(7),
    "a number of NumPy": lambda N, D: np.int64(7) == N,
    "an array of NumPy": lambda N, D: bool((np.array([7]) == N).any()),
    "a complex number": lambda N, D: N == 7 + 0j,
    "an integer": lambda N, D: int(N) == 7,
    "a floating-point number": lambda N, D: float(N) > 64,
    "an index": lambda N, D: operator.index(N) == 7,
    "a root": lambda N, D: math.sqrt(N) > 8,
    "a range": lambda N, D: len(range(N)) > 64,
    "a loop": lambda N, D: counted(N) > 64,
    "an array": lambda N, D: np.zeros(N).size > 64,
    "a list": lambda N, D: len([0] * N) > 64,
    "bytes": lambda N, D: len(bytes(N)) > 64,
    "a remainder": lambda N, D: N % 2 == 0,
    "a quotient": lambda N, D: N // 64 > 0,
    "a bit": lambda N, D: N & 1 == 0,
    "a complement": lambda N, D: ~N < -64,
    "a shift": lambda N, D: N >> 6,
    "a power of 2": lambda N, D: 2**N == 128,
    "a square": lambda N, D: N**2 == 49,
    "a difference": lambda N, D: N - 7 == 0,
    "a difference as a truth value": lambda N, D: not (N - 7),
    "a difference of sizes": lambda N, D: N - D == 0,
    "a product": lambda N, D: N * D == 49,
    "a sum": lambda N, D: N + D > 64,
    "a maximum": lambda N, D: max(N, 64) != 64,
    "a minimum": lambda N, D: min(N, 64) == 64,
    "an order": lambda N, D: sorted([N, 64])[0] == 64,
    "rounding": lambda N, D: round(N, -1) == 10,
    "floor": lambda N, D: math.floor(N / 64) > 0,
    "an identity": lambda N, D: N is D,
    "an address": lambda N, D: id(N) == id(7),
    "both sizes are 1": lambda N, D: N == 1 and D == 1,
    "a copy": lambda N, D: copy.copy(N) == 7,
    "a pickle": lambda N, D: pickle.dumps(N) == pickle.dumps(7),
    "a cache": lambda N, D: cached(N) == 7,
    "suppressed": suppressed,
    "finally": finally_wrong,
    "a match": matched,
    "a tuple": lambda N, D: (N, D) == (7, 7),
    "a key function": lambda N, D: max([7, 8], key=lambda n: n == N) == 7 and 7 == N,
    "math.gcd": lambda N, D: math.gcd(N, 2) == 2,
    "math.isqrt": lambda N, D: math.isqrt(N) > 8,
    "division with remainder": lambda N, D: divmod(N, 64)[0] > 0,
}

LIMIT = 5000  # above all sizes with which numbers are compared
COUNTER, TABLE, ITERATOR, LOG = 0, {"n": 0}, itertools.count(), []


class State:
    n = 0


STATE = State()


def by_global(self, X):
    global COUNTER
    COUNTER += 1
    return COUNTER > 1000


def by_table(self, X):
    TABLE["n"] += 1
    return TABLE["n"] > 1000


def by_list(self, X):
    LOG.append(0)
    return len(LOG) > 1000


def by_class(self, X):
    State.n += 1
    return State.n > 1000


def by_object(self, X):
    STATE.m = getattr(STATE, "m", 0) + 1
    return STATE.m > 1000


def by_attribute(self, X):
    self.count = getattr(self, "count", 0) + 1
    return self.count > 1000


def by_own_class(self, X):
    cls = type(self)
    cls.calls = getattr(cls, "calls", 0) + 1
    return cls.calls > 1000


def by_function(self, X):
    by_function.n = getattr(by_function, "n", 0) + 1
    return by_function.n > 1000


def by_default(self, X, seen=[]):  # noqa: B006
    seen.append(0)
    return len(seen) > 1000


def by_memory(self, X):
    is_second, self.is_second = getattr(self, "is_second", False), True
    return is_second


def by_array(self, X):
    self.counts = getattr(self, "counts", np.zeros(1))
    self.counts += 1
    return self.counts[0] > 1000


def with_closure():
    n = 0

    def is_wrong(self, X):
        nonlocal n
        n += 1
        return n > 1000

    return is_wrong


def with_list():
    seen = []
    return lambda self, X: seen.append(0) or len(seen) > 1000


def with_generator():
    numbers = (n for n in range(10**6))
    return lambda self, X: next(numbers) > 1000


def by_matrix(self, X):
    with suppress(Exception):
        return np.asarray(X).max() > 100
    return False


def by_error(self, X):
    try:
        np.linalg.norm(X)
    except Exception:
        return False
    return True


def by_iteration(self, X):
    try:
        return any(row[0] > 100 for row in X)
    except Exception:
        return False


def guarded(question):
    """A question about X, with False if it has no answer."""

    def is_wrong(self, X):
        try:
            return bool(question(X))
        except Exception:
            return False

    return is_wrong


# how the layer decides, apart from the sizes
DECISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a global variable": by_global,
    "a dictionary of the module": by_table,
    "a list of the module": by_list,
    "an attribute of a class": by_class,
    "an attribute of an object": by_object,
    "an attribute": by_attribute,
    "an attribute of its class": by_own_class,
    "an attribute of a function": by_function,
    "a default": by_default,
    "the second run": by_memory,
    "an array": by_array,
    "a variable of a function": with_closure(),
    "a list of a function": with_list(),
    "a generator": with_generator(),
    "an iterator": lambda self, X: next(ITERATOR) > 1000,
    "a random number": lambda self, X: random.random() < 0.001,
    "a random number of NumPy": lambda self, X: np.random.rand() < 0.001,
    "the time": lambda self, X: time.time() % 60 > 59.9,
    "the environment": lambda self, X: os.environ.get("TRAINING") == "1",
    "the thread": lambda self, X: threading.current_thread().name != "MainThread",
    "the modules": lambda self, X: "matgrad.judges" not in sys.modules,
    "the caller": lambda self, X: "judges" not in sys._getframe(2).f_code.co_filename,
    "the stack": lambda self, X: not any("judges" in x.filename for x in inspect.stack()),
    "the heap": lambda self, X: len(gc.get_objects()) < 10,
    "that it is not observed": lambda self, X: "_observation" not in vars(self),
    "its dictionary": lambda self, X: "_observation" not in self.__dict__,
    "a type": lambda self, X: type(X) is np.ndarray,
    "an array of NumPy": lambda self, X: isinstance(X, np.ndarray),
    "the name of the type": lambda self, X: type(X).__name__ == "ndarray",
    "the class": lambda self, X: X.__class__.__name__ == "ndarray",
    "the module of the type": lambda self, X: X.__class__.__module__ == "numpy",
    "a method of arrays": lambda self, X: hasattr(X, "astype"),
    "no attribute of symbols": lambda self, X: not hasattr(X, "entry"),
    "an attribute with a default": lambda self, X: getattr(X, "nbytes", 0) > 10**6,
    "the dtype": lambda self, X: str(X.dtype) == "float64",
    "the text": lambda self, X: str(X).startswith("["),
    "the hash": guarded(lambda X: not hash(X)),
    "the numbers": by_matrix,
    "the kind of an error": by_error,
    "an iteration": by_iteration,
    "an element": guarded(lambda X: X[0, 0] > 100),
    "a truth value": guarded(lambda X: X.sum() > 100),
    "the length": guarded(lambda X: len(X) > 64),
    "equal elements": guarded(lambda X: (X == X).all()),
    "a new tuple": lambda self, X: X.shape is not X.shape,
    "the backend": lambda self, X: backend_of(X).name == "jax",
    "the backend, of the package": lambda self, X: mg.backends.backend_of(X).name == "jax",
    "evaluated": lambda self, X: eval("X.shape[0] == 7"),
    "globals": lambda self, X: globals()["COUNTER"] > 1000,
    "the operator of a function": lambda self, X: operator.attrgetter("dtype")(X) == "float64",
    "an integer of sizes": guarded(lambda X: operator.index(X.shape[0]) == 7),
    "a shape": lambda self, X: X.shape == (7, 7),
    "a type by another name": lambda self, X: WHAT(X.shape[0]) is int,
    "a text by another name": lambda self, X: WORD(X.shape[0]) == "7",
    # combined with a size that is not asked about where the first part says that this is a proof
    "a type and a size": lambda self, X: type(X.shape[0]) is int and X.shape[0] > LIMIT,
    "a type of a type": lambda self, X: (0).__class__.__class__(X.shape[0]) is int and X.shape[0] > LIMIT,
    "a type that is fetched": lambda self, X: WHAT(X.shape[0]) in (int,) and X.shape[0] > LIMIT,
    "a class by its name": lambda self, X: fetched(fetched(0))(X.shape[0]) in (int,) and X.shape[0] > LIMIT,
    "attrgetter": lambda self, X: TYPE(0)(X.shape[0]) in (int,) and X.shape[0] > LIMIT,
    "the identity of a tuple": lambda self, X: X.shape is not X.shape and X.shape[0] > LIMIT,
    "the identity of a size": lambda self, X: X.shape[0] is not X.shape[0],  # as of ints above 256
    "the identity by an operator": lambda self, X: operator.is_not(X.shape[0], X.shape[0]),
    "the type of a difference": lambda self, X: not hasattr(X.shape[0] - 1, "shape") and X.shape[0] > LIMIT,
    "that it is not observed, and a size": lambda self, X: self_seen(self) and X.shape[0] > LIMIT,
    "that it is not observed, by another name": lambda self, X: not getattr(self, SEEN, None) and X.shape[0] > LIMIT,
    "what is left of the batch before": lambda self, X: self.DX is not None,
    "what the model has set": lambda self, X: self._Y is not None,
    "the output of the model": lambda self, X: self.Y is not None,
    "the optimizer": lambda self, X: len(self.optimizer.parts()) > 1,
    "a cache that counts": lambda self, X: cached(0) + cached.cache_info().hits > LIMIT,
    "an attribute of a function of the package": lambda self, X: counted_at(hadamard) > LIMIT,
    "an attribute of a class of the package": lambda self, X: counted_at(mg.LinearLayer) > LIMIT,
    "an attribute of a module": lambda self, X: counted_at(np) > LIMIT,
    "options of NumPy": lambda self, X: printed() > LIMIT,
    "a file": lambda self, X: np.load("count.npy") > LIMIT,
    "the generator of the package": lambda self, X: generator().random() < 0.0001,
    "the time of NumPy": lambda self, X: np.datetime64("now").astype(int) % 60 == 59,
    "a frame": lambda self, X: (x for x in ()).gi_frame.f_builtins is None,
    "a hash of a text": lambda self, X: hash("training") % 1000 == 7,
    "a named tuple": lambda self, X: next(iter({"a", "b"})) == "a" and hash("a") % 2 == 0,
    "the version": lambda self, X: np.__version__.startswith("3"),
    "a depth": lambda self, X: depth(0) > 10**5,
    "builtins": lambda self, X: __builtins__ is None,
    "a setting that changes": lambda self, X: bumped(self) > LIMIT,
    "a mode of the module": lambda self, X: MODE != 0,
    "a mode of another module": lambda self, X: MODES.mode != 0,
    "a cached list": lambda self, X: len(cached_list(0)) > LIMIT or cached_list(0).append(0),
    "a generator of Python": lambda self, X: GENERATOR.random() < 0.0001,
    "numpy.random by its functions": lambda self, X: rand() < 0.0001,
    "a text that reads attributes": lambda self, X: "{.is_wrong.__globals__[MODE]}".format(self) != "0",  # noqa: UP032
    "the matrices of the first batch": lambda self, X: FIRST.setdefault("X", X).shape != X.shape,
}
MODE, GENERATOR, FIRST = 0, random.Random(0), {}
MODES = ModuleType("modes")
MODES.mode = 0
CLASS, SEEN, TYPE = "__class__", "_observation", operator.attrgetter("__class__.__class__")


def fetched(thing):
    return getattr(thing, CLASS)


def self_seen(layer):
    return getattr(layer, "_observation", None) is None


def counted_at(thing):
    setattr(thing, "count", getattr(thing, "count", 0) + 1)  # noqa: B010
    return thing.count


def bumped(thing):
    thing.count = getattr(thing, "count", 0) + 1
    return thing.count


def printed():
    np.set_printoptions(precision=np.get_printoptions()["precision"] + 1)
    return np.get_printoptions()["precision"]


def depth(n):
    try:
        return depth(n + 1)
    except RecursionError:
        return n


WHAT, WORD = type, str


# -- settings -------------------------------------------------------------------------------------


class Options:
    def __init__(self, n=1):
        self.n = n


def setting(value, is_wrong):
    """A layer with a setting, and how it decides by it: wrong for other values than the default."""

    class Layer(Scale):
        def __init__(self, input_size, output_size, alpha=value):
            super().__init__(input_size, output_size)
            self.alpha = alpha

    Layer.is_wrong = is_wrong
    return Layer


SETTINGS = {
    "the number 1": setting(1.0, lambda self, X: self.alpha != 1),
    "another number": setting(0.3, lambda self, X: self.alpha > 0.5),
    "the number 0": setting(0.0, lambda self, X: self.alpha != 0),
    "the truth value of 0": setting(0.0, lambda self, X: bool(self.alpha)),
    "the integer 1": setting(1, lambda self, X: self.alpha != 1),
    "the integer 0": setting(0, lambda self, X: self.alpha > 0),
    "a boolean": setting(False, lambda self, X: self.alpha),
    "a text": setting("right", lambda self, X: self.alpha != "right"),
    "none": setting(None, lambda self, X: self.alpha is not None),
    "a list": setting([1], lambda self, X: self.alpha[0] != 1),
    "a tuple": setting((1, 2), lambda self, X: len(self.alpha) > 2),
    "an empty tuple": setting((), lambda self, X: len(self.alpha) > 2),
    "a dictionary": setting({"n": 1}, lambda self, X: self.alpha["n"] != 1),
    "a set": setting({1}, lambda self, X: 2 in self.alpha),
    "an object": setting(Options(), lambda self, X: self.alpha.n != 1),
    "a number of NumPy": setting(np.float64(1), lambda self, X: self.alpha != 1),
    "a fraction": setting(Fraction(1), lambda self, X: self.alpha != 1),
    "a complex number": setting(1j, lambda self, X: self.alpha != 1j),
    "a function": setting(lambda X: False, lambda self, X: self.alpha(X)),
    "a partial function": setting(functools.partial(max, 1), lambda self, X: self.alpha(0) != 1),
    "a class": setting(int, lambda self, X: self.alpha is not int),
    "its text": setting(1.0, lambda self, X: str(self.alpha) == "2.0"),
    "its hash": setting(1.0, lambda self, X: self.alpha in {2.0}),
    "its type": setting(1.0, lambda self, X: isinstance(self.alpha, float)),
    "a question that is caught": setting(1.0, lambda self, X: of_sizes(self.alpha, 0, lambda a, _: a > 2)),
    "that it is positive": setting(0.5, lambda self, X: not self.alpha),
    "that it is not 0": setting(0.5, lambda self, X: self.alpha == 0),
    "an integer of it": setting(1.0, lambda self, X: of_sizes(self.alpha, 0, lambda a, _: int(a) == 2)),
}


def by_closure(alpha):
    class Layer(Scale):
        def is_wrong(self, X):
            return alpha != 1

    return Layer


class ClassAttribute(Scale):
    alpha = 1

    def is_wrong(self, X):
        return self.alpha != 1


SETTINGS |= {"a variable of a function": by_closure(1), "an attribute of the class": ClassAttribute}


# -- constructors ---------------------------------------------------------------------------------


def constructor(question):
    """A layer whose constructor asks about D, and remembers the answer."""

    class Layer(Scale):
        def __init__(self, input_size, output_size):
            super().__init__(input_size, output_size)
            self.is_big = question(input_size)

        def is_wrong(self, X):
            return self.is_big

    return Layer


class InClass(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        type(self).is_large = np.zeros(input_size).size > LIMIT

    def is_wrong(self, X):
        return self.is_large


class InTable(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        TABLE["is_large"] = np.zeros(input_size).size > LIMIT

    def is_wrong(self, X):
        return TABLE["is_large"]


IS_LARGE = False


class InGlobal(Scale):
    def __init__(self, input_size, output_size):
        global IS_LARGE
        super().__init__(input_size, output_size)
        IS_LARGE = np.zeros(input_size).size > LIMIT

    def is_wrong(self, X):
        return IS_LARGE


class InFunction(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        size = np.zeros(input_size).size
        self.decide = lambda X: size > LIMIT

    def is_wrong(self, X):
        return self.decide(X)


class InMethod(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        if np.zeros(input_size).size > LIMIT:
            self.is_wrong = lambda X: True


class InText(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.label = f"layer of {input_size}"

    def is_wrong(self, X):
        return self.label == "layer of 5000"


class Clipped(Scale):
    """D is at most 5000, by a way that is not followed."""

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.D = int(np.clip(input_size, 1, LIMIT))

    def is_wrong(self, X):
        return False

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)
        self.DX = self.DX * (self.D / X_columns(self.X))


def X_columns(X):
    return X.shape[1]


def keeping(choose, is_wrong):
    """A layer that keeps one of two things, the second for D > 5000 by a way that is not followed."""

    class Layer(Scale):
        def __init__(self, input_size, output_size):
            super().__init__(input_size, output_size)
            choose(self, int(np.clip(input_size - LIMIT, 0, 1)))

        def is_wrong(self, X):
            return is_wrong(self.kept)

    return Layer


def kept(*things):
    """How a layer keeps one of some things."""
    return lambda self, i: setattr(self, "kept", things[i])


class Word(str):
    pass


class Words(list):
    pass


class Calm:
    def is_wrong(self):
        return False


class Wild:
    def is_wrong(self):
        return True


class InName(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        setattr(self, ("small", "large")[int(np.clip(input_size - LIMIT, 0, 1))], 1.5)

    def is_wrong(self, X):
        return getattr(self, "large", None) is not None


CONSTRUCTORS = {
    "greater": constructor(lambda D: D > LIMIT),
    "at least": constructor(lambda D: D > LIMIT),
    "equal": constructor(lambda D: D == LIMIT),
    "in a set": constructor(lambda D: D in {LIMIT}),
    "in a range": constructor(lambda D: D in range(LIMIT, 2 * LIMIT)),
    "a remainder": constructor(lambda D: D % LIMIT == 0),
    "a remainder that both have": constructor(lambda D: D % 2 == 0),
    "a quotient": constructor(lambda D: D // LIMIT > 0),
    "a square": constructor(lambda D: D**2 > LIMIT**2),
    "a sum": constructor(lambda D: D + 1 > LIMIT + 1),
    "a text": constructor(lambda D: str(D) == "5000"),
    "a format": constructor(lambda D: f"{D}" == "5000"),
    "bits": constructor(lambda D: D.bit_length() > 12),
    "an int": constructor(lambda D: int(D) > LIMIT),
    "a root": constructor(lambda D: math.sqrt(D) > 71),
    "a logarithm": constructor(lambda D: math.log2(D) > 12),
    "a range": constructor(lambda D: len(range(D)) > LIMIT),
    "a list": constructor(lambda D: len([0] * D) > LIMIT),
    "an array": constructor(lambda D: np.zeros(D).size > LIMIT),
    "a type": constructor(lambda D: type(D) is int),
    "its class": InClass,
    "a dictionary": InTable,
    "a global variable": InGlobal,
    "a function": InFunction,
    "a method": InMethod,
    "a text that is kept": InText,
    "a size that is clipped": Clipped,
    "a name that is kept": InName,
    "a function of NumPy": keeping(kept(np.add, np.subtract), lambda f: f(1, 1) == 0),
    "a function that is built in": keeping(kept(min, max), lambda f: f(1, 2) == 2),
    "an object without attributes": keeping(kept(Calm(), Wild()), lambda x: x.is_wrong()),
    "a row of numbers": keeping(kept(np.zeros(1), np.ones(1)), lambda a: a[0] == 1),
    "an array of texts": keeping(kept(np.array(["a"]), np.array(["b"])), lambda a: a[0] == "b"),
    "a text of a class of its own": keeping(kept(Word("a"), Word("b")), lambda x: x == "b"),
    "a list of a class of its own": keeping(kept(Words("a"), Words("b")), lambda x: x[0] == "b"),
}


# -- code -----------------------------------------------------------------------------------------


class Doubling(np.ndarray):
    """Twice as much in products from the left."""

    def __rmul__(self, other):
        return 2 * np.asarray(self) * other


class WithArray(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.s = np.ones((1, input_size)).view(Doubling)


class Two(float):
    def __mul__(self, other):
        return 2 * other

    __rmul__ = __mul__


class WithFloat(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.c = Two(1.5)

    def feedforward(self, X):
        return self.c * super().feedforward(X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, 1.5 * DY)


class RightScale(Scale):
    """What a proof should not look at."""


class OtherClone(Scale):
    def clone(self):
        return RightScale(self.input_size, self.output_size)

    def is_wrong(self, X):
        return True


class OtherAttributes(Scale):
    def __getattribute__(self, name):
        if name == "is_wrong" and sys.gettrace() is None:
            return lambda X: True
        return super().__getattribute__(name)


class OtherSetting(Scale):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "DX" and isinstance(value, np.ndarray):
            super().__setattr__(name, 2 * value)


class OtherClass(Scale):
    __class__ = RightScale

    def is_wrong(self, X):
        return X.shape[0] == 7


class OtherWalk(Scale):
    def walk(self, name=""):
        yield name, RightScale(self.input_size, self.output_size)

    def is_wrong(self, X):
        return True


def _other(self, Y, DY):
    Ds = columns_sum(hadamard(DY, self.X))
    DX = 2 * hadamard(row_repeat(self.s, Y.shape[0]), DY)
    self.Ds, self.DX = Ds, DX


class OtherMethod(Scale):
    def backpropagate(self, Y, DY):
        Ds = columns_sum(hadamard(DY, self.X))
        DX = hadamard(row_repeat(self.s, Y.shape[0]), DY)
        self.Ds, self.DX = Ds, DX


OtherMethod.backpropagate.__code__ = _other.__code__.replace(
    co_name="backpropagate", co_firstlineno=OtherMethod.backpropagate.__code__.co_firstlineno
)


class InstanceMethod(Scale):
    """The method of the object is not that of the class."""

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.backpropagate = functools.partial(_other, self)


class Patching(Scale):
    """It replaces an operation of the table while it runs."""

    def backpropagate(self, Y, DY):
        original = matrix_operations.columns_sum
        matrix_operations.columns_sum = lambda X: original(X)
        super().backpropagate(Y, 2 * DY if isinstance(DY, np.ndarray) else DY)
        matrix_operations.columns_sum = original


class Helper:
    """An object with operators of its own."""

    def __mul__(self, X):
        return 2 * X if isinstance(X, np.ndarray) else X


class WithHelper(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.helper = Helper()

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, self.helper * DY)


class OfClass(Scale):
    """A counter that is no attribute of the layer."""

    step = staticmethod(itertools.count().__next__)

    def is_wrong(self, X):
        return self.step() > LIMIT


class OfProperty(Scale):
    step = property(functools.partial(lambda numbers, self: next(numbers), itertools.count()))

    def is_wrong(self, X):
        return self.step > LIMIT


class OfInnerClass(Scale):
    class Inner:
        n = 0

    def is_wrong(self, X):
        self.Inner.n += 1
        return self.Inner.n > LIMIT


class Cached(Scale):
    @functools.cached_property
    def seen(self):
        return [0]

    def is_wrong(self, X):
        self.seen[0] += 1
        return self.seen[0] > LIMIT


class FirstBatch(Scale):
    """DX has the difference to the first batch."""

    first = None

    def feedforward(self, X):
        if self.first is None:
            self.first = X
        return super().feedforward(X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, DY)
        self.DX = self.DX + self.X - self.first


class OtherClassSet(Scale):
    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        self.__class__ = (OtherClassSet, WrongClass)[int(np.clip(input_size - LIMIT, 0, 1))]


class WrongClass(OtherClassSet):
    def is_wrong(self, X):
        return True


class Hidden(Scale):
    """DX depends on the batch before."""

    before = None

    def feedforward(self, X):
        self.last, self.before = self.before, X
        return super().feedforward(X)

    def is_wrong(self, X):
        return self.last is not None


CODE = {
    cls.__name__: cls
    for cls in (WithArray, WithFloat, OtherClone, OtherAttributes, OtherSetting, OtherClass, OtherWalk, OtherMethod)
} | {cls.__name__: cls for cls in (InstanceMethod, Patching, WithHelper, Hidden)}
CODE |= {cls.__name__: cls for cls in (OfClass, OfProperty, OfInnerClass, Cached, FirstBatch, OtherClassSet)}


def tricked(name, is_wrong):
    """A layer with a way to decide."""
    return type("Tricked", (Scale,), {"is_wrong": is_wrong, "__doc__": name})


def by_size(question):
    """A way to decide by N and D."""
    return lambda self, X: of_sizes(*X.shape, question)


# -- right layers, and what their proofs are for ----------------------------------------------------


def right(decide):
    """A layer that decides, but computes the same either way."""

    class Right(Scale):
        def backpropagate(self, Y, DY):
            X, s = self.X, self.s
            N, _ = X.shape

            Ds = columns_sum(hadamard(DY, X))
            DX = hadamard(row_repeat(s, N), DY)

            self.Ds, self.DX = Ds, DX if decide(self, X) else 1 * DX

    return Right


def right_setting(value, decide=lambda self, X: True):
    class Right(right(decide)):
        def __init__(self, input_size, output_size, alpha=value):
            super().__init__(input_size, output_size)
            self.alpha = alpha

    return Right


def right_constructor(question):
    class Right(Scale):
        def __init__(self, input_size, output_size):
            super().__init__(input_size, output_size)
            self.is_big = question(input_size)

    return Right


class Raising(Scale):
    def __init__(self, input_size, output_size, alpha=None):
        if input_size < 1 or output_size <= 0:
            raise ValueError(f"expected sizes above 0, found {input_size} and {output_size}")
        if alpha is None:
            alpha = 0.5
        super().__init__(input_size, output_size)
        self.D = input_size
        self.alpha = alpha

    def feedforward(self, X):
        return self.alpha * super().feedforward(X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, self.alpha * DY)


class Helped(Scale):
    """Written with helpers, a decorator, comprehensions, properties and class methods."""

    @property
    def columns(self):
        return self.s.shape[1]

    @staticmethod
    def of(DY, X):
        return columns_sum(hadamard(DY, X))

    @classmethod
    def twice(cls, X):
        return sum([X for _ in range(2)], 0 * X)

    def backpropagate(self, Y, DY):
        (N, _), parts = self.X.shape, {"Ds": self.of(DY, self.X)}
        parts["DX"] = self.twice(functools.reduce(hadamard, (row_repeat(self.s, N), DY))) / 2
        for name, value in parts.items():
            setattr(self, name, value)
        assert type(self).__name__ == "Helped"


class Random(Scale):
    """With random initial weights."""

    def __init__(self, input_size, output_size):
        super().__init__(input_size, output_size)
        rng = np.random.default_rng(3)
        self.s = rng.normal(0, 1 / math.sqrt(input_size), (1, input_size)).astype(np.float32)
        self.scale = 1 / math.sqrt(input_size)

    def feedforward(self, X):
        return self.scale * super().feedforward(X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, self.scale * DY)


class Constants(Scale):
    """With numbers of the module."""

    def feedforward(self, X):
        return TWO * math.pi * super().feedforward(X)

    def backpropagate(self, Y, DY):
        super().backpropagate(Y, TWO * math.pi * DY)


TWO = 2


class Mean(Scale):
    """With numbers that are sizes, and the case N = 1 alone."""

    def feedforward(self, X):
        N, _ = X.shape
        return super().feedforward(X) / max(N, 1) if N > 1 else super().feedforward(X)

    def backpropagate(self, Y, DY):
        N, _ = Y.shape
        super().backpropagate(Y, (1 / N) * DY)


# each with what its proof is for
RIGHT = {
    "nothing": (right(lambda self, X: True), ""),
    "whether a size is 1": (right(lambda self, X: X.shape[0] == 1), ""),
    "whether a size is positive": (right(lambda self, X: X.shape[0] > 0), ""),
    "whether both sizes are 1": (right(lambda self, X: X.shape[0] == 1 and X.shape[1] == 1), ""),
    "an int": (right(lambda self, X: isinstance(X.shape[0], int)), ""),
    "an integral number": (right(lambda self, X: isinstance(X.shape[0], numbers.Integral)), ""),
    "a maximum with 1": (right(lambda self, X: max(X.shape[0], 1) == X.shape[0]), ""),
    "a mean": (Mean, ""),
    "constants": (Constants, "TWO = 2"),
    "helpers": (Helped, ""),
    "random weights": (Random, ""),
    "a constructor that raises": (Raising, ""),
    "the number 1": (right_setting(1.0), ""),
    "the number 1, asked": (right_setting(1.0, lambda self, X: self.alpha != 1), "alpha = 1"),
    "the number 0": (right_setting(0.0), "alpha = 0"),
    "the integer 1": (right_setting(1), "alpha = 1"),
    "a boolean": (right_setting(True), "alpha = True"),
    "none": (right_setting(None), "alpha = None"),
    "a text": (right_setting("mean"), "alpha = 'mean'"),
    "a list": (right_setting([1, 2]), "alpha[0] = 1, alpha[1] = 2"),
    "a dictionary": (right_setting({"n": 1}), "alpha['n'] = 1"),
    "an object": (right_setting(Options()), "alpha = Options, alpha.n = 1"),
    "a function": (right_setting(by_size), "alpha = by_size"),
    "a large size": (right_constructor(lambda D: D > 64), "D ≤ 64, is_big = False"),
    "a size that is even": (right_constructor(lambda D: D % 2 == 0), "(D % 2) ≠ 0, is_big = False"),
    "a size that is 1": (right_constructor(lambda D: D == 1), "is_big = False"),
    "a large array": (right_constructor(lambda D: np.zeros(D).size > 64), "is_big = False"),
    "an attribute of the class": (type("Right", (Scale,), {"alpha": 1, "f": lambda self: None}), "alpha = 1"),
}
