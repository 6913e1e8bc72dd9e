"""The services that `bench_serve.py` compares with: faiss behind FastAPI, as it is usually written, and a bare server.

    python benchmarks/plain_service.py codes.npy --threads 1
    python benchmarks/plain_service.py codes.npy --constant   # the same answer to every request: the server's own cost

It answers ``POST /search`` with ``{"codes": ["hex", ...], "k": 10}`` as `hashgrove serve` does, one search per request.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from typing import Any

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


def constant() -> Any:
    """Return an application that reads the body of a request and answers ten results that never change."""
    hits = [{"id": str(i), "distance": 16} for i in range(10)]
    body = json.dumps({"results": [hits]}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    return app


def main() -> None:
    """Serve on any free port, and say which."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("codes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--constant", action="store_true")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(arguments.threads)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    app = constant() if arguments.constant else create(arguments.codes)
    print(f"Serving at http://127.0.0.1:{listening.getsockname()[1]}/", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
