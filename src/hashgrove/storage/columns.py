"""Tables whose columns have names: features in one list column or in many columns, beside labels and ids.

`read_rows` reads them from .csv and .parquet files, and `from_table` takes them from a DataFrame or an Arrow table.
`to_table` makes an Arrow table of codes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage import arrow, tables
from hashgrove.storage.formats import FileError, PathLike, listed
from hashgrove.storage.matrices import file_errors, read_matrix

__all__ = ["Columns", "TableRows", "from_table", "read_rows", "to_table"]

Places = tuple[list[int], int | None, int | None]  # of the features, of the label and of the id

NO_COLUMNS = "columns can be named for .csv and .parquet files only"


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table.

    Attributes
    ----------
    label, id : str, optional
        The columns of the labels and of the ids.
    features : tuple of str, optional
        Columns of the features. A name may have ``*`` for any characters. Without it, they are all other columns.
    """

    label: str | None = None
    id: str | None = None
    features: tuple[str, ...] | None = None

    @classmethod
    def of(cls, label: str | None, id: str | None, features: str | None) -> Columns:
        """From options of the command line; names of features have commas between them."""
        names = None if features is None else tuple(name.strip() for name in features.split(","))
        return cls(label, id, names)

    @property
    def any_named(self) -> bool:
        """Whether any column is named."""
        return (self.label, self.id, self.features) != (None, None, None)

    def places(self, table: str, names: Sequence[str]) -> Places:
        """Positions of the features, the label and the id among the columns of a table."""
        label, id_ = (
            None if one is None else tables.column_index(table, [*names], one) for one in (self.label, self.id)
        )
        if label is not None and label == id_:
            raise FileError(f"{table}: must have labels and ids in different columns. Got {names[label]!r} for both.")
        if self.features is None:
            chosen = [place for place in range(len(names)) if place not in (label, id_)]
        else:
            chosen = []
            for pattern in self.features:
                wanted = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
                found = [place for place, name in enumerate(names) if wanted.fullmatch(name)]
                if not found:
                    raise FileError(f"{table}: must have a column {pattern!r} of features. It has {listed([*names])}.")
                chosen += [place for place in found if place not in (*chosen, label, id_)]
        if not chosen:
            raise FileError(
                f"{table}: must have columns of features besides labels and ids. It has {listed([*names])}."
            )
        return chosen, label, id_


class TableRows(NamedTuple):
    """The rows of a table.

    Attributes
    ----------
    X : array of shape (n, n_features)
    labels : array of shape (n,), or None
        None in the place of a label that is missing.
    ids : int64 or str array of shape (n,), or None
    """

    X: NDArray[Any]
    labels: NDArray[Any] | None
    ids: NDArray[Any] | None


def read_rows(path: PathLike, columns: Columns) -> TableRows:
    """Read features, labels and ids from a file; only .csv and .parquet files have names of columns.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "animals.csv"
    >>> _ = path.write_text("name,day,x1,x2,kind\\na,monday,4,2,cat\\nb,friday,5,3,\\n")
    >>> rows = read_rows(path, Columns(label="kind", id="name", features=("x*",)))
    >>> rows.X.tolist(), rows.labels.tolist(), rows.ids.tolist()
    ([[4.0, 2.0], [5.0, 3.0]], ['cat', None], ['a', 'b'])
    """
    name = os.fspath(path)
    if not columns.any_named:
        return TableRows(read_matrix(name), None, None)
    suffix = Path(name).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise FileError(f"{name}: {NO_COLUMNS}. Got {suffix or 'no ending'}.")
    with file_errors(name):
        if suffix == ".parquet":
            places: list[Places] = []

            def used(names: list[str]) -> list[int]:
                read, among_read = _used(*columns.places(name, names))
                places.append(among_read)
                return read

            return _of_arrow(name, arrow.read_arrow(name, used), *places)
        return TableRows(*tables.read_csv_columns(name, lambda names: columns.places(name, names)))


def from_table(
    table: Any, *, features: str | Sequence[str] | None = None, label: str | None = None, id: str | None = None
) -> TableRows:
    """Features, labels and ids of a DataFrame (pandas, polars and others) or an Arrow table.

    Parameters
    ----------
    table : DataFrame or Table
        Anything that has the Arrow interface (``__arrow_c_stream__``): DataFrames of pandas 2.2, polars 1.3 or later,
        and others. Needs pyarrow.
    features : str or sequence of str, optional
        Columns of the features: numbers, or lists of numbers of equal length. ``*`` stands for any characters, and all
        other columns are ignored. Without it, they are all columns but label and id, which must hold numbers.
    label, id : str, optional
        Columns of the labels and ids. A missing label is None, which `FastHash.fit` takes for a row without a label.

    Returns
    -------
    rows : TableRows
        ``X``, ``labels`` and ``ids``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"key": [7, 3], "vector": [[1.0, 2.0], [3.0, 4.0]], "kind": ["cat", None]})
    >>> X, labels, ids = from_table(table, features="vector", label="kind", id="key")
    >>> X.tolist(), labels.tolist(), ids.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], ['cat', None], [7, 3])
    """
    pa = arrow.import_pyarrow("table")
    if not hasattr(table, "__arrow_c_stream__"):
        raise TypeError(
            "The 'table' parameter must be a DataFrame or an Arrow table (pandas 2.2, polars 1.3 or later). "
            f"Got {type(table).__module__}.{type(table).__name__} instead."
        )
    names = (features,) if isinstance(features, str) else None if features is None else tuple(features)
    given = arrow.without_views(pa.table(table))
    return _of_arrow("table", given, Columns(label, id, names).places("table", given.column_names))


def to_table(codes: ArrayLike, *, ids: ArrayLike | None = None) -> Any:
    """Codes as an Arrow table, which pandas, polars and others take (``polars.from_arrow``, ``table.to_pandas()``).

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)
        As `FastHash.transform` and `Encoder.encode` return them.
    ids : array-like of int or str, shape (n,), optional

    Returns
    -------
    table : pyarrow.Table
        A column ``id``, if there are ids, and a column ``code`` of fixed-size binary, as in the files of
        ``hashgrove encode``. The metadata of the schema has the digest of the model that made the codes, if they
        know it.

    Examples
    --------
    >>> import numpy as np
    >>> table = to_table(np.array([[1, 2], [3, 4]], np.uint8), ids=["a", "b"])
    >>> table.column_names, table["code"].to_pylist()
    (['id', 'code'], [b'\\x01\\x02', b'\\x03\\x04'])
    """
    pa = arrow.import_pyarrow("codes")
    packed = np.asarray(codes)
    if packed.dtype != np.uint8 or packed.ndim != 2 or not packed.shape[1]:
        raise ParameterError(
            "codes",
            f"must be packed codes, uint8 of shape (n, n_bytes). Got {packed.dtype} of shape {packed.shape} instead.",
        )
    _, table = arrow.arrow_codes(packed.shape[1], getattr(codes, "model", None))
    found = table(packed)
    if ids is None:
        return found
    names = np.asarray(ids)
    if names.shape != (len(packed),) or names.dtype.kind not in "iuU":
        raise ParameterError(
            "ids", f"must be {len(packed)} integers or texts. Got {names.dtype} of shape {names.shape} instead."
        )
    return found.add_column(0, "id", pa.array(names))


def _used(features: list[int], label: int | None, id_: int | None) -> tuple[list[int], Places]:
    """The columns that are used, in ascending order, and the places of the features, label and id among them.

    >>> _used([5, 3], 7, None)
    ([3, 5, 7], ([1, 0], 2, None))
    """
    used = sorted({*features, *(place for place in (label, id_) if place is not None)})
    at = {place: at for at, place in enumerate(used)}
    chosen = [at[place] for place in features]
    return used, (chosen, None if label is None else at[label], None if id_ is None else at[id_])


def _of_arrow(name: str, table: Any, places: Places) -> TableRows:
    chosen, label, id_ = places
    X = arrow.matrix_of(name, table.select(chosen))
    labels = None if label is None else arrow.label_array(name, table, label)
    ids = None if id_ is None else arrow.arrow_array(name, table, id_)
    if ids is not None and (ids.ndim != 1 or ids.dtype.kind not in "iuU"):
        raise FileError(f"{name}: column {table.column_names[id_]!r} must hold ids: integers or text. Got {ids.dtype}.")
    return TableRows(X, labels, ids)
