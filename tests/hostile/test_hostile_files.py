"""Files made to break a reader are refused with one line, in seconds and within 500 MB, or read correctly."""

from __future__ import annotations

import pytest
from hostile_files import HOSTILE
from hostile_readers import READERS
from hostile_worker import MEGABYTES, outcomes


def test_there_are_many():
    assert sum(map(len, HOSTILE.values())) >= 400
    assert all(len({title for title, _, _ in cases}) == len(cases) for cases in HOSTILE.values())


@pytest.mark.parametrize("reader", HOSTILE)
def test_hostile_files(tmp_path, reader: str):
    def files():
        for i, (_, content, _) in enumerate(HOSTILE[reader]):
            folder = tmp_path / str(i)
            folder.mkdir()
            path = folder / READERS[reader].name
            path.write_bytes(content() if callable(content) else content)
            yield reader, path

    wrong = []
    for (title, _, expected), found in zip(HOSTILE[reader], outcomes(files()), strict=True):
        verdict = "read" if expected is None else "refused"
        if found.verdict != verdict or (expected or "") not in found.message or found.megabytes > MEGABYTES:
            wrong.append(f"{title}: expected {verdict} {expected!r}, found {found}")
    assert not wrong, "\n".join(wrong)
