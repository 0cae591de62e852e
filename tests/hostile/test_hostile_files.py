"""Files made to break a reader give an error of one line, in seconds and within 500 MB, or are read correctly."""

from __future__ import annotations

from hostile_cases import HOSTILE
from hostile_readers import READERS
from hostile_worker import MEGABYTES, outcomes


def test_hostile_files(tmp_path):
    cases = [(reader, *case) for reader, cases in HOSTILE.items() for case in cases]

    def files():
        for i, (reader, _, content, _) in enumerate(cases):
            folder = tmp_path / str(i)
            folder.mkdir()
            path = folder / READERS[reader].name
            path.write_bytes(content() if callable(content) else content)
            yield reader, path

    wrong = []
    for (reader, title, _, expected), found in zip(cases, outcomes(files()), strict=True):
        verdict = "read" if expected is None else "refused"
        if found.verdict != verdict or (expected or "") not in found.message or found.megabytes > MEGABYTES:
            wrong.append(f"{reader}, {title}: expected {verdict} {expected!r}, found {found}")
    assert not wrong, "\n".join(wrong)
