"""Commits and fetches of a consumer group's offsets: their epochs, and their partitions (KIP-848, KIP-1251)."""

from __future__ import annotations

import pytest

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.vocabulary.errors import Code
from tests.core.world import Client, World, topic, topic_id


def commit(
    world: World, member: str, epoch: int, version: int | None = None, transactional: bool = False, partition: int = 0
) -> Code:
    version = version or (5 if transactional else 9)
    check = CommitCheck("g", member, epoch, None, version, transactional, (("t", topic_id(1), partition),))
    return world.ask(check).code


def test_offset_commit_is_fenced_by_epoch() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    assert commit(world, "", -1) == 0, "a simple commit to a group without members"
    assert commit(world, "m", 3) == Code.UNKNOWN_MEMBER_ID
    assert commit(world, "m", 3, version=8) == Code.ILLEGAL_GENERATION
    assert commit(world, "m", 3, version=5, transactional=True) == Code.ILLEGAL_GENERATION
    assert commit(world, "m", 3, version=6, transactional=True) == Code.GROUP_ID_NOT_FOUND, "KIP-1319"
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    b.heartbeat()
    assert commit(world, "a", a.epoch) == 0
    assert commit(world, "a", a.epoch, version=8) == Code.UNSUPPORTED_VERSION
    assert commit(world, "a", a.epoch + 1) == Code.STALE_MEMBER_EPOCH
    assert commit(world, "a", a.epoch + 1, transactional=True) == Code.ILLEGAL_GENERATION
    assert commit(world, "a", a.epoch + 1, version=6, transactional=True) == Code.STALE_MEMBER_EPOCH, "KIP-1319"
    assert commit(world, "x", 2) == Code.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1) == Code.UNKNOWN_MEMBER_ID, "members are there: nobody else may commit"
    assert commit(world, "", -1, transactional=True) == 0, "KIP-447: without member id it is not checked"
    old = a.epoch
    a.heartbeat()
    a.heartbeat()
    assert a.epoch == old + 1
    assert commit(world, "a", old, partition=0) == 0, "KIP-1251: still its own since before"
    assert commit(world, "a", old, partition=3) == Code.STALE_MEMBER_EPOCH, "no longer its own"


def test_an_older_epoch_commits_what_the_member_has_had_since_then_and_is_still_giving_up() -> None:
    """KIP-1251: not what it was given in a later epoch."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    first = a.epoch
    b.heartbeat()
    for _ in range(2):
        a.heartbeat()
        b.heartbeat()
    with_two = a.epoch
    b.leave()
    while len(a.partitions()) < 4:
        a.heartbeat()
    assert first < with_two < a.epoch
    assert [commit(world, "a", with_two, partition=p) for p in range(4)] == [0, 0, *[Code.STALE_MEMBER_EPOCH] * 2]
    assert [commit(world, "a", a.epoch, partition=p) for p in range(4)] == [0] * 4
    Client(world, "g", "c", ("t",)).heartbeat()
    before = a.epoch
    a.heartbeat()
    member = world.group("g").members["a"]
    assert member.pending and member.member_epoch == before, "it is told to give two up"
    assert [commit(world, "a", before, partition=p) for p in range(4)] == [0] * 4
    a.owned = {t: ps[:2] for t, ps in a.owned.items()}
    member = world.group("g").members["a"]
    a.heartbeat()
    assert [commit(world, "a", before, partition=p) for p in range(4)] == [0, 0, *[Code.STALE_MEMBER_EPOCH] * 2]


def test_one_partition_that_may_not_be_committed_refuses_the_commit() -> None:
    """As at Kafka, whose validator ends the request (OffsetMetadataManager.commitOffset)."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    first = a.epoch
    for client in (b, a, a, b):
        client.heartbeat()
    assert a.epoch > first and set(a.partitions()) == {(topic_id(1), 0), (topic_id(1), 1)}
    for epoch in (first, a.epoch):
        codes = []
        for partitions in ((0, 1), (1, 2)):
            places = tuple(("t", topic_id(1), p) for p in partitions)
            codes.append(world.ask(CommitCheck("g", "a", epoch, None, 9, False, places)).code)
        assert codes == [0, Code.STALE_MEMBER_EPOCH]


def test_an_older_epoch_commits_what_the_member_is_giving_up() -> None:
    """KIP-1251: what was consumed before the member was told to give it up."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 1))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    first = a.epoch
    Client(world, "g", "of another topic", ("u",)).heartbeat()
    a.heartbeat()
    assert a.epoch == first + 1
    Client(world, "g", "c", ("t",)).heartbeat()
    a.heartbeat()
    member = world.group("g").members["a"]
    assert member.member_epoch == a.epoch == first + 1 and set(member.pending[topic_id(1)]) == {2, 3}
    assert [commit(world, "a", first, partition=p) for p in range(4)] == [0] * 4


@pytest.mark.parametrize("strict", [True, False])
def test_nobody_commits_for_a_partition_that_another_member_owns(strict: bool) -> None:
    config = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, refuse_commits_of_others=strict)
    world = World(config)
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    b.heartbeat()
    assert commit(world, "b", b.epoch, partition=3) == (Code.STALE_MEMBER_EPOCH if strict else 0), "not given up yet"
    assert commit(world, "a", a.epoch, partition=3) == 0
    for _ in range(2):
        a.heartbeat()
        b.heartbeat()
    assert commit(world, "b", b.epoch, partition=3) == 0
    assert commit(world, "a", a.epoch, partition=3) == (Code.STALE_MEMBER_EPOCH if strict else 0)
    assert commit(world, "a", a.epoch, transactional=True, partition=3) == (Code.ILLEGAL_GENERATION if strict else 0)
    assert commit(world, "a", a.epoch, partition=9) == 0, "nobody's, like those of other topics"


def test_offset_fetch_is_fenced_by_epoch() -> None:
    world = World()
    world.topics(topic(1, "t", 4))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()

    def fetch(member: str | None, epoch: int) -> Code:
        return world.ask(FetchCheck("g", member, epoch)).code

    assert fetch(None, -1) == Code.NONE
    assert fetch("a", a.epoch) == Code.NONE
    assert fetch("a", a.epoch - 1) == Code.STALE_MEMBER_EPOCH
    assert fetch("x", 2) == Code.UNKNOWN_MEMBER_ID
