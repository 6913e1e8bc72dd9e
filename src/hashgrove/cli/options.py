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

__all__ = ["csv_style", "evaluation", "json_style", "query_model", "refuse", "threads", "training", "was_given"]

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


LOSSES = _Names("hashgrove.losses", "LOSSES")
HASH_FUNCTIONS = _Names("hashgrove.functions", "HASH_FUNCTIONS")
SOLVERS = _Names("hashgrove.inference", "SOLVERS")
TIES = _Names("hashgrove.metrics.evaluation", "TIES")
DATASETS = _Names("hashgrove.datasets", "DATASETS")

TRAINING = (
    ("--bits", "FastHash.n_bits", POSITIVE, "Length of a code."),
    ("--loss", "FastHash.loss", LOSSES, "Loss of a pair."),
    ("--hash-function", "FastHash.hash_function", HASH_FUNCTIONS, "What learns a bit."),
    ("--inference", "FastHash.inference", SOLVERS, "What infers the values of a bit."),
    ("--trees", "BoostedTrees.n_trees", POSITIVE, "Boosting rounds for a bit."),
    ("--depth", "BoostedTrees.max_depth", POSITIVE, "Depth of a tree."),
    ("--features-per-node", "BoostedTrees.features_per_node", POSITIVE, "Features tried in a node."),
    ("--min-shared", "FastHash.min_shared", POSITIVE, "Tags in common that make two rows similar."),
    ("--seed", "FastHash.random_state", SEED, "Seed; random if not given."),
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
