"""Brokers that tell ids of topics and take none (Kafka 2.8 and 3.0): their clients may ask by id all the same."""

from __future__ import annotations

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import metadata as md
from tests.front.test_front import run
from tests.inprocess.broker import OFFSETS, STATE
from tests.inprocess.embedded_front import EmbeddedFront

HELLO = av.ApiVersionsRequest("librdkafka", "2.16.1")
GONE = b"g" * 16


def by_id(*ids: bytes) -> md.MetadataRequest:
    return md.MetadataRequest([md.MetadataRequestTopic(topic_id=i, name=None) for i in ids])


def highest(res: av.ApiVersionsResponse) -> int:
    return next(k.max_version for k in res.api_keys if k.api_key == Api.METADATA)


def by_ids(embedded: EmbeddedFront) -> int:
    """Returns the number of Metadata requests by topic id."""
    asked = [r.topics or [] for r in embedded.brokers.requests(Api.METADATA)]
    return sum(any(t.name is None for t in topics) for topics in asked)


@pytest.mark.parametrize("high", [10, 11])
def test_a_topic_is_found_by_its_id(high: int) -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.brokers.versions[Api.METADATA] = (0, high)
        client = await embedded.client()
        assert highest(await client.ask(HELLO, 2)) == 12
        topic_id = embedded.brokers.topics[OFFSETS].topic_id
        there, gone = (await client.ask(by_id(topic_id, GONE), 12)).topics
        assert (there.name, there.topic_id, len(there.partitions)) == (OFFSETS, topic_id, 2)
        assert (gone.error_code, gone.name, gone.topic_id) == (Code.UNKNOWN_TOPIC_ID, None, GONE)
        named = md.MetadataRequest([md.MetadataRequestTopic(name=STATE), md.MetadataRequestTopic(name=OFFSETS)])
        internal = {t.name: t.is_internal for t in (await client.ask(named, 12)).topics}
        assert internal == {STATE: True, OFFSETS: False}, "what passes is shown as ever"
        assert (await client.ask(named, 9)).topics[0].name == STATE
        assert by_ids(embedded) == 0

    run(test, internal_topic=STATE)


def test_a_further_connection_of_a_client_that_knows_the_versions() -> None:
    """franz-go before 1.23 asks each broker for its versions once, and opens several connections."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.brokers.versions[Api.METADATA] = (0, 11)
        await (await embedded.client()).ask(HELLO, 2)
        topic_id = embedded.brokers.topics[OFFSETS].topic_id
        there = (await (await embedded.client()).ask(by_id(topic_id), 12)).topics
        assert [t.name for t in there] == [OFFSETS]
        assert by_ids(embedded) == 0

    run(test)


@pytest.mark.parametrize("high", [12, 13])
def test_where_the_broker_takes_ids_it_is_asked(high: int) -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.brokers.versions[Api.METADATA] = (0, high)
        client = await embedded.client()
        assert highest(await client.ask(HELLO, 2)) == high
        assert (await client.ask(by_id(embedded.brokers.topics[OFFSETS].topic_id), 12)).topics[0].name == OFFSETS
        assert by_ids(embedded) == 1

    run(test)
