"""ApiVersions: never more than both can, but for what the sidecar brings itself (docs/reference/behaviour.md 2.28)."""

from __future__ import annotations

import pytest

from sidecar.api.call import Client
from sidecar.core.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import api_versions as av
from tests.api.play import Play

Row = tuple[int, int, int]
IDS = (3, 0, 13)
"""Metadata with ids of topics."""
REQUEST = av.ApiVersionsRequest("app", "1.0")


def told(*rows: Row) -> av.ApiVersionsResponse:
    return av.ApiVersionsResponse(api_keys=[av.ApiVersion(*r) for r in rows])


@pytest.mark.parametrize("version", range(5))
def test_an_old_broker_gets_the_consumer_protocol(version: int) -> None:
    client = Client()
    play = Play(Api.API_VERSIONS, REQUEST, version, client=client)
    both = told((0, 0, 9), IDS, (8, 2, 9), (18, 0, 3), (68, 0, 1), (69, 0, 1))
    play.asks().broker(told((0, 0, 9), IDS, (8, 0, 8), (18, 0, 3))).answers(both)
    assert client.broker_versions == {0: (0, 9), 3: (0, 13), 8: (0, 8), 18: (0, 3)}


@pytest.mark.parametrize("version", range(5))
def test_a_broker_without_topic_ids_gets_nothing(version: int) -> None:
    """A client of the consumer protocol would wait for partitions for ever (Kafka before 2.8)."""
    theirs = told((3, 0, 9), (8, 2, 8), (18, 0, 3))
    Play(Api.API_VERSIONS, REQUEST, version).asks().broker(theirs).answers(theirs)


@pytest.mark.parametrize("highest", [10, 11, 12, 13, 14])
def test_metadata_by_id_is_brought_to_a_broker_that_only_tells_ids(highest: int) -> None:
    """Symptom: librdkafka's member of a consumer group aborted its process at Kafka 2.8."""
    row = (3, 0, max(highest, 12))
    theirs, ours = told((3, 0, highest), (18, 0, 3)), told(row, (18, 0, 3), (68, 0, 1), (69, 0, 1))
    Play(Api.API_VERSIONS, REQUEST, 3).asks().broker(theirs).answers(ours)
    Play(Api.API_VERSIONS, REQUEST, 3, managed=()).asks().broker(theirs).answers(theirs)


def test_without_managed_groups_nothing_is_brought() -> None:
    play = Play(Api.API_VERSIONS, REQUEST, 3, managed=())
    play.asks().broker(told((8, 0, 8), (18, 0, 4))).answers(told((8, 2, 8), (18, 0, 4)))


def test_never_more_than_both_can() -> None:
    play = Play(Api.API_VERSIONS, REQUEST, 3)
    newer = told(IDS, (10, 0, 4), (16, 0, 7), (18, 0, 5), (68, 0, 3))
    play.asks().broker(newer).answers(told(IDS, (10, 0, 4), (16, 0, 5), (18, 0, 5), (68, 0, 1), (69, 0, 1)))


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_version_that_is_too_new_is_the_brokers_to_refuse(version: int) -> None:
    """It answers in version 0, whatever was asked (KIP-511)."""
    request = REQUEST if version <= 4 else b"newer than anything"
    refusal = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 2)])
    raw = Play(Api.API_VERSIONS, request, version).asks().broker(refusal, 0).gives()
    answer = av.ApiVersionsResponse.decode(0, raw)
    assert answer.error_code == Code.UNSUPPORTED_VERSION
    assert av.ApiVersion(18, 0, 2) in answer.api_keys


def test_a_version_that_only_the_broker_knows_is_refused_so_that_the_client_takes_an_older_one() -> None:
    """Kafka 4.4 has v5 (KIP-1242). Its answer cannot be read here, and what it says must not pass unchanged."""
    client = Client()
    newest = told((0, 0, 13), (18, 0, 5), (68, 0, 1))
    play = Play(Api.API_VERSIONS, b"cluster and node id", 5, client=client).asks().broker(newest, 4)
    refusal = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 4)])
    play.answers(refusal, 0)
    assert client.broker_versions is None


def test_what_is_kept_of_one_answer_is_told_in_the_same_words_only() -> None:
    """Each of these differs from the one before in the broker's answer, in the version or in what is managed."""
    for _ in range(2):
        for version in (3, 2):
            for newest in (3, 4):
                theirs = told(IDS, (8, 0, 8), (18, 0, newest))
                Play(Api.API_VERSIONS, REQUEST, version).asks().broker(theirs).answers(
                    told(IDS, (8, 2, 9), (18, 0, newest), (68, 0, 1), (69, 0, 1))
                )
                Play(Api.API_VERSIONS, REQUEST, version, managed=()).asks().broker(theirs).answers(
                    told(IDS, (8, 2, 8), (18, 0, newest))
                )
