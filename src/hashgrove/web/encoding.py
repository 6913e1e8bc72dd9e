"""Checks and encoding of what clients send: features, images, codes in hexadecimal digits, and ids."""

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

from hashgrove.web.bodies import read_rows
from hashgrove.web.collection import Collection
from hashgrove.web.errors import BUSY, ServiceError, cannot_use, from_value_error, must_be
from hashgrove.web.images import large_image, thumbnail
from hashgrove.web.limits import Limits

if TYPE_CHECKING:
    from hashgrove.encoders import Encoder
    from hashgrove.features import FeatureExtractor

__all__ = ["Encoded", "Encoding"]


MANY_NUMBERS = 10_000  # that take longer to read than a change of threads


@dataclass(frozen=True, eq=False)
class Encoded:
    """Codes, the features and weights of the same rows where they are needed, and the time of each step."""

    codes: NDArray[np.uint8]
    features: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Encoding:
    """Checks and encodes what clients send. Two threads encode features, two decode images, one reads and writes JSON.

    Parameters
    ----------
    collection : Collection
    limits : Limits
    """

    def __init__(self, collection: Collection, *, limits: Limits) -> None:
        self._collection, self._limits = collection, limits
        self._rows = ThreadPoolExecutor(2, "hashgrove-encode")
        self._large = ThreadPoolExecutor(1, "hashgrove-large")
        self._images = ThreadPoolExecutor(2, "hashgrove-image")
        self._n_images = 0  # that are being decoded or wait for it

    def close(self) -> None:
        """End the threads."""
        self._rows.shutdown(cancel_futures=True)
        self._large.shutdown(cancel_futures=True)
        self._images.shutdown(wait=False, cancel_futures=True)

    @property
    def n_features(self) -> int | None:
        """Numbers in a row of features; None if there is no model."""
        encoder = self._collection.encoder
        return None if encoder is None else encoder.n_features

    def _encoder(self, field: str) -> Encoder:
        encoder = self._collection.encoder
        if encoder is None:
            raise cannot_use(field, "the service has no model to encode features")
        return encoder

    def check_ids(self, given: Sequence[str | int], field: str) -> NDArray[Any]:
        """Ids of a request in the type that the index has."""
        try:
            return self._collection.as_ids(given)
        except ValueError as error:
            raise from_value_error(error, field) from None

    def check_codes(self, codes: Sequence[str], field: str) -> NDArray[np.uint8]:
        """Packed codes from hexadecimal digits."""
        width = self._collection.n_bytes or len(codes[0]) // 2
        for code in codes:
            if len(code) != 2 * width:
                raise must_be(field, f"codes of {2 * width} hexadecimal digits", code)
        return np.frombuffer(bytes.fromhex("".join(codes)), np.uint8).reshape(len(codes), width)

    def check_model(self, digest: str | None, *, codes: bool) -> None:
        """Refuse codes of another model, and codes of an unknown one if the index knows its model."""
        own = self._collection.index.model
        if digest is None and codes and own is not None:
            message = "The 'model' field must be given with codes: the digest of their model, as in /info. Got none."
            raise ServiceError(422, message, field="model")
        known = own or self._collection.digest
        if digest is not None and known is not None and digest != known:
            raise must_be("model", f"that of the index, {known}: codes of different models cannot be compared", digest)

    def check_features(self, rows: Sequence[Sequence[float]], field: str) -> NDArray[Any]:
        """Rows of features as a matrix with as many columns as the model takes."""
        n_features = self._encoder(field).n_features
        for number, row in enumerate(rows):
            if len(row) != n_features:
                what = f"{n_features} numbers per row, as the model takes"
                message = f"The '{field}' field must have {what}. Got {len(row)} in row {number} instead."
                raise ServiceError(422, message, field=field)
        return np.asarray(rows, np.float64)

    async def as_matrix(self, rows: Sequence[Sequence[float]], field: str) -> NDArray[Any]:
        """`check_features`, in a thread if there are many numbers."""
        many = len(rows) * len(rows[0]) > MANY_NUMBERS
        matrix: NDArray[Any] = (
            await self.run_large(lambda: self.check_features(rows, field)) if many else self.check_features(rows, field)
        )
        return matrix

    def check_rows(self, body: bytes, kind: str, *, limit: int) -> NDArray[Any]:
        """Rows of a binary body: features or packed codes."""
        if kind == "features":
            self._encoder("kind")
        width = self.n_features if kind == "features" else self._collection.n_bytes
        return read_rows(body, kind=kind, width=width, limit=limit)

    async def encode(self, rows: NDArray[Any], *, weights: bool = False) -> Encoded:
        """Encode features; with ``weights``, also compute how confident the encoder is of each bit."""
        encoder = self._encoder("features")

        def encode() -> Encoded:
            started = time.perf_counter()
            try:
                codes = encoder.encode(rows, n_jobs=1)
                confidence = np.abs(encoder.scores(rows, n_jobs=1)) if weights else None
            except ValueError as error:  # such as numbers that overflow float32
                raise from_value_error(error, "features") from None
            return Encoded(codes, rows, confidence, {"encode": time.perf_counter() - started})

        encoded: Encoded = await self.run(encode)
        return encoded

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function in one of the threads that encode features."""
        return await asyncio.get_running_loop().run_in_executor(self._rows, function)

    async def run_large(self, function: Callable[[], Any]) -> Any:
        """Read a large body or write a large answer. One thread does this, because it keeps all others from running."""
        return await asyncio.get_running_loop().run_in_executor(self._large, function)

    async def encode_image(self, content: bytes, *, weights: bool) -> Encoded:
        """Encode an uploaded image file."""
        extractor = self._collection.extractor
        if extractor is None:
            raise cannot_use("image", "the service has no model for images")
        started = time.perf_counter()
        features = await self._with_image(lambda: _features(extractor, content))
        seconds = {"features": time.perf_counter() - started}
        encoded = await self.encode(features, weights=weights)
        return Encoded(encoded.codes, features, encoded.weights, seconds | encoded.seconds)

    async def thumbnail(self, path: str, *, large: bool) -> bytes | None:
        """A small or larger version of an image file; None if there is none."""
        content: bytes | None = await self._with_image(lambda: (large_image if large else thumbnail)(path))
        return content

    async def _with_image(self, function: Callable[[], Any]) -> Any:
        if self._n_images >= self._limits.waiting_images:
            raise ServiceError(503, "Too many images wait already. Try again soon.", headers=BUSY)
        self._n_images += 1
        done = asyncio.get_running_loop().run_in_executor(self._images, function)
        done.add_done_callback(self._image_done)
        return await asyncio.shield(done)  # a thread goes on when a client has gone, and counts until it ends

    def _image_done(self, done: asyncio.Future[Any]) -> None:
        self._n_images -= 1
        if not done.cancelled():
            done.exception()  # read here, because a client that has gone does not


def _features(extractor: FeatureExtractor, content: bytes) -> NDArray[Any]:
    """The features of an image. It is written to a file, because readers of images check the size of the file."""
    from hashgrove.features.images import ImageFileError

    handle, path = tempfile.mkstemp(prefix="hashgrove-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        return np.concatenate([rows for _, _, rows in extractor.batches([path], n_jobs=1)])
    except ImageFileError as error:
        raise ServiceError(422, f"The 'image' field must be an image: {error.reason}", field="image") from None
    finally:
        os.unlink(path)
