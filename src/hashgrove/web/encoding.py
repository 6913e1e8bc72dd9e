"""From what a client sends to codes: features, pictures and hexadecimal digits, in threads that block nobody else."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.web.collection import Collection
from hashgrove.web.errors import BUSY, ServiceError, must_be
from hashgrove.web.limits import Limits
from hashgrove.web.pictures import thumbnail

if TYPE_CHECKING:
    from hashgrove.encoders import Encoder
    from hashgrove.features import FeatureExtractor

__all__ = ["Encoded", "Encoding"]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Codes, what re-ranking and margins need of the same rows, and how long everything took."""

    codes: NDArray[np.uint8]
    features: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Encoding:
    """Encodes what clients send. Two threads encode features and two decode pictures.

    Parameters
    ----------
    collection : Collection
    limits : Limits
    """

    def __init__(self, collection: Collection, *, limits: Limits) -> None:
        self._collection, self._limits = collection, limits
        self._rows = ThreadPoolExecutor(2, "hashgrove-encode")
        self._pictures = ThreadPoolExecutor(2, "hashgrove-picture")
        self._n_pictures = 0  # that are decoded or wait for it

    def close(self) -> None:
        """End the threads."""
        self._rows.shutdown(cancel_futures=True)
        self._pictures.shutdown(wait=False, cancel_futures=True)

    @property
    def n_features(self) -> int | None:
        """Numbers in a row of features; None if there is no model."""
        encoder = self._collection.encoder
        return None if encoder is None else encoder.n_features

    def _encoder(self, field: str) -> Encoder:
        encoder = self._collection.encoder
        if encoder is None:
            message = f"The '{field}' field cannot be used: the service has no model to encode features."
            raise ServiceError(422, message, field=field)
        return encoder

    def check_codes(self, codes: NDArray[np.uint8] | Sequence[str], field: str) -> NDArray[np.uint8]:
        """Codes as they are in an index, from hexadecimal digits or rows of bytes."""
        if isinstance(codes, np.ndarray):
            return codes
        width = self._collection.n_bytes or len(codes[0]) // 2
        for code in codes:
            if len(code) != 2 * width:
                raise must_be(field, f"codes of {2 * width} hexadecimal digits", code)
        return np.frombuffer(bytes.fromhex("".join(codes)), np.uint8).reshape(len(codes), width)

    def check_features(self, rows: Any, field: str) -> NDArray[Any]:
        """Rows of features as a matrix with as many columns as the model takes."""
        n_features = self._encoder(field).n_features
        if isinstance(rows, np.ndarray):
            return rows
        for number, row in enumerate(rows):
            if len(row) != n_features:
                what = f"{n_features} numbers per row, as the model takes"
                message = f"The '{field}' field must have {what}. Got {len(row)} in row {number} instead."
                raise ServiceError(422, message, field=field)
        return np.asarray(rows, np.float64)

    async def encode(self, rows: NDArray[Any], *, margins: bool = False) -> Encoded:
        """Encode features; with ``margins``, also say how sure each bit is."""
        encoder = self._encoder("features")

        def encode() -> Encoded:
            started = time.perf_counter()
            try:
                codes = encoder.encode(rows, n_jobs=1)
                weights = np.abs(encoder.scores(rows, n_jobs=1)) if margins else None
            except ValueError as error:  # such as numbers that overflow float32
                raise ServiceError(422, " ".join(str(error).split()), field="features") from None
            return Encoded(codes, rows, weights, {"encode": time.perf_counter() - started})

        encoded: Encoded = await self.run(encode)
        return encoded

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function in one of the threads that encode features."""
        return await asyncio.get_running_loop().run_in_executor(self._rows, function)

    async def picture(self, content: bytes, *, margins: bool) -> Encoded:
        """Encode an uploaded picture."""
        extractor = self._collection.extractor
        if extractor is None:
            message = "The 'image' field cannot be used: the service has no model for pictures."
            raise ServiceError(422, message, field="image")
        started = time.perf_counter()
        features = await self._with_picture(lambda: _features(extractor, content))
        seconds = {"features": time.perf_counter() - started}
        encoded = await self.encode(features, margins=margins)
        return Encoded(encoded.codes, features, encoded.weights, seconds | encoded.seconds)

    async def thumbnail(self, path: str) -> bytes | None:
        """A small picture of an image file; None if there is none."""
        content: bytes | None = await self._with_picture(lambda: thumbnail(path))
        return content

    async def _with_picture(self, function: Callable[[], Any]) -> Any:
        if self._n_pictures >= self._limits.waiting_images:
            raise ServiceError(503, "Too many pictures wait already. Try again soon.", headers=BUSY)
        self._n_pictures += 1
        done = asyncio.get_running_loop().run_in_executor(self._pictures, function)
        done.add_done_callback(self._picture_done)
        return await asyncio.shield(done)  # a thread goes on when a client has gone, and counts until it ends

    def _picture_done(self, done: asyncio.Future[Any]) -> None:
        self._n_pictures -= 1
        if not done.cancelled():
            done.exception()  # whoever waited has seen it, or has gone


def _features(extractor: FeatureExtractor, content: bytes) -> NDArray[Any]:
    """The features of a picture. It is written to a file, because readers of images check the size of the file."""
    from hashgrove.features.images import ImageFileError

    handle, path = tempfile.mkstemp(prefix="hashgrove-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        return np.concatenate([rows for _, _, rows in extractor.batches([path], n_jobs=1)])
    except ImageFileError as error:
        said = str(error).removeprefix(f"{path}: ")
        raise ServiceError(422, f"The 'image' field must be a picture: {said}", field="image") from None
    finally:
        os.unlink(path)
