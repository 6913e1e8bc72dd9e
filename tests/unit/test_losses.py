from __future__ import annotations

import numpy as np
import pytest

from hashgrove import Affinity, losses
from hashgrove.inference import BinaryQuadratic, PairDistances
from naive import coefficient_matrix, pair_matrix


@pytest.mark.parametrize("name", ["ksh", "bre", "hinge", "exph"])
@pytest.mark.parametrize("n_bits", [1, 2, 5, 64, 1024])
def test_each_loss_is_what_the_paper_prints(name, n_bits):
    d = np.arange(n_bits + 1)
    m = n_bits
    printed = {
        "ksh": ((m - (m - 2 * d)) ** 2 / m**2, (-m - (m - 2 * d)) ** 2 / m**2),
        "bre": (d**2 / m**2, (m - d) ** 2 / m**2),
        "hinge": (d**2 / m**2, np.maximum(0.5 * m - d, 0) ** 2 / m**2),
        "exph": (np.exp(d / m), np.exp(-d / m + 1)),
    }
    for got, expected in zip(losses.loss_tables(losses.LOSSES[name], n_bits), printed[name], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [*losses.LOSSES.values(), lambda d, s, m: np.where(s, d, m - d) ** 1.5])
def test_proposition_1(loss):
    """The coefficients of every bit are those of the definition, up to one positive factor."""
    rng = np.random.default_rng(0)
    affinity = Affinity.from_labels(rng.integers(0, 3, 12), n_similar=4, n_dissimilar=4, random_state=0)
    bits = rng.choice([-1, 1], (9, 12)).astype(np.int8)
    distances = PairDistances(affinity, n_bits=10)
    for r, bit in enumerate(bits):
        problem = BinaryQuadratic(affinity, distances.values, losses.coefficients(loss, r + 1))
        expected = coefficient_matrix(pair_matrix(affinity), bits[:r], loss)
        A = problem.matrix().toarray()
        np.testing.assert_allclose(A / np.abs(A).max(), expected / np.abs(expected).max(), atol=1e-6)
        assert problem.objective(bit) == bit @ A.astype(np.int64) @ bit
        weights = np.abs(A).sum(axis=1)
        np.testing.assert_allclose(problem.weights(), weights / weights.mean())
        distances.add_bit(bit)


def test_ksh_is_four_times_bre_to_the_last_bit():
    for r in range(1, 300):
        for ksh, bre in zip(losses.loss_tables(losses.ksh, r), losses.loss_tables(losses.bre, r), strict=True):
            assert (ksh == 4 * bre).all()
        for ksh, bre in zip(losses.coefficients(losses.ksh, r), losses.coefficients(losses.bre, r), strict=True):
            assert (ksh == bre).all()


@pytest.mark.parametrize("heavy", [10**4, 10**-4])
def test_coefficients_are_scaled_by_the_larger_table(heavy):
    """The larger of both tables fills the range of the fixed-point numbers, whichever it is."""

    def loss(distance, similar, n_bits):
        return np.where(similar, distance, heavy * (n_bits - distance))

    similar, dissimilar = losses.coefficients(loss, 4)
    largest = max(np.abs(similar).max(), np.abs(dissimilar).max())
    assert 2 ** (losses.FIXED_POINT_BITS - 1) <= largest <= 2**losses.FIXED_POINT_BITS
    np.testing.assert_allclose(-dissimilar / similar, heavy, rtol=1e-2)


def test_a_loss_that_breaks_submodularity_is_refused():
    def reversed_loss(distance, similar, n_bits):
        return np.where(similar, n_bits - distance, distance)

    with pytest.raises(ValueError, match=r"sub-modularity.*decreases by 1 from distance 0 to distance 1 at 1 bits"):
        losses.check_loss(reversed_loss, 8)

    def late(distance, similar, n_bits):  # breaks the condition only from distance 5 on
        return np.where(similar, np.minimum(distance, 10 - distance), 0.0)

    losses.check_loss(late, 5)
    with pytest.raises(ValueError, match="sub-modularity"):
        losses.check_loss(late, 6)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("hnige", "must be one of"),
        (3, "must be one of"),
        (lambda d, s, m: np.nan * d, "finite"),
        (lambda d, s, m: 1.0, "one finite number per distance"),
    ],
)
def test_bad_losses(loss, message):
    with pytest.raises(ValueError, match=message):
        losses.check_loss(loss, 4)


@pytest.mark.parametrize("n_bits", [3, 300])
def test_pair_distances_are_hamming_distances(n_bits):
    rng = np.random.default_rng(1)
    affinity = Affinity.from_labels(rng.integers(0, 3, 50), random_state=0)
    distances = PairDistances(affinity, n_bits=n_bits, n_jobs=2)
    bits = rng.choice([-1, 1], (n_bits, 50)).astype(np.int8)
    for bit in bits:
        distances.add_bit(bit)
    assert distances.values.dtype == (np.uint8 if n_bits < 256 else np.uint16)
    row = np.repeat(np.arange(50), np.diff(affinity.indptr))
    assert (distances.values == (bits[:, row] != bits[:, affinity.indices]).sum(axis=0)).all()
    similar, dissimilar = losses.loss_tables(losses.hinge, n_bits)
    Y = pair_matrix(affinity)[row, affinity.indices]
    expected = np.where(Y > 0, similar[distances.values], dissimilar[distances.values]).mean()
    assert distances.mean(similar, dissimilar) == pytest.approx(expected)
