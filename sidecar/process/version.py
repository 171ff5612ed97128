"""The version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGE = "kafka-group-sidecar"


@cache
def package_version() -> str:
    """Returns the version of the installed package; "" where it is not installed."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return ""
