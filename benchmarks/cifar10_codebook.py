"""Codebook features of CIFAR-10, the paper's high-dimensional experiment: a linear SVM on them, and FastHash.

    python benchmarks/cifar10_codebook.py cifar10.npz FOLDER                    # all runs, then the table
    python benchmarks/cifar10_codebook.py cifar10.npz FOLDER --run accuracy-800 # one run
    python benchmarks/cifar10_codebook.py --report                              # the table from the files

The file holds the images (60,000 x 32 x 32 x 3 uint8, the first 50,000 train) and their labels, as its arrays of four
dimensions and of one. Features are made when a run first needs them and kept in FOLDER (0.7 GB for 800 atoms). Each
run is a process of its own and writes its figures to docs/results/cifar10-codebook/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cifar10_runs import (
    DOCS,
    N_TRAIN,
    RETRIEVAL_HEAD,
    machine,
    machines,
    peak_memory_gb,
    read_results,
    retrieval,
    retrieval_row,
    write_json,
    write_section,
)
from hashgrove import BoostedTrees, __version__
from hashgrove.features.codebook import Codebook
from linear_svm import accuracy

RESULTS = DOCS / "results" / "cifar10-codebook"

# name of the features -> parameters of Codebook other than the defaults
FEATURES: dict[str, dict[str, Any]] = {
    "800": {"n_atoms": 800},
    "1600": {"n_atoms": 1600},
    "800-kmeans": {"n_atoms": 800, "dictionary": "kmeans"},
}
# name -> (features, parameters of FastHash other than the defaults)
HASHES: dict[str, tuple[str, dict[str, Any]]] = {
    "ksh-800": ("800", {"loss": "ksh"}),
    "ksh-800-400-features": ("800", {"loss": "ksh", "hash_function": BoostedTrees(features_per_node=400)}),
    "ksh-800-1000-features": ("800", {"loss": "ksh", "hash_function": BoostedTrees(features_per_node=1000)}),
    "ksh-800-kmeans": ("800-kmeans", {"loss": "ksh"}),
    "ksh-1600": ("1600", {"loss": "ksh"}),
}
ACCURACIES = {f"accuracy-{name}": name for name in FEATURES}
RUNS = (*ACCURACIES, *HASHES)
PENALTIES = [0.1, 0.03, 0.01, 0.003]


def images_and_labels(path: str) -> tuple[Any, Any]:
    """The arrays of four dimensions and of one in an .npz file."""
    with np.load(path) as file:
        arrays = {file[name].ndim: file[name] for name in file.files}
    return arrays[4], arrays[1]


def features(name: str, images: Any, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The features of all images, memory-mapped, and what it took to make them; made in a process of their own."""
    path, facts = folder / f"codebook-{name}.npy", folder / f"codebook-{name}.json"
    if not facts.exists():
        codebook = Codebook(**FEATURES[name], output="uint8", random_state=0, verbose=2)
        Codebook(16, n_patches=1000, n_iter=1).fit(images[:10]).transform(images[:10])  # compilation is not training
        started = time.perf_counter()
        codebook.fit(images[:N_TRAIN])
        fitted = time.perf_counter()
        codebook.transform_to(images, path)
        made = time.perf_counter()
        write_json(
            facts,
            {
                "parameters": codebook.parameters(),
                "n_features": codebook.n_features_,
                "unexplained": round(codebook.unexplained_[-1], 4),
                "seconds_fit": round(fitted - started, 1),
                "seconds_transform_60000": round(made - fitted, 1),
                "peak_memory_gb": round(peak_memory_gb(), 2),
            },
        )
    return np.load(path, mmap_mode="r"), json.loads(facts.read_text())


def run(name: str, data: str, folder: Path) -> dict[str, Any]:
    """Measure one setting on features that are there."""
    images, y = images_and_labels(data)
    X, facts = features(ACCURACIES[name] if name in ACCURACIES else HASHES[name][0], images, folder)
    del images
    if name in HASHES:
        result = retrieval(name, X, y, n_train=N_TRAIN, parameters=HASHES[name][1])
        return {**result, "features": facts}
    started = time.perf_counter()
    result = accuracy(X, y, n_train=N_TRAIN, penalties=PENALTIES, n_iter=12)
    return {
        "run": name,
        **result,
        "seconds": round(time.perf_counter() - started, 1),
        "peak_memory_gb": round(peak_memory_gb(), 2),
        "features": facts,
        "machine": machine(),
        "hashgrove": __version__,
    }


def report() -> None:
    """Write the section of docs/results.md between its two markers from the result files."""
    rows = read_results(RESULTS, ACCURACIES)
    lines = [
        "| features | dimensions | dictionary (s) | 60,000 images (s) | peak (GB) | accuracy of a linear SVM |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        f = r["features"]
        lines.append(
            f"| {r['run'].removeprefix('accuracy-')} | {f['n_features']:,} | {f['seconds_fit']:.0f} "
            f"| {f['seconds_transform_60000']:.0f} | {f['peak_memory_gb']:.2f} | **{r['accuracy']:.4f}** |"
        )
    hashes = read_results(RESULTS, HASHES)
    gist = [{**r, "run": "ksh, GIST (above)"} for r in read_results(DOCS / "results" / "cifar10-gist", ["ksh"])]
    lines += ["", *RETRIEVAL_HEAD, *map(retrieval_row, gist + hashes), "", machines(rows + hashes)]
    write_section("cifar10-codebook", lines)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="cifar10.npz")
    parser.add_argument("folder", nargs="?", type=Path, help="where features are kept")
    parser.add_argument("--run", choices=RUNS, action="append", help="only this run (may be repeated)")
    parser.add_argument("--features", choices=FEATURES, help="only make these features")
    parser.add_argument("--report", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    if not arguments.report and arguments.folder is None:
        parser.error("name the data file and a folder, or --report")
    if arguments.features:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        features(arguments.features, images_and_labels(arguments.data)[0], arguments.folder)
        return
    command = [sys.executable, __file__, str(arguments.data), str(arguments.folder)]
    for name in [] if arguments.report else arguments.run or RUNS:
        used = ACCURACIES[name] if name in ACCURACIES else HASHES[name][0]
        if not (arguments.folder / f"codebook-{used}.json").exists():
            subprocess.run([*command, "--features", used], check=True)
        if arguments.run and len(arguments.run) == 1:
            write_json(RESULTS / f"{name}.json", run(name, arguments.data, arguments.folder))
            return
        subprocess.run([*command, "--run", name], check=True)
    report()


if __name__ == "__main__":
    main()
