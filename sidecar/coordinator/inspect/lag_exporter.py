"""Offsets and lags of groups under the names of kafka_exporter, so that boards and alerts made for it keep working.

Each group is exported by its owner, each partition of a topic by the sidecar beside its leader, the number of brokers
by the owner of partition 0 of the state topic: sums over all sidecars count everything once.

The brokers are asked in rounds, never during a scrape, and the text is made in a thread at the end of a round.
There are never more series than `series`: the most useful come first, the rest is cut and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.service import Service
from sidecar.kafka.cluster import Cluster, ClusterView
from sidecar.kafka.group_lists import PartitionLag, behind
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.offsets import EARLIEST, LATEST, Offsets, Place, by_leader, committed, group_batches, listed
from sidecar.link.ports import Figures, Logger

ANSWER_S = 30.0
LOOKED_AT = 64
"""Groups of one step, before the loop turns."""
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "kafka_consumergroup_lag_sum": (
        "Current Approximate Lag of a ConsumerGroup at Topic for all partitions",
        ("consumergroup", "topic"),
    ),
    "kafka_consumergroup_members": ("Amount of members in a consumer group", ("consumergroup",)),
    "kafka_brokers": ("Number of Brokers in the Kafka Cluster.", ()),
    "kafka_consumergroup_current_offset_sum": (
        "Current Offset of a ConsumerGroup at Topic for all partitions",
        ("consumergroup", "topic"),
    ),
    "kafka_consumergroup_lag": (
        "Current Approximate Lag of a ConsumerGroup at Topic/Partition",
        ("consumergroup", "topic", "partition"),
    ),
    "kafka_consumergroup_current_offset": (
        "Current Offset of a ConsumerGroup at Topic/Partition",
        ("consumergroup", "topic", "partition"),
    ),
    "kafka_topic_partitions": ("Number of partitions for this Topic", ("topic",)),
    "kafka_topic_partition_current_offset": (
        "Current Offset of a Broker at Topic/Partition",
        ("topic", "partition"),
    ),
    "kafka_topic_partition_oldest_offset": ("Oldest Offset of a Broker at Topic/Partition", ("topic", "partition")),
    "kafka_topic_partition_leader": ("Leader Broker ID of this Topic/Partition", ("topic", "partition")),
    "kafka_topic_partition_under_replicated_partition": (
        "1 if Topic/Partition is under Replicated",
        ("topic", "partition"),
    ),
}
"""Name -> help text and labels, the most useful first: series are cut from the end."""
Row = tuple[tuple[str, ...], int]
"""Label values and value."""
Lags = dict[str, dict[Place, PartitionLag]]
"""Lags by group, of the groups that this sidecar exports."""


@dataclass(frozen=True)
class ExporterSettings:
    """Settings of the exporter. `every_s`: time between two rounds, 0: off; `series`: most series; `named(group)`:
    whether this group is exported; `topics`: whether partitions of topics are, too."""

    node_id: int
    every_s: float
    series: int
    named: Callable[[str], bool]
    topics: bool = True


@dataclass(frozen=True)
class ExporterPorts:
    """The exporter's sources. `leader_of(partition)`: node id of the broker that keeps the offsets of its groups, -1
    while unknown; `view()`: the topics as last read."""

    leader_of: Callable[[int], int]
    view: Callable[[], ClusterView]


@dataclass
class LagSnapshot:
    """The findings of one round."""

    members: dict[str, int] = field(default_factory=dict)
    committed: dict[str, Offsets] = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    led: dict[Place, bool] = field(default_factory=dict)
    """Partitions that this sidecar's broker leads -> whether some replica is not in sync."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Topic -> number of its partitions, of each topic whose partition 0 this sidecar's broker leads."""
    brokers: int = -1
    node_id: int = -1


@dataclass(frozen=True)
class Page:
    text: bytes = b""
    series: int = 0
    cut: int = 0
    at_s: float = -1.0
    lags: Lags = field(default_factory=dict)


class Exporter:
    def __init__(
        self,
        settings: ExporterSettings,
        service: Service,
        cluster: Cluster,
        ports: ExporterPorts,
        figures: Figures,
        log: Logger,
    ) -> None:
        self.page = Page()
        self._settings = settings
        self._service = service
        self._cluster = cluster
        self._ports = ports
        self._log = log
        self._took = figures("exporter_seconds")
        self._troubles = figures("exporter_troubles")
        figures("exporter_series").set_function(lambda: self.page.series)
        figures("exporter_cut").set_function(lambda: self.page.cut)
        figures("exporter_age").set_function(self._age_s)

    def _age_s(self) -> float:
        return -1.0 if self.page.at_s < 0 else time.monotonic() - self.page.at_s

    async def rounds(self) -> None:
        """Runs rounds for ever."""
        every_s = self._settings.every_s
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.1 * every_s, every_s - (time.monotonic() - began)))

    async def look(self) -> None:
        """Runs one round: asks the brokers, then makes the page anew."""
        began = time.monotonic()
        snapshot, view = LagSnapshot(node_id=self._settings.node_id), self._ports.view()
        keepers = await self._groups(snapshot)
        for node_id, groups in keepers.items():
            for batch in group_batches(groups):
                await self._ask_committed(snapshot, node_id, batch)
        if self._service.owners[0].phase is Phase.SERVING:
            snapshot.brokers = len(view.brokers)
        if self._settings.topics:
            self._led_here(snapshot, view)
        consumed = {place for offsets in snapshot.committed.values() for place in offsets}
        await self._ask_listed(snapshot.latest, view, consumed | snapshot.led.keys(), LATEST)
        await self._ask_listed(snapshot.earliest, view, snapshot.led.keys(), EARLIEST)
        (text, series, cut), lags = await asyncio.to_thread(_made, snapshot, self._settings.series)
        if cut and not self.page.cut:
            self._log.warning("not all offsets and lags are exported: see exporter.series", series=series, cut=cut)
        self.page = Page(text, series, cut, time.monotonic(), lags)
        self._took.set(time.monotonic() - began)

    async def _groups(self, snapshot: LagSnapshot) -> dict[int, list[str]]:
        """Counts the members of the exported groups. Returns node id of the broker that keeps the offsets -> groups."""
        keepers: dict[int, list[str]] = {}
        seen = 0
        for owner in self._service.owners:
            shard = owner.shard
            if shard is None or owner.phase is not Phase.SERVING:
                continue
            node_id = self._ports.leader_of(owner.partition)
            for group_id in list(shard.groups):
                seen += 1
                if seen % LOOKED_AT == 0:
                    await asyncio.sleep(0)
                group = shard.groups.get(group_id)
                if group is not None and self._settings.named(group_id):
                    snapshot.members[group_id] = group.member_count()
                    if node_id >= 0:
                        keepers.setdefault(node_id, []).append(group_id)
        return keepers

    async def _ask_committed(self, snapshot: LagSnapshot, node_id: int, groups: Sequence[str]) -> None:
        try:
            conn = await self._cluster.lane(node_id, Lane.EXPORTER)
            snapshot.committed.update(await committed(conn, groups, ANSWER_S))
        except NO_ANSWER as exc:
            self._trouble("committed offsets", node_id, exc)

    def _led_here(self, snapshot: LagSnapshot, view: ClusterView) -> None:
        for topic, leaders in view.leaders.items():
            for partition, leader in enumerate(leaders):
                if leader == self._settings.node_id:
                    snapshot.led[(topic, partition)] = (topic, partition) in view.behind
            if leaders and leaders[0] == self._settings.node_id:
                snapshot.partitions[topic] = len(leaders)

    async def _ask_listed(self, into: Offsets, view: ClusterView, places: Iterable[Place], timestamp: int) -> None:
        for node_id, batches in by_leader(places, view.leaders).items():
            for batch in batches:
                try:
                    conn = await self._cluster.lane(node_id, Lane.EXPORTER)
                    into.update(await listed(conn, batch, timestamp, ANSWER_S))
                except NO_ANSWER as exc:
                    self._trouble("ends of partitions", node_id, exc)
                    break

    def _trouble(self, what: str, node_id: int, exc: Exception) -> None:
        self._troubles.inc()
        problem = str(exc) or "timed out"
        self._log.info("the exporter was not answered", what=what, broker=node_id, problem=problem)


# ---- the page: in a thread ------------------------------------------------------------------------------------------
def _made(snapshot: LagSnapshot, most: int) -> tuple[tuple[bytes, int, int], Lags]:
    return page_of(snapshot, most), behind(snapshot.committed, snapshot.latest)


def page_of(snapshot: LagSnapshot, most: int) -> tuple[bytes, int, int]:
    """Returns the text, the number of its series, and the number of series that were cut."""
    lines: list[str] = []
    series = cut = 0
    for name, rows in rows_of(snapshot).items():
        ordered = sorted(rows)
        kept = ordered[: max(0, most - series)]
        cut += len(ordered) - len(kept)
        series += len(kept)
        if kept:
            about, labels = FAMILIES[name]
            lines += (f"# HELP {name} {about}", f"# TYPE {name} gauge")
            lines += [f"{name}{_labels(labels, values)} {value}" for values, value in kept]
    return "".join(f"{line}\n" for line in lines).encode(), series, cut


def rows_of(snapshot: LagSnapshot) -> dict[str, Iterator[Row]]:
    led = snapshot.led
    ends = behind(snapshot.committed, snapshot.latest)
    lags = {group: {place: p.lag for place, p in of.items()} for group, of in ends.items()}
    rows: dict[str, Iterator[Row]] = {
        "kafka_consumergroup_lag_sum": _sums(lags),
        "kafka_consumergroup_members": (((g,), n) for g, n in snapshot.members.items()),
        "kafka_brokers": (((), n) for n in (snapshot.brokers,) if n >= 0),
        "kafka_consumergroup_current_offset_sum": _sums(snapshot.committed),
        "kafka_consumergroup_lag": _each(lags),
        "kafka_consumergroup_current_offset": _each(snapshot.committed),
        "kafka_topic_partitions": (((t,), n) for t, n in snapshot.partitions.items()),
        "kafka_topic_partition_current_offset": _places(snapshot.latest, led),
        "kafka_topic_partition_oldest_offset": _places(snapshot.earliest, led),
        "kafka_topic_partition_leader": (((t, str(p)), snapshot.node_id) for t, p in led),
        "kafka_topic_partition_under_replicated_partition": (((t, str(p)), int(b)) for (t, p), b in led.items()),
    }
    return {name: rows[name] for name in FAMILIES}


def _sums(of: Mapping[str, Offsets]) -> Iterator[Row]:
    for group, offsets in of.items():
        sums: dict[str, int] = {}
        for (topic, _), value in offsets.items():
            sums[topic] = sums.get(topic, 0) + value
        for topic, value in sums.items():
            yield (group, topic), value


def _each(of: Mapping[str, Offsets]) -> Iterator[Row]:
    return (((g, t, str(p)), value) for g, offsets in of.items() for (t, p), value in offsets.items())


def _places(of: Offsets, among: Mapping[Place, bool]) -> Iterator[Row]:
    return (((t, str(p)), value) for (t, p), value in of.items() if (t, p) in among)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{n}="{_escaped(v)}"' for n, v in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
