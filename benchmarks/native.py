"""Dense training in the C++ core, compared with PyTorch and with the bare products of a step, on generated data."""

from __future__ import annotations

import time
from dataclasses import replace

from harness.problems import Setting, initial_parameters
from harness.reports import DIFFERENCE, Record, common_notes, finish, head, installed, parser, say, script
from harness.team import Team
from harness.tools import NATIVE, PYTORCH, STAND_ALONE, Tool
from matgrad.foundation.writing import Table

TITLE = "Dense training in the C++ core"

PRODUCTS = {
    "products-openblas": Tool("products, OpenBLAS", "products", "OpenBLAS", "baselines.products.OpenBLASProducts"),
    "products-torch": Tool(
        "products, PyTorch", "products", "PyTorch", "baselines.pytorch.PyTorchProducts", requires=("torch",)
    ),
}
TOOLS = {
    "pytorch": PYTORCH,
    "matgrad-native": replace(NATIVE, baselines=tuple(PRODUCTS)),
    "matgrad-cpp": replace(STAND_ALONE, baselines=tuple(PRODUCTS)),
    **PRODUCTS,
}
MOMENTA = {"GradientDescent": 0.0, "Momentum(0.9)": 0.9}
paper = script("paper")
figure = paper.figure


def main() -> None:
    """Measure the chosen tools with both optimizers."""
    found = parser(__doc__, tools=list(TOOLS))
    found.add_argument("--experiments", type=lambda text: text.split(","), default="mnist,cifar10", metavar="LIST")
    found.add_argument("--steps", type=int, metavar="N", help="only the first N batches of an epoch")
    options, started = found.parse_args(), time.time()
    tools, missing = installed(options, TOOLS)
    experiments = []
    for name in options.experiments:
        data = paper.load(name, None, options.steps, options.seed)
        for optimizer, momentum in MOMENTA.items():
            setting = Setting(paper.SIZES[name], momentum=momentum, dtype=options.dtype)
            with Team(tools, threads=options.threads, dtype=options.dtype, report=say) as team:
                turns = team.train(setting, data, initial_parameters(setting, options.seed), options.rounds)
            about = paper.about(name, setting, data)
            about |= {"title": f"{about['title']}, {optimizer}", "optimizer": optimizer, "failures": team.failures}
            experiments.append(about | {"tools": [paper.row(x, tools[x], turns) for x in turns.parameters]})
    setting = {key: value for key, value in paper.DESCRIPTION.items() if key != "optimizer"}
    record = head("native", started, options) | {"missing": missing, "setting": setting, "experiments": experiments}
    finish(record, options.output)


COLUMNS = {
    **{name: paper.COLUMNS[name] for name in ("tool", "seconds (best)", "÷ PyTorch (best)")},
    "÷ products (best)": paper.COLUMNS["÷ by hand (best)"],
    **{name: paper.COLUMNS[name] for name in ("start-up s", "difference")},
}


def tables(record: Record) -> list[Table]:
    """One table per experiment and optimizer."""
    return paper.tables(record, COLUMNS)


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    return [
        *common_notes(record),
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ products: to the faster library for only the "
        "products of a step, which train nothing; start-up: recording and first batches, not in the seconds; "
        f"{DIFFERENCE}",
    ]


if __name__ == "__main__":
    main()
