"""Index folders for tests/hostile/fuzz.py: seeds that change one file of a folder, and functions that use the folder.

A mutated folder is kept as one file, a zip archive. Its name, with an ending, is the name of the folder that it is
unpacked to, so that errors about the folder begin with the name of the file. Where a file has a checksum in the
manifest, some seeds are changed before the checksum is computed.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
from fuzz_seeds import Seed

MANIFEST = "manifest.json"
CODES = np.arange(14, dtype=np.uint8).reshape(7, 2)


def saved_folders():
    """The files of small indexes: integers in order, texts out of order; both with removed items and features."""
    from hashgrove.index import FlatIndex, MultiIndex, load_index

    for make, ids in ((FlatIndex, range(7)), (MultiIndex, ["d", "é", "b", "long name of a picture", "c", "a", "e"])):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "index"
            make(CODES[:3], ids=list(ids)[:3], model="m").save(folder)
            with load_index(folder, writable=True) as index:
                rows = np.linspace(-1, 1, 7 * 3).reshape(7, 3)
                index.add(CODES[3:], ids=list(ids)[3:], features=rows[3:], model="m")
                index.update(CODES[:1], ids=list(ids)[3:4], features=rows[:1], model="m")
                index.remove(list(ids)[1:3])
                index.keep_features(rows[:1], ids=list(ids)[:1])
            with load_index(folder, writable=True) as index:
                index._min_items = 1
                index.prepare()
            yield {path.name: path.read_bytes() for path in folder.iterdir() if path.stat().st_size}


def folder_seeds():
    """For each file of each folder: the file as it is, and the file with checksums that are computed afterwards."""
    for files in saved_folders():
        for name in files:
            yield Seed(files[name], lambda payload, files=files, name=name: packed(files | {name: payload}))
            payload = values_of(files) if name == MANIFEST else files[name]
            yield Seed(payload, lambda payload, files=files, name=name: packed(signed(files, name, payload)))


def values_of(files):
    return json.dumps(json.loads(files[MANIFEST])["hashgrove-index"]).encode()


def signed(files, name, payload):
    """The files with another content of one, or other values in the manifest, and with the checksums of that."""
    files = files | {name: payload}
    kind = name.partition("-")[0]
    try:
        values = json.loads(payload if name == MANIFEST else values_of(files))
    except ValueError:  # no JSON any more
        return files
    if name != MANIFEST:
        n_rows = values["n_rows"]
        counted = {"codes": values["n_bytes"] * n_rows, "ids": (values["text_width"] or 8) * n_rows}
        counted |= {"texts": values.get("n_text_bytes", 0), "removed": 16 * values["n_removed"]}
        counted |= {"features": (4 + values["n_features"]) * n_rows, "tables": len(payload)}
        values[f"{kind}_crc"] = zlib.crc32(payload[: counted[kind]])
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return files | {MANIFEST: json.dumps({"hashgrove-index": values, "sha256": digest}).encode()}


def packed(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(name, content)
    return buffer.getvalue()


def unpacked(path):
    folder = path.with_name(f"{path.name}.hgi")
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


def search_folder(path):
    """Everything that a reader of an index does."""
    from hashgrove.codes import Codes
    from hashgrove.index import Rerank, load_index

    index = load_index(unpacked(path))
    index._min_items, index._budget, index._share = 1, 1e12, 1  # few items are searched by tables, too
    assert index.refresh() is False
    index.prepare()
    assert len(index.codes) == len(index.ids) == len(index)
    if index.n_bytes is None:
        return
    queries = Codes(np.zeros((2, index.n_bytes), np.uint8), model=index.model)
    index.search(queries, 3, n_jobs=1)
    index.search_radius(queries, 9, n_jobs=1)
    index.search(queries, 3, allowed=index.ids[:2], n_jobs=1)
    kept = index.features
    if kept is not None and len(index) and np.isin(index.ids, kept.ids).all():
        index.search(queries, 3, rerank=Rerank(), features=np.ones((2, kept.n_features)), n_jobs=1)


def change_folder(path):
    """Everything that a writer does; afterwards the folder must be readable."""
    from hashgrove.index import load_index

    folder = unpacked(path)
    with load_index(folder, writable=True) as index:
        new = ["new", "a name of more than sixteen bytes"] if index.ids.dtype.kind == "U" else [-5, 10**15]
        codes = np.ones((2, index.n_bytes or 1), np.uint8)
        index.add(codes, ids=new, replace=True, model=index.model)
        index.remove(index.ids[:1])
        kept = index.features
        if kept is not None:
            index.keep_features(np.ones((2, kept.n_features)), ids=new)
        before = index.ids.tolist()
        index.compact()
        assert index.ids.tolist() == before
    assert load_index(folder).ids.tolist() == before
