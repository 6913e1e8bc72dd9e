"""What a contributor adds appears on the command line: options of learners and extractors, commands, and notices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import ClassVar

import click
import numpy as np
import pytest
from sklearn.base import BaseEstimator

import hashgrove.cli
from command import call, fails
from hashgrove.cli.program import Program
from hashgrove.cli.signature import SignatureOption, descriptions, signature_options
from hashgrove.cli.train import train
from hashgrove.encoders import Linear
from hashgrove.features import FEATURES, FeatureExtractor
from hashgrove.functions import HASH_FUNCTIONS
from hashgrove.runtime.parameters import Flag, Integer, Number, OneOf
from hashgrove.runtime.progress import COMPILING, COMPILING_AGAIN


class Centroids(BaseEstimator):
    """The hyperplane between the two sides of a bit.

    Parameters
    ----------
    shift : float, default=0
        Moves the hyperplane. It has no unit.
    C : float or None, default=2
        Not used.
    kind : {"mean", "median"}, default="mean"
        What the centre of a side is.
    scale : bool, default=True
        Divide by the length.
    random_state : int or None
        The seed of `FastHash` takes this flag.
    other : object
        Cannot be an option.
    """

    constraints: ClassVar = {"shift": Number(low=0), "kind": OneOf(("mean", "median")), "scale": Flag()}
    seen: ClassVar = []

    def __init__(self, *, shift: float = 0.0, C: float | None = 2.0, kind="mean", scale: bool = True,
                 random_state=None, other: object = None) -> None:  # fmt: skip
        self.shift, self.C, self.kind, self.scale = shift, C, kind, scale
        self.random_state, self.other = random_state, other

    def prepare(self, X, rng, *, supervision=None, earlier=None, n_jobs=None):
        self.seen.append(self.get_params())
        return np.asarray(X, dtype=float)

    def learn(self, data, z, weights, rng):
        weight = z @ data / len(z)
        encoder = Linear(weights=weight[None], bias=np.array([-weight @ data.mean(axis=0) + self.shift]))
        return encoder, np.where(encoder.scores(data)[:, 0] > 0, 1, -1).astype(np.int8)


@pytest.fixture
def here(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    np.save(tmp_path / "X.npy", rng.random((40, 3)) + y[:, None])
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "images.npy", rng.integers(256, size=(5, 8, 8), dtype=np.uint8))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def centroids(monkeypatch):
    """The learner in the registry; options that were read before are read again."""
    monkeypatch.setitem(HASH_FUNCTIONS, "centroids", Centroids)
    vars(train).pop("derived", None)
    yield
    vars(train).pop("derived", None)


class TestHashFunction:
    ORDER = ("train", "X.npy", "y.npy", "-o", "m", "--bits", "2", "--quiet", "--hash-function", "centroids")

    def test_its_options_come_from_its_signature(self, centroids, here, capsys):
        options = ("--shift", "0.5", "--C", "none", "--kind", "median", "--no-scale", "--seed", "3")
        status, _, err = call(capsys, *self.ORDER, *options)
        assert status == 0, err
        expected = {"shift": 0.5, "C": None, "kind": "median", "scale": False, "random_state": None, "other": None}
        assert Centroids.seen[-1] == expected

    def test_without_options_it_has_its_defaults(self, centroids, here, capsys):
        assert call(capsys, *self.ORDER)[0] == 0
        assert Centroids.seen[-1] == Centroids().get_params()

    def test_its_help(self, centroids, capsys):
        text = " ".join(call(capsys, "train", "--help")[1].split())
        _, own = text.split(" Options of centroids: ")
        assert own.startswith("--shift NUMBER Moves the hyperplane. [default: 0]")
        assert "--kind [mean|median] What the centre of a side is. [default: mean]" in own
        assert "--scale / --no-scale Divide by the length. [default: yes]" in own
        assert re.search(r"--C NUMBER linear-svm: [^\]]*centroids: Not used\. \[default: 2 for centroids\]", text)
        assert "--other" not in text

    def test_its_help_has_groups(self, centroids, capsys):
        _, text, _ = call(capsys, "train", "-h")
        titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
        assert titles[:5] == ["Data", "Codes", "Running", "Method", "Options of trees"]
        assert titles[-1] == "Options of several hash functions"
        shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
        context = click.Context(train, help_option_names=["-h", "--help"])
        flags = [option.opts for option in train.get_params(context) if isinstance(option, click.Option)]
        assert sorted(shown) == sorted(next(f for f in option if f.startswith("--")) for option in flags)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ("--shift -1", "'--shift': must be a number of at least 0. Got '-1' instead"),
            ("--kind sum", "'sum' is not one of 'mean', 'median'"),
            ("--depth 3 --trees 4", "--trees and --depth: no such option for --hash-function centroids"),
        ],
    )
    def test_wrong_options(self, centroids, here, capsys, options, match):
        fails(capsys, *self.ORDER, *options.split(), code=2, match=match)


class TestOptions:
    def test_of_several_owners(self):
        class One:
            constraints: ClassVar = {"n_steps": Integer(1)}

            def __init__(self, n_steps: int = 5):
                pass

        class Two:
            constraints: ClassVar = {"n_steps": Integer(-1)}

            def __init__(self, n_steps: int = -1):
                pass

        [option] = signature_options({"one": One, "two": Two})
        assert option.opts == ["--steps"]
        assert option.type.convert("-1", option, None) == -1  # limits that differ are for the chosen owner to check
        assert option.help.endswith("[default: 5 for one, -1 for two]")

    def test_types_that_differ_need_another_flag(self):
        class Text:
            def __init__(self, size: str = "a"):
                pass

        class Number:
            def __init__(self, size: int = 1):
                pass

        with pytest.raises(TypeError, match=r"--size must have one type for all of .'text', 'number'"):
            signature_options({"text": Text, "number": Number})
        Number.flags = {"size": "--number"}
        assert [option.opts[0] for option in signature_options({"text": Text, "number": Number})] == [
            "--size",
            "--number",
        ]

    @pytest.mark.parametrize(
        ("annotation", "text", "value"),
        [
            ("int | tuple[int, int] | None", "96x128", (96, 128)),
            ("int | tuple[int, int] | None", "96", 96),
            ("int | tuple[int, int] | None", "none", None),
            ("tuple[int, ...]", "8", (8,)),
            ("tuple[int, ...]", "8,8,4", (8, 8, 4)),
            ("float | tuple[float, float, float]", "1,2,3.5", (1.0, 2.0, 3.5)),
            ("str | os.PathLike[str]", "a,b", "a,b"),
            (float, "1e-3", 0.001),
        ],
    )
    def test_values(self, annotation, text, value):
        def function(parameter=None):
            pass

        function.__annotations__["parameter"] = annotation
        [option] = signature_options({"": function})
        assert option.type.convert(text, option, None) == value

    def test_descriptions_skip_other_sections(self):
        texts = descriptions(Centroids)
        assert texts["shift"] == "Moves the hyperplane."
        assert texts["random_state"] == "The seed of FastHash takes this flag."


class Brightness(FeatureExtractor):
    """Mean brightness of an image.

    Parameters
    ----------
    power : int, default=1
        Exponent of the pixels.
    n_jobs : int or None
        Number of threads.
    """

    name = "brightness"
    constraints: ClassVar = {"power": Integer(1, 3)}
    flags: ClassVar = {"power": "--exponent"}

    def __init__(self, power: int = 1, *, n_jobs: int | None = None) -> None:
        self.power = power
        self.n_jobs = n_jobs

    def _learn(self, source):
        self.n_features_ = 1

    def _features(self, batch):
        return batch.reshape(len(batch), -1).mean(axis=1, keepdims=True) ** self.power

    @classmethod
    def from_arrays(cls, parameters, arrays):
        extractor = cls._from_parameters(parameters)
        extractor.n_features_ = 1
        return extractor


class TestExtractor:
    def test_its_command_comes_from_its_class(self, here, capsys, monkeypatch):
        monkeypatch.setitem(FEATURES, "brightness", Brightness)
        assert "brightness  Mean brightness of an image." in call(capsys, "features", "--help")[1]
        text = " ".join(call(capsys, "features", "brightness", "--help")[1].split())
        assert "hashgrove features brightness images/ -o X.npy" in text
        assert "--exponent INTEGER Exponent of the pixels. [default: 1]" in text
        order = ("features", "brightness", "images.npy", "-o", "B.npy")
        status, _, err = call(capsys, *order, "--exponent", "2", "--save", "b.hashgrove")
        assert status == 0, err
        expected = np.load("images.npy").reshape(5, -1).mean(axis=1, keepdims=True) ** 2
        np.testing.assert_allclose(np.load("B.npy"), expected, rtol=1e-6)
        assert call(capsys, "features", "apply", "b.hashgrove", "images.npy", "-o", "C.npy")[0] == 0
        np.testing.assert_array_equal(np.load("C.npy"), np.load("B.npy"))
        fails(capsys, *order, "--exponent", "9", code=2, match="must be an integer from 1 to 3. Got '9'")

    @pytest.mark.parametrize("name", sorted(FEATURES))
    def test_every_parameter_is_described(self, name):
        options = signature_options({"": FEATURES[name]})
        assert all(option.help and not option.help.startswith("[") for option in options)
        wanted = set(FEATURES[name]().get_params()) - {"n_jobs", "verbose"}
        assert {option.parameters[""].name for option in options} == wanted


def test_a_command_is_a_file_and_a_name(tmp_path, monkeypatch):
    (tmp_path / "hello.py").write_text("import click\n@click.command()\ndef hello():\n    click.echo('hello')\n")
    monkeypatch.setattr(hashgrove.cli, "__path__", [*hashgrove.cli.__path__, str(tmp_path)])
    program = Program("program", names=("info", "hello"))
    assert program.list_commands(None) == ["info", "hello"]
    assert program.get_command(None, "hello").name == "hello"
    assert program.get_command(None, "demo") is None


def test_options_of_every_hash_function_are_found():
    owners = {owner for option in train.derived for owner in option.parameters}
    assert owners == {"", *HASH_FUNCTIONS}
    assert all(isinstance(option, SignatureOption) for option in train.derived)


class TestCompilation:
    """The first use says that it compiles, and later ones say nothing."""

    def err(self, folder, **environment):
        order = [sys.executable, "-m", "hashgrove", "search", "codes.npy", "codes.npy", "-k", "1", "--n-jobs", "1"]
        done = subprocess.run(
            order, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split()[-4:] == ["1", "1", "0", "1"]
        return done.stderr

    def test_notice_on_a_cold_cache_only(self, tmp_path):
        np.save(tmp_path / "codes.npy", np.array([[1, 2], [3, 4]], np.uint8))
        cache = str(tmp_path / "cache")
        assert self.err(tmp_path, NUMBA_CACHE_DIR=cache) == f"{COMPILING}\n"
        assert self.err(tmp_path, NUMBA_CACHE_DIR=cache) == ""

    def test_the_library_says_nothing(self, tmp_path):
        code = "import numpy as np; from hashgrove import hamming; hamming(*2 * [np.eye(2, dtype=np.uint8)])"
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")
        assert any(tmp_path.rglob("*.nbi"))  # it did compile

    def test_it_does_not_promise_a_cache_that_is_not_there(self, tmp_path):
        np.save(tmp_path / "codes.npy", np.array([[1, 2], [3, 4]], np.uint8))
        (tmp_path / "sitecustomize.py").write_text(
            "import numba.core.caching as c\n"
            "for locator in c.CacheImpl._locator_classes: locator.from_function = classmethod(lambda *a: None)\n"
        )
        path = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        assert self.err(tmp_path, PYTHONPATH=path) == f"{COMPILING_AGAIN}\n"


@pytest.mark.parametrize("name", ["weighted", "stagewise"])
@pytest.mark.parametrize("value", [True, False])
def test_a_flag_whose_default_depends_can_be_turned_on_and_off(here, capsys, name, value):
    flag = f"--{name}" if value else f"--no-{name}"
    call(capsys, "train", "X.npy", "y.npy", "-o", "model", "--bits", "2", "--trees", "2", "--seed", "0", flag)
    assert hashgrove.load_hasher("model").get_params()[name] is value
