"""Encoders of methods of the paper, which have kinds of functions that no other method has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from example_encoders import N_FEATURES, random_encoder, some_rows
from experiments.baselines.anchor_graph import AnchorGraph
from experiments.baselines.mdsh import Tabulated
from experiments.baselines.sph import Sinusoid
from experiments.baselines.spher import Spheres
from experiments.tests import naive_rivals
from hashgrove.codes import unpack

SPECIAL = {  # arrays that must be other than random floats
    Sinusoid: lambda n_bits, rng: {},
    Spheres: lambda n_bits, rng: {"radii": 3 * rng.random(n_bits)},
    Tabulated: lambda n_bits, rng: {"low": rng.random((7, n_bits)) - 2, "high": rng.random((7, n_bits)) + 1},
    AnchorGraph: lambda n_bits, rng: {"bandwidth": np.array(0.9), "n_nearest": np.array(3)},
}
SCORES = {
    Sinusoid: naive_rivals.sinusoid_scores,
    Spheres: naive_rivals.sphere_scores,
    Tabulated: naive_rivals.tabulated_scores,
    AnchorGraph: naive_rivals.anchor_graph_scores,
}


def example(encoder_class, n_bits=3, *, seed=0):
    special = SPECIAL[encoder_class](n_bits, np.random.default_rng([seed, 1]))
    return random_encoder(encoder_class, special, n_bits, seed=seed)


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("encoder_class", SPECIAL)
def test_scores_equal_the_naive_ones(encoder_class, dtype):
    encoder = example(encoder_class, 11)
    X = (np.random.default_rng(1).random((40, N_FEATURES)) * 3).astype(dtype)
    scores = encoder.scores(X)
    expected = SCORES[encoder_class](X.astype(np.float64), **encoder.arrays())
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(unpack(encoder.encode(X), n_bits=11), scores > 0)


@pytest.mark.parametrize("encoder_class", SPECIAL)
def test_concatenate_gives_the_bits_in_order(encoder_class):
    parts, X = [example(encoder_class, n, seed=n) for n in (1, 2, 4)], some_rows(30)
    whole = encoder_class.concatenate(parts)
    expected = np.concatenate([part.scores(X) for part in parts], axis=1)
    np.testing.assert_allclose(whole.scores(X), expected, rtol=1e-12, atol=1e-12)


def test_anchor_graphs_with_other_anchors_cannot_be_joined():
    first = example(AnchorGraph, 1)
    for name, value in {"anchors": first.anchors + 1, "bandwidth": np.array(2.0), "n_nearest": np.array(2)}.items():
        with pytest.raises(ValueError, match=f"AnchorGraph encoders must have the same '{name}'"):
            AnchorGraph.concatenate([first, replace(first, **{name: value})])


def test_a_row_far_from_all_anchors_has_a_score():
    scores = example(AnchorGraph).scores(np.full((1, N_FEATURES), 1e5))
    assert np.isfinite(scores).all()
    assert np.abs(scores).max() > 0


def test_tabulated_encoders_with_fewer_factors_are_filled_up():
    long, X = example(Tabulated, 2), some_rows(20)
    short = Tabulated(**{field: array[:3] for field, array in example(Tabulated, 1, seed=5).arrays().items()})
    whole = Tabulated.concatenate([short, long])
    assert whole.directions.shape == (7, 3, N_FEATURES)
    np.testing.assert_allclose(whole.scores(X), np.hstack([short.scores(X), long.scores(X)]), rtol=1e-12)


def test_nan_in_a_direction_finds_a_knot():
    """Products that overflow with both signs add up to NaN, which has no place in a table."""
    table = example(Tabulated)
    huge = np.where(np.arange(N_FEATURES) % 2, 1.7e308, -1.7e308)
    table = replace(table, directions=np.broadcast_to(huge, table.directions.shape))
    with np.errstate(all="ignore"):
        assert table.encode(np.full((2, N_FEATURES), 1e10)).shape == (2, 1)
