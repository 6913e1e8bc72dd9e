"""Decodable bits: codes, their decoder, the fit of all bits together, and the ranking by decoded probabilities."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import command
import naive
from example_encoders import example, some_rows
from hashgrove import FastHash, FlatIndex, MultiIndex, evaluate, load, unpack
from hashgrove.encoders import Decodable, Lifted, Mixed, Spread
from hashgrove.functions import DecodableBits
from hashgrove.index import Decoded, Rerank
from hashgrove.metrics import evaluate_vectors
from makers import blob_tags, blobs, pairs_of

X, Y = blobs()
X_NEW, Y_NEW = blobs(seed=1)


def small(n_bits=16, **parameters):
    return FastHash(n_bits, **{"hash_function": DecodableBits(), "random_state": 0, "n_jobs": 1} | parameters)


@pytest.fixture(scope="module")
def hasher():
    return small().fit(X, Y)


def ranked_by_hand(hasher, items, queries):
    """1 - sum_c p(c) P(c | code), for each query and item."""
    encoder = hasher.encoder_
    learned, p = encoder.part(Decodable), encoder.as_queries(queries).probabilities
    bits = unpack(hasher.transform(items), hasher.n_bits)[:, ~encoder.is_generic]
    arrays = {name: getattr(learned, name) for name in ("table", "offset", "temperature")}
    return 1 - p @ naive.decode(bits, **arrays).T


class TestFit:
    def test_all_bits_are_learned_together_and_reported_one_by_one(self):
        seen = []
        hasher = small(callbacks=[seen.append]).fit(X, Y)
        assert [record.bit for record in seen] == list(range(12)) == [record.bit for record in hasher.history_]
        assert {record.hash_function for record in seen} == {"DecodableBits"}
        assert hasher.generic_bits_ == 4
        assert isinstance(hasher.encoder_, Spread)
        assert hasher.score(X_NEW, Y_NEW) > 0.75, "chance is about 0.1"

    def test_the_rounds_bring_what_is_decoded_closer_to_the_probabilities(self, hasher):
        def distance(hasher):
            queries = hasher.encoder_.as_queries(X_NEW)
            decoded = hasher.encoder_.decoder.decode(hasher.transform(X_NEW))
            return -np.mean((queries.probabilities * np.log(decoded)).sum(axis=1))

        none = small(hash_function=DecodableBits(n_rounds=0)).fit(X, Y)
        assert distance(hasher) < distance(none)

    @pytest.mark.parametrize("settings", [{}, {"n_anchors": 40}], ids=str)
    def test_same_bytes_at_any_number_of_threads(self, tmp_path, settings):
        for n in (1, 2):
            small(hash_function=DecodableBits(**settings), n_jobs=n).fit(X, Y).save(tmp_path / str(n))
        assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()

    def test_a_kernel_lifts_the_rows(self):
        hasher = small(hash_function=DecodableBits(n_anchors=40)).fit(X, Y)
        assert isinstance(hasher.encoder_.learned, Lifted)
        assert (
            hasher.encoder_.decoder.decode(hasher.transform(X)).argmax(axis=1) == np.unique(Y, return_inverse=True)[1]
        ).mean() > 0.75

    def test_a_row_of_weight_two_counts_like_two_rows(self):
        twice = np.arange(len(X)) % 7 == 0
        weighted = small(generic_bits=0).fit(X, Y, sample_weight=1.0 + twice)
        assert weighted.encoder_.table.shape == (16, len(np.unique(Y)))

    @pytest.mark.parametrize("what", ["tags", "pairs"])
    def test_other_supervision_is_refused(self, what):
        rows, tags = blob_tags()
        with pytest.raises(
            ValueError, match=r"must be given class labels as y.*Got tags or pairs; use hash_function='po"
        ):
            small().fit(rows, tags) if what == "tags" else small().fit(X, affinity=pairs_of(Y))

    def test_stagewise_and_more_bits_are_refused(self):
        with pytest.raises(ValueError, match="'stagewise' parameter must be None or False for DecodableBits"):
            small(stagewise=True).fit(X, Y)
        hasher = small(warm_start=True).fit(X, Y)
        with pytest.raises(ValueError, match=r"learns all bits together and cannot add 12 to the 12.*warm_start=False"):
            hasher.set_params(n_bits=32).fit(X, Y)

    def test_validation_measures_the_decoded_ranking_too_and_does_not_warn_of_it(self, recwarn):
        leads = []
        for seed in range(3):
            found = small(random_state=seed).fit(X, Y, validation=0.3, refit=False).validation_
            plain, decoded = found.rows[0], found.rows[-1]
            assert (plain.method, decoded.method) == ("these codes", "these codes, decoded")
            assert decoded.n_bytes == plain.n_bytes == 2
            assert not [warning for warning in found.warnings() if "decoded" in warning]
            leads.append(decoded.map - plain.map)
        assert np.mean(leads) > 0.01

    def test_a_checkpoint_has_all_bits(self, tmp_path, hasher):
        path = tmp_path / "run"
        small().fit(X, Y, checkpoint=path)
        again = small().fit(X, Y, checkpoint=path)
        np.testing.assert_array_equal(again.transform(X_NEW), hasher.transform(X_NEW))

    def test_an_interrupted_callback_leaves_the_whole_code(self):
        def stop(record):
            raise KeyboardInterrupt

        hasher = small(callbacks=[stop])
        with pytest.raises(KeyboardInterrupt):
            hasher.fit(X, Y)
        assert hasher.encoder_.n_bits == len(hasher.history_) == 12


class TestDecoder:
    def test_equals_the_naive_one(self):
        encoder = example("decodable", 11)
        codes = encoder.encode(some_rows(30))
        expected = naive.decode(
            unpack(codes, 11), table=encoder.table, offset=encoder.offset, temperature=encoder.temperature
        )
        np.testing.assert_allclose(encoder.decoder.decode(codes), expected, rtol=1e-5)

    def test_equal_codes_are_decoded_alike(self, hasher):
        codes = np.tile(hasher.transform(X_NEW), (3, 1))[:5000]
        decoded = hasher.encoder_.decoder.decode(codes)
        np.testing.assert_array_equal(decoded[: len(X_NEW)], decoded[len(X_NEW) : 2 * len(X_NEW)])

    def test_generic_bits_say_nothing_about_classes(self, hasher):
        codes = hasher.transform(X_NEW)
        bits = unpack(codes, 16)
        bits[:, hasher.encoder_.is_generic] = ~bits[:, hasher.encoder_.is_generic]
        other = np.packbits(bits, axis=1, bitorder="little")
        decoder = hasher.encoder_.decoder
        np.testing.assert_allclose(decoder.decode(other), decoder.decode(codes), rtol=1e-5)

    def test_the_likeliest_classes_have_their_names_after_loading(self, tmp_path):
        names = np.array([f"class {label}" for label in Y])
        hasher = small().fit(X, names)
        hasher.save(tmp_path / "m")
        encoder = load(tmp_path / "m")
        found = encoder.decoder.likeliest(encoder.encode(X), 2)
        assert np.mean([best[0][0] == name for best, name in zip(found, names, strict=True)]) > 0.75
        assert all(best[0][1] >= best[1][1] for best in found)

    def test_other_encoders_have_none_and_search_with_their_own_codes(self):
        posterior = small(hash_function="posterior").fit(X, Y).encoder_
        assert posterior.decoder is None
        np.testing.assert_array_equal(posterior.encode_queries(X_NEW), posterior.encode(X_NEW))
        with pytest.raises(ValueError, match="as_queries needs codes that can be decoded"):
            posterior.as_queries(X_NEW)

    def test_some_bits_of_two_models_cannot_be_decoded(self):
        part = example("decodable", 3)
        whole = Decodable.concatenate([part, example("decodable", 2, seed=1)])
        assert isinstance(whole, Mixed)
        assert whole.decoder is None
        assert Decodable.concatenate([part]) is part

    def test_the_search_ends_for_rows_without_information(self):
        encoder = replace(example("decodable", 11), table=np.zeros((11, 7), np.float32))
        assert (np.abs(encoder.scores(some_rows(5))) > 0).all()


class TestDecoded:
    @pytest.fixture(params=[FlatIndex, MultiIndex])
    def index(self, request, hasher):
        return request.param(hasher.transform(X), ids=np.arange(len(X)) * 3)

    def test_the_order_is_that_of_the_decoded_scores(self, hasher, index):
        found = index.search(hasher.transform(X_NEW), 20, rerank=Decoded(hasher, n_candidates=len(X)), features=X_NEW)
        expected = np.sort(ranked_by_hand(hasher, X, X_NEW), axis=1)[:, :20]
        np.testing.assert_allclose(found.distances, expected, atol=1e-5)
        scores = ranked_by_hand(hasher, X, X_NEW)
        np.testing.assert_allclose(np.take_along_axis(scores, found.ids // 3, axis=1), expected, atol=1e-5)
        equal = np.diff(found.distances, axis=1) == 0
        assert (np.diff(found.ids, axis=1)[equal] > 0).all(), "ties by id"

    def test_item_codes_and_query_codes_of_the_queries_give_the_same(self, hasher, index):
        how = {"rerank": Decoded(hasher.encoder_, n_candidates=30), "features": X_NEW}
        for codes in (hasher.encoder_.encode_queries(X_NEW), np.zeros((len(X_NEW), 2), np.uint8)):
            found = index.search(codes, 7, **how, model=hasher.encoder_, n_jobs=2)
            expected = index.search(hasher.transform(X_NEW), 7, **how, n_jobs=1)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.distances, expected.distances)

    def test_candidates_are_those_of_the_query_codes(self, hasher, index):
        n = 25
        queries = hasher.encoder_.encode_queries(X_NEW)
        near = index.search(queries, len(X))
        last = near.distances[:, n - 1 : n]
        found = index.search(
            hasher.transform(X_NEW), 200, rerank=Decoded(hasher, n_candidates=n, max_candidates=200), features=X_NEW
        )
        assert found.ids.shape[1] == 200
        few = index.search(hasher.transform(X_NEW), 5, rerank=Decoded(hasher, n_candidates=n), features=X_NEW)
        place = np.argsort(near.ids, axis=1)
        for row, ids in enumerate(few.ids):
            assert (near.distances[row][place[row][ids // 3]] <= last[row]).all()

    def test_only_allowed_items(self, hasher, index):
        allowed = np.arange(0, 60, 6)
        found = index.search(hasher.transform(X_NEW), 50, rerank=Decoded(hasher), features=X_NEW, allowed=allowed)
        assert sorted(found.ids[0].tolist()) == allowed.tolist()

    def test_nothing_to_find_and_nobody_who_asks(self, hasher):
        empty = FlatIndex(hasher.transform(X)[:0])
        assert empty.search(hasher.transform(X_NEW), 3, rerank=Decoded(hasher), features=X_NEW).ids.shape == (
            len(X_NEW),
            0,
        )
        index = FlatIndex(hasher.transform(X))
        found = index.search(hasher.transform(X_NEW)[:0], 3, rerank=Decoded(hasher), features=X_NEW[:0])
        assert found.ids.shape == (0, 3)

    def test_a_decoder_of_another_model_is_refused(self, hasher, index):
        other = small(random_state=1).fit(X, Y)
        with pytest.raises(
            ValueError, match=r"'rerank' parameter must be of the model of the index, \w{12}\. Got one of"
        ):
            index.search(hasher.transform(X_NEW), 3, rerank=Decoded(other), features=X_NEW)

    def test_wrong_calls(self, hasher, index):
        codes = hasher.transform(X_NEW)
        with pytest.raises(ValueError, match=r"must be a model whose codes can be decoded.*Got Spread"):
            index.search(codes, 3, rerank=Decoded(small(hash_function="posterior").fit(X, Y)), features=X_NEW)
        with pytest.raises(ValueError, match=r"'features' parameter must be the features of the queries"):
            index.search(codes, 3, rerank=Decoded(hasher))
        with pytest.raises(ValueError, match=rf"'features' parameter must have {len(X_NEW)} rows"):
            index.search(codes, 3, rerank=Decoded(hasher), features=X_NEW[:2])
        with pytest.raises(ValueError, match=r"'n_candidates' parameter must be"):
            index.search(codes, 3, rerank=Decoded(hasher, n_candidates=0), features=X_NEW)

    def test_features_are_ranked_as_before(self, index, hasher):
        found = index.search(hasher.transform(X_NEW), 3, rerank=Rerank(X, ids=index.ids), features=X_NEW)
        assert found.ids.shape == (len(X_NEW), 3)

    def test_it_ranks_better_than_the_hamming_distance_of_item_codes(self, hasher):
        labels = {"y_queries": Y_NEW, "y_database": Y}
        queries = hasher.encoder_.as_queries(X_NEW)
        decoded = hasher.encoder_.decoder.decode(hasher.transform(X))
        by_classes = evaluate_vectors(decoded, queries.probabilities, **labels, metric="dot").map
        plain = evaluate(hasher.transform(X), hasher.transform(X_NEW), **labels).map
        assert by_classes > plain


def test_the_command_line_decodes_unless_told_otherwise(hasher, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hasher.save("m.hashgrove")
    np.save("codes.npy", hasher.transform(X))
    np.save("queries.npy", X_NEW[:4])

    def search(*more):
        status, out, err = command.call(
            capsys, "search", "codes.npy", "queries.npy", "--model", "m.hashgrove", "-k", "5", "--json", *more
        )
        assert status == 0, err
        return [found["ids"] for found in json.loads(out)]

    index, codes = FlatIndex(hasher.transform(X)), hasher.transform(X_NEW[:4])
    assert search() == index.search(codes, 5, rerank=Decoded(hasher), features=X_NEW[:4]).ids.tolist()
    assert search("--plain") == index.search(codes, 5).ids.tolist()
