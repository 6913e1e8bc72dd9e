"""The files that the pages docs/start-*.md begin with, their commands, and their pictures.

    python docs/start_pages.py --network net.onnx    # takes the pictures; needs Chromium and the extra dev

The tests run the commands of each page on the same files, with a smaller network.
"""

from __future__ import annotations

import argparse
import csv
import html
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from sklearn.datasets import load_digits

DOCS = Path(__file__).resolve().parent
PAGES = ("start-pictures", "start-table", "start-database")
SIDE = 96  # pixels of a picture
N_ITEMS, N_NEW = 400, 5
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 16px 20px; background: #111513; color: #e9eeea; width: max-content; }
body { font: 14px/1.45 ui-monospace, monospace; }
pre { margin: 0; } b { color: #6fcf9f; font-weight: 400; }
</style><pre>"""


def prepare(page: str, network: bytes) -> None:
    """Write the files that a page begins with into the working folder."""
    digits = load_digits()
    X, y, images = digits.data[: N_ITEMS + N_NEW], digits.target[: N_ITEMS + N_NEW], digits.images
    if page == "start-pictures":
        Path("net.onnx").write_bytes(network)
        for number in range(N_ITEMS + N_NEW):
            folder = Path("photos" if number < N_ITEMS else "more-photos", str(y[number]))
            folder.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray((255 - 15.9 * images[number]).astype(np.uint8)).convert("RGB")
            small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / f"{number:04}.png")
        shutil.copy(next(Path("more-photos").glob("*/*.png")), "new.png")
    elif page == "start-table":
        names = [f"v{column}" for column in range(X.shape[1])]
        topics = [f"topic {label}" for label in y]
        notes = [(f"note-{number:04}", f"Note {number} about {topic}") for number, topic in enumerate(topics)]
        rows = [[*note, topic, *row] for note, topic, row in zip(notes, topics, X, strict=True)]
        for number in range(0, N_ITEMS, 5):
            rows[number][2] = ""  # a text without a topic
        _write("texts.csv", ["id", "title", "topic", *names], rows[:N_ITEMS])
        _write(
            "new.csv", ["id", "title", *names], [[*note, *row] for note, row in zip(notes, X, strict=True)][N_ITEMS:]
        )
        _write("titles.csv", ["id", "title"], notes[:N_ITEMS])
    else:
        np.save("X.npy", X[:N_ITEMS])
        np.save("y.npy", y[:N_ITEMS])
        np.save("new.npy", X[N_ITEMS:])
        Path("ids.txt").write_text("".join(f"item-{number:04}\n" for number in range(N_ITEMS)))


def _write(path: str, names: list[str], rows: object) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)  # type: ignore[arg-type]


def commands(page: str) -> list[list[str]]:
    """The arguments of the commands of a page, in their order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = "".join(blocks).splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("hashgrove ")]


@contextmanager
def serving(arguments: list[str]) -> Iterator[str]:
    """Run a command that serves, at any free port; gives its address."""
    command = [sys.executable, "-m", "hashgrove", *arguments, "--port", "0"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert service.stderr is not None
    lines = []
    try:
        for line in service.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+", line):
                yield found[0]
                return
        raise AssertionError("".join(lines))
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate()


def _terminal(browser: Browser, arguments: list[str], picture: Path) -> None:
    """Run a command, and take a picture of what it prints."""
    environment = os.environ | {"COLUMNS": "100"}
    command = [sys.executable, "-m", "hashgrove", *arguments]
    done = subprocess.run(command, stdout=-1, stderr=subprocess.STDOUT, text=True, check=True, env=environment)
    shown = [line[:110] for line in done.stdout.splitlines()[:32]]
    page = browser.new_page()
    text = html.escape("\n".join(shown))
    page.set_content(f"{TERMINAL}<b>$ {html.escape(shlex.join(['hashgrove', *arguments]))}</b>\n{text}</pre>")
    page.locator("body").screenshot(path=picture)
    _make_small(picture)


def _page(browser: Browser, address: str, picture: Path, *, wait_for: str) -> None:
    """Take a picture of a page."""
    page = browser.new_page(viewport={"width": 1000, "height": 620}, color_scheme="light")
    page.goto(address)
    page.locator(wait_for).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=picture)
    _make_small(picture)


def _make_small(picture: Path) -> None:
    """Reduce a picture to 64 colours."""
    with Image.open(picture) as shown:
        shown.convert("RGB").quantize(64).save(picture, optimize=True)


def main() -> None:
    """Run the commands of all pages, and take their pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, required=True, help="ONNX network for pictures")
    network = parser.parse_args().network.read_bytes()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for page in PAGES:
            with tempfile.TemporaryDirectory(prefix="hashgrove-start-") as folder:
                os.chdir(folder)
                prepare(page, network)
                for arguments in commands(page):
                    picture = DOCS / f"{page}-{arguments[0]}.png"
                    is_shown = picture.name in (DOCS / f"{page}.md").read_text(encoding="utf-8")
                    if arguments[0] == "serve":
                        with serving(arguments) as address:
                            first = "item-0001" if page == "start-database" else "note-0007"
                            view = "" if page == "start-pictures" else f"#/item/{first}"
                            item = "#collection-items img" if not view else "#results-items a"
                            _page(browser, f"{address}{view}", picture, wait_for=item)
                    elif is_shown:
                        _terminal(browser, arguments, picture)
                    else:
                        subprocess.run([sys.executable, "-m", "hashgrove", *arguments], check=True)
                os.chdir(DOCS)
        browser.close()


if __name__ == "__main__":
    main()
