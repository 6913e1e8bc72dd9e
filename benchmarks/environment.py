"""What a measurement depends on: the machine, the packages, and the source code that was measured."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hashgrove
from hashgrove.runtime.threads import available_threads

PACKAGES = {  # of the peers: name of the module -> name of the package
    "lightgbm": "lightgbm",
    "xgboost": "xgboost-cpu",
    "onnxruntime": "onnxruntime",
    "treelite": "treelite",
    "faiss": "faiss-cpu",
    "usearch": "usearch",
    "ortools": "ortools",
    "maxflow": "PyMaxflow",
}


def installed(module: str) -> bool:
    """Say whether a module is installed."""
    return find_spec(module) is not None


def processor() -> str:
    """Return the name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def is_held() -> bool:
    """Say whether numba is held to the instructions of an older processor."""
    return "NUMBA_CPU_NAME" in os.environ


def instruction_set() -> str:
    """Return the widest of the vector instructions that kernels use here: the processor's, or what numba is held to."""
    if name := os.environ.get("NUMBA_CPU_NAME"):
        return f"kernels held to {name}"
    cpuinfo = Path("/proc/cpuinfo")
    words = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    levels = {"avx512_vpopcntdq": "AVX-512 with VPOPCNTDQ", "avx512bw": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
    return next((name for flag, name in levels.items() if flag in words), platform.machine())


def load() -> float:
    """Return how many cores other programs use now, over half a second in which this process does nothing.

    The load average of the system would also count what this process itself did in the minute before.
    """

    def ticks() -> tuple[int, int]:
        found = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(found) - found[3] - found[4], sum(found)  # all but idle and waiting for disks

    if not Path("/proc/stat").exists():
        return float("nan")
    busy, total = ticks()
    time.sleep(0.5)
    busy_after, total_after = ticks()
    return (os.cpu_count() or 1) * (busy_after - busy) / max(total_after - total, 1)


def machine() -> str:
    """Return processor, instructions and number of cores, and the versions of Python and of all packages."""
    versions = [f"{name} {metadata.version(name)}" for name in ("numpy", "numba", "scipy", "scikit-learn")]
    versions += [f"{package} {metadata.version(package)}" for module, package in PACKAGES.items() if installed(module)]
    cores = f"{processor()} ({instruction_set()}), {available_threads()} cores"
    return f"{cores}, Python {platform.python_version()}; {', '.join(versions)}"


def modules() -> list[str]:
    """List the loaded modules of hashgrove, except those that only gather names or show progress."""
    root = Path(hashgrove.__file__).parent
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("hashgrove.")]
    names = [Path(file).relative_to(root).as_posix() for file in files if file]
    return sorted(name for name in names if not name.endswith(("__init__.py", "_version.py", "progress.py")))


def source(names: Iterable[str]) -> str:
    """Return a digest of these modules as they are now, without comments and docstrings.

    A contest is measured again when it has changed.
    """
    root = Path(hashgrove.__file__).parent
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + (code((root / name).read_text()) if (root / name).exists() else "").encode())
    return digest.hexdigest()[:12]


def code(text: str) -> str:
    """Return what a module does, without its comments and docstrings.

    >>> code("def f():\\n    'Add.'\\n    return 1+1  # two") == code("def f(): return 1 + 1")
    True
    """
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.unparse(tree)


def is_fresh(record: Mapping[str, Any]) -> bool:
    """Say whether a record was measured with the present code."""
    return "modules" in record and source(record["modules"]) == record["source"]
