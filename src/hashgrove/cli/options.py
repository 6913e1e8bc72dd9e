"""Options of the commands; defaults and names to choose from are those of the library.

Nothing heavy is imported here: they are read when the help or a run of their command needs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

import hashgrove

__all__ = [
    "csv_style",
    "evaluation",
    "gist",
    "json_style",
    "onnx",
    "query_model",
    "refuse",
    "threads",
    "training",
    "was_given",
]

POSITIVE = click.IntRange(min=1)
SEED = click.IntRange(0, 2**32 - 1)


class _Names(click.Choice):  # type: ignore[type-arg, unused-ignore]
    """A choice among the names in a registry, which is imported when they are needed."""

    def __init__(self, module: str, registry: str) -> None:
        self.case_sensitive = True
        self._home = module, registry

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names in the registry."""
        module, registry = self._home
        return tuple(getattr(import_module(module), registry))


class _Setting(click.Option):
    """An option for a parameter of a public class or function, with its default and by its name."""

    def __init__(self, *args: Any, of: str, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "show_default": True})
        self.of = of

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:
        """The default of the parameter, both in the help and in a run."""
        owner, parameter = self.of.split(".")
        return inspect.signature(getattr(hashgrove, owner)).parameters[parameter].default


class _Numbers(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """One number, or several with a mark between them: 128, 96x128 or 8,8,4."""

    def __init__(self, kind: type, mark: str, *, single: bool = True) -> None:
        self.kind, self.mark, self.single = kind, mark, single
        self.name = f"N{mark}N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number, or a tuple of them."""
        if not isinstance(value, str):
            return value
        try:
            numbers = tuple(self.kind(part) for part in value.split(self.mark))
        except ValueError:
            self.fail(f"{value!r} must be numbers with {self.mark!r} between them.", param, ctx)
        return numbers[0] if self.single and len(numbers) == 1 else numbers


LOSSES = _Names("hashgrove.losses", "LOSSES")
HASH_FUNCTIONS = _Names("hashgrove.functions", "HASH_FUNCTIONS")
SOLVERS = _Names("hashgrove.inference", "SOLVERS")
DIRECTIONS = _Names("hashgrove.functions.directions", "DIRECTIONS")
TIES = _Names("hashgrove.metrics.evaluation", "TIES")
DATASETS = _Names("hashgrove.datasets", "DATASETS")

TRAINING = (
    ("--bits", "FastHash.n_bits", POSITIVE, "Length of a code."),
    ("--loss", "FastHash.loss", LOSSES, "Loss of a pair."),
    ("--hash-function", "FastHash.hash_function", HASH_FUNCTIONS, "What learns a bit."),
    ("--inference", "FastHash.inference", SOLVERS, "What infers the values of a bit."),
    ("--directions", "FastHash.directions", DIRECTIONS, "Show hash functions directions of the labels, too."),
    ("--trees", "BoostedTrees.n_trees", POSITIVE, "Boosting rounds for a bit."),
    ("--depth", "BoostedTrees.max_depth", POSITIVE, "Depth of a tree."),
    ("--features-per-node", "BoostedTrees.features_per_node", POSITIVE, "Features tried in a node."),
    ("--min-shared", "FastHash.min_shared", POSITIVE, "Tags in common that make two rows similar."),
    ("--seed", "FastHash.random_state", SEED, "Seed; random if not given."),
)
RESAMPLING = _Names("hashgrove.features.images", "RESAMPLING")
SIZE = _Numbers(int, "x")
CHANNELS = _Numbers(float, ",")
GIST = (
    ("--orientations", "Gist.orientations", _Numbers(int, ",", single=False), "Orientations at each scale."),
    ("--blocks", "Gist.n_blocks", POSITIVE, "Blocks along each side."),
    ("--prefilter", "Gist.prefilter", float, "Cycles an image; what is coarser is removed."),
    ("--size", "Gist.image_size", SIZE, "Height, or height x width, that images are brought to."),
)
CODEBOOK = (
    ("--atoms", "Codebook.n_atoms", POSITIVE, "Size of the dictionary; 14 features an atom."),
    ("--dictionary", "Codebook.dictionary", click.Choice(("ksvd", "kmeans")), "How it is learned; k-means is faster."),
    ("--patches", "Codebook.n_patches", POSITIVE, "Random patches that it is learned from."),
    ("--iterations", "Codebook.n_iter", POSITIVE, "Iterations of the learning."),
    ("--patch-size", "Codebook.patch_size", POSITIVE, "Side of a patch in pixels."),
    ("--stride", "Codebook.stride", POSITIVE, "Pixels from one patch to the next."),
    ("--encoding", "Codebook.encoding", click.Choice(("positive", "absolute", "split")), "Code of a score."),
    ("--threshold", "Codebook.threshold", float, "Scores below it count as zero."),
    ("--pooling", "Codebook.pooling", click.Choice(("mean", "max")), "Over the patches of a region."),
    ("--type", "Codebook.output", click.Choice(("float32", "uint8")), "Of the features; uint8 is a quarter the size."),
    ("--size", "Codebook.image_size", SIZE, "Height, or height x width, that images from files are brought to."),
    ("--seed", "Codebook.random_state", SEED, "Seed; random if not given."),
)
ONNX = (
    ("--output-name", "OnnxFeatures.output", str, "Output of the network."),
    ("--size", "OnnxFeatures.image_size", SIZE, "Height, or height x width, that images are brought to."),
    ("--mean", "OnnxFeatures.mean", CHANNELS, "Of pixels from 0 to 255; one, or one a channel."),
    ("--std", "OnnxFeatures.std", CHANNELS, "The same: the input is (pixel - mean) / std."),
    ("--channels", "OnnxFeatures.channels", click.Choice(("rgb", "bgr")), "Order of the channels."),
    ("--layout", "OnnxFeatures.layout", click.Choice(("nchw", "nhwc")), "Order of the dimensions of the input."),
    ("--resampling", "OnnxFeatures.resampling", RESAMPLING, "How images are scaled."),
    ("--batch", "OnnxFeatures.batch_size", POSITIVE, "Images that go through the network together."),
)
EVALUATION = (
    ("-k", "evaluate.k", POSITIVE, "Depth of precision@k."),
    ("--ties", "evaluate.ties", TIES, "Items at one distance: expectation over their orders, or by id."),
    ("--min-shared", "evaluate.min_shared", POSITIVE, "Tags in common that make an item relevant."),
)


def _settings(table: tuple[tuple[str, str, Any, str], ...]) -> Callable[..., Any]:
    def decorate(command: Any) -> Any:
        for flag, of, kind, text in reversed(table):
            name = of.split(".")[1]
            command = click.option(flag, name, cls=_Setting, of=of, type=kind, help=text)(command)
        return command

    return decorate


training = _settings(TRAINING)
codebook = _settings(CODEBOOK)


def gist(command: Any) -> Any:
    """Options of the GIST extractor."""
    colour = click.option("--colour", is_flag=True, help="Of each channel, three times as many features.")
    return _settings(GIST)(colour(command))


def onnx(command: Any) -> Any:
    """Options of a network's features."""
    network = click.option("--network", "path", required=True, metavar="FILE", help="The ONNX file.")
    return network(_settings(ONNX)(command))


evaluation = _settings(EVALUATION)
json_style = click.option("--json", "style", flag_value="json", default=None, help="Print JSON, not a table.")
csv_style = click.option("--csv", "style", flag_value="csv", default=None, help="Print CSV, not a table.")
threads = click.option("--threads", "n_jobs", type=POSITIVE, help="Threads; all cores if not given.")
query_model = click.option(
    "--model", metavar="MODEL", help="Model that encodes QUERIES; without it they are packed codes."
)


def was_given(parameter: str) -> bool:
    """Whether the caller gave this parameter of the running command, rather than leave its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse(wrong: bool, message: str) -> None:
    """Refuse a call of the running command that is ``wrong``, with exit code 2."""
    if wrong:
        raise click.UsageError(message, click.get_current_context())
