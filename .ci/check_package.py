"""Try the wheel and the sdist that `make package` built: `python .ci/check_package.py dist`.

The wheel must hold every file of src/hashgrove (py.typed and the stub with the public names included) and nothing else:
no experiments and no tests. The sdist must hold the same files, and those of the experiments. The wheel is then
installed into a new environment whose folder of packages cannot be written to, and used by two processes that start
together, outside of the source tree, with nothing compiled yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def check_files(dist: Path) -> Path:
    """Compare the files of both archives with those of the source tree; return the path of the wheel."""
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        in_wheel = {name for name in file.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as file:
        members = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    package, experiments = files_of("src/hashgrove"), files_of("experiments")
    in_sdist = {name for name in members if name.startswith(("src/hashgrove/", "experiments/"))}
    compare(wheel, in_wheel, {name.removeprefix("src/") for name in package})
    compare(sdist, in_sdist, package | experiments)
    return wheel


def files_of(folder: str) -> set[str]:
    """Return the names of all files in a folder of the repository, without the caches of Python."""
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def compare(archive: Path, found: set[str], expected: set[str]) -> None:
    """Exit with an error if an archive lacks files or has too many."""
    if found != expected:
        sys.exit(f"{archive.name}: missing {sorted(expected - found)}, too many {sorted(found - expected)}")


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment and bar its packages from writing; return the folder of commands."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-compile", str(wheel)], check=True)
    [package] = folder.glob("lib/python*/site-packages/hashgrove")
    for room in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (room / "__pycache__").touch()  # a file of this name: not even root can make a cache folder there
    return folder / "bin"


def use(commands: Path, folder: Path) -> None:
    """Run the installed program in ``folder``, twice at the same time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NUMBA"))}
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    where = "import hashgrove; print(hashgrove.__file__, hashgrove.__version__)"
    for call in ([commands / "hashgrove", "--version"], [commands / "python", "-c", where]):
        subprocess.run(call, cwd=folder, env=environment, check=True)
    demos = [
        subprocess.Popen([commands / "hashgrove", "demo", "-o", f"{number}.png"], cwd=folder, env=environment)
        for number in range(2)
    ]
    codes = [demo.wait() for demo in demos]
    if any(codes):
        sys.exit("hashgrove demo failed in an environment that cannot be written to")
    compiled = list((folder / "cache").rglob("*.nbi"))
    if not compiled:
        sys.exit("the machine code of the kernels was not kept in the user's cache folder")
    print(f"both demos ran; {len(compiled)} kernels are in the user's cache folder")


def main() -> None:
    """Check what is in the folder that the command line names."""
    wheel = check_files(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        use(install(wheel, folder / "environment"), folder)


if __name__ == "__main__":
    main()
