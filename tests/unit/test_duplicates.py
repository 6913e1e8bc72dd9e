"""Near-duplicate pictures: the codes, the radius that is measured, the groups, and the command."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from PIL import Image
from scipy.fft import dctn, idctn

import tiny_onnx
from command import call, fails
from hashgrove import OnnxFeatures, find_duplicates, unpack
from hashgrove.duplicates.finding import _stars
from hashgrove.features.perceptual import MIRROR, SIDE, WINDOWS, perceptual_codes


def scene(rng, height=96, width=128):
    """A picture with much in its low frequencies, as photographs have."""
    spectrum = rng.normal(size=(3, height, width)) / (1 + np.add.outer(np.arange(height), np.arange(width)))
    values = idctn(spectrum, axes=(1, 2), norm="ortho")
    return np.moveaxis(np.clip(128 + 60 * values / values.std(), 0, 255), 0, 2).astype(np.uint8)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Twelve pictures; a small copy of the first, a cut one of the second, both for the third."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(12):
        Image.fromarray(scene(rng)).save(folder / f"{number:02d}.png")
    for number, name in ((0, "small"), (2, "small"), (1, "cut"), (2, "cut")):
        with Image.open(folder / f"{number:02d}.png") as picture:
            altered = picture.resize((64, 48)) if name == "small" else picture.crop((3, 2, 126, 95))
            altered.save(folder / f"{number:02d}-{name}.jpg", quality=70)
    return sorted(str(path) for path in folder.iterdir())


def names(paths):
    return [os.path.basename(path) for path in paths]


def test_codes_are_signs_of_low_frequencies():
    rng = np.random.default_rng(1)
    thumbnails = rng.integers(0, 256, (5, SIDE, SIDE)).astype(np.uint8)
    codes = perceptual_codes(thumbnails)
    for window, (side, top, left) in enumerate(WINDOWS):
        for image, code in zip(thumbnails, codes[:, window], strict=True):
            low = dctn(image[top : top + side, left : left + side].astype(float))[:16, :16]
            low[0, 0] = 0
            np.testing.assert_array_equal(unpack(code[None], n_bits=256)[0], low.reshape(-1) > 0)


def test_code_of_the_mirror_image():
    thumbnails = np.random.default_rng(2).integers(0, 256, (4, SIDE, SIDE)).astype(np.uint8)
    mirrored = perceptual_codes(np.ascontiguousarray(thumbnails[:, :, ::-1]))
    np.testing.assert_array_equal(
        np.sort(mirrored.view("V32")[:, :, 0], axis=1),
        np.sort((perceptual_codes(thumbnails) ^ MIRROR).view("V32")[:, :, 0], axis=1),
    )


def test_plain_pictures_have_equal_codes():
    plain = np.full((3, SIDE, SIDE), [[[7]], [[100]], [[255]]], np.uint8)
    assert not perceptual_codes(plain).any()


def test_copies_are_found(pictures):
    found = find_duplicates(pictures)
    assert [(os.path.basename(group.kept), sorted(names(group.removed))) for group in found.groups] == [
        ("02.png", ["02-cut.jpg", "02-small.jpg"]),
        ("00.png", ["00-small.jpg"]),
        ("01.png", ["01-cut.jpg"]),
    ]
    assert all(list(group.distances) == sorted(group.distances) for group in found.groups)
    assert max(max(group.distances) for group in found.groups) <= found.radius < found.evidence.nearest_other
    assert found.evidence.found["half the size"] == 1
    assert found.n_pictures == len(pictures) == 16
    assert "4 of 16 pictures, of 3 that are kept" in str(found)
    assert f"The radius is {found.radius} of 256 bits" in found.explain()
    assert found._repr_html_().count("<tr>") == 5


def test_threads_and_order_of_files_change_nothing(pictures):
    first = find_duplicates(pictures, n_jobs=1, radius=50)
    again = find_duplicates(pictures[::-1], n_jobs=2, radius=50)
    assert first.groups == again.groups
    assert first.evidence is None
    assert "copies" not in first.explain()


def test_mirror_images_are_not_duplicates(tmp_path):
    image = scene(np.random.default_rng(3))
    Image.fromarray(image).save(tmp_path / "a.png")
    Image.fromarray(image[:, ::-1]).save(tmp_path / "b.png")
    assert find_duplicates([tmp_path / "a.png", tmp_path / "b.png"], radius=40).groups == ()


def test_one_picture(pictures):
    found = find_duplicates(pictures[:1])
    assert found.groups == ()
    assert found.evidence.nearest_other is None


def test_what_is_removed_is_near_what_is_kept():
    # b is near a and c, which are not near each other: c must stay when b goes, as nothing that is kept is near it
    pairs = {(0, 1): 3, (1, 2): 4, (3, 4): 1}
    groups = _stars(list("abcde"), np.array([0, 1, 2, 4, 3]), pairs)
    assert [(group.kept, group.removed, group.distances) for group in groups] == [
        ("a", ("b",), (3,)),
        ("e", ("d",), (1,)),
    ]


def test_unusable_files_are_left_out(pictures, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    with pytest.warns(UserWarning, match=r"broken\.jpg: not an image.*; skipped"):
        found = find_duplicates([*pictures, tmp_path / "broken.jpg"], radius=30)
    assert found.n_pictures == 16
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(ValueError, match="must have pictures that can be"):
        find_duplicates([tmp_path / "broken.jpg"])


def test_errors_name_the_parameter(pictures):
    with pytest.raises(ValueError, match="'radius' parameter must be an integer of at least 0"):
        find_duplicates(pictures, radius=-1)
    for wrong in ([], pictures[0], [1, 2]):
        with pytest.raises(ValueError, match="'images' parameter must be a list of paths"):
            find_duplicates(wrong)
    with pytest.raises(ValueError, match="must name each picture once"):
        find_duplicates([pictures[0], pictures[0]])


def test_with_a_network(pictures, tmp_path):
    (tmp_path / "net.onnx").write_bytes(tiny_onnx.model())
    network = OnnxFeatures(tmp_path / "net.onnx", output="mean", image_size=48, preprocess="unit")
    found = find_duplicates(pictures, network=network)
    assert found.n_bits == 512
    assert found.evidence.n_turned == 16
    assert "00-small.jpg" in names(find_duplicates(pictures, network=network, radius=30).to_remove)


class TestCommand:
    def test_groups_page_and_list(self, capsys, pictures, tmp_path):
        folder = os.path.dirname(pictures[0])
        page, remove = str(tmp_path / "groups.html"), str(tmp_path / "remove.txt")
        status, out, err = call(capsys, "duplicates", folder, "--html", page, "--list", remove, "--csv")
        assert status == 0
        assert out.splitlines()[:2] == ["group,action,bits,picture", f"0,keep,0,{folder}/02.png"]
        assert "The radius is" in err
        with open(remove, encoding="utf-8") as file:
            assert sorted(names(file.read().splitlines())) == [
                "00-small.jpg",
                "01-cut.jpg",
                "02-cut.jpg",
                "02-small.jpg",
            ]
        with open(page, encoding="utf-8") as file:
            assert file.read().count("<img") == 7

    def test_json_and_no_groups(self, capsys, pictures):
        folder = os.path.dirname(pictures[0])
        status, out, _ = call(capsys, "duplicates", folder, "--radius", "0", "--json")
        assert status == 0
        assert json.loads(out) == {"radius": 0, "bits": 256, "groups": []}
        assert call(capsys, "duplicates", folder, "--radius", "0")[1] == ""

    def test_wrong_calls(self, capsys, pictures, tmp_path):
        folder = os.path.dirname(pictures[0])
        fails(capsys, "duplicates", folder, "--preprocess", "unit", code=2, match="--preprocess: for --network only")
        np.save(tmp_path / "a.npy", np.zeros((2, 8, 8), np.uint8))
        fails(capsys, "duplicates", str(tmp_path / "a.npy"), code=1, match="must be a folder or a list of pictures")
        both = str(tmp_path / "x")
        fails(capsys, "duplicates", folder, "--html", both, "--list", both, code=1, match="must not be the output file")
