"""Tables in .csv files: numbers, and columns that may hold labels and ids. `hashgrove.storage.arrow` reads .parquet."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, Table, check_fits_memory, listed, one_line

__all__ = ["check_labels", "column_index", "read_csv", "read_csv_columns"]

MAX_LINE = 2**20  # characters of a line of a .csv file; its fields take up to 50 times as many bytes
SPARE_BYTES = 2**26  # memory that the labels of any .csv file may take, besides 64 times its size


def column_index(name: str, names: list[str], column: str | int) -> int:
    """Position of the column with this name or number."""
    if isinstance(column, str) and names.count(column) == 1:
        return names.index(column)
    is_number = not isinstance(column, str) or re.fullmatch(r"-?[0-9]{1,9}", column)
    number = int(column) if is_number else len(names)
    if not -len(names) <= number < len(names):
        raise FileError(
            f"{name}: column must be one of {listed(names)}, or its number, counted from 0. Got {column!r}."
        )
    return number % len(names)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _csv_header(name: str, file: IO[str]) -> tuple[list[str], int]:
    """Names of the columns, and the number of lines to skip. Without a header the names are the column numbers.

    The first row is a header if it has no number and the second row has one. If both rows are text, as in a file of
    class names, the first one is a header unless it occurs again, since the name of a class usually does.
    """
    reader = csv.reader(file)
    rows = (row for row in reader if row)
    first = next(rows, None)
    if first is None:
        raise FileError(f"{name}: must have at least one row. Got an empty file.")
    skipped = reader.line_num
    second = next(rows, None)
    if any(map(_is_number, first)) or second is None:
        is_header = False
    else:
        is_header = any(map(_is_number, second)) or (second != first and first not in rows)
    if is_header:
        return [field.strip() for field in first], skipped
    return [str(number) for number in range(len(first))], 0


def _check_lines(name: str, file: IO[str]) -> None:
    """Refuse a line that is so long that its fields alone would fill the memory."""
    longest = max(map(len, file), default=0)
    if longest > MAX_LINE:
        raise FileError(
            f"{name}: must have lines of at most {MAX_LINE} characters. Got one of {longest}; use .npy or .parquet."
        )


def check_labels(name: str, *, rows: int, width: int, limit: int | None = None) -> None:
    """Refuse text labels that need too much memory; each takes as much as the longest."""
    size = 4 * rows * width  # numpy has four bytes per character, and one width for all
    check_fits_memory(name, size)
    if limit is not None and size > limit:
        raise FileError(
            f"{name}: must have labels that take at most {limit} bytes. Got {rows}, the longest of {width} characters."
        )


def read_csv(name: str, column: str | int | None, only_column: bool) -> Table:
    """Read a .csv file; the parameters are those of `hashgrove.storage.matrices.read`."""

    def places(names: list[str]) -> tuple[list[int], int | None, None]:
        label = 0 if column is None and only_column and len(names) == 1 else column
        index = None if label is None else column_index(name, names, label)
        return [place for place in range(len(names)) if place != index], index, None

    matrix, labels, _ = read_csv_columns(name, places)
    if labels is not None and labels.dtype == object:
        raise FileError(f"{name}: must have a label in every row of column {column!r}. Got an empty one.")
    return matrix, labels


def read_csv_columns(
    name: str, places: Callable[[list[str]], tuple[list[int], int | None, int | None]]
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    """Features, labels and ids of a .csv file.

    ``places`` gives the positions of the columns of features, of labels and of ids from the names of all columns. Other
    columns are ignored. A label that is empty is None. Ids are integers only if all are written as Python writes them:
    0042 is another id than 42.
    """
    found: list[dict[str, int]] = [{}, {}]  # the different labels and ids
    try:
        with open(name, encoding="utf-8-sig") as file:
            _check_lines(name, file)
        with open(name, encoding="utf-8-sig", newline="") as file:
            names, skipped = _csv_header(name, file)
            file.seek(0)
            features, *others = places(names)
            numbered: dict[int | str, Any] = {
                place: _numbering(seen) for place, seen in zip(others, found, strict=True) if place is not None
            }
            used = [*features, *(place for place in others if place is not None)]
            options: dict[str, Any] = {
                "delimiter": ",",
                "quotechar": '"',
                "comments": None,
                "encoding": "utf-8",
                "usecols": None if sorted(used) == list(range(len(names))) else sorted(used),
            }
            matrix = np.loadtxt(file, ndmin=2, skiprows=skipped, converters=numbered, **options)
    except FileError:
        raise
    except (ValueError, csv.Error) as error:
        reason = one_line(error).split(";")[0]
        raise FileError(f"{name}: must be a table of comma-separated numbers, except for labels: {reason}") from error
    at = {place: at for at, place in enumerate(sorted(used))}
    limit = SPARE_BYTES + 64 * os.path.getsize(name)
    values: list[NDArray[Any] | None] = []
    for place, seen in zip(others, found, strict=True):
        if place is None:
            values.append(None)
            continue
        check_labels(name, rows=max(len(matrix), len(seen)), width=max(map(len, seen), default=0), limit=limit)
        texts = [text for text in seen if text]
        if "" in seen and place == others[1]:
            raise FileError(f"{name}: must have an id in every row of column {names[place]!r}. Got an empty one.")
        is_text = place == others[1] and any(not re.fullmatch(r"0|-?[1-9][0-9]*", text) for text in texts)
        typed: NDArray[Any] = np.array(texts) if is_text else _typed(texts)
        if "" in seen:
            with_none = np.full(len(seen), None, object)
            with_none[[number for text, number in seen.items() if text]] = typed
            typed = with_none
        values.append(typed[matrix[:, at[place]].astype(np.intp)])
    if used == list(range(len(names))):
        return matrix[:, : len(features)], values[0], values[1]
    return matrix[:, [at[place] for place in features]], values[0], values[1]


def _numbering(seen: dict[str, int]) -> Callable[[str], int]:
    """A converter that gives each different text a number."""
    return lambda text: seen.setdefault(text.strip(), len(seen))


def _typed(texts: list[str]) -> NDArray[Any]:
    """Different texts as integers, as floats, or as they are: the first of these that keeps them different."""
    array = np.array(texts)
    # Python takes 1_0 for 10, and knows digits of other scripts; as labels they are different texts
    if not all(_is_number(text) and text.isascii() and "_" not in text for text in texts):
        return array
    if not all(re.fullmatch(r"[+-]?[0-9]+", text) for text in texts):
        return array.astype(np.float64)
    try:
        return array.astype(np.int64)
    except (OverflowError, ValueError):  # beyond int64, or beyond 4300 digits; floats could not tell them apart
        return array
