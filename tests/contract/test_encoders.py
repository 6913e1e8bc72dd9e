"""The contract of every encoder in ENCODERS, and what is special about each of them.

A new encoder needs a slow version of its scores in `naive.ENCODER_SCORES`, and an entry in `example_encoders.EXAMPLES`
if random floats are not valid values of all its arrays.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import naive
from example_encoders import N_FEATURES, VARIANTS, example, save_and_load, some_rows
from hashgrove import FastHash, load
from hashgrove.codes import unpack
from hashgrove.encoders import (
    ENCODERS,
    ClassScores,
    Encoder,
    Kernel,
    Lifted,
    Linear,
    encoder_name,
)
from hashgrove.encoders.base import declared_arrays
from hashgrove.numerics.gaussian import GaussianFeatures


def precision(encoder):
    """How far scores may be from exact ones: encoders with float32 arrays compute in float32."""
    return 1e-5 if np.float32 in {array.dtype.type for array in encoder.arrays().values()} else 1e-12


@pytest.fixture(params=[*ENCODERS, *VARIANTS])
def name(request):
    return request.param


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_scores_equal_the_naive_ones(name, dtype):
    encoder = example(name, 11)
    X = (np.random.default_rng(1).random((40, N_FEATURES)) * 3).astype(dtype)
    scores = encoder.scores(X)
    assert scores.dtype in (np.float32, np.float64)
    assert scores.shape == (40, 11)
    exact = name != "lifted" or dtype == "float64"  # the scores of a lift are rounded to the type of the features
    expected = naive.ENCODER_SCORES[encoder_name(encoder)](X.astype(np.float64), **encoder.arrays())
    tolerance = precision(encoder)
    np.testing.assert_allclose(scores, expected, rtol=tolerance, atol=tolerance if exact else 1e-5)
    np.testing.assert_array_equal(unpack(encoder.encode(X), n_bits=11), scores > 0)


def test_tags_have_a_sigmoid_each():
    encoder, X = replace(example("class-scores"), exclusive=np.array(0, np.uint8)), some_rows(9)
    np.testing.assert_allclose(encoder.scores(X), naive.class_scores(X, **encoder.arrays()), rtol=1e-12, atol=1e-12)


def test_more_rows_than_a_chunk_and_any_number_of_threads(name):
    encoder, X = example(name, 9), some_rows(3000)
    scores = encoder.scores(X, n_jobs=1)
    np.testing.assert_array_equal(scores, encoder.scores(X, n_jobs=2))
    tolerance = precision(encoder)
    np.testing.assert_allclose(scores[2990:], encoder.scores(X[2990:]), rtol=tolerance, atol=tolerance)


def test_concatenate_gives_the_bits_in_order(name):
    parts = [example(name, 1, seed=seed) for seed in range(4)] + [example(name, 3, seed=9)]
    whole = type(parts[0]).concatenate(parts)
    assert (whole.n_bits, whole.n_features) == (sum(part.n_bits for part in parts), N_FEATURES)
    X = some_rows(30)
    expected = np.concatenate([part.scores(X) for part in parts], axis=1)
    np.testing.assert_allclose(whole.scores(X), expected, rtol=precision(whole), atol=precision(whole))
    whole.check()


def test_file_round_trip(name, tmp_path):
    encoder, X = example(name, 9), some_rows(30)
    assert encoder_name(encoder) == VARIANTS.get(name, name)
    np.testing.assert_array_equal(save_and_load(encoder, tmp_path / "m").scores(X), encoder.scores(X))


def test_pickle_after_use(name):
    encoder, X = example(name, 9), np.ones((2, N_FEATURES))
    scores = encoder.scores(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).scores(X), scores)


def test_wrong_number_of_features(name):
    with pytest.raises(ValueError, match=r"must have 5 features per row, as in training\. Got 4 instead"):
        example(name).scores(np.zeros((2, 4)))


def error_of(call):
    """The message of the ValueError that a call raises, or None."""
    try:
        call()
    except ValueError as error:
        return str(error)


class TestUntrustedArrays:
    def test_wrong_types_and_shapes_are_refused(self, name):
        encoder = example(name)
        for field, array in encoder.arrays().items():
            wrong = {
                "type": array.astype(np.float16),
                "dimensions": array[None],
                "empty": array[..., :0] if array.ndim else np.zeros(0, array.dtype),
            }
            if array.dtype.kind == "f":
                wrong |= {"nan": np.full_like(array, np.nan), "infinite": np.full_like(array, np.inf)}
            if array.ndim and name != "unit-kernel":  # fewer anchors are fewer scores: nothing else depends on them
                wrong["length"] = array[:-1]
            for what, value in wrong.items():
                with pytest.raises(ValueError, match="array"):
                    print(field, what, type(encoder).from_arrays(encoder.arrays() | {field: value}))
        type(encoder).from_arrays(encoder.arrays())

    def test_missing_and_unknown_arrays_are_refused(self, name):
        encoder = example(name)
        arrays = encoder.arrays()
        for wrong in (arrays | {"extra": np.zeros(1)}, dict(list(arrays.items())[1:]), {}):
            with pytest.raises(ValueError, match=r"arrays? "):
                type(encoder).from_arrays(wrong)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scores of extreme values may be infinite or NaN
    def test_extreme_values_are_refused_or_do_no_harm(self, name):
        encoder, X = example(name), np.concatenate([some_rows(70), [[1.7e308] * N_FEATURES, [-1.7e308] * N_FEATURES]])
        arrays = encoder.arrays()
        for field, array in arrays.items():
            limits = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
            mixed = np.where(np.arange(array.size).reshape(array.shape) % 2, limits.max, limits.min)
            for values in (limits.min, limits.max, 0, 1, np.nextafter(0, 1), 1e-200, 1e200, mixed):
                with np.errstate(all="ignore"):
                    changed = np.broadcast_to(values, array.shape).astype(array.dtype)
                error = error_of(lambda wrong=arrays | {field: changed}: type(encoder).from_arrays(wrong).encode(X))
                # lift that are not finite are features of the bits that are not finite
                assert error is None or "the array" in error or "Input X contains" in error, (field, values)

    @pytest.mark.parametrize(
        ("name", "change", "match"),
        [
            ("class-scores", {"exclusive": np.array(2, np.uint8)}, "'exclusive' must be 0 or 1. Got 2"),
            ("kernel", {"gamma": np.array(-1.0)}, "'gamma' must be positive. Got -1.0"),
            ("kernel", {"scale": np.array([1.0, -1, 1, 1, 1])}, "'scale' must not be negative. Got -1"),
            ("unit-kernel", {"gamma": np.array(0, np.float32)}, "'gamma' must be positive. Got 0.0"),
            ("unit-kernel", {"anchors": np.ones((3, 5), np.float32)}, "'anchors' must have rows of length 1. Got 2.24"),
            ("posterior", {"exclusive": np.array(2, np.uint8)}, "'exclusive' must be 0 or 1. Got 2"),
            ("posterior", {"power": np.array(0, np.float32)}, "'power' must be above 0 and at most 1. Got 0.0"),
            ("posterior", {"power": np.array(1.5, np.float32)}, "'power' must be above 0 and at most 1. Got 1.5"),
            ("decodable", {"words": np.zeros((3, 7), np.int8)}, "'words' must consist of -1 and 1"),
            ("decodable", {"table": np.full((3, 7), 20, np.float32)}, "a sum of at most 40, .* Got 6"),
            (
                "decodable",
                {"temperature": np.array(0, np.float32)},
                "'temperature' must be above 0 and at most 40. Got 0",
            ),
            ("decodable", {"names": np.frombuffer(b"[1]", np.uint8)}, "'names' must have 7 names. Got 1"),
            (
                "decodable",
                {"names": np.frombuffer(b"[[", np.uint8)},
                "'names' must be a JSON list of texts and numbers",
            ),
            ("linear", {"unit": np.array(2, np.uint8)}, "'unit' must be 0 or 1. Got 2"),
            ("linear", {"bias": np.zeros(4)}, r"'bias' must be float64 or float32 of shape .* n_bits = 3 as in"),
        ],
    )
    def test_values_out_of_range_are_refused(self, name, change, match):
        encoder = example(name)
        with pytest.raises(ValueError, match=match):
            type(encoder).from_arrays(encoder.arrays() | change)


Scalar = TypeVar("Scalar")


class Opaque(Generic[Scalar]):
    """A type that names only the scalar, as ``NDArray`` does since NumPy 2.5 on Python 3.12."""


class TestDeclaration:
    @pytest.mark.parametrize(
        "array_type", [NDArray[np.uint16], np.ndarray[Any, np.dtype[np.uint16]], Opaque[np.uint16]], ids=str
    )
    def test_the_scalar_type_is_found_however_numpy_spells_an_array(self, array_type):
        @dataclass(frozen=True, eq=False)
        class Declared(Encoder):
            weights: Annotated[array_type, ("bits", 3)]

            def _scores(self, X):
                raise NotImplementedError

        Declared.__annotations__["weights"] = Annotated[array_type, ("bits", 3)]  # a local name is not found as a text
        assert declared_arrays(Declared) == {"weights": ((np.dtype(np.uint16),), ("bits", 3))}

    def test_a_field_without_axes_is_named(self):
        @dataclass(frozen=True, eq=False)
        class Careless(Encoder):
            weights: Annotated[NDArray[np.float64], ("bits", "features")]
            bias: NDArray[np.float64]

            def _scores(self, X):
                return X @ self.weights.T + self.bias

        with pytest.raises(TypeError, match=r"Careless.bias must be declared as an array with its axes"):
            _ = Careless(weights=np.ones((1, 2)), bias=np.ones(1)).n_bits

    def test_concatenate_refuses_other_sizes_and_other_shared_arrays(self):
        with pytest.raises(ValueError, match=r"Linear encoders must have the same number of features. Got \[5, 6\]"):
            Linear.concatenate([example("linear"), example("linear", n_features=6)])
        first = example("class-scores", 1)
        with pytest.raises(ValueError, match=r"same number of classes. Got \[4, 7\]"):
            ClassScores.concatenate([first, replace(first, book=first.book[:4])])
        with pytest.raises(ValueError, match="ClassScores encoders must have the same 'bias'"):
            ClassScores.concatenate([first, replace(first, bias=first.bias + 1)])


class TestSparseRows:
    @pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "int64"])
    def test_linear_gives_the_scores_of_dense_rows(self, make, dtype):
        X = sparse.random_array((2000, 5000), density=0.01, rng=np.random.default_rng(0)) * 100
        X, encoder = X.astype(dtype), example("linear", 12, n_features=5000)
        assert X.nnz > 90_000
        scores = encoder.scores(make(X), n_jobs=2)
        assert isinstance(scores, np.ndarray)
        np.testing.assert_allclose(scores, encoder.scores(X.toarray()), rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(unpack(encoder.encode(make(X)), n_bits=12), scores > 0)

    def test_rows_are_not_made_dense(self):
        """They would take 8 TiB."""
        encoder = Linear(weights=np.ones((1, 2**20)), bias=np.zeros(1))
        X = sparse.csr_array((np.ones(3), ([0, 5, 2**20 - 1], [7, 2**20 - 1, 0])), shape=(2**20, 2**20))
        assert np.flatnonzero(encoder.encode(X)).tolist() == [0, 5, 2**20 - 1]

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_values_must_be_finite(self, value):
        X = sparse.csr_array(np.diag([1.0, 2.0, 3.0, value, 5.0]))
        with pytest.raises(ValueError, match="Input X contains"):
            example("linear").encode(X)

    def test_rows_must_have_the_right_width(self):
        with pytest.raises(ValueError, match="must have 5 features per row"):
            example("linear").encode(sparse.csr_array((3, 6)))

    def test_every_encoder_takes_them_or_says_what_to_do(self, name):
        encoder, X = example(name), some_rows(20)
        if encoder.accepts_sparse:
            np.testing.assert_allclose(encoder.scores(sparse.csr_array(X)), encoder.scores(X), rtol=1e-9)
            return
        with pytest.raises(ValueError) as error:
            encoder.encode(sparse.csr_array(X))
        assert str(error.value) == (
            f"The 'X' parameter must be a dense array for {type(encoder).__name__}. Got a sparse matrix instead. "
            "Reduce it first, for example with sklearn.decomposition.TruncatedSVD."
        )


class TestLifted:
    def test_every_encoder_can_be_either_part_in_a_file(self, name, tmp_path):
        X = some_rows(20)
        for encoder in (
            Lifted(lift=example(name), bits=example("linear", 4, n_features=example(name).n_bits)),
            Lifted(lift=example("linear", N_FEATURES, seed=3), bits=example(name)),
        ):
            loaded = save_and_load(encoder, tmp_path / "m")
            np.testing.assert_array_equal(loaded.scores(X), encoder.scores(X))
            assert [type(loaded.lift), type(loaded.bits)] == [type(encoder.lift), type(encoder.bits)]

    def test_names_in_files(self):
        encoder = Lifted(lift=example("kernel", N_FEATURES), bits=example("trees"))
        kernel = [f"lift.kernel.{field}" for field in ("support", "weights", "bias", "gamma", "low", "scale")]
        assert list(encoder.arrays()) == kernel + [f"bits.trees.{field}" for field in example("trees").arrays()]

    def test_parts_that_are_not_registered_are_refused_when_saving(self, tmp_path):
        @dataclass(frozen=True, eq=False, repr=False)
        class Other(Linear):
            def __repr__(self):
                return "Other()"

        other = Other(**example("linear", n_features=3).arrays())
        encoder = Lifted(lift=example("linear"), bits=other)
        assert encoder.encode(some_rows(3)).shape == (3, 1)
        hasher = FastHash(3)
        hasher.encoder_ = encoder
        with pytest.raises(ValueError, match=r"Other\(\) cannot be saved: .*joblib"):
            hasher.save(tmp_path / "m")
        assert not list(tmp_path.iterdir())

    def test_a_saved_model_loads(self, tmp_path):
        hasher = FastHash(3)
        hasher.encoder_ = Lifted(lift=example("kernel"), bits=example("class-scores", n_features=3))
        hasher.save(tmp_path / "m")
        X = some_rows(5)
        np.testing.assert_array_equal(load(tmp_path / "m").encode(X), hasher.encoder_.encode(X))

    def test_arrays_that_do_not_fit_are_refused(self):
        lift = example("linear")
        arrays = Lifted(lift=lift, bits=example("linear", 4, n_features=3)).arrays()
        misfit = Lifted(lift=lift, bits=example("linear", 4, n_features=7)).arrays()
        wrong = [
            (misfit, "must take the 3 scores of 'lift'. Got 7 columns"),
            ({n: array for n, array in arrays.items() if n.startswith("bits")}, r"only. Got \['bits'\]"),
            (arrays | {"bits.kernel.weights": np.ones((1, 1))}, r"exactly one .* Got \['kernel', 'linear'\]"),
            ({n.replace("bits.linear", "bits.svm"): a for n, a in arrays.items()}, r"Got \['svm'\]"),
            (arrays | {"more.linear.weights": np.ones((1, 1))}, "Linear must have the arrays"),
            (arrays | {f"more.linear.{n}": a for n, a in lift.arrays().items()}, r"only. Got .*'more'"),
            (arrays | {"odd": np.ones(1)}, r"only. Got .*'odd'"),
            (arrays | {"bits": np.ones(1)}, r"only. Got \['bits', 'bits', 'lift'\]"),
            (arrays | {"bits.linear": np.ones(1)}, r"exactly one of the encoders .* Got \[''\]"),
            ({"bits.lifted." * 10_000 + "bits.linear.weights": np.ones(1)}, "at most 8 nested .* Got 10001"),
        ]
        for changed, message in wrong:
            with pytest.raises(ValueError, match=message):
                Lifted.from_arrays(changed)

    def test_too_many_inside_each_other_are_refused_when_saving(self):
        encoder = example("linear", N_FEATURES)
        for _ in range(8):
            encoder = Lifted(lift=example("linear", N_FEATURES), bits=encoder)
        np.testing.assert_array_equal(
            Lifted.from_arrays(encoder.arrays()).encode(some_rows(9)), encoder.encode(some_rows(9))
        )
        with pytest.raises(ValueError, match="at most 8 nested"):
            Lifted(lift=example("linear", N_FEATURES), bits=encoder).arrays()

    def test_concatenate_refuses_another_lift(self):
        bits = example("linear", 1, n_features=4)
        parts = [Lifted(lift=example(name, 4), bits=bits) for name in ("kernel", "linear")]
        with pytest.raises(ValueError, match="same 'lift'"):
            Lifted.concatenate(parts)


class TestKernel:
    def test_far_from_the_origin(self):
        X, scaled = some_rows(30), example("kernel", 5)
        near = Kernel.unscaled(
            support=scaled.support, weights=scaled.weights, bias=scaled.bias, gamma=float(scaled.gamma)
        )
        far = replace(near, support=near.support + 1e6)
        np.testing.assert_allclose(far.scores(X + 1e6), near.scores(X), atol=1e-6)

    def test_concatenate_drops_support_vectors_without_weight(self):
        parts = [example("kernel", 1, seed=seed) for seed in range(3)]
        for part in parts:
            part.weights[:, [1, 4]] = 0
        parts[1].weights[0, 4] = 2.0
        whole = Kernel.concatenate(parts)
        np.testing.assert_array_equal(whole.support, np.delete(parts[0].support, 1, axis=0))
        assert whole.weights.shape == (3, 6)

    def test_constant_bits_keep_one_support_vector(self):
        part = example("kernel", 1)
        part.weights[:] = 0
        whole = Kernel.concatenate([part, part])
        assert whole.support.shape == (1, N_FEATURES)
        np.testing.assert_array_equal(whole.scores(np.ones((3, N_FEATURES))), np.full((3, 2), part.bias[0]))
        whole.check()

    def test_concatenate_merges_other_support(self):
        first, second, other = (example("kernel", n_bits, seed=seed) for seed, n_bits in enumerate((1, 2, 2)))
        support = other.support[[3, 0, 3, 5]] + [[0], [0], [0], [1]]  # one of them twice, one of them new
        third = replace(other, support=support, weights=other.weights[:, :4])
        whole = Kernel.concatenate([first, third, second])
        assert whole.support.shape == (7 + 1, N_FEATURES)
        X = some_rows(30)
        expected = np.concatenate([part.scores(X) for part in (first, third, second)], axis=1)
        np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-12, atol=1e-12)

    def test_bits_added_later_give_the_same_encoder(self):
        parts, X = [example("kernel", 1, seed=seed) for seed in range(4)], some_rows(30)
        for part in parts[:2]:
            part.weights[:, [1, 4]] = 0
        later = Kernel.concatenate([Kernel.concatenate(parts[:2]), *parts[2:]])
        assert later.support.shape == (7, N_FEATURES)
        np.testing.assert_allclose(later.scores(X), Kernel.concatenate(parts).scores(X), rtol=1e-12, atol=1e-12)

    def test_concatenate_refuses_other_gamma(self):
        first = example("kernel", 1)
        with pytest.raises(ValueError, match=r"same 'gamma'.*\[0.3, 0.4\]"):
            Kernel.concatenate([first, replace(first, gamma=np.array(0.4))])

    @pytest.mark.parametrize("bias", [0.0, np.array([1.0, -2.0, 0.5])])
    def test_on_gaussian_features(self, bias):
        X, rng = some_rows(50), np.random.default_rng(0)
        features = GaussianFeatures.draw(X, n_anchors=20, gamma=None, rng=rng)
        weights = rng.normal(size=(20, 3)).T
        encoder = Kernel.on_features(features, weights, bias)
        encoder.check()
        np.testing.assert_allclose(encoder.scores(X), features.features(X) @ weights.T + bias, atol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
def test_constant(sign):
    encoder = Linear.constant(sign, n_features=3)
    encoder.check()
    assert ((encoder.scores(np.ones((4, 3))) > 0) == (sign > 0)).all()


def test_lifted_values_beyond_float32_are_its_largest_number():
    steep = Linear(weights=np.array([[1e30]]), bias=np.zeros(1))
    bits = Linear(weights=np.array([[1e-30]]), bias=np.zeros(1))
    encoder = Lifted(lift=steep, bits=bits)
    rows = np.array([[1e20], [-1e20]], np.float32)
    assert encoder.encode(rows).tolist() == [[1], [0]]
    lost = Linear(weights=np.array([[1e308, -1e308]]), bias=np.zeros(1))  # inf - inf
    encoder = Lifted(lift=lost, bits=Linear(weights=np.ones((1, 1)), bias=np.zeros(1)))
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isfinite(encoder.scores(np.full((1, 2), 1e10))).all()
