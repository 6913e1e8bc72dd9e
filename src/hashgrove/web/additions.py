"""`Additions`: labels, fields and pictures of items that clients of the service have added.

In the folder of an index they are a journal, ``added.jsonl``, and the folder ``pictures``, whose files have the SHA-256
of their content as names, so no client chooses one. A line of the journal is one change: the entries of some items, or
null for those that have none any more, and the digest of the manifest before it. The line is on disk before the index
is changed. So a change that was not finished, the last line beside a manifest that is still the one before, does not
count, and details appear and disappear together with their items.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from hashgrove.index.folder import MANIFEST, Folder
from hashgrove.storage.atomic import atomic_write, sync_name
from hashgrove.storage.formats import FileError, check_fits_memory

__all__ = ["Additions", "Entry", "forget_additions"]

JOURNAL, PICTURES = "added.jsonl", "pictures"
PICTURE = re.compile(r"[0-9a-f]{64}")
MAX_MANIFEST, MAX_JOURNAL = 2**17, 2**30
SPARE_LINES = 1024  # that say nothing new, until the journal is written anew


@dataclass(frozen=True)
class Entry:
    """Label, fields and picture of an item: what there is of them, or nothing.

    Attributes
    ----------
    label : str
    fields : dict from str to str
        The one called "name" is the name of the item.
    picture : str
        SHA-256 of the picture, which is the name of its file.
    """

    label: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    picture: str = ""

    def as_json(self) -> dict[str, Any]:
        """The members that are not empty."""
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def from_json(cls, value: Any) -> Entry:
        """An entry of the journal; ValueError if it is none."""
        entry = cls(**value)
        texts = [entry.label, entry.picture, *entry.fields, *entry.fields.values()]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("must be texts")
        if entry.picture and not PICTURE.fullmatch(entry.picture):
            raise ValueError("must name a picture by its digest")
        return entry


class Additions:
    """The entries of items, by id as a text. Without a folder they are kept in memory, and there are no pictures.

    Parameters
    ----------
    folder : str, optional
        The folder of an index.
    has : function, optional
        Which of some ids are in the index. With it, the folder is written to: what an interrupted change left is
        removed. It needs the lock of the index.

    Examples
    --------
    >>> additions = Additions()
    >>> with additions.change({"7": Entry(label="cat")}):
    ...     pass  # the index is changed here
    >>> additions.entries["7"].label
    'cat'
    """

    def __init__(self, folder: str | None = None, *, has: Callable[[list[str]], Iterable[bool]] | None = None) -> None:
        self.folder = None if folder is None else os.path.abspath(folder)
        self._files = None if folder is None else Folder(folder)
        self.entries: dict[str, Entry] = {}  # never changed, but replaced by another
        self._size = self._n_lines = 0  # bytes and lines of the journal that count
        self._seen: object = None  # what the journal was when it was read
        if self.folder is not None:
            self._read()
            if has is not None:
                self._clean(has)

    @property
    def keeps_pictures(self) -> bool:
        """Whether pictures of items can be kept."""
        return self.folder is not None

    def picture(self, id_: str) -> str | None:
        """The file of the picture of an item; None if there is none."""
        entry = self.entries.get(id_)
        if entry is None or not entry.picture or self.folder is None:
            return None
        return os.path.join(self.folder, PICTURES, entry.picture)

    def keep(self, content: bytes) -> str:
        """Write a picture durably, and return what an `Entry` calls it. `change` has to name it then."""
        assert self.folder is not None
        assert self._files is not None
        self._files.check_in_place()
        name, place = hashlib.sha256(content).hexdigest(), os.path.join(self.folder, PICTURES)
        try:
            with suppress(FileExistsError):
                os.mkdir(place)
                sync_name(place)
        except OSError as error:
            raise FileError(f"{place}: cannot be written: {error.strerror or error}") from error
        if os.path.islink(place) or not os.path.isdir(place):
            raise FileError(f"{place}: must be a folder. Got a link or something else.")
        path = os.path.join(place, name)
        if not os.path.exists(path):
            with atomic_write(path) as file:
                file.write(content)
        return name

    @contextmanager
    def change(self, changes: Mapping[str, Entry | None]) -> Iterator[None]:
        """Set the entries of some items, None for those that shall have none, while the index is changed.

        If changing the index fails, they stay as they were. Pictures that no item has any more are removed.
        """
        changes = {id_: entry for id_, entry in changes.items() if entry is not None or id_ in self.entries}
        if not changes:
            yield
            return
        end = self._size
        if self.folder is not None:
            before = self._manifest()
            end = self._append({"before": before, "items": _as_json(changes)})
        try:
            yield
        except BaseException:
            if self.folder is not None and self._manifest() != before:  # the index has been changed nevertheless
                self._take(changes, end)
            else:
                self._remove_pictures(changes.values())  # the line is written over by the next change
            raise
        self._take(changes, end)

    def refresh(self) -> bool:
        """Read what another process has written; return whether there was anything."""
        if self.folder is None or self._files is None:
            return False
        if not self._files.is_in_place():
            self._files = Folder(self.folder)
        if self._state() == self._seen:
            return False
        before = self.entries
        self._read()
        return self.entries != before

    def _take(self, changes: Mapping[str, Entry | None], end: int) -> None:
        old = [self.entries[id_] for id_ in changes if id_ in self.entries]
        self.entries, self._size, self._n_lines = _changed(self.entries, changes), end, self._n_lines + 1
        self._remove_pictures(old)
        if self.folder is not None and self._n_lines > 2 * len(self.entries) + SPARE_LINES:
            with suppress(FileError):
                self._rewrite()

    def _remove_pictures(self, entries: Iterable[Entry | None]) -> None:
        """Remove pictures that no entry names any more, as far as that is possible."""
        names = {entry.picture for entry in entries if entry is not None and entry.picture}
        if not names or self.folder is None:
            return
        for name in names - {entry.picture for entry in self.entries.values()}:
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, PICTURES, name))

    def _manifest(self) -> str:
        """Digest of the manifest of the index."""
        assert self._files is not None
        try:
            return hashlib.sha256(self._files.read(MANIFEST, MAX_MANIFEST)).hexdigest()
        except FileNotFoundError as error:
            raise FileError(f"{self._files.path / MANIFEST}: no such file") from error

    def _state(self) -> tuple[int, int, int, str] | None:
        """What the journal is now. The last change counts only with the manifest after it."""
        assert self.folder is not None
        try:
            found = os.stat(os.path.join(self.folder, JOURNAL))
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, self._manifest()

    def _append(self, line: Mapping[str, Any]) -> int:
        """Write a line behind those that count, durably; return where it ends."""
        assert self._files is not None
        self._files.check_in_place()
        content = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            self._files.append(JOURNAL, self._size, [memoryview(content)])
        except FileNotFoundError as error:
            raise FileError(f"{self._files.path / JOURNAL}: no such file") from error
        if not self._size:
            self._files.sync()
        return self._size + len(content)

    def _read(self) -> None:
        """Read the journal, which is untrusted."""
        assert self._files is not None
        seen, path = self._state(), self._files.path / JOURNAL
        if seen is None:
            self._seen, self.entries, self._size = None, {}, 0
            return
        check_fits_memory(str(path), 8 * seen[1])
        if seen[1] > MAX_JOURNAL:
            raise FileError(f"{path}: must have at most {MAX_JOURNAL} bytes. Got {seen[1]}.")
        content = self._files.read(JOURNAL, seen[1])
        whole = content[: content.rfind(b"\n") + 1]  # a line that was not finished does not count
        entries: dict[str, Entry] = {}
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            if lines and lines[-1]["before"] == self._manifest():
                whole = whole[: whole.rfind(b"\n", 0, -1) + 1]
                lines.pop()
            for line in lines:
                changes = {
                    id_: None if value is None else Entry.from_json(value) for id_, value in line["items"].items()
                }
                _update(entries, changes)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(f"{path}: must be a journal of what the service has added. It cannot be read.") from error
        self._seen, self.entries, self._size, self._n_lines = seen, entries, len(whole), len(lines)

    def _clean(self, has: Callable[[list[str]], Iterable[bool]]) -> None:
        """Forget items that are not in the index, and what interrupted changes left."""
        ids = [*self.entries]
        gone = [id_ for id_, there in zip(ids, has(ids), strict=True) if not there] if ids else []
        for id_ in gone:
            del self.entries[id_]
        if self._seen is not None and (gone or self._n_lines > len(self.entries) + SPARE_LINES):
            self._rewrite()
        place = os.path.join(self.folder or "", PICTURES)
        if os.path.isdir(place) and not os.path.islink(place):
            named = {entry.picture for entry in self.entries.values()}
            for name in os.listdir(place):
                if PICTURE.fullmatch(name) and name not in named:
                    with suppress(OSError):
                        os.unlink(os.path.join(place, name))

    def _rewrite(self) -> None:
        """Write the journal anew, as one line."""
        line = json.dumps({"before": "", "items": _as_json(self.entries)}, separators=(",", ":")).encode() + b"\n"
        assert self.folder is not None
        with atomic_write(os.path.join(self.folder, JOURNAL)) as file:
            file.write(line)
        self._size, self._n_lines = len(line), 1


def forget_additions(folder: str, ids: Iterable[Any] | None = None) -> None:
    """Forget what the service knows of some items, or of all: they are others now. It needs the lock of the index."""
    if not os.path.exists(os.path.join(folder, JOURNAL)):
        return
    gone = None if ids is None else {str(id_) for id_ in ids}
    Additions(folder, has=lambda known: [gone is not None and id_ not in gone for id_ in known])


def _as_json(entries: Mapping[str, Entry | None]) -> dict[str, Any]:
    return {id_: None if entry is None else entry.as_json() for id_, entry in entries.items()}


def _update(entries: dict[str, Entry], changes: Mapping[str, Entry | None]) -> None:
    for id_, entry in changes.items():
        if entry is None:
            entries.pop(id_, None)
        else:
            entries[id_] = entry


def _changed(entries: Mapping[str, Entry], changes: Mapping[str, Entry | None]) -> dict[str, Entry]:
    found = dict(entries)
    _update(found, changes)
    return found
