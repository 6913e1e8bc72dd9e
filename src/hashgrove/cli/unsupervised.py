"""``hashgrove train --method``: codes that are learned without labels."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import click

from hashgrove.cli import options
from hashgrove.cli.signature import Settings
from hashgrove.runtime.progress import show_step

__all__ = ["METHODS", "train_without_labels"]

METHODS = ("itq", "lsh", "sign")  # names in `hashgrove.baselines.BASELINES`
TAKEN = {"n_bits": "--bits", "random_state": "--seed"}
N_BITS = 64
REFUSED = (
    *("labels", "pairs", "triplets", "unlabelled", "sample_weight", "groups"),
    *("validate", "checkpoint", "scheduler", "cache"),
)


def train_without_labels(
    method: str, features: str, output: str, given: Mapping[str, Any], settings: Settings, *, quiet: bool
) -> None:
    """Learn a model of a method from features alone; ``given`` are the other options of the call by parameter."""
    refused = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None and name in REFUSED]
    refused = ["LABELS" if name == "--labels" else name for name in refused]
    parameters = settings.of("")
    refused += [option.opts[0] for option, _ in settings.given if option.opts[0] not in TAKEN.values()]
    options.refuse(bool(refused), f"{' and '.join(refused)}: not for --method {method}, which learns without labels.")
    with show_step("loading the library"):
        from hashgrove.baselines import BASELINES
    from hashgrove.cli.inputs import check_output, read_extractor
    from hashgrove.cli.output import file_size, format_pairs
    from hashgrove.metrics import describe_codes
    from hashgrove.storage.columns import Columns, read_rows
    from hashgrove.storage.matrices import check_finite

    check_output(output, inputs=[features, given["extractor"]])
    columns = Columns.of(given["label_column"], given["id_column"], given["feature_columns"])
    with show_step(f"reading {features}", verbose=not quiet):
        X = read_rows(features, columns).X
        check_finite(features, X)
    made_by = read_extractor(given["extractor"], n_features=X.shape[1], of=features)
    hasher: Any = BASELINES[method](**parameters)
    if "n_bits" not in parameters:
        hasher.set_params(n_bits=min(N_BITS, hasher.max_bits(n_samples=len(X), n_features=X.shape[1])))
    started = time.perf_counter()
    with show_step("learning codes", verbose=not quiet):
        hasher.fit(X)
    seconds = time.perf_counter() - started
    hasher.save(output, features=made_by)
    if quiet:
        return
    with show_step("encoding the rows"):
        distinct, warning = describe_codes(hasher.transform(X))
    rows = [
        ("model", f"{output} ({file_size(os.path.getsize(output))})"),
        ("method", f"{type(hasher).__name__}, without labels"),
        ("bits", hasher.encoder_.n_bits),
        ("features", hasher.encoder_.n_features),
        ("seconds", f"{seconds:.1f}"),
        ("codes of these rows", distinct),
    ]
    click.echo(format_pairs(rows))
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)
