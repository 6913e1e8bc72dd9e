"""Features from an image network: a chosen output of any ONNX file, run by onnxruntime (the extra ``cnn``)."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.base import FeatureExtractor
from hashgrove.features.images import IMAGE_SIZE, RESAMPLING, image_size_pair
from hashgrove.features.onnxsession import Network
from hashgrove.features.preprocessing import (
    AUTO,
    MIN_IMAGES,
    PREPROCESSING,
    Preprocessing,
    better,
    choose,
    sample,
    separation,
)
from hashgrove.features.source import ImageSource
from hashgrove.runtime.parameters import Constraint, FilePath, Integer, Number, OneOf, ParameterError, Several, Text
from hashgrove.storage.formats import FileError, MissingFileError, one_line

__all__ = ["OnnxFeatures"]

MAX_INPUT_PIXELS = 2**24
MAX_MODEL_BYTES = 2**31 - 1  # the limit of protobuf, and therefore of an ONNX file


class OnnxFeatures(FeatureExtractor):
    """An output of an image network in an ONNX file.

    The network's input is (pixel - mean) / std. A file does not say which numbers it was trained with, and others give
    features of little use; see ``preprocess``.

    Parameters
    ----------
    path : path
        The ONNX file. It must have one input of four dimensions, hold all of its data itself, and have no control flow
        (Loop, Scan, If) and no functions of its own. `fit` reads it.
    output : str or None, default=None
        Name of the output to use; required if the network has several. Whatever its shape, each image gives one row.
    image_size : int, (int, int) or None, default=None
        Side, or height and width, of the network's input. Images are scaled to cover it and their centre is cut out.
        Without it the size is that in the file if the file fixes it, or else that of the array of images in `fit`.
    preprocess : {"auto", "raw", "unit", "symmetric", "imagenet", "clip", "caffe"}, default="auto"
        Scaling of pixels by name; auto takes the one that tells some of the images apart best. It tries all of
        `hashgrove.features.preprocessing.PREPROCESSING` on up to 16 of the images in `fit`, and names its choice in a
        warning.
    mean : float, three floats or None, default=None
        Mean of pixels that range from 0 to 255: one number, or one per channel in the order of ``channels``. Give
        ``mean`` and ``std`` instead of ``preprocess``; the one that is not given is 0 or 1.
    std : float, three floats or None, default=None
        Standard deviation of these pixels: one number, or one per channel.
    channels : {"rgb", "bgr"} or None, default=None
        Order of the channels of the input; None means that of ``preprocess``, or RGB.
    layout : {"nchw", "nhwc"} or None, default=None
        Order of the dimensions of the input; required if the file leaves the number of channels open.
    resampling : {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"}, default="bilinear"
        Filter for the scaling of images.
    batch_size : int, default=16
        Number of images that go through the network together; each thread has a batch of its own.
    time_limit : float or None, default=60
        Seconds that the network may take per image, and to be opened. A file from elsewhere may ask for years of work.
        None means no limit.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.

    Attributes
    ----------
    n_features_ : int
    model_ : uint8 array
        The ONNX file.
    input_size_ : (int, int)
        Height and width that images are resized to.
    preprocess_ : Preprocessing
        The scaling that is used.

    Notes
    -----
    `fit` warns if the scaling that was given looks wrong: if another one tells images apart much better.

    Several batches run at a time, each on one thread, so the features do not depend on the number of threads. A model
    file holds the whole ONNX file.
    """

    name = "onnx"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "path": FilePath(),
        "output": Text(or_none=True),
        "image_size": IMAGE_SIZE,
        "preprocess": OneOf((AUTO, *PREPROCESSING)),
        "mean": Several(Number(), low=3, high=3, or_one=True, or_none=True),
        "std": Several(Number(above=0), low=3, high=3, or_one=True, or_none=True),
        "channels": OneOf(("rgb", "bgr", None)),
        "layout": OneOf(("nchw", "nhwc", None)),
        "resampling": OneOf(RESAMPLING),
        "batch_size": Integer(1, 4096),
        "time_limit": Number(above=0, or_none=True),
    }
    flags: ClassVar[Mapping[str, str]] = {"path": "--network", "output": "--output-name", "batch_size": "--batch"}
    example_options = "--network net.onnx --size 224 --preprocess imagenet"
    resizes_arrays = True
    not_saved: ClassVar[frozenset[str]] = FeatureExtractor.not_saved | {"path", "time_limit", "preprocess"}
    model_: NDArray[np.uint8]
    input_size_: tuple[int, int]
    preprocess_: Preprocessing

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        output: str | None = None,
        image_size: int | tuple[int, int] | None = None,
        preprocess: str = AUTO,
        mean: float | tuple[float, float, float] | None = None,
        std: float | tuple[float, float, float] | None = None,
        channels: str | None = None,
        layout: str | None = None,
        resampling: str = "bilinear",
        batch_size: int = 16,
        time_limit: float | None = 60.0,
        n_jobs: int | None = None,
    ) -> None:
        self.path = path
        self.output = output
        self.image_size = image_size
        self.preprocess = preprocess
        self.mean = mean
        self.std = std
        self.channels = channels
        self.layout = layout
        self.resampling = resampling
        self.batch_size = batch_size
        self.time_limit = time_limit
        self.n_jobs = n_jobs

    def _learn(self, source: ImageSource) -> None:
        """Read the network, and find out how many features it gives for such images."""
        name = os.fspath(self.path or "")
        self.__dict__.pop("_network", None)
        model = _read_model(name)
        size = source.images.shape[1:3] if isinstance(source.images, np.ndarray) else None
        try:
            self._open(model, size)
        except ValueError as error:
            raise FileError(f"{name}: {error}") from error
        self._check_scaling(source)

    def _check_combination(self) -> None:
        if self.preprocess != AUTO and (self.mean is not None or self.std is not None):
            raise ParameterError(
                "preprocess",
                "must not be given with the 'mean' parameter or the 'std' parameter. "
                f"Got {self.preprocess!r} and one of them.",
            )

    def _scaling(self) -> Preprocessing:
        """The scaling that the parameters give; "auto" starts with raw pixels."""
        named = PREPROCESSING.get(self.preprocess)
        if named is None:
            mean, std = _hashable(self.mean, default=0.0), _hashable(self.std, default=1.0)
            return Preprocessing(mean, std, self.channels or "rgb")
        return replace(named, channels=self.channels or named.channels)

    def _check_scaling(self, source: ImageSource) -> None:
        """Choose the scaling if none was given, or warn if the one that was given looks wrong."""
        images = sample(replace(source, size=self.input_size_))
        chooses = self.preprocess == AUTO and self.mean is None and self.std is None
        found: dict[Preprocessing, float] = {}

        def measure(way: Preprocessing) -> float:
            if way not in found:
                mirrored = np.ascontiguousarray(images[:, :, ::-1])
                found[way] = separation(self._features(images, way), self._features(mirrored, way))
            return found[way]

        n_channels = self._network.n_channels
        if len(images) < MIN_IMAGES:
            if chooses:
                warnings.warn(
                    f"The 'preprocess' parameter was not given, and {len(images)} images are too few to choose it. "
                    "Pixels go into the network as they are.",
                    stacklevel=4,
                )
        elif chooses:
            name = choose(measure, n_channels=n_channels)
            self.preprocess_ = replace(PREPROCESSING[name], channels=self.channels or PREPROCESSING[name].channels)
            warnings.warn(
                f"The 'preprocess' parameter was not given. {name!r} is used, which tells {len(images)} of these "
                "images apart best; if you know how the network was trained, name that.",
                stacklevel=4,
            )
        elif (other := better(self.preprocess_, measure, n_channels=n_channels)) is not None:
            name, own, best = other
            warnings.warn(
                "The features look degenerate, as if pixels were scaled wrongly: images are more similar to their own "
                f"mirror images than to each other by a cosine of {own:.2f}, but by {best:.2f} if "
                f"the 'preprocess' parameter is {name!r}.",
                stacklevel=4,
            )

    def _open(self, model: NDArray[np.uint8], size: tuple[int, int] | None) -> None:
        """Use the network in ``model`` for images of ``size``, and count its features on a black image."""
        self.model_, self.preprocess_ = model, self._scaling()
        if self.preprocess_.n_numbers > self._network.n_channels:
            if self.preprocess == AUTO:
                rule = "the 'mean' parameter and the 'std' parameter must be single numbers"
            else:
                single = [name for name, way in PREPROCESSING.items() if way.n_numbers == 1]
                rule = f"the 'preprocess' parameter must be one of {', '.join(single)}"
            raise ValueError(f"{rule}, because the network takes grey images.")
        fixed = self._network.size
        wanted = image_size_pair(self.image_size) or fixed or size
        if wanted is None:
            raise ValueError("needs the 'image_size' parameter, because the file leaves the size of its input open")
        if fixed is not None and wanted != fixed:
            raise ValueError(
                f"has an input of {fixed[0]} x {fixed[1]} pixels; the 'image_size' parameter must be that or None"
            )
        if wanted[0] * wanted[1] > MAX_INPUT_PIXELS:
            raise ValueError(f"must have an input of at most {MAX_INPUT_PIXELS} pixels. Got {wanted[0]} x {wanted[1]}.")
        self.input_size_ = wanted
        self.n_features_ = self._features(np.zeros((1, *wanted, 3), np.uint8)).shape[1]

    @cached_property
    def _network(self) -> Network:
        return Network(self.model_, output=self.output, layout=self.layout, time_limit=self.time_limit)

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

    def _image_size(self) -> tuple[int, int] | None:
        return getattr(self, "input_size_", None)  # not known yet when `fit` checks the images

    def _images_per_batch(self, height: int, width: int) -> int:
        return int(self.batch_size)

    def _features(self, batch: NDArray[np.uint8], scaling: Preprocessing | None = None) -> NDArray[Any]:
        n_channels = self._network.n_channels
        if n_channels == 1:
            grey = batch if batch.ndim == 3 else batch.mean(axis=3, dtype=np.float32)
            pixels = grey[..., None].astype(np.float32)
        else:
            pixels = (batch[..., None].repeat(3, axis=3) if batch.ndim == 3 else batch).astype(np.float32)
        return self._network.run((scaling or self.preprocess_)(pixels), time_limit=self.time_limit)

    def parameters(self) -> dict[str, Any]:
        """The parameters that the features depend on; the scaling in numbers, whatever its name."""
        given = super().parameters()
        used = asdict(self.preprocess_) if hasattr(self, "preprocess_") else {}
        return given | {name: list(value) if isinstance(value, tuple) else value for name, value in used.items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The ONNX file, and the height and width of the network's input."""
        return {"model": self.model_, "input_size": np.array(self.input_size_, np.int64)}

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted extractor from the `parameters` and `arrays` of an untrusted file, and check all of them."""
        if set(arrays) != {"model", "input_size"}:
            raise ValueError(f"'onnx' features have the arrays ['input_size', 'model'], not {sorted(arrays)}")
        model, size = arrays["model"], arrays["input_size"]
        if model.dtype != np.uint8 or model.ndim != 1:
            raise ValueError(f"the array 'model' must be 1-D of uint8. Got {model.dtype} of shape {model.shape}.")
        if size.dtype != np.int64 or size.shape != (2,):
            raise ValueError(f"the array 'input_size' must be two int64. Got {size.dtype} of shape {size.shape}.")
        extractor = cls._from_parameters(parameters)
        extractor._open(np.ascontiguousarray(model), image_size_pair(size.tolist(), parameter="input_size"))
        return extractor


def _hashable(value: Any, *, default: float) -> Any:
    """One number, or three of them as a tuple."""
    return default if value is None else tuple(value) if np.ndim(value) else value


def _read_model(name: str) -> NDArray[np.uint8]:
    try:
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_MODEL_BYTES:
            raise FileError(f"{name}: must be an ONNX file of at most {MAX_MODEL_BYTES} bytes, and not empty.")
        return np.fromfile(name, np.uint8)
    except FileNotFoundError as error:
        raise MissingFileError(f"{name}: no such file") from error
    except OSError as error:
        raise FileError(f"{name}: cannot be read: {error.strerror or one_line(error)}") from error
