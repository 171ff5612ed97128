"""Measures how many bytes a member costs the coordinator, with and without the assignment itself.

    make bench NAME=memory

`core` is members, subscriptions, epochs and timers, as tracemalloc counts them after a group of n members has settled.
`assignment` is who has which partition (target table, current assignments, owners), measured as the difference to the
same group with topics that have no partitions. `tail` is the bytes of the records that every sidecar keeps for a
takeover. There is no peer: Kafka's coordinator keeps all this on a JVM heap together with everything else.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc

from benchmarks.common import finish
from sidecar.assign import BUILT_IN
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Partitions, Tombstone, single
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.topics import Topic, TopicImage
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import decode_key

TOPICS = 10
CASES = [(1_000, 10), (1_000, 1_000), (10_000, 10), (10_000, 1_000)]


def settle(members: int, partitions: int) -> tuple[Shard, PartitionFold]:
    """Make a group whose members join one after the other and then heartbeat until nothing changes."""
    config = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=1_000)
    names = tuple(f"topic-{i:02d}" for i in range(TOPICS))
    topics = [Topic(bytes([i + 1]) * 16, n, ((),) * partitions) for i, n in enumerate(names)]
    ports = Ports({"consumer": BUILT_IN}, Computed(lambda kind, group_id: config))
    shard = Shard(REGISTRY, ports, TopicImage().next(topics)[0])
    codec, tail = StateCodec(), PartitionFold()
    stamp = Stamp(1 << 20, 1_795_000_000_000)
    offset = 0
    now = Now(1_000_000, 1_795_000_000_000)
    epochs: dict[str, int] = {}
    owned: dict[str, Partitions] = {}
    for turn in range(6):
        changed = False
        for i in range(members):
            member = f"consumer-orders-{i:06d}-2f1c7c9e-8d4b-4b5e-9c55-0d9f6a1b2c3d"[:54]
            epoch = epochs.get(member, 0)
            hb = ConsumerHeartbeat("orders", member, epoch, client_id="orders-service", client_host="/10.1.2.3")
            if epoch == 0:
                hb.rebalance_timeout_ms, hb.topic_names, hb.owned = 300_000, names, {}
            else:
                hb.owned = owned.get(member, {})
            fx = shard.handle(hb, 1, now)
            reply = fx.replies[0].answer
            assert isinstance(reply, HeartbeatReply)
            changed |= reply.member_epoch != epoch or reply.assignment is not None
            epochs[member] = reply.member_epoch
            if reply.assignment is not None:
                owned[member] = reply.assignment
            for r in single(fx.records):
                e = codec.encode(r, stamp, 1)
                tail.apply(offset, decode_key(e.key), None if isinstance(r, Tombstone) else e.value)
                offset += 1
        now = Now(now.mono_ms + 2_000, now.wall_ms + 2_000)
        shard.wake(now)
        if turn and not changed:
            break
    owned.clear()
    return shard, tail


def measured(members: int, partitions: int) -> tuple[int, int, int]:
    """Return the bytes of the shard, the bytes of the tail's keys and values, and the number of assigned partitions."""
    gc.collect()
    tracemalloc.start()
    shard, tail = settle(members, partitions)
    group = shard.groups["orders"]
    assert isinstance(group, ConsumerGroup)
    held = sum(len(ps) for m in group.members.values() for ps in m.assigned.values())
    raw = sum(len(v) + 160 for keys in tail.groups.values() for v in keys.values())
    del tail, group
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shard.groups
    return size, raw, held


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    figures: dict[str, object] = {"bench": "memory", "peer": None, "topics": TOPICS}
    measured(100, 10)  # so that what is made once is not counted
    heads = (
        f"{'members':>8} {'partitions a topic':>19} {'core':>12} {'assignment':>12} {'per partition':>14} {'tail':>10}"
    )
    print(heads)
    for members, partitions in CASES:
        bare, _, _ = measured(members, 0)
        full, raw, held = measured(members, partitions)
        core, assignment = bare / members, (full - bare) / members
        each = (full - bare) / held if held else 0.0
        sizes = f"{core:10,.0f} B {assignment:10,.0f} B {each:12,.0f} B {raw / members:8,.0f} B"
        print(f"{members:8,} {partitions:19,} {sizes}", flush=True)
        figures[f"{members}x{TOPICS}x{partitions}"] = {
            "core_bytes_per_member": round(core),
            "assignment_bytes_per_member": round(assignment),
            "assignment_bytes_per_partition": round(each),
            "tail_bytes_per_member": round(raw / members),
        }
    finish(figures)


if __name__ == "__main__":
    main()
