"""The commands that go from images to features: one for each extractor, and one for an extractor from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options

if TYPE_CHECKING:
    from hashgrove.features import FeatureExtractor

__all__ = ["features"]


@click.group()
def features() -> None:
    """Turn images into a matrix of features.

    IMAGES are a folder, with all folders in it; one image; a text file with a path on each line; or an array of
    uint8 in a .npy or .npz file, of shape (n, height, width) or (n, height, width, 3).

    \b
    Example:
      hashgrove features gist images/ -o X.npy --save gist.hashgrove
    """


def _io(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments and options that every one of these commands has."""
    skip = click.Choice(("raise", "skip"))
    for decorate in (
        options.threads,
        click.option("--on-error", type=skip, default="raise", show_default=True, help="On a file that is no image."),
        click.option("-o", "--output", "target", required=True, metavar="FEATURES", help="The .npy file to write."),
        click.argument("images"),
    ):
        command = decorate(command)
    return command


_save = click.option("--save", metavar="FILE", help="Write the extractor, too, for `apply` and `train --features`.")


@features.command()
@_io
@_save
@options.gist
def gist(images: str, target: str, save: str | None, on_error: str, **settings: Any) -> None:
    """GIST: orientations and scales in the blocks of a grid.

    \b
    Example:
      hashgrove features gist images/ -o X.npy --size 128
    """
    from hashgrove import Gist

    _extract(Gist(**settings), images, target, save=save, on_error=on_error)


@features.command()
@_io
@_save
@options.codebook
def codebook(images: str, target: str, save: str | None, on_error: str, **settings: Any) -> None:
    """Codes of all patches by a dictionary that is learned from the images.

    \b
    Example:
      hashgrove features codebook images/ -o X.npy --size 32 --type uint8 --seed 0 --save codebook.hashgrove
    """
    from hashgrove import Codebook

    _extract(Codebook(**settings, verbose=1), images, target, save=save, on_error=on_error)


@features.command()
@_io
@_save
@options.onnx
def onnx(images: str, target: str, save: str | None, on_error: str, **settings: Any) -> None:
    """An output of an image network in an ONNX file.

    \b
    Example:
      hashgrove features onnx images/ -o X.npy --network net.onnx --size 224 --mean 127 --std 128
    """
    from hashgrove import OnnxFeatures

    _extract(OnnxFeatures(**settings), images, target, save=save, on_error=on_error, inputs=(settings["path"],))


@features.command()
@click.argument("extractor")
@_io
def apply(extractor: str, images: str, target: str, on_error: str, n_jobs: int | None) -> None:
    """Features by an EXTRACTOR that --save wrote.

    \b
    Example:
      hashgrove features apply gist.hashgrove more-images/ -o more.npy
    """
    from hashgrove.features import load

    fitted = load(extractor).set_params(n_jobs=n_jobs)
    _extract(fitted, images, target, save=None, on_error=on_error, inputs=(extractor,), fit=False)


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
    """Fit the extractor, write the features and, where the images are files, the name of each row."""
    options.refuse(not output.endswith(".npy"), f"--output must end in .npy. Got {output!r}.")
    from hashgrove.cli.inputs import check_output, names_file, read_image_input, usable_images, write_names
    from hashgrove.runtime.progress import image_progress

    for target in filter(None, (output, save)):
        check_output(target, inputs=(images, *inputs))
    given = read_image_input(images)
    if isinstance(given, list):
        check_output(names_file(output), inputs=(images,))
    if isinstance(given, list) and fit and extractor.learns and on_error == "skip":
        given = usable_images(given)
    if fit:
        extractor.fit(given)
    kept: list[int] = []
    with image_progress(len(given)) as show:

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
