"""Trees with real leaves: splits, the booster and the encoders, compared with naive versions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove import BoostedTrees
from hashgrove.encoders import LeafTrees
from hashgrove.trees.binning import BinnedData
from hashgrove.trees.grower import BoostingSettings, Workspace, grow
from hashgrove.trees.logistic import MASS, _gradients, _trim
from hashgrove.trees.prediction import MAX_SUM
from hashgrove.trees.splitting import leaf_values, newton_rule, pack, unpack

UNIT = 1000  # fixed point of the examples below


def examples(seed, n=40, d=3, n_bins=256):
    """Bins, numbers of some examples, and their gradients and curvatures in whole thousandths."""
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, (d, n)).astype(np.uint8)
    index = np.sort(rng.permutation(n)[: n - 5])
    noisy = np.where(rng.random(n) < 0.2, -1, 1) * np.where(bins[0].astype(int) + bins[1] > n_bins, 1, -1)
    g = rng.integers(1, 900, len(index)) * noisy[index]
    h = 2 * (rng.random(len(index)) * np.abs(g)).astype(np.int64)
    return bins, index, g, h


def grown(bins, index, g, h, *, depth, regularisation, min_hessian, subset="node", n_features=99, seed=0, n_jobs=1):
    """A tree on these examples."""
    return grow(
        BinnedData(bins, np.zeros(len(bins)), np.ones(len(bins)), n_jobs),
        index.astype(np.uint32),
        np.array([pack(*pair) for pair in zip(g, h // 2, strict=True)], np.int64),
        rule=newton_rule(regularisation, min_hessian, scale=UNIT),
        settings=BoostingSettings(depth, n_features, subset, trimming=0.0, early_stopping=False),
        seed=np.uint64(seed),
        workspace=Workspace(bins.shape[1], np.int64),
    )[0]


def values_of(tree, bins):
    """The values of a tree for each column of bins."""
    return tree.value[[naive.leaf_of(column, 0, tree.feature, tree.threshold, tree.child) for column in bins.T]]


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10_000),
    st.sampled_from([2, 5, 256]),
    st.integers(1, 3),
    st.sampled_from([(0.0, 0.5), (0.1, 0.0), (1.0, 0.0), (10.0, 3.0)]),
    st.sampled_from(["node", "level", "tree"]),
)
def test_tree_against_trying_all_stumps(seed, n_bins, depth, rule, subset):
    bins, index, g, h = examples(seed, n_bins=n_bins)
    rule = {"depth": depth, "regularisation": rule[0], "min_hessian": rule[1]}
    tree = grown(bins, index, g, h, subset=subset, **rule)
    expected = naive.newton_tree(bins, index, g / UNIT, h / UNIT, columns=range(bins.shape[1]), **rule)
    np.testing.assert_allclose(values_of(tree, bins), [expected[c] for c in range(bins.shape[1])], atol=1e-9)


def test_stump_of_the_largest_gain_among_the_drawn_features():
    bins, index, g, h = examples(1, n=200, d=30)
    rule = {"regularisation": 1.0, "min_hessian": 2.0}
    gains = naive.newton_gains(bins, index, g / UNIT, h / UNIT, **rule)
    used = set()
    for seed in range(20):
        tree = grown(bins, index, g, h, depth=1, n_features=3, seed=seed, **rule)
        used.add(int(tree.feature[0]))
        assert gains[int(tree.threshold[0]), int(tree.feature[0])] > 0
    assert len(used) > 3, "another seed draws other features"
    whole = grown(bins, index, g, h, depth=1, **rule)
    assert (whole.threshold[0], whole.feature[0]) == max(gains, key=gains.get)


@pytest.mark.parametrize("subset", ["node", "level", "tree"])
def test_trees_are_the_same_at_any_number_of_threads(subset):
    """Large enough that threads share the work; histograms of siblings are subtracted if the subset is the tree's."""
    bins, index, g, h = examples(3, n=9000, d=64)
    one, two, many = (
        grown(bins, index, g, h, depth=6, regularisation=1.0, min_hessian=1.0, subset=subset, n_features=40,
              n_jobs=n_jobs)
        for n_jobs in (1, 2, 7)
    )  # fmt: skip
    for a, b, c in zip(one, two, many, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_histograms_that_are_too_large_to_keep_are_computed_again(monkeypatch):
    bins, index, g, h = examples(3, n=3000, d=20)
    rule = {"depth": 5, "regularisation": 1.0, "min_hessian": 1.0, "subset": "tree"}
    kept = grown(bins, index, g, h, **rule)
    monkeypatch.setattr("hashgrove.trees.histogram.KEPT_BYTES", 2**17)
    for a, b in zip(kept, grown(bins, index, g, h, **rule), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_node_without_gain_is_a_leaf():
    bins, index, g, h = examples(0, n=200)
    tree = grown(bins * 0, index, g, h, depth=4, regularisation=1.0, min_hessian=0.0)
    assert values_of(tree, bins) == pytest.approx(naive.newton_step(g / UNIT, h / UNIT, 1.0))
    assert len(tree.threshold) == 1
    tree = grown(bins, index, g, h, depth=4, regularisation=1.0, min_hessian=1e6)
    assert len(set(values_of(tree, bins))) == 1, "no leaf can have that much curvature"


def test_steps_are_limited():
    totals = np.array([pack(500, 1), pack(-500, 1), pack(0, 0), pack(7, 0)])
    steps = leaf_values(totals, newton_rule(0.0, 0.0, scale=1.0))
    assert steps.tolist() == [4.0, -4.0, 0.0, 4.0]


def test_gradients_against_the_formula():
    rng = np.random.default_rng(0)
    n = 3000  # more than a block
    y, F = rng.choice([-1, 1], n).astype(np.int8), (rng.normal(size=n) * 4).astype(np.float32)
    w = rng.lognormal(size=n).astype(np.float32)
    g, half = np.empty(n, np.float32), np.empty(n, np.float32)
    _gradients(y, w, F, g, half)
    p = 1 / (1 + np.exp(2 * y * F.astype(np.float64)))
    np.testing.assert_allclose(g, w * p, rtol=1e-5)
    np.testing.assert_allclose(half, w * p * (1 - p), rtol=1e-5)


def test_gradients_of_extreme_margins_are_finite():
    F = np.array([0, 1e-30, 1e5, -1e5, 3e38, -3e38], np.float32)
    g, half = np.empty(6, np.float32), np.empty(6, np.float32)
    _gradients(np.ones(6, np.int8), np.ones(6, np.float32), F, g, half)
    assert g[0] == 0.5
    assert half[0] == 0.25
    assert (g > 0).all()
    assert (g <= 1).all()
    assert (half > 0).all()
    assert (half <= g).all()


@pytest.mark.parametrize("trimming", [0.0, 0.1, 0.5])
def test_packed_values(trimming):
    rng = np.random.default_rng(0)
    g = rng.lognormal(sigma=2, size=500).astype(np.float32)
    half = (g * rng.random(500)).astype(np.float32)
    y = rng.choice([-1, 1], 500).astype(np.int8)
    scale, index, values = _trim(y, g, g.view(np.int32), half, trimming)
    assert index.tolist() == (naive.trimmed(g, trimming) if trimming else list(range(500)))
    gradients, halves = np.transpose([unpack(value) for value in values])
    np.testing.assert_allclose(gradients, y[index] * g[index] * scale, atol=0.51)
    np.testing.assert_allclose(halves, half[index] * scale, atol=0.51)
    assert np.abs(gradients).sum() == pytest.approx(MASS, rel=1e-5)
    assert unpack(values.sum()) == (gradients.sum(), halves.sum())


def problem(seed, n=80, d=4):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    z = np.where(X[:, 0] + X[:, 1] > 1, 1, -1) * np.where(rng.random(n) < 0.1, -1, 1)
    return X, z.astype(np.int8), rng


@pytest.mark.parametrize("trimming", [0.0, 0.1])
def test_booster_against_naive_boosting(trimming):
    X, z, rng = problem(5)
    weights = rng.lognormal(size=len(z))
    rule = {"regularisation": 1.0, "min_hessian": 0.5}
    learner = BoostedTrees(leaves="newton", n_trees=6, max_depth=2, features_per_node=None,
                           trimming=trimming, learning_rate=0.4, **rule)  # fmt: skip
    prepared = learner.prepare(X, rng)
    encoder, bit = learner.learn(prepared, z, weights, rng)
    margin = naive.logistic_boosting(
        prepared.binned.bins, z.astype(int), weights, n_trees=6, depth=2, trimming=trimming, rate=0.4, **rule
    )
    rounding = 6 * encoder.unit[0] / 2
    np.testing.assert_allclose(encoder.scores(X)[:, 0], margin, atol=rounding + 1e-4)
    decided = np.abs(margin) > rounding + 1e-4
    assert decided.mean() > 0.8
    assert (bit == np.sign(margin))[decided].all()


@pytest.mark.parametrize("depth", [1, 2, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 300])
def test_the_bit_is_what_the_encoder_gives(depth, n):
    """Small trees by vector code and deep ones row by row, on complete and on incomplete tiles of 64 rows."""
    X, z, rng = problem(depth, n=300, d=9)
    learner = BoostedTrees(leaves="newton", n_trees=5, max_depth=depth, min_hessian=0.01, regularisation=0.1)
    data = learner.prepare(X.astype(np.float32), rng)
    encoder, bit = learner.learn(data, z, None, rng)
    assert type(encoder) is LeafTrees
    encoder.check()
    rows = X[:n].astype(np.float32)
    scores = encoder.scores(rows)[:, 0]
    np.testing.assert_array_equal(np.where(scores > 0, 1, -1), bit[:n])
    np.testing.assert_array_equal(encoder.scores_of_bins(np.ascontiguousarray(data.binned.bins[:, :n]))[0], scores)
    expected = naive.leaf_trees_scores(rows.astype(float), **encoder.arrays())[:, 0]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    assert (bit == z).mean() > 0.75


def test_models_are_the_same_at_any_number_of_threads():
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 16))
    z = np.where(X[:, :4].sum(axis=1) + rng.normal(size=20_000) > 2, 1, -1).astype(np.int8)
    learner = BoostedTrees(leaves="newton", n_trees=4)
    found = []
    for n_jobs in (1, 2, 5):
        data = learner.prepare(X, rng, n_jobs=n_jobs)
        found.append(learner.learn(data, z, None, np.random.default_rng(0))[0].arrays())
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(array, other[name])


def test_sums_of_many_large_leaves_fit_into_16_bits():
    """Without regularisation and with a large rate, steps are as large as they may be, and there are many."""
    X, z, rng = problem(0, n=60)
    learner = BoostedTrees(leaves="newton", n_trees=4096, max_depth=1, learning_rate=9.0,
                           regularisation=0.0, min_hessian=0.0, features_per_node=1)  # fmt: skip
    encoder, bit = learner.learn(learner.prepare(X, rng), z, None, rng)
    encoder.check()
    assert np.abs(encoder.value.astype(int)).max() > 5
    sums = encoder.scores(X)[:, 0] / encoder.unit[0]
    assert np.abs(sums).max() <= MAX_SUM
    np.testing.assert_array_equal(np.where(sums > 0, 1, -1), bit)


class TestUnusualData:
    def learn(self, X, z, weights=None, **parameters):
        rng = np.random.default_rng(0)
        learner = BoostedTrees(leaves="newton", **{"n_trees": 20, **parameters})
        encoder, bit = learner.learn(learner.prepare(X, rng), np.asarray(z, np.int8), weights, rng)
        encoder.check()
        np.testing.assert_array_equal(np.where(encoder.scores(X)[:, 0] > 0, 1, -1), bit)
        return encoder, bit

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_one_class(self, sign):
        encoder, bit = self.learn(problem(0)[0], np.full(80, sign))
        assert (bit == sign).all()
        assert len(encoder.bit_ptr) == 2
        assert (np.sign(encoder.scores(np.random.default_rng(1).random((9, 4)))) == sign).all()

    def test_constant_features_give_the_heavier_class(self):
        _, bit = self.learn(np.ones((40, 2)), [1] * 15 + [-1] * 25, np.array([2.0] * 15 + [1.0] * 25))
        assert (bit == 1).all()

    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_few_rows(self, n):
        X = np.arange(n, dtype=float)[:, None]
        _, bit = self.learn(X, [1, -1, 1][:n], min_hessian=0.0, regularisation=0.1, max_depth=3)
        assert bit.tolist() == [1, -1, 1][:n]

    def test_equal_features(self):
        X, z, _ = problem(0)
        encoder, bit = self.learn(np.repeat(X[:, :1], 40, axis=1), z)
        alone, same = self.learn(X[:, :1], z)
        np.testing.assert_array_equal(bit, same)
        assert encoder.unit == alone.unit

    @pytest.mark.parametrize("weights", [np.logspace(-30, 30, 80), np.zeros(80), np.eye(80)[3], np.full(80, 1e308)])
    def test_extreme_weights(self, weights):
        X, z, _ = problem(0)
        encoder, bit = self.learn(X, z, weights)
        assert np.isfinite(encoder.scores(X)).all()
        assert bit[np.argmax(weights)] == z[np.argmax(weights)]

    def test_heavy_examples_are_fitted_better(self):
        rng = np.random.default_rng(0)
        X, z = rng.random((400, 1)), rng.choice([-1, 1], 400)  # noise, which trees can only memorise
        heavy = rng.random(400) < 0.2
        _, bit = self.learn(X, z, np.where(heavy, 50.0, 0.1), n_trees=5, max_depth=5, min_hessian=0.0)
        assert (bit == z)[heavy].mean() > (bit == z)[~heavy].mean() + 0.1

    def test_scale_of_weights_does_not_matter(self):
        X, z, rng = problem(0)
        weights = rng.integers(1, 9, 80).astype(float)
        a, b = (self.learn(X, z, w)[0].arrays() for w in (weights, weights * 1024))
        for name, array in a.items():
            np.testing.assert_array_equal(array, b[name])

    def test_early_stopping_at_zero_error(self):
        X = np.random.default_rng(0).random((300, 2)).round(1)
        z = np.where(X[:, 0] > 0.55, 1, -1)
        for early_stopping, trees in ((True, 1), (False, 20)):
            encoder, bit = self.learn(X, z, early_stopping=early_stopping)
            assert (bit == z).all()
            assert encoder.bit_ptr[-1] == trees

    def test_learning_rate_depends_on_the_number_of_rows(self, monkeypatch):
        X, z, _ = problem(0)
        small = self.learn(X, z, learning_rate=0.3)[0]
        np.testing.assert_array_equal(self.learn(X, z)[0].unit, small.unit)
        monkeypatch.setattr("hashgrove.functions.boosting.MANY_ROWS", 80)
        large = self.learn(X, z, learning_rate=0.7)[0]
        np.testing.assert_array_equal(self.learn(X, z)[0].unit, large.unit)
        assert BoostedTrees(start="linear")._rate(80) == 0.5


LEARNERS = {leaves: BoostedTrees(n_trees=15, max_depth=3, leaves=leaves) for leaves in ("sign", "newton")}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
class TestStart:
    def margins(self, learner, X, z, start, **parameters):
        rng = np.random.default_rng(0)
        data = learner.prepare(X, rng)
        encoder, unit = learner._boost(data.binned, np.asarray(z, np.int8), None, rng, start=start)
        encoder.check()
        return unit * encoder.scores_of_bins(data.binned.bins)[0]

    def test_trees_learn_what_the_start_leaves_open(self, learner):
        X, z, _ = problem(0, n=400)
        start = 3 * (X[:, 0] - 0.5)
        added = self.margins(learner, X, z, start)
        assert ((start + added > 0) == (z > 0)).mean() > ((start > 0) == (z > 0)).mean() + 0.1
        correlations = [
            abs(np.corrcoef(X[:, 0], margin)[0, 1]) for margin in (added, self.margins(learner, X, z, None))
        ]
        assert correlations[0] < correlations[1] - 0.1

    def test_a_start_of_zero_changes_nothing(self, learner):
        X, z, _ = problem(0)
        np.testing.assert_array_equal(self.margins(learner, X, z, np.zeros(80)), self.margins(learner, X, z, None))

    @pytest.mark.parametrize("certainty", [30.0, 1e6])
    def test_a_start_that_is_right_stays_right(self, learner, certainty):
        X, z, _ = problem(0)
        start = certainty * z
        assert ((start + self.margins(learner, X, z, start) > 0) == (z > 0)).all()

    def test_nothing_to_learn(self, learner):
        z = np.array([1, -1] * 20)
        added = self.margins(learner, np.ones((40, 2)), z, np.zeros(40))
        np.testing.assert_allclose(added, 0, atol=1e-6)

    def test_one_class(self, learner):
        X = problem(0)[0]
        start = X[:, 0] - 0.5
        assert (start + self.margins(learner, X, np.ones(80), start) > 0).all()


def encoders(n_bits=3):
    X, _, rng = problem(0, n=200, d=6)
    learner = BoostedTrees(leaves="newton", n_trees=4, max_depth=3)
    data = learner.prepare(X, rng)
    return [learner.learn(data, rng.choice([-1, 1], 200).astype(np.int8), None, rng)[0] for _ in range(n_bits)], X


def test_concatenate_refuses_another_binning():
    (first, second, _), _ = encoders()
    with pytest.raises(ValueError, match="LeafTrees encoders must have the same 'low' and 'scale'"):
        type(first).concatenate([first, replace(second, low=second.low + 1)])


POINTERS_THAT_WRAP = [0, 2**31 - 1, -(2**31), -1, 12]  # the differences are positive if they are taken in int32
HOSTILE = [
    ("unit", lambda a: a * 0, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: -a, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: a * 0 + 1e305, "'unit' must be 3 positive numbers"),
    ("unit", lambda a: a[:2], "'unit' must be 3 positive numbers"),
    ("bit_ptr", lambda a: a[::-1].copy(), "'bit_ptr' must increase strictly from 0 to 12"),
    ("bit_ptr", lambda a: np.array(POINTERS_THAT_WRAP, np.int32), "'bit_ptr' must increase strictly"),
    ("feature", lambda a: a + np.uint32(6), "'feature' must be below the number of features, 6"),
    ("child", lambda a: np.where(a > 0, a + 1000, a).astype(np.uint32), "'child' must point to two later"),
    ("child", lambda a: np.where(a > 0, 1, a).astype(np.uint32), "'child' must point to two later"),
    ("child", lambda a: np.where(a > 0, 2**32 - 1, a).astype(np.uint32), "'child' must point to two later"),
    ("value", lambda a: np.ones_like(a), "'value' must be 0 in inner nodes"),
    ("tree_ptr", lambda a: a[:-1], "'tree_ptr' must increase strictly"),
    ("tree_ptr", lambda a: np.array([*POINTERS_THAT_WRAP[:-1], len(a)], np.int32), "'tree_ptr' must increase"),
]


@pytest.mark.parametrize(("name", "change", "message"), HOSTILE)
def test_hostile_tables_are_refused(name, change, message):
    arrays = LeafTrees.concatenate(encoders()[0]).arrays()
    LeafTrees.from_arrays(arrays)
    with pytest.raises(ValueError, match=message):
        LeafTrees.from_arrays(arrays | {name: change(arrays[name])})


def test_leaves_whose_sum_could_overflow_are_refused():
    """258 trees with leaves of 127 reach 32,766; one more tree could reach beyond 16 bits."""
    encoder = encoders()[0][0]
    largest = replace(encoder, value=np.where(encoder.child > 0, 0, 127).astype(np.int8))
    joined = type(encoder).concatenate([largest] * 65)  # 4 trees each
    for n_trees, fits in ((258, True), (259, False)):
        pointers = np.array([0, n_trees, 260], np.int32)
        changed = replace(joined, bit_ptr=pointers, unit=np.ones(2))
        if fits:
            changed.check()
            assert changed.scores(np.random.default_rng(0).random((70, 6)))[0, 0] == 258 * 127
        else:
            with pytest.raises(ValueError, match="must sum to at most 32767 per bit"):
                changed.check()


def test_a_tree_of_unrepresentable_size_allocates_nothing():
    arrays = LeafTrees.concatenate(encoders()[0]).arrays()
    arrays |= {name: arrays[name][:3] for name in ("feature", "threshold", "child", "value")}
    arrays |= {"bit_ptr": np.array([0, 4], np.int32), "unit": np.ones(1)}
    arrays["tree_ptr"] = np.array([*POINTERS_THAT_WRAP[:-1], 3], np.int32)
    with pytest.raises(ValueError, match="'tree_ptr' must increase strictly from 0 to 3"):
        LeafTrees.from_arrays(arrays)


def test_the_configuration_of_the_paper_does_not_depend_on_the_defaults():
    paper = BoostedTrees.paper()
    expected = {"leaves": "sign", "n_trees": 200, "max_depth": 4, "features_per_node": 200, "subset": "node"}
    expected |= {"trimming": 0.1, "min_points": 5, "early_stopping": False}
    assert paper.get_params().items() >= expected.items()
    assert (
        BoostedTrees.paper(n_trees=7, max_depth=6).get_params().items()
        >= (expected | {"n_trees": 7, "max_depth": 6}).items()
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leaves": "real"}, "'leaves' parameter must be one of"),
        ({"learning_rate": 0}, "'learning_rate' parameter must be a number above 0 and below 10"),
        ({"regularisation": 1e10}, "'regularisation' parameter must be a number of at least 0 and below 1e"),
        ({"min_hessian": np.inf}, "'min_hessian' parameter must be a number of at least 0"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        BoostedTrees(**parameters).prepare(np.zeros((2, 2)), np.random.default_rng(0))
