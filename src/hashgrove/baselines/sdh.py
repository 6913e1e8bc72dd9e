"""Supervised discrete hashing (Shen et al., CVPR 2015): codes from which a linear map predicts the labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hashgrove.encoders import Kernel
from hashgrove.hasher import SupervisedHasher
from hashgrove.numerics.gaussian import GaussianFeatures
from hashgrove.numerics.ridge import Ridge
from hashgrove.numerics.signs import nonzero_signs, signs
from hashgrove.runtime.parameters import Constraint, Integer, Number
from hashgrove.supervision import Supervision

__all__ = ["SDH"]

SWEEPS = 10  # largest number of sweeps of coordinate descent in one B-step


class SDH(SupervisedHasher):
    """Codes B from which a linear map W predicts the labels, and kernel hash functions that give B.

    It minimises ||Y - B W||^2 + regularisation ||W||^2 + nu (||B - F(X)||^2 + ridge ||P||^2), where F(X) = K P + bias.
    It alternates between P (F-step), W (G-step) and B (B-step: discrete cyclic coordinate descent, which sets one bit
    of all points at a time, in closed form). The codes B are never relaxed to real numbers.

    Parameters
    ----------
    n_bits : int
    n_anchors : int, default=1000
        Number of random training points that serve as centres of Gaussians. Their features take 8 n n_anchors bytes.
    n_labelled : int or None
        Number of random training points to learn from; None means all.
    gamma : float or None
        Width of the kernel exp(-gamma d^2); None means 1 / (2 x mean squared distance to an anchor).
    n_iter : int, default=5
        Number of rounds of the three steps.
    regularisation, nu, ridge : float, default=1, 1e-5, 1e-2
        Weights of the terms above; the defaults are those of the authors' demo.
    random_state : int, RandomState or None
        Seed of the anchors, the sample and the first codes.

    Attributes
    ----------
    encoder_ : Kernel
    codes_ : int8 array of shape (n, n_bits)
        The codes, -1 and +1, that the hash functions were fitted to, of the n points that were learned from.
    objective_ : ndarray of shape (n_iter + 1,)
        The objective per point, before the first round and after each round. It never increases.

    Notes
    -----
    Deviations: there is only the l2 loss (the paper also has a hinge loss), the bias is not penalised, and the width of
    the kernel comes from the data (the authors set 0.4 for their normalised features). Tags are used as Y directly, so
    there is no ``min_shared``.

    References
    ----------
    F. Shen, C. Shen, W. Liu and H. T. Shen, "Supervised discrete hashing", CVPR 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = SDH(16, n_anchors=100, random_state=0).fit(X[:1000], y[:1000])
    >>> hasher.score(X[1000:], y[1000:]) > 0.6
    True
    """

    codes_: NDArray[np.int8]
    objective_: NDArray[np.float64]

    needs_labels: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_anchors": Integer(1),
        "n_labelled": Integer(1, or_none=True),
        "gamma": Number(above=0, or_none=True),
        "n_iter": Integer(1),
        "regularisation": Number(above=0),
        "nu": Number(above=0),
        "ridge": Number(above=0),
    }

    def __init__(
        self,
        n_bits: int = 64,
        *,
        n_anchors: int = 1000,
        n_labelled: int | None = None,
        gamma: float | None = None,
        n_iter: int = 5,
        regularisation: float = 1.0,
        nu: float = 1e-5,
        ridge: float = 1e-2,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.n_anchors = n_anchors
        self.n_labelled = n_labelled
        self.gamma = gamma
        self.n_iter = n_iter
        self.regularisation = regularisation
        self.nu = nu
        self.ridge = ridge
        self.random_state = random_state

    def _learn(self, X: NDArray[Any], supervision: Supervision, rng: np.random.Generator) -> Kernel:
        """Alternate between the G-step, the F-step and the B-step, from random codes."""
        anchors = GaussianFeatures.draw(X, n_anchors=self.n_anchors, gamma=self.gamma, rng=rng)
        rows = supervision.draw(self.n_labelled, rng)
        Y = supervision.indicator()[rows]
        K = anchors.features(X[rows])
        centre = K.mean(axis=0)  # not 0 if only a sample of the points is learned from
        K -= centre
        regression = Ridge(K, self.ridge)

        B = signs(rng.standard_normal((len(rows), self.n_bits)))
        squares = Y.multiply(Y).sum()
        objective = np.empty(self.n_iter + 1)
        for iteration in range(self.n_iter + 1):
            products, moment = B.T @ B, (Y.T @ B).T
            W = np.linalg.solve(products + self.regularisation * np.eye(self.n_bits), moment)  # G-step
            P, bias = regression.solve(B), B.mean(axis=0)  # F-step
            F = K @ P + bias
            objective[iteration] = (
                squares
                + np.sum(W * (products @ W - 2 * moment))  # ||Y - B W||^2
                + self.regularisation * np.square(W).sum()
                + self.nu * (np.square(B - F).sum() + self.ridge * np.square(P).sum())
            ) / len(rows)
            if iteration < self.n_iter:
                code_step(B, self.nu * F + Y @ W.T, W @ W.T)
        self.codes_ = B.astype(np.int8)
        self.objective_ = objective
        return Kernel.on_features(anchors, P.T, bias - centre @ P)


def code_step(B: NDArray[np.float64], Q: NDArray[np.float64], G: NDArray[np.float64]) -> None:
    """Minimise tr(B G B') - 2 tr(B Q') over signs B, in place: bit after bit, until a sweep changes nothing."""
    for _ in range(SWEEPS):
        changed = False
        for k in range(B.shape[1]):
            pull = Q[:, k] - B @ G[:, k] + G[k, k] * B[:, k]
            bit = nonzero_signs(pull, B[:, k])
            changed = changed or not np.array_equal(bit, B[:, k])
            B[:, k] = bit
        if not changed:
            break
