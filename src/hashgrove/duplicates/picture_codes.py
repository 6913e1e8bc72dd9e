"""Codes of pictures for near-duplicates: by their low frequencies, or by a network."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hashgrove.baselines import LSH
from hashgrove.features import OnnxFeatures
from hashgrove.features.images import ImageFileError, read_image
from hashgrove.features.perceptual import MIRROR, N_BITS, WINDOWS, perceptual_codes, thumbnail
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["NetworkCodes", "PerceptualCodes", "PictureCodes", "spread"]

NETWORK_BITS = 512  # random hyperplanes
N_TURNED = 2000, 200  # pictures that are turned over: without a network, where that costs no reading, and with one
FILES = 64  # pictures that are read together


class PictureCodes(ABC):
    """A way to make codes of pictures: packed, of shape (n, n_windows, n_bytes), those of the whole pictures first."""

    @abstractmethod
    def of_files(
        self, paths: list[str], n_jobs: int | None, show: Callable[[int], None]
    ) -> tuple[list[int], NDArray[np.uint8]]:
        """Numbers of the files that can be used, and their codes; a warning for each of the others."""

    @abstractmethod
    def of_image(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Codes of one RGB image, (n_windows, n_bytes)."""

    @abstractmethod
    def turned(self, codes: NDArray[np.uint8], paths: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Numbers of some pictures, and codes of these turned over, so that they are copies of none."""


class PerceptualCodes(PictureCodes):
    """Codes by low frequencies, of whole pictures and of parts of them."""

    def of_files(
        self, paths: list[str], n_jobs: int | None, show: Callable[[int], None]
    ) -> tuple[list[int], NDArray[np.uint8]]:
        """See `PictureCodes.of_files`."""

        def attempt(path: str) -> NDArray[np.uint8] | ImageFileError:
            try:
                return thumbnail(read_image(path))
            except ImageFileError as error:
                return error

        kept: list[int] = []
        codes = [np.empty((0, len(WINDOWS), N_BITS // 8), np.uint8)]
        for start, stop in chunks(len(paths), FILES):
            found = run_tasks(attempt, [(path,) for path in paths[start:stop]], n_jobs=n_jobs)
            good = [(start + number, small) for number, small in enumerate(found) if isinstance(small, np.ndarray)]
            for error in found:
                if not isinstance(error, np.ndarray):
                    warnings.warn(f"{error}; skipped", UserWarning, stacklevel=3)
            if good:
                kept += [number for number, _ in good]
                codes.append(perceptual_codes(np.stack([small for _, small in good])))
            show(stop)
        return kept, np.concatenate(codes)

    def of_image(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """See `PictureCodes.of_image`."""
        return perceptual_codes(thumbnail(image)[None])[0]

    def turned(self, codes: NDArray[np.uint8], paths: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Mirror images, whose codes follow from those of the pictures."""
        chosen = spread(len(codes), N_TURNED[0])
        return chosen, codes[chosen] ^ MIRROR


class NetworkCodes(PictureCodes):
    """Random hyperplanes through the features of a network, of whole pictures."""

    def __init__(self, network: OnnxFeatures) -> None:
        self.network = network
        self.hasher = LSH(NETWORK_BITS, random_state=0)

    def of_files(
        self, paths: list[str], n_jobs: int | None, show: Callable[[int], None]
    ) -> tuple[list[int], NDArray[np.uint8]]:
        """See `PictureCodes.of_files`; the network is fitted first."""
        self.network.fit(paths)
        kept: list[int] = []
        features = [np.empty((0, self.network.n_features_), np.float32)]
        for done, numbers, rows in self.network.batches(paths, on_error="skip", n_jobs=n_jobs):
            kept += numbers.tolist()
            features.append(rows)
            show(done)
        X = np.concatenate(features)
        if not len(X):
            return kept, np.empty((0, 1, NETWORK_BITS // 8), np.uint8)
        return kept, np.asarray(self.hasher.fit(X).transform(X))[:, None]

    def of_image(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """See `PictureCodes.of_image`."""
        return np.asarray(self.hasher.transform(self.network.transform(image[None])))

    def turned(self, codes: NDArray[np.uint8], paths: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Pictures upside down, for to a network a mirror image is the same picture."""
        chosen = spread(len(codes), N_TURNED[1])
        found = [self.of_image(np.ascontiguousarray(read_image(paths[number])[::-1])) for number in chosen]
        return chosen, np.stack(found)


def spread(n: int, at_most: int) -> NDArray[np.int64]:
    """The numbers of at most so many of ``n`` things, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))
