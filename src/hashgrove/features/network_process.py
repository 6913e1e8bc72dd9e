"""A program that runs an untrusted ONNX network, under a limit of memory, for the process that started it.

`hashgrove.features.network_child` runs it as a script. Requests come on stdin and answers go to stdout, each as the
lengths of its two parts, a header in JSON and data. Every request is carried out by a thread; the one that reads stdin
is always free, so that the process ends as soon as its parent closes the pipe or is gone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

LENGTHS = struct.Struct("<IQ")  # of the header and the data of a message
THREADS = 256  # at most; there are as many as requests at a time
OUTPUTS = {"float16", "float32", "float64"}


def main(memory: str) -> None:
    """Answer requests until stdin ends. ``memory`` is the number of bytes that all of them together may take."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    _offer_to_the_kernel()
    import onnxruntime

    limits = _sibling("sandbox_process")
    limits.limit("RLIMIT_CORE", 0)
    limits.limit("RLIMIT_AS", limits.address_space() + int(memory))
    network, turn = _Network(onnxruntime), threading.Lock()

    def carry_out(header: dict[str, Any], data: bytearray) -> None:
        try:
            answer, values = getattr(network, f"do_{header['do']}")(header, data)
        except _Refused as error:
            answer, values = {"error": str(error), "refused": True}, b""
        except Exception as error:  # onnxruntime has many types, none of them public
            answer, values = {"error": " ".join(str(error).split())[:200] or type(error).__name__}, b""
        head = json.dumps({**answer, "number": header["number"]}).encode()
        with turn:
            answers.write(LENGTHS.pack(len(head), len(values)) + head)
            answers.write(values)
            answers.flush()

    pool = ThreadPoolExecutor(THREADS)
    while lengths := sys.stdin.buffer.read(LENGTHS.size):
        n_head, n_data = LENGTHS.unpack(lengths)
        header = json.loads(sys.stdin.buffer.read(n_head))
        pool.submit(carry_out, header, _read(sys.stdin.buffer, n_data))
    os.kill(os.getpid(), signal.SIGTERM)  # whatever the threads are doing


class _Refused(Exception):
    """A file that onnxruntime does not get to see."""


class _Network:
    """An open network."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._session: Any = None

    def do_start(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], bytes]:
        """Answer that the process has started."""
        return {}, b""

    def do_open(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], bytes]:
        """Open the file in ``data``; what depends on no input is computed here."""
        options = self._library.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors come as exceptions, and warnings about the graph help nobody
        options.add_session_config_entry("session.load_model_format", "ONNX")  # never guess a format from the bytes
        try:
            content = bytes(_sibling("onnxfile").rebuild(data))
        except ValueError as error:
            raise _Refused(str(error)) from error
        data.clear()
        self._session = self._library.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        inputs = [[found.name, found.type, found.shape] for found in self._session.get_inputs()]
        return {"inputs": inputs, "outputs": [found.name for found in self._session.get_outputs()]}, b""

    def do_run(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], Any]:
        """Compute an output for a batch."""
        import numpy as np

        values = np.frombuffer(data, header["dtype"]).reshape(header["shape"])
        (result,) = self._session.run([header["output"]], {header["input"]: values})
        if not isinstance(result, np.ndarray) or result.dtype.name not in OUTPUTS or result.shape[:1] != (len(values),):
            raise ValueError(f"the output {header['output']!r} must have numbers for each of the {len(values)} images")
        if result.nbytes > header["most"]:
            raise ValueError(f"the output {header['output']!r} must have fewer numbers. Got {result[0].size} per image")
        rows = np.ascontiguousarray(result.reshape(len(values), -1))
        return {"dtype": result.dtype.name, "width": rows.shape[1]}, rows.reshape(-1).view(np.uint8).data


def _read(source: BinaryIO, n_bytes: int) -> bytearray:
    data = bytearray(n_bytes)
    source.readinto(data)  # type: ignore[attr-defined]
    return data


def _offer_to_the_kernel() -> None:
    """Make this process the first that is ended when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:  # not Linux
        return


def _sibling(name: str) -> Any:
    """A module of this folder, without the package around it, which takes longer to import than all the rest."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(*sys.argv[1:])
