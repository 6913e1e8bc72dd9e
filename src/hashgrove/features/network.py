"""Features of an image network: a chosen output of any ONNX file, run by onnxruntime (the extra ``cnn``)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.features.base import FeatureExtractor, Images
from hashgrove.features.images import RESAMPLING, check_size
from hashgrove.features.onnxfile import refuse_external_data
from hashgrove.storage.formats import FileError, MissingFileError, one_line

__all__ = ["OnnxFeatures"]

MAX_INPUT_PIXELS = 2**24
MAX_MODEL_BYTES = 2**31 - 1  # the limit of protobuf, and so of an ONNX file
INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
LAYOUTS = ("nchw", "nhwc")
ORDERS = ("rgb", "bgr")


class OnnxFeatures(FeatureExtractor):
    """An output of an image network in an ONNX file; pixels go in as (pixel - mean) / std.

    Parameters
    ----------
    path : path
        The ONNX file, of one input of four dimensions and with all of its data in itself. `fit` reads it.
    output : str, optional
        Name of the output; needed where the network has several. Whatever its dimensions, each image has a row.
    image_size : int or (int, int), optional
        Height and width of the input; images are scaled to cover it and their middle is cut out. Without it, that of
        the file if it is fixed there, or else that of the array of images in `fit`.
    mean, std : float or three floats
        Of pixels from 0 to 255, in the order of ``channels``.
    channels : {"rgb", "bgr"}
        Order of the channels of the input.
    layout : {"nchw", "nhwc"}, optional
        Order of the dimensions of the input; known from the file unless the number of channels is open there.
    resampling : {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"}
        How images are scaled.
    batch_size : int
        Images that go through the network together, each thread its own batch.
    n_jobs : int, optional
        Threads; None = all cores.

    Attributes
    ----------
    n_features_ : int
    model_ : uint8 array
        The ONNX file.
    input_size_ : (int, int)
        Height and width that images are brought to.

    Notes
    -----
    The network runs on one thread a batch, and several batches at a time: so features do not depend on the number of
    threads. A model file holds the whole ONNX file.
    """

    name = "onnx"
    resizes_arrays = True
    not_saved: ClassVar[frozenset[str]] = FeatureExtractor.not_saved | {"path"}
    model_: NDArray[np.uint8]
    input_size_: tuple[int, int]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        output: str | None = None,
        image_size: int | tuple[int, int] | None = None,
        mean: ArrayLike = 0.0,
        std: ArrayLike = 1.0,
        channels: str = "rgb",
        layout: str | None = None,
        resampling: str = "bilinear",
        batch_size: int = 16,
        n_jobs: int | None = None,
    ) -> None:
        self.path = path
        self.output = output
        self.image_size = image_size
        self.mean = mean
        self.std = std
        self.channels = channels
        self.layout = layout
        self.resampling = resampling
        self.batch_size = batch_size
        self.n_jobs = n_jobs

    def fit(self, images: Images, y: Any = None) -> Self:
        """Read the network, and find how many features it gives for images as these; there is nothing to learn."""
        self._check_parameters()
        if self.path is None:
            raise ValueError("The 'path' parameter must be the path of an ONNX file. Got None instead.")
        name = os.fspath(self.path)
        self.__dict__.pop("_network", None)
        model = _read_model(name)
        source = self._source(images)
        size = source.images.shape[1:3] if isinstance(source.images, np.ndarray) else None
        try:
            return self._open(model, size)
        except ValueError as error:
            raise FileError(f"{name}: {error}") from error

    def _check_parameters(self) -> None:
        for parameter, values in (("mean", self.mean), ("std", self.std)):
            array = np.asarray(values, dtype=object)
            numbers = all(isinstance(v, int | float | np.number) and np.isfinite(v) for v in array.ravel())
            if array.shape not in ((), (3,)) or not numbers or (parameter == "std" and not (array > 0).all()):
                kind = "a positive number, or three" if parameter == "std" else "a number, or three"
                raise ValueError(f"The {parameter!r} parameter must be {kind}. Got {values!r} instead.")
        choices = {"channels": ORDERS, "layout": (*LAYOUTS, None), "resampling": RESAMPLING}
        for parameter, allowed in choices.items():
            value = getattr(self, parameter)
            if value not in allowed:
                raise ValueError(f"The {parameter!r} parameter must be one of {list(allowed)}. Got {value!r} instead.")
        size = self.batch_size
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or not 1 <= size <= 4096:
            raise ValueError(f"The 'batch_size' parameter must be an integer from 1 to 4096. Got {size!r} instead.")
        if self.output is not None and not isinstance(self.output, str):
            raise ValueError(f"The 'output' parameter must be None or a name. Got {self.output!r} instead.")

    def _open(self, model: NDArray[np.uint8], size: tuple[int, int] | None) -> Self:
        """Take the network of ``model`` for images of ``size``, and count its features on a black one."""
        refuse_external_data(model.data)
        self.model_ = model
        fixed = self._network.size
        wanted = check_size(self.image_size, parameter="image_size") or fixed or size
        if wanted is None:
            raise ValueError("needs the 'image_size' parameter, for the size of its input is open")
        if fixed is not None and wanted != fixed:
            raise ValueError(f"has an input of {fixed[0]} x {fixed[1]} pixels; 'image_size' must be that or None")
        if wanted[0] * wanted[1] > MAX_INPUT_PIXELS:
            raise ValueError(f"must have an input of at most {MAX_INPUT_PIXELS} pixels. Got {wanted[0]} x {wanted[1]}.")
        self.input_size_ = wanted
        self.n_features_ = self._features(np.zeros((1, *wanted, 3), np.uint8)).shape[1]
        return self

    @cached_property
    def _network(self) -> Network:
        return Network(self.model_, output=self.output, layout=self.layout)

    def __getstate__(self) -> Any:
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

    def _image_size(self) -> tuple[int, int] | None:
        return getattr(self, "input_size_", None)  # `fit` looks at the images before it knows

    def _images_per_batch(self, height: int, width: int) -> int:
        return int(self.batch_size)

    def _features(self, batch: NDArray[np.uint8]) -> NDArray[Any]:
        n_channels = self._network.n_channels
        if n_channels == 1:
            grey = batch if batch.ndim == 3 else batch.mean(axis=3, dtype=np.float32)
            pixels = grey[..., None].astype(np.float32)
        else:
            pixels = (batch[..., None].repeat(3, axis=3) if batch.ndim == 3 else batch).astype(np.float32)
        if self.channels == "bgr":
            pixels = pixels[..., ::-1]
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        if max(mean.size, std.size) > n_channels:
            raise ValueError(
                "The 'mean' and 'std' parameters must be single numbers, for the network takes grey images."
            )
        return self._network.run((pixels - mean) / std)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The ONNX file, and the height and width of its input."""
        return {"model": self.model_, "input_size": np.array(self.input_size_, np.int64)}

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """A fitted extractor from an untrusted file; see `FeatureExtractor.from_arrays`."""
        if set(arrays) != {"model", "input_size"}:
            raise ValueError(f"'onnx' features have the arrays ['input_size', 'model'], not {sorted(arrays)}")
        model, size = arrays["model"], arrays["input_size"]
        if model.dtype != np.uint8 or model.ndim != 1:
            raise ValueError(f"the array 'model' must be 1-D of uint8. Got {model.dtype} of shape {model.shape}.")
        if size.dtype != np.int64 or size.shape != (2,):
            raise ValueError(f"the array 'input_size' must be two int64. Got {size.dtype} of shape {size.shape}.")
        extractor = cls._from_parameters(parameters)
        extractor._check_parameters()
        return extractor._open(np.ascontiguousarray(model), check_size(size.tolist(), parameter="input_size"))


class Network:
    """An ONNX file that is open for inference, on one thread a call; calls may come from several.

    Parameters
    ----------
    model : uint8 array
        The file.
    output : str, optional
        Name of the output.
    layout : {"nchw", "nhwc"}, optional

    Attributes
    ----------
    n_channels : int
    size : (int, int) or None
        Height and width of the input, where the file has them fixed.
    """

    def __init__(self, model: NDArray[np.uint8], *, output: str | None, layout: str | None) -> None:
        self._session = _session(model)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in INPUT_TYPES:
            described = ", ".join(f"{i.name} {i.type} of shape {i.shape}" for i in inputs)
            raise ValueError(f"must have one input, a batch of images of four dimensions. Got {described or 'none'}.")
        self._input, self._dtype = inputs[0].name, INPUT_TYPES[inputs[0].type]
        self._output = _chosen([found.name for found in self._session.get_outputs()], output)
        shape = [length if isinstance(length, int) else None for length in inputs[0].shape]
        self._is_nchw = _layout(shape, layout) == "nchw"
        self._batch = shape[0]
        channels, height, width = (shape[1], shape[2], shape[3]) if self._is_nchw else (shape[3], shape[1], shape[2])
        if channels not in (1, 3, None):
            raise ValueError(f"must take images of 1 or 3 channels. Got {channels}.")
        self.n_channels = channels or 3
        self.size = (height, width) if height is not None and width is not None else None

    def run(self, pixels: NDArray[np.float32]) -> NDArray[Any]:
        """Output (n, whatever each image has) for pixels (n, height, width, channels)."""
        values = (pixels.transpose(0, 3, 1, 2) if self._is_nchw else pixels).astype(self._dtype)
        if self._batch is None:
            return self._call(values)
        padding = -len(values) % self._batch  # a network of a fixed batch gets black images after the last ones
        whole = np.concatenate([values, np.zeros((padding, *values.shape[1:]), values.dtype)])
        parts = [self._call(whole[start : start + self._batch]) for start in range(0, len(whole), self._batch)]
        return np.concatenate(parts)[: len(values)]

    def _call(self, values: NDArray[Any]) -> NDArray[Any]:
        try:
            [result] = self._session.run([self._output], {self._input: np.ascontiguousarray(values)})
        except Exception as error:  # onnxruntime has many types, none of them public
            raise ValueError(f"cannot be run on images of shape {values.shape[1:]}: {one_line(error)}") from error
        if not isinstance(result, np.ndarray) or result.dtype.kind != "f" or result.shape[:1] != values.shape[:1]:
            raise ValueError(f"the output {self._output!r} must have numbers for each of {len(values)} images")
        return result.reshape(len(values), -1)


def _chosen(names: list[str], output: str | None) -> str:
    if output is None and len(names) == 1:
        return names[0]
    if output not in names:
        raise ValueError(f"the 'output' parameter must be one of {names}. Got {output!r} instead.")
    return output


def _layout(shape: list[int | None], layout: str | None) -> str:
    if layout is not None:
        return layout
    if shape[1] in (1, 3):
        return "nchw"
    if shape[3] in (1, 3):
        return "nhwc"
    raise ValueError("needs the 'layout' parameter, 'nchw' or 'nhwc', for the number of its channels is open")


def _session(model: NDArray[np.uint8]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError("networks need onnxruntime: pip install 'hashgrove[cnn]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # what is wrong comes as an exception; warnings about the graph help no one
    try:
        return onnxruntime.InferenceSession(model.tobytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many types, none of them public
        raise ValueError(f"not an ONNX file that can be run: {one_line(error)}") from error


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
