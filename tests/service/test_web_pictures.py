"""New items of a running service: pictures, labels and fields, which are kept with their item and go with it."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from hashgrove import LSH, FlatIndex, cli, reencode
from hashgrove.cli.serve import open_collection
from hashgrove.storage.formats import FileError
from hashgrove.web.additions import JOURNAL, PICTURES, Additions, Entry, forget_additions
from hashgrove.web.collection import Collection
from web_service import SIDE, build_digits, error_of, open_digits, served


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    build_digits(str(folder))
    return folder


@pytest.fixture
def folder(built, tmp_path):
    shutil.copytree(built, tmp_path / "digits")
    return tmp_path / "digits"


@pytest.fixture(scope="module")
def unchanged(built, tmp_path_factory):
    """A service whose index no test changes, and its folder."""
    folder = tmp_path_factory.mktemp("unchanged") / "digits"
    shutil.copytree(built, folder)
    with served(open_digits(folder)) as client:
        yield client, folder


def picture(shade=0, form="PNG", side=SIDE):
    pixels = np.full((side, side), 255, np.uint8)
    pixels[4:12, 8 + shade : 20 + shade] = 20
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(buffer, form)
    return buffer.getvalue()


def kept(folder):
    return sorted(os.listdir(folder / "digits.hgi" / PICTURES))


def post(client, content, name="mine.png", **fields):
    return client.post("/items", files={"image": (name, content)}, data=fields)


def test_a_picture_becomes_an_item_like_others(folder):
    content = picture()
    with served(open_digits(folder)) as client:
        assert client.get("/info").json()["keeps_pictures"] is True
        answer = post(client, content, label="drawn", fields=json.dumps({"author": "Ada", "name": "A drawing"}))
        assert (answer.status_code, answer.json()) == (201, {"ids": ["mine.png"], "items": 121})
        item = client.get("/items/mine.png").json()
        assert (item["label"], item["name"], item["fields"]) == ("drawn", "A drawing", {"author": "Ada"})
        small = Image.open(io.BytesIO(client.get(item["image"]).content))
        np.testing.assert_array_equal(np.asarray(small), np.asarray(Image.open(io.BytesIO(content))))
        # it is encoded as it would be as a query, and found like the others
        found = client.post("/search", files={"image": ("q.png", content)}, data={"show_code": "true"}).json()
        assert found["results"][0][0] == item | {"distance": 0}
        assert found["queries"][0]["code"] == item["code"]
        assert client.get("/items", params={"label": "drawn"}).json()["items"][0]["id"] == "mine.png"
        assert client.get("/items", params={"name": "A drawing"}).json()["total"] == 1
        assert "drawn" in client.get("/info").json()["labels"]
        by_id = client.post("/search", json={"id": "mine.png", "rerank": True}).json()
        assert by_id["results"][0][0]["id"] == "mine.png"  # its features are stored
    with served(open_digits(folder)) as client:  # and is still there
        assert client.get("/items/mine.png").json() == item
        assert client.get(item["image"]).status_code == 200
        assert client.delete("/items/mine.png").status_code == 200
        assert error_of(client.get(item["image"]), 404)
        assert kept(folder) == []
        assert post(client, content).status_code == 201  # without anything of the one before
        assert "label" not in client.get("/items/mine.png").json()


def test_the_label_is_the_folder_of_the_id_if_none_is_given(folder):
    with served(open_digits(folder)) as client:
        assert post(client, picture(), id="7/new.png").status_code == 201
        assert client.get("/items/7%2Fnew.png").json()["label"] == "7"


def test_a_picture_takes_the_place_of_another_only_if_that_is_said(folder):
    first, second = picture(0), picture(5)
    with served(open_digits(folder)) as client:
        post(client, first, label="one")
        assert error_of(post(client, second), 409)["field"] == "id"
        before = client.get("/items/mine.png").json()
        assert len(kept(folder)) == 1
        assert post(client, second, replace="true").status_code == 201
        after = client.get("/items/mine.png").json()
        assert before["image"] != after["image"]  # a browser may keep the old one
        assert len(kept(folder)) == 1
        shown = Image.open(io.BytesIO(client.get(after["image"]).content))
        np.testing.assert_array_equal(np.asarray(shown), np.asarray(Image.open(io.BytesIO(second))))
        assert len(client.get("/items", params={"name": "mine.png"}).json()["items"]) == 1
        # two items may have the same picture, and it stays as long as one of them
        post(client, second, id="twin.png")
        client.delete("/items/mine.png")
        assert client.get(client.get("/items/twin.png").json()["image"]).status_code == 200


@pytest.mark.parametrize(
    ("content", "fields", "status", "field"),
    [
        (b"no image", {}, 422, "image"),
        (b"", {}, 422, "image"),
        (picture()[:70], {}, 422, "image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + 2 * b"\0\0\xff\xff" + b"\x08\2\0\0\0", {}, 422, "image"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', {}, 422, "image"),
        (picture(), {"id": "a\nb"}, 422, "id"),
        (picture(), {"id": "x" * 2000}, 422, "id"),
        (picture(), {"label": "a\x07b"}, 422, "label"),
        (picture(), {"label": "x" * 2000}, 422, "label"),
        (picture(), {"fields": "{"}, 422, "fields"),
        (picture(), {"fields": "[" * 20_000}, 422, "fields"),
        (picture(), {"fields": '{"a": 1}'}, 422, "fields.a"),
        (picture(), {"fields": json.dumps({f"f{n}": "" for n in range(65)})}, 422, "fields"),
        (picture(), {"model": "of others"}, 422, "model"),
        (picture(), {"unknown": "1"}, 422, "unknown"),
    ],
)
def test_hostile_pictures_change_nothing(unchanged, content, fields, status, field):
    client, folder = unchanged
    error = error_of(post(client, content, **fields), status)
    assert error["field"].startswith(field)
    assert client.get("/health").json()["items"] == 120
    assert not (folder / "digits.hgi" / PICTURES).exists() or kept(folder) == []


def test_names_of_files_never_are_paths(folder):
    with served(open_digits(folder)) as client:
        for number, name in enumerate(["../../evil.png", "..\\..\\evil2.png", "/etc/passwd", "a/b/../c.png"]):
            answer = post(client, picture(number), name=name)
            assert answer.status_code == 201
            assert answer.json()["ids"] == [name.replace("\\", "/").rpartition("/")[2]]
        assert len(kept(folder)) == 4
        assert all(len(name) == 64 for name in kept(folder))
        assert not (folder.parent / "evil.png").exists()
        evil = {"id": "../../../secret.png", "features": [0.0] * client.get("/info").json()["n_features"]}
        client.post("/items", json={"items": [evil]})
        assert error_of(client.get("/images/..%2F..%2F..%2Fsecret.png"), 404)


def test_labels_and_fields_come_with_items_of_every_body(folder):
    with served(open_digits(folder)) as client:
        n = client.get("/info").json()["n_features"]
        items = [
            {"id": "a", "features": [0.1] * n, "label": "x", "fields": {"year": "1"}},
            {"id": "b", "features": [1.0] * n},
        ]
        assert client.post("/items", json={"items": items}).status_code == 201
        assert client.get("/items/a").json()["fields"] == {"year": "1"}
        assert "label" not in client.get("/items/b").json()
        rows = np.zeros((2, n), "<f4").tobytes()
        binary = {"content-type": "application/octet-stream"}
        asked = [("id", "c"), ("id", "d"), ("label", "x"), ("label", "")]
        assert client.post("/items", params=asked, content=rows, headers=binary).status_code == 201
        assert error_of(client.post("/items", params=asked[:3], content=rows, headers=binary), 422)["field"] == "label"
        assert {item["id"] for item in client.get("/items", params={"label": "x"}).json()["items"]} == {"a", "c"}
        hits = client.post("/search", json={"id": "a", "label": "x"}).json()["results"][0]
        assert {hit["id"] for hit in hits} == {"a", "c"}


def test_a_read_only_service_and_one_without_a_model_for_images_refuse(folder):
    with served(open_digits(folder, read_only=True)) as client:
        assert error_of(post(client, picture()), 403)
    with served(Collection(FlatIndex(np.array([[1]], np.uint8)), "codes")) as client:
        assert error_of(post(client, picture()), 422)["field"] == "image"


def test_labels_of_a_file_still_belong_to_their_items_after_others_were_added(tmp_path):
    FlatIndex(np.array([[1], [2]], np.uint8)).save(tmp_path / "x.hgi")
    np.save(tmp_path / "y.npy", np.array(["one", "two"]))
    for _ in range(2):
        with served(open_collection(str(tmp_path / "x.hgi"), labels=str(tmp_path / "y.npy"))) as client:
            answer = client.post("/items", json={"items": [{"code": "07"}]})
            assert answer.status_code == 201, answer.text
            labels = [item.get("label") for item in client.get("/items").json()["items"]]
            assert labels[:2] == ["one", "two"]
            assert set(labels[2:]) == {None}


def indexed(tmp_path):
    FlatIndex(np.array([[1], [2]], np.uint8), ids=["a", "b"]).save(tmp_path / "x.hgi")
    return str(tmp_path / "x.hgi")


def has(ids):
    return lambda given: [id_ in ids for id_ in given]


def test_a_change_that_is_not_finished_does_not_count(tmp_path):
    folder = indexed(tmp_path)
    additions = Additions(folder, has=has("ab"))
    with pytest.raises(RuntimeError), additions.change({"a": Entry("lost")}):
        raise RuntimeError("the index could not be changed")
    assert additions.entries == {}
    change = additions.change({"a": Entry("lost", picture=additions.keep(b"lost"))})
    change.__enter__()  # the line is on disk, and the process is killed
    assert Additions(folder).entries == {}
    assert Additions(folder, has=has("ab")).entries == {}
    assert os.listdir(os.path.join(folder, PICTURES)) == []
    later = Additions(folder, has=has("ab"))
    with later.change({"b": Entry("kept")}), FlatIndex.load(folder, writable=True) as index:
        index.update(np.array([[7]], np.uint8), ids=["b"])
    assert Additions(folder).entries == {"b": Entry("kept")}
    with open(os.path.join(folder, JOURNAL), "ab") as file:
        file.write(b'{"before": "x", "items": {"a": {"la')  # a line that was cut off
    assert Additions(folder).entries == {"b": Entry("kept")}


def test_what_happens_to_items_elsewhere_is_forgotten(tmp_path):
    folder = indexed(tmp_path)
    additions = Additions(folder, has=has("ab"))
    with additions.change({"a": Entry("x"), "b": Entry("y")}), FlatIndex.load(folder, writable=True) as index:
        index.update(np.array([[9]], np.uint8), ids=["b"])
    assert CliRunner().invoke(cli.main, ["index", "remove", folder, "a"]).exit_code == 0
    assert set(Additions(folder).entries) == {"b"}
    np.save(tmp_path / "codes.npy", np.array([[5]], np.uint8))
    (tmp_path / "ids.txt").write_text("b\n")
    arguments = ["index", "add", folder, tmp_path / "codes.npy", "--ids", tmp_path / "ids.txt", "--replace"]
    result = CliRunner().invoke(cli.main, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert Additions(folder).entries == {}
    forget_additions(str(tmp_path))  # nothing is there


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "{",
        '{"before": "", "items": {"a": {"picture": "../../secret"}}}',
        '{"before": "", "items": {"a": 1}}',
        "[" * 9999,
    ],
)
def test_a_journal_is_untrusted(tmp_path, line):
    folder = indexed(tmp_path)
    (tmp_path / "x.hgi" / JOURNAL).write_text(f"{line}\n")
    with pytest.raises(FileError, match=r"added\.jsonl"):
        Additions(folder)


def test_links_are_not_followed_when_something_is_written(tmp_path):
    folder = indexed(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x.hgi" / PICTURES).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x.hgi" / JOURNAL).symlink_to(tmp_path / "file")
    additions = Additions(folder)
    with pytest.raises(FileError, match="link"):
        additions.keep(b"content")
    with pytest.raises(FileError), additions.change({"a": Entry("x")}):
        pass
    assert not (tmp_path / "file").exists()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_folder_that_takes_the_place_of_the_index_is_not_written_to(tmp_path):
    folder = indexed(tmp_path)
    additions = Additions(folder, has=has("ab"))
    with additions.change({"a": Entry("x")}), FlatIndex.load(folder, writable=True) as index:
        index.update(np.array([[7]], np.uint8), ids=["a"])
    os.rename(folder, tmp_path / "old.hgi")
    indexed(tmp_path)
    (tmp_path / "x.hgi" / JOURNAL).write_text("of another index\n")
    with pytest.raises(FileError, match="replaced"), additions.change({"b": Entry("y")}):
        pass
    with pytest.raises(FileError, match="replaced"):
        additions.keep(b"picture")
    assert (tmp_path / "x.hgi" / JOURNAL).read_text() == "of another index\n"


def test_a_journal_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("hashgrove.web.additions.SPARE_LINES", 3)
    folder = indexed(tmp_path)
    additions = Additions(folder, has=has("ab"))
    with FlatIndex.load(folder, writable=True) as index:
        for version in range(20):
            with additions.change({"a": Entry(f"version {version}")}):
                index.update(np.array([[version]], np.uint8), ids=["a"])
            assert Additions(folder).entries == {"a": Entry(f"version {version}")}
    assert len((tmp_path / "x.hgi" / JOURNAL).read_text().splitlines()) <= 5


def test_a_full_disk_changes_nothing(folder, monkeypatch):
    with served(open_digits(folder)) as client:

        def full(self, name, size, parts):
            raise FileError("no room") from OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("hashgrove.index.folder.Folder.append", full)
            error = error_of(post(client, picture()), 507)
            assert str(folder) not in error["message"]
        assert client.get("/health").json()["items"] == 120
        assert post(client, picture()).status_code == 201


def test_an_index_that_is_encoded_anew_keeps_what_was_added(folder):
    content, place = picture(), folder / "digits.hgi"
    with served(open_digits(folder)) as client:
        post(client, content, label="drawn")
        n_features = client.get("/info").json()["n_features"]
    LSH(16, random_state=0).fit(np.random.default_rng(0).normal(size=(50, n_features))).save(folder / "new.hashgrove")
    reencode(place, folder / "new.hashgrove")
    with served(open_digits(folder)) as client:
        assert client.get("/info").json()["n_bits"] == 16
        item = client.get("/items/mine.png").json()
        assert item["label"] == "drawn"
        assert client.get(item["image"]).status_code == 200
