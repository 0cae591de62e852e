"""Run a command in a terminal of 100 columns and save what it shows as SVG: the pictures of the README.

python docs/screenshot.py docs/train.svg matgrad train --epochs 8 --layers "ReLU;BatchNormalization;Linear"
"""

import io
import os
import pty
import re
import shlex
import sys

from rich.console import Console
from rich.text import Text

COLUMNS = 100


def shown(command: list[str]) -> str:
    """What the command writes to a real terminal, without the lines that a progress bar wrote over."""
    chunks: list[bytes] = []

    def read(descriptor: int) -> bytes:
        chunks.append(os.read(descriptor, 4096))
        return chunks[-1]

    os.environ |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    sys.stdout.flush()
    pty.spawn(command, read)
    text = re.sub(r"\x1b\[\?25[lh]", "", b"".join(chunks).decode().replace("\r\n", "\n"))
    lines = [re.split(r"\r|\x1b\[2K", line)[-1] for line in text.split("\n")]
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    target, *command = sys.argv[1:]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(f"$ {shlex.join(command)}", style="bold", highlight=False)
    console.print(Text.from_ansi(shown(command)))
    console.save_svg(target, title="matgrad")
