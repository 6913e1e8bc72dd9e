"""The scripts that measure on CIFAR-10, on small data: the SVM that judges features, the table, and a whole run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cifar10_codebook
import cifar10_runs
import linear_svm


def test_the_svm_equals_liblinear(monkeypatch):
    monkeypatch.setattr(linear_svm, "CHUNK_VALUES", 64 * 100)  # several chunks, the last one short
    X, y = load_digits(return_X_y=True)
    penalty = 0.05
    weights, _ = linear_svm.train(X.astype(np.uint8), y, 1000, penalty=penalty, n_iter=500)
    scaled = StandardScaler().fit(X[:1000])
    # C sum of losses + |w|^2 / 2 is our mean of losses + penalty |w|^2 with C = 1 / (2 n penalty)
    peer = LinearSVC(C=1 / (2 * 1000 * penalty), intercept_scaling=100, tol=1e-6, max_iter=100_000, dual=False)
    peer.fit(scaled.transform(X[:1000]), y[:1000])
    expected = peer.decision_function(scaled.transform(X[1000:]))
    np.testing.assert_allclose(linear_svm.scores(X[1000:], weights), expected, atol=0.02)


def test_the_penalty_is_chosen_on_held_out_rows():
    X, y = load_digits(return_X_y=True)
    result = linear_svm.accuracy(X, y, n_train=1500, penalties=[0.01, 100.0], n_iter=50)
    assert result["penalty"] == 0.01
    assert result["held_out_accuracy"][0.01] > result["held_out_accuracy"][100.0]
    assert result["accuracy"] > 0.85


def test_a_section_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10_runs, "DOCS", tmp_path)
    page = tmp_path / "results.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n")
    cifar10_runs.write_section("a", ["| new |", "end"])
    assert page.read_text() == "before\n<!-- a -->\n| new |\nend\n<!-- /a -->\nafter\n"
    with pytest.raises(SystemExit, match="no marker"):
        cifar10_runs.write_section("b", [])


def test_codebook_runs_end_to_end_on_few_images(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 2
    images = rng.integers(100, 156, (160, 12, 12, 3)).astype(np.uint8)
    images[labels == 1, ::2] += 60  # stripes
    np.savez(tmp_path / "images.npz", X=images, y=labels)
    results = tmp_path / "docs" / "results" / "cifar10-codebook"
    for module in (cifar10_codebook, cifar10_runs):
        monkeypatch.setattr(module, "N_TRAIN", 120)
        monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(cifar10_codebook, "RESULTS", results)
    monkeypatch.setitem(
        cifar10_codebook.FEATURES, "800", {"n_atoms": 6, "n_patches": 500, "n_iter": 2, "patch_size": 4}
    )
    small = {"loss": "ksh", "hash_function": cifar10_codebook.BoostedTrees(n_trees=2)}
    monkeypatch.setitem(cifar10_codebook.HASHES, "ksh-800", ("800", small))
    for name in ("accuracy-800", "ksh-800"):
        result = cifar10_codebook.run(name, str(tmp_path / "images.npz"), tmp_path)
        cifar10_runs.write_json(results / f"{name}.json", result)
    (tmp_path / "docs" / "results.md").write_text("<!-- cifar10-codebook -->\n<!-- /cifar10-codebook -->\n")
    cifar10_codebook.report()
    page = (tmp_path / "docs" / "results.md").read_text()
    assert "| 800 | 84 |" in page
    assert json.loads((results / "accuracy-800.json").read_text())["accuracy"] > 0.9
    assert "| ksh-800 | 120 | **" in page
