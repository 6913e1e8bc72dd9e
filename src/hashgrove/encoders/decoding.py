"""Codes that can be read back: the class probabilities that a code stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import Codes, check_codes, unpack
from hashgrove.runtime.parameters import Integer
from hashgrove.runtime.threads import chunks

__all__ = ["Decoder", "Queries", "probabilities"]

ROWS_PER_CHUNK = 4096


class Queries(NamedTuple):
    """Rows as queries: the codes to search with, and the class probabilities that decoded codes are compared with."""

    codes: Codes
    probabilities: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Decoder:
    """P(class | code) = softmax(b V + a), where b are the bits of the code as -1 and +1.

    Parameters
    ----------
    table : float32 array of shape (n_bits, n_classes)
        V times the temperature; zeros for bits that say nothing about classes.
    offset : float32 array of shape (n_classes,)
        a times the temperature.
    class_names : tuple
        The classes, in the order of the columns.

    Examples
    --------
    >>> decoder = Decoder(np.array([[1, -1], [0, 0]], np.float32), np.zeros(2, np.float32), ("cat", "dog"))
    >>> decoder.decode(np.array([[0b01], [0b00]], np.uint8)).round(2).tolist()
    [[0.8799999952316284, 0.11999999731779099], [0.11999999731779099, 0.8799999952316284]]
    >>> decoder.likeliest(np.array([[0b00]], np.uint8), 1)[0][0][0]
    'dog'
    """

    table: NDArray[np.float32]
    offset: NDArray[np.float32]
    class_names: tuple[Any, ...]

    def decode(self, codes: ArrayLike) -> NDArray[np.float32]:
        """Class probabilities, shape (n, n_classes)."""
        n_bits = len(self.table)
        packed = check_codes(codes, n_bytes=-(-n_bits // 8))
        out = np.empty((len(packed), len(self.offset)), np.float32)
        for start, stop in chunks(len(packed), ROWS_PER_CHUNK):
            different, place = np.unique(packed[start:stop], axis=0, return_inverse=True)
            signs = np.where(unpack(different, n_bits=n_bits), np.float32(1), np.float32(-1))
            out[start:stop] = probabilities(signs @ self.table + self.offset)[place.reshape(-1)]
        return out

    def likeliest(self, codes: ArrayLike, n: int = 4) -> list[list[tuple[Any, float]]]:
        """The ``n`` likeliest classes of each code with their probabilities, the likeliest first."""
        Integer(1).check("n", n)
        found = self.decode(codes)
        order = np.argsort(-found, axis=1, kind="stable")[:, :n]
        return [
            [(self.class_names[c], float(row[c])) for c in best]
            for row, best in zip(found, order.tolist(), strict=True)
        ]


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The softmax of each row.

    >>> probabilities(np.array([[0.0, 0.0, -1e9]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
