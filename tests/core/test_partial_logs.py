"""Row 6.12: compaction may leave part of a group behind, or the end of one that nobody has heard of. Neither is an
error (KAFKA-19862 and KAFKA-17306 were such errors)."""

from __future__ import annotations

import pytest

from sidecar.core.classic.events import JoinReply
from sidecar.core.runtime.group_loader import load
from sidecar.core.runtime.records import Record, Tombstone, key_of
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic


def records() -> list[Record]:
    """Returns records of the consumer group `g` and the classic group `h`, each kind at least once."""
    world = World()
    world.topics(topic(1, "a", 4))
    Client(world, "g", "m1", ("a",)).heartbeat()
    Client(world, "g", "m2", ("a",), instance_id="i2").heartbeat()
    Client(world, "g", "m3", None, regex="a.*").heartbeat()
    world.resolve()
    world.sleep(3_000)
    client = ClassicClient("c", "h", instance_id="i", protocols=(("range", subscription(["a"])),))
    token = world.request(client.join())
    world.sleep(3_000)
    reply = world.replies.pop(token).answer
    assert isinstance(reply, JoinReply)
    client.joined(reply)
    world.ask(client.sync({client.member_id: b"x"}))
    return world.compacted()


RECORDS = records()


def test_each_kind_is_there() -> None:
    consumer = {"group", "member", "static_member", "target_metadata", "target_member", "current", "regex"}
    assert {str(r.kind) for r in RECORDS} == consumer | {"classic_group", "classic_member", "classic_assignment"}


@pytest.mark.parametrize("n", range(len(RECORDS)))
def test_a_record_may_be_alone_or_missing(n: int) -> None:
    one = RECORDS[n]
    world = World()
    shard = world.empty()
    load(shard, one.group_id, [one], world.now)
    shard = world.empty()
    load(shard, one.group_id, [r for r in RECORDS if r.group_id == one.group_id and r is not one], world.now)
    assert list(shard.groups) == [one.group_id]


@pytest.mark.parametrize("n", range(len(RECORDS)))
def test_a_tombstone_of_what_nobody_knows_makes_no_group(n: int) -> None:
    kind, group_id, sub_id = key_of(RECORDS[n])
    shard = World().empty()
    shard.replay(Tombstone(kind, group_id, sub_id))
    assert shard.groups == {}
