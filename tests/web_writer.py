"""A service that tests kill: ``python tests/web_writer.py INDEX`` serves the index anew for each line on stdin.

Everything is imported once. Each service is a fork of this process, so it starts in a moment. It prints its process id
and its port.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

import hashgrove.features
import hashgrove.storage.models  # noqa: F401
from hashgrove.web.opening import open_index
from hashgrove.web.server import Served, run


def main(folder: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            collection = open_index(folder)
            run(Served(collection), port=0, ready=lambda url: print(os.getpid(), urlsplit(url).port, flush=True))
            os._exit(0)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            sys.exit("the service has ended by itself")  # a test that waits for its port gets the end of the output


if __name__ == "__main__":
    main(sys.argv[1])
