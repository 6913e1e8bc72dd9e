"""Write the pages of results from the files of runs: a front page, and one page per experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.claims import Verdict
from experiments.headlines import headline_table, standings
from experiments.measures import MEASURES
from experiments.pages import experiment_page
from experiments.records import Records
from experiments.results import Store
from experiments.specs import Tables
from experiments.tables import load_tables
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import PathLike

__all__ = ["report"]

MADE_BY = "<!-- Written by `python -m experiments report` from the files of runs. Do not edit. -->"
QUICK = "**Quick runs on handwritten digits. They show that everything runs, and nothing else.**"
HOW_TO_READ = (
    "MAP and PR area are taken over the full ranking, and the objective over all bits. The columns 'the paper's "
    "MAP', 'the paper's PR area' and 'the paper's objective' are what the paper's figures are: MAP over the 10,000 "
    "nearest items, divided by the relevant items among these; the area under mean precision over mean recall at "
    "the ranks 1 to 10,000; and the loss of distances in all bits but the last, divided by the number of all bits. "
    "Precision is the same in both. The two MAPs of one run can differ by much: codes that put some relevant items "
    "first, but not all of them, are better by the paper's measure, as those that were learned from 5,000 points. "
    "Only the paper's measures can be set against the paper's figures. Ties count by their expectation everywhere. "
    "A figure in brackets is the paper's. If the paper used the same data and the same number of training points, "
    "the difference follows (for times, the ratio). 'points' is the number of training points. 'encoding' is the "
    "time for database and queries together. Times were taken on machines that other work shared, with one thread "
    "or two; the record of each run says which. Each figure is of one seed unless it says otherwise. 'Not run' in a "
    "row with figures means that the run is older than the measure."
)

ABOUT_CLAIMS = (
    "A claim is compared on every data set of its experiment, by the rows that were run. Those of the paper are "
    "checked by its own measures, see below. A difference below .02 is not decided before it has three seeds. "
    "A comparison is called even if its seeds disagree about the winner. With several seeds the mean stands first, "
    "then the smallest and the largest difference. The pages of the experiments name every comparison in which a "
    "claim does not hold."
)


def report(
    *, results: PathLike, output: PathLike, tables: Tables | None = None, quick: bool = False
) -> tuple[list[Path], list[Path]]:
    """Write the front page, one page per experiment, and pictures.

    Parameters
    ----------
    results : path
        Folder of results.
    output : path
        The front page, such as ``results.md``. Everything else goes to the folder of the same name, ``results/``.
    tables : Tables, optional
        Experiments from `load_tables`; by default the project's own.
    quick : bool
        Whether the results are those of quick runs.

    Returns
    -------
    pages, pictures : list of Path
        The front page comes first. There are no pictures if matplotlib is missing (extra ``plot``).
    """
    tables = tables or load_tables()
    front, records = Path(output), Records(Store(Path(results)), quick=quick)
    folder = front.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        from experiments.plots import draw_experiments, draw_headlines

        pictures = draw_experiments(tables, records, folder)
        overview = draw_headlines(standings(tables.headlines, records), folder)
    except ImportError:
        pictures, overview = {}, None
    verdicts = records.verdicts(tables)
    pages = [front]
    _write(front, _front_page(tables, verdicts, records, front, overview))
    for name, experiment in tables.experiments.items():
        links = {data: path.name for (of, data), path in pictures.items() if of == name}
        pages.append(folder / f"{name}.md")
        _write(pages[-1], experiment_page(experiment, verdicts[name], records, links, front=f"../{front.name}"))
    return pages, [*([overview] if overview else []), *pictures.values()]


def _write(path: Path, lines: Sequence[str]) -> None:
    with atomic_write(path) as file:
        file.write("\n".join([MADE_BY, "", *lines, ""]).encode())


def _front_page(
    tables: Tables, verdicts: Mapping[str, list[Verdict]], records: Records, front: Path, overview: Path | None
) -> list[str]:
    folder = front.stem
    lines = ["# Results", ""]
    lines += [QUICK, ""] if records.quick else []
    lines += _claims(tables, verdicts, folder)
    found = standings(tables.headlines, records)
    if found:
        lines += ["## Ours and the best rival", ""]
        lines += [f"![Ours, the best rival and the paper]({folder}/{overview.name})", ""] if overview else []
        lines += [*headline_table(found, folder), ""]
    lines += ["## Experiments", "", "| experiment | in the paper | cells run | claims that hold |", "|---|---|---|---|"]
    for name, experiment in tables.experiments.items():
        checked = [verdict for verdict in verdicts[name] if verdict.comparisons]
        cells = f"{sum(bool(records.done(cell)) for cell in experiment.cells)} of {len(experiment.cells)}"
        claims = f"{sum(not v.exceptions for v in checked)} of {len(checked)}" if checked else ""
        lines.append(f"| [{experiment.title}]({folder}/{name}.md) | {experiment.of} | {cells} | {claims} |")
    if (front.with_suffix("") / "speed.md").exists():
        lines += ["", f"How fast each part is beside other libraries is on the page about [speed]({folder}/speed.md)."]
    lines += ["", "## How to read the figures", "", HOW_TO_READ, ""]
    lines += _unused(tables.unused)
    machines = records.machines(cell for experiment in tables.experiments.values() for cell in experiment.cells)
    return [*lines, f"Machine: {machines or 'no runs'}."]


def _unused(unused: Mapping[tuple[str, str], str]) -> list[str]:
    """Return which figures of the paper are beside no row, by reason and by data set of the paper."""
    lines = ["Figures of the paper that are beside no row:", ""] if unused else []
    for why in dict.fromkeys(unused.values()):
        lines.append(f"- {why} Left out are:")
        of_reason = [key for key, reason in unused.items() if reason == why]
        for data in dict.fromkeys(data for _, data in of_reason):
            lines.append(f"  - {data}: {', '.join(name for name, other in of_reason if other == data)}")
    return [*lines, ""] if lines else []


def _claims(tables: Tables, verdicts: Mapping[str, list[Verdict]], folder: str) -> list[str]:
    """Return one table with what the paper says, in its own measure, and one with what we say."""
    lines = []
    for title, is_paper in (("What the paper says", True), ("What we say", False)):
        shown = [
            f"| [{v.claim.says}]({folder}/{name}.md) | {MEASURES[v.claim.measure].title} | {v.holds} | {v.by} |"
            for name, of_experiment in verdicts.items()
            for v in of_experiment
            if v.comparisons and tables.experiments[name].is_in_paper == is_paper
        ]
        if shown:
            lines += [f"## {title}", "", "| claim | measure | holds? | by how much |", "|---|---|---|---|", *shown, ""]
    return [*lines, ABOUT_CLAIMS, ""] if lines else []
