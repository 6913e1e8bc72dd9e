"""Extractors that turn images into feature matrices, and their registry. A model file may hold one.

A new extractor is one file and one entry in `FEATURES`; the command line, model files and contract tests follow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from hashgrove.features.base import FeatureExtractor
from hashgrove.features.codebook import Codebook
from hashgrove.features.gist import Gist
from hashgrove.features.image_encoder import ImageEncoder
from hashgrove.features.network import OnnxFeatures
from hashgrove.storage import modelfile
from hashgrove.storage.formats import PathLike, one_line

__all__ = [
    "FEATURES",
    "Codebook",
    "FeatureExtractor",
    "Gist",
    "ImageEncoder",
    "OnnxFeatures",
    "load_extractor",
    "rebuild",
]

FEATURES: dict[str, type[FeatureExtractor]] = {
    extractor.name: extractor for extractor in (Gist, Codebook, OnnxFeatures)
}


def load_extractor(path: PathLike) -> FeatureExtractor:
    """Read a fitted extractor that `FeatureExtractor.save` wrote; the file is untrusted and all of it is checked.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/gist.hashgrove"
    >>> Gist(n_cells=2, image_size=16).fit(np.zeros((1, 16, 16), np.uint8)).save(path)
    >>> load_extractor(path).n_features_
    128
    """
    header, arrays = modelfile.read(path, kind="features")
    return rebuild(path, header, arrays)


def rebuild(path: PathLike, described: Any, arrays: Mapping[str, NDArray[Any]]) -> FeatureExtractor:
    """Make the extractor that the header of a model file describes; an error names the file."""
    described = described if isinstance(described, dict) else {}
    name, parameters = described.get("name"), described.get("parameters")
    extractor = FEATURES.get(name) if isinstance(name, str) else None
    if extractor is None or not isinstance(parameters, dict):
        raise modelfile.ModelFileError(
            f"{os.fspath(path)}: unknown features {repr(name)[:100]}; this version knows {sorted(FEATURES)}"
        )
    try:
        return extractor.from_arrays(parameters, arrays)
    except (ValueError, TypeError) as error:
        raise modelfile.ModelFileError(f"{os.fspath(path)}: {one_line(error)}") from error
