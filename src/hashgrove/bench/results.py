"""One run is one JSON file, found again by a hash of all that decides its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashgrove.bench.tables import Spec
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError

__all__ = ["FORMAT", "Store", "run_key"]

FORMAT = 1  # a change of what a result holds or means makes all earlier results stale


def run_key(spec: Spec, *, fingerprint: str, seed: int) -> str:
    """Hash of the cell, the data, the seed and the format of results, 64 hexadecimal digits.

    >>> run_key(Spec("digits", "lsh"), fingerprint="ab", seed=0)[:8]
    '2db8a418'
    """
    what = {"format": FORMAT, "cell": spec.to_dict(), "fingerprint": fingerprint, "seed": seed}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """A folder of results.

    Parameters
    ----------
    folder : Path
        It is made when the first result is written.
    """

    folder: Path

    def path(self, key: str, spec: Spec) -> Path:
        """Where the result of a run is: names for people, and the hash."""
        return self.folder / f"{spec.dataset}.{spec.method}.{spec.bits}.{key[:16]}.json"

    def find(self, key: str, spec: Spec) -> dict[str, Any] | None:
        """The record of a run, done or failed; None if there is none."""
        path = self.path(key, spec)
        return _read(path) if path.is_file() else None

    def write(self, record: dict[str, Any], spec: Spec) -> Path:
        """Keep a record, which has its ``key``; a crash leaves the old file or the new one, never a part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(record["key"], spec)
        with atomic_write(path) as file:
            file.write((json.dumps(record, indent=1) + "\n").encode())
        return path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All records of the present format, in the order of their names."""
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else ():
            record = _read(path)
            if record["format"] == FORMAT:
                yield record


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: must be a result in JSON. Remove it to run the cell again.") from error
    if not isinstance(record, dict) or not {"format", "key", "status", "cell", "seed"} <= record.keys():
        raise FileError(f"{path}: must be a result of hashgrove bench. Remove it to run the cell again.")
    return record
