"""Arrays in .npz files: your own, and the features that this project uses for its experiments.

Arrays whose names end in ``_u8`` store features as bytes, with ``lo`` and ``scale`` per column: value = byte * scale +
lo.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.base import Dataset, seeded_split
from experiments.datasets.catalogue import Entry, Layout
from experiments.datasets.cifar import CIFAR10_NAMES
from hashgrove.runtime.parameters import OneOf
from hashgrove.storage.formats import FileError, MissingFileError, PathLike, one_line
from hashgrove.storage.matrices import read

__all__ = ["ENTRIES", "load_npz"]


def load_npz(
    path: PathLike,
    *,
    features: str = "X",
    labels: str | None = None,
    is_test: str | None = None,
    names: str | None = None,
    n_query: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Load a data set of your own from the arrays in an .npz file.

    Parameters
    ----------
    path : path
        The file.
    features, labels, names : str, optional
        Names of the arrays in the file: features (n, n_features); classes (n,) or tags (n, n_tags), by default ``y`` or
        ``Y``, whichever exists; names of classes or tags.
    is_test : str, optional
        Name of an array (n,) that is true or 1 for queries. By default ``is_test`` if it exists; otherwise queries are
        drawn at random.
    n_query : int, optional
        Number of queries if they are drawn; by default a tenth of the rows.
    seed : int
        The same seed draws the same queries.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "flowers.npz"
    >>> np.savez(path, X=np.zeros((50, 4)), y=np.arange(50) % 3)
    >>> load_npz(path, n_query=10)
    Dataset('flowers': 50 rows, 4 features, 3 classes; 40 to train, 40 to search, 10 queries)
    """
    file = Path(path)
    present = _array_names(file)
    if labels is None:
        labels = "Y" if "Y" in present and "y" not in present else "y"
    if is_test is None and "is_test" in present:
        is_test = "is_test"
    X = _array(file, features, "iufb", ndim=(2,))
    fields = _labels(file, labels, names, n_rows=len(X))
    if is_test is not None:
        train, query = _given_split(file, is_test, n_rows=len(X))
    else:
        if len(X) < 2:
            raise FileError(f"{file}: must have at least 2 rows, one to train on and one query. Got {len(X)}.")
        train, query = seeded_split(len(X), n_query, seed=seed)
    return Dataset(name=file.stem, features=X, train=train, query=query, source=str(path), **fields)


def _array_names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: no such file") from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise FileError(f"{path}: must be a .npz archive of arrays. It is damaged: {one_line(error)}") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error


def _array(path: Path, name: str, kinds: str, *, ndim: tuple[int, ...]) -> NDArray[Any]:
    array = read(f"{path}:{name}", None)[0]
    if array.dtype.kind not in kinds or array.ndim not in ndim or 0 in array.shape[1:]:
        raise FileError(
            f"{path}: {name!r} must be {'text' if kinds == 'U' else 'numbers'} in {' or '.join(map(str, ndim))} "
            f"dimensions. Got {array.dtype} of shape {array.shape}."
        )
    return array


def _labels(path: Path, labels: str, names: str | None, *, n_rows: int) -> dict[str, Any]:
    y = _array(path, labels, "iufbU", ndim=(1, 2))
    if len(y) != n_rows:
        raise FileError(f"{path}: {labels!r} must have {n_rows} rows, as the features have. Got {len(y)} instead.")
    words = None if names is None else tuple(map(str, _array(path, names, "U", ndim=(1,))))
    if words is not None:
        largest = y.shape[1] - 1 if y.ndim == 2 else (int(y.max()) if y.size and y.dtype.kind in "iu" else 0)
        if len(words) <= largest or (y.ndim == 2 and len(words) != y.shape[1]):
            raise FileError(f"{path}: {names!r} must have a name for each of {largest + 1} labels. Got {len(words)}.")
    return {"labels": y, "names": words}


def _given_split(path: Path, is_test: str, *, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    flags = _array(path, is_test, "biu", ndim=(1,)) != 0
    if len(flags) != n_rows or flags.all() or not flags.any():
        raise FileError(
            f"{path}: {is_test!r} must be true for some of {n_rows} rows and false for others. "
            f"Got {len(flags)} values, of which {int(flags.sum())} are true."
        )
    return np.flatnonzero(~flags), np.flatnonzero(flags)


def _decoded(path: Path, prefix: str, codes: NDArray[Any]) -> NDArray[np.float32]:
    """Values of features that are stored as bytes, ``codes`` * scale + lo."""
    X = codes.astype(np.float32)
    for name, apply in ((f"{prefix}scale", np.multiply), (f"{prefix}lo", np.add)):
        step = _array(path, name, "f", ndim=(1,))
        if len(step) != X.shape[1]:
            raise FileError(f"{path}: {name!r} must have {X.shape[1]} values, one per column. Got {len(step)} instead.")
        apply(X, step.astype(np.float32), out=X)
    return X


def _read_features(folder: Path, entry: Entry, file: str, n_train: int, *, decode: bool = True) -> Dataset:
    """Read features of CIFAR-10; the first ``n_train`` rows are for training."""
    path = folder / file
    codes = _array(path, "X", "u", ndim=(2,))
    y = _labels(path, "y", None, n_rows=len(codes))["labels"]
    if not n_train < len(codes):
        raise FileError(f"{path}: must have more than {n_train} rows. Got {len(codes)}.")
    return entry.dataset(
        features=_decoded(path, "", codes) if decode else codes,
        labels=y.astype(np.int64),
        names=CIFAR10_NAMES,
        train=np.arange(n_train),
        query=np.arange(n_train, len(codes)),
    )


def _read_deep(folder: Path, entry: Entry, file: str, names: str, *, decode: bool = True) -> Dataset:
    """Read deep features that are stored as bytes, with a given split."""
    return _given(folder / file, entry, names, "eff", decode)


def _read_sentences(folder: Path, entry: Entry, file: str, names: str, *, decode: bool = True) -> Dataset:
    """Read sentence vectors that are stored as bytes, with a given split."""
    return _given(folder / file, entry, names, "sentences", decode)


def _read_two(
    folder: Path, entry: Entry, file: str, names: str, *, features: str = "gist", decode: bool = True
) -> Dataset:
    """Read GIST (16-bit floats) or deep features (bytes), with a given split."""
    OneOf(("gist", "eff")).check("features", features)
    return _given(folder / file, entry, names, features, decode)


GIVEN_ARRAYS = {"gist": ("gist", ""), "eff": ("eff_u8", "eff_"), "sentences": ("X_u8", "")}  # name, prefix of scale


def _given(path: Path, entry: Entry, names: str, features: str, decode: bool) -> Dataset:
    """Read features and a given split; ``decode`` converts features to float32, otherwise they stay as stored."""
    array, prefix = GIVEN_ARRAYS[features]
    raw = load_npz(path, features=array, names=names)
    X = raw.features
    assert X is not None  # load_npz gives them
    if decode:
        X = X.astype(np.float32) if features == "gist" else _decoded(path, prefix, X)
    return entry.dataset(features=X, labels=raw.labels, names=raw.names, train=raw.train, query=raw.query)


def _read_unsplit(folder: Path, entry: Entry, file: str, *, n_query: int | None = None, seed: int = 0) -> Dataset:
    raw = load_npz(folder / file, n_query=n_query, seed=seed)
    return entry.dataset(features=raw.features, labels=raw.labels, train=raw.train, query=raw.query)


def _entry(file: str, read_file: Callable[..., Dataset], n_train: int, n_query: int, **more: Any) -> Entry:
    return Entry(
        n_train=n_train,
        n_query=n_query,
        layouts=(Layout((file,), read_file),),
        instructions=f"Put {file} in {{place}}.",
        **{"licence": "not stated", **more},
    )


def _cifar_features(name: str, file: str, description: str) -> Entry:
    return _entry(
        file, partial(_read_features, file=file, n_train=50_000), 50_000, 10_000,
        name=name, description=description, labels="10 classes", split="given: CIFAR-10's test batch is the queries",
        source="https://www.cs.toronto.edu/~kriz/cifar.html; features computed by this project",
    )  # fmt: skip


def _unsplit(name: str, file: str, n_train: int, n_query: int, *, description: str, labels: str, source: str) -> Entry:
    return _entry(
        file, partial(_read_unsplit, file=file), n_train, n_query,
        name=name, description=description, labels=labels, source=source,
        split="none: a tenth of the rows are queries, drawn by seed", check_rows=False,
    )  # fmt: skip


GIVEN = "given: rows with is_test are the queries"
MULAN = "https://mulan.sourceforge.net/datasets-mlc.html"

ENTRIES = (
    _cifar_features("cifar10-gist", "cifar10_gist512_u8.npz", "CIFAR-10, 512 GIST features"),
    _cifar_features("cifar10-effnet", "cifar10_effnetlite0_1280_u8.npz", "CIFAR-10, 1280 EfficientNet features"),
    _entry(
        "mirflickr14.npz", partial(_read_two, file="mirflickr14.npz", names="names"), 7_683, 2_493,
        name="mirflickr14", description="part of MIRFLICKR, GIST or EfficientNet features", labels="14 tags",
        split=GIVEN, source="https://press.liacs.nl/mirflickr/; features computed by this project",
    ),
    _entry(
        "corel5k.npz", partial(_read_two, file="corel5k.npz", names="words"), 4_500, 499,
        name="corel5k", description="photographs of Corel 5k, GIST or EfficientNet features", labels="374 tags",
        split=GIVEN, source="Duygulu et al., ECCV 2002; features computed by this project",
    ),
    _entry(
        "tinyimagenet100_eff.npz", partial(_read_deep, file="tinyimagenet100_eff.npz", names="wnids"), 20_000, 5_000,
        name="tinyimagenet100", description="part of Tiny ImageNet, EfficientNet features", labels="100 classes",
        split=GIVEN, source="http://cs231n.stanford.edu/tiny-imagenet-200.zip; features computed by this project",
    ),
    _entry(
        "banking77_minilm.npz", partial(_read_sentences, file="banking77_minilm.npz", names="classes"), 10_003, 3_080,
        name="banking77", description="questions of customers, 384 MiniLM features", labels="77 classes",
        split=GIVEN, source="Casanueva et al., NLP4ConvAI 2020; features computed by this project",
    ),
    _unsplit(
        "corel16k001-bow", "corel16k001_bow.npz", 12_390, 1_376,
        description="Corel 16k, 500 visual words", labels="153 tags", source=MULAN,
    ),
    _unsplit(
        "corel5k-bow", "corel5k_bow_mulan.npz", 4_500, 500,
        description="Corel 5k, 499 visual words", labels="374 tags", source=MULAN,
    ),
    _unsplit(
        "mirflickr-pml", "mirflickr_pml5000.npz", 4_500, 500,
        description="part of MIRFLICKR, 100 features", labels="7 tags",
        source="a public multi-label collection",
    ),
)  # fmt: skip
