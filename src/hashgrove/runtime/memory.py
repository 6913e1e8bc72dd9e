"""The memory that this process may use."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["fits_memory", "memory_limit"]

CGROUPS = "/sys/fs/cgroup"
LARGEST_SHARE = 0.8  # of the memory, for one thing that is used again and again


def fits_memory(n_bytes: int) -> bool:
    """Whether so much memory leaves room for everything else: whether it is at most four fifths of the memory.

    >>> fits_memory(2**20), fits_memory(2**62)
    (True, False)
    """
    return n_bytes <= LARGEST_SHARE * memory_limit()


def memory_limit() -> int:
    """The memory of this machine in bytes, or what the cgroups of this process (a container, a job) leave of it.

    Pages of files that are cached count as memory of a cgroup. The result is ``sys.maxsize`` where nothing is known.

    >>> memory_limit() > 2**20
    True
    """
    limits = [sys.maxsize]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits + _limits_of_cgroups(Path(CGROUPS), Path("/proc/self/cgroup")))


def _limits_of_cgroups(root: Path, membership: Path) -> list[int]:
    """The limits of the groups that this process is in, and of those around them, of version 1 and 2."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / place.lstrip("/")
        for folder in (group, *group.parents):  # inside a container only the upper ones may be there
            if folder.is_relative_to(top):
                text = _read(folder / name)
                found += [int(text)] if text.isdecimal() else []  # "max" means no limit
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
