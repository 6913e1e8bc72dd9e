"""The committed inputs of the readers: files on which a fault was found, and files that reach much of the code.

Those of a reader are in one archive, ``corpus/READER.zip``; `tests/hostile/test_corpus.py` reads all of them.
``python tests/hostile/fuzz_corpus.py READER NAME FILE`` adds a file on which a fault was found.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")
MOMENT = (2026, 1, 1, 0, 0, 0)  # of every file, so that the same files make the same archive


def files(reader):
    """The files of a reader by name."""
    path = FOLDER / f"{reader}.zip"
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def write(reader, contents):
    """Write the archive of a reader."""
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / f"{reader}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, MOMENT), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    reader, name, path = sys.argv[1:]
    write(reader, files(reader) | {name: Path(path).read_bytes()})
