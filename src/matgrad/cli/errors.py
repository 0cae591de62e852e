"""What happens to errors: bad input is told in one line."""

from __future__ import annotations

import click

from matgrad.foundation.limits import is_out_of_memory

# what the package raises for bad input; anything else is a bug and shows its traceback
BAD_INPUT = (ValueError, TypeError, OSError, ModuleNotFoundError, MemoryError, OverflowError, RecursionError)


def as_click_error(error: BaseException) -> click.ClickException | None:
    """The error as one that is printed in one line; None if it is a bug, or none of ours."""
    if isinstance(error, click.ClickException):
        return error
    if is_out_of_memory(error):
        return click.UsageError(str(error).partition("\n")[0], ctx=None)
    if isinstance(error, BAD_INPUT) and not isinstance(error, BrokenPipeError):  # the reader of a pipe is gone
        return click.UsageError(" ".join(str(error).splitlines()) or type(error).__name__, ctx=None)
    return None
