"""The statuses in a member's answer, and the internal topics to create."""

from __future__ import annotations

from sidecar.core.modern.target_assignment import interval_left_ms
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.topic_lookup import NAMES_MAX, LookFirst
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import StreamsConfig, config_of
from sidecar.core.streams.configure import configured_now
from sidecar.core.streams.delay import delayed
from sidecar.core.streams.events import TopicsCreated
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.status_texts import (
    INITIAL_DELAY,
    INTERVAL_DELAY,
    Status,
    missing_client_tags,
    shutdown_application,
    stale_topology,
)
from sidecar.core.vocabulary.errors import TEXT, Code

WITH_TAGS = 1
"""The first version of StreamsGroupHeartbeat whose clients know MISSING_CLIENT_TAGS."""


def statuses(
    turn: Turn, group: StreamsGroup, member: Member, config: StreamsConfig, version: int
) -> tuple[Status, ...]:
    """Returns the statuses for this member, in Kafka's order."""
    soft: StreamsSoft = turn.soft_of(group.group_id)
    out = []
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        out.append(stale_topology(member.topology_epoch, group.topology.epoch))
    if delayed(turn, group):
        out.append(INITIAL_DELAY)
    elif (
        group.epoch > group.assignment_epoch
        and not soft.releasing
        and interval_left_ms(group, config, turn.now.wall_ms)
    ):
        out.append(INTERVAL_DELAY)
    configured = configured_now(turn, group)
    if configured.status is not None:
        missing, now_ms = configured.to_create, turn.now.mono_ms
        out.append(soft.creations.explain(member.member_id, configured.status, missing, now_ms))
    if group.shutdown_member is not None:
        out.append(shutdown_application(group.shutdown_member))
    lacks = [tag for tag in config.rack_aware_assignment_tags if tag not in member.client_tags]
    if version >= WITH_TAGS and lacks:
        out.append(missing_client_tags(lacks))
    return tuple(out)


def create(turn: Turn, group: StreamsGroup, member: Member) -> tuple[NewTopic, ...]:
    """Returns the topics that the front creates on the connection of this member's heartbeat. No other member gets them
    meanwhile. A topology without its copartition groups yields none."""
    if group.topology_partial:
        return ()
    soft: StreamsSoft = turn.soft_of(group.group_id)
    return soft.creations.ask(member.member_id, configured_now(turn, group).to_create, turn.now.mono_ms)


def topics_created(turn: Turn, e: TopicsCreated, token: int) -> None:
    """Takes in the results of CreateTopics. Topics that exist now, even if created by others, are looked up. They are
    not requested again before the look-up should show them."""
    group = turn.groups.get(e.group_id)
    if type(group) is StreamsGroup:
        soft: StreamsSoft = turn.soft_of(e.group_id)
        until_ms = turn.now.mono_ms + 2 * config_of(turn, e.group_id).heartbeat_interval_ms
        made, denied, lacking = [], [], []
        for topic, code, message in e.topics:
            if code in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
                made.append(topic)
            elif code == Code.TOPIC_AUTHORIZATION_FAILED:
                denied.append(topic)
                lacking.append((topic, text_of(code)))
            else:
                soft.creations.failed(topic, message or text_of(code), until_ms)
                lacking.append((topic, message or text_of(code)))
        _note_denied(turn, group, e, denied, until_ms)
        if lacking and soft.creations.warns(*lacking[0], turn.now.mono_ms, until_ms):
            first, problem = lacking[0]
            turn.fx.log(
                "internal topics not created",
                level="warning",
                group_id=e.group_id,
                member_id=e.member_id,
                topic=first,
                topics=len(lacking),
                problem=problem,
            )
        if made:
            turn.fx.log("internal topics created", group_id=e.group_id, topics=len(made))
            names = tuple(made) if len(made) <= NAMES_MAX else None
            turn.fx.background.append(LookFirst(e.group_id, names, None, 0, 0))
    turn.reply(token, Answer())


def _note_denied(turn: Turn, group: StreamsGroup, e: TopicsCreated, denied: list[str], until_ms: int) -> None:
    """Records the member's denial. A member that has gone meanwhile leaves none, and the topics are free for others."""
    soft: StreamsSoft = turn.soft_of(group.group_id)
    missing = {} if group.topology is None else configured_now(turn, group).to_create
    soft.creations.refused(e.member_id, missing, {topic for topic, _, _ in e.topics}, denied, until_ms)
    if e.member_id not in group.members:
        soft.creations.drop_member(e.member_id)


def text_of(code: int) -> str:
    try:
        known = Code(code)
    except ValueError:
        return f"error {code}"
    return TEXT.get(known, known.name)
