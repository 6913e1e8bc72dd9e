"""FastHash, the estimator: it consumes Algorithm 1 (`hashgrove.two_step`) and keeps what was learned.

Around the loop over the bits: the choice of the hash function, generic bits, validation, warm starts and checkpoints.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from hashgrove import losses
from hashgrove.codes import Codes, pack, unpack
from hashgrove.continuing import LearnedBits
from hashgrove.encoders import Encoder, Spread
from hashgrove.encoders.profile import CodeProfile, nearest_counts
from hashgrove.functions import (
    HASH_FUNCTIONS,
    Codewords,
    HashFunction,
    JointLearner,
    as_learner,
    count_generic_bits,
    has_new_classes,
    learn_generic_bits,
    with_clusters,
)
from hashgrove.hasher import SupervisedHasher
from hashgrove.inference import SOLVERS, as_solver
from hashgrove.runtime.estimators import describe
from hashgrove.runtime.executors import current_executor
from hashgrove.runtime.interrupts import interruptible
from hashgrove.runtime.parameters import Constraint, Flag, Integer, Number, OneOf, ParameterError
from hashgrove.runtime.progress import report_progress, show_step
from hashgrove.runtime.rounding import training_marks
from hashgrove.runtime.sharing import is_sharing, shared
from hashgrove.runtime.streams import seed_of, substream
from hashgrove.runtime.threads import beside, chunks, in_order
from hashgrove.step_one import AnyStepOne, InferredBits, ReadStepOne, SampledStepOne, StepOne
from hashgrove.storage.checkpoints import Checkpoint, fingerprint
from hashgrove.storage.feature_store import FeatureStore
from hashgrove.storage.models import plain, plain_as_before
from hashgrove.storage.stored_rows import StoredRows, rows_of
from hashgrove.supervision import ClassLabels, Supervision, Target, read_groups
from hashgrove.two_step import BitRecord, local_calls, two_step

if TYPE_CHECKING:
    from hashgrove.choosing import Choice
    from hashgrove.new_classes import GenericTrial
    from hashgrove.validation import Validation

__all__ = ["AUTO", "FastHash"]

AUTO = "auto"
STEP_ONE_ROWS = 100_000  # that step 1 runs on if all rows have a class; more follow their classes
MAX_OTHERS = 20_000  # rows without a label that are used
TRIAL_OTHERS = 4000  # of them in a trial
ROWS_PER_PIECE = 2**16  # whose inferred bits are packed together
BYTES_AHEAD = 2**28  # of bits that are inferred before the hash functions of the ones before them are learned
METRICS = ("map", "precision@10")  # of the trial
RANKINGS = ("hamming", "decoded")


class FastHash(SupervisedHasher):
    """Two-step supervised hashing: graph cuts infer the bits, then a hash function learns each of them.

    Parameters
    ----------
    n_bits : int, default=64
        Length of a code.
    loss : {"hinge", "ksh", "bre", "exph"} or callable, default="hinge"
        Loss of a pair as a function of (distance, similar, n_bits); see `hashgrove.losses`.
    hash_function : {"auto", "trees", "posterior", "decodable", ...}, learner or classifier, default="auto"
        Step 2, which learns each bit. ``"auto"`` tries posterior bits and trees on a sample of the rows and keeps what
        retrieves best; see `hashgrove.choosing`. The other names are those of ``HASH_FUNCTIONS``. To change the
        settings of a hash function, pass an instance, such as ``BoostedTrees(max_depth=6)`` or any scikit-learn
        classifier.
    metric : {"map", "precision@10"}, default="map"
        What ``"auto"`` measures: how good the whole ranking is, or its first ten items.
    ranking : {"hamming", "decoded"}, default="hamming"
        How items will be ranked: with ``"decoded"``, ``"auto"`` also tries codes that state how likely each class is.
        They are then ranked by `hashgrove.index.Decoded`, which needs class labels, and queries that are rows of X.
    inference : {"block-gc", "icm", "spectral"} or solver, default="block-gc"
        Step 1, which infers the values of each bit.
    n_similar, n_dissimilar : int or None, default=100
        Number of similar and dissimilar neighbours drawn per point; ``None`` means all.
    min_shared : int, default=2
        With tags: points that share at least this many tags are similar.
    generic_bits : int or None, default=None
        How many of the ``n_bits`` bits are generic: not learned from pairs, but codes of whatever varies in the rows,
        so that items of one class, or of classes that were never seen, do not collapse. They are spread evenly over
        the code; with ``n_bits`` all bits are generic. ``None`` means what suits the hash function: a quarter for
        posterior bits, an eighth for trees that start from a linear score, otherwise none.
    new_classes : float or None, default=None
        How much a search among classes without labels matters, from 0 to 1, beside one among labelled classes. Above 0,
        a trial that leaves classes out chooses the number of generic bits. Unless it is 0, clusters of the rows without
        a label that are unlike all classes serve as further classes, if at least a fifth of these rows are. ``None``
        also doubles the number of generic bits then.
    weighted : bool or None, default=None
        Whether step 2 weights each point i by its weight in step 1, sum_j |a_ij|, as in the authors' code. ``None``
        means what suits the hash function.
    stagewise : bool or None, default=None
        Whether the next bit is fitted to the real output of the learned function (Algorithm 1). If not, it is fitted to
        the inferred bit, as if all bits were inferred before the first function is learned. ``None`` means what suits
        the hash function.
    loss_length : {"current", "final"}, default="current"
        The length that the loss of a bit divides distances by: the number of bits so far, as in the authors' code, or
        the final number of learned bits. ``"final"`` with ``stagewise=False`` and ``weighted=False`` is two-step
        hashing (TSH).
    warm_start : bool, default=False
        Whether `fit` keeps the bits of the previous `fit` and learns only the additional ones, after ``n_bits`` was
        increased. With an integer ``random_state`` and the same data the result equals a single fit of all bits with
        the same hash function (unless ``loss_length="final"``). (Generic bits are learned anew.)
    random_state : int, RandomState or None
        Seed. The same seed gives the same model with any number of threads.
    n_jobs : int or None
        Number of threads; ``None`` means all cores. If not stagewise, each learns bits of its own.
    verbose : int, default=0
        1: show progress at a terminal, at a prompt or in a notebook. 2: elsewhere print a line per step and bit.
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
    n_clusters_ : int
        Number of clusters of rows without a label that served as further classes; see ``new_classes``.
    generic_trials_ : tuple of GenericTrial
        What each number of generic bits reached in the trial of ``new_classes``; empty without a trial.
    choice_ : Choice or None
        What ``"auto"`` tried, with the results, and why it chose what it chose.
    inferred_codes_ : Codes of shape (n, ceil(n_bits / 8))
        The codes that step 1 inferred for the training rows that have a label or a pair.
    codewords_ : Codewords
        The inferred code of each class: ``codewords_.of_labels(y)`` has those of the labels in ``y``. Use them for
        database items whose classes are known, and search with the codes of queries or with their scores as weights.
        That is close to what a classifier does, so do not compare its figures with those of unlabelled items. For tags
        and pairs there are none.
    validation_ : Validation
        How good the codes are on held-out rows, if `fit` was given ``validation``.
    n_features_in_ : int
        Number of features seen in `fit`.

    Notes
    -----
    A bit is constant if a larger distance would not lower the loss of any pair: with the hinge loss, if all dissimilar
    pairs differ in half of the bits. `fit` warns if more than half of the bits are constant.

    With class labels, more than 100,000 rows and no ``sample_weight``, step 1 infers the bits of a sample of the rows;
    the other rows get the values of their class. ``history_`` then has the objective of the sample.

    Rows without a label, or without a pair, show what varies in the data: generic bits learn from them (from at most
    20,000 random ones), and so does a hash function with ``semi_supervised``. If many of them are unlike all classes,
    all bits do (see ``new_classes``).

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

    semi_supervised: ClassVar[bool] = True
    _marks: list[int]  # of the rows of the fit
    _data: str | None  # fingerprint of the rows and labels of the fit
    _learned: Encoder | None  # the bits that a warm start goes on from
    _n_generic: int | None  # the number of generic bits that a trial has chosen
    _has_new: bool = False  # whether rows without a label show new classes, which clusters of them stand for
    history_: list[BitRecord]
    hash_function_: HashFunction
    generic_bits_: int
    n_clusters_: int
    generic_trials_: tuple[GenericTrial, ...]
    choice_: Choice | None
    inferred_codes_: Codes
    codewords_: Codewords
    validation_: Validation
    constraints: ClassVar[dict[str, Constraint]] = {
        "metric": OneOf(METRICS),
        "ranking": OneOf(RANKINGS),
        "n_similar": Integer(1, or_none=True),
        "n_dissimilar": Integer(1, or_none=True),
        "min_shared": Integer(1),
        "generic_bits": Integer(0, or_none=True),
        "new_classes": Number(low=0, high=1, or_none=True),
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
        metric: str = "map",
        ranking: str = "hamming",
        inference: Any = "block-gc",
        n_similar: int | None = 100,
        n_dissimilar: int | None = 100,
        min_shared: int = 2,
        generic_bits: int | None = None,
        new_classes: float | None = None,
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
        self.metric = metric
        self.ranking = ranking
        self.inference = inference
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.min_shared = min_shared
        self.generic_bits = generic_bits
        self.new_classes = new_classes
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
        X: ArrayLike | StoredRows | FeatureStore,
        y: Any = None,
        *,
        affinity: Any = None,
        triplets: Any = None,
        unlabelled: Any = None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        groups: Any = None,
        refit: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn the hash functions from the rows of ``X`` and what is known about their similarity.

        Give one of ``y``, ``affinity`` and ``triplets``.

        Parameters
        ----------
        X : array of shape (n, n_features), path, StoredRows, or FeatureStore
            Finite features. They may be a scipy sparse matrix if the hash function accepts that: a linear SVM or a
            scikit-learn classifier. Of a ``.npy`` file, or of `StoredRows`, only the parts that are needed are read,
            for ``"auto"``, trees, posterior and decodable bits. Trees without a start also learn from a file of bins
            (see `build_store`).
        y, affinity, triplets, unlabelled
            The forms of these four are described in `SupervisedHasher.fit`, which is the same for all methods.
        sample_weight : array of shape (n,), optional
            How much each row counts, in step 1 and in step 2 (if the hash function accepts weights). A row of weight 2
            counts like two equal rows.
        validation : float or (X, y), optional
            Rows to measure the codes on, with class labels or tags: a share of the rows, which are held out, or rows of
            their own. The result, ``validation_``, has the quality of the codes beside that of the vectors themselves
            and of codes that are learned without labels. A warning says if the codes are worse.
        groups : array of shape (n,), optional
            The group of each row, such as its writer, its album or its day. Rows of one group are never divided between
            those that codes are learned from and those that they are measured on, neither for ``validation`` nor in the
            trials of ``hash_function="auto"`` and of ``new_classes``. Without groups, rows that resemble each other for
            another reason than their label, such as pictures of one album, make codes look better than they are for a
            new album.
        refit : bool, default=True
            Whether to learn again from all rows after a share of them was held out, with the hash function that was
            chosen before. ``validation_`` is then the quality of codes learned without these rows, which those of the
            final model can be expected to reach. If not, the model has not seen the held-out rows.
        checkpoint : path, optional
            A file that is written after each bit. If it exists already, the fit goes on from it; it must belong to the
            same data and parameters (but for ``n_bits``). The result is the same as that of one uninterrupted fit. The
            fit without the held-out rows has a file of its own, with ".held-out" after its name.
        """
        if validation is not None and y is None:
            raise ParameterError("validation", "needs class labels or tags as y. Got pairs or triplets.")
        target = Target(y, affinity, triplets, unlabelled, sample_weight)
        options = {"validation": validation, "unlabelled": unlabelled, "refit": refit, "checkpoint": checkpoint}
        options |= {"groups": groups}
        self._fit(X, target, reset=self._earlier() is None, **options)
        for sentence in self._shortcomings():
            warnings.warn(sentence, stacklevel=2)
        return self

    def _learn(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        rng: np.random.Generator,
        *,
        validation: Any = None,
        groups: Any = None,
        unlabelled: Any = None,
        refit: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Encoder:
        """Learn from all rows, or, to validate, first from all but the held-out ones."""
        Flag().check("refit", refit)
        self.__dict__.pop("validation_", None)  # that of an earlier fit
        self.__dict__.pop("profile_", None)
        self._nearest = None
        if isinstance(X, FeatureStore):
            self._marks = X.marks
            if not supervision.known.all():
                unknown = int(np.flatnonzero(~supervision.known)[0])
                wanted = "must have a label for every row if X is a FeatureStore"
                raise ParameterError("y", f"{wanted}. Got none for row {unknown}; give the rows themselves.")
            if validation is not None:
                raise ParameterError("validation", "must be None if X is a FeatureStore; give the rows themselves.")
        else:
            self._marks = [] if sparse.issparse(X) else training_marks(X)
        seed = seed_of(rng)
        if groups is not None:
            groups = read_groups(groups, n_rows=X.shape[0])[supervision.known]
        X, supervision, others = _without_unknown(X, supervision, seed)
        earlier = self._earlier_bits(X, seed)
        if validation is None:
            return self._learn_rows(X, supervision, earlier, checkpoint, others=others, groups=groups)

        from hashgrove.validation import hold_out, measure

        def read(X: Any, y: Any) -> tuple[NDArray[Any], Supervision]:
            rows = self._check_X(X)
            return rows, self._read(rows, Target(y, unlabelled=unlabelled))

        held_out = hold_out(validation, X, supervision, read=read, seed=seed, groups=groups)
        refit &= len(held_out.trained) < len(X)
        rows, known = rows_of(X, held_out.trained), supervision.subset(held_out.trained)
        more: dict[str, Any] = {"others": others, "groups": None if groups is None else groups[held_out.trained]}
        if refit:
            self._checked_data(X, supervision, earlier)
            file = None if checkpoint is None else f"{os.fspath(checkpoint)}.held-out"
            kept = None
            if len(earlier):  # a warm start keeps what was chosen for its bits
                self._choose_generic(X, supervision, earlier, others, groups)
                kept = self._choose(X, supervision, earlier, others, groups)
            encoder = self._learn_rows(rows, known, LearnedBits(seed), file, kept, **more, final=False)
        else:
            encoder = self._learn_rows(rows, known, earlier, checkpoint, **more)
        with show_step("measuring the codes of the held-out rows", verbose=self.verbose):
            found = measure(encoder, rows, held_out.X, held_out.labels, seed=seed, n_jobs=self.n_jobs)
            self._nearest = nearest_counts(encoder, rows, held_out.X, n_jobs=self.n_jobs)
        if refit:
            encoder = self._learn_rows(X, supervision, earlier, checkpoint, self.hash_function_, others=others)
        self.validation_ = found
        return encoder

    def _learn_rows(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        learned: LearnedBits,
        checkpoint: str | os.PathLike[str] | None,
        learner: HashFunction | None = None,
        *,
        others: NDArray[Any] | None,
        groups: NDArray[np.intp] | None = None,
        final: bool = True,
    ) -> Encoder:
        """Choose the hash function unless it is known, learn its bits from these rows, and keep what was learned.

        ``others`` are rows about which nothing is known. The callbacks hear of the ``final`` fit only.
        """
        data = self._checked_data(X, supervision, learned)
        if learner is None:
            self._choose_generic(X, supervision, learned, others, groups)
            learner = self._choose(X, supervision, learned, others, groups)
        training = self._training_rows(X, supervision, learner, others, learned.seed)
        n_joined = len(training[1]) - len(supervision)
        self.n_clusters_ = len(np.unique(training[1].evaluation_labels()[0][-n_joined:])) if n_joined else 0
        if len(learned) and n_joined:
            learned = self._earlier_bits(training[0], learned.seed)
        file = None if checkpoint is None else self._checkpoint(checkpoint, *training, others, learner)
        if file is not None:
            learned = LearnedBits.of_checkpoint(file, training[0]) or learned

        def after_each(record: BitRecord) -> None:
            if file is not None:
                learned.write(file)
            for callback in (show, *(self.callbacks if final else ())):
                callback(record)

        n_learned = self.n_bits - self._count_generic(learner)
        try:
            with interruptible(), report_progress(n_learned, done=len(learned), verbose=self.verbose) as show:
                encoder, self.inferred_codes_ = self._learn_bits(
                    X, supervision, training, learner, learned, others, after_each
                )
        except KeyboardInterrupt:
            if final and len(learned):  # a warm start goes on from them
                self._learned = self.encoder_ = learned.join()
                self.history_, self.generic_bits_, self._data = learned.history, 0, data
            raise
        self._learned = learned.join() if len(learned) else None
        self.history_, self.generic_bits_ = learned.history, self.n_bits - n_learned
        self._data = data if final else getattr(self, "_data", None)
        self.codewords_ = Codewords.of(self.inferred_codes_, supervision)
        return encoder

    def _learn_bits(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        training: tuple[NDArray[Any], Supervision],
        learner: HashFunction,
        learned: LearnedBits,
        others: NDArray[Any] | None,
        after_each: Callable[[BitRecord], None] | None = None,
    ) -> tuple[Encoder, Codes]:
        """Consume Algorithm 1, then add the generic bits; returns an encoder, and the codes that step 1 inferred.

        Learned bits learn from the ``training`` rows, see `_training_rows`; generic bits learn from ``X`` and
        ``others``. New bits are added to ``learned``. The hasher itself stays as it is.
        """
        n_generic = self._count_generic(learner)
        n_learned = self.n_bits - n_generic
        if len(learned) > n_learned:
            raise ParameterError(
                "n_bits",
                f"must be at least {len(learned) + n_generic}: {len(learned)} bits learned so "
                f"far and {n_generic} generic ones. Got {self.n_bits} instead.",
            )
        stagewise, rng = self._suited("stagewise", learner), np.random.default_rng(learned.seed)
        if n_learned == 0:
            only = learn_generic_bits(X, supervision, n_bits=n_generic, rng=substream(rng, 3), others=others)
            return only, only.encode(X, n_jobs=self.n_jobs)
        rows, known = training
        step_one = self._step_one(known, learner, n_learned, learned.seed)
        given = {"supervision": supervision, "others": others}
        more: dict[str, Any] = {"supervision": known} | (
            {"others": others} if getattr(learner, "semi_supervised", False) else {}
        )
        prepare = partial(_prepare, learner=learner, seed=learned.seed, earlier=learned.encoder, **more)
        executor = current_executor()
        if executor is not None and stagewise:
            raise ParameterError(
                "stagewise",
                "must be False for bits that are learned on several machines: each bit would need the output of the "
                f"one before. Got {self.stagewise} with {describe(learner)}; or fit on one machine that has the rows.",
            )
        n_jobs = self.n_jobs if executor is None else 1  # then rows are prepared here only if something asks for it
        with beside(n_jobs=n_jobs) as start:  # neither step 1 nor generic bits need anything of what is prepared
            data = start(prepare, rows, n_jobs=self.n_jobs)
            streams = substream(rng, 3)
            generic = start(learn_generic_bits, X, n_bits=n_generic, rng=streams, **given) if n_generic else None
            inferred = learned.replay(step_one, stagewise=stagewise)

            def execute(learn: Callable[[Any, Any], Any], targets: Iterable[Any]) -> Iterator[Any]:
                if executor is not None:
                    return executor.map(learn, targets, prepare=prepare, rows=rows)
                assert not isinstance(learner, JointLearner), "a joint learner has no independent bits"
                calls, ahead = local_calls(learner, data, targets), _bits_ahead(rows.shape[0])
                return in_order(lambda call: call(), calls, n_jobs=self.n_jobs, ahead=ahead)

            with closing(two_step(step_one, learner, data, stagewise=stagewise, execute=execute)) as learned_bits:
                for new in learned_bits:  # if this is interrupted, no other bit is begun
                    inferred += new.inferred
                    learned.add(new, stagewise=stagewise)
                    if after_each is not None:
                        for record in new.records:
                            after_each(record)
        encoder = learned.join()
        if generic is None:
            codes = _packed(inferred, X.shape[0])
        else:
            encoder = Spread(learned=encoder, generic=generic())
            codes = _packed(inferred, X.shape[0], encoder, encoder.generic.encode(X, n_jobs=self.n_jobs))
        return encoder, Codes(codes, model=encoder.digest_or_none)

    def _step_one(self, supervision: Supervision, learner: HashFunction, n_bits: int, seed: int) -> AnyStepOne:
        """Step 1 of all rows or, if there are many and they have classes, of a sample of them.

        The hash functions that a trial compares have the same bits, as far as they do not depend on their outputs.
        """
        weighted = self._suited("weighted", learner)
        is_independent = self.loss_length == "current" and not self._suited("stagewise", learner)
        if is_sharing() and is_independent and len(supervision) <= STEP_ONE_ROWS:
            return ReadStepOne(_inferred_bits(self, supervision, seed), n_bits=n_bits, weighted=weighted)
        return self._new_step_one(supervision, n_bits, seed, weighted=weighted)

    def _new_step_one(
        self, supervision: Supervision, n_bits: int, seed: int, *, weighted: bool
    ) -> StepOne | SampledStepOne:
        chosen = None
        if len(supervision) > STEP_ONE_ROWS and supervision.weights is None:
            chosen = supervision.sample_of_classes(STEP_ONE_ROWS, np.random.default_rng([seed, 8]))
        known = supervision if chosen is None else supervision.subset(chosen)
        draws = {"n_similar": self.n_similar, "n_dissimilar": self.n_dissimilar}
        step_one = StepOne(
            known.affinity(**draws, random_state=seed, n_jobs=self.n_jobs),
            loss=losses.check_loss(self.loss, n_bits),
            solver=as_solver(self.inference),
            n_bits=n_bits,
            loss_length=self.loss_length,
            weighted=weighted,
            importance=supervision.weights,
            seed=seed,
            n_jobs=self.n_jobs,
        )
        if chosen is None:
            return step_one
        classes, _ = supervision.evaluation_labels()
        return SampledStepOne(step_one, classes, chosen)

    def _choose(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        learned: LearnedBits,
        others: NDArray[Any] | None,
        groups: NDArray[np.intp] | None,
    ) -> HashFunction:
        """The hash function to use: the one given, that of the bits learned before, or what a trial chooses."""
        if self.hash_function != AUTO or self._asked_generic() == self.n_bits:  # then there is nothing to choose
            name = "posterior" if self.hash_function == AUTO else self.hash_function
            self.hash_function_, self.choice_ = as_learner(name), None
        elif len(learned) == 0 or not hasattr(self, "hash_function_"):
            from hashgrove.choosing import choose

            fewer, seed = _fewer(others), learned.seed
            settled = {"generic_bits": self._asked_generic(), "new_classes": 0.0}
            # without what only this process has, since trials may be sent to others
            hasher = self.__class__(**self.get_params(deep=False) | settled | {"callbacks": (), "verbose": 0})
            hasher._has_new = self._has_new

            def fit(learner: HashFunction, X: NDArray[Any], supervision: Supervision) -> Encoder:
                training = hasher._training_rows(X, supervision, learner, fewer, seed)
                return hasher._learn_bits(X, supervision, training, learner, LearnedBits(seed), fewer)[0]

            rng = substream(np.random.default_rng(seed), 4)
            how: dict[str, Any] = {"metric": self.metric, "decoded": self.ranking == "decoded", "groups": groups}
            how["n_jobs"] = self.n_jobs
            with show_step("choosing the hash function", verbose=self.verbose) as say:
                self.choice_ = choose(fit, X, supervision, rng, say=say, **how)
            self.hash_function_ = self.choice_.hash_function
        return self.hash_function_

    def _choose_generic(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        learned: LearnedBits,
        others: NDArray[Any] | None,
        groups: NDArray[np.intp] | None,
    ) -> None:
        """Find out whether there are new classes and, if ``new_classes`` says so, how many generic bits they need."""
        if self.new_classes and self.generic_bits is not None:
            raise ParameterError(
                "new_classes",
                f"chooses the number of generic bits, so it must be 0 with generic_bits={self.generic_bits}. "
                f"Got {self.new_classes} instead; leave one of the two out.",
            )
        rng = np.random.default_rng(learned.seed)
        may_join = self.new_classes != 0 and isinstance(X, np.ndarray | StoredRows)
        self._has_new = may_join and has_new_classes(X, supervision, others, substream(rng, 6))
        if len(learned):
            return
        self._n_generic, self.generic_trials_ = None, ()
        if self.new_classes:
            from hashgrove.new_classes import choose_generic_bits

            def fit(count: int, X: NDArray[Any], supervision: Supervision, others: NDArray[Any] | None) -> Encoder:
                hasher = self.__class__(**self.get_params(deep=False) | {"generic_bits": count, "new_classes": 0.0})
                learner = as_learner("posterior")
                training = self._training_rows(X, supervision, learner, others, learned.seed)
                return hasher._learn_bits(X, supervision, training, learner, LearnedBits(learned.seed), others)[0]

            how: dict[str, Any] = {"n_bits": self.n_bits, "new_classes": self.new_classes}
            how |= {"groups": groups, "n_jobs": self.n_jobs}
            self._n_generic, self.generic_trials_ = choose_generic_bits(
                fit, X, supervision, _fewer(others), substream(rng, 5), **how
            )

    def _learns_clusters(self, learner: HashFunction) -> bool:
        """Whether bits also learn from clusters of rows of new classes."""
        return self._has_new and bool(getattr(learner, "learns_clusters", True))

    def _training_rows(
        self,
        X: NDArray[Any],
        supervision: Supervision,
        learner: HashFunction,
        others: NDArray[Any] | None,
        seed: int,
    ) -> tuple[Any, Supervision]:
        """Training rows of learned bits: rows with a label and, behind them, clusters of rows of new classes."""
        if others is None or not isinstance(supervision, ClassLabels) or not self._learns_clusters(learner):
            return X, supervision
        return with_clusters(X, supervision, others, rng=substream(np.random.default_rng(seed), 9))

    def _asked_generic(self) -> int | None:
        """The number of generic bits that was asked for or chosen by a trial; None if neither."""
        if not self.new_classes:
            return self.generic_bits
        return self._n_generic if hasattr(self, "_n_generic") else self.generic_bits_  # of a loaded model

    def _count_generic(self, learner: HashFunction) -> int:
        asked = self._asked_generic()
        count = count_generic_bits(asked, self.n_bits, learner)
        return min(2 * count, self.n_bits) if asked is None and self._learns_clusters(learner) else count

    def _suited(self, name: str, learner: HashFunction) -> bool:
        """The value of a flag; if it is None, the one that suits the hash function."""
        value = getattr(self, name)
        return bool(getattr(learner, name, True) if value is None else value)

    def _earlier_bits(self, X: NDArray[Any], seed: int) -> LearnedBits:
        """The bits that a warm start extends; none if the fit starts anew."""
        encoder = self._earlier()
        if encoder is None:
            return LearnedBits(seed)
        # without the seed of the earlier bits they cannot be inferred again; their outputs stand in for them
        again = isinstance(self.random_state, Integral)
        return LearnedBits.of_encoder(encoder, X, self.history_, seed=seed, infer_again=again, n_jobs=self.n_jobs)

    def _checked_data(self, X: NDArray[Any], supervision: Supervision, learned: LearnedBits) -> str:
        """Fingerprint of the rows and labels; they are refused if a warm start cannot go on with them."""
        data = fingerprint({}, X, *supervision.arrays())
        learned.check_data(getattr(self, "_data", None), data)
        return data

    def _earlier(self) -> Encoder | None:
        """The encoder that a warm start extends, without generic bits; None if the fit starts anew."""
        return self._learned if self.warm_start and hasattr(self, "encoder_") else None

    def _checkpoint(
        self,
        path: str | os.PathLike[str],
        X: NDArray[Any],
        supervision: Supervision,
        others: NDArray[Any] | None,
        learner: HashFunction,
    ) -> Checkpoint:
        """A checkpoint of everything that decides what a bit becomes, however many bits there will be."""
        before_the_first_bit = {"metric", "ranking", "new_classes"}  # they matter then only
        left_out = self.not_saved | {"n_bits", "generic_bits"} | before_the_first_bit
        values = self.get_params(deep=False) | {"hash_function": learner}
        parameters = {name: plain_as_before(value) for name, value in values.items() if name not in left_out}
        more = [] if others is None else [others]
        return Checkpoint(path, fingerprint(parameters, X, *supervision.arrays(), *more))

    def _shortcomings(self) -> Iterator[str]:
        """Warnings about the codes, one sentence each."""
        constant = sum(record.ones in (0, 1) for record in self.history_)
        if 2 * constant > len(self.history_):
            yield (
                f"{constant} of {len(self.history_)} bits are the same for all points. More bits do not lower the "
                "loss: use fewer bits."
            )
        if hasattr(self, "validation_"):
            yield from self.validation_.warnings()

    @classmethod
    def paper(cls, n_bits: int = 64, *, loss: str | losses.Loss = "ksh", **changes: Any) -> Self:
        """FastHash with the settings of its authors' code, which the paper describes in part.

        Discrete AdaBoost with 200 trees of depth 4 and 200 features per node, Block GraphCut from the authors' start,
        weights of step 1 in step 2, bits learned one after the other. ``changes`` are other parameters of FastHash;
        the name of a hash function or of a solver means the one with the authors' settings.

        Examples
        --------
        >>> FastHash.paper(32, loss="hinge").inference
        BlockGraphCut(start='ones')
        >>> FastHash.paper(32, hash_function="trees").hash_function.leaves
        'sign'
        """
        settings: dict[str, Any] = {"generic_bits": 0, "weighted": True, "stagewise": True} | changes
        settings["hash_function"] = _as_in_paper(HASH_FUNCTIONS, settings.get("hash_function", "trees"))
        settings["inference"] = _as_in_paper(SOLVERS, settings.get("inference", "block-gc"))
        return cls(n_bits, loss=loss, **settings)

    def _accepts_sparse(self) -> bool:
        if self.hash_function == AUTO or self.generic_bits or self.new_classes:
            return False
        return bool(getattr(as_learner(self.hash_function), "accepts_sparse", False))

    def _accepts_store(self) -> bool:
        if self.hash_function == AUTO or self.warm_start or self.new_classes:
            return False
        learner = as_learner(self.hash_function)
        return bool(getattr(learner, "accepts_store", False)) and self._count_generic(learner) == 0

    def _accepts_stored_rows(self) -> bool:
        return self.hash_function == AUTO or bool(getattr(as_learner(self.hash_function), "accepts_stored_rows", False))

    def _profile(self, X: Any) -> CodeProfile:
        return CodeProfile.of(self.encoder_, X, nearest=self._nearest, n_jobs=self.n_jobs)

    def _notes(self) -> dict[str, Any]:
        """Facts about the fit that a model file holds besides the parameters."""
        if not hasattr(self, "hash_function_"):
            return {}
        choice = getattr(self, "choice_", None)
        notes = {"hash_function": plain(self.hash_function_), "generic_bits": self.generic_bits_}
        notes |= {"clusters": self.n_clusters_} if getattr(self, "n_clusters_", 0) else {}
        notes |= {} if choice is None else {"choice": choice.to_dict()}
        notes |= {"trained_on": self._marks} if getattr(self, "_marks", None) else {}
        return notes | ({"validation": self.validation_.to_dict()} if hasattr(self, "validation_") else {})


@shared
def _inferred_bits(hasher: FastHash, supervision: Supervision, seed: int) -> InferredBits:
    """The bits of step 1, whatever learns them and however many of them it learns."""
    step_one = hasher._new_step_one(supervision, hasher.n_bits, seed, weighted=True)
    assert isinstance(step_one, StepOne), "of all rows"
    return InferredBits(step_one)


def _prepare(X: Any, *, learner: HashFunction, seed: int, n_jobs: int | None, **more: Any) -> Any:
    """Data that the hash functions of all bits share: the same in every process, and however often."""
    return learner.prepare(X, substream(np.random.default_rng(seed), 0), n_jobs=n_jobs, **more)


def _without_unknown(
    X: NDArray[Any], supervision: Supervision, seed: int
) -> tuple[NDArray[Any], Supervision, NDArray[Any] | None]:
    """The rows about which something is known, what that is, and a sample of the other rows; None if there are none."""
    known = supervision.known
    if known.all():
        return X, supervision, None
    others = None
    if not sparse.issparse(X):  # nothing that learns from other rows accepts sparse ones
        others = X[supervision.draw_unknown(MAX_OTHERS, np.random.default_rng([seed, 7]))]
    return rows_of(X, known), supervision.subset(known), others


def _fewer(others: NDArray[Any] | None) -> NDArray[Any] | None:
    """The rows without a label that take part in a trial."""
    return None if others is None else others[:: -(-len(others) // TRIAL_OTHERS)]


def _packed(
    learned: Sequence[NDArray[np.int8]], n_rows: int, spread: Spread | None = None, generic: NDArray[Any] | None = None
) -> NDArray[np.uint8]:
    """Codes of the values of learned bits, one array per bit, and of the ``generic`` bits of a `Spread`, in code."""
    parts = []
    for start, stop in chunks(n_rows, ROWS_PER_PIECE):
        bits = np.stack([z[start:stop] for z in learned], axis=1) > 0
        if spread is not None and generic is not None:
            bits = spread.merge(bits, unpack(generic[start:stop], n_bits=spread.generic.n_bits))
        parts.append(pack(bits))
    return np.concatenate(parts)


def _bits_ahead(n_rows: int) -> int:
    """The number of bits that may be inferred ahead, at 9 bytes per row for the values and the weights."""
    return BYTES_AHEAD // (9 * n_rows)


def _as_in_paper(registry: Mapping[str, Any], choice: Any) -> Any:
    """The part that a name stands for in the paper: with the authors' settings, where the class has them."""
    kind = registry.get(choice) if isinstance(choice, str) else None
    return choice if kind is None else getattr(kind, "paper", kind)()
