"""Reasons of a rebalance, in few words: the label of a metric. The record and the log have the whole sentence."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import islice

NAMED, NAME_CHARS = 10, 500
"""Members that a sentence names, and characters for each: records and a group's history keep the sentence."""


class Reason(StrEnum):
    JOINED = "joined"
    REJOINED = "rejoined"
    """A classic member has joined again without changes, as a leader does to have the group assigned anew."""
    LEFT = "left"
    SESSION = "session_timeout"
    LATE = "rebalance_timeout"
    """A member has not given up its partitions, has not joined or has not synced in time."""
    SUBSCRIPTION = "subscription"
    """A member has changed its subscription, its protocols, or the assignor that most members ask for."""
    TOPICS = "topics"
    """A topic was made, deleted or got more partitions, or a regular expression matches other topics."""
    OPERATOR = "operator"
    """An administrator has ordered the rebalance."""
    MOVED = "moved"
    """The group moves from the broker to the sidecars, or back."""
    PROTOCOL = "protocol"
    """The group has changed from one protocol to the other."""
    SIZE = "size"
    """The group is larger than its limit."""


def of_removal(why: str) -> Reason:
    """Returns the reason for the removal of a member. `why` begins with the sidecar's own words; a client's may
    follow."""
    for words, reason in REMOVALS:
        if why.startswith(words):
            return reason
    return Reason.MOVED


def listed(words: Iterable[str], between: str = ", ") -> str:
    """Joins the first NAMED words, each shortened, and the number of the others."""
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
