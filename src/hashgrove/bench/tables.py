"""Experiments as data: reads tables.toml and paper.toml, and refuses what cannot be run before anything is run.

A *row* is a method with its settings, a *cell* is a row on a data set. What decides the result of a cell is its
`Spec`; cells of several experiments that have the same one share one run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hashgrove.bench.measures import MEASURES
from hashgrove.bench.methods import check_method
from hashgrove.datasets import DATASETS
from hashgrove.storage.formats import FileError, PathLike, listed, one_line

__all__ = ["Cell", "Claim", "DataChoice", "Experiment", "Spec", "Tables", "load_tables"]

DATABASES = ("all", "seen", "held-out")


@dataclass(frozen=True)
class DataChoice:
    """A data set under the name that experiments use.

    Parameters
    ----------
    name, title : str
        In tables.toml, and for people.
    load : str
        Its name in `hashgrove.datasets.DATASETS`.
    options : dict
        Options of `hashgrove.datasets.load`.
    same_as : tuple of str
        The paper's data sets that it is; it stands in for any other one.
    """

    name: str
    load: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    same_as: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spec:
    """All that decides a result, but for the seed and the bytes of the data.

    Parameters
    ----------
    dataset, options
        As in `hashgrove.datasets.load`.
    method : str
        ``fasthash``, ``pq`` or one of `hashgrove.baselines.BASELINES`.
    bits : int
    params : dict
        Parameters of the method other than its defaults; a table with ``kind`` is a learner or solver with settings.
    n_train : int or None
        Training rows, drawn by seed; None is all.
    database : {"all", "seen", "held-out"}
        Search in all training rows, in those trained on, or in those not trained on.
    unseen : float or None
        Share of the classes that is left out of training, and that alone is searched and asked for.
    pca : int or None
        Principal components of the training rows that the method gets instead of features.
    classify : bool
        Whether linear SVMs learn the classes from the codes.
    n_query : int or None
        Queries, drawn by seed; None is all.
    """

    dataset: str
    method: str
    bits: int = 64
    options: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    n_train: int | None = None
    database: str = "all"
    unseen: float | None = None
    pca: int | None = None
    classify: bool = False
    n_query: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for `json.dumps`."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """A row of an experiment on a data set; ``paper`` are the paper's figures for it, if it has any."""

    experiment: str
    row: str
    data: DataChoice
    block: str
    measures: tuple[str, ...]
    spec: Spec
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cell for people."""
        return f"{self.experiment} / {self.data.name} / {self.row}"


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its cells, by data set and then by row."""

    name: str
    title: str
    of: str
    measures: tuple[str, ...]
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, as rows of an experiment of which the first of a pair must be the better one."""

    says: str
    experiment: str
    measure: str
    pairs: tuple[tuple[str, str], ...]
    slack: float = 0.0


@dataclass(frozen=True)
class Tables:
    """Everything in the two files."""

    experiments: Mapping[str, Experiment]
    claims: tuple[Claim, ...]
    unused: Mapping[tuple[str, str], str]


def load_tables(path: PathLike | None = None, *, paper: PathLike | None = None) -> Tables:
    """Read and check the experiments.

    Parameters
    ----------
    path : path, optional
        A file like tables.toml, which is the default.
    paper : path, optional
        A file like paper.toml, the default for the project's own experiments; other ones have no paper unless given.

    Examples
    --------
    >>> tables = load_tables()
    >>> tables.experiments["ksh"].cells[0].name
    'ksh / cifar10-codebook800 / KSH-300'
    """
    here = Path(__file__).parent
    source = Path(path) if path is not None else here / "tables.toml"
    figures = _read(Path(paper) if paper else here / "paper.toml") if path is None or paper else {}
    tree = _read(source)
    _check_keys(tree, {"datasets", "experiments", "claims"}, f"{source}")
    unused = {(entry["experiment"], entry["block"]): entry["why"] for entry in figures.pop("unused", [])}
    data = {name: _data(name, entry, source) for name, entry in tree.get("datasets", {}).items()}
    experiments = {
        name: _experiment(name, entry, data, figures.get(name, {}), source)
        for name, entry in tree.get("experiments", {}).items()
    }
    claims = tuple(_claim(entry, experiments, source) for entry in tree.get("claims", []))
    _check_all_used(figures, experiments, unused)
    return Tables(experiments, claims, unused)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: must be TOML. {one_line(error)}") from error


def _check_keys(table: Any, known: set[str], where: str, *, needed: tuple[str, ...] = ()) -> None:
    if not isinstance(table, dict):
        raise FileError(f"{where}: must be a table. Got {table!r} instead.")
    for key in table:
        if key not in known:
            raise FileError(f"{where}: unknown key {key!r}. Known are {listed(sorted(known))}.")
    for key in needed:
        if key not in table:
            raise FileError(f"{where}: the key {key!r} must be there. It is not.")


def _data(name: str, entry: Any, source: Path) -> DataChoice:
    where = f"{source}: data set {name!r}"
    _check_keys(entry, {"load", "title", "options", "is"}, where, needed=("load", "title"))
    if entry["load"] not in DATASETS:
        raise FileError(f"{where}: 'load' must be one of {list(DATASETS)}. Got {entry['load']!r} instead.")
    for option in entry.get("options", {}):
        if option not in DATASETS[entry["load"]].options():
            raise FileError(f"{where}: {entry['load']} has no option {option!r}.")
    return DataChoice(name, entry["load"], entry["title"], entry.get("options", {}), tuple(entry.get("is", ())))


def _experiment(
    name: str, entry: Any, data: Mapping[str, DataChoice], figures: Mapping[str, Any], source: Path
) -> Experiment:
    where = f"{source}: experiment {name!r}"
    needed = ("title", "of", "measures", "on", "rows")
    _check_keys(entry, {*needed, "note"}, where, needed=needed)
    for alias in entry["on"]:
        if alias not in data:
            raise FileError(f"{where}: data set must be one of {list(data)}. Got {alias!r} instead.")
    names = [row.get("name") for row in entry["rows"]]
    if len(set(names)) < len(names):
        raise FileError(f"{where}: each row must have a name of its own. Got {names}.")
    cells = tuple(
        _cell(name, entry, row, data[alias], block, figures, f"{where}, row {row.get('name')!r}")
        for alias, block in entry["on"].items()
        for row in entry["rows"]
        if alias not in row.get("except", ())
    )
    return Experiment(name, entry["title"], entry["of"], _measures(entry, where), entry.get("note", ""), cells)


def _measures(entry: Any, where: str) -> tuple[str, ...]:
    for measure in entry["measures"]:
        if measure not in MEASURES:
            raise FileError(f"{where}: a measure must be one of {list(MEASURES)}. Got {measure!r} instead.")
    return tuple(entry["measures"])


def _cell(
    experiment: str, entry: Any, row: Any, data: DataChoice, block: str, figures: Mapping[str, Any], where: str
) -> Cell:
    settings = {f.name for f in fields(Spec)} - {"dataset", "options"}
    _check_keys(row, {*settings, "name", "measures", "except", "train_share"}, where, needed=("name", "method"))
    for alias in row.get("except", ()):
        if alias not in entry["on"]:
            raise FileError(f"{where}: 'except' must name data sets of the experiment. Got {alias!r} instead.")
    chosen = {key: value for key, value in row.items() if key in settings}
    rows = DATASETS[data.load].n_train
    if "train_share" in row:
        chosen["n_train"] = round(row["train_share"] * rows)
    if chosen.get("n_train", 0) >= rows:  # so that it is the run of all rows
        del chosen["n_train"]
    spec = Spec(dataset=data.load, options=data.options, **chosen)
    if spec.database not in DATABASES:
        raise FileError(f"{where}: 'database' must be one of {list(DATABASES)}. Got {spec.database!r} instead.")
    if spec.database == "held-out" and spec.n_train is None:
        raise FileError(f"{where}: a held-out database needs 'n_train' or 'train_share' below all rows of {data.load}.")
    if (spec.unseen is not None or spec.classify) and "classes" not in DATASETS[data.load].labels:
        raise FileError(f"{where}: 'unseen' and 'classify' are for classes. {data.load} has tags.")
    check_method(spec.method, spec.bits, spec.params, where)
    measures = _measures(row if "measures" in row else entry, where)
    return Cell(experiment, row["name"], data, block, measures, spec, figures.get(block, {}).get(row["name"], {}))


def _claim(entry: Any, experiments: Mapping[str, Experiment], source: Path) -> Claim:
    where = f"{source}: claim {entry.get('says')!r}"
    needed = ("says", "experiment", "measure", "pairs")
    _check_keys(entry, {*needed, "slack"}, where, needed=needed)
    if entry["experiment"] not in experiments or entry["measure"] not in MEASURES:
        raise FileError(f"{where}: must name an experiment and a measure that there are. It does not.")
    rows = {cell.row for cell in experiments[entry["experiment"]].cells}
    for row in (row for pair in entry["pairs"] for row in pair):
        if row not in rows:
            raise FileError(f"{where}: {row!r} must be a row of {entry['experiment']!r}. It is not.")
    pairs = tuple((better, worse) for better, worse in entry["pairs"])
    return Claim(entry["says"], entry["experiment"], entry["measure"], pairs, entry.get("slack", 0.0))


def _check_all_used(
    figures: Mapping[str, Any], experiments: Mapping[str, Experiment], unused: Mapping[tuple[str, str], str]
) -> None:
    """Each of the paper's figures stands beside a cell, or is said not to."""
    used = {(cell.experiment, cell.block, cell.row) for e in experiments.values() for cell in e.cells}
    for experiment, blocks in figures.items():
        for block, rows in blocks.items():
            for row, measures in rows.items():
                where = f"paper.toml: {experiment} / {block} / {row}"
                _check_keys(measures, {*MEASURES, "n_train"}, where)
                if (experiment, block, row) not in used and (experiment, block) not in unused:
                    raise FileError(f"{where}: must stand beside a row of tables.toml, or be listed as unused.")
