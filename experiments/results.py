"""Stored runs: a file of JSON lines per experiment, one run per line."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from experiments.specs import Spec
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError

__all__ = ["Store", "run_key"]

KNOWN = {f.name for f in fields(Spec)}
FIRST = ("cell", "seed", "fingerprint", "status")  # what identifies a run comes first in its line


def run_key(cell: Mapping[str, Any], *, fingerprint: str, seed: int) -> str:
    """Return what identifies a run as text: its settings without those at their defaults, the seed and the data.

    A field that is missing has its default, so runs that were stored before `Spec` had a field are still found.

    >>> run_key({"dataset": "digits", "method": "lsh", "bits": 64, "pca": None}, fingerprint="ab", seed=0)
    '[{"dataset": "digits", "method": "lsh"}, 0, "ab"]'
    """
    if cell.keys() <= KNOWN:  # otherwise the run has settings of another version, and is found by no cell of this one
        cell = Spec(**cell).to_dict()
    return json.dumps([dict(cell), seed, fingerprint], sort_keys=True)


@dataclass(frozen=True)
class Store:
    """A folder of stored runs, which is made when the first run is written.

    Parameters
    ----------
    folder : Path
    """

    folder: Path

    def write(self, record: dict[str, Any], experiment: str) -> None:
        """Store a run in the file of an experiment, in place of an earlier record of the same run.

        Processes that write at the same time wait for each other, and a file is replaced as a whole: no line is lost
        or cut, even if a process is killed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{experiment}.jsonl"
        with _locked(self.folder):
            records = _read(path) if path.is_file() else {}
            records[_key_of(record)] = record
            with atomic_write(path) as file:
                file.writelines(_line(records[key]) for key in sorted(records))

    def read(self) -> dict[str, dict[str, Any]]:
        """Return all runs by `run_key`; if several files have the same run, the one that finished last."""
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self.folder.glob("*.jsonl")) if self.folder.is_dir() else ():
            for key, record in _read(path).items():
                if key not in found or record.get("finished", "") > found[key].get("finished", ""):
                    found[key] = record
        return found

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.read().values())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process changes the folder, and keep the others waiting."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # gives up the lock


def _key_of(record: Mapping[str, Any]) -> str:
    return run_key(record["cell"], fingerprint=record["fingerprint"], seed=record["seed"])


def _line(record: Mapping[str, Any]) -> bytes:
    ordered = {name: record[name] for name in FIRST} | dict(record)
    return (json.dumps(ordered) + "\n").encode()


def _read(path: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise FileError(f"{where}: must be JSON. Remove the line to run the cell again.") from error
        if not isinstance(record, dict) or not set(FIRST) <= record.keys():
            raise FileError(f"{where}: must be a stored run. Remove the line to run the cell again.")
        found[_key_of(record)] = record
    return found
