"""Every extractor: the contract of a transformer, files in and out, and its values against a slow truth."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits, load_sample_images
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import naive
import tiny_onnx
from hashgrove import LSH, FastHash, Gist, ImageEncoder, LinearSVM, ModelFileError, OnnxFeatures, load
from hashgrove import features as features_module
from hashgrove.features import FEATURES, load_extractor
from hashgrove.features.images import ImageFileError
from hashgrove.features.onnxfile import rebuild
from hashgrove.features.preprocessing import PREPROCESSING
from hashgrove.storage import modelfile

# Small settings for the contract tests; an extractor that is not named here is tested with its defaults.
PARAMETERS = {
    "codebook": {
        "n_atoms": 4,
        "patch_size": 4,
        "n_patches": 300,
        "n_iter": 2,
        "threshold": 0.0,
        "image_size": 16,
        "random_state": 0,
    },
    "gist": {"orientations": (3, 2), "n_cells": 2, "image_size": 16},
    "onnx": {"output": "scaled", "image_size": 16, "mean": (1.0, 2.0, 3.0), "std": 2.0},
}


@pytest.fixture(scope="module")
def images():
    """Eleven parts of a photograph, 16 x 16 x 3."""
    china = load_sample_images().images[0]
    return np.stack([china[40 * i : 40 * i + 16, 50 * i : 50 * i + 16] for i in range(10)] + [china[300:316, 200:216]])


@pytest.fixture(params=sorted(FEATURES))
def extractor(request, tmp_path):
    path = {}
    if request.param == "onnx":
        (tmp_path / "net.onnx").write_bytes(tiny_onnx.model())
        path = {"path": tmp_path / "net.onnx"}
    return FEATURES[request.param](**path, **PARAMETERS.get(request.param, {}))


def write_files(images, folder):
    paths = [folder / f"{number:02}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


class TestContract:
    """What `check_estimator` would ask, for it hands 2-D matrices of real numbers to every estimator."""

    def test_parameters(self, extractor):
        copy = clone(extractor)
        assert copy.get_params() == extractor.get_params()
        assert copy.set_params(n_jobs=2).n_jobs == 2
        assert FEATURES[extractor.name] is type(extractor)
        tags = get_tags(extractor)
        assert tags.input_tags.three_d_array
        assert not tags.input_tags.two_d_array

    def test_fit_and_transform(self, extractor, images):
        with pytest.raises(NotFittedError):
            extractor.transform(images)
        assert extractor.fit(images) is extractor
        X = extractor.transform(images)
        assert X.shape == (len(images), extractor.n_features_)
        assert X.dtype == extractor.output_dtype == np.float32
        assert np.isfinite(X).all()
        np.testing.assert_array_equal(clone(extractor).fit_transform(images), X)
        assert len(np.unique(X, axis=0)) == len(images)

    def test_results_do_not_depend_on_threads(self, extractor, images, monkeypatch):
        monkeypatch.setattr("hashgrove.features.base.BATCH_PIXELS", 2 * 16 * 16)
        extractor.fit(images)
        if extractor.name == "onnx":
            extractor.set_params(batch_size=2)
        one = extractor.set_params(n_jobs=1).transform(images)
        for n_jobs in (2, 5):
            np.testing.assert_array_equal(extractor.set_params(n_jobs=n_jobs).transform(images), one)

    def test_files_give_what_arrays_give(self, extractor, images, tmp_path):
        paths = write_files(images, tmp_path)
        X = extractor.fit_transform(images)
        np.testing.assert_array_equal(extractor.fit(paths).transform([str(path) for path in paths]), X)
        big = np.kron(images, np.ones((1, 2, 2, 1), np.uint8))
        resized = extractor.transform(write_files(big, tmp_path))
        if extractor.resizes_arrays:
            np.testing.assert_array_equal(resized, extractor.transform(big))
        elif "image_size" in extractor.get_params():
            with pytest.raises(ValueError, match="must hold images of 16 x 16 pixels"):
                extractor.transform(big)

    def test_transform_to_streams_the_same_rows(self, extractor, images, tmp_path, monkeypatch):
        monkeypatch.setattr("hashgrove.features.base.BATCH_PIXELS", 3 * 16 * 16)
        X, seen = extractor.fit_transform(images), []
        shape = extractor.transform_to(images, tmp_path / "X.npy", callback=lambda kept, done: seen.append(done))
        assert shape == X.shape
        assert seen[-1] == len(images)
        np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)
        paths = write_files(images, tmp_path)
        paths[4].write_bytes(b"no image")
        with pytest.raises(ValueError, match=r"04\.png: not an image"):
            extractor.transform_to(paths, tmp_path / "X.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X)  # the old file is kept
        assert not list(tmp_path.glob(".hashgrove-*"))
        rows = []
        with pytest.warns(UserWarning, match=r"04\.png.*skipped") as caught:
            shape = extractor.transform_to(
                paths, tmp_path / "X.npy", on_error="skip", callback=lambda kept, done: rows.extend(kept)
            )
        assert caught[0].filename == __file__
        assert shape == (10, extractor.n_features_)
        assert rows == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
        np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X[rows])

    def test_wrong_images(self, extractor, images):
        for wrong in (images[0, 0], images.astype(float), images[..., :2], images[:0], "a.png", [], [1, 2]):
            with pytest.raises(ValueError, match="'images' parameter must be"):
                extractor.fit(wrong)

    def test_save_and_load(self, extractor, images, tmp_path):
        X = extractor.fit_transform(images)
        extractor.save(tmp_path / "e.hashgrove")
        loaded = features_module.load_extractor(tmp_path / "e.hashgrove")
        assert type(loaded) is type(extractor)
        assert loaded.n_features_ == extractor.n_features_
        np.testing.assert_array_equal(loaded.transform(images), X)
        loaded.save(tmp_path / "again.hashgrove")
        assert (tmp_path / "again.hashgrove").read_bytes() == (tmp_path / "e.hashgrove").read_bytes()
        with pytest.raises(NotFittedError):
            clone(extractor).save(tmp_path / "no")

    def test_pickle(self, extractor, images):
        X = extractor.fit_transform(images)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(extractor)).transform(images), X)

    def test_in_a_pipeline(self, extractor, images):
        codes = make_pipeline(extractor, LSH(8, random_state=0)).fit_transform(images)
        assert codes.shape == (len(images), 1)


def test_pillow_is_needed_for_files_and_sizes_only(images, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert Gist(image_size=16).fit_transform(images).shape == (11, 512)
    with pytest.raises(ValueError, match=r"pip install 'hashgrove\[images\]'"):
        Gist(image_size=8).fit_transform(images)


class TestModelFile:
    def test_from_images_to_codes(self, extractor, images, tmp_path):
        X = extractor.fit_transform(images)
        hasher = FastHash(4, hash_function=LinearSVM(), random_state=0).fit(X, np.arange(11) % 2)
        hasher.save(tmp_path / "m", features=extractor)
        loaded = load(tmp_path / "m")
        assert isinstance(loaded, ImageEncoder)
        assert loaded.n_bits == 4
        np.testing.assert_array_equal(loaded.encode(images), hasher.transform(X))
        np.testing.assert_array_equal(loaded.scores(images, n_jobs=2), hasher.decision_function(X))
        np.testing.assert_array_equal(loaded.encode(write_files(images, tmp_path)), hasher.transform(X))
        header = modelfile.read_header(tmp_path / "m")["header"]
        assert header["features"]["name"] == extractor.name
        assert "n_jobs" not in header["features"]["parameters"]
        assert "path" not in header["features"]["parameters"]

    def test_without_features_nothing_of_them_is_in_the_file(self, images, tmp_path):
        X = images.reshape(11, -1)
        hasher = LSH(8, random_state=0).fit(X)
        hasher.save(tmp_path / "m")
        described = modelfile.read_header(tmp_path / "m")
        assert set(described["header"]) == {"encoder", "hasher", "learned", "n_bits", "n_features", "parameters"}
        assert set(described["arrays"]) == {"weights", "bias", "unit"}
        assert load(tmp_path / "m").n_features == X.shape[1]

    def test_features_that_do_not_fit(self, images, tmp_path):
        hasher = LSH(8, random_state=0).fit(images.reshape(11, -1))
        with pytest.raises(ValueError, match=r"must give 768 features, as the encoder expects. Got .* of 512"):
            hasher.save(tmp_path / "m", features=Gist().fit(images))
        with pytest.raises(NotFittedError):
            hasher.save(tmp_path / "m", features=Gist())
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(
        ("described", "match"),
        [
            ({}, "unknown features None"),
            ({"name": "sift", "parameters": {}}, "unknown features 'sift'"),
            ({"name": ["gist"], "parameters": {}}, "unknown features"),
            ({"name": "gist", "parameters": {}}, "have the parameters"),
            ({"name": "gist", "parameters": {"orientations": [10**9]}}, "'orientations' parameter must be"),
            ({"name": "gist", "parameters": {"n_cells": "4"}}, "'n_cells' parameter must be"),
            ({"name": "gist", "parameters": {"n_cells": 10**9}}, "'n_cells' parameter must be"),
            ({"name": "gist", "parameters": {"prefilter": None}}, "'prefilter' parameter must be"),
            ({"name": "gist", "parameters": {"colour": 1}}, "'colour' parameter must be"),
            ({"name": "gist", "parameters": {"image_size": [2**40, 3]}}, "'image_size' parameter must be"),
            ({"name": "gist", "parameters": {"n_cells": 5}}, "must give 16 features"),
        ],
    )
    def test_hostile_headers(self, tmp_path, described, match):
        good = Gist(orientations=(1,)).parameters()
        if described.get("parameters"):
            described = described | {"parameters": good | described["parameters"]}
        arrays = {"weights": np.zeros((3, 16)), "bias": np.zeros(3), "unit": np.array(0, np.uint8)}
        header = {"encoder": "linear", "n_bits": 3, "n_features": 16, "features": described}
        modelfile.write(tmp_path / "m", kind="encoder", header=header, arrays=arrays)
        with pytest.raises(ModelFileError, match=match) as caught:
            load(tmp_path / "m")
        assert "\n" not in str(caught.value)

    def test_arrays_that_do_not_belong(self, tmp_path):
        parameters = Gist().parameters()
        with pytest.raises(ValueError, match="have no arrays"):
            Gist.from_arrays(parameters, {"a": np.zeros(3)})
        good = OnnxFeatures(output="mean", image_size=4)
        parts = {"model": np.frombuffer(tiny_onnx.model(), np.uint8), "input_size": np.array([4, 4])}
        assert OnnxFeatures.from_arrays(good.parameters(), parts).n_features_ == 3
        for wrong, match in (
            ({"model": parts["model"]}, "have the arrays"),
            (parts | {"model": parts["model"].astype(np.int8)}, "'model' must be"),
            (parts | {"input_size": np.zeros(3, np.int64)}, "'input_size' must be"),
            (parts | {"model": parts["model"][:-40]}, "damaged|ONNX"),
            (parts | {"model": np.frombuffer(tiny_onnx.model(extra=tiny_onnx.field(14, 1)), np.uint8)}, "other files"),
        ):
            with pytest.raises(ValueError, match=match):
                OnnxFeatures.from_arrays(good.parameters(), wrong)


class TestGist:
    @pytest.mark.parametrize("shape", [(32, 32), (16, 24), (33, 21), (8, 8), (70, 45)])
    @pytest.mark.parametrize("settings", [{}, {"orientations": (8, 8, 4)}, {"n_cells": 3, "prefilter": 2.5}])
    def test_is_the_slow_truth(self, shape, settings):
        china = load_sample_images().images[0]
        images = np.stack([china[200 : 200 + shape[0], 300 + 60 * i : 300 + 60 * i + shape[1]] for i in range(3)])
        defaults = {"orientations": (8, 8, 8, 8), "n_cells": 4, "prefilter": 4.0}
        X = Gist(**settings).fit_transform(images)
        for image, x in zip(images, X, strict=True):
            expected = naive.gist(image.mean(axis=2), **(defaults | settings))
            np.testing.assert_allclose(x, expected, rtol=2e-4, atol=5e-6)
        np.testing.assert_array_equal(
            Gist(**settings).fit_transform(images.mean(axis=3).astype(np.uint8)).shape, X.shape
        )

    def test_number_of_features(self, images):
        assert Gist().fit(images).n_features_ == 512
        assert Gist((8, 8, 4)).fit(images).n_features_ == 320
        assert Gist(colour=True).fit(images).n_features_ == 1536

    def test_colour(self, images):
        X = Gist((2, 1), n_cells=2, colour=True).fit_transform(images[:3])
        for image, x in zip(images, X, strict=False):
            expected = naive.gist(image, orientations=(2, 1), n_cells=2, prefilter=4.0)
            np.testing.assert_allclose(x, expected, rtol=2e-4, atol=5e-6)
        with pytest.raises(ValueError, match="must be RGB images"):
            Gist(colour=True).fit_transform(images[..., 0])

    def test_an_even_image_has_no_orientation(self):
        assert Gist().fit_transform(np.full((1, 20, 20), 77, np.uint8)).tolist() == [[0.0] * 512]

    def test_stripes_are_found(self):
        """Upright stripes answer to the first orientation, lying ones to the one in the middle."""
        upright = np.tile(np.where(np.arange(32) % 4 < 2, 0, 255).astype(np.uint8), (32, 1))
        X = Gist().fit_transform(np.stack([upright, upright.T])).reshape(2, 4, 8, 16).mean(axis=3)
        assert X[0, 0].argmax() == 0
        assert X[1, 0].argmax() == 4

    @pytest.mark.parametrize(
        "wrong",
        [{"orientations": ()}, {"orientations": (0,)}, {"orientations": 8}, {"n_cells": 0}, {"n_cells": True},
         {"prefilter": 0}, {"prefilter": "4"}, {"prefilter": float("nan")}, {"colour": "yes"}, {"image_size": -1}],
    )  # fmt: skip
    def test_wrong_parameters(self, images, wrong):
        [name] = wrong
        with pytest.raises(ValueError, match=f"The '{name}' parameter must be .*Got .*instead"):
            Gist(**wrong).fit(images)

    def test_files_of_several_sizes_need_an_image_size(self, images, tmp_path):
        paths = write_files(np.concatenate([images, images]), tmp_path)  # more than one batch
        Image.fromarray(images[0, :10, :10]).save(paths[-1])
        Image.fromarray(images[0, :10, :10]).save(paths[-2])
        for wrong in (paths, [*paths[:16], *paths[-2:]]):
            with pytest.raises(
                ImageFileError, match=r"2[01]\.png: must have the same size .*image_size|2[01]\.png: must be 16 x 16"
            ):
                Gist().fit(wrong).transform(wrong)
        assert Gist(image_size=12).fit_transform(paths).shape == (22, 512)

    def test_fewer_pixels_than_cells(self):
        with pytest.raises(ValueError, match="at least 4 x 4 pixels"):
            Gist().fit_transform(np.zeros((1, 3, 9), np.uint8))

    def test_finds_digits(self):
        """Nearest neighbours by GIST of scaled digits are of the same class."""
        digits = load_digits()
        X = Gist(n_cells=3, image_size=16).fit_transform((digits.images[:400] * 15.9).astype(np.uint8))
        distances = ((X[:, None] - X) ** 2).sum(axis=2) + np.diag([np.inf] * 400)
        assert (digits.target[distances.argmin(axis=1)] == digits.target[:400]).mean() > 0.9


class TestNetwork:
    @pytest.fixture
    def path(self, tmp_path):
        (tmp_path / "net.onnx").write_bytes(tiny_onnx.model())
        return tmp_path / "net.onnx"

    def fails(self, path, content, images, match, **settings):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=match) as caught:
            OnnxFeatures(path, **settings).fit(images)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)

    def test_values(self, path, images):
        mean, std = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0])
        X = OnnxFeatures(path, output="mean", mean=mean, std=std).fit_transform(images)
        pixels = images.mean(axis=(1, 2))
        np.testing.assert_allclose(X, (pixels - mean) / std, rtol=1e-5)
        bgr = OnnxFeatures(path, output="scaled", mean=mean, std=std, channels="bgr").fit_transform(images)
        np.testing.assert_allclose(bgr, (pixels[:, ::-1] - mean) / std * 10, rtol=1e-5)
        grey = OnnxFeatures(path, output="mean", preprocess="raw").fit_transform(images[..., 0])
        np.testing.assert_allclose(grey, np.repeat(pixels[:, :1], 3, axis=1), rtol=1e-5)

    @pytest.mark.parametrize("name", PREPROCESSING)
    def test_a_scaling_by_its_name(self, path, images, tmp_path, name):
        features = OnnxFeatures(path, output="mean", preprocess=name).fit(images[:3])
        way = PREPROCESSING[name]
        order = [2, 1, 0] if way.channels == "bgr" else [0, 1, 2]
        expected = (images.mean(axis=(1, 2))[:, order] - way.mean) / way.std
        np.testing.assert_allclose(features.transform(images), expected, rtol=1e-4, atol=1e-4)
        numbers = OnnxFeatures(path, output="mean", mean=way.mean, std=way.std, channels=way.channels)
        assert numbers.fit(images[:3]).parameters() == features.parameters()  # so a file has the numbers
        features.save(tmp_path / "saved")
        assert load_extractor(tmp_path / "saved").preprocess_ == way

    def test_the_scaling_that_tells_images_apart_is_chosen(self, path, images):
        """Here the features are the means of the channels, so wrong ones are those in which all images look alike."""
        images = (images // 8 + 100).astype(np.uint8)
        with pytest.warns(UserWarning, match="'preprocess' parameter was not given. 'clip' is used.* 16 of these"):
            features = OnnxFeatures(path, output="mean").fit(np.concatenate([images, images]))
        assert features.preprocess_ == PREPROCESSING["clip"]
        with pytest.warns(UserWarning, match="look degenerate.*'preprocess' parameter is 'clip'"):
            OnnxFeatures(path, output="mean", preprocess="raw").fit(images)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            OnnxFeatures(path, output="mean", preprocess="clip").fit(images)
        with pytest.warns(UserWarning, match="3 images are too few"):
            few = OnnxFeatures(path, output="mean").fit(images[:3])
        assert few.preprocess_ == PREPROCESSING["raw"]

    def test_damaged_files_do_not_choose(self, path, images, tmp_path):
        files = write_files(images, tmp_path)
        Path(files[0]).write_bytes(b"no image")
        with pytest.warns(UserWarning, match=f"tells {len(files) - 1} of these"):
            OnnxFeatures(path, output="mean", image_size=8).fit(files)

    def test_a_name_and_numbers_exclude_each_other(self, path, images):
        with pytest.raises(ValueError, match="must not be given with the 'mean' parameter"):
            OnnxFeatures(path, output="mean", preprocess="unit", std=2).fit(images)

    @pytest.mark.parametrize(
        ("shape", "axes", "layout"),
        [(("n", "h", "w", 3), (1, 2), None), (("n", "c", "h", "w"), (2, 3), "nchw"), ((4, 3, 16, 16), (2, 3), None)],
    )
    def test_layouts_and_a_fixed_batch(self, path, images, shape, axes, layout):
        path.write_bytes(tiny_onnx.model(input_shape=shape, axes=axes))
        X = OnnxFeatures(path, output="mean", layout=layout, batch_size=5, preprocess="raw").fit_transform(images)
        np.testing.assert_allclose(X, images.mean(axis=(1, 2)), rtol=1e-5)

    def test_one_channel(self, path, images):
        path.write_bytes(tiny_onnx.model(input_shape=("n", 1, 16, 16)))
        X = OnnxFeatures(path, output="mean", preprocess="raw").fit_transform(images)
        np.testing.assert_allclose(X, images.mean(axis=(1, 2, 3))[:, None], rtol=1e-5)
        with pytest.raises(ValueError, match="single numbers"):
            OnnxFeatures(path, output="mean", mean=(1, 2, 3)).fit(images)

    def test_the_size_of_the_input(self, path, images, tmp_path):
        files = write_files(images, tmp_path)
        with pytest.raises(ValueError, match="needs the 'image_size' parameter"):
            OnnxFeatures(path, output="mean").fit(files)
        assert OnnxFeatures(path, output="mean", image_size=(4, 6)).fit(files).input_size_ == (4, 6)
        assert OnnxFeatures(path, output="mean").fit(images).input_size_ == (16, 16)
        path.write_bytes(tiny_onnx.model(input_shape=("n", 3, 8, 10)))
        assert OnnxFeatures(path, output="mean").fit(files).input_size_ == (8, 10)
        with pytest.raises(ValueError, match="has an input of 8 x 10 pixels"):
            OnnxFeatures(path, output="mean", image_size=9).fit(files)

    def test_a_second_fit_reads_the_file_anew(self, path, images):
        features = OnnxFeatures(path, output="mean").fit(images)
        path.write_bytes(tiny_onnx.model(input_shape=("n", 1, 16, 16)))
        assert features.fit(images).n_features_ == 1

    def test_wrong_networks(self, path, images):
        model = tiny_onnx.model
        self.fails(path, model(), images, r"must be one of \['mean', 'scaled'\]. Got None")
        self.fails(path, model(), images, "Got 'logits' instead", output="logits")
        self.fails(path, model(input_shape=("n", 3, 8), axes=(2,)), images, "four dimensions. Got x", output="mean")
        self.fails(path, model(n_inputs=2), images, "must have one input", output="mean")
        self.fails(path, model(input_shape=("n", 5, 4, 4)), images, "needs the 'layout'", output="mean")
        self.fails(path, model(input_shape=("n", 5, 4, 4)), images, "1 or 3 channels", output="mean", layout="nchw")
        self.fails(path, model()[:-30], images, "ONNX", output="mean")
        self.fails(path, b"text, not a network", images, "ONNX", output="mean")
        self.fails(path, b"", images, "not empty", output="mean")
        with pytest.raises(FileNotFoundError):
            OnnxFeatures("no.onnx").fit(images)
        with pytest.raises(ValueError, match="'path' parameter"):
            OnnxFeatures().fit(images)

    @pytest.mark.parametrize(
        "wrong",
        [{"mean": "a"}, {"mean": (1, 2)}, {"std": 0}, {"std": (1, 2, float("nan"))}, {"channels": "rbg"},
         {"layout": "chw"}, {"resampling": "cubic"}, {"batch_size": 0}, {"output": 3}],
    )  # fmt: skip
    def test_wrong_parameters(self, path, images, wrong):
        [name] = wrong
        with pytest.raises(ValueError, match=f"The '{name}' parameter must be .*Got .*instead"):
            OnnxFeatures(path, **wrong).fit(images)

    def test_external_data_is_refused_wherever_it_is(self, path, images, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "secret").write_bytes(np.float32(10).tobytes())
        entry = tiny_onnx.field(1, "location") + tiny_onnx.field(2, "secret")
        extra = tiny_onnx.field(13, entry) + tiny_onnx.field(14, 1)
        self.fails(path, tiny_onnx.model(extra=extra), images, "must hold all of its data", output="mean")
        f, external = tiny_onnx.field, tiny_onnx.field(14, 1)
        for message in (
            f(7, f(1, f(5, f(5, external)))),  # tensor of a node's attribute
            f(7, f(1, f(5, f(10, b"") + f(10, external)))),  # list of tensors
            f(7, f(15, f(1, external))),  # sparse tensor
            f(7, f(15, f(2, external))),
            f(7, f(1, f(5, f(22, f(1, external))))),  # sparse tensor of an attribute
        ):
            with pytest.raises(ValueError, match="other files"):
                rebuild(message)

    @pytest.mark.parametrize("hidden", [1 << 32, 1 << 35, 1 << 60])
    def test_external_data_behind_a_key_that_protobuf_cuts_is_refused(
        self, path, images, tmp_path, monkeypatch, hidden
    ):
        """Protobuf keeps 32 bits of a key, so ``(13 << 3 | 2) | 1 << 32`` is the field 13 for it."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "secret").write_bytes(np.float32(10).tobytes())
        f, varint = tiny_onnx.field, tiny_onnx.varint
        parts = [("location", "secret"), ("offset", "0"), ("length", "4")]
        extra = b"".join(
            varint((13 << 3 | 2) | hidden) + varint(len(entry)) + entry
            for entry in (f(1, key) + f(2, value) for key, value in parts)
        )
        extra += varint(14 << 3 | hidden) + varint(1)
        self.fails(path, tiny_onnx.model(extra=extra), images, "cut short or damaged", output="scaled")

    def test_control_flow_and_functions_are_refused(self, path, images):
        """A loop of 2^62 turns would hang `fit` and `load`; functions that call each other twice grow as fast."""
        f, node = tiny_onnx.field, tiny_onnx.node
        for graph in (f(6, b""), f(11, b"")):
            loop = node("Loop", ["turns", "", "mean"], ["end"], f(5, f(1, "body") + graph + f(20, 5)))
            self.fails(path, tiny_onnx.model() + f(7, f(1, loop)), images, "no control flow", output="mean")
        self.fails(path, tiny_onnx.model() + f(25, f(1, "twice")), images, "functions of its own", output="mean")

    def test_the_copy_has_only_what_inference_needs(self):
        f = tiny_onnx.field
        plain = tiny_onnx.model()
        assert rebuild(plain) == plain
        for more in (f(2, "tool"), f(14, b"meta"), f(20, f(1, f(5, f(14, 1)))), f(1000, 5), b"\xad\x03abcd"):
            assert rebuild(plain + more) == plain
        long_key = b"\x88\x80\x00"  # the field 1 with a key of three bytes
        assert rebuild(long_key + b"\x07") == f(1, 7)

    def test_another_format_is_not_guessed(self, path, images):
        """onnxruntime takes a file with ORTM in bytes 4 to 7 for a file of its own format, unless it is told not to."""
        path.write_bytes(b"\x42\x06\x0a\x04ORTM" + tiny_onnx.model())  # a domain of this name: harmless
        assert OnnxFeatures(path, output="mean").fit(images).n_features_ == 3

    def test_damaged_protobuf(self):
        f = tiny_onnx.field
        damaged = [b"\x3a\x7f", b"\xff" * 20, b"\x0b", b"\x00\x01", tiny_onnx.model()[:100]]
        for content in [*damaged, b"\x3d1234", f(7, b"\x0d1234")]:
            with pytest.raises(ValueError, match="cut short or damaged"):
                rebuild(content)

    def test_without_onnxruntime(self, path, images, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(ValueError, match=r"pip install 'hashgrove\[cnn\]'"):
            OnnxFeatures(path, output="mean").fit(images)
