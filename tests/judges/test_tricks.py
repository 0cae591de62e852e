"""No trick makes a proof: a layer that is wrong for some sizes, settings or runs is not proved for all of them."""

from __future__ import annotations

import pytest
from tricks import CODE, CONSTRUCTORS, DECISIONS, RIGHT, SETTINGS, SIZES, by_size, tricked

from matgrad.judges import prove_layer

WRONG = {
    **{f"size: {name}": tricked(name, by_size(question)) for name, question in SIZES.items()},
    **{f"decision: {name}": tricked(name, decision) for name, decision in DECISIONS.items()},
    **{f"setting: {name}": cls for name, cls in SETTINGS.items()},
    **{f"constructor: {name}": cls for name, cls in CONSTRUCTORS.items()},
    **{f"code: {name}": cls for name, cls in CODE.items()},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_not_proved_for_everything(name: str):
    checks = [x for x in prove_layer(WRONG[name]) if x.name.endswith("DX") or not x.ok]
    assert any(not x.ok or x.given for x in checks), [(x.name, x.sizes) for x in checks]
    assert all("not proved" in x.message or "raises" in x.message for x in checks if not x.ok)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_proved_with_what_it_is_for(name: str):
    cls, given = RIGHT[name]
    checks = [x for x in prove_layer(cls) if not x.note]
    assert not [x.message for x in checks if not x.ok]
    assert {x.given for x in checks if not x.sizes.endswith("= 1")} == {given}
