"""Brokers that hang, are slow, or accept nobody. Each takes only those with it who need it: whatever its sidecar is
asked is answered or closed in time, and no member is lost whose owner lives. What writes waits until the cluster has
taken the broker out of the in-sync replicas, as at Kafka's own coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sidecar.kafka.net import BrokerConnection, ConnectionLost, Request
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import list_groups as li
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.primitives import WireError
from tests.whole.kafka import SIDECAR_PORT, host_of
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import SILENT_MS, come, goes_on, owned_by, run_ms, start
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

WITHIN_S = 3.0
"""From a request to its answer, or to the end of its connection."""
FOR_MS = 25_000
EVERY_S = 0.4
SLOW_MS = 10_000.0
SESSION_MS = 20_000
"""Longer than a commit waits for the in-sync replicas, behind which heartbeats of these clients wait, too."""
SETTLES_MS = 1_000
"""Requests that were under way are answered before the scene begins."""
PROTOCOL = jg.JoinGroupRequestProtocol(name="range", metadata=b"")
ASKS: dict[str, tuple[Any, Request, int]] = {
    "Metadata": (md, md.MetadataRequest(topics=None), 9),
    "FindCoordinator": (fc, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["g1", "g2"]), 4),
    "FindCoordinator of another": (fc, fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["theirs"]), 4),
    "Heartbeat": (hb, hb.HeartbeatRequest("g2", 1, "nobody"), 4),
    "ConsumerGroupHeartbeat": (ch, ch.ConsumerGroupHeartbeatRequest("g1", "nobody", 3), 1),
    "JoinGroup": (jg, jg.JoinGroupRequest("g2", 6_000, 6_000, "", None, "consumer", [PROTOCOL]), 9),
    "OffsetFetch": (of, of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g1", None, -1, None)]), 9),
    "OffsetCommit": (oc, oc.OffsetCommitRequest("g1", -1, "", topics=[]), 8),
    "DescribeGroups": (dg, dg.DescribeGroupsRequest(groups=["g1", "g2"]), 5),
    "ConsumerGroupDescribe": (cd, cd.ConsumerGroupDescribeRequest(group_ids=["g1"]), 1),
    "ListGroups": (li, li.ListGroupsRequest(), 4),
}


def broker_hangs(world: World) -> None:
    def hang(n: int) -> Callable[[], None]:
        proc = world.kafka.procs[n]
        world.say(FAULT, f"broker {n} stands still")
        proc.stand_still()
        return proc.go_on

    _play(world, hang)


def broker_is_slow(world: World) -> None:
    """The broker takes ten seconds for each answer, also for a probe's."""

    def slow(n: int) -> Callable[[], None]:
        node = world.kafka.cluster.nodes[n]
        world.say(FAULT, f"broker {n} takes {SLOW_MS:,.0f} ms for each answer")
        node.answer_ms = SLOW_MS
        return lambda: setattr(node, "answer_ms", 0.0)

    _play(world, slow)


def broker_accepts_nobody(world: World) -> None:
    """The broker's kernel takes connections, and no process serves them; those that were there before go on."""

    def close(n: int) -> Callable[[], None]:
        world.say(FAULT, f"broker {n} accepts nobody")
        world.kafka.accepts_none(n)
        return lambda: world.kafka.accepts_again(n)

    _play(world, close)


def _play(world: World, begin: Callable[[int], Callable[[], None]]) -> None:
    start(world)
    come(world, 2, SESSION_MS)
    n = world.rng.choice(NODES)
    away = owned_by(world, *[m for m in NODES if m != n])
    losses = {c: c.losses for c in away}
    old: list[tuple[str, BrokerConnection]] = []
    world.at_a_desk(lambda: _connect(n, old))
    run_ms(world, SETTLES_MS)
    end = begin(n)
    for name, conn in old:
        world.at_a_desk(lambda name=name, conn=conn: _ask_now_and_then(world, n, name, conn))  # type: ignore[misc]
    for name in ASKS:
        world.at_a_desk(lambda name=name: _ask_now_and_then(world, n, name, None))  # type: ignore[misc]
    goes_on(world, away, FOR_MS, SILENT_MS)
    end()
    world.say(FAULT, "... and answers again")
    until(world, BOUND_MS, world.settled)
    lost = [c.name for c in away if c.losses > losses[c]]
    if lost:
        raise Violation(f"{lost} have given up what they had, though their owner lives")


async def _connect(n: int, old: list[tuple[str, BrokerConnection]]) -> None:
    for name in ASKS:
        conn = await BrokerConnection.open(host_of(n), SIDECAR_PORT, "desk", WITHIN_S)
        old.append((name, conn))


async def _ask_now_and_then(world: World, n: int, name: str, conn: BrokerConnection | None) -> None:
    """`conn`: once, after a while, on a connection that was there before; else again and again, always on a new one."""
    end_ms = world.universe.now_ms + FOR_MS
    if conn is not None:
        await asyncio.sleep(world.rng.uniform(0, FOR_MS / 1000))
        await _asked(world, n, name, conn)
        return
    while world.universe.now_ms < end_ms:
        await _asked(world, n, name, None)
        await asyncio.sleep(EVERY_S * world.rng.uniform(0.5, 1.5))


async def _asked(world: World, n: int, name: str, conn: BrokerConnection | None) -> None:
    """Raises Violation if nothing comes of it in time."""
    module, request, high = ASKS[name]
    began_ms, which = world.universe.now_ms, "an old connection" if conn is not None else "a new one"
    try:
        if conn is None:
            conn = await BrokerConnection.open(host_of(n), SIDECAR_PORT, "desk", WITHIN_S)
        left_s = WITHIN_S - (world.universe.now_ms - began_ms) / 1000
        await conn.request(module, name.partition(" ")[0], request, high=high, timeout_s=max(left_s, 0.001))
        world.judge.figures["answers at a silent broker"] += 1
    except (ConnectionLost, WireError) as exc:
        if "timed out" in str(exc):
            raise Violation(f"sidecar {n} neither answers nor closes {which}: {name}") from exc
    except TimeoutError as exc:
        raise Violation(f"sidecar {n} neither answers nor closes on {which}: {name}") from exc
    finally:
        if conn is not None:
            conn.close()
