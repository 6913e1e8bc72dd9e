"""The contract of every method in the registry, and what the papers of LSH and ITQ say of theirs.

What a method can do is described by its class: the tag that labels are required, `seeded` and `max_bits`.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import naive
from hashgrove.baselines import BASELINES, ITQ, LSH
from hashgrove.cli import main
from hashgrove.cli.signature import descriptions
from hashgrove.codes import MAX_BITS, unpack
from hashgrove.storage.models import load

ALL_X, ALL_Y = load_digits(return_X_y=True)
X, Y = ALL_X[:600], ALL_Y[:600]
SMALLEST = {"n_samples": 10, "n_features": 1}  # of the data that scikit-learn's checks fit
# Settings that make fits short, each for the methods that have it: the contract does not depend on how much is learned.
SHORT = {"n_iter": 2, "n_pairs": 1000, "n_anchors": 60, "anchors_per_bit": 10}


def short(make, n_bits, *, random_state=0):
    """A hasher whose fit is short, by those of the settings above that its class has."""
    settings = {name: value for name, value in SHORT.items() if name in make().get_params()}
    return make(n_bits, random_state=random_state, **settings)


@parametrize_with_checks([short(make, min(9, make().max_bits(**SMALLEST))) for make in BASELINES.values()])
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.fixture(params=sorted(BASELINES))
def baseline(request):
    return BASELINES[request.param]


def test_shape_and_bits(baseline):
    hasher = short(baseline, 19).fit(X, Y)
    codes, scores = hasher.transform(X), hasher.decision_function(X)
    assert codes.shape == (len(X), 3)
    assert codes.dtype == np.uint8
    assert scores.shape == (len(X), 19)
    np.testing.assert_array_equal(unpack(codes, n_bits=19), scores > 0)
    assert (hasher.encoder_.n_bits, hasher.encoder_.n_features) == (19, 64)


def test_same_seed_same_codes(baseline):
    """On all digits: where a method draws a sample of the rows, it must have rows to choose from."""
    first, same, other = (short(baseline, 16, random_state=seed).fit(ALL_X, ALL_Y).transform(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert np.array_equal(first, other) == (not baseline.seeded)


def test_the_threads_of_blas_do_not_matter(baseline):
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            models.append(short(baseline, 16).fit(ALL_X, ALL_Y).encoder_.arrays())
    for name, array in models[0].items():
        np.testing.assert_array_equal(array, models[1][name], err_msg=name)


def test_a_second_fit_forgets_the_first(baseline):
    hasher = short(baseline, 16).fit(X[:300, :40], Y[:300])
    again = clone(hasher).fit(X, Y).transform(X)
    np.testing.assert_array_equal(hasher.fit(X, Y).transform(X), again)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_types_of_features(baseline, dtype):
    codes = short(baseline, 32).fit(X, Y).transform(X)
    other = short(baseline, 32).fit(X.astype(dtype), Y).transform(X.astype(dtype))
    assert np.mean(codes == other) > 0.999


def test_save_load_and_encode_on_the_command_line(baseline, tmp_path, capsys):
    hasher = short(baseline, 19).fit(X, Y)
    hasher.save(tmp_path / "m.hashgrove")
    encoder = load(tmp_path / "m.hashgrove")
    np.testing.assert_array_equal(encoder.encode(X), hasher.transform(X))
    np.save(tmp_path / "X.npy", X)
    files = [str(tmp_path / name) for name in ("m.hashgrove", "X.npy", "codes.npy")]
    with pytest.raises(SystemExit) as ended:
        main(["encode", *files[:2], "-o", files[2]], prog_name="hashgrove")
    assert ended.value.code == 0, capsys.readouterr().err
    np.testing.assert_array_equal(np.load(files[2]), hasher.transform(X))


@pytest.mark.parametrize("n_bits", [0, -1, 2.5, "8", None])
def test_number_of_bits_is_checked(baseline, n_bits):
    with pytest.raises(ValueError, match="The 'n_bits' parameter must be an integer from 1 to 65528"):
        baseline(n_bits).fit(X, Y)


def test_longest_code(baseline):
    some, labels = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 4
    limit = baseline().max_bits(n_samples=40, n_features=3)
    longest = short(baseline, min(limit, 100)).fit(some, labels)
    assert longest.transform(some).shape == (40, -(-longest.n_bits // 8))
    if limit < MAX_BITS:
        with pytest.raises(ValueError, match=rf"at most {limit} for .*n_samples=40, n_features=3. Got {limit + 1}"):
            baseline(limit + 1).fit(some, labels)


def test_rows_that_are_all_the_same(baseline):
    same = np.ones((20, 4))
    try:
        hasher = short(baseline, 2).fit(same, np.arange(20) % 2)
    except ValueError as error:
        assert "must" in str(error)  # noqa: PT017 -- a method may refuse, if it says what it needs
    else:
        assert len(np.unique(hasher.transform(same), axis=0)) == 1


def test_labels_are_ignored_unless_required(baseline):
    if get_tags(baseline()).target_tags.required:
        with pytest.raises(ValueError, match="requires y to be passed"):
            short(baseline, 16).fit(X)
    else:
        np.testing.assert_array_equal(
            short(baseline, 16).fit(X, Y).transform(X), short(baseline, 16).fit(X).transform(X)
        )


def test_better_than_chance(baseline):
    """A random ranking of ten balanced classes has a MAP of about 0.1."""
    train, test = np.arange(0, len(X), 2), np.arange(1, len(X), 2)
    assert baseline(16, random_state=0).fit(X[train], Y[train]).score(X[test], Y[test]) > 0.25


def test_every_parameter_is_described(baseline):
    """The API reference and the help of commands are made from the docstrings."""
    described = {name for kind in baseline.__mro__ for name in descriptions(kind)}
    assert set(baseline().get_params(deep=False)) <= described


class TestLSH:
    def test_hyperplanes_pass_through_the_mean(self):
        encoder = LSH(16, random_state=0).fit(X + 100).encoder_
        np.testing.assert_allclose(encoder.scores((X + 100).mean(axis=0)[None]), 0, atol=1e-9)

    def test_distance_is_the_angle(self):
        points = np.array([[1.0, 0.0], [np.cos(1.0), np.sin(1.0)]])
        hasher = LSH(20_000, random_state=0).fit(np.concatenate([points, -points]))
        bits = hasher.decision_function(points) > 0
        assert np.mean(bits[0] != bits[1]) == pytest.approx(1.0 / np.pi, abs=0.02)


class TestITQ:
    @pytest.mark.parametrize("n_bits", [1, 8, 32, 60])
    def test_error_never_rises(self, n_bits):
        errors = ITQ(n_bits, random_state=0).fit(X).quantisation_error_
        assert errors.shape == (50,)
        assert np.all(np.diff(errors) <= 1e-9 * errors[0])
        assert n_bits == 1 or errors[-1] < errors[0]

    def test_last_error_is_that_of_the_encoder(self):
        hasher = ITQ(16, random_state=0).fit(X)
        scores = hasher.decision_function(X)
        expected = np.mean(np.sum((np.where(scores > 0, 1, -1) - scores) ** 2, axis=1))
        assert hasher.quantisation_error_[-1] == pytest.approx(expected)

    def test_projection_is_a_rotation_of_the_principal_components(self):
        weights = ITQ(12, random_state=0).fit(X).encoder_.weights
        np.testing.assert_allclose(weights @ weights.T, np.eye(12), atol=1e-10)
        components = PCA(12, svd_solver="full").fit(X).components_
        np.testing.assert_allclose(weights.T @ weights, components.T @ components, atol=1e-8)

    def test_equals_the_naive_method(self):
        hasher = ITQ(8, n_iter=5, random_state=3).fit(X[:200])
        start = np.linalg.qr(np.random.default_rng(hasher._seed()).standard_normal((8, 8)))[0]
        scores, errors = naive.itq(X[:200], start, n_iter=5)
        np.testing.assert_allclose(hasher.decision_function(X[:200]), scores, atol=1e-7)
        np.testing.assert_allclose(hasher.quantisation_error_, errors)

    def test_no_more_bits_than_features(self):
        with pytest.raises(ValueError, match=r"at most 64 for ITQ.*Got 65"):
            ITQ(65).fit(X)
        assert ITQ(64, n_iter=2, random_state=0).fit(X).transform(X).shape == (len(X), 8)

    @pytest.mark.parametrize("n_iter", [0, 1.5])
    def test_iterations_are_checked(self, n_iter):
        with pytest.raises(ValueError, match="The 'n_iter' parameter must be an integer of at least 1"):
            ITQ(8, n_iter=n_iter).fit(X)
