"""Codebook features, section 5 of the paper: patches coded by a learned dictionary and pooled over the image.

The pipeline is that of Coates & Ng (ICML 2011) and Kiros & Szepesvari (2012), which the paper follows: patches of
normalised contrast, ZCA whitening, a dictionary by K-SVD, soft thresholds, spatial pooling on three levels. Whitening
and dictionary are linear, so one matrix holds both, and an image takes one matrix product and one pass over its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from hashgrove.features.base import FeatureExtractor
from hashgrove.features.dictionary import DICTIONARIES
from hashgrove.features.images import IMAGE_SIZE
from hashgrove.features.patches import covariance, normalised_patches, patch_grid, sample_patches, whiten, zca
from hashgrove.features.pooling import ENCODINGS, add_codes, combine, regions, small_cells
from hashgrove.features.source import ImageSource
from hashgrove.runtime.blas import single_threaded_blas
from hashgrove.runtime.parameters import Constraint, Integer, Number, OneOf, ParameterError, Several
from hashgrove.runtime.progress import report_iterations
from hashgrove.runtime.threads import chunks, run_tasks

__all__ = ["Codebook"]

MAX_FEATURES = 2**22
SCALE_IMAGES = 2000  # images that determine the scale with output="uint8"
STRIP = 2**18  # scores that are computed and then pooled at a time: 1 MB, which stays in the cache


class Codebook(FeatureExtractor):
    """Patches coded by a dictionary learned from the images.

    The codes of all patches of an image are pooled over regions. With the defaults there are 14 features per atom.

    Parameters
    ----------
    n_atoms : int, default=800
        Number of atoms in the dictionary, with 14 features each. The paper has 800 (11,200 features) and 1,600
        (22,400).
    patch_size : int, default=6
        Side of a patch in pixels.
    stride : int, default=1
        Pixels from one patch to the next; larger images need more than 1.
    dictionary : {"ksvd", "kmeans"}, default="ksvd"
        How the atoms are learned; spherical k-means is faster.
    n_patches : int, default=400_000
        Number of random patches that the atoms are learned from.
    sparsity : int, default=5
        Number of atoms that code a patch while K-SVD learns.
    n_iter : int, default=20
        Iterations of the learning.
    whitening : float, default=0.1
        Number that ZCA adds to the eigenvalues of the patches' covariance; more keeps less of the fine detail.
    encoding : {"positive", "absolute", "split"}, default="positive"
        How the score of a patch and an atom becomes a code. "positive" is max(0, score - threshold), "absolute" is
        max(0, abs(score) - threshold), and "split" gives the positive and the negative half as two features.
    threshold : float, default=0.5
        Threshold of the encoding, below which scores count as zero.
    pooling : {"mean", "max"}, default="mean"
        How the codes of the patches in a region become one feature.
    levels : sequence of int, default=(1, 2, 3)
        Grids whose cells are the regions; 1,2,3 stands for 1 x 1, 2 x 2 and 3 x 3 cells.
    output : {"float32", "uint8"}, default="float32"
        Type of the features; uint8 takes a quarter of the memory. With "uint8" `fit` learns a scale per feature, such
        that 255 is the largest value in a sample of the images. `FastHash` accepts either type.
    image_size : int, (int, int) or None, default=None
        Side, or height and width, that images from files are resized to.
    random_state : int, RandomState or None, default=None
        Seed; the same seed gives the same features at any number of threads.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    verbose : int, default=0
        1 shows a progress bar if stderr is a terminal; 2 also prints one line per iteration if it is not.

    Attributes
    ----------
    filters_ : float32 array of shape (n_values, n_atoms)
        Atoms and whitening in one matrix: the scores of a normalised patch are patch @ filters_ - bias_.
    bias_ : float32 array of shape (n_atoms,)
    scale_ : float32 array of shape (n_features_,)
        Only with ``output="uint8"``: factor of each feature.
    unexplained_ : list of float
        Share of the whitened patches' energy that the codes did not explain, per iteration.
    n_features_ : int

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(256, size=(20, 16, 16, 3), dtype=np.uint8)
    >>> codebook = Codebook(8, n_patches=500, n_iter=2, random_state=0).fit(images)
    >>> codebook.transform(images).shape
    (20, 112)
    """

    name: ClassVar[str] = "codebook"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_atoms": Integer(1, 2**16),
        "patch_size": Integer(2, 256),
        "stride": Integer(1, 2**15),
        "dictionary": OneOf(tuple(DICTIONARIES)),
        "n_patches": Integer(2, 2**31 - 1),
        "sparsity": Integer(1, 256),
        "n_iter": Integer(1, 2**31 - 1),
        "whitening": Number(above=0, below=1e30),
        "encoding": OneOf(ENCODINGS),
        "threshold": Number(low=0, below=1e30),
        "pooling": OneOf(("mean", "max")),
        "levels": Several(Integer(1), low=1, high=64),
        "output": OneOf(("float32", "uint8")),
        "image_size": IMAGE_SIZE,
    }
    flags: ClassVar[Mapping[str, str]] = {"output": "--type"}
    example_options = "--size 32 --type uint8 --seed 0 --save codebook.hashgrove"
    learns: ClassVar[bool] = True
    filters_: NDArray[np.float32]
    bias_: NDArray[np.float32]
    scale_: NDArray[np.float32]
    unexplained_: list[float]

    def __init__(
        self,
        n_atoms: int = 800,
        *,
        patch_size: int = 6,
        stride: int = 1,
        dictionary: str = "ksvd",
        n_patches: int = 400_000,
        sparsity: int = 5,
        n_iter: int = 20,
        whitening: float = 0.1,
        encoding: str = "positive",
        threshold: float = 0.5,
        pooling: str = "mean",
        levels: tuple[int, ...] = (1, 2, 3),
        output: str = "float32",
        image_size: int | tuple[int, int] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.patch_size = patch_size
        self.stride = stride
        self.dictionary = dictionary
        self.n_patches = n_patches
        self.sparsity = sparsity
        self.n_iter = n_iter
        self.whitening = whitening
        self.encoding = encoding
        self.threshold = threshold
        self.pooling = pooling
        self.levels = levels
        self.output = output
        self.image_size = image_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _learn(self, source: ImageSource) -> None:
        """Learn whitening and dictionary from random patches of the images."""
        self._grid(source.read(0, 1)[0])
        seed = int(check_random_state(self.random_state).randint(2**31))
        with single_threaded_blas():
            patches = sample_patches(
                lambda start, stop: source.read(start, stop)[0],
                len(source),
                self.n_patches,
                patch_size=self.patch_size,
                rng=np.random.default_rng([seed, 0]),
                n_jobs=self.n_jobs,
            )
            mean, moments = covariance(patches, n_jobs=self.n_jobs)
            whitener = zca(moments, self.whitening)
            whiten(patches, mean, whitener, n_jobs=self.n_jobs)
            unexplained: list[float] = []
            with report_iterations("learning atoms", self.n_iter, verbose=self.verbose) as show:

                def callback(iteration: int, left: float) -> None:
                    unexplained.append(left)
                    show(iteration, left)

                atoms = DICTIONARIES[self.dictionary](
                    patches,
                    self.n_atoms,
                    sparsity=min(self.sparsity, self.n_atoms),
                    n_iter=self.n_iter,
                    rng=np.random.default_rng([seed, 1]),
                    n_jobs=self.n_jobs,
                    callback=callback,
                )
            filters = whitener @ atoms.T.astype(np.float64)
            self.filters_ = np.ascontiguousarray(filters, dtype=np.float32)
            self.bias_ = (mean @ filters).astype(np.float32)
        self.unexplained_ = unexplained
        self.n_features_ = self._n_features()
        if self.output == "uint8":
            self.scale_ = self._fit_scale(source, np.random.default_rng([seed, 2]))

    def _fit_scale(self, source: ImageSource, rng: np.random.Generator) -> NDArray[np.float32]:
        """255 / the largest value of each feature in a sample of the images, or 0 if that value is 0."""
        numbers, stored = np.sort(rng.permutation(len(source))[:SCALE_IMAGES]), source.images
        chosen = stored[numbers] if isinstance(stored, np.ndarray) else [stored[number] for number in numbers]
        sample = replace(source, images=chosen)

        def largest(start: int, stop: int) -> NDArray[np.float32]:
            return self._pooled(sample.read(start, stop)[0]).max(axis=0)

        top = np.max(run_tasks(largest, chunks(len(numbers), 16), n_jobs=self.n_jobs), axis=0)
        return np.where(top > 0, 255 / np.maximum(top, np.finfo(np.float32).tiny * 256), 0).astype(np.float32)

    def _features(self, batch: NDArray[np.uint8]) -> NDArray[Any]:
        pooled = self._pooled(batch)
        if self.output == "uint8":
            np.clip(np.rint(np.multiply(pooled, self.scale_, out=pooled), out=pooled), 0, 255, out=pooled)
        return pooled.astype(self.output_dtype, copy=False)

    def _pooled(self, batch: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features of a batch before scaling, float32 (n, n_features_)."""
        (batch, n_rows, n_columns), (n_values, n_atoms) = self._grid(batch), self.filters_.shape
        if batch.shape[3] * self.patch_size**2 != n_values:
            raise ParameterError(
                "images",
                f"must have {n_values // self.patch_size**2} channels, as in fit. Got {batch.shape[3]} instead.",
            )
        rows, columns = small_cells(n_rows, self.levels), small_cells(n_columns, self.levels)
        areas = regions(n_rows, n_columns, self.levels)
        out = np.empty((len(batch), len(areas), self.n_features_ // len(areas)), np.float32)
        strip = min(max(STRIP // (n_columns * n_atoms), 1), n_rows)
        patches = np.empty((strip * n_columns, n_values), np.float32)
        scores = np.empty((strip * n_columns, n_atoms), np.float32)
        cells = np.empty(((len(rows) - 1) * (len(columns) - 1), out.shape[2]), np.float32)
        settings = (np.float32(self.threshold), ENCODINGS.index(self.encoding), self.pooling == "max")
        with single_threaded_blas():
            for image, features in zip(batch, out, strict=True):
                cells[:] = 0
                for first, last in chunks(n_rows, strip):
                    window = image[first * self.stride : (last - 1) * self.stride + self.patch_size]
                    n = (last - first) * n_columns
                    normalised_patches(window, self.patch_size, self.stride, patches[:n])
                    np.matmul(patches[:n], self.filters_, out=scores[:n])
                    add_codes(scores[:n], first, self.bias_, *settings, rows, columns, cells)
                combine(cells, settings[2], rows, columns, areas, features)
        return out.reshape(len(batch), -1)

    def _grid(self, batch: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int, int]:
        """``batch`` with an axis for channels, and how many rows and columns of patches it has."""
        batch = batch if batch.ndim == 4 else batch[..., None]
        height, width = batch.shape[1:3]
        smallest = self.patch_size + (max(self.levels) - 1) * self.stride
        if min(height, width) < smallest:
            raise ParameterError(
                "images",
                f"must have at least {smallest} x {smallest} pixels for patches of {self.patch_size}, "
                f"stride {self.stride}, levels {tuple(self.levels)}. Got {height} x {width} instead.",
            )
        return batch, *patch_grid(height, width, patch_size=self.patch_size, stride=self.stride)

    def _n_features(self) -> int:
        return sum(level**2 for level in self.levels) * self.n_atoms * (2 if self.encoding == "split" else 1)

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """Type of the features, as ``output`` names it."""
        return np.dtype(self.output)

    def parameters(self) -> dict[str, Any]:
        """The parameters as values that JSON can hold; ``random_state`` is kept only if it is a number."""
        seed = self.random_state
        return {**super().parameters(), "random_state": int(seed) if isinstance(seed, int | np.integer) else None}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `fit` learned, by name."""
        names = ("filters", "bias", "scale") if self.output == "uint8" else ("filters", "bias")
        return {name: getattr(self, f"{name}_") for name in names}

    @classmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted extractor from the `parameters` and `arrays` of an untrusted file, and check all of them."""
        codebook = cls._from_parameters(parameters)
        codebook.n_features_ = codebook._n_features()
        shapes: dict[str, list[tuple[int, ...]]] = {
            "filters": [(c * codebook.patch_size**2, codebook.n_atoms) for c in (1, 3)],
            "bias": [(codebook.n_atoms,)],
            **({"scale": [(codebook.n_features_,)]} if codebook.output == "uint8" else {}),
        }
        if set(arrays) != set(shapes):
            raise ValueError(f"{cls.name!r} features have the arrays {sorted(shapes)}, not {sorted(arrays)}")
        for name, allowed in shapes.items():
            array = arrays[name]
            if array.dtype != np.float32 or array.shape not in allowed or not np.isfinite(array).all():
                raise ValueError(
                    f"the array {name!r} must be finite float32 of shape {' or '.join(map(str, allowed))}. "
                    f"Got {array.dtype} of shape {array.shape}."
                )
            setattr(codebook, f"{name}_", np.ascontiguousarray(array))
        return codebook

    def _check_combination(self) -> None:
        if self._n_features() > MAX_FEATURES:
            raise ParameterError(
                "levels",
                f"must be such that there are at most {MAX_FEATURES} features. "
                f"Got {self.levels!r}, which give {self._n_features()} with n_atoms={self.n_atoms}.",
            )
