"""Downloads over HTTP that continue where they stopped, retry after a fault, and check the published checksum.

Until a file is complete, the bytes that have arrived are in NAME.part, and the version of the file on the server (ETag
or Last-Modified) is in NAME.part.version. If several processes or threads want a file of one folder, all but one wait.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from hashgrove._version import __version__
from hashgrove.storage.formats import FileError, one_line

__all__ = ["DownloadError", "Progress", "download_file", "has_checksum"]

Progress = Callable[[int, int], None]  # called with the bytes that have arrived and the bytes in total

CHUNK = 2**18
TIMEOUT = 30.0  # seconds to wait for a byte
ATTEMPTS = 5  # attempts in a row without a new byte before giving up
BACKOFF = 1.0  # seconds before the second attempt; doubled for each further one
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
SPARE = 2**20  # bytes that stay free on the disk


class DownloadError(FileError):
    """A download that failed; the message is one line with the address."""


class _Passing(Exception):
    """A fault that may not happen again in another attempt."""


@dataclass(frozen=True)
class _Job:
    url: str
    path: Path
    part: Path
    version: Path
    size: int
    progress: Progress


def download_file(
    urls: Iterable[str], path: Path, *, checksum: str, size: int, progress: Progress = lambda done, total: None
) -> None:
    """Download a file, unless it already exists with the right checksum.

    Parameters
    ----------
    urls : iterable of str
        Addresses of the same file, http or https; if one fails for good, the next one is tried.
    path : Path
        Where the file goes, in a folder that exists. It appears there when it is complete and its checksum is right.
    checksum : str
        ``"md5:..."`` or ``"sha256:..."``.
    size : int
        Its number of bytes.
    progress : callable
        Called with the number of bytes that have arrived and the number of bytes in total.
    """
    if path.is_file() and has_checksum(path, checksum):
        return
    with _only_one(path.parent):
        if not (path.is_file() and has_checksum(path, checksum)):  # else another process got it meanwhile
            _download_from_any(list(urls), path, checksum, size, progress)


def _download_from_any(urls: list[str], path: Path, checksum: str, size: int, progress: Progress) -> None:
    for number, url in enumerate(urls, start=1):
        if urlsplit(url).scheme not in ("http", "https"):
            raise DownloadError(f"{url}: must be an address that begins with http:// or https://.")
        job = _Job(url, path, Path(f"{path}.part"), Path(f"{path}.part.version"), size, progress)
        try:
            _get_checked(job, checksum)
            return
        except DownloadError:
            if number == len(urls):
                raise


def has_checksum(path: Path, checksum: str) -> bool:
    """Whether a file has this checksum, "md5:..." or "sha256:..."."""
    method, _, expected = checksum.partition(":")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(method, usedforsecurity=False)).hexdigest() == expected


def _get_checked(job: _Job, checksum: str) -> None:
    while True:
        resumed = _bytes_here(job) > 0
        _get(job)
        if has_checksum(job.part, checksum):
            break
        _discard(job)
        if not resumed:
            raise DownloadError(
                f"{job.url}: must have the checksum {checksum}. The download has another one and was removed."
            )
        # The part was left by an earlier run and may belong to another version of the file: start again.
    with _disk(job.path):
        with open(job.part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(job.part, job.path)
        job.version.unlink(missing_ok=True)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Wait until nobody else downloads into this folder; without effect on systems that cannot lock a folder.

    The lock is on the folder itself, so no file is left behind, and the system releases it if the process is killed.
    """
    if fcntl is None:
        yield
        return
    with _disk(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Turn faults of the disk into a DownloadError, because another attempt does not help."""
    try:
        yield
    except OSError as error:
        raise DownloadError(f"{path}: cannot be written: {error.strerror or one_line(error)}") from error


def _bytes_here(job: _Job) -> int:
    return job.part.stat().st_size if job.part.is_file() else 0


def _discard(job: _Job) -> None:
    with _disk(job.part):
        job.part.unlink(missing_ok=True)
        job.version.unlink(missing_ok=True)


def _get(job: _Job) -> None:
    """Complete the part; gives up after `ATTEMPTS` attempts in a row without a new byte."""
    if _bytes_here(job) > job.size:
        _discard(job)
    most, fruitless = _bytes_here(job), 0
    while _bytes_here(job) != job.size:
        try:
            _attempt(job)
            return
        except (_Passing, http.client.HTTPException, OSError) as error:  # errors of urllib are OSErrors
            if _is_final(error):
                raise DownloadError(f"{job.url}: cannot be downloaded: {_reason(error)}") from error
            fruitless = 0 if _bytes_here(job) > most else fruitless + 1
            most = max(most, _bytes_here(job))
            if fruitless == ATTEMPTS:
                raise DownloadError(
                    f"{job.url}: cannot be downloaded, after {ATTEMPTS} attempts: {_reason(error)}"
                ) from error
            time.sleep(BACKOFF * 2 ** max(fruitless - 1, 0))


def _is_final(error: Exception) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code not in TRANSIENT
    return isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)


def _reason(error: Exception) -> str:
    """The reason of an error, without the text that urllib puts around it."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"[:200]
    reason = getattr(error, "reason", None)
    return one_line(reason if isinstance(reason, Exception) else error)


def _attempt(job: _Job) -> None:
    """Request the missing bytes once; returns when the part is complete."""
    have = _bytes_here(job)
    headers = {"User-Agent": f"hashgrove/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if job.version.is_file():
            headers["If-Range"] = job.version.read_text(encoding="latin-1")
    try:
        response = _OPENER.open(urllib.request.Request(job.url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            _discard(job)
            raise _Passing("the server has no such part of the file") from error
        raise
    with response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT and _starts_at(response, have):
            _receive(job, response, have)
        elif response.status == http.HTTPStatus.OK:  # the server does not support ranges, or the file has changed
            _discard(job)
            _receive(job, response, 0)
        else:
            _discard(job)
            raise _Passing(f"the server answered {response.status} to a request for a range of bytes")


def _starts_at(response: Any, have: int) -> bool:
    match = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
    return match is not None and int(match[1]) == have


def _receive(job: _Job, response: Any, have: int) -> None:
    length = response.headers.get("Content-Length", "")
    if length.isascii() and length.isdigit() and have + int(length) != job.size:
        _discard(job)
        raise DownloadError(f"{job.url}: must have {job.size} bytes. The server offers {have + int(length)}.")
    _check_room(job, have)
    _remember_version(job, response.headers.get("ETag") or response.headers.get("Last-Modified") or "")
    while have < job.size:
        chunk = response.read1(min(CHUNK, job.size - have))
        if not chunk:
            raise _Passing(f"the connection ended after {have} of {job.size} bytes")
        with _disk(job.part), open(job.part, "ab") as file:
            file.write(chunk)
        have += len(chunk)
        job.progress(have, job.size)


def _remember_version(job: _Job, version: str) -> None:
    """Keep the version of the file on the server; a weak ETag is not kept, as it does not mean equal bytes."""
    with _disk(job.version):
        job.version.unlink(missing_ok=True)
        if version and not version.startswith("W/") and version.isprintable() and len(version) < 256:
            job.version.write_text(version, encoding="latin-1")


def _check_room(job: _Job, have: int) -> None:
    free = shutil.disk_usage(job.path.parent).free
    if free < job.size - have + SPARE:
        raise DownloadError(
            f"{job.path}: cannot be written: {job.size - have} bytes are needed on this disk, and {free} are free"
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only; urllib itself would also follow them to ftp."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise DownloadError(f"{req.full_url}: must lead to http or https. It leads to {newurl[:100]!r}.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http, https and proxies, but for no other scheme: no local files, no ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


_OPENER = _opener()
