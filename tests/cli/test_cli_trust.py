"""What a stranger's file may say: a record or a checkpoint names no file that is used and no code that is run."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import matgrad as mg
from cli_support import arrays, command_named, in_process_of_its_own, run, save_blobs, succeed
from matgrad.cli.commands import FileType
from matgrad.foundation.files import read_safetensors
from matgrad.storage.checkpoints import DIGEST, checkpoint_files, digest_of, read_checkpoint

FAST = ("train", "--load-dataset", "data.npz", "--layers", "ReLU;Linear", "--epochs", 2, "--quiet")
FILES = [str(p.name) for p in command_named("train").params if isinstance(p.type, FileType)]
TRAP = (
    "from pathlib import Path\nPath('trap.txt').touch()\nimport matgrad as mg\nclass MineLayer(mg.LinearLayer): pass\n"
)
HALF = """
import matgrad as mg

class HalfActivation(mg.ActivationFunction):
    def __call__(self, X):
        return X / 2
    def gradient(self, X):
        return 0 * X + 0.5
"""


_opened: list[str] = []  # the files that were opened, by name


def _audit(event: str, arguments: tuple) -> None:
    if event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def data(folder) -> None:
    save_blobs(folder / "data.npz")


def forged(file: Path, **record: object) -> Path:
    """A checkpoint as a stranger can write it: like another one, but with this in its record, and a digest of that."""
    tensors, header = read_safetensors(file)
    del header[DIGEST]
    content = json.loads(header["checkpoint"])
    content["record"] |= record
    header["checkpoint"] = json.dumps(content)
    path = file.with_name("forged.safetensors")
    save_file(tensors, path, header | {DIGEST: digest_of(header, tensors)})
    return path


def hashes(folder: Path) -> dict[str, str]:
    """The content of all files below a folder."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def traps(folder) -> dict[str, str]:
    """Files of the user that a stranger may want to be run, read or replaced, by the names of options."""
    (folder / "trap.py").write_text(TRAP)
    (folder / "trap.csv").write_text("precious\n")
    for name in ("out", "ck"):
        (folder / name).mkdir()
    (folder / "out" / "model.npz").write_text("precious")
    (folder / "ck" / "step-00000001.safetensors").write_text("precious")
    paths = {"plugin": "trap.py", "output": "out", "pictures": "out", "checkpoint": "ck, keep=1", "resume": "ck"}
    return {name: paths.get(name, "trap.csv") for name in FILES}


@pytest.mark.parametrize("spelling", [str, lambda name: name.replace("_", "-")], ids=["name", "hyphens"])
@pytest.mark.parametrize("source", ["checkpoint", "record"])
@pytest.mark.parametrize("name", FILES)
def test_no_file_that_a_strangers_file_names_is_used(folder, traps, name, source, spelling):
    """Whatever option it is of, and however it is written; --overwrite in the file allows nothing."""
    succeed(*FAST, "--checkpoint", "theirs", "--output", "their_run")
    lies = {spelling(name): traps[name], "overwrite": True}
    if source == "checkpoint":
        file = checkpoint_files(folder / "theirs")[0]
        place = ("--resume", forged(file, configuration=read_checkpoint(file).record["configuration"] | lies))
    else:
        record = json.loads(Path("their_run/run.json").read_text())
        record["configuration"] |= lies
        Path("forged.json").write_text(json.dumps(record))
        place = ("--config", "forged.json")
    before = hashes(folder)
    _opened.clear()
    result = run("train", *place, "--load-dataset", "data.npz", "--quiet")
    assert any("forged" in path for path in _opened)
    assert not [path for path in _opened if "trap" in path or path.startswith(("out", "ck"))]
    assert hashes(folder) == before, result.output
    assert result.exit_code in (0, 2)
    if result.exit_code:
        assert result.output.count("\n") == 1


ODD = (None, True, -1, 1e400, "x", [], [["a"]], {"a": 1}, {"every": [1]}, [{"plugin": 1}], "\x1b[2J")


@pytest.mark.parametrize("key", ["configuration", "settings", "plugins", "sha256", "epochs", "optimizers", "layers"])
def test_odd_values_in_a_strangers_record_end_in_one_line(folder, key):
    succeed(*FAST, "--checkpoint", "ck", "--output", "out")
    (folder / "theirs").mkdir()
    record = json.loads(Path("out/run.json").read_text())
    for value in ODD:
        of_run = key in record["configuration"]
        changes = {"configuration": {**record["configuration"], key: value}} if of_run else {key: value}
        file = forged(checkpoint_files(folder / "ck")[0], **changes)
        file = file.rename(folder / "theirs" / "step-00000000.safetensors")
        Path("forged.json").write_text(json.dumps(record | changes))
        for place in (("--resume", file), ("--resume", file.parent), ("--config", "forged.json")):
            result = run("train", *place, "--load-dataset", "data.npz", "--quiet")
            assert result.exit_code in (0, 2), (place, value, result.output, result.exception)
            assert result.exit_code == 0 or result.stderr.count("Error: ") == 1
            assert all(line.isprintable() for line in result.output.splitlines())


@pytest.mark.parametrize("place", [("--resume", "ck"), ("--config", "out/run.json")])
def test_the_data_of_a_run_are_named_again(place):
    succeed(*FAST, "--checkpoint", "ck", "--output", "out")
    result = run("train", *place)
    assert result.exit_code == 2
    assert "the run had --load-dataset 'data.npz'; name it again" in result.stderr
    assert "test accuracy" in succeed("train", *place, "--load-dataset", "data.npz")


def test_a_run_is_resumed_or_repeated():
    """The plugins and files that one of both needs would not be looked at."""
    succeed(*FAST, "--checkpoint", "ck", "--output", "out")
    for place in (("--resume", "ck", "--config", "out/run.json"), ("--config", "out/run.json", "--resume", "ck")):
        result = run("train", *place, "--load-dataset", "data.npz")
        assert (result.exit_code, "with the record of a run: expected one of them" in result.stderr) == (2, True)


def test_what_is_no_longer_written_is_told():
    succeed(*FAST, "--checkpoint", "ck", "--log", "a.csv", "--save-weights", "m.npz")
    result = run("train", "--resume", "ck", "--load-dataset", "data.npz", "--epochs", 3)
    assert "note: ck/step-00000004.safetensors: the run had --save-weights 'm.npz', which is only" in result.stderr
    assert "--log" in result.stderr


def test_a_name_in_a_file_cannot_command_a_terminal(folder):
    succeed(*FAST, "--checkpoint", "ck")
    evil = "\x1b[2J\u202eevil"
    file = checkpoint_files(folder / "ck")[0]
    for configuration, plugins, options in (
        ({"load_dataset": evil}, [], ()),
        ({}, [{"plugin": evil, "sha256": evil}], ()),
        ({"loss": evil}, [], ("--loss", "MeanSquaredError")),
    ):
        result = run("train", "--resume", forged(file, configuration=configuration, plugins=plugins), *options)
        assert result.exit_code == 2
        assert "evil" in result.output
        assert all(line.isprintable() for line in result.output.splitlines()), result.output


def test_a_configuration_file_of_the_user_may_name_files_of_a_resumed_run(folder):
    succeed(*FAST, "--checkpoint", "ck")
    (folder / "c.toml").write_text('load-dataset = "data.npz"\nsave-weights = "m.npz"\nbatch-size = 60\n')
    assert "--batch-size 60 and --resume ck contradict" in run("train", "--resume", "ck", "--config", "c.toml").stderr
    (folder / "c.toml").write_text('load-dataset = "data.npz"\nsave-weights = "m.npz"\n')
    for place in (("--resume", "ck", "--config", "c.toml"), ("--config", "c.toml", "--resume", "ck")):
        succeed("train", *place)
        assert "W1" in arrays("m.npz")


def test_a_strangers_checkpoint_does_not_empty_a_folder(folder):
    """It says that the user's folder is its own; the oldest checkpoints there would be removed."""

    def fit(seed: int, place: Path, **options: object) -> None:
        mg.manual_seed(seed)
        M = mg.create_model("Linear", "3;2")
        M.fit(np.eye(3), np.arange(3) % 2, epochs=2, callbacks=[mg.Checkpoints(place, keep=1)], **options)

    fit(0, folder / "mine")
    fit(1, folder / "theirs")
    tensors, header = read_safetensors(checkpoint_files(folder / "theirs")[0])
    del header[DIGEST]
    content = json.loads(header["checkpoint"])
    for name, state in content["run"]["callbacks"]:
        if name == "Checkpoints":
            state["folder"] = str(folder / "mine")
    header["checkpoint"] = json.dumps(content)
    save_file(tensors, "forged.safetensors", header | {DIGEST: digest_of(header, tensors)})
    before = hashes(folder / "mine")
    with pytest.raises(ValueError, match=r"mine: has .* of another run"):
        fit(1, folder / "mine", resume="forged.safetensors")
    assert hashes(folder / "mine") == before


@pytest.mark.filterwarnings("default:.*the one before it is used")
@pytest.mark.parametrize("name", ["best.safetensors", "step-00000006.safetensors"])
def test_links_in_a_strangers_folder_name_no_file_to_write(folder, name):
    """A run that resumes from the folder writes there, but not to where its files are links to."""
    succeed(*FAST, "--validation", 0.2, "--checkpoint", "ck")
    (folder / "precious").write_text("precious")
    Path("ck", name).unlink(missing_ok=True)
    Path("ck", name).symlink_to(folder / "precious")
    result = run("train", "--resume", "ck", "--load-dataset", "data.npz", "--epochs", 6)
    assert result.exit_code == 0, result.output
    assert (folder / "precious").read_text() == "precious"


def test_a_link_to_nowhere_is_a_file_that_is_there(folder):
    for name in ("out", "pictures"):
        (folder / name).mkdir()
    (folder / "out" / "model.npz").symlink_to(folder / "new.npz")
    (folder / "pictures" / "inputs.gif").symlink_to(folder / "new.gif")
    for option, name in (("--output", "out"), ("--pictures", "pictures")):
        assert f"{name}: has" in run(*FAST, option, name).stderr
    assert not [name for name in ("new.npz", "new.gif") if (folder / name).exists()]


# -- plugins ---------------------------------------------------------------------------------------


def test_a_resumed_run_needs_its_plugin_and_no_other_version_of_it(folder):
    (folder / "half.py").write_text(HALF)
    digest = hashlib.sha256(HALF.encode()).hexdigest()
    mine = ("--plugin", "half.py", "--layers", "Half;Linear")
    succeed(*FAST, *mine, "--checkpoint", "ck", "--save-weights", "m.npz")
    resume = ("train", "--resume", "ck", "--load-dataset", "data.npz", "--epochs", 3)
    result = run(*resume)
    assert result.exit_code == 2
    assert f"the plugin 'half.py' with the SHA-256 '{digest}'" in result.stderr
    succeed(*resume, "--plugin", "half.py")

    (folder / "half.py").write_text(HALF.replace("X / 2", "X / 2.5"))
    again = (*resume[:-1], 4, "--plugin")
    result = run(*again, "half.py")
    assert result.exit_code == 2
    assert digest in result.stderr
    assert "changed=allow" in result.stderr
    succeed(*again, "half.py, changed=allow")


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain", "check"])
def test_a_model_file_names_its_plugin(folder, command):
    (folder / "half.py").write_text(HALF)
    digest = hashlib.sha256(HALF.encode()).hexdigest()
    succeed(*FAST, "--plugin", "half.py", "--layers", "Half;Linear", "--save-weights", "m.npz")
    data = () if command == "check" else ("--load-dataset", "data.npz")
    words = (command, "m.npz", *(("p.csv",) if command == "predict" else ()), *data)
    succeed(*words, "--plugin", "half.py")
    (folder / "half.py").write_text(HALF + "# another version\n")
    result = run(*words, "--plugin", "half.py")
    assert result.exit_code == 2
    assert f"m.npz: 'HalfActivation' is from the plugin 'half.py' with the SHA-256 '{digest}'" in result.stderr
    succeed(*words, "--plugin", "half.py, changed=allow")


def test_a_missing_plugin_is_named(folder):
    (folder / "half.py").write_text(HALF)
    succeed(*FAST, "--plugin", "half.py", "--layers", "Half;Linear", "--save-weights", "m.npz")
    status, _, errors = in_process_of_its_own("evaluate", "m.npz", "--load-dataset", "data.npz")
    assert status == 2
    assert re.search(r"unknown layer 'Half'.*needs the plugin 'half.py' with the SHA-256 '[0-9a-f]{64}'", errors)


def test_records_say_which_plugins_were_used(folder):
    (folder / "half.py").write_text(HALF)
    mine = ("--plugin", "half.py", "--layers", "Half;Linear")
    record = json.loads(succeed(*FAST[:-1], *mine, "--json", "--output", "out"))
    assert record["plugins"] == [{"plugin": "half.py", "sha256": hashlib.sha256(HALF.encode()).hexdigest()}]
    repeat = ("train", "--config", "out/run.json", "--load-dataset", "data.npz", "--quiet")
    assert "'half.py'" in run(*repeat).stderr
    assert succeed(*repeat, "--plugin", "half.py") == f"test accuracy {record['results']['test_accuracy']:.3f}\n"


def test_a_plugin_cannot_replace_what_a_model_file_means(folder):
    """A ReLU layer of a plugin was in the file as ReLU, and the package's computed something else."""
    (folder / "relu.py").write_text(HALF.replace("Half", "ReLU"))
    result = run(*FAST, "--plugin", "relu.py", "--save-weights", "m.npz")
    assert result.exit_code == 2
    assert "there is a layer or activation function 'ReLU' in the package already" in result.stderr
    assert not Path("m.npz").exists()
    succeed(*FAST, "--save-weights", "m.npz")
    assert np.isfinite(arrays("m.npz")["W1"]).all()
