"""Views of share groups for people (runtime/inspect.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sidecar.core.modern import inspect as modern
from sidecar.core.modern.explain import Explainer
from sidecar.core.runtime.inspect import Body, HeldPartitions, MemberView, Names, listed, topic_place
from sidecar.core.share.group import GroupState, Member, ShareGroup
from sidecar.core.share.records import Kind
from sidecar.core.vocabulary.topics import TopicImage

STATES = {"Empty": "it has no members", "Stable": "it has members"}


def _view(group: ShareGroup, m: Member, names: Names) -> MemberView:
    return MemberView(
        m.member_id,
        m.client_id,
        m.client_host,
        rack=m.rack_id,
        protocol=group.protocol_type,
        epoch=m.member_epoch,
        topics=m.topic_names,
        owns=modern.by_name(m.assigned, names),
        target=modern.by_name(group.target.of(m.member_id), names),
    )


def _facts(group: ShareGroup) -> dict[str, Any]:
    """Returns the facts of all kinds, `subscribes`: the topics, and `initialised`: how many partitions have share
    state."""
    initialised = sum(map(len, group.initialised.values()))
    return {**modern.facts(group), "subscribes": sorted(group.subscribed_topics()), "initialised": initialised}


def _advance(group: ShareGroup, m: Member, gave_up: bool) -> Member:
    return replace(m, member_epoch=group.assignment_epoch, assigned=group.target.of(m.member_id))


def _notes(group: ShareGroup, image: TopicImage | None) -> Iterable[str]:
    if image is None or not group.members:
        return
    lacks = []
    for name in sorted(group.subscribed_topics() & image.by_name.keys()):
        topic = image.by_name[name]
        initialised = frozenset(group.initialised.get(topic.id, ()))
        lacks += [topic_place(name, p) for p in range(topic.partitions) if p not in initialised]
    if lacks:
        yield f"{listed(lacks)} cannot be assigned yet: the broker has not initialised the share state."


def _subscribes(body: Body) -> str:
    return f"subscribes to {' '.join(body['topic_names']) or 'nothing'}"


def _holds(body: Body, member: Body | None) -> Iterable[HeldPartitions]:
    """Yields the partitions of a current assignment; several members may have the same partition."""
    return modern.topics_held(body["assigned"], alone=False)


INSPECT = modern.inspecting(
    Explainer(Kind.GROUP, Kind.CURRENT, Kind.TARGET_METADATA, _view, _advance, notes=_notes),
    states={str(s): STATES[s] for s in GroupState},
    history={
        Kind.GROUP: modern.group_notes,
        Kind.TARGET_METADATA: modern.target_notes,
        Kind.MEMBER: modern.member_notes(_subscribes),
    },
    holds=_holds,
    facts=_facts,
)
