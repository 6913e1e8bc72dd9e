"""Targets, and the tables of a contest in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OURS = "hashgrove"


@dataclass
class Target:
    """A goal: ``reached`` must be at least (or at most) ``needed``; None if it was not measured."""

    what: str
    needed: float
    reached: float | None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if it was not measured."""
        if self.reached is None:
            return None
        return self.reached <= self.needed if self.at_most else self.reached >= self.needed

    @property
    def verdict(self) -> str:
        """Whether the target is met, in words, with the factor that is missing."""
        if self.reached is None:
            return "not measured"
        missing = self.reached / self.needed if self.at_most else self.needed / max(self.reached, 1e-12)
        return "yes" if self.met else f"**no**, by a factor of {missing:.2f}"


def contest_table(record: Mapping[str, Any]) -> list[str]:
    """Return entries, targets and facts of one contest in Markdown."""
    entries = record["entries"]
    lines = []
    if entries:
        lines += ["| contender | threads | time | x ours | prepare | rounds | agreement | note |", "|" + "---|" * 8]
    for e in entries:
        ours = [o["seconds"] for o in entries if o["name"] == OURS]
        same = [o["seconds"] for o in entries if o["name"] == OURS and o["threads"] == e["threads"]]
        ratio = "" if e["name"] == OURS or not ours else f"{e['seconds'] / (same or [min(ours)])[0]:.2f}"
        prepare = f"{duration(e['prepare_seconds'])}" if e["prepare_seconds"] > 1e-3 else ""
        lines.append(
            f"| {e['name']} | {e['threads']} | {duration(e['seconds'])} | {ratio} | {prepare} | {e['rounds']} "
            f"| {e['agreement']} | {e['note']} |"
        )
    if record["targets"]:
        lines += ["", "| target | reached | met |", "|---|---|---|"]
    lines += [f"| {target_cells(Target(**target))} |" for target in record["targets"]]
    if record["facts"]:
        lines += ["", *(f"- {key}: {value}" for key, value in record["facts"].items())]
    return lines


def target_cells(target: Target) -> str:
    """Return a target, what was reached, and whether it is met, as cells of a table."""
    reached = "" if target.reached is None else f"{target.reached:.4g}"
    return f"{target.what} | {reached} | {target.verdict}"


def duration(seconds: float) -> str:
    """Write seconds with a suitable unit.

    >>> duration(0.00123), duration(12.34)
    ('1.23 ms', '12.3 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"
    raise AssertionError("unreachable")
