"""The examples of the documentation run as they stand, links lead somewhere, and every public name is documented."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner
from test_architecture import MAY_IMPORT

import hashgrove
from experiments.datasets import DATASETS
from hashgrove import cli
from hashgrove.baselines import BASELINES
from hashgrove.encoders import ENCODERS
from hashgrove.features import FEATURES
from hashgrove.functions import HASH_FUNCTIONS
from hashgrove.index import INDEXES
from hashgrove.inference import SOLVERS
from hashgrove.losses import LOSSES
from hashgrove.web.app import ROUTES
from paths import DOCS, REPOSITORY

PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.glob("**/*.md"))]
REGISTRIES = (LOSSES, SOLVERS, HASH_FUNCTIONS, ENCODERS, BASELINES, INDEXES, FEATURES, DATASETS, ROUTES)
BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page):
    return page.relative_to(REPOSITORY).as_posix()


def code(page):
    """The Python code of a page as one program; blocks that are files of their own are left out."""
    return "\n".join(body for kind, more, body in BLOCK.findall(page.read_text()) if kind == "python" and not more)


@pytest.fixture
def registries():
    """What examples register is gone after the test."""
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, members in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(members)


@pytest.mark.parametrize("page", [page for page in PAGES if code(page)], ids=name_of)
def test_python_examples_run(page, tmp_path, monkeypatch, registries):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("documentation_example")  # dataclasses look up the module of a class
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code(page), str(page), "exec"), vars(module))


def test_the_examples_of_extending_register_a_member_everywhere(tmp_path, monkeypatch, registries):
    before = [set(registry) for registry in REGISTRIES]
    monkeypatch.chdir(tmp_path)
    module = ModuleType("documentation_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(code(DOCS / "extending.md"), "extending.md", "exec"), vars(module))
    assert all(len(set(registry) - names) == 1 for registry, names in zip(REGISTRIES, before, strict=True))


def test_the_command_of_extending_runs_as_a_file_and_a_name(tmp_path, monkeypatch):
    ((_, more, body),) = [block for block in BLOCK.findall((DOCS / "extending.md").read_text()) if "file=" in block[1]]
    name = Path(more.strip().removeprefix("file=")).stem
    module = ModuleType(f"hashgrove.cli.{name}")
    exec(compile(body, "<extending.md>", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli.main, "names", (*cli.COMMANDS, name))
    np.save(tmp_path / "codes.npy", np.array([[1], [2], [1]], np.uint8))
    result = CliRunner().invoke(cli.main, [name, str(tmp_path / "codes.npy")])
    assert (result.output, result.exit_code) == ("2\n", 0)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text()), f"{target}{anchor}"


def anchors(text):
    """The anchors that GitHub and Sphinx make of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "name",
    ["FastHash", "BoostedTrees", "PosteriorBits", "LinearSVM", "KernelSVM", "Gist", "Codebook", "OnnxFeatures"],
)
def test_every_setting_is_documented(name):
    text = (DOCS / "parameters.md").read_text()
    for parameter in getattr(hashgrove, name)().get_params(deep=False):
        assert f"`{parameter}`" in text, f"{name}: {parameter}"


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(page.read_text() for page in sorted((DOCS / "api").glob("*.rst")))
    listed = {member.__name__ for registry in registered(reference) for member in registry.values()}
    for name in set(hashgrove.__all__) - {"__version__"} - listed:
        assert re.search(rf":: hashgrove\.{name}\n", reference), name


def registered(reference):
    """The registries whose members the reference documents one by one."""
    for path in re.findall(r"\.\. registry:: (\S+)\n(?!\s+:names:)", reference):
        module, _, name = path.rpartition(".")
        yield getattr(import_module(module), name)


def test_the_reference_lists_every_registry():
    text = (DOCS / "api" / "registries.rst").read_text()
    for room in ("losses", "inference", "functions", "encoders", "baselines", "index", "features", "cli"):
        assert f"``hashgrove.{room}." in text, room


def test_every_question_of_the_faq_is_linked_from_the_readme_or_one_click_away():
    questions = {anchor for anchor in anchors((DOCS / "faq.md").read_text()) if anchor != "#frequently-asked-questions"}
    linked = set(re.findall(r"docs/faq\.md(#[\w-]+)", (REPOSITORY / "README.md").read_text()))
    assert linked <= questions
    assert len(linked) >= 10
    assert "(docs/faq.md)" in (REPOSITORY / "README.md").read_text()


def test_the_page_about_rooms_says_what_the_architecture_allows():
    rows = re.findall(
        r"^\| `([\w.]+?)(?:\.py|/)?` \| [^|]* \| ([^|]*)\|$", (DOCS / "how-it-works.md").read_text(), re.MULTILINE
    )
    described = {part: set(re.findall(r"`([\w.]+)`", names)) for part, names in rows if "everything" not in names}
    internal = {"cli", "__main__", "__init__", "_version"}
    assert described == {part: set(names) - internal for part, names in MAY_IMPORT.items() if part not in internal}


def run(script, *arguments):
    """Import a script of the repository and call its ``main``."""
    path = REPOSITORY / script
    sys.path.insert(0, str(path.parent))  # as when it is started as a script
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, lambda **settings: module.main(list(arguments), **settings)


def test_times_of_a_fit_are_measured_once_and_shown(tmp_path):
    page = tmp_path / "fit-times.md"
    _, main = run("benchmarks/fit_times.py", "--page", str(page))
    main(sizes=[(100, 4, 2)])
    records = json.loads(page.with_suffix(".json").read_text())
    assert [(r["rows"], r["features"], r["bits"]) for r in records] == [(100, 4, 2)]
    main(sizes=[(100, 4, 2), (100, 4, 3)])
    again = json.loads(page.with_suffix(".json").read_text())
    assert again[0] == records[0]
    assert len(again) == 2
    assert page.read_text().count("\n| 100 | 4 | ") == 2


@pytest.mark.parametrize(("script", "page"), [("fit_times.py", "fit-times"), ("must_reach.py", "eight-bytes")])
def test_pages_of_measurements_are_made_from_their_data(script, page):
    module, _ = run(f"benchmarks/{script}")
    module.is_fresh = lambda record: True  # the code may have changed since
    committed = (DOCS / f"{page}.md").read_text().replace(", with older code", "")
    assert committed == module.page(json.loads((DOCS / f"{page}.json").read_text()))


def test_the_table_of_the_readme_is_made_from_its_data(tmp_path):
    module, _ = run("docs/comparison.py")
    page = tmp_path / "README.md"
    page.write_text((REPOSITORY / "README.md").read_text())
    module.write_table(page, module.table(json.loads((DOCS / "comparison.json").read_text())))
    assert page.read_text() == (REPOSITORY / "README.md").read_text()


def test_float_vectors_are_measured_like_codes():
    module, _ = run("docs/comparison.py")
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]] * 4), np.array([0, 0, 1, 1] * 4)
    task = module.Task((X, y), (X, y), (np.array([[-1.0]]), np.array([0])))
    figures = module.measure_vectors(task)
    assert (figures["bytes"], figures["map"], figures["precision"]) == (4, pytest.approx(1.0), 0.8)


def test_the_reference_of_the_commands_is_made_from_the_commands(tmp_path, monkeypatch, capsys):
    module, main = run("docs/cli_reference.py", "--check")
    assert main() == 0, "run python docs/cli_reference.py --write"
    page = tmp_path / "cli.md"
    page.write_text((DOCS / "cli.md").read_text().replace("Length of a code.", "Length of it."))
    monkeypatch.setattr(module, "PAGE", page)
    assert main() == 1
    assert "run python docs/cli_reference.py --write" in capsys.readouterr().err
    module.main(["--write"])
    assert page.read_text() == (DOCS / "cli.md").read_text()
    page.write_text(page.read_text().replace("<!-- hashgrove query -->", ""))
    with pytest.raises(SystemExit, match="commands without a place: \\['hashgrove query'\\]"):
        main()


def test_version_is_the_same_everywhere():
    assert f"version: {hashgrove.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()
