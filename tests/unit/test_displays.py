"""What results, models and indexes look like: short texts, tables in HTML without markup of others, and pictures."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

from hashgrove import ITQ, FastHash, FlatIndex, PosteriorBits, choosing, evaluate, evaluate_vectors
from makers import blobs

X, Y = blobs(noise=0.3)
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def hasher():
    return FastHash(16, hash_function="posterior", random_state=0).fit(X, Y, validation=0.3)


@pytest.fixture(scope="module")
def report(hasher):
    return report_of(hasher)


@pytest.fixture(autouse=True)
def _figures():
    with mpl.rc_context({"backend": "agg"}):
        yield
    pyplot.close("all")


def report_of(hasher, k=10, y=Y, **options):
    codes = hasher.transform(X)
    return evaluate(codes, codes, y_queries=y, y_database=y, k=k, exclude_self=True, **options)


class Tags(HTMLParser):
    """The tags of a text, which must be closed, and its cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.cells = set(), [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


def test_tables_have_the_figures_of_the_texts_and_no_markup_of_others(hasher, report):
    strange = choosing.Choice(PosteriorBits(), (choosing.Trial(MARKUP, 0.5, 0.1, 9),), 1, 1, MARKUP)
    vectors = evaluate_vectors(X, X, y_queries=Y, y_database=Y, k=10, exclude_self=True)
    index = FlatIndex(hasher.transform(X))
    shown = [report, hasher.validation_, strange, vectors, index, hasher.encoder_]
    found = [Tags(one._repr_html_()) for one in shown]
    for table in found:
        assert table.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert f"{report.map:.4f}" in found[0].cells
    assert f"{hasher.validation_.map:.4f}" in found[1].cells
    assert found[2].cells.count(MARKUP) == 2
    assert f"{vectors.map:.4f}" in found[3].cells
    assert f"{vectors.map:.4f}" in str(vectors)
    assert {"FlatIndex", "240", "2"} <= set(found[4].cells)
    assert {"16", "bits"} <= set(found[5].cells)


def test_encoders_are_described_without_their_arrays(hasher):
    assert repr(hasher.encoder_) == "Spread(16 features, 16 bits)"
    assert repr(ITQ(8).fit(X).encoder_) == "Linear(16 features, 8 bits)"
    assert len(repr(FlatIndex(hasher.transform(X)))) < 80


def test_the_best_possible_precision_is_that_of_a_perfect_ranking(hasher):
    y = np.repeat(np.arange(30), 8)  # each query has 7 relevant items
    report = report_of(hasher, y=y)
    assert report.best_precision_at_k == pytest.approx(0.7)
    np.testing.assert_allclose(report.best_precision_curve, np.minimum(1, 7 / report.precision_depths))
    assert "(at most 0.7000: " in str(report)
    perfect = evaluate(y[:, None].astype(np.uint8), y[:, None].astype(np.uint8), y_queries=y, y_database=y, k=10)
    assert perfect.precision_at_k == perfect.best_precision_at_k == pytest.approx(0.8)
    np.testing.assert_allclose(perfect.precision_curve[:3], perfect.best_precision_curve[:3])
    assert "at most" not in str(report_of(hasher))
    few = FastHash(16, hash_function="posterior", random_state=0).fit(X, Y, validation=(X[::40], Y[::40] // 6))
    assert few.validation_.best_precision_at_10 < 1
    assert f"P@10 is at most {few.validation_.best_precision_at_10:.4f}" in str(few.validation_)


def test_distances_are_counted_for_relevant_and_other_items(hasher):
    report = report_of(hasher)
    bits = np.unpackbits(np.asarray(hasher.transform(X)), axis=1)
    distances = (bits[:, None] != bits[None]).sum(axis=2)
    same, other = Y[:, None] == Y[None], ~np.eye(len(Y), dtype=bool)
    expected = [np.bincount(distances[where & other], minlength=17) for where in (same, ~same)]
    np.testing.assert_array_equal([report.similar_distances, report.dissimilar_distances], expected)


def test_pictures_show_the_figures_of_the_report(report):
    display = report.plot()
    assert list(display.axes_) == ["precision", "precision-recall", "distances", "classes"]
    precision, recall, distances, classes = display.axes_.values()
    np.testing.assert_array_equal(precision.lines[0].get_ydata(), report.precision_curve)
    np.testing.assert_array_equal(precision.lines[1].get_ydata(), report.best_precision_curve)
    np.testing.assert_array_equal(recall.lines[0].get_xydata(), np.stack([report.recall, report.precision], axis=1))
    assert [bar.get_height() for bar in classes.patches] == sorted(report.class_map, reverse=True)
    assert len(distances.collections) == 2
    display.figure_.canvas.draw()


def test_two_reports_in_one_picture(hasher, report):
    itq = report_of(ITQ(16, random_state=0).fit(X))
    ax = report.plot("precision", name="FastHash").axes_["precision"]
    again = itq.plot("precision", ax=ax, name="ITQ")
    assert again.axes_ == {"precision": ax}
    assert again.figure_ is ax.figure
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["FastHash", "best possible for FastHash", "ITQ", "best possible for ITQ"]


def test_a_validation_is_drawn_as_bars(hasher):
    figure = hasher.validation_.plot()
    bars = [[bar.get_width() for bar in ax.patches] for ax in figure.axes]
    rows = hasher.validation_.rows
    assert bars == [[row.map for row in rows], [row.precision_at_10 for row in rows]]
    figure.canvas.draw()


def test_what_cannot_be_drawn(hasher, report):
    with pytest.raises(ValueError, match=r"The 'kind' parameter must be one of 'precision', .* Got 'roc' instead"):
        report.plot("roc")
    with pytest.raises(ValueError, match="The 'kind' parameter must be given with 'ax'"):
        report.plot(ax=pyplot.figure().add_subplot())
    tags = report_of(hasher, y=np.eye(12, dtype=int)[Y], min_shared=1)
    assert list(tags.plot().axes_) == ["precision", "precision-recall", "distances"]
    with pytest.raises(ValueError, match=r"for this report\. Got 'classes' instead"):
        tags.plot("classes")
    weighted = report_of(hasher, weights=np.abs(hasher.decision_function(X)))
    assert "distances" not in weighted.plot().axes_


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, hashgrove.metrics, hashgrove.validation; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_matplotlib_the_error_says_what_to_install(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plot needs matplotlib: pip install 'hashgrove\[plot\]'"):
        report.plot()
