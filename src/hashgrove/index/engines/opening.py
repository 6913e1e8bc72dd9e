"""What an engine needs before it can open anything: the path in its URL, and the packages of its extra."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import SplitResult, unquote

from hashgrove.index.engines.session import EngineError

__all__ = ["file_path", "refuse_missing", "required"]


def file_path(url: SplitResult) -> str:
    """The path in a URL of a local engine: ``scheme:///relative`` or ``scheme:////absolute``.

    >>> from urllib.parse import urlsplit
    >>> file_path(urlsplit("sqlite:///codes.db")), file_path(urlsplit("sqlite:////data/codes.db"))
    ('codes.db', '/data/codes.db')
    """
    path = unquote(url.path.removeprefix("/"))
    if url.netloc or not path or "\0" in path:
        raise ValueError(
            f"The 'url' parameter must be {url.scheme}:///relative/path or {url.scheme}:////absolute/path. "
            f"Got {url.geturl()!r} instead."
        )
    return path


def refuse_missing(path: str, place: str) -> None:
    """Raise an error if there is no such file or folder, for an engine that would make one."""
    if not os.path.exists(path):
        raise EngineError(f"{place}: must exist. There is no such file or folder.")


def required(module: str, extra: str) -> Any:
    """Import a module that only one engine needs, or say what to install.

    >>> required("no_such_module", "sqlite")
    Traceback (most recent call last):
        ...
    ValueError: this engine needs no_such_module: pip install 'hashgrove[sqlite]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"this engine needs {module}: pip install 'hashgrove[{extra}]'") from error
