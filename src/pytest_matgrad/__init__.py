"""The pytest plugin: with --matgrad, what files claim by @mg.proved is a test each; without it nothing is imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VERDICTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.getgroup("matgrad").addoption(
        "--matgrad", action="store_true", help="prove the gradients of functions with @mg.proved, for all sizes"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Files with claims in them."""
    if not parent.config.getoption("matgrad") or file_path.suffix != ".py":
        return None
    from matgrad.writers.claims import has_claims

    return ClaimsFile.from_parent(parent, path=file_path) if has_claims(file_path) else None


class ClaimsFile(pytest.File):
    """A file with claims."""

    def collect(self) -> Iterator[pytest.Item]:
        """A test for each."""
        from matgrad.writers.claims import claims_of, loaded

        try:
            module = loaded(self.path)
        except ValueError as error:
            raise self.CollectError(str(error)) from None
        for claim in claims_of(module):
            yield ClaimItem.from_parent(self, name=claim.name, claim=claim)


class ClaimItem(pytest.Item):
    """A claim, which holds if it is proved."""

    def __init__(self, *, claim: Any, **options: Any) -> None:
        super().__init__(**options)
        self.claim = claim

    def runtest(self) -> None:
        """Prove it."""
        verdict = self.claim.verdict()
        self.config.stash.setdefault(VERDICTS, []).append(f"{self.path.name}:{verdict.head}")
        verdict.check()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The verdict, without the way to it; other errors, such as of an unknown argument, in one line."""
        if excinfo.errisinstance((AssertionError, ValueError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """What is tested."""
        return self.path, None, f"proof of {self.name}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """One line for each function."""
    if lines := config.stash.get(VERDICTS, []):
        terminalreporter.section("matgrad")
        for line in lines:
            terminalreporter.write_line(line)
