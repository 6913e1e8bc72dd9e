"""Labels, names and further fields of items, by id."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.ids import find
from hashgrove.storage.formats import FileError, check_fits_memory

__all__ = ["Details", "Lookup", "read_fields"]

MAX_CELL = 10_000  # characters of a field


class Lookup:
    """Positions of ids in an array of any order.

    >>> Lookup(np.array([8, 3])).find(np.array([3, 5]))
    (array([1, 0]), array([ True, False]))
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._ascending = ids[self._order]

    def find(self, wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The position of each id, arbitrary if there is none, and whether there is one."""
        places, known = find(self._ascending, wanted)
        positions = np.zeros(len(wanted), np.int64)
        positions[known] = self._order[places[known]]
        return positions, known


@dataclass(frozen=True, eq=False)
class Details:
    """Labels, names and fields of items.

    Attributes
    ----------
    ids : int64 or str array of shape (n,)
        The items that the rows of the others belong to.
    labels : str array of shape (n,), optional
        An empty text means that the item has no label.
    columns : mapping from str to a sequence of n texts
        Further fields; the one called "name" is the name of the item.

    Examples
    --------
    >>> details = Details(np.array([3, 8]), labels=np.array(["cat", ""]), columns={"year": ["2001", "2002"]})
    >>> details.of(np.array([8, 3, 5]))
    [{'fields': {'year': '2002'}}, {'label': 'cat', 'fields': {'year': '2001'}}, {}]
    """

    ids: NDArray[Any]
    labels: NDArray[np.str_] | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there are neither labels nor fields."""
        return self.labels is None and not self.columns

    @property
    def fields(self) -> list[str]:
        """The names of the further fields."""
        return [name for name in self.columns if name != "name"]

    @cached_property
    def classes(self) -> list[str]:
        """All labels, ascending: by value if they are numbers, otherwise as texts."""
        if self.labels is None:
            return []
        found = [label for label in np.unique(self.labels).tolist() if label]
        try:
            return sorted(found, key=float)
        except ValueError:
            return found

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.ids)

    def of(self, ids: NDArray[Any]) -> list[dict[str, Any]]:
        """Label, name and fields of each of these items, as members of their JSON."""
        if self.is_empty:
            return [{} for _ in ids]
        rows, known = self._lookup.find(ids)
        return [self._row(int(row)) if there else {} for row, there in zip(rows, known, strict=True)]

    def _row(self, row: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.labels is not None and self.labels[row]:
            found["label"] = str(self.labels[row])
        if "name" in self.columns:
            found["name"] = self.columns["name"][row]
        fields = {name: self.columns[name][row] for name in self.fields}
        return found | ({"fields": fields} if fields else {})

    def ids_with(self, label: str) -> NDArray[Any]:
        """The ids of the items with a label."""
        return self.ids[:0] if self.labels is None or not label else self.ids[self.labels == label]


def read_fields(path: str, ids: NDArray[Any]) -> dict[str, list[str]]:
    """Read the fields of items from a .csv file with a header and a column "id".

    Parameters
    ----------
    path : str
    ids : int64 or str array of shape (n,)
        The ids of the items. Rows with other ids are ignored; items without a row get empty texts.

    Returns
    -------
    columns : dict from str to a list of n texts
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            check_fits_memory(path, 64 * file.seek(0, 2))
            file.seek(0)
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if header.count("id") != 1 or len(set(header)) != len(header) or "" in header:
                raise FileError(
                    f"{path}: must start with a row of different names, one of which is 'id'. Got {header}."
                )
            checked = (_checked(path, row, header, reader.line_num) for row in reader if row)
            rows = {row[header.index("id")]: row for row in checked}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: must be a .csv file in UTF-8. It cannot be read: {error}") from error
    nothing = [""] * len(header)
    of_items = [rows.get(str(id_), nothing) for id_ in ids.tolist()]
    return {name: [row[place] for row in of_items] for place, name in enumerate(header) if name != "id"}


def _checked(path: str, row: list[str], header: list[str], line: int) -> list[str]:
    if len(row) != len(header) or max(map(len, row)) > MAX_CELL:
        raise FileError(
            f"{path}: line {line} must have {len(header)} fields of at most {MAX_CELL} characters. "
            f"Got {len(row)} fields of up to {max(map(len, row))}."
        )
    return row
