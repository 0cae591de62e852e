"""Bad input: one line that names the thing, exit status 2, no traceback, nothing trained and nothing written."""

from __future__ import annotations

import gzip
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from cli_support import KEYS, blobs, in_process_of_its_own, run, save_blobs, succeed, write_csv
from matgrad.specifications.models import create_model

Words = tuple[str, ...]


def idx(A: np.ndarray, magic: int | None = None) -> bytes:
    """A as an IDX file of bytes."""
    return struct.pack(f">{1 + A.ndim}I", magic or 0x800 + A.ndim, *A.shape) + A.astype(np.uint8).tobytes()


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
    content = Path("data.npz").read_bytes()
    Path("truncated.npz").write_bytes(content[: len(content) // 2])
    damaged = bytearray(content)
    damaged[200:260] = bytes(60)
    Path("damaged.npz").write_bytes(damaged)
    Path("text.npz").write_text("hello")
    np.save("single.npy", X)
    nan, inf = X.copy(), X.copy()
    nan[7, 2], inf[3, 1] = np.nan, np.inf
    write_data("nan.npz", Xtrain=nan)
    write_data("inf.npz", Xtest=inf[:30])
    write_data("rows.npz", Ttrain=T[:-1])
    write_data("columns.npz", Xtest=good["Xtest"][:, :3])
    write_data("negative.npz", Ttrain=np.where(np.arange(60) == 5, -1, T))
    write_data("missing.npz", Ttest=None)
    write_data("more.npz", other=np.ones(3))
    write_data("objects.npz", Ttrain=np.array([{}] * 60, dtype=object))
    write_data("words.npz", Xtrain=X.astype(str))
    write_data("vector.npz", Xtrain=X[:, 0])
    write_data("norows.npz", Xtrain=X[:0], Ttrain=T[:0])
    write_data("nan_target.npz", Ttrain=np.where(np.arange(60) == 4, np.nan, 0.5), Ttest=np.full(30, 0.5))
    write_data("huge_class.npz", Ttrain=np.where(np.arange(60) == 5, 10**9, T))


def write_tables() -> None:
    """CSV files."""
    lines = [[i / 30, i % 7, "ab"[i % 2]] for i in range(30)]
    write_csv(Path("good.csv"), ["x", "y", "t"], lines)

    def changed(name: str, line: int, column: int, value: object) -> None:
        copy = [list(row) for row in lines]
        copy[line][column] = value
        write_csv(Path(name), ["x", "y", "t"], copy)

    changed("nan.csv", 4, 1, "nan")
    changed("inf.csv", 4, 1, "inf")
    changed("gap.csv", 6, 0, "")
    changed("word.csv", 6, 0, "many")
    changed("nolabel.csv", 8, 2, "")
    write_csv(Path("swapped.csv"), ["z", "x", "t"], lines)
    Path("empty.csv").touch()
    Path("header.csv").write_text("x,y,t\n")
    Path("ragged.csv").write_text("x,y,t\n1,2,a\n1,2\n")
    Path("onecolumn.csv").write_text("1\n2\n3\n")
    Path("oneline.csv").write_text("x,y,t\n1,2,a\n")
    Path("quote.csv").write_text('x,y,t\n1,2,"a\n1,2,b\n')
    Path("latin.csv").write_bytes("x,y,t\n1,2,é\n".encode("latin1"))
    Path("cut.csv.gz").write_bytes(gzip.compress(Path("good.csv").read_bytes())[:-20])


def write_folders() -> None:
    """MNIST, CIFAR-10 and preprocessed data in folders."""
    write_mnist(Path("mnist_magic"), train_images_idx3=idx(np.zeros((20, 4, 4)), magic=0x1234))
    write_mnist(Path("mnist_short"), train_images_idx3=idx(np.zeros((20, 4, 4)))[:-5])
    write_mnist(Path("mnist_long"), t10k_labels_idx1=idx(np.zeros(10)) + b"x")
    write_mnist(Path("mnist_empty"), train_labels_idx1=b"")
    write_mnist(Path("mnist_label"), train_labels_idx1=idx(np.full(20, 11)))
    write_mnist(Path("mnist_count"), train_labels_idx1=idx(np.zeros(19)))
    write_mnist(Path("mnist_sizes"), t10k_images_idx3=idx(np.zeros((10, 5, 5))))
    write_mnist(Path("mnist_gz"), train_images_idx3=gzip.compress(idx(np.zeros((20, 4, 4))))[:-9])
    write_mnist(Path("mnist_partly"))
    Path("mnist_partly/t10k-labels-idx1-ubyte").unlink()
    for name in (
        "nothing",
        "cifar_size",
        "cifar_label",
        "cifar_partly",
        "epochs_gap",
        "epochs_other",
        "epochs_damaged",
    ):
        Path(name).mkdir()
    record = bytes(3073)
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        Path("cifar_size", name).write_bytes(record[: 3073 if i else 3000])
        Path("cifar_label", name).write_bytes(record if i != 2 else b"\x0c" + record[1:])
        if i < 4:
            Path("cifar_partly", name).write_bytes(record)
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

    def model(name: str, changes: dict | None = None, text: object = None) -> None:
        text = json.dumps(description) if text is None else text
        new = {**content, "matgrad": np.array(text), **(changes or {})}
        np.savez(name, **{key: A for key, A in new.items() if A is not None})

    model("m_nodescription.npz", {"matgrad": None})
    model("m_noweights.npz", {"W1": None})
    model("m_shape.npz", {"W1": np.ones((3, 3))})
    model("m_nan.npz", {"b1": np.full((1, 10), np.nan)})
    model("m_more.npz", {"W7": np.ones((2, 2))})
    model("m_noscale.npz", {"extra.scale": None})
    model("m_scale.npz", {"extra.scale": np.ones((1, 3)), "extra.offset": np.ones((1, 3))})
    model("m_text.npz", text="hello")
    model("m_empty.npz", text="{}")
    model("m_list.npz", text="[1]")
    model("m_kinds.npz", text=json.dumps(description | {"model": [1], "information": None}))
    model("m_format.npz", text=json.dumps(description | {"format": 99}))
    model("m_layer.npz", text=json.dumps(description | {"model": description["model"] | {"layers": "Mystery"}}))
    information = description["information"]
    model("m_loss.npz", text=json.dumps(description | {"information": information | {"loss": "Mystery"}}))
    text = json.dumps(description | {"information": information | {"features": {"columns": [3]}}})
    model("m_features.npz", text=text)
    whole = Path("model.npz").read_bytes()
    Path("m_cut.npz").write_bytes(whole[:-50])
    packed = io.BytesIO()
    np.savez_compressed(packed, **content)
    damaged = bytearray(packed.getvalue())
    damaged[200:300] = b"\xff" * 100
    Path("m_damaged.npz").write_bytes(damaged)
    np.savez("w_only.npz", W1=np.ones((10, 64), np.float32), b1=np.zeros(10, np.float32))
    np.savez("w_shape.npz", W1=np.ones((64, 10), np.float32), b1=np.zeros(10, np.float32))
    np.savez("w_nobias.npz", W1=np.ones((10, 64), np.float32))


def write_others() -> None:
    """Configuration files, plugins and features."""
    Path("file").write_text("content")
    for name, text in {
        "unknown.toml": "epoch = 3\n", "syntax.toml": "epochs = = 3\n", "syntax.json": '{"epochs": 3',
        "syntax.yaml": "epochs: [1\n", "list.yaml": "- 1\n- 2\n", "empty.yaml": "", "c.ini": "epochs = 3\n",
        "type.toml": 'epochs = "many"\n', "half.toml": "epochs = 2.5\n", "range.json": '{"batch-size": 0}',
        "nested.toml": "[train]\nepochs = 1\n", "choice.yaml": "backend: nunpy\n", "flag.toml": 'quiet = "perhaps"\n',
        "bad_syntax.py": "def f(:\n", "bad_import.py": "import nothing_like_this\n", "bad_nothing.py": "x = 1\n",
        "bad_raise.py": "raise KeyError('two\\nlines')\n",
        "plugin.txt": "x = 1\n", "wide.csv": "1,2,3\n", "nan_features.csv": ",".join(["1"] * 63 + ["nan"]) + "\n",
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
    "--layers ReLU;;Linear": ("layer 2",),
    "--layers=": ("layer",),
    "--layers ReLU(;Linear": ("ReLU(",),
    "--layers AllReLU(x);Linear": ("alpha", "'x'"),
    "--layers BatchNormalization": ("layer",),
    "--layer-sizes 64;10": ("4", "layer sizes", "64;10"),
    "--layer-sizes 64;0;5;10": ("0", "positive integer"),
    "--layer-sizes 64;2.5;5;10": ("layer size 2", "2.5"),
    "--layer-sizes 65;8;8;10": ("65", "64", "features"),
    "--layer-sizes 64;100000000000000;8;10": ("100000000000000",),
    "--layer-weights Xaver": ("Xaver", "Xavier"),
    "--layer-weights Uniform(2,1)": ("Uniform",),
    "--optimizers Adamm": ("Adamm", "Adam"),
    "--optimizers Momentum(1.5)": ("mu", "1.5"),
    "--optimizers Adam;Adam": ("optimizers", "2"),
    "--dropouts 1": ("dropout", "1"),
    "--dropouts nan": ("dropout", "nan"),
    "--dropouts 0.1;0.2": ("dropouts", "2"),
    "--loss CrossEntropyy": ("CrossEntropyy", "CrossEntropy"),
    "--loss CrossEntropy": ("CrossEntropyLoss", "Linear"),
    "--loss SoftmaxCrossEntropy --layers ReLU;Softmax": ("SoftmaxCrossEntropyLoss", "Softmax"),
    "--loss SoftmaxCrossEntropy(label_smoothing=2)": ("label_smoothing", "2"),
    "--learning-rate fast": ("fast",),
    "--learning-rate nan": ("nan",),
    "--learning-rate inf": ("inf",),
    "--learning-rate MultiStep(0.1;10;0.1)": ("MultiStep", "MultiStepLR"),
    "--learning-rate MultiStepLR(0.1)": ("MultiStepLR", "milestones"),
    "--learning-rate MultiStepLR(0.1;1.5;0.1)": ("milestones",),
    "--learning-rate StepBased(0.1,0.5,0)": ("drop_rate",),
    "--learning-rate TimeBased(0.1,-1)": ("decay",),
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
    "--show precision=x": ("--show", "precision"),
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
    "--load-dataset truncated.npz": ("truncated.npz",),
    "--load-dataset damaged.npz": ("damaged.npz",),
    "--load-dataset text.npz": ("text.npz", "npz"),
    "--load-dataset single.npy": ("single.npy", "npz"),
    "--load-dataset nan.npz": ("nan.npz", "Xtrain", "row 7", "column 2", "nan"),
    "--load-dataset inf.npz": ("inf.npz", "Xtest", "row 3", "column 1", "inf"),
    "--load-dataset rows.npz": ("rows.npz", "60", "59"),
    "--load-dataset columns.npz": ("columns.npz", "4", "3"),
    "--load-dataset negative.npz": ("negative.npz", "Ttrain", "-1", "row 5"),
    "--load-dataset missing.npz": ("missing.npz", "Ttest"),
    "--load-dataset more.npz": ("more.npz", "other"),
    "--load-dataset objects.npz": ("objects.npz", "Ttrain"),
    "--load-dataset words.npz": ("words.npz", "Xtrain"),
    "--load-dataset vector.npz": ("vector.npz", "Xtrain"),
    "--load-dataset norows.npz": ("norows.npz", "Xtrain"),
    "--load-dataset nan_target.npz": ("nan_target.npz", "Ttrain", "row 4"),
    "--load-dataset huge_class.npz": ("huge_class.npz", "1000000000"),
    "--load-dataset data.npz --layer-sizes 5;8;8;3": ("5", "4", "features"),
    # data in CSV files
    "--table absent.csv": ("absent.csv", "no such file"),
    "--table nothing": ("nothing", "folder"),
    "--table empty.csv": ("empty.csv", "empty"),
    "--table header.csv": ("header.csv",),
    "--table ragged.csv": ("ragged.csv", "row 2", "2 columns"),
    "--table onecolumn.csv": ("onecolumn.csv", "1 column"),
    "--table oneline.csv": ("oneline.csv", "2 rows"),
    "--table nan.csv": ("nan.csv", "row 5", "column 2"),
    "--table inf.csv": ("inf.csv", "row 5", "column 2"),
    "--table gap.csv": ("gap.csv", "row 7", "column 1"),
    "--table word.csv": ("word.csv", "row 7", "many"),
    "--table nolabel.csv": ("nolabel.csv", "row 9"),
    "--table quote.csv": ("quote.csv",),
    "--table latin.csv": ("latin.csv", "UTF8"),
    "--table cut.csv.gz": ("cut.csv.gz", "early"),
    "--table good.csv --target z": ("good.csv", "'z'"),
    "--table good.csv --target 3": ("good.csv", "3"),
    "--table good.csv --task regression": ("good.csv", "'a'"),
    "--table good.csv --task guessing": ("--task", "guessing"),
    "--table good.csv --features columns=z": ("good.csv", "'z'"),
    "--table good.csv --features columns=x,t": ("good.csv", "'t'", "target"),
    "--table good.csv --features columns=x,,y": ("--features", "x,,y"),
    "--table good.csv --features columns=": ("--features", "columns"),
    "--table good.csv --features drop=x,y": ("good.csv", "no features"),
    "--table good.csv --features size=3": ("--features", "size", "categorical"),
    "--table good.csv --features categorical=t": ("good.csv", "'t'", "features"),
    "--table word.csv --features categorical=auto": ("word.csv", "row 7", "'many'", "a number"),
    "--table gap.csv --features missing=mean": ("missing", "mean", "median"),
    "--table nolabel.csv --features missing=median": ("nolabel.csv", "row 9"),
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
    "--mnist mnist_magic": ("train-images-idx3-ubyte", "magic", str(0x1234)),
    "--mnist mnist_short": ("train-images-idx3-ubyte", "315", "320"),
    "--mnist mnist_long": ("t10k-labels-idx1-ubyte", "more"),
    "--mnist mnist_empty": ("train-labels-idx1-ubyte", "0 bytes"),
    "--mnist mnist_label": ("Ttrain", "label 11"),
    "--mnist mnist_count": ("20", "19"),
    "--fashion-mnist mnist_sizes": ("4×4", "5×5 pixels"),
    "--fashion-mnist mnist_gz": ("train-images-idx3-ubyte",),
    "--mnist mnist_partly": ("t10k-labels-idx1-ubyte",),
    "--cifar10 absent": ("absent",),
    "--cifar10 nothing": ("nothing", "data_batch_1.bin"),
    "--cifar10 cifar_size": ("data_batch_1.bin", "3000"),
    "--cifar10 cifar_label": ("Ttrain", "label 12"),
    "--cifar10 cifar_partly": ("data_batch_5", "test_batch"),
    "--cifar10 cifar.tar.gz": ("cifar.tar.gz",),
    "--preprocessed absent": ("absent", "no such folder"),
    "--preprocessed nothing": ("nothing", "epoch0.npz"),
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
    "--load-weights w_shape.npz --layers Linear": ("w_shape.npz", "W1", "(64, 10)", "(10, 64)"),
    "--load-weights w_nobias.npz --layers Linear": ("w_nobias.npz", "b1"),
    "--load-weights w_only.npz": ("w_only.npz", "W1"),
    "--load-weights m_nan.npz --layers Linear": ("m_nan.npz", "b1"),
    "--load-weights m_more.npz --layers Linear": ("m_more.npz", "W7"),
    "--load-weights m_cut.npz --layers Linear": ("m_cut.npz",),
    "--load-weights m_damaged.npz --layers Linear": ("m_damaged.npz",),
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
    "--config nothing": ("nothing",),
    "--config unknown.toml": ("unknown.toml", "'epoch'", "epochs"),
    "--config syntax.toml": ("syntax.toml",),
    "--config syntax.json": ("syntax.json",),
    "--config syntax.yaml": ("syntax.yaml",),
    "--config list.yaml": ("list.yaml", "list"),
    "--config empty.yaml": ("empty.yaml",),
    "--config c.ini": ("c.ini", ".toml"),
    "--config latin.toml": ("latin.toml",),
    "--config nested.toml": ("nested.toml", "'train'"),
    "--config type.toml": ("epochs", "many"),
    "--config half.toml": ("epochs", "2.5"),
    "--config range.json": ("batch-size", "0"),
    "--config choice.yaml": ("backend", "nunpy"),
    "--config flag.toml": ("quiet", "perhaps"),
    "--plugin absent.py": ("absent.py", "no such file"),
    "--plugin nothing": ("nothing",),
    "--plugin plugin.txt": ("plugin.txt", ".py"),
    "--plugin bad_syntax.py": ("bad_syntax.py", "SyntaxError"),
    "--plugin bad_import.py": ("bad_import.py", "nothing_like_this"),
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
            "file": (),
            "m_cut.npz": (),
            "m_damaged.npz": (),
            "m_nodescription.npz": (),
            "m_noweights.npz": ("W1",),
            "m_shape.npz": ("W1", "(3, 3)"),
            "m_nan.npz": ("b1",),
            "m_text.npz": (),
            "m_empty.npz": (),
            "m_list.npz": (),
            "m_kinds.npz": (),
            "m_format.npz": ("99",),
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
    "evaluate model.npz --table good.csv --mnist mnist_partly": ("--table", "--mnist"),
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
    "check model.npz --batch-size 0": ("--batch-size",),
    "check --layers Linaer --layer-sizes 2;2": ("Linaer", "Linear"),
    "check --layers Linear --layer-sizes 2;0": ("0",),
    "check --layers ReLU;Linear --layer-sizes 2;2": ("layer sizes",),
    "check --layers Linear --layer-sizes 2;2 --dropouts 1": ("dropout", "1"),
    "inspect": ("FILE",),
    "inspect absent.npz": ("absent.npz", "no such file"),
    "inspect nothing": ("nothing",),
    "inspect file": ("file",),
    "inspect good.csv": ("good.csv", "npz"),
    "inspect m_cut.npz": ("m_cut.npz",),
    "inspect m_damaged.npz": ("m_damaged.npz",),
    "inspect objects.npz": ("objects.npz",),
    "inspect single.npy": ("single.npy",),
    "inspect m_text.npz": ("m_text.npz",),
    "inspect m_empty.npz": ("m_empty.npz",),
    "inspect m_kinds.npz": ("m_kinds.npz",),
    "completion tcsh": ("tcsh", "bash"),
    "trian": ("trian",),
    "data put mnist": ("put",),
    "info --yaml": ("--yaml",),
}

CASES = {f"train {options}": words for options, words in TRAIN.items()} | MODEL


def content(place: Path) -> dict[str, bytes | None]:
    """All files and folders of a place."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


def arguments(command: str) -> list[str]:
    """The words of a command; `--layers=` ends in an empty one."""
    return command.split(" ")


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
