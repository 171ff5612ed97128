"""10,000 groups of five members: how many series there are, and how long a scrape keeps the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter

from sidecar.coordinator.clock import now
from sidecar.coordinator.inspect.group_metrics import Census
from sidecar.coordinator.inspect.lag_exporter import FAMILIES, LagSnapshot, page_of
from sidecar.core.classic.records import GroupRecord as ClassicGroupRecord
from sidecar.core.classic.records import MemberRecord as ClassicMemberRecord
from sidecar.core.classic.records import State
from sidecar.core.consumer.records import CurrentRecord, GroupRecord, MemberRecord, MemberState, TargetMetadataRecord
from sidecar.core.runtime.shard import Shard
from sidecar.process.process_metrics import in_slices
from tests.inprocess.embedded_sidecar import EmbeddedSidecar

GROUPS, MEMBERS, PARTITIONS = 10_000, 5, 6
SERIES = 1_200
"""A bound for the series of one sidecar with two partitions of the state topic, with and without groups."""
STALL_S = 0.05
"""Nobody's heartbeat waits longer. A slice takes 1 ms; machines of tests are busy."""


def consumer_group(shard: Shard, group_id: str) -> None:
    shard.replay(GroupRecord(group_id, 2, 0, "x"))
    for m in range(MEMBERS):
        shard.replay(MemberRecord(group_id, f"m{m}", None, None, "app", "host", 1, ("orders",), None, None, "x"))
        owned = {b"t" * 16: {m: 2}}
        shard.replay(CurrentRecord(group_id, f"m{m}", 2, 1, MemberState.STABLE, owned, {}, {}, "x"))
    shard.replay(TargetMetadataRecord(group_id, 2, 1, "uniform", "x"))


def classic_group(shard: Shard, group_id: str) -> None:
    for m in range(MEMBERS):
        shard.replay(ClassicMemberRecord(group_id, f"m{m}", None, "app", "host", 1, 1, (("range", b""),), why="x"))
    shard.replay(ClassicGroupRecord(group_id, State.STABLE, 1, "consumer", "range", "m0", 1, 0, "x"))


def fill(shard: Shard) -> None:
    for g in range(GROUPS // 2):
        (classic_group if g % 2 else consumer_group)(shard, f"group-{g}-{id(shard)}")
        shard.soft[f"group-{g}-{id(shard)}"].rebalances(now().mono_ms - g)


def series(text: bytes) -> list[str]:
    return [line for line in text.decode().splitlines() if not line.startswith("#")]


async def watched(done: asyncio.Event, stalls: list[float]) -> None:
    """Processor time of the loop between two turns: what others of this machine do does not count."""
    while not done.is_set():
        began = time.thread_time()
        await asyncio.sleep(0)
        stalls.append(time.thread_time() - began)


def test_the_series_do_not_grow_with_the_groups() -> None:
    async def main() -> None:
        async with EmbeddedSidecar(partitions=2) as sidecar:
            census = Census(sidecar.service, sidecar.metrics)
            await census.take()
            before = series(sidecar.metrics.text())
            for owner in sidecar.service.owners:
                assert owner.shard is not None
                fill(owner.shard)
            gc.collect()  # as a sidecar does: what is there is not searched for garbage again
            gc.freeze()
            stalls: list[float] = []
            done = asyncio.Event()
            watcher = asyncio.create_task(watched(done, stalls))
            began = time.thread_time()
            await census.take()
            text = await in_slices(sidecar.metrics.parts())
            took = time.thread_time() - began
            done.set()
            await watcher
            gc.unfreeze()
            after = series(text)
            assert 'sidecar_groups{kind="consumer",state="Stable"} 5000.0' in after
            assert 'sidecar_groups{kind="classic",state="Stable"} 5000.0' in after
            assert f'sidecar_members{{kind="consumer",protocol="consumer"}} {5_000 * MEMBERS}.0' in after
            named = Counter(line.split("{")[0] for line in after if 'consumergroup="' in line)
            assert named == {"sidecar_group_rebalances": 5, "sidecar_group_unsettled_seconds": 5}
            assert len(after) == len(before) + 10 < SERIES
            assert "m0" not in text.decode().replace("_m0", "")
            print(f"{len(after)} series, a scrape in {took * 1000:.0f} ms, longest stall {max(stalls) * 1000:.1f} ms")
            assert max(stalls) < STALL_S and took < 5.0

    asyncio.run(main())


def test_the_exporter_keeps_to_its_limit_and_leaves_out_the_least_useful() -> None:
    places = [("orders", p) for p in range(PARTITIONS)]
    found = LagSnapshot(
        members={f"g{g:05}": MEMBERS for g in range(GROUPS)},
        committed={f"g{g:05}": dict.fromkeys(places, 7) for g in range(GROUPS)},
        latest=dict.fromkeys(places, 10),
        earliest=dict.fromkeys(places, 0),
        led=dict.fromkeys(places, False),
        partitions={"orders": PARTITIONS},
        brokers=3,
    )
    began = time.thread_time()
    text, count, cut = page_of(found, 35_000)
    took = time.thread_time() - began
    lines = series(text)
    assert len(lines) == count == 35_000
    assert count + cut == GROUPS * (3 + 2 * PARTITIONS) + 2 + 4 * PARTITIONS
    by_name = Counter(line.split("{")[0].split(" ")[0] for line in lines)
    assert by_name["kafka_consumergroup_lag_sum"] == by_name["kafka_consumergroup_members"] == GROUPS
    assert by_name["kafka_consumergroup_lag"] == 35_000 - 3 * GROUPS - 1
    assert not by_name["kafka_consumergroup_current_offset"]
    assert 'kafka_consumergroup_lag_sum{consumergroup="g00000",topic="orders"} 18' in lines
    print(f"{count} series, {len(text)} bytes, made in {took * 1000:.0f} ms in a thread")
    whole, count, cut = page_of(found, 1_000_000)
    assert cut == 0 and {line.split("{")[0].split(" ")[0] for line in series(whole)} == set(FAMILIES)


def test_what_a_name_may_hold_does_not_break_the_page() -> None:
    text, _, _ = page_of(LagSnapshot(members={'a"b\\c\nd': 1}), 10)
    assert series(text) == ['kafka_consumergroup_members{consumergroup="a\\"b\\\\c\\nd"} 1']
