"""The pages for beginners: their commands run one after the other on the files that the pages name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx
import pytest

from command import call
from paths import DOCS

sys.path.insert(0, str(DOCS))
import start_pages

from tiny_onnx import model

MAX_COMMANDS = 10


@pytest.mark.parametrize("page", start_pages.PAGES)
def test_the_commands_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    network = model().replace(b"mean", b"feat")  # the name of the output on the page
    start_pages.prepare(page, network)
    commands = start_pages.commands(page)
    assert 4 <= len(commands) <= MAX_COMMANDS
    for arguments in commands:
        if arguments[0] == "serve":
            with start_pages.serving(arguments) as address:
                assert httpx.get(f"{address}info").json()["items"] >= start_pages.N_ITEMS
        else:
            status, out, err = call(capsys, *arguments)
            assert status == 0, err
            assert out or err, arguments
    named = re.findall(r"`([\w.-]+\.(?:npy|csv|txt|html|hgi|hashgrove))`", (DOCS / f"{page}.md").read_text())
    assert all(Path(name).exists() for name in named)


@pytest.mark.parametrize("page", start_pages.PAGES)
def test_a_page_has_small_pictures_of_its_own_commands(page):
    names = re.findall(r"^```\{image\} (\S+)$", (DOCS / f"{page}.md").read_text(), re.MULTILINE)
    assert names
    made = {f"{page}-{arguments[0]}.png" for arguments in start_pages.commands(page)}
    assert set(names) <= made
    assert all((DOCS / name).stat().st_size < 120_000 for name in names)


def test_the_guide_leads_to_each_page():
    guide = (DOCS / "guide.md").read_text()
    assert all(f"({page}.md)" in guide for page in start_pages.PAGES)
