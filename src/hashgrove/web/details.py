"""Labels, names and further fields of items, by id."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.index.ids import find
from hashgrove.storage.formats import FileError, check_fits_memory
from hashgrove.web.additions import Entry

__all__ = ["Details", "Lookup", "folder_of", "read_fields"]

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
    added : mapping from str to Entry
        What clients have said about items that they have added, by id as a text; it counts more than the others.
    are_texts : bool
        Whether the ids of these items are texts.

    Examples
    --------
    >>> details = Details(np.array([3, 8]), labels=np.array(["cat", ""]), columns={"year": ["2001", "2002"]})
    >>> details.of(np.array([8, 3, 5]))
    [{'fields': {'year': '2002'}}, {'label': 'cat', 'fields': {'year': '2001'}}, {}]
    """

    ids: NDArray[Any]
    labels: NDArray[np.str_] | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    added: Mapping[str, Entry] = field(default_factory=dict)
    are_texts: bool = False

    def with_added(self, added: Mapping[str, Entry], *, are_texts: bool) -> Details:
        """The same, with other entries of items that clients have added."""
        details = replace(self, added=added, are_texts=are_texts)
        kept = {name: value for name, value in vars(self).items() if name in ("_lookup", "_own_classes")}
        vars(details).update(kept)  # what does not depend on the entries, and takes time
        return details

    @property
    def is_empty(self) -> bool:
        """Whether there are neither labels nor fields."""
        return self.labels is None and not self.columns and not self.added

    @cached_property
    def have_labels(self) -> bool:
        """Whether some items can have labels."""
        return self.labels is not None or any(entry.label for entry in self.added.values())

    @cached_property
    def fields(self) -> list[str]:
        """The names of the further fields."""
        names = dict.fromkeys(self.columns) | dict.fromkeys(
            name for entry in self.added.values() for name in entry.fields
        )
        return [name for name in names if name != "name"]

    @cached_property
    def _own_classes(self) -> set[str]:
        return set() if self.labels is None else {label for label in np.unique(self.labels).tolist() if label}

    @cached_property
    def classes(self) -> list[str]:
        """All labels, ascending: by value if they are numbers, otherwise as texts."""
        found = sorted(self._own_classes | {entry.label for entry in self.added.values() if entry.label})
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
        found = []
        for id_, row, there in zip(ids.tolist(), rows.tolist(), known.tolist(), strict=True):
            label, fields = self._row(row) if there else ("", {})
            if (entry := self.added.get(str(id_))) is not None:
                label, fields = entry.label or label, fields | dict(entry.fields)
            found.append(_members(label, fields))
        return found

    def _row(self, row: int) -> tuple[str, dict[str, str]]:
        label = "" if self.labels is None else str(self.labels[row])
        return label, {name: values[row] for name, values in self.columns.items()}

    @cached_property
    def labelled(self) -> tuple[NDArray[Any], NDArray[np.str_]]:
        """The ids of all items that have a label, and their labels."""
        labels = np.full(len(self.ids), "") if self.labels is None else self.labels
        has = labels != ""
        given = {id_: entry.label for id_, entry in self.added.items() if entry.label}
        if not given:
            return self.ids[has], labels[has]
        ids, more = self._as_ids([*given]), np.array([*given.values()], np.str_)
        if not len(self.ids):
            return ids, more
        has &= ~np.isin(self.ids, ids)
        return np.concatenate([self.ids[has], ids]), np.concatenate([labels[has], more])

    def _as_ids(self, texts: list[str]) -> NDArray[Any]:
        return np.array(texts, np.str_) if self.are_texts else np.array([int(id_) for id_ in texts], np.int64)

    def named(self, name: str) -> NDArray[Any]:
        """The ids of the items that were given this name."""
        own = np.array([value == name for value in self.columns.get("name", ())], np.bool_)
        added = self._as_ids([id_ for id_, entry in self.added.items() if entry.fields.get("name") == name])
        return np.concatenate([self.ids[own], added]) if own.any() else added

    def ids_with(self, label: str) -> NDArray[Any]:
        """The ids of the items with a label."""
        ids, labels = self.labelled
        return ids[labels == label]


def _members(label: str, fields: dict[str, str]) -> dict[str, Any]:
    """Label, name and fields as they are in the JSON of an item."""
    found: dict[str, Any] = {"label": label} if label else {}
    if "name" in fields:
        found["name"] = fields.pop("name")
    return found | ({"fields": fields} if fields else {})


def folder_of(id_: str) -> str:
    """The name of the folder in the path of an image.

    >>> folder_of("photos/cats/1.jpg")
    'cats'
    """
    return os.path.basename(os.path.dirname(id_))


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
