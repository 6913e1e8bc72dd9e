"""What a data set is, the contract of the registry, and the real files."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from experiments.commands import main
from experiments.datasets import DATASETS, Dataset, data_root, load_dataset
from experiments.datasets.base import seeded_split
from experiments.tests.command import call, examples
from hashgrove.storage.formats import MissingFileError
from paths import DOCS

X = np.arange(40.0).reshape(10, 4)


def dataset(**changes):
    fields = {
        "name": "small",
        "features": X,
        "labels": np.arange(10) % 2,
        "train": np.arange(6),
        "query": np.arange(6, 10),
    }
    return Dataset(**{**fields, **changes})


class TestDataset:
    def test_parts(self):
        data = dataset()
        np.testing.assert_array_equal(data.X_train, X[:6])
        np.testing.assert_array_equal(data.X_query, X[6:])
        np.testing.assert_array_equal(data.X_database, X[:6])
        assert data.y_train.tolist() == data.y_database.tolist() == [0, 1, 0, 1, 0, 1]
        assert data.y_query.tolist() == [0, 1, 0, 1]
        assert len(data) == 10
        with pytest.raises(dataclasses.FrozenInstanceError):
            data.name = "other"

    def test_database_of_its_own(self):
        data = dataset(database=np.array([0, 9]))
        np.testing.assert_array_equal(data.X_database, X[[0, 9]])
        assert data.subset(n_train=2).database.tolist() == [0, 9]

    def test_images_need_features(self):
        data = dataset(features=None, images=np.zeros((10, 2, 2), np.uint8))
        assert "2x2 images" in repr(data)
        with pytest.raises(ValueError, match="has images and no features"):
            _ = data.X_train
        np.testing.assert_array_equal(data.with_features(X).X_train, X[:6])
        with pytest.raises(ValueError, match="two dimensions"):
            data.with_features(np.zeros(10))
        with pytest.raises(ValueError, match=r"must have 10 rows. Got 9"):
            data.with_features(X[:9])

    def test_subset(self):
        data = dataset()
        one, same = data.subset(n_train=3, n_query=2, seed=5), data.subset(n_train=3, n_query=2, seed=5)
        assert one.train.tolist() == same.train.tolist() == one.database.tolist()
        assert set(one.train) < set(data.train)
        assert set(one.query) < set(data.query)
        assert one.features is data.features
        assert data.subset().train.tolist() == data.train.tolist()
        assert len({tuple(data.subset(n_train=3, seed=seed).train) for seed in range(10)}) > 1
        for wrong in (0, 7, -1):
            with pytest.raises(ValueError, match=f"'n_train' parameter must be an integer from 1 to 6. Got {wrong}"):
                data.subset(n_train=wrong)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"features": X[:9]}, "'features' parameter must have 10 rows. Got 9"),
            ({"images": ["a.png"]}, "'images' parameter must have 10 rows. Got 1"),
            ({"features": None}, "Got neither"),
            ({"train": np.array([0, 10])}, "'train' parameter must be row numbers from 0 to 9. Got 0 to 10"),
            ({"query": np.array([-1])}, "from 0 to 9. Got -1"),
            ({"query": np.array([7, 7])}, "must be distinct row numbers"),
            ({"query": np.array([0.5])}, "must be distinct row numbers"),
            ({"query": np.array([5, 6])}, "must not share rows with 'train'"),
            ({"database": np.array([11])}, "'database' parameter"),
        ],
    )
    def test_what_does_not_fit(self, changes, match):
        with pytest.raises(ValueError, match=match):
            dataset(**changes)

    def test_fingerprint(self, monkeypatch):
        """It changes with every part of the content, and with nothing else."""
        original = dataset().fingerprint()
        assert re.fullmatch("[0-9a-f]{64}", original)
        assert dataset(name="other", licence="any", source="any").fingerprint() == original
        assert dataset(features=X.astype(">f8")).fingerprint() == original
        assert dataset(features=np.asfortranarray(X)).fingerprint() == original
        monkeypatch.setattr("experiments.datasets.base.HASHED_BYTES", 50)
        assert dataset().fingerprint() == original
        changed = [
            dataset(features=X + 1),
            dataset(features=X.astype(np.float32)),
            dataset(labels=np.arange(10) % 3),
            dataset(labels=np.array(["a", "b"] * 5)),
            dataset(train=np.arange(5)),
            dataset(query=np.arange(7, 10)),
            dataset(database=np.arange(3)),
            dataset(names=("even", "odd")),
            dataset(images=np.zeros((10, 2, 2), np.uint8)),
            dataset(features=None, images=np.zeros((10, 2, 2), np.uint8)),
        ]
        assert len({original, *(data.fingerprint() for data in changed)}) == 11

    def test_seeded_split(self):
        train, query = seeded_split(25, None, seed=0)
        assert len(query) == 2
        assert sorted([*train, *query]) == [*range(25)]
        for wrong in (0, 25):
            with pytest.raises(ValueError, match="from 1 to 24"):
                seeded_split(25, wrong, seed=0)


class TestRegistry:
    @pytest.mark.parametrize("entry", DATASETS.values(), ids=lambda entry: entry.name)
    def test_contract(self, entry, tmp_path):
        assert DATASETS[entry.name] is entry
        assert re.fullmatch("[a-z0-9-]+", entry.name)
        assert all([entry.description, entry.labels, entry.licence, entry.source, entry.split, entry.layouts])
        assert entry.n_train > entry.n_query > 0 or entry.name == "mirflickr"
        assert bool(entry.remotes) != bool(entry.instructions)
        for remote in entry.remotes:
            assert re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", remote.checksum)
            assert all(re.match("https?://", url) and url.endswith(f"/{remote.file}") for url in remote.urls)
            assert remote.size > 0
        if entry.remotes:  # what is downloaded is what is read
            assert any(set(layout.files) == {r.file for r in entry.remotes} for layout in entry.layouts)

    @pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if entry.layouts[0].files])
    def test_missing_files_are_named_with_the_way_to_get_them(self, name, tmp_path):
        with pytest.raises(MissingFileError) as caught:
            load_dataset(name, root=tmp_path)
        message, entry = str(caught.value), DATASETS[name]
        assert "\n" not in message
        assert str(tmp_path) in message
        assert all(need in message for layout in entry.layouts for need in layout.files[:1])
        assert (f"python -m experiments datasets fetch {name}" if entry.remotes else entry.source) in message

    def test_root(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HASHGROVE_DATA", str(tmp_path))
        assert data_root() == tmp_path
        assert data_root("here") == Path("here")
        with pytest.raises(MissingFileError, match=rf"{tmp_path}.*fetch cifar10$"):
            load_dataset("cifar10")
        monkeypatch.delenv("HASHGROVE_DATA")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert data_root() == tmp_path / ".cache" / "hashgrove"

    def test_wrong_calls(self):
        with pytest.raises(ValueError, match=r"must be one of \['digits', .*Got 'digit' instead"):
            load_dataset("digit")
        with pytest.raises(ValueError, match=r"must be of \[n_query, seed\].*Got 'nquery'"):
            load_dataset("digits", nquery=3)

    def test_digits(self):
        digits = load_dataset("digits")
        assert (len(digits.train), len(digits.query)) == (1200, 597)
        assert load_dataset("digits", seed=1).query.tolist() != digits.query.tolist()

    def test_digits_with_tags_are_the_same_digits(self):
        plain, tagged = load_dataset("digits"), load_dataset("digits-tags")
        np.testing.assert_array_equal(plain.X_train, tagged.X_train)
        assert tagged.y_query.shape == (597, 10)
        seven = tagged.y_train[plain.y_train == 7]
        assert [tagged.names[tag] for tag in np.flatnonzero(seven[0])] == [
            "odd",
            "large",
            "prime",
            "straight lines only",
        ]
        assert (seven == seven[0]).all()

    def test_the_page_tells_the_truth(self):
        text = (DOCS / "datasets.md").read_text()
        rows = dict(re.findall(r"^\| `([a-z0-9][a-z0-9-]+)` \|(.*)\|$", text, flags=re.MULTILINE))
        assert len(rows) > 20
        for name in rows:
            entry = DATASETS[name]
            cells = [cell.strip() for cell in rows[name].split("|")]
            how = "embedded" if entry.is_embedded else "`fetch`" if entry.remotes else "yourself"
            split = f"{entry.n_train:,} + {entry.n_query:,}"
            assert cells == [entry.description, entry.labels, split, entry.licence, how], entry.name
            for option in entry.options():
                assert f"`{option}" in text, f"{entry.name}: {option}"


class TestCommands:
    def test_list(self, capsys, tmp_path):
        status, out, _ = call(capsys, "datasets", "list", "--root", str(tmp_path))
        lines = out.splitlines()
        assert status == 0
        assert lines[0].split() == ["name", "description", "licence", "here", "rows"]
        assert [line.split()[0] for line in lines[1:]] == list(DATASETS)
        assert re.search(r"^digits .* yes +1,797$", out, flags=re.MULTILINE)
        assert re.search(r"^cifar10 .* no; fetch +60,000$", out, flags=re.MULTILINE)

    def test_list_as_json(self, capsys, tmp_path):
        np.savez(tmp_path / "corel5k.npz", a=[1])
        facts = json.loads(call(capsys, "datasets", "list", "--root", str(tmp_path), "--json")[1])
        assert [fact["name"] for fact in facts] == list(DATASETS)
        assert {fact["name"] for fact in facts if fact["here"]} == {"digits", "digits-tags", "corel5k"}

    def test_info(self, capsys, tmp_path):
        status, out, _ = call(capsys, "datasets", "info", "cifar100", "--root", str(tmp_path))
        assert status == 0
        assert re.search(r"^options +labels$", out, flags=re.MULTILINE)
        assert re.search(r"^here +no$", out, flags=re.MULTILINE)
        assert "cifar-100-python.tar.gz" in out
        np.savez(tmp_path / "corel5k.npz", a=[1])
        fact = json.loads(call(capsys, "datasets", "info", "corel5k", "--root", str(tmp_path), "--json")[1])
        assert fact["files"] == [str(tmp_path / "corel5k.npz")]
        assert fact["options"] == ["features", "decode"]
        assert fact["rows"] == 4999

    def test_without_a_command_it_is_the_help(self, capsys):
        assert call(capsys, "datasets") == call(capsys, "datasets", "--help")

    @pytest.mark.parametrize("command", ["info", "fetch"])
    def test_unknown_name(self, capsys, command):
        status, out, err = call(capsys, "datasets", command, "cifar")
        assert (status, out) == (2, "")
        assert re.fullmatch(r"Error: Invalid value for 'NAME': must be one of digits, [^\n]+\n", err)

    def test_fetch_of_what_users_must_get_themselves(self, capsys, tmp_path):
        status, out, err = call(capsys, "datasets", "fetch", "sun397", "--root", str(tmp_path))
        assert (status, out) == (1, "")
        assert re.fullmatch(r"Error: sun397: cannot be downloaded [^\n]+princeton[^\n]+\n", err)

    def test_every_command_has_an_example_and_is_documented(self, capsys):
        text = (DOCS / "datasets.md").read_text()
        section = re.search(r"^## Commands\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)[1]
        for name, command in main.get_command(None, "datasets").commands.items():
            example = examples(call(capsys, "datasets", name, "--help")[1])
            assert [words[:2] for words in example] == [["datasets", name]]
            assert f"python -m experiments datasets {name}" in section
            for option in command.params:
                flag = option.opts[0] if option.param_type_name == "option" else option.human_readable_name
                assert f"`{flag}" in section, f"{name} {flag}"


REAL_SHAPES = {
    "cifar10-gist": (512, 10),
    "cifar10-effnet": (1280, 10),
    "mirflickr14": (512, 14),
    "corel5k": (512, 374),
    "tinyimagenet100": (1280, 100),
    "banking77": (384, 77),
    "corel16k001-bow": (500, 153),
    "corel5k-bow": (499, 374),
    "mirflickr-pml": (100, 7),
}  # features, labels


@pytest.mark.data
class TestRealFiles:
    @pytest.mark.parametrize("name", REAL_SHAPES)
    def test_loads(self, shared_data, name):
        data, entry = load_dataset(name, root=shared_data), DATASETS[name]
        assert (data.features.shape[1], data.n_labels) == REAL_SHAPES[name]
        assert (len(data.train), len(data.query)) == (entry.n_train, entry.n_query)
        assert len(data) == entry.n_train + entry.n_query
        assert np.isfinite(data.features).all()
        assert not np.intersect1d(data.train, data.query).size

    def test_values_are_those_of_the_file(self, shared_data):
        with np.load(shared_data / "cifar10_gist512_u8.npz") as file:
            expected = (file["X"][::5000] * file["scale"] + file["lo"]).astype(np.float32)
            codes = file["X"][::5000]
        np.testing.assert_array_equal(load_dataset("cifar10-gist", root=shared_data).features[::5000], expected)
        np.testing.assert_array_equal(
            load_dataset("cifar10-gist", root=shared_data, decode=False).features[::5000], codes
        )

    @pytest.mark.parametrize("name", ["mirflickr14", "corel5k"])
    def test_deep_features(self, shared_data, name):
        assert load_dataset(name, root=shared_data, features="eff").features.shape[1] == 1280
