"""The real service in a thread and a real browser, for tests of the page: digits with images, texts without."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from sklearn.datasets import load_digits

from hashgrove import FlatIndex, Gist
from hashgrove import load as load_model
from hashgrove.baselines import SDH
from hashgrove.web.collection import Collection
from hashgrove.web.details import Details
from hashgrove.web.images import images_in_folder

PATIENCE = 30_000  # milliseconds until something counts as missing, on a machine that is busy with other tests
N_IMAGES = 150
N_TRAINED = 50  # so few that items of a class get different codes
SIDE = 32  # pixels of an image


def write_digits(folder, names, *, first):
    """Write digits of scikit-learn as images with these names, from the digit ``first`` on; gives their paths."""
    folder.mkdir()
    for pixels, name in zip(load_digits().images[first:], names, strict=False):
        small = Image.fromarray((255 - pixels * 15.9).astype(np.uint8))
        small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / name)
    return [str(folder / name) for name in names]


def collection_with_images(folder):
    """Digits as images, with labels, a model that takes images, and features for re-ranking."""
    images, others = folder / "images", folder / "others"
    names = [f"digit {number:03}.png" for number in range(N_IMAGES)]
    files = write_digits(images, names, first=0)
    trained = write_digits(others, names[:N_TRAINED], first=N_IMAGES)
    targets = load_digits().target.astype(str)
    extractor = Gist(image_size=SIDE).fit(trained)
    hasher = SDH(32, random_state=0).fit(extractor.transform(trained), targets[N_IMAGES : N_IMAGES + N_TRAINED])
    hasher.save(folder / "model.hashgrove", features=extractor)
    model = load_model(folder / "model.hashgrove")
    X = extractor.transform(files)
    index = FlatIndex(hasher.transform(X), ids=names, model=model)
    index.keep_features(X, ids=names)
    labels = targets[:N_IMAGES]
    details = Details(np.array(names), labels=labels)
    return Collection(index, "digits.hgi", model=model, details=details, find_image=images_in_folder(str(images)))


def collection_of_texts():
    """Codes of eight bytes with fields, without images, labels and a model. One field looks like markup."""
    rng = np.random.default_rng(0)
    ids = np.arange(40)
    titles = ["<img src='x' onerror='alert(1)'>", *(f"Report on topic {row % 7}" for row in ids[1:])]
    columns = {"title": titles, "year": [str(1990 + row) for row in ids]}
    codes = rng.integers(0, 256, (len(ids), 8), dtype=np.uint8)
    return Collection(FlatIndex(codes), "reports.hgi", details=Details(ids, columns=columns))


@contextmanager
def chromium():
    """Debian's Chromium without a window. Where there is none, tests are skipped, unless they must run."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        reason = "there is no Chromium (Debian: apt-get install chromium)"
        pytest.fail(reason) if os.environ.get("HASHGROVE_REQUIRE_BROWSER") else pytest.skip(reason)
    switches = ["no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update"]
    switches += ["disable-sync", "no-first-run"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[f"--{switch}" for switch in switches])
        yield browser
        browser.close()


@contextmanager
def opened(browser, *, allowed="", **settings):
    """A page of a new visitor. It may ask no other host, break no rule of its policy and log no error.

    ``allowed`` is a part of the messages that a test expects, such as the status of a refused request.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | settings)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    asked, messages = [], []
    page.on("request", lambda request: asked.append(urlsplit(request.url)))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    yield page
    context.close()
    assert {url.hostname for url in asked if url.scheme not in ("blob", "data")} <= {"127.0.0.1"}
    assert [message for message in messages if not allowed or allowed not in message] == []
