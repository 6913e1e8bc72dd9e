"""Indexes whose items live in other engines: databases, and the files of other libraries.

`connect` opens one by its URL, `ENGINES` lists them, and `Engine` is what they share.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from hashgrove.index.engines.base import Engine
from hashgrove.index.engines.duckdb import DuckdbIndex
from hashgrove.index.engines.faiss import FaissIndex
from hashgrove.index.engines.lance import LanceIndex
from hashgrove.index.engines.milvus import MilvusIndex
from hashgrove.index.engines.postgres import PostgresIndex
from hashgrove.index.engines.session import EngineError
from hashgrove.index.engines.sqlite import SqliteIndex
from hashgrove.runtime.parameters import Flag, Integer, OneOf, ParameterError, Text

__all__ = ["ENGINES", "Engine", "EngineError", "connect"]

ENGINES: dict[str, type[Engine]] = {  # by the scheme of their URLs
    "sqlite": SqliteIndex,
    "duckdb": DuckdbIndex,
    "lance": LanceIndex,
    "faiss": FaissIndex,
    "postgresql": PostgresIndex,
    "milvus": MilvusIndex,
}


def connect(url: str, *, n_bits: int | None = None, model: Any = None, create: bool = True, **options: Any) -> Engine:
    """Open the index at a URL, in a database or in files of another library, or make a new one there.

    Parameters
    ----------
    url : str
        ``sqlite:///codes.db`` for a relative path, ``sqlite:////data/codes.db`` for an absolute one. Options of the
        engine may follow: ``sqlite:///codes.db?table=photos``.
    n_bits : int, optional
        Number of bits per code. Without it, the first codes decide.
    model : str, or an object with the attribute ``digest``, optional
        The model that makes the codes. It is stored with a new index, and must be that of an existing one.
    create : bool
        Whether a new index is made if there is none; otherwise that is an error.
    **options
        Options of the engine, such as ``table``; the same as in the URL.

    Returns
    -------
    index : Engine
        An `Index`. `close`, or the end of a ``with`` block, ends the connection.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> url = "sqlite:///" + tempfile.mkdtemp() + "/codes.db"
    >>> with connect(url, n_bits=8) as index:
    ...     index.add(np.array([[7], [1]], np.uint8), ids=["seven", "one"])
    >>> connect(url).search(np.array([[0]], np.uint8), 1).ids
    array([['one']], dtype='<U3')
    """
    Text().check("url", url)
    Flag().check("create", create)
    parts = _parts_of(url)
    if parts.scheme not in ENGINES:
        schemes = ", ".join(f"{scheme}://" for scheme in ENGINES)
        raise ParameterError("url", f"must begin with one of {schemes}. Got {url!r} instead.")
    engine = ENGINES[parts.scheme]
    chosen = {**_options_in(parts.query, engine), **options}
    for name, value in chosen.items():
        OneOf(tuple(engine.options)).check("option", name)
        engine.options[name].check(name, value)
    return engine(parts._replace(query=""), n_bits=n_bits, model=model, create=create, **chosen)


def _parts_of(url: str) -> SplitResult:
    """The parts of a URL; an error if reserved characters in a password would make other parts of it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may show the password
        parts = None
    if parts is None or "@" in parts.query + parts.fragment:
        advice = "reserved characters of a password as /, ?, #, [ and @ percent-encoded"
        raise ParameterError("url", f"must be a URL, with {advice}. Got {url!r} instead.") from None
    return parts


def _options_in(query: str, engine: type[Engine]) -> dict[str, Any]:
    """The options in a URL; those that must be integers, as integers."""
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        is_integer = isinstance(engine.options.get(name), Integer) and value.isdecimal() and value.isascii()
        options[name] = int(value) if is_integer else value
    return options
