"""What goes wrong when the state topic or a lake is read or written."""

from __future__ import annotations


class AuditError(Exception):
    """It cannot be read or written. The message says what, and why."""


class Refused(AuditError):
    """It would be refused again: somebody has to do what the message says."""
