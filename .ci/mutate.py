"""Change the code at random, one small fault at a time, and see whether the tests of that module notice.

    python .ci/mutate.py                                # ten faults in each module of TESTS
    python .ci/mutate.py --per-module 30 --seed 7 --only losses --jobs 2

A mutant has one operator, comparison, constant or condition that differs from the source. It is tested with the tests
of its module alone, in a copy of the package made of hard links: kernels that did not change come from the cache of
compiled code, and what a mutant compiles stays in its copy. A mutant is killed if a test fails, or takes ten times as
long as before. Mutants that do the same as the source, or change speed alone, are listed in
`.ci/equivalent_mutants.txt` and not counted. The exit code is 1 if fewer than 97 % of the others are killed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "hashgrove"
ACCEPTED = Path(__file__).with_name("equivalent_mutants.txt")
ENOUGH = 0.97
SPARE = 120  # seconds that a mutant may take besides ten times those of the source: it may have to compile kernels
MEMORY = 2**33  # bytes of address space: a mutant may want all there is
UNIT, SERVICE = "tests/unit/", "tests/service/"
TESTS = {
    "losses": (UNIT + "test_losses.py",),
    "codes": (UNIT + "test_codes.py",),
    "supervision/affinity": (UNIT + "test_affinity.py", UNIT + "test_supervision.py"),
    "supervision/neighbours": (UNIT + "test_supervision.py", UNIT + "test_affinity.py"),
    "supervision/reading": (UNIT + "test_supervision.py",),
    "two_step": (UNIT + "test_fasthash.py", UNIT + "test_checkpoint.py"),
    "inference/graph_cut": (UNIT + "test_inference.py",),
    "inference/mincut": (UNIT + "test_inference.py",),
    "inference/quadratic": (UNIT + "test_inference.py",),
    "trees/adaboost": (UNIT + "trees/test_adaboost.py",),
    "trees/logistic": (UNIT + "trees/test_logistic.py",),
    "trees/splitting": (UNIT + "trees/test_splitting.py", UNIT + "trees/test_growth.py"),
    "functions/posterior": (UNIT + "test_posterior_bits.py",),
    "metrics/expectation": (UNIT + "test_metrics.py",),
    "metrics/ranking": (UNIT + "test_metrics.py",),
    "index/store": (UNIT + "test_index_store.py", UNIT + "test_flat_index.py"),
    "index/manifest": (UNIT + "test_index_store.py",),
    "index/memory": (UNIT + "test_flat_index.py", UNIT + "test_index_store.py"),
    "index/tables": (UNIT + "test_multi_index.py",),
    "web/guard": (SERVICE + "test_web_guard.py", SERVICE + "test_web_limits.py"),
    "storage/modelfile": (UNIT + "test_modelfile.py",),
    "choosing": (UNIT + "test_choosing.py",),
}

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
UNTOUCHED = (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Raise, ast.arg, ast.Assert)  # messages and types


class Mutant(NamedTuple):
    """One change of a module: the text between two places of the source, and what takes its place."""

    module: str
    line: int
    start: int
    end: int
    new: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        return source[: self.start] + self.new + source[self.end :]

    def described(self, source: str) -> str:
        """Return the lines before and after, without indents and comments; what the list of equivalents has."""
        first = source.rfind("\n", 0, self.start) + 1
        last = source.find("\n", self.end)
        before, after = source[first:last], source[first : self.start] + self.new + source[self.end : last]
        return f"{self.module}: {_plain(before)} -> {_plain(after)}"


def _plain(lines: str) -> str:
    return " ".join(re.sub(r"  # [^\n]*", "", lines).split())


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of the source."""
    starts = [0]
    for text in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(text.decode()))

    def place(line: int, column: int) -> int:  # columns of ast count bytes; there is nothing but ASCII before code
        return starts[line - 1] + column

    return sorted(
        {
            Mutant(
                module,
                node.lineno,
                place(node.lineno, node.col_offset),
                place(node.end_lineno, node.end_col_offset),
                new,
            )
            for node in _code(ast.parse(source))
            for new in _changes(node)
        }
    )


def _code(node: ast.AST) -> Iterator[ast.expr]:
    """Give the expressions of a module that do something: no annotations, messages, decorators and docstrings."""
    if isinstance(node, UNTOUCHED) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "slice") and not isinstance(
            node, ast.Subscript
        ):
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)


def _changes(node: ast.expr) -> Iterator[str]:
    """Give what an expression is changed to."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield f"({ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield f"({ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield repr(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield NAMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield f"({ast.unparse(node.value)}).{NAMES[node.attr]}"


def equivalents() -> set[str]:
    """Return the accepted mutants; a line that begins with # says why those after it do the same as the source."""
    lines = ACCEPTED.read_text().splitlines() if ACCEPTED.exists() else []
    return {" ".join(line.split()) for line in lines if line and not line.startswith("#")}


def outcome(mutant: Mutant | None, tests: Sequence[str], seconds: float) -> tuple[bool, float]:
    """Run tests on a copy of the package with a mutant; return whether they passed, and how long they took.

    Without a mutant they run on the package itself, so that what they compile stays for the copies.
    """
    with tempfile.TemporaryDirectory(prefix=".mutate-", dir=ROOT) as temporary:
        copy = Path(temporary) / "hashgrove"
        shutil.copytree(PACKAGE, copy, copy_function=os.link)
        if mutant is None:
            temporary = str(PACKAGE.parent)
        else:
            path = copy / f"{mutant.module}.py"
            source = path.read_text()
            path.unlink()  # the link only
            path.write_text(mutant.applied(source))
        environment = os.environ | {"PYTHONPATH": temporary, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not data", *tests]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            )
        except subprocess.TimeoutExpired:
            return False, seconds
        if done.returncode in (3, 4, 5):  # of pytest: an error of its own, a wrong call, no tests
            raise RuntimeError(f"the tests cannot be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.returncode == 0, time.monotonic() - begin


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-module", type=int, default=10)
    parser.add_argument("--only", choices=TESTS, action="append", help="modules; by default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="list the mutants, and do nothing else")
    options = parser.parse_args()
    accepted, chosen, limits = equivalents(), [], {}
    for module in options.only or TESTS:
        source = (PACKAGE / f"{module}.py").read_text()
        found = mutants(module, source)
        sample = random.Random(f"{options.seed} {module}").sample(found, min(options.per_module, len(found)))
        chosen += [(mutant, mutant.described(source)) for mutant in sorted(sample)]
    if options.list:
        print("\n".join(text for _, text in chosen))
        return
    tested = [(mutant, text) for mutant, text in chosen if text not in accepted]
    with ThreadPoolExecutor(options.jobs) as threads:
        for module in dict.fromkeys(mutant.module for mutant, _ in tested):
            passed, seconds = outcome(None, TESTS[module], 3600)
            if not passed:
                sys.exit(f"{module}: its tests fail without a mutant")
            limits[module] = SPARE + 10 * seconds
        found = threads.map(
            lambda mutant: outcome(mutant, TESTS[mutant.module], limits[mutant.module])[0], [m for m, _ in tested]
        )
        n_survived = 0
        for (mutant, text), survived in zip(tested, found, strict=True):
            n_survived += survived
            print(f"{'SURVIVED' if survived else 'killed'} line {mutant.line}, {text}", flush=True)
    killed = len(tested) - n_survived
    print(
        json.dumps(
            {
                "seed": options.seed,
                "mutants": len(tested),
                "killed": killed,
                "share": round(killed / max(len(tested), 1), 3),
                "accepted equivalents in the sample": len(chosen) - len(tested),
            }
        )
    )
    sys.exit(killed < ENOUGH * len(tested))


if __name__ == "__main__":
    main()
