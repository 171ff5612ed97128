"""Groups that move between the brokers and the sidecars: where the last order puts each of them, and what the broker
that coordinates it says of it. No sidecar is asked."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol

from sidecar.core.classic.group import ClassicGroup
from sidecar.core.share.group import ShareGroup
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.vocabulary import group_config as cf
from sidecar.kafka.placeholder_requests import INSTANCE_ID
from sidecar.kafka.share_group import is_placeholder
from tests.whole.broker.group import Group, State
from tests.whole.broker.groups import partition_for
from tests.whole.broker.offsets import GroupShard
from tests.whole.broker.streams import StoredStreams
from tests.whole.fold import Group as Here
from tests.whole.kafka import Kafka
from tests.whole.sharing import Sharing
from tests.whole.stored import OFFSETS
from tests.whole.violation import Violation

BROKER, SIDECARS = "the broker", "the sidecars"
HOMES = {"true": SIDECARS, "false": BROKER}
ORDERED = "changed by "
"""The beginning of the reason for a client's order; sidecars' own orders have other reasons."""


class Step(StrEnum):
    """The step that a move has come to, as the state topic and the broker show it."""

    ORDERED = "in: ordered"
    POSTPONED = "in: waits until it is stable"
    RECORDED = "in: recorded, all members still at the broker"
    LEAVING = "in: some members have left the broker"
    LEFT = "in: all members have left the broker"
    JOINED = "in: the placeholder has joined, and reports nothing yet"
    ORDERED_BACK = "out: ordered"
    UNASSIGNED = "out: nothing is assigned, members still own"
    GIVEN_UP = "out: members own nothing"
    SENDING = "out: some members are sent away"
    SENT = "out: all members are sent away"
    FREE = "out: the placeholder has left"
    REMOVED = "out: the records are removed, members have yet to join"

    @property
    def comes(self) -> bool:
        """Whether it is one of a move in."""
        return self.value.startswith("in")


class Named(Protocol):
    """A member of a group, as a client knows itself."""

    member_id: str
    epoch: int


class Moving:
    def __init__(self, kafka: Kafka, partitions: int, sharing: Sharing) -> None:
        self._kafka, self._partitions, self.sharing = kafka, partitions, sharing
        self.homes: dict[str, str] = {}
        """The home of each group that may move, by the last order in the state topic."""
        self._orders: dict[str, str] = {}
        """The same order, as verdicts name it."""
        self._later: set[str] = set()
        """Groups that their owner waits for, until they are stable."""
        self.highest: dict[str, int] = {}
        """The highest generation that a broker has told of each of them."""
        self._heard: dict[tuple[str, str], float] = {}
        """The time at which a broker was last asked in the name of this member of this group, or gave it its id; "": it
        has none yet."""

    # ---- orders ---------------------------------------------------------------------------------------------
    def said(self, group_id: str, name: str, value: str | None, why: str, order: str) -> None:
        """`sidecar.managed` of this group, or what its owner says of that, stands in the state topic, or is gone from
        there (None). No sidecar writes in the place of an order; what it says of the last one is only that it waits for
        a group that is ordered to the sidecars."""
        if group_id not in self.homes:
            return
        if name == cf.MANAGED:
            if not why.startswith(ORDERED) or value not in HOMES:
                raise Violation(f"{group_id} was ordered to {self.homes[group_id]}, but a sidecar says {value}: {why}")
            self.homes[group_id], self._orders[group_id] = HOMES[value], order
            return
        word, _, about = (value or "").partition(": ")
        (self._later.add if word == cf.LATER else self._later.discard)(group_id)
        if value and about == self._orders.get(group_id, "") and (word, self.homes[group_id]) != (cf.LATER, SIDECARS):
            raise Violation(f"{group_id} is ordered to {self.homes[group_id]}, but its owner says {word}: {why}")

    # ---- brokers --------------------------------------------------------------------------------------------
    def joined(self, group_id: str, member_id: str, generation: int) -> None:
        """A broker answers a JoinGroup, or a heartbeat of a share member. It need not remember: one that is cut off
        forgets the generation that it began, and the member id that it gave, when it hears that another broker
        coordinates the group."""
        if group_id in self.homes:
            self.highest[group_id] = max(generation, self.highest.get(group_id, 0))
            if member_id:
                self.hears(group_id, member_id)

    def hears(self, group_id: str, member_id: str) -> None:
        """A broker is asked something in the name of this member."""
        if group_id in self.homes:
            self._heard[group_id, member_id] = self._kafka.universe.now_ms

    def answers_since(self, group_id: str, member_id: str, since_ms: float) -> bool:
        """Whether a broker has been asked in the name of this member since then."""
        return self._heard.get((group_id, member_id), -1.0) >= since_ms

    def at_broker(self, group_id: str) -> Group | None:
        """The group at the broker that coordinates it, as the controller has it. None: there is none, or nobody
        coordinates it now."""
        shard = self._shard(group_id)
        return None if shard is None else shard.groups.get(group_id)

    def _shard(self, group_id: str) -> GroupShard | None:
        node_id = self._kafka.leader(OFFSETS, partition_for(group_id, self._partitions))
        node = self._kafka.cluster.nodes[node_id] if node_id is not None else None
        if node is None or not node.up:
            return None
        shard = node.groups.shards.get(node.groups.partition(group_id))
        return shard if shard is not None and shard.active else None

    def streams_at_broker(self, group_id: str) -> StoredStreams | None:
        shard = self._shard(group_id)
        return None if shard is None else shard.streams.groups.get(group_id)

    def answers(self, group_id: str, member_id: str, asked_ms: float) -> bool:
        """Whether the answer to what this member of a group that may move has asked may be a broker's: one has heard it
        since, or has it as a member."""
        heard_ms = max(self._heard.get((group_id, m), -1.0) for m in (member_id, ""))
        groups = (self.at_broker(group_id), self.sharing.at_broker(group_id), self.streams_at_broker(group_id))
        return heard_ms >= asked_ms or any(g is not None and member_id in g.members for g in groups)

    def has_heard(self, group_id: str, member_id: str) -> bool:
        """Whether a broker has ever heard of this member. One that was cut off while it coordinated the group may have
        given the id itself, and lost it with its office."""
        return (group_id, member_id) in self._heard

    def takes_commits(self, group_id: str, c: Named) -> bool:
        """Whether the broker would take a commit of this client."""
        streams = self.streams_at_broker(group_id) if group_id in self.homes else None
        if streams is not None:
            member = streams.members.get(c.member_id)
            return member is not None and member.epoch == c.epoch
        group = self.at_broker(group_id) if group_id in self.homes else None
        return (
            group is not None
            and group.state is not State.COMPLETING
            and c.member_id in group.members
            and c.epoch == group.generation
        )

    def generations(self) -> dict[str, int]:
        """At the brokers."""
        return {g: group.generation for g in self.homes if (group := self.at_broker(g)) is not None}

    def comes(self, group: StreamsGroup) -> None:
        """Checks the first records of a group. A live member at the broker goes on here, with its epoch or a higher
        one, and need not join anew."""
        there = self.streams_at_broker(group.group_id)
        for member_id, member in ({} if there is None else there.members).items():
            here = group.members.get(member_id)
            if here is None or here.member_epoch < member.previous:
                raise Violation(f"{group.group_id} begins anew beside {member_id}, who is at the broker")

    # ---- steps ----------------------------------------------------------------------------------------------
    def step(self, group_id: str, here: Here | None, has_records: bool, clients: Collection[str]) -> Step | None:
        """Returns the step that the last move of this group has come to; None: it is over. `here`: the group as the
        state topic has it, if it `has_records` there; `clients`: member ids of its live clients."""
        there, placeholder = self._there(group_id)
        if self.homes[group_id] == SIDECARS:
            return self._step_in(group_id, here, there, placeholder)
        if here is not None and here.members:
            return _step_of_members(here, len(clients))
        if has_records:
            return Step.SENT if placeholder else Step.FREE
        return None if there.issuperset(clients) else Step.REMOVED

    def _step_in(self, group_id: str, here: Here | None, there: set[str], placeholder: bool) -> Step | None:
        if here is None:
            return (Step.POSTPONED if group_id in self._later else Step.ORDERED) if there else None
        if left := there.intersection(here.members):
            return Step.RECORDED if len(left) == len(here.members) else Step.LEAVING
        if here.members and not placeholder:
            return Step.LEFT
        record = here.placeholder if isinstance(here, ShareGroup) else None
        return Step.JOINED if record is not None and not record.member_id else None

    def _there(self, group_id: str) -> tuple[set[str], bool]:
        """The members of the broker's group, and whether it has a placeholder beside them."""
        group, share = self.at_broker(group_id), self.sharing.at_broker(group_id)
        streams = self.streams_at_broker(group_id)
        classic = [] if group is None else list(group.members.values())
        known = {m.member_id for m in classic if m.instance_id != INSTANCE_ID} | set(streams.members if streams else ())
        shared = set(share.members if share is not None else ())
        placeholders = {m for m in shared if is_placeholder(m)}
        return known | (shared - placeholders), bool(placeholders) or any(m.instance_id == INSTANCE_ID for m in classic)

    # ---- the end --------------------------------------------------------------------------------------------
    def unsettled(self, group_id: str, members: Collection[str], has_records: bool) -> str:
        """Returns what is wrong at the broker with a group of these members. `has_records`: in the state topic."""
        group = self.at_broker(group_id)
        streams = self.streams_at_broker(group_id)
        if streams is not None:
            return self._unsettled_streams(group_id, streams, set(members), has_records)
        there = [] if group is None else list(group.members.values())
        known = {m.member_id for m in there if m.instance_id != INSTANCE_ID}
        if self.homes[group_id] == SIDECARS:
            return f"{group_id}: {sorted(known)} are at the broker" if known else ""
        if has_records:
            return f"{group_id}: it belongs to the broker, and has records in the state topic"
        if known != set(members) or len(there) > len(known):
            return f"{group_id}: its members at the broker are {sorted(m.member_id for m in there)}"
        if members and (group is None or group.state is not State.STABLE):
            return f"{group_id}: at the broker it is {'not there' if group is None else group.state}"
        if group is not None and group.pending_sync:
            # A static member that came back before it had synced is one for ever, until it is late.
            return f"{group_id}: at the broker {sorted(group.pending_sync)} are still to sync"
        return ""

    def _unsettled_streams(self, group_id: str, group: StoredStreams, members: set[str], has_records: bool) -> str:
        known = set(group.members)
        if self.homes[group_id] == SIDECARS:
            return f"{group_id}: {sorted(known)} are at the broker" if known else ""
        if has_records:
            return f"{group_id}: it belongs to the broker, and has records in the state topic"
        if known != members:
            return f"{group_id}: its members at the broker are {sorted(known)}"
        return f"{group_id}: at the broker it is {group.state()}" if members and group.state() != "Stable" else ""


def _step_of_members(here: Here, clients: int) -> Step:
    """Returns the step of a group on its way back that has members here."""
    if isinstance(here, ClassicGroup):
        return Step.ORDERED_BACK
    if isinstance(here, StreamsGroup):
        assigned = any(map(here.target_of, here.members))
    else:
        assigned = any(map(here.target.of, here.members))
    if assigned:
        return Step.ORDERED_BACK
    if here.owners:
        return Step.UNASSIGNED
    return Step.GIVEN_UP if len(here.members) >= clients else Step.SENDING
