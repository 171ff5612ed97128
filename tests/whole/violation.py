"""The finding of a simulation."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise is broken."""
