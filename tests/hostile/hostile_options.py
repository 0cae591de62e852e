"""Hostile configurations and options."""

from __future__ import annotations

import json

from hostile_readers import CONFIGURATION, OPTIONS, Case


def bomb(width: int = 10, depth: int = 10) -> bytes:
    """A YAML file in which each list has the one before several times."""
    rows = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * width)}]" for i in range(depth)]
    return "\n".join(rows).encode()


YAML: list[Case] = [
    ("an alias bomb", bomb(), "aliases are not supported"),
    ("a merge bomb", b"a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}", "aliases are not supported"),
    ("an alias of itself", b"a: &a [*a]", "aliases are not supported"),
    ("nested lists", b"layers: " + b"[" * 10_000, "nested too deeply"),
    ("nested tables", b"layers: " + b"{a: " * 10_000, "nested too deeply"),
    ("nested tables in lines", "".join(f"{' ' * i}a:\n" for i in range(300)).encode(), "nested too deeply"),
    ("yes for a number", b"epochs: yes", "epochs: found the truth value True"),
    ("on for a number", b"learning-rate: on", "learning-rate: found the truth value True"),
    ("no for a layer", b"layers: no", "layers: found the truth value False"),
    ("a number for a flag", b"quiet: 7", "quiet"),
    ("a name twice", b"epochs: 1\nepochs: 2", "'epochs' occurs twice"),
    ("a name in two ways", b"layer-sizes: '64;10'\nlayer_sizes: '64;10'", "is given twice"),
    ("null", b"epochs: ~", None),
    ("an object", b"epochs: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ("an odd tag", b"epochs: !!int ''", "not a sound YAML file"),
    ("bytes", b"epochs: !!binary aGVsbG8=", "'epochs': expected a number, a word or a list"),
    ("a date", b"epochs: 2020-01-01", "'epochs': expected a number, a word or a list"),
    ("not a date", b"epochs: 2020-99-99", "c.yaml"),
    ("a set", b"epochs: !!set {a, b}", "'epochs': expected"),
    ("a list of lists", b"layer-sizes: [[64], [10]]", "'layer-sizes': expected a number"),
    ("a table", b"epochs: {a: 1}", "'epochs': expected a number"),
    ("a list as a name", b"? [1]\n: 2", "c.yaml"),
    ("a number as a name", b"1: 2", "unknown option '1'"),
    ("two documents", b"epochs: 1\n---\nepochs: 2", "c.yaml"),
    ("a list", b"- 1\n- 2", "found list"),
    ("a number", b"3", "found int"),
    ("empty", b"", "found NoneType"),
    ("zeros", bytes(100), "c.yaml"),
    ("latin-1", b"layers: \xe9", "c.yaml"),
    ("UTF-16", "epochs: 1".encode("utf-16"), "c.yaml"),
    ("a byte order mark", b"\xef\xbb\xbfepochs: 1", None),
    ("200 KB", b"# hello\n" * 25_000, "found 131073 bytes or more"),
    ("a number of 5000 digits", b"epochs: " + b"9" * 5000, "c.yaml"),
    ("infinity", b"clip: .inf", "clip"),
    ("NaN", b"learning-rate: .nan", "lr must be finite"),
    ("tabs", b"epochs:\n\t1", "c.yaml"),
]

TOML: list[Case] = [
    ("nested lists", b"layers = " + b"[" * 10_000, "nested too deeply"),
    ("nested lists that end", b"layers = " + b"[" * 100 + b"]" * 100, "nested too deeply"),
    ("nested tables", b"layers = " + b"{a=" * 10_000, "nested too deeply"),
    ("dotted names", b".".join([b"a"] * 5000) + b" = 1", "c.toml"),
    ("a truth value for a number", b"epochs = true", "found the truth value True"),
    ("a name twice", b"epochs = 1\nepochs = 2", "c.toml"),
    ("a date", b"epochs = 2020-01-01", "'epochs': expected a number"),
    ("a table", b"[epochs]\na = 1", "'epochs': expected a number"),
    ("infinity", b"clip = inf", "clip"),
    ("a number of 5000 digits", b"epochs = " + b"9" * 5000, "c.toml"),
    ("a path with a zero", b'csv = "a\\u0000b"', "expected the name of a file"),
    ("zeros", bytes(100), "c.toml"),
    ("latin-1", b"layers = '\xe9'", "c.toml"),
    ("200 KB", b"# hello\n" * 25_000, "found 131073 bytes or more"),
    ("empty", b"", None),
]

JSON: list[Case] = [
    ("nested lists", b"[" * 100_000, "nested too deeply"),
    ("nested tables", b'{"a":' * 100_000, "nested too deeply"),
    ("a name twice", b'{"epochs": 1, "epochs": 2}', "'epochs' occurs twice"),
    ("NaN", b'{"clip": NaN}', "found NaN"),
    ("infinity", b'{"clip": -Infinity}', "found -Infinity"),
    ("1e999", b'{"clip": 1e999}', "clip"),
    ("a truth value for a number", b'{"epochs": true}', "found the truth value True"),
    ("a number of 5000 digits", b'{"epochs": ' + b"9" * 5000 + b"}", "c.json"),
    ("2^53 + 1 epochs", b'{"epochs": 9007199254740993}', None),
    ("half an epoch", b'{"epochs": 1.5}', "epochs"),
    ("half a pair", b'{"layers": "\\ud800"}', "layer 1"),
    ("a list", b"[]", "found list"),
    ("empty", b"", "c.json"),
    ("latin-1", b'{"layers": "\xe9"}', "c.json"),
    ("UTF-16", '{"epochs": 1}'.encode("utf-16"), "c.json"),
    ("9 MB", lambda: b" " * (9 << 20), "found 8388609 bytes or more"),
    ("as it is", json.dumps(CONFIGURATION).encode(), None),
    ("a run", json.dumps({"configuration": CONFIGURATION, "epochs": [{"loss": 1}]}).encode(), None),
    ("a run with a table", b'{"configuration": {"epochs": {"a": 1}}}', "'epochs': expected a number"),
    ("a run with an unknown option", b'{"configuration": {"epoch": 1}}', "unknown option 'epoch'"),
    ("a run without options", b'{"configuration": [1], "epochs": 1}', "unknown option 'configuration'"),
]


def given(**options: str) -> bytes:
    """The good options with some of them changed."""
    changes = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    new = dict(zip(OPTIONS[::2], OPTIONS[1::2], strict=True)) | changes
    return "\n".join(x for pair in new.items() for x in pair).encode("utf-8", "surrogateescape")


OPTION: list[Case] = [
    ("shared=no", given(layers="AllReLU;SReLU(shared=no);BatchNormalization;Linear"), "True or False for 'shared'"),
    ("shared=1", given(layers="AllReLU;SReLU(shared=1);BatchNormalization;Linear"), "True or False for 'shared'"),
    ("alpha=True", given(layers="AllReLU(True);ReLU;BatchNormalization;Linear"), "number for 'alpha', found True"),
    ("alpha=1e308", given(layers="AllReLU(1e308);ReLU;BatchNormalization;Linear"), "for 'alpha'"),
    ("alpha of 400 digits", given(layers=f"AllReLU({'9' * 400});ReLU;BatchNormalization;Linear"), "for 'alpha'"),
    ("a size of one's own", given(layers="ReLU;Linear(input_size=3);BatchNormalization;Linear"), "input_size"),
    ("BatchNormalization(epsilon=-1)", given(layers="ReLU;ReLU;BatchNormalization(epsilon=-1);Linear"), "epsilon"),
    ("BatchNormalization(momentum=2)", given(layers="ReLU;ReLU;BatchNormalization(momentum=2);Linear"), "momentum"),
    ("parentheses", given(layers="(" * 10_000), "cannot read"),
    ("2000 layers", given(layers=";".join(["ReLU"] * 2000)), "found 2000 layers"),
    ("a layer that is not UTF-8", given(layers="\udce9"), "layer 1"),
    ("a layer with a zero", given(layers="ReLU\0;Linear"), "layer 1"),
    ("Adam(epsilon=-1)", given(optimizers="Adam(epsilon=-1)"), "epsilon"),
    ("Adam(beta1=1)", given(optimizers="Adam(beta1=1)"), "beta1"),
    ("Adam(weight_decay=-1)", given(optimizers="Adam(weight_decay=-1)"), "weight_decay"),
    ("AdamW(epsilon=nan)", given(optimizers="AdamW(epsilon=nan)"), "epsilon"),
    ("Momentum(mu=mu)", given(optimizers="Momentum(mu=mu)"), "number for 'mu'"),
    ("Momentum(x=1)", given(optimizers="Momentum(x=1)"), "multiple values for argument 'x'"),
    ("Momentum(1e400)", given(optimizers="Momentum(1e400)"), "number for 'mu'"),
    ("Uniform(-1e308,1e308)", given(layer_weights="Uniform(-1e308,1e308)"), "float32 number for 'a'"),
    ("Uniform(nan)", given(layer_weights="Uniform(nan)"), "number for 'a'"),
    ("Normal(0,1e38)", given(layer_weights="Normal(0,1e38)"), "no finite float32 numbers"),
    ("Normal(0,-1)", given(layer_weights="Normal(0,-1)"), "standard deviation"),
    ("Exponential(0.1,-1000)", given(learning_rate="Exponential(0.1,-1000)"), "found inf for number 2"),
    ("Exponential(0.1,1000)", given(learning_rate="Exponential(0.1,1000)"), None),
    ("StepBased(.1,.5,1e-320)", given(learning_rate="StepBased(.1,.5,1e-320)"), "found inf for number 0"),
    ("StepBased(.1,-1,1)", given(learning_rate="StepBased(.1,-1,1)"), "change_rate"),
    ("StepBased(.1,1e30,0.01)", given(learning_rate="StepBased(.1,1e30,0.01)"), "found inf for number 0"),
    ("MultiStepLR(.1;0,0;1e200)", given(learning_rate="MultiStepLR(.1;0,0;1e200)"), "number for 'gamma'"),
    ("MultiStepLR(.1;0,0;1e30)", given(learning_rate="MultiStepLR(.1;0,0;1e30)"), None),
    ("MultiStepLR(.1;1;-1)", given(learning_rate="MultiStepLR(.1;1;-1)"), "gamma"),
    ("MultiStepLR(.1;x;1)", given(learning_rate="MultiStepLR(.1;x;1)"), "milestones"),
    ("TimeBased(.1,1e38)", given(learning_rate="TimeBased(.1,1e38)"), None),
    ("learning rate 1e999", given(learning_rate="1e999"), "lr must be finite"),
    ("learning rate 1e39", given(learning_rate="1e39"), None),
    ("TimeBased for 10^18 epochs", given(learning_rate="TimeBased(0.1,1)", epochs=str(10**18)), None),
    ("sizes of 5000 digits", given(layer_sizes="64;8;8;" + "9" * 5000), "layer size 4"),
    ("sizes of 400 digits", given(layer_sizes=f"64;{'9' * 400};8;10"), "asks for"),
    ("300,000,000 neurons", given(layer_sizes="64;300000000;8;10"), "asks for"),
    ("dropout inf", given(dropouts="inf"), "dropout"),
    ("density inf", given(densities="inf"), "density 1"),
    ("density 1e-320", given(densities="1e-320"), "less than one weight"),
    ("label_smoothing=nan", given(loss="SoftmaxCrossEntropy(label_smoothing=nan)"), "label_smoothing"),
    ("label_smoothing=True", given(loss="SoftmaxCrossEntropy(label_smoothing=True)"), "label_smoothing"),
    ("10^9 threads", given(threads="1000000000"), "--threads"),
    ("10^30 threads", given(threads="1" + "0" * 30), "--threads"),
    ("precision 10^9", given(precision="1000000000"), "--precision"),
    ("edge items 10^30", given(edgeitems="1" + "0" * 30), "--edgeitems"),
    ("batches of 10^30", given(batch_size="1" + "0" * 30), "--batch-size"),
    ("10^12 examples", given(generate_dataset="mini", dataset_size="1000000000000"), "--dataset-size"),
    ("2·10^9 examples", given(generate_dataset="mini", dataset_size="2000000000"), "asks for"),
    ("seed 2^64", given(seed=str(2**64)), "--seed"),
    ("clip 1e-60", given(clip="1e-60"), "--clip"),
    ("clip 1e60", given(clip="1e60"), "--clip"),
    ("weight decay 1e60", given(weight_decay="1e60"), "--weight-decay"),
    ("overall density NaN", given(overall_density="nan"), "density"),
    ("a path with a zero", given(csv="a\0b"), "expected the name of a file"),
    ("a long path", given(csv="x" * 5000), "cannot be read"),
    ("a file that is endless", given(load_dataset="/dev/zero"), "/dev/zero"),
    ("the tens of 5000 digits", given(epochs="9" * 5000), "--epochs"),
]  # fmt: skip
