from __future__ import annotations

import io
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest

from damage import file_error
from hashgrove.storage import formats
from hashgrove.storage.matrices import read_labels, read_matrix, read_table, write_matrix

MATRIX = np.array([[1.5, -2.0], [0.1, 1e300], [3.0, 4.0]])


def npy_header(dtype, shape):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


class TestNpy:
    def test_memory_mapped(self, tmp_path):
        write_matrix(tmp_path / "X.npy", MATRIX)
        matrix = read_matrix(tmp_path / "X.npy")
        assert isinstance(matrix, np.memmap)
        np.testing.assert_array_equal(matrix, MATRIX)

    @pytest.mark.parametrize("labels", [[1, 2], ["cat", "dög"], [[0, 1], [1, 1]]])
    def test_labels(self, tmp_path, labels):
        np.save(tmp_path / "y.npy", labels)
        assert read_labels(tmp_path / "y.npy").tolist() == labels

    def test_pickle_is_refused_unread(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (pytest.fail, ("was unpickled",))

        path = tmp_path / "y.npy"
        np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
        file_error(read_labels, path, "pickled objects")

    @pytest.mark.parametrize("change", [-1, -100, 1])
    def test_size_differs_from_header(self, tmp_path, change):
        buffer = io.BytesIO()
        np.save(buffer, np.zeros((20, 2)))
        content = buffer.getvalue()
        path = tmp_path / "X.npy"
        path.write_bytes(content[:change] if change < 0 else content + b"\0" * change)
        file_error(read_matrix, path, rf"shape \(20, 2\).*Got {len(content) + change} bytes")

    @pytest.mark.parametrize(
        ("shape", "match"),
        [
            ("(1000000000000, 1000)", "header declares"),
            ("(-1, 2)", "possible shape"),
            ("(9999999999999999999999, 2)", "possible shape"),
            ("(0, 18446744073709551616)", "possible shape"),
            ("(0, 4611686018427387904, 4)", "possible shape"),
            ("(True, 2)", "possible shape"),
            ("(1.0, 2)", "damaged"),
            (f"({'0,' * 65})", "possible shape"),
        ],
    )
    def test_hostile_shape(self, tmp_path, shape, match):
        path = tmp_path / "X.npy"
        path.write_bytes(npy_header("<f8", shape) + bytes(16 * ("True" in shape)))
        file_error(read_matrix, path, match)

    @pytest.mark.parametrize("dtype", ["<U0", "|S0", "|V8", "(2,3)<f8"])
    def test_hostile_items(self, tmp_path, dtype):
        path = tmp_path / "y.npy"
        path.write_bytes(npy_header(dtype, "(4611686018427387904,)" if "0" in dtype else "(0,)"))
        file_error(read_labels, path, "must hold numbers or text")

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"hello",
            b"\x93NUMPY\x01\x00",
            b"\x93NUMPY\x09\x00\x02\x00{}",
            b"\x93NUMPY\x01\x00\x10\x27" + b"-" * 10_000,
        ],
    )
    def test_not_npy(self, tmp_path, content):
        (tmp_path / "X.npy").write_bytes(content)
        file_error(read_matrix, tmp_path / "X.npy", "header is damaged")

    def test_wrong_shapes_and_types(self, tmp_path):
        for name, array in {
            "one": np.zeros(3),
            "text": np.array([["a"]]),
            "complex": np.zeros((2, 2), complex),
        }.items():
            np.save(tmp_path / f"{name}.npy", array)
            file_error(read_matrix, tmp_path / f"{name}.npy", "2-D matrix of numbers")
        np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
        file_error(read_labels, tmp_path / "cube.npy", r"tag matrix.*\(2, 2, 2\)")

    def test_empty_matrix(self, tmp_path):
        np.save(tmp_path / "X.npy", np.zeros((0, 3)))
        assert read_matrix(tmp_path / "X.npy").shape == (0, 3)


class TestNpz:
    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_by_name(self, tmp_path, save):
        save(tmp_path / "data.npz", X=MATRIX, y=np.array(["a", "b", "c"]))
        np.testing.assert_array_equal(read_matrix(f"{tmp_path}/data.npz:X"), MATRIX)
        assert read_labels(f"{tmp_path}/data.npz:y").tolist() == ["a", "b", "c"]
        file_error(read_matrix, tmp_path / "data.npz", r"one of \[X, y\]. Got no name")
        file_error(read_matrix, f"{tmp_path}/data.npz:Z", r"one of \[X, y\]. Got 'Z'")

    def test_only_array_needs_no_name(self, tmp_path):
        np.savez(tmp_path / "data.npz", MATRIX)
        np.testing.assert_array_equal(read_matrix(tmp_path / "data.npz"), MATRIX)

    def test_bomb(self, tmp_path, monkeypatch):
        np.savez_compressed(tmp_path / "data.npz", X=np.zeros((1000, 100)))
        monkeypatch.setattr(formats, "MEMORY_LIMIT", 100_000)
        file_error(read_matrix, tmp_path / "data.npz", "at most 100000 bytes here. It declares 800128 bytes")

    @pytest.mark.parametrize("size", [10**6, 2**40])
    def test_a_declared_size_that_the_bytes_cannot_hold(self, tmp_path, size):
        with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", npy_header("|u1", f"({size}, 1)"))
            archive.infolist()[0].file_size = archive.infolist()[0].compress_size = size + 128
        file_error(read_matrix, tmp_path / "data.npz", "must unpack to at most [0-9]+ bytes, by its size")

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_other_compression(self, tmp_path, method):
        with zipfile.ZipFile(tmp_path / "data.npz", "w", method) as archive:
            archive.writestr("X.npy", npy_header("|u1", "(0, 1)"))
        file_error(read_matrix, tmp_path / "data.npz", "stored or deflated")

    def test_inner_header_larger_than_member(self, tmp_path):
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000)}\n"
        with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
            archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file_error(read_matrix, tmp_path / "data.npz", "header declares")

    def test_damage(self, tmp_path):
        np.savez_compressed(tmp_path / "good.npz", X=np.arange(3000.0).reshape(-1, 3))
        content = (tmp_path / "good.npz").read_bytes()
        path = tmp_path / "bad.npz"
        for position in range(60, 400, 7):
            path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
            file_error(read_matrix, path, "npz")
        for length in (0, 10, len(content) // 2, len(content) - 5):
            path.write_bytes(content[:length])
            file_error(read_matrix, path, "must be a .npz archive")


class TestCsv:
    @pytest.mark.parametrize("bom", ["", "\ufeff"])
    @pytest.mark.parametrize("header", ["", "height,width\n", '"height","width"\n'])
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
    def test_header_is_detected(self, tmp_path, bom, header, end):
        (tmp_path / "X.csv").write_text(bom + header + "1,2\n3,4" + end, encoding="utf-8", newline="")
        assert read_matrix(tmp_path / "X.csv").tolist() == [[1, 2], [3, 4]]

    @pytest.mark.parametrize("column", ["kind", 1, "1", -2])
    def test_label_column(self, tmp_path, column):
        (tmp_path / "X.csv").write_text('a,kind,b\n1,"cat, black",2\n3,dog,4\n5,dog,6\n')
        matrix, labels = read_table(tmp_path / "X.csv", label_column=column)
        assert matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert labels.tolist() == ["cat, black", "dog", "dog"]
        assert labels.dtype.kind == "U"
        assert read_labels(tmp_path / "X.csv", column=column).tolist() == labels.tolist()

    @pytest.mark.parametrize(
        ("text", "labels"),
        [
            ("3\n1\n3\n", [3, 1, 3]),
            ("label\n3\n1\n", [3, 1]),
            ("0.5\n1\n", [0.5, 1.0]),
            ("cat\ndog\ncat\n", ["cat", "dog", "cat"]),
            ("cat\ncat\n", ["cat", "cat"]),
            ("animal\ncat\ndog\ncat\n", ["cat", "dog", "cat"]),
            ("sky,sea\n1,0\n0,1\n", [[1, 0], [0, 1]]),
            ("1_0\n10\n1_0\n", ["1_0", "10", "1_0"]),  # Python takes both for 10
            ("\u0661\n1\n\u0661\n", ["\u0661", "1", "\u0661"]),  # an Arabic digit
            ("9007199254740993\n9007199254740992\n", [9007199254740993, 9007199254740992]),
            ("36893488147419103232\n36893488147419103233\n", ["36893488147419103232", "36893488147419103233"]),
            (f"1\n{'1' * 5000}\n", ["1", "1" * 5000]),
            ("-1\n+2\n", [-1, 2]),
        ],
    )
    def test_labels(self, tmp_path, text, labels):
        (tmp_path / "y.csv").write_text(text, encoding="utf-8")
        result = read_labels(tmp_path / "y.csv")
        assert result.tolist() == labels
        assert all(type(a) is type(b) for a, b in zip(result.tolist(), labels, strict=True))

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("", "empty file"),
            ("a,b\n", "could not convert"),
            ("1,2\n3\n", "number of columns"),
            ("1,2\n3,4,5\n", "number of columns"),
            ("1,2\n3,x\n", "'x'"),
            ("1,2\n3,\n", "could not convert"),
        ],
    )
    def test_bad_matrix(self, tmp_path, text, match):
        (tmp_path / "X.csv").write_text(text)
        file_error(read_matrix, tmp_path / "X.csv", match)

    def test_extra_fields_are_seen_next_to_a_label_column(self, tmp_path):
        (tmp_path / "X.csv").write_text("1,a\n2,b,9\n")
        file_error(read_table, tmp_path / "X.csv", "number of columns", label_column=1)

    def test_bad_columns_labels_and_encoding(self, tmp_path):
        path = tmp_path / "X.csv"
        path.write_text("a,b,b\n1,2,3\n")
        for column in ("c", "b", 3, -4):
            file_error(read_table, path, r"one of \[a, b, b\]", label_column=column)
        path.write_text("1,\n2,x\n")
        file_error(read_table, path, "must have a label", label_column=1)
        path.write_bytes(b"1,2\n\xff\xfe,3\n")
        file_error(read_matrix, path, "utf-8")

    @pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "int64", "bool"])
    def test_write_gives_the_same_numbers_back(self, tmp_path, dtype):
        array = (np.random.default_rng(0).normal(size=(50, 3)) * 100).astype(dtype)
        write_matrix(tmp_path / "X.csv", array)
        np.testing.assert_array_equal(read_matrix(tmp_path / "X.csv").astype(dtype), array)


class TestParquet:
    pa = pytest.importorskip("pyarrow")

    def write(self, path, **columns):
        from pyarrow import parquet

        parquet.write_table(self.pa.table(columns), path)

    def test_table(self, tmp_path):
        path = tmp_path / "X.parquet"
        kinds = self.pa.array(["cat", "dog", "cat"]).dictionary_encode()
        self.write(path, a=[1, 2, 3], kind=kinds, b=[0.5, 1.5, 2.5])
        matrix, labels = read_table(path, label_column="kind")
        assert matrix.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
        assert labels.tolist() == ["cat", "dog", "cat"]
        assert labels.dtype.kind == "U"
        file_error(read_matrix, path, "Got text in 'kind'")

    def test_lists_are_rows(self, tmp_path):
        vectors = self.pa.array([[1, 2], [3, 4]], self.pa.list_(self.pa.float32()))
        self.write(tmp_path / "X.parquet", vector=vectors, y=[7, 8])
        matrix, labels = read_table(tmp_path / "X.parquet", label_column="y")
        assert matrix.dtype == np.float32
        assert matrix.tolist() == [[1, 2], [3, 4]]
        assert labels.tolist() == [7, 8]
        self.write(tmp_path / "bad.parquet", vector=[[1.0], [2.0, 3.0]])
        file_error(read_matrix, tmp_path / "bad.parquet", "equal length")

    def test_missing_values_wrong_types_damage_and_size(self, tmp_path, monkeypatch):
        path = tmp_path / "X.parquet"
        self.write(path, a=[1.0, None])
        file_error(read_matrix, path, "no missing values")
        self.write(path, a=self.pa.array([0, 1], self.pa.timestamp("s")))
        file_error(read_matrix, path, "timestamp")
        self.write(path, a=[1.0, 2.0])
        content = path.read_bytes()
        path.write_bytes(content[:-20])
        file_error(read_matrix, path, "parquet")
        path.write_bytes(content)
        monkeypatch.setattr(formats, "MEMORY_LIMIT", 15)
        file_error(read_matrix, path, "It declares 16 bytes")

    def test_no_changed_byte_ends_the_process(self, tmp_path):
        """pyarrow aborts when it describes a row group of some damaged files; 255 has the most bits to go wrong."""
        self.write(tmp_path / "good.parquet", a=[1.0, 2.0], kind=["x", "y"])
        code = textwrap.dedent("""
            import sys
            from hashgrove.storage.formats import FileError
            from hashgrove.storage.matrices import read_table

            content = open("good.parquet", "rb").read()
            for place in range(len(content)):
                for value in {content[place] ^ 1, content[place] ^ 128, 0, 2, 255} - {content[place]}:
                    open("bad.parquet", "wb").write(content[:place] + bytes([value]) + content[place + 1 :])
                    print(place, value, flush=True)
                    try:
                        read_table("bad.parquet", label_column=-1)
                    except FileError as error:
                        assert "\\n" not in str(error) and str(error).startswith("bad.parquet: ")
        """)
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (done.stdout[-20:], done.stderr[-2000:])

    def test_batches_give_the_whole_table(self, tmp_path, monkeypatch):
        from hashgrove.storage import arrow

        monkeypatch.setattr(arrow, "ROWS_PER_BATCH", 7)
        kinds = self.pa.array(["cat", "dog"] * 50).dictionary_encode()
        self.write(tmp_path / "X.parquet", a=np.arange(100.0), kind=kinds)
        matrix, labels = read_table(tmp_path / "X.parquet", label_column="kind")
        assert matrix[:, 0].tolist() == list(range(100))
        assert labels.tolist() == ["cat", "dog"] * 50
        monkeypatch.setattr(formats, "MEMORY_LIMIT", 8 * 200)
        vectors = self.pa.array([[1.0] * 3] * 100)
        self.write(tmp_path / "X.parquet", vector=vectors)
        file_error(read_matrix, tmp_path / "X.parquet", "at most 1600 bytes here")
        self.write(tmp_path / "empty.parquet", a=np.empty(0))
        assert read_matrix(tmp_path / "empty.parquet").shape == (0, 1)

    def test_without_pyarrow(self, tmp_path, monkeypatch):
        (tmp_path / "X.parquet").write_bytes(b"")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        file_error(read_matrix, tmp_path / "X.parquet", r"pip install 'hashgrove\[parquet\]'")


class TestText:
    """One long text among many short ones: an array of numpy gives all of them the same width."""

    def test_a_long_label_in_a_csv_file(self, tmp_path):
        path = tmp_path / "y.csv"
        path.write_text("a\nb\n" + "x" * 100_000 + "\n" + "".join(f"c{i}\n" for i in range(10_000)))
        file_error(read_labels, path, "labels that take at most .* the longest of 100000 characters")
        path.write_text("a\nb\n" + "x" * 1000 + "\na\n")
        assert len(read_labels(path)[2]) == 1000

    def test_a_long_label_in_a_parquet_file(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        path = tmp_path / "y.parquet"
        parquet.write_table(pa.table({"y": ["x" * 10**6] + ["a"] * 10**5}), path)
        file_error(read_labels, path, "must unpack to at most")

    def test_a_long_line(self, tmp_path):
        path = tmp_path / "X.csv"
        path.write_text("1,2\n" + "12," * 400_000 + "12\n")
        file_error(read_matrix, path, "lines of at most 1048576 characters. Got one of 1200003")
