"""The records of the judges: how many checks each equation passed by SymPy and in numbers, and how many proofs.

The former is docs/verified.json, with a digest of the source, and the latter docs/proved.json. The proofs that Coq has
checked are in docs/certified.json.

matgrad verify --json | python docs/site/verified.py
matgrad verify --coq FOLDER --json | python docs/site/verified.py
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sympy

import matgrad as mg
from matgrad import matrix_operations, softmax_functions
from matgrad.activation_functions import ACTIVATIONS
from matgrad.backends import base, numpy_backend, sympy_backend
from matgrad.judges.suite import ALL_SIZES
from matgrad.loss_functions import LOSSES
from matgrad.optimizers import OPTIMIZERS
from matgrad.specifications.models import LAYERS

RECORD = Path(__file__).parents[1] / "verified.json"
PROOFS = RECORD.with_name("proved.json")
CERTIFICATES = RECORD.with_name("certified.json")
MODULES = (matrix_operations, softmax_functions, base, numpy_backend, sympy_backend)  # which all of them use
LAYER_CLASSES = [*dict.fromkeys((mg.LinearLayer, mg.ActivationLayer, *LAYERS.values()))]
CLASSES = [*LAYER_CLASSES, *ACTIVATIONS.values(), *LOSSES.values(), *OPTIMIZERS.values()]


DESCRIPTIONS = ("specification", "__repr__")  # methods that compute nothing


def sources() -> dict[str, str]:
    """A digest of the code of every class that has equations, and of what they are written in, without comments."""
    parts = {cls.__name__: _bases(cls) for cls in CLASSES}
    parts |= {module.__name__: [module] for module in MODULES}
    return {name: _digest(found) for name, found in parts.items()}


def _bases(cls: type) -> list[type]:
    """The class and its bases; `Layer` and its base have no equations."""
    return [base for base in cls.__mro__ if base.__module__.startswith("matgrad.") and not issubclass(mg.Layer, base)]


def _digest(parts: Sequence[Any]) -> str:
    """Of the code of classes or modules."""
    code = "\n".join(ast.unparse(_computing(ast.parse(inspect.getsource(part)))) for part in parts)
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _computing(tree: ast.Module) -> ast.Module:
    """What computes something in the source of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            node.body = [x for x in body if getattr(x, "name", "") not in DESCRIPTIONS] or [ast.Pass()]
    return tree


def summary(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of SymPy and of numbers: the number of checks, in all and by equation, and of those that failed."""
    judged = [check for check in checks if not check["note"] and check["judge"] != ALL_SIZES]
    return {
        "command": "matgrad verify --json",
        "versions": {"matgrad": mg.__version__, "sympy": sympy.__version__},
        "checks": len(judged),
        "seconds": round(sum(check["seconds"] for check in judged)),
        "wrong": Counter(check["name"] for check in judged if not check["ok"]),
        "equations": Counter(check["name"] for check in judged),
        "sources": sources(),
    }


def proofs(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of the proofs: the number of equations, those not proved, and in how many modes each of them is."""
    judged = [check for check in checks if not check["note"] and check["judge"] == ALL_SIZES]
    return {
        "command": "matgrad verify --json",
        "versions": {"matgrad": mg.__version__},
        "checks": len(judged),
        "not_proved": Counter(check["name"] for check in judged if not check["ok"]),
        "equations": Counter(check["name"] for check in judged),
    }


def certificates(found: dict[str, Any]) -> dict[str, Any]:
    """The record of Coq: how many proofs of each equation it accepts, and why others have no theorem."""
    rows, coq = found["certificates"], subprocess.check_output(["coqc", "-print-version"], text=True)
    return {
        "command": "matgrad verify --coq FOLDER --json",
        "versions": {"matgrad": mg.__version__, "coq": coq.split()[0]},
        "proofs": len(rows),
        "theorems": sum(len(x["theorems"]) for x in rows),
        "accepted": Counter(x["name"] for x in rows if "problem" not in x),
        "not_printed": {x["name"]: x["problem"] for x in rows if "problem" in x},
    }


if __name__ == "__main__":
    found = json.load(sys.stdin)
    if "certificates" in found:
        assert found["accepted"], "Coq has not accepted them"
        records = {CERTIFICATES: certificates(found)}
    else:
        checks = found["checks"]
        records = {PROOFS: proofs(checks), RECORD: summary(checks)}
        records = {path: x for path, x in records.items() if x["checks"]}  # those of --all-sizes are proofs alone
    for path, record in records.items():
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
