"""What DistributedDataParallel makes of the same batch, and what matgrad does: measured in two processes with gloo."""

from __future__ import annotations

import json
import re

import pytest
from ranks_support import torchrun

from page_support import DOCS, ROOT

pytestmark = pytest.mark.slow
WORKER = ROOT / "tests" / "distributed" / "ddp_worker.py"


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    """How far each is from one process, by case."""
    status, output, said = torchrun(WORKER)
    assert status == 0, said
    return json.loads(output.splitlines()[-1])


def test_matgrad_trains_as_one_process(errors):
    assert max(errors["matgrad"].values()) <= 1e-15


def test_ddp_does_so_with_equal_parts_alone(errors):
    assert errors["ddp"]["plain 6"] <= 1e-15


def test_what_the_page_says_about_ddp(errors):
    """Unequal parts count as equal ones, and each part is normalized by itself."""
    page = (DOCS / "distributed.md").read_text()
    for case, row in {"plain 7": "7 examples", "batch normalization 6": "6 examples, batch normalization"}.items():
        (found,) = re.findall(rf"^\| {row} \| ([^|]*) \|", page, re.MULTILINE)
        assert found == f"{errors['ddp'][case]:.0e}".replace("e-0", "e-"), case
        assert errors["ddp"][case] > 1e-3
