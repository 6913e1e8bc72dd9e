"""Clusters of the rows without a label that are unlike all classes, which stand for classes nobody labelled."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hashgrove import FastHash, load_hasher
from hashgrove.cli import main
from hashgrove.functions import DecodableBits, has_new_classes, with_clusters
from hashgrove.numerics.clusters import spherical_clusters
from hashgrove.numerics.unit_rows import unit_rows
from hashgrove.supervision import ClassLabels, Tags
from makers import blob_tags, blobs

X, Y = blobs(600, 12, 24, noise=0.2)
IS_KNOWN = Y < 6
PARTLY = np.where(IS_KNOWN, Y, -1)
X_NEW, Y_NEW = blobs(240, 12, 24, noise=0.2, seed=1)


def small(**parameters):
    return FastHash(**{"n_bits": 16, "hash_function": "posterior", "random_state": 0, "n_jobs": 1} | parameters)


def rng():
    return np.random.default_rng(0)


class TestSphericalClusters:
    def test_no_cluster_has_rows_of_separate_directions(self):
        rows, classes = blobs(240, 4, 24, noise=0.1)
        found = spherical_clusters(unit_rows(rows), 12, rng())
        assert all(len(np.unique(classes[found == k])) == 1 for k in np.unique(found))

    def test_every_row_is_nearest_to_the_mean_direction_of_its_cluster(self):
        Z = unit_rows(X[:, :3])
        found = spherical_clusters(Z, 4, rng())
        means = unit_rows(np.stack([Z[found == k].sum(axis=0) for k in range(4)]))
        assert ((Z @ means.T).argmax(axis=1) == found).mean() > 0.98

    @pytest.mark.parametrize("n_clusters", [1, 3, 8])
    def test_equal_rows_and_more_clusters_than_rows(self, n_clusters):
        found = spherical_clusters(np.ones((4, 1), np.float32), n_clusters, rng())
        assert len(np.unique(found)) == 1


class TestNewClasses:
    def test_rows_of_known_classes_show_none(self):
        half = np.arange(len(X)) % 24 < 12
        assert not has_new_classes(X[half], ClassLabels(Y[half]), X[~half], rng())

    def test_rows_of_other_classes_do(self):
        assert has_new_classes(X[IS_KNOWN], ClassLabels(Y[IS_KNOWN]), X[~IS_KNOWN], rng())

    def test_a_few_strangers_do_not(self):
        half = np.arange(len(X)) % 24 < 12
        others = np.concatenate([X[IS_KNOWN & ~half], X[~IS_KNOWN][:8]])  # 150 and 8
        assert not has_new_classes(X[IS_KNOWN & half], ClassLabels(Y[IS_KNOWN & half]), others, rng())

    def test_without_classes_or_other_rows_there_are_none(self):
        rows, tags = blob_tags()
        assert not has_new_classes(rows, Tags(tags, np.zeros(len(tags), bool)), rows, rng())
        assert not has_new_classes(X, ClassLabels(Y), None, rng())
        assert not has_new_classes(X, ClassLabels(Y), X[:0], rng())


class TestWithClusters:
    def test_clusters_are_classes(self):
        rows, labels = with_clusters(X[IS_KNOWN], ClassLabels(Y[IS_KNOWN]), X[~IS_KNOWN], rng=rng())
        n = int(IS_KNOWN.sum())
        np.testing.assert_array_equal(rows[:n], X[IS_KNOWN])
        np.testing.assert_array_equal(labels.classes[:n], Y[IS_KNOWN])
        assert len(labels) == len(rows)
        assert labels.classes[n:].min() >= 6
        place = {row.tobytes(): c for row, c in zip(X, Y, strict=True)}
        truth = np.array([place[row.tobytes()] for row in rows[n:]])
        same = [np.bincount(truth[labels.classes[n:] == c]).max() for c in np.unique(labels.classes[n:])]
        assert sum(same) > 0.9 * len(truth)

    def test_clusters_count_a_tenth_of_the_rows_with_a_label(self):
        _, labels = with_clusters(X[IS_KNOWN], ClassLabels(Y[IS_KNOWN]), X[~IS_KNOWN], rng=rng())
        n = int(IS_KNOWN.sum())
        assert labels.weights[n:].sum() == pytest.approx(0.1 * labels.weights[:n].sum())
        assert labels.weights.mean() == pytest.approx(1)

    def test_weights_of_rows_stay_in_proportion(self):
        given = ClassLabels(Y[IS_KNOWN], np.linspace(0.5, 1.5, int(IS_KNOWN.sum())))
        _, labels = with_clusters(X[IS_KNOWN], given, X[~IS_KNOWN], rng=rng())
        ratio = labels.weights[: len(given)] / given.weights
        np.testing.assert_allclose(ratio, ratio[0])

    def test_a_handful_of_rows_is_no_cluster(self):
        labels = ClassLabels(Y[IS_KNOWN])
        rows, found = with_clusters(X[IS_KNOWN], labels, X[~IS_KNOWN][:20], rng=rng())
        assert len(rows) == len(labels)
        assert found is labels


class TestFastHash:
    def test_new_classes_are_told_apart_and_known_ones_stay(self):
        alone, together = (small(new_classes=w).fit(X, PARTLY, unlabelled=-1) for w in (0.0, None))
        assert (alone.generic_bits_, together.generic_bits_) == (4, 8)
        assert alone.n_clusters_ == 0
        assert together.n_clusters_ >= 6
        new = Y_NEW >= 6
        assert together.score(X_NEW[new], Y_NEW[new]) > alone.score(X_NEW[new], Y_NEW[new]) + 0.05
        assert together.score(X_NEW[~new], Y_NEW[~new]) > alone.score(X_NEW[~new], Y_NEW[~new]) - 0.02

    def test_clusters_help_beyond_generic_bits(self):
        half, both = (small(new_classes=w, generic_bits=8).fit(X, PARTLY, unlabelled=-1) for w in (0.0, None))
        assert both.generic_bits_ == 8
        assert both.score(X_NEW, Y_NEW) > half.score(X_NEW, Y_NEW) + 0.02

    def test_what_is_kept_is_of_the_rows_and_classes_with_labels(self):
        hasher = small().fit(X, PARTLY, unlabelled=-1)
        assert len(hasher.inferred_codes_) == IS_KNOWN.sum()
        assert hasher.codewords_.classes == tuple(range(6))

    def test_the_command_line_says_that_there_are_clusters(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        np.save("X.npy", X)
        np.save("y.npy", PARTLY)
        options = ["--unlabelled", "-1", "--hash-function", "posterior", "--bits", "16"]
        for command, shown in (
            (["train", "X.npy", "y.npy", *options, "-o", "m"], r"clusters as classes +\d"),
            (["info", "m"], r"clusters +\d"),
        ):
            with pytest.raises(SystemExit):
                main(command)
            assert re.search(shown, capsys.readouterr().out)

    def test_without_new_classes_nothing_changes(self):
        y = np.where(np.arange(len(Y)) % 24 < 12, Y, -1)
        same = [small(new_classes=w).fit(X, y, unlabelled=-1).transform(X_NEW) for w in (0.0, None)]
        np.testing.assert_array_equal(*same)

    def test_classes_of_decodable_codes_are_those_of_the_labels(self):
        hasher = small(hash_function=DecodableBits()).fit(X, PARTLY, unlabelled=-1)
        assert hasher.encoder_.decoder.class_names == tuple(range(6))
        assert hasher.generic_bits_ == 4

    @pytest.mark.parametrize("new_classes", [None, 0.5])
    def test_auto_and_validation(self, new_classes):
        hasher = small(hash_function="auto", new_classes=new_classes)
        hasher.fit(X[::2], PARTLY[::2], unlabelled=-1, validation=0.3)
        assert len(hasher.inferred_codes_) == IS_KNOWN[::2].sum()

    def test_the_same_bytes_at_any_number_of_threads(self):
        codes = [small(n_jobs=n).fit(X, PARTLY, unlabelled=-1).encoder_.digest for n in (1, 2)]
        assert codes[0] == codes[1]

    def test_a_warm_start_gives_the_bits_of_one_fit(self, tmp_path):
        first = small().fit(X, PARTLY, unlabelled=-1)
        first.save(tmp_path / "model")
        at_once = small(n_bits=24).fit(X, PARTLY, unlabelled=-1).transform(X_NEW)
        for hasher in (first, load_hasher(tmp_path / "model")):
            more = hasher.set_params(n_bits=24, warm_start=True).fit(X, PARTLY, unlabelled=-1)
            np.testing.assert_array_equal(more.transform(X_NEW), at_once)

    def test_a_checkpoint_goes_on(self, tmp_path):
        def stop(record):
            if record.bit == 3:
                raise InterruptedError

        settings = {"hash_function": "trees", "generic_bits": 4, "n_bits": 10}
        file = tmp_path / "checkpoint"
        with pytest.raises(InterruptedError):
            small(**settings, callbacks=[stop]).fit(X, PARTLY, unlabelled=-1, checkpoint=file)
        again = small(**settings).fit(X, PARTLY, unlabelled=-1, checkpoint=file)
        at_once = small(**settings).fit(X, PARTLY, unlabelled=-1)
        np.testing.assert_array_equal(again.transform(X_NEW), at_once.transform(X_NEW))
