"""The contract of every feature extractor: images in, a matrix of features out, batch by batch on all threads.

Images are a list of paths, or a uint8 array of shape (n, height, width) for grey or (n, height, width, 3) for RGB
images. Files are opened when their batch is computed, so a folder may be larger than memory.
"""

from __future__ import annotations

import inspect
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from hashgrove.features.images import ON_ERROR, ImageFileError, image_size_pair
from hashgrove.features.source import ImageSource
from hashgrove.runtime.parameters import Constraint, ParameterError, check_parameters, declared_constraints
from hashgrove.runtime.threads import available_threads, chunks, run_tasks
from hashgrove.storage import modelfile
from hashgrove.storage.atomic import atomic_write
from hashgrove.storage.formats import PathLike

__all__ = ["FeatureExtractor", "Images"]

Images = NDArray[np.uint8] | Sequence[PathLike]
BATCH_PIXELS = 2**16  # pixels per batch; the Fourier transforms or patches of a batch take a few times more memory
BATCH_FILES = 16  # images per batch if their size is not known
BATCHES_IN_FLIGHT = 4  # batches per thread that `transform_to` holds in memory


class FeatureExtractor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all extractors: a scikit-learn transformer from images to a matrix of features.

    A subclass has the class attributes ``name`` and ``constraints`` and the parameter ``n_jobs``. It implements
    `_learn`, which sets ``n_features_``, `_features` for one batch, and `from_arrays`; if it learns arrays, also
    `arrays`. If all its images must have one size, it has the parameter ``image_size``.

    The command ``hashgrove features NAME`` is made from the class: its options come from the signature, the docstring
    and the constraints.
    """

    name: ClassVar[str]
    constraints: ClassVar[Mapping[str, Constraint]]
    flags: ClassVar[Mapping[str, str]] = {}  # names of options that differ from the names of their parameters
    example_options: ClassVar[str] = ""  # options in the example of the command's help
    learns: ClassVar[bool] = False  # whether `fit` reads the images
    resizes_arrays: ClassVar[bool] = False  # whether images in arrays are resized to ``image_size`` instead of refused
    not_saved: ClassVar[frozenset[str]] = frozenset({"n_jobs", "verbose"})  # parameters that do not change the features
    n_features_: int
    n_jobs: int | None

    def fit(self, images: Images, y: Any = None) -> Self:
        """Check the parameters and the images, and learn from the images if there is anything to learn.

        Parameters
        ----------
        images : uint8 array, or list of paths
        y : ignored
        """
        check_parameters(self)
        self._check_combination()
        self._learn(self._source(images))
        return self

    def _check_combination(self) -> None:
        """Check parameters against each other, which constraints of single ones cannot do; by default nothing."""

    @abstractmethod
    def _learn(self, source: ImageSource) -> None:
        """Set ``n_features_`` and whatever else the features depend on."""

    @abstractmethod
    def _features(self, batch: NDArray[np.uint8]) -> NDArray[Any]:
        """Features (n, n_features_) of a C-contiguous uint8 batch, grey (n, h, w) or RGB (n, h, w, 3)."""

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """Type of the features."""
        return np.dtype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `fit` learned, by name."""
        return {}

    @classmethod
    @abstractmethod
    def from_arrays(cls, parameters: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted extractor from the `parameters` and `arrays` of an untrusted file, and check all of them."""

    def parameters(self) -> dict[str, Any]:
        """The parameters that the features depend on, as values that JSON can hold."""
        given = sorted(self.get_params(deep=False).items())
        return {name: _plain(value) for name, value in given if name not in self.not_saved}

    @classmethod
    def _from_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """An extractor with these parameters, checked but not fitted."""
        names = set(inspect.signature(cls).parameters) - cls.not_saved
        if set(parameters) != names:
            raise ValueError(f"{cls.name!r} features have the parameters {sorted(names)}, not {sorted(parameters)}")
        extractor = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in parameters.items()})
        for name, constraint in declared_constraints(cls).items():
            if name not in cls.not_saved:
                constraint.check(name, getattr(extractor, name))
        extractor._check_combination()
        return extractor

    def _images_per_batch(self, height: int, width: int) -> int:
        """Number of images in a batch; it never depends on the number of threads."""
        return max(1, BATCH_PIXELS // (height * width))

    def _image_size(self) -> tuple[int, int] | None:
        """Height and width that the images are resized to, or must have."""
        return image_size_pair(getattr(self, "image_size", None))

    def _source(self, images: Any) -> ImageSource:
        """Check ``images``: array or paths, type, shape, and their size if the extractor asks for one."""
        size = self._image_size()
        resampling = getattr(self, "resampling", "bilinear")
        if isinstance(images, str | os.PathLike):
            raise ParameterError(
                "images", f"must be an array or a list of paths. Got the single path {images!r} instead."
            )
        if isinstance(images, list | tuple) and images and all(isinstance(i, str | os.PathLike) for i in images):
            return ImageSource([os.fspath(path) for path in images], size, resampling)
        array = np.asarray(images)
        colours = array.ndim == 4 and array.shape[3] == 3
        if array.dtype != np.uint8 or not (array.ndim == 3 or colours) or 0 in array.shape:
            raise ParameterError(
                "images",
                "must be a list of paths, or a uint8 array of shape (n, height, width) or "
                f"(n, height, width, 3) with at least one image. Got {array.dtype} of shape {array.shape} instead.",
            )
        if size is not None and not self.resizes_arrays and array.shape[1:3] != size:
            raise ParameterError(
                "images",
                f"must hold images of {size[0]} x {size[1]} pixels, as 'image_size' says. "
                f"Got {array.shape[1]} x {array.shape[2]} instead; only images from files are resized.",
            )
        return ImageSource(array, size, resampling)

    def batches(
        self, images: Images, *, on_error: str = "raise", n_jobs: int | None = None
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any]]]:
        """Compute features batch by batch, in order; a few batches per thread are in memory at a time.

        Parameters
        ----------
        images : uint8 array, or list of paths
        on_error : {"raise", "skip"}
            What happens if an image file cannot be used: an error, or a warning that names the file, and no row for it.
        n_jobs : int, optional
            Number of threads; by default the parameter of the extractor.

        Yields
        ------
        done : int
            Number of images processed so far.
        kept : int64 array
            Numbers of the images that have a row in this batch.
        features : array of shape (len(kept), n_features_)
        """
        return self._batches(images, on_error, n_jobs, stacklevel=2)

    def _batches(
        self, images: Images, on_error: str, n_jobs: int | None, *, stacklevel: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[Any]]]:
        """The same; warnings point at the line that is ``stacklevel`` - 1 calls above."""
        check_is_fitted(self, "n_features_")
        ON_ERROR.check("on_error", on_error)
        source, n_jobs = self._source(images), self.n_jobs if n_jobs is None else n_jobs
        n_images = BATCH_FILES if source.shape is None else self._images_per_batch(*source.shape)

        sizes: dict[tuple[int, int], int] = {}  # sizes of images, each with the number of one image that has it

        def of_batch(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any], list[ImageFileError]]:
            batch, kept, errors = source.read(start, stop, on_error=on_error)
            if not len(batch):
                return kept, np.empty((0, self.n_features_), self.output_dtype), errors
            sizes.setdefault((batch.shape[1], batch.shape[2]), int(kept[0]))
            return kept, self._features(batch).astype(self.output_dtype, copy=False), errors

        batches = chunks(len(source), n_images)
        for first, last in chunks(len(batches), BATCHES_IN_FLIGHT * available_threads(n_jobs)):
            results = run_tasks(of_batch, batches[first:last], n_jobs=n_jobs)
            if len(sizes) > 1:
                one, other = (source.images[number] for number in sorted(sizes.values())[:2])
                raise ImageFileError(
                    str(other), f"must have the same size as {one}. Set 'image_size' to resize all images."
                )
            for (_, stop), (kept, features, errors) in zip(batches[first:last], results, strict=True):
                for error in errors:
                    warnings.warn(f"{error}; skipped", UserWarning, stacklevel=stacklevel)
                yield stop, kept, features

    def transform(self, images: Images) -> NDArray[Any]:
        """Compute the features of ``images``, shape (n, n_features_)."""
        check_is_fitted(self, "n_features_")
        out = np.empty((len(self._source(images)), self.n_features_), self.output_dtype)
        for _, kept, features in self.batches(images):
            out[kept] = features
        return out

    def transform_to(
        self,
        images: Images,
        path: PathLike,
        *,
        on_error: str = "raise",
        callback: Callable[[NDArray[np.int64], int], None] | None = None,
    ) -> tuple[int, int]:
        """Write the features of ``images`` to a .npy file, batch by batch; memory holds only a few batches.

        Parameters
        ----------
        images : uint8 array, or list of paths
        path : path
            The file. It is written under another name and put in place when it is complete.
        on_error : {"raise", "skip"}
            What happens if an image file cannot be used: an error, or a warning that names the file, and no row for it.
        callback : callable, optional
            Called after each batch with the numbers of its images that have a row, and the number of images so far.

        Returns
        -------
        (int, int)
            Shape of the matrix in the file.
        """
        check_is_fitted(self, "n_features_")
        n_rows = 0
        with atomic_write(path) as file:
            start = _write_header(file, (n_rows, self.n_features_), self.output_dtype)
            for done, kept, features in self._batches(images, on_error, None, stacklevel=3):
                file.write(np.ascontiguousarray(features, self.output_dtype.newbyteorder("<")).data)
                n_rows += len(kept)
                if callback is not None:
                    callback(kept, done)
            file.seek(0)  # the number of rows is known only now
            if _write_header(file, (n_rows, self.n_features_), self.output_dtype) != start:
                raise RuntimeError("the header of a .npy file must keep its length")
        return n_rows, self.n_features_

    def save(self, path: PathLike) -> None:
        """Write the fitted extractor to one file, atomically; `hashgrove.features.load_extractor` reads it."""
        check_is_fitted(self, "n_features_")
        header = {"name": self.name, "n_features": self.n_features_, "parameters": self.parameters()}
        modelfile.write(path, kind="features", header=header, arrays=self.arrays())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _write_header(file: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> int:
    """Write the header of a .npy file and return its length, which is the same for any number of rows."""
    descr = npy.dtype_to_descr(dtype.newbyteorder("<"))
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.tell()


def _plain(value: Any) -> Any:
    """A parameter as a value that JSON can hold: numpy's numbers become Python's, tuples become lists."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
