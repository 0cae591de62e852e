"""The stand-alone C++ program of `native/examples`: it trains a saved program without Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import matgrad
from matgrad.bench.tools.training_tool import Parameters, Setting, TrainingTool
from matgrad.foundation.machine import cores, threads

SOURCES = Path(matgrad.__file__).resolve().parents[2] / "native"  # in a checkout; a wheel has none
BUILD = SOURCES.parent / "build" / "bench"
UNUSED = ("Python", "Eigen3")  # packages that only the Python module and the tests need


class StandAlone(TrainingTool):
    """One run of the program per epoch; it measures its time itself."""

    is_own_process = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.program = build()

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        """A file with the examples."""
        from safetensors.numpy import save_file

        self.data = self.folder / "matgrad-cpp-data.safetensors"
        save_file({"X": np.array(X), "t": t.astype(np.int64)}, self.data)

    def start(self, parameters: Parameters) -> None:
        """A file with the recorded step and the state of a new model with these parameters."""
        from matgrad.bench.tools.matgrad_tool import model, recorded, state_of
        from matgrad.storage.programs import save_program

        self.initial = parameters
        M = model(self.setting, parameters).train()
        self.saved, self.result = (self.folder / f"matgrad-cpp-{x}.safetensors" for x in ("program", "result"))
        save_program(recorded(M, self.setting.batch_size), self.saved, M.state() | state_of(parameters))

    def prepare(self) -> None:
        """Nothing: every epoch is a new process."""

    def train(self, batches: int) -> float:
        """Run the program on all of the data; returns the seconds that it reports."""
        files = self.saved, self.data, self.result
        output = _run(self.program, *files, "--rate", self.setting.learning_rate, "--threads", threads())
        found = re.search(r"epoch 1: .* in ([\d.]+) s", output)
        if found is None:
            raise RuntimeError(f"{self.program.name}: expected the time of an epoch, found {output!r}")
        return float(found[1])

    def parameters(self) -> Parameters:
        """The parameters in the file that the program wrote."""
        from safetensors.numpy import load_file

        from matgrad.bench.tools.matgrad_tool import parameters_of

        return parameters_of(load_file(self.result), self.initial)

    def release(self) -> None:
        """Delete the examples."""
        self.data.unlink()


def missing() -> str | None:
    """What is missing to build the program, in words."""
    if not (SOURCES / "examples" / "train.cpp").is_file():
        return f"its sources are not in {SOURCES}; it needs a checkout of matgrad"
    if _cmake() is None:
        return "cmake is not installed"
    return None if _compiler() else "there is no C++ compiler"


def build() -> Path:
    """The program, rebuilt if a source has changed."""
    cmake = _cmake()
    assert cmake is not None
    _run(cmake, "-S", SOURCES, "-B", BUILD, *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in UNUSED))
    _run(cmake, "--build", BUILD, "--target", "train", "--parallel", cores())
    return BUILD / "train"


def _cmake() -> str | None:
    """cmake from the system, or from the folder of this Python."""
    return shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)


def _compiler() -> str | None:
    """A C++ compiler that cmake would find."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def _run(*command: object) -> str:
    """The output of a command; if it fails, the last lines of its output are the error."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,  # which carries the requests to this process
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = " | ".join(done.stdout.strip().splitlines()[-5:])
        raise RuntimeError(f"{Path(str(command[0])).name} ended with exit status {done.returncode}: {last}")
    return done.stdout
