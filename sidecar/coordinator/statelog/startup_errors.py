"""Why a sidecar cannot start. In a module of its own, because ports open before anything else of the coordinator is
imported."""

from __future__ import annotations


class StartError(Exception):
    """The sidecar, or its coordinator alone, cannot start; the text says why and what to do."""


class StartAnew(StartError):
    """Nothing that the coordinator knows counts any more: it ends, and another one starts in its place."""
