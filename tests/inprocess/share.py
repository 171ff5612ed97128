"""The share groups of the brokers, as a placeholder meets them: members, their shares of what is initialised, and share
state that takes a while to be initialised.

`away`: the share coordinator does not answer. `init_s`: how long it takes to initialise a partition otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh

Answer = Callable[[Any], None]
INTERVAL_S = 1.0
"""share.assignment.interval.ms of the brokers."""


class Topic(Protocol):
    topic_id: bytes
    leaders: list[int]


@dataclass
class Member:
    names: tuple[str, ...]
    epoch: int = 0
    assigned: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class BrokerShareGroup:
    epoch: int = 1
    assignment_epoch: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    initialised: set[tuple[str, int]] = field(default_factory=set)
    initialising: set[tuple[str, int]] = field(default_factory=set)
    next_s: float = 0.0
    joined: list[str] = field(default_factory=list)
    """Every member that has ever been there, in its order."""

    def subscribed(self) -> set[tuple[str, int]]:
        names = {n for m in self.members.values() for n in m.names}
        return {(t, p) for t, p in self.initialised if t in names}

    def target(self, member_id: str) -> dict[str, list[int]]:
        """A partition goes to one member, or several if there are more of them."""
        found: dict[str, list[int]] = {}
        ids, parts = sorted(self.members), sorted(self.subscribed())
        for i in range(max(len(ids), len(parts)) if parts else 0):
            topic, p = parts[i % len(parts)]
            if ids[i % len(ids)] == member_id:
                found.setdefault(topic, []).append(p)
        return found


class ShareGroups:
    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self.groups: dict[str, BrokerShareGroup] = {}
        self.away = self.deaf = False
        """`deaf`: no heartbeat is answered."""
        self.refuses = Code.NONE
        """Error code of all heartbeats and descriptions."""
        self.init_s = 0.12
        self.interval_ms = 5_000
        self.waiting: list[Callable[[], None]] = []
        """Actions that the share coordinator takes when it is available again."""
        self._topics = topics

    def recover(self) -> None:
        self.away = False
        waiting, self.waiting = self.waiting, []
        for act in waiting:
            act()

    def group(self, group_id: str = "g") -> BrokerShareGroup:
        return self.groups[group_id]

    # ---- requests -------------------------------------------------------------------------------------------
    def heartbeat(self, req: sh.ShareGroupHeartbeatRequest, answer: Answer) -> None:
        if self.deaf:
            return
        if self.refuses:
            answer(sh.ShareGroupHeartbeatResponse(error_code=self.refuses))
            return
        group = self.groups.get(req.group_id)
        if req.member_epoch < 0:
            answer(sh.ShareGroupHeartbeatResponse(error_code=self._leave(group, req.member_id), member_epoch=-1))
            return
        if group is None:
            if req.member_epoch != 0:
                answer(sh.ShareGroupHeartbeatResponse(error_code=Code.GROUP_ID_NOT_FOUND))
                return
            group = self.groups[req.group_id] = BrokerShareGroup()
        member = group.members.get(req.member_id)
        if member is None and req.member_epoch != 0:
            answer(sh.ShareGroupHeartbeatResponse(error_code=Code.UNKNOWN_MEMBER_ID))
            return
        names = None if req.subscribed_topic_names is None else tuple(req.subscribed_topic_names)
        if member is None:
            member = group.members[req.member_id] = Member(names or ())
            group.joined.append(req.member_id)
            group.epoch += 1
        elif names is not None and names != member.names:
            member.names = names
            group.epoch += 1
        before = member.assigned
        self._assign(group)
        if member.epoch != group.assignment_epoch:
            member.epoch, member.assigned = group.assignment_epoch, group.target(req.member_id)
        told = None
        if req.member_epoch == 0 or names is not None or member.assigned != before:
            told = sh.Assignment([sh.TopicPartitions(self._id(t), ps) for t, ps in member.assigned.items()])
        answer(sh.ShareGroupHeartbeatResponse(0, 0, None, req.member_id, member.epoch, self.interval_ms, told))
        self._initialise(group, member.names)

    def _leave(self, group: BrokerShareGroup | None, member_id: str) -> Code:
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.members.pop(member_id, None) is None:
            return Code.UNKNOWN_MEMBER_ID
        group.epoch += 1
        return Code.NONE

    def _assign(self, group: BrokerShareGroup) -> None:
        now_s = asyncio.get_running_loop().time()
        held = {(t, p) for m in group.members.values() for t, ps in m.assigned.items() for p in ps}
        if group.assignment_epoch == group.epoch and held != group.subscribed():
            group.epoch += 1
        if group.assignment_epoch < group.epoch and now_s >= group.next_s:
            group.assignment_epoch, group.next_s = group.epoch, now_s + INTERVAL_S

    def _initialise(self, group: BrokerShareGroup, names: Iterable[str]) -> None:
        new = {(t, p) for t in names if t in self._topics for p in range(len(self._topics[t].leaders))}
        new -= group.initialised | group.initialising
        if not new:
            return
        group.initialising |= new

        def done() -> None:
            if self.away:
                self.waiting.append(done)
                return
            group.initialising -= new
            group.initialised |= new

        asyncio.get_running_loop().call_later(self.init_s, done)

    def describe(self, req: sd.ShareGroupDescribeRequest, answer: Answer) -> None:
        answer(sd.ShareGroupDescribeResponse(groups=[self._described(g) for g in req.group_ids]))

    def _described(self, group_id: str) -> sd.DescribedGroup:
        group = self.groups.get(group_id)
        if self.refuses:
            return sd.DescribedGroup(self.refuses, None, group_id)
        if group is None:
            return sd.DescribedGroup(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id)
        members = [
            sd.Member(
                member_id=member_id,
                member_epoch=m.epoch,
                subscribed_topic_names=list(m.names),
                assignment=sd.Assignment([sd.TopicPartitions(self._id(t), t, ps) for t, ps in m.assigned.items()]),
            )
            for member_id, m in group.members.items()
        ]
        state = "Stable" if members else "Empty"
        return sd.DescribedGroup(0, None, group_id, state, group.epoch, group.assignment_epoch, "simple", members)

    def offsets(self, req: ds.DescribeShareGroupOffsetsRequest, answer: Answer) -> None:
        """Answers from the share coordinator's state, when that is available."""
        if self.away:
            self.waiting.append(lambda: self.offsets(req, answer))
            return
        told = []
        for asked in req.groups:
            group = self.groups.get(asked.group_id, BrokerShareGroup())
            topics = [
                ds.DescribeShareGroupOffsetsResponseTopic(
                    t,
                    self._id(t),
                    [
                        ds.DescribeShareGroupOffsetsResponsePartition(p, -1)
                        for n, p in sorted(group.initialised)
                        if n == t
                    ],
                )
                for t in sorted({t for t, _ in group.initialised})
            ]
            told.append(ds.DescribeShareGroupOffsetsResponseGroup(asked.group_id, topics))
        answer(ds.DescribeShareGroupOffsetsResponse(groups=told))

    def alter(self, req: al.AlterShareGroupOffsetsRequest, answer: Answer) -> None:
        group = self.groups.setdefault(req.group_id, BrokerShareGroup())
        if group.members:
            text = "The group is not empty."
            answer(al.AlterShareGroupOffsetsResponse(error_code=Code.NON_EMPTY_GROUP, error_message=text))
            return
        topics = []
        for t in req.topics:
            group.initialised |= {(t.topic_name, p.partition_index) for p in t.partitions}
            parts = [al.AlterShareGroupOffsetsResponsePartition(p.partition_index) for p in t.partitions]
            topics.append(al.AlterShareGroupOffsetsResponseTopic(t.topic_name, self._id(t.topic_name), parts))
        answer(al.AlterShareGroupOffsetsResponse(responses=topics))

    def _id(self, name: str) -> bytes:
        return self._topics[name].topic_id


ASKED: dict[Api, Callable[..., None]] = {
    Api.SHARE_GROUP_HEARTBEAT: ShareGroups.heartbeat,
    Api.SHARE_GROUP_DESCRIBE: ShareGroups.describe,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ShareGroups.offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: ShareGroups.alter,
}
