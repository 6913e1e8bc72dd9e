"""Write the pages of results from the files of runs: a front page, and one page per experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hashgrove.bench.claims import Verdict
from hashgrove.bench.headlines import headline_table, standings
from hashgrove.bench.pages import experiment_page
from hashgrove.bench.records import Records
from hashgrove.bench.results import Store
from hashgrove.bench.specs import Tables
from hashgrove.bench.tables import load_tables
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import PathLike

__all__ = ["report"]

MADE_BY = "<!-- Written by `hashgrove bench report` from the files of runs. Do not edit. -->"
QUICK = "**Quick runs on handwritten digits. They show that everything runs, and nothing else.**"
HOW_TO_READ = (
    "MAP and PR area are taken over the full ranking, and the objective over all bits. The columns 'the paper's MAP', "
    "'the paper's PR area' and 'the paper's objective' are what the paper's figures are: MAP over the 10,000 nearest "
    "items, divided by the relevant items among these; the area under mean precision over mean recall at the ranks 1 "
    "to 10,000; and the loss of distances in all bits but the last, divided by the number of all bits. Precision is "
    "the same in both. Ties count by their expectation everywhere. A figure in brackets is the paper's. If the paper "
    "used the same data and the same number of training points, the difference follows (for times, the ratio). "
    "'points' is the number of training points. 'encoding' is the time for database and queries together. Times were "
    "taken on machines that other work shared, with one thread or two; the file of each run says which. Each figure "
    "is of one seed unless it says otherwise. 'Not run' in a row with figures means that the run is older than the "
    "measure."
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
        from hashgrove.bench.plots import draw_experiments, draw_headlines

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
    if overview:
        lines += [f"![Ours, the best rival and the paper]({folder}/{overview.name})", ""]
    found = standings(tables.headlines, records)
    lines += [*headline_table(found, folder), ""] if found else []
    lines += ["## Experiments", "", "| experiment | in the paper | cells run | claims that hold |", "|---|---|---|---|"]
    for name, experiment in tables.experiments.items():
        checked = [verdict for verdict in verdicts[name] if verdict.comparisons]
        cells = f"{sum(bool(records.done(cell)) for cell in experiment.cells)} of {len(experiment.cells)}"
        claims = f"{sum(not v.failed for v in checked)} of {len(checked)}" if checked else ""
        lines.append(f"| [{experiment.title}]({folder}/{name}.md) | {experiment.of} | {cells} | {claims} |")
    if (front.with_suffix("") / "speed.md").exists():
        lines += ["", f"How fast each part is beside other libraries is on the page about [speed]({folder}/speed.md)."]
    lines += ["", "A claim holds if it holds in every comparison that was run. These do not:", ""]
    lines += [
        f"- {v.claim.says}: {v.holds} ([{name}]({folder}/{name}.md))"
        for name, of_experiment in verdicts.items()
        for v in of_experiment
        if v.failed
    ] or ["- none"]
    lines += ["", "## How to read the figures", "", HOW_TO_READ, ""]
    if tables.unused:
        lines += ["Figures of the paper that are beside no row:", ""]
        lines += [f"- {experiment}, {data}: {why}" for (experiment, data), why in tables.unused.items()]
        lines.append("")
    machines = records.machines(cell for experiment in tables.experiments.values() for cell in experiment.cells)
    return [*lines, f"Machine: {machines or 'no runs'}."]
