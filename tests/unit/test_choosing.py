"""hash_function="auto": the same choice every time, the right one, and written down where users look for it."""

from __future__ import annotations

import json
import logging
import re
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import sparse

from hashgrove import ITQ, BoostedTrees, FastHash, PosteriorBits, choosing, evaluate, load_hasher
from hashgrove.choosing import LEAST_ROWS, Candidate, candidates
from hashgrove.cli import main
from hashgrove.functions import DecodableBits, posterior
from hashgrove.metrics import evaluate_vectors
from hashgrove.numerics.leave_one_out import LeaveOneOutRidge
from hashgrove.runtime.estimators import describe
from hashgrove.step_one import StepOne
from hashgrove.storage.modelfile import read_header
from hashgrove.storage.models import plain
from hashgrove.supervision import ClassLabels, Tags
from hashgrove.trials import Contest
from makers import blob_tags, blobs, pairs_of, sectors, triplets_of

X, Y = blobs(120, 6)
X_NEW, Y_NEW = blobs(120, 6, seed=1)
SMALL = {"n_trees": 4, "max_depth": 2, "features_per_node": 8, "start": "linear"}


def few():
    """The kinds of hash functions that are tried, in small."""
    return (
        Candidate(PosteriorBits()),
        Candidate(BoostedTrees(**SMALL, leaves="newton")),
        Candidate(BoostedTrees.paper(**SMALL), lead=0.01),
    )


@pytest.fixture
def small_candidates(monkeypatch):
    monkeypatch.setattr(choosing, "candidates", few)


def auto(n_bits=8, **parameters):
    return FastHash(n_bits, **{"random_state": 0, "n_jobs": 1} | parameters)


@pytest.fixture
def no_trial_in_full(monkeypatch):
    monkeypatch.setattr(choosing, "_close_second", lambda *_: None)


@pytest.mark.usefixtures("small_candidates")
class TestChoice:
    def test_auto_is_the_default(self):
        assert FastHash().hash_function == "auto"
        hasher = auto().fit(X, Y)
        assert hasher.choice_.hash_function is hasher.hash_function_
        names = [describe(c.hash_function) for c in few()]
        assert {trial.hash_function for trial in hasher.choice_.trials} <= set(names)
        assert all(0 < trial.value <= 1 and 0 <= trial.error < 0.2 for trial in hasher.choice_.trials)
        assert (hasher.choice_.n_rows, hasher.choice_.n_held_out) == (96, 24)

    def test_the_fit_is_that_of_the_chosen_hash_function(self):
        chosen = auto().fit(X, Y)
        given = auto(hash_function=chosen.hash_function_).fit(X, Y)
        np.testing.assert_array_equal(chosen.decision_function(X_NEW), given.decision_function(X_NEW))
        assert given.choice_ is None

    def test_codes_that_decode_are_tried_for_decoded_rankings_only(self):
        rows, y = blobs(240, 20, noise=0.3)
        plain_ranking, decoded = (auto(16, ranking=r).fit(rows, y).choice_ for r in ("hamming", "decoded"))
        name = describe(DecodableBits())
        assert name not in {trial.hash_function for trial in plain_ranking.trials}
        values = {trial.hash_function: trial.value for trial in decoded.trials}
        assert values[name] > values[describe(PosteriorBits())]
        assert describe(decoded.hash_function) == name

    def test_codes_that_decode_need_no_trial_with_few_rows_per_class(self):
        rows, y = blobs(160, 20)
        choice = auto(ranking="decoded").fit(rows, y).choice_
        assert (describe(choice.hash_function), choice.trials) == (describe(DecodableBits()), ())
        assert "fewer than 10 rows per class" in choice.why
        assert auto(ranking="decoded", metric="precision@10").fit(rows, y).choice_.trials

    def test_what_codes_state_is_measured(self):
        rows, y = blobs(240, 20, noise=0.3)
        encoder = FastHash(16, hash_function="decodable", random_state=0).fit(rows[:160], y[:160]).encoder_
        left, labels = rows[160:], y[160:]
        options = {"n_jobs": 1, "y_queries": labels, "y_database": labels, "k": 10, "exclude_self": True}
        p = encoder.as_queries(left).probabilities
        stated = evaluate_vectors(encoder.decoder.decode(encoder.encode(left)), p, metric="dot", **options)
        contest = Contest(None, rows[:160], ClassLabels(y[:160]), left, labels, {}, "map", 1)
        assert contest.report(encoder).map == stated.map
        assert stated.map > evaluate(*[encoder.encode(left)] * 2, knn=None, **options).map

    def test_tags_have_no_codes_that_decode(self):
        trials = auto(ranking="decoded").fit(*blob_tags()).choice_.trials
        assert describe(DecodableBits()) not in {trial.hash_function for trial in trials}

    @pytest.mark.usefixtures("no_trial_in_full")
    def test_trials_share_decompositions_and_find_the_same_without_sharing(self, monkeypatch):
        sizes = []

        class Counted(LeaveOneOutRidge):
            def __init__(self, X, *args, **options):
                sizes.append(X.shape)
                super().__init__(X, *args, **options)

        monkeypatch.setattr(posterior, "LeaveOneOutRidge", Counted)
        together = auto().fit(X, Y)
        n_shared, n_trials = len(sizes), len(together.choice_.trials)
        monkeypatch.setattr(choosing, "sharing", nullcontext)
        apart = auto().fit(X, Y)
        assert (n_shared, len(sizes) - n_shared) == (4, 2 * n_trials + 2)  # rows and phi: of the trials, of the fit
        assert together.choice_.trials == apart.choice_.trials
        np.testing.assert_array_equal(together.decision_function(X_NEW), apart.decision_function(X_NEW))

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_tags(self, form):
        rows, tags = blob_tags(120)
        hasher = auto().fit(rows, form(tags))
        assert len(hasher.choice_.trials) >= 2
        assert hasher.score(rows, tags) > 0.5

    @pytest.mark.parametrize("kind", ["affinity", "triplets"])
    def test_pairs_have_no_trial(self, kind, monkeypatch):
        target = {"affinity": pairs_of(Y), "triplets": triplets_of(Y, 300)}[kind]
        monkeypatch.setattr(choosing, "BoostedTrees", lambda start: BoostedTrees.paper(**SMALL | {"start": start}))
        hasher = auto().fit(X, **{kind: target})
        assert isinstance(hasher.hash_function_, BoostedTrees)
        assert hasher.hash_function_.start == "linear"
        assert hasher.choice_.trials == ()
        assert "Pairs have no labels" in hasher.choice_.why

    def test_too_few_rows_have_no_trial(self):
        rows, y = X[: LEAST_ROWS - 1], Y[: LEAST_ROWS - 1]
        hasher = auto().fit(rows, y)
        assert isinstance(hasher.hash_function_, PosteriorBits)
        assert hasher.choice_.trials == ()
        assert hasher.choice_.why == "There are too few rows for a trial: 49."
        assert len(auto().fit(X[:LEAST_ROWS], Y[:LEAST_ROWS]).choice_.trials) >= 2

    @pytest.mark.parametrize("seed", range(4))
    def test_classes_of_two_rows_can_be_fitted(self, seed):
        """It may be that no two of the few held-out rows are of one class; then nothing can be measured."""
        y = np.arange(LEAST_ROWS) // 2
        hasher = auto(random_state=seed).fit(X[:LEAST_ROWS], y)
        assert hasher.transform(X_NEW).shape == (120, 1)

    def test_held_out_rows_without_a_similar_pair(self, monkeypatch):
        monkeypatch.setattr(choosing, "HELD_OUT", 1)  # of each class
        hasher = auto().fit(X[:60], Y[:60])
        assert hasher.choice_.trials == ()
        assert isinstance(hasher.hash_function_, PosteriorBits)
        assert hasher.choice_.why == (
            "The held-out rows have no similar or no dissimilar pair, so nothing can be measured."
        )

    def test_rows_to_learn_from_without_a_dissimilar_pair(self):
        y, groups = np.repeat([0, 1, 2], [8, 8, 80]), np.repeat([0, 1], [16, 80])  # the first group is held out
        hasher = auto().fit(X[:96], y, groups=groups)
        assert hasher.choice_.why == (
            "The remaining rows have no similar or no dissimilar pair, so nothing can be measured."
        )

    def test_a_class_that_is_in_the_held_out_rows_only(self):
        y = Y.copy()
        y[7] = 100
        for seed in range(3):
            assert auto(random_state=seed).fit(X, y).choice_.trials

    def test_unlabelled_rows_and_weights(self):
        y = np.where(np.arange(len(Y)) % 4 == 0, -1, Y)
        hasher = auto().fit(X, y, unlabelled=-1, sample_weight=np.linspace(0.5, 2, len(y)))
        assert hasher.choice_.n_rows + hasher.choice_.n_held_out == 90

    @pytest.mark.usefixtures("no_trial_in_full")
    def test_a_trial_learns_with_the_weights_of_its_rows(self):
        weights, seen = np.linspace(0, 2, len(Y)), []
        encoder = ITQ(8, random_state=0).fit(X).encoder_

        def fit(learner, rows, known):
            seen.append((rows, known))
            return encoder

        choosing.choose(fit, X, ClassLabels(Y, weights), np.random.default_rng(0))
        assert len(seen) == len(few())
        for rows, known in seen:
            places = [np.flatnonzero((row == X).all(axis=1))[0] for row in rows]
            np.testing.assert_array_equal(known.weights, weights[places])
            np.testing.assert_array_equal(known.classes, Y[places])

    def test_only_a_sample_is_tried(self, monkeypatch):
        monkeypatch.setattr(choosing, "SAMPLE_ROWS", 60)
        monkeypatch.setattr(choosing, "MORE_ROWS", 20)
        choice = auto().fit(X, Y).choice_
        assert (choice.n_rows, choice.n_held_out) == (48, 12 + 20)

    @pytest.mark.parametrize(("n_classes", "size", "n_held_out"), [(12, 5, 2), (25, 100, 20)])
    def test_rows_are_held_out_in_pairs_of_a_class(self, n_classes, size, n_held_out):
        y = np.arange(n_classes * size) % n_classes
        trained, held_out = choosing._split(ClassLabels(y), np.random.default_rng(0))
        np.testing.assert_array_equal(np.sort(np.concatenate([trained, held_out])), np.arange(len(y)))
        assert set(np.bincount(y[held_out])) == {n_held_out}, "every held-out row has another one of its class"

    def test_it_measures_what_the_user_asks_for(self):
        """The first ten items are better than the rest of a ranking."""
        by_map, by_precision = (auto(metric=metric).fit(X, Y).choice_ for metric in ("map", "precision@10"))
        assert (by_map.metric, by_precision.to_dict()["metric"]) == ("map", "precision@10")
        assert by_precision.trials[0].value != by_map.trials[0].value
        with pytest.raises(ValueError, match="The 'metric' parameter must be"):
            auto(metric="recall").fit(X, Y)

    def test_a_later_candidate_needs_more_than_its_standard_error(self):
        rng = np.random.default_rng(0)
        tried = (Candidate(PosteriorBits()), Candidate(BoostedTrees(start="linear")))
        first = rng.random(100)
        noise = rng.standard_normal(100)
        noise = (noise - noise.mean()) / noise.std(ddof=1)  # the standard error of its mean is .1
        for ahead, expected in ((-0.05, 0), (0.05, 0), (0.09, 0), (0.11, 1)):
            assert choosing._best(tried, {0: first, 1: first + ahead + noise}) == expected

    @pytest.mark.parametrize(
        ("maps", "n_tried"),
        [((0.6, 0.7, 0.585), 3), ((0.6, 0.7, 0.595), 5), ((0.6, 0.5, 0.7), 5)],
        ids=["trees far behind ridge", "trees hardly behind ridge", "trees ahead"],
    )
    def test_other_trees_are_tried_unless_the_first_are_far_behind_the_ridge_posterior(self, maps, n_tried):
        tried, values = candidates(), {}
        for place, candidate in enumerate(tried):
            if not choosing._is_hopeless(candidate.hash_function, tried, values):
                values[place] = np.full(5, (*maps, 0.5, 0.5)[place])
        assert list(values) == list(range(n_tried))

    def test_a_lead_that_queries_do_not_agree_on_is_not_clear(self):
        tried, rng = candidates(), np.random.default_rng(0)
        noise = rng.standard_normal(50)
        noise = (noise - noise.mean()) / noise.std(ddof=1) * np.sqrt(50)  # the standard error of its mean is 1
        for error, is_hopeless in ((0.02, False), (0.005, True)):
            values = {0: np.full(50, 0.6), 2: np.full(50, 0.58) + error * noise}
            assert choosing._is_hopeless(tried[3].hash_function, tried, values) == is_hopeless

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ((0.6, 0.61, 0.58, 0.59, 0.605), 4),
            ((0.6, 0.61, 0.58, 0.59, 0.5), 3),
            ((0.6, 0.61, 0.4, 0.4, 0.4), None),
            ((0.6, 0.61, 0.7, 0.4, 0.4), None),
            ((0.6, 0.61), None),
        ],
        ids=["kernel close", "sign leaves close", "none close", "trees are the best", "no trees were tried"],
    )
    def test_trees_close_to_posterior_bits_are_tried_in_full(self, values, expected):
        noise = np.linspace(-0.5, 0.5, 100)
        tried = {place: value + (0.4 if place < 2 else -0.4) * noise for place, value in enumerate(values)}
        assert choosing._close_second(candidates(), tried) == expected

    def test_a_trial_grows_fewer_trees(self):
        seen = []
        auto(callbacks=[seen.append]).fit(X, Y)
        assert [record.bit for record in seen] == list(range(len(seen))), "callbacks hear of the final fit only"
        smaller = choosing._smaller(BoostedTrees(n_trees=9))
        assert (smaller.n_trees, choosing._smaller(BoostedTrees(n_trees=1)).n_trees) == (4, 1)

    def test_a_lead_is_needed_where_encoding_takes_longer(self):
        values = {0: np.full(50, 0.5), 1: np.full(50, 0.6)}
        for lead, expected in ((0.05, 1), (0.15, 0)):
            tried = (Candidate(PosteriorBits()), Candidate(BoostedTrees(start="kernel"), lead=lead))
            assert choosing._best(tried, values) == expected

    def test_settings_of_the_hasher_are_kept_in_a_trial(self):
        with pytest.raises(ValueError, match="generic_bits"):
            auto(generic_bits=9).fit(X, Y)
        with pytest.raises(ValueError, match="The 'loss' parameter"):
            auto(loss="cosine").fit(X, Y)


@pytest.mark.usefixtures("small_candidates")
class TestDeterminism:
    def test_the_same_trials_at_any_number_of_threads(self, tmp_path):
        found = []
        for name, n_jobs in (("a", 1), ("b", 2), ("c", 1)):
            hasher = auto(n_jobs=n_jobs).fit(X, Y)
            hasher.save(tmp_path / name)
            found.append((hasher.choice_.to_dict(), (tmp_path / name).read_bytes()))
        assert found[0] == found[1] == found[2]

    def test_another_seed_draws_another_sample(self):
        one, two = (auto(random_state=seed).fit(X, Y).choice_.to_dict() for seed in (0, 1))
        assert one["trials"] != two["trials"]

    def test_the_choice_does_not_touch_the_callers_objects(self):
        hasher = auto(verbose=0)
        parameters = repr(hasher.get_params())
        hasher.fit(X, Y)
        assert repr(hasher.get_params()) == parameters


@pytest.mark.usefixtures("small_candidates")
class TestWrittenDown:
    @pytest.mark.usefixtures("no_trial_in_full")
    def test_in_the_history_and_the_log(self, caplog):
        with caplog.at_level(logging.INFO, logger="hashgrove"):
            hasher = auto().fit(X, Y)
        kind = type(hasher.hash_function_).__name__
        assert {record.hash_function for record in hasher.history_} == {kind}
        assert sum("trial of" in record.message for record in caplog.records) == 3
        assert describe(hasher.hash_function_) in caplog.records[-1].message
        assert str(hasher.choice_).splitlines()[0] == f"chosen: {describe(hasher.hash_function_)}"

    def test_in_the_model_file_and_info(self, tmp_path, capsys):
        hasher = auto().fit(X, Y)
        hasher.save(tmp_path / "m")
        notes = read_header(tmp_path / "m")["header"]["learned"]
        assert notes["choice"] == hasher.choice_.to_dict()
        assert notes["hash_function"] == plain(hasher.hash_function_)
        assert notes["generic_bits"] == hasher.generic_bits_
        json.dumps(notes)
        for style in ([], ["--json"]):
            with pytest.raises(SystemExit):
                main(["info", str(tmp_path / "m"), *style], prog_name="hashgrove")
            text = capsys.readouterr().out
            assert type(hasher.hash_function_).__name__ in text
            assert "trials" in text
            assert hasher.choice_.why in text

    def test_a_given_hash_function_is_in_the_file_without_a_choice(self, tmp_path):
        auto(hash_function=PosteriorBits()).fit(X, Y).save(tmp_path / "m")
        notes = read_header(tmp_path / "m")["header"]["learned"]
        assert notes.keys() == {"hash_function", "generic_bits", "trained_on", "data", "profile"}
        assert (notes["hash_function"], notes["generic_bits"]) == (plain(PosteriorBits()), 2)

    def test_train_prints_it(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        np.save("X.npy", X)
        np.save("y.npy", Y)
        with pytest.raises(SystemExit) as ended:
            main(["train", "X.npy", "y.npy", "-o", "m", "--bits", "8", "--seed", "0"], prog_name="hashgrove")
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert "chosen: " in out
        assert len(re.findall(r"^[01]\.\d{4} \+- 0\.\d{4}  \w+\(", out, flags=re.MULTILINE)) >= 2, (
            "the MAP of each trial"
        )


@pytest.mark.parametrize(("max_rows", "n_trials"), [(len(X), 2), (len(X) - 1, 1)])
def test_a_hash_function_that_is_too_slow_for_so_many_rows_is_not_tried(monkeypatch, max_rows, n_trials):
    tried = Candidate(PosteriorBits()), Candidate(BoostedTrees(**SMALL), max_rows=max_rows)
    monkeypatch.setattr(choosing, "candidates", lambda: tried)
    assert len(auto().fit(X, Y).choice_.trials) == n_trials


@pytest.mark.usefixtures("no_trial_in_full")
def test_step_one_infers_each_bit_once_for_all_trials_and_each_has_its_own_results(monkeypatch):
    tried = few()
    monkeypatch.setattr(choosing, "candidates", lambda: tried)
    inferred = []
    infer = StepOne.infer
    monkeypatch.setattr(StepOne, "infer", lambda self: inferred.append(self.n_known) or infer(self))
    values = []
    for is_shared in (True, False):
        inferred.clear()
        monkeypatch.setattr("hashgrove.fasthash.is_sharing", lambda is_shared=is_shared: is_shared)
        choice = auto(16, n_jobs=2).fit(X, Y, sample_weight=1 + Y % 3).choice_
        values.append([trial.value for trial in choice.trials])
        n_fits = 2 if is_shared else 1 + len(choice.trials)  # the fit, and the trials together or each by itself
        assert inferred.count(0) == n_fits
    assert values[0] == values[1]


def test_sign_leaves_are_tried_for_tags_only():
    def tried(supervision):
        return [getattr(one.hash_function, "leaves", None) for one in candidates() if one.suits(supervision)]

    assert tried(ClassLabels(Y)) == [None, None, "newton", "newton"]
    tags = Tags(sparse.csr_array(blob_tags()[1]), np.zeros(240, bool))
    assert tried(tags) == [
        None,
        None,
        "newton",
        "sign",
        "newton",
    ]


def test_kernel_starts_have_a_limit_of_rows():
    assert {one.max_rows for one in candidates() if getattr(one.hash_function, "start", None) == "kernel"} == {200_000}


@pytest.mark.usefixtures("small_candidates")
class TestGoingOn:
    def test_warm_start_keeps_the_choice(self, monkeypatch):
        hasher = auto(4, warm_start=True).fit(X, Y)
        chosen, choice = hasher.hash_function_, hasher.choice_
        monkeypatch.setattr(choosing, "candidates", lambda: pytest.fail("a second trial"))
        hasher.set_params(n_bits=8).fit(X, Y)
        assert hasher.hash_function_ is chosen
        assert hasher.choice_ is choice
        whole = auto(8, hash_function=chosen).fit(X, Y)
        np.testing.assert_array_equal(hasher.decision_function(X_NEW), whole.decision_function(X_NEW))

    @pytest.mark.parametrize("chosen", [PosteriorBits(), BoostedTrees.paper(**SMALL)], ids=lambda c: type(c).__name__)
    def test_a_loaded_hasher_goes_on_with_the_chosen_function(self, tmp_path, monkeypatch, chosen):
        monkeypatch.setattr(choosing, "candidates", lambda: (Candidate(chosen),))
        auto(4).fit(X, Y).save(tmp_path / "m")
        monkeypatch.setattr(choosing, "candidates", lambda: pytest.fail("a second trial"))
        hasher = load_hasher(tmp_path / "m", n_bits=8, n_jobs=1)
        assert hasher.hash_function == "auto"
        assert repr(hasher.hash_function_) == repr(chosen)
        hasher.fit(X, Y)
        whole = auto(8, hash_function=chosen).fit(X, Y)
        np.testing.assert_array_equal(hasher.decision_function(X_NEW), whole.decision_function(X_NEW))

    def test_without_warm_start_the_choice_is_made_anew(self):
        hasher = auto().fit(X, Y)
        first = hasher.choice_
        hasher.fit(X_NEW, Y_NEW)
        assert hasher.choice_ is not first
        assert hasher.choice_.trials != first.trials

    def test_a_checkpoint_goes_on(self, tmp_path):
        class Stop(Exception):
            pass

        def stop(record):
            if record.bit == 2:
                raise Stop

        with pytest.raises(Stop):
            auto(callbacks=[stop]).fit(X, Y, checkpoint=tmp_path / "run")
        again = auto().fit(X, Y, checkpoint=tmp_path / "run")
        np.testing.assert_array_equal(again.decision_function(X_NEW), auto().fit(X, Y).decision_function(X_NEW))


class TestRightChoice:
    """With the hash functions that are really tried."""

    def test_both_posteriors_are_always_tried(self):
        rows, y = blobs(100, 10)
        tried = [trial.hash_function for trial in auto().fit(rows, y).choice_.trials]
        assert tried[:2] == [describe(PosteriorBits()), describe(PosteriorBits(classifier="logistic"))]

    def test_posterior_bits_for_many_linear_classes_with_few_rows(self):
        rows, y = blobs(300, 60, 40, noise=0.14)
        choice = auto(16).fit(rows, y).choice_
        assert isinstance(choice.hash_function, PosteriorBits)
        assert 2 <= len(choice.trials) <= len(candidates())

    def test_trees_where_classes_are_not_linear(self):
        rows, y = sectors(300)
        choice = auto(8).fit(rows, y).choice_
        assert isinstance(choice.hash_function, BoostedTrees)
        maps = [trial.value for trial in choice.trials]
        assert max(maps[2:]) > max(maps[:2]) + 0.2
