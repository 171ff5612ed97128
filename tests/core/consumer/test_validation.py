"""Heartbeats of a consumer group that are refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic


def test_whoever_missed_the_answer_with_its_new_epoch_may_say_the_former_one_once_more() -> None:
    """However it came to that epoch: with other partitions, or with the same."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 1))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    for other in ("b", "c"):
        Client(world, "g", other, ("u",)).heartbeat()
        told, owned = a.epoch, dict(a.owned)
        a.heartbeat()
        assert a.epoch == told + 1 and a.owned == owned
        again = world.send(ConsumerHeartbeat("g", "a", told, owned=owned))
        assert (again.code, again.member_epoch) == (Code.NONE, told + 1)
        assert world.send(ConsumerHeartbeat("g", "a", told - 1, owned=owned)).code == Code.FENCED_MEMBER_EPOCH
        without_any = {**owned, topic(2, "u", 1).id: ()}
        assert world.send(ConsumerHeartbeat("g", "a", told, owned=without_any)).code == Code.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, 0, Code.NONE),
        (0, 1, Code.INVALID_REQUEST),
        (0, -1, Code.INVALID_REQUEST),
        (1, 0, Code.INVALID_REQUEST),
        (1, 1, Code.INVALID_REQUEST),
    ],
)
def test_only_a_first_heartbeat_of_the_first_version_names_no_member(version: int, epoch: int, code: Code) -> None:
    world = World()
    world.topics(topic(1, "t", 1))
    hb = ConsumerHeartbeat(
        "g", "", epoch, rebalance_timeout_ms=1_000, topic_names=("t",), owned={}, version=version, new_member_id="made"
    )
    assert world.send(hb).code == code


def test_a_group_has_only_so_many_regular_expressions() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, join_wait_ms=0, regexes_max=2))

    def joins(member: str, regex: str) -> Code:
        event = ConsumerHeartbeat("g", member, 0, None, None, 60_000, (), regex, None, {}, "c", "/h", 1)
        return world.ask(event).code

    assert [joins("a", "x"), joins("b", "y"), joins("c", "y")] == [Code.NONE] * 3
    assert joins("d", "z") == Code.GROUP_MAX_SIZE_REACHED
    assert joins("a", "z") == Code.NONE, "it gives the other one up"
    assert joins("b", "w") == Code.GROUP_MAX_SIZE_REACHED, "another member has that one, too"


@pytest.mark.parametrize("name", ["instance_id", "rack_id"])
def test_blank_ids_are_those_of_java(name: str) -> None:
    """Java's trim takes away the characters up to U+0020 and no others."""
    beat = ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=1_000, topic_names=("t",), owned={})
    assert World().send(replace(beat, **{name: "\u00a0"})).code == Code.NONE
    assert World().send(replace(beat, **{name: "\x00 "})).code == Code.INVALID_REQUEST
