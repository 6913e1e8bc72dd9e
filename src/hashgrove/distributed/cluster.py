"""The Dask cluster: the connection to it, and checks that its workers can do what they will be asked to do."""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

from hashgrove._version import __version__
from hashgrove.storage.formats import FileError, one_line

__all__ = ["DistributedError", "check_workers", "clear_errors", "connect", "naming_worker"]

SECONDS = 15.0  # that a scheduler has to answer, and to have a worker
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "distributed")  # that decide about the bytes of a model


class DistributedError(OSError):
    """A cluster that cannot do what it is asked to do, and what to do about it."""


def connect(address: str) -> Any:
    """A client of the scheduler at an address such as ``tcp://10.0.0.1:8786``; close it when it is no longer needed.

    Raises
    ------
    DistributedError
        If no scheduler answers, or if it has no workers.
    """
    distributed = _import_distributed()
    if not re.fullmatch(r"(\w+://)?[^/\s]+:\d+/?", address):
        raise DistributedError(f"{address}: must be the address of a Dask scheduler, such as tcp://10.0.0.1:8786.")
    try:
        client = distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise DistributedError(
            f"{address}: no Dask scheduler answers ({one_line(error)}). Start one with 'dask scheduler', and give the "
            "address that it prints, such as tcp://10.0.0.1:8786."
        ) from error
    try:
        _wait_for_workers(client)
    except BaseException:
        client.close()
        raise
    return client


def _import_distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise DistributedError(
            f"Dask is needed to work on several machines: pip install 'hashgrove[dask]' ({one_line(error)})"
        ) from error


def _wait_for_workers(client: Any) -> None:
    address = client.scheduler_info()["address"]
    try:
        client.wait_for_workers(1, timeout=SECONDS)
    except TimeoutError as error:
        raise DistributedError(
            f"{address}: the scheduler has no workers. Start some with 'dask worker {address}', on machines with the "
            "same version of hashgrove."
        ) from error


def check_workers(client: Any, *, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> None:
    """Refuse a cluster whose workers have other versions than this process, or cannot use files that they will need.

    Parameters
    ----------
    client : distributed.Client
    reads, writes : paths
        Files or folders that all workers must be able to read, and folders that they must be able to write to.
    """
    distributed = _import_distributed()
    if not isinstance(client, distributed.Client):
        raise DistributedError(
            f"The 'client' parameter must be a distributed.Client. Got {type(client).__name__} instead; "
            "hashgrove.distributed.connect(address) gives one."
        )
    _wait_for_workers(client)
    found = _ask_all(client, _versions)
    here = _versions()
    for worker, versions in found.items():
        other = [f"{name} {there} (here {here[name]})" for name, there in versions.items() if there != here[name]]
        other = [text for text in other if not text.startswith("processor ")]
        if other:
            raise DistributedError(
                f"{worker}: must have the versions of this process, so that the bytes are the same. It has "
                f"{', '.join(other)}."
            )
    processors = sorted({versions["processor"] for versions in (here, *found.values())})
    if len(processors) > 1:
        warnings.warn(
            f"The machines have processors of {len(processors)} types ({', '.join(processors)}). Sums of "
            "real numbers may be rounded differently there, so the model may not be that of one machine to the last "
            "byte.",
            stacklevel=3,
        )
    for paths, is_usable, verb in ((reads, _can_read, "read"), (writes, _can_write, "write to")):
        for path in map(os.path.abspath, paths):
            blind = [worker for worker, usable in _ask_all(client, is_usable, path).items() if not usable]
            if blind:
                raise DistributedError(
                    f"{path}: must be on a file system that all workers see. These cannot {verb} it: "
                    f"{', '.join(blind[:5])}{' and others' if len(blind) > 5 else ''}."
                )


def _ask_all(client: Any, question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The answers of all workers by their addresses; ImportError if one lacks hashgrove."""
    answers: dict[str, Any] = client.run(question, *arguments, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, ImportError):
            raise DistributedError(
                f"{worker}: hashgrove {__version__} must be installed there. It cannot be imported: {one_line(answer)}"
            ) from answer
        if isinstance(answer, BaseException):
            raise DistributedError(f"{worker}: does not answer: {one_line(answer)}") from answer
    return answers


def _versions() -> dict[str, str]:
    """The versions of what decides about the bytes of a model in this process, and its type of processor."""
    from llvmlite import binding

    versions = {"hashgrove": __version__, "Python": platform.python_version().rpartition(".")[0]}
    versions |= {name: metadata.version(name) for name in PACKAGES}
    return versions | {"processor": str(binding.get_host_cpu_name())}


def _can_read(path: str) -> bool:
    return os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0))


def _can_write(path: str) -> bool:
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


@contextmanager
def naming_worker() -> Iterator[None]:
    """A block of a task in which an error about a file says which worker had it."""
    from distributed import get_worker

    try:
        yield
    except FileError as error:
        raise FileError(f"{error} (on the worker {get_worker().address})") from error


@contextmanager
def clear_errors() -> Iterator[None]:
    """A block in which Dask's own errors, which speak of its tasks, become errors that say what to do."""
    distributed = _import_distributed()
    from concurrent.futures import CancelledError

    try:
        yield
    except distributed.KilledWorker as error:
        raise DistributedError(
            f"{error.last_worker.address}: several workers died with the same task, the last one here. They mostly run "
            "out of memory: give them more (dask worker --memory-limit), fewer threads (--nthreads), or a FeatureStore "
            "in the place of rows. The logs of the workers say more."
        ) from error
    except (CancelledError, distributed.comm.CommClosedError) as error:
        raise DistributedError(
            f"The connection to the scheduler was lost, or it has cancelled the tasks: {one_line(error)}"
        ) from error
