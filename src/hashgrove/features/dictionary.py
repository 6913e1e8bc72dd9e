"""Dictionaries of unit atoms: K-SVD with orthogonal matching pursuit, and spherical k-means.

K-SVD follows Rubinstein, Zibulevsky & Elad, "Efficient implementation of the K-SVD algorithm using batch orthogonal
matching pursuit" (2008): Batch-OMP codes every signal from its correlations with the atoms and the atoms' Gram matrix,
and one power step replaces the SVD. Spherical k-means follows Coates & Ng, "Learning feature representations with
k-means" (2012). Signals and atoms are rows of their matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.runtime.compiling import kernel
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["DICTIONARIES", "first_atoms", "ksvd", "omp", "spherical_kmeans"]

ROWS_PER_CHUNK = 2048
Step = Callable[[int, float], object]


def first_atoms(signals: NDArray[np.float32], n_atoms: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Distinct random signals, scaled to unit length; a signal of zeros is replaced by a random direction."""
    atoms = signals[rng.permutation(len(signals))[:n_atoms]].astype(np.float64)
    noise = rng.standard_normal((n_atoms, signals.shape[1]))
    missing = n_atoms - len(atoms)
    atoms = np.concatenate([atoms, noise[:missing]]) if missing else atoms
    norms = np.linalg.norm(atoms, axis=1, keepdims=True)
    atoms = np.where(norms > 1e-6, atoms, noise)
    return (atoms / np.linalg.norm(atoms, axis=1, keepdims=True)).astype(np.float32)


def omp(
    signals: NDArray[np.float32], atoms: NDArray[np.float32], *, sparsity: int, n_jobs: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Code each signal by at most ``sparsity`` atoms: returns their numbers (-1 for none) and their weights.

    Each step adds the atom that correlates most (in magnitude) with the residual, and fits all weights again.

    >>> atoms = np.eye(3, dtype=np.float32)
    >>> which, weights = omp(np.array([[0.0, -2.0, 0.5]], np.float32), atoms, sparsity=2)
    >>> which.tolist(), weights.tolist()
    ([[1, 2]], [[-2.0, 0.5]])
    """
    which = np.full((len(signals), sparsity), -1, np.int32)
    weights = np.zeros((len(signals), sparsity), np.float32)
    gram = atoms @ atoms.T

    def code(start: int, stop: int) -> None:
        _omp(signals[start:stop] @ atoms.T, gram, which[start:stop], weights[start:stop])

    run_tasks(code, chunks(len(signals), ROWS_PER_CHUNK), n_jobs=n_jobs)
    return which, weights


@kernel
def _omp(correlations, gram, which, weights):
    """Batch-OMP of rows from their ``correlations`` (n, atoms) and ``gram`` (atoms, atoms), float32.

    Writes ``which`` (n, k) int32 and ``weights`` (n, k) float32. Costs about k^2 / 2 vector operations of length atoms
    per row. A row ends early if its residual is zero or the new atom depends linearly on the chosen ones.
    """
    n, n_atoms = correlations.shape
    k = which.shape[1]
    left = np.empty(n_atoms, np.float32)
    bits = left.view(np.int32)
    factor, partial, solution = np.zeros((k, k)), np.empty(k), np.empty(k)
    for i in range(n):
        start = correlations[i]
        left[:] = start
        for step in range(k):
            best = _largest(bits)
            if abs(left[best]) < 1e-6:
                break
            rest = np.float64(gram[best, best])
            for a in range(step):  # the next row of the Cholesky factor of the chosen atoms' Gram matrix
                value = np.float64(gram[best, which[i, a]])
                for b in range(a):
                    value -= factor[step, b] * factor[a, b]
                factor[step, a] = value / factor[a, a]
                rest -= factor[step, a] ** 2
            if rest < 1e-6:
                break
            factor[step, step] = np.sqrt(rest)
            which[i, step] = best
            value = np.float64(start[best])
            for b in range(step):
                value -= factor[step, b] * partial[b]
            partial[step] = value / factor[step, step]
            for a in range(step, -1, -1):
                value = partial[a]
                for b in range(a + 1, step + 1):
                    value -= factor[b, a] * solution[b]
                solution[a] = value / factor[a, a]
            for a in range(step + 1):
                weights[i, a] = solution[a]
            if step + 1 < k:
                left[:] = start
                for a in range(step + 1):
                    _subtract(left, np.float32(solution[a]), gram[which[i, a]])


@kernel
def _subtract(left, weight, row):
    for j in range(len(left)):
        left[j] -= weight * row[j]


@kernel
def _largest(bits):
    """First position of the largest magnitude. It takes the ``bits`` of float32, as integers compare in vectors."""
    largest = np.int32(0)
    for j in range(len(bits)):
        largest = max(largest, bits[j] & np.int32(0x7FFFFFFF))
    for j in range(len(bits)):
        if bits[j] & np.int32(0x7FFFFFFF) == largest:
            return j
    return 0


def ksvd(
    signals: NDArray[np.float32],
    n_atoms: int,
    *,
    sparsity: int,
    n_iter: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    callback: Step | None = None,
) -> NDArray[np.float32]:
    """Learn unit atoms (n_atoms, n_values) such that each signal is nearly a sum of a few of them.

    ``callback`` is called after each iteration with its number and the share of the signals' energy that the codes do
    not explain. An atom that no signal uses is replaced by the signal with the worst code.
    """
    atoms = first_atoms(signals, n_atoms, rng)
    energy = float(np.square(signals, dtype=np.float64).sum()) or 1.0
    for iteration in range(n_iter):
        which, weights = omp(signals, atoms, sparsity=sparsity, n_jobs=n_jobs)
        residual = np.empty_like(signals)

        def subtract(start: int, stop: int) -> None:
            part = slice(start, stop)
            _residual(signals[part], atoms, which[part], weights[part], residual[part])  # noqa: B023

        run_tasks(subtract, chunks(len(signals), ROWS_PER_CHUNK), n_jobs=n_jobs)
        errors = np.square(residual).sum(axis=1, dtype=np.float64)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.searchsorted(which.ravel()[order], np.arange(n_atoms + 1))
        _update_atoms(atoms, residual, weights.ravel(), order, ends)
        unused = np.flatnonzero(ends[1:] == ends[:-1])
        worst = np.argsort(-errors, kind="stable")[: len(unused)]
        for atom, signal in zip(unused, worst, strict=False):
            if (norm := np.linalg.norm(signals[signal])) > 1e-6:
                atoms[atom] = signals[signal] / norm
        if callback:
            callback(iteration, float(errors.sum()) / energy)
    return atoms


@kernel
def _residual(signals, atoms, which, weights, out):
    """Subtract the codes from ``signals`` and write the result to ``out``, all (n, values) float32."""
    for i in range(len(signals)):
        out[i] = signals[i]
        for a in range(which.shape[1]):
            if which[i, a] >= 0:
                _subtract(out[i], weights[i, a], atoms[which[i, a]])


@kernel
def _update_atoms(atoms, residual, weights, order, ends):
    """Improve each atom in turn by one power step on the signals that use it.

    Changes ``atoms``, ``residual`` and ``weights`` in place. ``order[ends[j]:ends[j + 1]]`` are the positions
    (signal * sparsity + slot) of the codes that use atom j.
    """
    k = len(weights) // len(residual)
    new = np.empty(atoms.shape[1], np.float32)
    for j in range(len(atoms)):
        places = order[ends[j] : ends[j + 1]]
        atom = atoms[j]
        new[:] = 0
        squares = np.float32(0)
        for p in places:  # (residual + atom weight') weight: the direction that fits these weights best
            _subtract(new, -weights[p], residual[p // k])
            squares += weights[p] * weights[p]
        _subtract(new, -squares, atom)
        norm = np.sqrt(np.dot(new, new))
        if norm < 1e-6:
            continue
        for v in range(len(new)):
            new[v] /= norm
        overlap = np.dot(atom, new)
        for p in places:
            row = residual[p // k]
            weight = np.dot(row, new) + weights[p] * overlap
            for v in range(len(new)):
                row[v] += weights[p] * atom[v] - weight * new[v]
            weights[p] = weight
        atom[:] = new


def spherical_kmeans(
    signals: NDArray[np.float32],
    n_atoms: int,
    *,
    sparsity: int = 1,
    n_iter: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    callback: Step | None = None,
) -> NDArray[np.float32]:
    """Learn unit atoms: each is the mean direction (up to sign) of its nearest signals. ``sparsity`` has no effect."""
    atoms = first_atoms(signals, n_atoms, rng)
    energy = float(np.square(signals, dtype=np.float64).sum()) or 1.0

    def assign(start: int, stop: int) -> tuple[NDArray[Any], float]:
        sums = np.zeros(atoms.shape, np.float32)
        return sums, _assign(signals[start:stop] @ atoms.T, signals[start:stop], sums)

    for iteration in range(n_iter):
        total = atoms.astype(np.float64)  # with the old atom in the sum, one that lost its signals stays as it is
        explained = 0.0
        for batch in chunks(len(signals), ROWS_PER_CHUNK * 16):  # so that few partial sums are in memory at a time
            for sums, share in run_tasks(
                assign,
                [(batch[0] + a, batch[0] + b) for a, b in chunks(batch[1] - batch[0], ROWS_PER_CHUNK)],
                n_jobs=n_jobs,
            ):
                total += sums
                explained += share
        norms = np.linalg.norm(total, axis=1, keepdims=True)
        atoms[:] = np.where(norms > 1e-6, total / np.maximum(norms, 1e-6), atoms)
        if callback:
            callback(iteration, 1 - explained / energy)
    return atoms


@kernel
def _assign(correlations, signals, sums):
    """Add each signal, times its correlation, to the sum of its nearest atom; return the correlations' squared sum."""
    explained = 0.0
    n, n_atoms = correlations.shape
    row = np.empty(n_atoms, np.float32)
    bits = row.view(np.int32)
    for i in range(n):
        row[:] = correlations[i]
        best = _largest(bits)
        _subtract(sums[best], -row[best], signals[i])
        explained += np.float64(row[best]) ** 2
    return explained


DICTIONARIES: dict[str, Callable[..., NDArray[np.float32]]] = {"ksvd": ksvd, "kmeans": spherical_kmeans}
