"""Options that have a new spelling: using an old one is an error that says the new one."""

from __future__ import annotations

import click

# the option as it was: what to write now. Found on a command line or in a configuration file, it is an error.
TOPOLOGY = '--sparse-training "Topology(Magnitude(0.3), grow=Random, weights=Xavier, every=100)"'
RENAMED: dict[str, str] = {
    "--processes": "torchrun --nproc-per-node N -m matgrad train …",
    "--max-restarts": "torchrun --max-restarts N -m matgrad train … --checkpoint DIR",
    "--timeout": "mg.distributed.start(timeout=…) in a script",
    "--csv": "--table FILE",
    "--columns": '--features "columns=NAMES"',
    "--drop-columns": '--features "drop=NAMES"',
    "--categorical": '--features "categorical=NAMES"',
    "--missing": '--features "missing=RULE"',
    "--unknown": '--features "unknown=RULE"',
    "--features": "--table FILE",  # of matgrad predict
    "--svmlight-test": '--svmlight "TRAIN;TEST"',
    "--dataset-size": '--generate-dataset "NAME(SIZE)"',
    "--prune": TOPOLOGY,
    "--grow": TOPOLOGY,
    "--grow-weights": TOPOLOGY,
    "--update-every": '--sparse-training "RigL(0.3, every=100)"',
    "--update-until": '--sparse-training "RigL(0.3, until=0.75)"',
    "--drop-decay": '--sparse-training "RigL(0.3, decay=cosine)"',
    "--regrow": '--sparse-training "RigL(0.3, regrow=True)"',
    "--overall-density": '--densities "ER(0.05)"',
    "--density-power": '--densities "ER(0.05, power=1)"',
    "--weight-decay": '--optimizers "Adam(weight_decay=1e-4)"',
    "--l1": '--optimizers "Adam(l1=1e-4)"',
    "--every": '--checkpoint "DIR, every=100"',
    "--keep": '--checkpoint "DIR, keep=3"',
    "--tensorboard": "--log DIR",
    "--picture-epochs": '--pictures "DIR, epochs=0,5,10"',
    "--picture-shape": '--pictures "DIR, shape=28x28"',
    "--no-statistics": "--statistics none",
    "--accounting": "--statistics costs",
    "--info": "--show parameters",
    "--debug": "--show batches",
    "--precision": '--show "parameters, precision=4"',
    "--edgeitems": '--show "parameters, edgeitems=3"',
}


def renaming(option: str) -> str | None:
    """What a message says of an option that has a new spelling; None of one that has not."""
    flag = "--" + option.removeprefix("--").replace("_", "-")
    return f"{flag} is gone: use {RENAMED[flag]}" if flag in RENAMED else None


def with_renaming(error: click.NoSuchOption) -> click.UsageError:
    """The error for an unknown option, which says the new spelling if it has one."""
    text = renaming(error.option_name)
    return error if text is None else click.UsageError(text, error.ctx)
