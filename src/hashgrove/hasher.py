"""What every hasher shares: validation, transform, score, save and load.

A hasher learns; an encoder is what it learned. The file holds the encoder, so `load` needs no learner.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hashgrove.encoders import ENCODERS, FEATURE_DTYPES, Encoder
from hashgrove.features import FeatureExtractor, ImageEncoder, rebuild
from hashgrove.index import FlatIndex
from hashgrove.metrics import evaluate
from hashgrove.storage import modelfile

__all__ = ["Hasher", "load"]

FEATURES_PREFIX = "features."  # of the names of an extractor's arrays in a model file
MAX_BITS = 2**16 - 1  # distances are uint16


class Hasher(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all hashers: a scikit-learn transformer from features to packed codes.

    A subclass has the parameters ``n_bits`` and ``random_state``; its `fit` calls `_check_n_bits`, `_seed` and
    `_check_X(X, reset=True)` and sets `encoder_`. Where the data limit the length of a code it overrides `max_bits` and
    passes ``X`` to `_check_n_bits`; where nothing is random it says ``seeded = False``. The rest is here.
    """

    n_bits: int
    random_state: Any
    encoder_: Encoder
    n_features_in_: int
    seeded: ClassVar[bool] = True  # whether `random_state` changes what is learned
    not_saved: ClassVar[frozenset[str]] = frozenset({"n_jobs", "verbose", "callbacks", "warm_start"})

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """The longest code that can be learned from data of this shape."""
        return MAX_BITS

    def _check_X(self, X: ArrayLike, *, reset: bool = False, finite: bool = True, min_samples: int = 1) -> NDArray[Any]:
        return validate_data(
            self, X, reset=reset, dtype=FEATURE_DTYPES, ensure_all_finite=finite, ensure_min_samples=min_samples
        )

    def _check_n_bits(self, X: NDArray[Any] | None = None) -> int:
        """`n_bits` as an integer; with ``X``, also no more than `max_bits` of its shape."""
        n_bits = self.n_bits
        if not isinstance(n_bits, int | np.integer) or isinstance(n_bits, bool) or not 1 <= n_bits <= MAX_BITS:
            raise ValueError(f"The 'n_bits' parameter must be an integer from 1 to {MAX_BITS}. Got {n_bits!r} instead.")
        if X is not None:
            limit = self.max_bits(n_samples=X.shape[0], n_features=X.shape[1])
            if n_bits > limit:
                raise ValueError(
                    f"The 'n_bits' parameter must be at most {limit} for {type(self).__name__} with "
                    f"n_samples={X.shape[0]}, n_features={X.shape[1]}. Got {n_bits} instead. Use fewer bits, or LSH or "
                    "FastHash, which have no such limit."
                )
        return int(n_bits)

    def _seed(self) -> int:
        """A seed for `numpy.random.default_rng`, from whatever form of ``random_state``."""
        return int(check_random_state(self.random_state).randint(2**31))

    def transform(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes of ``X``: uint8, shape (n, ceil(n_bits / 8))."""
        check_is_fitted(self, "encoder_")  # the encoder itself asks for finite values, chunk by chunk
        return self.encoder_.encode(self._check_X(X, finite=False), n_jobs=getattr(self, "n_jobs", None))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Real-valued scores of ``X``, shape (n, n_bits); bit = score > 0."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.scores(self._check_X(X, finite=False), n_jobs=getattr(self, "n_jobs", None))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Mean average precision when each row of ``X`` is a query and the other rows are the database.

        It needs nothing but held-out data, so `GridSearchCV` can use it; ties count by their expectation.
        """
        codes = self.transform(X)
        settings: dict[str, Any] = {
            "min_shared": getattr(self, "min_shared", 2),
            "n_jobs": getattr(self, "n_jobs", None),
        }
        return evaluate(FlatIndex(codes), codes, y, y, exclude_self=True, knn=None, **settings).map

    def save(self, path: str | os.PathLike[str], *, features: FeatureExtractor | None = None) -> None:
        """Write the encoder and the parameters to one file, atomically; `hashgrove.load` reads it.

        Parameters
        ----------
        path : path
        features : FeatureExtractor, optional
            The fitted extractor of the features that the hasher was trained on; with it the file goes from images
            to codes.
        """
        check_is_fitted(self, "encoder_")
        names = {kind: name for name, kind in ENCODERS.items()}
        arrays = self.encoder_.arrays()
        if type(self.encoder_) not in names or not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError(
                f"A hasher whose hash functions are {self.encoder_} cannot be saved: a model file holds arrays only, "
                "no pickled objects. Use a hash function of hashgrove or a linear classifier, or joblib.dump."
            )
        header: dict[str, Any] = {
            "hasher": type(self).__name__,
            "encoder": names[type(self.encoder_)],
            "n_bits": self.encoder_.n_bits,
            "n_features": self.encoder_.n_features,
            "parameters": {
                name: value if isinstance(value, bool | int | float | str | None) else repr(value)
                for name, value in sorted(self.get_params(deep=False).items())
                if name not in self.not_saved
            },
        }
        if features is not None:
            check_is_fitted(features, "n_features_")
            ImageEncoder(features, self.encoder_)  # which checks that they fit together
            header["features"] = {"name": features.name, "parameters": features.parameters()}
            arrays |= {FEATURES_PREFIX + name: array for name, array in features.arrays().items()}
        modelfile.write(path, kind="encoder", header=header, arrays=arrays)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def load(path: str | os.PathLike[str]) -> Encoder | ImageEncoder:
    """Read an encoder from a model file, or an `ImageEncoder` where the file holds the features, too.

    The file is untrusted and is checked whole before it is used.
    """
    header, arrays = modelfile.read(path, kind="encoder")
    encoder_class = ENCODERS.get(str(header.get("encoder")))
    if encoder_class is None:
        raise modelfile.ModelFileError(
            f"{os.fspath(path)}: unknown encoder {header.get('encoder')!r}; this version knows {sorted(ENCODERS)}"
        )
    own = {name: array for name, array in arrays.items() if not name.startswith(FEATURES_PREFIX)}
    try:
        encoder = encoder_class.from_arrays(own if "features" in header else arrays)
        if "features" not in header:
            return encoder
        others = {name.removeprefix(FEATURES_PREFIX): arrays[name] for name in arrays.keys() - own.keys()}
        return ImageEncoder(rebuild(path, header["features"], others), encoder)
    except modelfile.ModelFileError:
        raise
    except ValueError as error:
        raise modelfile.ModelFileError(f"{os.fspath(path)}: {error}") from error
