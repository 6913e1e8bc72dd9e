"""Read tables.toml and paper.toml into `Tables`, and refuse what cannot be run before anything is run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.datasets import DATASETS
from experiments.measures import MEASURES
from experiments.methods import FASTHASH, PAPER, check_method
from experiments.specs import Cell, Claim, DataChoice, Experiment, Headline, Spec, Tables
from hashgrove.storage.formats import FileError, PathLike, listed, one_line

__all__ = ["load_tables"]

DATABASES = ("all", "seen", "held-out", "queries")
SPEC_KEYS = {f.name for f in fields(Spec)} - {"dataset", "options"}
ROW_KEYS = {*SPEC_KEYS, "name", "paper", "measures", "except", "train_share"}
EXPERIMENT_KEYS = ("title", "of", "measures", "on", "rows")
CLAIM_KEYS = ("says", "experiment", "measure", "pairs")
HEADLINE_KEYS = ("says", "experiment", "dataset", "measure", "ours")


def load_tables(path: PathLike | None = None, *, paper: PathLike | None = None) -> Tables:
    """Read and check the experiments.

    Parameters
    ----------
    path : path, optional
        A file like tables.toml; by default the project's own.
    paper : path, optional
        A file like paper.toml; by default the project's own if ``path`` is not given, else none.

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
    _check_keys(tree, {"datasets", "experiments", "claims", "headlines"}, f"{source}")
    unused = {
        (experiment, data): entry["why"]
        for entry in figures.pop("unused", [])
        for data, names in entry["experiments"].items()
        for experiment in names
    }
    data = {name: _data_choice(name, entry, source) for name, entry in tree.get("datasets", {}).items()}
    experiments = {
        name: _experiment(name, entry, data, figures.get(name, {}), source)
        for name, entry in tree.get("experiments", {}).items()
    }
    claims = tuple(_claim(entry, experiments, source) for entry in tree.get("claims", []))
    headlines = tuple(_headline(entry, experiments, source) for entry in tree.get("headlines", []))
    _check_figures_are_used(figures, experiments, unused)
    return Tables(experiments, claims, headlines, unused)


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
            raise FileError(f"{where}: unknown key {key!r}. The known keys are {listed(sorted(known))}.")
    for key in needed:
        if key not in table:
            raise FileError(f"{where}: the key {key!r} is missing. Add it.")


def _check_one_of(value: Any, known: Any, what: str, where: str) -> None:
    if value not in known:
        raise FileError(f"{where}: {what} must be one of {list(known)}. Got {value!r} instead.")


def _data_choice(name: str, entry: Any, source: Path) -> DataChoice:
    where = f"{source}: data set {name!r}"
    _check_keys(entry, {"load", "title", "options", "is"}, where, needed=("load", "title"))
    _check_one_of(entry["load"], DATASETS, "'load'", where)
    for option in entry.get("options", {}):
        _check_one_of(option, DATASETS[entry["load"]].options(), f"an option of {entry['load']}", where)
    return DataChoice(name, entry["load"], entry["title"], entry.get("options", {}), tuple(entry.get("is", ())))


def _experiment(
    name: str, entry: Any, data: Mapping[str, DataChoice], figures: Mapping[str, Any], source: Path
) -> Experiment:
    where = f"{source}: experiment {name!r}"
    _check_keys(entry, {*EXPERIMENT_KEYS, "note"}, where, needed=EXPERIMENT_KEYS)
    for alias in entry["on"]:
        _check_one_of(alias, data, "a data set", where)
    names = [row.get("name") for row in entry["rows"]]
    if len(set(names)) < len(names):
        raise FileError(f"{where}: each row must have a name of its own. Got {names}.")
    cells = tuple(
        _cell(name, entry, row, data[alias], paper_data, figures, f"{where}, row {row.get('name')!r}")
        for alias, paper_data in entry["on"].items()
        for row in entry["rows"]
        if alias not in row.get("except", ())
    )
    return Experiment(name, entry["title"], entry["of"], _measures(entry, where), entry.get("note", ""), cells)


def _measures(entry: Any, where: str) -> tuple[str, ...]:
    for measure in entry["measures"]:
        _check_one_of(measure, MEASURES, "a measure", where)
    return tuple(entry["measures"])


def _cell(
    experiment: str, entry: Any, row: Any, data: DataChoice, paper_data: str, figures: Mapping[str, Any], where: str
) -> Cell:
    _check_keys(row, ROW_KEYS, where, needed=("name", "method"))
    for alias in row.get("except", ()):
        _check_one_of(alias, entry["on"], "a data set in 'except'", where)
    measures = _measures(row if "measures" in row else entry, where)
    paper_row = row.get("paper", row["name"])
    paper = figures.get(paper_data, {}).get(paper_row, {})
    return Cell(experiment, row["name"], data, paper_data, measures, _spec(row, data, where), paper, paper_row)


def _spec(row: Any, data: DataChoice, where: str) -> Spec:
    chosen = {key: value for key, value in row.items() if key in SPEC_KEYS}
    dataset = DATASETS[data.load]
    if "train_share" in row:
        chosen["n_train"] = round(row["train_share"] * dataset.n_train)
    if chosen.get("n_train", 0) >= dataset.n_train:
        del chosen["n_train"]  # it shares the run that trains on all rows
    spec = Spec(dataset=data.load, options=data.options, **chosen)
    _check_one_of(spec.database, DATABASES, "'database'", where)
    if spec.database == "held-out" and spec.n_train is None:
        raise FileError(
            f"{where}: a held-out database needs rows that are not trained on. "
            f"Set 'n_train' or 'train_share' below the {dataset.n_train:,} training rows of {data.load}."
        )
    if (spec.unseen is not None or spec.classify) and "classes" not in dataset.labels:
        raise FileError(f"{where}: 'unseen' and 'classify' need a data set with classes. {data.load} has tags.")
    check_method(spec.method, spec.bits, spec.params, where)
    return spec


def _claim(entry: Any, experiments: Mapping[str, Experiment], source: Path) -> Claim:
    where = f"{source}: claim {entry.get('says')!r}"
    _check_keys(entry, {*CLAIM_KEYS, "slack", "why"}, where, needed=CLAIM_KEYS)
    _check_one_of(entry["experiment"], experiments, "'experiment'", where)
    _check_one_of(entry["measure"], MEASURES, "'measure'", where)
    rows = dict.fromkeys(cell.row for cell in experiments[entry["experiment"]].cells)
    for row in (row for pair in entry["pairs"] for row in pair):
        _check_one_of(row, rows, f"a row of {entry['experiment']!r}", where)
    pairs = tuple((better, worse) for better, worse in entry["pairs"])
    options = {key: entry[key] for key in ("slack", "why") if key in entry}
    return Claim(entry["says"], entry["experiment"], entry["measure"], pairs, **options)


def _headline(entry: Any, experiments: Mapping[str, Experiment], source: Path) -> Headline:
    where = f"{source}: headline {entry.get('says')!r}"
    _check_keys(entry, {*HEADLINE_KEYS, "rivals"}, where, needed=HEADLINE_KEYS)
    _check_one_of(entry["experiment"], experiments, "'experiment'", where)
    _check_one_of(entry["measure"], MEASURES, "'measure'", where)
    by_data = experiments[entry["experiment"]].by_data()
    _check_one_of(entry["dataset"], by_data, "'dataset'", where)
    cells = {cell.row: cell for cell in by_data[entry["dataset"]]}
    others = [row for row, cell in cells.items() if cell.spec.method not in (FASTHASH, PAPER)]
    rivals = entry.get("rivals", others)
    for row in (entry["ours"], *rivals):
        _check_one_of(row, cells, f"a row of {entry['experiment']!r}", where)
    return Headline(entry["says"], entry["measure"], cells[entry["ours"]], tuple(cells[row] for row in rivals))


def _check_figures_are_used(
    figures: Mapping[str, Any], experiments: Mapping[str, Experiment], unused: Mapping[tuple[str, str], str]
) -> None:
    """Check that each of the paper's figures is beside a cell, or listed as unused."""
    used = {(cell.experiment, cell.paper_data, cell.paper_row) for e in experiments.values() for cell in e.cells}
    for experiment, by_data in figures.items():
        for data, rows in by_data.items():
            for row, measures in rows.items():
                where = f"paper.toml: {experiment} / {data} / {row}"
                _check_keys(measures, {*MEASURES, "n_train"}, where)
                if (experiment, data, row) not in used and (experiment, data) not in unused:
                    raise FileError(f"{where}: no row of tables.toml is beside it. Add one, or list it as unused.")
