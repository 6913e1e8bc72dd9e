"""The service that `bench_serve.py` compares with: faiss behind FastAPI, as it is usually written.

    python benchmarks/plain_service.py codes.npy --threads 1

It answers ``POST /search`` with ``{"codes": ["hex", ...], "k": 10}`` as `hashgrove serve` does, one search per request.
"""

from __future__ import annotations

import argparse
import socket
import sys

import faiss
import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Search(BaseModel):
    """What is searched."""

    codes: list[str]
    k: int = 10


def create(path: str) -> FastAPI:
    """Return the application over the codes in a file."""
    codes = np.load(path)
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    app = FastAPI()

    @app.post("/search")
    def search(asked: Search) -> dict:
        queries = np.frombuffer(bytes.fromhex("".join(asked.codes)), np.uint8).reshape(len(asked.codes), -1)
        distances, ids = index.search(queries, asked.k)
        return {
            "results": [
                [{"id": str(i), "distance": d} for i, d in zip(row, near, strict=True)]
                for row, near in zip(ids.tolist(), distances.tolist(), strict=True)
            ]
        }

    return app


def main() -> None:
    """Serve on any free port, and say which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codes")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = create(arguments.codes)
    print(f"Serving at http://127.0.0.1:{listening.getsockname()[1]}/", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
