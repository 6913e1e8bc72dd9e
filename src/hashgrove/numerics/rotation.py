"""The rotation of iterative quantisation (Gong and Lazebnik, CVPR 2011), which brings rows close to their signs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.numerics.signs import signs

__all__ = ["quantising_rotation"]


def quantising_rotation(
    projected: NDArray[Any], *, n_bits: int, n_iter: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A rotation R that brings the rows v close to their signs, and the mean of ||sign(v R) - v R||^2 per iteration.

    If the data have fewer dimensions than bits, they are rotated within ``n_bits`` dimensions as if they were padded
    with zeros: R has shape (n_dimensions, n_bits), and R R' is the identity.

    >>> v = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> R, errors = quantising_rotation(v, n_bits=2, n_iter=20, rng=np.random.default_rng(0))
    >>> np.abs(v @ R).round(3)[0].tolist(), round(float(errors[-1]), 3)
    ([0.707, 0.707], 0.172)
    """
    rotation = np.linalg.qr(rng.standard_normal((n_bits, n_bits)))[0][: projected.shape[1]]
    errors = np.empty(n_iter)
    rotated = projected @ rotation
    for iteration in range(n_iter):
        left, _, right = np.linalg.svd(projected.T @ signs(rotated), full_matrices=False)
        rotation = left @ right
        rotated = projected @ rotation
        errors[iteration] = np.square(signs(rotated) - rotated).sum() / len(projected)
    return rotation, errors
