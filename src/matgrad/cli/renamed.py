"""Options that have a new spelling: using an old one is an error that says the new one."""

from __future__ import annotations

TOPOLOGY = '--sparse-training "Topology(Magnitude(0.3), grow=Random, weights=Xavier, every=100)"'
RENAMED: dict[str, str] = {  # what was written, and what to write now
    old: new
    for spellings, new in {
        "--processes": "torchrun --nproc-per-node N -m matgrad train …",
        "--max-restarts": "torchrun --max-restarts N -m matgrad train … --checkpoint DIR",
        "--timeout": "mg.distributed.start(timeout=…) in a script",
        "--csv --features": "--table FILE",  # --features of matgrad predict
        "--columns --drop-columns --categorical": '--features "columns=NAMES; drop=NAMES; categorical=NAMES"',
        "--missing --unknown": '--features "missing=RULE; unknown=RULE"',
        "--svmlight-test": '--svmlight "TRAIN;TEST"',
        "--dataset-size": '--generate-dataset "NAME(SIZE)"',
        "--prune --grow --grow-weights": TOPOLOGY,
        "--update-every --update-until": '--sparse-training "RigL(0.3, every=100, until=0.75)"',
        "--drop-decay --regrow": '--sparse-training "RigL(0.3, decay=cosine, regrow=True)"',
        "--overall-density --density-power": '--densities "ER(0.05, power=1)"',
        "--weight-decay --l1": '--optimizers "Adam(weight_decay=1e-4, l1=1e-4)"',
        "--every --keep": '--checkpoint "DIR, every=100, keep=3"',
        "--tensorboard": "--log DIR",
        "--picture-epochs --picture-shape": '--pictures "DIR, epochs=0,5,10, shape=28x28"',
        "--no-statistics": "--statistics none",
        "--accounting": "--statistics costs",
        "--info": "--show parameters",
        "--debug": "--show batches",
        "--precision --edgeitems": '--show "parameters, precision=4, edgeitems=3"',
    }.items()
    for old in spellings.split()
}


def renaming(spelling: str) -> str | None:
    """What a message says of a spelling that was given up; None of one that was not."""
    return f"{spelling} is gone: use {RENAMED[spelling]}" if spelling in RENAMED else None
