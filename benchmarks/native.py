"""Dense training in the C++ core, compared with PyTorch and with the bare products of a step, on generated data."""

from __future__ import annotations

from dataclasses import replace

import paper
from harness.reports import DIFFERENCE, common_notes
from harness.team import Record
from harness.tools import NATIVE, PYTORCH, STAND_ALONE, Tool
from matgrad.foundation.writing import Table

TITLE = "Dense training in the C++ core"
PRODUCTS = {
    "products-openblas": Tool("products, OpenBLAS", "products", "OpenBLAS", "products.OpenBLASProducts"),
    "products-torch": Tool("products, PyTorch", "products", "PyTorch", "products.TorchProducts", requires=("torch",)),
}
TOOLS = {
    "pytorch": PYTORCH,
    "matgrad-native": replace(NATIVE, baselines=tuple(PRODUCTS)),
    "matgrad-cpp": replace(STAND_ALONE, baselines=tuple(PRODUCTS)),
    **PRODUCTS,
}
SHOWN = ("tool", "seconds (best)", "÷ PyTorch (best)", "÷ products (best)", "start-up s", "difference")
COLUMNS = paper.COLUMNS | {"÷ products (best)": paper.COLUMNS["÷ by hand (best)"]}


def tables(record: Record) -> list[Table]:
    """One table per experiment and optimizer."""
    return paper.tables(record, {name: COLUMNS[name] for name in SHOWN})


def notes(record: Record) -> list[str]:
    """What a reader of the tables must know."""
    return [
        *common_notes(record),
        "÷ PyTorch: median of the rounds' ratios to native PyTorch; ÷ products: to the faster library for only the "
        "products of a step, which train nothing; start-up: recording and first batches, not in the seconds; "
        f"{DIFFERENCE}",
    ]


if __name__ == "__main__":
    paper.run("native", __doc__, TOOLS, momenta=(0.0, 0.9))
