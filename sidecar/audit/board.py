"""All groups of the state topic at one glance, kept up to date record by record: for `sidecar top`. Pure.

A group's state is judged by its last records as Kafka names it; offsets and silence are not in the topic."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.topic import Row
from sidecar.core.classic.records import Kind as Classic
from sidecar.core.consumer.records import Kind as Consumer
from sidecar.core.modern.group import INITIAL_EPOCH
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import OWNER_CLAIM
from sidecar.state.fold import UNFENCED, Claims

KEPT_MS = 3_600_000
"""Rebalances are counted for so long at most."""


@dataclass
class Life:
    """One group. `members`: of a consumer group, epoch and whether it is on its way; `rebalances`: when they began."""

    kind: str
    epoch: int = INITIAL_EPOCH
    assigned: int = INITIAL_EPOCH
    since_ms: int = 0
    said: str = ""
    members: set[str] = field(default_factory=set)
    current: dict[str, tuple[int, bool]] = field(default_factory=dict)
    rebalances: deque[int] = field(default_factory=deque)

    def state(self) -> str:
        if self.kind == "classic":
            return self.said
        if not self.members:
            return "Empty"
        if self.epoch > self.assigned:
            return "Assigning"
        settled = (self.assigned, False)
        return "Stable" if all(self.current.get(m) == settled for m in self.members) else "Reconciling"


class Board:
    """`partitions`: of the state topic."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._groups: dict[str, Life] = {}
        self._claims = [Claims() for _ in range(partitions)]
        self._owners: dict[int, int] = {}

    def add(self, row: Row) -> None:
        """One record, in the order of the log of its partition. What cannot be read is passed over."""
        if "problem" in row:
            return
        kind, body = row["kind"], json.loads(row["body"]) if row["body"] else None
        claims = self._claims[row["partition"]]
        if kind == OWNER_CLAIM:
            if body is not None:
                claims.claim(int(row["sub_id"]))
                self._owners[row["partition"]] = body["node_id"]
            return
        epoch = row["owner_epoch"]
        if kind in UNFENCED or (epoch is not None and not claims.admits(epoch)):
            return
        apply = _APPLY.get(kind)
        if apply is None:
            return
        name = "classic" if kind.startswith("classic") else "consumer"
        life = self._groups.get(row["group_id"])
        if body is None and kind in (Consumer.GROUP, Classic.GROUP):
            if life is not None and life.kind == name:
                del self._groups[row["group_id"]]
            return
        if life is None or life.kind != name:
            if body is None:  # what is left of it, after it has changed its protocol
                return
            life = self._groups[row["group_id"]] = Life(name, since_ms=row["time_ms"])
        apply(life, row, body)

    def rows(self, now_ms: int, window_ms: int) -> list[dict[str, Any]]:
        """`rebalances`: those that began within the window, KEPT_MS at most; `age_s`: of the last, or of the group."""
        out = []
        for group_id, life in self._groups.items():
            while life.rebalances and life.rebalances[0] < now_ms - KEPT_MS:
                life.rebalances.popleft()
            out.append(
                {
                    "group": group_id,
                    "type": life.kind,
                    "state": life.state(),
                    "members": len(life.members),
                    "epoch": life.epoch,
                    "age_s": max(0, now_ms - life.since_ms) // 1000,
                    "rebalances": sum(at >= now_ms - window_ms for at in life.rebalances),
                    "node": self._owners.get(partition_for(group_id, self._partitions), ""),
                }
            )
        return out


def _group(life: Life, row: Row, body: Mapping[str, Any]) -> None:
    if body["epoch"] != life.epoch:
        life.epoch, life.since_ms = body["epoch"], row["time_ms"]
        life.rebalances.append(row["time_ms"])


def _target(life: Life, row: Row, body: Mapping[str, Any] | None) -> None:
    life.assigned = INITIAL_EPOCH if body is None else body["assignment_epoch"]


def _member(life: Life, row: Row, body: Mapping[str, Any] | None) -> None:
    (life.members.discard if body is None else life.members.add)(row["sub_id"])


def _current(life: Life, row: Row, body: Mapping[str, Any] | None) -> None:
    if body is None:
        life.current.pop(row["sub_id"], None)
    else:
        life.current[row["sub_id"]] = (body["member_epoch"], body["state"] != "STABLE")


def _classic(life: Life, row: Row, body: Mapping[str, Any]) -> None:
    if body["state"] == "PreparingRebalance" != life.said:
        life.rebalances.append(row["time_ms"])
    if body["state"] != life.said:
        life.since_ms = row["time_ms"]
    life.said, life.epoch, life.assigned = body["state"], body["generation"], body["assigned_generation"]


_APPLY: dict[str, Any] = {
    str(Consumer.GROUP): _group,
    str(Consumer.TARGET_METADATA): _target,
    str(Consumer.MEMBER): _member,
    str(Consumer.CURRENT): _current,
    str(Classic.GROUP): _classic,
    str(Classic.MEMBER): _member,
}
