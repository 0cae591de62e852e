"""`matgrad train` as a rank: one of several processes that torchrun, SLURM or JAX started together."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout, suppress
from typing import Any

import click

from matgrad import distributed
from matgrad.cli.checkpoints import RESUMED, WRITTEN, configuration_of
from matgrad.cli.commands import Command, as_click_error, echo
from matgrad.cli.configuration import recorded
from matgrad.distributed import Disagreement
from matgrad.distributed.group import place_of
from matgrad.storage.checkpoints import find_checkpoint

RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # in the environment: how often torchrun has restarted the ranks


class RankedCommand(Command):
    """A command that runs in one process, or as a rank of several."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        """The context of the command line; a run that torchrun has restarted is resumed from its newest checkpoint."""
        ctx = super().make_context(info_name, args, *more, **extra)
        if os.environ.get(RESTARTS, "0") != "0" and ctx.params["checkpoint"] is not None:
            with suppress(ValueError, OSError):  # there is no checkpoint yet
                folder, _ = WRITTEN.split(ctx.params["checkpoint"])
                known, asked = configuration_of(checkpoint := find_checkpoint(folder)), recorded(ctx.params)
                if all(asked[name] in (None, known.get(name)) for name in asked if name not in ("device", "threads")):
                    ctx.meta[RESUMED] = checkpoint
                    ctx.params |= {"resume": folder, "checkpoint": None, "overwrite": True}  # its own files
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, as a rank if it was started as one.

        Rank 0 alone prints, except for errors; one that all ranks have is printed once.
        """
        options, place = ctx.params, place_of(os.environ)
        if (place is None or place.size == 1) and "JAX_COORDINATOR_ADDRESS" not in os.environ:
            return super().invoke(ctx)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # JAX's: only errors
        group = distributed.start(backend="torch" if options["backend"] == "auto" else options["backend"])
        if options["device"] == "cuda" and place is not None:
            options["device"] = f"cuda:{place.local_rank}"
        try:
            with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if group.is_first else nowhere):
                super().invoke(ctx)
                group.close()
        except click.exceptions.Exit:  # a run that was interrupted ends in order
            group.close()
            raise
        except BaseException as error:
            if (shown := as_click_error(error)) is None:
                raise
            if group.is_first or not isinstance(error, Disagreement):
                echo(f"rank {group.rank}: {shown.format_message()}", err=True)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(shown.exit_code)  # without waiting for connections, whose other ends may be lost
