"""FastHash, the estimator: which hash function, Algorithm 1 (`hashgrove.two_step`), generic bits, and what is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from hashgrove import losses
from hashgrove.continuing import checkpoint_of, earlier_encoder, keeping, known_bits, write_checkpoint
from hashgrove.encoders import Encoder
from hashgrove.functions import (
    BitRecord,
    BoostedTrees,
    Codewords,
    Learner,
    as_learner,
    count_generic_bits,
    inferred_codes,
    learn_generic_bits,
    spread,
)
from hashgrove.hasher import SupervisedHasher
from hashgrove.inference import BlockGraphCut
from hashgrove.runtime.parameters import Constraint, Flag, Integer, OneOf
from hashgrove.runtime.progress import report_progress
from hashgrove.runtime.streams import substream
from hashgrove.storage.models import plain
from hashgrove.supervision import Supervision, Target
from hashgrove.two_step import TwoStep, warn_of_constant_bits

if TYPE_CHECKING:
    from hashgrove.choosing import Choice
    from hashgrove.validation import Validation

__all__ = ["AUTO", "FastHash"]

AUTO = "auto"


class FastHash(SupervisedHasher):
    """Two-step supervised hashing: graph cuts infer the bits, then a hash function learns each of them.

    Parameters
    ----------
    n_bits : int, default=64
        Length of a code.
    loss : {"hinge", "ksh", "bre", "exph"} or callable, default="hinge"
        Loss of a pair as a function of (distance, similar, n_bits); see `hashgrove.losses`.
    hash_function : {"auto", "trees", "posterior", "linear-svm", "kernel-svm"}, learner or classifier, default="auto"
        Step 2: what learns each bit. ``"auto"`` tries posterior bits and trees on a sample of the rows and keeps what
        retrieves best; see `hashgrove.choosing`. To change the settings of a hash function, pass an instance, such as
        ``BoostedTrees(max_depth=6)`` or any scikit-learn classifier.
    inference : {"block-gc", "icm", "spectral"} or solver, default="block-gc"
        Step 1: what infers the values of each bit.
    n_similar, n_dissimilar : int or None, default=100
        Number of similar and dissimilar neighbours drawn per point; ``None`` means all.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    generic_bits : int or None, default=None
        How many of the ``n_bits`` bits are generic: not learned from pairs, but codes of whatever varies in the rows,
        so that items of one class, or of classes that were never seen, do not collapse. They are spread evenly over
        the code. ``None`` means what suits the hash function: a quarter for posterior bits, an eighth for trees that
        start from a linear score, otherwise none.
    weighted : bool or None, default=None
        Whether step 2 weights each point i by its weight in step 1, sum_j |a_ij|, as in the authors' code. ``None``
        means what suits the hash function.
    stagewise : bool or None, default=None
        Whether the next bit is fitted to the real output of the learned function (Algorithm 1). If not, it is fitted to
        the inferred bit, as if all bits were inferred before the first function is learned. ``None`` means what suits
        the hash function.
    loss_length : {"current", "final"}, default="current"
        What the loss of a bit divides distances by: the number of bits so far, as in the authors' code, or the final
        number of learned bits. ``"final"`` with ``stagewise=False`` and ``weighted=False`` is two-step hashing (TSH).
    warm_start : bool, default=False
        Whether `fit` keeps the bits of the previous `fit` and learns only the additional ones, after ``n_bits`` was
        increased. With an integer ``random_state`` and the same data the result equals a single fit of all bits with
        the same hash function (unless ``loss_length="final"``). (Generic bits are learned anew.)
    random_state : int, RandomState or None
        Seed. The same seed gives the same model with any number of threads.
    n_jobs : int or None
        Number of threads; ``None`` means all cores.
    verbose : int, default=0
        1: show a progress bar if stderr is a terminal. 2: also print a line per bit if it is not.
    callbacks : sequence of callables
        Functions that are called with a `BitRecord` after each bit.

    Attributes
    ----------
    encoder_ : Encoder
        The learned hash functions.
    history_ : list of BitRecord
        One record per learned bit. Without ``stagewise``, the objective is that of the inferred bits.
    hash_function_ : Learner
        The hash function that was used: what ``"auto"`` chose, or the one given.
    generic_bits_ : int
        Number of generic bits.
    choice_ : Choice or None
        What ``"auto"`` tried, with the results, and why it chose what it chose.
    inferred_codes_ : uint8 array of shape (n, ceil(n_bits / 8))
        The codes that step 1 inferred for the training rows; see `codewords`.
    codewords_ : Codewords
        The inferred code of each class; see `codewords`.
    validation_ : Validation
        How good the codes are on held-out rows, if `fit` was given ``validation``.
    n_features_in_ : int
        Number of features seen in `fit`.

    Notes
    -----
    A bit is constant if a larger distance would not lower the loss of any pair: with the hinge loss, if all dissimilar
    pairs differ in half of the bits. `fit` warns if more than half of the bits are constant. Rows without a label, or
    without a pair, are not used for training.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import BoostedTrees
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = FastHash(16, hash_function=BoostedTrees(n_trees=10), random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.transform(X[1000:]).shape
    (797, 2)
    >>> hasher.score(X[1000:], y[1000:]) > 0.6
    True
    """

    history_: list[BitRecord]
    hash_function_: Learner
    generic_bits_: int
    choice_: Choice | None
    inferred_codes_: NDArray[np.uint8]
    codewords_: Codewords
    validation_: Validation
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_similar": Integer(1, or_none=True),
        "n_dissimilar": Integer(1, or_none=True),
        "min_shared": Integer(1),
        "generic_bits": Integer(0, or_none=True),
        "weighted": Flag(or_none=True),
        "stagewise": Flag(or_none=True),
        "loss_length": OneOf(("current", "final")),
        "warm_start": Flag(),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        loss: str | losses.Loss = "hinge",
        hash_function: Any = AUTO,
        inference: Any = "block-gc",
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        min_shared: int = 2,
        generic_bits: int | None = None,
        weighted: bool | None = None,
        stagewise: bool | None = None,
        loss_length: str = "current",
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[BitRecord], object]] = (),
    ) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.hash_function = hash_function
        self.inference = inference
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.min_shared = min_shared
        self.generic_bits = generic_bits
        self.weighted = weighted
        self.stagewise = stagewise
        self.loss_length = loss_length
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        affinity: Any = None,
        triplets: Any = None,
        unlabelled: Any = None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn the hash functions from the rows of ``X`` and what is known about their similarity.

        Give one of ``y``, ``affinity`` and ``triplets``.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite features. It may be a scipy sparse matrix if the hash function accepts that: a linear SVM or a
            scikit-learn classifier.
        y, affinity, triplets, unlabelled
            The forms of these four are described in `SupervisedHasher.fit`, which is the same for all methods.
        sample_weight : array of shape (n,), optional
            How much each row counts, in step 1 and in step 2 (if the hash function accepts weights). A row of weight 2
            counts like two equal rows.
        validation : float or (X, y), optional
            Rows to measure the codes on, with class labels or tags: a share of the rows, which are then not trained on,
            or rows of their own. The result, ``validation_``, has the quality of the codes beside that of the vectors
            themselves and of codes that are learned without labels. A warning says if the codes are worse.
        checkpoint : path, optional
            A file that is written after each bit. If it exists already, the fit goes on from it; it must belong to the
            same data and parameters (but for ``n_bits``). The result is the same as that of one uninterrupted fit.
        """
        if validation is None:
            target = Target(y, affinity, triplets, unlabelled, sample_weight)
            self._fit(X, target, reset=earlier_encoder(self) is None, checkpoint=checkpoint)
            self.__dict__.pop("validation_", None)  # that of an earlier fit
            return self
        if y is None:
            raise ValueError("The 'validation' parameter needs class labels or tags as y. Got pairs or triplets.")
        from hashgrove.validation import validated_fit

        return validated_fit(self, X, y, validation, unlabelled, sample_weight, checkpoint=checkpoint)

    def _learn(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        rng: np.random.Generator,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Encoder:
        """Choose the hash function if it is "auto", learn its bits by Algorithm 1, and add the generic bits."""
        learner = self._choose(X, supervision, rng)
        n_generic = count_generic_bits(self.generic_bits, self.n_bits, learner)
        n_learned = self.n_bits - n_generic
        file = checkpoint_of(self, checkpoint, X, supervision, learner)
        learned = known_bits(self, X, rng, file, n_bits=n_learned)
        two_step = TwoStep.of(self, learner, n_bits=n_learned)

        def keep(record: BitRecord) -> None:
            if file is not None:
                write_checkpoint(file, learned)
            for callback in (show, *self.callbacks):
                callback(record)

        # without the seed of the earlier bits they cannot be inferred again; what they really give stands in for them
        repeat = file is None and isinstance(self.random_state, Integral)
        with keeping(self, learned), report_progress(n_learned, done=len(learned), verbose=self.verbose) as show:
            inferred = two_step.learn(X, supervision, learned, n_bits=n_learned, repeat=repeat, after_each=keep)
        encoder = learned.join()
        if n_generic:
            stream = substream(np.random.default_rng(learned.seed), 3)
            encoder = spread(encoder, learn_generic_bits(X, supervision, n_bits=n_generic, rng=stream))
        self.history_, self.generic_bits_ = learned.history, n_generic
        self.inferred_codes_ = inferred_codes(inferred, encoder, X, n_jobs=self.n_jobs)
        self.codewords_ = Codewords.of(self.inferred_codes_, supervision)
        warn_of_constant_bits(self.history_)
        return encoder

    def _choose(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Learner:
        """The hash function to use: the one given, what a warm start used, or what a trial on a sample chooses."""
        if self.hash_function != AUTO:
            self.hash_function_, self.choice_ = as_learner(self.hash_function), None
        elif earlier_encoder(self) is None or not hasattr(self, "hash_function_"):
            from hashgrove.choosing import choose

            self.choice_ = choose(self, X, supervision, substream(rng, 4))
            self.hash_function_ = self.choice_.hash_function
        return self.hash_function_

    def codewords(self, y: ArrayLike) -> NDArray[np.uint8]:
        """The code that step 1 inferred for the class of each label in ``y``: packed codes, one row per label.

        Use them for database items whose classes are known, and search with the codes of queries or with their margins
        (`FlatIndex.search_weighted`). That is close to what a classifier does, so do not compare its figures with those
        of unlabelled items. For tags and pairs, ``inferred_codes_`` has the inferred code of each training row.
        """
        check_is_fitted(self, "codewords_")
        return self.codewords_.of_labels(y)

    @classmethod
    def paper(cls, n_bits: int = 64, *, loss: str | losses.Loss = "ksh", **changes: Any) -> Self:
        """FastHash as in the paper and in its authors' code.

        Discrete AdaBoost with 200 trees of depth 4 and 200 features per node, Block GraphCut from the authors' start,
        weights of step 1 in step 2, bits learned one after the other. ``changes`` are other parameters of FastHash.

        Examples
        --------
        >>> FastHash.paper(32, loss="hinge").inference
        BlockGraphCut(start='ones')
        """
        settings: dict[str, Any] = {
            "hash_function": BoostedTrees.paper(),
            "inference": BlockGraphCut(start="ones"),
            "generic_bits": 0,
            "weighted": True,
            "stagewise": True,
        }
        return cls(n_bits, loss=loss, **settings | changes)

    def _accepts_sparse(self) -> bool:
        if self.hash_function == AUTO or self.generic_bits:
            return False
        return bool(getattr(as_learner(self.hash_function), "accepts_sparse", False))

    def _notes(self) -> dict[str, Any]:
        """What a model file says about the fit besides the parameters."""
        if not hasattr(self, "hash_function_"):
            return {}
        choice = getattr(self, "choice_", None)
        notes = {"hash_function": plain(self.hash_function_), "generic_bits": self.generic_bits_}
        return notes if choice is None else notes | {"choice": choice.to_dict()}
