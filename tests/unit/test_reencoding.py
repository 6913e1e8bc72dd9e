"""Re-encoding: a folder or an engine gets the codes of a new model at once, also if the process is killed."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from PIL import Image

import tiny_onnx
from command import call, fails
from hashgrove import (
    LSH,
    FlatIndex,
    MultiIndex,
    OnnxFeatures,
    ParameterError,
    connect,
    load,
    load_index,
    reencode,
    reencoding,
)
from hashgrove.index.folder import MODEL
from hashgrove.storage.atomic import exchange
from hashgrove.storage.formats import FileError

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 12)).astype(np.float32)
IDS = rng.permutation(1000)[:300]
ENGINES = ("sqlite:///{}/codes.db", "duckdb:///{}/codes.duckdb", "lance:///{}/codes.lance", "faiss:///{}/codes.faiss")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Files of an old and a new model, of codes with 2 and 3 bytes."""
    folder = tmp_path_factory.mktemp("models")
    LSH(16, random_state=0).fit(X).save(folder / "old.hashgrove")
    LSH(24, random_state=1).fit(X).save(folder / "new.hashgrove")
    return str(folder / "old.hashgrove"), str(folder / "new.hashgrove")


@pytest.fixture
def pieces_of_64(monkeypatch):
    monkeypatch.setattr(reencoding, "PIECE", 64)


def folder_of(path, old, *, kind=FlatIndex, features=True, ids=IDS):
    index = kind(load(old).encode(X), ids=ids)
    if features:
        index.keep_features(X)
    index.save(path)
    with open(old, "rb") as file:
        (path / MODEL).write_bytes(file.read())
    return str(path)


def check_is_of(place, model, *, codes=None):
    """The index has the codes of a model, in the order in which items were added."""
    encoder = load(model)
    with connect(place, create=False) if "://" in place else load_index(place) as index:
        assert index.model == encoder.digest
        np.testing.assert_array_equal(index.ids, IDS)
        np.testing.assert_array_equal(index.codes, encoder.encode(X) if codes is None else codes)
        query = encoder.encode(X[:3])
        np.testing.assert_array_equal(
            index.search(query, 5).ids, FlatIndex(index.codes, ids=IDS, model=encoder).search(query, 5).ids
        )


class TestFolder:
    @pytest.mark.parametrize("kind", [FlatIndex, MultiIndex])
    def test_from_rows(self, models, tmp_path, kind):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old, kind=kind)
        (tmp_path / "a.hgi" / "images.json").write_text("{}")
        done = reencode(place, new, X=X)
        assert (done.n_items, done.n_resumed, done.model) == (300, 0, load(new).digest)
        check_is_of(place, new)
        assert type(load_index(place)) is kind
        assert load(tmp_path / "a.hgi" / MODEL).digest == done.model
        assert (tmp_path / "a.hgi" / "images.json").exists()
        np.testing.assert_allclose(load_index(place).features.of(IDS), X, atol=0.02)
        assert sorted(os.listdir(tmp_path)) == ["a.hgi"]

    def test_from_kept_features(self, models, tmp_path):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)
        kept = load_index(place).features.of(IDS)
        reencode(place, new)
        check_is_of(place, new, codes=load(new).encode(kept))
        np.testing.assert_array_equal(load_index(place).features.of(IDS), kept)

    def test_rows_by_ids(self, models, tmp_path):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old, features=False)
        order = rng.permutation(300)
        reencode(place, new, X=np.concatenate([X[order], X[:1]]), ids=[*IDS[order], 10**6])
        check_is_of(place, new)
        assert load_index(place).features is None

    def test_readers_see_the_new_index_when_they_refresh(self, models, tmp_path):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)
        reader = load_index(place)
        reencode(place, new, X=X)
        np.testing.assert_array_equal(reader.codes, load(old).encode(X))
        assert reader.refresh()
        np.testing.assert_array_equal(reader.codes, load(new).encode(X))

    def test_it_goes_on_where_it_stopped(self, models, tmp_path, pieces_of_64):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)

        def stop(done):
            if done == 192:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            reencode(place, new, X=X, on_items=stop)
        check_is_of(place, old)
        pieces = tmp_path / "a.hgi.reencoding" / "pieces.bin"
        pieces.write_bytes(pieces.read_bytes()[:-1])  # the last piece was cut off
        assert reencode(place, new, X=X).n_resumed == 128
        check_is_of(place, new)

    @pytest.mark.parametrize("change", ["rows", "model", "damage"])
    def test_other_work_is_not_gone_on_with(self, models, tmp_path, pieces_of_64, change):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)

        def stop(done):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            reencode(place, new, X=X + 1 if change == "rows" else X, on_items=stop)
        if change == "model":
            new = str(tmp_path / "third.hashgrove")
            LSH(24, random_state=2).fit(X).save(new)
        if change == "damage":
            pieces = tmp_path / "a.hgi.reencoding" / "pieces.bin"
            pieces.write_bytes(b"?" + pieces.read_bytes()[1:])
        assert reencode(place, new, X=X).n_resumed == 0
        check_is_of(place, new)

    def test_nobody_changes_the_index_meanwhile(self, models, tmp_path):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)
        with load_index(place, writable=True), pytest.raises(FileError, match="another process is writing"):
            reencode(place, new)

    def test_of_images(self, models, tmp_path):
        (tmp_path / "net.onnx").write_bytes(tiny_onnx.model())
        paths = []
        for number in range(6):
            paths.append(str(tmp_path / f"{number}.png"))
            Image.new("RGB", (8, 8), (40 * number, 255 - 40 * number, 90)).save(paths[-1])
        network = OnnxFeatures(tmp_path / "net.onnx", output="mean", image_size=8, preprocess="unit").fit(paths)
        features = network.transform(paths)
        LSH(8, random_state=1).fit(features).save(tmp_path / "new.hashgrove", features=network)
        index = FlatIndex(LSH(8, random_state=0).fit(features).transform(features), ids=paths)
        index.keep_features(features)
        index.save(tmp_path / "a.hgi")
        reencode(tmp_path / "a.hgi", tmp_path / "new.hashgrove", X=paths)
        found = load_index(tmp_path / "a.hgi")
        np.testing.assert_array_equal(found.codes, load(tmp_path / "new.hashgrove").encode(paths))
        assert len(found.features) == 6
        with pytest.raises(ParameterError, match="'X' parameter must be features for a model that takes no images"):
            reencode(tmp_path / "a.hgi", models[1], X=paths)

    def test_errors(self, models, tmp_path):
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old, features=False)
        for arguments, match in (
            ({}, "must keep features of all items, or X must be given. It keeps none"),
            ({"X": X[:, :5]}, "'X' parameter must have 12 features per row, as the new model takes. Got 5"),
            ({"X": X[:9]}, "'X' parameter must have 300 rows, one per item, unless 'ids' say which. Got 9"),
            ({"X": X[0]}, "'X' parameter must be a matrix"),
            ({"X": X[:9], "ids": IDS[:9]}, "'ids' parameter must have all items of the index. Got none for"),
            ({"ids": IDS}, "must be given together with 'X'"),
        ):
            with pytest.raises(ValueError, match=match):
                reencode(place, new, **arguments)
        check_is_of(place, old)

    def test_an_empty_index(self, models, tmp_path):
        FlatIndex().save(tmp_path / "a.hgi")
        assert reencode(tmp_path / "a.hgi", models[1], X=X[:0]).n_items == 0


class TestEngines:
    @pytest.mark.parametrize("url", ENGINES, ids=lambda url: url.split(":")[0])
    @pytest.mark.parametrize("texts", [False, True])
    def test_all_items_at_once(self, models, tmp_path, monkeypatch, url, texts):
        monkeypatch.chdir(tmp_path)
        old, new = models
        place, ids = url.format(tmp_path), IDS.astype(str) if texts else IDS
        with connect(place) as index:
            index.add(load(old).encode(X), ids=ids)
        other = connect(place)
        assert reencode(place, new, X=X).n_items == 300
        with connect(place) as index:
            assert index.model == load(new).digest
            np.testing.assert_array_equal(index.ids, ids)
            np.testing.assert_array_equal(index.codes, load(new).encode(X))
            index.add(load(new).encode(X[:1]), ids=["new"] if texts else [1001])
            assert index.ids[-1] == ("new" if texts else 1001)
        with pytest.raises(ValueError, match=r"encoded by another model since\. Connect again"):
            other.search(load(old).encode(X[:1]), 1)
        other.close()
        assert not [name for name in os.listdir(tmp_path) if name.startswith("reencoding")]

    @pytest.mark.parametrize("url", ENGINES, ids=lambda url: url.split(":")[0])
    def test_items_that_have_changed_meanwhile(self, models, tmp_path, url):
        old, new = models
        place = url.format(tmp_path)
        with connect(place) as index:
            index.add(load(old).encode(X), ids=IDS)

        def remove(done):
            with connect(place) as index:
                index.remove(IDS[:1])

        with pytest.raises(ValueError, match=r"items have changed meanwhile\. Encode them again"):
            reencode(place, new, X=X, on_items=remove, work=tmp_path / "work")
        assert connect(place).model == load(old).digest
        assert reencode(place, new, X=X, ids=IDS, work=tmp_path / "work").n_items == 299

    def test_an_engine_keeps_no_features(self, models, tmp_path):
        with connect(f"sqlite:///{tmp_path}/a.db") as index:
            index.add(load(models[0]).encode(X))
        with pytest.raises(ValueError, match="must keep features of all items, or X must be given"):
            reencode(f"sqlite:///{tmp_path}/a.db", models[1])


KILLS = 12


@pytest.mark.parametrize("url", ["folder", *ENGINES[:1], ENGINES[3]], ids=lambda url: url.split(":")[0])
def test_a_killed_process_leaves_the_old_or_the_new(models, tmp_path, pieces_of_64, url):
    old, new = models
    if url == "folder":
        place = folder_of(tmp_path / "a.hgi", old)
    else:
        place = url.format(tmp_path)
        with connect(place) as index:
            index.add(load(old).encode(X), ids=IDS)
    now = old
    for number in range(KILLS):
        target = new if now == old else old
        child = os.fork()
        if child == 0:
            try:
                reencode(place, target, X=X, work=tmp_path / "work", n_jobs=1)
            finally:
                os._exit(0)
        time.sleep(0.004 * number)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with connect(place, create=False) if "://" in place else load_index(place) as index:
            (now,) = [model for model in (old, new) if load(model).digest == index.model]
        check_is_of(place, now)
        if url == "folder":
            assert load(tmp_path / "a.hgi" / MODEL).digest == load(now).digest
    reencode(place, new, X=X, work=tmp_path / "work")
    check_is_of(place, new)


def test_exchange_refuses_what_is_not_there(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(FileError, match=r"b: cannot be exchanged with .*a in one step: No such file"):
        exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").exists()


class TestCommand:
    def test_from_kept_features_of_a_file_and_an_engine(self, capsys, models, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        old, new = models
        place = folder_of(tmp_path / "a.hgi", old)
        status, _, err = call(capsys, "reencode", place, new)
        assert status == 0, err
        assert err == f"{place} has 300 items of the model {load(new).digest[:12]} now\n"
        np.save("X.npy", X)
        assert call(capsys, "reencode", place, old, "--features", "X.npy")[0] == 0
        check_is_of(place, old)
        with open("X.csv", "w", encoding="utf-8") as file:
            file.write("key,note," + ",".join(f"v{i}" for i in range(12)) + "\n")
            for row in rng.permutation(300):
                file.write(f"{IDS[row]},x,{','.join(str(float(value)) for value in X[row])}\n")
        url = f"sqlite:///{tmp_path}/a.db"
        assert call(capsys, "push", place, "--to", url)[0] == 0
        for target in (place, url):
            columns = "--id-column", "key", "--feature-columns", "v*"
            status, _, err = call(capsys, "reencode", target, new, "--features", "X.csv", *columns)
            assert status == 0, err
            check_is_of(target, new)

    def test_wrong_calls(self, capsys, models, tmp_path):
        place = folder_of(tmp_path / "a.hgi", models[0], features=False)
        fails(capsys, "reencode", place, models[1], "--images", "--features", "x", code=2, match="not both")
        fails(capsys, "reencode", place, models[1], "--ids", "x", code=2, match="for --features only")
        fails(capsys, "reencode", place, models[1], code=1, match="must keep features of all items")
        fails(capsys, "reencode", str(tmp_path / "none.hgi"), models[1], code=1, match="no such file or folder")


def test_texts_of_ids_are_those_of_the_new_index(tmp_path, models):
    """Items have been removed, so the files of the old index do not fit the new one."""
    ids = [f"item number {number}" for number in range(300)]
    folder = folder_of(tmp_path / "x.hgi", models[0], ids=ids)
    with load_index(folder, writable=True) as index:
        index.remove(ids[3:9])
    reencode(folder, models[1])
    new = load(models[1])
    found = load_index(folder).search(new.encode(X[20:21]), 294, model=new)
    assert set(found.ids[0].tolist()) == set(ids[:3] + ids[9:])
