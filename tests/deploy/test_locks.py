"""The locks have what pyproject.toml asks for, each with hashes, and name no place to fetch it from."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

EXTRAS = {"sidecar": [], "audit": ["audit"], "dev": ["audit", "dev"]}
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)( ; .*)? \\$")


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


def locked(root: Path, name: str) -> dict[str, set[Version]]:
    """Package -> its versions: there may be one for each version of Python. Every entry must have a hash."""
    lines = (root / f"requirements/{name}.lock").read_text().splitlines()
    found: dict[str, set[Version]] = {}
    for line, following in pairwise(lines):
        if line[:1] in (" ", "#"):
            continue
        entry = ENTRY.match(line)
        assert entry and following.startswith("    --hash=sha256:"), line
        found.setdefault(canonicalize_name(entry[1]), set()).add(Version(entry[2]))
    return found


def missing(wanted: list[str], found: dict[str, set[Version]]) -> list[str]:
    asked = [Requirement(text) for text in wanted]
    return [str(r) for r in asked if not any(v in r.specifier for v in found.get(canonicalize_name(r.name), ()))]


@pytest.mark.parametrize("name", EXTRAS)
def test_a_lock_satisfies_the_project(root: Path, project: dict[str, Any], name: str) -> None:
    wanted = list(project["project"]["dependencies"])
    for extra in EXTRAS[name]:
        wanted += project["project"]["optional-dependencies"][extra]
    found = locked(root, name)
    assert missing(wanted, found) == [], "run `make lock`"
    assert missing(["aiohttp>=1000", "no-such-package"], found) == ["aiohttp>=1000", "no-such-package"]


def test_what_builds_the_package_is_locked(root: Path, project: dict[str, Any]) -> None:
    wanted = project["build-system"]["requires"]
    assert (root / "requirements/build.in").read_text().split() == wanted
    assert missing(wanted, locked(root, "build")) == []


def test_locks_agree_with_each_other(root: Path) -> None:
    small, middle, large = (locked(root, name) for name in EXTRAS)
    assert small.items() <= middle.items() <= large.items()


def test_no_lock_names_a_registry(root: Path) -> None:
    for file in (root / "requirements").iterdir():
        assert not re.search(r"https?://|index-url|find-links|trusted-host", file.read_text()), file.name
