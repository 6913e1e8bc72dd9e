"""The command ``hashgrove features``: one command per extractor in the registry, and one for a saved extractor.

A command is made from its extractor's class: the options from its signature, the help from its docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.cli.program import Group
from hashgrove.cli.signature import Settings, SignatureCommand, signature_options

if TYPE_CHECKING:
    from hashgrove.features import FeatureExtractor

__all__ = ["features"]


class _Extractors(Group):
    """A group that has a command for each extractor of `hashgrove.features.FEATURES`, besides its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the extractors, and then of the other commands."""
        from hashgrove.features import FEATURES

        return [*FEATURES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of an extractor, or one of the other commands."""
        from hashgrove.features import FEATURES

        if cmd_name in FEATURES:
            return _extractor_command(FEATURES[cmd_name])
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Extractors)
def features() -> None:
    """Turn images into a matrix of features.

    IMAGES is a folder, which is searched with all folders in it; one image; a text file with one path per line; or a
    uint8 array of shape (n, height, width) or (n, height, width, 3) in a .npy or .npz file.

    \b
    Example:
      hashgrove features gist images/ -o X.npy --save gist.hashgrove
    """


_images = click.argument("images")
_output = click.option("-o", "--output", required=True, metavar="FEATURES", help="The .npy file to write.")
_on_error = click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="What to do about a file that is no image: stop with an error, or warn and leave it out.",
)
_save = click.option(
    "--save", metavar="FILE", help="Also write the extractor, for `features apply` and `train --features`."
)


def _extractor_command(extractor: type[FeatureExtractor]) -> click.Command:
    """The command that computes the features of one kind of extractor."""
    summary = inspect.cleandoc(extractor.__doc__ or "").split("\n\n")[0]
    example = f"hashgrove features {extractor.name} images/ -o X.npy {extractor.example_options}".rstrip()

    def run(images: str, output: str, save: str | None, on_error: str, n_jobs: int | None, settings: Settings) -> None:
        own = settings.of("")
        if "verbose" in inspect.signature(extractor).parameters:
            own["verbose"] = 1
        inputs = tuple(value for value in own.values() if isinstance(value, str))
        _extract(extractor(**own, n_jobs=n_jobs), images, output, save=save, on_error=on_error, inputs=inputs)

    command: Callable[..., Any] = run
    for decorate in (options.n_jobs, _on_error, _save, _output, _images):
        command = decorate(command)
    return click.command(
        extractor.name,
        cls=SignatureCommand,
        derive=lambda: signature_options({"": extractor}),
        help=f"{summary}\n\n\b\nExample:\n  {example}",
    )(command)


@features.command()
@click.argument("extractor")
@_images
@_output
@_on_error
@options.n_jobs
def apply(extractor: str, images: str, output: str, on_error: str, n_jobs: int | None) -> None:
    """Compute features with an EXTRACTOR that --save wrote.

    \b
    Example:
      hashgrove features apply gist.hashgrove more-images/ -o more.npy
    """
    from hashgrove.features import load_extractor

    fitted = load_extractor(extractor).set_params(n_jobs=n_jobs)
    _extract(fitted, images, output, save=None, on_error=on_error, inputs=(extractor,), fit=False)


def _extract(
    extractor: FeatureExtractor,
    images: str,
    output: str,
    *,
    save: str | None,
    on_error: str,
    inputs: tuple[str, ...] = (),
    fit: bool = True,
) -> None:
    """Fit the extractor, write the features and, if the images are files, the path of the image of each row."""
    options.refuse(not output.endswith(".npy"), f"--output must end in .npy. Got {output!r}.")
    from hashgrove.cli.images import names_file, read_image_input, usable_images, write_names
    from hashgrove.cli.inputs import check_output
    from hashgrove.runtime.progress import show_count

    check_output(output, inputs=(images, *inputs))
    if save is not None:
        check_output(save, inputs=(images, *inputs), outputs=(output,))
    given = read_image_input(images)
    if isinstance(given, list):
        check_output(names_file(output), inputs=(images, *inputs), outputs=(output, save))
    if isinstance(given, list) and fit and extractor.learns and on_error == "skip":
        given = usable_images(given)
    if fit:
        extractor.fit(given)
    kept: list[int] = []
    with show_count("images", len(given)) as show:

        def note(numbers: Any, done: int) -> None:
            kept.extend(numbers.tolist())
            show(done)

        shape = extractor.transform_to(given, output, on_error=on_error, callback=note)
    if isinstance(given, list):
        write_names(output, [given[number] for number in kept])
    if save is not None:
        extractor.save(save)
    named = f", names in {names_file(output)}" if isinstance(given, list) else ""
    click.echo(f"Wrote {shape[0]:,} rows of {shape[1]:,} features to {output}{named}", err=True)
    if save is not None:
        click.echo(f"Wrote the extractor to {Path(save)}", err=True)
