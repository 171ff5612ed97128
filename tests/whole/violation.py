"""What the simulation finds."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise is broken."""
