"""Records of share groups: as Avro and back, and what a rebuild makes of a log that compaction has been at."""

from __future__ import annotations

import pytest

from sidecar.assign.simple import SIMPLE
from sidecar.core.consumer.records import GroupRecord as ConsumerGroupRecord
from sidecar.core.modern.target_table import MemberTargets
from sidecar.core.runtime.group_loader import load
from sidecar.core.runtime.records import Record, Tombstone, key_of
from sidecar.core.share.assignor_run import ShareRun, run
from sidecar.core.share.group import Member, ShareGroup
from sidecar.core.share.records import RECORDS, Kind, MemberRecord, TargetMemberRecord
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import StateKey
from tests.core.share.world import Client, World, topic, topic_id

A = topic_id(1)


def records() -> list[Record]:
    """Returns records of the group `g`: each kind at least once."""
    world = World()
    world.topics(topic(1, "a", 4), topic(2, "b", 1))
    Client(world, "g", "m1", ("a",)).heartbeat()
    world.initialised("g", {A: (0, 1, 2, 3)})
    world.sleep(1_000)
    Client(world, "g", "m2", ("b", "a")).heartbeat()
    return world.compacted()


MADE = records()
STAMP = Stamp(3 << 16, 1_795_000_001_000)


def test_each_kind_is_there() -> None:
    assert {str(r.kind) for r in MADE} == {str(k) for k in Kind}
    assert {r.name for r in RECORDS} == set(Kind)


@pytest.mark.parametrize("record", MADE, ids=lambda r: f"{r.kind}-{r.sub_id}")
def test_a_record_comes_back_from_its_bytes(record: Record) -> None:
    codec = StateCodec()
    encoded = codec.encode(record, STAMP, 7)
    read, revision = codec.decode(StateKey(*key_of(record)), encoded.value)
    again = codec.encode(read, STAMP, 7)
    assert revision == 7 and again == encoded
    assert key_of(read) == key_of(record) and read.why == record.why


def test_a_member_comes_back_with_its_rack() -> None:
    codec = StateCodec()
    for rack_id in (None, "r"):
        record = MemberRecord("g", "m", rack_id, "c", "/h", ("a", "b"), "joined")
        encoded = codec.encode(record, STAMP, 1)
        assert codec.decode(StateKey(*key_of(record)), encoded.value) == (record, 1)


@pytest.mark.parametrize("n", range(len(MADE)))
def test_a_record_may_be_alone_or_missing(n: int) -> None:
    """Row 6.12: compaction leaves parts."""
    one = MADE[n]
    world = World()
    shard = world.empty()
    load(shard, "g", [one], world.now)
    shard.wake(world.now)
    shard = world.empty()
    load(shard, "g", [r for r in MADE if r is not one], world.now)
    shard.wake(world.now)
    assert list(shard.groups) == ["g"]


@pytest.mark.parametrize("n", range(len(MADE)))
def test_a_tombstone_of_what_nobody_knows_makes_no_group(n: int) -> None:
    kind, group_id, sub_id = key_of(MADE[n])
    shard = World().empty()
    shard.replay(Tombstone(kind, group_id, sub_id))
    assert shard.groups == {}


def test_tombstones_take_all_of_a_group() -> None:
    world = World()
    world.topics(topic(1, "a", 4), topic(2, "b", 1))
    load(world.shard, "g", MADE, world.now)
    tombstones = world.group("g").tombstones("gone")
    assert {key_of(t) for t in tombstones} == {key_of(r) for r in MADE}
    for tombstone in tombstones:
        world.shard.replay(tombstone)
    assert world.shard.groups == {} and world.shard.held_bytes == 0


def test_a_rebuild_does_not_depend_on_the_order_of_the_log() -> None:
    world = World()
    shards = []
    for order in (MADE, MADE[::-1]):
        shard = world.empty()
        load(shard, "g", order, world.now)
        group = shard.groups["g"]
        assert isinstance(group, ShareGroup)
        shards.append((group.members, group.initialised, {m: group.target.of(m) for m in group.target}, group.epoch))
    assert shards[0] == shards[1]


def test_a_record_of_another_kind_of_group_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantError, match="has no record GroupRecord"):
        ShareGroup("g").replay(ConsumerGroupRecord("g", 3, 0))


def test_targets_encoded_ahead_are_the_same_bytes() -> None:
    """By the arrays in the background, or one record at a time."""
    codec, members = StateCodec(), {f"m{i}": Member(f"m{i}", topic_names=("a", "bü")) for i in range(5)}
    image = TopicImage().next([topic(1, "a", 3), topic(2, "bü", 200)])[0]
    initialised = {topic_id(1): (0, 2), topic_id(2): tuple(range(150))}
    inp = ShareRun("g", 1, 5, "simple", image, members, frozenset(("a", "bü")), initialised, MemberTargets())
    table = run(inp, SIMPLE).table
    made = codec.targets(Kind.TARGET_MEMBER, "g", table, list(members), "why ü", STAMP, {})
    for m in members:
        record = TargetMemberRecord("g", m, table.get(m) or {}, image.names, "why ü")
        assert made.values[m] == codec.encode(record, STAMP, 1)
