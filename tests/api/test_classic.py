"""The classic protocol is refused for managed groups, with the errors for members whom a group does not admit."""

from __future__ import annotations

import pytest

from sidecar.core.errors import Code
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import sync_group as sy
from tests.api.play import Message, Play

UNKNOWN = Code.UNKNOWN_MEMBER_ID
CASES: list[tuple[Api, Message, Message]] = [
    (
        Api.JOIN_GROUP,
        jg.JoinGroupRequest("g", 10_000, 10_000, "m", protocol_type="consumer"),
        jg.JoinGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL, generation_id=-1, member_id="m"),
    ),
    (Api.SYNC_GROUP, sy.SyncGroupRequest("g", 1, "m"), sy.SyncGroupResponse(error_code=UNKNOWN)),
    (Api.HEARTBEAT, hb.HeartbeatRequest("g", 1, "m"), hb.HeartbeatResponse(error_code=UNKNOWN)),
    (Api.LEAVE_GROUP, le.LeaveGroupRequest("g", "m"), le.LeaveGroupResponse(error_code=UNKNOWN)),
]


@pytest.mark.parametrize(("api", "asked", "answer"), CASES, ids=lambda v: v.name.lower() if isinstance(v, Api) else "")
def test_members_of_the_classic_protocol_are_refused(api: Api, asked: Message, answer: Message) -> None:
    for version in range(SERVED[api].low, SERVED[api].high + 1):
        Play(api, asked, version).answers(answer)
