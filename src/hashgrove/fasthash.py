"""FastHash, Algorithm 1 of the paper: bit by bit, infer the best values and learn a function that gives them.

Lin, Shen & van den Hengel, "Supervised Hashing Using Graph Cuts and Boosted Decision Trees", TPAMI 2015.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier

from hashgrove import losses
from hashgrove.encoders import Augmented, Encoder
from hashgrove.encoders.augmented import with_directions
from hashgrove.functions import HASH_FUNCTIONS, Classifier, FittedClassifiers
from hashgrove.functions.directions import DIRECTIONS, LabelDirections
from hashgrove.hasher import Hasher
from hashgrove.inference import SOLVERS, BinaryQuadratic, PairDistances
from hashgrove.runtime.progress import report_progress
from hashgrove.supervision.affinity import Affinity, check_labels, check_target, label_indicator

__all__ = ["BitRecord", "FastHash"]


@dataclass(frozen=True)
class BitRecord:
    """What happened at one bit of a fit.

    Attributes
    ----------
    bit : int
        Its number, from 0.
    objective : float
        Mean loss over the pairs, with this bit.
    training_error : float
        Share of the training points whose learned bit is not the inferred one.
    ones : float
        Share of the training points whose learned bit is one; 0 or 1 is a constant bit.
    seconds_inference, seconds_learning : float
        Time of step 1 and of step 2.
    """

    bit: int
    objective: float
    training_error: float
    ones: float
    seconds_inference: float
    seconds_learning: float


class FastHash(Hasher):
    """Two-step supervised hashing: graph cuts infer the bits, boosted trees (or any classifier) learn them.

    Parameters
    ----------
    n_bits : int, default=64
        Length of a code.
    loss : {"hinge", "ksh", "bre", "exph"} or callable, default="hinge"
        Loss of a pair as a function of (distance, similar, n_bits); see `hashgrove.losses`.
    hash_function : {"trees", "linear-svm", "kernel-svm"}, learner or scikit-learn classifier, default="trees"
        Step 2; for other settings pass an instance, such as ``BoostedTrees(max_depth=6)`` or ``SGDClassifier()``.
    inference : {"block-gc", "icm", "spectral"} or solver, default="block-gc"
        Step 1.
    directions : {"linear", "kernel"}, LabelDirections or None, default=None
        Show hash functions directions that correlate with the labels beside the features; not for pairs. Often better,
        and the slower to encode, see `hashgrove.LabelDirections`.
    n_similar, n_dissimilar : int or None, default=100
        Neighbours drawn per point; ``None`` means all.
    min_shared : int, default=2
        With a tag matrix: points that share this many tags are similar.
    weighted : bool, default=True
        Start step 2 with the weight of each point in step 1, sum_j |a_ij|, as in the authors' code.
    stagewise : bool, default=True
        Feed the learned function's real output to the next bit (Algorithm 1); otherwise the inferred bit, as if all
        bits were inferred before the first function is learned.
    warm_start : bool, default=False
        Keep the bits of the previous `fit` and learn only the rest, after `n_bits` was raised. With an integer
        `random_state` and the same data the result equals one fit of all bits.
    random_state : int, RandomState or None
        Seed; the same seed gives the same model at any number of threads.
    n_jobs : int or None
        Threads; ``None`` means all cores.
    verbose : int, default=0
        1: a progress bar where stderr is a terminal; 2: a line for each bit as well where it is not.
    callbacks : sequence of callables
        Each is called with a `BitRecord` after each bit.

    Attributes
    ----------
    encoder_ : Encoder
        What was learned.
    history_ : list of BitRecord
        One record a bit.
    n_features_in_ : int
        Number of features seen in `fit`.

    Notes
    -----
    A bit whose inferred values are all the same becomes a constant function. It says nothing and harms nothing: it
    happens where no pair asks for more distance, as with the Hinge loss once all dissimilar pairs are half the bits
    apart, or where no pair is dissimilar at all. `fit` warns when more than half of the bits are such.

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

    def __init__(
        self,
        n_bits: int = 64,
        *,
        loss: str | losses.Loss = "hinge",
        hash_function: Any = "trees",
        inference: Any = "block-gc",
        directions: Any = None,
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        min_shared: int = 2,
        weighted: bool = True,
        stagewise: bool = True,
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
        self.directions = directions
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.min_shared = min_shared
        self.weighted = weighted
        self.stagewise = stagewise
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: ArrayLike, y: Any = None, *, affinity: Any = None) -> Self:
        """Learn the hash functions.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite features.
        y : array of shape (n,) or (n, n_tags), optional
            Class labels, or a tag matrix (dense or scipy sparse).
        affinity : Affinity, pairs or sparse matrix, optional
            Instead of ``y``; see `Affinity.from_pairs`.
        """
        earlier = self._earlier_bits()
        loss = losses.check_loss(self.loss, self.n_bits)
        learner, solver = self._learner(), self._solver()
        X = self._check_X(X, reset=not earlier)
        seed = self._seed()
        kind, target = check_target(X, y, affinity, estimator=type(self).__name__)
        affinity = self._affinity(X, kind, target, seed)
        start = self.encoder_ if earlier else None
        directions = self._directions(X, kind, target, seed, start)
        if directions is not None:
            columns, settings = directions
            X = with_directions(X, columns.scores(X, n_jobs=self.n_jobs), keep_features=settings.keep_features)
            start = start.bits if isinstance(start, Augmented) else None

        data = learner.prepare(X, np.random.default_rng([seed, 0]), earlier=start, n_jobs=self.n_jobs)
        state = solver.prepare(affinity, np.random.default_rng([seed, 1]))
        distances = PairDistances(affinity, n_bits=self.n_bits, n_jobs=self.n_jobs)
        functions: list[Encoder] = []
        history: list[BitRecord] = []
        if start is not None:
            functions, history = [start], list(self.history_)
            for bit in np.where(start.scores(X, n_jobs=self.n_jobs) > 0, 1, -1).astype(np.int8).T:
                distances.add_bit(bit)

        with report_progress(self.n_bits, done=earlier, verbose=self.verbose) as show:
            for r in range(earlier, self.n_bits):
                rng = np.random.default_rng([seed, 2, r])
                started = time.perf_counter()
                problem = BinaryQuadratic(affinity, distances.values, losses.coefficients(loss, r + 1))
                z = solver.solve(state, problem, rng)  # Step 1
                weights = problem.weights() if self.weighted else None
                inferred = time.perf_counter()
                function, bit = learner.learn(data, z, weights, rng)  # Step 2
                learned = time.perf_counter()
                distances.add_bit(bit if self.stagewise else z)  # the real output feeds the next bit
                functions.append(function)
                history.append(
                    BitRecord(
                        bit=r,
                        objective=distances.mean(*losses.loss_tables(loss, r + 1)),
                        training_error=float((bit != z).mean()),
                        ones=float((bit > 0).mean()),
                        seconds_inference=inferred - started,
                        seconds_learning=learned - inferred,
                    )
                )
                for callback in (show, *self.callbacks):
                    callback(history[-1])

        constant = sum(record.ones in (0, 1) for record in history)
        if 2 * constant > self.n_bits:
            warnings.warn(
                f"{constant} of {self.n_bits} bits are the same for all points: the pairs ask for no more bits.",
                stacklevel=2,
            )
        classes = {type(function) for function in functions}
        bits = (classes.pop() if len(classes) == 1 else FittedClassifiers).concatenate(functions)
        self.encoder_ = bits if directions is None else Augmented(directions=directions[0], bits=bits)
        self.history_ = history
        return self

    def _earlier_bits(self) -> int:
        """Bits that a warm start keeps; checks `n_bits`."""
        self._check_n_bits()
        if not self.warm_start or not hasattr(self, "encoder_"):
            return 0
        if self.n_bits < self.encoder_.n_bits:
            raise ValueError(
                f"The 'n_bits' parameter must be at least {self.encoder_.n_bits}, the bits learned so far, with "
                f"warm_start=True. Got {self.n_bits} instead."
            )
        return self.encoder_.n_bits

    def _learner(self) -> Any:
        choice = self.hash_function
        if isinstance(choice, str) and choice in HASH_FUNCTIONS:
            return HASH_FUNCTIONS[choice]()
        if hasattr(choice, "learn") and not isinstance(choice, type):
            return choice
        if hasattr(choice, "fit") and not isinstance(choice, type) and is_classifier(choice):
            return Classifier(choice)
        raise ValueError(
            f"The 'hash_function' parameter must be one of {sorted(HASH_FUNCTIONS)}, a learner or a scikit-learn "
            f"classifier. Got {choice!r} instead."
        )

    def _solver(self) -> Any:
        if isinstance(self.inference, str) and self.inference in SOLVERS:
            return SOLVERS[self.inference]()
        if hasattr(self.inference, "solve") and not isinstance(self.inference, type):
            return self.inference
        raise ValueError(
            f"The 'inference' parameter must be one of {sorted(SOLVERS)} or a solver. Got {self.inference!r} instead."
        )

    def _direction_settings(self) -> LabelDirections | None:
        choice = self.directions
        if isinstance(choice, str) and choice in DIRECTIONS:
            choice = DIRECTIONS[choice]()
        if choice is None or isinstance(choice, LabelDirections):
            return choice
        raise ValueError(
            f"The 'directions' parameter must be one of {sorted(DIRECTIONS)}, LabelDirections or None. "
            f"Got {choice!r} instead."
        )

    def _directions(
        self, X: NDArray[Any], kind: str, target: Any, seed: int, earlier: Encoder | None
    ) -> tuple[Encoder, LabelDirections] | None:
        """What hash functions see beside the features; a warm start keeps that of the bits so far."""
        settings = self._direction_settings()
        kept = earlier.keeps_features if isinstance(earlier, Augmented) else None
        if earlier is not None and kept != (None if settings is None else settings.keep_features):
            raise ValueError("The 'directions' parameter must stay as it was with warm_start=True.")
        if settings is None:
            return None
        if kind not in ("labels", "tags"):
            raise ValueError("The 'directions' parameter must be None without labels: pairs give no directions.")
        if isinstance(earlier, Augmented):
            return earlier.directions, settings
        labels = label_indicator(check_labels(target) if kind == "labels" else target)
        return settings.learn(X, labels, np.random.default_rng([seed, 3])), settings

    def _affinity(self, X: NDArray[Any], kind: str, target: Any, seed: int) -> Affinity:
        """The pairs, from whichever description of them was given."""
        if kind == "affinity":
            return target
        settings: dict[str, Any] = {
            "n_similar": self.n_similar,
            "n_dissimilar": self.n_dissimilar,
            "random_state": seed,
            "n_jobs": self.n_jobs,
        }
        if kind == "pairs":
            return Affinity.from_pairs(target, n_points=len(X), **settings)
        if kind == "tags":
            return Affinity.from_tags(target, min_shared=self.min_shared, **settings)
        return Affinity.from_labels(target, **settings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
