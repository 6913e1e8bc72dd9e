"""Helpers to open an engine: the path in its URL, the packages of its extra, and a lock."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, unquote

from hashgrove.index.engines.server import shown_url
from hashgrove.index.engines.session import EngineError
from hashgrove.index.locking import lock_file
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.formats import FileError

__all__ = ["file_path", "only_writer", "refuse_missing", "required"]

WAIT_SECONDS = 60.0  # for the lock of another writer
PAUSE_SECONDS = 0.01


def file_path(url: SplitResult) -> str:
    """The path in a URL of a local engine: ``scheme:///relative`` or ``scheme:////absolute``.

    >>> from urllib.parse import urlsplit
    >>> file_path(urlsplit("sqlite:///codes.db")), file_path(urlsplit("sqlite:////data/codes.db"))
    ('codes.db', '/data/codes.db')
    """
    path = unquote(url.path.removeprefix("/"))
    if url.netloc or not path or "\0" in path:
        raise ParameterError(
            "url",
            f"must be {url.scheme}:///relative/path or {url.scheme}:////absolute/path. Got {shown_url(url)!r} instead.",
        )
    return path


def refuse_missing(path: str, place: str) -> None:
    """Raise an error if there is no such file or folder, for an engine that would make one."""
    if not os.path.exists(path):
        raise EngineError(f"{place}: no such file or folder")


@contextmanager
def only_writer(lock: str, place: str) -> Iterator[None]:
    """Wait until no other process holds a lock, and hold it inside the ``with`` block."""
    give_up = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            held = lock_file(lock, f"{place}: another process has been writing for {WAIT_SECONDS:g} seconds")
            break
        except FileError:
            if not os.path.exists(lock) or time.monotonic() > give_up:
                raise
            time.sleep(PAUSE_SECONDS)
    with held:
        yield


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
