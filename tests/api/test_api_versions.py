"""ApiVersions: what the broker announces, and what the sidecar brings itself (docs/reference/behaviour.md 2.28)."""

from __future__ import annotations

import pytest

from sidecar.api.call import CONSUMER_COMMIT, Client, Learnt
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import BY_ID, SERVED, Api
from sidecar.wire.generated import api_versions as av
from tests.api.announced import Ranges, announced
from tests.api.play import Play

Row = tuple[int, int, int]
IDS = (3, 0, 13)
"""Metadata with ids of topics."""
ANNOUNCED = announced()
REBOOTSTRAP_REQUIRED = 129
REQUEST = av.ApiVersionsRequest("app", "1.0")


def response(*rows: Row) -> av.ApiVersionsResponse:
    return av.ApiVersionsResponse(api_keys=[av.ApiVersion(*r) for r in rows])


@pytest.mark.parametrize("version", range(6))
def test_an_old_broker_gets_the_consumer_protocol(version: int) -> None:
    client = Client()
    play = Play(Api.API_VERSIONS, REQUEST, version, client=client)
    both = response((0, 0, 9), IDS, (8, 0, 9), (18, 0, 3), (68, 0, 1), (69, 0, 1))
    play.asks().broker(response((0, 0, 9), IDS, (8, 0, 8), (18, 0, 3))).answers(both)
    assert client.broker_versions == {0: (0, 9), 3: (0, 13), 8: (0, 8), 18: (0, 3)}


@pytest.mark.parametrize("asked", range(6))
@pytest.mark.parametrize("remembered", range(6))
def test_of_a_silent_broker_old_clients_hear_no_feature_that_begins_at_0(remembered: int, asked: int) -> None:
    """KAFKA-17011. Symptom: Java clients before 3.8 ended if only newer ones had asked before the broker was silent."""
    learnt, known = Learnt(), response((18, 0, 5))
    from_0, from_7 = av.SupportedFeatureKey("group.version", 0, 1), av.SupportedFeatureKey("metadata.version", 7, 30)
    known.supported_features = [from_0, from_7] if remembered >= 4 else [from_7]
    Play(Api.API_VERSIONS, REQUEST, remembered, learnt=learnt, managed=()).asks().broker(known).answers(known)
    told = response((18, 0, 5))
    if remembered >= 3:
        told.supported_features = [from_0, from_7] if remembered >= 4 and asked >= 4 else [from_7]
    Play(Api.API_VERSIONS, REQUEST, asked, learnt=learnt, managed=()).asks().silent().answers(told)


@pytest.mark.parametrize("version", range(5))
def test_a_broker_without_topic_ids_gets_nothing(version: int) -> None:
    """A client of the consumer protocol would wait for partitions for ever (Kafka before 2.8)."""
    theirs = response((3, 0, 9), (8, 2, 8), (18, 0, 3))
    Play(Api.API_VERSIONS, REQUEST, version).asks().broker(theirs).answers(theirs)


@pytest.mark.parametrize("highest", [10, 11, 12, 13, 14])
def test_metadata_by_id_is_brought_to_a_broker_that_only_tells_ids(highest: int) -> None:
    """Symptom: librdkafka's member of a consumer group aborted its process at Kafka 2.8."""
    row = (3, 0, max(highest, 12))
    theirs, ours = response((3, 0, highest), (18, 0, 3)), response(row, (18, 0, 3), (68, 0, 1), (69, 0, 1))
    Play(Api.API_VERSIONS, REQUEST, 3).asks().broker(theirs).answers(ours)
    Play(Api.API_VERSIONS, REQUEST, 3, managed=()).asks().broker(theirs).answers(theirs)


STREAMS = ((88, 0, 1), (89, 0, 1))


@pytest.mark.parametrize("theirs", [(), ((88, 0, 0), (89, 0, 0)), STREAMS])
def test_streams_groups_are_brought_where_they_are_coordinated(theirs: tuple[Row, ...]) -> None:
    """Kafka Streams looks at ApiVersions only. Elsewhere the broker's word counts."""
    both, ours = (IDS, (8, 0, 9), (18, 0, 3)), ((68, 0, 1), (69, 0, 1))
    broker = response(*both, *theirs)
    Play(Api.API_VERSIONS, REQUEST, 3, streams=True).asks().broker(broker).answers(response(*both, *ours, *STREAMS))
    Play(Api.API_VERSIONS, REQUEST, 3).asks().broker(broker).answers(response(*both, *ours, *theirs))
    Play(Api.API_VERSIONS, REQUEST, 3, streams=True, managed=()).asks().broker(broker).answers(broker)


BROUGHT = {int(Api.CONSUMER_GROUP_HEARTBEAT): (0, 1), int(Api.CONSUMER_GROUP_DESCRIBE): (0, 1)}


@pytest.mark.parametrize(("kafka", "ranges"), ANNOUNCED.items())
def test_what_the_broker_serves_the_sidecar_serves(kafka: str, ranges: Ranges) -> None:
    """Symptom: a client found fewer versions here than at the broker. sarama up to 1.38 commits in v1 of OffsetCommit,
    which 3.9 serves, and was refused; behind a sidecar, 4.4's Streams and transactions had older versions."""
    theirs = response(*((key, *found) for key, found in ranges.items()))
    Play(Api.API_VERSIONS, REQUEST, 3, managed=()).asks().broker(theirs).answers(theirs)
    low, high = ranges[Api.OFFSET_COMMIT]
    least, most = ranges[Api.METADATA]
    brought = {int(Api.OFFSET_COMMIT): (low, max(high, CONSUMER_COMMIT)), int(Api.METADATA): (least, max(most, BY_ID))}
    with_ours = sorted({**ranges, **BROUGHT, **brought}.items())
    answer = response(*((key, *found) for key, found in with_ours))
    Play(Api.API_VERSIONS, REQUEST, 3).asks().broker(theirs).answers(answer)


def test_each_version_that_is_served_is_some_brokers_or_brought() -> None:
    """No code is there for a version that nobody can ask for, but for those that brokers announce only if they are told
    to: an early access of share groups, and InitProducerId for two-phase commits."""
    unannounced = {(Api.SHARE_GROUP_HEARTBEAT, 0), (Api.SHARE_GROUP_DESCRIBE, 0), (Api.INIT_PRODUCER_ID, 6)}
    for key, spec in SERVED.items():
        there = {v for ranges in ANNOUNCED.values() if key in ranges for v in range(ranges[key][0], ranges[key][1] + 1)}
        rest = set(range(spec.low, spec.high + 1)) - there - {v for k, v in unannounced if k == key}
        assert not rest, (Api(key).name, rest)


def test_never_more_than_both_can() -> None:
    play = Play(Api.API_VERSIONS, REQUEST, 3)
    newer = response(IDS, (10, 0, 4), (16, 0, 7), (18, 0, 6), (68, 0, 3), (88, 2, 3))
    play.asks().broker(newer).answers(response(IDS, (10, 0, 4), (16, 0, 5), (18, 0, 5), (68, 0, 1), (69, 0, 1)))


@pytest.mark.parametrize("version", range(3, 6))
@pytest.mark.parametrize("code", [Code.INVALID_REQUEST, REBOOTSTRAP_REQUIRED])
def test_an_error_is_the_brokers_word_and_teaches_nothing(version: int, code: int) -> None:
    """Symptom: a client whose software had a bad name was told of two APIs, and while the broker was silent everybody
    was given its error."""
    client, learnt = Client(), Learnt()
    refusal = av.ApiVersionsResponse(error_code=code)
    play = Play(Api.API_VERSIONS, REQUEST, version, client=client, learnt=learnt)
    play.asks().broker(refusal).answers(refusal)
    assert client.broker_versions is None
    assert learnt.versions == {} and learnt.served is None


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_version_that_is_too_new_is_the_brokers_to_refuse(version: int) -> None:
    """The broker answers in version 0, whatever version was asked for (KIP-511)."""
    request = REQUEST if version <= 4 else b"newer than anything"
    refusal = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 2)])
    Play(Api.API_VERSIONS, request, version).asks().broker(refusal, 0).answers(refusal, 0)


def test_the_version_to_come_back_with_is_one_that_both_can() -> None:
    refusal = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 7)])
    capped = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 5)])
    Play(Api.API_VERSIONS, b"newer than anything", 99).asks().broker(refusal, 0).answers(capped, 0)


def test_a_version_that_only_the_broker_knows_is_refused_so_that_the_client_takes_an_older_one() -> None:
    """The sidecar cannot read the broker's answer in this version, and must not pass it on unchanged."""
    client = Client()
    newest = response((0, 0, 13), (18, 0, 6), (68, 0, 1))
    play = Play(Api.API_VERSIONS, b"something new", 6, client=client).asks().broker(newest, 5)
    refusal = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 5)])
    play.answers(refusal, 0)
    assert client.broker_versions is None


def test_a_cached_answer_is_used_for_an_equal_request_only() -> None:
    """Each of these differs from the one before in the broker's answer, in the version or in what is managed."""
    for _ in range(2):
        for version in (3, 2):
            for newest in (3, 4):
                theirs = response(IDS, (8, 0, 8), (18, 0, newest))
                Play(Api.API_VERSIONS, REQUEST, version).asks().broker(theirs).answers(
                    response(IDS, (8, 0, 9), (18, 0, newest), (68, 0, 1), (69, 0, 1))
                )
                Play(Api.API_VERSIONS, REQUEST, version, managed=()).asks().broker(theirs).answers(
                    response(IDS, (8, 0, 8), (18, 0, newest))
                )
