from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import FileError, MissingFileError
from hashgrove.storage.matrices import read_codes, read_matrix, read_table, write_matrix


def one_line_error(function, path, match, **arguments):
    with pytest.raises(FileError, match=match) as caught:
        function(path, **arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path).split(".npz:")[0])
    return caught.value


class TestAtomicWrite:
    def test_replaces_and_leaves_nothing_else(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(b"old")
        with atomic_write(path) as file:
            file.write(b"new")
            assert path.read_bytes() == b"old"
        assert path.read_bytes() == b"new"
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_failure_keeps_the_old_file(self, tmp_path, error):
        path = tmp_path / "file"
        path.write_bytes(b"old")

        def fail():
            with atomic_write(path) as file:
                file.write(b"half")
                raise error

        with pytest.raises(error):
            fail()
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]

    def test_failure_of_the_last_step_keeps_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "file"
        path.write_bytes(b"old")

        def fail(source, target):
            raise OSError("cut off")

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="cut off"), atomic_write(path) as file:
            file.write(b"new")
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]

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

    def test_refuses_folders_devices_and_missing_folders(self, tmp_path):
        def write(path):
            with atomic_write(path):
                pass

        one_line_error(write, tmp_path, "regular file")
        one_line_error(write, tmp_path / "no" / "file", "cannot be written")
        if os.path.exists("/dev/null"):
            one_line_error(write, "/dev/null", "regular file")
            assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


def test_codes(tmp_path):
    codes = np.array([[0, 255], [3, 4]], np.uint8)
    for name in ("codes.npy", "codes.csv"):
        write_matrix(tmp_path / name, codes)
        assert read_codes(tmp_path / name).dtype == np.uint8
        np.testing.assert_array_equal(read_codes(tmp_path / name), codes)
    write_matrix(tmp_path / "features.npy", codes.astype(float))
    one_line_error(read_codes, tmp_path / "features.npy", "uint8")
    for bad in ([[256.0]], [[-1.0]], [[0.5]], [[np.nan]]):
        write_matrix(tmp_path / "bad.csv", bad)
        one_line_error(read_codes, tmp_path / "bad.csv", "uint8")
    write_matrix(tmp_path / "bad.npy", codes.astype(np.int64))
    one_line_error(read_codes, tmp_path / "bad.npy", "uint8")


def test_names(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_matrix(tmp_path / "no.npy")
    assert issubclass(MissingFileError, FileError)
    (tmp_path / "folder.npy").mkdir()
    one_line_error(read_matrix, tmp_path / "folder.npy", "regular file")
    one_line_error(read_matrix, tmp_path / "X.txt", "must end in .npy")
    one_line_error(read_table, tmp_path / "X.npy", "column", label_column=0)


def test_write_refuses(tmp_path):
    for name, array, match in [("X.txt", [[1]], "must end"), ("X.npy", ["a"], "numbers only")]:
        with pytest.raises(FileError, match=match):
            write_matrix(tmp_path / name, array)
    assert os.listdir(tmp_path) == []
