"""Model files: an encoder, the parameters it was learned with and, optionally, the feature extractor for its input.

A file holds only what was learned, so `load` does not need the learner.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hashgrove.codes import MAX_BITS
from hashgrove.encoders import ENCODERS, Encoder, encoder_name
from hashgrove.encoders.profile import CodeProfile
from hashgrove.storage import modelfile
from hashgrove.storage.formats import one_line
from hashgrove.storage.modelfile import ModelFileError

if TYPE_CHECKING:
    from hashgrove.features import FeatureExtractor, ImageEncoder

__all__ = ["Learned", "load", "plain", "plain_as_before", "read_learned", "rebuild", "save"]

FEATURES_PREFIX = "features."  # starts the names of an extractor's arrays in a model file


def save(
    path: str | os.PathLike[str],
    encoder: Encoder,
    *,
    hasher: str,
    parameters: Mapping[str, Any],
    notes: Mapping[str, Any] | None = None,
    features: FeatureExtractor | None = None,
) -> None:
    """Write an encoder to one file, atomically; `load` reads it.

    Parameters
    ----------
    path : path
    encoder : Encoder
        An instance of a class in ``hashgrove.encoders.ENCODERS``. Other encoders hold objects that only pickle could
        write.
    hasher : str
        Name of the class that learned it.
    parameters : dict
        The parameters it was learned with. They are for information only.
    notes : dict, optional
        Further facts about how it was learned; JSON values.
    features : FeatureExtractor, optional
        The fitted extractor of the features. With it, the file can turn images into codes.
    """
    name = encoder_name(encoder)
    arrays = encoder.arrays()
    encoder.check()  # what cannot be read must not be written, such as numbers that overflowed while they were learned
    header: dict[str, Any] = {
        "hasher": hasher,
        "encoder": name,
        "n_bits": encoder.n_bits,
        "n_features": encoder.n_features,
        "parameters": {name: plain(value) for name, value in sorted(parameters.items())},
    }
    if notes:
        header["learned"] = dict(notes)
    if features is not None:
        from hashgrove.features import ImageEncoder

        check_is_fitted(features, "n_features_")
        ImageEncoder(features, encoder)  # raises unless the two fit together
        header["features"] = {"name": features.name, "parameters": features.parameters()}
        arrays |= {FEATURES_PREFIX + name: array for name, array in features.arrays().items()}
    modelfile.write(path, kind="encoder", header=header, arrays=arrays)


def load(path: str | os.PathLike[str]) -> Encoder | ImageEncoder:
    """Read an encoder from a model file, or an `ImageEncoder` if the file also holds a feature extractor.

    The file is not trusted: all of it is checked before anything is used.
    """
    header, arrays = modelfile.read(path, kind="encoder")
    encoder_class = ENCODERS.get(str(header.get("encoder")))
    if encoder_class is None:
        unknown = repr(header.get("encoder"))[:100]
        raise ModelFileError(f"{os.fspath(path)}: unknown encoder {unknown}; this version knows {sorted(ENCODERS)}")
    of_extractor = {name for name in arrays if name.startswith(FEATURES_PREFIX) and "features" in header}
    try:
        encoder = encoder_class.from_arrays({name: arrays[name] for name in arrays.keys() - of_extractor})
        declared = header.get("n_bits"), header.get("n_features")
        if declared != (encoder.n_bits, encoder.n_features):
            raise ValueError(
                f"its header says (n_bits, n_features) = {declared}, its arrays {(encoder.n_bits, encoder.n_features)}"
            )
        if encoder.n_bits > MAX_BITS:
            raise ValueError(f"must have at most {MAX_BITS} bits. Got {encoder.n_bits}.")
        if "features" not in header:
            return encoder
        from hashgrove.features import ImageEncoder, rebuild

        learned = {name.removeprefix(FEATURES_PREFIX): arrays[name] for name in of_extractor}
        return ImageEncoder(rebuild(path, header["features"], learned), encoder)
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{os.fspath(path)}: {one_line(error)}") from error


@dataclass(frozen=True)
class Learned:
    """Facts about a fit from its model file, checked.

    Attributes
    ----------
    n_held_out : int
        Number of rows that the codes were validated on; 0 if they were not.
    validation : list of (str, int, float, float)
        Method, bytes per item, mean average precision and precision at 10, the codes first.
    trained_on : list of int
        Marks of training rows; see `hashgrove.runtime.rounding.training_marks`.
    profile : CodeProfile or None
        What is remembered of the codes of training rows; None in files of earlier versions.
    """

    n_held_out: int
    validation: list[tuple[str, int, float, float]]
    trained_on: list[int]
    profile: CodeProfile | None = None


def read_learned(path: str | os.PathLike[str]) -> Learned:
    """Read the facts about a fit from its model file, which is not trusted."""
    header = modelfile.read_header(path)["header"]
    found = header.get("learned", {})
    try:
        validation = found.get("validation", {"n_rows": 0, "rows": []})
        n_rows, rows = validation["n_rows"], validation["rows"]
        lines = [(row["method"], row["n_bytes"], row["map"], row["precision_at_10"]) for row in rows]
        marks = found.get("trained_on", [])
        kinds = {tuple(map(type, line)) for line in lines} | {(type(n_rows),)} | {(type(mark),) for mark in marks}
        if not kinds <= {(str, int, float, float), (int,)} or type(n_rows) is not int:
            raise TypeError
        remembered = found.get("profile")
        profile = None if remembered is None else CodeProfile.from_dict(remembered, n_bits=header["n_bits"])
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ModelFileError(f"{os.fspath(path)}: damaged: what it says about its fit cannot be read") from error
    return Learned(n_rows, lines, marks, profile)


def plain(value: Any) -> Any:
    """A parameter as a JSON value: an estimator as its class and all its parameters, another object as its name.

    >>> from hashgrove.inference import BlockGraphCut
    >>> plain(BlockGraphCut())
    {'class': 'BlockGraphCut', 'params': {'n_sweeps': 2, 'start': 'zeros'}}
    """
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if hasattr(value, "get_params") and not isinstance(value, type):
        params = value.get_params(deep=False)
        return {"class": type(value).__name__, "params": {name: plain(item) for name, item in sorted(params.items())}}
    return getattr(value, "__name__", type(value).__name__)


def plain_as_before(value: Any) -> Any:
    """A parameter as `plain` writes it, but without those of its own parameters that are newer than its first release.

    They are left out where they have their default, so that a checkpoint of an earlier version goes on. ``added`` of a
    class has these parameters, and the values that they have in files without them.
    """
    found = plain(value)
    for name in getattr(type(value), "added", {}):
        if getattr(value, name) == inspect.signature(type(value)).parameters[name].default:
            del found["params"][name]
    return found


def rebuild(value: Any, known: Mapping[str, Any]) -> Any:
    """The parameter that `plain` wrote; classes are looked up by name in ``known``, and no other code is run.

    A file of an earlier version may lack parameters that a class has in ``added``.

    >>> from hashgrove.inference import ICM
    >>> rebuild({"class": "ICM", "params": {"n_sweeps": 3, "start": "ones"}}, {"ICM": ICM}).n_sweeps
    3
    """
    if not isinstance(value, dict):
        return value
    name, params = str(value.get("class")), value.get("params")
    if value.keys() != {"class", "params"} or not isinstance(params, dict) or name not in known:
        raise ValueError(f"{name[:100]!r} cannot be made again from a file, which knows {sorted(known)}.")
    names = inspect.signature(known[name]).parameters.keys()
    params = getattr(known[name], "added", {}) | params
    if params.keys() != names:
        raise ValueError(f"{name} must have the parameters {sorted(names)}. Got {str(sorted(params))[:100]} instead.")
    return known[name](**{key: rebuild(item, known) for key, item in params.items()})
