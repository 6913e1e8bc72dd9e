"""`ImageEncoder`: an extractor and an encoder that was trained on its features, from images to codes in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import Codes
from hashgrove.encoders import Encoder
from hashgrove.features.base import FeatureExtractor, Images
from hashgrove.runtime.parameters import ParameterError

__all__ = ["ImageEncoder"]


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """Encodes images: an extractor and an encoder, as a model file with features holds them.

    Attributes
    ----------
    features : FeatureExtractor
    encoder : Encoder

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import LSH, Gist
    >>> images = load_digits().images[:50].astype(np.uint8)
    >>> gist = Gist(n_cells=2).fit(images)
    >>> encoder = ImageEncoder(gist, LSH(16, random_state=0).fit(gist.transform(images)).encoder_)
    >>> encoder.encode(images).shape
    (50, 2)
    """

    features: FeatureExtractor
    encoder: Encoder

    def __post_init__(self) -> None:
        if self.features.n_features_ != self.encoder.n_features:
            raise ParameterError(
                "features",
                f"must give {self.encoder.n_features} features, as the encoder expects. "
                f"Got an extractor of {self.features.n_features_} instead.",
            )

    @property
    def n_bits(self) -> int:
        """Number of bits in a code."""
        return self.encoder.n_bits

    @property
    def digest(self) -> str:
        """The digest of the encoder."""
        return self.encoder.digest

    def encode(self, images: Images, *, n_jobs: int | None = None) -> Codes:
        """Packed codes of images (an array or paths), uint8 of shape (n, ceil(n_bits / 8)), which know the `digest`."""
        return Codes(self._map(self.encoder.encode, images, n_jobs), model=self)

    def transform(self, images: Images, *, n_jobs: int | None = None) -> NDArray[np.uint8]:
        """The same as `encode`: hashers and encoders have this name in common."""
        return self.encode(images, n_jobs=n_jobs)

    def scores(self, images: Images, *, n_jobs: int | None = None) -> NDArray[Any]:
        """Real-valued scores of images, shape (n, n_bits); a bit is 1 where its score is above 0."""
        return self._map(self.encoder.scores, images, n_jobs)

    def _map(self, function: Callable[..., NDArray[Any]], images: Images, n_jobs: int | None) -> NDArray[Any]:
        """Apply ``function`` batch by batch, because the features of many images take much more memory than codes."""
        batches = self.features.batches(images, n_jobs=n_jobs)
        return np.concatenate([function(features, n_jobs=n_jobs) for _, _, features in batches])
