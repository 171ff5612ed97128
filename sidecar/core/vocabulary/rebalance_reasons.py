"""Why a group rebalances, in few words: the label of a metric. The record and the log have the whole sentence."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice

NAMED, NAME_CHARS = 10, 500
"""How many members a sentence names, and how much is said of each: records and a group's history keep it."""


class Reason(StrEnum):
    JOINED = "joined"
    REJOINED = "rejoined"
    """A classic member has joined once more and said nothing new, as a leader does to have it assigned anew."""
    LEFT = "left"
    SESSION = "session_timeout"
    LATE = "rebalance_timeout"
    """A member has not given up what it must, has not joined or has not synced in time."""
    SUBSCRIPTION = "subscription"
    """A member has changed what it subscribes to, which protocols it knows, or the assignor that most ask for."""
    TOPICS = "topics"
    """A topic has come, has gone or has more partitions, or a regular expression stands for others."""
    OPERATOR = "operator"
    """Somebody has asked for it."""
    MOVED = "moved"
    """The group has come from the broker, or goes back there."""
    PROTOCOL = "protocol"
    """The group has changed from one protocol to the other."""
    SIZE = "size"
    """The group is larger than it may be."""


def of_removal(why: str) -> Reason:
    """Of a member that was removed for `why`: our own words, behind which a client's may stand."""
    for words, reason in REMOVALS:
        if why.startswith(words):
            return reason
    return Reason.MOVED


def listed(words: Iterable[str], between: str = ", ") -> str:
    """The first of them; that there are more is said."""
    left = iter(words)
    first = [w if len(w) <= NAME_CHARS else f"{w[:NAME_CHARS]}..." for w in islice(left, NAMED)]
    more = sum(1 for _ in left)
    return between.join([*first, f"{more} more"] if more else first)


REMOVALS = (
    ("session timeout", Reason.SESSION),
    ("rebalance timeout", Reason.LATE),
    ("did not", Reason.LATE),
    ("left", Reason.LEFT),
)
