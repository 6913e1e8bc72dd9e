"""A network in an untrusted ONNX file, run by onnxruntime in a child process under limits of time and memory."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.network_child import ChildEndedError, NetworkChild

__all__ = ["Network"]

OUTPUT_TYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")}
START_SECONDS = 300  # for the process, of which it takes less than one if nothing else runs
MAX_OUTPUT_BYTES = 2**26  # per image
MAX_BATCH = 4096  # images that a file may ask for at a time
MAX_BATCH_NUMBERS = 2**28  # in such a batch
INPUT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Network:
    """An ONNX file that is open for inference. A call runs on one thread; several threads may call at a time.

    After an error that ends the child process, or a call that takes too long, the next call starts another one.

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
        if find_spec("onnxruntime") is None:
            raise ValueError("networks need onnxruntime: pip install 'hashgrove[cnn]'")
        self._model, self._time_limit, self._starting = model, time_limit, threading.Lock()
        self._running: NetworkChild | None = None
        found = self._start()
        inputs = found["inputs"]
        if len(inputs) != 1 or len(inputs[0][2]) != 4 or inputs[0][1] not in INPUT_TYPES:
            described = ", ".join(f"{name} {kind} of shape {shape}" for name, kind, shape in inputs)
            raise ValueError(
                f"must have one input, a batch of images of four dimensions. Got {described or 'none'} instead."
            )
        self._input, kind, sides = inputs[0]
        self._dtype = INPUT_TYPES[kind]
        self._output = _chosen(found["outputs"], output)
        shape = [length if isinstance(length, int) else None for length in sides]
        if any(length is not None and length < 1 for length in shape) or (shape[0] or 1) > MAX_BATCH:
            raise ValueError(f"must take batches of 1 to {MAX_BATCH} images that are not empty. Got the shape {sides}.")
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
        if self._batch * values[0].size > MAX_BATCH_NUMBERS:
            raise ValueError(f"must take batches of at most {MAX_BATCH_NUMBERS} numbers. Got {self._batch} images.")
        padding = -len(values) % self._batch  # a network with a fixed batch size gets black images at the end
        whole = np.concatenate([values, np.zeros((padding, *values.shape[1:]), values.dtype)])
        parts = [
            self._call(whole[start : start + self._batch], time_limit) for start in range(0, len(whole), self._batch)
        ]
        return np.concatenate(parts)[: len(values)]

    def _call(self, values: NDArray[Any], time_limit: float | None) -> NDArray[Any]:
        header = {"do": "run", "input": self._input, "output": self._output, "dtype": values.dtype.name}
        try:
            answer, data = self._child().ask(
                {**header, "shape": values.shape},
                np.ascontiguousarray(values).reshape(-1),
                seconds=None if time_limit is None else time_limit * len(values),
                most=MAX_OUTPUT_BYTES * len(values),
            )
        except TimeoutError as error:
            raise _too_slow("per image", time_limit) from error
        except ChildEndedError as error:
            raise ValueError(f"cannot be run on images of shape {values.shape[1:]}: {error}") from error
        if "error" in answer:
            raise ValueError(f"cannot be run on images of shape {values.shape[1:]}: {answer['error']}")
        return np.frombuffer(data, OUTPUT_TYPES[answer["dtype"]]).reshape(len(values), answer["width"])

    def _child(self) -> NetworkChild:
        """The process in which the network is open; a new one if there is none, or if it has ended."""
        with self._starting:
            if self._running is None or not self._running.is_running:
                self._start()
            assert self._running is not None
            return self._running

    def _start(self) -> dict[str, Any]:
        """Start a process and open the network in it; return its inputs and outputs."""
        child = NetworkChild()
        try:
            child.ask({"do": "start"}, b"", seconds=START_SECONDS, most=0)  # which is not the network's time
            answer, _ = child.ask({"do": "open"}, self._model, seconds=self._time_limit, most=0)
        except TimeoutError as error:
            raise _too_slow("to be opened", self._time_limit) from error
        except ChildEndedError as error:
            raise ValueError(f"not an ONNX file that can be run: {error}") from error
        if "error" in answer:
            child.end()
            raise ValueError(
                str(answer["error"])
                if answer.get("refused")
                else f"not an ONNX file that can be run: {answer['error']}"
            )
        self._running = child
        return answer


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


def _too_slow(what: str, time_limit: float | None) -> ValueError:
    return ValueError(
        f"must take at most {time_limit} seconds {what}; set the 'time_limit' parameter higher if it may take longer"
    )
