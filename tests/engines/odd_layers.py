"""Odd code that users may write: twists of a layer, an activation function, an optimizer or a loss.

A twist computes a number c, or changes a matrix A, in a way that only eager execution sees as a matter of course. It
is put in every place where it makes sense, in a module of its own that is made anew for every run.
"""

from __future__ import annotations

import linecache
import random
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

import matgrad as mg

D, H, K, N = 3, 4, 2, 12


@dataclass(frozen=True)
class Twist:
    """Code with the names A (a matrix), c (a number) and self; `between` runs between two epochs, with self."""

    name: str
    code: str  # in the method
    init: str = "pass"  # in __init__
    members: str = "pass"  # of the class
    module: str = ""  # before the class
    between: str = "pass"
    is_pure: bool = False  # whether it must be compiled without a warning
    places: tuple[str, ...] = ("feedforward", "backpropagate", "activation", "optimizer", "loss")


PLACES = {
    "feedforward": """
        class Odd(mg.LinearLayer):
            {members}
            def __init__(self, *sizes):
                super().__init__(*sizes)
                {init}
            def feedforward(self, X):
                A, c = X, 1.0
                {code}
                return super().feedforward(c * A)
        """,
    "backpropagate": """
        class Odd(mg.LinearLayer):
            {members}
            def __init__(self, *sizes):
                super().__init__(*sizes)
                {init}
            def backpropagate(self, Y, DY):
                A, c = DY, 1.0
                {code}
                super().backpropagate(Y, c * A)
        """,
    "activation": """
        class Odd(mg.ActivationFunction):
            {members}
            def __init__(self):
                {init}
            def __call__(self, Z):
                A, c = Z, 1.0
                {code}
                return c * A
            def gradient(self, Z):
                return ones(*Z.shape, like=Z)
        """,
    "optimizer": """
        class Odd(mg.Optimizer):
            {members}
            def __init__(self, x, Dx):
                super().__init__(x, Dx)
                {init}
            def update(self, eta):
                A, c = self.Dx, 1.0
                {code}
                self.x = self.x - eta * (c * A)
        """,
    "loss": """
        class Odd(mg.LossFunction):
            accepts = {{"real"}}
            {members}
            def __init__(self):
                {init}
            def __call__(self, Y, T):
                return elements_sum(hadamard(Y - T, Y - T))
            def gradient(self, Y, T):
                A, c = Y, 1.0
                {code}
                return c * A - T
        """,
}

HEADER = """
import array, collections, contextvars, copy, dataclasses, decimal, enum, fractions, functools, itertools, math, os
import random, sys, threading, time, types, weakref
import numpy as np
import matgrad as mg
from matgrad.matrix_operations import *
"""

_numbers = count()


@dataclass(frozen=True)
class Kind:
    """A twist in a place."""

    twist: Twist
    place: str

    @property
    def name(self) -> str:
        return f"{self.twist.name} in {self.place}"

    def source(self) -> str:
        template = textwrap.dedent(PLACES[self.place])
        parts = {name: getattr(self.twist, name) for name in ("members", "init", "code")}
        for name, text in parts.items():
            place = next(line for line in template.splitlines() if f"{{{name}}}" in line)
            indent = " " * (len(place) - len(place.lstrip()))
            parts[name] = textwrap.indent(textwrap.dedent(text).strip(), indent).lstrip()
        return HEADER + textwrap.dedent(self.twist.module) + template.format(**parts)

    def make(self, engine: str) -> tuple[mg.MultilayerPerceptron, mg.LossFunction, Callable[[], None]]:
        """A model with the odd part in its middle, the loss, and the change between two epochs."""
        name = f"odd_{next(_numbers)}"
        module, source = ModuleType(name), self.source()
        file = f"<{name}>"
        sys.modules[name] = module  # dataclasses look for it there
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), module.__dict__)
        Odd, loss = module.Odd, mg.MeanSquaredErrorLoss()
        middle: Any = mg.LinearLayer(H, H)
        if self.place in ("feedforward", "backpropagate"):
            middle = odd = Odd(H, H)
        elif self.place == "activation":
            odd = Odd()
            middle = mg.ActivationLayer(H, H, odd)
        M = mg.MultilayerPerceptron([mg.ActivationLayer(D, H, "HyperbolicTangent"), middle, mg.LinearLayer(H, K)])
        M.set_optimizer("GradientDescent")
        M.to(engine, dtype="float64")
        if self.place == "optimizer":
            odd = Odd(middle.W, None)
            middle.optimizer = odd
        elif self.place == "loss":
            odd = loss = Odd()
        else:
            odd = M.layers[1] if self.place != "activation" else M.layers[1].act
        between = compile(textwrap.dedent(self.twist.between), file, "exec")
        return M, loss, lambda: exec(between, module.__dict__, {"self": odd})


def setting(name: str, first: str, second: str, read: str = "float(self.v)", **details: Any) -> Twist:
    """A value that is changed between two epochs by assigning another one."""
    return Twist(f"{name} assigned", f"c = {read}", f"self.v = {first}", between=f"self.v = {second}", **details)


def mutated(name: str, first: str, change: str, read: str, **details: Any) -> Twist:
    """A value that is changed between two epochs in place."""
    return Twist(f"{name} changed", f"c = {read}", f"self.v = {first}", between=change, **details)


SETTINGS = [
    setting("float", "0.5", "0.8", "self.v", is_pure=True),
    setting("int", "1", "2", "self.v", is_pure=True),
    setting("bool", "True", "False", "2.0 if self.v else 0.5", is_pure=True),
    setting("str", "'0.5'", "'0.8'", is_pure=True),
    setting("bytes", "b'0.5'", "b'0.8'", is_pure=True),
    setting("np.float64", "np.float64(0.5)", "np.float64(0.8)", "self.v", is_pure=True),
    setting("np.float32", "np.float32(0.5)", "np.float32(0.25)", is_pure=True),
    setting("np.int64", "np.int64(1)", "np.int64(2)", is_pure=True),
    setting("np.bool_", "np.bool_(True)", "np.bool_(False)", "2.0 if self.v else 0.5", is_pure=True),
    setting("0-d array", "np.array(0.5)", "np.array(0.8)", is_pure=True),
    setting("array", "np.array([[0.5]])", "np.array([[0.8]])", "float(self.v[0, 0])", is_pure=True),
    setting("Fraction", "fractions.Fraction(1, 2)", "fractions.Fraction(3, 4)", is_pure=True),
    setting("Decimal", "decimal.Decimal('0.5')", "decimal.Decimal('0.8')", is_pure=True),
    setting("complex", "0.5 + 1j", "0.8 + 1j", "self.v.real", is_pure=True),
    setting("tuple", "(0.5, 1)", "(0.8, 1)", "self.v[0]", is_pure=True),
    setting("None", "None", "0.8", "0.5 if self.v is None else self.v", is_pure=True),
    setting("range", "range(1)", "range(2)", "len(self.v)", is_pure=True),
    setting("frozenset", "frozenset([1])", "frozenset([1, 2])", "len(self.v)", is_pure=True),
    setting("function", "lambda: 0.5", "lambda: 0.8", "self.v()", is_pure=True),
    setting("partial", "functools.partial(max, 0.5)", "functools.partial(max, 0.8)", "self.v(0.1)", is_pure=True),
    setting("math function", "math.sin", "math.cos", "self.v(0.5)", is_pure=True),
    setting("subclass of float", "type('F', (float,), {})(0.5)", "type('F', (float,), {})(0.8)", is_pure=True),
    setting(
        "SimpleNamespace", "types.SimpleNamespace(x=0.5)", "types.SimpleNamespace(x=0.8)", "self.v.x", is_pure=True
    ),
    setting(
        "Enum",
        "Rate.LOW",
        "Rate.HIGH",
        "self.v.value",
        is_pure=True,
        module="class Rate(enum.Enum):\n    LOW = 0.5\n    HIGH = 0.8\n",
    ),
    setting(
        "dataclass",
        "Options(0.5)",
        "Options(0.8)",
        "self.v.x",
        is_pure=True,
        module="@dataclasses.dataclass\nclass Options:\n    x: float\n",
    ),
    setting(
        "frozen dataclass",
        "Options(0.5)",
        "Options(0.8)",
        "self.v.x",
        is_pure=True,
        module="@dataclasses.dataclass(frozen=True)\nclass Options:\n    x: float\n",
    ),
    setting(
        "namedtuple",
        "Options(0.5)",
        "Options(0.8)",
        "self.v.x",
        is_pure=True,
        module="Options = collections.namedtuple('Options', 'x')\n",
    ),
    setting(
        "callable object",
        "Call(0.5)",
        "Call(0.8)",
        "self.v()",
        is_pure=True,
        module="class Call:\n    def __init__(self, x): self.x = x\n    def __call__(self): return self.x\n",
    ),
    setting(
        "object with slots",
        "Slots(0.5)",
        "Slots(0.8)",
        "self.v.x",
        is_pure=True,
        module="class Slots:\n    __slots__ = ('x',)\n    def __init__(self, x): self.x = x\n",
    ),
    setting(
        "objects that compare equal",
        "Equal(0.5)",
        "Equal(0.8)",
        "self.v.x",
        is_pure=True,
        module="class Equal:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return True\n"
        "    __hash__ = None\n",
    ),
    mutated("list", "[0.5]", "self.v[0] = 0.8", "self.v[0]", is_pure=True),
    mutated("list of arrays", "[np.array([0.5])]", "self.v[0][0] = 0.8", "float(self.v[0][0])", is_pure=True),
    mutated("dict", "{'x': 0.5}", "self.v['x'] = 0.8", "self.v['x']", is_pure=True),
    mutated("nested dict", "{'x': [0.5]}", "self.v['x'][0] = 0.8", "self.v['x'][0]", is_pure=True),
    mutated("defaultdict", "collections.defaultdict(float, x=0.5)", "self.v['x'] = 0.8", "self.v['x']", is_pure=True),
    mutated("set", "{1}", "self.v.add(2)", "len(self.v)", is_pure=True),
    mutated("deque", "collections.deque([0.5])", "self.v[0] = 0.8", "self.v[0]", is_pure=True),
    mutated("bytearray", "bytearray(b'1')", "self.v[0] = 50", "float(self.v.decode())", is_pure=True),
    mutated("array in place", "np.array([[0.5]])", "self.v *= 1.5", "float(self.v[0, 0])", is_pure=True),
    mutated("array.array", "array.array('d', [0.5])", "self.v[0] = 0.8", "self.v[0]"),
    mutated("ctypes-like view", "memoryview(bytearray(b'1'))", "self.v[0] = 50", "float(bytes(self.v).decode())"),
    mutated("object's attribute", "types.SimpleNamespace(x=0.5)", "self.v.x = 0.8", "self.v.x", is_pure=True),
    mutated("attribute of a function", "lambda: 1", "self.v.x = 0.8", "getattr(self.v, 'x', 0.5)", is_pure=True),
    Twist(
        "closure",
        "c = self.v()",
        "box = [0.5]\nself.v, self.box = (lambda: box[0]), box",
        between="self.box[0] = 0.8",
        is_pure=True,
    ),
    Twist(
        "nonlocal",
        "c = self.get()",
        """
          x = 0.5
          def get(): return x
          def put(value):
              nonlocal x
              x = value
          self.get, self.put = get, put
          """,
        between="self.put(0.8)",
        is_pure=True,
    ),
    Twist("class attribute", "c = self.rate", members="rate = 0.5", between="type(self).rate = 0.8", is_pure=True),
    Twist(
        "mutable class attribute",
        "c = self.rates[0]",
        members="rates = [0.5]",
        between="self.rates[0] = 0.8",
        is_pure=True,
    ),
    Twist(
        "method replaced in the class",
        "c = self.rate()",
        members="def rate(self): return 0.5",
        between="type(self).rate = lambda self: 0.8",
        is_pure=True,
    ),
    Twist(
        "method replaced in the object",
        "c = self.rate()",
        members="def rate(self): return 0.5",
        between="self.rate = lambda: 0.8",
        is_pure=True,
    ),
    Twist(
        "property",
        "c = self.rate",
        "self._rate = [0.5]",
        members="@property\ndef rate(self): return self._rate[0]",
        between="self._rate[0] = 0.8",
        is_pure=True,
    ),
    Twist(
        "getattr",
        "c = self.rate",
        "self.table = {'rate': 0.5}",
        members="def __getattr__(self, name):\n    if name == 'rate': return self.__dict__['table']['rate']\n"
        "    raise AttributeError(name)",
        between="self.table['rate'] = 0.8",
        is_pure=True,
    ),
    Twist("global number", "c = RATE", module="RATE = 0.5\n", between="global RATE\nRATE = 0.8", is_pure=True),
    Twist("global list", "c = RATES[0]", module="RATES = [0.5]\n", between="RATES[0] = 0.8", is_pure=True),
    Twist(
        "global function",
        "c = rate()",
        module="def rate(): return 0.5\n",
        between="global rate\ndef rate(): return 0.8",
        is_pure=True,
    ),
    Twist(
        "global of a global function",
        "c = rate()",
        module="RATES = [0.5]\ndef rate(): return RATES[0]\n",
        between="RATES[0] = 0.8",
        is_pure=True,
    ),
    Twist(
        "attribute of a module",
        "c = config.rate",
        module="config = types.ModuleType('config')\nconfig.rate = 0.5\n",
        between="config.rate = 0.8",
        is_pure=True,
    ),
    Twist(
        "default argument",
        "c = self.rate()",
        members="def rate(self, x=[0.5]): return x[0]",
        between="self.rate.__defaults__[0][0] = 0.8",
        is_pure=True,
    ),
    Twist(
        "code of a function",
        "c = self.rate()",
        members="def rate(self): return 0.5",
        between="type(self).rate.__code__ = (lambda self: 0.8).__code__",
        is_pure=True,
    ),
    Twist(
        "environment variable",
        "c = float(os.environ.get('ODD', '0.5'))",
        "os.environ.pop('ODD', None)",
        between="os.environ['ODD'] = '0.8'",
        is_pure=True,
    ),
    Twist(
        "contextvar",
        "c = RATE.get()",
        module="RATE = contextvars.ContextVar('rate', default=0.5)\n",
        between="RATE.set(0.8)",
    ),
    Twist(
        "weak reference",
        "c = self.v().x",
        "self.o = Box()\nself.v = weakref.ref(self.o)",
        module="class Box:\n    x = 0.5\n",
        between="self.o.x = 0.8",
    ),
    Twist(
        "memory of a lock",
        "c = 0.8 if self.v.locked() else 0.5",
        "self.v = threading.Lock()",
        between="self.v.acquire(blocking=False)",
    ),
]

# what a step keeps from step to step without saying so
HIDDEN = [
    Twist("counter", "self.n += 1\nc = 1.0 / self.n", "self.n = 0"),
    Twist("counter with a branch", "self.n += 1\nc = 1.0 if self.n < 5 else 2.0", "self.n = 0"),
    Twist("counter in a list", "self.n[0] += 1\nc = 1.0 if self.n[0] < 5 else 2.0", "self.n = [0]"),
    Twist("counter in an array", "self.n += 1\nc = 1.0 if self.n[0] < 5 else 2.0", "self.n = np.zeros(1)"),
    Twist(
        "counter in a dict", "self.n['x'] = self.n.get('x', 0) + 1\nc = 1.0 if self.n['x'] < 5 else 2.0", "self.n = {}"
    ),
    Twist("counter of the class", "type(self).n += 1\nc = 1.0 if self.n < 5 else 2.0", members="n = 0"),
    Twist("counter in a global", "global COUNT\nCOUNT += 1\nc = 1.0 if COUNT < 5 else 2.0", module="COUNT = 0\n"),
    Twist("counter in a global list", "COUNT[0] += 1\nc = 1.0 if COUNT[0] < 5 else 2.0", module="COUNT = [0]\n"),
    Twist(
        "counter in a helper",
        "c = tick()",
        module="COUNT = [0]\ndef tick():\n    COUNT[0] += 1\n    return 1.0 if COUNT[0] < 5 else 2.0\n",
    ),
    Twist(
        "counter in a closure",
        "c = 1.0 if self.tick() < 5 else 2.0",
        """
          n = 0
          def tick():
              nonlocal n
              n += 1
              return n
          self.tick = tick
          """,
    ),
    Twist("counter of itertools", "c = 1.0 if next(self.n) < 5 else 2.0", "self.n = itertools.count()"),
    Twist("cycle", "c = next(self.n)", "self.n = itertools.cycle([0.5, 0.8, 1.5])"),
    Twist("cycle of equal numbers", "c = next(self.n)", "self.n = itertools.cycle([0.5, 0.5, 0.5, 0.5, 0.5, 0.8])"),
    Twist("generator", "c = next(self.n)", "self.n = (1.0 if i < 5 else 2.0 for i in range(1000))"),
    Twist("iterator of a list", "c = next(self.n)", "self.n = iter([0.5] * 5 + [0.8] * 1000)"),
    Twist(
        "iterator class",
        "c = 1.0 if next(self.n) < 5 else 2.0",
        "self.n = Ticks()",
        module="class Ticks:\n    n = 0\n    def __iter__(self): return self\n    def __next__(self):\n"
        "        self.n += 1\n        return self.n\n",
    ),
    Twist("growing list", "self.n.append(1)\nc = 1.0 if len(self.n) < 5 else 2.0", "self.n = []"),
    Twist("growing global set", "SEEN.add(len(SEEN))\nc = 1.0 if len(SEEN) < 5 else 2.0", module="SEEN = set()\n"),
    Twist(
        "growing deque", "self.n.append(1)\nc = 1.0 if len(self.n) < 4 else 2.0", "self.n = collections.deque(maxlen=4)"
    ),
    Twist(
        "counter of a function", "tick.n += 1\nc = 1.0 if tick.n < 5 else 2.0", module="def tick(): pass\ntick.n = 0\n"
    ),
    Twist(
        "counter of a module",
        "config.n += 1\nc = 1.0 if config.n < 5 else 2.0",
        module="config = types.ModuleType('config')\nconfig.n = 0\n",
    ),
    Twist("first step only", "c = 0.5 if not self.__dict__.pop('seen', False) else 1.0\nself.seen = True"),
    Twist("alternating", "self.flag = not self.flag\nc = 0.5 if self.flag else 1.0", "self.flag = False"),
    Twist("alternating every third", "self.n = (self.n + 1) % 3\nc = 0.5 if self.n == 0 else 1.0", "self.n = 0"),
    Twist(
        "matrix of the last step",
        "B = self.last\nself.last = A\nA = A if B is None or B.shape != A.shape else A + 0.1 * B",
        "self.last = None",
    ),
    Twist(
        "sum of matrices",
        "self.total = elements_sum(A) + self.total\nc = 1.0\nA = A + 0.01 * self.total * ones(*A.shape, like=A)",
        "self.total = 0.0",
    ),
    Twist(
        "lru_cache that counts",
        "c = 1.0 if tick(len(SEEN)) < 5 else 2.0",
        module="SEEN = []\n@functools.lru_cache\ndef tick(n):\n    SEEN.append(n)\n    return len(SEEN)\n",
    ),
    Twist("clock", "c = 1.0 + 0 * time.perf_counter()", is_pure=True),
    Twist("memo that stays", "c = self.memo.setdefault(A.shape[0], 0.5)", "self.memo = {}"),
    Twist("size of the last batch", "c = 0.5 if self.n == A.shape[0] else 1.0\nself.n = A.shape[0]", "self.n = 0"),
]

RANDOM = [
    Twist("np.random", "c = np.random.rand()"),
    Twist("np.random branch", "c = 0.5 if np.random.rand() < 0.8 else 1.0"),
    Twist("np.random matrix", "A = A * np.random.rand()"),
    Twist("random", "c = random.random()"),
    Twist("random branch", "c = 0.5 if random.random() < 0.8 else 1.0"),
    Twist("own Generator", "c = self.rng.random()", "self.rng = np.random.default_rng(0)"),
    Twist("own Generator branch", "c = 0.5 if self.rng.random() < 0.8 else 1.0", "self.rng = np.random.default_rng(0)"),
    Twist("own RandomState branch", "c = 0.5 if self.rng.rand() < 0.8 else 1.0", "self.rng = np.random.RandomState(0)"),
    Twist("own Random branch", "c = 0.5 if self.rng.random() < 0.8 else 1.0", "self.rng = random.Random(0)"),
    Twist(
        "Generator of the class",
        "c = 0.5 if self.rng.random() < 0.8 else 1.0",
        members="rng = np.random.default_rng(0)",
    ),
    Twist("global Generator", "c = 0.5 if rng.random() < 0.8 else 1.0", module="rng = np.random.default_rng(0)\n"),
    Twist(
        "Generator in a list",
        "c = 0.5 if self.rngs[0].random() < 0.8 else 1.0",
        "self.rngs = [np.random.default_rng(0)]",
    ),
    Twist(
        "Generator in a closure", "c = 0.5 if self.draw() < 0.8 else 1.0", "self.draw = np.random.default_rng(0).random"
    ),
    Twist("new Generator with a seed", "c = np.random.default_rng(7).random()", is_pure=True),
    Twist("seeded inside", "np.random.seed(3)\nc = np.random.rand()"),
    Twist("choice", "c = random.choice([0.5, 0.5, 0.5, 0.8])"),
    Twist("permutation", "c = float(self.rng.permutation(3)[0] > 0) + 0.5", "self.rng = np.random.default_rng(0)"),
    Twist(
        "spawned Generator",
        "c = 0.5 if self.rng.spawn(1)[0].random() < 0.8 else 1.0",
        "self.rng = np.random.default_rng(0)",
    ),
    Twist("uuid-like", "c = 0.5 if hash(object()) % 1 == 0 else 1.0", is_pure=True),
    Twist("jittered bit generator", "c = 0.5 if self.bits.random_raw() % 5 else 1.0", "self.bits = np.random.PCG64(0)"),
]

LATE = "1.0 if n < 5 else 2.0"  # of a counter that shows only after some steps

# state in unusual places
PLACES_OF_STATE = [
    Twist("lazy attribute", "self.s = self.s or 1 / A.shape[0]\nc = self.s", "self.s = None"),
    Twist("lazy attribute by is", "if self.s is None: self.s = 1 / A.shape[0]\nc = self.s", "self.s = None"),
    Twist("largest so far", "self.s = max(self.s, A.shape[0])\nc = self.s / 10", "self.s = 0"),
    Twist("attribute for the other method", "self.N = A.shape[0]\nc = 1 / self.N", is_pure=True),
    Twist("bound method of a counter", f"n = self.t()\nc = {LATE}", "self.t = itertools.count().__next__"),
    Twist(
        "methods of a list",
        f"self.hit(1)\nn = self.size()\nc = {LATE}",
        "h = []\nself.hit, self.size = h.append, h.__len__",
    ),
    Twist("random by method", "c = 0.5 if self.d() < 0.8 else 1.0", "self.d = random.Random(0).random"),
    Twist(
        "default factory",
        f"n = self.d[len(self.d)]\nc = {LATE}",
        "self.d = collections.defaultdict(itertools.count().__next__)",
    ),
    Twist(
        "subclass of dict",
        f"self.d.n += 1\nn = self.d.n\nc = {LATE}",
        "self.d = Cache()",
        module="class Cache(dict):\n    n = 0\n",
    ),
    Twist(
        "subclass of list",
        f"self.d.n += 1\nn = self.d.n\nc = {LATE}",
        "self.d = Cache()",
        module="class Cache(list):\n    n = 0\n",
    ),
    Twist(
        "subclass of an array",
        f"self.d.n += 1\nn = self.d.n\nc = {LATE}",
        "self.d = np.zeros(2).view(Cache)",
        module="class Cache(np.ndarray):\n    n = 0\n",
    ),
    Twist(
        "subclass of float with state",
        f"self.d.n += 1\nn = self.d.n\nc = {LATE}",
        "self.d = Number(1.0)",
        module="class Number(float):\n    n = 0\n",
    ),
    Twist(
        "order of a dict",
        "k = next(iter(self.d)); c = self.d.pop(k); self.d[k] = c",
        "self.d = dict(enumerate([0.5, 0.5, 0.5, 0.5, 0.8]))",
    ),
    Twist(
        "order of an OrderedDict",
        "k = next(iter(self.d)); c = self.d[k]; self.d.move_to_end(k)",
        "self.d = collections.OrderedDict(enumerate([0.5, 0.5, 0.5, 0.5, 0.8]))",
    ),
    Twist(
        "private slot",
        "c = self.d.tick()",
        "self.d = Slots()",
        module=(
            "class Slots:\n    __slots__ = ('__n',)\n    def __init__(self): self.__n = 0\n"
            f"    def tick(self):\n        self.__n += 1\n        n = self.__n\n        return {LATE}\n"
        ),
    ),
    Twist(
        "object array",
        f"self.d[0][0] += 1\nn = self.d[0][0]\nc = {LATE}",
        "self.d = np.empty(1, object)\nself.d[0] = [0]",
    ),
    Twist(
        "key of a dict",
        f"k = next(iter(self.d))\nk.n += 1\nn = k.n\nc = {LATE}",
        "self.d = {Box(): 1}",
        module="class Box:\n    n = 0\n",
    ),
    Twist(
        "submodule",
        f"pk.sub.n += 1\nn = pk.sub.n\nc = {LATE}",
        module="pk = types.ModuleType('pk')\npk.sub = types.ModuleType('pk.sub')\npk.sub.n = 0\n",
    ),
    Twist(
        "import inside",
        f"import odd_config\nodd_config.n += 1\nn = odd_config.n\nc = {LATE}",
        module="sys.modules['odd_config'] = types.ModuleType('odd_config')\nsys.modules['odd_config'].n = 0\n",
    ),
    Twist(
        "getattr of a module",
        f"setattr(config, 'nn', getattr(config, 'nn') + 1)\nn = config.nn\nc = {LATE}",
        module="config = types.ModuleType('config')\nconfig.nn = 0\n",
    ),
    Twist("globals()", f"globals()['NN'] += 1\nn = NN\nc = {LATE}", module="NN = 0\n"),
    Twist("ctypes", f"self.d.value += 1\nn = self.d.value\nc = {LATE}", "import ctypes\nself.d = ctypes.c_int(0)"),
    Twist(
        "subclass of array.array",
        f"self.d[0] += 1\nn = self.d[0]\nc = {LATE}",
        "self.d = Numbers('d', [0])",
        module="class Numbers(array.array): pass\n",
    ),
    Twist(
        "metaclass",
        f"type(Thing).n += 1\nn = type(Thing).n\nc = {LATE}",
        module="class Me(type):\n    n = 0\nclass Thing(metaclass=Me): pass\n",
    ),
    Twist("attribute with underscores", f"type(self).__n__ += 1\nn = self.__n__\nc = {LATE}", members="__n__ = 0"),
    Twist(
        "cached singleton",
        "c = 0.5 if rng().random() < 0.8 else 1.0",
        module="@functools.cache\ndef rng(): return np.random.default_rng(0)\n",
    ),
    Twist(
        "cached dict",
        f"box()['n'] += 1\nn = box()['n']\nc = {LATE}",
        module="@functools.cache\ndef box(): return {'n': 0}\n",
    ),
    Twist(
        "wrapper that counts",
        "c = factor(1.0)",
        module=(
            "def counted(f):\n    @functools.wraps(np.mean)\n    def g(x):\n        g.n += 1\n        n = g.n\n"
            f"        return {LATE}\n    g.n = 0\n    return g\nfactor = counted(abs)\n"
        ),
    ),
    Twist(
        "list that cannot be cleared",
        "self.d.append(1)\nc = self.rng.random()",
        "self.rng, self.d = np.random.default_rng(0), Log()",
        module="class Log(list):\n    def clear(self): raise RuntimeError('append only')\n",
    ),
    Twist(
        "read-only property",
        "self.d.n += 1\nc = self.rng.random()",
        "self.rng, self.d = np.random.default_rng(0), Box()",
        module="class Box:\n    n = 0\n    def __init__(self): self.__dict__['rate'] = 1\n"
        "    rate = property(lambda self: 2)\n",
    ),
    Twist(
        "read-only array",
        f"self.d.flags.writeable = True\nself.d += 1\nself.d.flags.writeable = False\nn = self.d[0]\nc = {LATE}",
        "self.d = np.zeros(1)\nself.d.flags.writeable = False",
    ),
    Twist(
        "registry by identity", "c = REGISTRY.get(id(self), 1.0)", "REGISTRY[id(self)] = 0.5", module="REGISTRY = {}\n"
    ),
    Twist(
        "intermediate that counts",
        f"self.k = (self.k or 0) + 1\nn = self.k\nc = {LATE}",
        members="intermediates = ('k',)",
        places=("feedforward", "backpropagate"),
    ),
    Twist(
        "own mark of recorded things",
        f"self.d.n += 1\nn = self.d.n\nc = {LATE}",
        "self.d = Box()",
        module="class Box:\n    n = 0\n    is_recorded = True\n",
    ),
    Twist("self-referencing list", "c = 0.5", "self.d = []\nself.d.append(self.d)", is_pure=True),
    Twist(
        "abstract base class",
        "c = self.d.rate()",
        "self.d = Thing()",
        is_pure=True,
        module="import abc\nclass Base(abc.ABC):\n    @abc.abstractmethod\n    def rate(self): ...\n"
        "class Thing(Base):\n    def rate(self): return 0.5\n",
    ),
    Twist(
        "cached property",
        "c = self.d.rate",
        "self.d = Thing()",
        module="class Thing:\n    @functools.cached_property\n    def rate(self): return 0.5\n",
    ),
    Twist(
        "cached function",
        "c = rate(A.shape[1])",
        is_pure=True,
        module="@functools.lru_cache\ndef rate(n): return 1 / n\n",
    ),
    Twist(
        "bound method of its own",
        "c = self.f()",
        "self.f = self.rate",
        members="def rate(self): return 0.5",
        is_pure=True,
    ),
    Twist("lock", "with self.d: c = 0.5", "self.d = threading.RLock()", is_pure=True),
    Twist("plus sign in try", "try: B = +A\nexcept TypeError: c = 2.0"),
    Twist(
        "type guard with numbers",
        "c = 0.5 if type(A).__name__ in ('ndarray', 'Tensor') and self.v else 1.0",
        "self.v = False",
        between="self.v = True",
    ),
]

# looking at what a recorded matrix is
LOOKING = [
    Twist("float in try", "try:\n    c = 0.5 if float(elements_sum(A)) > 0 else 0.8\nexcept TypeError:\n    c = 2.0"),
    Twist("float in bare except", "try:\n    c = 0.5 if float(elements_sum(A)) > 0 else 0.8\nexcept:\n    c = 2.0"),
    Twist("bool in try", "try:\n    c = 0.5 if elements_sum(A) > 0 else 0.8\nexcept Exception:\n    c = 2.0"),
    Twist("item in try", "try:\n    c = 0.5 if A[0, 0] > 0 else 0.8\nexcept Exception:\n    c = 2.0"),
    Twist("iteration in try", "try:\n    c = 0.5 + 0 * len([row for row in A])\nexcept Exception:\n    c = 2.0"),
    Twist("np.asarray in try", "try:\n    c = 0.5 + 0 * np.asarray(A).size\nexcept Exception:\n    c = 2.0"),
    Twist("np.exp in try", "try:\n    np.exp(A)\n    c = 0.5\nexcept Exception:\n    c = 2.0"),
    Twist("np.mean in try", "try:\n    np.mean(A)\n    c = 0.5\nexcept Exception:\n    c = 2.0"),
    Twist("abs in try", "try:\n    abs(A)\n    c = 0.5\nexcept Exception:\n    c = 2.0"),
    Twist("comparison in try", "try:\n    A > 0\n    c = 0.5\nexcept Exception:\n    c = 2.0"),
    Twist("equality", "c = 0.5 if (A == A) is not True else 2.0"),
    Twist(
        "contextlib.suppress",
        "import contextlib\nc = 2.0\nwith contextlib.suppress(Exception):\n    c = 0.5 + 0 * float(elements_sum(A))",
    ),
    Twist("hasattr max", "c = 0.5 if hasattr(A, 'max') else 2.0"),
    Twist("hasattr reshape", "c = 0.5 if hasattr(A, 'reshape') else 2.0"),
    Twist("getattr with default", "c = 2.0 if getattr(A, 'sum', None) is None else 0.5"),
    Twist("max by method", "c = float(A.max() > -100)"),
    Twist("sum by method in try", "try:\n    A.sum()\n    c = 0.5\nexcept AttributeError:\n    c = 2.0"),
    Twist("dtype of NumPy", "c = 0.5 if A.dtype == np.float64 else 2.0"),
    Twist("dtype as a string", "c = 0.5 if str(A.dtype).endswith('float64') else 2.0"),
    Twist("dtype of float32", "c = 0.5 if A.dtype == np.float32 else 2.0"),
    Twist("isinstance ndarray", "c = 0.5 if isinstance(A, np.ndarray) else 2.0"),
    Twist("isinstance then look", "c = 0.5 if isinstance(A, np.ndarray) and A.max() < 0.3 else 2.0"),
    Twist("type is ndarray", "c = 0.5 if type(A) is np.ndarray else 2.0"),
    Twist("name of the type", "c = 0.5 if type(A).__name__ in ('ndarray', 'Tensor') else 2.0"),
    Twist("type of N is int", "c = 0.5 if type(A.shape[0]) is int else 2.0"),
    Twist("name of the type of N", "c = 0.5 if type(A.shape[0]).__name__ == 'int' else 2.0"),
    Twist("repr of N", "c = float(repr(A.shape[0]))/10"),
    Twist("str of N", "c = float(str(A.shape[0]))/10"),
    Twist("N in a branch", "c = 0.5 if A.shape[0] > 3 else 2.0", is_pure=True),
    Twist("N as a number", "c = 1 / A.shape[0]", is_pure=True),
    Twist("N in a string", "c = float(f'{A.shape[0]}') / 10"),
    Twist("len", "c = 1 / len(A)", is_pure=True),
    Twist("ndim", "c = 0.5 if A.ndim == 2 else 2.0", is_pure=True),
    Twist("module of the type", "c = 2.0 if type(A).__module__.startswith('matgrad') else 0.5"),
    Twist("repr of A", "c = 2.0 if 'recorded' in repr(A) else 0.5"),
    Twist("hash of A", "try:\n    hash(A)\n    c = 0.5\nexcept TypeError:\n    c = 0.8"),
    Twist("copy of A", "A = copy.copy(A)"),
    Twist("deepcopy of A", "A = copy.deepcopy(A)"),
    Twist("id of A", "c = 0.5 if id(A) else 2.0", is_pure=True),
    Twist(
        "caller",
        "c = 2.0 if any('recorder' in f for f in files()) else 0.5",
        module="def files():\n    f = sys._getframe()\n    while f:\n"
        "        yield f.f_code.co_filename\n        f = f.f_back\n",
    ),
    Twist("is the backend's", "c = 0.5 if mg.backend_of(A).name in ('numpy', 'torch') else 2.0"),
]

IN_PLACE = [
    Twist("A *= c", "A = 1 * A\nA *= 0.5", is_pure=True),
    Twist("A += A", "A = 1 * A\nA += A", is_pure=True),
    Twist("A -= B", "A = 1 * A\nA -= 0.5 * A", is_pure=True),
    Twist("A /= c", "A = 1 * A\nA /= 2", is_pure=True),
    Twist("A += c", "A = 1 * A\nA += 0.1", is_pure=True),
    Twist("alias in place", "A = 1 * A\nB = A\nB *= 0.5", is_pure=True),
    Twist("alias in a list", "A = 1 * A\nparts = [A, A]\nparts[0] *= 0.5", is_pure=True),
    Twist("alias in a loop", "A = 1 * A\nfor B in (A, A):\n    B *= 0.9", is_pure=True),
    Twist("alias in a helper", "A = 1 * A\nhalve(A)", module="def halve(B):\n    B *= 0.5\n", is_pure=True),
    Twist("input in place", "A *= 0.5"),
    Twist("input plus one in place", "A += 1"),
    Twist("transpose in place", "A = 1 * A\nB = A.T\nB *= 0.5"),
    Twist("transposed twice in place", "A = 1 * A\nB = A.T.T\nB *= 0.5"),
    Twist("in place with a transpose alive", "A = 1 * A\nB = A.T\nA *= 0.5\nA = A + B.T"),
    Twist(
        "in place after a transpose", "A = 1 * A\nG = A.T @ A\nA *= 0.5\nc = 1.0\nA = A + 0.01 * (A @ G)", is_pure=True
    ),
    Twist("element in place", "A = 1 * A\nA[0, 0] = 0.5"),
    Twist("row in place", "A = 1 * A\nA[0] *= 0.5"),
    Twist("all in place", "A = 1 * A\nA[:] = 0.5 * A"),
    Twist("np.multiply out", "A = 1 * A\nnp.multiply(A, 0.5, out=A)"),
    Twist("scalar in place", "s = elements_sum(A)\nt = s\nt += 1\nA = A + 0.01 * s * ones(*A.shape, like=A)"),
    Twist("power in place", "A = 1 * A\nA **= 2"),
    Twist("operator.imul", "import operator\nA = 1 * A\nB = A\noperator.imul(B, 0.5)", is_pure=True),
    Twist("weights in place", "W = self.W\nW *= 0.99", places=("feedforward", "backpropagate")),
    Twist("weights in place by attribute", "self.W *= 0.99", places=("feedforward", "backpropagate")),
    Twist("bias in place", "b = self.b\nb += 0.01", places=("feedforward", "backpropagate")),
    Twist("x in place", "self.x *= 0.99", places=("optimizer",), is_pure=True),
    Twist("alias of x in place", "x = self.x\nx *= 0.99", places=("optimizer",), is_pure=True),
    Twist("Dx in place", "self.Dx *= 0.5", places=("optimizer",)),
    Twist("targets in place", "T *= 0.5", places=("loss",)),
    Twist("T of the loss as alias", "B = T\nB -= 0.5", places=("loss",)),
]

TWISTS = [*SETTINGS, *HIDDEN, *PLACES_OF_STATE, *RANDOM, *LOOKING, *IN_PLACE]


def kinds() -> Iterator[Kind]:
    """Every twist in every place where it makes sense; settings of all kinds in layers, some of them elsewhere."""
    for i, twist in enumerate(TWISTS):
        for j, place in enumerate(twist.places):
            if place == "feedforward" or twist.places[0] != "feedforward" or (i + j) % 3 == 0:
                yield Kind(twist, place)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.normal(size=(N, K))


def train(kind: Kind, engine: str, *, compiled: bool, epochs: int = 2) -> dict[str, Any] | str:
    """The state after training and the output in evaluation mode, or the name of the error."""
    X, T = data()
    for module in (mg.manual_seed, np.random.seed, random.seed):
        module(0)
    M, loss, between = kind.make(engine)
    loader = mg.DataLoader(X, T, 5).to(M.backend.name, dtype="float64")

    class Between(mg.Callback):
        def epoch(self, run: Any) -> None:
            between()

    try:
        mg.stochastic_gradient_descent(
            M, epochs, loss, mg.ConstantScheduler(0.05), loader, compiled=compiled, callbacks=[Between()]
        )
    except Exception as error:
        return type(error).__name__
    return {name: M.backend.to_numpy(A) for name, A in M.state().items()}
