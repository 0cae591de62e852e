"""Kernels, of which references say what they compute: replaced while code runs, and compared where they can run."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np

from matgrad.writers.samples import Samples
from matgrad.writers.texts import shorten
from matgrad.writers.verdicts import Witness

if TYPE_CHECKING:
    from matgrad.index_notation.values import Array
    from matgrad.writers.proof import Proof

References = Mapping[Any, Callable[..., Any]]
TOLERANCE = 1e-5  # relative, as kernels may compute in single precision
LARGE = (130, 65, 33, 17, 9)  # sizes, of which the first is taken with which arguments have at most ENTRIES
ENTRIES = 50_000


class Case(NamedTuple):
    """Sizes for the arguments of code, and what is done to their numbers."""

    name: str
    sizes: dict[str, int]
    change: Callable[[Array], Array] = np.asarray

    def __str__(self) -> str:
        return ", ".join(f"{n} = {x}" for n, x in self.sizes.items()) + f" ({self.name})"


class StandIn:
    """What is called in place of a kernel: kernel(…), kernel[grid](…) or kernel.apply(…)."""

    def __init__(self, kernel: Any, reference: Callable[..., Any], tests: Tests) -> None:
        self.kernel, self.reference, self.tests = kernel, reference, tests
        self.names, self.own_names = names_of(reference), names_of(getattr(kernel, "fn", kernel))

    def computed(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The reference, by the names of its arguments if the kernel has them; it need not have all options."""
        own, names = self.own_names or [], self.names
        if names and {*names} <= {*own}:
            given = {**dict(zip(own, args, strict=False)), **options}
            return self.reference(**{n: given[n] for n in names if n in given})
        return self.reference(*args, **{k: x for k, x in options.items() if names is None or k in names})

    def apply(self, *args: Any, **options: Any) -> Any:
        """kernel.apply(…)"""
        return self.tests.called(self, getattr(self.kernel, "apply", None), args, options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """kernel(…)"""
        return self.tests.called(self, self.kernel, args, options)

    def __getitem__(self, grid: Any) -> StandIn:
        """kernel[grid]"""
        new = copy.copy(self)
        new.kernel = self.kernel[grid] if self.tests.case is not None else None
        return new


def names_of(f: Callable[..., Any]) -> list[str] | None:
    """The names of the parameters of a function; None if they have none, or it does not say."""
    try:
        known = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # as for torch.tanh
        return None
    is_named = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in known)
    return [p.name for p in known] if is_named else None


class Difference(NamedTuple):
    """Where a kernel differs from its reference."""

    case: Case
    where: str
    place: tuple[int, ...]
    kernel: float
    reference: float

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.place))}]" if self.place else ""
        return f"with {self.case}: {self.where}{place} is {self.kernel:.6g}, and {self.reference:.6g} by the reference"

    def witness(self, name: str, arguments: Mapping[str, Any], gs: list[Array]) -> Witness:
        """Values with which anyone can see it."""
        return Witness(self.case.sizes, {**arguments}, gs, name, self.place, self.kernel, self.reference)


class Tests:
    """Calls of a kernel, each compared with its reference, while there is a `case`; otherwise the reference alone."""

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, 0
        self.case: Case | None = None
        self.cases: list[str] = []  # in which it was equal to its reference
        self.failures: dict[str, str] = {}  # by the names of cases
        self.difference: Difference | None = None

    def called(self, own: StandIn, kernel: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The result of the reference, and what both leave in the arguments."""
        if self.case is None:
            return own.computed(args, options)
        real_args, real_options = copy.deepcopy((args, dict(options)))
        expected = own.computed(args, options)
        try:
            result = kernel(*real_args, **real_options)
            found = {**leaves("its result", result), **leaves("argument", real_args), **leaves("", real_options)}
        except Exception as error:
            self.failures.setdefault(self.case.name, shorten(f"{type(error).__name__}: {error}".splitlines()[0], 160))
            return expected
        own_result = None if any(x is expected for x in (*args, *options.values())) else expected
        right = {**leaves("its result", own_result), **leaves("argument", args), **leaves("", options)}
        self.calls += 1
        self.cases += [] if self.case.name in self.cases else [self.case.name]
        self.difference = self.difference or difference(self.case, found, right)
        return expected

    @property
    def lines(self) -> list[str]:
        """What is known of the kernel."""
        tested = f"{self.name}: tested, not proved"
        if self.difference:
            return [f"{self.name} differs from its reference {self.difference}"]
        if not self.calls:
            failure = next((f"it does not run here: {x}" for x in self.failures.values()), "no numbers reach it")
            return [f"{self.name}: neither tested nor proved, as {failure}"]
        equal = (
            f"{tested}: equal to its reference in {self.calls} call{'s' * (self.calls > 1)} ({', '.join(self.cases)})"
        )
        return [equal, *(f"{self.name} fails ({case}): {text}" for case, text in self.failures.items())]


def leaves(what: str, x: Any) -> dict[str, Array]:
    """The arrays in a result or in arguments, by what they are."""
    if isinstance(x, tuple | list | dict):
        pairs = x.items() if isinstance(x, dict) else enumerate(x, 1)
        return {name: leaf for n, part in pairs for name, leaf in leaves(f"{what} {n}".strip(), part).items()}
    if not hasattr(x, "shape"):
        return {}
    x = x.detach().double() if hasattr(x, "detach") else x
    return {what: np.asarray(x, float)}


def difference(case: Case, found: Mapping[str, Array], right: Mapping[str, Array]) -> Difference | None:
    """The first difference, where the reference is a number."""
    for what, y in right.items():
        x = found.get(what, np.empty(0))
        if x.shape != y.shape:
            return Difference(case, f"{what}: the number of entries", (), x.size, y.size)
        with np.errstate(all="ignore"):
            far = np.abs(x - y) > TOLERANCE * (1 + np.abs(y))
        places = np.argwhere((far | np.isnan(x)) & np.isfinite(y))
        if len(places):
            place = tuple(map(int, places[0]))
            return Difference(case, what, place, float(x[place]), float(y[place]))
    return None


@contextlib.contextmanager
def kernels_replaced(functions: Sequence[Callable[..., Any]], references: References) -> Iterator[list[Tests]]:
    """While functions run, the kernels that they call, given by name, as lib.kernel too, or as such, are references."""
    spaces = list({id(s): s for s in (getattr(f, "__globals__", {}) for f in functions)}.values())
    found = []
    with contextlib.ExitStack() as stack:
        for kernel, reference in references.items():
            places = [(s, name) for s in spaces for name, x in s.items() if x is kernel or name == kernel]
            tests = Tests(places[0][1] if places else str(kernel))
            found.append(tests)
            for space, name in places:
                stack.callback(space.__setitem__, name, space[name])  # alone, as Triton puts names of its own there
                space[name] = StandIn(space[name], reference, tests)
            if not places:
                first, *path = str(kernel).split(".")
                owner = next((s[first] for s in spaces if first in s), None)
                if owner is None or not path:
                    raise ValueError(f"a reference of {kernel}: the code has no global variable of this name or value")
                owner = reduce(getattr, path[:-1], owner)
                new = StandIn(getattr(owner, path[-1]), reference, tests)
                stack.enter_context(mock.patch.object(owner, path[-1], new))
        yield found


def apart(x: Array) -> Array:
    """The same numbers, with others between them in memory."""
    return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x


def cases(samples: Samples) -> Iterator[Case]:
    """Sizes and numbers that kernels are run on."""
    usual, names = samples.sizes(0), [n for n in samples.names if n not in samples.fixed]
    labels = {s.kind[1:] for s in samples.proof.specifications.values() if s.kind.startswith("<")}
    yield Case("several sizes", usual)
    yield Case("several sizes", samples.sizes(1))
    yield Case("not contiguous", usual, apart)
    yield Case("ties", usual, np.round)
    yield Case("large numbers", usual, lambda x: 20 * x)
    if names:
        for n in LARGE:
            large = usual | dict.fromkeys(names, n)
            if samples.entries(large) <= ENTRIES:
                yield Case("large", large)
                break
        yield Case("sizes of 1", usual | dict.fromkeys(names, 1))
    for name in names:
        if name not in labels:
            yield Case("empty", usual | {name: 0})


def tested(proof: Proof, kernels: Sequence[Tests]) -> None:
    """Run the code on numbers of many kinds, with each call of a kernel compared with that of its reference."""
    code, samples = proof.code.with_functions(proof.code.functions), Samples(proof)
    for seed, case in enumerate(c for c in cases(samples) if samples.admits(c.sizes)):
        for kernel in kernels:
            kernel.case = case
        arguments, gs = samples.numbers(case.sizes, seed, case.change), list[Any]()
        with np.errstate(all="ignore"), warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            run = code.run(arguments, numeric=True)
            gs += [case.change(g) for g in samples.given(run, seed)]
            run.gradients(gs)
        for kernel in kernels:
            kernel.case = None
            if kernel.difference and proof.verdict.verdict != "refuted":
                proof.verdict.lines.insert(0, kernel.lines[0])
                proof.verdict.witness = kernel.difference.witness(kernel.name, arguments, gs)
                proof.end("refuted")
    proof.verdict.tested += [line for kernel in kernels if not kernel.difference for line in kernel.lines]
