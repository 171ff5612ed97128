"""Metadata with ids of topics, at brokers that tell ids and take none (Kafka 2.8 and 3.0)."""

from __future__ import annotations

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import metadata as md
from tests.api.play import Play

A, B, GONE = b"a" * 16, b"b" * 16, b"g" * 16


def named(*names: str) -> md.MetadataRequest:
    return md.MetadataRequest([md.MetadataRequestTopic(name=n) for n in names])


def by_id(*ids: bytes, **options: bool) -> md.MetadataRequest:
    return md.MetadataRequest([md.MetadataRequestTopic(topic_id=i, name=None) for i in ids], **options)


def topic(topic_id: bytes, name: str | None, code: Code = Code.NONE) -> md.MetadataResponseTopic:
    return md.MetadataResponseTopic(code, name, topic_id, partitions=[md.MetadataResponsePartition(0, 0, 1)])


def response(*topics: md.MetadataResponseTopic) -> md.MetadataResponse:
    return md.MetadataResponse(brokers=[md.MetadataResponseBroker(1, "b", 9092)], topics=list(topics))


@pytest.mark.parametrize("version", range(12))
def test_what_the_broker_knows_passes(version: int) -> None:
    Play(Api.METADATA, named("t"), version).forwards()


@pytest.mark.parametrize("request_", [named("t"), md.MetadataRequest(None), md.MetadataRequest([])])
def test_without_an_id_the_bytes_are_those_of_the_version_before(request_: md.MetadataRequest) -> None:
    Play(Api.METADATA, request_, 12).forwards(version=11)
    assert request_.encode(12) == request_.encode(11)
    answer = response(topic(A, "t"))
    assert answer.encode(12) == answer.encode(11)


def test_topics_are_found_by_their_ids() -> None:
    play = Play(Api.METADATA, by_id(B, GONE, B, include_topic_authorized_operations=True), 12)
    everything = md.MetadataRequest(None, False, include_topic_authorized_operations=True)
    play.asks(everything, 11).broker(response(topic(A, "a"), topic(B, "b")), 11)
    gone = md.MetadataResponseTopic(Code.UNKNOWN_TOPIC_ID, None, GONE)
    play.answers(response(topic(B, "b"), gone))
