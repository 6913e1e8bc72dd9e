from __future__ import annotations

import pickle

import numpy as np
import pytest

import naive
from hashgrove.codes import unpack
from hashgrove.encoders import ENCODERS, AnchorGraph, Augmented, Kernel, Linear, Sinusoid, Spheres, Tabulated
from hashgrove.storage import modelfile


def linear(n_bits, *, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    return Linear(weights=rng.normal(size=(n_bits, n_features)), bias=rng.normal(size=n_bits))


def kernel(n_bits, *, n_support=7, n_features=5, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    support = np.random.default_rng(99).normal(size=(n_support, n_features)) + shift
    return Kernel(
        support=support,
        weights=rng.normal(size=(n_bits, n_support)),
        bias=rng.normal(size=n_bits),
        gamma=np.array(0.3),
    )


def sinusoid(n_bits, *, n_features=5, seed=0):
    flat = linear(n_bits, n_features=n_features, seed=seed)
    return Sinusoid(weights=flat.weights, phase=flat.bias)


def spheres(n_bits, *, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    return Spheres(centres=rng.normal(size=(n_bits, n_features)), radii=rng.random(n_bits) * 3)


def tabulated(n_bits, *, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    n_factors = 2 + seed % 3  # so that concatenate has to fill up
    low = rng.normal(size=(n_factors, n_bits)) - 2
    return Tabulated(
        directions=rng.normal(size=(n_factors, n_bits, n_features)),
        low=low,
        high=low + 1 + 3 * rng.random((n_factors, n_bits)),
        values=rng.normal(size=(n_factors, n_bits, 7)),
    )


def anchors(n_bits, *, n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    return AnchorGraph(
        anchors=np.random.default_rng(99).normal(size=(8, n_features)),
        weights=rng.normal(size=(n_bits, 8)),
        slopes=rng.normal(size=(2, n_bits)),
        intercepts=rng.normal(size=(2, n_bits)),
        bandwidth=np.array(0.9),
        n_nearest=np.array(3),
    )


def directed(n_bits, *, n_features=5, seed=0):
    bits = linear(n_bits, n_features=n_features + 4, seed=seed)
    return Augmented(directions=kernel(4, n_features=n_features, seed=98), bits=bits)


MAKERS = {
    "linear": (linear, naive.linear_scores),
    "kernel": (kernel, naive.kernel_scores),
    "sinusoid": (sinusoid, naive.sinusoid_scores),
    "spheres": (spheres, naive.sphere_scores),
    "tabulated": (tabulated, naive.tabulated_scores),
    "anchors": (anchors, naive.anchor_scores),
    "directed": (directed, naive.directed_scores),
}


TESTED_ELSEWHERE = {"trees", "class-scores"}  # test_trees.py, test_supervised_baselines.py


def test_every_encoder_is_tested():
    assert set(MAKERS) | TESTED_ELSEWHERE == set(ENCODERS)


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param][0]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_scores_equal_the_naive_ones(name, dtype):
    make, slow = MAKERS[name]
    encoder = make(11)
    X = (np.random.default_rng(1).random((40, 5)) * 3).astype(dtype)
    scores = encoder.scores(X)
    assert scores.dtype == np.float64
    exact = name != "directed" or dtype == "float64"  # directions are rounded to the type of the features
    np.testing.assert_allclose(
        scores, slow(X.astype(np.float64), **encoder.arrays()), rtol=1e-12, atol=1e-12 if exact else 1e-5
    )
    np.testing.assert_array_equal(unpack(encoder.encode(X), n_bits=11), scores > 0)


def test_more_rows_than_a_chunk_and_any_number_of_threads(maker):
    encoder, X = maker(9), np.random.default_rng(1).normal(size=(3000, 5))
    scores = encoder.scores(X, n_jobs=1)
    np.testing.assert_array_equal(scores, encoder.scores(X, n_jobs=2))
    np.testing.assert_allclose(scores[2990:], encoder.scores(X[2990:]), rtol=1e-12, atol=1e-12)


def test_concatenate_gives_the_bits_in_order(maker):
    X = np.random.default_rng(1).normal(size=(30, 5))
    parts = [maker(1, seed=seed) for seed in range(4)] + [maker(3, seed=9)]
    whole = type(parts[0]).concatenate(parts)
    assert whole.n_bits == 7
    expected = np.concatenate([part.scores(X) for part in parts], axis=1)
    np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-12, atol=1e-12)


def test_file_round_trip(maker, tmp_path):
    encoder = maker(9)
    modelfile.write(tmp_path / "m", kind="encoder", header={}, arrays=encoder.arrays())
    loaded = type(encoder).from_arrays(modelfile.read(tmp_path / "m", kind="encoder")[1])
    X = np.random.default_rng(1).normal(size=(30, 5))
    np.testing.assert_array_equal(loaded.scores(X), encoder.scores(X))


def test_pickle_after_use(maker):
    encoder, X = maker(9), np.ones((2, 5))
    scores = encoder.scores(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).scores(X), scores)


@pytest.mark.parametrize("name", MAKERS)
def test_check_refuses_every_wrong_array(name):
    encoder = MAKERS[name][0](3)
    for field, array in encoder.arrays().items():
        wrong = {
            "type": array.astype(np.float32),
            "dimensions": array[None],
            "empty": array[..., :0] if array.ndim else np.zeros(0),
        }
        if array.dtype.kind == "f":
            wrong |= {"nan": np.full_like(array, np.nan), "infinite": np.full_like(array, np.inf)}
        else:
            wrong |= {"small": np.full_like(array, 0), "large": np.full_like(array, 10**6)}
        if array.ndim:
            wrong["length"] = array[:-1]
        for what, value in wrong.items():
            if (
                what == "length"
                and field in ("weights", "bits.linear.weights")
                and name in ("linear", "sinusoid", "directed")
            ):
                value = array[:1]
            with pytest.raises(ValueError, match="array"):
                print(field, what, type(encoder).from_arrays(encoder.arrays() | {field: value}))
    type(encoder).from_arrays(encoder.arrays())


def test_wrong_number_of_features(maker):
    with pytest.raises(ValueError, match="5 features"):
        maker(3).scores(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("encoder", "change", "match"),
    [
        (spheres(3), {"radii": np.array([1.0, -1.0, 1.0])}, "'radii' must not be negative"),
        (anchors(3), {"bandwidth": np.array(0.0)}, "'bandwidth' must be positive"),
        (anchors(3), {"n_nearest": np.array(9)}, "'n_nearest' must be from 1 to 8"),
        (tabulated(3), {"high": tabulated(3).low}, "'low' must be below"),
        (tabulated(3), {"values": tabulated(3).values[..., :1].copy()}, "2 knots at least"),
    ],
)
def test_check_refuses_values_out_of_range(encoder, change, match):
    with pytest.raises(ValueError, match=match):
        type(encoder).from_arrays(encoder.arrays() | change)


def test_directions_with_and_without_features_and_none_else():
    directions, X = linear(3), np.random.default_rng(1).normal(size=(20, 5))
    columns = directions.scores(X)
    for bits, rows in ((linear(4, n_features=3), columns), (linear(4, n_features=8), np.hstack([X, columns]))):
        np.testing.assert_allclose(Augmented(directions=directions, bits=bits).scores(X), bits.scores(rows))
    arrays = Augmented(directions=directions, bits=linear(4, n_features=3)).arrays()
    wrong = [
        (Augmented(directions=directions, bits=linear(4, n_features=7)).arrays(), "3 directions, with or without 5"),
        ({name: array for name, array in arrays.items() if name.startswith("bits")}, "'directions' of one kind"),
        (arrays | {"bits.kernel.weights": np.ones((1, 1))}, "'bits' of one kind"),
        (arrays | {"more.linear.weights": np.ones((1, 1))}, r"no arrays of \['more.linear'\]"),
        (arrays | {"odd": np.ones(1)}, "no arrays of"),
    ]
    for changed, message in wrong:
        with pytest.raises(ValueError, match=message):
            Augmented.from_arrays(changed)
    with pytest.raises(ValueError, match="same directions"):
        Augmented.concatenate([directed(1), Augmented(directions=linear(4), bits=linear(1, n_features=9))])


def test_concatenate_refuses_other_anchors_and_other_knots():
    first, table = anchors(1), tabulated(1)
    for name, value in {"anchors": first.anchors + 1, "bandwidth": np.array(2.0), "n_nearest": np.array(2)}.items():
        with pytest.raises(ValueError, match=f"the same '{name}'"):
            AnchorGraph.concatenate([first, AnchorGraph.from_arrays(first.arrays() | {name: value})])
    with pytest.raises(ValueError, match=r"number of knots. Got \[4, 7\]"):
        Tabulated.concatenate([table, Tabulated.from_arrays(table.arrays() | {"values": table.values[..., :4]})])


def test_a_row_far_from_all_anchors_has_a_score():
    scores = anchors(3).scores(np.full((1, 5), 1e5))
    assert np.isfinite(scores).all()
    assert np.abs(scores).max() > 0


class TestKernel:
    def test_far_from_the_origin(self):
        near, far = kernel(5), kernel(5, shift=1e6)
        X = np.random.default_rng(1).normal(size=(30, 5))
        np.testing.assert_allclose(far.scores(X + 1e6), near.scores(X), atol=1e-6)

    def test_concatenate_drops_support_vectors_without_weight(self):
        parts = [kernel(1, seed=seed) for seed in range(3)]
        for part in parts:
            part.weights[:, [1, 4]] = 0
        parts[1].weights[0, 4] = 2.0
        whole = Kernel.concatenate(parts)
        np.testing.assert_array_equal(whole.support, np.delete(parts[0].support, 1, axis=0))
        assert whole.weights.shape == (3, 6)

    def test_constant_bits_keep_one_support_vector(self):
        part = kernel(1)
        part.weights[:] = 0
        whole = Kernel.concatenate([part, part])
        assert whole.support.shape == (1, 5)
        np.testing.assert_array_equal(whole.scores(np.ones((3, 5))), np.full((3, 2), part.bias[0]))
        whole._check()

    def test_concatenate_merges_other_support(self):
        first, second, other = kernel(1), kernel(2, seed=1), kernel(2, seed=2)
        rows = [3, 0, 3, 5]
        third = Kernel.from_arrays(
            other.arrays() | {"support": other.support[rows] + [[0], [0], [0], [1]], "weights": other.weights[:, :4]}
        )
        whole = Kernel.concatenate([first, third, second])
        assert whole.support.shape == (7 + 1, 5)
        X = np.random.default_rng(1).normal(size=(30, 5))
        expected = np.concatenate([part.scores(X) for part in (first, third, second)], axis=1)
        np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-12, atol=1e-12)

    def test_bits_added_later_give_the_same_encoder(self):
        parts = [kernel(1, seed=seed) for seed in range(4)]
        for part in parts[:2]:
            part.weights[:, [1, 4]] = 0
        X = np.random.default_rng(1).normal(size=(30, 5))
        later = Kernel.concatenate([Kernel.concatenate(parts[:2]), *parts[2:]])
        assert later.support.shape == (7, 5)
        np.testing.assert_allclose(later.scores(X), Kernel.concatenate(parts).scores(X), rtol=1e-12, atol=1e-12)

    def test_concatenate_refuses_other_gamma(self):
        first = kernel(1)
        other = Kernel.from_arrays(first.arrays() | {"gamma": np.array(0.4)})
        with pytest.raises(ValueError, match=r"same 'gamma'.*\[0.3, 0.4\]"):
            Kernel.concatenate([first, other])

    def test_gamma_must_be_positive(self):
        with pytest.raises(ValueError, match="gamma"):
            Kernel.from_arrays(kernel(1).arrays() | {"gamma": np.array(-1.0)})


@pytest.mark.parametrize("sign", [-1, 1])
def test_constant(sign):
    encoder = Linear.constant(sign, n_features=3)
    encoder._check()
    assert ((encoder.scores(np.ones((4, 3))) > 0) == (sign > 0)).all()
