"""A sidecar that has just started knows the racks of brokers that are down, at real brokers (KIP-1073)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sidecar.drill.local import LocalKafka
from sidecar.kafka.cluster import ClusterView, MetadataReader
from sidecar.kafka.net import BrokerConnection
from tests.clients.ground import make_topic


@pytest.mark.tier("all")
def test_a_sidecar_that_starts_while_a_broker_is_down_knows_its_rack(trio: LocalKafka) -> None:
    """Symptom: its topics had another hash than before, so every consumer group got a new epoch, and one more when the
    broker came back."""
    make_topic(trio, "t-racks", 3)
    asyncio.run(compare(trio))


async def compare(kafka: LocalKafka) -> None:
    """Compares a reader that has seen all brokers with one that begins when a broker is down."""
    first, _, last = kafka.nodes
    assert last.process is not None
    conn = await BrokerConnection.open("127.0.0.1", first.internal_port, "racks")
    before = MetadataReader({})
    # This broker may learn of it a bit later.
    seen = await until(before, conn, lambda view: "t-racks" in {t.name for t in view.topics})
    await asyncio.to_thread(last.process.stop)
    await until(before, conn, lambda view: 3 not in view.brokers)
    racks: dict[int, str | None] = {}
    view = await MetadataReader(racks).read(conn, None)
    assert set(view.brokers) == {1, 2} and racks == {1: "rack-1", 2: "rack-2", 3: "rack-3"}
    assert view.topics == seen.topics
    conn.close()


async def until(reader: MetadataReader, conn: BrokerConnection, holds: Callable[[ClusterView], bool]) -> ClusterView:
    """The first view of the broker's for which `holds` is true."""
    async with asyncio.timeout(30):
        while not holds(view := await reader.read(conn, None)):
            await asyncio.sleep(0.1)
    return view
