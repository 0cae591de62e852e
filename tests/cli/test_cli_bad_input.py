"""Bad input: one line that names the thing, exit status 2, no traceback, nothing trained and nothing written."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest

from cli_support import KEYS, blobs, in_process_of_its_own, run, save_blobs, succeed, write_csv
from matgrad.specifications.models import create_model

Words = tuple[str, ...]


def idx(A: np.ndarray) -> bytes:
    """A as an IDX file of bytes."""
    return struct.pack(f">{1 + A.ndim}I", 0x800 + A.ndim, *A.shape) + A.astype(np.uint8).tobytes()


def write_mnist(folder: Path, **changes: bytes) -> None:
    """The four files of MNIST with 4×4 pixels; a change replaces the content of a file."""
    folder.mkdir()
    for part, N in (("train", 20), ("t10k", 10)):
        contents = {"images_idx3": idx(np.zeros((N, 4, 4))), "labels_idx1": idx(np.arange(N) % 10)}
        for kind, content in contents.items():
            new = changes.get(f"{part}_{kind}", content)
            (folder / f"{part}-{kind.replace('_', '-')}-ubyte").write_bytes(new)


def write_data(path: str, **changes) -> None:
    """The data of `blobs` in an npz file, with some arrays replaced, or left out (None)."""
    np.savez(path, **{key: A for key, A in (blobs() | changes).items() if A is not None})


def write_arrays() -> None:
    """Data sets in npz files."""
    good = save_blobs(Path("data.npz"))
    X, T = good["Xtrain"], good["Ttrain"]
    damaged = bytearray(Path("data.npz").read_bytes())
    damaged[200:260] = bytes(60)
    Path("damaged.npz").write_bytes(damaged)
    nan = X.copy()
    nan[7, 2] = np.nan
    write_data("nan.npz", Xtrain=nan)
    write_data("rows.npz", Ttrain=T[:-1])
    write_data("objects.npz", Ttrain=np.array([{}] * 60, dtype=object))


def write_tables() -> None:
    """CSV files."""
    lines: list[list[object]] = [[i / 30, i % 7, "ab"[i % 2]] for i in range(30)]
    write_csv(Path("good.csv"), ["x", "y", "t"], lines)
    write_csv(Path("nan.csv"), ["x", "y", "t"], [*lines[:4], [0, "nan", "a"], *lines[5:]])
    write_csv(Path("swapped.csv"), ["z", "x", "t"], lines)
    Path("ragged.csv").write_text("x,y,t\n1,2,a\n1,2\n")
    Path("cut.csv.gz").write_bytes(gzip.compress(Path("good.csv").read_bytes())[:-20])


def write_folders() -> None:
    """MNIST, CIFAR-10 and preprocessed data in folders."""
    write_mnist(Path("mnist_short"), train_images_idx3=idx(np.zeros((20, 4, 4)))[:-5])
    write_mnist(Path("mnist_gz"), train_images_idx3=gzip.compress(idx(np.zeros((20, 4, 4))))[:-9])
    write_mnist(Path("mnist_partly"))
    Path("mnist_partly/t10k-labels-idx1-ubyte").unlink()
    for name in ("nothing", "cifar_label", "epochs_gap", "epochs_other", "epochs_damaged"):
        Path(name).mkdir()
    record = bytes(3073)
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        Path("cifar_label", name).write_bytes(record if i != 2 else b"\x0c" + record[1:])
    Path("cifar.tar.gz").write_bytes(gzip.compress(b"no archive" * 100))
    for folder in ("epochs_gap", "epochs_other", "epochs_damaged"):
        save_blobs(Path(folder, "epoch0.npz"))
    save_blobs(Path("epochs_gap/epoch2.npz"))
    save_blobs(Path("epochs_other/epoch1.npz"), D=5)
    Path("epochs_damaged/epoch1.npz").write_text("hello")


def write_models() -> None:
    """Weights and models in npz files."""
    succeed("train", "--epochs", 1, "--layers", "Linear", "--quiet", "--save-weights", "model.npz")
    information = {"loss": "MeanSquaredError", "classes": None, "normalize": "none"}
    create_model("Linear", "2;1").save("regression.npz", information=information)
    succeed(
        "train", "--table", "good.csv", "--epochs", 1, "--layers", "Linear", "--quiet", "--save-weights", "table.npz"
    )
    content = dict(np.load("model.npz"))
    description = json.loads(str(content["matgrad"]))

    information = description["information"]

    def model(name: str, changes: dict | None = None, **described: object) -> None:
        new = {**content, "matgrad": np.array(json.dumps(description | described)), **(changes or {})}
        np.savez(name, **{key: A for key, A in new.items() if A is not None})

    model("m_nodescription.npz", {"matgrad": None})
    model("m_noweights.npz", {"W1": None})
    model("m_nan.npz", {"b1": np.full((1, 10), np.nan)})
    model("m_noscale.npz", {"extra.scale": None})
    model("m_scale.npz", {"extra.scale": np.ones((1, 3)), "extra.offset": np.ones((1, 3))})
    model("m_kinds.npz", model=[1], information=None)
    model("m_layer.npz", model=description["model"] | {"layers": "Mystery"})
    model("m_loss.npz", information=information | {"loss": "Mystery"})
    model("m_features.npz", information=information | {"features": {"columns": [3]}})
    packed = io.BytesIO()
    np.savez_compressed(packed, **content)
    damaged = bytearray(packed.getvalue())
    damaged[200:300] = b"\xff" * 100
    Path("m_damaged.npz").write_bytes(damaged)
    np.savez("w_only.npz", W1=np.ones((10, 64), np.float32), b1=np.zeros(10, np.float32))
    np.savez("w_shape.npz", W1=np.ones((64, 10), np.float32), b1=np.zeros(10, np.float32))


def write_others() -> None:
    """Configuration files, plugins and features."""
    Path("file").write_text("content")
    for name, text in {
        "unknown.toml": "epoch = 3\n", "syntax.toml": "epochs = = 3\n", "syntax.yaml": "epochs: [1\n",
        "list.yaml": "- 1\n- 2\n", "c.ini": "epochs = 3\n", "type.toml": 'epochs = "many"\n',
        "range.json": '{"batch-size": 0}', "nested.toml": "[train]\nepochs = 1\n", "flag.toml": 'quiet = "perhaps"\n',
        "syntax.json": '{"epochs": 3', "empty.yaml": "", "half.toml": "epochs = 2.5\n",
        "choice.yaml": "backend: nunpy\n",
        "bad_syntax.py": "def f(:\n", "bad_nothing.py": "x = 1\n", "bad_raise.py": "raise KeyError('two\\nlines')\n",
        "wide.csv": "1,2,3\n", "nan_features.csv": ",".join(["1"] * 63 + ["nan"]) + "\n",
    }.items():  # fmt: skip
        Path(name).write_text(text)
    Path("latin.toml").write_bytes(b"layers = '\xe9'\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all bad files."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("bad")
        patch.chdir(path)
        for write in (write_arrays, write_tables, write_folders, write_models, write_others):
            write()
    return path


TRAIN: dict[str, Words] = {  # options of `matgrad train`, and words of the message
    # specifications
    "--layers RelU;Linear": ("layer 1", "RelU", "ReLU"),
    "--layers=": ("layer",),
    "--layers BatchNormalization": ("layer",),
    "--layer-sizes 64;10": ("4", "layer sizes", "64;10"),
    "--layer-sizes 65;8;8;10": ("65", "64", "features"),
    "--layer-sizes 64;100000000000000;8;10": ("100000000000000",),
    "--layer-weights Xaver": ("Xaver", "Xavier"),
    "--optimizers Adamm": ("Adamm", "Adam"),
    "--optimizers Adam;Adam": ("optimizers", "2"),
    "--dropouts nan": ("dropout", "nan"),
    "--loss CrossEntropyy": ("CrossEntropyy", "CrossEntropy"),
    "--loss CrossEntropy": ("CrossEntropyLoss", "Linear"),
    "--learning-rate fast": ("fast",),
    "--learning-rate nan": ("nan",),
    "--learning-rate MultiStepLR(0.1)": ("MultiStepLR", "milestones"),
    # numbers and choices
    "--epochs -1": ("--epochs", "-1"),
    "--batch-size 0": ("--batch-size", "0"),
    "--optimizers Adam(weight_decay=-1)": ("weight_decay", "-1"),
    "--weight-decay 1": ("--weight-decay is gone", "--optimizers"),
    "--clip 0": ("--clip", "0"),
    "--seed -1": ("--seed", "-1"),
    "--validation 0": ("--validation", "0"),
    "--validation nan": ("nan",),
    "--early-stopping 0": ("--early-stopping", "0"),
    "--early-stopping 3": ("early_stopping", "validation"),
    "--gradient-step 0": ("--gradient-step", "0"),
    "--show precision=0": ("--show", "precision=0"),
    "--show edgeitems=-1": ("--show", "edgeitems=-1"),
    "--show everything": ("--show", "parameters", "everything"),
    "--checkpoint ck,every=x": ("every", "500s"),
    "--checkpoint ck,keep=0": ("keep", "positive"),
    "--threads 0": ("--threads", "0"),
    "--timer long": ("--timer", "long"),
    "--backend nunpy": ("--backend", "nunpy", "numpy"),
    "--backend sympy": ("--backend", "sympy"),
    "--backend numpy --device cuda": ("cuda", "expected cpu"),
    "--backend native --device cuda": ("cuda", "expected cpu"),
    "--device nowhere": ("nowhere",),
    "--backend torch --device nowhere": ("nowhere",),
    "--backend torch --device cuda:99": ("cuda",),
    "--epoch 3": ("--epoch",),
    "--speed 3": ("--speed",),
    "something": ("something",),
    # data in npz files
    "--load-dataset absent.npz": ("absent.npz", "no such file"),
    "--load-dataset nothing": ("nothing", "folder"),
    "--load-dataset damaged.npz": ("damaged.npz",),
    "--load-dataset nan.npz": ("nan.npz", "Xtrain", "row 7", "column 2", "nan"),
    "--load-dataset rows.npz": ("rows.npz", "60", "59"),
    "--load-dataset objects.npz": ("objects.npz", "Ttrain"),
    "--load-dataset data.npz --layer-sizes 5;8;8;3": ("5", "4", "features"),
    # data in CSV files
    "--table absent.csv": ("absent.csv", "no such file"),
    "--table nothing": ("nothing", "folder"),
    "--table ragged.csv": ("ragged.csv", "Row #3", "got 2"),
    "--table nan.csv": ("nan.csv", "row 5", "column 2"),
    "--table cut.csv.gz": ("cut.csv.gz", "ended before"),
    "--table good.csv --target z": ("good.csv", "'z'"),
    "--table good.csv --task regression": ("good.csv", "'a'"),
    "--table good.csv --task guessing": ("--task", "guessing"),
    "--table good.csv --features columns=x,,y": ("--features", "x,,y"),
    "--table good.csv --features columns=": ("--features", "columns"),
    "--table good.csv --features size=3": ("--features", "size", "categorical"),
    "--table good.csv --columns x": ("--columns", "--features"),
    "--table a;b;c": ("--table", "a;b;c"),
    "--table good.csv --normalize-targets unit": ("--normalize-targets", "classes"),
    "--features missing=drop --load-dataset data.npz": ("--features", "--table"),
    "--target y": ("--target", "--table"),
    "--task regression": ("--task", "--table"),
    # data in folders, and generated
    "--mnist absent": ("absent", "no such folder"),
    "--mnist file": ("file", "folder"),
    "--mnist nothing": ("nothing", "train-images-idx3-ubyte"),
    "--mnist mnist_short": ("train-images-idx3-ubyte", "315", "320"),
    "--fashion-mnist mnist_gz": ("train-images-idx3-ubyte",),
    "--mnist mnist_partly": ("t10k-labels-idx1-ubyte",),
    "--cifar10 absent": ("absent",),
    "--cifar10 cifar_label": ("Ttrain", "label 12"),
    "--cifar10 cifar.tar.gz": ("cifar.tar.gz",),
    "--preprocessed absent": ("absent", "no such folder"),
    "--preprocessed epochs_gap": ("epochs_gap", "epoch1.npz"),
    "--preprocessed epochs_other --epochs 2": ("epoch1.npz", "5 inputs", "4 inputs"),
    "--preprocessed epochs_damaged --epochs 2": ("epoch1.npz",),
    "--preprocessed epochs_other --validation 0.5": ("validation", "fraction", "epoch"),
    "--generate-dataset stripes": ("--generate-dataset", "stripes", "checkerboard"),
    "--generate-dataset mini(0)": ("size", "0"),
    "--table good.csv --load-dataset data.npz": ("--table", "--load-dataset", "one data set"),
    "--generate-dataset mini --mnist mnist_partly": ("--generate-dataset", "--mnist"),
    # weights
    "--load-weights absent.npz": ("absent.npz",),
    "--load-weights nothing": ("nothing",),
    "--load-weights file": ("file",),
    "--load-weights data.npz": ("data.npz", "W1"),
    "--load-weights w_shape.npz --layers Linear": ("w_shape.npz", "1.W", "(64, 10)", "(10, 64)"),
    "--load-weights w_only.npz": ("w_only.npz", "W2"),
    "--load-weights m_nan.npz --layers Linear": ("m_nan.npz", "1.b"),
    # files to write
    "--save-weights absent/m.npz": ("--save-weights", "absent"),
    "--save-weights nothing": ("--save-weights", "nothing", "folder"),
    "--save-weights file/m.npz": ("--save-weights", "file"),
    "--save-weights /proc/m.npz": ("--save-weights", "/proc"),
    "--save-dataset absent/d.npz": ("--save-dataset", "absent"),
    "--save-dataset nothing": ("--save-dataset", "nothing"),
    "--save-dataset /proc/d.npz": ("--save-dataset", "/proc"),
    "--save-dataset same.npz --save-weights same.npz": ("--save-dataset", "--save-weights", "same.npz"),
    "--output absent/deep": ("--output", "absent"),
    "--output file": ("--output", "file"),
    "--output /proc/run": ("--output", "/proc"),
    # configuration files and plugins
    "--config absent.toml": ("absent.toml", "no such file"),
    "--config unknown.toml": ("unknown.toml", "'epoch'", "epochs"),
    "--config syntax.toml": ("syntax.toml",),
    "--config syntax.yaml": ("syntax.yaml",),
    "--config syntax.json": ("syntax.json",),
    "--config empty.yaml": ("empty.yaml",),
    "--config latin.toml": ("latin.toml",),
    "--config half.toml": ("epochs", "2.5"),
    "--config choice.yaml": ("backend", "nunpy"),
    "--config list.yaml": ("list.yaml", "list"),
    "--config c.ini": ("c.ini", ".toml"),
    "--config nested.toml": ("nested.toml", "'train'"),
    "--config type.toml": ("epochs", "many"),
    "--config range.json": ("batch-size", "0"),
    "--config flag.toml": ("quiet", "perhaps"),
    "--plugin absent.py": ("absent.py", "no such file"),
    "--plugin bad_syntax.py": ("bad_syntax.py", "SyntaxError"),
    "--plugin bad_nothing.py": ("bad_nothing.py", "no class"),
    "--plugin bad_raise.py": ("bad_raise.py", "KeyError"),
}

MODEL: dict[str, Words] = {  # whole commands on saved models
    **{
        command.format(file): (file, *words)
        for command in ("evaluate {}", "check {}", "predict {} out.csv")
        for file, words in {
            "absent.npz": ("no such file",),
            "nothing": (),
            "m_damaged.npz": (),
            "m_nodescription.npz": (),
            "m_noweights.npz": ("W1",),
            "m_layer.npz": ("Mystery",),
        }.items()
    },
    **{
        command.format(file): (file,)
        for command in ("evaluate {}", "predict {} out.csv")
        for file in ("m_noscale.npz", "m_scale.npz")
    },
    "evaluate m_loss.npz": ("Mystery",),
    "evaluate": ("MODEL",),
    "evaluate model.npz --table good.csv": ("64", "2", "features"),
    "evaluate model.npz --part half": ("--part", "half"),
    "evaluate model.npz --generate-dataset mini --seed -1": ("--seed", "-1"),
    "evaluate model.npz --backend torch --device nowhere": ("nowhere",),
    "evaluate regression.npz --table good.csv": ("good.csv", "'a'", "number"),
    "evaluate regression.npz --generate-dataset mini": ("regression.npz", "features"),
    "evaluate table.npz --table swapped.csv": ("swapped.csv", "'y'", "z, x, t"),
    "predict table.npz out.csv --features good.csv": ("--features", "--table"),
    "predict table.npz out.csv --table swapped.csv": ("swapped.csv", "'y'"),
    "predict table.npz out.csv --table good.csv --target t": ("--target", "--part"),
    "predict m_features.npz out.csv": ("m_features.npz", "features"),
    "inspect m_features.npz": ("m_features.npz", "features"),
    "predict model.npz": ("OUTPUT",),
    "predict model.npz out.txt": ("out.txt", ".csv", ".npz"),
    "predict model.npz out": ("out", ".csv"),
    "predict model.npz absent/out.csv": ("absent",),
    "predict model.npz /proc/out.npz": ("/proc/out.npz",),
    "predict model.npz out.csv --table absent.csv": ("absent.csv",),
    "predict model.npz out.csv --table wide.csv": ("64", "3"),
    "predict model.npz out.csv --table nan_features.csv": ("nan_features.csv", "column 64"),
    "predict model.npz out.csv --table wide.csv --mnist mnist_partly": ("--table", "--mnist"),
    "check": ("--layers",),
    "check --layers Linear": ("--layer-sizes",),
    "check model.npz --layers Linear --layer-sizes 2;2": ("--layers",),
    "check model.npz --loss CrossEntropy": ("CrossEntropyLoss",),
    "check model.npz --gradient-step 0": ("--gradient-step",),
    "check --layers Linaer --layer-sizes 2;2": ("Linaer", "Linear"),
    "inspect": ("FILE",),
    "inspect absent.npz": ("absent.npz", "no such file"),
    "inspect nothing": ("nothing",),
    "inspect file": ("file",),
    "inspect good.csv": ("good.csv", "npz"),
    "inspect m_damaged.npz": ("m_damaged.npz",),
    "inspect objects.npz": ("objects.npz",),
    "inspect m_kinds.npz": ("m_kinds.npz",),
    "completion tcsh": ("tcsh", "bash"),
    "trian": ("trian",),
    "data put mnist": ("put",),
    "info --yaml": ("--yaml",),
}

OTHERS: dict[str, Words] = {  # other commands
    "bench --backends numpy,cuda": ("unknown backend 'cuda'", "numpy"),
    "bench --threads 0": ("--threads: expected numbers from 1",),
    "bench --optimizers Adm": ("unknown optimizer",),
    "bench --loss Foo": ("unknown loss",),
    "derive": ("expected EQUATIONS, --file FILE or --layer NAME, and only one of them",),
    "derive 'Y = X' --layer Linear": ("and only one of them",),
    "derive 'Y = foo(X)'": ("unknown operation 'foo'; known: ",),
    "derive --layer Lineal": ("unknown layer 'Lineal'",),
    "derive 'Y = X' --evaluation": ("--evaluation: expected --layer with it",),
    "derive 'Y = X' --code --json": ("expected one of them, as each prints nothing else",),
    "explain --equation DQ9": ("unknown equation 'DQ9' (known: layer 1 Z",),
    "explain --equation DW1 --html page.html": ("--equation and --html: the page has all equations",),
    "explain --generate-dataset mini": ("--generate-dataset: expected a saved model to explain on this data",),
    "explain --layer-sizes 2000;900;10": ("give fewer examples, or a smaller model",),
    "explain --loss NegativeLogLikelihood": ("NegativeLogLikelihoodLoss cannot follow",),
    "program --layers RelU;Linear": ("RelU", "did you mean"),
    "program --clip nan": ("clip",),
    "program --save missing/step": ("missing/step",),
    "program --latex - --json": ("--latex -", "--json"),
    "program --load-weights model.npz --layers ReLU": ("model.npz", "Linear", "--layers ReLU"),
    "program --load-weights model.npz --densities 0.5;1": ("--densities", "--load-weights"),
    "program --load-weights model.npz --supports data.npz": ("data.npz", "expected a model, or finite matrices"),
    "program --load-weights model.npz --layer-weights He": ("--layer-weights", "--load-weights"),
    "program --load-weights data.npz": ("data.npz", "W1"),
    "program --feedforward --loss SquaredError": ("--loss", "--feedforward"),
    "program --densities 0.5 --supports data.npz": ("--densities", "--supports"),
    "program --rank 1": ("--rank and no --ranks",),
    "program --ranks 2 --rank 2": ("--rank 2: expected 0 to 1",),
    "program --ranks 8 --batch-size 7 --placements X=rows": (
        "X has 7 rows, expected at least one for each of 8 ranks",
    ),
    "program --ranks 2 --save p": ("--save and --ranks: the program of a rank runs only together",),
    "program --ranks 2 --feedforward": ("--ranks and --feedforward: it is for a training step",),
    "program --ranks 2 --placements 1.W": ("'1.W': expected optimizer, or each NAME=rows",),
    "program --ranks 2 --placements 4.W=rows": ("4.W: the program has no such input; known: 1.W, 1.b",),
    "train --picture-epochs 1": ("--picture-epochs is gone: use --pictures", "epochs=0,5,10"),
    "train --pictures p,epochs=1,x": ("epoch 2: expected an integer, found 'x'",),
    "train --pictures p,size=8x8": ("unknown setting 'size' (known: epochs, shape)",),
    "train --log a.txt": ("expected a name that ends in .jsonl or .csv, or a folder, found 'a.txt'.",),
    "train --log absent/a.csv": ("--log absent/a.csv: the folder", "absent does not exist"),
    "train --log a.csv --log ./a.csv": ("--log a.csv: the same file as --log a.csv; expected another one",),
    "train --log x --output x": ("the same file as --", "expected another one"),
    "train --supports data.npz": ("expected a model, or finite matrices W1, W2, …", "found Xtrain"),
    "train --output=": ("expected the name of a file or folder, found ''",),
    "verify --layer GELO": ("unknown equation 'GELO'; did you mean 'GELU'",),
}
CASES = {f"train {options}": words for options, words in TRAIN.items()} | MODEL | OTHERS


def content(place: Path) -> dict[str, bytes | None]:
    """All files and folders of a place."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


def arguments(command: str) -> list[str]:
    """The words of a command."""
    return shlex.split(command)


@pytest.mark.parametrize("command", CASES)
def test_bad_input_is_refused(place, monkeypatch, command):
    monkeypatch.chdir(place)
    before = content(place)
    result = run(*arguments(command))

    assert isinstance(result.exception, SystemExit), f"{result.exception!r}\n{result.output}"
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert errors == lines[-1:], f"expected one line at the end\n{result.stderr}"
    for word in CASES[command]:
        assert word in errors[0], f"expected {word!r}\n{errors[0]}"
    assert len(lines) == 1 or lines[0].startswith("Usage: "), result.stderr
    if "epochs_" not in command:  # the file of an epoch is read when its time comes
        assert result.stdout == "", "refused before anything is done"
    assert content(place) == before, "something was written"


def test_no_traceback_in_a_shell(place, monkeypatch):
    """The same for what is raised where Python code of others runs."""
    monkeypatch.chdir(place)
    for command in ("train --load-dataset nan.npz", "train --plugin bad_raise.py", "train --config syntax.yaml"):
        status, output, errors = in_process_of_its_own(*arguments(command))
        assert (status, output) == (2, ""), command
        assert errors.startswith("Error: "), command
        assert errors.count("\n") == 1, errors


def test_good_files_are_accepted(place, monkeypatch):
    """What the bad files were made from is right."""
    monkeypatch.chdir(place)
    for options in ("--load-dataset data.npz", "--table good.csv", "--layers Linear --load-weights w_only.npz"):
        succeed("train", *options.split(), "--epochs", 1)
    succeed("evaluate", "model.npz")
    assert set(KEYS) <= set(np.load("data.npz"))
