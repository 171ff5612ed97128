"""OffsetDelete: not of a topic that a member of the group subscribes to."""

from __future__ import annotations

from sidecar.core.runtime.events import Answer, DeletionCheck, DeletionCheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import OpenOffsets
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_delete as od
from tests.api.play import ELSEWHERE, GUARDED_ELSEWHERE, OTHER, Play

SUBSCRIBED = DeletionCheckReply(exists=True, members=1, subscribed=frozenset({"orders"}))


def request(*topics: str) -> od.OffsetDeleteRequest:
    parts = [od.OffsetDeleteRequestPartition(0), od.OffsetDeleteRequestPartition(1)]
    return od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic(t, parts) for t in topics])


def response(*rows: tuple[str, Code], code: Code = Code.NONE) -> od.OffsetDeleteResponse:
    topics = [
        od.OffsetDeleteResponseTopic(t, [od.OffsetDeleteResponsePartition(p, error) for p in (0, 1)])
        for t, error in rows
    ]
    return od.OffsetDeleteResponse(code, topics=topics)


def play(*topics: str) -> Play:
    return Play(Api.OFFSET_DELETE, request(*topics), 0).may_delete("g").coordinates(DeletionCheck("g"))


def test_a_subscribed_topic_keeps_its_offsets() -> None:
    play("orders").coordinator(SUBSCRIBED).may_read_topics("orders").answers(
        response(("orders", Code.GROUP_SUBSCRIBED_TO_TOPIC))
    )


def test_the_other_topics_go_on_to_the_broker() -> None:
    conversation = (
        play("orders", "old")
        .coordinator(SUBSCRIBED)
        .may_read_topics("orders")
        .opens("g", "orders")
        .asks(request("old"))
        .broker(response(("old", Code.NONE)))
    )
    conversation.answers(response(("old", Code.NONE), ("orders", Code.GROUP_SUBSCRIBED_TO_TOPIC)))


def test_a_group_of_which_nobody_can_tell_the_topics_keeps_all() -> None:
    unclear = DeletionCheckReply(exists=True, members=1, subscribed_all=True)
    kept = response(("orders", Code.GROUP_SUBSCRIBED_TO_TOPIC), ("old", Code.GROUP_SUBSCRIBED_TO_TOPIC))
    play("orders", "old").coordinator(unclear).may_read_topics("old", "orders").answers(kept)


def test_a_group_at_work_that_is_not_one_of_consumers_is_refused_as_a_whole() -> None:
    connect = DeletionCheckReply(exists=True, members=1, opaque=True)
    play("orders").coordinator(connect).answers(response(code=Code.NON_EMPTY_GROUP))


def test_a_group_without_offsets_is_there_all_the_same() -> None:
    missing = response(code=Code.GROUP_ID_NOT_FOUND)
    conversation = play("orders", "old").coordinator(SUBSCRIBED).may_read_topics("orders").opens("g", "orders")
    conversation = conversation.asks(request("old")).broker(missing).may_read_topics("old")
    conversation.answers(response(("old", Code.NONE), ("orders", Code.GROUP_SUBSCRIBED_TO_TOPIC)))
    play("old").coordinator(DeletionCheckReply()).opens("g").asks(request("old")).broker(missing).answers(missing)


def test_whether_a_partition_is_there_comes_before_who_reads_it() -> None:
    """As at a broker, which looks at its metadata before it asks the group's coordinator."""
    none, kept = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.GROUP_SUBSCRIBED_TO_TOPIC
    parts = [od.OffsetDeleteResponsePartition(0, kept), od.OffsetDeleteResponsePartition(1, none)]
    conversation = play("orders").coordinator(SUBSCRIBED).may_read_topics("orders", partitions=(0,))
    conversation.answers(od.OffsetDeleteResponse(topics=[od.OffsetDeleteResponseTopic("orders", parts)]))
    conversation = play("gone").coordinator(SUBSCRIBED).opens("g", "orders").asks(request("gone"))
    conversation = conversation.broker(response(code=Code.GROUP_ID_NOT_FOUND)).may_read_topics("gone", partitions=())
    conversation.answers(response(("gone", none)))


def test_a_topic_without_partitions_is_not_answered() -> None:
    nothing = od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic("orders", [])])
    conversation = Play(Api.OFFSET_DELETE, nothing, 0).may_delete("g").coordinates(DeletionCheck("g"))
    conversation.coordinator(SUBSCRIBED).may_read_topics("orders").answers(response())


def test_a_topic_without_read_has_no_other_error() -> None:
    conversation = play("orders").coordinator(SUBSCRIBED).may_read_topics("orders", refused=("orders",))
    conversation.answers(response(("orders", Code.TOPIC_AUTHORIZATION_FAILED)))


def test_a_topic_without_read_does_not_go_on_to_another_broker() -> None:
    """The other broker sees the sidecar's principal, so it would not refuse the topic to this client."""
    conversation = Play(Api.OFFSET_DELETE, request("old", "mine"), 0, view=GUARDED_ELSEWHERE).may_delete("g")
    conversation = conversation.coordinates(DeletionCheck("g")).coordinator(SUBSCRIBED)
    conversation = conversation.may_read_topics("mine", "old", refused=("old",))
    conversation.opens("g", "orders").stores(OTHER, request("mine"), 0).broker(response(("mine", Code.NONE)))
    conversation.answers(response(("mine", Code.NONE), ("old", Code.TOPIC_AUTHORIZATION_FAILED)))


def test_whether_a_group_of_offsets_alone_is_there_comes_before_who_reads_the_topics() -> None:
    """Only the broker knows such a group, and it looks for the group even if it refuses every topic."""
    for found, rows in ((Code.NONE, [("old", Code.TOPIC_AUTHORIZATION_FAILED)]), (Code.GROUP_ID_NOT_FOUND, [])):
        conversation = Play(Api.OFFSET_DELETE, request("old"), 0, view=GUARDED_ELSEWHERE).may_delete("g")
        conversation = conversation.coordinates(DeletionCheck("g")).coordinator(DeletionCheckReply())
        conversation = conversation.may_read_topics("old", refused=("old",)).opens("g")
        conversation = conversation.stores(OTHER, request(), 0).broker(response(code=found))
        conversation.answers(response(*rows, code=found))


def test_the_brokers_own_refusal_stays() -> None:
    refused = response(code=Code.NON_EMPTY_GROUP)
    play("old").coordinator(SUBSCRIBED).opens("g", "orders").asks(request("old")).broker(refused).answers(refused)


def test_a_request_without_topics_is_the_brokers() -> None:
    play().coordinator(SUBSCRIBED).opens("g", "orders").asks(request()).broker(response()).answers(response())


def test_who_may_not_delete() -> None:
    conversation = Play(Api.OFFSET_DELETE, request("orders"), 0).may_delete("g", Code.GROUP_AUTHORIZATION_FAILED)
    conversation.answers(response(code=Code.GROUP_AUTHORIZATION_FAILED))


def test_the_owner_is_elsewhere() -> None:
    play("orders").coordinator(DeletionCheckReply(Code.NOT_COORDINATOR)).answers(response(code=Code.NOT_COORDINATOR))


def test_the_offsets_leader_is_elsewhere() -> None:
    conversation = Play(Api.OFFSET_DELETE, request("old"), 0, view=ELSEWHERE).may_delete("g")
    conversation.coordinates(DeletionCheck("g")).coordinator(SUBSCRIBED).opens("g", "orders").stores(
        OTHER, request("old"), 0
    )
    conversation.broker(response(("old", Code.NONE))).answers(response(("old", Code.NONE)))


def test_while_the_broker_cannot_be_shown_the_topics_nothing_is_deleted() -> None:
    conversation = play("old").coordinator(SUBSCRIBED).coordinates(OpenOffsets("g", frozenset({"orders"})))
    late = Code.COORDINATOR_LOAD_IN_PROGRESS
    conversation.coordinator(Answer(late)).answers(response(code=late))
