"""The program: commands that are imported when they are used, errors and warnings of one line each."""

from __future__ import annotations

import difflib
import errno
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click

from hashgrove.cli.output import printable
from hashgrove.runtime.credentials import hide_credentials
from hashgrove.runtime.interrupts import interruptible
from hashgrove.runtime.progress import COMPILING, COMPILING_AGAIN
from hashgrove.runtime.threads import has_abandoned_calls

__all__ = ["Group", "Program", "join_lines"]

LIBRARY_NAMES = {
    "X": "FEATURES",
    "y": "LABELS",
    "affinity": "--pairs",
    "validation": "--validate",
    "insert": "--replace",
}


def join_lines(message: object) -> str:
    """Put the text of an error or warning on one line, without control characters and without passwords of URLs.

    >>> join_lines(ValueError("Found array with 0 samples\\n  while 1 is required."))
    'Found array with 0 samples while 1 is required.'
    """
    return printable(hide_credentials(" ".join(str(message).split())))


class _Interrupted(click.ClickException):
    exit_code = 130  # 128 + SIGINT, the convention of shells


class _CompilationNotice(logging.Handler):
    """Prints a notice on stderr when the first kernel is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.printed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print the notice once."""
        if not self.printed:
            self.printed = True
            click.echo(COMPILING if getattr(record, "cached", True) else COMPILING_AGAIN, err=True)


class Group(click.Group):
    """A group of commands that suggests one for a mistyped name."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command of a call."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], names, n=1, cutoff=0.5)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {printable(args[0])!r}.{suggestion}", ctx)
        return super().resolve_command(ctx, args)


class Program(Group):
    """Commands that are imported by name, with one line on stderr and exit code 1 or 2 for whatever goes wrong.

    Exit code 1 means that data or files are unusable, 2 that the call itself was wrong. ``names`` are the commands;
    each is a module in this package that has a command of its own name.
    """

    def __init__(self, *args: Any, names: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.names = names

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of the help."""
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command ``cmd_name``; None if there is no such command."""
        if cmd_name not in self.names:
            return None
        command: click.Command = getattr(import_module(f"hashgrove.cli.{cmd_name}"), cmd_name)
        return command

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """Read the arguments; the help and the version are printed here."""
        with _errors_of_click():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an exception about its parameters, data or files becomes an error of click."""
        with _errors_of_click():
            with _compilation_notice() as self.notice, interruptible():
                try:
                    result = super().invoke(ctx)
                except ValueError as error:
                    raise click.ClickException(self._in_words_of_the_caller(ctx, error)) from error
            sys.stdout.flush()  # so that a closed pipe is noticed here, where it is handled, and not when Python exits
            return result

    def _in_words_of_the_caller(self, ctx: click.Context, error: ValueError) -> str:
        """The message of an error; a parameter of the library has the name of its option."""
        names = self._names(ctx)
        parameter, reason = getattr(error, "parameter", None), getattr(error, "reason", None)
        if parameter in names and reason is not None:
            return f"{names[parameter]} {_spelled(reason, names)}"
        return _spelled(str(error), names) or type(error).__name__

    def _names(self, ctx: click.Context) -> dict[str, str]:
        """Names of options by parameter of the library, of the command that is running."""
        command = None if ctx.invoked_subcommand is None else self.get_command(ctx, ctx.invoked_subcommand)
        return {} if command is None else _names_of_options(command, ctx)

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run the program and exit."""
        _open_closed_streams()
        self.notice = _CompilationNotice()
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.filterwarnings("ignore", module=r"PIL\.")  # thousands of lines for one damaged image
            try:
                status = super().main(*args, **{**settings, "standalone_mode": False})
            except click.ClickException as error:
                click.echo(f"Error: {join_lines(error.format_message())}{_hint(error)}", err=True)
                status = error.exit_code
        # what was interrupted may be the compiler, which then fails at the end of the process
        is_unsafe = has_abandoned_calls() or (status == _Interrupted.exit_code and self.notice.printed)
        _exit(status if isinstance(status, int) else 0, at_once=is_unsafe)


def _spelled(text: str, names: Mapping[str, str]) -> str:
    """A message of the library with the names of options in place of those of parameters.

    >>> _spelled("net.onnx: needs the 'image_size' parameter, a side", {"image_size": "--size"})
    'net.onnx: needs --size, a side'
    """
    return re.sub(r"(?:\b[Tt]he )?'(\w+)' parameter\b", lambda found: names.get(found[1], found[0]), text)


def _names_of_options(command: click.Command, ctx: click.Context) -> dict[str, str]:
    """Names of options and arguments on the command line by parameter of the library, of a command or of a group."""
    names = dict(LIBRARY_NAMES)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            names |= {} if found is None else _names_of_options(found, ctx)
    for option in command.get_params(ctx):
        shown = option.human_readable_name if isinstance(option, click.Argument) else option.opts[-1]
        of_library = [parameter.name for parameter in getattr(option, "parameters", {}).values()]
        names |= dict.fromkeys(of_library or [str(option.name)], shown)
    return names


@contextmanager
def _errors_of_click() -> Iterator[None]:
    """Turn errors about data, files and memory into errors of click."""
    try:
        yield
    except BrokenPipeError:
        raise  # click then ends quietly
    except KeyboardInterrupt as error:
        raise _Interrupted("interrupted") from error
    except MemoryError as error:
        raise click.ClickException(f"not enough memory. {error}") from error
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            # all writers of files name them, so this is standard output, such as a file on a full disk
            raise click.ClickException(f"standard output: cannot be written: {error.strerror}") from error
        raise click.ClickException(str(error) or type(error).__name__) from error


def _exit(status: int, *, at_once: bool) -> NoReturn:
    """End the process; at once if compiled code is still at work, or was stopped, and would disturb the usual end."""
    if at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _open_closed_streams() -> None:
    """Give the program somewhere to print to if it was started with a closed stdout or stderr (``>&-``).

    It also keeps the numbers 1 and 2 of these streams from going to the next file that is opened.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- open until the process ends


@contextmanager
def _compilation_notice() -> Iterator[_CompilationNotice]:
    """Tell the user about compilation, which `hashgrove.runtime.compiling` logs; this does not import numba."""
    logger, notice = logging.getLogger("hashgrove.runtime.compiling"), _CompilationNotice()
    level = logger.level
    logger.addHandler(notice)
    logger.setLevel(logging.INFO)
    try:
        yield notice
    finally:
        logger.setLevel(level)
        logger.removeHandler(notice)


def _hint(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return f" See '{error.ctx.command_path} --help'."


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    context = click.get_current_context(silent=True)
    names = {} if context is None else _names_of_options(context.command, context)
    click.echo(f"Warning: {_spelled(join_lines(message), names)}", err=True)
