"""Posterior bits: what they learn from, that no row sees its own label, and that they go on where a fit stopped."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax

import naive
from hashgrove import FastHash, PosteriorBits, load, load_hasher, unpack
from hashgrove.encoders import Lifted, Posterior, UnitKernel
from hashgrove.functions.posterior import LabelPosterior, UnitRows
from hashgrove.numerics import leave_one_out
from hashgrove.numerics.rows import Rows
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import ClassLabels, Tags
from makers import blob_tags, blobs, pairs_of, sectors, triplets_of

X, Y = blobs()
X_NEW, Y_NEW = blobs(seed=1)


def small(n_bits=16, **parameters):
    return FastHash(n_bits, **{"hash_function": PosteriorBits(), "random_state": 0, "n_jobs": 1} | parameters)


def phi_of(X, supervision, **settings):
    rng = np.random.default_rng(0)
    rows = UnitRows.of(X, supervision.weights, rng, **settings)
    return LabelPosterior.learn(rows, supervision, power=0.35, rng=rng).phi.take(slice(None))


def model_bytes(hasher, path):
    hasher.save(path)
    return path.read_bytes()


class TestWhatItLearnsFrom:
    def test_classes(self):
        hasher = small().fit(X, Y)
        assert hasher.score(X_NEW, Y_NEW) > 0.75, "chance is about 0.1"
        assert {record.hash_function for record in hasher.history_} == {"PosteriorBits"}
        assert len(hasher.history_) == 12
        assert hasher.generic_bits_ == 4

    def test_labels_of_any_type_give_the_same_codes(self):
        names = np.array([f"class {label:02}" for label in Y])
        np.testing.assert_array_equal(small().fit(X, names).transform(X), small().fit(X, Y).transform(X))

    @pytest.mark.parametrize(
        "form", [np.asarray, sparse.csr_array, lambda tags: [set(np.flatnonzero(t)) for t in tags]]
    )
    def test_tags(self, form):
        X, tags = blob_tags()
        X_new, tags_new = blob_tags(seed=1)
        hasher = small(24).fit(X, form(tags))
        assert hasher.score(X_new, tags_new) > 0.9
        assert not small(24).fit(X, tags[::-1]).score(X_new, tags_new) > 0.9, "tags of other rows"

    def test_a_tag_that_all_rows_have_and_one_that_none_has_do_no_harm(self):
        X, tags = blob_tags()
        more = np.hstack([tags, np.ones((len(tags), 1), int), np.zeros((len(tags), 1), int)])
        hasher = small(24, min_shared=3).fit(X, more)
        assert hasher.score(X, more) > 0.9

    def test_unlabelled_rows_are_left_out_by_learned_bits(self):
        y = np.where(np.arange(len(Y)) % 3 == 0, -1, Y)
        known = y >= 0
        settings = {"generic_bits": 0, "new_classes": 0}  # whole classes have no label
        ours, theirs = small(**settings).fit(X, y, unlabelled=-1), small(**settings).fit(X[known], y[known])
        np.testing.assert_array_equal(ours.transform(X_NEW), theirs.transform(X_NEW))

    @pytest.mark.parametrize(
        "target", [{"affinity": pairs_of(Y)}, {"triplets": triplets_of(Y, 200)}], ids=["pairs", "triplets"]
    )
    def test_pairs_are_refused(self, target):
        message = (
            "PosteriorBits must be given class labels or tags as y, because it learns how likely each label is. "
            "Got pairs or triplets; use hash_function=BoostedTrees(start='linear'), which learns from them."
        )
        with pytest.raises(ValueError) as error:
            small().fit(X, **target)
        assert str(error.value) == message

    def test_rows_count_by_their_weights(self):
        """Rows with wrong labels and no weight do no harm; with weight they do."""
        rng = np.random.default_rng(0)
        wrong = rng.random(len(Y)) < 0.5
        y = np.where(wrong, rng.permutation(Y), Y)
        weights = np.where(wrong, 0.0, 1.0)
        ignored = small().fit(X, y, sample_weight=weights).score(X_NEW, Y_NEW)
        assert ignored > small().fit(X, y).score(X_NEW, Y_NEW) + 0.1
        assert ignored > small().fit(X[~wrong], y[~wrong]).score(X_NEW, Y_NEW) - 0.05
        labels = ClassLabels(Y, weights * len(Y) / weights.sum())
        noisy = ClassLabels(y, labels.weights)
        np.testing.assert_allclose(phi_of(X, noisy), phi_of(X, labels), atol=1e-3)

    @pytest.mark.parametrize("dtype", [np.float32, np.uint8])
    def test_types_of_features(self, dtype):
        scaled = np.rint((X - X.min()) * 60)
        hasher = small().fit(scaled.astype(dtype), Y)
        exact = small().fit(scaled, Y)
        assert (unpack(hasher.transform(scaled.astype(dtype)), 16) == unpack(exact.transform(scaled), 16)).mean() > 0.99

    def test_a_row_of_zeros_and_rows_of_any_length(self):
        rows = X * np.geomspace(1e-200, 1e200, len(X))[:, None]
        rows[3] = 0
        hasher = small().fit(rows, Y)
        assert hasher.score(rows, Y) > 0.9

    def test_more_features_than_rows(self):
        wide, wide_new = (blobs(60, 6, 200, noise=0.1, seed=seed) for seed in (0, 1))
        assert small().fit(*wide).score(*wide_new) > 0.9

    def test_very_wide_rows_are_sketched(self, monkeypatch):
        monkeypatch.setattr("hashgrove.functions.posterior.MAX_FEATURES", 32)
        train, new = (blobs(120, 6, 200, noise=0.05, seed=seed) for seed in (0, 1))
        hasher = small(generic_bits=0).fit(*train)
        assert hasher.encoder_.weights.shape == (6, 200)
        assert hasher.score(*new) > 0.8

    @pytest.mark.parametrize(("power", "n_anchors"), [(0, None), (1.5, None), (0.35, 0), ("a", None), (0.35, 1.5)])
    def test_bad_parameters(self, power, n_anchors):
        with pytest.raises(ValueError, match=r"The '(power|n_anchors)' parameter must be"):
            small(hash_function=PosteriorBits(power=power, n_anchors=n_anchors)).fit(X, Y)


class TestLogistic:
    LOGISTIC = PosteriorBits(classifier="logistic")

    def test_classes_and_tags(self):
        assert small(hash_function=self.LOGISTIC).fit(X, Y).score(X_NEW, Y_NEW) > 0.75
        (rows, tags), (new, tags_new) = blob_tags(), blob_tags(seed=1)
        assert small(24, hash_function=self.LOGISTIC).fit(rows, tags).score(new, tags_new) > 0.9

    def test_rows_without_weight_do_no_harm(self):
        rng = np.random.default_rng(0)
        wrong = rng.random(len(Y)) < 0.5
        y = np.where(wrong, rng.permutation(Y), Y)
        scores = [
            small(hash_function=self.LOGISTIC).fit(X, y, sample_weight=weights).score(X_NEW, Y_NEW)
            for weights in (np.where(wrong, 0.0, 1.0), None)
        ]
        assert scores[0] > scores[1] + 0.1

    def test_more_features_than_rows_and_anchors(self):
        wide, wide_new = (blobs(60, 6, 200, noise=0.1, seed=seed) for seed in (0, 1))
        assert small(hash_function=self.LOGISTIC).fit(*wide).score(*wide_new) > 0.9
        curved = PosteriorBits(classifier="logistic", n_anchors=60)
        assert small(12, hash_function=curved, generic_bits=0).fit(*sectors()).score(*sectors(seed=1)) > 0.6

    def test_logits_are_calibrated_and_phi_is_made_of_them(self):
        rng = np.random.default_rng(0)
        rows = UnitRows.of(X, None, rng)
        found = LabelPosterior.learn(rows, ClassLabels(Y), power=1.0, rng=rng, classifier="logistic")
        p = softmax(found.logits.take(slice(None)), axis=1)
        np.testing.assert_allclose(found.phi.take(slice(None)), p / np.linalg.norm(p, axis=1, keepdims=True), atol=1e-5)
        assert abs(p.max(axis=1).mean() - (p.argmax(axis=1) == Y).mean()) < 0.1

    def test_the_same_model_with_any_number_of_threads(self, tmp_path):
        one, two = (small(hash_function=self.LOGISTIC, n_jobs=n).fit(X, Y) for n in (1, 2))
        assert model_bytes(one, tmp_path / "1") == model_bytes(two, tmp_path / "2")

    def test_bad_classifier(self):
        with pytest.raises(ValueError, match="The 'classifier' parameter must be"):
            small(hash_function=PosteriorBits(classifier="svm")).fit(X, Y)


class TestAnchors:
    def test_they_see_what_is_not_linear(self):
        train, new = sectors(), sectors(seed=1)
        linear, lifted = (
            small(12, hash_function=PosteriorBits(n_anchors=n), generic_bits=0).fit(*train) for n in (None, 60)
        )
        assert lifted.score(*new) > linear.score(*new) + 0.2
        assert isinstance(lifted.encoder_, Lifted)
        assert isinstance(lifted.encoder_.lift, UnitKernel)
        assert lifted.encoder_.lift.anchors.shape == (60, 2)

    def test_they_are_training_rows_and_no_more_than_these(self):
        hasher = small(hash_function=PosteriorBits(n_anchors=1000), generic_bits=0).fit(X, Y)
        anchors = hasher.encoder_.lift.anchors
        assert anchors.shape == X.shape
        np.testing.assert_allclose(np.sort(anchors, axis=0), np.sort(unit_rows(X), axis=0))

    def test_an_anchor_of_zeros_can_be_saved_and_loaded(self, tmp_path):
        rows = X.copy()
        rows[:3] = 0
        hasher = small(hash_function=PosteriorBits(n_anchors=1000)).fit(rows, Y)
        hasher.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").encode(X_NEW), hasher.transform(X_NEW))

    def test_rows_that_are_all_the_same(self):
        with pytest.warns(UserWarning, match="bits are the same for all points"):
            hasher = small(hash_function=PosteriorBits(n_anchors=5)).fit(np.ones((20, 3)), np.arange(20) % 2)
        assert np.isfinite(hasher.decision_function(np.ones((2, 3)))).all()


def naive_phi(X, indicator, *, penalty, slope, shift, exclusive):
    """Softened probabilities, each from a regression of all other rows."""
    left_out = naive.left_out_predictions(X, indicator, weights=None, penalty=penalty) * slope + shift
    p = softmax(left_out, axis=1) if exclusive else expit(left_out)
    return p**0.35 / np.linalg.norm(p**0.35, axis=1, keepdims=True)


class TestLeftOut:
    @pytest.mark.parametrize("exclusive", [True, False], ids=["classes", "tags"])
    def test_phi_comes_from_regressions_that_had_not_seen_the_row(self, exclusive):
        if exclusive:
            X, labels = blobs(60, 4, 5)
            supervision = ClassLabels(labels)
        else:
            X, tags = blob_tags(60, 5)
            supervision = Tags(sparse.csr_array(tags.astype(float)), np.zeros(60, bool))
        rng = np.random.default_rng(0)
        rows = UnitRows.of(X, None, rng)
        found = LabelPosterior.learn(rows, supervision, power=0.35, rng=rng)
        plain = rows.ridge.solve(supervision.indicator().toarray(), found.label_penalty)
        slope = found.weights[:, 0] / plain.weights[:, 0]
        expected = naive_phi(
            unit_rows(X).astype(float),
            supervision.indicator().toarray(),
            penalty=found.label_penalty,
            slope=slope,
            shift=found.bias - plain.bias * slope,
            exclusive=exclusive,
        )
        np.testing.assert_allclose(found.phi.take(slice(None)), expected, atol=1e-3)

    @pytest.mark.parametrize("n_anchors", [None, 30])
    def test_a_row_does_not_see_its_own_label(self, n_anchors):
        """In noise the label of a row says nothing about it. Its phi must not move towards a label that it is given."""
        rng = np.random.default_rng(0)
        noise, y = rng.normal(size=(80, 40)), np.arange(80) % 2
        before = phi_of(noise, ClassLabels(y), n_anchors=n_anchors)
        moves = []
        for row in range(0, 80, 2):  # rows of class 0
            flipped = y.copy()
            flipped[row] = 1
            after = phi_of(noise, ClassLabels(flipped), n_anchors=n_anchors)
            moves.append((after[row, 1] - after[row, 0]) - (before[row, 1] - before[row, 0]))
        assert np.mean(moves) < 0.02

    def test_the_model_that_saw_all_rows_does_leak(self):
        """The counterpart of the test above: what `phi` would be without leaving rows out."""
        rng = np.random.default_rng(0)
        noise, y = rng.normal(size=(80, 40)), np.arange(80) % 2
        rows = unit_rows(noise)
        ridge = leave_one_out.LeaveOneOutRidge(Rows(rows))
        flipped = y.copy()
        flipped[0] = 1
        seen, left_out = [], []
        for labels in (y, flipped):
            target = ClassLabels(labels).indicator().toarray()
            model = ridge.solve(target, 0.01)
            seen.append((rows[0] @ model.weights.T + model.bias)[1])
            left_out.append(ridge.left_out(model, target)[0, 1])
        assert seen[1] > seen[0] + 0.2
        assert left_out[1] == pytest.approx(left_out[0], abs=0.05)

    def test_noise_gets_no_confident_probabilities(self):
        noise = np.random.default_rng(0).normal(size=(100, 60))
        phi = phi_of(noise, ClassLabels(np.arange(100) % 2))
        assert np.abs(phi - np.sqrt(0.5)).mean() < 0.1


class TestGoingOn:
    @pytest.mark.parametrize("hash_function", [PosteriorBits(), PosteriorBits(n_anchors=30)], ids=str)
    @pytest.mark.parametrize("tags", [False, True], ids=["classes", "tags"])
    def test_warm_start_equals_one_fit(self, tmp_path, hash_function, tags):
        data = blob_tags() if tags else (X, Y)
        whole = small(24, hash_function=hash_function).fit(*data)
        grown = small(8, hash_function=hash_function, warm_start=True).fit(*data)
        grown.set_params(n_bits=24).fit(*data)
        assert len(grown.history_) == 18
        assert model_bytes(grown, tmp_path / "a") == model_bytes(whole, tmp_path / "b")
        np.testing.assert_array_equal(grown.inferred_codes_, whole.inferred_codes_)

    def test_warm_start_on_other_data_is_refused(self, monkeypatch):
        """Before any work is done, and with a way that works."""
        hasher = small(8, warm_start=True).fit(X, Y)
        before = hasher.transform(X)
        monkeypatch.setattr(PosteriorBits, "prepare", lambda *_, **__: pytest.fail("work was done"))
        for rows, labels in ((X_NEW, Y_NEW), (X, (Y + 1) % 7)):
            with pytest.raises(ValueError, match=r"With warm_start=True, .* must be those of the previous fit.*encode"):
                hasher.set_params(n_bits=12).fit(rows, labels)
        np.testing.assert_array_equal(hasher.transform(X), before)

    def test_without_a_seed(self):
        """Anchors are drawn again, and would be others."""
        hasher = small(8, warm_start=True, random_state=None).fit(X, Y)
        assert hasher.set_params(n_bits=12).fit(X, Y).encoder_.n_bits == 12
        hasher = small(8, hash_function=PosteriorBits(n_anchors=30), warm_start=True, random_state=None).fit(X, Y)
        with pytest.raises(ValueError, match="and 'random_state' an integer"):
            hasher.set_params(n_bits=12).fit(X, Y)

    def test_a_loaded_hasher_goes_on(self, tmp_path):
        small(8).fit(X, Y).save(tmp_path / "m")
        grown = load_hasher(tmp_path / "m", n_bits=24, n_jobs=1).fit(X, Y)
        assert isinstance(grown.hash_function_, PosteriorBits)
        np.testing.assert_array_equal(grown.transform(X_NEW), small(24).fit(X, Y).transform(X_NEW))


@pytest.mark.parametrize("hash_function", [PosteriorBits(), PosteriorBits(n_anchors=30)], ids=str)
def test_save_and_load(tmp_path, hash_function):
    hasher = small(13, hash_function=hash_function).fit(X, Y)
    hasher.save(tmp_path / "m")
    encoder = load(tmp_path / "m")
    np.testing.assert_array_equal(encoder.scores(X_NEW), hasher.decision_function(X_NEW))
    np.testing.assert_array_equal(encoder.encode(X_NEW), hasher.transform(X_NEW))


@pytest.mark.parametrize("hash_function", [PosteriorBits(), PosteriorBits(n_anchors=30)], ids=str)
def test_same_bytes_at_any_number_of_threads_and_other_bytes_with_another_seed(tmp_path, hash_function):
    found = [
        model_bytes(small(16, hash_function=hash_function, n_jobs=n, random_state=seed).fit(X, Y), tmp_path / "m")
        for n, seed in ((1, 0), (2, 0), (1, 1))
    ]
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_scores_of_the_encoder_are_linear_in_phi():
    hasher = small(generic_bits=0).fit(X, Y)
    encoder = hasher.encoder_
    assert isinstance(encoder, Posterior)
    expected = naive.posterior_scores(X_NEW[:20], **encoder.arrays())
    np.testing.assert_allclose(encoder.scores(X_NEW[:20]), expected, rtol=1e-3, atol=1e-4)


def test_the_recorded_training_error_is_that_of_the_codes():
    hasher = small(generic_bits=0).fit(X, Y)
    bits, inferred = unpack(hasher.transform(X), 16), unpack(hasher.inferred_codes_, 16)
    np.testing.assert_allclose(
        [record.training_error for record in hasher.history_], (bits != inferred).mean(axis=0), atol=1e-12
    )


def test_tags_that_are_all_very_unlikely_have_finite_scores():
    """Their probabilities are below what the square of a float32 can be."""
    encoder = Posterior(
        weights=np.array([[-60.0, 0], [-65, 0], [-68, 0]], np.float32),
        bias=np.zeros(3, np.float32),
        power=np.array(1.0, np.float32),
        exclusive=np.array(0, np.uint8),
        book=np.ones((1, 3), np.float32),
        offset=np.zeros(1, np.float32),
    )
    scores = encoder.scores([[1.0, 0.0]])
    np.testing.assert_allclose(scores, naive.posterior_scores(np.array([[1.0, 0.0]]), **encoder.arrays()), rtol=1e-4)
