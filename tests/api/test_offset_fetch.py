"""OffsetFetch: the member is checked by the coordinator, the offsets are the broker's."""

from __future__ import annotations

import pytest

from sidecar.core.runtime.offset_checks import CheckReply, FetchCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.messages import View
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_fetch as of
from tests.api.play import ADDRESSES, ELSEWHERE, NODE, OTHER, Play

OK = CheckReply()
Group = of.OffsetFetchRequestGroup
Topic = of.OffsetFetchRequestTopics
GroupRow = of.OffsetFetchResponseGroup


def request_of_one_group(version: int) -> of.OffsetFetchRequest:
    topic = of.OffsetFetchRequestTopic("t", [0, 1])
    return of.OffsetFetchRequest("g", [topic], require_stable=version >= 7)


def offsets(version: int) -> of.OffsetFetchResponse:
    parts = [of.OffsetFetchResponsePartition(p, 7 + p, -1 if version < 5 else 2, "") for p in (0, 1)]
    return of.OffsetFetchResponse(topics=[of.OffsetFetchResponseTopic("t", parts)])


def request_of_groups(*groups: of.OffsetFetchRequestGroup) -> of.OffsetFetchRequest:
    return of.OffsetFetchRequest(groups=list(groups), require_stable=True)


def response(*groups: of.OffsetFetchResponseGroup) -> of.OffsetFetchResponse:
    return of.OffsetFetchResponse(groups=list(groups))


def test_offsets_in_zookeeper_are_no_coordinators() -> None:
    """A broker without ZooKeeper refuses to tell them."""
    Play(Api.OFFSET_FETCH, request_of_one_group(0), 0).forwards()


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_goes_on_as_it_is(version: int) -> None:
    conversation = Play(Api.OFFSET_FETCH, request_of_one_group(version), version).may_describe("g")
    conversation.coordinates(FetchCheck("g", None, -1)).coordinator(OK)
    conversation.asks(request_of_one_group(version)).broker(offsets(version)).answers(offsets(version))


@pytest.mark.parametrize("version", range(1, 8))
def test_one_group_is_refused_in_the_words_of_its_version(version: int) -> None:
    code = Code.COORDINATOR_LOAD_IN_PROGRESS
    conversation = Play(Api.OFFSET_FETCH, request_of_one_group(version), version).may_describe("g")
    conversation.coordinates(FetchCheck("g", None, -1)).coordinator(CheckReply(code))
    parts = [of.OffsetFetchResponsePartition(p, -1, -1, "", code) for p in (0, 1)]
    topics = [of.OffsetFetchResponseTopic("t", parts)] if version == 1 else []
    conversation.answers(of.OffsetFetchResponse(topics=topics, error_code=code))


def test_all_topics_of_a_refused_group() -> None:
    request = of.OffsetFetchRequest("g", None)
    refused = of.OffsetFetchResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED)
    Play(Api.OFFSET_FETCH, request, 5).may_describe("g", hidden=["g"]).answers(refused)


@pytest.mark.parametrize("version", [9, 10])
def test_a_checked_member_is_not_told_to_the_broker(version: int) -> None:
    conversation = Play(Api.OFFSET_FETCH, request_of_groups(Group("g", "m", 4)), version).may_describe("g")
    conversation.coordinates(FetchCheck("g", "m", 4)).coordinator(OK)
    conversation.asks(request_of_groups(Group("g"))).broker(response(GroupRow("g"))).answers(response(GroupRow("g")))


@pytest.mark.parametrize("code", [Code.STALE_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.NOT_COORDINATOR])
def test_a_refused_member(code: Code) -> None:
    conversation = Play(Api.OFFSET_FETCH, request_of_groups(Group("g", "m", 4)), 9).may_describe("g")
    conversation.coordinates(FetchCheck("g", "m", 4)).coordinator(CheckReply(code))
    conversation.answers(response(GroupRow("g", error_code=code)))


@pytest.mark.parametrize("version", [8, 9, 10])
def test_managed_and_other_groups_in_one_request(version: int) -> None:
    request = request_of_groups(Group("g"), Group("theirs"), Group("g2"))
    conversation = Play(Api.OFFSET_FETCH, request, version).may_describe("g", "g2", hidden=["g"])
    conversation.coordinates(FetchCheck("g2", None, -1)).coordinator(OK)
    theirs = response(GroupRow("theirs", error_code=Code.GROUP_AUTHORIZATION_FAILED), GroupRow("g2"))
    conversation.asks(request_of_groups(Group("theirs"), Group("g2"))).broker(theirs)
    conversation.answers(response(GroupRow("g", error_code=Code.GROUP_AUTHORIZATION_FAILED), *theirs.groups))


def test_groups_of_others_are_fetched_even_if_ours_are_refused() -> None:
    conversation = Play(Api.OFFSET_FETCH, request_of_groups(Group("theirs"), Group("g", "m", 4)), 9).may_describe("g")
    stale = CheckReply(Code.STALE_MEMBER_EPOCH)
    conversation.coordinates(FetchCheck("g", "m", 4)).coordinator(stale).asks(request_of_groups(Group("theirs")))
    conversation.broker(response(GroupRow("theirs"))).answers(
        response(GroupRow("theirs"), GroupRow("g", error_code=stale.code))
    )


def test_the_offsets_leader_is_elsewhere() -> None:
    conversation = Play(Api.OFFSET_FETCH, request_of_groups(Group("g")), 9, view=ELSEWHERE).may_describe("g")
    conversation.coordinates(FetchCheck("g", None, -1)).coordinator(OK)
    conversation.stores(OTHER, request_of_groups(Group("g")), 9).broker(response(GroupRow("g"))).answers(
        response(GroupRow("g"))
    )


def test_a_member_of_a_group_of_others_is_the_brokers_to_check() -> None:
    request = request_of_groups(Group("g", "m", 4), Group("theirs", "n", 7))
    conversation = Play(Api.OFFSET_FETCH, request, 9).may_describe("g")
    conversation.coordinates(FetchCheck("g", "m", 4)).coordinator(OK)
    conversation.asks(request_of_groups(Group("g"), Group("theirs", "n", 7))).broker(
        response(GroupRow("g"), GroupRow("theirs"))
    )
    conversation.answers(response(GroupRow("g"), GroupRow("theirs")))


def test_each_group_is_fetched_where_its_offsets_are() -> None:
    split = View(owners=(NODE,) * 3, leaders=(OTHER, NODE, NODE), brokers=ADDRESSES)
    here, there = "g", "g2"
    assert (partition_for(here, 3), partition_for(there, 3)) == (1, 0)
    request = request_of_groups(Group(here), Group(there), Group("theirs"))
    conversation = Play(Api.OFFSET_FETCH, request, 9, view=split).may_describe(here, there)
    conversation.coordinates(FetchCheck(here, None, -1)).coordinator(OK)
    conversation.coordinates(FetchCheck(there, None, -1)).coordinator(OK)
    conversation.asks(request_of_groups(Group(here), Group("theirs"))).broker(
        response(GroupRow(here), GroupRow("theirs"))
    )
    conversation.stores(OTHER, request_of_groups(Group(there)), 9).broker(response(GroupRow(there)))
    conversation.answers(response(GroupRow(here), GroupRow(there), GroupRow("theirs")))


def test_what_is_named_twice_is_asked_for_once() -> None:
    """Symptom: one group named again and again multiplied the answer on a connection that all clients share."""
    once = request_of_groups(Group("g"), Group("g2", topics=[Topic("a", partition_indexes=[1, 2])]))
    both = [Group("g2", topics=[Topic("a", partition_indexes=twice)]) for twice in ([1, 1], [2, 1])]
    twice = request_of_groups(Group("g"), both[0], Group("g"), both[1])
    conversation = Play(Api.OFFSET_FETCH, twice, 9, view=ELSEWHERE).may_describe("g")
    for group in ("g", "g2", "g", "g2"):
        conversation.coordinates(FetchCheck(group, None, -1)).coordinator(OK)
    conversation.stores(OTHER, once, 9).broker(response(GroupRow("g"), GroupRow("g2"))).answers(
        response(GroupRow("g"), GroupRow("g2"))
    )


def test_all_topics_of_a_group_are_more_than_some() -> None:
    some, everything = Group("g", topics=[Topic("a", partition_indexes=[1])]), Group("g", topics=None)
    conversation = Play(Api.OFFSET_FETCH, request_of_groups(some, everything), 9, view=ELSEWHERE).may_describe("g")
    for _ in range(2):
        conversation.coordinates(FetchCheck("g", None, -1)).coordinator(OK)
    conversation.stores(OTHER, request_of_groups(everything), 9).broker(response(GroupRow("g"))).answers(
        response(GroupRow("g"))
    )
