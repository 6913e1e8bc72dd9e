"""Compilation of kernels by numba, and the cache of their machine code.

A kernel runs on one thread and releases the GIL; `hashgrove.runtime.threads` runs kernels on several threads. (numba's
``parallel=True`` takes five times as long to compile, its OpenMP layer kills forked child processes, and its workqueue
layer aborts when several Python threads use it.)
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import logging
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from hashgrove.runtime.progress import COMPILING, COMPILING_AGAIN, is_watched

__all__ = ["kernel", "source_digest"]

logger = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"^[ \t]*from (hashgrove[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def kernel(function: Callable[..., Any] | None = None, *, reorder_sums: bool = False) -> Callable[..., Any]:
    """Compile a function with numba so that it releases the GIL, and cache its machine code on disk; a decorator.

    ``reorder_sums`` lets the compiler add floats in another order, several at a time. The order is always the same on
    one machine.

    >>> @kernel
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    if function is None:
        return partial(kernel, reorder_sums=reorder_sums)
    if function.__name__ in function.__code__.co_names:  # numba could not link it into itself: see `_LinkedLibrary`
        raise TypeError(f"the kernel {function.__name__} calls itself; write a loop")
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if reorder_sums:
        options["fastmath"] = {"reassoc", "contract"}
    compiled = njit(**options)(function)
    if not hasattr(compiled, "enable_caching"):  # with NUMBA_DISABLE_JIT it is the function itself
        return compiled
    # What other kernels call is compiled apart, and only as far as they need it: see `_LinkedLibrary`.
    linked = cache(lambda: njit(no_cpython_wrapper=True, pipeline_class=_LinkedCompiler, **options)(function))
    compiled.get_call_template = lambda *arguments: linked().get_call_template(*arguments)
    compiled.get_overload = lambda signature: linked().get_overload(signature)
    try:
        compiled.enable_caching()
    except RuntimeError:  # numba found no writable folder for its cache: each process has to compile
        return compiled
    # numba uses cached code as long as the file of the kernel is unchanged, even if kernels that it calls from other
    # files have changed. So the stamp has to depend on all files that this file imports.
    cache_file = compiled._cache._cache_file
    cache_file._source_stamp = (cache_file._source_stamp, source_digest(Path(inspect.getfile(function))))
    cache_file._load_index = _or_default(cache_file._load_index, dict)
    cache_file.load = _or_default(cache_file.load, lambda: None)
    cache_file.save = _or_default(cache_file.save, lambda: None)
    return compiled


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """The code of a kernel that other kernels call, which is linked into theirs and optimised there.

    (Optimised here as well, it would be optimised again in each kernel around it; that takes a fifth longer.)
    Machine code is made of the callers only, since nothing ever jumps to the code of this kernel by itself. There is
    also no way in from Python, and no file in the cache, because the machine code of the callers contains it.
    """

    def _optimize_final_module(self) -> None:
        """Do nothing: see above."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address that stands for no machine code."""
        return 0

    @property
    def codegen(self) -> _LinkedLibrary:
        """What numba tells the environment of the kernel to; it is for Python objects, and a kernel has none."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: there is no machine code that could use the environment."""


class _LinkedCompiler(Compiler):  # type: ignore[misc, unused-ignore]
    """numba's compiler, which puts what it makes into a `_LinkedLibrary`."""

    def define_pipelines(self) -> Any:
        """Return the passes of numba."""
        self.state.library = _LinkedLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


class _CompilationListener(event.Listener):  # type: ignore[misc, unused-ignore]
    """Logs that a kernel of hashgrove is compiled; the garbage collector, which took a tenth of the time, waits.

    A kernel that is loaded from the cache is not compiled, and gives no record. numba compiles on one thread at a time.
    """

    def __init__(self) -> None:
        self.depth = 0  # kernels that are being compiled, each for the one before it
        self.collects = False
        self.told = False

    def on_start(self, event: Any) -> None:
        """Log the name of the kernel, and as ``cached`` whether its machine code will be kept for later processes."""
        dispatcher = event.data["dispatcher"]
        if not dispatcher.py_func.__module__.startswith("hashgrove."):
            return
        if self.depth == 0:
            self.collects = gc.isenabled()
            gc.disable()
            cached = hasattr(dispatcher._cache, "_cache_file")
            self.tell(dispatcher.py_func.__qualname__, cached)
        self.depth += 1

    def tell(self, name: str, cached: bool) -> None:
        """Log the name; if nobody reads the log, tell a person at a terminal or prompt once why there is a wait."""
        if logger.isEnabledFor(logging.INFO):
            logger.info("compiling %s", name, extra={"cached": cached})
        elif not self.told and is_watched():
            print(COMPILING if cached else COMPILING_AGAIN, file=sys.stderr)
            self.told = True

    def on_end(self, event: Any) -> None:
        """Let the garbage collector go on after the last kernel."""
        if event.data["dispatcher"].py_func.__module__.startswith("hashgrove."):
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()


event.register("numba:compile", _CompilationListener())


def _or_default(method: Callable[..., Any], default: Callable[[], Any]) -> Callable[..., Any]:
    """Wrap a method of a cache file: it returns ``default()`` instead of failing, and numba then compiles again.

    A cache file may be damaged, may refer to a class that this version does not have, or the disk may be full. Loading
    may then raise anything, and none of that is a reason not to run.
    """

    def tolerant(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception:
            return default()

    return tolerant


@cache
def source_digest(path: Path) -> str:
    """Checksum of a source file and of all modules of hashgrove that it imports, directly or indirectly."""
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
    """The modules of hashgrove that a source file imports by ``from ... import``, and the packages that hold them."""
    found = set()
    for module, names in IMPORT.findall(_text(path)):
        parts = module.split(".")[1:]
        for depth in range(1, len(parts) + 1):
            folder = ROOT.joinpath(*parts[:depth])
            found |= {folder.with_suffix(".py"), folder / "__init__.py"}
        found |= {ROOT.joinpath(*parts, name).with_suffix(".py") for name in re.findall(r"\w+", names)}
    return frozenset(source for source in found if source.is_file())
