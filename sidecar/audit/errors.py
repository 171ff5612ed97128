"""Errors of reading or writing the state topic or a lake."""

from __future__ import annotations


class AuditError(Exception):
    """The state topic or a lake cannot be read or written. The message says which part, and why."""


class Refused(AuditError):
    """A retry would fail again: the operator must first do what the message says."""


class NoTopic(AuditError):
    """The state topic does not exist, or not yet."""


class Misused(AuditError):
    """An option has an invalid value. The message names the option and its valid values."""
