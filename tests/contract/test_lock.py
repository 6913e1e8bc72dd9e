"""The versions that CI installs (`make lock`): all direct dependencies have one, and no place to get them from."""

from __future__ import annotations

import re
import tomllib

import pytest

from paths import REPOSITORY

packaging = pytest.importorskip("packaging.requirements")
LOCK = REPOSITORY / ".ci" / "constraints.txt"


def direct():
    """What pyproject.toml asks for in the environment of CI, the extras of extras included."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras, found, wanted = project["optional-dependencies"], {}, list(project["dependencies"])
    wanted += ["hashgrove[dev,docs]"]
    while wanted:
        requirement = packaging.Requirement(wanted.pop())
        if requirement.name == "hashgrove":
            wanted += [inner for extra in requirement.extras for inner in extras[extra]]
        elif requirement.marker is None or requirement.marker.evaluate():
            found[requirement.name.lower()] = requirement.specifier
    return found


def test_every_direct_dependency_has_an_allowed_version():
    lines = LOCK.read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)?", line) for line in lines), "no options, no addresses"
    versions = dict(line.split(" ")[0].split("==") for line in lines)
    for name, allowed in direct().items():
        assert name in versions, f"run: make lock (it has no {name})"
        assert allowed.contains(versions[name]), f"run: make lock ({name} {versions[name]} is not {allowed})"
