"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version: the rights come first, then the coordinator decides;
what members say and are assigned passes as it is (docs/reference/behaviour.md, rows 1.1 to 1.24)."""

from __future__ import annotations

import pytest
from msgspec import structs

from sidecar.api.call import Client
from sidecar.api.classic import LEAVING, REMOVED
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinedMember,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    Left,
    SyncGroup,
    SyncReply,
)
from sidecar.core.runtime.events import Answer
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import sync_group as sy
from tests.api.play import ELSEWHERE, VIEW, WHO, Message, Play

OPAQUE = b"\x00\xff what a member says is not read \x80"
DENIED = Code.GROUP_AUTHORIZATION_FAILED


def versions(api: Api) -> range:
    return range(SERVED[api].low, SERVED[api].high + 1)


# ---- JoinGroup ------------------------------------------------------------------------------------------------------
PROTOCOLS = [jg.JoinGroupRequestProtocol("range", OPAQUE), jg.JoinGroupRequestProtocol("coop", b"")]
JOIN = jg.JoinGroupRequest("g", 10_000, 60_000, "m", "i", "consumer", PROTOCOLS, "a reason")


def join(version: int, client_id: str | None = "app") -> Play:
    return Play(Api.JOIN_GROUP, JOIN, version, client_id=client_id)


def joining(version: int, client_id: str = "app") -> JoinGroup:
    """The coordinator's event, by version."""
    return JoinGroup(
        group_id="g",
        member_id="m",
        instance_id="i" if version >= 5 else None,
        protocol_type="consumer",
        protocols=(("range", OPAQUE), ("coop", b"")),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
        reason="a reason" if version >= 8 else None,
        client_id=client_id,
        client_host="/10.0.0.9",
        version=version,
        new_id="",  # it has one
    )


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_the_leader_joins(version: int) -> None:
    members = (JoinedMember("m", "i", OPAQUE), JoinedMember("m2", None, b""))
    reply = JoinReply(
        member_id="m",
        generation=7,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        skip_assignment=True,
        members=members,
    )
    told = jg.JoinGroupResponse(
        0,
        0,
        7,
        "consumer" if version >= 7 else None,
        "range",
        "m",
        version >= 9,
        "m",
        [jg.JoinGroupResponseMember(m.member_id, m.instance_id, m.metadata) for m in members],
    )
    join(version).may_read("g").coordinates(joining(version)).coordinator(reply).answers(told)


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_a_join_that_is_refused_tells_no_protocol(version: int) -> None:
    """Null can be said from v7 on; before, the name is empty."""
    reply = JoinReply(Code.MEMBER_ID_REQUIRED, "a text that nobody gets", member_id="app-new-id")
    told = jg.JoinGroupResponse(
        error_code=Code.MEMBER_ID_REQUIRED,
        generation_id=-1,
        protocol_name=None if version >= 7 else "",
        member_id="app-new-id",
    )
    join(version).may_read("g").coordinates(joining(version)).coordinator(reply).answers(told)


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_a_protocol_without_a_name_is_none(version: int) -> None:
    """As in Kafka's JoinGroupResponse."""
    reply = JoinReply(generation=1, protocol_type="consumer", protocol="", member_id="m")
    told = jg.JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer" if version >= 7 else None,
        protocol_name=None if version >= 7 else "",
        member_id="m",
    )
    join(version).may_read("g").coordinates(joining(version)).coordinator(reply).answers(told)


@pytest.mark.parametrize("version", versions(Api.JOIN_GROUP))
def test_a_join_without_read(version: int) -> None:
    told = jg.JoinGroupResponse(error_code=DENIED, generation_id=-1, protocol_name=None if version >= 7 else "")
    join(version).may_not_read("g").answers(told)


def test_v0_has_one_timeout_for_both() -> None:
    assert joining(0).rebalance_timeout_ms == joining(0).session_timeout_ms == 10_000
    assert jg.JoinGroupRequest.decode(0, JOIN.encode(0)).rebalance_timeout_ms == -1, "and the message has no other"


def test_a_client_without_a_name_joins() -> None:
    play = join(9, client_id=None).may_read("g").coordinates(joining(9, client_id=""))
    play.coordinator(JoinReply(Code.REBALANCE_IN_PROGRESS)).gives()


# ---- SyncGroup ------------------------------------------------------------------------------------------------------
ASSIGNED = [sy.SyncGroupRequestAssignment("m", OPAQUE), sy.SyncGroupRequestAssignment("m2", b"")]
SYNC = sy.SyncGroupRequest("g", 7, "m", "i", "consumer", "range", ASSIGNED)


def syncing(version: int) -> SyncGroup:
    return SyncGroup(
        "g",
        "m",
        "i" if version >= 3 else None,
        7,
        "consumer" if version >= 5 else None,
        "range" if version >= 5 else None,
        (("m", OPAQUE), ("m2", b"")),
    )


@pytest.mark.parametrize("version", versions(Api.SYNC_GROUP))
def test_a_member_syncs(version: int) -> None:
    protocol_type, name = ("consumer", "range") if version >= 5 else (None, None)
    told = sy.SyncGroupResponse(0, 0, protocol_type, name, OPAQUE)
    play = Play(Api.SYNC_GROUP, SYNC, version).may_read("g").coordinates(syncing(version))
    play.coordinator(SyncReply(protocol_type="consumer", protocol="range", assignment=OPAQUE)).answers(told)


@pytest.mark.parametrize("version", versions(Api.SYNC_GROUP))
def test_a_sync_that_is_refused(version: int) -> None:
    code = Code.REBALANCE_IN_PROGRESS
    play = Play(Api.SYNC_GROUP, SYNC, version).may_read("g").coordinates(syncing(version))
    play.coordinator(SyncReply(code)).answers(sy.SyncGroupResponse(error_code=code))
    Play(Api.SYNC_GROUP, SYNC, version).may_not_read("g").answers(sy.SyncGroupResponse(error_code=DENIED))


@pytest.mark.parametrize("version", versions(Api.SYNC_GROUP))
def test_while_the_coordinator_loads_members_join_again(version: int) -> None:
    """To Java's consumer COORDINATOR_LOAD_IN_PROGRESS is an unexpected error in SyncGroup, and it ends."""
    play = Play(Api.SYNC_GROUP, SYNC, version).may_read("g").coordinates(syncing(version))
    play.coordinator(SyncReply(Code.COORDINATOR_LOAD_IN_PROGRESS, "loading"))
    play.answers(sy.SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))


@pytest.mark.parametrize(("protocol_type", "name"), [(None, "range"), ("consumer", None), (None, None)])
def test_v5_must_name_the_protocol(protocol_type: str | None, name: str | None) -> None:
    """KIP-559. The broker says so whatever the rights are, but to nobody who has not authenticated."""
    without = sy.SyncGroupRequest("g", 7, "m", None, protocol_type, name)
    told = sy.SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL)
    Play(Api.SYNC_GROUP, without, 5).may_read("g").answers(told)
    Play(Api.SYNC_GROUP, without, 5).may_not_read("g").answers(told)


# ---- Heartbeat ------------------------------------------------------------------------------------------------------
BEAT = hb.HeartbeatRequest("g", 7, "m", "i")


def beat(version: int) -> Play:
    return Play(Api.HEARTBEAT, BEAT, version)


def beating(version: int) -> ClassicHeartbeat:
    return ClassicHeartbeat("g", "m", "i" if version >= 3 else None, 7)


@pytest.mark.parametrize("version", versions(Api.HEARTBEAT))
@pytest.mark.parametrize("code", [Code.NONE, Code.REBALANCE_IN_PROGRESS, Code.FENCED_INSTANCE_ID, Code.NOT_COORDINATOR])
def test_a_heartbeat(version: int, code: Code) -> None:
    play = beat(version).may_read("g").coordinates(beating(version))
    play.coordinator(Answer(code, "a text that nobody gets")).answers(hb.HeartbeatResponse(error_code=code))


@pytest.mark.parametrize("version", versions(Api.HEARTBEAT))
def test_while_the_coordinator_loads_all_is_well(version: int) -> None:
    play = beat(version).may_read("g").coordinates(beating(version))
    play.coordinator(Answer(Code.COORDINATOR_LOAD_IN_PROGRESS)).answers(hb.HeartbeatResponse())


@pytest.mark.parametrize("version", versions(Api.HEARTBEAT))
def test_a_heartbeat_without_read(version: int) -> None:
    beat(version).may_not_read("g").answers(hb.HeartbeatResponse(error_code=DENIED))


def test_the_rights_are_kept_from_one_request_to_the_next() -> None:
    client = Client("10.0.0.9")
    play = Play(Api.JOIN_GROUP, JOIN, 9, client=client).may_read("g").coordinates(joining(9))
    play.coordinator(JoinReply()).gives()
    play = Play(Api.HEARTBEAT, BEAT, 4, client=client).coordinates(beating(4))
    play.coordinator(Answer()).answers(hb.HeartbeatResponse())


# ---- LeaveGroup -----------------------------------------------------------------------------------------------------
BY_OTHER = f"not provided (removed by {WHO})"
ONE = le.LeaveGroupRequest("g", "m")
SEVERAL = le.LeaveGroupRequest("g", "", [le.MemberIdentity("m", None, "a reason"), le.MemberIdentity("", "i")])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("code", [Code.NONE, Code.UNKNOWN_MEMBER_ID])
def test_one_member_leaves_and_its_code_is_that_of_the_answer(version: int, code: Code) -> None:
    play = Play(Api.LEAVE_GROUP, ONE, version).may_read("g")
    play = play.coordinates(LeaveGroup("g", (Leaving("m", None, None),)))
    play.coordinator(LeaveReply(members=(Left("m", None, code),))).answers(le.LeaveGroupResponse(error_code=code))


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave_and_each_has_a_code_of_its_own(version: int) -> None:
    reason = "a reason" if version >= 5 else None
    play = Play(Api.LEAVE_GROUP, SEVERAL, version).may_read("g")
    play = play.coordinates(LeaveGroup("g", (Leaving("m", None, reason), Leaving("", "i", BY_OTHER))))
    left = (Left("m", None, Code.NONE), Left("", "i", Code.UNKNOWN_MEMBER_ID))
    told = [le.MemberResponse("m", None, 0), le.MemberResponse("", "i", Code.UNKNOWN_MEMBER_ID)]
    play.coordinator(LeaveReply(members=left)).answers(le.LeaveGroupResponse(members=told))


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (le.MemberIdentity("m", "i", "closed"), "closed"),
        (le.MemberIdentity("m", None, None), None),
        (le.MemberIdentity("", "i", "it hangs"), f"it hangs (removed by {WHO})"),
        (le.MemberIdentity("", "i", None), BY_OTHER),
        (le.MemberIdentity("m", None, f"{REMOVED}: it hangs"), f"{REMOVED}: it hangs (removed by {WHO})"),
    ],
)
def test_who_removes_a_member_is_named(left: le.MemberIdentity, told: str | None) -> None:
    play = Play(Api.LEAVE_GROUP, le.LeaveGroupRequest("g", "", [left]), 5).may_read("g")
    event = LeaveGroup("g", (Leaving(left.member_id, left.group_instance_id, told),))
    refused = LeaveReply(Code.NOT_COORDINATOR)
    play.coordinates(event).coordinator(refused).answers(le.LeaveGroupResponse(error_code=Code.NOT_COORDINATOR))


@pytest.mark.parametrize("version", versions(Api.LEAVE_GROUP))
def test_a_leave_that_is_refused_as_a_whole(version: int) -> None:
    asked = ONE if version < 3 else SEVERAL
    play = Play(Api.LEAVE_GROUP, asked, version).may_read("g")
    reason = "a reason" if version >= 5 else None
    members = (Leaving("m", None, None),) if version < 3 else (Leaving("m", None, reason), Leaving("", "i", BY_OTHER))
    play = play.coordinates(LeaveGroup("g", members)).coordinator(LeaveReply(Code.NOT_COORDINATOR))
    play.answers(le.LeaveGroupResponse(error_code=Code.NOT_COORDINATOR))
    Play(Api.LEAVE_GROUP, asked, version).may_not_read("g").answers(le.LeaveGroupResponse(error_code=DENIED))


# ---- all four -------------------------------------------------------------------------------------------------------
THEIRS: list[tuple[Api, Message]] = [
    (Api.JOIN_GROUP, jg.JoinGroupRequest("theirs", 10_000, 10_000, "m", None, "consumer", PROTOCOLS)),
    (Api.SYNC_GROUP, sy.SyncGroupRequest("theirs", 1, "m")),
    (Api.HEARTBEAT, hb.HeartbeatRequest("theirs", 1, "m")),
    (Api.LEAVE_GROUP, le.LeaveGroupRequest("theirs", "m")),
]


@pytest.mark.parametrize(("api", "asked"), THEIRS, ids=lambda v: v.name.lower() if isinstance(v, Api) else "")
def test_a_group_of_the_broker_passes_untouched(api: Api, asked: Message) -> None:
    for version in versions(api):
        for view in (VIEW, ELSEWHERE):
            play = Play(api, asked, version, view=view)
            (play.whose("theirs") if api is Api.JOIN_GROUP else play).forwards()


def test_nobody_joins_at_the_broker_while_it_is_not_known_whether_the_group_was_taken_in() -> None:
    """Symptom: a sidecar that had heard nothing of it let a group begin anew at the broker (simulation, seed 12903)."""
    theirs = jg.JoinGroupRequest("theirs", 10_000, 60_000, "m", "i", "consumer", PROTOCOLS, "a reason")
    code = Code.COORDINATOR_NOT_AVAILABLE
    for version in versions(Api.JOIN_GROUP):
        refused = jg.JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "")
        Play(Api.JOIN_GROUP, theirs, version).whose("theirs", code).may_read("theirs").answers(refused)
    play = Play(Api.JOIN_GROUP, theirs, 9).whose("theirs", code).may_not_read("theirs")
    play.answers(jg.JoinGroupResponse(error_code=DENIED, protocol_name=None))
    play = Play(Api.JOIN_GROUP, theirs, 9).whose("theirs", taken_in=True).may_read("theirs")
    joined = structs.replace(joining(9), group_id="theirs")
    told = play.coordinates(joined).coordinator(JoinReply(Code.NOT_COORDINATOR))
    told.answers(jg.JoinGroupResponse(error_code=Code.NOT_COORDINATOR, protocol_name=None))


def test_thousands_of_members_leave_in_steps() -> None:
    """Symptom: 60,000 members that are none held the loop for 0.3 s."""
    many = [le.MemberIdentity(f"m{n}", None) for n in range(LEAVING + 1)]
    unknown = tuple(Left(m.member_id, None, Code.UNKNOWN_MEMBER_ID) for m in many)
    play = Play(Api.LEAVE_GROUP, le.LeaveGroupRequest("g", "", many), 4).may_read("g")
    for part in (slice(0, LEAVING), slice(LEAVING, None)):
        play = play.coordinates(LeaveGroup("g", tuple(Leaving(m.member_id, None, None) for m in many[part])))
        play = play.coordinator(LeaveReply(members=unknown[part]))
    play.answers(le.LeaveGroupResponse(members=[le.MemberResponse(m.member_id, None, m.code) for m in unknown]))
