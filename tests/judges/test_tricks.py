"""No trick makes a proof: a layer that is wrong for some sizes, settings or runs is not proved for all of them."""

from __future__ import annotations

import pytest
from tricks import CODE, CONSTRUCTORS, DECISIONS, SETTINGS, SIZES, Scale, by_size, tricked

import matgrad as mg
from matgrad.inspection.verdicts import Check
from matgrad.judges import prove_layer

WRONG = {
    **{f"size: {name}": tricked(name, by_size(question)) for name, question in SIZES.items()},
    **{f"decision: {name}": tricked(name, decision) for name, decision in DECISIONS.items()},
    **{f"setting: {name}": cls for name, cls in SETTINGS.items()},
    **{f"constructor: {name}": cls for name, cls in CONSTRUCTORS.items()},
    **{f"code: {name}": cls for name, cls in CODE.items()},
}


def unconditional(checks: list[Check]) -> list[str]:
    return [f"{x.name} [{x.sizes}; {x.given}]" for x in checks if x.name.endswith("DX") and x.ok and not x.given]


def test_the_layer_itself_is_proved():
    assert unconditional(prove_layer(Scale))


@pytest.mark.parametrize("name", WRONG)
def test_tricks_are_not_proved(name: str):
    checks = prove_layer(WRONG[name])
    proved = unconditional(checks)
    assert not proved or len(proved) < len([x for x in checks if x.name.endswith("DX")]), proved
