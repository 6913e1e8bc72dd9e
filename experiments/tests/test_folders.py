"""Folders of images: files are listed, never opened, so that empty ones will do here."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import damaged, few, one_line_error, reads_or_says_why
from experiments.datasets import DATASETS, load_dataset, load_folder
from hashgrove.storage.formats import FileError, MissingFileError


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def names(dataset, rows, folder):
    return [os.path.relpath(dataset.images[row], folder) for row in rows]


class TestFolder:
    def test_classes_are_folders(self, tmp_path):
        touch(tmp_path, "dog/b.JPG", "dog/a.png", "cat/x.jpeg", "cat/notes.txt", ".hidden/a.jpg", "cat/.a.jpg", "a.jpg")
        (tmp_path / "empty").mkdir()
        dataset = load_folder(tmp_path, n_query=1, seed=3)
        assert names(dataset, range(3), tmp_path) == ["cat/x.jpeg", "dog/a.png", "dog/b.JPG"]
        assert dataset.labels.tolist() == [0, 1, 1]
        assert dataset.names == ("cat", "dog", "empty")
        assert sorted([*dataset.train, *dataset.query]) == [0, 1, 2]
        assert len(dataset.query) == 1
        assert dataset.features is None

    def test_seeded_split(self, tmp_path):
        touch(tmp_path, *(f"c{i % 3}/{i}.png" for i in range(40)))
        one, same, other = (load_folder(tmp_path, seed=seed) for seed in (0, 0, 1))
        assert len(one.query) == 4
        assert one.query.tolist() == same.query.tolist() != other.query.tolist()

    @pytest.mark.parametrize("part", ["query", "test", "val"])
    def test_given_split(self, tmp_path, part):
        touch(tmp_path, "train/a/1.png", "train/b/2.png", f"{part}/b/3.png")
        dataset = load_folder(tmp_path)
        assert names(dataset, dataset.train, tmp_path) == ["train/a/1.png", "train/b/2.png"]
        assert names(dataset, dataset.query, tmp_path) == [f"{part}/b/3.png"]
        assert dataset.y_query.tolist() == [1]
        touch(tmp_path, f"{part}/c/3.png")
        one_line_error(lambda: load_folder(tmp_path), tmp_path / part, "classes must be those of train. Got 'c'")

    def test_wrong_folders(self, tmp_path):
        with pytest.raises(MissingFileError, match="no such folder"):
            load_folder(tmp_path / "none")
        one_line_error(lambda: load_folder(tmp_path), tmp_path, "Got no image")
        touch(tmp_path, "a/1.png")
        one_line_error(lambda: load_folder(tmp_path), tmp_path, "at least 2 images")
        one_line_error(lambda: load_folder(tmp_path / "a" / "1.png"), tmp_path / "a" / "1.png", "cannot be read")
        touch(tmp_path, "a/2.png")
        with pytest.raises(ValueError, match=r"'n_query' parameter must be an integer from 1 to 1. Got 2"):
            load_folder(tmp_path, n_query=2)

    def test_fingerprint_does_not_know_where_the_folder_is(self, tmp_path):
        for place in ("one", "two", "three"):
            touch(tmp_path / place, "a/1.png", "b/2.png", "b/3.png")
        (tmp_path / "three" / "a" / "1.png").write_bytes(b"more bytes")
        one, two, three = (load_folder(tmp_path / place).fingerprint() for place in ("one", "two", "three"))
        assert one == two != three


class TestSun397:
    @pytest.fixture
    def root(self, tmp_path):
        top = tmp_path / "sun397"
        touch(
            top, *(f"SUN397/{kind}/sun_{i}.jpg" for kind in ("a/abbey", "b/bar", "c/church/outdoor") for i in range(4))
        )
        (top / "Partitions").mkdir()
        (top / "Partitions" / "ClassName.txt").write_text("/a/abbey\n/b/bar\n/c/church/outdoor\n")
        (top / "Partitions" / "Training_01.txt").write_text("/b/bar/sun_0.jpg\n/a/abbey/sun_1.jpg\n")
        (top / "Partitions" / "Testing_01.txt").write_text("/c/church/outdoor/sun_3.jpg\n")
        return tmp_path

    def test_the_papers_protocol(self, root):
        dataset = load_dataset("sun397", root=root, n_query=5, seed=1)
        assert dataset.names == ("a/abbey", "b/bar", "c/church/outdoor")
        assert dataset.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert (len(dataset.train), len(dataset.query)) == (7, 5)
        with pytest.raises(ValueError, match=r"'n_query' parameter must be an integer from 1 to 11. Got 8000"):
            load_dataset("sun397", root=root)

    def test_partition(self, root):
        dataset = load_dataset("sun397", root=root, partition=1)
        top = root / "sun397" / "SUN397"
        assert names(dataset, dataset.train, top) == ["b/bar/sun_0.jpg", "a/abbey/sun_1.jpg"]
        assert names(dataset, dataset.query, top) == ["c/church/outdoor/sun_3.jpg"]
        assert dataset.y_train.tolist() == [1, 0]
        with pytest.raises(ValueError, match="must be an integer from 1 to 10"):
            load_dataset("sun397", root=root, partition=11)
        with pytest.raises(MissingFileError, match=r"Training_02.txt: no such file"):
            load_dataset("sun397", root=root, partition=2)

    @pytest.mark.parametrize(
        ("file", "text", "match"),
        [
            ("Training_01.txt", "/a/abbey/sun_9.jpg\n", "which is not there"),
            ("Training_01.txt", "/../../etc/passwd\n", "which is not there"),
            ("Training_01.txt", "/b/bar/sun_0.jpg\n/b/bar/sun_0.jpg\n", "each image once"),
            ("ClassName.txt", "/a/abbey\n/a/abbey\n", "each class once"),
            ("ClassName.txt", "/a/../../..\n", "in the form /a/abbey"),
            ("ClassName.txt", "//etc\n", "in the form /a/abbey"),
        ],
    )
    def test_wrong_lists(self, root, file, text, match):
        path = root / "sun397" / "Partitions" / file
        path.write_text(text)
        one_line_error(lambda: load_dataset("sun397", root=root, partition=1), path, match)

    def test_image_in_both_lists(self, root):
        (root / "sun397" / "Partitions" / "Testing_01.txt").write_text("/b/bar/sun_0.jpg\n")
        with pytest.raises(FileError, match="must not have an image in both lists"):
            load_dataset("sun397", root=root, partition=1)

    @few
    @given(data=st.data())
    def test_damaged_lists(self, root, data):
        folder = root / "sun397" / "Partitions"
        path = folder / "Training_01.txt"
        path.write_bytes(data.draw(damaged(b"/b/bar/sun_0.jpg\n/a/abbey/sun_1.jpg\n")))
        reads_or_says_why(lambda: load_dataset("sun397", root=root, partition=1), path)


class TestIlsvrc2012:
    @pytest.fixture
    def root(self, tmp_path):
        top = tmp_path / "ilsvrc2012"
        touch(
            top,
            "train/n01440764/n01440764_1.JPEG",
            "train/n01440764/n01440764_2.JPEG",
            "train/n03888257/n03888257_1.JPEG",
        )
        touch(top, *(f"val/ILSVRC2012_val_0000000{i}.JPEG" for i in (1, 2, 3)))
        return tmp_path

    @pytest.mark.parametrize(
        "lines",
        [
            "ILSVRC2012_val_00000002.JPEG 1\nILSVRC2012_val_00000001.JPEG 0\n",
            "val/ILSVRC2012_val_00000002.JPEG n03888257\nval/ILSVRC2012_val_00000001.JPEG n01440764\n",
        ],
    )
    def test_list_of_validation_images(self, root, lines):
        top = root / "ilsvrc2012"
        (top / "val.txt").write_text(lines)
        dataset = load_dataset("ilsvrc2012", root=root)
        assert dataset.names == ("n01440764", "n03888257")
        assert dataset.y_train.tolist() == [0, 0, 1]
        assert dataset.y_query.tolist() == [1, 0]
        assert names(dataset, dataset.query, top) == [f"val/ILSVRC2012_val_0000000{i}.JPEG" for i in (2, 1)]

    def test_some_of_the_classes(self, root):
        """ImageNet-50: numbers in the list are those of all classes, which synsets.txt has."""
        top = root / "ilsvrc2012"
        (top / "synsets.txt").write_text("n01440764\nn01443537\nn03888257\n")
        (top / "val.txt").write_text("".join(f"ILSVRC2012_val_0000000{i}.JPEG {i - 1}\n" for i in (1, 2, 3)))
        dataset = load_dataset("ilsvrc2012", root=root)
        assert names(dataset, dataset.query, top) == [f"val/ILSVRC2012_val_0000000{i}.JPEG" for i in (1, 3)]
        assert dataset.y_query.tolist() == [0, 1]

    def test_folders_of_validation_images(self, root):
        touch(root / "ilsvrc2012", "val/n03888257/a.JPEG")
        assert load_dataset("ilsvrc2012", root=root).y_query.tolist() == [1]

    @pytest.mark.parametrize(
        ("lines", "match"),
        [
            ("", "at least one image"),
            ("ILSVRC2012_val_00000001.JPEG 2\n", "an image and its class"),
            ("ILSVRC2012_val_00000001.JPEG\n", "an image and its class"),
            ("passwd 1\n", "an image and its class"),
            ("ILSVRC2012_val_00000001.JPEG ²\n", "an image and its class"),
        ],
    )
    def test_wrong_lists(self, root, lines, match):
        path = root / "ilsvrc2012" / "val.txt"
        path.write_text(lines)
        one_line_error(lambda: load_dataset("ilsvrc2012", root=root), path, match)

    def test_missing_images(self, root):
        (root / "ilsvrc2012" / "val.txt").write_text("../x/ILSVRC2012_val_00000009.JPEG 1\n")
        with pytest.raises(MissingFileError, match=r"val/ILSVRC2012_val_00000009.JPEG: no such file"):
            load_dataset("ilsvrc2012", root=root)

    def test_says_what_is_expected(self, tmp_path):
        with pytest.raises(MissingFileError, match=r"\[train/, val/\] in .*ilsvrc2012.*val.txt.*image-net.org"):
            load_dataset("ilsvrc2012", root=tmp_path)


def test_labels_are_numbers_of_names(tmp_path):
    touch(tmp_path, "b/1.png", "a/1.png", "a/2.png")
    dataset = load_folder(tmp_path)
    assert dataset.labels.dtype == np.int64
    assert [dataset.names[label] for label in dataset.labels] == [
        os.path.basename(os.path.dirname(path)) for path in dataset.images
    ]
    assert DATASETS["sun397"].options() == ["partition", "n_query", "seed"]
