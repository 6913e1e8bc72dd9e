"""Usage, help and options of every command, written into docs/cli.md from the commands themselves.

    python docs/cli_reference.py --write    # put them between the markers of the page
    python docs/cli_reference.py --check    # exit with code 1 if the page differs

The text between ``<!-- hashgrove NAME -->`` and ``<!-- end -->`` is made here; so are the sections of the commands of
a group between ``<!-- commands of hashgrove NAME -->`` and ``<!-- end -->``. Everything around is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from hashgrove.cli import main as program

PAGE = Path(__file__).resolve().parent / "cli.md"
PLACE = re.compile(r"^<!-- ((?:commands of )?hashgrove [\w -]+) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)


def texts() -> dict[str, str]:
    """The text of each place by its name."""
    root = click.Context(program, info_name="hashgrove")
    found = {}
    for context in commands(root):
        found[context.command_path] = reference(context)
        if isinstance(context.command, click.Group):
            sections = [f"### {below.command_path}\n\n{reference(below)}" for below in commands(context)]
            found[f"commands of {context.command_path}"] = "\n" + "\n".join(sections) + "\n"
    return found


def commands(context: click.Context) -> Iterator[click.Context]:
    """Contexts of the commands of a group, in the order of its help."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield click.Context(command, info_name=name, parent=context)


def reference(context: click.Context) -> str:
    """Usage, description and table of options of one command, in Markdown."""
    command = context.command
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    parameters = command.get_params(context)
    arguments = [found.human_readable_name for found in parameters if isinstance(found, click.Argument)]
    parts = [f"```text\n{usage}\n```", description(command, arguments)]
    if isinstance(command, click.Group):
        rows = [(f"`{below.info_name}`", marked(below.command.get_short_help_str(200))) for below in commands(context)]
        parts.append(table(("command", "meaning"), rows))
    options = [found for found in parameters if isinstance(found, click.Option) and "--help" not in found.opts]
    if options:
        parts.append(table(("option", "default", "meaning"), [option_row(o, context, arguments) for o in options]))
    return "\n\n".join(parts) + "\n"


def description(command: click.Command, arguments: list[str]) -> str:
    """The help text without its example."""
    text = inspect.cleandoc(command.help or "").split("\n\n\b\n")[0]
    return "\n\n".join(marked(" ".join(paragraph.split()), arguments) for paragraph in text.split("\n\n"))


def option_row(option: click.Option, context: click.Context, arguments: list[str]) -> tuple[str, str, str]:
    """Names of an option with the form of its value, its default, and its meaning."""
    names, text = option.get_help_record(context) or ("", "")
    names = names.replace(" RANGE", "").replace(" FLOAT", " NUMBER")
    meaning, _, notes = " ".join(text.split()).partition(" [")  # such as [default: 10; x>=1]
    facts = [note.strip() for note in notes.removesuffix("]").split(";")]
    defaults = [fact.removeprefix("default: ") for fact in facts if fact.startswith("default: ") or fact == "required"]
    cells = (f"`{names}`", ", ".join(defaults).strip("()"), marked(meaning, arguments))
    return cells[0].replace("|", "\\|"), cells[1], cells[2].replace("|", "\\|")


def marked(text: str, arguments: Iterable[str] = ()) -> str:
    """Help text as Markdown: options, arguments and names of files are code, as `...` already is."""
    names = "|".join(map(re.escape, arguments)) or "(?!)"
    endings = "npy|npz|csv|parquet|hgi|txt|hashgrove"
    code = rf"(?<![\w`/-])(--[a-z][\w-]*|-[a-zA-Z]\b|[\w.*]*\.(?:{endings})\b(?::\w+)?|\$\w+|(?:{names})\b)"
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(code, r"`\1`", piece) for piece in pieces)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def filled(text: str) -> str:
    """The page with every text in its place; each text must have one."""
    found, places = texts(), [match[1] for match in PLACE.finditer(text)]
    if sorted(places) != sorted(found):
        missing, unknown = sorted(set(found) - set(places)), sorted(set(places) - set(found))
        raise SystemExit(f"docs/cli.md: commands without a place: {missing}; places without a command: {unknown}")
    return PLACE.sub(lambda match: f"<!-- {match[1]} -->\n{found[match[1]]}<!-- end -->", text)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    chosen = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    wanted = filled(text)
    if chosen.write:
        PAGE.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print("docs/cli.md differs from the commands: run python docs/cli_reference.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
