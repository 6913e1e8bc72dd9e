"""Checked images, in an array or in files; any range of them can be read as an array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hashgrove.features.images import ImageFileError, resize_images, try_images

__all__ = ["ImageSource"]


@dataclass(frozen=True)
class ImageSource:
    """Checked images, from which any range can be read as an array.

    Attributes
    ----------
    images : uint8 array, or list of paths
    size : (int, int) or None
        Height and width that images are resized to; None leaves them as they are.
    resampling : str
        How they are resized; see `hashgrove.features.images.read_image`.
    """

    images: NDArray[np.uint8] | list[str]
    size: tuple[int, int] | None
    resampling: str = "bilinear"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int] | None:
        """Height and width of the images, or None if they are not known before the files are read."""
        if self.size is None and isinstance(self.images, np.ndarray):
            return self.images.shape[1], self.images.shape[2]
        return self.size

    def read(
        self, start: int, stop: int, *, on_error: str = "raise"
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[ImageFileError]]:
        """Read images ``start`` to ``stop``: an array, the numbers of the images in it, the errors of the others."""
        part = self.images[start:stop]
        if not isinstance(part, np.ndarray):
            images, kept, errors = try_images(part, size=self.size, resampling=self.resampling, on_error=on_error)
            return images, kept + start, errors
        images = np.ascontiguousarray(part)
        if self.size is not None:
            images = resize_images(images, self.size, resampling=self.resampling)
        return images, np.arange(start, start + len(images)), []
