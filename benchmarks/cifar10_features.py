"""Gist and OnnxFeatures on CIFAR-10, beside features of the same images that were computed elsewhere.

    python benchmarks/cifar10_features.py cifar10.npz --gist cifar10_gist512_u8.npz
    python benchmarks/cifar10_features.py cifar10.npz --network effnet_lite0_feat.onnx cifar10_effnetlite0_1280_u8.npz

`cifar10.npz` holds `images` (60,000 x 32 x 32 x 3) and `labels`; the others `X` (uint8), `scale` and `lo`, value =
X * scale + lo. The figures go to docs/results/cifar10-features/NAME.json; docs/images.md quotes them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cifar10_runs import machine
from hashgrove import Gist, OnnxFeatures
from hashgrove.features.images import RESAMPLING
from hashgrove.storage.atomic import atomic_write

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results" / "cifar10-features"
N_TRAIN, N_QUERIES, NEIGHBOURS = 50_000, 2_000, 15
N_THROUGH_NETWORK = 32


class Stored:
    """Features as bytes, with the values that they stand for."""

    def __init__(self, path: Path, n: int | None = None) -> None:
        with np.load(path) as file:
            self.levels, self.scale = file["X"][:n], file["scale"]
            self.values = (self.levels * self.scale + file["lo"]).astype(np.float32)

    def difference(self, X: NDArray[Any]) -> float:
        """The largest difference from ``X`` in levels, where the stored value is not clipped."""
        inside = (self.levels > 0) & (self.levels < 255)
        return float((np.abs(X - self.values) / self.scale)[inside].max())


def correlations(X: NDArray[Any], Y: NDArray[Any]) -> NDArray[np.float64]:
    """Of each row of ``X`` with that of ``Y``."""
    return np.array([np.corrcoef(x, y)[0, 1] for x, y in zip(X, Y, strict=True)])


def neighbours_right(X: NDArray[Any], y: NDArray[Any]) -> float:
    """The share of queries that most of their nearest training rows, by Euclidean distance, are of the class of."""
    train, squares = X[:N_TRAIN], np.square(X[:N_TRAIN]).sum(axis=1)
    right = 0
    for query, label in zip(X[N_TRAIN : N_TRAIN + N_QUERIES], y[N_TRAIN:], strict=False):
        nearest = np.argpartition(squares - 2 * (train @ query), NEIGHBOURS)[:NEIGHBOURS]
        right += np.bincount(y[nearest]).argmax() == label
    return right / N_QUERIES


def check_gist(images: NDArray[np.uint8], labels: NDArray[Any], path: Path) -> dict[str, Any]:
    """All images by `Gist()`, against the stored features."""
    gist, stored = Gist().fit(images[:1]), Stored(path)
    gist.transform(images[:64])  # compiles
    started, processor = time.perf_counter(), time.process_time()
    X = gist.transform(images)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "largest_difference_in_levels": round(stored.difference(X), 4),
        "lowest_correlation_of_a_dimension": round(float(correlations(X.T, stored.values.T).min()), 5),
        f"{NEIGHBOURS}_nn_of_{N_QUERIES}_queries": round(neighbours_right(X, labels), 4),
        f"{NEIGHBOURS}_nn_of_the_stored_features": round(neighbours_right(stored.values, labels), 4),
    }


def check_network(images: NDArray[np.uint8], network: Path, path: Path) -> dict[str, Any]:
    """The first images through the network, scaled by each of Pillow's filters."""
    stored = Stored(path, N_THROUGH_NETWORK)
    settings: dict[str, Any] = {"output": "feat", "image_size": 128, "mean": 127, "std": 128}
    found = {}
    for resampling in RESAMPLING:
        extractor = OnnxFeatures(str(network), resampling=resampling, **settings)
        X = extractor.fit_transform(images[:N_THROUGH_NETWORK])
        found[resampling] = round(float(correlations(X, stored.values).mean()), 4)
    return {"images": N_THROUGH_NETWORK, "mean_correlation_by_filter": found}


def main() -> None:
    """Check what was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--gist", type=Path, metavar="NPZ")
    parser.add_argument("--network", type=Path, nargs=2, metavar=("ONNX", "NPZ"))
    arguments = parser.parse_args()
    with np.load(arguments.images) as file:
        images, labels = file["images"], file["labels"]
    results = {}
    if arguments.gist:
        results["gist"] = check_gist(images, labels, arguments.gist)
    if arguments.network:
        results["network"] = check_network(images, *arguments.network)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        text = json.dumps(result | {"machine": machine()}, indent=1)
        print(text)
        with atomic_write(RESULTS / f"{name}.json") as file:
            file.write(f"{text}\n".encode())


if __name__ == "__main__":
    main()
