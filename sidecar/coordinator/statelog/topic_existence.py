"""Checks by name and by id whether topics exist.

The listing of all topics does not distinguish a deleted topic from one that this principal may not describe. Asked by
name, a broker does; asked by id, it answers whether that very topic still exists, even if the principal may not
describe it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.cluster import Cluster, ConnectionLost, view_of
from sidecar.kafka.net import NO_ANSWER
from sidecar.wire.generated import metadata as md
from sidecar.wire.primitives import ZERO_UUID, WireError

BY_ID = 12
"""The first version of Metadata that takes ids without names."""


class Existence(Enum):
    THERE = "there"
    MISSING = "missing"
    DENIED = "denied"
    RECREATED = "made anew"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class TopicAnswer:
    """The brokers' answer about a topic. `leaders`: node ids by partition, if the topic exists; `problem`: a text for
    people, empty if it exists."""

    state: Existence
    problem: str = ""
    leaders: tuple[int, ...] = ()


async def ask_for(cluster: Cluster, topic: str, topic_id: bytes = ZERO_UUID) -> TopicAnswer:
    """Asks the brokers for a topic by name, and by id if its description is denied. `topic_id`: id of the expected
    topic; ZERO_UUID: any topic of that name."""
    try:
        named = await _ask(cluster, md.MetadataRequestTopic(name=topic))
        if named.error_code == Code.TOPIC_AUTHORIZATION_FAILED and topic_id != ZERO_UUID:
            return await _denied(cluster, topic, topic_id)
    except NO_ANSWER as exc:
        return TopicAnswer(Existence.UNREACHABLE, f"no broker answers for {topic}: {str(exc) or 'timed out'}")
    return _existence(named, topic, topic_id)


def _existence(named: md.MetadataResponseTopic, topic: str, topic_id: bytes) -> TopicAnswer:
    code = named.error_code
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        return _may_not(topic)
    if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return TopicAnswer(Existence.MISSING, f"there is no topic {topic}")
    if code not in (Code.NONE, Code.LEADER_NOT_AVAILABLE):
        return TopicAnswer(Existence.UNREACHABLE, f"no answer about {topic}: {name_of(code)}")
    if topic_id not in (ZERO_UUID, named.topic_id) and named.topic_id != ZERO_UUID:
        return TopicAnswer(Existence.RECREATED, f"{topic} was deleted and made anew")
    view = view_of(md.MetadataResponse(topics=[named]), {})
    return TopicAnswer(Existence.THERE, leaders=view.leaders.get(topic, ()))


async def _denied(cluster: Cluster, topic: str, topic_id: bytes) -> TopicAnswer:
    """Asks whether the topic with this id exists, which a broker answers to any principal, if it takes ids at all."""
    try:
        by_id = await _ask(cluster, md.MetadataRequestTopic(topic_id=topic_id, name=None), low=BY_ID)
    except WireError:
        return _may_not(topic)
    if by_id.error_code == Code.UNKNOWN_TOPIC_ID:
        return TopicAnswer(
            Existence.MISSING, f"{topic} is there no more, or was made anew; this principal may not describe it"
        )
    return _may_not(topic)


def _may_not(topic: str) -> TopicAnswer:
    return TopicAnswer(
        Existence.DENIED, f"the sidecar's user may not DESCRIBE topic {topic} (TOPIC_AUTHORIZATION_FAILED)"
    )


async def _ask(cluster: Cluster, topic: md.MetadataRequestTopic, low: int = 0) -> md.MetadataResponseTopic:
    """Returns one topic's metadata. Raises ConnectionLost, TimeoutError, WireError."""
    req = md.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    res: md.MetadataResponse = await cluster.ask_anyone(md, "Metadata", req, low=low)
    if not res.topics:
        raise ConnectionLost("a Metadata response without the topic that was asked for")
    return res.topics[0]


class Asks(Protocol):
    """The connection that the listing comes over."""

    async def ask(self, topics: list[md.MetadataRequestTopic], low: int = 0) -> md.MetadataResponse: ...

    def denied(self, topic: str, code: int) -> None: ...


async def any_there(names: Iterable[str], control: Asks) -> bool:
    """Returns whether one of these topics exists and may be described. Raises ConnectionLost, TimeoutError,
    WireError."""
    wanted = [md.MetadataRequestTopic(name=n) for n in names]
    if not wanted:
        return False
    return any(t.error_code in (Code.NONE, Code.LEADER_NOT_AVAILABLE) for t in (await control.ask(wanted)).topics)


class KnownTopics:
    """The topics of each listing, and those of the listing before that this principal may no longer describe: a right
    that is taken away takes no partition from any member."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self._topics = {t.name: t for t in topics}

    async def next(self, topics: tuple[Topic, ...], control: Asks) -> tuple[Topic, ...]:
        """Returns the topics of this listing with those kept. Raises ConnectionLost, TimeoutError, WireError."""
        listed = {t.name: t for t in topics}
        unlisted = [t for name, t in self._topics.items() if name not in listed]
        kept = await self._denied(unlisted, control) if unlisted else []
        self._topics = listed | {t.name: t for t in kept}
        return (*topics, *kept)

    async def _denied(self, unlisted: list[Topic], control: Asks) -> list[Topic]:
        """Returns the topics among these that exist but may not be described."""
        try:
            res = await control.ask([md.MetadataRequestTopic(topic_id=t.id, name=None) for t in unlisted], low=BY_ID)
            codes = {r.topic_id: r.error_code for r in res.topics}
            denied = [t for t in unlisted if codes.get(t.id) == Code.TOPIC_AUTHORIZATION_FAILED]
        except WireError:  # an older broker; by name it says no more than this
            res = await control.ask([md.MetadataRequestTopic(name=t.name) for t in unlisted])
            named = {r.name: r.error_code for r in res.topics}
            denied = [t for t in unlisted if named.get(t.name) == Code.TOPIC_AUTHORIZATION_FAILED]
        for t in denied:
            control.denied(t.name, Code.TOPIC_AUTHORIZATION_FAILED)
        return denied
