"""Offsets that are kept at another broker than the client's: what the client may do with the topics is still asked of
its own broker, on its own connection."""

from __future__ import annotations

from msgspec.structs import replace

from sidecar.core.runtime.events import DeletionCheck, DeletionCheckReply, GroupsWithRecords, GroupsWithRecordsReply
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import ZERO_UUID
from tests.api.play import GUARDED_ELSEWHERE, OTHER, Play

DENIED = Code.TOPIC_AUTHORIZATION_FAILED
A, B = b"\1" * 16, b"\2" * 16


# ---- OffsetCommit -------------------------------------------------------------------------------------------------
def commit(*topics: str, member: str = "m", epoch: int = 3) -> oc.OffsetCommitRequest:
    parts = [oc.OffsetCommitRequestTopic(t, partitions=[oc.OffsetCommitRequestPartition(0, 7)]) for t in topics]
    return oc.OffsetCommitRequest("g", epoch, member, topics=parts)


def committed(**codes: int) -> oc.OffsetCommitResponse:
    topics = [
        oc.OffsetCommitResponseTopic(t, partitions=[oc.OffsetCommitResponsePartition(0, c)]) for t, c in codes.items()
    ]
    return oc.OffsetCommitResponse(topics=topics)


def committing(*topics: str) -> Play:
    play = Play(Api.OFFSET_COMMIT, commit(*topics), 9, view=GUARDED_ELSEWHERE).may_read("g")
    places = tuple((t, ZERO_UUID, 0) for t in topics)
    play.coordinates(CommitCheck("g", "m", 3, None, 9, False, places)).coordinator(CheckReply())
    return play


def test_a_client_that_goes_while_its_rights_are_asked_for_keeps_nobody_waiting() -> None:
    """Symptom: a commit waited up to 15 s for one that was never sent."""
    request = commit("mine")
    play = Play(Api.OFFSET_COMMIT, request, 9, view=GUARDED_ELSEWHERE).may_read("g")
    play.coordinates(CommitCheck("g", "m", 3, None, 9, False, (("mine", ZERO_UUID, 0),)))
    play.coordinator(CheckReply(ticket=7)).owes(7, sent=False).shows(request)
    play.owes(7).stores(OTHER, commit("mine", member="", epoch=-1), 9).broker(committed(mine=0)).reports(7)
    play.answers(committed(mine=0))


def test_a_topic_that_the_principal_may_not_read_is_not_committed() -> None:
    play = committing("mine", "secret").shows(commit("mine", "secret"), secret=DENIED)
    play.stores(OTHER, commit("mine", member="", epoch=-1), 9).broker(committed(mine=0))
    play.answers(committed(mine=0, secret=DENIED))


def test_a_commit_of_what_the_principal_may_read_goes_on() -> None:
    play = committing("mine").shows(commit("mine"))
    play.stores(OTHER, commit("mine", member="", epoch=-1), 9).broker(committed(mine=0)).answers(committed(mine=0))


# ---- TxnOffsetCommit ----------------------------------------------------------------------------------------------
def txn(*topics: str, member: str = "m", generation: int = 3) -> tc.TxnOffsetCommitRequest:
    parts = [tc.TxnOffsetCommitRequestTopic(t, partitions=[tc.TxnOffsetCommitRequestPartition(0, 7)]) for t in topics]
    return tc.TxnOffsetCommitRequest("t", "g", 1, 0, generation, member, None, parts)


def txn_done(**codes: int) -> tc.TxnOffsetCommitResponse:
    parts = tc.TxnOffsetCommitResponsePartition
    return tc.TxnOffsetCommitResponse(
        topics=[tc.TxnOffsetCommitResponseTopic(t, partitions=[parts(0, c)]) for t, c in codes.items()]
    )


def test_nor_in_a_transaction() -> None:
    request = txn("mine", "secret")
    play = Play(Api.TXN_OFFSET_COMMIT, request, 5, view=GUARDED_ELSEWHERE).may_read("g")
    places = (("mine", ZERO_UUID, 0), ("secret", ZERO_UUID, 0))
    play.coordinates(CommitCheck("g", "m", 3, None, 5, True, places)).coordinator(CheckReply(ticket=7))
    play.owes(7, sent=False).shows(request, secret=DENIED).owes(7)
    play.stores(OTHER, txn("mine", member="", generation=-1), 5).broker(txn_done(mine=0)).reports(7)
    play.answers(txn_done(mine=0, secret=DENIED))


def test_nor_anything_in_a_transaction_of_somebody_else() -> None:
    """Symptom: who had no WRITE of a transactional id committed under it. Cause: the other broker sees the sidecar's
    principal, and the client's own broker was heard of topics only."""
    request, refused = txn("mine"), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    play = Play(Api.TXN_OFFSET_COMMIT, request, 5, view=GUARDED_ELSEWHERE).may_read("g")
    play.coordinates(CommitCheck("g", "m", 3, None, 5, True, (("mine", ZERO_UUID, 0),)))
    play.coordinator(CheckReply(ticket=7)).owes(7, sent=False).shows(request, mine=refused).reports(7)
    play.answers(txn_done(mine=refused))


# ---- OffsetFetch --------------------------------------------------------------------------------------------------
def test_a_topic_that_the_principal_may_not_describe_has_no_offsets() -> None:
    wanted = [of.OffsetFetchRequestTopics(t, partition_indexes=[0]) for t in ("mine", "secret")]
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", None, -1, wanted)])
    play = Play(Api.OFFSET_FETCH, request, 9, view=GUARDED_ELSEWHERE).may_describe("g")
    play.coordinates(FetchCheck("g", None, -1)).coordinator(CheckReply())

    def fetch_response(code: int, offset: int) -> of.OffsetFetchResponse:
        mine = of.OffsetFetchResponseTopics("mine", partitions=[of.OffsetFetchResponsePartitions(0, 7, -1, "", 0)])
        secret = of.OffsetFetchResponsePartitions(0, offset, -1, "", code)
        topics = [mine, of.OffsetFetchResponseTopics("secret", partitions=[secret])]
        return of.OffsetFetchResponse(groups=[of.OffsetFetchResponseGroup("g", topics)])

    play.stores(OTHER, request, 9).broker(fetch_response(0, 9)).may_describe_topics(
        "mine", "secret", hidden=("secret",)
    )
    play.answers(fetch_response(DENIED, -1))


def test_who_asks_for_all_topics_sees_those_that_the_principal_may_describe() -> None:
    request = of.OffsetFetchRequest("g", None)
    play = Play(Api.OFFSET_FETCH, request, 7, view=GUARDED_ELSEWHERE).may_describe("g")
    play.coordinates(FetchCheck("g", None, -1)).coordinator(CheckReply())
    topics = [of.OffsetFetchResponseTopic(t, [of.OffsetFetchResponsePartition(0, 7)]) for t in ("mine", "secret")]
    play.stores(OTHER, request, 7).broker(of.OffsetFetchResponse(topics=topics))
    play.may_describe_topics("mine", "secret", hidden=("secret",)).answers(of.OffsetFetchResponse(topics=topics[:1]))


def test_topics_by_their_ids() -> None:
    wanted = [of.OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0]) for i in (A, B)]
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", None, -1, wanted)])
    play = Play(Api.OFFSET_FETCH, request, 10, view=GUARDED_ELSEWHERE).may_describe("g")
    play.coordinates(FetchCheck("g", None, -1)).coordinator(CheckReply())

    def fetch_response(code: int, offset: int) -> of.OffsetFetchResponse:
        rows = ((A, 0, 7), (B, code, offset))
        topics = [
            of.OffsetFetchResponseTopics(topic_id=i, partitions=[of.OffsetFetchResponsePartitions(0, o, -1, "", c)])
            for i, c, o in rows
        ]
        return of.OffsetFetchResponse(groups=[of.OffsetFetchResponseGroup("g", topics)])

    play.stores(OTHER, request, 10).broker(fetch_response(0, 9))
    asked = md.MetadataRequest([md.MetadataRequestTopic(i, None) for i in (A, B)], allow_auto_topic_creation=False)
    told = [md.MetadataResponseTopic(0, "mine", A), md.MetadataResponseTopic(0, "secret", B)]
    play.stores(OTHER, asked, 12).broker(md.MetadataResponse(topics=told))
    play.may_describe_topics("mine", "secret", hidden=("secret",)).answers(fetch_response(DENIED, -1))


# ---- OffsetDelete and DescribeGroups ------------------------------------------------------------------------------
def test_offsets_of_a_topic_that_the_principal_may_not_read_are_not_deleted() -> None:
    """Symptom: who had DELETE of the group deleted the offsets of any topic. Cause: as above."""
    parts = [od.OffsetDeleteRequestPartition(0)]

    def asking(*topics: str) -> od.OffsetDeleteRequest:
        return od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic(t, parts) for t in topics])

    def response(**codes: int) -> od.OffsetDeleteResponse:
        row = od.OffsetDeleteResponsePartition
        return od.OffsetDeleteResponse(topics=[od.OffsetDeleteResponseTopic(t, [row(0, c)]) for t, c in codes.items()])

    play = Play(Api.OFFSET_DELETE, asking("mine", "secret"), 0, view=GUARDED_ELSEWHERE).may_delete("g")
    play.coordinates(DeletionCheck("g")).coordinator(DeletionCheckReply()).may_read_topics(
        "mine", "secret", refused=("secret",)
    )
    play.opens("g").stores(OTHER, asking("mine"), 0).broker(response(mine=0)).answers(response(mine=0, secret=DENIED))


def test_a_group_of_which_only_offsets_are_there_is_described_by_the_broker_that_keeps_them() -> None:
    """Symptom: NOT_COORDINATOR, though FindCoordinator had named this broker."""
    request = dg.DescribeGroupsRequest(["g", "g2"])
    play = Play(Api.DESCRIBE_GROUPS, request, 6, view=GUARDED_ELSEWHERE)
    play.coordinates(GroupsWithRecords(candidates=("g", "g2"))).coordinator(GroupsWithRecordsReply()).may_describe(
        "g", "g2", hidden=["g"]
    )
    empty = dg.DescribedGroup(group_id="g2", group_state="Empty")
    play.stores(OTHER, dg.DescribeGroupsRequest(["g2"]), 6).broker(dg.DescribeGroupsResponse(groups=[empty]))
    refused = dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED, group_id="g")
    play.answers(dg.DescribeGroupsResponse(groups=[refused, empty]))


def test_rights_are_asked_for_when_the_offsets_move_between_two_tries() -> None:
    """L5 of the security review. The first try went to the client's own broker, whose authorizer saw it; the second one
    goes elsewhere."""
    play = Play(Api.OFFSET_COMMIT, commit("mine", "secret"), 9).may_read("g")
    event = CommitCheck("g", "m", 3, None, 9, False, tuple((t, ZERO_UUID, 0) for t in ("mine", "secret")))
    play.coordinates(event).coordinator(CheckReply())
    unknown = committed(mine=Code.UNKNOWN_MEMBER_ID, secret=DENIED)
    play.asks(commit("mine", "secret", member="", epoch=-1)).view_changes(GUARDED_ELSEWHERE).broker(unknown)
    play.coordinates(replace(event, again=True, sent_as=None)).coordinator(CheckReply())
    play.shows(commit("mine", "secret"), secret=DENIED)
    play.stores(OTHER, commit("mine", member="", epoch=-1), 9).broker(committed(mine=0))
    play.answers(committed(mine=0, secret=DENIED))


def test_so_are_those_of_a_commit_in_a_transaction() -> None:
    request = tc.TxnOffsetCommitRequest("tx", "g", 5, 2, 3, "m", topics=_in_transaction("mine", "secret"))
    play = Play(Api.TXN_OFFSET_COMMIT, request, 5).may_read("g")
    event = CommitCheck("g", "m", 3, None, 5, True, tuple((t, ZERO_UUID, 0) for t in ("mine", "secret")))
    play.coordinates(event).coordinator(CheckReply())
    nobodys = replace(request, member_id="", generation_id_or_member_epoch=-1)
    unknown = txn_response(mine=Code.UNKNOWN_MEMBER_ID, secret=Code.UNKNOWN_MEMBER_ID)
    play.asks(nobodys).view_changes(GUARDED_ELSEWHERE).broker(unknown)
    play.coordinates(replace(event, again=True, sent_as=None)).coordinator(CheckReply())
    play.shows(nobodys, secret=DENIED)
    play.stores(OTHER, replace(nobodys, topics=_in_transaction("mine")), 5).broker(txn_response(mine=0))
    play.answers(txn_response(mine=0, secret=DENIED))


def _in_transaction(*topics: str) -> list[tc.TxnOffsetCommitRequestTopic]:
    return [tc.TxnOffsetCommitRequestTopic(t, partitions=[tc.TxnOffsetCommitRequestPartition(0, 7)]) for t in topics]


def txn_response(**codes: int) -> tc.TxnOffsetCommitResponse:
    row = tc.TxnOffsetCommitResponsePartition
    return tc.TxnOffsetCommitResponse(
        topics=[tc.TxnOffsetCommitResponseTopic(t, partitions=[row(0, c)]) for t, c in codes.items()]
    )
