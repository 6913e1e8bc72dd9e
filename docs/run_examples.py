"""Run the commands shown in docs/cli.md and put their real output behind them: `python docs/run_examples.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "cli.md"


def output(command: str, folder: str) -> str:
    """What a command prints on stdout and stderr together, as on a terminal."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return re.sub(r" +$", "", result.stdout, flags=re.MULTILINE)


def main() -> None:
    """Rewrite every console block of the page."""
    text = PAGE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))  # later blocks use earlier names
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)

        def run_block(block: re.Match[str]) -> str:
            commands = [line for line in block[1].splitlines() if line.startswith("$ ")]
            return "```console\n" + "".join(f"{line}\n{output(line[2:], folder)}" for line in commands) + "```"

        PAGE.write_text(re.sub(r"```console\n(.*?)```", run_block, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
