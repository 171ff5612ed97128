"""The last rebalances of groups that end, begin anew, or change their protocol."""

from __future__ import annotations

from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.embedded import assignment
from sidecar.core.classic.events import JoinReply
from sidecar.core.consumer.records import GroupRecord
from sidecar.core.runtime.events import DeleteGroup
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import StateKey
from tests.coordinator.inspect.test_group_views import Seen
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic
from tests.process.test_admin_views import done


def classic_group() -> World:
    """A classic group of one member, which has all partitions of a topic."""
    world = World(classic=ClassicConfig(initial_rebalance_delay_ms=0))
    world.topics(topic(1, "a", 2))
    old = ClassicClient("old", version=3, protocols=(("range", subscription(["a"])),))
    reply = world.ask(old.join())
    assert isinstance(reply, JoinReply)
    old.joined(reply)
    world.ask(old.sync({old.member_id: assignment(3, [("a", (0, 1))])}))
    return world


def rebalances(world: World) -> list[tuple[str, list[str], list[str], int | None]]:
    """The reason of each, the newest first, with those that joined and left, and the number of moved partitions."""
    shown = Seen(world.log).page()["rebalances"]
    return [(r["why"].partition(":")[0], r["joined"]["names"], r["left"]["names"], r["moved"]) for r in shown]


def test_they_stay_when_a_group_changes_its_protocol() -> None:
    """Symptom: at an upgrade and a downgrade all earlier ones were gone, and all members seemed to have joined."""
    world = classic_group()
    before = rebalances(world)
    assert [joined for _, joined, _, _ in before] == [["old-1"], []]
    new = Client(world, "g", "new", ("a",))
    new.heartbeat()
    upgraded = rebalances(world)
    assert upgraded == [
        ("new joined", ["new"], [], 1),
        ("upgraded from the classic protocol", [], [], 0),
        *before,
    ]
    new.leave()
    downgraded, *former = rebalances(world)[-len(upgraded) - 1 :]
    assert downgraded == ("downgraded to the classic protocol", [], ["new"], 0) and former == upgraded


def test_those_of_a_deleted_group_are_not_those_of_a_new_one() -> None:
    world = World()
    world.topics(topic(1, "a", 2))
    for name in ("first", "second"):
        member = Client(world, "g", name, ("a",))
        member.heartbeat()
        shown = rebalances(world)
        assert [joined for _, joined, _, _ in shown] == [[name]]
        member.leave()
        world.ask(DeleteGroup("g"))


def test_values_of_another_kind_are_left_out() -> None:
    """Symptom: the page of the group failed with a KeyError."""
    codec = StateCodec()
    history = RebalanceHistory(3, codec)
    odd = codec.claim(Stamp(1, 1), 1, "host:9092", "member", 1, "taken over").value
    joined = codec.encode(GroupRecord("g", 1, 0, "joined"), Stamp(1, 1), 1).value
    for value in (odd, joined):
        history.note(StateKey("group", "g", ""), None, value)
        for kind in ("target_metadata", "target_member", "current"):
            history.note(StateKey(kind, "g", "m"), odd, odd)
    assert [r["why"] for r in done(history.of("g"))] == ["joined"]
