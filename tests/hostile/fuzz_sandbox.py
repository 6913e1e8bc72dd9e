"""Calls the decoder of hashgrove.features.sandbox for one image file after another, each in a copy of this process.

It is told the path of the decoder, and by lines on stdin, as JSON, a file for the output and the arguments of the
decoder; a line on stdout is the exit status. It imports nothing but Pillow, because a small process is copied fast.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

from PIL import Image


def main(decoder):
    Image.init()
    decode = runpy.run_path(decoder)["main"]
    for line in sys.stdin:
        output, *arguments = json.loads(line)
        process = os.fork()
        if not process:
            status = 1
            try:
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stdout.fileno())
                decode(*arguments)
                sys.stdout.flush()
                status = 0
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
