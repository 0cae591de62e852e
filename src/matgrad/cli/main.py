"""The group of commands, and what happens to errors: one clear line, exit status 2, no traceback."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

import matgrad
from matgrad.cli.commands import Command, as_click_error, echo

COMMANDS = {  # the function of each command, which is imported when it is asked for, and what the list says of it
    "bench": ("bench:bench", "Find the fastest backend and number of threads for a model."),
    "check": ("verify:check", "Compare the gradients of a model with central differences."),
    "compare": ("compare:compare", "Compare the values of other kernels with those of a program."),
    "completion": ("main:completion", "Print the script that completes matgrad's options in SHELL."),
    "convert": ("inspect:convert", "Convert a model from or to ONNX, Keras or PyTorch."),
    "data": ("data:data", "Download data sets."),
    "derive": ("verify:derive", "Derive the gradients of a feedforward, and prove them."),
    "evaluate": ("evaluate:evaluate", "Measure a saved model."),
    "export": ("export:export", "Write a saved model as one file of C."),
    "explain": ("explain:explain", "Show every equation of a training step with its values."),
    "info": ("inspect:info", "Show versions, backends and the machine."),
    "inspect": ("inspect:inspect", "Show what is in an npz or safetensors file."),
    "pictures": ("inspect:pictures_command", "Draw pictures of a saved model's weights."),
    "plot": ("runs:plot", "Draw loss, accuracy, learning rate and time of runs."),
    "predict": ("evaluate:predict", "Write what a saved model predicts."),
    "program": ("program:program", "Show or save a training step, or feedforward, as equations."),
    "prove": ("prove:prove", "Prove the gradients of PyTorch or JAX code for all sizes, or refute them."),
    "runs": ("runs:runs_command", "List and compare runs."),
    "sample": ("evaluate:sample", "Write a text with a saved model."),
    "train": ("train:train", "Train a multilayer perceptron."),
    "verify": ("verify:verify", "Check every equation."),
}


class Commands(click.Group):
    """The group of all commands, which turns the package's own errors into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        (module, function), summary = COMMANDS[cmd_name][0].split(":"), COMMANDS[cmd_name][1]
        command: click.Command = getattr(import_module(f"matgrad.cli.{module}"), function)
        command.short_help = summary
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; bad input ends it with exit status 2."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("interrupted", err=True)
            raise click.exceptions.Exit(130) from None
        except Exception as error:
            if (shown := as_click_error(error)) in (None, error):
                raise
            raise shown from error

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line; print ? for what a terminal lacks, and nothing where standard output is closed."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for the rest of the process)
            elif hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        return super().main(*arguments, **options)


SETTINGS = {"max_content_width": 100, "help_option_names": ["-h", "--help"]}


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(matgrad.__version__, prog_name="matgrad")
def main() -> None:
    """Multilayer perceptrons in batch matrix form.

    Without options, `matgrad train` trains on embedded handwritten digits. `matgrad COMMAND --help`
    explains the options of a command.
    """


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes matgrad's options in SHELL.

    For bash: eval "$(matgrad completion bash)", for example in ~/.bashrc.
    """
    from click.shell_completion import shell_complete

    shell_complete(main, {}, "matgrad", "_MATGRAD_COMPLETE", f"{shell}_source")
