"""Drift: whether new rows are like those that a model learned from, or the model should be trained anew."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hashgrove.codes import unpack
from hashgrove.encoders.profile import CodeProfile
from hashgrove.hasher import Hasher
from hashgrove.runtime.html import html_table
from hashgrove.runtime.parameters import ParameterError
from hashgrove.storage.formats import FileError
from hashgrove.storage.models import load, read_learned

__all__ = ["Drift", "measure_drift"]

FAR = 0.01  # of the rows that a profile knows are farther than what counts as far
MUCH = 0.05  # of new rows, or of the ones of a bit
DEVIATIONS = 3.0  # beyond what chance does


@dataclass(frozen=True)
class Drift:
    """Differences of new rows from the training rows that a model remembers.

    Attributes
    ----------
    n_rows : int
        Number of new rows.
    far : float
        Share of the new rows that are farther than ``limit`` from all codes that are remembered.
    expected_far : float
        The same of the rows that the model remembers.
    limit : int
        Bits.
    nearest, expected_nearest : float
        Median distance to the nearest code that is remembered, of the new rows and of those that the model remembers.
    balance : float
        Mean change of the share of ones over the bits.
    expected_balance : float
        The change that chance makes.
    held_out : bool
        Whether distances are compared with those of rows that were held out of training (``fit(validation=...)``).
        Otherwise it is with those of trained rows, which are nearer than any new row.
    """

    n_rows: int
    far: float
    expected_far: float
    limit: int
    nearest: float
    expected_nearest: float
    balance: float
    expected_balance: float
    held_out: bool

    @property
    def is_far(self) -> bool:
        """Whether more new rows are far from all that was learned than chance explains."""
        expected = max(self.expected_far, FAR)
        return self.far - expected > max(MUCH, DEVIATIONS * float(np.sqrt(expected * (1 - expected) / self.n_rows)))

    @property
    def is_unbalanced(self) -> bool:
        """Whether bits are ones more or less often than chance explains."""
        return self.balance > MUCH + self.expected_balance

    @property
    def verdict(self) -> str:
        """Advice in a sentence or two."""
        if self.is_far and self.held_out:
            return (
                f"Retrain: {self.far:.0%} of the new rows are farther from all that the model learned from than "
                f"{1 - self.expected_far:.0%} of held-out rows were. They are of new kinds, or made in another way."
            )
        if self.is_far:
            return (
                f"Perhaps retrain: {self.far:.0%} of the new rows are farther from all that the model learned from "
                f"than {1 - self.expected_far:.0%} of its own rows. But new rows are always farther from what a "
                "supervised model learned: validate the next fit (train --validate), and its file will know how far."
            )
        if self.is_unbalanced:
            return (
                "Look at the new rows: they are as near as others were, but their bits have other shares of ones. Some "
                "kinds have become more frequent, or rarer. Retrain if it lasts."
            )
        return "No need to retrain: the new rows are like those that the model learned from."

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {**vars(self), "is_far": self.is_far, "is_unbalanced": self.is_unbalanced, "verdict": self.verdict}

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            ("farther than " + f"{self.limit} bits from all", f"{self.far:.1%}", f"{self.expected_far:.1%}"),
            ("median distance to the nearest", f"{self.nearest:g} bits", f"{self.expected_nearest:g} bits"),
            ("mean change of a bit's share of ones", f"{self.balance:.3f}", f"{self.expected_balance:.3f} by chance"),
        ]

    def __str__(self) -> str:
        lines = [f"{f'{self.n_rows:,} new rows':<38} {'new':>9}  {'held out' if self.held_out else 'trained'}"]
        lines += [f"{name:<38} {new:>9}  {known}" for name, new, known in self._rows()]
        return "\n".join([*lines, "", self.verdict])

    def _repr_html_(self) -> str:
        header = ("", "new", "held out" if self.held_out else "trained")
        return html_table(f"{self.n_rows:,} new rows", self._rows(), header=header, notes=[self.verdict])


def measure_drift(model: Hasher | str | os.PathLike[str], X: ArrayLike, *, n_jobs: int | None = None) -> Drift:
    """Compare new rows with those that a model learned from; needs no labels.

    Parameters
    ----------
    model : fitted hasher, or path of a model file
        It remembers codes of some training rows, how often each bit is one, and how far other rows are from these
        codes: held-out ones, if it was fitted with ``validation``.
    X : array of shape (n, n_features)
        New rows, as they come; a hundred or more.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.

    Returns
    -------
    drift : Drift

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import FastHash
    >>> X, y = load_digits(return_X_y=True)
    >>> old = y < 7
    >>> hasher = FastHash(32, hash_function="posterior", random_state=0).fit(X[old][:800], y[old][:800], validation=0.2)
    >>> measure_drift(hasher, X[old][800:]).is_far, measure_drift(hasher, X[~old]).is_far
    (False, True)
    """
    encoder, profile = _encoder_and_profile(model)
    codes = np.asarray(encoder.encode(X, n_jobs=n_jobs))
    known, new = profile.nearest, profile.counts(codes, n_jobs=n_jobs)
    share_beyond = 1 - known.cumsum() / max(known.sum(), 1)
    limit = int(np.flatnonzero(share_beyond <= FAR)[0])
    before = profile.ones / profile.n_rows
    change = unpack(codes, n_bits=profile.n_bits).mean(axis=0) - before
    chance = np.sqrt(2 / np.pi * before * (1 - before) * (1 / profile.n_rows + 1 / len(codes)))
    return Drift(
        n_rows=len(codes),
        far=float(new[limit + 1 :].sum() / len(codes)),
        expected_far=float(share_beyond[limit]),
        limit=limit,
        nearest=_median(new),
        expected_nearest=_median(known),
        balance=float(np.abs(change).mean()),
        expected_balance=float(chance.mean()),
        held_out=profile.held_out,
    )


def _encoder_and_profile(model: Any) -> tuple[Any, CodeProfile]:
    if isinstance(model, Hasher):
        profile, name, encoder = (
            getattr(model, "profile_", None),
            type(model).__name__,
            getattr(model, "encoder_", None),
        )
    elif isinstance(model, str | os.PathLike):
        loaded: Any = load(model)
        profile, name = read_learned(model).profile, os.fspath(model)
        encoder = getattr(loaded, "encoder", loaded)  # the part of an ImageEncoder that takes features
    else:
        raise ParameterError(
            "model", f"must be a fitted hasher or the path of a model file. Got {type(model).__name__} instead."
        )
    if profile is None or encoder is None:
        raise FileError(
            f"{name}: must remember its training rows, to compare new ones with them. It does not: it was made by an "
            "earlier version, or is not fitted. Fit and save it again."
        )
    return encoder, profile


def _median(counts: NDArray[np.int64]) -> float:
    """The median of distances of which there are so many each."""
    return float(np.searchsorted(counts.cumsum(), counts.sum() / 2)) if counts.any() else 0.0
