"""Errors that keep a sidecar from starting. A module of its own, because ports open before the rest of the coordinator
is imported."""

from __future__ import annotations


class StartError(Exception):
    """Raised when the sidecar, or its coordinator alone, cannot start; the text has the reason and the remedy."""


class StartAnew(StartError):
    """Raised when the coordinator's state is void: the coordinator ends, and another one starts in its place."""
