"""ShareGroupHeartbeat, ShareGroupDescribe and the offsets of share groups."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.api.call import Client
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    GroupsWithRecords,
    GroupsWithRecordsReply,
)
from sidecar.core.share.events import (
    DescribedShareMember,
    DescribeShareGroup,
    Operation,
    ShareAdmin,
    ShareAdministered,
    ShareAdminReply,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import OpenShareState
from sidecar.wire.apis import Api
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import delete_share_group_offsets as xs
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.api.play import ELSEWHERE, GUARDED_ELSEWHERE, OTHER, WHO, Message, Play

TOPIC = b"t" * 16
KNOWN = GroupsWithRecords(candidates=("g",))
HERE = GroupsWithRecordsReply(groups=frozenset({"g"}))
VERSIONS: dict[int, tuple[int, int]] = {Api.DESCRIBE_GROUPS: (0, 6), Api.SHARE_GROUP_DESCRIBE: (1, 1)}
JOIN = sh.ShareGroupHeartbeatRequest("g", "m", 0, None, ["a"])
BEAT = sh.ShareGroupHeartbeatRequest("g", "m", 3)
JOINED = ShareHeartbeat("g", "m", 0, None, ("a",), "app", "/10.0.0.9")


def share(api: Api, request: Message, version: int = 1, **given: Any) -> Play:
    return Play(api, request, version, share=True, **given)


# ---- heartbeats -----------------------------------------------------------------------------------------------------
def test_a_join_goes_to_the_coordinator_when_rights_are_known() -> None:
    play = share(Api.SHARE_GROUP_HEARTBEAT, JOIN).may_read("g").may_describe_topics("a").coordinates(JOINED)
    play.coordinator(
        ShareHeartbeatReply(member_id="m", member_epoch=2, heartbeat_interval_ms=5, assignment={TOPIC: (0, 1)})
    )
    parts = sh.Assignment([sh.TopicPartitions(TOPIC, [0, 1])])
    play.answers(sh.ShareGroupHeartbeatResponse(0, 0, None, "m", 2, 5, parts))


def test_a_steady_heartbeat_tells_no_assignment() -> None:
    play = share(Api.SHARE_GROUP_HEARTBEAT, BEAT).may_read("g")
    play.coordinates(ShareHeartbeat("g", "m", 3, None, None, "app", "/10.0.0.9"))
    play.coordinator(ShareHeartbeatReply(member_id="m", member_epoch=3, heartbeat_interval_ms=5))
    play.answers(sh.ShareGroupHeartbeatResponse(0, 0, None, "m", 3, 5))


def test_rights_to_the_group_come_first_then_the_member_id_then_topics() -> None:
    nameless = sh.ShareGroupHeartbeatRequest("g", "", 0, None, ["secret"])
    play = share(Api.SHARE_GROUP_HEARTBEAT, nameless).may_not_read("g")
    play.answers(sh.ShareGroupHeartbeatResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED))
    invalid = sh.ShareGroupHeartbeatResponse(0, Code.INVALID_REQUEST)
    share(Api.SHARE_GROUP_HEARTBEAT, nameless).may_read("g").answers(invalid)
    for member_id in ("m" * 37, "m" * 35 + "\U0001f600"):  # Java counts two characters for the last one
        long = sh.ShareGroupHeartbeatRequest("g", member_id, 0, None, ["secret"])
        share(Api.SHARE_GROUP_HEARTBEAT, long).may_read("g").answers(invalid)
    for member_id in ("m" * 36, "m" * 34 + "\U0001f600", "\u20ac" * 36):
        hidden = sh.ShareGroupHeartbeatRequest("g", member_id, 0, None, ["secret"])
        play = share(Api.SHARE_GROUP_HEARTBEAT, hidden).may_read("g").may_describe_topics("secret", hidden=["secret"])
        play.answers(sh.ShareGroupHeartbeatResponse(error_code=Code.TOPIC_AUTHORIZATION_FAILED))


def test_what_the_coordinator_refuses() -> None:
    play = share(Api.SHARE_GROUP_HEARTBEAT, BEAT).may_read("g")
    play.coordinates(ShareHeartbeat("g", "m", 3, None, None, "app", "/10.0.0.9"))
    play.coordinator(ShareHeartbeatReply(Code.UNKNOWN_MEMBER_ID, "no"))
    play.answers(sh.ShareGroupHeartbeatResponse(0, Code.UNKNOWN_MEMBER_ID, "no"))


def test_a_group_of_the_broker_is_left_to_it_and_no_client_dies_of_its_move() -> None:
    away = sh.ShareGroupHeartbeatRequest("theirs", "m", 0, None, ["a"])
    share(Api.SHARE_GROUP_HEARTBEAT, away).whose("theirs").forwards()
    gone = sh.ShareGroupHeartbeatRequest("theirs", "m", 4)
    play = share(Api.SHARE_GROUP_HEARTBEAT, gone).asks()
    play = play.broker(sh.ShareGroupHeartbeatResponse(error_code=Code.GROUP_ID_NOT_FOUND, error_message="x"))
    assert int.from_bytes(play.gives()[4:6], "big") == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1])
def test_where_share_groups_are_the_brokers_nothing_is_coordinated(version: int) -> None:
    play = Play(Api.SHARE_GROUP_HEARTBEAT, JOIN, version, share=version == 0)
    play.coordinates(KNOWN).coordinator(GroupsWithRecordsReply()).forwards()
    Play(Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest(["g"]), 1).forwards()
    Play(Api.DESCRIBE_SHARE_GROUP_OFFSETS, everything(), 1, view=ELSEWHERE).forwards()
    Play(Api.ALTER_SHARE_GROUP_OFFSETS, altered(), 0).forwards()
    Play(Api.DELETE_SHARE_GROUP_OFFSETS, deleted(), 0).forwards()


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        (dg.DescribedGroup(0, None, "g", "Empty"), True),
        (dg.DescribedGroup(0, None, "g", "Stable"), True),
        (dg.DescribedGroup(0, None, "g", "Dead"), False),
        (dg.DescribedGroup(69, "Group g not found.", "g", "Dead"), False),
    ],
)
def test_a_name_that_another_kind_of_group_has_at_the_broker(found: dg.DescribedGroup, taken: bool) -> None:
    play = joins_with(found)
    if taken:
        play.answers(sh.ShareGroupHeartbeatResponse(0, 69, "Group g is not a share group."))
    else:
        play.coordinates(JOINED).coordinator(ShareHeartbeatReply()).gives()


@pytest.mark.parametrize(
    "code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR]
)
@pytest.mark.parametrize("asked", ["DescribeGroups", "ShareGroupDescribe"])
def test_a_name_of_which_the_broker_cannot_tell_counts_as_no_free_one(code: Code, asked: str) -> None:
    """Symptom: a share group began under the name of a group of another kind that was being loaded at its broker, and
    never got any partitions. A broker has its members come again."""
    if asked == "DescribeGroups":
        play = joins_with(dg.DescribedGroup(code, None, "g"))
    else:
        play = joins_with(dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"))
        play.asks(sd.ShareGroupDescribeRequest(["g"]), 1)
        play.broker(sd.ShareGroupDescribeResponse(groups=[sd.DescribedGroup(code, None, "g")]))
    answer = sh.ShareGroupHeartbeatResponse.decode(1, play.gives())
    assert answer.error_code == code


@pytest.mark.parametrize("code", [Code.NONE, Code.GROUP_ID_NOT_FOUND])
def test_a_share_group_of_this_name_at_the_broker_is_no_other_kind(code: Code) -> None:
    play = joins_with(dg.DescribedGroup(69, "Group g is not a classic group.", "g", "Dead"))
    play.asks(sd.ShareGroupDescribeRequest(["g"]), 1)
    play.broker(sd.ShareGroupDescribeResponse(groups=[sd.DescribedGroup(code, None, "g")]))
    if code == Code.NONE:
        play.coordinates(JOINED).coordinator(ShareHeartbeatReply()).gives()
    else:
        play.answers(sh.ShareGroupHeartbeatResponse(0, 69, "Group g is not a share group."))


def joins_with(found: dg.DescribedGroup) -> Play:
    client = Client("10.0.0.9", broker_versions=VERSIONS)
    play = share(Api.SHARE_GROUP_HEARTBEAT, JOIN, client=client).may_read("g").may_describe_topics("a")
    play.coordinates(KNOWN).coordinator(GroupsWithRecordsReply())
    return play.asks(dg.DescribeGroupsRequest(["g"]), 6).broker(dg.DescribeGroupsResponse(groups=[found]))


# ---- descriptions ---------------------------------------------------------------------------------------------------
MEMBER = DescribedShareMember("m", "r", 3, "app", "/h", ("a", "b"), ((TOPIC, "a", (0, 1)),))
DESCRIBED = ShareDescribeReply(state="Stable", epoch=3, assignment_epoch=3, assignor="simple", members=(MEMBER,))


def test_a_group_is_described_by_its_coordinator() -> None:
    play = share(Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest(["g"])).may_describe("g")
    play.coordinates(DescribeShareGroup("g")).coordinator(DESCRIBED).may_describe_topics("a")
    assigned = sd.Assignment([sd.TopicPartitions(TOPIC, "a", [0, 1])])
    member = sd.Member("m", "r", 3, "app", "/h", ["a", "b"], assigned)
    play.answers(
        sd.ShareGroupDescribeResponse(groups=[sd.DescribedGroup(0, None, "g", "Stable", 3, 3, "simple", [member])])
    )


def test_who_may_not_describe_a_topic_is_told_nothing_of_the_group() -> None:
    play = share(Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest(["g"])).may_describe("g")
    play.coordinates(DescribeShareGroup("g")).coordinator(DESCRIBED).may_describe_topics("a", hidden=["a"])
    text = "The group has described topic(s) that the client is not authorized to describe."
    play.answers(sd.ShareGroupDescribeResponse(groups=[sd.DescribedGroup(29, text, "g")]))


def test_a_topic_that_a_member_only_subscribes_to_hides_nothing() -> None:
    """The broker is asked for topics of assignments alone."""
    unassigned = ShareDescribeReply(state="Stable", members=(replace(MEMBER, assignment=()),))
    play = share(Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest(["g"])).may_describe("g")
    play.coordinates(DescribeShareGroup("g")).coordinator(unassigned)
    (group,) = sd.ShareGroupDescribeResponse.decode(1, play.gives()).groups
    assert group.error_code == Code.NONE and group.members[0].subscribed_topic_names == ["a", "b"]


def test_groups_of_the_broker_are_described_by_it_and_those_that_are_hidden_by_nobody() -> None:
    play = share(Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest(["g", "theirs"]))
    theirs = sd.DescribedGroup(0, None, "theirs", "Empty", 1, 1, "simple")
    play.asks(sd.ShareGroupDescribeRequest(["theirs"])).broker(sd.ShareGroupDescribeResponse(groups=[theirs]))
    play.may_describe("g", hidden=["g"])
    play.answers(sd.ShareGroupDescribeResponse(groups=[sd.DescribedGroup(30, None, "g"), theirs]))


# ---- offsets --------------------------------------------------------------------------------------------------------
def everything(group: str = "g") -> ds.DescribeShareGroupOffsetsRequest:
    return ds.DescribeShareGroupOffsetsRequest([ds.DescribeShareGroupOffsetsRequestGroup(group, None)])


def kept(*topics: str) -> ds.DescribeShareGroupOffsetsResponse:
    told = [ds.DescribeShareGroupOffsetsResponseTopic(t, TOPIC) for t in topics]
    return ds.DescribeShareGroupOffsetsResponse(groups=[ds.DescribeShareGroupOffsetsResponseGroup("g", told)])


def altered(topics: tuple[str, ...] = ("a",)) -> al.AlterShareGroupOffsetsRequest:
    parts = [al.AlterShareGroupOffsetsRequestPartition(0, 5)]
    return al.AlterShareGroupOffsetsRequest("g", [al.AlterShareGroupOffsetsRequestTopic(t, parts) for t in topics])


def deleted() -> xs.DeleteShareGroupOffsetsRequest:
    return xs.DeleteShareGroupOffsetsRequest("g", [xs.DeleteShareGroupOffsetsRequestTopic("a")])


def test_any_broker_describes_named_partitions_and_the_groups_own_all_of_them() -> None:
    named = ds.DescribeShareGroupOffsetsRequestTopic("a", [0])
    request = ds.DescribeShareGroupOffsetsRequest([ds.DescribeShareGroupOffsetsRequestGroup("g", [named])])
    share(Api.DESCRIBE_SHARE_GROUP_OFFSETS, request, view=GUARDED_ELSEWHERE).forwards()
    share(Api.DESCRIBE_SHARE_GROUP_OFFSETS, everything()).forwards()
    play = share(Api.DESCRIBE_SHARE_GROUP_OFFSETS, everything(), view=GUARDED_ELSEWHERE).may_describe("g")
    play.stores(OTHER, everything(), 1).broker(kept("a", "secret"))
    play.may_describe_topics("a", "secret", hidden=["secret"]).answers(kept("a"))


def test_a_group_that_is_named_twice_has_its_answers_in_the_order_of_the_request() -> None:
    """Once all of it is asked for, which its keeper answers, and once named partitions, which any broker does."""
    named = ds.DescribeShareGroupOffsetsRequestGroup("g", [ds.DescribeShareGroupOffsetsRequestTopic("a", [0])])
    both = ds.DescribeShareGroupOffsetsRequest([*everything().groups, named])
    play = share(Api.DESCRIBE_SHARE_GROUP_OFFSETS, both, view=ELSEWHERE)
    play.asks(ds.DescribeShareGroupOffsetsRequest([named])).broker(kept("a")).may_describe("g")
    play.stores(OTHER, everything(), 1).broker(kept("a", "b"))
    play.answers(ds.DescribeShareGroupOffsetsResponse(groups=[*kept("a", "b").groups, *kept("a").groups]))


def test_what_may_take_the_broker_long_has_a_connection_to_itself() -> None:
    play = share(Api.DESCRIBE_SHARE_GROUP_OFFSETS, everything(), view=ELSEWHERE).may_describe("g")
    assert play._want is not None and getattr(play._want, "slow", False)
    play.stores(OTHER, everything(), 1).broker(kept("a")).answers(kept("a"))


def test_an_alteration_waits_until_the_placeholder_has_left() -> None:
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(), 0).may_read("g")
    play.coordinates(ShareAdmin("g", Operation.ALTER)).coordinator(ShareAdminReply(exists=True, placeholder=True))
    play.coordinates(OpenShareState("g")).coordinator(Answer())
    done = al.AlterShareGroupOffsetsResponse(responses=[al.AlterShareGroupOffsetsResponseTopic("a", TOPIC)])
    play.asks(altered()).broker(done)
    why = f"AlterShareGroupOffsets by {WHO}"
    play.coordinates(ShareAdministered("g", Operation.ALTER, why)).coordinator(Answer()).answers(done)


def test_an_alteration_of_topics_that_the_broker_does_not_know_makes_no_group() -> None:
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(), 0).may_read("g")
    play.coordinates(ShareAdmin("g", Operation.ALTER)).coordinator(ShareAdminReply())
    unknown = al.AlterShareGroupOffsetsResponse(responses=[al.AlterShareGroupOffsetsResponseTopic("a")])
    play.asks(altered()).broker(unknown).answers(unknown)


@pytest.mark.parametrize("busy", [True, False])
def test_without_topics_it_is_asked_whether_it_might_and_no_group_is_made(busy: bool) -> None:
    why = (Code.NON_EMPTY_GROUP, "The group is not empty.") if busy else (Code.NONE, None)
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(()), 0).may_read("g")
    play.coordinates(ShareAdmin("g", Operation.ALTER)).coordinator(ShareAdminReply(*why))
    nothing = al.AlterShareGroupOffsetsResponse(0, *why)
    if not busy:
        play.asks(altered(())).broker(nothing)
    play.answers(nothing)


def test_nothing_is_sent_while_the_group_has_members_or_its_placeholder_stays() -> None:
    busy = ShareAdminReply(Code.NON_EMPTY_GROUP, "The group is not empty.")
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(), 0).may_read("g")
    play.coordinates(ShareAdmin("g", Operation.ALTER)).coordinator(busy)
    play.answers(al.AlterShareGroupOffsetsResponse(0, 68, "The group is not empty."))
    play = share(Api.DELETE_SHARE_GROUP_OFFSETS, deleted(), 0).may_delete("g")
    play.coordinates(ShareAdmin("g", Operation.DELETE)).coordinator(ShareAdminReply(placeholder=True))
    play.coordinates(OpenShareState("g")).coordinator(Answer(Code.COORDINATOR_LOAD_IN_PROGRESS, "later"))
    play.answers(xs.DeleteShareGroupOffsetsResponse(0, 14, "later"))


def test_the_brokers_refusal_is_the_answer_and_nothing_is_written() -> None:
    refused = xs.DeleteShareGroupOffsetsResponse(0, 68, "The group is not empty.")
    play = share(Api.DELETE_SHARE_GROUP_OFFSETS, deleted(), 0).may_delete("g")
    play.coordinates(ShareAdmin("g", Operation.DELETE)).coordinator(ShareAdminReply())
    play.asks(deleted()).broker(refused).answers(refused)


def test_rights_are_those_of_the_client_where_another_broker_does_it() -> None:
    denied = Code.GROUP_AUTHORIZATION_FAILED
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(), 0, view=GUARDED_ELSEWHERE).may_not_read("g")
    play.answers(al.AlterShareGroupOffsetsResponse(0, denied, "Group authorization failed."))
    play = share(Api.ALTER_SHARE_GROUP_OFFSETS, altered(("a", "secret")), 0, view=GUARDED_ELSEWHERE).may_read("g")
    play.may_read_topics("a", "secret", refused=["secret"])
    play.coordinates(ShareAdmin("g", Operation.ALTER)).coordinator(ShareAdminReply())
    done = al.AlterShareGroupOffsetsResponseTopic("a", TOPIC)
    play.stores(OTHER, altered(), 0).broker(al.AlterShareGroupOffsetsResponse(responses=[done]))
    play.coordinates(ShareAdministered("g", Operation.ALTER, f"AlterShareGroupOffsets by {WHO}")).coordinator(Answer())
    row = al.AlterShareGroupOffsetsResponsePartition(0, 29, "Topic authorization failed.")
    secret = al.AlterShareGroupOffsetsResponseTopic("secret", partitions=[row])
    play.answers(al.AlterShareGroupOffsetsResponse(responses=[done, secret]))


def test_a_share_group_has_no_offsets_to_delete() -> None:
    request = od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic("a", [od.OffsetDeleteRequestPartition(0)])])
    play = share(Api.OFFSET_DELETE, request, 0).may_delete("g")
    play.coordinates(DeletionCheck("g")).coordinator(
        DeletionCheckReply(exists=True, kind="share", subscribed=frozenset({"a"}))
    )
    play.answers(od.OffsetDeleteResponse(error_code=Code.GROUP_ID_NOT_FOUND))


def test_a_share_group_is_deleted_at_the_broker_when_its_placeholder_has_left() -> None:
    request = dl.DeleteGroupsRequest(["g"])
    play = share(Api.DELETE_GROUPS, request, 2).may_delete("g")
    play.coordinates(DeletionCheck("g")).coordinator(DeletionCheckReply(exists=True, kind="share"))
    play.coordinates(ShareAdmin("g", Operation.DELETE_GROUP)).coordinator(ShareAdminReply(placeholder=True))
    play.coordinates(OpenShareState("g")).coordinator(Answer())
    done = dl.DeleteGroupsResponse(results=[dl.DeletableGroupResult("g")])
    play.asks(request).broker(done)
    play.coordinates(DeleteGroup("g", f"deleted by {WHO}")).coordinator(Answer()).answers(done)
