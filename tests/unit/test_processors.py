"""Vector code gives the same on every processor, whatever instructions it has: kernels are compiled for older ones."""

from __future__ import annotations

import os
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from hashgrove import BoostedTrees
from hashgrove.encoders import LeafTrees, Trees
from hashgrove.runtime.simd import look_up
from makers import random_codes

SSSE3 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt"
AVX2 = f"{SSSE3},+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt"
AVX512 = f"{AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
PROCESSORS = {"generic": "", "nehalem": SSSE3, "haswell": AVX2, "skylake-avx512": AVX512}
ENCODE = """
import sys
import numpy as np
from hashgrove.encoders import LeafTrees, Trees
found = {}
with np.load(sys.argv[1]) as file:
    for name in ("Trees", "LeafTrees"):
        arrays = {key.removeprefix(f"{name}."): file[key] for key in file.files if key.startswith(f"{name}.")}
        found[name] = globals()[name](**arrays).scores(file["X"])
np.savez(sys.argv[2], **found)
"""


def encoders():
    """One encoder of each kind, with trees of depth 6."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 20)).astype(np.float32)
    z = np.where(X[:, :5].sum(axis=1) > 2.5, 1, -1).astype(np.int8)
    found = []
    for leaves in ("sign", "newton"):
        learner = BoostedTrees(leaves=leaves, n_trees=5, max_depth=6, regularisation=0.1, min_hessian=0.01)
        found.append(learner.learn(learner.prepare(X, rng), z, None, rng)[0])
    return found, X


SEARCH = """
import sys
import numpy as np
from hashgrove import FlatIndex, evaluate
found = {}
with np.load(sys.argv[1]) as file:
    for name in file.files:
        codes = file[name]
        index, y = FlatIndex(codes), np.arange(len(codes)) // 300
        distances, ids = index.search_radius(codes[:2], 24 * codes.shape[1] // 8)
        arrays = [*index.search(codes[:3], 5), *index.search(codes[:3], 900), *distances, *ids]
        arrays += index.search(codes[:16], 5)  # many queries
        arrays.append(evaluate(index, codes[:3], y_queries=y[:3], y_database=y, k=7, knn=None).map)
        found |= {f"{name} {place}": array for place, array in enumerate(arrays)}
np.savez(sys.argv[2], **found)
"""


def run_for(processor, code, folder):
    """Run code that reads given.npz and writes found.npz, with kernels that are compiled for a processor."""
    here = llvm.get_host_cpu_features()
    if not all(here.get(feature.removeprefix("+")) for feature in PROCESSORS[processor].split(",") if feature):
        pytest.skip(f"this processor cannot run code for {processor}")
    environment = os.environ | {
        "NUMBA_CPU_NAME": processor,
        "NUMBA_CPU_FEATURES": PROCESSORS[processor],
        "NUMBA_CACHE_DIR": str(folder),
    }
    files = [str(folder / "given.npz"), str(folder / "found.npz")]
    subprocess.run([sys.executable, "-c", code, *files], env=environment, check=True)
    with np.load(files[1]) as found:
        return dict(found)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_scores_are_the_same_on_other_processors(processor, tmp_path):
    made, X = encoders()
    assert [type(encoder) for encoder in made] == [Trees, LeafTrees]
    arrays = {f"{type(e).__name__}.{name}": array for e in made for name, array in e.arrays().items()}
    np.savez(tmp_path / "given.npz", X=X, **arrays)
    scores = run_for(processor, ENCODE, tmp_path)
    for encoder in made:
        np.testing.assert_array_equal(scores[type(encoder).__name__], encoder.scores(X))


@pytest.mark.parametrize("processor", PROCESSORS)
def test_searches_are_the_same_on_other_processors(processor, tmp_path, monkeypatch):
    """The buffered scan, the counting one, radius search and an evaluation; of one, three and seventeen words."""
    codes = {f"{n_words} words": random_codes(1100, 64 * n_words) for n_words in (1, 3, 17)}
    np.savez(tmp_path / "given.npz", **codes)
    found = run_for(processor, SEARCH, tmp_path)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "given.npz"), str(tmp_path / "here.npz")])
    exec(SEARCH, {})
    with np.load(tmp_path / "here.npz") as expected:
        assert set(found) == set(expected)
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


class Context:
    """What `look_up` asks of a context of numba."""

    def __init__(self, features):
        self.features = features

    def codegen(self):
        return self

    def magic_tuple(self):
        return "", "", self.features


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize(
    ("triple", "features", "instruction"),
    [
        ("aarch64-unknown-linux-gnu", "+neon", "tbl"),
        ("x86_64-unknown-linux-gnu", SSSE3, "pshufb"),
        ("x86_64-unknown-linux-gnu", AVX2, "vpshufb"),
        ("x86_64-unknown-linux-gnu", AVX512, "vpshufb"),
        ("x86_64-unknown-linux-gnu", f"{AVX512},+avx512vbmi", "vpermb"),
    ],
)
def test_a_lookup_is_a_shuffle_where_there_is_one(triple, features, instruction, size):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    vector, pointer = ir.VectorType(ir.IntType(8), 64), ir.IntType(8).as_pointer()
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, vector.as_pointer()]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    table, numbers = function.args
    builder.store(look_up(Context(features), builder, table, size, builder.load(numbers, align=1)), numbers, align=1)
    builder.ret_void()
    try:
        machine = llvm.Target.from_triple(triple).create_target_machine(features=features, opt=3)
    except RuntimeError:
        pytest.skip(f"this LLVM has no {triple}")
    assert f"\t{instruction}\t" in machine.emit_assembly(llvm.parse_assembly(str(module)))
