import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from hashgrove.codes import TILE, as_columns, as_words, check_codes, distances_to_range, hamming, pack, unpack
from makers import random_codes

WIDTHS = [1, 7, 8, 9, 64, 65, 128, 200, 1024]


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_pack_is_little_endian_and_unpack_inverts_it(n_bits):
    bits = np.random.default_rng(n_bits).random((5, n_bits)) < 0.5
    codes = pack(bits)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, np.packbits(bits, axis=1, bitorder="little"))
    np.testing.assert_array_equal(unpack(codes, n_bits), bits)
    assert unpack(codes, n_bits).dtype == np.bool_


def test_pack_takes_integers_0_and_1_and_no_rows():
    np.testing.assert_array_equal(pack([[0, 1, 1]]), [[6]])
    assert pack(np.empty((0, 9), bool)).shape == (0, 2)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (np.array([[-1, 1]]), r"integers 0 and 1. Got int64 from -1 to 1 instead.*'bits > 0'"),
        (np.array([[0.5, -0.5]]), r"Got float64 instead"),
        (np.array([True, False]), r"2-D array .* Got shape \(2,\) instead"),
        (np.empty((3, 0), bool), r"at least one bit"),
    ],
)
def test_pack_refuses_what_it_would_pack_wrongly(bits, message):
    with pytest.raises(ValueError, match=message):
        pack(bits)


@pytest.mark.parametrize("n_bits", [0, 8, 17, "9", 9.5, True, None])
def test_unpack_refuses_a_number_of_bits_that_does_not_fit(n_bits):
    with pytest.raises(ValueError, match=f"must be an integer from 9 to 16. Got {n_bits!r} instead"):
        unpack(np.zeros((1, 2), np.uint8), n_bits)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((2, 8), np.int64), "'q' parameter must be packed codes of dtype uint8.* Got int64 instead"),
        (np.zeros((2, 8), np.int8), "Got int8 instead"),
        (np.zeros((2, 8), bool), r"Got bool instead. To pack bits, use hashgrove.pack\(q\)"),
        (np.zeros(8, np.uint8), r"must be 2-D.* Got shape \(8,\) instead. For one code, pass q\[None, :\]"),
        (np.zeros((1, 2, 8), np.uint8), r"Got shape \(1, 2, 8\) instead.$"),
        (np.zeros((2, 4), np.uint8), "must have 8 bytes per code. Got 4 instead"),
    ],
)
def test_check_codes_refuses_wrong_types_and_shapes(codes, message):
    with pytest.raises(ValueError, match=message):
        check_codes(codes, n_bytes=8, name="q")


def test_check_codes_refuses_lengths_whose_distances_would_overflow():
    with pytest.raises(ValueError, match=r"1 to 8191 bytes per code. Got 0 instead"):
        check_codes(np.empty((2, 0), np.uint8))
    with pytest.raises(ValueError, match="Got 8192 instead"):
        check_codes(np.empty((2, 8192), np.uint8))
    ends = np.array([[0] * 8191, [255] * 8191], np.uint8)
    assert hamming(ends, ends).tolist() == [[0, 65528], [65528, 0]]


def test_check_codes_gives_contiguous_codes_without_needless_copy():
    codes = random_codes(6, 64)
    assert check_codes(codes) is codes
    strided = check_codes(codes[::2, ::-1])
    assert strided.flags.c_contiguous
    np.testing.assert_array_equal(strided, codes[::2, ::-1])


@pytest.mark.parametrize("n_bytes", [1, 8, 9, 16, 17])
def test_words_are_little_endian_and_padded(n_bytes):
    codes = random_codes(3, 8 * n_bytes)
    words = as_words(codes)
    assert words.dtype == np.uint64
    expected = [
        [int.from_bytes(bytes(row[i : i + 8]), "little") for i in range(0, n_bytes, 8)] for row in codes.tolist()
    ]
    assert words.tolist() == expected
    np.testing.assert_array_equal(as_columns(codes), words.T)
    assert as_columns(codes).flags.c_contiguous


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(WIDTHS), st.integers(0, 5), st.integers(0, 9), st.integers(0, 99))
def test_hamming_is_the_number_of_bits_that_differ(n_bits, n_a, n_b, seed):
    a, b = random_codes(n_a, n_bits, seed), random_codes(n_b, n_bits, seed + 1)
    distances = hamming(a, b)
    assert distances.dtype == np.uint16
    assert distances.shape == (n_a, n_b)
    np.testing.assert_array_equal(distances, naive.hamming(a, b))


@pytest.mark.parametrize("n_bits", [9, 64, 128])
def test_hamming_across_tiles_and_threads(n_bits):
    a, b = random_codes(130, n_bits, 1), random_codes(TILE + 3, n_bits, 2)
    expected = (unpack(a, n_bits)[:, None] != unpack(b[-5:], n_bits)).sum(axis=2)
    one, two = hamming(a, b, n_jobs=1), hamming(a, b, n_jobs=2)
    np.testing.assert_array_equal(one[:, -5:], expected)
    np.testing.assert_array_equal(one, two)


def test_hamming_refuses_codes_of_different_length():
    with pytest.raises(ValueError, match=r"'b' parameter must have 1 bytes per code. Got 2 instead"):
        hamming(random_codes(1, 8), random_codes(1, 16))


def test_distances_to_range_writes_the_range_only():
    codes, query = random_codes(10, 100, 3), random_codes(1, 100, 4)
    out = np.full(6, 999, np.uint16)
    distances_to_range(as_columns(codes), as_words(query)[0], 2, 7, out)
    assert out.tolist() == [*naive.hamming(query, codes)[0, 2:7], 999]
