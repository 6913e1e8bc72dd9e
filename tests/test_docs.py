"""The examples of the README and the docs run as they stand, and links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", [p for p in PAGES if code(p)], ids=lambda p: p.name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code(page), str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "parameters.md",
            [
                "hashgrove.FastHash",
                "hashgrove.BoostedTrees",
                "hashgrove.LinearSVM",
                "hashgrove.KernelSVM",
                "hashgrove.Gist",
                "hashgrove.OnnxFeatures",
            ],
        ),
        ("parameters.md", ["hashgrove.Codebook"]),
    ],
)
def test_every_parameter_is_documented(page, names):
    import hashgrove

    text = (ROOT / "docs" / page).read_text()
    for name in names:
        for parameter in getattr(hashgrove, name.split(".")[1])().get_params(deep=False):
            assert f"`{parameter}`" in text, f"{name}: {parameter}"


def test_every_baseline_and_its_parameters_are_documented():
    from hashgrove.baselines import BASELINES

    text = (ROOT / "docs" / "baselines.md").read_text()
    for name, make in BASELINES.items():
        for word in (name, make.__name__, *make().get_params(deep=False)):
            assert f"`{word}`" in text, f"{name}: {word}"


def test_version_is_the_same_everywhere():
    from hashgrove import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
