"""The command ``hashgrove index``: build an index in a folder, change it and describe it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hashgrove.cli import options
from hashgrove.cli.program import Group
from hashgrove.cli.signature import Settings, SignatureCommand, SignatureOption, signature_options
from hashgrove.runtime.progress import LOADING, show_step

if TYPE_CHECKING:
    from hashgrove.cli.items import InputItems
    from hashgrove.features import FeatureExtractor
    from hashgrove.hasher import Hasher

__all__ = ["index", "write_info"]

VALIDATED = 100  # images from which on a fifth of them is held out, to measure how good the codes of new images are
_folder = click.argument("folder", metavar="INDEX")
_model = click.option("--model", metavar="MODEL", help="Model that encodes ITEMS, or that made them if they are codes.")


def _network_options() -> list[SignatureOption]:
    """Options of the network that `build` takes."""
    from hashgrove.features import OnnxFeatures

    names = ("output", "image_size", "preprocess", "mean", "std", "channels", "layout")
    return signature_options({"": OnnxFeatures}, only=names)


@click.group(cls=Group)
def index() -> None:
    """Build, change and describe an index.

    An index is a folder, such as photos.hgi. It is opened at once at any size, and a change that has been reported
    survives a crash. `hashgrove search` and `hashgrove query` search it.

    \b
    Example:
      hashgrove index build photos/ --network net.onnx --preprocess imagenet -o photos.hgi
    """


@index.command(cls=SignatureCommand, derive=_network_options)
@click.argument("items")
@click.option("-o", "--output", required=True, metavar="INDEX", help="Folder to write; an index there is replaced.")
@_model
@click.option("--network", metavar="FILE", help="ONNX network for images: its features are learned from and indexed.")
@click.option("--bits", type=options.POSITIVE, default=64, show_default=True, help="Bits of a code, with --network.")
@click.option("--labels-from-folders", is_flag=True, help="With --network: the folder of an image is its class.")
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of what is learned.")
@options.ids
@options.columns()
@click.option("--features/--no-features", "keep", default=True, help="Keep features in one byte each, for --rerank.")
@options.n_jobs
def build(
    items: str,
    output: str,
    model: str | None,
    network: str | None,
    bits: int,
    labels_from_folders: bool,
    seed: int,
    ids: str | None,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    keep: bool,
    n_jobs: int | None,
    settings: Settings,
) -> None:
    """Index ITEMS: packed codes, features with --model, or images with --network or a model for images.

    With --network, codes are learned from the images themselves: from their folders with --labels-from-folders
    (FastHash), otherwise without labels (ITQ). With --labels-from-folders, a fifth of the images is held out first, to
    measure how good the codes of new images are; `hashgrove index info` shows that again. Names of images become ids;
    so do names in X.names.txt beside X.npy.

    \b
    Example:
      hashgrove index build photos/ --network net.onnx --preprocess imagenet -o photos.hgi
    """
    options.refuse(model is not None and network is not None, "Give --model or --network, not both.")
    options.refuse(labels_from_folders and network is None, "--labels-from-folders is for --network only.")
    foreign = settings.flags_not_of() if network is None else []
    options.refuse(bool(foreign), f"{' and '.join(foreign)}: for --network only.")
    from hashgrove.storage.columns import Columns

    columns = Columns.of(label_column, id_column, feature_columns)
    for_files = ids is not None or columns.any_named
    options.refuse(network is not None and for_files, "--ids and columns are for files; with --network, paths are ids.")
    with show_step(LOADING):
        from hashgrove.cli.items import read_items
    from hashgrove.index.folder import MODEL
    from hashgrove.metrics import describe_codes
    from hashgrove.storage.atomic import atomic_write

    target = os.path.join(output, MODEL)
    if network is not None:
        how: dict[str, Any] = {"n_bits": bits, "by_folder": labels_from_folders, "seed": seed, "n_jobs": n_jobs}
        found, hasher, extractor = _learn_from_images(items, network, settings.of(""), **how)
        _write_index(output, found, keep=keep)
        hasher.save(target, features=extractor)
    else:
        found = read_items(items, model, ids=ids, columns=columns, n_jobs=n_jobs)
        _write_index(output, found, keep=keep)
        if found.model_file is None:
            Path(target).unlink(missing_ok=True)  # that of an index that was here before
        elif os.path.realpath(found.model_file) != os.path.realpath(target):
            with open(found.model_file, "rb") as content, atomic_write(target) as file:
                shutil.copyfileobj(content, file)
    distinct, warning = describe_codes(found.codes)
    click.echo(f"Wrote {len(found.codes):,} items of {found.codes.shape[1]} bytes to {output}; {distinct}", err=True)
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)


def _learn_from_images(
    path: str, network: str, settings: dict[str, Any], *, n_bits: int, by_folder: bool, seed: int, n_jobs: int | None
) -> tuple[InputItems, Hasher, FeatureExtractor]:
    """Features of images by a network, and codes that are learned from them: from their folders, or without labels."""
    import numpy as np

    from hashgrove import ITQ, FastHash, OnnxFeatures
    from hashgrove.cli.images import read_image_input
    from hashgrove.cli.items import InputItems, extract_features
    from hashgrove.storage.formats import FileError

    images = read_image_input(path)
    if not isinstance(images, list):
        raise FileError(f"{path}: must be a folder or a list of images for --network. Got an array.")
    folders = [os.path.dirname(image) for image in images]
    if by_folder and len(set(folders)) < 2:
        raise FileError(f"{path}: must have images in at least two folders for --labels-from-folders.")
    extractor = OnnxFeatures(network, **settings, n_jobs=n_jobs).fit(images)
    X = extract_features(extractor, images, n_jobs)
    hasher: Hasher
    if by_folder:
        fast = FastHash(n_bits, random_state=seed, n_jobs=n_jobs, verbose=1)
        enough = len(X) >= VALIDATED
        hasher = fast.fit(X, np.array(folders), validation=0.2 if enough else None)
        text = (
            f"{fast.validation_}\n" if enough else f"{len(X)} images are too few to hold some out and measure codes on."
        )
        click.echo(text, err=True)
    else:
        n_bits = min(n_bits, ITQ(n_bits).max_bits(n_samples=len(X), n_features=X.shape[1]))
        with show_step("learning codes"):
            hasher = ITQ(n_bits, random_state=seed).fit(X)
    return InputItems(hasher.transform(X), images, X, hasher.encoder_), hasher, extractor


def _write_index(output: str, items: InputItems, *, keep: bool) -> None:
    """Write an index with the items and, with ``keep``, their features."""
    from hashgrove.index import build_folder
    from hashgrove.index.manifest import is_index_folder
    from hashgrove.storage.formats import FileError
    from hashgrove.web.additions import forget_additions
    from hashgrove.web.images import remember_images

    if os.path.exists(output) and not is_index_folder(output):
        raise FileError(f"{output}: must be an index, or not exist. Got something else.")
    with show_step("writing the index and its tables"):
        features = items.features if keep else None
        build_folder(output, items.codes, ids=items.ids, features=features, model=items.encoder)
    forget_additions(output)
    remember_images(output, items.ids or ())


@index.command()
@_folder
@click.argument("items")
@_model
@options.ids
@options.columns()
@click.option("--replace", is_flag=True, help="Replace items whose ids are in the index.")
@options.n_jobs
def add(
    folder: str,
    items: str,
    model: str | None,
    ids: str | None,
    id_column: str | None,
    label_column: str | None,
    feature_columns: str | None,
    replace: bool,
    n_jobs: int | None,
) -> None:
    """Add ITEMS to an INDEX: packed codes, features or images.

    The model in the index encodes features and images, if there is one. For packed codes, --model says which model made
    them; an index that knows its model takes no others.

    \b
    Example:
      hashgrove index add photos.hgi more-photos/
    """
    with show_step(LOADING):
        from hashgrove.cli.items import as_ids, check_known_model, read_items, stored_model
    from hashgrove.index import load_index
    from hashgrove.storage.columns import Columns
    from hashgrove.storage.formats import FileError
    from hashgrove.web.additions import forget_additions
    from hashgrove.web.images import remember_images

    columns = Columns.of(label_column, id_column, feature_columns)
    found = read_items(items, model, stored=stored_model(folder), ids=ids, columns=columns, n_jobs=n_jobs)
    if replace and found.ids is None:
        raise FileError(f"{items}: items must have ids to replace others. Give --ids.")
    with load_index(folder, writable=True) as opened:
        check_known_model(opened, found, folder, items)
        names = None if found.ids is None else as_ids(found.ids, opened)
        features = None if opened.features is None else found.features
        opened.add(found.codes, ids=names, features=features, replace=replace, model=found.encoder)
        forget_additions(folder, names or ())
        remember_images(folder, found.ids or (), keep_old=True)
        click.echo(f"Added {len(found.codes):,} items; {folder} has {len(opened):,} now", err=True)


@index.command()
@_folder
@click.argument("names", nargs=-1, metavar="[ID]...")
@options.ids
@click.option("--missing-ok", is_flag=True, help="Ignore ids that are not in the index.")
@click.option("--compact", is_flag=True, help="Free the room of removed items at once, by rewriting the files.")
def remove(folder: str, names: tuple[str, ...], ids: str | None, missing_ok: bool, compact: bool) -> None:
    """Remove items from an INDEX by their ids.

    \b
    Example:
      hashgrove index remove photos.hgi photos/blurred.jpg
    """
    options.refuse(bool(names) == (ids is not None) and not (compact and not names), "Give IDs or --ids.")
    from hashgrove.cli.inputs import read_lines
    from hashgrove.cli.items import as_ids
    from hashgrove.index import load_index
    from hashgrove.web.additions import forget_additions

    with load_index(folder, writable=True) as opened:
        wanted = as_ids(list(names) if ids is None else read_lines(ids), opened)
        n_removed = opened.remove(wanted, missing_ok=missing_ok)
        forget_additions(folder, wanted)
        if compact:
            opened.compact()
        click.echo(f"Removed {n_removed:,} items; {folder} has {len(opened):,} now", err=True)


@index.command()
@_folder
@options.json_style
def info(folder: str, style: str | None) -> None:
    """Describe an INDEX: its items, ids, codes, model and features.

    \b
    Example:
      hashgrove index info photos.hgi
    """
    write_info(folder, style=style)


def write_info(folder: str, *, style: str | None) -> None:
    """Print a description of an index."""
    from hashgrove.cli.items import is_url, stored_model
    from hashgrove.cli.output import file_size, format_pairs, format_validation, printable
    from hashgrove.index import connect, load_index
    from hashgrove.metrics import describe_codes
    from hashgrove.storage.models import read_learned

    model_file = stored_model(folder)
    learned = None if model_file is None else read_learned(model_file)
    opened: Any = connect(folder, create=False) if is_url(folder) else load_index(folder)
    features = getattr(opened, "features", None)
    distinct, warning = describe_codes(opened.codes) if len(opened) else ("none", None)
    size = sum(path.stat().st_size for path in Path(folder).iterdir()) if os.path.isdir(folder) else None
    rows: dict[str, Any] = {
        "index": getattr(opened, "place", folder),  # an engine's without its password
        "type": type(opened).__name__,
        "items": len(opened),
        "bytes per code": opened.n_bytes,
        "codes": distinct,
        "ids": {"U": "texts", "i": "integers"}[opened.ids.dtype.kind] if len(opened) else None,
        "model": opened.model,
        "model file": model_file,
        "features": None if features is None else f"{len(features)} rows of {features.n_features}",
        "size on disk": None if size is None else file_size(size),
        "warning": warning,
    }
    if style == "json":
        found = None if learned is None or not learned.validation else asdict(learned)
        validation = None if found is None else {"n_held_out": found["n_held_out"], "rows": found["validation"]}
        click.echo(json.dumps(rows | {"validation": validation}, indent=2))
        return
    click.echo(format_pairs((name, printable(value)) for name, value in rows.items() if value is not None))
    if learned is not None and learned.validation:
        click.echo(f"\n{format_validation(learned)}")
