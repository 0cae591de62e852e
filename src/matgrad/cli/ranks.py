"""`matgrad train` as several ranks: its options, and what a rank does differently."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from typing import Any

import click

from matgrad import distributed
from matgrad.cli.checkpoints import BOUND, OWN
from matgrad.cli.errors import as_click_error
from matgrad.cli.files import FileType
from matgrad.cli.groups import GroupedCommand, GroupedOption, all_of, option
from matgrad.distributed.agreement import agree
from matgrad.distributed.group import Group, reason_of
from matgrad.distributed.launching import LOST, launch
from matgrad.distributed.starting import TIMEOUT, Place, framework_of, place_of, run_name
from matgrad.storage.checkpoints import find_checkpoint

ARGUMENTS = "matgrad.arguments"  # in a context: the command line
REPEATED = ("quiet", "as_json", "info", "timeout")  # options of one command, which a checkpoint does not keep

rank_options = all_of(
    option(
        "Engine",
        "--processes",
        type=click.IntRange(1, 1024),
        metavar="N",
        help="Train in N processes on this machine, as in one, to rounding. Needs PyTorch or JAX. torchrun and srun "
        "start processes on several machines.",
    ),
    option(
        "Engine",
        "--max-restarts",
        type=click.IntRange(0, 1000),
        default=0,
        metavar="N",
        help="How often --processes may start again after a failure: from the last checkpoint, if there is one.",
    ),
    option(
        "Engine",
        "--timeout",
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        default=TIMEOUT,
        metavar="SECONDS",
        help="When a process that does not answer the others is lost.",
    ),
)


class RankedCommand(GroupedCommand):
    """A command that runs in one process, or as a rank of several that were started together."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command line or, of a run that starts again, of its last checkpoint."""
        arguments = list(args)
        try:
            ctx = super().make_context(info_name, list(arguments), parent, **extra)
            if again := _resuming(self, ctx.params):
                ctx = super().make_context(info_name, again, parent, **extra)
        except click.exceptions.Exit:  # after --help
            raise
        except Exception as error:
            with suppress(ImportError), _ranks("torch", TIMEOUT):
                raise error
            raise
        ctx.meta[ARGUMENTS] = arguments
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, as a rank if it was started as one; or start the ranks."""
        options, size = ctx.params, ctx.params["processes"] or 1
        if _place() is None:
            if size == 1 and options["max_restarts"]:
                raise ValueError("--max-restarts needs --processes N, with N above 1")
            if size > 1:
                _check_options(options, size)
                self.check(ctx)
                command = [sys.executable, "-m", "matgrad", str(ctx.info_name), *ctx.meta[ARGUMENTS]]
                say = partial(click.echo, err=True)
                raise click.exceptions.Exit(launch(command, size, restarts=options["max_restarts"], say=say))
        with _ranks(_kind(options), options["timeout"]) as group:
            if group is not None:
                _check_options(options, group.size)
                agree(group, _facts(self, options))
                options["device"] = own_device(options["device"], _place())
            return super().invoke(ctx)


def _kind(options: Mapping[str, Any]) -> str:
    """The backend that decides how ranks exchange matrices."""
    return "torch" if options["backend"] == "auto" else options["backend"]


def _place() -> Place | None:
    """The place of this process among several; of one that something but torchrun started alone, none."""
    place = place_of(os.environ)
    return None if place is not None and place.size == 1 and run_name(os.environ) is None else place


def own_device(device: str | None, place: Place | None) -> str | None:
    """The device of a rank: each rank of a machine has a GPU of its own."""
    return f"cuda:{place.local_rank}" if device == "cuda" and place is not None else device


def _check_options(options: Mapping[str, Any], size: int) -> None:
    """Refuse what several ranks cannot do."""
    framework_of(_kind(options))
    if options["processes"] not in (None, size):
        raise ValueError(f"--processes {options['processes']}: this process was started as one of {size} ranks")
    if size > 1 and (name := next((name for name in ("eager", "debug") if options[name]), None)):
        raise ValueError(f"--{name} runs the equations one by one, which {size} ranks cannot do together")


def _facts(command: click.Command, options: Mapping[str, Any]) -> dict[str, str]:
    """The options that all ranks must have in common; files may lie elsewhere, and their content is compared later."""
    bound = [p for p in command.params if isinstance(p, GroupedOption) and p.group in (*BOUND, "Engine")]
    names = [p for p in bound if not isinstance(p.type, FileType) and p.name not in ("threads", "device", *OWN)]
    return {p.opts[0]: str(options[str(p.name)]) for p in names}


@contextmanager
def _ranks(backend: str, timeout: float) -> Iterator[Group | None]:
    """Be a rank within the block, if this process was started as one; errors end all ranks, and are printed once.

    All ranks but the first print nothing else.
    """
    if _place() is None:
        yield None
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what goes wrong, we say in one line
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # JAX's, of which this leaves errors
    group = distributed.start(timeout=timeout, backend=backend)
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if group.is_first else nowhere):
            yield group
            group.close()
    except click.exceptions.Exit:  # a run that was interrupted ends in order
        group.close()
        raise
    except BaseException as error:
        _fail(group, error)
        raise


def _fail(group: Group, error: BaseException) -> None:
    """End all ranks because of an error, which rank 0 prints, or this one if rank 0 does not."""
    shown = as_click_error(error)
    if group.is_first and shown is not None:
        shown.show()
    is_said = group.fail(reason_of(error))
    if shown is not None:
        if not is_said:
            click.echo(f"rank {group.rank}: {shown.format_message()}", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(LOST if not reason_of(error) else shown.exit_code)  # connections that are broken keep no one


def _resuming(command: click.Command, options: Mapping[str, Any]) -> list[str] | None:
    """The command line that goes on from the last checkpoint, if this is a new start of a run that has written one."""
    place = _place()
    folder = options["checkpoint"] or options["resume"]
    if place is None or not place.attempt or folder is None or not folder.is_dir():
        return None
    with suppress(ValueError):  # there is no checkpoint yet
        if find_checkpoint(folder).record.get("run") == run_name(os.environ):
            given = [(p.opts[0], options[p.name]) for p in command.params if p.name in REPEATED and options[p.name]]
            flags = [word for name, value in given for word in ([name] if value is True else [name, str(value)])]
            return ["--resume", str(folder), *flags]
    return None
