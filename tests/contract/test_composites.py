"""Encoders made of encoders: bits of mixed kinds joined by a fit, nesting, and hostile arrays."""

from __future__ import annotations

import numpy as np
import pytest

from example_encoders import N_FEATURES, example, save_and_load, some_rows
from hashgrove import load
from hashgrove.encoders import Lifted, Linear, Mixed, Sum, join
from hashgrove.encoders.composite import MAX_DEPTH, MAX_PARTS
from hashgrove.functions import FittedClassifiers
from hashgrove.hasher import Hasher

X = some_rows(40)
SOURCE = np.array([0, 1, 0, 0], np.uint8)


def scores_of(encoders):
    return np.hstack([encoder.scores(X) for encoder in encoders])


class Kept(Hasher):
    """A hasher with a given encoder."""

    def __init__(self, n_bits=1, *, random_state=None):
        self.n_bits, self.random_state = n_bits, random_state


class TestJoin:
    @pytest.mark.parametrize("names", [("linear", "kernel"), ("linear", "linear", "trees", "linear"), ("sum", "mixed")])
    def test_encoders_of_several_kinds_become_a_mixed_one(self, names, tmp_path):
        parts = [example(name, 2, seed=seed) for seed, name in enumerate(names)]
        whole = join(parts)
        assert isinstance(whole, Mixed)
        whole.check()
        np.testing.assert_allclose(whole.scores(X), scores_of(parts), rtol=1e-12)
        np.testing.assert_array_equal(whole.encode(X), save_and_load(whole, tmp_path / "m").encode(X))

    def test_encoders_of_one_kind_are_one_part(self):
        whole = join(
            [example("linear", 1, seed=s) for s in range(3)] + [example("class-scores", 2), example("linear", 1)]
        )
        assert [part.n_bits for part in whole.parts] == [4, 2]
        assert whole.source.tolist() == [0, 0, 0, 1, 1, 0]

    def test_many_bits_of_alternating_kinds(self):
        parts = [example(("linear", "class-scores")[number % 2], 1, seed=number) for number in range(MAX_PARTS + 44)]
        whole = join(parts)
        whole.check()
        np.testing.assert_allclose(whole.scores(X), scores_of(parts), rtol=1e-12)

    def test_encoders_of_one_kind_stay_of_this_kind(self):
        for name in ("linear", "sum", "mixed", "lifted", "posterior"):
            parts = [example(name, n, seed=n) for n in (1, 2)]
            whole = join(parts)
            assert type(whole) is type(parts[0])
            np.testing.assert_allclose(whole.scores(X), scores_of(parts), rtol=1e-5, atol=1e-5)

    def test_encoders_with_the_same_lift_are_joined_inside(self):
        lift = example("kernel", 4)
        parts = [Lifted(lift=lift, bits=example(name, 2, n_features=4)) for name in ("linear", "posterior")]
        whole = join(parts)
        assert isinstance(whole, Lifted)
        assert isinstance(whole.bits, Mixed)
        np.testing.assert_allclose(whole.scores(X), scores_of(parts), rtol=1e-12)

    def test_another_lift_is_not_dropped(self):
        """The bits of the second encoder see its own lift, or it is refused."""
        parts = [Lifted(lift=example("linear", 4, seed=s), bits=example("linear", 2, n_features=4)) for s in (0, 1)]
        with pytest.raises(ValueError, match="same 'lift'"):
            join(parts)

    def test_fitted_classifiers_and_encoders_are_parts(self):
        from sklearn.tree import DecisionTreeClassifier

        from hashgrove.functions import Classifier

        rng = np.random.default_rng(0)
        learner = Classifier(DecisionTreeClassifier(max_depth=2))
        z = np.where(X[:, 0] > 0, 1, -1).astype(np.int8)
        fitted, _ = learner.learn(learner.prepare(X, rng), z, None, rng)
        whole = join([fitted, example("linear", 2)])
        assert [type(part) for part in whole.parts] == [FittedClassifiers, Linear]
        np.testing.assert_allclose(whole.scores(X), scores_of([fitted, example("linear", 2)]))


class TestMixed:
    def test_the_bits_of_a_part_keep_their_order(self):
        one, two = example("linear", 3), example("kernel", 2)
        whole = Mixed(parts=(one, two), source=np.array([1, 0, 0, 1, 0], np.uint8))
        a, b = one.scores(X), two.scores(X)
        np.testing.assert_allclose(whole.scores(X), np.stack([b[:, 0], a[:, 0], a[:, 1], b[:, 1], a[:, 2]], axis=1))

    def test_concatenate_numbers_the_parts_anew(self):
        parts = [
            Mixed(parts=(example("linear", 3, seed=s), example("kernel", 1, seed=s)), source=SOURCE) for s in range(3)
        ]
        whole = Mixed.concatenate(parts)
        whole.check()
        np.testing.assert_allclose(whole.scores(X), scores_of(parts), rtol=1e-12)

    def test_too_many_parts(self):
        one = Mixed(parts=(example("linear", 1),), source=np.zeros(1, np.uint8))
        assert len(Mixed.concatenate([one] * MAX_PARTS).parts) == MAX_PARTS
        with pytest.raises(ValueError, match=f"at most {MAX_PARTS} parts together. Got {MAX_PARTS + 1}"):
            Mixed.concatenate([one] * (MAX_PARTS + 1))

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (np.array([0, 0, 1], np.int64), "must be uint8"),
            (np.array([[0, 0, 1]], np.uint8), r"must be uint8 of shape \(n_bits,\)"),
            (np.array(0, np.uint8), "must be uint8 of shape"),
            (np.array([0, 1, 1], np.uint8), "must name each part once per bit"),
            (np.array([0, 0], np.uint8), "must name each part once per bit"),
            (np.array([0, 0, 255], np.uint8), "must name each part once per bit"),
            (np.array([], np.uint8), "must name each part once per bit"),
        ],
    )
    def test_hostile_sources(self, source, message):
        whole = Mixed(parts=(example("linear", 2), example("kernel", 1)), source=np.array([0, 0, 1], np.uint8))
        with pytest.raises(ValueError, match=message):
            Mixed.from_arrays(whole.arrays() | {"source": source})

    def test_parts_of_other_widths(self):
        parts = example("linear", 1), example("linear", 1, n_features=7)
        arrays = Mixed(parts=parts, source=np.array([0, 1], np.uint8)).arrays()
        with pytest.raises(ValueError, match=r"same number of features. Got \[5, 7\]"):
            Mixed.from_arrays(arrays)


class TestSum:
    def test_of_three(self):
        parts = tuple(example(name, 2) for name in ("linear", "kernel", "trees"))
        np.testing.assert_allclose(Sum(parts=parts).scores(X), sum(part.scores(X) for part in parts), rtol=1e-12)

    def test_concatenate_refuses_parts_of_other_classes(self):
        sums = [Sum(parts=(example("linear", 1), example(name, 1))) for name in ("kernel", "class-scores")]
        with pytest.raises(ValueError, match="must have parts of the same classes"):
            Sum.concatenate(sums)

    @pytest.mark.parametrize("other", [example("linear", 3), example("linear", 2, n_features=7)])
    def test_parts_of_other_shapes(self, other):
        with pytest.raises(ValueError, match=r"the same \(n_bits, n_features\)"):
            Sum.from_arrays(Sum(parts=(example("linear", 2), other)).arrays())


class TestHostileFiles:
    @pytest.mark.parametrize("kind", [Sum, Mixed])
    def test_names_that_are_not_numbers_from_zero(self, kind):
        arrays = {"sum": None}
        whole = Sum(parts=(example("linear", 1), example("kernel", 1)))
        if kind is Mixed:
            whole = Mixed(parts=whole.parts, source=np.array([0, 1], np.uint8))
        good = whole.arrays()
        for old, new in (("0.", "2."), ("0.", "a."), ("0.", "00."), ("0.", "-1."), ("1.", "\u0661.")):
            arrays = {name.replace(old, new, 1) if name.startswith(old) else name: a for name, a in good.items()}
            with pytest.raises(ValueError, match="array"):
                kind.from_arrays(arrays)
        with pytest.raises(ValueError, match="array"):
            kind.from_arrays({name: a for name, a in good.items() if "." not in name})

    def test_one_part_of_two_kinds(self):
        arrays = Sum(parts=(example("linear", 1),)).arrays()
        with pytest.raises(ValueError, match=r"exactly one of the encoders"):
            Sum.from_arrays(arrays | {"0.kernel.weights": np.ones((1, 1))})

    @pytest.mark.parametrize("kind", ["sum", "mixed", "lifted", "spread"])
    def test_too_deep_names_are_refused_before_anything_is_built(self, kind):
        name = f"0.{kind}." * 100_000 + "0.linear.weights"
        with pytest.raises(ValueError, match=f"at most {MAX_DEPTH} nested"):
            Sum.from_arrays({name: np.ones(1)})

    @pytest.mark.parametrize("wrap", [
        lambda inner: Sum(parts=(inner,)),
        lambda inner: Mixed(parts=(inner,), source=np.zeros(1, np.uint8)),
    ], ids=["sum", "mixed"])  # fmt: skip
    def test_as_deep_as_allowed_and_one_deeper(self, wrap, tmp_path):
        encoder = example("linear", 1)
        for _ in range(MAX_DEPTH):
            encoder = wrap(encoder)
        hasher = Kept()
        hasher.encoder_, hasher.n_features_in_ = encoder, N_FEATURES
        hasher.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").encode(X), encoder.encode(X))
        hasher.encoder_ = wrap(encoder)
        with pytest.raises(ValueError, match=f"at most {MAX_DEPTH} nested"):
            hasher.save(tmp_path / "other")
        assert not (tmp_path / "other").exists()

    def test_too_many_parts(self):
        one = example("linear", 1).arrays()
        arrays = {f"{part}.linear.{name}": a for part in range(MAX_PARTS + 1) for name, a in one.items()}
        with pytest.raises(ValueError, match="numbered from 0"):
            Sum.from_arrays(arrays)

    def test_what_is_wrong_inside_of_a_part_is_found(self):
        inner = Sum(parts=(Linear.constant(1, n_features=N_FEATURES),))
        arrays = Mixed(parts=(inner,), source=np.zeros(1, np.uint8)).arrays()
        assert "0.sum.0.linear.bias" in arrays
        with pytest.raises(ValueError, match="'bias' must be finite"):
            Mixed.from_arrays(arrays | {"0.sum.0.linear.bias": np.array([np.nan])})
