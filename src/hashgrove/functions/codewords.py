"""Code words: one code per class, from the codes that step 1 inferred for the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import Codes, model_of, pack, unpack
from hashgrove.runtime.parameters import ParameterError
from hashgrove.supervision import Supervision

__all__ = ["Codewords"]


@dataclass(frozen=True, eq=False)
class Codewords:
    """One code per class.

    Attributes
    ----------
    classes : tuple
        The labels.
    codes : uint8 array of shape (n_classes, n_bytes)

    Examples
    --------
    >>> from hashgrove.supervision import ClassLabels
    >>> labels = ClassLabels(np.array([0, 0, 0, 1]), names=("cat", "dog"))
    >>> words = Codewords.of(np.array([[1], [3], [3], [0]], np.uint8), labels)
    >>> words.of_labels(["dog", "cat"]).tolist()
    [[0], [3]]
    """

    classes: tuple[Any, ...]
    codes: NDArray[np.uint8]

    @classmethod
    def of(cls, codes: NDArray[np.uint8], supervision: Supervision) -> Codewords:
        """The majority of the codes of each class, bit by bit; no code words for tags and pairs."""
        if not supervision.class_names:
            return cls((), np.empty((0, codes.shape[1]), np.uint8))
        words = np.zeros((len(supervision.class_names), codes.shape[1]), np.uint8)
        for byte in range(codes.shape[1]):  # eight bits of all rows at a time
            signs = np.where(unpack(codes[:, byte : byte + 1], n_bits=8), np.float32(1), np.float32(-1))
            sums = supervision.class_sums(signs)  # the last classes may have no row, as all of them may be held out
            words[: len(sums), byte : byte + 1] = pack(sums > 0)
        return cls(supervision.class_names, Codes(words, model=model_of(codes)))

    def of_labels(self, y: ArrayLike) -> NDArray[np.uint8]:
        """The code word of each label in ``y``."""
        if not self.classes:
            raise ValueError(
                "codewords needs a hasher that was fitted with class labels. This one was fitted with tags or pairs; "
                "inferred_codes_ has the inferred code of each training row."
            )
        number = {name: k for k, name in enumerate(self.classes)}
        labels = np.asarray(y).tolist()
        unknown = [label for label in labels if label not in number]
        if unknown:
            raise ParameterError("y", f"must have labels that were in training. Got {unknown[0]!r} instead.")
        return self.codes[[number[label] for label in labels]]
