"""The command line: one file per command of `matgrad`, and what the commands share."""

from matgrad.cli.main import main as main
