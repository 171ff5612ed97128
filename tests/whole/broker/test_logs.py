"""Logs as one real broker cannot show them: leaders that change, in-sync replicas, what a cut-off leader wrote."""

from __future__ import annotations

import pytest

from sidecar.wire.generated import produce as pr
from tests.whole.broker.clockwork import Client, Clockwork
from tests.whole.broker.codes import Err
from tests.whole.broker.ports import Delays
from tests.whole.broker.talk import init, make_topic, produce, produce_request, values

SESSION_MS = 9_000


def three() -> Clockwork:
    return Clockwork(3, delays=Delays())


def leader(world: Clockwork, topic: str = "t") -> int:
    return world.cluster.leaders(topic)[0]


def others(world: Clockwork, node: int) -> list[int]:
    return [n for n in world.hosts if n != node]


def test_a_dead_leader_is_replaced_when_its_session_ends_and_nothing_committed_is_lost() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    assert produce(Client(world, first), ["a=1", "b=2"]) == (0, 0)
    world.cluster.crash(first)
    world.run(SESSION_MS - 3_000)
    assert leader(world) == first, "nobody knows yet"
    world.run(4_000)
    second = leader(world)
    assert second != first
    follower = next(n for n in others(world, second) if n != first)
    assert produce(Client(world, follower), ["x=1"])[0] == Err.NOT_LEADER_OR_FOLLOWER
    assert produce(Client(world, second), ["c=3"]) == (0, 2)
    world.run(100)
    assert values(world, second) == ["a=1", "b=2", "c=3"]
    assert world.cluster.read(second, "t", 0, 0, 9).leader_epoch == 1


def test_a_broker_that_was_killed_is_let_in_when_its_old_session_has_ended() -> None:
    world = three()
    make_topic(world)
    first = leader(world)
    world.cluster.crash(first)
    world.run(500)
    world.cluster.start(first)
    world.run(4_000)
    assert world.cluster.nodes[first].image.version == 0, "its old session lives on (DUPLICATE_BROKER_REGISTRATION)"
    world.run(8_000)
    assert first in world.cluster.controller.image.alive
    world.run(2_000)
    assert sorted(world.cluster.controller.image.topics["t"].partitions[0].isr) == [1, 2, 3]


def test_a_controlled_shutdown_moves_the_leader_at_once() -> None:
    world = three()
    make_topic(world)
    first = leader(world)
    world.cluster.stop(first)
    world.run(100)
    assert leader(world) not in (first, -1)
    world.cluster.start(first, clean=True)
    world.run(1_000)
    assert first in world.cluster.controller.image.alive


def test_too_few_in_sync_replicas() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    for n in others(world, first):
        world.cluster.crash(n)
    client = Client(world, first)
    assert produce(client, ["a=1"], timeout_ms=1_000)[0] == Err.REQUEST_TIMED_OUT, "they are still in the ISR"
    world.run(1_000)
    # Without the others there is no quorum of controllers either, so the ISR stays what it was.
    assert produce(client, ["b=1"], timeout_ms=1_000)[0] == Err.REQUEST_TIMED_OUT
    world.cluster.start(others(world, first)[0])
    world.run(3 * SESSION_MS)
    assert produce(client, ["c=1"])[0] == 0
    assert values(world, leader(world)) == ["a=1", "b=1", "c=1"], "what timed out is committed after all"


def test_an_isr_below_the_minimum_refuses_appends() -> None:
    world = three()
    make_topic(world, min_insync_replicas="3")
    first = leader(world)
    world.cluster.crash(others(world, first)[0])
    world.run(2 * SESSION_MS)
    assert produce(Client(world, first), ["a=1"])[0] == Err.NOT_ENOUGH_REPLICAS
    assert produce(Client(world, first), ["a=1"], acks=1)[0] == 0, "acks=1 does not ask for them"
    world.run(500)
    assert values(world, first) == [], "but the high watermark does not move (KIP-966)"


def test_the_tail_of_a_cut_off_leader_is_truncated() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    client = Client(world, first)
    assert produce(client, ["a=1"])[0] == 0
    world.isolate(first)
    assert produce(client, ["lost=1"], timeout_ms=1_000)[0] == Err.REQUEST_TIMED_OUT
    assert produce(client, ["lost=2"], acks=1) == (0, 2), "it does not know yet that others will lead"
    world.run(2 * SESSION_MS)
    second = leader(world)
    assert second != first
    assert produce(Client(world, second), ["b=2"]) == (0, 1)
    assert world.cluster.read(first, "t", 0, 0, 9).leader_epoch == 0, "stale, but it still reads as a leader"
    assert values(world, first) == ["a=1"]
    world.cut.clear()
    world.run(5_000)
    assert produce(client, ["c=3"])[0] == Err.NOT_LEADER_OR_FOLLOWER
    logs = [r.log for node in world.cluster.nodes.values() for r in node.replicas.values() if r.topic == "t"]
    assert [[b.records[0].key for b in log.batches] for log in logs] == [[b"a", b"b"]] * 3


def test_an_append_that_waits_fails_when_the_leader_learns_of_another() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    client = Client(world, first)
    world.isolate(first)
    number = client.send(pr, "Produce", produce_request(["a=1"], timeout_ms=60_000), 9)
    world.run(2 * SESSION_MS)
    assert number not in client.answers
    world.cut.clear()
    world.run(2_000)
    assert client.answers[number].responses[0].partition_responses[0].error_code == Err.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_hangs_leaves_the_isr() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    slow = others(world, first)[0]
    world.cut = {frozenset((first, slow))}  # both still reach the third
    client = Client(world, first)
    assert produce(client, ["a=1"], timeout_ms=2_000)[0] == Err.REQUEST_TIMED_OUT
    world.run(60_000)
    assert slow not in world.cluster.controller.image.topics["t"].partitions[0].isr
    assert produce(client, ["b=1"])[0] == 0
    world.cut.clear()
    world.run(5_000)
    assert slow in world.cluster.controller.image.topics["t"].partitions[0].isr


def test_a_paused_leader_is_replaced_and_steps_back() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    first = leader(world)
    client = Client(world, first)
    assert produce(client, ["a=1"])[0] == 0
    world.pause(first)
    world.run(2 * SESSION_MS)
    second = leader(world)
    assert second != first
    assert produce(Client(world, second), ["b=1"])[0] == 0
    world.resume(first)
    world.run(3_000)
    assert produce(client, ["c=1"])[0] == Err.NOT_LEADER_OR_FOLLOWER
    assert values(world, second) == ["a=1", "b=1"]


def test_a_newer_producer_shuts_the_older_out_also_after_the_leader_has_died() -> None:
    world = three()
    make_topic(world, min_insync_replicas="2")
    old = init(world, "writer")
    first = leader(world)
    assert produce(Client(world, first), ["a=1"], producer=(*old, 0))[0] == 0
    new = init(world, "writer")
    assert new == (old[0], old[1] + 1)
    assert produce(Client(world, first), ["b=1"], producer=(*old, 1))[0] == 0, (
        "the partition has not heard of the new one"
    )
    assert produce(Client(world, first), ["claim=1"], producer=(*new, 0))[0] == 0
    assert produce(Client(world, first), ["c=1"], producer=(*old, 2))[0] == Err.INVALID_PRODUCER_EPOCH
    world.cluster.crash(first)
    world.run(2 * SESSION_MS)
    second = Client(world, leader(world))
    assert produce(second, ["c=1"], producer=(*old, 2))[0] == Err.INVALID_PRODUCER_EPOCH
    assert produce(second, ["claim=1"], producer=(*new, 0)) == (0, 2), "a repetition is told its first offset"
    assert produce(second, ["d=1"], producer=(*new, 2))[0] == Err.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(second, ["d=1"], producer=(*new, 1))[0] == 0


@pytest.mark.tier("test")
def test_compaction_keeps_offsets_last_values_and_the_producers() -> None:
    world = Clockwork(1)
    make_topic(world, replicas=1, cleanup_policy="compact")
    client = Client(world)
    producer = init(world, "writer")
    for n, v in enumerate(["a=1", "b=1", "a=2", "b=", "c=1"]):
        assert produce(client, [v], producer=(*producer, n))[0] == 0
    world.cluster.compact("t", 0)
    assert values(world, 1) == ["a=2", "b=", "c=1"]
    assert [r.offset for r in world.cluster.read(1, "t", 0, 0, 9).records] == [2, 3, 4]
    world.run(86_400_000 + 1_000)
    world.cluster.compact("t", 0)
    assert values(world, 1) == ["a=2", "c=1"]
    assert produce(client, ["d=1"], producer=(*producer, 7))[0] == 0, "it was forgotten: any sequence will do"
    assert world.cluster.read(1, "t", 0, 99, 9).error == Err.OFFSET_OUT_OF_RANGE


def test_a_fetch_that_takes_a_part_of_the_last_batch_goes_on_behind_it() -> None:
    world = Clockwork(1)
    make_topic(world, replicas=1)
    assert produce(Client(world), ["a=1", "b=1", "c=1"])[0] == 0
    found: list[int] = []
    offset = 0
    for _ in range(2):
        res = world.cluster.read(1, "t", 0, offset, 2)
        offset, found = res.next_offset, [*found, *(r.offset for r in res.records)]
    assert (found, offset) == ([0, 1, 2], 3)


def test_one_seed_is_one_trace() -> None:
    def trace(seed: int) -> list[object]:
        world = Clockwork(3, seed, Delays())
        make_topic(world, min_insync_replicas="2")
        first = leader(world)
        told: list[object] = [first, produce(Client(world, first), ["a=1"]), init(world, "w"), round(world.now_ms, 6)]
        world.cluster.crash(first)
        world.run(2 * SESSION_MS)
        return [*told, leader(world), world.cluster.controller.image.topics["t"].topic_id, world.rng.random()]

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)
