"""The recorder: a matrix type without numbers that records what is done with it.

The code that runs on recorded matrices is the code that trains; the result is a `Program`. Only the
primitives of the table are recorded, because the rest of it is written in terms of them.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self
from weakref import WeakSet

import numpy as np

from matgrad.backends import backend_of, register_matrix_type
from matgrad.backends.base import DTYPES, ELEMENTWISE, Backend, RecordingError
from matgrad.foundation.numbers import as_number
from matgrad.layers.state import SUPPORT, matrices_of, sized_by_supports, supports_of
from matgrad.program.computations import Computation
from matgrad.program.naming import Naming
from matgrad.program.operations import COMPOSED, OPERATIONS, ROWS, STACKS
from matgrad.program.program import EXAMPLES, Program, Value
from matgrad.program.purity import Snapshot, isolated
from matgrad.program.shapes import BoundSize, Shape, Size, size_name
from matgrad.program.text import state_name
from matgrad.sparse.matrix import Operand, SparseMatrix, values_of
from matgrad.sparse.support import Support

Signature = tuple[Shape, str]  # shape and dtype
VIEWS = ("transpose", "row_repeat", "column_repeat", "diag", *STACKS)  # frameworks read from the operand's memory
ON_SUPPORT = ("gather", "scatter", "sparse_product", "sparse_transposed_product", "sampled_product", "dense")
BLOCKS = (*STACKS, "block_product", "block_transposed_product", "diag_product")
# operations with a size that does not follow from their operands, and its name in the shape rule
SIZED = {"row_repeat": "m", "column_repeat": "n", "one_hot_transposed_product": "n"} | dict.fromkeys(BLOCKS, "p")
EXACT = "exact"  # the dtype of matrices that are never bound to numbers
REAL = (*DTYPES, EXACT)


class HiddenStateError(RecordingError):
    """A step changes something other than its state that the next step depends on."""


@dataclass(eq=False)
class Recording:
    """What has been recorded so far."""

    batch: tuple[str, ...] = ()  # the inputs that are not part of the state
    matrix_type: type | None = None  # of the framework whose matrices the recorded ones stand for
    dtypes: Mapping[str, Any] = field(default_factory=dict)  # as it has them
    count: int = 0
    naming: Naming | None = None  # of what is recorded now
    supports: dict[Support, RecordedMatrix] = field(default_factory=dict)
    views: WeakSet[RecordedMatrix] = field(default_factory=WeakSet)  # that are still in use
    error: RecordingError | None = None  # the first attempt to do what a recorded matrix cannot do

    def fail(self, problem: str) -> NoReturn:
        """Raise RecordingError, now and, if the code that records catches it, at the end."""
        error = RecordingError(f"{problem}{_place()}")
        self.error = self.error or error
        raise error

    def append(self, operation: str, operands: tuple[Value, ...], shape: Shape, dtype: str, **details: Any) -> Any:
        """The result of an operation, recorded as the next value."""
        self.count += 1
        value = Value(operation, operands, shape, dtype, order=self.count, **details)
        if self.naming is not None:
            self.naming.add(value)
        return self.matrix(value)

    def matrix(self, value: Value) -> RecordedMatrix:
        """A value as a matrix."""
        return RecordedMatrix(self, value)

    def support(self, S: Support) -> RecordedMatrix:
        """The support of a sparse matrix as a value; one that is not part of the state is fixed in the program."""
        if isinstance(S, RecordedSupport):
            return S.matrix
        if S not in self.supports:
            name = f"S{len(self.supports) + 1}"
            self.supports[S] = self.append("support", (), (*S.shape, S.nnz), "int32", name=name, support=S)
        return self.supports[S]


def _elementwise(operation: str, *, is_reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The operator of two matrices of equal size; a number or a scalar stands for a full matrix."""

    def operator(self: RecordedMatrix, other: Any) -> RecordedMatrix:
        shape = max(self.shape, getattr(other, "shape", ()), key=len)
        X, Y = self._lift(self, shape), self._lift(other, shape)
        return self._record(operation, *((Y, X) if is_reflected else (X, Y)))

    return operator


def _assigning(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator in place."""
    return lambda self, other: self._in_place(operation(self, other))


class RecordedMatrix:
    """A matrix or scalar without numbers; every operator and table operation is recorded."""

    __hash__ = object.__hash__

    def __init__(self, recording: Recording, value: Value) -> None:
        self.recording, self.value = recording, value
        self.base: RecordedMatrix | None = None  # what it is a view of

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The matrix type of the framework, so that `isinstance` answers as it does for its matrices."""
        found = self.recording.matrix_type
        return type(self) if found is None or (found is np.ndarray and not self.shape) else found

    @property
    def shape(self) -> Shape:
        """(m, n), or () for a scalar."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """2, or 0 for a scalar."""
        return len(self.value.shape)

    @property
    def dtype(self) -> Any:
        """The element type, as the framework has it."""
        return self.recording.dtypes.get(self.value.dtype, self.value.dtype)

    @property
    def T(self) -> Self:
        """Xᵀ"""
        return self._record("transpose", self)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else self._no_numbers()

    __add__, __radd__ = _elementwise("add"), _elementwise("add", is_reflected=True)
    __sub__, __rsub__ = _elementwise("subtract"), _elementwise("subtract", is_reflected=True)

    def __neg__(self) -> Self:
        return self._record("negative", self)

    def __mul__(self, other: Any) -> Self:
        other = self._lift(other)
        if self.shape and not other.shape:
            return self._record("scale", other, self)
        if not self.shape and other.shape:
            return self._record("scale", self, other)
        return self._record("hadamard", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self._record("divide", self, self._lift(other))

    def __rtruediv__(self, other: Any) -> Self:
        return self._lift(other) * self._record("reciprocal", self)

    def __pow__(self, exponent: Any) -> Self:
        return self._record("power", self, self._lift(exponent))

    def __matmul__(self, other: Any) -> Self:
        if isinstance(other, Operand):
            return NotImplemented  # it computes its own products
        backend_of(self, other)
        return self._record("matmul", self, other)

    @property
    def _description(self) -> str:
        return f"recorded {self.value.name or self.value.operation} of shape {self.shape}"

    def __repr__(self) -> str:
        return self._description

    def call(self, function: str) -> Self:
        """f(X), for a function of which only the name is known."""
        return self.recording.append("call", (self.value,), self.shape, self.value.dtype, function=function)

    # -- in place -----------------------------------------------------------------------------
    def _in_place(self, result: RecordedMatrix) -> Self:
        """This object with the value of `result`: aliases see the update, as in NumPy and PyTorch."""
        value, views = self.value, self.recording.views
        if value.operation == "input" and value.name in self.recording.batch:
            self.recording.fail(f"{value.name} is changed in place, but it is not part of the state")
        if self.base is not None or any(view.base is self for view in views):
            self.recording.fail(
                f"{self._description} is changed in place, but it is a view or has one, as its transpose"
            )
        if result.shape != self.shape or (self.shape == () and value.operation != "input"):
            self.recording.fail(f"{self._description} cannot be changed in place while a step is recorded")
        self.value = result.value
        return self

    __iadd__, __isub__, __imul__ = map(_assigning, (operator.add, operator.sub, operator.mul))
    __itruediv__, __ipow__, __imatmul__ = map(_assigning, (operator.truediv, operator.pow, operator.matmul))

    # -- what needs numbers -------------------------------------------------------------------
    def _no_numbers(self, *others: Any, **options: Any) -> Any:
        """Raise RecordingError: the operation needs the numbers."""
        problem = f"code cannot depend on the numbers in a matrix while it is recorded: {self._description}"
        self.recording.fail(problem)

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __contains__ = __array__ = _no_numbers
    __getitem__ = __setitem__ = __delitem__ = __round__ = __abs__ = __array_function__ = _no_numbers
    __pos__ = __invert__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rpow__ = _no_numbers
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = __dlpack__ = __array_namespace__ = _no_numbers
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_numbers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol that it does not have
            raise AttributeError(name)
        return self.recording.fail(f"{self._description} has no {name}: expected an operation of the table")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        """NumPy's operators with a NumPy number or array on the left; its other functions raise."""
        if ufunc not in OPERATORS or method != "__call__" or options:
            problem = f"np.{ufunc.__name__} of {self._description}: expected an operation of the table"
            return self.recording.fail(problem)
        left, right = operands
        if isinstance(left, RecordedMatrix):
            return getattr(left, f"__{OPERATORS[ufunc]}__")(right)
        return getattr(right, f"__r{OPERATORS[ufunc]}__")(left)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, operands: Any = (), options: Any = None) -> Any:
        """Raise RecordingError: PyTorch's functions cannot be recorded."""
        X = next(x for x in operands if isinstance(x, RecordedMatrix))
        return X.recording.fail(f"torch.{function.__name__} of {X._description}: expected an operation of the table")

    # -- recording ----------------------------------------------------------------------------
    def _record(self, operation: str, *operands: RecordedMatrix, **sizes: int) -> Self:
        """The result of an operation; `sizes` has the sizes that do not follow from the operands."""
        if any(x.recording is not self.recording for x in operands):
            raise RecordingError("a matrix from an earlier step is used, but it is not part of the state")
        row = ROWS[operation]
        own = self.value.dtype
        dtypes = [x.value.dtype for x in operands if x.value.operation != "support"]
        if row.dtypes != "counts" and any(dtype != own for dtype in dtypes):
            raise RecordingError(f"{operation}: expected one dtype, found {', '.join(dtypes)}")
        if row.dtypes != "any" and own not in REAL:
            raise RecordingError(f"{operation} of {own}: integers can only be added and multiplied")
        shapes = [x.shape for x in operands]
        shape = row.shapes.result(shapes, sizes)
        if shape is None:
            found = ", ".join(" × ".join(map(str, shape)) or "a scalar" for shape in shapes)
            raise RecordingError(f"{operation}: expected shapes {row.rule}, found {found}: nothing broadcasts")
        result = self.recording.append(operation, tuple(x.value for x in operands), shape, own)
        if operation in VIEWS:
            result.base = operands[0]
            self.recording.views.add(result)
        return result

    def _lift(self, x: Any, shape: Shape = ()) -> Self:
        """x itself if it is a recorded matrix; a number or a scalar becomes a full matrix if a shape is given."""
        if not isinstance(x, RecordedMatrix):
            x = as_number(x)
            if isinstance(x, bool) or not isinstance(x, int | float | Size):
                backend_of(self, x)  # raises an error for the matrices of a framework
                raise RecordingError(f"expected a recorded matrix or a number, found {x!r}")
            own = self.value.dtype
            if own not in REAL and not isinstance(x, int):
                raise RecordingError(f"expected an integer to combine with {self} of {own}, found {x}")
            x = self.recording.append("number", (), (), own, number=x)
        return x if shape == () or x.shape else x._record("full", x, m=shape[0], n=shape[1])


class RecordedSupport(Support):
    """A support that is an input of the program, without positions: any support of the same size can be bound."""

    nnz = 0

    def __init__(self, matrix: RecordedMatrix) -> None:
        K, D, self.nnz = matrix.shape
        self.shape, self.matrix = (K, D), matrix

    def is_same(self, other: Any) -> bool:
        """Whether both are the same input."""
        return self is other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.matrix.recording.fail(f"a step cannot depend on the {name} of a support while it is recorded")


def recording_method(operation: str) -> Callable[..., RecordedMatrix]:
    """The method of the backend for an operation on matrices."""
    return lambda self, X, *others: X._record(operation, X, *map(X._lift, others))


def _on_support(operation: str) -> Callable[..., Any]:
    """The method of the backend for an operation on a sparse matrix."""
    return lambda self, S, X, *others: X._record(operation, X.recording.support(S), X, *others)


def _with_size(operation: str, name: str) -> Callable[..., Any]:
    """The method of the backend for an operation on matrices and a size, which comes last."""
    return lambda self, X, *others: X._record(operation, X, *others[:-1], **{name: as_number(others[-1])})


def _composed(operation: str) -> Callable[..., Any]:
    """The method of the backend for a composed operation, the last step of which knows that it is one."""

    def method(self: Backend, X: RecordedMatrix, *others: Any) -> RecordedMatrix:
        result: RecordedMatrix = getattr(Backend, operation)(self, X, *others)
        Y, operands = result.value, (X.value, *(X._lift(x).value for x in others))
        Y.composed = Value(operation, operands, Y.shape, Y.dtype)
        return result

    return method


class RecorderBackend(Backend):
    """The table on recorded matrices; the methods below take more than matrices, the others are generated."""

    name = "recorder"
    has_sparse = True
    _primitives = frozenset((*Backend.__abstractmethods__, *ELEMENTWISE))
    locals().update({name: recording_method(name) for name in _primitives & OPERATIONS.keys()})
    locals().update({name: _with_size(name, size) for name, size in SIZED.items()})
    locals().update({name: _on_support(name) for name in ON_SUPPORT})
    locals().update({name: _composed(name) for name in COMPOSED.keys() - {"call"}})

    def full(self, value: Any, m: Any, n: Any, like: RecordedMatrix) -> Any:
        return like._lift(value, (m, n))

    def identity(self, n: Any, like: RecordedMatrix) -> Any:
        return like._record("identity", n=n)

    def uniform(self, m: Any, n: Any, seed: Any, count: Any, like: RecordedMatrix) -> Any:
        return like._record("uniform", *(like._lift(x) for x in (seed, count)), m=m, n=n)

    def uniform_on(self, S: Any, seed: Any, count: Any, like: RecordedMatrix) -> Any:
        return like._record("uniform_on", like.recording.support(S), *(like._lift(x) for x in (seed, count)))

    def from_numpy(self, A: Any, device: Any = None) -> Any:
        raise RecordingError("the numbers of an array are not recorded: name it in `parameters` or `buffers`")

    def to_numpy(self, X: RecordedMatrix) -> Any:
        return X._no_numbers()

    def take_rows(self, X: RecordedMatrix, indices: Any) -> Any:
        return X._no_numbers()

    def dtype(self, X: RecordedMatrix) -> Any:
        return X.value.dtype

    def scalar(self, value: Any, like: RecordedMatrix) -> Any:
        return like._lift(value)


register_matrix_type(RecordedMatrix, RecorderBackend())  # type: ignore[abstract]

OPERATORS = {np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "truediv"}  # and their methods


def record(
    function: Callable[[Recording, dict[str, RecordedMatrix]], Mapping[str, RecordedMatrix]],
    signatures: Mapping[str, Signature],
    recording: Recording | None = None,
) -> Program:
    """The program that the function runs, from named inputs to named outputs."""
    recording = recording or Recording()
    inputs: dict[str, Any] = {}
    for name, (shape, dtype) in signatures.items():
        is_support = len(shape) == 3
        matrix = recording.append("support" if is_support else "input", (), shape, dtype, name=name)
        inputs[name] = RecordedSupport(matrix) if is_support else matrix
    outputs = function(recording, inputs)
    if recording.error is not None:
        raise recording.error
    if changed := [name for name, x in outputs.items() if isinstance(x, RecordedSupport) and x is not inputs.get(name)]:
        raise RecordingError(f"{', '.join(changed)}: a step cannot change a support while it is recorded")
    return Program(*({name: x.value for name, x in matrices_of(found).items()} for found in (inputs, outputs)))


def record_computation(computation: Computation, state: Mapping[str, Any], *inputs: Any) -> Program:
    """The computation as a program; only the shapes and dtypes of the state and the inputs matter.

    An input that is not given, or None, such as the learning rate, is a scalar with the dtype of X. Code of users is
    recorded twice with the same model: if it depends on anything other than its state and inputs, such as a counter
    that a layer keeps to itself, the second program differs from the first, or attributes have changed (see `purity`).
    With one more element in sparse examples, the program must be the same, as batches differ in how many they have.
    The attributes of the model itself are not changed.
    """
    model, loss = isolated(computation.template, computation.loss)
    computation, before = copy.copy(computation), Snapshot(model, loss)
    computation.loss = loss
    names = computation.names(len(inputs))
    given = dict(zip_longest(names, inputs))
    signatures, grown = _signatures(state, given), _signatures(state, given, more=1)
    X = values_of(inputs[0])
    dtypes = {backend_of(x).dtype(x): x.dtype for x in (*matrices_of(state).values(), X)}

    def recorded(signatures: Mapping[str, Signature]) -> Program:
        return record(run, signatures, Recording(names, type(X), dtypes))

    def run(recording: Recording, matrices: dict[str, Any]) -> dict[str, RecordedMatrix]:
        recording.naming = naming = Naming(model, loss)
        X, *others = (matrices[name] for name in names)
        if EXAMPLES in matrices:
            X = SparseMatrix(matrices[EXAMPLES], X)
        try:
            outputs = computation.run(model, {name: matrices[name] for name in state}, X, *others)
            naming.assign(_value)
        finally:
            naming.clear()
        return outputs

    def gives_the_same(signatures: Mapping[str, Signature]) -> bool:
        """Whether another recording gives the same program."""
        try:
            return listing(recorded(signatures)) == listing(program)
        except (RecordingError, ValueError):  # the latter for sizes that do not fit
            return False

    program, is_same = recorded(signatures), True
    if grown != signatures or not before.is_builtin:
        after = Snapshot(model, loss)
        is_same = gives_the_same(grown)
        is_pure = is_same or (grown != signatures and gives_the_same(signatures))
        changed = (after if is_pure else before).changes(Snapshot(model, loss))
        if changed or not is_pure:
            kept = ", ".join(dict.fromkeys(changed)) or "something"
            raise HiddenStateError(f"a layer keeps {kept} from step to step, which is not in `buffers`")
    if EXAMPLES in signatures:
        sized = [x.operation for x in program.instructions if "nnz(X)" in map(size_name, x.shape)]
        if sized or not is_same:
            found = next(iter(sized), "a number")
            raise RecordingError(f"{found} depends on how many elements a sparse X has; expected products of X alone")
    used = {x.name for x in program.values if x.operation == "input"} | {*program.outputs, *names}
    used_inputs = {name: x for name, x in program.inputs.items() if name in used}
    return Program(used_inputs, program.outputs)


def _signatures(state: Mapping[str, Any], inputs: Mapping[str, Any], more: int = 0) -> dict[str, Signature]:
    """The shape and dtype of everything in the state and of every input, all of one backend.

    The number of examples is named N, and numbers of stored elements are named, such as nnz(W1). Sparse examples have
    so many `more` elements.
    """
    X, matrices, supports = inputs["X"], matrices_of(state), supports_of(state)
    given = {name: values_of(x) for name, x in inputs.items() if hasattr(x, "shape")}
    backend = backend_of(*matrices.values(), *given.values())
    N = BoundSize(X.shape[0], "N")
    nnz = {name: BoundSize(S.nnz, f"nnz({state_name(name.removesuffix(SUPPORT))})") for name, S in supports.items()}
    found: dict[str, Signature] = {name: (tuple(A.shape), backend.dtype(A)) for name, A in matrices.items()}
    found |= {name: ((1, nnz[support]), found[name][1]) for name, support in sized_by_supports(state).items()}
    found |= {name: ((*S.shape, nnz[name]), "int32") for name, S in supports.items()}
    for name, x in inputs.items():
        shape = getattr(x, "shape", ())
        shape = (N if shape[0] == N else shape[0], *shape[1:]) if shape else ()
        found[name] = shape, backend.dtype(given[name if shape else "X"])
    if isinstance(X, SparseMatrix):
        shape, dtype = found["X"]
        elements = BoundSize(max(X.support.nnz, 1) + more, "nnz(X)")  # which differs from batch to batch
        found |= {"X": ((1, elements), dtype), EXAMPLES: ((*shape, elements), "int32")}
    return found


def _value(X: Any) -> Value | None:
    """The recorded value of a matrix, or of the elements of a sparse one; None of anything else."""
    X = values_of(X)
    return X.value if type(X) is RecordedMatrix else None


def check_hidden_state(computation: Computation, state: Mapping[str, Any], *inputs: Any) -> None:
    """Raise HiddenStateError if recording shows that the user's code in the computation keeps state of its own."""
    if Snapshot(computation.template, computation.loss).is_builtin:
        return
    try:
        record_computation(computation, state, *inputs)
    except HiddenStateError:
        raise
    except TypeError:
        pass  # a call of a framework's own functions cannot be recorded; the framework traces it


def listing(program: Program) -> list[tuple[Any, ...]]:
    """The values and outputs in a form in which two recordings can be compared."""
    indices = {value: i for i, value in enumerate(program.values)}
    keys = [value.key(indices.__getitem__) for value in program.values]
    return [*keys, *((name, indices[value]) for name, value in program.outputs.items())]


def _place() -> str:
    """Where the code outside the package is that calls it now: `` in NoiseLayer.feedforward, noise.py, line 7``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("matgrad", "numpy"):
        frame = frame.f_back
    if frame is None:
        return ""
    code, this = frame.f_code, frame.f_locals.get("self")
    name = f"{type(this).__name__}.{code.co_name}" if this is not None else code.co_name
    return f" in {name}, {Path(code.co_filename).name}, line {frame.f_lineno}"
