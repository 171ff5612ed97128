"""ConsumerGroupHeartbeat: the rights come first, then the coordinator decides (docs/reference/behaviour.md 2.27)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sidecar.api.call import Client
from sidecar.api.consumer_group_heartbeat import NO_REGEX
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError
from sidecar.core.vocabulary.topic_regex import is_validated, validate
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.primitives import WireError
from tests.api.play import NO_AUTHORIZER, Play

A = b"a" * 16
JOIN = ch.ConsumerGroupHeartbeatRequest(
    "g",
    "m",
    0,
    "i",
    "rack",
    60_000,
    ["orders", "refunds"],
    "x.*",
    "uniform",
    [ch.TopicPartitions(A, [0, 2])],
)
STEADY = ch.ConsumerGroupHeartbeatRequest("g", "m", 5)
JOINED = ConsumerHeartbeat(
    "g",
    "m",
    0,
    "i",
    "rack",
    60_000,
    ("orders", "refunds"),
    "x.*",
    "uniform",
    {A: (0, 2)},
    "app",
    "/10.0.0.9",
    1,
)
BEAT = ConsumerHeartbeat("g", "m", 5, client_id="app", client_host="/10.0.0.9")
ASSIGNED = HeartbeatReply(member_id="m", member_epoch=6, heartbeat_interval_ms=5_000, assignment={A: (0,)})
OK = HeartbeatReply(member_id="m", member_epoch=5, heartbeat_interval_ms=5_000)


def beat(request: ch.ConsumerGroupHeartbeatRequest, version: int = 1, client: Client | None = None) -> Play:
    return Play(Api.CONSUMER_GROUP_HEARTBEAT, request, version, client=client)


def answer(code: Code, message: str | None = None) -> ch.ConsumerGroupHeartbeatResponse:
    return ch.ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def test_a_member_that_joins() -> None:
    conversation = beat(JOIN).may_read("g").may_describe_topics("orders", "refunds").coordinates(JOINED)
    parts = ch.Assignment([ch.ResponseTopicPartitions(A, [0])])
    conversation.coordinator(ASSIGNED).answers(ch.ConsumerGroupHeartbeatResponse(0, 0, None, "m", 6, 5_000, parts))


def test_a_new_expression_is_compiled_in_a_turn_of_its_own() -> None:
    """Symptom: joins of forty members with an expression each, which came together, were all compiled in one turn."""
    request = ch.ConsumerGroupHeartbeatRequest("g", "m", 0, topic_partitions=[], subscribed_topic_regex="turns.*")
    event = ConsumerHeartbeat(
        "g", "m", 0, topic_regex="turns.*", owned={}, client_id="app", client_host="/10.0.0.9", version=1
    )
    for pauses in (1, 0):
        play = beat(request).may_read("g").coordinates(event)
        assert play.pauses == pauses and is_validated("turns.*")
        play.coordinator(OK).gives()


def test_a_steady_heartbeat() -> None:
    same = ch.ConsumerGroupHeartbeatResponse(0, 0, None, "m", 5, 5_000)
    beat(STEADY).may_read("g").coordinates(BEAT).coordinator(OK).answers(same)


def test_a_client_without_a_name() -> None:
    nameless = ConsumerHeartbeat("g", "m", 5, client_id="", client_host="/10.0.0.9")
    play = Play(Api.CONSUMER_GROUP_HEARTBEAT, STEADY, 1, client_id=None).may_read("g")
    play.coordinates(nameless).coordinator(OK).gives()


def test_a_member_without_an_id_gets_one_in_v0() -> None:
    first = ch.ConsumerGroupHeartbeatRequest("g", "", 0)
    event = ConsumerHeartbeat("g", "", 0, client_id="app", client_host="/10.0.0.9", version=0, new_member_id="new-id")
    named = HeartbeatReply(member_id="new-id", member_epoch=1, heartbeat_interval_ms=5_000)
    conversation = beat(first, 0).may_read("g").coordinates(event).coordinator(named)
    conversation.answers(ch.ConsumerGroupHeartbeatResponse(0, 0, None, "new-id", 1, 5_000))


def test_without_read() -> None:
    beat(JOIN).may_not_read("g").answers(answer(Code.GROUP_AUTHORIZATION_FAILED))


@pytest.mark.parametrize("topic", ["orders", "refunds"])
def test_a_topic_that_may_not_be_described(topic: str) -> None:
    conversation = beat(JOIN).may_read("g").may_describe_topics("orders", "refunds", hidden=[topic])
    conversation.answers(answer(Code.TOPIC_AUTHORIZATION_FAILED))


def test_the_rights_are_looked_at_again_with_each_subscription_not_with_each_heartbeat() -> None:
    client = Client("10.0.0.9")
    beat(STEADY, client=client).may_read("g").coordinates(BEAT).coordinator(OK).gives()
    beat(STEADY, client=client).coordinates(BEAT).coordinator(OK).gives()
    beat(JOIN, client=client).may_describe_topics("orders", "refunds").coordinates(JOINED).coordinator(ASSIGNED).gives()
    beat(JOIN, client=client).coordinates(JOINED).coordinator(ASSIGNED).gives()


def test_without_an_authorizer_topics_are_not_asked_for() -> None:
    conversation = Play(Api.CONSUMER_GROUP_HEARTBEAT, JOIN, 1, view=NO_AUTHORIZER).may_read("g")
    conversation.coordinates(JOINED).coordinator(ASSIGNED).gives()


def test_what_the_coordinator_refuses() -> None:
    code = Code.NOT_COORDINATOR
    conversation = beat(STEADY).may_read("g").coordinates(BEAT).coordinator(HeartbeatReply(code, TEXT[code]))
    conversation.answers(answer(code, "This is not the correct coordinator."))


def test_a_group_of_a_broker_without_the_protocol() -> None:
    theirs = ch.ConsumerGroupHeartbeatRequest("theirs", "m", 0)
    without = Client(broker_versions={18: (0, 3)})
    text = "The consumer group protocol is not enabled for this group."
    beat(theirs, client=without).whose("theirs").answers(answer(Code.UNSUPPORTED_VERSION, text))
    beat(theirs, client=Client(broker_versions={68: (0, 1)})).whose("theirs").forwards()
    beat(theirs, client=Client()).whose("theirs").forwards()


OF_THEIRS = ch.ConsumerGroupHeartbeatRequest("theirs", "m", 4)
NO_MEMBER = answer(Code.UNKNOWN_MEMBER_ID, "Member m is not a member of group theirs.")


def test_a_member_that_was_silent_while_its_group_went_to_the_broker_joins_there() -> None:
    """Symptom: the broker knows no such group, GROUP_ID_NOT_FOUND, and librdkafka's consumers end for good."""
    unknown = answer(Code.GROUP_ID_NOT_FOUND, "Consumer group theirs not found.")
    beat(OF_THEIRS).asks().broker(unknown).answers(NO_MEMBER)
    well = ch.ConsumerGroupHeartbeatResponse(0, 0, None, "m", 4, 5_000, ch.Assignment([]))
    for said in (well, answer(Code.FENCED_MEMBER_EPOCH, "old"), answer(Code.NOT_COORDINATOR)):
        beat(OF_THEIRS).asks().broker(said).answers(said)
    gone = replace(OF_THEIRS, member_epoch=-1)
    beat(gone).asks().broker(unknown).answers(NO_MEMBER)


def test_a_broker_of_fewer_versions_is_asked_in_its_own() -> None:
    """Kafka 3.7 to 3.9 has version 0 only, and would close the connection at version 1."""
    client = Client("10.0.0.9", broker_versions={68: (0, 0)})
    join = ch.ConsumerGroupHeartbeatRequest("theirs", "m", 0, subscribed_topic_names=["orders"])
    well = ch.ConsumerGroupHeartbeatResponse(0, 0, None, "m", 1, 5_000, ch.Assignment([]))
    beat(join, client=client).whose("theirs").asks(join, 0).broker(well).answers(well)
    unknown = answer(Code.GROUP_ID_NOT_FOUND, "Consumer group theirs not found.")
    beat(OF_THEIRS, client=client).asks(OF_THEIRS, 0).broker(unknown).answers(NO_MEMBER)
    regex = replace(join, subscribed_topic_regex="o.*")
    beat(regex, client=client).whose("theirs").answers(answer(Code.UNSUPPORTED_VERSION, NO_REGEX))


def test_nor_does_a_broker_without_the_protocol_end_it() -> None:
    beat(OF_THEIRS, client=Client(broker_versions={18: (0, 3)})).answers(NO_MEMBER)


def test_a_sidecar_that_manages_nothing_passes_it_as_it_is() -> None:
    Play(Api.CONSUMER_GROUP_HEARTBEAT, OF_THEIRS, 1, managed=()).forwards()


def test_only_a_join_waits_for_the_word_whose_the_group_is() -> None:
    beat(OF_THEIRS).asks().broker(answer(Code.NONE)).answers(answer(Code.NONE))
    join = ch.ConsumerGroupHeartbeatRequest("theirs", "m", 0)
    code = Code.COORDINATOR_NOT_AVAILABLE
    beat(join).whose("theirs", code).may_read("theirs").answers(answer(code, TEXT[code]))
    code = Code.GROUP_AUTHORIZATION_FAILED
    beat(join).whose("theirs", taken_in=True).may_not_read("theirs").answers(answer(code))


def test_a_managed_group_is_served_without_the_brokers_protocol() -> None:
    without = Client("10.0.0.9", broker_versions={18: (0, 3)})
    beat(STEADY, client=without).may_read("g").coordinates(BEAT).coordinator(OK).gives()


def test_an_answer_that_no_client_could_read_is_not_written() -> None:
    """Symptom: what broke was the handler, in the log and in the metric, and a client could do that at will."""
    conversation = beat(STEADY).may_read("g").coordinates(BEAT)
    with pytest.raises(WireError, match="too long"):
        conversation.coordinator(HeartbeatReply(Code.INVALID_REQUEST, "x" * 32_768))
    Play.open.remove(conversation)


def test_a_refusal_quotes_no_more_than_fits_into_an_answer() -> None:
    with pytest.raises(CoordinatorError) as caught:
        validate("(" + "\N{SNOWMAN}" * 10_000)
    assert len(caught.value.message.encode()) <= 32_767
    refused = HeartbeatReply(caught.value.code, caught.value.message)
    beat(STEADY).may_read("g").coordinates(BEAT).coordinator(refused).gives()
