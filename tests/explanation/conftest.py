"""A page in a browser, for the tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest


class OpenPage:
    """A page in the browser, with all that it complained of and asked the network for."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}} | options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __getattr__(self, name):
        return getattr(self.page, name)

    def go(self, name: str) -> None:
        """Show the step that computes this value."""
        assert self.evaluate("name => matgrad.data.steps.some(x => x.name === name)", name)
        self.evaluate("name => matgrad.go(matgrad.data.steps.findIndex(x => x.name === name))", name)

    def text(self, selector: str) -> str:
        """The text of an element, without white space."""
        return "".join(self.locator(selector).first.text_content().split())


@pytest.fixture
def open_page(browser, tmp_path):
    """``open_page(explanation, **options of the browser's context)``: its page, checked for problems at the end."""
    opened: list[OpenPage] = []

    def open_page(explanation, **options) -> OpenPage:
        path = tmp_path / f"{len(opened)}.html"
        explanation.save(path)
        opened.append(OpenPage(browser, path, **options))
        return opened[-1]

    yield open_page
    for page in opened:
        page.context.close()
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
