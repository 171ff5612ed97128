"""A managed group and a share or streams group of the broker never have one name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from sidecar.api.call import Client, Learnt
from sidecar.api.one_name import FREE_MS
from sidecar.core.classic.events import JoinGroup, JoinReply
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    GroupsWithRecords,
    GroupsWithRecordsReply,
)
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.api.play import VIEW, Clock, Message, Play

KNOWN = GroupsWithRecords(candidates=("g",))
HERE, NOWHERE = GroupsWithRecordsReply(groups=frozenset({"g"})), GroupsWithRecordsReply()
SHARE, STREAMS = sh.ShareGroupHeartbeatRequest("g", "m", 0), st.StreamsGroupHeartbeatRequest("g", "m", 0)
NEW: dict[int, tuple[int, int]] = {Api.DESCRIBE_GROUPS: (0, 6), Api.CONSUMER_GROUP_DESCRIBE: (0, 1)}
OLD: dict[int, tuple[int, int]] = {Api.DESCRIBE_GROUPS: (0, 5)}
JOIN = jg.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [jg.JoinGroupRequestProtocol("range", b"")])
BEAT = ch.ConsumerGroupHeartbeatRequest("g", "m", 0, topic_partitions=[], subscribed_topic_names=[])


# ---- groups of the broker -----------------------------------------------------------------------------------------
def test_a_share_member_does_not_join_a_managed_group() -> None:
    told = sh.ShareGroupHeartbeatResponse(error_code=69, error_message="Group g is not a share group.")
    play = Play(Api.SHARE_GROUP_HEARTBEAT, SHARE, 1).coordinates(KNOWN).coordinator(HERE).may_read("g")
    play.coordinates(DeletionCheck("g")).coordinator(DeletionCheckReply(exists=True, kind="consumer")).answers(told)


@pytest.mark.parametrize(
    ("standing", "code"),
    [
        (lambda kind: DeletionCheckReply(exists=True, kind=kind), Code.COORDINATOR_NOT_AVAILABLE),
        (lambda kind: DeletionCheckReply(code=Code.NOT_COORDINATOR), Code.NOT_COORDINATOR),
    ],
)
def test_a_group_of_a_kind_that_is_left_to_the_broker_here_waits_for_another_sidecar(
    standing: Callable[[str], DeletionCheckReply], code: Code
) -> None:
    """Symptom: a share consumer ended for good (GROUP_ID_NOT_FOUND) where its group's partition had gone to a sidecar
    whose `groups.kinds` had no share yet."""
    play = Play(Api.SHARE_GROUP_HEARTBEAT, sh.ShareGroupHeartbeatRequest("g", "m", 5), 1).coordinates(KNOWN)
    play.coordinator(HERE).may_read("g").coordinates(DeletionCheck("g")).coordinator(standing("share"))
    play.answers(sh.ShareGroupHeartbeatResponse(error_code=code))
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, st.StreamsGroupHeartbeatRequest("g", "m", 5), 0).coordinates(KNOWN)
    play.coordinator(HERE).may_read("g").coordinates(DeletionCheck("g")).coordinator(standing("streams"))
    play.answers(st.StreamsGroupHeartbeatResponse(error_code=code))


def test_who_may_not_read_the_group_hears_nothing_else_and_changes_nothing() -> None:
    """Symptom: an empty classic group was deleted by a streams member without rights."""
    denied = Code.GROUP_AUTHORIZATION_FAILED
    play = Play(Api.SHARE_GROUP_HEARTBEAT, SHARE, 1).coordinates(KNOWN).coordinator(HERE).may_not_read("g")
    play.answers(sh.ShareGroupHeartbeatResponse(error_code=denied))
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, STREAMS, 0).coordinates(KNOWN).coordinator(HERE).may_not_read("g")
    play.answers(st.StreamsGroupHeartbeatResponse(error_code=denied))


def test_nor_who_may_not_describe_the_topics() -> None:
    denied = Code.TOPIC_AUTHORIZATION_FAILED
    request = sh.ShareGroupHeartbeatRequest("g", "m", 0, None, ["secret"])
    play = Play(Api.SHARE_GROUP_HEARTBEAT, request, 1).coordinates(KNOWN).coordinator(HERE).may_read("g")
    play.may_describe_topics("secret", hidden=["secret"]).answers(sh.ShareGroupHeartbeatResponse(error_code=denied))


def test_a_share_group_under_a_name_that_nobody_has_is_the_brokers() -> None:
    Play(Api.SHARE_GROUP_HEARTBEAT, SHARE, 1).coordinates(KNOWN).coordinator(NOWHERE).forwards()


@pytest.mark.parametrize(
    "request_", [sh.ShareGroupHeartbeatRequest("theirs"), st.StreamsGroupHeartbeatRequest("theirs")]
)
def test_other_names_are_the_brokers(request_: Message) -> None:
    api = (
        Api.SHARE_GROUP_HEARTBEAT
        if isinstance(request_, sh.ShareGroupHeartbeatRequest)
        else Api.STREAMS_GROUP_HEARTBEAT
    )
    Play(api, request_, 1 if api == Api.SHARE_GROUP_HEARTBEAT else 0).forwards()


@pytest.mark.parametrize(
    "standing",
    [DeletionCheckReply(exists=True, kind="consumer"), DeletionCheckReply(exists=True, kind="classic", members=1)],
)
def test_a_streams_member_does_not_join_a_managed_group(standing: DeletionCheckReply) -> None:
    told = st.StreamsGroupHeartbeatResponse(error_code=69, error_message="Group g is not a streams group.")
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, STREAMS, 0).coordinates(KNOWN).coordinator(HERE).may_read("g")
    play.coordinates(DeletionCheck("g")).coordinator(standing).answers(told)


def test_an_empty_classic_group_gives_its_name_to_a_streams_group() -> None:
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, STREAMS, 0).coordinates(KNOWN).coordinator(HERE).may_read("g")
    play.coordinates(DeletionCheck("g")).coordinator(DeletionCheckReply(exists=True, kind="classic"))
    play.coordinates(DeleteGroup("g")).coordinator(Answer()).forwards()


# ---- a fleet in which not every sidecar coordinates the kind -------------------------------------------------------
MIXED = structs.replace(VIEW, lacking=("share", "streams"))


def test_no_group_begins_that_another_owner_would_not_coordinate() -> None:
    unavailable, text = Code.COORDINATOR_NOT_AVAILABLE, TEXT[Code.COORDINATOR_NOT_AVAILABLE]
    play = Play(Api.SHARE_GROUP_HEARTBEAT, SHARE, 1, share=True, view=MIXED).may_read("g")
    play.coordinates(KNOWN).coordinator(NOWHERE)
    play.answers(sh.ShareGroupHeartbeatResponse(error_code=unavailable, error_message=text))
    play = Play(Api.STREAMS_GROUP_HEARTBEAT, STREAMS, 0, streams=True, view=MIXED).may_read("g")
    play.coordinates(KNOWN).coordinator(NOWHERE)
    play.answers(st.StreamsGroupHeartbeatResponse(error_code=unavailable, error_message=text))


def test_a_group_that_is_there_goes_on() -> None:
    play = Play(Api.SHARE_GROUP_HEARTBEAT, SHARE, 1, share=True, view=MIXED).may_read("g")
    play.coordinates(KNOWN).coordinator(HERE)
    play.coordinates(ShareHeartbeat("g", "m", 0, client_id="app", client_host="/10.0.0.9"))
    play.coordinator(ShareHeartbeatReply(member_id="m", member_epoch=3)).gives()


# ---- groups here --------------------------------------------------------------------------------------------------
def described(code: int, message: str | None) -> dg.DescribeGroupsResponse:
    return dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(code, message, "g", "Dead")])


EVENT = JoinGroup("g", "", None, "consumer", (("range", b""),), 10_000, 10_000, None, "app", "/10.0.0.9", 9, "new-id")
JOINED = JoinReply(member_id="m", generation=1)


def let_in(play: Play) -> None:
    play.coordinates(EVENT).coordinator(JOINED).gives()


def joins(versions: dict[int, tuple[int, int]] | None = None) -> Play:
    client = Client("10.0.0.9", broker_versions=versions or {**NEW})
    return Play(Api.JOIN_GROUP, JOIN, 9, client=client).may_read("g")


def test_the_first_member_of_a_group_whose_name_a_share_group_has_is_refused() -> None:
    play = joins().coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(69, "Group g is not a classic group."))
    other = cd.DescribedGroup(69, "Group g is not a consumer group.", "g")
    play.asks(cd.ConsumerGroupDescribeRequest(["g"]), 0).broker(cd.ConsumerGroupDescribeResponse(groups=[other]))
    play.answers(jg.JoinGroupResponse(error_code=23, generation_id=-1, protocol_name=None))


def test_so_is_its_first_member_of_the_consumer_protocol() -> None:
    play = (
        Play(Api.CONSUMER_GROUP_HEARTBEAT, BEAT, 1, client=Client("10.0.0.9", broker_versions={**NEW}))
        .may_read("g")
        .coordinates(KNOWN)
        .coordinator(NOWHERE)
    )
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(69, "Group g is not a classic group."))
    other = cd.DescribedGroup(69, "Group g is not a consumer group.", "g")
    play.asks(cd.ConsumerGroupDescribeRequest(["g"]), 0).broker(cd.ConsumerGroupDescribeResponse(groups=[other]))
    text = "Group g is not a consumer group."
    play.answers(ch.ConsumerGroupHeartbeatResponse(0, 69, text, None, 0, 0))


@pytest.mark.parametrize(("code", "message"), [(0, None), (69, "Group g not found.")])
def test_a_classic_group_of_the_broker_or_none_is_no_hindrance(code: int, message: str | None) -> None:
    play = joins().coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(code, message))
    let_in(play)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_while_the_broker_cannot_tell_nobody_begins_a_group(code: int) -> None:
    """Symptom: a classic group began beside a share group of its name, while the broker loaded its groups."""
    play = joins().coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(code, None))
    play.answers(jg.JoinGroupResponse(error_code=code, generation_id=-1, protocol_name=None))
    play = Play(Api.CONSUMER_GROUP_HEARTBEAT, BEAT, 1, client=Client("10.0.0.9", broker_versions={**NEW}))
    play.may_read("g").coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(code, None))
    play.answers(ch.ConsumerGroupHeartbeatResponse(0, code, TEXT[Code(code)], None, 0, 0))


def test_a_consumer_group_of_the_broker_is_no_hindrance() -> None:
    play = joins().coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(69, "Group g is not a classic group."))
    same = cd.ConsumerGroupDescribeResponse(groups=[cd.DescribedGroup(0, None, "g", "Empty")])
    play.asks(cd.ConsumerGroupDescribeRequest(["g"]), 0).broker(same)
    let_in(play)


def test_a_group_that_is_known_here_is_not_asked_for() -> None:
    let_in(joins().coordinates(KNOWN).coordinator(HERE))


def test_nor_is_an_older_broker() -> None:
    let_in(joins({**OLD}))


def test_what_the_broker_was_asked_for_one_goes_for_those_that_come_with_it() -> None:
    """The members of a new group come together, each on a connection of its own."""
    learnt, clock = Learnt(), Clock()

    def new_play() -> Play:
        client = Client("10.0.0.9", broker_versions={**NEW})
        return Play(Api.JOIN_GROUP, JOIN, 9, client=client, clock=clock, learnt=learnt)

    first, second = new_play(), new_play()
    clock.ms += 1
    first.may_read("g").coordinates(KNOWN).coordinator(NOWHERE)
    first.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(69, "Group g not found."))
    let_in(first)
    let_in(second.may_read("g"))
    clock.ms += FREE_MS - 1
    let_in(new_play().may_read("g"))
    clock.ms += 1
    late = new_play().may_read("g").coordinates(KNOWN).coordinator(NOWHERE)
    late.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(69, "Group g not found."))
    let_in(late)


def test_a_client_that_may_not_describe_the_group_learns_nothing_for_others() -> None:
    learnt = Learnt()
    client = Client("10.0.0.9", broker_versions={**NEW})
    play = Play(Api.JOIN_GROUP, JOIN, 9, client=client, learnt=learnt).may_read("g")
    play.coordinates(KNOWN).coordinator(NOWHERE)
    play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(described(30, None))
    let_in(play)
    assert not learnt.free
