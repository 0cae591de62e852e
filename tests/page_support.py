"""Runs a page of the documentation as a reader would: its blocks in order, in one folder and one process.

python tests/page_support.py PAGE.md runs the page in the current folder. ```bash blocks are commands, ```python blocks
examples, and a block with a title is a file, which is written and not run. Text in ```blocks without a language
is output.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))

SETUP = ("make", "pip", ".")  # commands that install
LAUNCHERS = ("torchrun", "srun")
# arguments that need data, minutes or a GPU
ELSEWHERE = ("bench", "mnist", "cifar", "svmlight", "verified.py", "cuda", "--coq")


@dataclass
class Block:
    """A block of code: its language, the name of a file if it has one, and its text."""

    language: str
    title: str
    text: str

    def commands(self) -> list[list[str]]:
        """The words of every command in it, without comments; a pipe is one command."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.strip()]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found = re.findall(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*parts) for parts in found]


def commands(page: Path) -> Iterator[list[str]]:
    """All commands of a page."""
    for block in blocks(page):
        if block.language in ("bash", "sh"):
            yield from block.commands()


def runs_here(command: list[str]) -> bool:
    """Whether a command needs only embedded data and seconds."""
    return command[0] not in (*SETUP, *LAUNCHERS) and not any(word in part for word in ELSEWHERE for part in command)


def make_files() -> None:
    """The files that the pages read, but do not make: masks, and a pruned model with zeros."""
    import matgrad as mg

    rng, sizes = np.random.default_rng(0), (64, 128, 64, 10)
    names = [(f"W{i + 1}", (sizes[i + 1], sizes[i])) for i in range(3)]
    np.savez("masks.npz", **{name: rng.random(shape) < 0.2 for name, shape in names})
    M = mg.create_model("ReLU;ReLU;Linear", sizes)
    for layer in M.layers:
        layer.W = layer.W * (rng.random(layer.W.shape) < 0.2).astype(np.float32)
    M.save("zeros.npz", information={"classes": 10})


def run_command(command: list[str]) -> None:
    """Run `matgrad …`; what is trained must end with its accuracy or error."""
    from cli_support import succeed

    program, *arguments = command
    assert program == "matgrad", command
    quiet = ("--quiet",) if arguments[0] == "train" and "--quiet" not in arguments else ()
    output = succeed(*arguments, *quiet)
    last = output.splitlines()[-1]
    if arguments[0] == "train":
        assert re.fullmatch(r"test accuracy 0\.\d{3}|test (RMSE|perplexity) \d+\.\d{3}", last), command


def run_page(page: Path) -> None:
    """All blocks in order."""
    namespace: dict = {"__name__": "__main__"}
    for block in blocks(page):
        if block.title:
            compile(block.text, block.title, "exec")
            Path(block.title).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, f"{page.name}, an example", "exec"), namespace)
        elif block.language in ("bash", "sh"):
            for command in filter(runs_here, block.commands()):
                print("$", *command, flush=True)
                run_command(command)


if __name__ == "__main__":
    make_files()
    run_page(Path(sys.argv[1]))
