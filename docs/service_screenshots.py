"""Take the screenshots of docs/service.md: `python docs/service_screenshots.py`. It needs Chromium and the extra `dev`.

They show what `hashgrove demo --serve` serves, so anyone gets the same page.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).resolve().parent
ITEM = "#/item/9%2F0325.png"
SHOTS: dict[str, dict[str, Any]] = {
    "service-light.png": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "service-phone.png": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "dark",
        "is_mobile": True,
        "has_touch": True,
        "device_scale_factor": 1.5,
    },
}


def take(browser: Browser, address: str, name: str) -> None:
    """Take one screenshot: the neighbours of an item, with one of them under the cursor."""
    page = browser.new_page(**SHOTS[name])
    page.goto(f"{address}{ITEM}")
    page.locator("#results-items a").nth(11).wait_for()
    page.reload()  # the first search also loads what it needs
    page.locator("#results-items a").nth(11).focus()
    page.locator("#code .differs").first.wait_for()
    if SHOTS[name].get("is_mobile"):
        page.locator("#results").evaluate("section => section.scrollIntoView()")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=DOCS / name)
    with Image.open(DOCS / name) as screenshot:
        screenshot.convert("RGB").save(DOCS / name, optimize=True)


def main() -> None:
    """Serve the demo, and take all screenshots."""
    command = [sys.executable, "-m", "hashgrove", "demo", "--serve", "--port", "0"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        address = next(found[0] for line in service.stderr if (found := re.search(r"http://\S+", line)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name in SHOTS:
                take(browser, address, name)
            browser.close()
    finally:
        service.send_signal(signal.SIGINT)
        service.wait()


if __name__ == "__main__":
    main()
