"""Tables in HTML, which notebooks show in the place of a text. All texts are escaped, and there are no scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["html_table"]


def html_table(
    title: str, rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), notes: Iterable[str] = ()
) -> str:
    """A table with a title and, below it, notes; the first cell of each row names the row.

    >>> html_table("a < b", [("MAP", 0.5)])
    '<table><caption>a &lt; b</caption><tbody><tr><th scope="row">MAP</th><td>0.5</td></tr></tbody></table>'
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = "".join(f'<tr><th scope="row">{escape(str(first))}</th>{_cells(cells)}</tr>' for first, *cells in rows)
    table = f"<table><caption>{escape(title)}</caption>{f'<thead><tr>{head}</tr></thead>' if head else ''}"
    return f"{table}<tbody>{lines}</tbody></table>{''.join(f'<p>{escape(note)}</p>' for note in notes)}"


def _cells(values: Iterable[object]) -> str:
    return "".join(f"<td>{escape(str(value))}</td>" for value in values)
