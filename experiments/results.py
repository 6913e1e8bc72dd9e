"""One run is one JSON file. Its name holds a hash of everything that decides the result, so it is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.specs import Spec
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError

__all__ = ["FORMAT", "Store", "run_key"]

FORMAT = 1  # raise it when what a result holds or means changes: all earlier results are then stale


def run_key(spec: Spec, *, fingerprint: str, seed: int) -> str:
    """Return the hash of the spec, the data, the seed and the format of results: 64 hexadecimal digits.

    >>> run_key(Spec("digits", "lsh"), fingerprint="ab", seed=0)[:8]
    '2db8a418'
    """
    what = {"format": FORMAT, "cell": spec.to_dict(), "fingerprint": fingerprint, "seed": seed}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """A folder of results, which is made when the first result is written.

    Parameters
    ----------
    folder : Path
    """

    folder: Path

    def path(self, key: str, spec: Spec) -> Path:
        """Return the file of a run: data set, method, bits and a part of the hash."""
        return self.folder / f"{spec.dataset}.{spec.method}.{spec.bits}.{key[:16]}.json"

    def find(self, key: str, spec: Spec) -> dict[str, Any] | None:
        """Return the record of a finished or failed run; None if there is none."""
        path = self.path(key, spec)
        return _read(path) if path.is_file() else None

    def write(self, record: dict[str, Any], spec: Spec) -> Path:
        """Write a record; after a crash there is the old file or the new one, never a part of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(record["key"], spec)
        with atomic_write(path) as file:
            file.write((json.dumps(record, indent=1) + "\n").encode())
        return path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Go through all records of the present format, sorted by file name."""
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
        raise FileError(f"{path}: must be a result of an experiment. Remove it to run the cell again.")
    return record
