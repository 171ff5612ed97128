"""A broker with an authorizer: what a principal may not see or do, it may not through the sidecar either."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_groups as lg
from tests.clients.ground import ENV
from tests.clients.moving import groups as moved
from tests.clients.moving import picture, where
from tests.clients.wire import join_request, reset, talk
from tests.security import acls

pytestmark = pytest.mark.tier("all")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Everything is allowed, but for what a test denies. The sidecar saw all topics before."""
    env = {**ENV, "SIDECAR_AUTHORISATION_CACHE_MS": "0", "SIDECAR_METADATA_REFRESH_MS": "600000"}
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    cluster = LocalKafka(tmp_path_factory.mktemp("guarded"), brokers=1, sidecar_env=env, properties=properties)
    cluster.start_brokers()
    try:
        admin = AdminClient({"bootstrap.servers": cluster.internal, "log_level": 3})
        for future in admin.create_topics([NewTopic(n, 2, 1) for n in ("open-a", "open-b", "open-secret")]).values():
            future.result(timeout=30)
        cluster.start_sidecar(cluster.nodes[0])
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()


def deny(kafka: LocalKafka, kind: ResourceType, name: str, operation: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    principal, pattern = "User:ANONYMOUS", ResourcePatternType.LITERAL
    everything = AclBinding(kind, name, pattern, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    acl = AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.DENY)
    acls.create(admin, kafka, [everything, acl], {})


def allow_all(kafka: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    kinds = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    any_acl = AclBindingFilter(*kinds)  # type: ignore[arg-type]
    acls.delete(admin, kafka, [any_acl], {})


def test_groups(guarded: LocalKafka) -> None:
    async def run(conn: BrokerConnection, group: str) -> list[object]:
        hb = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "m", ["open-a"]))
        ids = [group]
        described = await conn.request(cd, "ConsumerGroupDescribe", cd.ConsumerGroupDescribeRequest(group_ids=ids))
        classic = await conn.request(dg, "DescribeGroups", dg.DescribeGroupsRequest(groups=ids))
        alter = ia.AlterConfigsResource(32, group, [ia.AlterableConfig("consumer.session.timeout.ms", 0, "50000")])
        altered = await conn.request(ia, "IncrementalAlterConfigs", ia.IncrementalAlterConfigsRequest([alter], True))
        listed = await conn.request(lg, "ListGroups", lg.ListGroupsRequest())
        return [
            (hb.error_code, hb.error_message),
            (described.groups[0].error_code, described.groups[0].group_state),
            classic.groups[0].error_code,
            (altered.responses[0].error_code, altered.responses[0].error_message),
            group in {g.group_id for g in listed.groups},
        ]

    for denied in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS):
        answers = []
        for group, direct in (("managed-guarded", False), ("plain-guarded", True)):
            talk(guarded, lambda c, g=group: run(c, g), direct=direct)  # type: ignore[misc]
            deny(guarded, ResourceType.GROUP, group, denied)
            answers.append(talk(guarded, lambda c, g=group: run(c, g), direct=direct))  # type: ignore[misc]
            allow_all(guarded)
        assert answers[0] == answers[1], denied
    assert answers[0][3][0] == Code.GROUP_AUTHORIZATION_FAILED  # type: ignore[index]


def test_moves_need_the_right_to_alter_configs(guarded: LocalKafka) -> None:
    """Moves need the right for the group, or for the cluster in the case of patterns. Without it nothing is changed,
    and the client gets the broker's own message."""
    node = guarded.nodes[0]

    async def set_it(conn: BrokerConnection, kind: int, name: str, key: str, value: str) -> tuple[int, str | None]:
        resource = ia.AlterConfigsResource(kind, name, [ia.AlterableConfig(key, 0, value)])
        res = await conn.request(ia, "IncrementalAlterConfigs", ia.IncrementalAlterConfigsRequest([resource]))
        return res.responses[0].error_code, res.responses[0].error_message

    async def member(conn: BrokerConnection, group: str) -> int:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "m", ["open-a"]))
        return int(res.error_code)

    def both(kind: int, name: str, ours: tuple[str, str], theirs: tuple[str, str]) -> list[tuple[int, str | None]]:
        """Returns the sidecar's answer for its own setting, and the broker's for one of Kafka's."""
        return [
            talk(guarded, lambda c: set_it(c, kind, name, *ours)),
            talk(guarded, lambda c: set_it(c, kind, name, *theirs), direct=True),
        ]

    assert talk(guarded, lambda c: member(c, "managed-denied")) == Code.NONE
    assert talk(guarded, lambda c: member(c, "plain-denied"), direct=True) == Code.NONE
    for group, verb, home in (("plain-denied", "adopt", ""), ("managed-denied", "release", "sidecar")):
        deny(guarded, ResourceType.GROUP, group, AclOperation.ALTER_CONFIGS)
        try:
            theirs = ("consumer.session.timeout.ms", "50000")
            said = both(32, group, ("sidecar.managed", "true" if verb == "adopt" else "false"), theirs)
            assert said[0] == said[1] and said[0][0] == Code.GROUP_AUTHORIZATION_FAILED
            for words in ((verb,), ("rebalance",) if home else ()):
                if words:
                    code, told = moved(guarded, *words, group)
                    assert (code, told.count("\n")) == (1, 2) and "Group authorization failed" in told, told
            assert where(guarded, node, group) == home
        finally:
            allow_all(guarded)
    (code, told), epoch = moved(guarded, "rebalance", "managed-denied"), picture(guarded, node, "managed-denied")
    assert code == 0 and "was assigned anew" in told and epoch["epoch"] > 2, (told, epoch)

    deny(guarded, ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER_CONFIGS)
    try:
        said = both(4, "", ("sidecar.groups.include", "plain.*"), ("log.cleaner.threads", "1"))
        assert said[0] == said[1] and said[0][0] == Code.CLUSTER_AUTHORIZATION_FAILED
        assert where(guarded, node, "plain-denied") == ""
    finally:
        allow_all(guarded)


def test_topics_by_name_by_regex_and_in_descriptions(guarded: LocalKafka) -> None:
    async def named(conn: BrokerConnection, group: str) -> tuple[int, str | None]:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "n", ["open-a", "open-secret"]))
        return res.error_code, res.error_message

    async def described(conn: BrokerConnection, group: str) -> tuple[int, str | None, int]:
        req = cd.ConsumerGroupDescribeRequest(group_ids=[group])
        (g,) = (await conn.request(cd, "ConsumerGroupDescribe", req)).groups
        return g.error_code, g.error_message, len(g.members)

    assert talk(guarded, lambda c: named(c, "managed-topics"))[0] == Code.NONE
    assert talk(guarded, lambda c: named(c, "plain-topics"), direct=True)[0] == Code.NONE
    time.sleep(0.3)
    deny(guarded, ResourceType.TOPIC, "open-secret", AclOperation.DESCRIBE)
    try:
        ours = [
            talk(guarded, lambda c: named(c, "managed-t2")),
            talk(guarded, lambda c: described(c, "managed-topics")),
        ]
        theirs = [
            talk(guarded, lambda c: named(c, "plain-t2"), direct=True),
            talk(guarded, lambda c: described(c, "plain-topics"), direct=True),
        ]
        assert ours[0] == theirs[0] == (Code.TOPIC_AUTHORIZATION_FAILED, None)
        assert ours[1][0] == Code.TOPIC_AUTHORIZATION_FAILED
        config = {"bootstrap.servers": guarded.bootstrap, "group.id": "managed-regex", "group.protocol": "consumer"}
        consumer = Consumer({**config, "log_level": 3})
        consumer.subscribe(["^open-.*"])
        end = time.monotonic() + 20
        while len(consumer.assignment()) < 4:
            consumer.poll(0.2)
            assert time.monotonic() < end, consumer.assignment()
        assert {p.topic for p in consumer.assignment()} == {"open-a", "open-b"}
        consumer.close()
    except KafkaException as exc:  # pragma: no cover - told in full
        raise AssertionError(str(exc)) from exc
    finally:
        allow_all(guarded)


REGEX = "open-.*"


Shown = tuple[int, set[str] | None, set[str]]


async def shown(conn: BrokerConnection, group: str) -> Shown:
    """Error, and topics of the target of the member `r`, if it is there, and of `n`."""
    req = cd.ConsumerGroupDescribeRequest(group_ids=[group])
    (g,) = (await conn.request(cd, "ConsumerGroupDescribe", req)).groups
    of = {m.member_id: {t.topic_name for t in m.target_assignment.topic_partitions} for m in g.members}
    return g.error_code, of.get("r"), of.get("n", set())


def test_a_regex_stands_for_nothing_until_the_broker_was_asked(guarded: LocalKafka) -> None:
    """The sender may be gone before the broker has said which topics it may see. Then the next member of the group is
    asked for, and until then the expression stands for nothing, not for all that matches."""

    def request(group: str) -> ch.ConsumerGroupHeartbeatRequest:
        req = join_request(group, "r", [])
        req.subscribed_topic_names, req.subscribed_topic_regex = None, REGEX
        return req

    async def join_and_go(conn: BrokerConnection, group: str, after_s: float) -> bool:
        """Reset so long after the request; True if the answer was there before."""
        *_, answer = conn.start(ch, "ConsumerGroupHeartbeat", request(group))
        await asyncio.sleep(after_s)
        here = answer.done()
        reset(conn)
        await asyncio.wait({answer})
        answer.exception()
        return here

    async def join(conn: BrokerConnection, group: str) -> set[bytes]:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", request(group))
        assert res.error_code == Code.NONE and res.assignment is not None
        return {t.topic_id for t in res.assignment.topic_partitions}

    async def others(conn: BrokerConnection, group: str) -> list[Shown]:
        """Describes the group while another member sends heartbeats."""
        seen = []
        epoch = 0
        for n in range(60):
            req = join_request(group, "n", ["open-a"])
            if epoch:
                req = ch.ConsumerGroupHeartbeatRequest(group, "n", epoch, topic_partitions=[])
            res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
            assert res.error_code == Code.NONE, res
            epoch = res.member_epoch
            seen.append(await shown(conn, group))
            regex_topics = seen[-1][1]
            if regex_topics is None and n >= 5:
                break  # the request never arrived
            if regex_topics and "open-b" in regex_topics:
                break
            await asyncio.sleep(0.1)
        return seen

    deny(guarded, ResourceType.TOPIC, "open-secret", AclOperation.DESCRIBE)
    try:
        # Heard to the end: the first answer has what the member may see, all of it, and nothing else.
        assert len(talk(guarded, lambda c: join(c, "managed-heard"))) == 2
        unheard = 0
        for i in range(20):
            group = f"managed-gone-{i}"

            async def both(conn: BrokerConnection, group: str = group, after_s: float = i * 0.0005) -> Any:
                doomed = await BrokerConnection.open("127.0.0.1", guarded.nodes[0].sidecar_port, "test")
                gone = asyncio.ensure_future(join_and_go(doomed, group, after_s))
                await asyncio.sleep(after_s / 2)
                seen = await others(conn, group)
                return await gone, seen

            answered, seen = talk(guarded, both)
            for code, regex_topics, named_topics in seen:
                assert code == Code.NONE, seen  # a description with open-secret in it would be refused
                assert (regex_topics or set()) <= {"open-a", "open-b"} and named_topics <= {"open-a"}
            last = seen[-1][1]
            assert last is None or "open-b" in last, seen
            unheard += not answered and last is not None
        assert unheard, "no client was gone while its expression was being resolved"
    finally:
        allow_all(guarded)
