"""Cost of the child process that runs networks: features of images through it, beside onnxruntime in this process.

    python benchmarks/network_child.py

A network of convolutions for images of 224 x 224 pixels (its weights are random), batches of 16, one thread.
The two are measured in turns; it prints the best of each, and their ratio, as JSON: the time of the
clock, and the processor time of this process and of the child together.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from hashgrove.features import OnnxFeatures
from tiny_onnx import attribute, network, node, tensor

SIDE, BATCH, ROUNDS = 224, 16, 7
WIDTHS = (3, 32, 64, 128, 256)


def layers() -> bytes:
    """An ONNX file: four convolutions with steps of two, each followed by one more, and the mean over the image."""
    rng = np.random.default_rng(0)
    nodes, constants, last = [], [], "x"
    for number, (before, width) in enumerate(pairwise(WIDTHS)):
        for part, (channels, step) in enumerate(((before, 2), (width, 1))):
            name = f"{number}{part}"
            constants.append(tensor(f"w{name}", rng.standard_normal((width, channels, 3, 3)) / (3 * channels**0.5)))
            settings = attribute("strides", (step, step)) + attribute("pads", (1, 1, 1, 1))
            nodes += [
                node("Conv", [last, f"w{name}"], [f"c{name}"], settings),
                node("Relu", [f"c{name}"], [f"r{name}"]),
            ]
            last = f"r{name}"
    mean = attribute("axes", (2, 3)) + attribute("keepdims", 0)
    return network([*nodes, node("ReduceMean", [last], ["y"], mean)], constants)


def main() -> None:
    """Measure, and print the result."""
    images = np.random.default_rng(1).integers(0, 256, (4 * BATCH, SIDE, SIDE, 3), dtype=np.uint8)
    content = layers()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    zero, one = np.float32(0), np.float32(1)

    def here() -> np.ndarray:
        parts = []
        for start in range(0, len(images), BATCH):
            pixels = (images[start : start + BATCH].astype(np.float32) - zero) / one  # as `OnnxFeatures` does
            parts += session.run(["y"], {"x": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})
        return np.concatenate(parts)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.onnx")
        path.write_bytes(content)
        features = OnnxFeatures(path, batch_size=BATCH, n_jobs=1, image_size=SIDE).fit(images[:1])
        assert np.array_equal(features.transform(images), here())
        pid = features._network._running._process.pid
        best = dict.fromkeys(("here", "here, processor", "child", "child, processor"), np.inf)

        def processor() -> float:
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            return time.process_time() + sum(map(int, ticks)) / 100

        for _ in range(ROUNDS):
            for name, compute in (("here", here), ("child", lambda: features.transform(images))):
                started, used = time.perf_counter(), processor()
                compute()
                best[name] = min(best[name], time.perf_counter() - started)
                best[f"{name}, processor"] = min(best[f"{name}, processor"], processor() - used)
    found = {f"{name}, ms per image": round(1000 * value / len(images), 2) for name, value in best.items()}
    ratios = {
        "ratio": best["child"] / best["here"],
        "ratio, processor": best["child, processor"] / best["here, processor"],
    }
    print(json.dumps(found | {name: round(value, 3) for name, value in ratios.items()}, indent=1))


if __name__ == "__main__":
    main()
