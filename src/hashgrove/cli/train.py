"""The command ``hashgrove train``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.cli.signature import Settings, SignatureCommand, SignatureOption, signature_options
from hashgrove.cli.unsupervised import METHODS, train_without_labels

if TYPE_CHECKING:
    from hashgrove.fasthash import FastHash

__all__ = ["train"]

AUTO, FASTHASH = "auto", "fasthash"
SUPERVISION = ("labels", "label_column", "pairs", "triplets")  # of these the caller gives exactly one

GROUPS = {
    "Data": (
        *(
            "--output",
            "--label-column",
            "--pairs",
            "--triplets",
            "--unlabelled",
            "--sample-weight",
            "--groups",
            "--features",
        ),
        *("--id-column", "--feature-columns", "--cache"),
    ),
    "Codes": (
        *(
            "--bits",
            "--hash-function",
            "--method",
            "--metric",
            "--ranking",
            "--generic-bits",
            "--new-classes",
            "--min-shared",
        ),
        "--validate",
    ),
    "Running": ("--seed", "--checkpoint", "--scheduler", "--n-jobs", "--quiet", "--help"),
    "Method": (*("--loss", "--inference", "--similar", "--dissimilar", "--weighted", "--stagewise", "--loss-length"),),
}  # titles in the help, and flags


def _derive() -> list[SignatureOption]:
    """Options of FastHash and of every hash function; where both have a flag, FastHash keeps it."""
    from hashgrove import FastHash
    from hashgrove.functions import HASH_FUNCTIONS
    from hashgrove.inference import SOLVERS
    from hashgrove.losses import LOSSES

    registries: dict[str, Iterable[str]] = {
        "loss": LOSSES,
        "hash_function": [AUTO, *HASH_FUNCTIONS],
        "inference": SOLVERS,
    }
    shared = signature_options({"": FastHash}, choices=registries)
    flags = {flag for option in shared for flag in option.opts}
    return [*shared, *(option for option in signature_options(HASH_FUNCTIONS) if not flags & set(option.opts))]


@click.command(cls=SignatureCommand, derive=_derive, groups=GROUPS)
@click.argument("features")
@click.argument("labels", required=False)
@click.option("-o", "--output", required=True, metavar="MODEL", help="Model file to write.")
@options.columns()
@click.option("--pairs", metavar="FILE", help="Rows i, j, relation: above 0 similar, below 0 dissimilar.")
@click.option("--triplets", metavar="FILE", help="Rows anchor, positive, negative: row numbers of FEATURES.")
@click.option("--unlabelled", metavar="VALUE", help="Label that marks rows without a label.")
@click.option("--groups", metavar="FILE", help="Groups of the rows of FEATURES, which --validate does not divide.")
@click.option("--sample-weight", metavar="FILE", help="Weights of the rows of FEATURES.")
@click.option(
    "--features", "extractor", metavar="EXTRACTOR", help="Extractor that made FEATURES; the model then takes images."
)
@click.option(
    "--cache",
    metavar="FOLDER",
    help="Read FEATURES only as needed, and keep bins of trees in this folder, if there are more rows than memory.",
)
@click.option(
    "--method",
    type=click.Choice((FASTHASH, *METHODS)),
    default=FASTHASH,
    show_default=True,
    help="Method; all but fasthash learn without labels, from FEATURES alone.",
)
@click.option(
    "--validate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Hold out this share of the rows, and say how good their codes are.",
)
@click.option(
    "--checkpoint", metavar="FILE", help="File that is written after each bit; a run that was stopped goes on from it."
)
@options.scheduler
@options.n_jobs
@click.option("--quiet", is_flag=True, help="Print neither progress nor a summary.")
def train(
    features: str,
    labels: str | None,
    output: str,
    extractor: str | None,
    groups: str | None,
    method: str,
    validate: float | None,
    checkpoint: str | None,
    scheduler: str | None,
    n_jobs: int | None,
    quiet: bool,
    settings: Settings,
    **files: str | None,
) -> None:
    """Learn a model from FEATURES and LABELS.

    FEATURES is a matrix with one row per item, or a folder of .npy shards. LABELS has one class per row, or is a tag
    matrix whose entries are not zero where the row has the tag.

    Instead of LABELS, give --label-column, --pairs or --triplets. A --method such as itq needs no labels. Options of
    one hash function, such as --depth, choose it; without them several are tried on a sample, and the best one is used.

    \b
    Example:
      hashgrove train X.npy y.npy -o model.hashgrove --bits 64 --validate 0.2 --seed 0
    """
    files["labels"] = labels
    if method != FASTHASH:
        given = {**files, "extractor": extractor, "groups": groups, "validate": validate}
        given |= {"checkpoint": checkpoint, "scheduler": scheduler}
        train_without_labels(method, features, output, given, settings, quiet=quiet)
        return
    _check_call(files, validate)
    verbose = 0 if quiet else 1
    hasher = _hasher(settings, n_jobs=n_jobs, verbose=verbose)
    from hashgrove.cli.inputs import check_min_shared, check_output, read_extractor, read_rows_labels, read_supervision
    from hashgrove.cli.output import format_training
    from hashgrove.runtime.progress import show_step

    inputs = [features, extractor, groups, *(files[name] for name in ("labels", "pairs", "triplets", "sample_weight"))]
    check_output(output, inputs=inputs)
    if checkpoint is not None:
        check_output(checkpoint, inputs=inputs, outputs=[output])
    client = options.cluster(scheduler)
    with show_step(f"reading {features}", verbose=verbose):
        X, supervision = read_supervision(features, **files)
        if groups is not None:
            supervision["groups"] = read_rows_labels(groups, rows=len(X), of=features)
    made_by = read_extractor(extractor, n_features=X.shape[1], of=features)
    check_min_shared(settings.of(""), supervision.get("y"))
    started = time.perf_counter()
    try:
        _fit(hasher, X, client=client, **supervision, validation=validate, checkpoint=checkpoint)
    except KeyboardInterrupt:
        _say_how_to_go_on(hasher, checkpoint)
        raise
    seconds = time.perf_counter() - started
    hasher.save(output, features=made_by)
    if checkpoint is not None:
        for file in (checkpoint, f"{checkpoint}.held-out"):
            Path(os.path.realpath(file)).unlink(missing_ok=True)  # the model holds all of it
    if not quiet:
        from hashgrove.metrics import describe_codes

        with show_step("encoding the rows"):
            distinct, warning = describe_codes(hasher.transform(X))
        click.echo(format_training(hasher, output, seconds, distinct))
        if warning is not None:
            click.echo(f"Warning: {warning}", err=True)


def _fit(hasher: FastHash, X: Any, *, client: Any, **more: Any) -> None:
    """Fit here, or on the workers of a cluster."""
    if client is None:
        hasher.fit(X, **more)
        return
    from hashgrove.distributed import fit

    fit(hasher, X, client=client, **more)


def _say_how_to_go_on(hasher: FastHash, checkpoint: str | None) -> None:
    n_learned = len(getattr(hasher, "history_", ()))
    if checkpoint is None:
        click.echo("Nothing was written. With --checkpoint FILE a run that was stopped can go on.", err=True)
    elif n_learned:
        message = f"{n_learned} of {hasher.n_bits} bits are in {checkpoint}. Run the same command again to go on."
        click.echo(message, err=True)


def _check_call(files: dict[str, str | None], validate: float | None) -> None:
    n_given = sum(files[name] is not None for name in SUPERVISION)
    options.refuse(
        n_given != 1,
        "Give one of LABELS, --label-column, --pairs and --triplets, or --method itq, which learns without labels.",
    )
    labelled = files["labels"] is not None or files["label_column"] is not None
    options.refuse(
        files["unlabelled"] is not None and not labelled, "--unlabelled is for LABELS and --label-column only."
    )
    options.refuse(validate is not None and not labelled, "--validate is for LABELS and --label-column only.")


def _meant(settings: Settings, names: Iterable[str]) -> str:
    """The first hash function that has all the options given; "auto" if there are no options of hash functions."""
    if not settings.flags_not_of(""):
        return AUTO
    return next((name for name in names if not settings.flags_not_of("", name)), AUTO)


def _hasher(settings: Settings, **more: Any) -> FastHash:
    """The hasher that the options describe; options of a hash function that was not chosen are refused."""
    from hashgrove import FastHash
    from hashgrove.functions import HASH_FUNCTIONS

    chosen = settings.of("")
    name = chosen.get("hash_function", _meant(settings, HASH_FUNCTIONS))
    foreign = settings.flags_not_of("", name)
    options.refuse(bool(foreign), f"{' and '.join(foreign)}: no such option for --hash-function {name}.")
    given = settings.of(name)
    learner: Any = HASH_FUNCTIONS[name](**given) if given else name
    return FastHash(**chosen | {"hash_function": learner}, **more)
