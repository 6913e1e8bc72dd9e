"""Supervised hashing: learn compact binary codes from labelled data, and search them by Hamming distance.

The public names are listed in ``__init__.pyi``. Each is imported when it is first used, so that ``import hashgrove``
costs nothing: numba and scikit-learn come with the first hasher or index.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {
    alias.name: statement.module
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hashgrove' has no attribute {name!r}")
    value = getattr(import_module(str(_HOMES[name])), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
