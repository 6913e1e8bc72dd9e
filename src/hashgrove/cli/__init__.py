"""The command line: one short function per command.

Commands import what they need when they run, so that the help and the version come at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove._version import __version__
from hashgrove.cli import options
from hashgrove.cli.bench import bench
from hashgrove.cli.datasets import datasets
from hashgrove.cli.features import features as features_commands
from hashgrove.cli.program import Program

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hashgrove.cli.output import Hit
    from hashgrove.fasthash import FastHash

__all__ = ["main"]

QUERIES_PER_SEARCH = 1024  # so that the results of many queries never are in memory together
TREE_SETTINGS = ("n_trees", "max_depth", "features_per_node")


@click.group(cls=Program, invoke_without_command=True, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hashgrove")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn compact binary codes from labels, tags or pairs, and search them by Hamming distance.

    Features, labels and codes are .npy, .npz (or file.npz:name), .csv or .parquet files.

    \b
    Example:
      hashgrove demo
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


main.add_command(bench)
main.add_command(datasets)
main.add_command(features_commands)


@main.command()
@click.option("-o", "--output", default="hashgrove-demo.png", show_default=True, help="Picture to write.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of split and models.")
def demo(output: str, seed: int) -> None:
    """Train, search and evaluate on handwritten digits.

    FastHash is compared with ITQ, LSH and the sign of the centred features, all at 64 bits: a table on
    stdout, and a picture where matplotlib is installed.

    \b
    Example:
      hashgrove demo -o hashgrove-demo.png
    """
    from hashgrove.cli.demo import compare, draw, format_results
    from hashgrove.cli.inputs import check_output

    check_output(output, inputs=())
    click.echo("Compiling (the first run takes longest) and training ...", err=True)
    digits, results = compare(seed=seed)
    click.echo(format_results(digits, results))
    try:
        draw(digits, results, output)
    except ImportError:
        click.echo("For the picture, install matplotlib: pip install 'hashgrove[plot]'", err=True)
    else:
        click.echo(f"Wrote {output}", err=True)


@main.command()
@click.argument("features")
@click.argument("labels", required=False)
@click.option("-o", "--output", required=True, metavar="MODEL", help="Model file to write.")
@click.option("--label-column", metavar="NAME", help="Column of a .csv or .parquet FEATURES file with the labels.")
@click.option("--pairs", metavar="FILE", help="Rows i, j, relation (above 0 similar, below 0 not); not with LABELS.")
@click.option("--features", "extractor", metavar="EXTRACTOR", help="What made FEATURES; the model then takes images.")
@options.training
@options.threads
@click.option("--quiet", is_flag=True, help="No progress and no summary.")
def train(
    features: str,
    labels: str | None,
    output: str,
    label_column: str | None,
    pairs: str | None,
    extractor: str | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Learn a model from FEATURES and LABELS.

    LABELS are classes, one a row, or a matrix of tags, not zero where the row has the tag. Instead of
    them give --label-column or --pairs.

    \b
    Example:
      hashgrove train X.npy y.npy -o model.hashgrove --bits 64 --loss hinge --depth 4 --seed 0
    """
    _check_call(labels, label_column, pairs, settings["hash_function"])
    from hashgrove.cli.inputs import check_output, read_extractor, read_training
    from hashgrove.cli.output import format_training

    check_output(output, inputs=(features, labels, pairs, extractor))
    X, y, affinity = read_training(features, labels, label_column, pairs)
    made_by = read_extractor(extractor, n_features=X.shape[1], of=features)
    _check_min_shared(y)
    hasher = _hasher(settings, verbose=0 if quiet else 1)
    started = time.perf_counter()
    hasher.fit(X, y, affinity=affinity)
    seconds = time.perf_counter() - started
    hasher.save(output, features=made_by)
    if not quiet:
        click.echo(format_training(hasher, output, seconds))


def _check_call(labels: str | None, label_column: str | None, pairs: str | None, learner: str) -> None:
    n_given = sum(source is not None for source in (labels, label_column, pairs))
    options.refuse(n_given != 1, "Give one of LABELS, --label-column and --pairs.")
    options.refuse(
        learner != "trees" and any(map(options.was_given, TREE_SETTINGS)),
        "--trees, --depth and --features-per-node are for --hash-function trees.",
    )


def _check_min_shared(labels: NDArray[Any] | None) -> None:
    no_tags = labels is None or labels.ndim == 1
    options.refuse(no_tags and options.was_given("min_shared"), "--min-shared is for tags only.")


def _hasher(settings: dict[str, Any], *, verbose: int) -> FastHash:
    from hashgrove import BoostedTrees, FastHash

    trees = BoostedTrees(**{name: settings.pop(name) for name in TREE_SETTINGS})
    if settings["hash_function"] == "trees":
        settings["hash_function"] = trees
    return FastHash(**settings, verbose=verbose)


@main.command()
@click.argument("model")
@options.json_style
def info(model: str, style: str | None) -> None:
    """Describe a MODEL or index file, without loading its arrays.

    \b
    Example:
      hashgrove info model.hashgrove
    """
    from hashgrove.cli.output import write_header
    from hashgrove.storage.modelfile import read_header

    fields = read_header(model)
    write_header(model, Path(model).stat().st_size, fields, style=style)


@main.command()
@click.argument("model")
@click.argument("features")
@click.option("-o", "--output", required=True, metavar="CODES", help="File to write, .npy or .csv.")
@options.threads
def encode(model: str, features: str, output: str, n_jobs: int | None) -> None:
    """Turn FEATURES into packed codes by a MODEL.

    Codes are uint8, one row an item, eight bits a byte. For a model with features (see `train --features`),
    FEATURES may be images: a folder, an image, a list of paths or an array, as for `hashgrove features`.

    \b
    Example:
      hashgrove encode model.hashgrove database.npy -o codes.npy
    """
    suffix = Path(output).suffix.lower()
    options.refuse(suffix not in (".npy", ".csv"), f"--output must end in .npy or .csv. Got {output!r}.")
    from hashgrove import load
    from hashgrove.cli.inputs import check_output, encode_file, write_names
    from hashgrove.storage.matrices import write_matrix

    check_output(output, inputs=(model, features))
    codes, names = encode_file(load(model), features, model=model, n_jobs=n_jobs)
    write_matrix(output, codes)
    if names is not None:
        write_names(output, names)
    click.echo(f"Wrote {len(codes):,} codes of {codes.shape[1]} bytes to {output}", err=True)


@main.command()
@click.argument("codes")
@click.argument("queries")
@options.query_model
@click.option("-k", type=options.POSITIVE, default=10, show_default=True, help="Nearest items of each query.")
@click.option("--radius", type=click.IntRange(min=0), help="All items at this distance or less, instead of -k.")
@options.json_style
@options.csv_style
@options.threads
def search(
    codes: str,
    queries: str,
    model: str | None,
    k: int,
    radius: int | None,
    style: str | None,
    n_jobs: int | None,
) -> None:
    """Find the nearest CODES of each query.

    They come by distance and then id; an id is a row of CODES, from 0.

    \b
    Example:
      hashgrove search codes.npy queries.npy --model model.hashgrove -k 10 --json
    """
    options.refuse(radius is not None and options.was_given("k"), "Give -k or --radius, not both.")
    from hashgrove import FlatIndex
    from hashgrove.cli.inputs import read_database
    from hashgrove.cli.output import write_hits

    database, found = read_database(codes, queries, model, n_jobs=n_jobs)
    index = FlatIndex(database)
    depth = len(index) if radius is not None else min(k, len(index))
    largest = (len(found), depth, 8 * database.shape[1], len(index))

    def find(chunk: NDArray[np.uint8]) -> Any:
        if radius is None:
            return index.search(chunk, k, n_jobs=n_jobs)
        return index.search_radius(chunk, radius, n_jobs=n_jobs)

    write_hits(_hits(find, found), style=style, largest=largest)


def _hits(find: Callable[[NDArray[np.uint8]], Any], queries: NDArray[np.uint8]) -> Iterator[Hit]:
    for start in range(0, len(queries), QUERIES_PER_SEARCH):
        results = zip(*find(queries[start : start + QUERIES_PER_SEARCH]), strict=True)
        for query, (distances, ids) in enumerate(results, start=start):
            yield query, distances, ids


@main.command()
@click.argument("codes")
@click.argument("queries")
@click.option("--labels", nargs=2, required=True, metavar="CODES QUERIES", help="Classes or tags of each of the two.")
@options.query_model
@options.evaluation
@options.json_style
@options.csv_style
@options.threads
def evaluate(
    codes: str, queries: str, labels: tuple[str, str], model: str | None, style: str | None, **settings: Any
) -> None:
    """Measure how well QUERIES find CODES of their own kind.

    That is, of the same class, or with at least --min-shared tags in common.

    \b
    Example:
      hashgrove evaluate codes.npy queries.npy --model model.hashgrove --labels yd.npy yq.npy
    """
    from hashgrove import FlatIndex
    from hashgrove import evaluate as measure
    from hashgrove.cli.inputs import read_database, read_rows_labels
    from hashgrove.cli.output import write_report

    database, found = read_database(codes, queries, model, n_jobs=settings["n_jobs"])
    y_database = read_rows_labels(labels[0], rows=len(database), of=codes)
    y_query = read_rows_labels(labels[1], rows=len(found), of=queries)
    _check_min_shared(y_database)
    write_report(measure(FlatIndex(database), found, y_query, y_database, **settings), style=style)
