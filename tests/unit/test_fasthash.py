from __future__ import annotations

import io
import threading
import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from hashgrove import (
    Affinity,
    BlockGraphCut,
    BoostedTrees,
    FastHash,
    FlatIndex,
    KernelSVM,
    LinearSVM,
    evaluate,
    fasthash,
    load,
    losses,
    step_one,
    two_step,
    unpack,
)
from hashgrove.functions import HASH_FUNCTIONS
from hashgrove.inference import SOLVERS
from hashgrove.step_one import SampledStepOne, StepOne
from hashgrove.supervision import ClassLabels

SMALL = BoostedTrees(n_trees=10, max_depth=3)


def small(n_bits=8, **parameters):
    return FastHash(n_bits, **{"hash_function": SMALL, "random_state": 0} | parameters)


def retrieval_map(hasher, digits):
    X_train, y_train, X_query, y_query = digits
    return evaluate(
        FlatIndex(hasher.transform(X_train)), hasher.transform(X_query), y_queries=y_query, y_database=y_train
    ).map


@pytest.mark.filterwarnings("ignore:.* bits are the same for all points")  # the checks fit on noise
@parametrize_with_checks(
    [FastHash(8, hash_function=BoostedTrees(n_trees=5, max_depth=2))],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "a repeated row draws neighbours of its own",
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("loss", losses.LOSSES)
@pytest.mark.parametrize("inference", SOLVERS)
def test_every_loss_and_solver_learns(digits, loss, inference):
    hasher = small(16, loss=loss, inference=inference).fit(*digits[:2])
    assert retrieval_map(hasher, digits) > 0.6, "chance is 0.1"


@pytest.mark.parametrize(
    ("hash_function", "bar"),
    [
        *((name, 0.6) for name in HASH_FUNCTIONS),
        (LinearSVM(C=1.0), 0.5),
        (KernelSVM(n_support=100), 0.6),
        (SGDClassifier(), 0.4),
        (RidgeClassifier(), 0.4),
        (DecisionTreeClassifier(max_depth=5), 0.4),
    ],
    ids=str,
)
def test_every_hash_function_learns(digits, hash_function, bar):
    hasher = small(16, hash_function=hash_function).fit(*digits[:2])
    assert retrieval_map(hasher, digits) > bar


def test_more_bits_are_better_and_the_loss_falls(digits):
    hasher = small(32).fit(*digits[:2])
    index_bits = unpack(hasher.transform(digits[0]), 32)
    objectives = [record.objective for record in hasher.history_]
    assert objectives[-1] < objectives[3] < objectives[0]
    assert [record.bit for record in hasher.history_] == list(range(32))
    assert all(0 <= record.training_error < 0.5 for record in hasher.history_)
    assert retrieval_map(hasher, digits) > retrieval_map(small(4).fit(*digits[:2]), digits)
    assert (index_bits.mean(axis=0) > 0).all()
    assert (index_bits.mean(axis=0) < 1).all()


def test_ksh_and_bre_give_the_same_codes(digits):
    X, y = digits[:2]
    one, two = (small(12, loss=loss).fit(X, y) for loss in ("ksh", "bre"))
    assert (one.transform(X) == two.transform(X)).all()


def test_any_callable_is_a_loss(digits):
    X, y = digits[:2]
    own = small(8, loss=lambda d, similar, m: (2 * np.where(similar, d, m - d) / m) ** 2).fit(X, y)
    assert (own.transform(X) == small(8, loss="ksh").fit(X, y).transform(X)).all()
    with pytest.raises(ValueError, match="sub-modularity"):
        small(loss=lambda d, similar, m: -d * 1.0).fit(X, y)


def test_the_real_output_feeds_the_next_bit(digits):
    """The recorded objective is that of the encoder's codes; without stages it is that of inferred codes."""
    X, y = digits[:2]
    hasher = small(6, loss="ksh", n_similar=None, n_dissimilar=None, stagewise=True).fit(X, y)
    bits = np.where(unpack(hasher.transform(X), 6), 1, -1)
    Y = np.where(y[:, None] == y, 1, -1)
    off_diagonal = ~np.eye(len(y), dtype=bool)
    objective = ((Y - bits @ bits.T / 6) ** 2)[off_diagonal].mean()
    assert hasher.history_[-1].objective == pytest.approx(objective)
    assert hasher.history_[-1].objective_of == "learned bits"
    before = ((Y - (bits[:, :5] @ bits[:, :5].T + 1) / 6) ** 2)[off_diagonal].mean()  # the last bit is equal
    assert hasher.history_[-1].objective_before == pytest.approx(before)
    inferred = small(6, loss="ksh", n_similar=None, n_dissimilar=None, stagewise=False).fit(X, y)
    assert inferred.history_[-1].objective < objective, "inferred codes have no error of a learner in them"
    assert inferred.history_[-1].objective_of == "inferred bits"


def test_warm_start_equals_one_fit(digits, tmp_path):
    X, y = digits[:2]
    whole = small(20).fit(X, y)
    grown = small(7, warm_start=True).fit(X, y)
    first = grown.transform(X)
    grown.set_params(n_bits=20).fit(X, y)
    assert (unpack(grown.transform(X), 20)[:, :7] == unpack(first, 7)).all()
    assert (grown.transform(X) == whole.transform(X)).all()
    assert len(grown.history_) == 20
    whole.save(tmp_path / "whole")
    grown.save(tmp_path / "grown")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "grown").read_bytes()
    with pytest.raises(ValueError, match="must be at least 20"):
        grown.set_params(n_bits=10).fit(X, y)


WEAK = BoostedTrees(n_trees=3, max_depth=2)


@pytest.mark.parametrize("hash_function", sorted(HASH_FUNCTIONS.keys() - {"decodable"}))
def test_every_hash_function_can_be_extended(digits, hash_function):
    X, y = digits[0][:300], digits[1][:300]
    hasher = small(3, hash_function=hash_function, warm_start=True).fit(X, y)
    before = unpack(hasher.transform(X), 3)
    after = unpack(hasher.set_params(n_bits=5).fit(X, y).transform(X), 5)
    assert (after[:, :3] == before).all()


@pytest.mark.parametrize("hash_function", [SMALL, "linear-svm", KernelSVM(n_support=50)], ids=str)
def test_same_bytes_at_any_number_of_threads(digits, tmp_path, hash_function):
    X, y = digits[:2]
    for n in (1, 2):
        small(8, hash_function=hash_function, n_jobs=n).fit(X, y).save(tmp_path / str(n))
    small(8, hash_function=hash_function, random_state=1).fit(X, y).save(tmp_path / "other")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert (tmp_path / "1").read_bytes() != (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("hash_function", [*HASH_FUNCTIONS, SGDClassifier()], ids=str)
def test_save_and_load(digits, tmp_path, hash_function):
    X_train, y_train, X_query, _ = digits
    hasher = small(9, hash_function=hash_function).fit(X_train[:300], y_train[:300])
    hasher.save(tmp_path / "model")
    encoder = load(tmp_path / "model")
    assert (encoder.encode(X_query) == hasher.transform(X_query)).all()
    assert (encoder.scores(X_query) == hasher.decision_function(X_query)).all()
    assert (encoder.n_bits, encoder.n_features) == (9, 64)


def test_a_classifier_of_others_is_refused_by_the_file_but_not_by_joblib(digits, tmp_path):
    X, y = digits[0][:200], digits[1][:200]
    hasher = small(4, hash_function=DecisionTreeClassifier(max_depth=3)).fit(X, y)
    with pytest.raises(ValueError, match=r"cannot be saved.*joblib"):
        hasher.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    stored = io.BytesIO()
    joblib.dump(hasher, stored)
    stored.seek(0)
    assert (joblib.load(stored).transform(X) == hasher.transform(X)).all()


def test_pickle_clone_pipeline_and_grid_search(digits):
    X, y = digits[0][:300], digits[1][:300]
    stored = io.BytesIO()
    hasher = small().fit(X, y)
    joblib.dump(hasher, stored)
    stored.seek(0)
    assert (joblib.load(stored).transform(X) == hasher.transform(X)).all()
    copy = clone(hasher)
    assert not hasattr(copy, "encoder_")
    assert (copy.fit(X, y).transform(X) == hasher.transform(X)).all()
    pipeline = make_pipeline(StandardScaler(), small(12))
    assert pipeline.fit(X, y).transform(X).shape == (300, 2)
    search = GridSearchCV(pipeline, {"fasthash__hash_function__max_depth": [1, 4], "fasthash__n_bits": [4, 12]}, cv=3)
    search.fit(X, y)
    assert search.best_params_["fasthash__n_bits"] == 12
    assert 0 < search.best_score_ <= 1


def test_tags_and_pairs(digits):
    X, y = digits[0][:400], digits[1][:400]
    tags = np.stack([y % 2, y // 5, y == 3, np.ones_like(y)], axis=1)
    shared = (tags @ tags.T >= 3).astype(int) * 2 - 1
    for kind in (tags, sparse.csr_matrix(tags)):
        hasher = small(16, min_shared=3).fit(X, kind)
        assert hasher.score(X, kind) > 0.9, "about 0.1 of the pairs are similar"
    pairs = small(16, n_similar=None, n_dissimilar=None).fit(X, affinity=sparse.csr_matrix(shared))
    again = small(16).fit(X, affinity=Affinity.from_pairs(sparse.csr_matrix(shared), n_similar=None, n_dissimilar=None))
    assert (pairs.transform(X) == again.transform(X)).all()
    assert pairs.score(X, y) > 0.3


def test_a_bit_of_one_class_only_is_constant_and_said():
    """One dissimilar pair cannot outweigh the ties to all other points, so that every cut leaves them together."""
    X = np.random.default_rng(0).random((30, 3))
    pairs = [(i, j, -1 if (i, j) == (1, 0) else 1) for i in range(30) for j in range(i)]
    for hash_function in [
        *(HASH_FUNCTIONS.keys() - {"posterior", "decodable"}),
        SGDClassifier(),
        DecisionTreeClassifier(),
    ]:
        with pytest.warns(UserWarning, match="2 of 2 bits are the same for all points"):
            hasher = small(2, hash_function=hash_function).fit(X, affinity=pairs)
        assert len(np.unique(hasher.transform(X))) == 1
        assert {record.ones for record in hasher.history_} <= {0.0, 1.0}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
def test_feature_types_and_layouts_give_the_same_codes(digits, dtype):
    """Digits are small whole numbers: exact in every type."""
    X, y = digits[0][:200], digits[1][:200]
    expected = small().fit(X, y).transform(X)
    typed = X.astype(dtype)
    readonly = typed.copy()
    readonly.flags.writeable = False
    padded = np.zeros((400, 130), dtype)
    padded[::2, 1:129:2] = typed
    for variant in (typed, readonly, np.asfortranarray(typed), padded[::2, 1:129:2]):
        assert (small().fit(variant, y).transform(variant) == expected).all()


def test_memory_mapped_features(digits, tmp_path):
    X, y = digits[:2]
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert (small().fit(mapped, y).transform(mapped) == small().fit(X, y).transform(X)).all()


def test_callbacks_and_verbose(digits, capsys):
    X, y = digits[0][:200], digits[1][:200]
    seen = []
    small(3, callbacks=[seen.append], verbose=2).fit(X, y)
    captured = capsys.readouterr()
    assert [record.bit for record in seen] == [0, 1, 2]
    assert captured.err.count("\n") == 3
    assert captured.err.startswith("bit 0: loss ")
    assert captured.out == ""
    small(3, verbose=1).fit(X, y)
    assert capsys.readouterr().err == "", "stderr is not a terminal here"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bits": 0}, "The 'n_bits' parameter must be an integer from 1 to 65528. Got 0"),
        ({"n_bits": 8.0}, "'n_bits'"),
        ({"loss": "cosine"}, "The 'loss' parameter must be one of"),
        ({"hash_function": "forest"}, "The 'hash_function' parameter must be one of"),
        ({"hash_function": StandardScaler()}, "The 'hash_function' parameter"),
        ({"hash_function": BoostedTrees(max_depth=-1)}, "'max_depth'"),
        ({"inference": "annealing"}, "The 'inference' parameter must be one of"),
        ({"n_similar": True}, "'n_similar'"),
        ({"n_similar": -1}, "'n_similar'"),
        ({"n_jobs": 0}, "'n_jobs'"),
    ],
)
def test_bad_parameters(digits, parameters, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(*digits[:2])


def test_bad_data(digits):
    X, y = digits[0][:100], digits[1][:100]
    nan, infinite = X.copy(), X.copy()
    nan[3, 4], infinite[3, 4] = np.nan, np.inf
    cases = [
        ((nan, y), {}, "NaN"),
        ((infinite, y), {}, "infinity"),
        ((X[0], y), {}, "2D array"),
        ((X[:0], y[:0]), {}, "0 sample"),
        ((X[:, :0], y), {}, "0 feature"),
        ((X, y[:50]), {}, "inconsistent numbers of samples"),
        ((X, np.zeros(100)), {}, "at least two classes"),
        ((X,), {}, "requires y to be passed"),
        ((X, y), {"affinity": [(0, 1, 1)]}, "Only one of y, affinity and triplets"),
        ((X,), {"affinity": np.zeros((0, 3))}, "some pair of points similar"),
        ((X,), {"affinity": [(0, 100, -1)]}, "from 0 to 99"),
        ((X,), {"affinity": Affinity.from_labels(y[:50])}, "inconsistent"),
        ((sparse.csr_matrix(X), y), {}, "[Ss]parse"),
        ((np.array([["a"] * 3] * 100), y), {}, "could not convert|numeric"),
    ]
    for arguments, keywords, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            small().fit(*arguments, **keywords)
    with pytest.raises(ValueError, match=r"must be given class labels or tags as y.* Got pairs or triplets"):
        small(hash_function="posterior").fit(X, affinity=[(0, 1, 1), (0, 2, -1)])
    hasher = small().fit(X, y)
    with pytest.raises(ValueError, match="64 features"):
        hasher.transform(X[:, :10])
    with pytest.raises(ValueError, match="NaN"):
        hasher.transform(nan)
    with pytest.raises(ValueError, match="must have 64 features"):
        hasher.encoder_.encode(X[:, :10])


def test_no_warnings_in_a_plain_fit(digits):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(4).fit(*digits[:2]).transform(digits[2])


class CountingTrees(BoostedTrees):
    """Boosted trees that note the threads that learn them, two bits at a time."""

    def __init__(self, *, n_trees=5, start=None):
        super().__init__(n_trees=n_trees, start=start)

    def prepare(self, X, rng, **options):
        self.threads_, self.together_ = set(), threading.Barrier(2, timeout=120)
        return super().prepare(X, rng, **options)

    def learn_started(self, data, started, z, weights, rng):
        self.threads_.add(threading.get_ident())
        if threading.current_thread() is not threading.main_thread():
            self.together_.wait()  # breaks unless two bits are learned at the same time
        return super().learn_started(data, started, z, weights, rng)


@pytest.mark.parametrize("settings", [{}, {"start": "linear"}], ids=str)
def test_independent_bits_are_learned_in_parallel_with_equal_results(digits, settings, tmp_path):
    X, y = digits[0][:300], digits[1][:300]
    for n_jobs in (1, 2):
        learner = CountingTrees(**settings)
        hasher = FastHash(8, hash_function=learner, stagewise=False, generic_bits=0, random_state=0, n_jobs=n_jobs)
        hasher.fit(X, y).save(tmp_path / str(n_jobs))
        assert len(learner.threads_) == n_jobs
        assert [record.bit for record in hasher.history_] == list(range(8))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


class TestManyRows:
    """Step 1 on a sample of the rows; the other rows follow their classes."""

    @pytest.mark.parametrize("learner", ["posterior", BoostedTrees(n_trees=3), BoostedTrees.paper(n_trees=3)], ids=str)
    @pytest.mark.parametrize("stagewise", [False, True])
    def test_all_rows_get_a_bit_and_most_that_of_their_class(self, monkeypatch, learner, stagewise):
        monkeypatch.setattr(fasthash, "STEP_ONE_ROWS", 300)
        hasher = FastHash(12, hash_function=learner, stagewise=stagewise, generic_bits=0, random_state=0, n_jobs=1)
        X, y = load_digits(return_X_y=True)
        hasher.fit(X[:1200], y[:1200])
        assert hasher.inferred_codes_.shape == (1200, 2)
        words = hasher.codewords_.of_labels(y[:1200])
        assert (unpack(hasher.inferred_codes_, 12) == unpack(words, 12)).mean() > 0.98
        assert hasher.score(X[1200:], y[1200:]) > 0.5
        errors = [record.training_error for record in hasher.history_]
        assert 0 < np.mean(errors) < 0.2, "of all rows"

    def test_weights_of_the_rest_are_those_of_the_class(self):
        classes = np.arange(1000) % 4
        labels = ClassLabels(classes)
        chosen = labels.sample_of_classes(400, np.random.default_rng(0))
        pairs = labels.subset(chosen).affinity(n_similar=10, n_dissimilar=10, random_state=0)
        whole, sampled = (StepOne(pairs, loss=losses.ksh, solver=BlockGraphCut(), n_bits=4) for _ in range(2))
        step_one = SampledStepOne(sampled, classes, chosen)
        rest = np.setdiff1d(np.arange(1000), chosen)
        for _ in range(4):
            expected, found = whole.infer(), step_one.infer()
            np.testing.assert_array_equal(found.z[chosen], expected.z)
            for c in range(4):
                of_class = classes[chosen] == c
                assert set(found.z[rest[classes[rest] == c]]) == {1 if expected.z[of_class].sum() > 0 else -1}
                mean = expected.weights[of_class].mean() * found.weights[chosen[0]] / expected.weights[0]
                np.testing.assert_allclose(found.weights[rest[classes[rest] == c]], mean)
            assert found.weights.mean() == pytest.approx(1)
            assert step_one.add(found.z) == whole.add(expected.z)

    def test_the_sample_has_the_same_share_of_each_class_and_50_of_small_ones(self):
        classes = np.repeat([0, 1, 2, 3], [30, 70, 4000, 6000])
        chosen = ClassLabels(classes).sample_of_classes(1000, np.random.default_rng(0))
        assert np.bincount(classes[chosen]).tolist() == [30, 50, 396, 594]
        assert (np.diff(chosen) > 0).all()

    @pytest.mark.parametrize("given", ["weights", "tags"])
    def test_all_rows_are_used_with_weights_and_without_classes(self, monkeypatch, given):
        X, y = load_digits(return_X_y=True)
        X, y = X[:300], y[:300]
        tags = (y[:, None] % np.array([2, 3, 5]) == 0).astype(int)
        target = {"y": y, "sample_weight": 1 + y % 2} if given == "weights" else {"y": tags}
        codes = []
        for limit in (100, 10_000):
            monkeypatch.setattr(fasthash, "STEP_ONE_ROWS", limit)
            hasher = FastHash(6, hash_function=BoostedTrees(n_trees=2), min_shared=1, random_state=0, n_jobs=1)
            codes.append(hasher.fit(X, **target).transform(X))
        np.testing.assert_array_equal(*codes)


@pytest.mark.parametrize("stagewise", [True, False])
def test_records_have_the_seconds_of_each_step(monkeypatch, stagewise):
    """The clock goes on by one at each look."""
    looks = iter(range(1000))
    for module in (step_one, two_step):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(looks))))
    X, y = np.random.default_rng(0).random((60, 3)), np.arange(60) % 3
    learner = BoostedTrees(n_trees=2, max_depth=2)
    hasher = FastHash(3, hash_function=learner, stagewise=stagewise, n_jobs=1, random_state=0).fit(X, y)
    for record in hasher.history_:
        assert record.seconds_inference == 1.0
        assert record.seconds_learning == 1.0
