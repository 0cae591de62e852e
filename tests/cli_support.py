"""What the tests of the command line share: running it in this process or in one of its own, and tiny data."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
from click.testing import CliRunner, Result

from matgrad.cli import main
from support import PATIENCE

KEYS = ("Xtrain", "Ttrain", "Xtest", "Ttest")


def command_named(name: str) -> click.Command:
    """`matgrad NAME`."""
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def run(*arguments: object) -> Result:
    """`matgrad ARGUMENTS` in this process."""
    return CliRunner().invoke(main, [str(a) for a in arguments])


def succeed(*arguments: object) -> str:
    """The standard output of `matgrad ARGUMENTS`, which must end with exit status 0."""
    result = run(*arguments)
    assert result.exit_code == 0, f"{arguments}: {result.output}{result.exception!r}"
    return result.stdout


def start(*arguments: object, **options) -> subprocess.Popen:
    """`matgrad ARGUMENTS` in a process of its own."""
    command = [sys.executable, "-m", "matgrad", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **(pipes | options))


def in_process_of_its_own(*arguments: object, **variables: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `matgrad ARGUMENTS`."""
    process = start(*arguments, env=os.environ | variables)
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors


def rows(output: str) -> list[dict[str, str]]:
    """The rows of a run, each by the headings of the table."""
    lines = output.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["epoch", "lr"])
    headings = re.sub(r"(?<=\S) (?=\S)", "_", lines[head]).split()  # columns are two spaces apart
    body = [line.split() for line in lines[head + 1 :] if len(line.split()) == len(headings) and line.strip()[0] != "t"]
    return [dict(zip(headings, row, strict=True)) for row in body]


def last_number(output: str) -> float:
    """The number at the end of the last line."""
    return float(output.splitlines()[-1].split()[-1])


def blobs(N: int = 60, D: int = 4, K: int = 3, seed: int = 0) -> dict[str, np.ndarray]:
    """Data with K classes around K points: N examples for training, N / 2 for testing."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(K, D))
    T = np.arange(N + N // 2) % K
    X = (centres[T] + 0.3 * rng.normal(size=(len(T), D))).astype(np.float32)
    return dict(zip(KEYS, (X[:N], T[:N], X[N:], T[N:]), strict=True))


def save_blobs(path: Path, **options) -> dict[str, np.ndarray]:
    """The data of `blobs`, also in an npz file."""
    data = blobs(**options)
    np.savez(path, **data)
    return data


def write_csv(path: Path, header: list[str], lines: list[list[object]]) -> None:
    """A CSV file, with quotes around every text."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(header)
        writer.writerows(lines)


def plane(N: int = 80) -> list[list[float]]:
    """Lines x, y, 3x - 2y + 1 with a little noise, for a regression."""
    rng = np.random.default_rng(5)
    X = rng.random((N, 2))
    return np.column_stack([X, 3 * X[:, 0] - 2 * X[:, 1] + 1 + 0.01 * rng.normal(size=N)]).tolist()


def arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays in an npz file."""
    with np.load(path) as file:
        return dict(file)


def forward(weights: dict[str, np.ndarray], X: np.ndarray) -> np.ndarray:
    """The output of a model of ReLU layers and a linear one, in plain NumPy."""
    count = sum(name[0] == "W" for name in weights)
    for k in range(1, count + 1):
        X = X @ weights[f"W{k}"].T.astype(np.float64) + weights[f"b{k}"].reshape(1, -1)
        X = np.maximum(X, 0) if k < count else X
    return X
