"""A restricted unpickler: arrays, bytes, strings, numbers, lists, tuples and dictionaries, and nothing else.

A pickle is a program: it names functions, which the unpickler imports and calls. Here the names
that NumPy arrays need stand for harmless objects of this file, and every other name is refused. Not
even NumPy itself is called before the pickle has been read; the arrays are made from its bytes afterwards.
A key of a dictionary is a string or an integer: to compute the hash of nested tuples can take forever.
"""

from __future__ import annotations

import pickle
import re
import struct
from typing import IO, Any, ClassVar

import numpy as np

from matgrad.datasets.dataset import DataError
from matgrad.foundation.limits import OPERATIONS, check_count

# the dtypes that an array may have: integers, floats and truth values of a fixed size
_DTYPE = re.compile(r"[iuf][1248]|b1")


def restricted_load(file: IO[bytes], where: str) -> Any:
    """The content of a pickle, as long as it is made of arrays, bytes, strings, numbers, lists and dictionaries.

    Strings of Python 2 become bytes. Refused or damaged content gives a DataError that names `where`.
    """
    try:
        return _finished(_RestrictedUnpickler(file, encoding="bytes").load(), {})
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    except RecursionError as error:
        raise DataError(f"{where}: the pickle is nested too deeply") from error
    except _PICKLE_ERRORS as error:
        raise DataError(f"{where}: not a pickle, or a damaged one ({error})") from error


# what damaged content may raise, according to the documentation of pickle and in practice
_PICKLE_ERRORS = (
    pickle.UnpicklingError, AssertionError, AttributeError, EOFError, ImportError, LookupError, MemoryError,
    OverflowError, TypeError, ValueError, struct.error,
)  # fmt: skip


class _Array:
    """The state of a pickled array: shape, dtype, order and bytes."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype:
    """The code of a pickled dtype, such as 'u1', and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any) -> None:
        self.code = _string(code)
        self.order = "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _string(state[1])


class _Ndarray:
    """Stands for numpy.ndarray: an argument of _reconstruct, which ignores it."""

    __slots__ = ()


class _Reconstruct:
    """Stands for numpy's _reconstruct(ndarray, (0,), b'b')."""

    __slots__ = ()

    def __call__(self, subtype: Any, shape: Any, code: Any) -> _Array:
        return _Array()


class _MakeDtype:
    """Stands for numpy.dtype(code, align, copy)."""

    __slots__ = ()

    def __call__(self, code: Any, align: Any = False, copy: Any = False) -> _Dtype:
        return _Dtype(code)


_GLOBALS: dict[str, object] = {
    "numpy.ndarray": _Ndarray(),
    "numpy.dtype": _MakeDtype(),
    "numpy.core.multiarray._reconstruct": _Reconstruct(),
    "numpy._core.multiarray._reconstruct": _Reconstruct(),
}


# objects of registered or other classes, external buffers, memory that is allocated before it is filled, and sets
_REFUSED = (
    pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID,
    pickle.NEXT_BUFFER, pickle.READONLY_BUFFER, pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET,
)  # fmt: skip


def _refuse(unpickler: Any) -> None:
    """Stands for an operation that would make anything but the accepted objects."""
    raise DataError("the pickle has an operation that is refused; expected arrays, lists and dictionaries only")


def _with_string_keys(operation: bytes) -> Any:
    """An operation that adds what is on the stack, keys and values in turn, to a dictionary."""
    load = pickle._Unpickler.dispatch[operation[0]]

    def checked(unpickler: Any) -> None:
        keys = unpickler.stack[-2:-1] if operation == pickle.SETITEM else unpickler.stack[::2]
        if not all(isinstance(key, bytes | str | int) for key in keys):
            raise DataError("the pickle has a dictionary with keys that are neither strings nor integers")
        load(unpickler)

    return checked


def _counted(load: Any) -> Any:
    """An operation that counts: a million of them take seconds."""

    def counted(unpickler: Any) -> None:
        unpickler.count += 1
        check_count(unpickler.count, OPERATIONS, "operations", "or more")
        load(unpickler)

    return counted


# the unpickler written in C would take up to 64 GB for its memo when a damaged pickle names a large number
class _RestrictedUnpickler(pickle._Unpickler):
    """An unpickler that knows only the names in _GLOBALS, and imports nothing."""

    count = 0
    dispatch: ClassVar = {
        **{code: _counted(load) for code, load in pickle._Unpickler.dispatch.items()},
        **{code[0]: _refuse for code in _REFUSED},
        **{code[0]: _with_string_keys(code) for code in (pickle.SETITEM, pickle.SETITEMS, pickle.DICT)},
    }

    def find_class(self, module: str, name: str) -> Any:
        """The harmless object for a name of NumPy."""
        key = f"{module}.{name}"
        if key not in _GLOBALS:
            raise DataError(
                f"the pickle asks for {key}, which is refused; expected arrays, lists and dictionaries only"
            )
        return _GLOBALS[key]


def _finished(value: Any, memo: dict[int, Any]) -> Any:
    """The value with real arrays in place of their states, after a check of the types of everything in it.

    `memo` has what is finished: without it, nested lists that share parts would grow exponentially.
    """
    if value is None or isinstance(value, (bytes, str, int, float)):
        return value
    if id(value) not in memo:
        memo[id(value)] = _finished_part(value, memo)
    return memo[id(value)]


def _finished_part(value: Any, memo: dict[int, Any]) -> Any:
    """The finished array, list, tuple or dictionary."""
    if isinstance(value, _Array):
        return _array(value)
    if isinstance(value, dict):
        return {_finished(key, memo): _finished(item, memo) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finished(item, memo) for item in value)
    raise DataError(f"the pickle holds a {type(value).__name__.lstrip('_')}, expected arrays, lists and dictionaries")


def _array(array: _Array) -> np.ndarray:
    """The NumPy array of a pickled state (version, shape, dtype, column order, bytes)."""
    try:
        _, shape, dtype, by_columns, content = array.state
        code, order = dtype.code, dtype.order
    except (TypeError, ValueError, AttributeError):
        raise DataError("the pickle holds an incomplete array") from None
    if not _DTYPE.fullmatch(code) or order not in ("<", ">", "=", "|"):
        raise DataError(f"the pickle holds an array of dtype {order}{code}, expected integers or floats")
    if not isinstance(content, bytes):
        raise DataError(f"the pickle holds an array made of {type(content).__name__}, expected bytes")
    vector = np.frombuffer(content, np.dtype(code).newbyteorder(order))
    return vector.reshape(shape, order="F" if by_columns else "C")


def _string(code: Any) -> str:
    """A string pickled by Python 2 or 3."""
    if not isinstance(code, bytes | str):
        raise DataError(f"the pickle holds a dtype made of {type(code).__name__}, expected a string")
    return code.decode("latin1") if isinstance(code, bytes) else code
