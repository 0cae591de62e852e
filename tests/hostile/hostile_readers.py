"""All readers of the package, each with a small file that it reads."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py  # noqa: F401 (which starts a process when it is first imported)
import numpy as np
from hostile_mutants import (
    Inside,
    in_checkpoint,
    in_gzip,
    in_json,
    in_json_lines,
    in_keras,
    in_npz,
    in_onnx,
    in_safetensors,
    with_odd_tokens,
)

import matgrad as mg
from matgrad import datasets, exchange
from matgrad.callbacks import Callback, Checkpoints
from matgrad.callbacks.report import Log
from matgrad.cli.inspect import inspect
from matgrad.cli.run import TrainingRun
from matgrad.cli.train import train
from matgrad.datasets.features import Column, Features
from matgrad.loss_functions import default_loss
from matgrad.runs.records import compare, read_run, sorted_by
from matgrad.runs.records import table as table_of_runs
from matgrad.specifications.models import create_model, set_optimizers
from matgrad.storage.models import load_supports
from matgrad.storage.programs import load_program, save_program
from matgrad.training import Training

BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARY = tuple(f"{name}.bin" for name in BATCHES)
RNG = np.random.default_rng(0)


Case = tuple[str, bytes | Callable[[], bytes], str | None]  # a title, a hostile file, and a message or None


@dataclass
class Reader:
    """How a file is called, what is in a good one, how it is read, and what changes the inside of its format.

    Reading a hostile file may raise a ValueError or an error of click, with a message, and nothing else; where training
    goes on with it, that may diverge with FloatingPointError.
    """

    name: str
    good: Callable[[], bytes]
    read: Callable[[Path], Any]
    inside: Inside | None = None


# -- good files -----------------------------------------------------------------------------------


def npz(save: Callable = np.savez, **changes: Any) -> bytes:
    arrays = {"Xtrain": np.eye(4), "Ttrain": np.arange(4), "Xtest": np.eye(4), "Ttest": np.arange(4)} | changes
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def content_of(write: Callable[[Path], None]) -> bytes:
    """What a function writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        write(path := Path(folder) / "file")
        return path.read_bytes()


@cache
def model(layers: str = "ReLU;BatchNormalization;SReLU(shared=True);Linear", sizes: str = "3;4;4;2", **more) -> bytes:
    M = create_model(layers, sizes, **more)
    M.features = Features((Column(0, "a"), Column(1, "b", ("x", "y"), "x")), 3, Column(2, "t"), "median")
    M.normalization = datasets.Normalization.of("standard", RNG.normal(size=(5, 3)))
    information = {"loss": "SoftmaxCrossEntropy", "classes": 2, "class_names": ["no", "yes"], "data": "table"}
    return content_of(lambda path: M.save(path, information=information))


def save_masks(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, W1=np.eye(4, 3, dtype=bool), W2=np.eye(2, 4))


@cache
def program() -> bytes:
    M = create_model("ReLU;Linear", "3;4;2", densities="0.5;1")
    M.information = {"classes": 2}
    return content_of(lambda path: save_program(M.program(batch_size=5), path, M))


def table() -> bytes:
    return ("x,y,class\n" + "".join(f'{i},{i / 7:.3f},"{"ab"[i % 2]}"\n' for i in range(20))).encode()


def idx(shape: tuple[int, ...] = (2, 2, 2)) -> bytes:
    return struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + bytes(int(np.prod(shape)))


def tar(content: bytes = bytes(3073), names: tuple[str, ...] = BINARY) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


CONFIGURATION = {
    "layers": "ReLU;Linear", "layer-sizes": [64, 8, 10], "epochs": 3, "learning-rate": 0.1, "optimizers": "Adam(0.9)",
    "quiet": True, "dropouts": "0.1;0", "seed": 7, "clip": 2.5, "validation": 0.2, "normalize": "unit",
}  # fmt: skip


def toml() -> bytes:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in CONFIGURATION.items()).encode()


def yaml() -> bytes:
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in CONFIGURATION.items()).encode()


def svmlight() -> bytes:
    return "".join(f"{i % 2} 1:{i / 7:.3f} {2 + i % 5}:1 # {i}\n" for i in range(20)).encode()


@cache
def record() -> bytes:
    """The record of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--epochs", "2", "--densities", "0.2", "--validation", "0.2", "--quiet", "--output", folder]
        train.main(arguments, standalone_mode=False)
        return Path(folder, "run.json").read_bytes()


@cache
def resumable() -> bytes:
    """A checkpoint of a command."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--layers", "ReLU;Linear", "--layer-sizes", "64;5;10", "--densities", "0.2;1", "--epochs", "1"]
        more = ["--sparse-training", "SET(0.3; 5)", "--validation", "0.2", "--early-stopping", "3"]
        train.main([*arguments, *more, "--quiet", "--checkpoint", f"{folder}, every=10s"], standalone_mode=False)
        return Path(folder, "step-00000010.safetensors").read_bytes()


def log(ending: str) -> bytes:
    """The log of the same run."""
    rows = json.loads(record())["epochs"]
    return Log(f"log{ending}")._content(rows, is_whole=True)


# -- reading --------------------------------------------------------------------------------------


def options_of(arguments: list[str]) -> TrainingRun:
    """A run with these options, up to where training would start."""
    with train.make_context("train", arguments) as context, suppress(_Started):
        run = TrainingRun(context.params)
        run.fit([_Start()])
    return run


class _Started(Exception):
    """Training is about to start."""


class _Start(Callback):
    """Ends a run when its training starts."""

    def start(self, run: Training) -> None:
        raise _Started


def read_configuration(path: Path) -> Any:
    """A run with the options in a configuration file."""
    return options_of(["--config", str(path)])


def read_resumed(path: Path) -> Any:
    """The run that a command goes on with, for an epoch."""
    with train.make_context("train", ["--resume", str(path)]) as context:
        run = TrainingRun(context.params)
        run.options["epochs"] = run.resumed.run.epoch + 1
        run.fit([] if run.topology is None else [run.topology])


def read_mnist(path: Path) -> Any:
    """A data set whose training images are in the file."""
    for name, shape in (("train-labels-idx1", (2,)), ("t10k-images-idx3", (2, 2, 2)), ("t10k-labels-idx1", (2,))):
        (path.parent / f"{name}-ubyte").write_bytes(idx(shape))
    return datasets.mnist(path.parent)


def read_cifar(path: Path) -> Any:
    """A data set whose last batch is in the file."""
    for name in BATCHES[:-1]:
        (path.parent / f"{name}{path.suffix}").write_bytes(bytes(3073))
    return datasets.cifar10(path.parent)


def read_model(path: Path) -> Any:
    """A model, used once; also what `inspect` and `load_weights` make of it."""
    inspect.main([str(path)], standalone_mode=False)
    M = mg.load(path)
    assert default_loss(M) is not None
    M.predict(np.ones((2, M.layers[0].input_size)))
    return M


def read_program(path: Path) -> Any:
    """The program and the model in a file."""
    return load_program(path), mg.load(path)


def read_a_run(path: Path) -> Any:
    """A run, in a table and with its lines in a picture."""
    run = read_run(path)
    rows = compare([run], path.parent, ())
    for measure in ("loss", "accuracy", "learning_rate", "seconds"):
        run.values(measure)
    return table_of_runs(sorted_by("accuracy", rows)).text()


def resumed_run(**options: Any) -> mg.MultilayerPerceptron:
    """A model after a short run with all that keeps a state, or after the rest of it."""
    X, T = np.eye(12, 3, dtype=np.float32), np.arange(12) % 2
    mg.manual_seed(1)
    M = create_model("ReLU;BatchNormalization;Linear", "3;4;2", densities="0.5;1")
    set_optimizers(M, "Adam")
    callbacks = [mg.RigL(0.3, every=2), *options.pop("callbacks", ())]
    M.fit(X, T, batch_size=4, seed=1, validation=0.25, early_stopping=3, callbacks=callbacks, **options)
    return M


@cache
def checkpoint() -> bytes:
    """One in the middle of the second epoch."""
    with tempfile.TemporaryDirectory() as folder:
        resumed_run(epochs=2, callbacks=[Checkpoints(folder, "1s", keep=10)])
        return Path(folder, "step-00000004.safetensors").read_bytes()


def read_a_checkpoint(path: Path) -> Any:
    """A model that goes on from a checkpoint, and the model in it."""
    return resumed_run(epochs=3, resume=path), mg.load(path)


def save_exchanged(write: Callable[..., None], path: Path, **options: Any) -> None:
    """Write a model to a file of another tool."""
    M = mg.create_model("ReLU;BatchNormalization;SiLU;Softmax", "3;4;4;2", densities="0.5;1;1")
    M.normalization = datasets.Normalization.of("standard", np.random.default_rng(0).normal(size=(5, 3)))
    M.information = {"loss": "NegativeLogLikelihood", "classes": 2, "class_names": ["no", "yes"]}
    write(M, path, **options)


def read_exchanged(read: Callable[[Path], mg.MultilayerPerceptron]) -> Callable[[Path], Any]:
    """A reader of another tool's model, which is used once."""
    return lambda path: (M := read(path)).predict(np.ones((2, M.layers[0].input_size)))


@cache
def exchanged(write: Callable[..., None], **options: Any) -> bytes:
    return content_of(lambda path: save_exchanged(write, path, **options))


READERS = {
    "npz": Reader("data.npz", npz, datasets.npz, in_npz),
    "model": Reader("model.npz", model, read_model, in_npz),
    "sparse model": Reader("model.npz", lambda: model("ReLU;Linear", "3;6;2", densities="0.5;0.9"), read_model, in_npz),
    "supports": Reader("supports.npz", lambda: content_of(save_masks), load_supports, in_npz),
    "program": Reader("program.safetensors", program, read_program, in_safetensors),
    "checkpoint": Reader("step-00000004.safetensors", checkpoint, read_a_checkpoint, in_checkpoint),
    "checkpoint of a command": Reader("step-00000010.safetensors", resumable, read_resumed, in_checkpoint),
    "onnx": Reader("a.onnx", lambda: exchanged(mg.to_onnx), read_exchanged(mg.from_onnx), in_onnx),
    "keras": Reader("a.keras", lambda: exchanged(exchange.save_keras), read_exchanged(mg.from_keras), in_keras),
    "torch": Reader(
        "a.safetensors", lambda: exchanged(exchange.save_torch), read_exchanged(exchange.load_torch), in_safetensors
    ),
    "csv": Reader("table.csv", table, lambda path: datasets.table(path, categorical="auto", missing="median")),
    "csv.gz": Reader("table.csv.gz", lambda: gzip.compress(table()), datasets.table, in_gzip),
    "svmlight": Reader("a.svm", svmlight, datasets.svmlight),
    "idx": Reader("train-images-idx3-ubyte", idx, read_mnist),
    "idx.gz": Reader("train-images-idx3-ubyte.gz", lambda: gzip.compress(idx()), read_mnist, in_gzip),
    "cifar binary": Reader("test_batch.bin", lambda: bytes(3073), read_cifar),
    "tar": Reader("cifar.tar", tar, datasets.cifar10),
    "tar.gz": Reader("cifar.tar.gz", lambda: gzip.compress(tar()), datasets.cifar10, in_gzip),
    "toml": Reader("c.toml", toml, read_configuration, with_odd_tokens),
    "yaml": Reader("c.yaml", yaml, read_configuration, with_odd_tokens),
    "json": Reader("c.json", lambda: json.dumps(CONFIGURATION).encode(), read_configuration, in_json),
    "record": Reader("run.json", record, read_a_run, in_json),
    "log": Reader("run.jsonl", lambda: log(".jsonl"), read_a_run, in_json_lines),
    "csv log": Reader("run.csv", lambda: log(".csv"), read_a_run, with_odd_tokens),
}
