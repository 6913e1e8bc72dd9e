"""Codebook features: every kernel beside its slow twin, the whole pipeline beside a plain one, and its contract."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

import naive
from hashgrove.features import load_extractor
from hashgrove.features.codebook import Codebook
from hashgrove.features.dictionary import _update_atoms, ksvd, omp, spherical_kmeans
from hashgrove.features.patches import covariance, normalised_patches, patch_grid, sample_patches, zca
from hashgrove.features.pooling import ENCODINGS, add_codes, combine, regions, small_cells


def smooth_images(n, side=14, channels=3, seed=0):
    """Random images with structure: sums of two waves, so that some atoms are worth more than others."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    images = np.empty((n, side, side, channels))
    for image in images:
        for c in range(channels):
            a, b, phase = rng.normal(size=3)
            image[..., c] = 128 + 90 * np.sin(a * x + b * y + 3 * phase)
    images = np.clip(images + rng.normal(0, 8, images.shape), 0, 255).astype(np.uint8)
    return images if channels > 1 else images[..., 0]


def unit_rows(n, d, seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


SMALL = {"n_atoms": 12, "n_patches": 600, "n_iter": 2, "sparsity": 3, "patch_size": 4, "random_state": 0}


@cache
def fitted(**parameters):
    return Codebook(**{**SMALL, **parameters}).fit(smooth_images(30))


@pytest.mark.parametrize(("channels", "stride"), [(1, 1), (3, 1), (3, 3)])
def test_patches_equal_naive(channels, stride):
    image = smooth_images(1, channels=channels).reshape(14, 14, channels)[:, :11]
    rows, columns = patch_grid(14, 11, patch_size=5, stride=stride)
    out = np.empty((rows * columns, 25 * channels), np.float32)
    normalised_patches(np.ascontiguousarray(image), 5, stride, out)
    np.testing.assert_allclose(out, naive.normalised_patches(image, 5, stride), atol=1e-5)


def test_a_flat_patch_is_zero():
    out = np.empty((1, 27), np.float32)
    normalised_patches(np.full((3, 3, 3), 200, np.uint8), 3, 1, out)
    assert not out.any()


def test_sampled_patches_are_patches_of_the_images_and_come_from_all_of_them():
    images = smooth_images(70, side=6)
    sample = sample_patches(
        lambda start, stop: images[start:stop], 70, 3000, patch_size=5, rng=np.random.default_rng(0)
    )
    known = np.concatenate([naive.normalised_patches(image, 5, 1) for image in images])
    nearest = np.array([np.abs(known - row).max(axis=1).argmin() for row in sample[:200]])
    np.testing.assert_allclose(sample[:200], known[nearest], atol=1e-5)
    assert len(np.unique(nearest // 4)) > 55  # 200 draws of 70 images: 66 expected; the order is random
    assert set(nearest % 4) == {0, 1, 2, 3}  # and so are the places


def test_whitened_patches_have_unit_covariance():
    rows = np.random.default_rng(0).normal(size=(20_000, 4)) @ np.diag([9.0, 3.0, 1.0, 2.0]) + 5
    mean, moments = covariance(rows.astype(np.float32))
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments, np.cov(rows.T, bias=True), atol=1e-3)
    whitener = zca(moments, 1e-9)
    np.testing.assert_allclose(whitener, whitener.T)
    np.testing.assert_allclose(np.cov(((rows - mean) @ whitener).T), np.eye(4), atol=1e-3)


@pytest.mark.parametrize("sparsity", [1, 2, 5])
def test_matching_pursuit_equals_naive(sparsity):
    atoms, signals = unit_rows(30, 12), np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32)
    which, weights = omp(signals, atoms, sparsity=sparsity)
    for i, signal in enumerate(signals):
        chosen, expected = naive.matching_pursuit(signal, atoms, sparsity)
        assert which[i].tolist() == chosen
        np.testing.assert_allclose(weights[i], expected, atol=1e-4)


def test_matching_pursuit_ends_where_nothing_is_left():
    atoms = np.eye(3, dtype=np.float32)[[0, 0, 1]]  # two equal atoms: the second says nothing new
    which, weights = omp(np.array([[0, 0, 0], [2, 0, 0], [1, 2, 5]], np.float32), atoms, sparsity=3)
    assert which.tolist() == [[-1, -1, -1], [0, -1, -1], [2, 0, -1]]
    assert weights.tolist() == [[0, 0, 0], [2, 0, 0], [2, 1, 0]]


def test_atom_updates_equal_naive():
    atoms, signals = unit_rows(9, 6), np.random.default_rng(2).normal(size=(50, 6)).astype(np.float32)
    signals[:, 5] = 0
    which, weights = omp(signals, atoms, sparsity=2)
    dense = np.zeros((50, 9))
    np.put_along_axis(dense, which.astype(int), weights, axis=1)
    expected, codes = naive.update_atoms(atoms, signals, dense)
    residual = (signals - dense @ atoms).astype(np.float32)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.searchsorted(which.ravel()[order], np.arange(10))
    updated = atoms.copy()
    _update_atoms(updated, residual, weights.ravel(), order, ends)
    np.testing.assert_allclose(updated, expected, atol=1e-5)
    np.testing.assert_allclose(residual, signals - codes @ expected, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(codes, which.astype(int), axis=1), weights, atol=1e-5)


def test_ksvd_finds_the_atoms_that_made_the_signals():
    rng = np.random.default_rng(0)
    truth = unit_rows(12, 10, seed=3)
    codes = np.zeros((3000, 12), np.float32)
    for row in codes:
        row[rng.permutation(12)[:2]] = rng.choice([-1, 1], 2) * rng.uniform(1, 2, 2)
    errors = []
    atoms = ksvd(codes @ truth, 12, sparsity=2, n_iter=40, rng=rng, callback=lambda _, left: errors.append(left))
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, atol=1e-5)
    assert errors[-1] < errors[0] / 3
    assert np.median(np.abs(truth @ atoms.T).max(axis=1)) > 0.99


def test_an_unused_atom_becomes_the_signal_that_is_coded_worst():
    signals = np.zeros((40, 3), np.float32)
    signals[:, 0] = 1 + np.arange(40) / 40
    signals[7] = [3, 0, 4]
    atoms = ksvd(signals, 5, sparsity=1, n_iter=1, rng=np.random.default_rng(1))
    assert (np.abs(atoms - [0.6, 0, 0.8]).max(axis=1) < 1e-6).any()


def test_spherical_kmeans_equals_naive():
    signals = np.random.default_rng(3).normal(size=(200, 5)).astype(np.float32)
    one, two = (spherical_kmeans(signals, 7, n_iter=n, rng=np.random.default_rng(0)) for n in (1, 2))
    np.testing.assert_allclose(two, naive.spherical_step(one, signals), atol=1e-5)


@pytest.mark.parametrize("learn", [ksvd, spherical_kmeans])
def test_dictionaries_of_few_or_empty_signals_are_unit_and_finite(learn):
    atoms = learn(np.zeros((3, 4), np.float32), 6, sparsity=2, n_iter=2, rng=np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("shape", "levels"), [((7, 10), (1, 2, 3)), ((4, 4), (4, 1)), ((5, 5), (2,))])
def test_pooling_equals_naive(pooling, encoding, shape, levels):
    scores = np.random.default_rng(4).normal(size=(*shape, 6)).astype(np.float32)
    bias = np.linspace(-0.2, 0.3, 6, dtype=np.float32)
    rows, columns, areas = small_cells(shape[0], levels), small_cells(shape[1], levels), regions(*shape, levels)
    maps = 12 if encoding == "split" else 6
    out, cells = np.empty((len(areas), maps), np.float32), np.zeros(((len(rows) - 1) * (len(columns) - 1), maps), "f4")
    settings = (bias, np.float32(0.4), ENCODINGS.index(encoding), pooling == "max", rows, columns, cells)
    for first, last in ((0, 3), (3, shape[0])):  # in two strips
        add_codes(scores[first:last].reshape(-1, 6), first, *settings)
    combine(cells, pooling == "max", rows, columns, areas, out)
    expected = naive.pooled(scores - bias, 0.4, encoding, pooling, levels)
    np.testing.assert_allclose(out.ravel(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"encoding": "absolute", "pooling": "max"}, {"encoding": "split", "stride": 3, "levels": (1, 2)}],
    ids=str,
)
def test_features_equal_the_plain_pipeline(parameters):
    """Filters and bias are what whitening and atoms are together; here from the outside, by naive parts."""
    codebook = fitted(**parameters)
    images = smooth_images(5, seed=9)
    n_rows, n_columns = patch_grid(14, 14, patch_size=4, stride=codebook.stride)
    for image, features in zip(images, codebook.transform(images), strict=True):
        scores = naive.normalised_patches(image, 4, codebook.stride) @ codebook.filters_ - codebook.bias_
        settings = (codebook.threshold, codebook.encoding, codebook.pooling, codebook.levels)
        expected = naive.pooled(scores.reshape(n_rows, n_columns, -1), *settings)
        np.testing.assert_allclose(features, expected, atol=1e-5)
    assert features.dtype == np.float32
    assert features.shape == (codebook.n_features_,)


def test_strips_do_not_change_the_features(monkeypatch):
    whole = fitted().transform(smooth_images(5))
    monkeypatch.setattr("hashgrove.features.codebook.STRIP", 1)
    np.testing.assert_allclose(fitted().transform(smooth_images(5)), whole, atol=1e-6)


def test_filters_whiten():
    """Scores have mean 0, and the variance of white data on unit atoms."""
    codebook = fitted()
    patches = np.concatenate([naive.normalised_patches(image, 4, 1) for image in smooth_images(30)])
    scores = patches @ codebook.filters_ - codebook.bias_
    assert np.abs(scores.mean(axis=0)).max() < 0.3
    assert 0.1 < scores.var() < 2
    assert patches.var() < 1.01


@pytest.mark.parametrize("dictionary", ["ksvd", "kmeans"])
@pytest.mark.parametrize("output", ["float32", "uint8"])
def test_same_seed_same_bytes_at_any_number_of_threads(dictionary, output):
    images = smooth_images(40)
    settings = {**SMALL, "n_patches": 5000, "dictionary": dictionary, "output": output}
    one, three = (Codebook(**settings, n_jobs=n).fit(images) for n in (1, 3))
    for name, array in one.arrays().items():
        assert array.tobytes() == three.arrays()[name].tobytes(), name
    assert one.transform(images).tobytes() == three.transform(images).tobytes()
    other = Codebook(**{**settings, "random_state": 1}).fit(images)
    assert one.filters_.tobytes() != other.filters_.tobytes()


def test_uint8_is_the_scaled_float():
    images = smooth_images(30)
    exact, levels = fitted().transform(images), fitted(output="uint8").transform(images)
    assert levels.dtype == np.uint8
    assert (levels.max(axis=0) == 255).mean() > 0.9  # the scale is from these very images
    np.testing.assert_allclose(levels, exact * fitted(output="uint8").scale_, atol=0.51)
    brighter = fitted(output="uint8").transform(smooth_images(200, seed=5))
    assert brighter.max() == 255  # clipped, not wrapped around


def test_a_feature_that_never_fires_is_zero():
    codebook = Codebook(**{**SMALL, "threshold": 1e6, "output": "uint8"}).fit(smooth_images(5))
    assert not codebook.scale_.any()
    assert not codebook.transform(smooth_images(5)).any()


def test_grey_images_and_other_sizes():
    grey = smooth_images(20, channels=1)
    codebook = Codebook(**SMALL).fit(grey)
    assert codebook.filters_.shape == (16, 12)
    assert codebook.transform(smooth_images(3, side=20, channels=1)).shape == (3, 14 * 12)
    with pytest.raises(ValueError, match=r"must have 1 channels, as in fit. Got 3"):
        codebook.transform(smooth_images(2))
    with pytest.raises(ValueError, match=r"at least 6 x 6 pixels .* Got 5 x 5"):
        codebook.transform(smooth_images(2, side=5, channels=1))


def test_files_and_memory_give_the_same(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    images = smooth_images(12)
    paths = [str(tmp_path / f"{i}.png") for i in range(12)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    a, b = (Codebook(**SMALL, output="uint8").fit(source) for source in (images, paths))
    assert a.filters_.tobytes() == b.filters_.tobytes()
    b.transform_to(paths, tmp_path / "X.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), a.transform(images))


@pytest.mark.parametrize("output", ["float32", "uint8"])
def test_a_file_holds_the_whole_extractor(output, tmp_path):
    codebook = fitted(output=output)
    codebook.save(tmp_path / "codebook.hashgrove")
    again = load_extractor(tmp_path / "codebook.hashgrove")
    assert type(again) is Codebook
    images = smooth_images(4, seed=3)
    np.testing.assert_array_equal(again.transform(images), codebook.transform(images))
    assert again.get_params() == codebook.get_params()


def test_any_kind_of_seed_can_be_saved(tmp_path):
    codebook = clone(fitted()).set_params(random_state=np.random.RandomState(0)).fit(smooth_images(5))
    codebook.save(tmp_path / "codebook.hashgrove")
    assert load_extractor(tmp_path / "codebook.hashgrove").random_state is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("filters", lambda a: a.astype(np.float64), "'filters' must be finite float32"),
        ("filters", lambda a: a[:-1], "of shape"),
        ("filters", lambda a: np.concatenate([a, a]), "of shape"),
        ("bias", lambda a: a * np.nan, "'bias' must be finite"),
        ("scale", lambda a: a[:5], "'scale' must be"),
        ("scale", None, "have the arrays"),
    ],
)
def test_damaged_arrays_are_refused(name, change, message):
    codebook = fitted(output="uint8")
    arrays = dict(codebook.arrays())
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=message):
        Codebook.from_arrays(codebook.parameters(), arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_atoms", 0),
        ("n_atoms", 2.5),
        ("patch_size", 1),
        ("stride", 0),
        ("dictionary", "pca"),
        ("n_patches", 1),
        ("sparsity", True),
        ("n_iter", 0),
        ("whitening", 0),
        ("threshold", -1.0),
        ("threshold", float("nan")),
        ("encoding", "both"),
        ("pooling", "sum"),
        ("levels", ()),
        ("levels", (0, 1)),
        ("levels", 3),
        ("levels", (10**6,)),
        ("output", "float64"),
    ],
)
def test_wrong_parameters_are_refused_in_fit_and_in_files(name, value):
    with pytest.raises(ValueError, match=rf"The '{name}' parameter must be .* Got "):
        Codebook(**{**SMALL, name: value}).fit(smooth_images(2))
    with pytest.raises(ValueError, match=f"'{name}'"):
        Codebook.from_arrays({**fitted().parameters(), name: value}, fitted().arrays())


def test_fit_shows_its_iterations(capsys):
    codebook = clone(fitted()).set_params(verbose=2).fit(smooth_images(30))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"learning atoms: iteration {i}: left {x:.4f}" for i, x in enumerate(codebook.unexplained_)]
    assert len(lines) == 2
