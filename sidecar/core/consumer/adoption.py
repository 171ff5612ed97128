"""Adoption of a consumer group: it comes whole, as the broker described it while it was stable. Its members go on with
their epochs, and no partition moves. The release is modern/release.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from sidecar.assign.spec import Partitions
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.members import arm_session, remove_members
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    MemberState,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.modern.release import GroupRelease
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topic_regex import resolve

NO_VERSION = -1
"""In the record of an expression that was not matched against all topics."""


class NativeConsumer(Struct, gc=False):
    """A member in the broker's ConsumerGroupDescribe response. It owns exactly its target."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    owned: Partitions


class AdoptConsumer(Event):
    """Takes in this stable group of the broker, whose members all are in this epoch. `topics`: the names of the topics
    that they own."""

    inner: ClassVar[bool] = True

    epoch: int
    assignor: str
    members: tuple[NativeConsumer, ...]
    topics: Mapping[bytes, str]
    rebalance_timeout_ms: int
    why: str


def adopt(turn: Turn, e: AdoptConsumer, token: int) -> None:
    if e.group_id in turn.groups:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {e.group_id} is here already.")
    g, names = e.group_id, e.topics
    for m in e.members:
        identity = (m.member_id, m.instance_id, m.rack_id, m.client_id, m.client_host)
        turn.write(MemberRecord(g, *identity, e.rebalance_timeout_ms, m.topic_names, m.topic_regex, None, e.why))
        if m.instance_id is not None:
            turn.write(StaticMemberRecord(g, m.instance_id, m.member_id, e.why))
        turn.write(TargetMemberRecord(g, m.member_id, m.owned, names, e.why))
        owned = {t: dict.fromkeys(ps, e.epoch) for t, ps in m.owned.items()}
        turn.write(CurrentRecord(g, m.member_id, e.epoch, e.epoch, MemberState.STABLE, owned, {}, names, e.why))
    group: ConsumerGroup = turn.groups[g]
    # The broker's authorizer has allowed the topics that the broker assigned. The next heartbeat asks it again, and
    # matches the topics that no member owns.
    for regex, topics in resolve(group.subscriptions.regexes(), sorted(names.values())).items():
        turn.write(RegexRecord(g, regex, topics, NO_VERSION, turn.now.wall_ms, e.why))
    turn.write(TargetMetadataRecord(g, e.epoch, 0, e.assignor, e.why))
    turn.write(GroupRecord(g, e.epoch, group.hash_over(turn.image), e.why))
    for member in group.members.values():
        arm_session(turn, g, member)
    turn.fx.log("group taken over from the broker", group_id=g, kind=group.kind, members=len(e.members), epoch=e.epoch)
    turn.reply(token, Answer())


def _unasked(group: ConsumerGroup) -> Iterable[Member]:
    """Returns the members of the classic protocol: they accept UNKNOWN_MEMBER_ID from the broker as well."""
    return (m for m in group.members.values() if m.classic is not None)


RELEASE = GroupRelease(CONSUMER, remove_members, _unasked)
