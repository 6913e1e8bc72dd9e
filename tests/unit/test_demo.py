"""The demo: its figures, its picture, and what it does without matplotlib."""

from __future__ import annotations

import sys

import pytest

from hashgrove.cli import main
from hashgrove.cli.digits import DEPTH, N_BITS, compare, draw, format_results


@pytest.fixture(scope="module")
def comparison():
    return compare(seed=0)


def test_fasthash_is_the_best(comparison):
    _, results = comparison
    found = {result.method: result for result in results}
    assert list(found) == ["FastHash", "ITQ", "sign threshold", "LSH"]
    for other in results[1:]:
        assert found["FastHash"].report.map > other.report.map + 0.2
        assert found["FastHash"].unseen_map > other.unseen_map + 0.2
        assert other.n_bytes == found["FastHash"].n_bytes == N_BITS // 8


def test_queries_are_not_in_the_database(comparison):
    digits, results = comparison
    assert not (digits.X_query[:, None] == digits.X_database[None]).all(axis=2).any()
    assert all(result.ids.shape == (len(digits.X_query), DEPTH) for result in results)


def test_table_has_a_row_for_each_method(comparison):
    lines = format_results(*comparison).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("method"))
    assert [line.split()[0] for line in lines[start + 1 :]] == ["FastHash", "ITQ", "sign", "LSH"]
    assert len({len(line) for line in lines[start:]}) == 1


def test_picture(comparison, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "demo.png"
    draw(*comparison, path)
    height, width, _ = image.imread(path).shape
    assert width > 1200
    assert height > 600
    assert path.stat().st_size > 50_000


def test_command_without_matplotlib(comparison, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("hashgrove.cli.digits.compare", lambda seed: comparison)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "demo.png"
    with pytest.raises(SystemExit) as ended:
        main(["demo", "-o", str(path)], prog_name="hashgrove")
    out, err = capsys.readouterr()
    assert ended.value.code == 0
    assert "FastHash" in out
    assert "pip install 'hashgrove[plot]'" in err
    assert not path.exists()
