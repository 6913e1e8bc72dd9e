"""How kernels are compiled, and where their machine code is cached.

Kernels are serial and release the GIL; `hashgrove.runtime.threads` runs them on several threads. (numba's own
``parallel=True`` compiles five times slower, its OpenMP layer kills forked children, and its workqueue aborts under
concurrent Python threads.)
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event

__all__ = ["kernel", "source_digest"]

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"^[ \t]*from (hashgrove[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function`` with numba, without the GIL, and cache the machine code where a folder is writable."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no writable folder for its cache: compile in every process instead
        return njit(**options)(function)
    if not hasattr(compiled, "_cache"):  # NUMBA_DISABLE_JIT: the function itself
        return compiled
    # numba takes cached code for fresh while the kernel's own file is unchanged, whatever the kernels that it calls
    # from other files have become: the stamp of the file has to tell of all files that it imports
    cache_file = compiled._cache._cache_file
    cache_file._source_stamp = (cache_file._source_stamp, source_digest(Path(inspect.getfile(function))))
    cache_file._load_index = _or_default(cache_file._load_index, dict)
    cache_file.load = _or_default(cache_file.load, lambda: None)
    cache_file.save = _or_default(cache_file.save, lambda: None)
    return compiled


class _CompilationLog(event.Listener):  # type: ignore[misc, unused-ignore]
    """Logs a record when a kernel of hashgrove is compiled; a kernel that is loaded from the cache gives no record."""

    def on_start(self, event: Any) -> None:
        """Log the name of the kernel, and as ``cached`` whether its machine code will be kept for later processes."""
        dispatcher = event.data["dispatcher"]
        if dispatcher.py_func.__module__.startswith("hashgrove."):
            cached = hasattr(dispatcher._cache, "_cache_file")
            logger.info("compiling %s", dispatcher.py_func.__qualname__, extra={"cached": cached})

    def on_end(self, event: Any) -> None:
        """Log nothing."""


event.register("numba:compile", _CompilationLog())


def _or_default(method: Callable[..., Any], default: Callable[[], Any]) -> Callable[..., Any]:
    """``method`` of a cache file, or ``default()`` where it fails, for which numba compiles anew.

    A cache file may be damaged, name a class that this version has not got, or find no room on the disk; unpickling
    may then raise anything, and none of it is a reason not to run.
    """

    def tolerant(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception:
            return default()

    return tolerant


@cache
def source_digest(path: Path) -> str:
    """Checksum over a source file and every module of hashgrove that it imports, directly or through others."""
    found, unread = {path}, [path]
    while unread:
        new = _imported(unread.pop()) - found
        found |= new
        unread.extend(new)
    digest = hashlib.sha256()
    for source in sorted(found):
        digest.update(_text(source).encode())
    return digest.hexdigest()


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The modules of hashgrove that a source file imports by ``from ... import``, packages above them included."""
    found = set()
    for module, names in IMPORT.findall(_text(path)):
        parts = module.split(".")[1:]
        for depth in range(1, len(parts) + 1):
            folder = ROOT.joinpath(*parts[:depth])
            found |= {folder.with_suffix(".py"), folder / "__init__.py"}
        found |= {ROOT.joinpath(*parts, name).with_suffix(".py") for name in re.findall(r"\w+", names)}
    return frozenset(source for source in found if source.is_file())
