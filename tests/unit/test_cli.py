"""The command line: the chain of commands by real processes, and every error in its one line."""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from command import call, examples, fails, run
from hashgrove import BoostedTrees, FastHash, FlatIndex, evaluate, load
from hashgrove.cli import COMMANDS, main
from hashgrove.losses import LOSSES
from hashgrove.runtime.progress import COMPILING
from hashgrove.storage.modelfile import read_header
from paths import DOCS

N_TRAIN = 300
TRAIN = ("--bits", "12", "--trees", "5", "--seed", "0")
EVALUATE = "evaluate small.npy small.npy --y-database yd.npy --y-queries yd.npy"


def write_inputs(folder):
    X, y = load_digits(return_X_y=True)
    database, queries = slice(0, N_TRAIN), slice(N_TRAIN, N_TRAIN + 60)
    for name, array in {
        "X": X[database], "y": y[database], "database": X[database], "yd": y[database],
        "queries": X[queries], "yq": y[queries],
        "tags": np.stack([y, y // 2, y % 3], axis=1)[database][:, :, None] == np.arange(10),
    }.items():  # fmt: skip
        np.save(folder / f"{name}.npy", array.reshape(len(array), -1) if array.ndim == 3 else array)
    np.savez(folder / "all.npz", X=X[database], y=y[database])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Inputs, a small model and its codes; tests write under names of their own."""
    path = tmp_path_factory.mktemp("cli")
    write_inputs(path)
    trained = run("train", "X.npy", "y.npy", "-o", "small.hashgrove", *TRAIN, cwd=path)
    (path / "summary.txt").write_text(trained)
    run("encode", "small.hashgrove", "database.npy", "-o", "small.npy", cwd=path)
    return path


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="module")
def small():
    """What the library gives for the small model: database codes, query codes, labels of both."""
    X, y = load_digits(return_X_y=True)
    trees = BoostedTrees(n_trees=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hasher = FastHash(12, hash_function=trees, random_state=0).fit(X[:N_TRAIN], y[:N_TRAIN])
    stop = N_TRAIN + 60
    codes = hasher.transform(X[:N_TRAIN]), hasher.transform(X[N_TRAIN:stop])
    return *codes, y[:N_TRAIN], y[N_TRAIN:stop]


class TestChain:
    def test_examples_of_the_help_run_in_order(self, tmp_path, capsys):
        write_inputs(tmp_path)
        for command in ("train", "info", "encode", "search", "evaluate"):
            status, text, _ = call(capsys, command, "--help")
            [example] = examples(text)
            assert status == 0
            assert example[0] == command
            out = run(*example, cwd=tmp_path)
        assert re.match(r"MAP +(0\.[89]|1\.0)", out)

    def test_model_and_codes_are_those_of_the_library(self, folder, small):
        assert np.array_equal(np.load(folder / "small.npy"), small[0])
        assert load(folder / "small.hashgrove").n_bits == 12

    def test_summary(self, folder):
        lines = (folder / "summary.txt").read_text().splitlines()
        names = [line.split("  ")[0] for line in lines]
        expected = ["model", "bits", "features", "hash function", "generic bits", "seconds", "final loss"]
        assert names == [*expected, "mean training error", "codes of these rows"]
        assert lines[1].split() == ["bits", "12"]

    def test_search_json_and_csv_are_the_answers_of_the_library(self, here, small, capsys):
        database, queries, _, _ = small
        distances, ids = FlatIndex(database).search(queries, 4)
        common = ("search", "small.npy", "queries.npy", "--model", "small.hashgrove", "--plain")
        found = json.loads(call(capsys, *common, "-k", "4", "--json")[1])
        assert [hit["query"] for hit in found] == list(range(len(queries)))
        assert [hit["ids"] for hit in found] == ids.tolist()
        assert [hit["distances"] for hit in found] == distances.tolist()
        rows = list(csv.DictReader(io.StringIO(call(capsys, *common, "-k", "4", "--csv")[1])))
        assert [int(row["id"]) for row in rows] == ids.ravel().tolist()
        assert [row["rank"] for row in rows[:5]] == ["1", "2", "3", "4", "1"]
        table = call(capsys, *common, "-k", "4")[1].splitlines()
        assert table[0].split() == ["query", "rank", "distance", "id"]
        assert [line.split() for line in table[1:]] == [list(row.values()) for row in rows]
        assert len(set(map(len, table))) == 1

    def test_search_by_radius_with_codes_as_queries(self, here, small, capsys):
        database, queries, _, _ = small
        np.save("query-codes.npy", queries)
        distances, ids = FlatIndex(database).search_radius(queries, 1)
        status, out, _ = call(capsys, "search", "small.npy", "query-codes.npy", "--radius", "1", "--json")
        assert status == 0
        assert [hit["ids"] for hit in json.loads(out)] == [part.tolist() for part in ids]
        assert [hit["distances"] for hit in json.loads(out)] == [part.tolist() for part in distances]

    def test_results_of_no_query_are_empty(self, here, capsys):
        np.save("none.npy", np.empty((0, 2), np.uint8))
        assert call(capsys, "search", "small.npy", "none.npy", "--json")[1] == "[]\n"
        assert call(capsys, "search", "small.npy", "none.npy", "--csv")[1] == "query,rank,distance,id\n"

    @pytest.mark.parametrize("ties", ["expected", "id"])
    def test_evaluate_is_the_report_of_the_library(self, here, small, capsys, ties):
        database, queries, y_database, y_query = small
        report = evaluate(FlatIndex(database), queries, y_queries=y_query, y_database=y_database, k=20, ties=ties)
        common = ("evaluate", "small.npy", "queries.npy", "--model", "small.hashgrove", "-k", "20", "--ties", ties)
        labels = ("--y-database", "yd.npy", "--y-queries", "yq.npy")
        assert json.loads(call(capsys, *common, *labels, "--json")[1]) == report.to_dict()
        assert call(capsys, *common, *labels)[1] == f"{report}\n"
        [row] = csv.DictReader(io.StringIO(call(capsys, *common, *labels, "--csv")[1]))
        assert float(row["map"]) == report.map
        assert row["ties"] == ties
        assert "recall" not in row

    def test_info_describes_models_and_indexes(self, here, small, capsys):
        fields = json.loads(call(capsys, "info", "small.hashgrove", "--json")[1])
        expected = json.loads(json.dumps(read_header("small.hashgrove")))
        assert fields == {"file": "small.hashgrove", "size": os.path.getsize("small.hashgrove"), **expected}
        FlatIndex(small[0]).save("folder.hgi")
        out = call(capsys, "index", "info", "folder.hgi")[1]
        assert re.search(rf"{N_TRAIN}", out)
        assert re.search(r"^ +loss +hinge$", call(capsys, "info", "small.hashgrove")[1], flags=re.MULTILINE)

    def test_a_closed_pipe_is_quiet(self, folder):
        command = f"{sys.executable} -m hashgrove search small.npy small.npy -k 300 | head -n 1"
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["query", "rank", "distance", "id"]
        assert done.stderr in ("", f"{COMPILING}\n")

    @pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
    def test_closed_streams_are_quiet(self, folder, closed):
        command = f"{sys.executable} -m hashgrove search small.npy small.npy -k 3 {closed}"
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True)
        assert bool(done.stdout) == (closed == "2>&-")
        assert done.stderr in ("", f"{COMPILING}\n")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")
    @pytest.mark.parametrize("arguments", ["search small.npy small.npy -k 3", "--help", "--version", "index --help"])
    def test_output_to_a_full_disk(self, folder, arguments):
        command = f"{sys.executable} -m hashgrove {arguments} > /dev/full"
        done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        message = "Error: standard output: cannot be written: No space left on device\n"
        assert done.stderr.replace(f"{COMPILING}\n", "") == message

    def test_ctrl_c_while_the_arguments_are_read(self, folder, capsys, monkeypatch):
        def parse(*arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(main, "parse_args", parse)
        assert call(capsys, "search", "small.npy", "small.npy") == (130, "", "Error: interrupted\n")


class TestInputs:
    def trained(self, capsys, *arguments):
        status, _, err = call(capsys, "train", *arguments, "-o", "other.hashgrove", *TRAIN, "--quiet")
        assert status == 0, err
        return Path("other.hashgrove").read_bytes()

    def test_npz_csv_and_parquet_give_the_model_of_npy(self, here, capsys):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        X, y = np.load("X.npy"), np.load("y.npy")
        names = [f"p{j}" for j in range(X.shape[1])]
        rows = [",".join([*map(str, x), f"d{label}"]) for x, label in zip(X, y, strict=True)]
        Path("table.csv").write_text("\n".join([",".join([*names, "digit"]), *rows]) + "\n")
        columns = dict(zip(names, X.T, strict=True)) | {"digit": y}
        parquet.write_table(pa.table(columns), "table.parquet")
        expected = Path("small.hashgrove").read_bytes()
        assert self.trained(capsys, "all.npz:X", "all.npz:y") == expected
        assert self.trained(capsys, "table.csv", "--label-column", "digit") == expected
        assert self.trained(capsys, "table.parquet", "--label-column", "digit") == expected

    def test_pairs(self, here, capsys):
        X, y = np.load("X.npy"), np.load("y.npy")
        i, j = np.random.default_rng(0).integers(len(y), size=(2, 4000))
        pairs = np.stack([i, j, np.where(y[i] == y[j], 1, -1)], axis=1)
        np.save("pairs.npy", pairs)
        np.savetxt("pairs.csv", pairs, fmt="%d", delimiter=",")
        hasher = FastHash(12, hash_function=BoostedTrees(n_trees=5), random_state=0).fit(X, affinity=pairs)
        assert self.trained(capsys, "X.npy", "--pairs", "pairs.npy") == self.trained(
            capsys, "X.npy", "--pairs", "pairs.csv"
        )
        assert np.array_equal(load("other.hashgrove").encode(X), hasher.transform(X))

    def test_tags(self, here, capsys):
        X, tags = np.load("X.npy"), np.load("tags.npy")
        trees = BoostedTrees(n_trees=5)
        hasher = FastHash(12, hash_function=trees, min_shared=3, random_state=0).fit(X, tags)
        self.trained(capsys, "X.npy", "tags.npy", "--min-shared", "3")
        codes = hasher.transform(X)
        assert np.array_equal(load("other.hashgrove").encode(X), codes)
        np.save("tagged.npy", codes)
        arguments = (
            "tagged.npy",
            "X.npy",
            "--model",
            "other.hashgrove",
            "--y-database",
            "tags.npy",
            "--y-queries",
            "tags.npy",
        )
        out = call(capsys, "evaluate", *arguments, "--min-shared", "3", "--json")[1]
        assert (
            json.loads(out)["map"]
            == evaluate(FlatIndex(codes), codes, y_queries=tags, y_database=tags, min_shared=3).map
        )

    def test_other_learner_and_solver(self, here, capsys):
        status, _, err = call(
            capsys, "train", "X.npy", "y.npy", "-o", "svm.hashgrove", "--bits", "4", "--seed", "0", "--loss", "ksh",
            "--hash-function", "linear-svm", "--inference", "spectral", "--n-jobs", "1", "--quiet",
        )  # fmt: skip
        assert status == 0, err
        assert read_header("svm.hashgrove")["header"]["encoder"] == "linear"

    def test_start(self, here, capsys):
        order = ("train", "X.npy", "y.npy", "-o", "start.hashgrove", "--bits", "4", "--trees", "5", "--quiet")
        status, _, err = call(capsys, *order, "--start", "kernel", "--generic-bits", "1", "--seed", "0")
        assert status == 0, err
        assert read_header("start.hashgrove")["header"]["encoder"] == "spread"
        status, _, err = call(capsys, "encode", "start.hashgrove", "database.npy", "-o", "start.npy")
        assert status == 0
        assert err.startswith(f"Wrote {N_TRAIN} codes of 1 bytes to start.npy; ")

    def test_encoding_in_chunks_gives_the_same_codes(self, here, small, capsys, monkeypatch):
        monkeypatch.setattr("hashgrove.streaming.PIECE_BYTES", 1)
        status, out, err = call(capsys, "encode", "small.hashgrove", "database.npy", "-o", "chunked.csv")
        assert (status, out) == (0, "")
        assert err.startswith(f"Wrote {N_TRAIN} codes of 2 bytes to chunked.csv; ")
        assert np.array_equal(np.loadtxt("chunked.csv", delimiter=","), small[0])


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "match"),
        [
            ("train no.npy y.npy -o m", 1, r"no\.npy: no such file"),
            ("train X.npy yq.npy -o m", 1, r"yq\.npy: must have 300 rows, one for each row of X\.npy\. Got 60"),
            ("train nan.npy y.npy -o m", 1, r"nan\.npy: must hold finite numbers\. Got nan in row 7, column 3"),
            ("train X.npy one.npy -o m", 1, "at least two classes"),
            ("train X.npy y.npy -o m --trees 5000", (1, 2), "must be an integer from 1 to 4096. Got '?5000'? instead"),
            ("train X.npy y.npy -o m --trees many", 2, "'--trees': must be a whole number. Got 'many' instead"),
            ("train X.npy y.npy -o m --seed -1", 2, "'--seed': must be an integer from 0 to 4294967295. Got '-1'"),
            (
                "train X.npy -o m --pairs far.npy --unlabelled 3",
                2,
                "--unlabelled is for LABELS and --label-column only",
            ),
            ("train X.npy y.npy -o m --unlabelled none", 2, "--unlabelled must be a number, as the labels are int64"),
            ("train X.npy y.npy -o m --sample-weight yq.npy", 1, r"yq\.npy: must have 300 rows"),
            ("train X.npy y.npy -o m --sample-weight X.npy", 1, r"X\.npy: must be one number per row"),
            ("train X.npy y.npy -o no/m", 1, r"no/m: cannot be written: there is no folder"),
            ("train X.npy y.npy -o X.npy/m", 1, r"X\.npy/m: cannot be written"),
            ("train X.npy y.npy -o .", 1, "must be a regular file"),
            ("train X.npy y.npy -o X.npy", 1, r"must not be the input file X\.npy"),
            ("train all.npz:X all.npz:y -o all.npz", 1, "must not be the input file"),
            ("train X.npy --label-column digit -o m", 1, r"columns can be named for \.csv"),
            ("train X.npy --pairs far.npy -o m", 1, "must name points from 0 to 299"),
            ("train X.npy -o m", 2, "Give one of LABELS, --label-column, --pairs and --triplets"),
            ("train X.npy y.npy --pairs far.npy -o m", 2, "Give one of"),
            ("train X.npy y.npy -o m --loss square", 2, "'square' is not one of .*'hinge'.*train --help"),
            ("train X.npy y.npy -o m --bits 0", (1, 2), "bits.* must be an integer from 1 to"),
            (
                "train X.npy y.npy -o m --hash-function linear-svm --depth 3",
                2,
                "--depth: no such option for --hash-function linear-svm",
            ),
            ("train X.npy y.npy -o m --min-shared 3", 2, "--min-shared is for tags only"),
            ("train X.npy y.npy", 2, "Missing option '-o'"),
            ("info X.npy", 1, r"X\.npy: not a model file"),
            ("info no.hashgrove", 1, "no such file"),
            ("encode corrupt.hashgrove X.npy -o c.npy", 1, r"corrupt\.hashgrove: .*checksum"),
            ("encode cut.hashgrove X.npy -o c.npy", 1, r"cut\.hashgrove: .*cut short or damaged"),
            ("encode small.hashgrove narrow.npy -o c.npy", 1, "must have 64 features per row, .* Got 5 instead"),
            ("encode small.hashgrove nan.npy -o c.npy", 1, r"Got nan in row 7, column 3"),
            ("encode small.hashgrove X.npy -o c.txt", 2, "must end in .npy, .csv or .parquet"),
            ("search wide.npy queries.npy --model small.hashgrove", 1, r"wide\.npy: .*2 bytes per row.* Got 8"),
            ("search small.npy wide.npy", 1, "codes must have 2 bytes per row, as small.npy has. Got 8"),
            ("search small.npy queries.npy", 1, "give --model"),
            (
                "search X.npy queries.npy --model small.hashgrove",
                1,
                "must be packed codes, .* Got float64 instead; .* encode them first",
            ),
            ("search small.npy small.npy -k 3 --radius 2", 2, "-k or --radius, not both"),
            ("search small.npy small.npy -k 0", 2, "'-k'"),
            (
                f"{EVALUATE} -k few",
                2,
                "'-k': must be a whole number",
            ),
            (
                f"{EVALUATE} --min-shared 2",
                2,
                "--min-shared is for tags only",
            ),
            ("evaluate small.npy small.npy --y-database yd.npy --y-queries yq.npy", 1, r"yq\.npy: must have 300 rows"),
            ("evaluate small.npy small.npy", 2, "Missing option '--y-queries'"),
            (
                f"{EVALUATE} --ties first",
                2,
                "'first' is not one of",
            ),
            ("nonsense", 2, r"No such command 'nonsense'\. See 'hashgrove --help'"),
            ("trian X.npy", 2, r"No such command 'trian'\. Did you mean 'train'\? See 'hashgrove --help'"),
            ("index bild X.npy", 2, r"No such command 'bild'\. Did you mean 'build'\? See 'hashgrove index --help'"),
            ("features gst x", 2, r"No such command 'gst'\. Did you mean 'gist'\?"),
            ("train X.npy y.npy -o m --hash-functoin trees", 2, "Did you mean '--hash-function'"),
        ],
    )
    def test_is_one_line(self, here, capsys, arguments, code, match):
        X = np.load("X.npy")
        X[7, 3] = np.nan
        np.save("nan.npy", X)
        np.save("one.npy", np.zeros(N_TRAIN, int))
        np.save("narrow.npy", X[:, :5])
        np.save("wide.npy", np.zeros((4, 8), np.uint8))
        np.save("far.npy", np.array([[0, 300, 1], [0, 1, -1]]))
        model = bytearray(Path("small.hashgrove").read_bytes())
        Path("cut.hashgrove").write_bytes(model[:-9])
        model[-1] ^= 1
        Path("corrupt.hashgrove").write_bytes(model)
        fails(capsys, *arguments.split(), code=code, match=match)
        assert not Path("m").exists()
        assert not Path("c.npy").exists()

    def test_by_a_real_process(self, folder):
        command = [sys.executable, "-m", "hashgrove", "encode", "small.hashgrove", "no.npy", "-o", "c.npy"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "Error: no.npy: no such file\n")

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_folder_without_permission(self, here, capsys, tmp_path):
        tmp_path.chmod(0o500)
        fails(capsys, "train", "X.npy", "y.npy", "-o", f"{tmp_path}/m", code=1, match="no permission")

    @pytest.mark.skipif(os.name != "posix", reason="permission bits")
    def test_a_read_only_output_is_refused_before_any_work(self, here, capsys, monkeypatch):
        kept = Path("protected.hashgrove")
        kept.write_bytes(b"old")
        kept.chmod(0o444)
        monkeypatch.setattr(FastHash, "fit", lambda *args, **more: pytest.fail("was trained"))
        fails(capsys, "train", "X.npy", "y.npy", "-o", str(kept), *TRAIN, code=1, match="the file is read-only")
        assert kept.read_bytes() == b"old"

    def test_output_is_kept_when_a_run_fails(self, here, capsys, monkeypatch):
        kept = Path("kept.hashgrove")
        kept.write_bytes(b"old")

        def broken(*args, **settings):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.replace", broken)
        fails(capsys, "train", "X.npy", "y.npy", "-o", str(kept), *TRAIN, code=1, match="No space left")
        assert kept.read_bytes() == b"old"
        assert not list(Path().glob(".hashgrove-*"))

    @pytest.mark.parametrize(
        ("error", "code", "line"),
        [
            (KeyboardInterrupt(), 130, "Error: interrupted\n"),
            (MemoryError("Unable to allocate 9 TiB"), 1, "Error: not enough memory. Unable to allocate 9 TiB\n"),
            (ValueError("first\n  second"), 1, "Error: first second\n"),
            (PermissionError(13, "Permission denied", "m"), 1, "Error: [Errno 13] Permission denied: 'm'\n"),
        ],
    )
    def test_of_any_library_is_one_line(self, capsys, monkeypatch, error, code, line):
        def broken(path):
            raise error

        monkeypatch.setattr("hashgrove.storage.modelfile.read_header", broken)
        assert call(capsys, "info", "m") == (code, "", line)

    def test_warnings_are_one_line(self, here, capsys, monkeypatch):
        def warn(path):
            warnings.warn("of two\nlines", UserWarning, stacklevel=1)
            return read_header(path)

        monkeypatch.setattr("hashgrove.storage.modelfile.read_header", warn)
        status, _, err = call(capsys, "info", "small.hashgrove")
        assert (status, err) == (0, "Warning: of two lines\n")

    def test_what_a_file_says_cannot_drive_the_terminal(self, here, capsys):
        from hashgrove.storage.modelfile import write

        write("hostile", kind="encoder", header={"hasher": "\x1b[2J"}, arrays={"a": np.zeros(1)})
        assert "\x1b" not in call(capsys, "info", "hostile")[1]


class TestHelp:
    def test_is_light_and_lists_every_command(self, tmp_path):
        code = (
            "import sys; sys.argv[1:] = ['--help']\nfrom hashgrove.cli import main\ntry: main()\n"
            "finally: print(sorted({'numpy', 'numba', 'sklearn', 'scipy'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("[]\n")
        assert all(f"\n  {command} " in done.stdout for command in COMMANDS)

    def test_version_and_no_arguments(self, capsys):
        from hashgrove import __version__

        assert call(capsys, "--version") == (0, f"hashgrove, version {__version__}\n", "")
        assert call(capsys)[:2] == call(capsys, "--help")[:2]

    @pytest.mark.parametrize("command", COMMANDS)
    def test_of_every_command_has_an_example(self, capsys, command):
        assert {example[0] for example in examples(call(capsys, command, "--help")[1])} == {command}

    def test_shows_the_defaults_of_the_classes(self, capsys):
        text = " ".join(call(capsys, "train", "--help")[1].split())
        trees = inspect.signature(BoostedTrees).parameters
        assert f"Length of a code. [default: {FastHash().n_bits}]" in text
        assert re.search(rf"--depth INTEGER [^\[\]]+ \[default: {trees['max_depth'].default}\]", text)
        assert f"[{'|'.join(LOSSES)}]" in text

    def test_every_command_has_an_example_on_its_page(self):
        text = (DOCS / "cli.md").read_text()
        sections = dict(re.findall(r"^## hashgrove (\w+)\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL))
        assert set(sections) == set(COMMANDS)
        for name in COMMANDS:
            assert f"$ hashgrove {name}" in sections[name]
