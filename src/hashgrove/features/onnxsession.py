"""A network in an untrusted ONNX file, run by onnxruntime under a limit of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.onnxfile import rebuild
from hashgrove.runtime.threads import run_within
from hashgrove.storage.formats import one_line

__all__ = ["Network"]

INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Network:
    """An ONNX file that is open for inference. A call runs on one thread; several threads may call at a time.

    Parameters
    ----------
    model : uint8 array
        The bytes of the file.
    output : str, optional
        Name of the output to use.
    layout : {"nchw", "nhwc"}, optional
        Order of the dimensions of the input.
    time_limit : float, optional
        Seconds that opening it may take.

    Attributes
    ----------
    n_channels : int
    size : (int, int) or None
        Height and width of the input, or None if the file leaves them open.
    """

    def __init__(
        self, model: NDArray[np.uint8], *, output: str | None, layout: str | None, time_limit: float | None
    ) -> None:
        self._session = _session(model, time_limit)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in INPUT_TYPES:
            described = ", ".join(f"{i.name} {i.type} of shape {i.shape}" for i in inputs)
            raise ValueError(
                f"must have one input, a batch of images of four dimensions. Got {described or 'none'} instead."
            )
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

    def run(self, pixels: NDArray[np.float32], *, time_limit: float | None) -> NDArray[Any]:
        """Output as a matrix with one row per image, for pixels (n, height, width, channels).

        It may take ``time_limit`` seconds per image.
        """
        values = (pixels.transpose(0, 3, 1, 2) if self._is_nchw else pixels).astype(self._dtype)
        if self._batch is None:
            return self._call(values, time_limit)
        padding = -len(values) % self._batch  # a network with a fixed batch size gets black images at the end
        whole = np.concatenate([values, np.zeros((padding, *values.shape[1:]), values.dtype)])
        parts = [
            self._call(whole[start : start + self._batch], time_limit) for start in range(0, len(whole), self._batch)
        ]
        return np.concatenate(parts)[: len(values)]

    def _call(self, values: NDArray[Any], time_limit: float | None) -> NDArray[Any]:
        from onnxruntime import RunOptions

        options, inputs = RunOptions(), {self._input: np.ascontiguousarray(values)}

        def stop() -> None:
            options.terminate = True  # looked at between two operations of the network

        try:
            [result] = run_within(
                None if time_limit is None else time_limit * len(values),
                lambda: self._session.run([self._output], inputs, options),
                stop=stop,
            )
        except TimeoutError as error:
            raise _too_slow("per image", time_limit) from error
        except Exception as error:  # onnxruntime has many types, none of them public
            raise ValueError(f"cannot be run on images of shape {values.shape[1:]}: {one_line(error)}") from error
        if not isinstance(result, np.ndarray) or result.dtype.kind != "f" or result.shape[:1] != values.shape[:1]:
            raise ValueError(f"the output {self._output!r} must have numbers for each of the {len(values)} images")
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
    raise ValueError(
        "needs the 'layout' parameter, 'nchw' or 'nhwc', because the file leaves the number of channels open"
    )


def _session(model: NDArray[np.uint8], time_limit: float | None) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError("networks need onnxruntime: pip install 'hashgrove[cnn]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors come as exceptions, and warnings about the graph help nobody
    options.add_session_config_entry("session.load_model_format", "ONNX")  # never guess another format from the bytes
    content = bytes(rebuild(model.data))

    def make() -> Any:  # what depends on no input is computed here
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    try:
        return run_within(time_limit, make)
    except TimeoutError as error:
        raise _too_slow("to be opened", time_limit) from error
    except Exception as error:  # onnxruntime has many types, none of them public
        raise ValueError(f"not an ONNX file that can be run: {one_line(error)}") from error


def _too_slow(what: str, time_limit: float | None) -> ValueError:
    return ValueError(f"must take at most {time_limit} seconds {what}; set 'time_limit' higher if it may take longer")
