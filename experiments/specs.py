"""The parts of an experiment as plain data: data sets, runs, cells, experiments, claims and headlines.

A *row* of an experiment is a method with its settings. A *cell* is a row on one data set. The `Spec` of a cell holds
everything that decides its result; cells of several experiments with the same spec share one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

__all__ = ["Cell", "Claim", "DataChoice", "Experiment", "Headline", "Spec", "Tables"]

NOT_IN_PAPER = "not in the paper"  # how `of` begins


@dataclass(frozen=True)
class DataChoice:
    """A data set under the name that the experiments use for it.

    Parameters
    ----------
    name : str
        Name in tables.toml.
    load : str
        Name in `experiments.datasets.DATASETS`.
    title : str
        Name for people.
    options : dict
        Options of `experiments.datasets.load_dataset`.
    same_as : tuple of str
        Names of the paper's data sets that hold the same data. It only stands in for any other one.
    """

    name: str
    load: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    same_as: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spec:
    """Everything that decides a result, except the seed and the bytes of the data.

    A stored run has the fields that differ from their defaults. So a new field does not concern runs that are stored
    already, as long as its default means what they did; the default of a field must never change.

    Parameters
    ----------
    dataset : str
        Name in `experiments.datasets.DATASETS`.
    method : str
        ``fasthash``, ``fasthash-paper``, ``pq``, ``cosine`` or a name in `experiments.baselines.BASELINES`.
    bits : int
        Length of a code.
    options : dict
        Options of `experiments.datasets.load_dataset`.
    params : dict
        Parameters of the method that differ from its defaults. A table with ``kind`` is a learner or a solver with
        settings.
    n_train : int or None
        Number of training rows, which are drawn by the seed; None means all.
    database : {"all", "seen", "held-out", "queries"}
        The rows that are searched: all training rows, only those the method was trained on, only the others, or for
        each query the other queries.
    unseen : float or None
        Share of the classes that is left out of training. Database and queries are then of these classes only.
    pca : int or None
        Number of principal components of the training rows that replace the features.
    classify : bool
        Whether linear SVMs also learn the classes from the codes.
    n_query : int or None
        Number of queries, which are drawn by the seed; None means all.
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
        """Return the fields that differ from their defaults, ready for `json.dumps`.

        >>> Spec("digits", "lsh", bits=32, params={}).to_dict()
        {'dataset': 'digits', 'method': 'lsh', 'bits': 32}
        """
        defaults = {f.name: {} if f.default is MISSING else f.default for f in fields(self)[2:]}
        return {name: value for name, value in asdict(self).items() if name not in defaults or value != defaults[name]}


@dataclass(frozen=True)
class Cell:
    """A row of an experiment on one data set.

    ``paper_data`` is the paper's data set in the same place (or empty), ``paper`` the paper's figures by measure, and
    ``paper_row`` the row of the paper's table that they are from.
    """

    experiment: str
    row: str
    data: DataChoice
    paper_data: str
    measures: tuple[str, ...]
    spec: Spec
    paper: Mapping[str, float] = field(default_factory=dict)
    paper_row: str = ""

    @property
    def name(self) -> str:
        """Experiment, data set and row."""
        return f"{self.experiment} / {self.data.name} / {self.row}"

    @property
    def is_paper_data(self) -> bool:
        """Whether the data are those of the paper, so that a difference from its figures means something."""
        return self.paper_data in self.data.same_as


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its cells, ordered by data set and then by row."""

    name: str
    title: str
    of: str
    measures: tuple[str, ...]
    note: str
    cells: tuple[Cell, ...]

    @property
    def is_in_paper(self) -> bool:
        """Whether the paper has this table or figure."""
        return not self.of.startswith(NOT_IN_PAPER)

    def by_data(self) -> dict[str, list[Cell]]:
        """Return the cells of each data set, by its name."""
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(cell.data.name, []).append(cell)
        return found


@dataclass(frozen=True)
class Claim:
    """A statement that can be checked: in each pair of rows, the first must be better than the second.

    ``slack`` is how much worse the first row may be; ``why`` explains the exceptions.
    """

    says: str
    experiment: str
    measure: str
    pairs: tuple[tuple[str, str], ...]
    slack: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Headline:
    """A line on the front page of the results: one of our rows beside the best of its rivals."""

    says: str
    measure: str
    ours: Cell
    rivals: tuple[Cell, ...]


@dataclass(frozen=True)
class Tables:
    """Everything in tables.toml and paper.toml.

    ``unused`` gives, by experiment and data set of the paper, why figures of the paper are not beside any row.
    """

    experiments: Mapping[str, Experiment]
    claims: tuple[Claim, ...]
    headlines: tuple[Headline, ...]
    unused: Mapping[tuple[str, str], str]
