"""Pieces of text that explanations of all kinds of groups share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from sidecar.audit.explain.model import Limits, Removed
from sidecar.audit.explain.replay import Replayed
from sidecar.audit.history.topic import Row
from sidecar.core.runtime.records import Role
from sidecar.core.runtime.registry import Registry
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


def removed(registry: Registry, rows: Iterable[Row], limits: Limits) -> tuple[Removed, ...]:
    """Returns the former members, the latest first, without those that have come back under the same id."""
    clients: dict[str, str] = {}
    former: dict[str, Removed] = {}
    for row in rows:
        if registry.role(row["kind"]) is not Role.MEMBER or "problem" in row:
            continue
        member_id = row["sub_id"]
        former.pop(member_id, None)
        if row["tombstone"]:
            former[member_id] = Removed(member_id, clients.get(member_id, ""), row["time_ms"], row["why"])
        else:
            clients[member_id] = json.loads(row["body"]).get("client_id", "")
    return tuple(reversed(former.values()))[: limits.removed]


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
    unreadable = sum("problem" in row for row in replayed.rows)
    if unreadable:
        yield f"{unreadable} records of its history cannot be read; what they said is not told here."
