"""Try the wheel on every supported Python, on older processors, and with the lowest versions of all dependencies.

    python .ci/matrix.py dist

Each environment is new, and made by uv from the wheel that `make package` built. In each, a small program learns,
saves, loads and searches, and then the tests in CORE run against the installed package; among them are the fits whose
codes and models are recorded. Two environments compile their kernels for older processors, so that the recorded codes
are also those of AVX2 and of plain x86-64. Two environments at a time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = (  # Python, versions of the dependencies, processor
    ("3.11", "lowest-direct", "native"),
    ("3.11", "highest", "haswell"),
    ("3.12", "highest", "generic"),
    ("3.13", "highest", "native"),
)
PROCESSORS = {  # the instructions that kernels may use: all of this machine, AVX2, or plain x86-64
    "native": None,
    "haswell": "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+lzcnt",
    "generic": "",
}
AT_ONCE = 2
TOOLS = "pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", "pillow>=11.3"
CORE = (
    "tests/contract/test_fits.py",
    "tests/contract/test_format1.py",
    "tests/unit/test_codes.py",
    "tests/unit/test_losses.py",
    "tests/unit/test_modelfile.py",
)
FIT = "tests/contract/test_fits.py::test_a_fit_gives_the_recorded_model"
BY_LBFGS = "baseline ksh", "baseline ksh pairs", "baseline ksh tags", "solver spectral"  # older scipy takes other steps
SMOKE = """
import sys
import numpy, numba, scipy, sklearn
from sklearn.datasets import load_digits
import hashgrove
from hashgrove import FastHash, FlatIndex, evaluate

X, y = load_digits(return_X_y=True)
hasher = FastHash(32, random_state=0).fit(X[:600], y[:600], validation=0.2)
hasher.save("digits.hashgrove")
encoder = hashgrove.load("digits.hashgrove")
codes = hasher.transform(X[600:])
assert (encoder.encode(X[600:]) == codes).all()
index = FlatIndex(codes)
report = evaluate(index, codes, y_queries=y[600:], y_database=y[600:], exclude_self=True)
assert report.map > 0.8, report
versions = (f"{module.__name__} {module.__version__}" for module in (numpy, scipy, sklearn, numba))
print("Python", sys.version.split()[0] + ",", ", ".join(versions) + f": MAP {report.map:.4f}")
"""


def interpreter(version: str) -> Path:
    """Return the path of a Python of this version: on the path of commands, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    own = [Path(sys.executable)] if sys.version.startswith(f"{version}.") else []
    installed = sorted((pyenv / "versions").glob(f"{version}.*/bin/python{version}"))
    on_path = shutil.which(f"python{version}")
    for path in [*own, *installed, *([] if on_path is None else [Path(on_path)])]:
        if subprocess.run([path, "-c", "0"], capture_output=True).returncode == 0:
            return path
    raise RuntimeError(f"Python {version} is not installed; install it, for example with pyenv")


def try_wheel(wheel: Path, version: str, resolution: str, processor: str, folder: Path) -> str:
    """Install the wheel, run the small program and the tests in the new ``folder``; return what they print."""
    name = f"Python {version}, {resolution} versions, kernels for {processor}"
    started = time.perf_counter()
    uv = Path(sys.executable).parent / "uv"
    python = folder / "environment" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA", "COV"))}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "VIRTUAL_ENV": str(python.parent.parent)}
    if (features := PROCESSORS[processor]) is not None:
        environment |= {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}

    def run(command: Sequence[str | Path], where: Path = folder) -> str:
        done = subprocess.run(command, cwd=where, env=environment, text=True, stdout=-1, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(f"{name}: {command[0]} failed\n{done.stdout[-8000:]}")
        return done.stdout

    run([uv, "venv", "--quiet", "--python", interpreter(version), python.parent.parent])
    # the dependencies by themselves: as those of a wheel they would not be direct ones, and none would be the lowest
    run([uv, "pip", "install", "--quiet", "--resolution", resolution, "-r", ROOT / "pyproject.toml"])
    run([uv, "pip", "install", "--quiet", "--no-deps", wheel])
    run([uv, "pip", "install", "--quiet", *TOOLS])
    said = run([python, "-W", "error::DeprecationWarning:hashgrove", "-c", SMOKE]).strip().splitlines()[-1]
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not data", *CORE]
    if resolution != "highest":
        tests += [f"--deselect={FIT}[{name}]" for name in BY_LBFGS]
    found = run(tests, ROOT).strip().splitlines()[-1]
    return f"{name}: {found.strip('= ')}; {time.perf_counter() - started:.0f} s in all\n  {said}"


def _outcome(result: Future[str]) -> str | None:
    """Print the result of an environment as soon as it is there; return what went wrong, if anything did."""
    try:
        print(result.result(), flush=True)
    except RuntimeError as error:
        return str(error)
    return None


def main() -> None:
    """Try the wheel in the folder that the command line names in all environments."""
    [wheel] = (path.resolve() for path in Path(sys.argv[1]).glob("*.whl"))
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(AT_ONCE) as threads:
        pending = []
        for environment in ENVIRONMENTS:
            folder = Path(temporary) / "-".join(environment)
            folder.mkdir()
            pending.append(threads.submit(try_wheel, wheel, *environment, folder))
        failed = [error for result in pending if (error := _outcome(result))]
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
