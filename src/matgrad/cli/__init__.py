"""The command line: `matgrad train`, `evaluate`, `predict`, `check`, `inspect`, `info` and `data get`."""

from matgrad.cli.main import main

__all__ = ["main"]
