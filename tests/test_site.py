"""The site: it is built without a warning, needs no network, and all its links lead somewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from fontTools.ttLib import TTFont

import matgrad as mg
from matgrad.inspection.equations import METHODS, equations
from page_support import DOCS, PAGES, ROOT
from support import PATIENCE

sys.path.insert(0, str(DOCS / "site"))
import equations as equations_page
import picture
import verified


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@dataclass
class Html(HTMLParser):
    """What a page refers to and can be referred to by."""

    text: str
    links: list[str] = field(default_factory=list)  # of <a>
    parts: list[str] = field(default_factory=list)  # scripts, styles, pictures: what a browser loads by itself
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.names.add(value or "")
            elif name in ("href", "src") and value:
                (self.links if tag == "a" else self.parts).append(value)


@pytest.fixture(scope="session")
def pages(site) -> dict[Path, Html]:
    return {path: Html(path.read_text()) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_is_built(site, pages):
    assert {path.name for path in pages} >= {page.replace(".md", ".html") for page in PAGES}


@pytest.mark.slow
def test_every_link_and_anchor_leads_somewhere(site, pages):
    broken, seen = [], 0
    for path, page in pages.items():
        for link in (*page.links, *page.parts):
            scheme, server, target, _, anchor = urlsplit(link)
            if scheme or server:
                assert scheme in ("https", "data"), (path, link)
                continue
            start = site if path.name == "404.html" else path.parent
            there = (start / unquote(target).lstrip("/") if target else path).resolve()
            there = there / "index.html" if there.is_dir() else there
            seen += 1
            if not there.exists() or (anchor and there in pages and unquote(anchor) not in pages[there].names):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, "\n".join(broken)
    assert seen > 2000


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        assert not [part for part in page.parts if urlsplit(part).netloc], path
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()), style


@pytest.mark.slow
def test_mathematics_is_mathml(pages):
    """No page has LaTeX left that a script would have to show."""
    for path, page in pages.items():
        assert "arithmatex" not in page.text, path
    assert sum(page.text.count("<math") for page in pages.values()) > 100


@pytest.mark.slow
def test_the_font_has_every_character(site, pages):
    font = TTFont(site / "assets" / "stix-two-math.woff2").getBestCmap()
    formulas = "".join(x for page in pages.values() for x in re.findall(r"<math.*?</math>", page.text, re.DOTALL))
    characters = {c for c in html.unescape(re.sub(r"<[^>]*>", "", formulas)) if not c.isspace()}
    assert {c for c in characters if ord(c) not in font} == set()


TEXTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "native/README.md", *(f"docs/{page}" for page in PAGES)]


@pytest.mark.parametrize("page", TEXTS)
def test_links_in_the_repository_exist(page):
    """As a forge shows them, with its anchors of titles and of lines."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        scheme, _, target, _, anchor = urlsplit(link)
        assert scheme in ("", "https"), link
        if not scheme:
            there = (ROOT / page).parent / target if target else ROOT / page
            assert there.exists(), f"{page}: {link}"
            assert not anchor or anchor in titles(there), f"{page}: {link}"


def titles(page: Path) -> set[str]:
    """The anchors of a Markdown file."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in found}


# -- what is generated --------------------------------------------------------------------------


def test_the_record_of_the_verifier_is_about_the_present_source():
    """If this fails, an equation has changed: matgrad verify --json | python docs/site/verified.py"""
    assert equations_page.record()["sources"] == verified.sources()


def test_the_record_of_the_verifier_has_every_equation():
    judged = equations_page.record()["equations"]
    missing = [
        str(equation)
        for layer in verified.LAYER_CLASSES
        for method in METHODS
        for equation in equations(layer, method)
        if str(equation) not in judged
    ]
    parts = ["BatchNormalization.s", "BatchNormalization.t", "LayerNormalization.s", "LayerNormalization.t"]
    parts += ["RMSNormalization.t"]
    assert missing == [part.replace(".", "Layer.") for part in parts], "parts of DX, which is judged"
    for cls in verified.CLASSES:
        assert any(name.startswith(f"{cls.__name__}.") for name in judged)
    assert sum(judged.values()) == equations_page.record()["checks"]


@pytest.mark.slow
def test_the_equations_page_has_every_class_with_its_verdict(site):
    text = (site / "equations.html").read_text()
    for cls in verified.CLASSES:
        assert f'id="{cls.__name__.lower()}"' in text
    assert text.count('class="right"') > 100
    assert 'class="wrong"' not in text
    assert "src/matgrad/layers/linear.py.html#__codelineno-0-" in text


@pytest.mark.slow
def test_notebooks_have_their_outputs(site):
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{notebook.name}.html").read_text()
        assert "<!-- output" not in text
        assert text.count('class="output"') == notebook.read_text().count('"text/html": ')
        assert 'class="printed"' in text


@pytest.mark.slow
def test_the_course_has_its_outputs(site):
    for notebook in (ROOT / "notebooks/course").glob("*.ipynb"):
        text = (site / "notebooks/course" / f"{notebook.name}.html").read_text()
        assert text.count('class="output"') >= notebook.read_text().count("mg.prove("), notebook


@pytest.mark.slow
def test_labels_lead_to_their_equation(site, pages):
    assert pages[site / "equations.html"].names >= {"eq:dLdw", "eq:softmax-layer-backprop1", "eq:product-rule1"}
    assert "../../../equations.html#eq:dLdw" in pages[site / "src/matgrad/layers/linear.py.html"].links


@pytest.mark.slow
def test_the_search_works_from_a_folder(site, browser):
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.fill(".md-search__input", "RigL")
    page.wait_for_selector(".md-search-result__link", timeout=1000 * PATIENCE)
    page.close()


def test_a_wrong_equation_is_shown_as_wrong(monkeypatch):
    record = {"equations": {"A.x": 3}, "wrong": {"A.x": 1}}
    monkeypatch.setattr(equations_page, "record", lambda: record)
    assert "wrong in 1 of 3 checks" in equations_page._verdict("A.x")


def test_the_reference_has_every_public_name_once():
    public = re.findall(r"import (\w+) as \1$", Path(mg.__file__).with_suffix(".pyi").read_text(), re.MULTILINE)
    listed = re.findall(r"^::: matgrad\.(\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(public)


def test_the_picture_is_that_of_its_script():
    assert picture.TARGET.read_text() == picture.picture()
