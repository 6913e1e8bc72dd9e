"""The base classes of all hashers: the template of `fit`, and `transform`, `score` and `save`.

A hasher learns, and an encoder is what it has learned. A method implements `Hasher._learn` only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from hashgrove.codes import MAX_BITS, Codes
from hashgrove.encoders import Encoder
from hashgrove.encoders.profile import CodeProfile
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.interrupts import interruptible
from hashgrove.runtime.parameters import Constraint, Integer, ParameterError, check_parameters
from hashgrove.storage import models
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.matrices import FEATURE_DTYPES
from hashgrove.storage.stored_rows import StoredRows
from hashgrove.supervision import MIN_SHARED, Supervision, Target

if TYPE_CHECKING:
    from hashgrove.features import FeatureExtractor

__all__ = ["Hasher", "SupervisedHasher"]


class Hasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of all hashers: a scikit-learn transformer from features to packed codes.

    A subclass has the parameters ``n_bits`` and ``random_state`` and implements `_learn`. It declares the allowed
    values of its parameters in ``constraints``. It overrides `max_bits` if the data limit the length of a code, sets
    ``seeded = False`` if nothing is random, and ``min_samples`` if one row is not enough.
    """

    n_bits: int
    random_state: Any
    encoder_: Encoder
    profile_: CodeProfile | None
    n_features_in_: int
    constraints: ClassVar[dict[str, Constraint]] = {"n_bits": Integer(1, MAX_BITS)}
    seeded: ClassVar[bool] = True  # whether ``random_state`` changes what is learned
    min_samples: ClassVar[int] = 1  # number of rows that `fit` needs at least
    not_saved: ClassVar[frozenset[str]] = frozenset({"n_jobs", "verbose", "callbacks", "warm_start"})

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the hash functions from the rows of ``X``; ``y`` is ignored.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite features.
        y : ignored
            Present because scikit-learn passes it.
        """
        return self._fit(X, None)

    def _learn(self, X: NDArray[Any], supervision: Any, rng: np.random.Generator) -> Encoder:
        """Learn an encoder from data that have been checked. This is the method itself.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite rows of float64, float32 or uint8.
        supervision : Supervision, or None for a method that learns without labels
        rng : Generator
            Seeded by ``random_state``; the same seed must give the same encoder.
        """
        raise NotImplementedError

    def max_bits(self, *, n_samples: int, n_features: int) -> int:
        """The longest code that can be learned from data of this shape."""
        return MAX_BITS

    def _fit(self, X: Any, target: Target | None, *, reset: bool = True, **more: Any) -> Self:
        """The template of every `fit`; ``more`` is passed on to `_learn`.

        If it fails, the hasher stays as it was before, unless `_learn` has set ``encoder_`` to what it learned so far.
        """
        before = dict(self.__dict__)
        try:
            check_parameters(self)
            X = StoredRows(X) if isinstance(X, str | os.PathLike) else X
            if isinstance(X, FeatureStore | StoredRows):
                self._check_stored(X, reset=reset)
            else:
                X = self._check_X(X, reset=reset, accept_sparse=self._accepts_sparse(), min_samples=self.min_samples)
            supervision = None if target is None else self._read(X, target)
            data = {"rows": int(X.shape[0])} | ({} if supervision is None else supervision.facts())
            if supervision is not None and not self._uses_unknown_rows() and not supervision.known.all():
                X, supervision = X[supervision.known], supervision.subset(supervision.known)
            self._check_max_bits(*X.shape)
            rng = np.random.default_rng(self._seed())
            with single_threaded_blas(), interruptible():
                self.encoder_ = self._learn(X, supervision, rng, **more)
                self._data_facts = data
                self.profile_ = self._profile(X)
        except BaseException:
            if self.__dict__.get("encoder_") is before.get("encoder_"):
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        return self

    def _profile(self, X: Any) -> CodeProfile:
        """The profile of the codes of the training rows."""
        return CodeProfile.of(self.encoder_, X, n_jobs=getattr(self, "n_jobs", None))

    def _read(self, X: Any, target: Target) -> Supervision:
        return target.read(X, min_shared=getattr(self, "min_shared", MIN_SHARED), method=type(self).__name__)

    def _accepts_sparse(self) -> bool:
        """Whether `fit` accepts a sparse ``X``."""
        return False

    def _accepts_store(self) -> bool:
        """Whether `fit` accepts a `FeatureStore` in the place of ``X``."""
        return False

    def _accepts_stored_rows(self) -> bool:
        """Whether `fit` accepts `StoredRows`, or their path, in the place of ``X``."""
        return False

    def _check_stored(self, store: FeatureStore | StoredRows, *, reset: bool) -> None:
        wanted = f"must be rows in memory for {type(self).__name__} with these parameters. Got"
        if isinstance(store, StoredRows) and not self._accepts_stored_rows():
            raise ParameterError(
                "X",
                f"{wanted} rows in files; FastHash learns from them with 'auto', trees, posterior or decodable bits.",
            )
        if isinstance(store, FeatureStore) and not self._accepts_store():
            raise ParameterError(
                "X",
                f"{wanted} a FeatureStore, which has the bins of rows only; FastHash(hash_function='trees', "
                "generic_bits=0) learns from it. Give StoredRows or the path of the rows instead.",
            )
        if not reset and store.shape[1] != self.n_features_in_:
            raise ParameterError("X", f"must have {self.n_features_in_} features. Got {store.shape[1]} instead.")
        self.n_features_in_ = store.shape[1]

    def _uses_unknown_rows(self) -> bool:
        """Whether `_learn` also gets the rows about which the supervision says nothing."""
        return False

    def _check_X(
        self, X: Any, *, reset: bool = False, accept_sparse: bool = False, finite: bool = True, min_samples: int = 1
    ) -> Any:
        if sparse.issparse(X) and not accept_sparse:
            raise TypeError(
                f"The 'X' parameter must be a dense array for {type(self).__name__} with these parameters. Got a "
                "sparse matrix; reduce it first, for example with sklearn.decomposition.TruncatedSVD."
            )
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=FEATURE_DTYPES,
            accept_sparse="csr" if accept_sparse else False,
            ensure_all_finite=finite,
            ensure_min_samples=min_samples,
        )

    def _check_max_bits(self, n_samples: int, n_features: int) -> None:
        limit = self.max_bits(n_samples=n_samples, n_features=n_features)
        if self.n_bits > limit:
            raise ParameterError(
                "n_bits",
                f"must be at most {limit} for {type(self).__name__} with "
                f"n_samples={n_samples}, n_features={n_features}. Got {self.n_bits} instead. Use fewer bits, or LSH or "
                "FastHash, which have no such limit.",
            )

    def _seed(self) -> int:
        """A seed for `numpy.random.default_rng`, from any form of ``random_state``."""
        return int(check_random_state(self.random_state).randint(2**31))

    def transform(self, X: ArrayLike | StoredRows) -> Codes:
        """Packed codes of ``X``, uint8 of shape (n, ceil(n_bits / 8)), which know the `digest` of the model."""
        rows = self._rows(X)
        return self.encoder_.encode(rows, n_jobs=getattr(self, "n_jobs", None))

    def decision_function(self, X: ArrayLike | StoredRows) -> NDArray[Any]:
        """Real-valued scores of ``X``, shape (n, n_bits); a bit is one if its score is above zero."""
        rows = self._rows(X)
        return self.encoder_.scores(rows, n_jobs=getattr(self, "n_jobs", None))

    def _rows(self, X: ArrayLike | StoredRows) -> Any:
        """The rows to encode, checked except for finite values, which the encoder checks chunk by chunk."""
        check_is_fitted(self, "encoder_")
        if isinstance(X, StoredRows):
            return X
        return self._check_X(X, accept_sparse=self.encoder_.accepts_sparse, finite=False)

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns, the bytes of a code; `get_feature_names_out` needs it."""
        return -(-self.encoder_.n_bits // 8)

    def score(self, X: ArrayLike, y: Any) -> float:
        """Mean average precision when each row of ``X`` is a query and the other rows are the database.

        It needs only held-out data, so `GridSearchCV` can use it. Items at the same distance count as in the average
        over all their orders. Rows without a label are left out.
        """
        from hashgrove.metrics import evaluate

        codes = np.asarray(self.transform(X))
        truth = Target(y).read(codes, min_shared=getattr(self, "min_shared", MIN_SHARED), method=type(self).__name__)
        codes, (labels, settings) = codes[truth.known], truth.subset(truth.known).evaluation_labels()
        n_jobs = getattr(self, "n_jobs", None)
        return evaluate(
            codes, codes, y_queries=labels, y_database=labels, exclude_self=True, knn=None, n_jobs=n_jobs, **settings
        ).map

    @property
    def digest(self) -> str:
        """The digest of the encoder that was learned; an index uses it to refuse codes of other models."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.digest

    def save(self, path: str | os.PathLike[str], *, features: FeatureExtractor | None = None) -> None:
        """Write the encoder and the parameters to one file, atomically; `hashgrove.load` reads it.

        Parameters
        ----------
        path : path
        features : FeatureExtractor, optional
            The fitted extractor of the features that the hasher was trained on. With it, the file can turn images into
            codes.
        """
        check_is_fitted(self, "encoder_")
        parameters = {name: v for name, v in self.get_params(deep=False).items() if name not in self.not_saved}
        profile, data = getattr(self, "profile_", None), getattr(self, "_data_facts", None)
        facts: dict[str, Any] = {} if data is None else {"data": data}
        facts |= {} if profile is None else {"profile": profile.to_dict()}
        models.save(
            path,
            self.encoder_,
            hasher=type(self).__name__,
            parameters=parameters,
            notes=self._notes() | facts,
            features=features,
        )

    def _notes(self) -> dict[str, Any]:
        """Facts about the fit that a model file holds besides the parameters; JSON values."""
        return {}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        tags.input_tags.sparse = self._accepts_sparse()
        return tags


class SupervisedHasher(Hasher):
    """A hasher that learns from labels, tags, pairs or triplets. `_learn` gets them as a `Supervision`.

    Rows about which nothing is known are left out. If ``semi_supervised`` is set, `_learn` gets them as well, and
    ``supervision.known`` says which rows are known. A method that cannot learn from pairs sets ``needs_labels``.
    """

    semi_supervised: ClassVar[bool] = False
    needs_labels: ClassVar[bool] = False

    def fit(
        self, X: ArrayLike, y: Any = None, *, affinity: Any = None, triplets: Any = None, unlabelled: Any = None
    ) -> Self:
        """Learn the hash functions from the rows of ``X`` and what is known about their similarity.

        Give one of ``y``, ``affinity`` and ``triplets``.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite features.
        y : array of shape (n,) or (n, n_tags), or collections of tags
            Class labels, or tags. Tags are a matrix (dense or scipy sparse) with a non-zero entry for each tag that a
            row has, or one set, list or tuple of tags per row. None, NaN and pandas' NA mean that a row has no label.
        affinity : Affinity, pairs or sparse matrix
            Pairs instead of labels; see `Affinity.from_pairs`.
        triplets : array of shape (m, 3)
            Row numbers (anchor, positive, negative): the anchor is similar to the second row and not to the third.
        unlabelled : label
            Another value in ``y`` that means that a row has no label, such as -1.
        """
        return self._fit(X, Target(y, affinity, triplets, unlabelled))

    def _read(self, X: Any, target: Target) -> Supervision:
        if self.needs_labels and target.y is None and (target.affinity is not None or target.triplets is not None):
            raise ValueError(f"{type(self).__name__} must be given class labels or tags as y. Got pairs or triplets.")
        supervision = super()._read(X, target)
        if not self.needs_labels:
            supervision.check_pairs()
        return supervision

    def _uses_unknown_rows(self) -> bool:
        return self.semi_supervised

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
