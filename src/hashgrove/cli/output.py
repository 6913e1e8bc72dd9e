"""Results of the commands on stdout: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hashgrove.fasthash import FastHash
    from hashgrove.metrics import Report
    from hashgrove.storage.models import Learned

    Hit = tuple[int, NDArray[Any], NDArray[Any]]  # number of the query, distances, ids

__all__ = [
    "file_size",
    "format_pairs",
    "format_table",
    "format_training",
    "format_validation",
    "printable",
    "write_header",
    "write_hits",
    "write_report",
]

HIT_COLUMNS = ("query", "rank", "distance", "id")


def printable(value: object) -> str:
    """Text of an untrusted value, with control characters escaped, which a terminal would obey.

    >>> printable("caf\u00e9\\x1b[2J")
    'café\\\\x1b[2J'
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def file_size(n_bytes: int) -> str:
    """A number of bytes in the unit that suits its size.

    >>> file_size(999), file_size(123_456), file_size(7_100_000)
    ('999 bytes', '123.5 KB', '7.1 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    size = n_bytes / 1000
    for unit in ("KB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def format_pairs(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values in two columns.

    >>> print(format_pairs([("bits", 64), ("file", "a.hashgrove")]))
    bits  64
    file  a.hashgrove
    """
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, n_left: int = 1) -> str:
    """A table of texts; the first ``n_left`` columns are aligned to the left and the others to the right.

    >>> print(format_table(("method", "MAP"), [("ITQ", "0.69"), ("FastHash", "0.98")]))
    method     MAP
    ITQ       0.69
    FastHash  0.98
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    aligns = [str.ljust if number < n_left else str.rjust for number in range(len(columns))]
    return "\n".join(
        "  ".join(align(cell, width) for align, cell, width in zip(aligns, row, widths, strict=True))
        for row in (columns, *rows)
    )


def format_training(hasher: FastHash, path: str, seconds: float, distinct: str) -> str:
    """Summary of a training whose model was saved at ``path``; ``distinct`` says how many codes there are."""
    errors = [record.training_error for record in hasher.history_]
    rows = [
        ("model", f"{path} ({file_size(os.path.getsize(path))})"),
        ("bits", hasher.encoder_.n_bits),
        ("features", hasher.encoder_.n_features),
        ("hash function", repr(hasher.hash_function_)),
        ("generic bits", hasher.generic_bits_),
        *([("clusters as classes", hasher.n_clusters_)] if hasher.n_clusters_ else []),
        ("seconds", f"{seconds:.1f}"),
        ("final loss", f"{hasher.history_[-1].objective:.4g} ({hasher.history_[-1].objective_of})"),
        ("mean training error", f"{sum(errors) / len(errors):.4f}"),
        ("codes of these rows", distinct),
    ]
    text = format_pairs(rows)
    if hasher.choice_ is not None:
        text += f"\n\n{hasher.choice_}"
    if hasattr(hasher, "validation_"):
        text += f"\n\n{hasher.validation_}"
    return text


def write_hits(hits: Iterable[Hit], *, style: str | None, widths: Sequence[int]) -> None:
    """Print the results of a search query by query, as they arrive.

    Parameters
    ----------
    hits : iterable of (query, distances, ids)
    style : {"json", "csv"} or None
        None prints a table.
    widths : sequence of 4 int
        Number of characters of the longest query, rank, distance and id.
    """
    write = sys.stdout.write
    if style == "json":
        separator = "[\n"
        for query, distances, ids in hits:
            result = {"query": query, "ids": ids.tolist(), "distances": distances.tolist()}
            write(separator + json.dumps(result))
            separator = ",\n"
        write("[]\n" if separator == "[\n" else "\n]\n")
        return
    at_least = [max(len(name), width) for name, width in zip(HIT_COLUMNS, widths, strict=True)]
    line = "  ".join(f"{{:>{width}}}" for width in at_least) + "\n"
    quoted = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    write(",".join(HIT_COLUMNS) + "\n" if style == "csv" else line.format(*HIT_COLUMNS))
    for query, distances, ids in hits:
        ranked = enumerate(zip(distances.tolist(), ids.tolist(), strict=True), start=1)
        rows = ((query, rank, distance, id_) for rank, (distance, id_) in ranked)
        if style == "csv":
            quoted.writerows(rows)
        else:
            write("".join(line.format(*numbers, printable(id_)) for *numbers, id_ in rows))


def write_report(report: Report, *, style: str | None) -> None:
    """Print an evaluation. CSV has one line of names and one line of values, without the curves."""
    values = report.to_dict()
    if style == "json":
        print(json.dumps(values, indent=2))
    elif style == "csv":
        per_class = ("classes", "class_map")  # lists, or None for tags
        single = {k: value for k, value in values.items() if not isinstance(value, list) and k not in per_class}
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(single)
        writer.writerow(single.values())
    else:
        print(report)


def write_header(path: str, n_bytes: int, fields: Mapping[str, Any], *, style: str | None) -> None:
    """Print the description of a model file that `hashgrove.storage.modelfile.read_header` gives."""
    if style == "json":
        print(json.dumps({"file": path, "size": n_bytes, **fields}, indent=2))
        return
    rows: list[tuple[str, object]] = [("file", f"{path} ({file_size(n_bytes)})")]
    rows += [(name, fields[name]) for name in ("kind", "format", "version")]
    rows += _header_rows(_without_marks(fields["header"]))
    for name, (dtype, shape) in fields["arrays"].items():
        rows.append((f"array {name}", f"{dtype} {' x '.join(map(str, shape)) or 'scalar'}"))
    rows.append(("sha256", fields["sha256"]))
    print(format_pairs((printable(name), printable(value)) for name, value in rows))
    if fields["kind"] == "encoder":
        from hashgrove.storage.models import read_learned

        learned = read_learned(path)
        if learned.validation:
            print(f"\n{format_validation(learned)}")


def format_validation(learned: Learned) -> str:
    """The validation of a fit as a table."""
    rows = [(printable(name), f"{n:,}", f"{value:.4f}", f"{at_10:.4f}") for name, n, value, at_10 in learned.validation]
    return format_table((f"on {learned.n_held_out:,} held-out rows", "bytes", "MAP", "P@10"), rows)


def _without_marks(header: Mapping[str, Any]) -> dict[str, Any]:
    """A header for people: marks and codes of training rows are only for programs."""
    learned = header.get("learned")
    if not isinstance(learned, dict):
        return dict(header)
    shown = {name: value for name, value in learned.items() if name not in ("trained_on", "validation", "profile")}
    return {**header, "learned": shown}


def _header_rows(header: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Single values of the header first, and then its groups, such as the parameters."""
    groups = {name: value for name, value in header.items() if isinstance(value, dict)}
    rows: list[tuple[str, object]] = [(name, value) for name, value in header.items() if name not in groups]
    for title, group in groups.items():
        rows += [(title, ""), *((f"  {name}", value) for name, value in group.items())]
    return rows
