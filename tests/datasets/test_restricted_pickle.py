"""The restricted unpickler: real arrays come out as NumPy reads them, and nothing is executed."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
from collections import OrderedDict
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from matgrad.datasets import DataError
from matgrad.datasets.restricted_pickle import restricted_load


class Malicious:
    """An object whose unpickling calls a function."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def load(content: bytes):
    return restricted_load(io.BytesIO(content), "file")


def python2_array(module: str = "numpy.core") -> bytes:
    """The pickle that Python 2 writes of {'data': uint8 array [[1, 2, 3], [4, 5, 250]]}, protocol 2."""
    return (
        b"\x80\x02}q\x01U\x04dataq\x02"
        b"c" + module.encode() + b".multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06\x01\x02\x03\x04\x05\xfatbs."
    )


@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_an_array_of_python_2(module: str):
    (array,) = load(python2_array(module)).values()
    np.testing.assert_array_equal(array, np.array([[1, 2, 3], [4, 5, 250]], np.uint8))


@pytest.mark.parametrize("dtype", ["u1", "i8", ">i4", "f4", ">f8", "b1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_equal_those_of_pickle(protocol: int, order: str, dtype: str):
    A = np.array(np.arange(12).reshape(3, 4) % 5, dtype=dtype, order=order)
    content = {"a": [A, 1, 2.5, "text", b"bytes", None, True, (1, 2)], 3: {"b": -1}}
    loaded = load(pickle.dumps(content, protocol=protocol))

    assert loaded["a"][1:] == content["a"][1:]
    assert loaded[3] == {"b": -1}
    np.testing.assert_array_equal(loaded["a"][0], A)
    assert loaded["a"][0].dtype == A.dtype


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {}",), "(posix|nt).system"),
        (subprocess.check_call, (["touch", "{}"],), "(subprocess|commands).check_call"),
        (eval, ("open({!r}, 'w')",), "(builtins|__builtin__).eval"),
        (open, ("{}", "w"), "(_io|io).open"),
        (getattr, (1, "real"), "(builtins|__builtin__).getattr"),
        (np.save, ("{}", 1), "numpy.save"),
        (np.fromfile, ("{}",), "numpy.*fromfile"),
        (partial, (os.system, "touch {}"), "functools.partial"),
    ],
)
def test_nothing_is_executed(tmp_path: Path, function, arguments, name: str, protocol: int):
    trace = tmp_path / "trace"
    filled = [[f.format(trace) for f in a] if isinstance(a, list) else a.format(trace) if isinstance(a, str) else a
              for a in arguments]  # fmt: skip
    content = pickle.dumps({"data": Malicious(function, *filled)}, protocol=protocol)
    with pytest.raises(DataError, match=rf"file: the pickle asks for {name}, which is refused"):
        load(content)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (OrderedDict(a=1), "asks for collections.OrderedDict"),
        (Fraction(1, 2), "asks for fractions.Fraction"),
        (Path("a"), r"asks for pathlib\.\w+"),
        (np.float64(1), r"asks for numpy\.(_core|core)\.multiarray\.scalar"),
        ({1, 2}, "an operation that is refused; expected arrays"),
        (bytearray(b"12"), "asks for (builtins|__builtin__).bytearray"),
        (1j, "asks for (builtins|__builtin__).complex"),
        (np.array([None, "a"]), "holds an array of dtype |O8, expected integers or floats"),
        (np.array(["a"]), "holds an array of dtype <U1, expected integers or floats"),
        (np.zeros(2, "datetime64[s]"), "holds an array of dtype <M8"),
    ],
)
def test_other_objects_are_refused(value, message: str):
    with pytest.raises(DataError, match=message):
        load(pickle.dumps([value], protocol=4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file: not a pickle, or a damaged one"),
        (b"hello", "file: not a pickle, or a damaged one"),
        (python2_array()[:-10], "file: not a pickle, or a damaged one"),
        (python2_array().replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86"), "cannot reshape"),
        (python2_array().replace(b"U\x02u1", b"U\x02O8"), "dtype |O8"),
        (b"cnumpy\nndarray\n.", "the pickle holds a Ndarray"),
        (b"cnumpy\ndtype\n(S'u1'\ntR.", "the pickle holds a Dtype"),
        (b"cnumpy\nndarray\n}S'a'\nK\x01sb.", "file: not a pickle, or a damaged one"),
        (b"cnumpy\nndarray\n)\x81.", "file: the pickle has an operation that is refused"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b".", "file: the pickle has an operation that is refused"),
        (b"\x82\x01.", "file: the pickle has an operation that is refused"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tS'b'\ntR.", "holds an incomplete array"),
        (b"\x80\x04" + b"]\x94" + b"h\x00a" + b".", "the pickle is nested too deeply"),  # a list in itself
        (b"Pperson\n.", "file: the pickle has an operation that is refused"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".", "file: not a pickle, or a damaged one"),
    ],
)
def test_damaged_pickles_are_refused(content: bytes, message: str):
    with pytest.raises(DataError, match=message):
        load(content)


def test_a_large_number_in_a_damaged_pickle_takes_no_memory():
    assert load(b"\x80\x02]r\xff\xff\xff\xff.") == []  # remembered under the number 2³² - 1


def test_shared_parts_do_not_grow():
    value: list = [1]
    for _ in range(60):
        value = [value, value]
    loaded = load(pickle.dumps(value))
    assert loaded[0] is loaded[1]
