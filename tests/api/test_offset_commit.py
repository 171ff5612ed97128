"""OffsetCommit and TxnOffsetCommit: checked by the coordinator, stored by the leader of the offsets' partition."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sidecar.api.call import Client
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, MemberIdentity
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import View
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import ZERO_UUID
from tests.api.play import ELSEWHERE, GUARDED_ELSEWHERE, NO_AUTHORIZER, OTHER, VIEW, Play

A, B = b"a" * 16, b"b" * 16
OLD_BROKER = {8: (0, 8), 18: (0, 3)}
Parts = dict[str, tuple[int, ...]]


def commit_request(
    parts: Parts, *, member: str = "m", epoch: int = 3, instance: str | None = None
) -> oc.OffsetCommitRequest:
    topics = [
        oc.OffsetCommitRequestTopic(t, partitions=[oc.OffsetCommitRequestPartition(p, 100 + p) for p in ps])
        for t, ps in parts.items()
    ]
    return oc.OffsetCommitRequest("g", epoch, member, instance, topics=topics)


def stripped(parts: Parts) -> oc.OffsetCommitRequest:
    return commit_request(parts, member="", epoch=-1)


def response(*rows: tuple[str, int, Code]) -> oc.OffsetCommitResponse:
    topics: dict[str, list[oc.OffsetCommitResponsePartition]] = {}
    for topic, partition, code in rows:
        topics.setdefault(topic, []).append(oc.OffsetCommitResponsePartition(partition, code))
    return oc.OffsetCommitResponse(topics=[oc.OffsetCommitResponseTopic(t, partitions=ps) for t, ps in topics.items()])


def check(parts: Parts, version: int = 9, instance: str | None = None) -> CommitCheck:
    places = tuple((t, ZERO_UUID, p) for t, ps in parts.items() for p in ps)
    return CommitCheck("g", "m", 3, instance, version, False, places)


ONE: Parts = {"t": (0,)}
STORED = response(("t", 0, Code.NONE))


@pytest.mark.parametrize("version", range(1, 10))
def test_a_checked_commit_goes_on_without_the_member(version: int) -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), version).may_read("g")
    conversation.coordinates(check(ONE, version)).coordinator(CheckReply())
    conversation.asks(stripped(ONE)).broker(STORED).answers(STORED)


def test_offsets_for_zookeeper_are_no_coordinators() -> None:
    """A broker without ZooKeeper refuses them in its answer."""
    Play(Api.OFFSET_COMMIT, commit_request(ONE, member="", epoch=-1), 0).forwards()


def test_a_time_of_the_commit_counts_while_the_group_has_no_members() -> None:
    """Version 1 has a commit timestamp, and sarama up to 1.38 commits in it."""
    request, sent = commit_request(ONE), stripped(ONE)
    request.topics[0].partitions[0].commit_timestamp = sent.topics[0].partitions[0].commit_timestamp = 1_000
    conversation = Play(Api.OFFSET_COMMIT, request, 1).may_read("g").coordinates(check(ONE, 1))
    conversation.coordinator(CheckReply()).asks(sent).broker(STORED).answers(STORED)


def test_a_static_member_is_taken_out_too() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE, instance="i"), 9).may_read("g")
    conversation.coordinates(check(ONE, instance="i")).coordinator(CheckReply())
    conversation.asks(stripped(ONE)).broker(STORED).answers(STORED)


def test_the_brokers_own_errors_reach_the_client() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    denied = response(("t", 0, Code.TOPIC_AUTHORIZATION_FAILED))
    conversation.coordinator(CheckReply()).asks(stripped(ONE)).broker(denied).answers(denied)


@pytest.mark.parametrize(
    "code", [Code.UNKNOWN_MEMBER_ID, Code.STALE_MEMBER_EPOCH, Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_refused_commit_is_not_sent_on(code: Code) -> None:
    two: Parts = {"t": (0, 1), "u": (0,)}
    conversation = Play(Api.OFFSET_COMMIT, commit_request(two), 9).may_read("g").coordinates(check(two))
    conversation.coordinator(CheckReply(code))
    if code in (Code.UNKNOWN_MEMBER_ID, Code.STALE_MEMBER_EPOCH):
        conversation.shows(commit_request(two))
    conversation.answers(response(("t", 0, code), ("t", 1, code), ("u", 0, code)))


def test_a_topic_without_partitions_is_not_answered() -> None:
    """As at a broker, whoever refuses the others."""
    conversation = Play(Api.OFFSET_COMMIT, commit_request({**ONE, "u": ()}), 9, view=NO_AUTHORIZER).may_read("g")
    conversation = conversation.coordinates(check(ONE)).coordinator(CheckReply(Code.UNKNOWN_MEMBER_ID))
    conversation.answers(response(("t", 0, Code.UNKNOWN_MEMBER_ID)))
    topics = [tc.TxnOffsetCommitRequestTopic("t", partitions=[tc.TxnOffsetCommitRequestPartition(0, 100)])]
    request = tc.TxnOffsetCommitRequest("tx", "g", 1, 0, 3, "m", topics=[*topics, tc.TxnOffsetCommitRequestTopic("u")])
    conversation = Play(Api.TXN_OFFSET_COMMIT, request, 3, view=NO_AUTHORIZER).may_read("g")
    conversation = conversation.coordinates(CommitCheck("g", "m", 3, None, 3, True, (("t", ZERO_UUID, 0),)))
    refused = tc.TxnOffsetCommitResponsePartition(0, Code.ILLEGAL_GENERATION)
    answer = tc.TxnOffsetCommitResponse(topics=[tc.TxnOffsetCommitResponseTopic("t", partitions=[refused])])
    conversation.coordinator(CheckReply(Code.ILLEGAL_GENERATION)).answers(answer)


def test_a_topic_without_read_has_no_other_error() -> None:
    code, denied = Code.UNKNOWN_MEMBER_ID, Code.TOPIC_AUTHORIZATION_FAILED
    two: Parts = {"t": (0, 1), "u": (0,)}
    conversation = Play(Api.OFFSET_COMMIT, commit_request(two), 9).may_read("g").coordinates(check(two))
    conversation.coordinator(CheckReply(code)).shows(commit_request(two), t=denied)
    conversation.answers(response(("t", 0, denied), ("t", 1, denied), ("u", 0, code)))


def test_without_an_authorizer_a_refused_commit_is_not_shown_to_the_broker() -> None:
    conversation = (
        Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, view=NO_AUTHORIZER).may_read("g").coordinates(check(ONE))
    )
    conversation.coordinator(CheckReply(Code.UNKNOWN_MEMBER_ID)).answers(response(("t", 0, Code.UNKNOWN_MEMBER_ID)))


def test_without_read_the_coordinator_is_not_asked() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_not_read("g")
    conversation.answers(response(("t", 0, Code.GROUP_AUTHORIZATION_FAILED)))


def test_a_commit_whose_client_has_left_before_its_turn_is_not_carried_out() -> None:
    """Symptom: offsets went back. Cause: a commit waited behind a slow request of its connection; the client had long
    given it up and had committed newer offsets over another connection, when its turn came."""
    client = Client("10.0.0.9")
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, client=client).may_read("g").coordinates(check(ONE))
    client.left = True
    conversation.coordinator(CheckReply(identity=IDENTITY, ticket=7)).reports(7)
    conversation.answers(response(("t", 0, Code.COORDINATOR_NOT_AVAILABLE)))


def test_the_offsets_leader_is_elsewhere() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, view=ELSEWHERE).may_read("g")
    conversation.coordinates(check(ONE)).coordinator(CheckReply())
    conversation.stores(OTHER, stripped(ONE), 9).broker(STORED).answers(STORED)


@pytest.mark.parametrize("leaders", [(), (-1,)])
def test_while_the_leader_is_not_known_the_broker_behind_this_sidecar_is_asked(leaders: tuple[int, ...]) -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, view=View(leaders=leaders)).may_read("g")
    away = response(("t", 0, Code.NOT_COORDINATOR))
    conversation.coordinates(check(ONE)).coordinator(CheckReply()).asks(stripped(ONE)).broker(away).answers(away)


def test_the_offsets_leader_moves_while_the_coordinator_is_asked() -> None:
    """As when the request has waited for a takeover: the leader that counts is the one of the moment of sending."""
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, view=VIEW).may_read("g").coordinates(check(ONE))
    conversation.view_changes(ELSEWHERE).coordinator(CheckReply())
    conversation.stores(OTHER, stripped(ONE), 9).broker(STORED).answers(STORED)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_older_broker_gets_its_own_version(elsewhere: bool) -> None:
    """v9 has the bytes of v8; the answer goes to the client in the version that it asked for."""
    client = Client(broker_versions=OLD_BROKER)
    view = ELSEWHERE if elsewhere else VIEW
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9, view=view, client=client)
    conversation.may_read("g").coordinates(check(ONE)).coordinator(CheckReply())
    sent = conversation.stores(OTHER, stripped(ONE), 8) if elsewhere else conversation.asks(stripped(ONE), 8)
    sent.broker(STORED).answers(STORED)


@pytest.mark.parametrize("high", [8, 9])
def test_a_group_of_an_older_broker_commits_in_the_brokers_version(high: int) -> None:
    """Symptom: before Kafka up to 3.6, no group of the broker's committed an offset if its client knew version 9."""
    request = replace(commit_request(ONE), group_id="theirs")
    conversation = Play(Api.OFFSET_COMMIT, request, 9, client=Client(broker_versions={8: (0, high)}))
    conversation.forwards(8 if high == 8 else None)
    Play(Api.OFFSET_COMMIT, request, 9, client=Client(broker_versions={18: (0, 3)})).forwards()


def test_topics_by_id() -> None:
    def request(*topics: bytes, member: str = "m", epoch: int = 3) -> oc.OffsetCommitRequest:
        part = [oc.OffsetCommitRequestPartition(0, 100)]
        rows = [oc.OffsetCommitRequestTopic(topic_id=t, partitions=part) for t in topics]
        return oc.OffsetCommitRequest("g", epoch, member, topics=rows)

    def response(*rows: tuple[bytes, Code]) -> oc.OffsetCommitResponse:
        return oc.OffsetCommitResponse(
            topics=[
                oc.OffsetCommitResponseTopic(topic_id=t, partitions=[oc.OffsetCommitResponsePartition(0, c)])
                for t, c in rows
            ]
        )

    event = CommitCheck("g", "m", 3, None, 10, False, (("", A, 0), ("", B, 0)))
    conversation = Play(Api.OFFSET_COMMIT, request(A, B), 10).may_read("g").coordinates(event).coordinator(CheckReply())
    stored = response((A, Code.NONE), (B, Code.NONE))
    conversation.asks(request(A, B, member="", epoch=-1)).broker(stored).answers(stored)


# ---- in a transaction -------------------------------------------------------------------------------------------
def txn(member: str = "m", generation: int = 3, instance: str | None = "i") -> tc.TxnOffsetCommitRequest:
    topic = tc.TxnOffsetCommitRequestTopic("t", partitions=[tc.TxnOffsetCommitRequestPartition(p, 100) for p in (0, 1)])
    return tc.TxnOffsetCommitRequest("tx", "g", 4, 0, generation, member, instance, [topic])


def txn_response(code: Code) -> tc.TxnOffsetCommitResponse:
    parts = [tc.TxnOffsetCommitResponsePartition(p, code) for p in (0, 1)]
    return tc.TxnOffsetCommitResponse(topics=[tc.TxnOffsetCommitResponseTopic("t", partitions=parts)])


def txn_check(version: int) -> CommitCheck:
    places = (("t", ZERO_UUID, 0), ("t", ZERO_UUID, 1))
    if version < 3:
        return CommitCheck("g", "", -1, None, version, True, places)
    return CommitCheck("g", "m", 3, "i", version, True, places)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_checked_transactional_commit_goes_on_without_the_member(version: int, elsewhere: bool) -> None:
    conversation = Play(Api.TXN_OFFSET_COMMIT, txn(), version, view=ELSEWHERE if elsewhere else VIEW).may_read("g")
    conversation.coordinates(txn_check(version)).coordinator(CheckReply())
    sent = txn("", -1, None)
    conversation = conversation.stores(OTHER, sent, version) if elsewhere else conversation.asks(sent)
    conversation.broker(txn_response(Code.NONE)).answers(txn_response(Code.NONE))


def test_a_transaction_is_refused() -> None:
    conversation = Play(Api.TXN_OFFSET_COMMIT, txn(), 5).may_read("g").coordinates(txn_check(5))
    conversation.coordinator(CheckReply(Code.UNKNOWN_MEMBER_ID)).shows(txn()).answers(
        txn_response(Code.UNKNOWN_MEMBER_ID)
    )


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("refuses", ["the coordinator", "the broker", "the broker, which knows the placeholder"])
def test_producers_before_2_0_do_not_hear_that_a_coordinator_loads(version: int, refuses: str) -> None:
    """KAFKA-7296. Symptom: a takeover ended Java producers from 0.11 to before 2.0."""
    topic_id = A if version >= 6 else ZERO_UUID
    named = "" if topic_id == A else "t"

    def placed(request: tc.TxnOffsetCommitRequest) -> tc.TxnOffsetCommitRequest:
        return replace(request, topics=[replace(t, name=named, topic_id=topic_id) for t in request.topics])

    def told(code: Code) -> tc.TxnOffsetCommitResponse:
        topics = txn_response(code).topics
        return tc.TxnOffsetCommitResponse(topics=[replace(t, name=named, topic_id=topic_id) for t in topics])

    loading, expected = Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_LOAD_IN_PROGRESS
    if version < 2:
        expected = Code.COORDINATOR_NOT_AVAILABLE
    check = replace(txn_check(version), partitions=((named, topic_id, 0), (named, topic_id, 1)))
    play = Play(Api.TXN_OFFSET_COMMIT, placed(txn()), version, view=NO_AUTHORIZER).may_read("g").coordinates(check)
    if refuses == "the coordinator":
        play.coordinator(CheckReply(loading)).answers(told(expected))
    elif refuses == "the broker":  # it is asked in the client's version, so it knows
        play.coordinator(CheckReply()).asks(placed(txn("", -1, None))).broker(told(expected)).answers(told(expected))
    else:
        play.coordinator(CheckReply(identity=IDENTITY))
        play.asks(placed(txn("ours-1", 1, "ours")), max(version, 3)).broker(told(loading)).answers(told(expected))


def test_a_transaction_without_read() -> None:
    """The broker looks at the transactional id first."""
    for code in (Code.GROUP_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        play = Play(Api.TXN_OFFSET_COMMIT, txn(), 5).may_not_read("g").shows(txn(), t=code)
        play.answers(txn_response(code))


# ---- in the placeholder's name ----------------------------------------------------------------------------------
IDENTITY, NEXT_IDENTITY = MemberIdentity("ours-1", 1, "ours"), MemberIdentity("ours-2", 1, "ours")
NOT_OURS = [
    Code.FENCED_INSTANCE_ID,
    Code.UNKNOWN_MEMBER_ID,
    Code.ILLEGAL_GENERATION,
    Code.REBALANCE_IN_PROGRESS,
    Code.GROUP_ID_NOT_FOUND,
]


def named(identity: MemberIdentity) -> oc.OffsetCommitRequest:
    return commit_request(ONE, member=identity.member_id, epoch=identity.generation, instance=identity.instance_id)


def again(version: int = 9, sent_as: MemberIdentity | None = IDENTITY) -> CommitCheck:
    return replace(check(ONE, version), again=True, sent_as=sent_as)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_of_a_group_with_members_goes_on_in_the_placeholders_name(version: int) -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), version).may_read("g").coordinates(check(ONE, version))
    conversation.coordinator(CheckReply(identity=IDENTITY)).asks(named(IDENTITY), max(version, 7)).broker(
        STORED
    ).answers(STORED)


@pytest.mark.parametrize("code", NOT_OURS)
def test_a_placeholder_that_the_broker_does_not_know_is_joined_anew(code: Code) -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    conversation.coordinator(CheckReply(identity=IDENTITY)).asks(named(IDENTITY)).broker(response(("t", 0, code)))
    conversation.coordinates(again()).coordinator(CheckReply(identity=NEXT_IDENTITY))
    conversation.asks(named(NEXT_IDENTITY)).broker(STORED).answers(STORED)


@pytest.mark.parametrize("code", NOT_OURS)
def test_the_client_never_hears_of_the_placeholder(code: Code) -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    conversation.coordinator(CheckReply(identity=IDENTITY)).asks(named(IDENTITY)).broker(response(("t", 0, code)))
    conversation.coordinates(again()).coordinator(CheckReply(identity=NEXT_IDENTITY))
    conversation.asks(named(NEXT_IDENTITY)).broker(response(("t", 0, code))).answers(
        response(("t", 0, Code.NOT_COORDINATOR))
    )


def test_a_former_owner_says_that_it_is_none() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    conversation.coordinator(CheckReply(identity=IDENTITY)).asks(named(IDENTITY)).broker(
        response(("t", 0, Code.FENCED_INSTANCE_ID))
    )
    moved = CheckReply(Code.NOT_COORDINATOR)
    conversation.coordinates(again()).coordinator(moved).answers(response(("t", 0, Code.NOT_COORDINATOR)))


def test_a_placeholder_left_behind_is_given_up_for_a_simple_consumer() -> None:
    simple = commit_request(ONE, member="", epoch=-1)
    event = replace(check(ONE), member_id="", member_epoch=-1)
    conversation = Play(Api.OFFSET_COMMIT, simple, 9).may_read("g").coordinates(event).coordinator(CheckReply())
    conversation.asks(simple).broker(response(("t", 0, Code.UNKNOWN_MEMBER_ID)))
    conversation.coordinates(replace(event, again=True)).coordinator(CheckReply())
    conversation.asks(simple).broker(STORED).answers(STORED)


def test_native_members_are_no_secret_to_a_simple_consumer() -> None:
    simple, unknown = commit_request(ONE, member="", epoch=-1), response(("t", 0, Code.UNKNOWN_MEMBER_ID))
    event = replace(check(ONE), member_id="", member_epoch=-1)
    conversation = Play(Api.OFFSET_COMMIT, simple, 9).may_read("g").coordinates(event).coordinator(CheckReply())
    conversation.asks(simple).broker(unknown).coordinates(replace(event, again=True)).coordinator(CheckReply())
    conversation.asks(simple).broker(unknown).answers(unknown)


def transaction(member: str, epoch: int, instance: str | None) -> tc.TxnOffsetCommitRequest:
    parts = [tc.TxnOffsetCommitRequestPartition(p, 100) for p in (0, 1)]
    topics = [tc.TxnOffsetCommitRequestTopic("t", partitions=parts)]
    return tc.TxnOffsetCommitRequest("txn", "g", 7, 1, epoch, member, instance, topics=topics)


def by_id(*topics: bytes, member: str = "m", epoch: int = 3) -> tc.TxnOffsetCommitRequest:
    rows = [
        tc.TxnOffsetCommitRequestTopic(topic_id=t, partitions=[tc.TxnOffsetCommitRequestPartition(0, 100)])
        for t in topics
    ]
    return tc.TxnOffsetCommitRequest("txn", "g", 7, 1, epoch, member, topics=rows)


def response_by_id(*rows: tuple[bytes, Code]) -> tc.TxnOffsetCommitResponse:
    part = tc.TxnOffsetCommitResponsePartition
    topics = [tc.TxnOffsetCommitResponseTopic(topic_id=t, partitions=[part(0, code)]) for t, code in rows]
    return tc.TxnOffsetCommitResponse(topics=topics)


BY_ID = CommitCheck("g", "m", 3, None, 6, True, (("", A, 0), ("", B, 0)))


def test_topics_of_a_transaction_by_id() -> None:
    """KIP-1319."""
    conversation = Play(Api.TXN_OFFSET_COMMIT, by_id(A, B), 6).may_read("g").coordinates(BY_ID)
    stored = response_by_id((A, Code.NONE), (B, Code.NONE))
    conversation.coordinator(CheckReply()).asks(by_id(A, B, member="", epoch=-1)).broker(stored).answers(stored)


@pytest.mark.parametrize("code", [Code.STALE_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND])
def test_the_error_codes_of_consumers_in_a_transaction(code: Code) -> None:
    conversation = Play(Api.TXN_OFFSET_COMMIT, by_id(A, B), 6, view=NO_AUTHORIZER).may_read("g").coordinates(BY_ID)
    conversation.coordinator(CheckReply(code)).answers(response_by_id((A, code), (B, code)))


def test_of_two_ids_in_a_transaction_the_unknown_one_is_refused() -> None:
    """Symptom: with ids, all topics had the name "", so one error was said of each of them."""
    unknown = Code.UNKNOWN_TOPIC_ID
    conversation = Play(Api.TXN_OFFSET_COMMIT, by_id(A, B), 6, view=GUARDED_ELSEWHERE).may_read("g").coordinates(BY_ID)
    probe, told_of_it = by_id(A, B), response_by_id((A, Code.UNKNOWN_TOPIC_OR_PARTITION), (B, unknown))
    for asked_of, told_of in zip(probe.topics, told_of_it.topics, strict=True):
        asked_of.partitions[0] = tc.TxnOffsetCommitRequestPartition(-1)
        told_of.partitions[0].partition_index = -1
    conversation.coordinator(CheckReply()).asks(probe).broker(told_of_it)
    conversation.stores(OTHER, by_id(A, member="", epoch=-1), 6).broker(response_by_id((A, Code.NONE)))
    conversation.answers(response_by_id((A, Code.NONE), (B, unknown)))


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_is_fenced_in_the_same_way(version: int) -> None:
    member, epoch = ("m", 3) if version >= 3 else ("", -1)
    event = CommitCheck("g", member, epoch, None, version, True, (("t", ZERO_UUID, 0), ("t", ZERO_UUID, 1)))
    conversation = Play(Api.TXN_OFFSET_COMMIT, transaction(member, epoch, None), version).may_read("g")
    conversation.coordinates(event).coordinator(CheckReply(identity=IDENTITY))
    sent = conversation.asks(transaction("ours-1", 1, "ours"), max(version, 3))
    sent.broker(txn_response(Code.FENCED_INSTANCE_ID)).coordinates(replace(event, again=True, sent_as=IDENTITY))
    sent = conversation.coordinator(CheckReply(identity=NEXT_IDENTITY)).asks(
        transaction("ours-2", 1, "ours"), max(version, 3)
    )
    sent.broker(txn_response(Code.FENCED_INSTANCE_ID)).answers(txn_response(Code.NOT_COORDINATOR))


def test_the_coordinator_hears_when_a_commit_has_ended() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    conversation.coordinator(CheckReply(identity=IDENTITY, ticket=7)).owes(7).asks(named(IDENTITY)).broker(
        STORED
    ).reports(7)
    conversation.answers(STORED)


def test_a_refused_commit_has_ended_before_it_is_checked_again() -> None:
    conversation = Play(Api.OFFSET_COMMIT, commit_request(ONE), 9).may_read("g").coordinates(check(ONE))
    conversation.coordinator(CheckReply(identity=IDENTITY, ticket=7)).owes(7).asks(named(IDENTITY))
    conversation.broker(response(("t", 0, Code.FENCED_INSTANCE_ID))).reports(7).coordinates(again())
    conversation.coordinator(CheckReply(identity=NEXT_IDENTITY, ticket=8)).owes(8).asks(named(NEXT_IDENTITY))
    conversation.broker(STORED).reports(8).answers(STORED)
