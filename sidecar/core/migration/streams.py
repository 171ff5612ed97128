"""Crossings of streams groups. Only empty groups change: an empty classic group becomes a streams group with its first
member, and the other way round. The offsets stay at the broker either way (Kafka 4.4)."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.core.classic.config import CLASSIC
from sidecar.core.classic.config import config_of as classic_config_of
from sidecar.core.classic.events import JoinGroup, JoinReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.join import check as check_join
from sidecar.core.classic.join import fits, join
from sidecar.core.migration.upgrade import drop
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.registry import Handler
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import STREAMS, config_of
from sidecar.core.streams.events import JOIN_EPOCH, StreamsHeartbeat
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.heartbeat import heartbeat, source_topics
from sidecar.core.streams.registration import answer_waiting
from sidecar.core.streams.step import check, more_bytes
from sidecar.core.streams.validation import check_request
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def streams_joins(turn: Turn, hb: StreamsHeartbeat, token: int) -> None:
    """Handles StreamsGroupHeartbeat in a classic group. All checks come before the classic group is dropped."""
    group: ClassicGroup = turn.groups[hb.group_id]
    check_request(hb)
    if group.members or hb.member_epoch != JOIN_EPOCH:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {hb.group_id} is not a streams group.")
    config = config_of(turn, hb.group_id)
    if look_first(turn, hb, token, source_topics(hb), config.join_wait_ms):
        return
    turn.looked = True
    empty = StreamsGroup(hb.group_id)
    check_room(turn.ports.limits, 0, more_bytes(empty, check(empty, hb, config, turn)))
    drop(turn, group, "an empty classic group becomes a streams group")
    turn.fx.count("migrations", STREAMS)
    heartbeat(turn, hb, token)


def classic_joins(turn: Turn, e: JoinGroup, token: int) -> None:
    """Handles JoinGroup in a streams group."""
    group: StreamsGroup = turn.groups[e.group_id]
    check_join(turn, e, classic_config_of(turn, e.group_id))
    if group.members or not ClassicGroup(e.group_id).supports(e.protocol_type, e.protocols):
        turn.reply(token, JoinReply(Code.INCONSISTENT_GROUP_PROTOCOL, member_id=e.member_id))
        return
    if e.member_id:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Group {e.group_id} not found.")
    if not fits(turn, ClassicGroup(e.group_id), e, token):
        return
    answer_waiting(turn, group)
    for tombstone in group.tombstones("an empty streams group becomes a classic group"):
        turn.write(tombstone)
    turn.fx.count("migrations", CLASSIC)
    join(turn, e, token)


STREAMS_CROSSINGS: Mapping[str, Mapping[type[Event], Handler]] = {
    CLASSIC: {StreamsHeartbeat: streams_joins},
    STREAMS: {JoinGroup: classic_joins},
}


def with_streams(
    crossings: Mapping[str, Mapping[type[Event], Handler]],
) -> dict[str, Mapping[type[Event], Handler]]:
    """Returns the crossings with those of streams groups, for a fleet that serves them."""
    names = (*crossings, *STREAMS_CROSSINGS)
    return {name: {**crossings.get(name, {}), **STREAMS_CROSSINGS.get(name, {})} for name in names}
