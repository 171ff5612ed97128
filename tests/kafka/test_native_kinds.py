"""A share group or streams group as its broker describes it, and how its members are sent away there."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sidecar.core.streams.tasks import Tasks
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native, share_group
from sidecar.kafka.native import Native
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_describe as td
from sidecar.wire.generated import streams_group_heartbeat as th
from sidecar.wire.primitives import WireError

TOPIC = bytes([7] * 16)


class Broker:
    """Has one group, a share group or a streams group."""

    def __init__(self, share: sd.DescribedGroup | None = None, streams: td.DescribedGroup | None = None) -> None:
        self.share, self.streams = share, streams
        self.asked: list[Any] = []
        self.answers = Code.NONE
        self.without: set[str] = set()
        """APIs that it does not know."""

    async def request(
        self, module: Any, name: str, req: Any, high: int | None = None, timeout_s: float = 10.0, low: int = 0
    ) -> Any:
        self.asked.append(req)
        if name in self.without:
            raise WireError(name)
        if name == "DescribeGroups":
            said = "Group g is not a classic group."
            return dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(69, said, group_state="Dead")])
        if name == "ConsumerGroupDescribe":
            return cd.ConsumerGroupDescribeResponse(groups=[cd.DescribedGroup(69)])
        if name == "ShareGroupDescribe":
            return sd.ShareGroupDescribeResponse(groups=[self.share or sd.DescribedGroup(69)])
        if name == "StreamsGroupDescribe":
            return td.StreamsGroupDescribeResponse(groups=[self.streams or td.DescribedGroup(69)])
        made = sh.ShareGroupHeartbeatResponse if name == "ShareGroupHeartbeat" else th.StreamsGroupHeartbeatResponse
        return made(error_code=self.answers)

    def describes(self) -> Native:
        return asyncio.run(native.describe(cast(BrokerConnection, self), "g", 1.0))


def share_group_of(*members: str) -> sd.DescribedGroup:
    has = sd.Assignment([sd.TopicPartitions(TOPIC, "orders", [1, 0])])
    told = [sd.Member(m, "r", 5, "app", "/h", ["orders"], has) for m in members]
    return sd.DescribedGroup(0, None, "g", "Stable", 6, 5, "simple", told)


def streams_group_of(state: str, epoch: int, active: list[int], wanted: list[int]) -> td.DescribedGroup:
    has, target = (td.Assignment([td.TaskIds("0", ps)]) for ps in (active, wanted))
    member = td.Member("m", epoch, "i", "r", "app", "/h", 1, "p", assignment=has, target_assignment=target)
    return td.DescribedGroup(0, None, "g", state, 6, 5, td.Topology(1, []), [member], assignor_name="sticky")


def test_a_share_group_is_told_without_the_placeholder_of_a_sidecar() -> None:
    ours = share_group.placeholder_id("g", 3)
    found = Broker(share_group_of("QKJ0Zd3NTmO0jsYFdYq2Pw", ours)).describes()
    (member,) = found.members
    assert (found.kind, found.epoch, found.assignment_epoch, found.stable) == (native.SHARE, 6, 5, True)
    assert (member.epoch, member.names, member.owned) == (5, ("orders",), {TOPIC: (0, 1)})
    assert found.topics == {TOPIC: "orders"}


@pytest.mark.parametrize("member_id", ["", "m", "QKJ0Zd3NTmO0jsYFdYq2Pw", "6ba7b811-9dad-41d1-80b4-00c04fd430c8"])
def test_ids_that_clients_make_are_no_placeholders(member_id: str) -> None:
    assert not share_group.is_placeholder(member_id)


@pytest.mark.parametrize(
    ("state", "epoch", "active", "wanted", "stable"),
    [
        ("Stable", 5, [0, 1], [1, 0], True),
        ("NotReady", 5, [], [], True),
        ("NotReady", 4, [], [], False),  # it has still to say that it has given up its tasks
        ("NotReady", 5, [0], [], False),
        ("Assigning", 5, [0], [0], False),
        ("Reconciling", 5, [0], [0, 1], False),
        ("Stable", -2, [0], [0], False),  # a static member that is away
    ],
)
def test_a_streams_group_may_come_when_nobody_has_a_task_to_give_up(
    state: str, epoch: int, active: list[int], wanted: list[int], stable: bool
) -> None:
    found = Broker(streams=streams_group_of(state, epoch, active, wanted)).describes()
    assert (found.kind, found.assignor, found.stable) == (native.STREAMS, "sticky", stable)
    told = found.members[0].streams
    assert told is not None and native.tasks(told.assignment) == Tasks({"0": tuple(active)} if active else {})


def test_a_broker_may_have_neither_kind() -> None:
    broker = Broker()
    broker.without = {"ShareGroupDescribe", "StreamsGroupDescribe"}
    assert broker.describes() == Native(native.OTHER)


def test_an_error_of_the_broker_is_no_word_about_the_group() -> None:
    with pytest.raises(ConnectionLost, match="ShareGroupDescribe: COORDINATOR_LOAD_IN_PROGRESS"):
        Broker(sd.DescribedGroup(Code.COORDINATOR_LOAD_IN_PROGRESS)).describes()


@pytest.mark.parametrize(
    ("code", "gone"),
    [(Code.NONE, True), (Code.UNKNOWN_MEMBER_ID, True), (Code.GROUP_ID_NOT_FOUND, True), (Code.NOT_COORDINATOR, False)],
)
@pytest.mark.parametrize("kind", [native.SHARE, native.STREAMS])
def test_members_leave_by_a_heartbeat_each(kind: str, code: Code, gone: bool) -> None:
    broker = Broker()
    broker.answers = code
    found = Native(kind, members=(native.Member("m1", None, "", ""), native.Member("m2", "i", "", "")))
    leaving = native.leave_one_by_one(cast(BrokerConnection, broker), found, "g", 1.0)
    if gone:
        asyncio.run(leaving)
        assert [(r.member_id, r.member_epoch) for r in broker.asked] == [("m1", -1), ("m2", -1)]
    else:
        with pytest.raises(ConnectionLost, match="NOT_COORDINATOR"):
            asyncio.run(leaving)
