"""FastHash, Algorithm 1 of the paper: for each bit, infer the best values, then learn a function that gives them.

Lin, Shen & van den Hengel, "Supervised Hashing Using Graph Cuts and Boosted Decision Trees", TPAMI 2015.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove import losses
from hashgrove.encoders import Encoder
from hashgrove.functions import HASH_FUNCTIONS, BitRecord, LearnedBits, as_learner
from hashgrove.hasher import SupervisedHasher
from hashgrove.inference import SOLVERS, BinaryQuadratic, PairDistances, as_solver
from hashgrove.runtime.parameters import Constraint, Flag, Integer
from hashgrove.runtime.progress import report_progress
from hashgrove.runtime.streams import seed_of, substream
from hashgrove.runtime.threads import interruptible
from hashgrove.storage.checkpoints import Checkpoint, Progress, fingerprint
from hashgrove.storage.modelfile import ModelFileError, read_header
from hashgrove.storage.models import load, plain, rebuild
from hashgrove.supervision import Supervision, Target

__all__ = ["BitRecord", "FastHash", "load_hasher"]


class FastHash(SupervisedHasher):
    """Two-step supervised hashing: graph cuts infer the bits, then boosted trees (or any classifier) learn them.

    Parameters
    ----------
    n_bits : int, default=64
        Length of a code.
    loss : {"hinge", "ksh", "bre", "exph"} or callable, default="hinge"
        Loss of a pair as a function of (distance, similar, n_bits); see `hashgrove.losses`.
    hash_function : {"trees", "linear-svm", "kernel-svm", "directions"}, learner or classifier, default="trees"
        Step 2: what learns each bit. To change its settings, pass an instance, such as ``BoostedTrees(max_depth=6)``,
        ``LabelDirections(n_anchors=3000)`` or any scikit-learn classifier.
    inference : {"block-gc", "icm", "spectral"} or solver, default="block-gc"
        Step 1: what infers the values of each bit.
    n_similar, n_dissimilar : int or None, default=100
        Number of similar and dissimilar neighbours drawn per point; ``None`` means all.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    weighted : bool, default=True
        Whether step 2 weights each point i by its weight in step 1, sum_j |a_ij|, as in the authors' code.
    stagewise : bool, default=True
        Whether the next bit is fitted to the real output of the learned function (Algorithm 1). If not, it is fitted to
        the inferred bit, as if all bits were inferred before the first function is learned.
    warm_start : bool, default=False
        Whether `fit` keeps the bits of the previous `fit` and learns only the additional ones, after ``n_bits`` was
        increased. With an integer ``random_state`` and the same data the result equals a single fit of all bits.
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
        One record per bit.
    n_features_in_ : int
        Number of features seen in `fit`.

    Notes
    -----
    If all inferred values of a bit are equal, its hash function is constant. Such a bit does not change any ranking. It
    occurs when a larger distance would not lower the loss of any pair, for example with the hinge loss once all
    dissimilar pairs differ in half of the bits. `fit` warns if more than half of the bits are constant.

    Rows without a label, or without a pair, are not used for training.

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
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_similar": Integer(1, or_none=True),
        "n_dissimilar": Integer(1, or_none=True),
        "min_shared": Integer(1),
        "weighted": Flag(),
        "stagewise": Flag(),
        "warm_start": Flag(),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        loss: str | losses.Loss = "hinge",
        hash_function: Any = "trees",
        inference: Any = "block-gc",
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

    def fit(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        affinity: Any = None,
        triplets: Any = None,
        unlabelled: Any = None,
        sample_weight: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn the hash functions from the rows of ``X`` and what is known about their similarity.

        Give one of ``y``, ``affinity`` and ``triplets``.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite features. It may be a scipy sparse matrix if the hash function accepts that: a linear SVM or a
            scikit-learn classifier.
        y : class labels or tags
        affinity : pairs
        triplets : triplets
        unlabelled : label
            The forms of these four are described in `SupervisedHasher.fit`, which is the same for all methods.
        sample_weight : array of shape (n,), optional
            How much each row counts, in step 1 and in step 2 (if the hash function accepts weights). A row of weight 2
            counts like two equal rows.
        checkpoint : path, optional
            A file that is written after each bit. If it exists already, the fit goes on from it; it must belong to the
            same data and parameters (but for ``n_bits``). The result is the same as that of one uninterrupted fit.
        """
        target = Target(y, affinity, triplets, unlabelled, sample_weight)
        return self._fit(X, target, reset=self._earlier() is None, checkpoint=checkpoint)

    def _learn(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        rng: np.random.Generator,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Encoder:
        """Algorithm 1: for each bit, step 1 infers the values and step 2 learns a function that gives them."""
        loss = losses.check_loss(self.loss, self.n_bits)
        learner, solver = as_learner(self.hash_function), as_solver(self.inference)
        file = None if checkpoint is None else Checkpoint(checkpoint, self._fingerprint(X, supervision))
        learned = self._progress(X, rng, file)
        rng = np.random.default_rng(learned.seed)
        affinity = supervision.affinity(
            n_similar=self.n_similar, n_dissimilar=self.n_dissimilar, random_state=learned.seed, n_jobs=self.n_jobs
        )
        data = learner.prepare(
            X, substream(rng, 0), supervision=supervision, earlier=learned.encoder, n_jobs=self.n_jobs
        )
        state = solver.prepare(affinity, substream(rng, 1))
        importance = None if supervision.weights is None else supervision.weights / supervision.weights.max()
        distances = PairDistances(affinity, n_bits=self.n_bits, weights=importance, n_jobs=self.n_jobs)
        for bit in learned.bits:
            distances.add_bit(bit)

        with self._keeping(learned), report_progress(self.n_bits, done=len(learned), verbose=self.verbose) as show:
            for r in range(len(learned), self.n_bits):
                stream = substream(rng, 2, r)
                started = time.perf_counter()
                problem = BinaryQuadratic(affinity, distances.values, losses.coefficients(loss, r + 1), importance)
                z = solver.solve(state, problem, stream)  # Step 1
                weights = problem.weights() if self.weighted else supervision.weights
                inferred = time.perf_counter()
                encoder, bit = learner.learn(data, z, weights, stream)  # Step 2
                ended = time.perf_counter()
                distances.add_bit(bit if self.stagewise else z)  # the real output feeds the next bit
                record = BitRecord(
                    bit=r,
                    objective=distances.mean(*losses.loss_tables(loss, r + 1)),
                    training_error=float((bit != z).mean()),
                    ones=float((bit > 0).mean()),
                    seconds_inference=inferred - started,
                    seconds_learning=ended - inferred,
                )
                learned.add(encoder, bit if self.stagewise else z, record)
                if file is not None:
                    records = [asdict(record) for record in learned.history]
                    file.write(Progress(learned.join(), np.stack(learned.bits), records, learned.seed))
                for callback in (show, *self.callbacks):
                    callback(record)

        self.history_ = learned.history
        self._warn_of_constant_bits()
        return learned.join()

    def _progress(self, X: NDArray[Any], rng: np.random.Generator, file: Checkpoint | None) -> LearnedBits:
        """The bits that are known before the first new one: those of the checkpoint, of a warm start, or none."""
        found = None if file is None else file.read()
        if found is not None:
            if found.encoder.n_bits > self.n_bits:
                raise ValueError(
                    f"The 'n_bits' parameter must be at least {found.encoder.n_bits}, the bits in the checkpoint. "
                    f"Got {self.n_bits} instead."
                )
            history = [BitRecord(**record) for record in found.records]
            return LearnedBits(found.seed, found.encoder, list(found.bits), history)
        earlier = self._earlier()
        if earlier is None:
            return LearnedBits(seed_of(rng))
        bits = np.where(earlier.scores(X, n_jobs=self.n_jobs) > 0, 1, -1).astype(np.int8).T
        return LearnedBits(seed_of(rng), earlier, list(bits), list(self.history_))

    def _fingerprint(self, X: NDArray[Any], supervision: Supervision) -> str:
        """Digest of everything that decides what a bit becomes, however many bits there will be."""
        left_out = self.not_saved | {"n_bits"}
        parameters = {name: plain(v) for name, v in self.get_params(deep=False).items() if name not in left_out}
        return fingerprint(parameters, X, *supervision.arrays())

    @contextmanager
    def _keeping(self, learned: LearnedBits) -> Iterator[None]:
        """Keep the bits learned so far if Ctrl-C comes; `warm_start` goes on from them."""
        try:
            with interruptible():
                yield
        except KeyboardInterrupt:
            if len(learned):
                self.encoder_, self.history_ = learned.join(), learned.history
            raise

    def _earlier(self) -> Encoder | None:
        """The encoder that a warm start extends, or None."""
        if not self.warm_start or not hasattr(self, "encoder_"):
            return None
        if self.n_bits < self.encoder_.n_bits:
            raise ValueError(
                f"The 'n_bits' parameter must be at least {self.encoder_.n_bits}, the bits learned so far, with "
                f"warm_start=True. Got {self.n_bits} instead."
            )
        return self.encoder_

    def _accepts_sparse(self) -> bool:
        return bool(getattr(as_learner(self.hash_function), "accepts_sparse", False))

    def _warn_of_constant_bits(self) -> None:
        constant = sum(record.ones in (0, 1) for record in self.history_)
        if 2 * constant > self.n_bits:
            warnings.warn(
                f"{constant} of {self.n_bits} bits are the same for all points. More bits do not lower the loss: "
                "use fewer bits.",
                stacklevel=5,
            )


def load_hasher(path: str | os.PathLike[str], **parameters: Any) -> FastHash:
    """Read a saved FastHash model to go on learning: raise ``n_bits`` and call `fit` with the same data.

    Parameters
    ----------
    path : path
        A file that `FastHash.save` wrote; it is untrusted and is checked.
    **parameters
        Parameters to set, among them those that a file cannot hold: a loss of your own, a scikit-learn classifier.
    """
    learned, header = load(path), read_header(path)["header"]
    if header.get("hasher") != FastHash.__name__ or not isinstance(header.get("parameters"), dict):
        raise ModelFileError(f"{os.fspath(path)}: must be a model of FastHash. Got {header.get('hasher')!r} instead.")
    known = {kind.__name__: kind for kind in (*HASH_FUNCTIONS.values(), *SOLVERS.values())}
    names = header["parameters"].keys() & FastHash._get_param_names()
    for name in names - parameters.keys():
        value = header["parameters"][name]
        try:
            parameters[name] = rebuild(value, known) if isinstance(value, str) and "(" in value else value
        except ValueError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}. Give it: load_hasher(path, {name}=...).") from error
    hasher = FastHash(**parameters | {"warm_start": True})
    hasher.encoder_ = learned if isinstance(learned, Encoder) else learned.encoder
    hasher.n_features_in_, hasher.history_ = hasher.encoder_.n_features, []
    return hasher
