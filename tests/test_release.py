"""Publishing: metadata and workflows are sound, and what is built from a checkout can be installed elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import matgrad as mg
from cli_support import command_named
from support import PATIENCE

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def run(*command: str | Path, **options) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("citation-file-format", [ROOT / "CITATION.cff"]),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        ("github-issue-forms", FORMS),
        ("github-workflows", WORKFLOWS),
        ("github-actions", [ROOT / "action.yml"]),
    ],
)
def test_files_for_the_forge_follow_their_schemas(schema: str, files: list[Path]):
    assert files
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files)


def test_the_citation_agrees_with_the_package():
    assert CITATION["version"] == mg.__version__
    assert " AND ".join(CITATION["license"]) == PROJECT["project"]["license"]
    assert CITATION["authors"] == PROJECT["project"]["authors"]
    (paper,) = CITATION["references"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme
    assert [author["family-names"] for author in paper["authors"]] == [
        "Wesselink", "Grooten", "Wetering", "Xiao", "Mocanu"
    ]  # fmt: skip


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_actions_of_a_commit_and_few_permissions(workflow: Path):
    """A tag can be moved to other code; and a job that may publish is one that runs for tags alone."""
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used), used
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert "permissions" not in job or job["if"] == "startsWith(github.ref, 'refs/tags/v')"


def test_hooks_call_commands_that_exist():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= set(hook)
    called = [hook["entry"].removeprefix("matgrad ")]
    called += re.findall(r"-m matgrad (.*)", (ROOT / "action.yml").read_text())
    assert len(called) == 3
    for words in map(str.split, called):
        known = {option for parameter in command_named(words[0]).params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_workflows_call_targets_and_versions_that_exist():
    text = "".join(path.read_text() for path in WORKFLOWS)
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"run: make (.*)", text)) <= set(targets)
    minor = [x.rpartition(".")[2] for x in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", x)]
    ci = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())
    assert ci["jobs"]["test"]["strategy"]["matrix"]["python"] == [f"3.{x}" for x in minor]
    assert PROJECT["tool"]["cibuildwheel"]["build"].split() == [f"cp3{x}-*" for x in minor]
    assert PROJECT["project"]["requires-python"] == f">=3.{minor[0]}"


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def tracked(folder: str = ".") -> set[str]:
    """The files of the checkout that git does not ignore."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", folder, cwd=ROOT).splitlines()
    return {path for path in listed if (ROOT / path).is_file()}


@pytest.mark.slow
def test_distributions_can_be_uploaded(distributions: tuple[Path, Path]):
    output = run(sys.executable, "-m", "twine", "check", "--strict", *distributions)
    assert output.count("PASSED") == 2
    assert sum(path.stat().st_size for path in distributions) < 12_000_000


@pytest.mark.slow
def test_the_sdist_has_what_git_has(distributions: tuple[Path, Path]):
    """So that the tests run from it too; neither builds nor environments are in it."""
    with tarfile.open(distributions[0]) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert found == {*tracked(), "PKG-INFO"}


@pytest.mark.slow
def test_the_wheel_has_the_package_and_the_core(distributions: tuple[Path, Path]):
    with zipfile.ZipFile(distributions[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    core = {name for name in names if re.fullmatch(r"matgrad/_native\..*(so|pyd)", name)}
    assert len(core) == 1
    assert names - core == {path.removeprefix("src/") for path in tracked("src")}


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(distributions: tuple[Path, Path], tmp_path: Path):
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python, matgrad = programs / "python", programs / "matgrad"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{distributions[1]}[symbolic]")
    inside = {"cwd": tmp_path, "env": {"PATH": str(programs)}}  # where no checkout is
    code = "import sys, matgrad; print(*{name.partition('.')[0] for name in sys.modules})"
    imported = set(run(python, "-c", code, **inside).split())
    assert "numpy" in imported
    assert not {"scipy", "sympy", "yaml"} & imported
    trained = run(matgrad, "train", "--backend", "native", "--epochs", "1", "--save-weights", "model.npz", **inside)
    assert re.search(r"test accuracy 0\.\d{3}", trained)
    assert re.search(r"all \d+ equations agree", run(matgrad, "check", "model.npz", **inside))
    assert re.search(r"numbers: (\d+) of \1 checks right", run(matgrad, "verify", "--quick", **inside))
