"""Going on with a saved model: a FastHash with the parameters and the bits of a file."""

from __future__ import annotations

import os
from typing import Any

from sklearn.utils import check_random_state

from hashgrove import losses
from hashgrove.encoders import Encoder, Mixed
from hashgrove.fasthash import AUTO, FastHash
from hashgrove.functions import HASH_FUNCTIONS, as_learner
from hashgrove.inference import SOLVERS, as_solver
from hashgrove.runtime.parameters import check_parameters
from hashgrove.storage.formats import one_line
from hashgrove.storage.modelfile import ModelFileError, read_header
from hashgrove.storage.models import load, rebuild

__all__ = ["load_hasher"]


def load_hasher(path: str | os.PathLike[str], **parameters: Any) -> FastHash:
    """Read a saved FastHash model to go on learning: raise ``n_bits`` and call `fit` with the same data.

    Parameters
    ----------
    path : path
        A file that `FastHash.save` wrote; it is untrusted and is checked.
    **parameters
        Parameters to set, among them those that a file cannot hold: a loss of your own, a scikit-learn classifier.
    """
    learned, header = load(path), read_header(path)["header"]
    notes = header.get("learned", {})
    is_model = header.get("hasher") == FastHash.__name__ and isinstance(header.get("parameters"), dict)
    if not is_model or not isinstance(notes, dict):
        raise ModelFileError(f"{os.fspath(path)}: must be a model of FastHash. Got {header.get('hasher')!r} instead.")
    known = {kind.__name__: kind for kind in (*HASH_FUNCTIONS.values(), *SOLVERS.values())}
    names = (header["parameters"].keys() & FastHash._get_param_names()) - FastHash.not_saved
    hasher = FastHash(warm_start=True)

    def set_checked(name: str, value: Any) -> None:
        try:
            value = rebuild(value, known) if isinstance(value, str) and "(" in value else value
            _check(hasher.set_params(**{name: value}))
        except ValueError as error:
            reason = f"{one_line(error)} Give it: load_hasher(path, {name}=...)."
            raise ModelFileError(f"{os.fspath(path)}: {reason}") from error

    if "hash_function" in notes and "hash_function" not in parameters:  # what "auto" chose, checked like a parameter
        set_checked("hash_function", notes["hash_function"])
        hasher.hash_function_ = as_learner(hasher.hash_function)
    for name in sorted(names - parameters.keys()):
        set_checked(name, header["parameters"][name])
    hasher.set_params(**parameters)
    hasher.encoder_ = learned if isinstance(learned, Encoder) else learned.encoder
    hasher.n_features_in_, hasher.history_, hasher.choice_ = hasher.encoder_.n_features, [], None
    hasher.generic_bits_ = _generic_bits(hasher.encoder_, notes)
    return hasher


def _generic_bits(encoder: Encoder, notes: dict[str, Any]) -> int:
    """Number of generic bits, if the file says so and the encoder agrees."""
    said = notes.get("generic_bits", 0)
    agrees = isinstance(encoder, Mixed) and len(encoder.parts) == 2 and encoder.parts[1].n_bits == said
    return int(said) if agrees else 0


def _check(hasher: FastHash) -> None:
    """Check all parameters, and those of the hash function and of the solver, as `fit` would."""
    learner = [] if hasher.hash_function == AUTO else [as_learner(hasher.hash_function)]
    for part in (hasher, *learner, as_solver(hasher.inference)):
        check_parameters(part)
    losses.check_loss(hasher.loss, 1)
    check_random_state(hasher.random_state)
