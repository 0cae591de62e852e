"""What commands write: never over what they read, never to a place where it would be lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from cli_support import arrays, in_process_of_its_own, run, save_blobs, succeed, write_csv
from matgrad.cli import main
from matgrad.cli.commands import Command, Reads, Writes
from support import PATIENCE, open_folder, unprivileged

FAST = ("train", "--load-dataset", "data.npz", "--layers", "Linear", "--epochs", 1, "--quiet")
PLUGIN = '''
import matgrad as mg

class SameActivation(mg.ActivationFunction):
    """x"""
    def __call__(self, X):
        return 1 * X
    def gradient(self, X):
        return mg.ones(*X.shape, like=X)
'''


@pytest.fixture(autouse=True)
def files(folder) -> Path:
    """A model, and everything that a command may read."""
    data = save_blobs(folder / "data.npz")
    lines = [[*x.tolist(), int(t)] for x, t in zip(data["Xtrain"], data["Ttrain"], strict=True)]
    write_csv(folder / "d.csv", [*"abcd", "t"], lines)
    for i in range(2):
        (folder / "epochs").mkdir(exist_ok=True)
        np.savez(folder / "epochs" / f"epoch{i}.npz", **data)
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "c.toml").write_text("epochs = 1\n")
    (folder / "sub").mkdir()
    (folder / "linked").symlink_to(folder)
    succeed(*FAST, "--save-weights", "m.npz")
    (folder / "link.npz").symlink_to("m.npz")
    (folder / "link.csv").symlink_to("d.csv")
    return folder


def content(folder: Path) -> dict[str, bytes | str | None]:
    """All files, folders and links below a folder."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refused(folder: Path, *arguments: object) -> str:
    """The error of a command, which must have changed nothing and printed nothing."""
    before = content(folder)
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert content(folder) == before
    return result.stderr.splitlines()[-1]


# -- what is read is not written ---------------------------------------------------------------

OVERLAPS = {
    "predict m.npz m.npz": "MODEL m.npz",
    "predict m.npz link.npz": "MODEL m.npz",
    "predict m.npz sub/../m.npz": "MODEL m.npz",
    "predict m.npz linked/m.npz": "MODEL m.npz",
    "train --table d.csv --save-weights d.csv": "--table d.csv",
    "train --preprocessed epochs --save-dataset epochs/epoch1.npz": "--preprocessed epochs",
    "train --plugin mine.py --save-weights mine.py": "--plugin mine.py",
    "train --config c.toml --save-weights c.toml": "--config c.toml",
    "program --load-weights m.npz --save m.npz": "--load-weights m.npz",
    "verify --plugin mine.py --latex mine.py": "--plugin mine.py",
}


@pytest.mark.parametrize("command", OVERLAPS)
def test_a_file_that_is_read_is_not_written(folder, command):
    message = refused(folder, *command.split())
    assert message.endswith(f": the same file as {OVERLAPS[command]}, which is read; expected another one")


def test_the_files_of_an_mnist_folder_are_read(folder):
    (folder / "mnist").mkdir()
    file = folder / "mnist" / "train-images-idx3-ubyte.gz"
    file.write_bytes(b"images")
    assert "the same file as --mnist mnist, which is read" in refused(
        folder, "train", "--mnist", "mnist", "--save-weights", file
    )


def test_other_files_of_a_folder_that_is_read_may_be_written(folder):
    options = ("--preprocessed", "epochs", "--layers", "Linear", "--epochs", 2, "--save-weights", "epochs/m.npz")
    for _ in range(2):
        succeed("train", *options)
    assert "W1" in arrays(folder / "epochs" / "m.npz")


def test_a_configuration_takes_part(folder):
    (folder / "c.toml").write_text('load-dataset = "data.npz"\nsave-weights = "sub/../data.npz"\n')
    assert "the same file as --load-dataset data.npz, which is read" in refused(folder, "train", "--config", "c.toml")


# -- two outputs are two files -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("--save-weights same.npz", "--save-dataset same.npz"),
        ("--save-weights same.npz", "--save-dataset sub/../same.npz"),
        ("--save-weights same.npz", "--save-dataset linked/same.npz"),
        ("--save-weights link.npz", "--save-dataset m.npz"),
        ("--output sub", "--save-weights sub/model.npz"),
        ("--output sub", "--save-dataset sub/run.json"),
        ("--output new", "--save-weights new"),
    ],
)
def test_two_outputs_that_are_one_file_are_refused(folder, first, second):
    for options in (f"{first} {second}", f"{second} {first}"):
        message = refused(folder, *FAST, *options.split())
        assert "the same file as" in message
        assert first.split()[0] in message
        assert second.split()[0] in message


# -- places where nothing can be written -------------------------------------------------------


def test_a_folder_in_place_of_the_model_is_noticed_in_time(folder):
    (folder / "run1" / "model.npz").mkdir(parents=True)
    message = refused(folder, *FAST, "--output", "run1", "--overwrite")
    assert message.endswith("--output run1: model.npz: cannot be written (expected a file, found a folder)")


def test_names_that_are_not_unicode_work(folder):
    """In a process of its own, whose output is strict about Unicode."""
    strict = {"PYTHONIOENCODING": "utf-8:strict"}
    name = os.fsdecode(b"r\xff")
    os.rename(folder / "data.npz", folder / f"{name}.npz")
    data = ("--load-dataset", f"{name}.npz")
    more = ("--layers", "Linear", "--epochs", 1, "--save-weights", f"{name}1.npz", "--save-dataset", f"{name}2.npz")
    status, _, errors = in_process_of_its_own("train", *data, "--output", name, *more, **strict)
    assert status == 0, errors
    model = arrays(folder / name / "model.npz")
    np.testing.assert_array_equal(model["W1"], arrays(folder / f"{name}1.npz")["W1"])
    status, _, errors = in_process_of_its_own(
        "train", "--config", f"{name}/run.json", *data, "--output", "again", **strict
    )
    assert status == 0, errors
    np.testing.assert_array_equal(model["W1"], arrays(folder / "again" / "model.npz")["W1"])
    for words in (("evaluate", f"{name}1.npz", *data), ("predict", f"{name}1.npz", f"{name}.csv", *data)):
        status, _, errors = in_process_of_its_own(*words, **strict)
        assert status == 0, errors
    assert (folder / f"{name}.csv").exists()


def test_places_without_permission_are_refused(monkeypatch):
    with open_folder() as folder:
        monkeypatch.chdir(folder)
        save_blobs(folder / "data.npz")
        (folder / "closed").mkdir(mode=0o755)
        if os.geteuid() != 0:
            (folder / "closed").chmod(0o555)
        with unprivileged():
            (folder / "protected.npz").touch(mode=0o444)
            for name in ("closed/m.npz", "protected.npz"):
                assert f"--save-weights {name}: cannot be written" in refused(folder, *FAST, "--save-weights", name)
            assert "--output closed/run: cannot be written" in refused(folder, *FAST, "--output", "closed/run")
            assert "--output closed: " in refused(folder, *FAST, "--output", "closed")


# -- what is there already ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.json", "model.npz"])
def test_a_folder_with_a_run_is_overwritten_only_if_told(folder, name):
    (folder / "run1").mkdir()
    (folder / "run1" / name).write_text("an older run")
    message = refused(folder, *FAST, "--output", "run1")
    assert message.endswith(f"--output run1: has {name} already; expected another folder, --overwrite or --resume")
    succeed(*FAST, "--output", "run1", "--overwrite")
    assert "W1" in arrays(folder / "run1" / "model.npz")


# -- a place that is lost meanwhile ------------------------------------------------------------

LATER = """
import os, pathlib, shutil
import matgrad as mg

class LateLayer(mg.LinearLayer):
    \"\"\"A linear layer; when it has trained for an epoch, something happens to the files.\"\"\"
    def end_epoch(self):
        super().end_epoch()
        if pathlib.Path("run1").is_dir():
            shutil.rmtree("run1")
            pathlib.Path("run1").touch()
        if not pathlib.Path("w.npz").exists():
            os.mkdir("w.npz")
"""


def test_a_model_that_cannot_be_written_at_the_end_is_rescued(folder):
    (folder / "later.py").write_text(LATER)
    (folder / "run1").mkdir()
    options = ("--plugin", "later.py", "--layers", "Late", "--save-weights", "w.npz", "--output", "run1")
    result = run(*FAST, *options)

    assert result.exit_code == 2
    assert result.stdout.startswith("test accuracy"), "the results are shown"
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: w.npz: cannot be written (expected a file, found a folder); it is in ")
    names = re.findall(r"it is in (\S+?)(?:;|$)", error)
    assert [name.rpartition(".")[2] for name in names] == ["npz", "npz", "json"]
    models = [arrays(name) for name in names[:2]]
    assert models[0].keys() == models[1].keys() >= {"W1", "b1", "matgrad"}
    succeed("evaluate", names[1], "--load-dataset", "data.npz", "--plugin", "later.py")
    assert '"results"' in Path(names[2]).read_text()


# -- all commands ------------------------------------------------------------------------------


def commands(group: click.Group = main, name: str = "matgrad") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for command in group.commands.values():
        title = f"{name} {command.name}"
        found |= commands(command, title) if isinstance(command, click.Group) else {title: command}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_says_what_it_reads_and_writes(name):
    """A path is one of the types that `Command` checks."""
    command = commands()[name]
    assert isinstance(command, Command)
    for parameter in command.params:
        is_path = isinstance(parameter.type, click.Path | click.File)
        assert not is_path or isinstance(parameter.type, Reads | Writes) or name == "matgrad data get", parameter.name
        if parameter.metavar in ("FILE", "DIR", "PATH", "MODEL"):
            assert is_path, parameter.name


def test_a_killed_run_leaves_the_old_model(folder):
    succeed(*FAST, "--save-weights", "k.npz")
    before = (folder / "k.npz").read_bytes()
    code = "import os; os.fsync = lambda file: os.kill(os.getpid(), 9); from matgrad.cli import main; main()"
    words = [str(word) for word in (*FAST, "--seed", 1, "--save-weights", "k.npz")]
    subprocess.run([sys.executable, "-c", code, *words], timeout=PATIENCE)
    assert (folder / "k.npz").read_bytes() == before
