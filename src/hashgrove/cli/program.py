"""Manners of the command line: every error and every warning is one line on stderr."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

import click

__all__ = ["Program", "fold"]


def fold(message: object) -> str:
    """The text of an error or warning on one line.

    >>> fold(ValueError("Found array with 0 samples\\n  while 1 is required."))
    'Found array with 0 samples while 1 is required.'
    """
    return " ".join(str(message).split())


class _Interrupted(click.ClickException):
    exit_code = 130  # 128 + SIGINT, as shells have it


class Program(click.Group):
    """Commands whose errors are one line on stderr, with exit code 1 for bad data and 2 for a wrong call."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what is wrong with its data or files becomes an error of click."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe shows here, where it is handled, and not at the end of Python
            return result
        except BrokenPipeError:
            raise  # click ends quietly
        except KeyboardInterrupt as error:
            raise _Interrupted("interrupted") from error
        except MemoryError as error:
            raise click.ClickException(f"not enough memory. {error}") from error
        except (ValueError, OSError) as error:
            raise click.ClickException(str(error) or type(error).__name__) from error

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run the program and exit."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                status = super().main(*args, **{**settings, "standalone_mode": False})
            except click.ClickException as error:
                click.echo(f"Error: {fold(error.format_message())}{_hint(error)}", err=True)
                status = error.exit_code
        sys.exit(status if isinstance(status, int) else 0)


def _hint(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    return f" See '{error.ctx.command_path} --help'."


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    click.echo(f"Warning: {fold(message)}", err=True)
