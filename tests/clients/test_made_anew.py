"""A topic that is deleted and made anew while somebody writes into it, at a real broker (KIP-516, Produce 13)."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.local import LocalKafka
from tests.clients.test_large_writes import Bench, keys, records, run
from tests.inprocess.embedded_sidecar import until


def make(admin: AdminClient, topic: str) -> None:
    made = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([made])[topic].result(timeout=30)


async def made_anew(b: Bench, admin: AdminClient, pinned: bool) -> None:
    """Write, make the topic anew behind the writer's back, write again."""
    make(admin, b.topic)
    while not (known := (await b.cluster.refresh([b.topic])).topics):
        pass  # the controller has made it, and the broker learns so a little later
    if pinned:
        b.appender.pinned[b.topic] = known[0].id
    w = await b.writer()
    w.append(records(1, 2), 1)
    await until(lambda: b.failed or b.written == [1], 30)
    assert b.read() == keys(1, 2)
    admin.delete_topics([b.topic])[b.topic].result(timeout=30)
    make(admin, b.topic)
    w.append(records(2, 1), 2)
    await until(lambda: b.failed or len(b.written) == 2, 30)


def test_by_its_id_nothing_gets_into_the_new_topic(kafka: LocalKafka) -> None:
    async def test(b: Bench) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
        await made_anew(b, admin, pinned=True)
        assert "by-id is another topic now" in str(b.failed[0]) and b.written == [1]
        assert b.read() == []

    run(kafka, 0, test, "by-id")


def test_by_its_name_it_does(kafka: LocalKafka) -> None:
    """Brokers before 4.1 write by name, so the write gets into the new topic. Without this the test above might look at
    nothing."""

    async def test(b: Bench) -> None:
        admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
        await made_anew(b, admin, pinned=False)
        assert not b.failed and b.read() == keys(2, 1)

    run(kafka, 0, test, "by-name")
