"""The methods of experiments: our defaults, the paper's mode and the vectors themselves; and databases of new rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.datasets import load_dataset
from experiments.methods import FASTHASH, PAPER, VECTORS, build, check_method, default_of, parameters
from experiments.quick import quick_spec, small_params
from experiments.real_valued import measure_vectors
from experiments.specs import Spec
from experiments.splits import split
from experiments.worker import measure
from hashgrove import ICM, BlockGraphCut, BoostedTrees, FastHash, PosteriorBits, evaluate_vectors
from hashgrove.storage.formats import FileError

DIGITS = load_dataset("digits")


def built(method, params):
    return build(method, 16, params, seed=3, n_jobs=1)


class TestBuild:
    def test_our_defaults(self):
        assert repr(built(FASTHASH, {})) == repr(FastHash(16, random_state=3, n_jobs=1))
        assert built(FASTHASH, {"hash_function": "auto"}).hash_function == "auto"
        assert default_of(FASTHASH, "hash_function") == "auto"

    def test_the_mode_of_the_paper(self):
        expected = FastHash.paper(16, random_state=3, n_jobs=1)
        assert repr(built(PAPER, {}).get_params()) == repr(expected.get_params())
        assert repr(built(PAPER, {"hash_function": "trees", "inference": "block-gc"})) == repr(expected)

    def test_settings_change_the_mode_that_they_are_given_to(self):
        deep = {"hash_function": {"kind": "trees", "max_depth": 6}}
        assert repr(built(PAPER, deep).hash_function) == repr(BoostedTrees.paper(max_depth=6))
        assert repr(built(FASTHASH, deep).hash_function) == repr(BoostedTrees(max_depth=6))
        sweeps = {"inference": {"kind": "block-gc", "n_sweeps": 3}}
        assert built(PAPER, sweeps).inference.start == "ones"
        assert repr(built(FASTHASH, sweeps).inference) == repr(BlockGraphCut(n_sweeps=3))
        assert isinstance(built(PAPER, {"inference": "icm"}).inference, ICM)
        assert isinstance(built(FASTHASH, {"hash_function": "posterior"}).hash_function, PosteriorBits)

    def test_vectors_have_no_parameters(self):
        assert built(VECTORS, {}) is None
        assert parameters(VECTORS) == set()
        check_method(VECTORS, 64, {}, "here")
        with pytest.raises(FileError, match="here: a parameter of cosine must be"):
            check_method(VECTORS, 64, {"loss": "ksh"}, "here")


class TestQuick:
    @pytest.mark.parametrize("params", [{}, {"loss": "ksh"}, {"hash_function": "auto"}])
    def test_no_trial_of_all_hash_functions(self, params):
        spec = quick_spec(Spec("cifar10-gist", FASTHASH, params=params))
        assert spec.params["hash_function"] == {"kind": "posterior"}

    def test_compiling_is_done_for_what_is_really_run(self):
        assert small_params(FASTHASH, {}) == {}
        assert small_params(PAPER, {})["hash_function"] == {"kind": "trees", "n_trees": 10, "n_anchors": 64}

    def test_a_quick_run(self):
        spec = replace(quick_spec(Spec("digits", FASTHASH, bits=64)), n_train=100)
        found = measure(spec, split(DIGITS, spec, seed=0), seed=0, n_jobs=1)
        assert found["measures"]["map"] > 0.5
        assert found["measures"]["macro_map"] > 0.5
        assert found["measures"]["distinct"] > 10


class TestVectors:
    def test_the_measures_are_those_of_cosine_similarity(self):
        data = split(DIGITS, Spec("digits", VECTORS, n_query=50), seed=0)
        found = measure_vectors(data)["measures"]
        report = evaluate_vectors(data.X_database, data.X_query, y_queries=data.y_query, y_database=data.y_database)
        assert (found["map"], found["precision"]) == (report.map, report.precision_at_k)
        assert found["precision_at_10"] == report.precision[9]

    def test_a_run_on_the_queries_leaves_each_out_of_its_own_ranking(self):
        spec = Spec("digits", VECTORS, n_query=80, database="queries")
        found = measure(spec, split(DIGITS, spec, seed=0), seed=0, n_jobs=1)
        assert found["measures"]["map"] < 0.9, "a query would find itself first"
        assert len(found["curves"]["precision"]) > 0


class TestQueriesAsDatabase:
    def test_split(self):
        part = split(DIGITS, Spec("digits", "lsh", n_train=50, n_query=20, database="queries"), seed=0)
        np.testing.assert_array_equal(part.database, part.query)
        assert not np.isin(part.database, part.train).any()

    def test_of_unseen_classes(self):
        part = split(DIGITS, Spec("digits", "lsh", unseen=0.3, database="queries"), seed=0)
        assert not set(part.y_database) & set(part.y_train)

    def test_a_hasher_is_not_credited_for_finding_the_query_itself(self):
        spec = Spec("digits", "lsh", bits=16, n_train=50, n_query=60, database="queries")
        data = split(DIGITS, spec, seed=0)
        codes = build("lsh", 16, {}, seed=0, n_jobs=1).fit(data.X_train).score(data.X_query, data.y_query)
        assert measure(spec, data, seed=0, n_jobs=1)["measures"]["map"] == pytest.approx(codes)
