"""Which settings of Codebook make good features: a small comparison on CIFAR-10, for docs/parameters.md.

    python benchmarks/codebook_settings.py cifar10.npz                   # all settings, half a minute each
    python benchmarks/codebook_settings.py cifar10.npz --only absolute   # those whose name has this in it

400 atoms, learned from 200,000 patches of the 50,000 training images. 8,000 training images and 3,000 others of the
training set are coded; a line a setting has the accuracy of a linear SVM on the 3,000, and their MAP and precision@100
as queries with 16 bits of FastHash against the 8,000. The test set stays unseen.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from cifar10_codebook import images_and_labels
from cifar10_runs import N_TRAIN
from hashgrove import BoostedTrees, Codebook, FastHash, FlatIndex, evaluate
from linear_svm import accuracy

N_FIT, N_HELD_OUT = 8000, 3000

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "threshold 0.25": {"threshold": 0.25},
    "threshold 1": {"threshold": 1.0},
    "threshold 1.5": {"threshold": 1.5},
    "absolute": {"encoding": "absolute"},
    "split": {"encoding": "split"},
    "max": {"pooling": "max"},
    "k-means": {"dictionary": "kmeans"},
    "sparsity 1": {"sparsity": 1},
    "sparsity 10": {"sparsity": 10},
    "whitening 0.01": {"whitening": 0.01},
    "whitening 1": {"whitening": 1.0},
    "patches of 8": {"patch_size": 8},
}


def measure(images: Any, y: Any, parameters: dict[str, Any]) -> tuple[float, float, float]:
    """Accuracy, MAP and precision@100 of one setting."""
    common = {"n_atoms": 400, "n_patches": 200_000, "n_iter": 10, "random_state": 0}
    codebook = Codebook(**{**common, **parameters}).fit(images[:N_TRAIN])
    rows = np.r_[:N_FIT, N_TRAIN - N_HELD_OUT : N_TRAIN]
    X, y = codebook.transform(images[rows]), y[rows]
    judged = accuracy(X, y, n_train=N_FIT, penalties=[0.3, 0.1, 0.03, 0.01], n_iter=15)
    hasher = FastHash(16, loss="ksh", hash_function=BoostedTrees(n_trees=100), random_state=0).fit(X[:N_FIT], y[:N_FIT])
    database = FlatIndex(hasher.transform(X[:N_FIT]))
    report = evaluate(database, hasher.transform(X[N_FIT:]), y[N_FIT:], y[:N_FIT], k=100)
    return judged["accuracy"], report.map, report.precision_at_k


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="cifar10.npz")
    parser.add_argument("--only", default="", help="settings whose name has this in it")
    arguments = parser.parse_args()
    images, y = images_and_labels(arguments.data)
    for name, parameters in SETTINGS.items():
        if arguments.only in name:
            right, mean_precision, precision = measure(images, y, parameters)
            print(f"{name:>15}: accuracy {right:.4f}  MAP {mean_precision:.4f}  P@100 {precision:.4f}", flush=True)


if __name__ == "__main__":
    main()
