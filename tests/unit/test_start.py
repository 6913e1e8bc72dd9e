"""Trees that start from a linear score: the encoder is the sum of both, and the trees mend the errors of the score."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import BoostedTrees, FastHash, load, load_hasher, unpack
from hashgrove.encoders import LeafTrees, Lifted, Linear, Posterior, Sum, Trees
from hashgrove.functions import boosting
from hashgrove.functions.start import CERTAIN, LinearStart
from hashgrove.supervision import ClassLabels
from makers import blob_tags, blobs, pairs_of, sectors, triplets_of

X, Y = blobs(n_classes=6)
X_NEW, Y_NEW = blobs(n_classes=6, seed=1)
TREES = {"sign": Trees, "newton": LeafTrees}


@pytest.fixture(params=TREES)
def leaves(request):
    return request.param


@pytest.fixture(params=["linear", "kernel"])
def start(request):
    return request.param


def trees(leaves="sign", start="linear", **settings):
    small = {"n_trees": 6, "max_depth": 3, "features_per_node": None, "n_anchors": 25}
    return BoostedTrees(leaves=leaves, start=start, **small | settings)


def small(n_bits=6, *, learner=None, **parameters):
    settings = {"generic_bits": 0, "random_state": 0, "n_jobs": 1} | parameters
    return FastHash(n_bits, hash_function=learner or trees(), **settings)


def learn(learner, X, z, *, supervision=None, weights=None):
    data = learner.prepare(X, np.random.default_rng(0), supervision=supervision, n_jobs=1)
    return learner.learn(data, z, weights, np.random.default_rng(1))


def bit_of_class(y=Y):
    return np.where(y % 2 == 0, 1, -1).astype(np.int8)


class TestEncoder:
    def test_its_scores_are_the_linear_part_plus_the_trees(self, leaves, start):
        encoder, bit = learn(trees(leaves, start), X, bit_of_class(), supervision=ClassLabels(Y))
        linear, boosted = encoder.parts
        assert isinstance(encoder, Sum)
        assert type(boosted) is TREES[leaves]
        inner = linear.bits if start == "kernel" else linear
        assert isinstance(linear, Lifted) == (start == "kernel")
        assert [type(part) for part in inner.parts] == [Posterior, Linear]
        scores = encoder.scores(X_NEW)
        np.testing.assert_allclose(scores, linear.scores(X_NEW) + boosted.scores(X_NEW), rtol=1e-12)
        assert np.ptp(linear.scores(X_NEW)) > 0
        np.testing.assert_array_equal(bit, np.where(encoder.scores(X)[:, 0] > 0, 1, -1))

    @pytest.mark.parametrize("labelled", [True, False], ids=["labels", "pairs"])
    def test_the_linear_part_is_half_the_log_odds(self, start, labelled):
        """Of rows that the regressions have not seen, so the model of all rows gives a little more than this."""
        n_anchors = 25 if start == "kernel" else None
        supervision = ClassLabels(Y) if labelled else None
        shared = LinearStart.prepare(X, supervision, np.random.default_rng(0), n_anchors=n_anchors)
        z = bit_of_class()
        found = shared.learn(z[None], [None])[0]
        margin, scores = found.left_out, found.encoder(1.0).scores(X)[:, 0]
        np.testing.assert_allclose(found.encoder(0.25).scores(X)[:, 0], scores / 4, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.seen, scores, rtol=1e-4, atol=1e-5)
        assert np.corrcoef(margin, scores)[0, 1] > 0.9
        assert (margin * z).mean() < (scores * z).mean(), "rows that were left out have smaller margins"
        p = 1 / (1 + np.exp(-2 * margin))
        assert p.mean() == pytest.approx((z > 0).mean(), abs=1e-3), "calibrated"

    @pytest.mark.parametrize("labelled", [True, False], ids=["labels", "pairs"])
    def test_bits_together_have_the_scores_that_each_has_alone(self, start, labelled):
        """To the last bit, or a fit that goes on from a checkpoint would differ from one that was not interrupted."""
        supervision = ClassLabels(Y) if labelled else None
        n_anchors = 25 if start == "kernel" else None
        shared = LinearStart.prepare(X, supervision, np.random.default_rng(0), n_anchors=n_anchors)
        rng = np.random.default_rng(1)
        Z = np.stack([bit_of_class(), *rng.choice(np.int8([-1, 1]), (3, len(Y))), np.ones(len(Y), np.int8)])
        weights = [None, rng.random(len(Y)), None, rng.random(len(Y)), None]
        for z, w, found in zip(Z, weights, shared.learn(Z, weights), strict=True):
            (alone,) = shared.learn(z[None], [w])
            np.testing.assert_array_equal(found.left_out, alone.left_out)
            np.testing.assert_array_equal(found.seen, alone.seen)
            np.testing.assert_array_equal(found.encoder(1.0).scores(X_NEW), alone.encoder(1.0).scores(X_NEW))

    def test_the_trees_see_margins_of_rows_that_were_left_out(self):
        """On labels that are noise the linear score must not look certain, or nothing is left for the trees."""
        rng = np.random.default_rng(0)
        noise, z = rng.normal(size=(60, 50)), np.where(np.arange(60) % 2, 1, -1).astype(np.int8)
        margin = LinearStart.prepare(noise, None, rng).learn(z[None], [None])[0].left_out
        assert np.abs(margin).mean() < 0.5
        assert (margin * z > 0).mean() < 0.75

    def test_weights_decide(self):
        z = bit_of_class()
        wrong = np.arange(len(Y)) % 3 == 0
        z[wrong] *= -1
        weights = np.where(wrong, 0.01, 1.0)
        right = [
            (learn(trees(), X, z, supervision=ClassLabels(Y), weights=w)[1] == bit_of_class()).mean()
            for w in (None, weights)
        ]
        assert right[1] > right[0] + 0.02


class TestConstantBits:
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_a_bit_that_is_always_the_same(self, leaves, start, sign):
        z = np.full(len(Y), sign, np.int8)
        for supervision in (ClassLabels(Y), None):
            encoder, bit = learn(trees(leaves, start), X, z, supervision=supervision)
            assert (bit == sign).all()
            assert (encoder.scores(X_NEW) * sign > 0).all()

    def test_its_margin_is_certain_but_finite(self):
        shared = LinearStart.prepare(X, ClassLabels(Y), np.random.default_rng(0))
        (found,) = shared.learn(np.ones((1, len(Y)), np.int8), [None])
        np.testing.assert_allclose(found.left_out, CERTAIN)
        np.testing.assert_allclose(found.encoder(1.0).scores(X), CERTAIN, rtol=1e-5)

    def test_a_fit_says_so(self):
        """One dissimilar pair cannot outweigh the ties to all other points."""
        rows = np.random.default_rng(0).random((30, 3))
        pairs = [(i, j, -1 if (i, j) == (1, 0) else 1) for i in range(30) for j in range(i)]
        with pytest.warns(UserWarning, match="2 of 2 bits are the same for all points"):
            hasher = small(2).fit(rows, affinity=pairs)
        assert len(np.unique(hasher.transform(rows))) == 1


class TestNoTreeHelps:
    def test_the_linear_score_alone_decides(self, leaves):
        """Rows that are all the same for trees, since they differ by less than a bin, and a bit that is balanced."""
        rows = np.ones((40, 2))
        z = np.where(np.arange(40) % 2, 1, -1).astype(np.int8)
        encoder, bit = learn(trees(leaves), rows, z)
        assert np.isfinite(encoder.scores(rows)).all()
        assert len(set(bit.tolist())) == 1

    def test_trees_that_may_not_split_leave_the_linear_bit_as_it_is(self):
        """A curvature that no leaf reaches: each tree is one leaf, and the start has no bias to mend."""
        z = bit_of_class()
        data = trees("newton", min_hessian=1e8).prepare(X, np.random.default_rng(0), supervision=ClassLabels(Y))
        encoder, bit = trees("newton", min_hessian=1e8).learn(data, z, None, np.random.default_rng(1))
        linear = encoder.parts[0].scores(X)[:, 0]
        assert np.ptp(encoder.parts[1].scores(X)) == 0
        clear = np.abs(linear) > 0.1 * np.abs(linear).mean()
        np.testing.assert_array_equal(bit[clear], np.where(linear[clear] > 0, 1, -1))

    def test_sign_trees_that_are_no_better_than_a_coin(self):
        """The weight of trees is then 0, and one tree that always says the same must not outvote the linear score."""
        z = bit_of_class()
        learner = trees("sign", min_points=10**6)
        data = learner.prepare(X, np.random.default_rng(0), supervision=ClassLabels(Y))
        margin = data.start.learn(z[None], [None])[0].left_out
        encoder, bit = learner.learn(data, z, None, np.random.default_rng(1))
        linear = encoder.parts[0].scores(X)[:, 0]
        assert np.ptp(encoder.parts[1].scores(X)) == 0
        clear = np.abs(margin) > 0.2
        np.testing.assert_array_equal(bit[clear], np.where(linear[clear] > 0, 1, -1))


class TestSupervision:
    @pytest.mark.parametrize("kind", ["affinity", "triplets"])
    def test_pairs_and_triplets(self, leaves, kind):
        target = {"affinity": pairs_of(Y), "triplets": triplets_of(Y)}[kind]
        hasher = small(12, learner=trees(leaves)).fit(X, **{kind: target})
        assert hasher.score(X_NEW, Y_NEW) > 0.6
        assert type(hasher.encoder_.parts[0]) is Linear, "pairs have no labels, so there is no posterior"

    def test_pairs_with_a_kernel(self):
        hasher = small(12, learner=trees(start="kernel")).fit(X, affinity=pairs_of(Y))
        assert hasher.score(X_NEW, Y_NEW) > 0.6

    def test_tags(self, leaves):
        X, tags = blob_tags()
        X_new, tags_new = blob_tags(seed=1)
        assert small(16, learner=trees(leaves)).fit(X, tags).score(X_new, tags_new) > 0.85

    def test_sample_weight(self):
        y = Y.copy()
        rng = np.random.default_rng(0)
        wrong = rng.random(len(y)) < 0.5
        y[wrong] = rng.permutation(y[wrong])
        right_only = small(12).fit(X, y, sample_weight=np.where(wrong, 0.0, 1.0)).score(X_NEW, Y_NEW)
        assert right_only > small(12).fit(X, y).score(X_NEW, Y_NEW) + 0.05


class TestQuality:
    def test_better_than_without_where_single_features_are_useless(self, leaves):
        """Many features with a little information each: only their sum says something."""
        train, new = (blobs(400, 4, 100, noise=0.35, seed=seed) for seed in (0, 1))
        without, with_start = (
            small(8, learner=trees(leaves, start=start)).fit(*train).score(*new) for start in (None, "linear")
        )
        assert with_start > without + 0.15

    def test_trees_mend_what_is_not_linear(self, leaves):
        train, new = sectors(), sectors(seed=1)
        hasher = small(8, learner=trees(leaves, n_trees=40)).fit(*train)
        assert hasher.score(*new) > 0.8
        linear_bits = hasher.encoder_.parts[0]
        assert (unpack(linear_bits.encode(new[0]), 8) != unpack(hasher.transform(new[0]), 8)).mean() > 0.1

    def test_a_kernel_needs_fewer_trees_there(self):
        train, new = sectors(), sectors(seed=1)
        few = [
            small(8, learner=trees("newton", start=start, n_trees=2, n_anchors=60)).fit(*train).score(*new)
            for start in ("linear", "kernel")
        ]
        assert few[1] > few[0] + 0.03


class TestFilesAndGoingOn:
    def test_save_and_load(self, tmp_path, leaves, start):
        hasher = small(5, learner=trees(leaves, start)).fit(X, Y)
        hasher.save(tmp_path / "m")
        encoder = load(tmp_path / "m")
        np.testing.assert_array_equal(encoder.scores(X_NEW), hasher.decision_function(X_NEW))
        np.testing.assert_array_equal(encoder.encode(X_NEW), hasher.transform(X_NEW))
        np.testing.assert_array_equal(unpack(encoder.encode(X_NEW), 5), encoder.scores(X_NEW) > 0)

    def test_warm_start_equals_one_fit(self, tmp_path, leaves, start):
        learner = trees(leaves, start)
        small(7, learner=learner).fit(X, Y).save(tmp_path / "whole")
        small(3, learner=learner).fit(X, Y).save(tmp_path / "first")
        grown = load_hasher(tmp_path / "first", n_bits=7, n_jobs=1).fit(X, Y)
        grown.save(tmp_path / "grown")
        assert (tmp_path / "whole").read_bytes() == (tmp_path / "grown").read_bytes()

    def test_warm_start_of_pairs(self):
        pairs = pairs_of(Y)
        whole = small(6).fit(X, affinity=pairs)
        grown = small(2, warm_start=True).fit(X, affinity=pairs).set_params(n_bits=6).fit(X, affinity=pairs)
        np.testing.assert_array_equal(grown.decision_function(X_NEW), whole.decision_function(X_NEW))

    def test_warm_start_on_other_labels_is_refused(self, start):
        hasher = small(2, learner=trees(start=start), warm_start=True).fit(X, Y)
        before = hasher.transform(X)
        with pytest.raises(ValueError, match="must be those of the previous fit"):
            hasher.set_params(n_bits=4).fit(X_NEW, Y_NEW)
        np.testing.assert_array_equal(hasher.transform(X), before)

    def test_same_bytes_at_any_number_of_threads(self, tmp_path, leaves, start):
        for n in (1, 2):
            small(4, learner=trees(leaves, start), n_jobs=n).fit(X, Y).save(tmp_path / str(n))
        assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()

    def test_the_bit_of_training_is_the_bit_of_the_encoder(self, leaves, start):
        """The objective that the fit recorded is that of the codes that the encoder gives."""
        all_pairs = {"n_similar": None, "n_dissimilar": None, "loss": "ksh", "stagewise": True}
        hasher = small(4, learner=trees(leaves, start), **all_pairs).fit(X, Y)
        bits = np.where(unpack(hasher.transform(X), 4), 1, -1)
        others = ~np.eye(len(Y), dtype=bool)
        objective = ((np.where(Y[:, None] == Y, 1, -1) - bits @ bits.T / 4) ** 2)[others].mean()
        assert hasher.history_[-1].objective == pytest.approx(objective)


def test_without_a_start_nothing_is_drawn_for_it(leaves):
    """A bit without a start is what `learn` gives from the same stream, whatever `n_anchors` says."""
    z = bit_of_class()
    found = [learn(trees(leaves, start=None, n_anchors=n), X, z)[0].arrays() for n in (10, 20)]
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


@pytest.mark.parametrize("start", ["Linear", True, 1])
def test_bad_start(start):
    with pytest.raises(ValueError, match="The 'start' parameter must be one of"):
        small(2, learner=BoostedTrees(start=start)).fit(X, Y)


def test_generic_bits_come_with_a_start_only():
    assert BoostedTrees(start=None).generic_share == 0
    hasher = FastHash(16, hash_function=trees(), random_state=0).fit(X, Y)
    assert hasher.generic_bits_ == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"start": "kernel"}, "tree"),
        ({"start": "linear"}, "node"),
        ({"start": None}, "node"),
        ({"start": "kernel", "subset": "level"}, "level"),
    ],
    ids=["kernel", "linear", "none", "as given"],
)
def test_many_rows_with_a_kernel_start_draw_features_once_per_tree(monkeypatch, settings, expected):
    noise = np.random.default_rng(2).choice(np.int8([-1, 1]), len(Y))  # leaves something to the trees

    def trained(**given):
        learner = trees("newton", features_per_node=2, min_hessian=0.5, **given)
        return learn(learner, X, noise, supervision=ClassLabels(Y))[0].part(LeafTrees)

    few = trained(**settings)
    monkeypatch.setattr("hashgrove.functions.boosting.MANY_ROWS", len(X))
    monkeypatch.setattr("hashgrove.functions.boosting.RATE_OF_MANY", boosting.RATE_OF_FEW)
    monkeypatch.setattr("hashgrove.functions.boosting.RATE_ALONE", boosting.RATE_OF_FEW)
    many = trained(**settings)
    for found, subset in ((few, settings.get("subset") or "node"), (many, expected)):
        wanted = trained(**settings | {"subset": subset})
        np.testing.assert_array_equal(found.feature, wanted.feature)
    assert (few.feature.tolist() == many.feature.tolist()) == (expected != "tree")
