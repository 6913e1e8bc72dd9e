"""A self-contained page of search results: small images inside, and no script."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Iterable
from typing import Any

from hashgrove.storage.atomic import atomic_write

__all__ = ["write_page"]

SIDE = 160  # pixels of an image on the page
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; }
section { display: flex; flex-wrap: wrap; gap: 1em; margin: 1em 0 2em; }
figure { margin: 0; width: 160px; overflow-wrap: anywhere; }
figure.query img { outline: 3px solid #06c; }
img, .none { display: block; width: 160px; height: 160px; object-fit: contain; background: #eee; }
"""


def write_page(
    path: str, hits: Iterable[tuple[int, Any, Any]], *, names: list[str] | None, title: str, caption: str = "query"
) -> None:
    """Write a page with one row per query: the query and its neighbours, nearest first.

    Parameters
    ----------
    path : str
    hits : iterable of (query, distances, ids)
        Ids that are paths of image files are shown as images.
    names : list of str, optional
        The paths of the queries.
    title : str
    caption : str
        Text below a query.
    """
    rows = []
    for number, distances, ids in hits:
        query = str(number) if names is None else names[number]
        figures = [_figure(query, caption, kind="query")]
        for distance, found in zip(distances.tolist(), ids.tolist(), strict=True):
            figures.append(_figure(str(found), f"distance {distance:g}"))
        rows.append(f"<section>{''.join(figures)}</section>")
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>"
    body = f"<h1>{html.escape(title)}</h1>{''.join(rows)}"
    page = f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>"
    with atomic_write(path) as file:
        file.write(page.encode(errors="replace"))


def _figure(name: str, caption: str, kind: str = "result") -> str:
    data = _thumbnail(name)
    image = "<span class='none'></span>" if data is None else f"<img alt='' src='data:image/jpeg;base64,{data}'>"
    label = f"{html.escape(name)}<br>{html.escape(caption)}"
    return f"<figure class='{kind}'>{image}<figcaption>{label}</figcaption></figure>"


def _thumbnail(path: str) -> str | None:
    """A small JPEG of an image file in base64; None if there is no such image."""
    from hashgrove.features.images import ENDINGS, ImageFileError, read_image

    if not path.lower().endswith(ENDINGS) or not os.path.isfile(path):
        return None
    from PIL import Image

    try:
        small = Image.fromarray(read_image(path))
    except ImageFileError:
        return None
    small.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=85)
    return base64.b64encode(buffer.getvalue()).decode()
