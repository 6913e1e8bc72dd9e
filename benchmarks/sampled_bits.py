"""What is lost if step 1 runs on a sample of the rows, and the other rows follow their classes.

`python benchmarks/sampled_bits.py ../shared/data` fits FastHash on real data, once with step 1 on all training rows and
once with step 1 on a part of them, and prints how many of the inferred values are those of most rows of the class, how
many bits of the codes of the classes are equal, and the MAP of held-out rows, training rows being the database. A share
of .999 shows how much other random pairs change.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from environment import machine
from hashgrove import BoostedTrees, FastHash, PosteriorBits, evaluate, fasthash, unpack

DATA = {  # name -> (file, features, scale and least value of the features, labels)
    "CIFAR-10 GIST": ("cifar10_gist512_u8.npz", "X", ("scale", "lo")),
    "Tiny ImageNet-100": ("tinyimagenet100_eff.npz", "eff_u8", ("eff_scale", "eff_lo")),
    "BANKING77": ("banking77_minilm.npz", "X_u8", ("scale", "lo")),
}
LEARNERS: dict[str, Any] = {
    "posterior": PosteriorBits(),
    "trees": BoostedTrees(n_trees=50),
    "paper's trees": BoostedTrees.paper(n_trees=50),
}
N_QUERIES = 1000


def read(folder: Path, name: str) -> tuple[Any, Any]:
    """Return the rows of a data set, as float32, and their classes."""
    file, features, (scale, low) = DATA[name]
    with np.load(folder / file, allow_pickle=False) as arrays:
        X = arrays[features].astype(np.float32)
        if scale in arrays:
            X = X * arrays[scale] + arrays[low]
        return X.astype(np.float32), arrays["y"].astype(np.int64)


def split(y: Any, seed: int, n_train: int) -> tuple[Any, Any]:
    """Return the numbers of training rows and of queries."""
    order = np.random.default_rng(seed).permutation(len(y))
    return order[N_QUERIES : N_QUERIES + n_train], order[:N_QUERIES]


def compare(X: Any, y: Any, learner: Any, seed: int, n_train: int, share: float, n_bits: int) -> list[float]:
    """Return the share of values that follow the class, that of equal class codes, and both MAPs."""
    trained, queries = split(y, seed, n_train)
    names, classes = np.unique(y[trained], return_inverse=True)
    found, paper = [], getattr(learner, "leaves", "") == "sign"
    limit = fasthash.STEP_ONE_ROWS
    for rows in (len(trained), int(share * len(trained))):
        fasthash.STEP_ONE_ROWS = rows
        make = FastHash.paper if paper else FastHash
        hasher = make(n_bits, hash_function=learner, generic_bits=0, random_state=seed, n_jobs=1)
        hasher.fit(X[trained], y[trained])
        words = unpack(hasher.codewords_.of_labels(names), n_bits)
        follows = (unpack(hasher.inferred_codes_, n_bits) == words[classes]).mean()
        report = evaluate(
            hasher.transform(X[trained]),
            hasher.transform(X[queries]),
            y_queries=y[queries],
            y_database=y[trained],
            knn=None,
        )
        found.append((follows, words, report.map))
    fasthash.STEP_ONE_ROWS = limit
    (follows, words, of_all), (_, others, of_part) = found
    return [float(follows), float((words == others).mean()), of_all, of_part]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--rows", type=int, default=12_000, help="training rows")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.25])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--bits", type=int, default=32)
    options = parser.parse_args(arguments)
    print(machine())
    for name in options.sets:
        X, y = read(options.data, name)
        for title in options.learners:
            for share in options.shares:
                runs = [
                    compare(X, y, LEARNERS[title], seed, options.rows, share, options.bits)
                    for seed in range(options.seeds)
                ]
                follows, equal, of_all, of_part = np.mean(runs, axis=0)
                change = np.std([run[3] - run[2] for run in runs])
                print(
                    f"{name}, {title}, step 1 on {share:.0%}: {follows:.2%} of the values are those of the class, "
                    f"{equal:.2%} of the class codes are equal; MAP {of_all:.4f} -> {of_part:.4f} (+-{change:.4f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
