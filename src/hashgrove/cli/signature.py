"""Options that come from the signature of a class or function of the library, so that no option is written twice.

For each parameter the flag is made from its name, the type from its annotation, limits and choices from the declared
``constraints``, and the help text from the first sentence of its description in the numpydoc docstring. A class may
name flags of its own in the attribute ``flags``, such as ``{"path": "--network"}``. A parameter whose annotation is no
plain number, text, truth value or tuple of numbers has no option.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    from hashgrove.runtime.parameters import Constraint

__all__ = ["Settings", "SignatureCommand", "SignatureOption", "descriptions", "signature_options"]

FLAGS = {"random_state": "--seed", "image_size": "--size", "n_iter": "--iterations", "max_depth": "--depth", "k": "-k"}
SET_BY_COMMANDS = {"n_jobs", "verbose", "callbacks", "warm_start"}  # parameters that never become an option here
OPTIONS_OF, SHARED = "Options of ", "Options of several hash functions"
SEEDS = (0, 2**32 - 1)


@dataclass(frozen=True)
class _Parameter:
    """One parameter of one owner, which is a class or function."""

    name: str
    kind: Any  # a type of click, or bool for a flag
    default: Any
    help: str
    required: bool


class _Value(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """One number or text, or several numbers with a comma or an x between them: 128, 96x128 or 8,8,4."""

    def __init__(
        self, kind: type, constraint: Constraint | None, *, several: bool = False, single: bool = True, name: str = ""
    ) -> None:
        self.kind, self.constraint, self.several, self.single = kind, constraint, several, single
        words = {int: "INTEGER", float: "NUMBER", str: "TEXT"}
        tuples = "N,N,..." if not single else "N or NxN" if kind is int else "N or N,N,N"
        self.name = name or (tuples if several else words[kind])

    def __repr__(self) -> str:
        return self.name

    def without_constraint(self) -> _Value:
        """The same type for values that are checked later."""
        return _Value(self.kind, None, several=self.several, single=self.single, name=self.name)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The form of a value, for the help."""
        return self.name

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parse the text and check it; "none" stands for None where the constraint allows it."""
        if value.lower() == "none" and (self.constraint is None or self.constraint.allows(None)):
            return None
        try:
            parts = [self.kind(part) for part in (re.split("[x,]", value) if self.several else [value])]
        except ValueError:
            expected = {int: "a whole number", float: "a number", str: "text"}[self.kind]
            wanted = f"{expected}, or several with commas between them" if self.several else expected
            self.fail(f"must be {wanted}. Got {value!r} instead.", param, ctx)
        parsed = parts[0] if len(parts) == 1 and self.single else tuple(parts)
        if self.constraint is not None and not self.constraint.allows(parsed):
            wanted = str(self.constraint).replace("a tuple of ", "")  # on the command line there are no tuples
            self.fail(f"must be {wanted}. Got {value!r} instead.", param, ctx)
        return parsed


class SignatureOption(click.Option):
    """The option of one flag, for every owner that has a parameter with this flag.

    The default belongs to the owner: the option only shows it, and a value reaches the owner only if it was given.
    """

    def __init__(self, flag: str, parameters: Mapping[str, _Parameter]) -> None:
        self.parameters = parameters
        first = next(iter(parameters.values()))
        is_flag = first.kind is bool
        names = f"{flag}/--no-{flag.lstrip('-')}" if is_flag and first.default is not False else flag
        super().__init__(
            [names, "from_signature_" + flag.strip("-").replace("-", "_")],
            **({"is_flag": True} if is_flag else {"type": _common_kind(flag, parameters)}),
            required=any(parameter.required for parameter in parameters.values()),
            help=_help(parameters),
        )


def _common_kind(flag: str, parameters: Mapping[str, _Parameter]) -> Any:
    """The type of a flag; limits that differ between its owners are left for the chosen owner to check."""
    kinds = [parameter.kind for parameter in parameters.values()]
    if len(set(map(repr, kinds))) > 1:
        raise TypeError(
            f"{flag} must have one type for all of {list(parameters)}. Rename it in the 'flags' of a class."
        )
    limits = [kind.constraint for kind in kinds if isinstance(kind, _Value)]
    if limits and isinstance(kinds[0], _Value) and any(limit != limits[0] for limit in limits):
        return kinds[0].without_constraint()
    return kinds[0]


@dataclass(frozen=True)
class Settings:
    """The values of a call's `SignatureOption`s, of those that the caller gave."""

    given: tuple[tuple[SignatureOption, Any], ...]

    def of(self, owner: str) -> dict[str, Any]:
        """Parameters of one owner, by name."""
        return {option.parameters[owner].name: value for option, value in self.given if owner in option.parameters}

    def flags_not_of(self, *owners: str) -> list[str]:
        """Flags that were given although none of ``owners`` has such a parameter."""
        return [option.opts[0] for option, _ in self.given if not set(owners) & set(option.parameters)]


class SignatureCommand(click.Command):
    """A command whose options come in part from signatures; its function gets them as ``settings``.

    ``derive`` gives these options. It is called when the help or a run of the command needs them, not before, because
    it imports the classes. The help shows the options in ``groups``, which are collections of flags by their title;
    options of a single owner have a group of their own.
    """

    def __init__(
        self,
        *args: Any,
        derive: Callable[[], Iterable[SignatureOption]],
        groups: Mapping[str, Collection[str]] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._derive = derive
        self._groups = groups or {}

    @cached_property
    def derived(self) -> list[SignatureOption]:
        """The options that come from signatures."""
        with show_step(LOADING):
            return list(self._derive())

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, for the parser and the help."""
        *own, help_option = super().get_params(ctx)
        return [*own, *self.derived, help_option]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in [*self._groups, "Options"]}
        order = [flag for flags in self._groups.values() for flag in flags]
        places = {flag: place for place, flag in enumerate(order)}
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        for option in sorted(options, key=lambda option: places.get(option.opts[-1], len(order))):
            record = option.get_help_record(ctx)
            if record is not None:
                title = self._title(option)
                redundant = f"{title.removeprefix(OPTIONS_OF)}: "
                sections.setdefault(title, []).append((record[0], record[1].removeprefix(redundant)))
        shared = {SHARED: sections.pop(SHARED, [])}  # they come last
        for title, records in (sections | shared).items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _title(self, option: click.Option) -> str:
        """The title of the group that an option is in."""
        owners = list(option.parameters) if isinstance(option, SignatureOption) else [""]
        named = (title for title, flags in self._groups.items() if not {*flags}.isdisjoint(option.opts))
        if owners == [""] or not self._groups:
            return next(named, "Options")
        return f"{OPTIONS_OF}{owners[0]}" if len(owners) == 1 else SHARED

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with the derived options gathered in ``settings``."""
        values = [(option, option.name, ctx.params.pop(str(option.name))) for option in self.derived]
        given = tuple((option, value) for option, name, value in values if _was_given(ctx, str(name)))
        ctx.params["settings"] = Settings(given)
        return super().invoke(ctx)


def _was_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def signature_options(
    owners: Mapping[str, Callable[..., Any]],
    *,
    only: Collection[str] | None = None,
    skip: Collection[str] = (),
    choices: Mapping[str, Iterable[str]] | None = None,
) -> list[SignatureOption]:
    """Options for the parameters of classes or functions; owners that have a flag in common share one option.

    Parameters
    ----------
    owners : dict
        The classes or functions by name; `Settings.of` takes the same names.
    only, skip : collections of str
        Parameters to use, all by default, and parameters to leave out.
    choices : dict, optional
        Names to choose from, for parameters whose names are kept in a registry rather than in a constraint.
    """
    by_flag: dict[str, dict[str, _Parameter]] = {}
    for owner, function in owners.items():
        flags: Mapping[str, str] = {**FLAGS, **getattr(function, "flags", {})}
        for parameter in _parameters(function, choices or {}):
            if parameter.name in skip or (only is not None and parameter.name not in only):
                continue
            flag = flags.get(parameter.name) or "--" + parameter.name.removeprefix("n_").replace("_", "-")
            by_flag.setdefault(flag, {})[owner] = parameter
    return [SignatureOption(flag, parameters) for flag, parameters in by_flag.items()]


def _parameters(function: Callable[..., Any], choices: Mapping[str, Iterable[str]]) -> list[_Parameter]:
    """The parameters that can be options."""
    from hashgrove.runtime.parameters import declared_constraints

    constraints = declared_constraints(function) if inspect.isclass(function) else {}
    texts = descriptions(function)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        constraint = constraints.get(name)
        names = choices.get(name)
        kind = click.Choice(tuple(names)) if names is not None else _kind(name, parameter.annotation, constraint)
        if kind is not None and name not in SET_BY_COMMANDS:
            required = constraint is not None and not constraint.allows(parameter.default)
            text = texts.get(name, "").replace("None means", "none means")  # as `_Value.convert` takes it
            found.append(_Parameter(name, kind, parameter.default, text, required))
    return found


def _kind(name: str, annotation: Any, constraint: Constraint | None) -> Any:
    """The type of click for an option of this parameter; None if the parameter cannot be an option."""
    from hashgrove.runtime.parameters import Integer, OneOf

    if name == "random_state":
        return _Value(int, Integer(*SEEDS))
    if isinstance(constraint, OneOf):
        return click.Choice([choice for choice in constraint.choices if isinstance(choice, str)])
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    forms = [form.strip() for form in text.split("|")]
    if "bool" in forms:
        return bool
    tuples = [form for form in forms if re.fullmatch(r"tuple\[(int|float)\b.*\]", form)]
    for kind in (float, int, str):
        if any(f"[{kind.__name__}" in form for form in tuples):
            return _Value(kind, constraint, several=True, single=kind.__name__ in forms)
        if kind.__name__ in forms:
            return _Value(kind, constraint, name="FILE" if name == "path" else "")
    return None


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """First sentence about each parameter in a numpydoc docstring.

    >>> def area(width, height):
    ...     '''Multiply.
    ...
    ...     Parameters
    ...     ----------
    ...     width, height : float
    ...         The two sides. Both are in metres.
    ...     '''
    >>> descriptions(area)
    {'width': 'The two sides.', 'height': 'The two sides.'}
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n---|\Z)", inspect.getdoc(function) or "", re.M | re.S)
    lines: dict[str, list[str]] = {}
    for line in (section[1] if section else "").splitlines():
        if line and not line.startswith(" "):
            names = line.split(" :")[0]
            lines[names] = []
        elif line:
            lines[names].append(line.strip())
    texts = {names: re.split(r"(?<=[.!?])\s+(?=[A-Z`(\"])", " ".join(parts))[0] for names, parts in lines.items()}
    return {name: text.replace("`", "") for names, text in texts.items() for name in names.split(", ")}


def _help(parameters: Mapping[str, _Parameter]) -> str:
    """Meaning of the option, with its owners if there are several, and its default."""
    owners_of: dict[str, list[str]] = {}
    defaults: dict[str, list[str]] = {}
    for owner, parameter in parameters.items():
        owners_of.setdefault(parameter.help, []).append(owner)
        defaults.setdefault(_shown(parameter.default), []).append(owner)
    named = "" not in parameters
    texts = [f"{', '.join(owners)}: {text}" if named else text for text, owners in owners_of.items()]
    default = ", ".join(
        f"{text} for {', '.join(owners)}" if len(defaults) > 1 else text for text, owners in defaults.items() if text
    )
    return " ".join(texts) + (f" [default: {default}]" if default else "")


def _shown(default: Any) -> str:
    if default is None or default is False or default is inspect.Parameter.empty:
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "yes" if default is True else f"{default:g}" if isinstance(default, float) else str(default)
