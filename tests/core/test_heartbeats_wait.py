"""With offload a member hears of a change in the same answer as without: the answer waits for the run (waiting.py)."""

from __future__ import annotations

import random

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.records import Partitions
from tests.core.world import World, topic, topic_id
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

OFFLOADED = ConsumerConfig(assignment_interval_ms=0)
AT_ONCE = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0)
SEEDS, EVENTS = 300, 60


class Side:
    """One coordinator and its members."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.world = World(config)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}

    def heartbeat(self, member_id: str, names: tuple[str, ...] | None) -> tuple[int, int, Partitions | None]:
        """The answer, when every run that it may wait for has ended."""
        epoch = self.epochs.get(member_id, 0)
        owned = self.owned.get(member_id, {}) if epoch else {}
        wait_ms = -1 if epoch else 30_000
        hb = ConsumerHeartbeat("g", member_id, epoch, rebalance_timeout_ms=wait_ms, topic_names=names, owned=owned)
        token = self.world.request(hb)
        while self.world.running:
            self.world.finish()
        reply = self.world.replies.pop(token).answer
        assert isinstance(reply, HeartbeatReply)
        self.epochs[member_id] = 0 if reply.code else reply.member_epoch
        if reply.assignment is not None or reply.code:
            self.owned[member_id] = reply.assignment or {}
        return reply.code, reply.member_epoch, reply.assignment


def test_the_first_answer_that_can_know_it_knows_it(seeds: Seeds) -> None:
    hold(same_answers, seeds.of(SEEDS), alone("tests/core/test_heartbeats_wait.py"))


def same_answers(seed: int) -> None:
    rng = random.Random(seed)
    sides = [Side(OFFLOADED), Side(AT_ONCE)]
    counts = [4, 3, 2]

    def topics() -> None:
        for side in sides:
            side.world.topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(counts)))

    topics()
    members = ["m1"]
    for side in sides:
        side.heartbeat("m1", ("t0",))
    for _ in range(EVENTS):
        what, names = rng.random(), tuple(rng.sample(["t0", "t1", "t2"], rng.randint(1, 3)))
        if what < 0.1:
            counts[rng.randrange(3)] += 1
            topics()
        elif what < 0.2 and len(members) < 5:
            members.append(f"m{len(members) + 1}")
            for side in sides:
                side.heartbeat(members[-1], names)
                side.heartbeat(members[-1], None)  # the answer to a join may say what this one says, too
        else:
            who = rng.choice(members)
            subscribed = names if what > 0.85 else None
            gives_up = sides[0].world.group("g").members[who].pending
            ours, theirs = (side.heartbeat(who, subscribed) for side in sides)
            if gives_up and ours != theirs:
                return  # it had given something up, and that is dealt with before the run ends
            assert ours == theirs, f"{who} subscribes to {subscribed}"


def test_no_front_answers_while_a_run_is_under_way() -> None:
    """A timer began the run, so no record has voided the fronts' grants."""
    world = World(ConsumerConfig(assignment_interval_ms=60_000))
    world.topics(topic(1, "t", 4))
    beat = ConsumerHeartbeat("g", "m1", 2, owned={topic_id(1): (0, 1, 2, 3)})
    world.request(ConsumerHeartbeat("g", "m1", 0, rebalance_timeout_ms=30_000, topic_names=("t",), owned={}))
    world.finish()
    world.send(beat)
    world.topics(topic(1, "t", 5))
    world.send(beat)
    token = world.request(beat)
    assert world.replies[token].grant is not None, "the interval is not over, and nothing is under way"
    revision = world.shard.soft["g"].revision
    while not world.running:
        world.sleep(10_000)
        world.request(beat)
    assert world.shard.soft["g"].revision > revision and not world.shard.soft["g"].granted
    token = world.request(beat)
    assert token not in world.replies
    world.finish()
    answer = world.replies[token].answer
    assert isinstance(answer, HeartbeatReply) and answer.assignment == {topic_id(1): (0, 1, 2, 3, 4)}
