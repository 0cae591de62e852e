"""What mkdocs does to the pages: mathematics becomes MathML, and files of the repository become pages of the site.

A page links to a file outside `docs` as on a forge, such as `../benchmarks/paper/table.md` or
`../src/matgrad/layers/linear.py#L22`. The site has these files too: sources as pages whose lines can be linked to.
"""

from __future__ import annotations

import html
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import matgrad as mg
from matgrad.explanation.html import mathml

sys.path.insert(0, str(Path(__file__).parent))
import equations
import notebooks

ROOT = Path(__file__).parents[2]
FONT = "src/matgrad/explanation/assets/stix-two-math.woff2"
EQUATIONS, PICTURE = "<!-- equations -->", "![The page of matgrad explain](explain.png)"
FRAME = '<iframe class="explain" src="example.html" title="A training step, explained"></iframe>'
HIDDEN = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp"}
NOTEBOOK = ".ipynb"
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?:#L(\d+))?(?=[)#\s])")
LABEL = re.compile(
    r'<(?:code|span class="c1")>(?:# )?((?:eq|appendix):[\w-]+)</(?:code|span)>'
)  # in text and in sources
MATHEMATICS = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files outside `docs` that pages link to, those with equations, the font, and a page of `mg.explain`."""
    files.append(File.generated(config, "assets/stix-two-math.woff2", abs_src_path=str(ROOT / FONT)))
    files.append(File.generated(config, "example.html", content=example()))
    waiting = [*equations.files()]
    for file in files.documentation_pages():
        waiting += links(file.content_string, f"docs/{file.src_uri}")
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(place(path)) is None:
            files.append(as_file(path, config))
            waiting += links((ROOT / path).read_text(), path) if path.endswith(".md") else []
    return files


def example() -> str:
    """The page of `matgrad explain` for a small network."""
    mg.manual_seed(0)
    X, t = mg.load_digits()
    M = mg.create_model("ReLU;Linear", [4, 5, 3])
    few = t < 3
    return mg.explain(M, X[few][:6, [20, 28, 36, 44]] / 16, t[few][:6], verify=True).page()


def links(markdown: str, page: str) -> Iterator[str]:
    """The files of the repository that a page links to, by their paths from its root."""
    for target, _ in LINK.findall(markdown):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if (ROOT / path).is_file():
            yield path


def place(path: str) -> str:
    """Where the site has a file of the repository."""
    return path.removeprefix("docs/") + (".md" if Path(path).suffix in (*LANGUAGES, NOTEBOOK) else "")


def origin(file: File) -> str:
    """The file of the repository that a file of the site is."""
    names = (file.src_uri, file.src_uri.removesuffix(".md"))
    paths = (folder + name for folder in ("", "docs/") for name in names)
    return next(path for path in paths if (ROOT / path).is_file())


def as_file(path: str, config: MkDocsConfig) -> File:
    """A file of the repository in the site: a source is a page with numbered lines, and a notebook is a page too."""
    if path.endswith(NOTEBOOK):
        return File.generated(config, place(path), content=notebooks.page(ROOT / path))
    language = LANGUAGES.get(Path(path).suffix)
    if language is None:
        return File.generated(config, place(path), abs_src_path=str(ROOT / path))
    code = (ROOT / path).read_text()
    content = f'{HIDDEN}# {Path(path).name}\n\n`{path}`\n\n``````{language} linenums="1"\n{code}``````\n'
    return File.generated(config, place(path), content=content)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in the equations and the page of `mg.explain`, and let links lead to where the site has the file."""
    here, path = page.file.src_uri, origin(page.file)
    if Path(path).suffix in LANGUAGES:
        return markdown

    def relocated(found: re.Match[str]) -> str:
        target, line = found.groups()
        if not (paths := [*links(f"]({target})", path)]):
            return found[0]
        link = posixpath.relpath(place(paths[0]), posixpath.dirname(here) or ".")
        return link + (f"#__codelineno-0-{line}" if line else "")

    markdown = markdown.replace(EQUATIONS, equations.page() if EQUATIONS in markdown else "").replace(PICTURE, FRAME)
    return LINK.sub(relocated, markdown)


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """LaTeX becomes MathML, so that no script is needed to show it, and labels links; notebooks get their outputs."""

    def typeset(found: re.Match[str]) -> str:
        kind, latex = found.groups()
        return mathml(html.unescape(latex).strip(), "block" if kind == "div" else "inline")

    def linked(found: re.Match[str]) -> str:
        label = found[1]
        return f'<a href="{there}#{label}">{found[0]}</a>' if label in equations.labels() else found[0]

    there = posixpath.relpath("equations.html", posixpath.dirname(page.url) or ".")
    content, path = LABEL.sub(linked, MATHEMATICS.sub(typeset, content)), origin(page.file)
    return notebooks.with_outputs(content, ROOT / path) if path.endswith(NOTEBOOK) else content
