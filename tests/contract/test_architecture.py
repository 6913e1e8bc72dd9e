"""The shape of the package: data goes one way, and imports follow it (docs/how-it-works.md)."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hashgrove
from paths import DOCS, REPOSITORY

ROOT = Path(hashgrove.__file__).parent
TOP_LEVEL = {"__init__", "__main__", "_version", "fasthash", "hasher", "losses", "codes"}
TOP_LEVEL |= {
    "resume",
    "two_step",
    "step_one",
    "continuing",
    "choosing",
    "trials",
    "new_classes",
    "validation",
    "curves",
    "cards",
    "drift",
    "reencoding",
    "streaming",
    "stores",
}

# What each part may import. Data goes one way, from X and y to codes, and so do imports; `docs/how-it-works.md` has
# the picture. Models and checkpoints know encoders; the rest of storage knows only files.
MAY_IMPORT = {
    "runtime": set(),
    "codes": {"runtime"},
    "losses": {"runtime"},
    "numerics": {"runtime"},
    "storage": {"runtime", "_version"},
    "storage.models": {"storage", "encoders", "codes"},
    "storage.checkpoints": {"storage", "encoders"},
    "supervision": {"runtime", "numerics"},
    "inference": {"runtime", "supervision", "losses"},
    "trees": {"runtime"},
    "encoders": {"runtime", "numerics", "codes", "trees", "storage"},
    "functions": {"runtime", "storage", "stores", "numerics", "codes", "trees", "encoders", "supervision"},
    "hasher": {"runtime", "storage", "codes", "supervision", "encoders", "storage.models"},
    "step_one": {"runtime", "losses", "supervision", "inference"},
    "two_step": {"step_one", "functions", "encoders"},
    "continuing": {"encoders", "two_step", "step_one", "storage.checkpoints"},
    "fasthash": {
        "runtime",
        "codes",
        "losses",
        "supervision",
        "inference",
        "functions",
        "encoders",
        "hasher",
        "two_step",
        "step_one",
        "continuing",
        "storage",
        "storage.models",
        "storage.checkpoints",
    },
    "choosing": {"runtime", "supervision", "functions", "metrics", "trials"},
    "trials": {"runtime", "supervision", "functions", "encoders", "metrics"},
    "curves": {"runtime", "supervision", "hasher", "metrics"},
    "new_classes": {"runtime", "supervision", "encoders", "metrics"},
    "validation": {"runtime", "numerics", "storage", "supervision", "encoders", "hasher", "baselines", "metrics"},
    "resume": {"runtime", "losses", "inference", "functions", "encoders", "fasthash", "storage", "storage.models"},
    "baselines": {"runtime", "numerics", "supervision", "encoders", "hasher"},
    "stores": {"runtime", "trees", "storage"},
    "streaming": {"runtime", "encoders", "storage", "storage.models"},
    "distributed": {"runtime", "encoders", "storage", "storage.models", "fasthash", "streaming", "_version"},
    "index": {"runtime", "codes", "storage"},
    "metrics": {"runtime", "codes", "index"},
    "features": {"runtime", "numerics", "codes", "storage", "encoders"},
    "drift": {"runtime", "codes", "encoders", "hasher", "storage", "storage.models"},
    "reencoding": {"runtime", "codes", "encoders", "features", "index", "storage", "storage.models"},
    "cards": {"storage", "storage.models"},
    "duplicates": {"runtime", "codes", "features", "baselines", "index"},
    "web": {"runtime", "codes", "encoders", "storage", "storage.models", "features", "index", "metrics", "_version"},
}
MAY_IMPORT |= {
    "cli": {*MAY_IMPORT, "__init__", "_version"} - {"storage.checkpoints"},
    "__main__": {"cli"},
    "__init__": set(),
    "_version": set(),
}
# Imports inside a function, for what only a few calls need, and imports for type checkers.
MAY_IMPORT_LATE = {
    "hasher": {"metrics", "features"},
    "fasthash": {"choosing", "new_classes", "validation"},
    "storage.models": {"features"},
}


# Kernels and their callers, which are read together; and two classes, half of which are documentation.
MAY_BE_LONG = {"trees/prediction.py", "trees/splitting.py", "codes.py", "fasthash.py", "index/base.py"}


def part_of(module):
    """The part of the package that a module belongs to: a room, or a module at the top level."""
    name = module.removeprefix("hashgrove.")
    if name in hashgrove.__all__:
        return "__init__"
    room, _, module = name.partition(".")
    file = f"{room}.{module.partition('.')[0]}"
    return file if file in MAY_IMPORT else room


def imported(nodes):
    """Full names that import statements among ``nodes`` name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_late(node):
    """Whether what is imported inside ``node`` is not imported when the module is loaded."""
    for_type_checkers = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return for_type_checkers or isinstance(node, ast.FunctionDef)


def imports():
    """(names imported when a module is loaded, names imported at any time) for each module, relative to hashgrove."""
    found = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        late = {inner for node in ast.walk(tree) if is_late(node) for inner in ast.walk(node)}
        everything = set(ast.walk(tree))
        found[module if module == "__init__" else module.removesuffix(".__init__")] = (
            imported(everything - late),
            imported(everything),
        )
    return found


IMPORTS = imports()


def parts(names):
    return {part_of(name) for name in names if name.startswith("hashgrove.")}


def test_nothing_imports_the_experiments():
    for module, names in IMPORTS.items():
        assert not {name for name in set().union(*names) if name.split(".")[0] == "experiments"}, module


def test_experiments_import_neither_the_service_nor_the_engines():
    for path in sorted((REPOSITORY / "experiments").rglob("*.py")):
        names = imported(ast.walk(ast.parse(path.read_text())))
        assert not {name for name in names if name.startswith(("hashgrove.web", "hashgrove.index.engines"))}, path


def test_the_page_says_how_long_the_package_is():
    page = (DOCS / "how-it-works.md").read_text()
    stated = int(re.search(r"about ([\d,]+) lines of Python", page)[1].replace(",", ""))
    lines = sum(len(path.read_text().splitlines()) for path in ROOT.rglob("*.py"))
    assert stated == pytest.approx(lines, rel=0.05)


def test_every_part_is_known():
    assert {part_of(module) for module in IMPORTS} == MAY_IMPORT.keys()
    assert {path.stem for path in ROOT.glob("*.py")} == TOP_LEVEL


@pytest.mark.parametrize("module", sorted(IMPORTS))
def test_imports_follow_the_data(module):
    part = part_of(module)
    at_load, at_any_time = (parts(names) - {part} for names in IMPORTS[module])
    assert at_load <= MAY_IMPORT[part]
    assert at_any_time <= MAY_IMPORT[part] | MAY_IMPORT_LATE.get(part, set())


@pytest.mark.parametrize(
    "module", ["runtime.compiling", "runtime.simd", "runtime.streams", "codes", "inference.mincut"]
)
def test_kernels_import_numpy_and_numba_only(module):
    foreign = {name.split(".")[0] for name in IMPORTS[module][1]} - set(sys.stdlib_module_names)
    assert foreign <= {"numpy", "numba", "llvmlite", "hashgrove"}


def test_no_module_is_too_long_to_read():
    long = {
        path
        for path in ROOT.rglob("*.py")
        if len(path.read_text().splitlines()) > 320 and str(path.relative_to(ROOT)) not in MAY_BE_LONG
    }
    assert not long


def test_trees_have_at_most_ten_files():
    assert len(list((ROOT / "trees").glob("*"))) - (ROOT / "trees" / "__pycache__").exists() <= 10


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def test_no_room_uses_private_names_of_another():
    """A method of the own class or its base (self, cls, super) is no use of another room."""
    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    defined = {room_of(path): set() for path in trees}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined[room_of(path)].add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined[room_of(path)].add(node.attr)
    for path, tree in trees.items():
        room = room_of(path)
        foreign = {name for other, names in defined.items() if other != room for name in names} - defined[room]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "super()"):
                assert not (is_private(node.attr) and node.attr in foreign), f"{path}: {ast.unparse(node)}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hashgrove."):
                private = [alias.name for alias in node.names if is_private(alias.name)]
                assert not private or node.module.split(".")[1] == room, f"{path}: {private}"


def test_no_pickle_and_no_vague_names():
    for module, (_, names) in IMPORTS.items():
        assert not {name.split(".")[0] for name in names} & {"pickle", "marshal", "shelve", "dill", "joblib"}, module
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
