"""Pieces of text that explanations of all kinds of groups share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sidecar.audit.explain.replay import Replayed
from sidecar.core.vocabulary import group_config as cf

REASONS = (
    ("session timeout", "it was silent for longer than its session timeout"),
    ("rebalance timeout in epoch", "it did not give up what it had to within its rebalance timeout"),
    ("did not join in time", "it did not join the rebalance within the rebalance timeout"),
    ("did not join again in time", "it did not join again within its rebalance timeout"),
    ("did not sync in time", "it did not sync within the rebalance timeout"),
    ("left", "it left"),
    ("the group is full", "the group is full"),
    ("the group goes back to the broker", "the group goes back to the broker"),
)


def reason(why: str) -> str:
    """Returns the reason of a removal as a clause, with the member's own reason for leaving if it gave one."""
    for begin, text in REASONS:
        if why.startswith(begin):
            rest = why[len(begin) :].strip(": ")
            own_reason = rest and rest != "not provided" and begin == "left"
            return f"{text}: {rest}" if own_reason else text
    return why or "no reason is recorded"


def managed(configs: Mapping[str, str]) -> Iterable[str]:
    """Yields sentences about an operator's orders: release, adoption, forced rebalance."""
    order = configs.get(cf.MANAGED)
    if order == "false":
        yield "It was ordered back to the broker (sidecar groups release) and goes as soon as nobody owns anything."
    if configs.get(cf.VERDICT, "").startswith(cf.LATER):
        yield "It was ordered here (sidecar groups adopt), and its owner cannot take it in yet."
    if cf.REBALANCE in configs:
        yield f"A rebalance was asked for: {configs[cf.REBALANCE]}."


def lost(replayed: Replayed) -> Iterable[str]:
    if replayed.unreadable:
        yield f"{replayed.unreadable} records of its history cannot be read; what they said is not told here."
