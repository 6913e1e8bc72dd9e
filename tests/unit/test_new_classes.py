"""``new_classes``: how many generic bits a trial that leaves classes out chooses."""

from __future__ import annotations

import numpy as np
import pytest

from hashgrove import FastHash, ParameterError, load_hasher
from hashgrove.new_classes import choose_generic_bits
from hashgrove.supervision import ClassLabels
from makers import blob_tags, blobs

X, Y = blobs(360, 12, 24)
PARTLY = np.where(Y < 6, Y, -1)


def small(**parameters):
    settings = {"hash_function": "posterior", "random_state": 0, "n_jobs": 1}
    return FastHash(16, **settings | parameters)


class Trials:
    """Stands for fits: codes of generic bits tell all classes apart, those of other bits only the trained ones."""

    def __init__(self):
        self.given = []

    def __call__(self, count, rows, supervision, others):
        self.given.append((count, rows, supervision, others))
        return small(generic_bits=count).fit(rows, supervision.classes).encoder_


def choose(new_classes, *, others=None, n_bits=16, labels=Y, groups=None):
    fit = Trials()
    rng = np.random.default_rng(0)
    return fit.given, *choose_generic_bits(
        fit, X, ClassLabels(labels), others, rng, n_bits=n_bits, new_classes=new_classes, groups=groups
    )


def test_the_chosen_number_has_the_best_mean_of_both_searches():
    for weight in (0.1, 0.5, 1.0):
        _, count, trials = choose(weight)
        values = [(1 - weight) * trial.trained + weight * trial.new for trial in trials]
        assert count == trials[int(np.argmax(values))].generic_bits
    assert [trial.generic_bits for trial in trials] == [4, 6, 8, 12, 16]


def test_groups_are_not_divided():
    groups = np.arange(len(X)) // 40
    for _, rows, supervision, _ in choose(0.5, groups=groups)[0]:
        learned = {row.tobytes() for row in rows}
        numbers = np.array([i for i, row in enumerate(X) if row.tobytes() in learned])
        trained = np.isin(Y, Y[numbers]) & np.isin(groups, groups[numbers])
        np.testing.assert_array_equal(numbers, np.flatnonzero(trained))
        assert len(np.unique(groups[numbers])) < len(np.unique(groups))
        assert len(numbers) == len(supervision)


def test_no_number_is_tried_twice():
    assert [trial.generic_bits for trial in choose(0.5, n_bits=2)[2]] == [0, 1, 2]


def test_no_fit_sees_a_hidden_class_or_a_held_out_row():
    others = X[:5] + 1
    given, _, trials = choose(0.5, others=others)
    assert len(given) == len(trials)
    for _, rows, supervision, unknown in given:
        assert len(np.unique(supervision.classes)) == 6
        seen = {row.tobytes() for row in rows}
        truth = np.array([Y[i] for i, row in enumerate(X) if row.tobytes() in seen])
        np.testing.assert_array_equal(np.unique(truth), np.unique(supervision.classes))
        assert len(rows) == pytest.approx(len(X) / 2 * 2 / 3, abs=6)
        np.testing.assert_array_equal(unknown[:5], others)
        hidden = {row.tobytes() for row in unknown[5:]}
        assert not hidden & seen
        assert {Y[i] for i, row in enumerate(X) if row.tobytes() in hidden}.isdisjoint(supervision.classes.tolist())


def test_rows_of_hidden_classes_are_left_out_if_there_are_no_others():
    assert all(unknown is None for *_, unknown in choose(0.5)[0])


@pytest.mark.parametrize(("weight", "expected"), [(0.5, 10), (1.0, 16)])
def test_few_classes_need_no_trial(weight, expected):
    given, count, trials = choose(weight, labels=Y % 3)
    assert (given, count, trials) == ([], expected, ())


class TestFastHash:
    def test_without_it_nothing_is_tried(self):
        hasher = small().fit(X, Y)
        assert hasher.generic_trials_ == ()
        assert hasher.generic_bits_ == 4

    def test_codes_for_new_classes_are_better_with_it(self):
        known = Y < 6
        alone, together = (small(new_classes=w).fit(X, PARTLY, unlabelled=-1) for w in (0.0, 1.0))
        assert len(together.generic_trials_) == 5
        assert together.generic_bits_ > alone.generic_bits_
        assert together.score(X[~known], Y[~known]) > alone.score(X[~known], Y[~known]) + 0.02

    def test_the_result_is_that_of_as_many_generic_bits(self):
        chosen = small(new_classes=0.5).fit(X, Y)
        given = small(generic_bits=chosen.generic_bits_).fit(X, Y)
        np.testing.assert_array_equal(chosen.transform(X), given.transform(X))

    def test_tags_have_no_trial(self):
        rows, tags = blob_tags()
        hasher = small(new_classes=1.0).fit(rows, tags)
        assert (hasher.generic_bits_, hasher.generic_trials_) == (16, ())

    def test_validation_and_auto_use_the_same_number(self):
        hasher = small(new_classes=0.3, hash_function="auto").fit(X, Y, validation=0.3)
        assert hasher.generic_bits_ == hasher.encoder_.n_bits - len(hasher.history_)

    def test_a_loaded_model_goes_on_with_its_number(self, tmp_path):
        hasher = small(new_classes=0.3).fit(X, Y)
        hasher.save(tmp_path / "model")
        again = load_hasher(tmp_path / "model").set_params(n_bits=20, warm_start=True).fit(X, Y)
        assert again.generic_bits_ == hasher.generic_bits_
        assert again.encoder_.n_bits == 20

    def test_both_settings_are_refused(self):
        with pytest.raises(ParameterError, match=r"new_classes.*must be 0 with generic_bits=4. Got 0.5 instead"):
            small(new_classes=0.5, generic_bits=4).fit(X, Y)

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, "much"])
    def test_it_must_be_a_share(self, wrong):
        with pytest.raises(ParameterError, match=r"new_classes.*of at least 0 and of at most 1 or None"):
            small(new_classes=wrong).fit(X, Y)
