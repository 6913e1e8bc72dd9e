"""The files of `FaissIndex`: a binary index as faiss writes it, and behind it what faiss does not know.

faiss reads such a file as an ``IndexBinaryIDMap2`` over an ``IndexBinaryFlat``, and ignores what stands behind it: the
texts of ids, a JSON object, and a footer of fixed length with a checksum. A file without these, which faiss itself has
written, is read as well if it holds a flat index, with or without ids. All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import MAX_BYTES
from hashgrove.index.engines.session import EngineError, Meta
from hashgrove.index.ids import MAX_TEXT, refuse_duplicates
from hashgrove.storage.atomic import atomic_write

__all__ = ["Stored", "read", "write"]

FORMAT = 1
HEADER = struct.Struct("<4siiqBi")  # kind, bits, bytes, number of codes, whether trained, metric
LENGTH = struct.Struct("<Q")
FOOTER = struct.Struct("<QQII8s")  # bytes of faiss, of texts, of JSON; CRC-32 of all of these; MAGIC
MAGIC = b"HGRVFAIS"
FLAT, WITH_IDS = b"IBxF", (b"IBMp", b"IBM2")
MAX_JSON = 2**16


@dataclass(frozen=True, eq=False)
class Stored:
    """The content of a file: codes, ids as `hashgrove.index.ids.encode` gives them, and ranks, sorted by id.

    The rows of the file are in the order of the ranks.
    """

    meta: Meta
    codes: NDArray[np.uint8]
    keys: NDArray[Any]
    ranks: NDArray[np.int64]

    def in_order(self) -> Stored:
        """The same items sorted by rank."""
        return self.among(np.argsort(self.ranks))

    def among(self, places: NDArray[np.int64]) -> Stored:
        """The items at these places."""
        return Stored(self.meta, self.codes[places], self.keys[places], self.ranks[places])


def write(path: str, stored: Stored, faiss: Any) -> None:
    """Write a file, atomically and durably."""
    stored = stored.in_order()
    texts = b"\0".join(stored.keys.tolist()) if stored.meta.texts else b""
    about = {"format": FORMAT, "n_bytes": stored.meta.n_bytes, "texts": stored.meta.texts, "model": stored.meta.model}
    parts = [_faiss_bytes(stored, faiss), texts, json.dumps(about, sort_keys=True).encode()]
    crc = 0
    with atomic_write(path) as file:
        for part in parts:
            file.write(part)
            crc = zlib.crc32(part, crc)
        file.write(FOOTER.pack(*map(len, parts), crc, MAGIC))


def _faiss_bytes(stored: Stored, faiss: Any) -> bytes:
    if stored.meta.n_bytes is None:
        return b""
    flat = faiss.IndexBinaryFlat(8 * stored.meta.n_bytes)
    index = faiss.IndexBinaryIDMap2(flat)
    numbers = np.arange(len(stored.keys)) if stored.meta.texts else stored.keys
    index.add_with_ids(np.ascontiguousarray(stored.codes), numbers)
    return bytes(faiss.serialize_index_binary(index))


def read(path: str) -> Stored:
    """Read a file, which is treated as untrusted: sizes in it are compared with its length before they are used."""
    content = Path(path).read_bytes()
    try:
        return _parsed(memoryview(content))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise EngineError(f"must be a file of a flat binary index of faiss. {error}") from error


def _parsed(content: memoryview) -> Stored:
    footer = content[-FOOTER.size :]
    if len(footer) < FOOTER.size or bytes(footer[-len(MAGIC) :]) != MAGIC:
        codes, keys = _flat(content)
        return _sorted(Meta(codes.shape[1]), codes, np.arange(len(codes)) if keys is None else keys)
    n_faiss, n_texts, n_json, crc, _ = FOOTER.unpack(footer)
    if n_faiss + n_texts + n_json + FOOTER.size != len(content) or n_json > MAX_JSON:
        raise ValueError("Its footer gives another length than the file has.")
    if zlib.crc32(content[: -FOOTER.size]) != crc:
        raise ValueError("Its checksum is wrong: the file is damaged.")
    about = json.loads(bytes(content[n_faiss + n_texts : -FOOTER.size]))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"Its format must be {FORMAT}.")
    meta = Meta(about.get("n_bytes"), bool(about.get("texts")), about.get("model"))
    if meta.n_bytes is None:
        return Stored(meta, np.empty((0, 0), np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    codes, keys = _flat(content[:n_faiss])
    texts = bytes(content[n_faiss : n_faiss + n_texts])
    if meta.texts:
        keys = _texts(texts)
    if keys is None or len(keys) != len(codes) or codes.shape[1] != meta.n_bytes:
        raise ValueError("Its codes and ids do not belong together.")
    return _sorted(meta, codes, keys)


def _flat(content: memoryview) -> tuple[NDArray[np.uint8], NDArray[np.int64] | None]:
    """The codes of an index as faiss writes it, and the ids, if it has some."""
    kind, _, n_bytes, n, _, _ = HEADER.unpack(content[: HEADER.size])
    if kind in WITH_IDS:
        codes, n_read = _codes(content[HEADER.size :])
        end = HEADER.size + n_read
        if len(codes) != n or codes.shape[1] != n_bytes:
            raise ValueError("Its two headers differ.")
        ids, rest = _vector(content[end:], 8 * n)
    elif kind == FLAT:
        codes, n_read = _codes(content)
        ids, rest = None, len(content) - n_read
    else:
        raise ValueError(f"Got an index of kind {kind!r} instead.")
    if rest:
        raise ValueError(f"Got {rest} bytes after its end.")
    return codes, None if ids is None else ids.view("<i8").astype(np.int64)


def _codes(content: memoryview) -> tuple[NDArray[np.uint8], int]:
    """Codes of a flat index, and how many bytes it takes."""
    kind, n_bits, n_bytes, n, _, _ = HEADER.unpack(content[: HEADER.size])
    if kind != FLAT or n_bits != 8 * n_bytes or not 1 <= n_bytes <= MAX_BYTES or n < 0:
        raise ValueError(f"Got an index of kind {kind!r} with {n} codes of {n_bits} bits instead.")
    codes, rest = _vector(content[HEADER.size :], n * n_bytes)
    return codes.reshape(n, n_bytes), len(content) - rest


def _vector(content: memoryview, length: int) -> tuple[NDArray[np.uint8], int]:
    """The bytes of a vector, which is preceded by its number of entries, and how many bytes follow it."""
    LENGTH.unpack(content[: LENGTH.size])
    values = content[LENGTH.size : LENGTH.size + length]
    if len(values) < length:
        raise ValueError("The file ends too early.")
    return np.frombuffer(values, np.uint8), len(content) - LENGTH.size - length


def _texts(joined: bytes) -> NDArray[Any]:
    texts = joined.split(b"\0") if joined else []
    if not all(1 <= len(text) <= MAX_TEXT for text in texts):
        raise ValueError(f"Its ids must be texts of 1 to {MAX_TEXT} bytes.")
    joined.decode()
    return np.array(texts, np.bytes_)


def _sorted(meta: Meta, codes: NDArray[np.uint8], keys: NDArray[Any]) -> Stored:
    order = np.argsort(keys, kind="stable")
    refuse_duplicates(keys[order])
    return Stored(meta, codes[order], keys[order], order)
