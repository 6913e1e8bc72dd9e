"""The shape of the package: data goes one way, and imports follow it (docs/how-it-works.md)."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hashgrove

ROOT = Path(hashgrove.__file__).parent
LEARNING = {
    "affinity",
    "neighbours",
    "losses",
    "inference",
    "functions",
    "fasthash",
    "baselines",
    "hasher",
    "anchors",
    "directions",
}
FRONT = {"cli", "progress", "__main__"}
SLOW_FITS = {"fasthash", "features.codebook"}  # fits of minutes: they show their progress


def imports():
    """(module, what it imports at any level) for each module, names relative to hashgrove."""
    found = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        found[module] = names
    return found


IMPORTS = imports()


def ours(module):
    """The parts of hashgrove that a module imports, by their first name."""
    return {name.split(".")[1] for name in IMPORTS[module] if name.startswith("hashgrove.")}


def under(*parts):
    return [module for module in IMPORTS if module.split(".")[0] in parts]


def test_the_solver_that_both_sides_use_is_a_leaf():
    assert ours("squared_hinge") == {"blas"}


def test_the_leaves_import_numpy_and_numba_only():
    for module in ("jit", "vectors", "sampling", "codes", "binning", "inference.mincut"):
        foreign = {name.split(".")[0] for name in IMPORTS[module]} - set(sys.stdlib_module_names)
        assert foreign <= {"numpy", "numba", "llvmlite", "hashgrove"}, module
        assert ours(module) <= {"jit", "sampling", "vectors"}, module


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (
            under("inference"),
            {"functions", "encoders", "fasthash", "baselines", "hasher", "index", "metrics"},
        ),
        (
            under("functions"),
            {"inference", "affinity", "losses", "fasthash", "baselines", "hasher", "index", "metrics"},
        ),
        (under("encoders"), LEARNING | {"index", "metrics", "modelfile", "features"}),
        (under("features"), LEARNING | {"index", "metrics"}),
        # affinity is for all: who is similar to whom must be the same for a method and those it is compared with
        (under("baselines"), {"fasthash", "inference", "functions", "losses"}),
        (under("fasthash"), {"baselines"}),
        (under("datasets"), LEARNING | {"encoders", "index", "metrics", "modelfile", "codes", "jit"}),
        (under("index", "metrics", "codes"), LEARNING | {"encoders"}),
        (
            under("affinity", "neighbours", "losses"),
            {"inference", "functions", "fasthash", "encoders", "index", "metrics"},
        ),
        ([m for m in IMPORTS if m.split(".")[0] not in FRONT and m not in SLOW_FITS], FRONT | {"web"}),
        (sorted(SLOW_FITS), FRONT - {"progress"}),
        ([m for m in IMPORTS if m.split(".")[0] not in ("bench", "cli")], {"bench"}),
    ],
)
def test_imports_follow_the_data(modules, forbidden):
    assert modules
    for module in modules:
        assert not ours(module) & forbidden, f"{module} imports {ours(module) & forbidden}"


def test_no_module_is_too_long_to_read():
    long = {p.name: n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 320}
    assert not long


def test_no_pickle_and_no_vague_names():
    for module, names in IMPORTS.items():
        assert not names & {"pickle", "marshal", "shelve", "dill", "joblib"}, module
        assert not {"utils", "common", "helpers", "core", "misc"} & set(module.split(".")), module


def test_public_names_exist_and_import_is_lazy():
    for name in hashgrove.__all__:
        assert getattr(hashgrove, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hashgrove.nonsense
    code = "import hashgrove, sys; print([m for m in ('numpy', 'numba', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_functions_and_methods_are_typed():
    for name in hashgrove.__all__:
        thing = getattr(hashgrove, name)
        members = vars(thing) if inspect.isclass(thing) else {name: thing}
        for member, function in members.items():
            if not inspect.isfunction(function) or (member.startswith("__") and member != "__init__"):
                continue  # what a dataclass makes by itself has no annotations
            signature = inspect.signature(function)
            annotations = [p.annotation for n, p in signature.parameters.items() if n not in ("self", "cls")]
            assert inspect.Signature.empty not in [*annotations, signature.return_annotation], f"{name}.{member}"


def test_kernels_work_where_no_cache_folder_is_writable(tmp_path):
    """numba refuses `cache=True` where it finds no folder; hashgrove compiles without one instead."""
    code = (
        "import numba.core.caching as c\n"
        "for locator in c.CacheImpl._locator_classes: locator.from_function = classmethod(lambda *a: None)\n"
        "import numpy as np; from hashgrove import hamming\n"
        "print(int(hamming(np.array([[3]], np.uint8), np.array([[0]], np.uint8))[0, 0]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.stdout == "2\n", run.stderr
