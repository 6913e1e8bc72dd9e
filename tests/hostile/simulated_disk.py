"""A disk that loses power: `System` records what `hashgrove.index.folder` calls, and `Disk` says what may be left.

What has been synced is there. Of the rest any part may be: sectors of 512 bytes are there, missing or torn, in any
order, over zeros or garbage, and so are new, renamed and removed names.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

SECTOR = 512
ROOT = 0  # the number of the folder that everything is in


class System:
    """The module os for `hashgrove.index.folder`: records what calls do to files and folders under ``root``.

    When ``left`` calls have been made, the process counts as killed: every further call fails, and does nothing.
    """

    def __init__(self, root):
        self.root, self.left, self.events = root, None, []
        self.names = {ROOT: {}}  # of each folder: numbers of the files in it
        self.handles, self.n_files = {}, 1

    def __getattr__(self, name):
        return getattr(os, name)

    def _count(self):
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise OSError(errno.EIO, "killed")

    def _find(self, path, dir_fd):
        """The folder of a path, and the name in it; None if it is not under the root."""
        if dir_fd is not None:
            return self.handles[dir_fd], path
        if not Path(path).is_relative_to(self.root):
            return None, path
        number, *parts = ROOT, *Path(path).relative_to(self.root).parts
        for part in parts[:-1]:
            number = self.names[number][part]
        return number, parts[-1] if parts else None

    def _new(self, parent, name):
        number, self.n_files = self.n_files, self.n_files + 1
        self._link(parent, name, number)
        return number

    def _link(self, parent, name, number):
        self.names[parent][name] = number
        self.events.append(("link", parent, name, number))

    def open(self, path, flags, mode=0o777, *, dir_fd=None):
        self._count()
        handle = os.open(path, flags, mode, dir_fd=dir_fd)
        parent, name = self._find(path, dir_fd)
        self.handles.pop(handle, None)
        if parent is not None:
            is_new = name is not None and name not in self.names[parent]
            self.handles[handle] = (
                ROOT if name is None else self._new(parent, name) if is_new else self.names[parent][name]
            )
        return handle

    def write(self, handle, part):
        self._count()
        offset, written = os.lseek(handle, 0, os.SEEK_CUR), os.write(handle, part)
        self.events.append(("write", self.handles[handle], offset, bytes(part[:written])))
        return written

    def ftruncate(self, handle, size):
        self._count()
        os.ftruncate(handle, size)
        self.events.append(("cut", self.handles[handle], size))

    def fsync(self, handle):
        self._count()
        self.events.append(("sync", self.handles[handle]))

    def replace(self, old, new, *, src_dir_fd=None, dst_dir_fd=None):
        self._count()
        os.replace(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        (parent, name), (_, new_name) = self._find(old, src_dir_fd), self._find(new, dst_dir_fd)
        number = self.names[parent].pop(name)
        self.names[parent][new_name] = number
        self.events.append(("rename", parent, name, new_name, number))

    rename = replace

    def unlink(self, path, *, dir_fd=None):
        self._count()
        os.unlink(path, dir_fd=dir_fd)
        parent, name = self._find(path, dir_fd)
        del self.names[parent][name]
        self.events.append(("unlink", parent, name))

    def mkdir(self, path):
        self._count()
        os.mkdir(path)
        self.names[self._new(*self._find(path, None))] = {}


class Disk:
    """What is on a disk for certain, and what may be on it, after the calls that have been given to `take`.

    Parameters
    ----------
    ignored : set
        The kinds of sync that the disk ignores: "files", "folders". It is for proving that the checks see losses.
    """

    def __init__(self, ignored=()):
        self.ignored = ignored
        self.names, self.contents = {ROOT: {}}, {}  # what is on it for certain
        self.links, self.writes = {ROOT: []}, {}  # calls that may be lost, in their order

    def take(self, kind, number, *more):
        if kind in ("link", "rename", "unlink"):
            self.links.setdefault(number, []).append((kind, *more))
        elif kind in ("write", "cut"):
            self.writes.setdefault(number, []).append((kind, *more))
        elif kind == "sync" and number in self.links:
            if "folders" not in self.ignored:
                self.names[number] = _named(self.names.get(number, {}), self.links.pop(number), lambda: True)
                self.links[number] = []
        elif kind == "sync" and "files" not in self.ignored:
            self.contents[number] = _written(self.contents.get(number, b""), self.writes.pop(number, []), None, 1)

    def lost(self, rng):
        """What one loss of power may leave: the files of each folder, as {name: bytes or {name: ...}}."""
        return self._folder(ROOT, rng, rng.choice((0, 0.5, 0.9, 1)), rng.choice((0, 0.5, 0.9, 1)))

    def _folder(self, number, rng, links, writes):
        left = {}
        names = _named(self.names.get(number, {}), self.links.get(number, []), lambda: rng.random() < links)
        for name, file in sorted(names.items()):
            if file in self.links or file in self.names:
                left[name] = self._folder(file, rng, links, writes)
            else:
                left[name] = _written(self.contents.get(file, b""), self.writes.get(file, []), rng, writes)
        return left


def _named(names, calls, is_kept):
    names = dict(names)
    for kind, name, *more in calls:
        if is_kept():
            if kind != "link":
                names.pop(name, None)
            if kind == "rename":
                name = more.pop(0)
            if kind != "unlink":
                names[name] = more[0]
    return names


def _written(old, calls, rng, share):
    """The content of a file after calls, of which each sector is kept with this probability; None of an rng for all."""
    data = bytearray(old)
    for kind, offset, *more in calls:
        if kind == "cut":
            if rng is None or rng.random() < share:
                del data[offset:]
            continue
        (new,) = more
        start, end = offset, offset + len(new)
        if len(data) < end and (rng is None or rng.random() < max(share, 0.5)):
            room = end - len(data)
            data += rng.randbytes(room) if rng is not None and rng.random() < 0.5 else bytes(room)
        while start < end:
            stop = min(end, (start // SECTOR + 1) * SECTOR)
            if rng is None or rng.random() < share:
                whole = rng is None or rng.random() < max(share, 0.8)
                part = new[start - offset : stop - offset if whole else rng.randrange(start, stop) - offset]
                data += bytes(max(0, start - len(data)))
                data[start : start + len(part)] = part
            start = stop
    return bytes(data)
