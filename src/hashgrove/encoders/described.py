"""Texts and tables that show an encoder at a prompt or in a notebook: what it takes and gives, without its arrays."""

from __future__ import annotations

from typing import Any

from hashgrove.runtime.html import html_table

__all__ = ["Described"]


class Described:
    """Gives encoders a short ``repr`` and a table in notebooks."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Described.__repr__  # type: ignore[method-assign]  # that of a dataclass prints the arrays

    def __repr__(self: Any) -> str:
        return f"{type(self).__name__}({self.n_features} features, {self.n_bits} bits)"

    def _repr_html_(self: Any) -> str:
        rows = [("features", f"{self.n_features:,}"), ("bits", f"{self.n_bits:,}"), ("model", self.digest_or_none)]
        return html_table(type(self).__name__, [row for row in rows if row[1] is not None])
