from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from damage import file_error
from hashgrove import FlatIndex
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import read_codes, read_matrix, read_table, write_matrix


class TestAtomicWrite:
    def test_replaces_and_leaves_nothing_else(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(b"old")
        with atomic_write(path) as file:
            file.write(b"new")
            assert path.read_bytes() == b"old"
        assert path.read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize(
        ("error", "raised"),
        [
            (OSError(28, "No space left on device"), FileError),
            (OSError(2, "No such file", "other"), OSError),
            (KeyboardInterrupt(), KeyboardInterrupt),
        ],
    )
    def test_failure_keeps_the_old_file(self, tmp_path, error, raised):
        path = tmp_path / "file"
        path.write_bytes(b"old")

        def fail():
            with atomic_write(path) as file:
                file.write(b"half")
                raise error

        with pytest.raises(raised):
            fail()
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]

    def test_failure_of_the_last_step_keeps_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "file"
        path.write_bytes(b"old")

        def fail(source, target):
            raise OSError("cut off")

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(FileError, match="cannot be written: cut off"), atomic_write(path) as file:
            file.write(b"new")
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EINVAL])
    @pytest.mark.parametrize("what", ["file", "index"])
    def test_a_name_that_cannot_be_synced(self, tmp_path, monkeypatch, what, code):
        """EINVAL says that the file system cannot sync folders; anything else, that the name may be lost."""
        path, synced = tmp_path / what, []

        def fsync(handle):
            if stat.S_ISDIR(os.fstat(handle).st_mode) and os.path.samestat(os.fstat(handle), os.stat(tmp_path)):
                synced.append(handle)
                raise OSError(code, os.strerror(code))

        def write():
            if what == "index":
                FlatIndex(np.ones((2, 1), np.uint8)).save(path)
                return
            with atomic_write(path) as file:
                file.write(b"new")

        monkeypatch.setattr(os, "fsync", fsync)
        if code == errno.EINVAL:
            write()
        else:
            with pytest.raises(FileError, match=f"{what}: is written, but may not survive a loss of power: ") as caught:
                write()
            assert str(caught.value).endswith(os.strerror(code))
        assert len(synced) == 1
        assert os.listdir(tmp_path) == [what]
        assert path.read_bytes() == b"new" if what == "file" else len(FlatIndex.load(path)) == 2

    @pytest.mark.skipif(os.name != "posix", reason="permission bits")
    @pytest.mark.parametrize("umask", [0o022, 0o077])
    def test_permissions_of_a_plain_open(self, tmp_path, umask):
        old = os.umask(umask)
        try:
            (tmp_path / "plain").write_bytes(b"")
            with atomic_write(tmp_path / "atomic"):
                pass
        finally:
            os.umask(old)
        modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
        assert modes["atomic"] == modes["plain"] == 0o666 & ~umask

    @pytest.mark.skipif(os.name != "posix", reason="permission bits")
    def test_keeps_mode_and_link_of_an_existing_file(self, tmp_path):
        (tmp_path / "file").write_bytes(b"old")
        (tmp_path / "file").chmod(0o640)
        (tmp_path / "link").symlink_to("file")
        with atomic_write(tmp_path / "link") as file:
            file.write(b"new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"new"
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640

    @pytest.mark.skipif(os.name != "posix", reason="permission bits")
    def test_a_read_only_file_is_kept(self, tmp_path):
        path = tmp_path / "X.npy"
        path.write_bytes(b"old")
        path.chmod(0o444)
        (tmp_path / "link.npy").symlink_to("X.npy")
        for name in ("X.npy", "link.npy"):
            file_error(write_matrix, tmp_path / name, "cannot be written: the file is read-only", array=[[1]])
        assert path.read_bytes() == b"old"
        assert sorted(os.listdir(tmp_path)) == ["X.npy", "link.npy"]

    def test_temporary_files_of_killed_processes_are_removed_after_a_day(self, tmp_path):
        """A process is killed while it writes; then its file grows old, beside files that must stay."""
        code = "import os, sys\nfrom hashgrove.storage.atomic import atomic_write\n"
        code += "with atomic_write(sys.argv[1]) as file:\n    file.write(b'half')\n    os.kill(os.getpid(), 9)\n"
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
        assert done.returncode == -9
        [left] = os.listdir(tmp_path)
        write_matrix(tmp_path / "X.npy", [[1]])
        assert sorted(os.listdir(tmp_path)) == sorted([left, "X.npy"])
        others = [".hashgrove-notes.tmp", ".hashgrove-0123456789abcdef.txt", "x.hashgrove-0123456789abcdef.tmp"]
        yesterday = time.time() - 25 * 3600
        for name in [left, *others]:
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (yesterday, yesterday))
        write_matrix(tmp_path / "X.npy", [[2]])
        assert sorted(os.listdir(tmp_path)) == sorted([*others, "X.npy"])

    def test_temporary_folders_of_killed_processes_are_removed_after_a_day(self, tmp_path):
        """A new index is written to a temporary folder; one whose files are young may still be in use."""
        yesterday = time.time() - 25 * 3600
        for number, is_young in enumerate([False, True]):
            folder = tmp_path / f".hashgrove-{number:016x}.tmp"
            folder.mkdir()
            (folder / "codes-1.bin").touch()
            for path in [folder] if is_young else [folder, folder / "codes-1.bin"]:
                os.utime(path, (yesterday, yesterday))
        FlatIndex(np.zeros((1, 1), np.uint8)).save(tmp_path / "codes.hgi")
        assert sorted(os.listdir(tmp_path)) == [f".hashgrove-{1:016x}.tmp", "codes.hgi"]

    @pytest.mark.skipif(os.name != "posix", reason="RLIMIT_FSIZE")
    @pytest.mark.parametrize("name", ["X.npy", "X.csv", "codes.hgi"])
    def test_a_full_disk_names_the_file(self, tmp_path, name):
        """A limit of the size of files stands for a full disk: the system refuses a write in the same way."""
        code = textwrap.dedent("""
            import resource, sys
            import numpy as np
            from hashgrove import FlatIndex
            from hashgrove.storage.formats import FileError
            from hashgrove.storage.matrices import write_matrix

            codes = np.zeros((100_000, 8), np.uint8)
            index = FlatIndex(codes)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            try:
                index.save(sys.argv[1]) if sys.argv[1].endswith("hgi") else write_matrix(sys.argv[1], codes)
            except FileError as error:
                print(error)
        """)
        done = subprocess.run(
            [sys.executable, "-c", code, name], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{name}: cannot be written: File too large\n"
        assert os.listdir(tmp_path) == []

    def test_refuses_folders_devices_and_missing_folders(self, tmp_path):
        def write(path):
            with atomic_write(path):
                pass

        file_error(write, tmp_path, "regular file")
        file_error(write, tmp_path / "no" / "file", "cannot be written")
        if os.path.exists("/dev/null"):
            file_error(write, "/dev/null", "regular file")
            assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (3, 0), (3,), ()])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "?", "u1"])
def test_written_like_numpy(tmp_path, shape, dtype):
    array = np.ones(shape, dtype)
    write_matrix(tmp_path / "X.npy", array)
    np.save(tmp_path / "expected.npy", array)
    assert (tmp_path / "X.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()
    write_matrix(tmp_path / "X.npy", array.T)
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), array.T)


def test_codes(tmp_path):
    codes = np.array([[0, 255], [3, 4]], np.uint8)
    for name in ("codes.npy", "codes.csv"):
        write_matrix(tmp_path / name, codes)
        assert read_codes(tmp_path / name).dtype == np.uint8
        np.testing.assert_array_equal(read_codes(tmp_path / name), codes)
    write_matrix(tmp_path / "features.npy", codes.astype(float))
    file_error(read_codes, tmp_path / "features.npy", "uint8")
    for bad in ([[256.0]], [[-1.0]], [[0.5]], [[np.nan]]):
        write_matrix(tmp_path / "bad.csv", bad)
        file_error(read_codes, tmp_path / "bad.csv", "uint8")
    write_matrix(tmp_path / "bad.npy", codes.astype(np.int64))
    file_error(read_codes, tmp_path / "bad.npy", "uint8")


def test_names(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_matrix(tmp_path / "no.npy")
    assert issubclass(MissingFileError, FileError)
    (tmp_path / "folder.npy").mkdir()
    file_error(read_matrix, tmp_path / "folder.npy", "regular file")
    file_error(read_matrix, tmp_path / "X.txt", "must end in .npy")
    file_error(read_table, tmp_path / "X.npy", "column", label_column=0)


def test_write_refuses(tmp_path):
    for name, array, match in [("X.txt", [[1]], "must end"), ("X.npy", ["a"], "numbers only")]:
        with pytest.raises(FileError, match=match):
            write_matrix(tmp_path / name, array)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("row", ["1", "a,1,b"])
def test_a_row_of_fields_that_is_too_short_or_too_long(tmp_path, row):
    pytest.importorskip("fastapi")
    from hashgrove.web.details import read_fields

    path = tmp_path / "fields.csv"
    path.write_text(f"year,id\n2001,1\n{row}\n")
    file_error(lambda place: read_fields(str(place), np.array([1])), path, "line 3 must have 2 fields")
