"""The stand-alone C++ program of `native/examples`: it trains a saved program without Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from baselines.own import model, parameters_in
from harness.problems import Parameters, Setting
from harness.tools import TrainingTool
from matgrad.foundation.machine import cores, threads

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "bench"


class StandAlone(TrainingTool):
    """One run of the program per epoch; it measures its time itself."""

    is_own_process = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.program = build()

    def load(self, X: np.ndarray, t: np.ndarray) -> None:
        from safetensors.numpy import save_file

        folder = Path(tempfile.mkdtemp())  # in that of the team
        self.data, self.saved, self.result = (folder / f"{x}.safetensors" for x in ("data", "program", "result"))
        save_file({"X": np.array(X), "t": t.astype(np.int64)}, self.data)

    def start(self, parameters: Parameters) -> None:
        from matgrad.storage.programs import save_program

        self.initial, M = parameters, model(self.setting, parameters).train()
        save_program(M.program(loss="SoftmaxCrossEntropy", batch_size=self.setting.batch_size), self.saved, M.state())

    def prepare(self) -> None:
        """Nothing: every epoch is a new process."""

    def train(self, batches: int) -> float:
        rate = self.setting.learning_rate
        output = _run(self.program, self.saved, self.data, self.result, "--rate", rate, "--threads", threads())
        found = re.search(r"epoch 1: .* in ([\d.]+) s", output)
        if found is None:
            raise RuntimeError(f"{self.program.name}: expected the time of an epoch, found {output!r}")
        return float(found[1])

    def parameters(self) -> Parameters:
        from safetensors.numpy import load_file

        return parameters_in(load_file(self.result), self.initial)


def build() -> Path:
    """The program, rebuilt if a source has changed; cmake is that of the system, or of this Python."""
    cmake = shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)
    if cmake is None:
        raise RuntimeError("cmake is not installed")
    options = (f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON")  # that is for tests
    _run(cmake, "-S", ROOT / "native", "-B", BUILD, *options)
    _run(cmake, "--build", BUILD, "--target", "train", "--parallel", cores())
    return BUILD / "train"


def _run(*command: object) -> str:
    """The output of a command; if it fails, the last lines of its output are the error."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        last = " | ".join(done.stdout.strip().splitlines()[-5:])
        raise RuntimeError(f"{Path(str(command[0])).name} ended with exit status {done.returncode}: {last}")
    return done.stdout
