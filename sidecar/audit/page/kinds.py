"""Kinds of findings, how grave they are, and one finding."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.audit.page.pack import NONE
from sidecar.core.runtime.commands import MOVED

FAULT, POSSIBLE, NOTE = 0, 1, 2
"""How grave a finding is: it must not be; it may have been; good to know."""
KINDS = (
    ("overlap", "two owners"),
    ("overlap?", "perhaps two owners"),
    ("stale", "stale write"),
    ("back", "epoch went back"),
    ("unreadable", "unreadable record"),
    ("outage", "coordinator away"),
    ("claimed", "stale claim"),
    ("setting", "setting changed"),
    ("unowned", "unowned"),
    ("uncovered", "nobody’s, of a share group"),
    ("lacking", "too few standbys"),
    ("unready", "topology not ready"),
)
"""Key and name of each kind, the gravest first."""
FREE = ("unowned", "uncovered")
LONGEST = (*FREE, "outage", "lacking", "unready")
"""Kinds of which the longest count most; of the others, the newest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`end`: when it was over; None: not yet, or it was but a moment. `place`, `owner`: numbers in the group."""

    kind: str
    grave: int
    ms: int
    end: int | None
    offset: int
    partition: int
    text: str
    group: int = NONE
    place: int = NONE
    owner: int = NONE


def handed_over(why: str) -> bool:
    """Whether a takeover ended nothing but the work of a coordinator that lived."""
    return why.startswith(MOVED)


def span(ms: int) -> str:
    """A length of time in the two units that matter."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    for unit, size, less, part in (("min", 60_000, "s", 1000), ("h", 3_600_000, "min", 60_000)):
        if ms < size * 60:
            return f"{ms // size} {unit} {ms % size // part} {less}"
    return f"{ms // 86_400_000} d {ms % 86_400_000 // 3_600_000} h"
