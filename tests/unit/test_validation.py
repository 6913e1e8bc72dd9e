"""Validation: held-out rows are really held out, and users are told when codes are worse than what needs no labels."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from command import call, fails
from hashgrove import ITQ, FastHash, LinearSVM, PosteriorBits, choosing, evaluate
from hashgrove.cli import main
from hashgrove.metrics import Comparison, Difference, count_distinct, evaluate_vectors
from hashgrove.storage.modelfile import read_header
from hashgrove.supervision import ClassLabels, draw_groups, read_groups
from hashgrove.validation import CODES, VECTORS, Measured, Validation, hold_out, validate
from makers import blob_tags, blobs, pairs_of

X, Y = blobs(noise=0.3)
X_NEW, Y_NEW = blobs(noise=0.3, seed=1)


def small(n_bits=12, **parameters):
    return FastHash(n_bits, **{"hash_function": PosteriorBits(), "random_state": 0, "n_jobs": 1} | parameters)


CHOICE = choosing.Choice(PosteriorBits(power=0.5), (), 0, 0, "A test says so.")


def lead(mean):
    """A lead in MAP of which .02 is uncertain."""
    return Comparison(Difference(mean, mean - 0.02, mean + 0.02), Difference(0.0, -0.1, 0.1))


def split(weights=None, *, seed):
    return hold_out(0.25, X, ClassLabels(Y, weights), read=None, seed=seed)


def names_of(validation):
    return [row.method for row in validation.rows]


class TestForms:
    def test_a_share_of_the_rows(self):
        hasher = small().fit(X, Y, validation=0.25)
        found = hasher.validation_
        assert found.n_rows == 60
        assert names_of(found) == [CODES, VECTORS, "ITQ, 12 bits, no labels"]
        assert [row.n_bytes for row in found.rows] == [2, 64, 2]
        assert found.map == found.rows[0].map > 0.5
        assert found.rows[1].distinct is None

    def test_rows_of_their_own(self):
        hasher = small().fit(X, Y, validation=(X_NEW, Y_NEW))
        np.testing.assert_array_equal(hasher.transform(X_NEW), small().fit(X, Y).transform(X_NEW))
        codes, vectors, itq = hasher.validation_.rows
        mine = hasher.transform(X_NEW)
        options = {"k": 10, "exclude_self": True}
        report = evaluate(mine, mine, y_queries=Y_NEW, y_database=Y_NEW, knn=None, **options)
        assert (codes.map, codes.precision_at_10) == (report.map, report.precision_at_k)
        assert codes.map == pytest.approx(hasher.score(X_NEW, Y_NEW))
        assert codes.distinct == count_distinct(mine)
        exact = evaluate_vectors(X_NEW, X_NEW, y_queries=Y_NEW, y_database=Y_NEW, **options)
        assert (vectors.map, vectors.precision_at_10) == (exact.map, exact.precision_at_k)
        rival = ITQ(12, random_state=hasher._seed()).fit(X).transform(X_NEW)
        assert itq.map == evaluate(rival, rival, y_queries=Y_NEW, y_database=Y_NEW, knn=None, **options).map

    @pytest.mark.parametrize("form", [list, np.array, pd.Series, lambda y: [f"class {label:02}" for label in y]])
    def test_labels_in_every_form_give_the_same_figures(self, form):
        expected = small().fit(X, Y, validation=0.25).validation_
        found = small().fit(X, form(Y), validation=0.25).validation_
        assert found == expected

    def test_features_as_lists_and_frames(self):
        expected = small().fit(X, Y, validation=0.25).validation_
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # among them one about the names of features
            frame = small().fit(pd.DataFrame(X, columns=[f"f{j}" for j in range(16)]), Y, validation=0.25)
        assert frame.validation_ == expected
        assert small().fit(X.tolist(), Y, validation=0.25).validation_ == expected

    @pytest.mark.parametrize(
        "form",
        [np.asarray, sparse.csr_array, sparse.csr_matrix, lambda tags: [set(np.flatnonzero(row)) for row in tags]],
    )
    def test_tags(self, form):
        rows, tags = blob_tags()
        hasher = small(min_shared=2).fit(rows, form(tags), validation=0.25)
        assert hasher.validation_.n_rows == 60
        assert hasher.validation_.map > 0.8
        own = small().fit(rows, form(tags), validation=(rows[:80], form(tags[:80])))
        assert own.validation_.n_rows == 80

    def test_unlabelled_rows_are_not_measured(self):
        y = np.where(np.arange(len(Y)) % 2 == 0, -1, Y)
        hasher = small().fit(X, y, validation=(X_NEW, np.where(Y_NEW == 0, -1, Y_NEW)), unlabelled=-1)
        assert hasher.validation_.n_rows == (Y_NEW != 0).sum()
        known = Y_NEW != 0
        assert hasher.validation_.map == pytest.approx(hasher.score(X_NEW[known], Y_NEW[known]))

    def test_more_bits_than_features_are_compared_with_lsh(self):
        hasher = small(24).fit(X, Y, validation=0.25)
        assert names_of(hasher.validation_)[2] == "LSH, 24 bits, no labels"

    def test_weights_are_split_with_the_rows(self):
        weights = np.random.default_rng(0).uniform(0, 2, len(Y))
        held_out = split(weights, seed=3)
        assert (len(held_out.trained), len(held_out.X), len(held_out.labels)) == (180, 60, 60)
        places = [np.flatnonzero((row == X).all(axis=1))[0] for row in held_out.X]
        np.testing.assert_array_equal(held_out.labels.weights, weights[places])
        np.testing.assert_array_equal(held_out.labels.classes, Y[places])
        small().fit(X, Y, sample_weight=weights, validation=0.25)

    def test_many_rows_are_sampled_from_all_classes(self, monkeypatch):
        monkeypatch.setattr("hashgrove.validation.MAX_ROWS", 60)
        order = np.argsort(Y_NEW, kind="stable")
        hasher = small().fit(X, Y, validation=(X_NEW[order], Y_NEW[order]))
        assert hasher.validation_.n_rows == 60
        assert hasher.validation_.rows[1].map < 0.8, "the first 60 rows are of three classes and would be easy"


class TestHeldOut:
    def test_the_rows_were_not_trained_on(self):
        """A fit of the other rows gives the same codes, and so the same quality."""
        hasher = small().fit(X, Y, validation=0.25, refit=False)
        held_out = split(seed=hasher._seed())
        rows, y = X[held_out.trained], Y[held_out.trained]
        assert len(rows) + len(held_out.X) == len(X)
        assert not {row.tobytes() for row in rows} & {row.tobytes() for row in held_out.X}
        alone = small().fit(rows, y)
        np.testing.assert_array_equal(hasher.decision_function(X_NEW), alone.decision_function(X_NEW))
        assert hasher.inferred_codes_.shape[0] == len(rows)
        assert hasher.validation_.map == pytest.approx(alone.score(held_out.X, held_out.labels.classes))

    def test_the_model_is_then_learned_again_from_all_rows(self, tmp_path):
        validated, whole = small().fit(X, Y, validation=0.25), small().fit(X, Y)
        np.testing.assert_array_equal(validated.decision_function(X_NEW), whole.decision_function(X_NEW))
        assert validated.validation_ == small().fit(X, Y, validation=0.25, refit=False).validation_
        validated.save(tmp_path / "validated"), whole.save(tmp_path / "whole")
        headers = [read_header(tmp_path / name)["header"] for name in ("validated", "whole")]
        assert headers[0]["learned"].pop("validation")["rows"], "the file also has the quality on the held-out rows"
        distances = [header["learned"]["profile"].pop("nearest") for header in headers]
        assert distances[0] != distances[1], "those of held-out rows are remembered"
        assert [header["learned"]["profile"].pop("held_out") for header in headers] == [True, False]
        assert headers[0] == headers[1]
        assert validated.encoder_.digest_or_none == whole.encoder_.digest_or_none

    def test_callbacks_hear_of_the_final_fit_only(self):
        learned = []
        hasher = small(callbacks=[learned.append]).fit(X, Y, validation=0.25)
        assert learned == hasher.history_

    def test_the_choice_is_made_once(self, monkeypatch):
        """The hash function is chosen without the held-out rows, and used for all rows."""
        seen = []
        monkeypatch.setattr(choosing, "choose", lambda fit, X, *_, **__: seen.append(len(X)) or CHOICE)
        hasher = small(hash_function="auto").fit(X, Y, validation=0.25)
        assert seen == [180]
        assert hasher.hash_function_ is CHOICE.hash_function

    def test_a_warm_start_keeps_the_choice(self, monkeypatch):
        """All bits of a model are of one hash function, and the validated one is that of the model."""
        monkeypatch.setattr(choosing, "choose", lambda *_, **__: CHOICE)
        hasher = small(8, hash_function="auto", warm_start=True).fit(X, Y)
        monkeypatch.setattr(choosing, "choose", lambda *_, **__: pytest.fail("it was chosen already"))
        grown = hasher.set_params(n_bits=12).fit(X, Y, validation=0.25)
        assert grown.hash_function_ is CHOICE.hash_function

    def test_a_warm_start_does_not_see_the_held_out_rows_either(self):
        hasher = small(8, warm_start=True).fit(X, Y)
        grown = hasher.set_params(n_bits=12).fit(X, Y, validation=0.25)
        assert grown.validation_ == small(12).fit(X, Y, validation=0.25).validation_
        np.testing.assert_array_equal(grown.transform(X_NEW), small(12).fit(X, Y).transform(X_NEW))

    def test_each_fit_has_a_checkpoint(self, tmp_path):
        hasher = small().fit(X, Y, validation=0.25, checkpoint=tmp_path / "run")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.held-out"]
        learned = []
        again = small(callbacks=[learned.append]).fit(X, Y, validation=0.25, checkpoint=tmp_path / "run")
        assert learned == []
        assert again.validation_ == hasher.validation_
        np.testing.assert_array_equal(again.transform(X_NEW), hasher.transform(X_NEW))

    def test_labels_of_held_out_rows_have_no_effect_on_the_codes(self):
        seed = small()._seed()
        order = np.random.default_rng([seed, 5]).permutation(len(X))
        changed = Y.copy()
        changed[order[:60]] = np.random.default_rng(0).permutation(changed[order[:60]])
        one, two = (small().fit(X, y, validation=0.25, refit=False) for y in (Y, changed))
        np.testing.assert_array_equal(one.transform(X_NEW), two.transform(X_NEW))
        assert one.validation_.map > two.validation_.map

    def test_the_same_rows_every_time(self):
        assert small().fit(X, Y, validation=0.2).validation_ == small(n_jobs=2).fit(X, Y, validation=0.2).validation_
        other = small(random_state=1).fit(X, Y, validation=0.2).validation_
        assert other != small().fit(X, Y, validation=0.2).validation_

    def test_a_later_fit_without_validation_has_none(self):
        hasher = small().fit(X, Y, validation=0.2)
        assert not hasattr(hasher.fit(X, Y), "validation_")


class TestWarnings:
    def test_codes_from_shuffled_labels(self):
        shuffled = np.random.default_rng(0).permutation(Y)
        with pytest.warns(UserWarning, match="On held-out rows the codes are worse than float vectors, cosine: MAP"):
            small(generic_bits=0).fit(X, shuffled, validation=(X_NEW, Y_NEW))
        with pytest.warns(UserWarning, match="On held-out rows the codes are worse than ITQ, 12 bits, no labels"):
            small(generic_bits=0).fit(X, shuffled, validation=(X_NEW, Y_NEW))

    def test_good_codes_have_none(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hasher = small().fit(X, Y, validation=0.25)
        assert hasher.validation_.warnings() == []

    def test_one_sentence_for_each_that_is_better_beyond_the_interval(self):
        values = {"a": 0.5, "b": 0.6, "c": 0.4, "d": 0.7, "e": 0.51}
        leads = {"a": None} | {name: lead(0.5 - value) for name, value in values.items() if name != "a"}
        rows = [Measured(name, 2, value, 0.5, 3, leads[name]) for name, value in values.items()]
        first, second = Validation(tuple(rows), 9).warnings()
        assert first.startswith(
            "On held-out rows the codes are worse than b: MAP 0.500 against 0.600 "
            "(95 % interval of the difference: -0.120 to -0.080)."
        )
        assert "than d: MAP 0.500 against 0.700" in second

    def test_noise_is_not_distinguishable_and_no_reason_to_warn(self):
        """Codes of random labels and random codes: either may be ahead, and neither is better."""
        rng = np.random.default_rng(0)
        rows, labels = rng.standard_normal((150, 16)), rng.integers(0, 3, 150)
        behind = 0
        for seed in range(4):
            found = validate(
                ITQ(12, random_state=seed).fit(rows[:50]), rows[:50], rows[50:], labels[50:], seed=seed + 9
            )
            behind += found.rows[0].map < found.rows[2].map
            assert found.warnings() == []
            assert "(MAP not distinguishable)" in str(found)
        assert behind, "one of them was warned of before intervals were known"


class TestRefused:
    @pytest.mark.parametrize("kind", ["affinity", "triplets"])
    def test_pairs(self, kind):
        target = {"affinity": pairs_of(Y), "triplets": [(0, 12, 1)]}[kind]
        with pytest.raises(ValueError, match=r"'validation' parameter needs class labels or tags as y\. Got pairs"):
            small(hash_function=LinearSVM()).fit(X, **{kind: target}, validation=0.2)

    @pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, 0.0, float("nan")])
    def test_no_share(self, value):
        with pytest.raises(ValueError, match="The 'validation' parameter must be"):
            small().fit(X, Y, validation=value)

    @pytest.mark.parametrize("value", ["0.2", X, (X, Y, Y), {"X": X}])
    def test_other_forms(self, value):
        with pytest.raises(ValueError, match=r"must be a share between 0 and 1, or rows and their labels \(X, y\)"):
            small().fit(X, Y, validation=value)

    def test_sparse_rows(self):
        with pytest.raises((TypeError, ValueError), match="must be a dense array"):
            small(hash_function=LinearSVM()).fit(sparse.csr_array(X), Y, validation=0.2)

    @pytest.mark.parametrize("labels", [np.zeros(20), np.arange(20)], ids=["one class", "all different"])
    def test_rows_that_cannot_be_measured_are_refused_before_the_fit(self, labels):
        learned = []
        with pytest.raises(ValueError, match="at least two"):
            small(callbacks=[learned.append]).fit(X, Y, validation=(X_NEW[:20], labels))
        assert learned == []

    def test_rows_to_learn_from_without_a_dissimilar_pair_are_refused_before_the_fit(self):
        y, groups = np.repeat([0, 1, 2], [50, 50, 140]), np.repeat([0, 1], [100, 140])  # the first group is held out
        learned = []
        with pytest.raises(ValueError, match="must make some pair of points dissimilar"):
            small(callbacks=[learned.append]).fit(X, y, validation=0.5, groups=groups)
        assert learned == []

    def test_rows_of_another_width_are_refused_before_the_fit(self):
        learned = []
        with pytest.raises(ValueError, match="features"):
            small(callbacks=[learned.append]).fit(X, Y, validation=(X_NEW[:, :5], Y_NEW))
        assert learned == []

    def test_labels_of_another_length_are_refused_before_the_fit(self):
        learned = []
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            small(callbacks=[learned.append]).fit(X, Y, validation=(X_NEW, Y_NEW[:-1]))
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            small(callbacks=[learned.append]).fit(X, Y[:-1], validation=0.2)
        assert learned == []


def test_validate_measures_any_hasher():
    hasher = ITQ(12, random_state=0).fit(X)
    found = validate(hasher, X, X_NEW, Y_NEW, seed=0)
    assert found.rows[0].map == found.rows[2].map
    assert found.to_dict()["rows"][0]["method"] == CODES
    assert found.rows[2].lead == (Difference(0.0, 0.0, 0.0),) * 2
    values = json.loads(json.dumps(found.to_dict()))["rows"]
    assert values[0]["lead"] is None
    assert values[1]["lead"]["map"] == found.rows[1].lead.map._asdict()
    assert values[1]["lead"]["map"]["mean"] == pytest.approx(found.rows[0].map - found.rows[1].map)


def test_the_table():
    rows = (
        Measured("these codes", 8, 0.5, 0.25, 1234),
        Measured("float vectors, cosine", 5120, 0.4, 0.2, None, lead(0.1)),
        Measured("ITQ", 8, 0.49, 0.2, 1234, lead(0.01)),
    )
    assert str(Validation(rows, 4321)).splitlines() == [
        "on 4,321 held-out rows        bytes     MAP    P@10  distinct",
        "these codes                       8  0.5000  0.2500  1,234",
        "float vectors, cosine         5,120  0.4000  0.2000",
        "ITQ                               8  0.4900  0.2000  1,234",
        "",
        "lead of these codes (95 %)   MAP                   P@10",
        "float vectors, cosine        +0.080 to +0.120      -0.100 to +0.100",
        "ITQ                          -0.010 to +0.030      -0.100 to +0.100  (MAP not distinguishable)",
    ]


class TestCommandLine:
    @pytest.fixture
    def here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        np.save("X.npy", X)
        np.save("y.npy", Y)
        np.save("pairs.npy", pairs_of(Y))
        return tmp_path

    def run(self, capsys, *arguments):
        with pytest.raises(SystemExit) as ended:
            main(["train", "X.npy", *arguments, "-o", "m", "--bits", "12", "--seed", "0"], prog_name="hashgrove")
        return ended.value.code, *capsys.readouterr()

    @pytest.mark.usefixtures("here")
    def test_it_prints_the_table(self, capsys):
        code, out, err = self.run(capsys, "y.npy", "--hash-function", "posterior", "--validate", "0.2")
        assert code == 0, err
        expected = str(small().fit(X, Y, validation=0.2).validation_)
        assert out.rstrip().endswith(expected)
        assert re.search(r"on 48 held-out rows +bytes +MAP +P@10 +distinct", out)

    @pytest.mark.usefixtures("here")
    def test_it_warns_in_one_line(self, capsys):
        np.save("y.npy", np.random.default_rng(0).permutation(Y))
        code, _, err = self.run(
            capsys, "y.npy", "--hash-function", "posterior", "--generic-bits", "0", "--validate", "0.5"
        )
        assert code == 0
        for line in err.splitlines():
            assert "Traceback" not in line
            assert "warnings.warn" not in line
        assert err.count("Warning: ") == len(err.splitlines())

    @pytest.mark.usefixtures("here")
    @pytest.mark.parametrize("share", ["0", "1", "-1", "2", "abc"])
    def test_bad_shares(self, capsys, share):
        code, out, err = self.run(capsys, "y.npy", "--validate", share)
        assert (code, out) == (2, "")
        assert "--validate" in err

    @pytest.mark.usefixtures("here")
    def test_pairs_are_refused(self, capsys):
        code, out, err = self.run(capsys, "--pairs", "pairs.npy", "--validate", "0.2")
        assert (code, out) == (2, "")
        assert "--validate is for LABELS and --label-column only." in err


def written(writers, *, seed=0):
    """Rows of writers who write each class in a way of their own, with class and writer of each row."""
    rng = np.random.default_rng(seed)
    writer, y = (part.ravel() for part in np.meshgrid(np.arange(writers), np.arange(4), indexing="ij"))
    centres = rng.normal(size=(len(y), 80))
    rows = np.repeat(centres, 8, axis=0) + 0.3 * rng.normal(size=(8 * len(y), 80))
    return rows, np.repeat(y, 8), np.repeat(writer, 8)


@pytest.mark.filterwarnings("ignore:On held-out rows the codes are worse")
class TestGroups:
    def test_rows_that_resemble_each_other_do_not_make_codes_look_good(self):
        rows, y, writers = written(24)
        others, y_others, _ = written(6, seed=1)
        truth = small().fit(rows, y, validation=(others, y_others)).validation_.map
        leaking = small().fit(rows, y, validation=0.25).validation_.map
        grouped = small().fit(rows, y, validation=0.25, groups=writers).validation_.map
        assert leaking > truth + 0.3
        assert grouped == pytest.approx(truth, abs=0.1)

    def test_the_trial_does_not_divide_groups_either(self):
        rows, y, writers = written(12)
        seen = []

        def fit(learner, X, supervision):
            seen.append(X)
            return small().fit(X, y[[index[row.tobytes()] for row in X]]).encoder_

        index = {row.tobytes(): number for number, row in enumerate(rows)}
        rng = np.random.default_rng(0)
        choice = choosing.choose(fit, rows, ClassLabels(y, None), rng, groups=writers, n_jobs=1)
        trained = {writers[index[row.tobytes()]] for row in seen[0]}
        assert 0 < len(trained) < 12
        assert choice.n_rows == 32 * len(trained)
        assert choice.n_held_out == 32 * (12 - len(trained))

    @pytest.mark.parametrize("groups", [["a", "b"] * 120, np.arange(240) % 7, pd.Series(np.arange(240) // 60)])
    def test_whole_groups_are_held_out(self, groups):
        numbers = read_groups(groups, n_rows=240)
        held_out = hold_out(0.25, X, ClassLabels(Y, None), read=None, seed=0, groups=numbers)
        is_out = ~np.isin(np.arange(240), held_out.trained)
        assert not set(numbers[is_out]) & set(numbers[~is_out])
        assert is_out.any()
        assert not is_out.all()
        np.testing.assert_array_equal(held_out.X, X[is_out])
        hasher = small().fit(X, Y, groups=groups, validation=0.25)
        assert hasher.validation_.n_rows == is_out.sum()
        np.testing.assert_array_equal(hasher.transform(X), small().fit(X, Y).transform(X))  # in the end all rows count

    def test_a_large_group_is_not_held_out_where_smaller_ones_make_up_the_share(self):
        numbers = np.repeat([0, 1, 2], [900, 50, 50])
        for share, n_rows in ((0.1, 100), (0.06, 50), (0.01, 50)):
            for seed in range(5):
                assert draw_groups(numbers, share, np.random.default_rng(seed)).sum() == n_rows
        assert not draw_groups(np.zeros(9, np.intp), 0.5, np.random.default_rng(0)).any()

    def test_rows_without_a_label_have_groups_as_well(self):
        y = [None if row % 3 == 0 else label for row, label in enumerate(Y.tolist())]
        groups = np.arange(240) // 40
        found = small().fit(X, y, groups=groups, validation=0.25).validation_
        assert 26 <= found.n_rows <= 27  # two of three rows of one group

    @pytest.mark.parametrize(
        ("groups", "match"),
        [
            (np.arange(7), r"must have one group for each of the 240 rows\. Got shape \(7,\)"),
            (np.zeros((240, 1)), r"Got shape \(240, 1\)"),
            (np.zeros(240), "must have at least two groups"),
            ([None, "a"] * 120, "must have a group for each row. Got none in row 0"),
            ([1.0, np.nan] * 120, "Got none in row 1"),
            (pd.Series(["a", pd.NA] * 120, dtype="string"), "Got none in row 1"),
        ],
    )
    def test_wrong_groups(self, groups, match):
        with pytest.raises(ValueError, match=f"The 'groups' parameter {match}" if match[0] == "m" else match):
            small().fit(X, Y, groups=groups, validation=0.25)

    def test_on_the_command_line(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        rows, y, writers = written(12)
        np.save("X.npy", rows)
        np.save("y.npy", y)
        np.save("writers.npy", writers)
        options = ["--bits", "12", "--hash-function", "posterior", "--seed", "0", "--validate", "0.25"]
        status, out, _ = call(capsys, "train", "X.npy", "y.npy", "-o", "m", *options, "--groups", "writers.npy")
        expected = small().fit(rows, y, validation=0.25, groups=writers).validation_
        assert status == 0
        assert str(expected).splitlines()[1] in out
        np.save("few.npy", writers[:5])
        match = "few.npy: must have 384 rows"
        fails(capsys, "train", "X.npy", "y.npy", "-o", "m", *options, "--groups", "few.npy", code=1, match=match)
