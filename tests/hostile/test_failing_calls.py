"""System calls that fail, one after the other: each change of an index in a folder is done wholly, or not at all.

Every call that `hashgrove.index.folder` makes in a change fails once. Then the living index and the folder are compared
with a model, and the change is tried again. Real limits (a descriptor table that is full) are tried, too.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil

import numpy as np
import pytest

from hashgrove.index import FlatIndex, folder
from hashgrove.storage.formats import FileError
from index_writer import codes_of, content, features_of
from indexes import ByTables

CALLS = "open", "write", "fsync", "replace", "unlink", "ftruncate", "lseek", "fstat", "mkdir", "rename", "listdir"
ERRORS = errno.ENOSPC, errno.EIO, errno.EMFILE, errno.ENOMEM
REFUSED = "Close the index and load it again"
IDS = [1, 4, 7, 9]
CHANGES = {
    "add behind": lambda index: index.add(codes_of([12, 15], 1), ids=[12, 15], features=features_of([12, 15], 1)),
    "add between": lambda index: index.add(codes_of([3], 1), ids=[3], features=features_of([3], 1)),
    "update": lambda index: index.update(codes_of([4], 2), ids=[4], features=features_of([4], 2)),
    "remove": lambda index: index.remove([7]),
    "keep features": lambda index: index.keep_features(features_of([9], 5), ids=[9]),
    "compact": lambda index: index.compact(),
    "prepare": lambda index: index.prepare() if hasattr(index, "prepare") else None,
}


class Failing:
    """The modules of the system for `hashgrove.index.folder`, of whose calls the one with this number fails."""

    def __init__(self, number, code, calls=CALLS):
        self.left, self.code, self.calls = number, code, calls

    def __getattr__(self, name):
        call = getattr(os, name)
        return self._counted(call) if name in self.calls else call

    def _counted(self, call):
        def counted(*args, **options):
            self.left -= 1
            if self.left == 0:
                raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return counted


class FailingMaps:
    """The module mmap, whose calls count as those of a `Failing`."""

    ACCESS_READ = mmap.ACCESS_READ

    def __init__(self, system):
        self.mmap = system._counted(mmap.mmap)


@pytest.fixture
def failing(monkeypatch):
    """Make one call fail, from now on, or none."""

    def start(number, code=errno.EIO, calls=CALLS):
        system = Failing(number, code, calls)
        monkeypatch.setattr(folder, "os", system if number else os)
        monkeypatch.setattr(folder, "mmap", FailingMaps(system) if number else mmap)
        return system

    return start


def failure(change, index):
    """Change an index, or say why that is refused."""
    try:
        change(index)
    except FileError as error:
        return str(error)
    return None


def made(make, place, change_before=(), ids=IDS):
    index = make(codes_of(ids, 0), ids=ids)
    index.keep_features(features_of(ids, 0))
    index.save(place)
    with make.load(place, writable=True) as index:
        for change in change_before:
            CHANGES[change](index)
    return content(make.load(place))


@pytest.mark.parametrize(
    ("make", "ids"),
    [(FlatIndex, IDS), (ByTables, IDS), (FlatIndex, range(4, 10))],
    ids=["flat", "tables", "ids that are not stored"],
)
def test_every_call_of_a_change(tmp_path, failing, make, ids):
    n_failed = n_refused = 0
    for before in ((), ("remove", "update")):
        start = tmp_path / f"start-{len(before)}"
        made(make, start, before, ids)
        for name, change in CHANGES.items():
            if name in before:
                continue
            number = 0
            while True:
                number += 1
                place = tmp_path / "index"
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(start, place)
                index = make.load(place, writable=True)
                old, expected = content(index), FlatIndex(index.codes, ids=index.ids)
                expected.keep_features(index.features.of(index.ids))
                if name != "compact":
                    change(expected)
                new, system = content(expected), failing(number, ERRORS[number % len(ERRORS)])
                failed = failure(change, index)
                is_through, _ = system.left > 0, failing(0)
                alive, disk = content(index), content(make.load(place))
                assert alive in (old, new), (name, number)
                assert disk in (old, new), (name, number)
                if failed is None:  # also if what is left to do afterwards, such as removing files, has failed
                    assert alive == disk == new, (name, number)
                else:
                    n_failed += 1
                    assert str(place) in failed
                    assert alive == old, (name, number)
                    if again := failure(change, index):
                        assert REFUSED in again
                        n_refused += 1
                        index.close()
                        index = make.load(place, writable=True)
                        if disk == old:
                            change(index)
                    assert content(index) == content(make.load(place)) == new, (name, number)
                index.close()
                if is_through:
                    break
    assert n_failed > 80
    assert n_refused > 5


def test_every_call_of_a_save(tmp_path, failing):
    number, through = 0, False
    while not through:
        number += 1
        system = failing(number)
        failed = failure(lambda index: index.save(tmp_path / "index"), FlatIndex(codes_of(IDS, 0), ids=IDS))
        if failed:
            assert str(tmp_path / "index") in failed
            assert ".tmp" not in failed
            failing(0)
            assert os.listdir(tmp_path) == []
        through, _ = system.left > 0, failing(0)
        if (tmp_path / "index").exists():
            assert list(content(FlatIndex.load(tmp_path / "index"))) == IDS
            shutil.rmtree(tmp_path / "index")
    assert number > 10


@pytest.mark.parametrize("change", ["add behind", "compact", "keep features"])
def test_a_full_disk_gets_back_what_a_failed_change_wrote(tmp_path, failing, change):
    place = tmp_path / "index"
    made(FlatIndex, place)
    with FlatIndex.load(place, writable=True) as index:
        sizes = {path.name: path.stat().st_size for path in place.iterdir()}
        for number in range(1, 100):
            failing(number, errno.ENOSPC, ("write",))
            try:
                CHANGES[change](index)
            except FileError:
                assert {path.name: path.stat().st_size for path in place.iterdir()} == sizes
            else:
                break
        failing(0)
        assert number > 2
        assert content(index) == content(FlatIndex.load(place))


def test_too_few_descriptors(tmp_path):
    """A change for which there is no descriptor left fails, and can be tried again when there is."""
    before = made(FlatIndex, tmp_path / "index")
    index = FlatIndex.load(tmp_path / "index", writable=True)
    content(index)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_failed = 0
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        for _ in range(12):
            failed = failure(lambda index: index.add(codes_of([12], 1), ids=[12], features=[[127, 12, 1]]), index)
            if failed is None:
                break
            assert "Too many open files" in failed
            n_failed += 1
            os.close(held.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in held:
            os.close(handle)
    assert n_failed > 2
    assert list(content(index)) == [*before, 12] == list(content(FlatIndex.load(tmp_path / "index")))
    index.remove([4])
    index.compact()
    index.remove([7])
    assert index.ids.tolist() == [1, 9, 12] == FlatIndex.load(tmp_path / "index").ids.tolist()
    index.close()


@pytest.mark.parametrize("how", ["moved", "replaced", "manifest"])
def test_a_folder_that_is_replaced_under_its_writer(tmp_path, how):
    place, other = tmp_path / "index", tmp_path / "other"
    made(FlatIndex, place)
    FlatIndex(codes_of([5, 6], 0), ids=[5, 6]).save(other)
    index = FlatIndex.load(place, writable=True)
    kept = {path.name: path.read_bytes() for path in other.iterdir()}
    if how == "manifest":
        for path in other.iterdir():
            os.replace(shutil.copy(path, place / "new"), place / path.name)
    else:
        place.rename(tmp_path / "old")
        if how == "replaced":
            other.rename(place)
    found = {path.name: path.read_bytes() for path in place.iterdir()} if place.exists() else kept
    for change in ("add behind", "remove", "compact", "keep features"):
        with pytest.raises(FileError, match=REFUSED):
            CHANGES[change](index)
    assert index.ids.tolist() == IDS
    now = {path.name: path.read_bytes() for path in place.iterdir()} if place.exists() else kept
    assert now == found
    index.close()


def test_a_reader_takes_in_a_folder_that_has_taken_the_place(tmp_path):
    """The other folder has the same generation and more rows, so what was verified of the first one says nothing."""
    place = tmp_path / "index"
    made(FlatIndex, place)
    reader = FlatIndex.load(place)
    assert reader.ids.tolist() == IDS
    shutil.rmtree(place)
    FlatIndex(codes_of(np.arange(20, 29), 0), ids=np.arange(20, 29)).save(place)
    assert reader.refresh()
    assert reader.ids.tolist() == list(range(20, 29))
