"""What goes wrong when the state topic or a lake is read or written."""

from __future__ import annotations

from collections.abc import Mapping


class AuditError(Exception):
    """It cannot be read or written. The message says what, and why."""


class Refused(AuditError):
    """It would be refused again: somebody has to do what the message says."""


class NoTopic(AuditError):
    """The state topic is not there, or not yet."""


class Misused(AuditError):
    """An option has a value that cannot be. The message says which, and what it may be."""


def number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a number. Raises Misused."""
    said = options.get(name, str(default))
    if not said.isascii() or not said.isdigit():
        raise Misused(f"the option {name} is a number, not {said!r}")
    return int(said)
