"""`load_hasher`: a FastHash with the parameters and the bits of a model file, to go on learning."""

from __future__ import annotations

import inspect
import os
from typing import Any

from sklearn.utils import check_random_state

from hashgrove import losses
from hashgrove.encoders import Spread
from hashgrove.fasthash import AUTO, FastHash
from hashgrove.functions import HASH_FUNCTIONS, Classifier, as_learner
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
    loaded, header = load(path), read_header(path)["header"]
    notes, stored = header.get("learned"), header.get("parameters")
    if header.get("hasher") != FastHash.__name__ or not isinstance(notes, dict) or not isinstance(stored, dict):
        raise ModelFileError(f"{os.fspath(path)}: must be a model of FastHash. Got {header.get('hasher')!r} instead.")
    known = {kind.__name__: kind for kind in (*HASH_FUNCTIONS.values(), Classifier, *SOLVERS.values())}
    hasher = FastHash(warm_start=True)

    def set_checked(name: str, value: Any) -> None:
        try:
            _check(hasher.set_params(**{name: rebuild(value, known)}))
        except ValueError as error:
            reason = f"{one_line(error)} Give it: load_hasher(path, {name}=...)."
            raise ModelFileError(f"{os.fspath(path)}: {reason}") from error

    if "hash_function" not in parameters:  # the one that "auto" chose, checked like a parameter
        set_checked("hash_function", notes.get("hash_function"))
        hasher.hash_function_ = as_learner(hasher.hash_function)
    for name in sorted(
        (stored.keys() & inspect.signature(FastHash).parameters.keys()) - FastHash.not_saved - parameters.keys()
    ):
        set_checked(name, stored[name])
    hasher.set_params(**parameters)
    encoder: Any = getattr(loaded, "encoder", loaded)  # of an ImageEncoder, or the encoder itself
    spread = encoder.part(Spread)
    hasher.encoder_, hasher.n_features_in_ = encoder, encoder.n_features
    learned = encoder if spread is None else spread.learned
    if notes.get("generic_bits") == encoder.n_bits:
        learned = None
    hasher._learned, hasher.generic_bits_ = learned, encoder.n_bits - (0 if learned is None else learned.n_bits)
    hasher.history_, hasher.choice_ = [], None
    return hasher


def _check(hasher: FastHash) -> None:
    """Check all parameters, and those of the hash function and of the solver, as `fit` would."""
    learner = [] if hasher.hash_function == AUTO else [as_learner(hasher.hash_function)]
    for part in (hasher, *learner, as_solver(hasher.inference)):
        check_parameters(part)
    losses.check_loss(hasher.loss, 1)
    check_random_state(hasher.random_state)
