"""Findings of the page: their kinds and gravity."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.audit.page.pack import NONE
from sidecar.core.runtime.commands import MOVED

FAULT, POSSIBLE, NOTE = 0, 1, 2
"""Gravity of a finding: a fault that must not exist, a possible fault, or a note."""
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
"""Key and name of each kind of finding, the gravest first."""
FREE = ("unowned", "uncovered")
LONGEST = (*FREE, "outage", "lacking", "unready")
"""Kinds of which the longest findings count most; of all others, the newest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. `end`: None if it goes on, or was a single moment. `place`, `owner`: numbers in the group."""

    kind: str
    grave: int
    ms: int
    offset: int
    partition: int
    text: str
    end: int | None = None
    group: int = NONE
    place: int = NONE
    owner: int = NONE


def handed_over(why: str) -> bool:
    """Returns whether a live coordinator handed its partition over in this takeover, so there was no outage."""
    return why.startswith(MOVED)


def span(ms: int) -> str:
    """Returns a duration in its two largest units."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    for unit, size, less, part in (("min", 60_000, "s", 1000), ("h", 3_600_000, "min", 60_000)):
        if ms < size * 60:
            return f"{ms // size} {unit} {ms % size // part} {less}"
    return f"{ms // 86_400_000} d {ms % 86_400_000 // 3_600_000} h"
