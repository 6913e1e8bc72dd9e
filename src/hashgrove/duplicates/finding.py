"""Groups of near-duplicate pictures, and which picture of each group to keep."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.duplicates.picture_codes import NetworkCodes, PerceptualCodes, PictureCodes
from hashgrove.duplicates.radius import RadiusEvidence, choose
from hashgrove.features import OnnxFeatures
from hashgrove.features.images import count_pixels
from hashgrove.index import Index, build_index
from hashgrove.runtime.html import html_table
from hashgrove.runtime.parameters import Integer, ParameterError
from hashgrove.runtime.progress import show_step
from hashgrove.runtime.threads import chunks

__all__ = ["DuplicateGroup", "Duplicates", "find_duplicates"]

SEARCHED = 256  # pictures that are searched for together
SHOWN = 100  # groups in a notebook
MAX_PAIRS = 10_000_000


@dataclass(frozen=True)
class DuplicateGroup:
    """Pictures that look alike: the one to keep, and those within the radius of it.

    Attributes
    ----------
    kept : str
        The picture with the most pixels; of these the one with the largest file, and then the first by name.
    removed : tuple of str
        The others, nearest first.
    distances : tuple of int
        Their distances from ``kept``, in bits.
    """

    kept: str
    removed: tuple[str, ...]
    distances: tuple[int, ...]


@dataclass(frozen=True)
class Duplicates:
    """Groups of near-duplicate pictures.

    Attributes
    ----------
    groups : tuple of DuplicateGroup
        Large groups first, then by name.
    radius : int
        The largest distance from the picture that is kept, in bits.
    n_bits : int
        Number of bits per code.
    n_pictures : int
        Number of pictures that were compared.
    evidence : RadiusEvidence or None
        None if the radius was given.
    """

    groups: tuple[DuplicateGroup, ...]
    radius: int
    n_bits: int
    n_pictures: int
    evidence: RadiusEvidence | None

    @property
    def to_remove(self) -> list[str]:
        """The pictures of all groups but the ones to keep."""
        return [path for group in self.groups for path in group.removed]

    def explain(self) -> str:
        """The radius and what it was chosen from, in words."""
        lines = [f"The radius is {self.radius} of {self.n_bits} bits: pictures that differ in no more are duplicates."]
        if self.evidence is None:
            return lines[0]
        found = ", ".join(f"{name} {share:.0%}" for name, share in self.evidence.found.items())
        lines.append(f"Of {self.evidence.n_copies:,} altered copies of your pictures it finds: {found}.")
        if self.evidence.nearest_other is not None:
            lines.append(
                f"Of {self.evidence.n_turned:,} pictures that were turned over, and so are copies of none, the nearest "
                f"is {self.evidence.nearest_other} bits from another picture."
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        n_groups, n_removed = len(self.groups), len(self.to_remove)
        return (
            f"Near-duplicates: {n_removed:,} of {self.n_pictures:,} pictures, of {n_groups:,} that "
            f"{'is' if n_groups == 1 else 'are'} kept.\n{self.explain()}"
        )

    def _repr_html_(self) -> str:
        rows = [
            (path, distance, group.kept)
            for group in self.groups[:SHOWN]
            for path, distance in zip(group.removed, group.distances, strict=True)
        ]
        return html_table("Near-duplicates", rows, header=("picture", "bits", "kept"), notes=str(self).split("\n"))


def find_duplicates(
    images: Sequence[str | os.PathLike[str]],
    *,
    network: OnnxFeatures | None = None,
    radius: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Duplicates:
    """Find near-duplicates among pictures. Needs no labels and no network.

    Codes are the signs of the low frequencies of a grey thumbnail, of all of a picture and of parts of it
    (`hashgrove.features.perceptual`). Mirror images and pictures that were turned do not count as duplicates. A file
    that cannot be used is left out with a warning.

    Parameters
    ----------
    images : sequence of paths
        As `hashgrove.features.images.list_images` finds them.
    network : OnnxFeatures, optional
        Compare features of a network instead. Features for classification are near for pictures of the same thing, and
        find fewer copies than low frequencies; those of a network that was trained to find copies may find more.
    radius : int, optional
        The largest distance of duplicates, in bits. By default it is measured: half-way from the distance that altered
        copies of some pictures have to the one that pictures have that are no copies.
    n_jobs : int, optional
        Number of threads; None or -1 means all cores.
    verbose : int
        1 shows progress.

    Returns
    -------
    duplicates : Duplicates

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from sklearn.datasets import load_sample_images
    >>> folder = tempfile.mkdtemp()
    >>> for name, pixels in zip(("china", "flower"), load_sample_images().images):
    ...     picture = Image.fromarray(pixels)
    ...     picture.save(f"{folder}/{name}.png")
    ...     picture.resize((320, 240)).save(f"{folder}/{name}-small.jpg")
    >>> from hashgrove.features.images import list_images
    >>> found = find_duplicates(list_images(folder))
    >>> [os.path.basename(path) for path in found.to_remove]
    ['china-small.jpg', 'flower-small.jpg']
    """
    Integer(0, or_none=True).check("radius", radius)
    paths = _check_paths(images)
    seen: PictureCodes = PerceptualCodes() if network is None else NetworkCodes(network)
    with show_step("reading pictures", verbose=verbose) as say:
        kept, codes = seen.of_files(paths, n_jobs, lambda done: say(f"reading pictures: {done:,} of {len(paths):,}"))
    names = [paths[number] for number in kept]
    if not names:
        raise ParameterError("images", f"must have pictures that can be read. Got none among {len(paths):,} files.")
    index = build_index(codes[:, 0], radius=codes.shape[2] * 2)
    evidence = None
    if radius is None:
        with show_step("measuring how far copies are", verbose=verbose):
            radius, evidence = choose(index, codes, names, seen, n_jobs)
    with show_step("comparing pictures", verbose=verbose) as say:
        pairs = _pairs(index, codes, radius, n_jobs, lambda done: say(f"comparing: {done:,} of {len(names):,}"))
    ranks = _ranks(names)
    return Duplicates(_stars(names, ranks, pairs), int(radius), 8 * codes.shape[2], len(names), evidence)


def _check_paths(images: Any) -> list[str]:
    is_list = not isinstance(images, str | bytes | os.PathLike) and isinstance(images, Sequence)
    if not is_list or not images or not all(isinstance(path, str | os.PathLike) for path in images):
        raise ParameterError("images", f"must be a list of paths of pictures. Got {type(images).__name__} instead.")
    paths = [os.fspath(path) for path in images]
    if len(set(paths)) < len(paths):
        raise ParameterError("images", "must name each picture once. Got a path twice.")
    return paths


def _pairs(
    index: Index, codes: NDArray[np.uint8], radius: int, n_jobs: int | None, show: Callable[[int], None]
) -> dict[tuple[int, int], int]:
    """Distances of pairs of pictures (the smaller number first) that are within the radius."""
    n_windows, n_bytes = codes.shape[1:]
    pairs: dict[tuple[int, int], int] = {}
    for start, stop in chunks(len(codes), SEARCHED):
        distances, ids = index.search_radius(codes[start:stop].reshape(-1, n_bytes), radius, n_jobs=n_jobs)
        for query, (near, others) in enumerate(zip(distances, ids, strict=True)):
            number = start + query // n_windows
            for distance, other in zip(near.tolist(), others.tolist(), strict=True):
                if other != number:
                    pair = min(number, other), max(number, other)
                    pairs[pair] = min(distance, pairs.get(pair, distance))
        if len(pairs) > MAX_PAIRS:
            raise ParameterError(
                "radius", f"must leave at most {MAX_PAIRS:,} pairs of pictures. Got more at radius {radius} instead."
            )
        show(stop)
    return pairs


def _ranks(paths: list[str]) -> NDArray[np.int64]:
    """The place of each picture in the order in which pictures are kept: most pixels, largest file, first name."""
    sizes = [(-count_pixels(path), -os.path.getsize(path), path) for path in paths]
    ranks = np.empty(len(paths), np.int64)
    ranks[sorted(range(len(paths)), key=sizes.__getitem__)] = np.arange(len(paths))
    return ranks


def _stars(paths: list[str], ranks: NDArray[np.int64], pairs: dict[tuple[int, int], int]) -> tuple[DuplicateGroup, ...]:
    """Groups of pictures, each around one that is kept: what is removed is near that one, not only near each other."""
    near: dict[int, list[tuple[int, int]]] = {}
    for (first, second), distance in pairs.items():
        near.setdefault(first, []).append((distance, second))
        near.setdefault(second, []).append((distance, first))
    taken: set[int] = set()
    groups = []
    for number in sorted(near, key=lambda number: ranks[number]):
        if number in taken:
            continue
        members = sorted((distance, paths[other], other) for distance, other in near[number] if other not in taken)
        taken |= {number, *(other for _, _, other in members)}
        if members:
            distances, names = zip(*((distance, name) for distance, name, _ in members), strict=True)
            groups.append(DuplicateGroup(paths[number], names, distances))
    return tuple(sorted(groups, key=lambda group: (-len(group.removed), group.kept)))
