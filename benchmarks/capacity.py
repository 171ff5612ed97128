"""Measures the cost of many members: CPU, memory, the size of the state topic, the time of a takeover.

    make bench NAME=capacity ARGS="--members 100 1000 10000 100000"

For each number two brokers are started, and a sidecar beside each. Settled consumer groups are written into the state
topic by the product's own codec (`--group` members in each, `--partitions` for each member), and every member sends
its heartbeat every 5 s, Kafka's default, spread evenly.

`cpu`: of both sidecars together while nothing but heartbeats comes, in percent of one core, heartbeats of the sidecars
among themselves included, and beside it without clients. `memory`: resident, of the larger of the two; each of them
keeps the whole state topic, and the groups that it owns. `idle`: the same before there is a group. `topic`: the files
of one replica, nothing compacted,
schemas and claims included (`empty_topic_kb` in the JSON: before the first group). `takeover`: from SIGKILL to one of
the two until a member of each of up to twelve of its groups has a heartbeat accepted by the other one: the first and
the last of them. A heartbeat with an error fails the run.

A member has a connection to itself up to `--connections`; with more members, several share one. Sessions last ten
minutes here, so that nobody is removed before the load begins.

    make bench NAME=capacity ARGS="--idle 8000 16000"
    make bench NAME=capacity ARGS="--growth 20"

`--idle`: so many connections, half at each of two sidecars, send ApiVersions and Metadata and are silent then. Memory
and open files of a sidecar for each of its connections, of which each has one to the broker as well. `--growth`: so
many rebalances of a group of `--group` real members, in which one leaves or joins: bytes of one replica of the topic
for each rebalance and member.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import uvloop

from benchmarks.beats import EPOCH, Beats, member_id, rss_mb
from benchmarks.common import cpu_s, create_topic, finish
from benchmarks.heartbeat import SIZE
from benchmarks.takeover import CLIENT_ID, ENV, PROBED, PROPERTIES, SHARDS, STATE, Size, busy_ends, fill
from sidecar.core.vocabulary.errors import name_of
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.local import JVM_FAST, Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import metadata as md

INTERVAL_S = 5.0
IDLE_S = 10.0
TICK_S = 0.01
PATIENT = {k: v for k, v in ENV.items() if k not in ("SIDECAR_LOOP_PROBE_MS", "SIDECAR_STATE__FENCE_INTERVAL_MS")}
"""Sessions of ten minutes keep silent members until the load begins. The probe and the fences are as by default."""
AT_ONCE = 200
"""Connections that are opened at a time."""


class Line(asyncio.Protocol):
    """One connection. Its members' heartbeats are written without waiting for answers, which are counted."""

    def __init__(self) -> None:
        self.answered = 0
        self.refused: Counter[int] = Counter()
        self.closed = False
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is none of asyncio's

    def data_received(self, data: bytes) -> None:
        buf = self._buffer + data if self._buffer else data
        pos, end = 0, len(buf)
        while end - pos >= 4:
            (size,) = SIZE.unpack_from(buf, pos)
            if end - pos < 4 + size:
                break
            if code := buf[pos + 13] << 8 | buf[pos + 14]:  # error code, after header (5) and throttle time (4)
                self.refused[code] += 1
            self.answered += 1
            pos += 4 + size
        self._buffer = buf[pos:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True


class Crowd:
    """All members, each at the sidecar that owns its group."""

    def __init__(self, size: Size, owners: Mapping[str, Broker], connections: int) -> None:
        self._per_line = math.ceil(size.members / connections)
        self._members: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for i, group in enumerate(size.names()):
            self._members[owners[group].sidecar_port] += [(group, n) for n in range(size.members_of(i))]
        self.lines: list[Line] = []
        self._beats: list[tuple[Line, bytes]] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        for port, members in self._members.items():
            parts = [members[i : i + self._per_line] for i in range(0, len(members), self._per_line)]
            for i in range(0, len(parts), AT_ONCE):
                made = await asyncio.gather(
                    *(loop.create_connection(Line, "127.0.0.1", port) for _ in parts[i : i + AT_ONCE])
                )
                for part, (_, line) in zip(parts[i : i + AT_ONCE], made, strict=True):
                    self.lines.append(line)
                    self._beats += [(line, frame_of(*member)) for member in part]

    async def beat(self, seconds: float) -> None:
        """Every member once in INTERVAL_S, for so long."""
        began, sent, each_s = time.monotonic(), 0, INTERVAL_S / len(self._beats)
        while (now := time.monotonic() - began) < seconds:
            due = int(now / each_s)
            for at in range(sent, due):
                line, frame = self._beats[at % len(self._beats)]
                line.transport.write(frame)
            sent = due
            await asyncio.sleep(TICK_S)

    def answered(self) -> int:
        """Returns how many heartbeats were answered. Raises RuntimeError if one was refused, or a connection was
        closed."""
        refused: Counter[int] = sum((x.refused for x in self.lines), Counter())
        closed = sum(x.closed for x in self.lines)
        if refused or closed:
            codes = {name_of(code): n for code, n in refused.items()}
            raise RuntimeError(f"heartbeats were refused: {codes}; {closed} connections closed")
        return sum(x.answered for x in self.lines)

    def close(self) -> None:
        for line in self.lines:
            line.transport.close()


def frame_of(group: str, number: int) -> bytes:
    steady = ch.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id(number), member_epoch=EPOCH)
    return request_frame(68, 1, 1, CLIENT_ID, True, steady.encode(1))


def owners_of(kafka: LocalKafka, size: Size) -> dict[str, Broker]:
    view = kafka.owners(kafka.nodes[0])
    assert view is not None
    nodes = {n.node_id: n for n in kafka.nodes}
    return {g: nodes[view["owners"][partition_for(g, SHARDS)]] for g in size.names()}


def topic_bytes(kafka: LocalKafka, node: Broker) -> int:
    """Returns the bytes of the records' files in one replica of all partitions."""
    return sum(f.stat().st_size for f in (kafka.folder / f"data-{node.node_id}").glob(f"{STATE}-*/*.log"))


def idle_cpu(kafka: LocalKafka) -> float:
    """Percent of one core that both sidecars take while no client is there."""
    before = sum(cpu_s(n.sidecar) for n in kafka.nodes)
    time.sleep(IDLE_S)
    return round(100 * (sum(cpu_s(n.sidecar) for n in kafka.nodes) - before) / IDLE_S, 1)


def row(kafka: LocalKafka, size: Size, seconds: float, connections: int) -> dict[str, object]:
    kafka.wait_ready()
    idle, empty = max(rss_mb(n.sidecar) for n in kafka.nodes), topic_bytes(kafka, kafka.nodes[0])
    for node in kafka.nodes:
        assert node.sidecar is not None
        node.sidecar.stop()
    records, _ = fill(kafka.internal, size)
    for node in kafka.nodes:
        kafka.start_sidecar(node)
    wait_until("the sidecars", lambda: all(kafka.get(n, "/readyz") for n in kafka.nodes), 300, kafka.processes())
    kafka.wait_ready(300)
    for node in kafka.nodes:
        busy_ends(node)
    figures: dict[str, object] = {"members": size.members, "groups": size.groups, "partitions": size.partitions}
    figures |= {"records": records, "topic_kb": round(topic_bytes(kafka, kafka.nodes[0]) / 1024), "idle_mb": idle}
    figures["empty_topic_kb"] = round(empty / 1024)
    figures["idle_cpu_percent"] = idle_cpu(kafka)
    owners = owners_of(kafka, size)

    async def load() -> None:
        crowd = Crowd(size, owners, connections)
        try:
            await crowd.connect()
            await crowd.beat(2 * INTERVAL_S)  # each connection is authorised, and its members are known as steady
            began, before = time.monotonic(), crowd.answered()
            cpu = sum(cpu_s(n.sidecar) for n in kafka.nodes)
            await crowd.beat(seconds)
            took = time.monotonic() - began
            used = sum(cpu_s(n.sidecar) for n in kafka.nodes) - cpu
            figures["connections"] = len(crowd.lines)
            figures["heartbeats_per_s"] = round((crowd.answered() - before) / took, 1)
            figures["cpu_percent"] = round(100 * used / took, 1)
            figures["memory_mb"] = max(rss_mb(n.sidecar) for n in kafka.nodes)
        finally:
            crowd.close()

    uvloop.run(load())
    victim = owners[size.names()[0]]
    heir = next(n for n in kafka.nodes if n is not victim)
    lost = [g for g, n in owners.items() if n is victim]
    sample = lost[:: max(1, len(lost) // PROBED)][:PROBED]
    assert victim.sidecar is not None
    killed = time.monotonic()
    victim.sidecar.kill()
    firsts = asyncio.run(Beats(f"127.0.0.1:{heir.sidecar_port}").first(sample, killed, 120))
    return figures | {"takeover_s": [round(firsts[0], 2), round(firsts[-1], 2)], "taken_over": len(lost)}


# ---- connections, and growth ---------------------------------------------------------------------------------------
HELLO = (
    request_frame(18, 0, 1, CLIENT_ID, False, av.ApiVersionsRequest().encode(0)),
    request_frame(3, 1, 2, CLIENT_ID, False, md.MetadataRequest(topics=[]).encode(1)),
)


class Silent(Line):
    """A connection whose first request its broker has answered."""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + (size := SIZE.unpack_from(self._buffer, 0)[0]):
            self._buffer = self._buffer[4 + size :]
            self.answered += 1


def idle(kafka: LocalKafka, count: int) -> dict[str, object]:
    """Measures the memory and open files of `count` silent connections."""
    processes = [psutil.Process(n.sidecar.worker_pid) for n in kafka.nodes if n.sidecar is not None]

    async def connect() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        lines: list[Silent] = []
        before, files = sum(p.memory_info().rss for p in processes), sum(p.num_fds() for p in processes)
        try:
            for node in kafka.nodes:
                each = count // len(kafka.nodes)
                for begun in range(0, each, AT_ONCE):
                    some = range(min(AT_ONCE, each - begun))
                    opening = (loop.create_connection(Silent, "127.0.0.1", node.sidecar_port) for _ in some)
                    made = [line for _, line in await asyncio.gather(*opening)]
                    for line in made:
                        line.transport.write(b"".join(HELLO))
                    while not all(line.answered == len(HELLO) for line in made):
                        if any(line.closed for line in made):
                            raise RuntimeError(f"a connection was closed; {len(lines)} had been opened before")
                        await asyncio.sleep(TICK_S)
                    lines += made
            await asyncio.sleep(IDLE_S)
            memory = sum(p.memory_info().rss for p in processes) - before
            return memory / len(lines), (sum(p.num_fds() for p in processes) - files) / len(lines)
        finally:
            for line in lines:
                line.transport.close()

    memory, files = asyncio.run(connect())
    return {"connections": count, "memory_kb_each": round(memory / 1024, 1), "open_files_each": round(files, 2)}


class Crew:
    """Real members of one group (KIP-848). They share a connection to the sidecar that owns it."""

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[ch.TopicPartitions]] = {}

    async def settle(self, conn: BrokerConnection) -> None:
        """Heartbeat until nobody's epoch or partitions change any more."""
        calm = 0
        while calm < 3:
            changed = False
            for member in self.epochs:
                changed |= await self._beat(conn, member)
            calm = 0 if changed else calm + 1
            await asyncio.sleep(10 * TICK_S)

    async def leave(self, conn: BrokerConnection, member: str) -> None:
        self.epochs[member] = -1
        await self._beat(conn, member)
        del self.epochs[member]

    async def _beat(self, conn: BrokerConnection, member: str) -> bool:
        epoch = self.epochs[member]
        req = ch.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=member, member_epoch=epoch)
        if epoch == 0:
            req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 60_000, [self.topic], []
        elif epoch > 0:
            req.topic_partitions = self.owned[member]
        res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
        if res.error_code != 0:
            raise RuntimeError(f"{member} in epoch {epoch}: {name_of(res.error_code)}")
        if res.assignment is not None:
            parts = res.assignment.topic_partitions
            self.owned[member] = [ch.TopicPartitions(t.topic_id, t.partitions) for t in parts]
        self.epochs[member] = res.member_epoch
        return bool(res.member_epoch != epoch or res.assignment is not None)


async def growth(kafka: LocalKafka, members: int, partitions: int, rebalances: int) -> dict[str, object]:
    """Bytes that a rebalance writes: in turn a member leaves, and one joins."""
    group, topic = "large-growing", "growing"
    create_topic(kafka, topic, members * partitions)
    cluster = Cluster([("127.0.0.1", kafka.nodes[0].sidecar_port)], "bench", {})
    conn = await cluster.open(await cluster.coordinator_node(group, 0))
    crew = Crew(group, topic)
    crew.epochs = {member_id(i): 0 for i in range(members)}
    await crew.settle(conn)
    before = topic_bytes(kafka, kafka.nodes[0])
    for i in range(rebalances):
        if i % 2 == 0:
            await crew.leave(conn, member_id(i // 2))
        else:
            crew.epochs[member_id(members + i)] = 0
        await crew.settle(conn)
    written = topic_bytes(kafka, kafka.nodes[0]) - before
    conn.close()
    cluster.close()
    each = written / rebalances
    return {"members": members, "bytes_each_rebalance": round(each), "bytes_each_member": round(each / members)}


HEAD = " members  connections  heartbeats/s     cpu (without)    idle   memory      topic takeover"


@contextmanager
def two_brokers() -> Iterator[LocalKafka]:
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        properties = {**PROPERTIES, "log.segment.bytes": "1073741824"}
        folder = Path(tmp) / "run"
        with LocalKafka(folder, brokers=2, properties=properties, sidecar_env=PATIENT, jvm=JVM_FAST) as kafka:
            yield kafka


def others(a: argparse.Namespace) -> None:
    figures: dict[str, object] = {"bench": "capacity", "peer": None}
    for count in a.idle:
        with two_brokers() as kafka:
            kafka.wait_ready()
            figures[f"idle_{count}"] = idle(kafka, count)
            print(figures[f"idle_{count}"], flush=True)
    if a.growth:
        with two_brokers() as kafka:
            kafka.wait_ready()
            figures["growth"] = asyncio.run(growth(kafka, a.group, a.partitions, a.growth))
    finish(figures)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--members", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    ap.add_argument("--group", type=int, default=100, help="members of a group")
    ap.add_argument("--partitions", type=int, default=2, help="for each member")
    ap.add_argument("--connections", type=int, default=8_000, help="at most")
    ap.add_argument("--seconds", type=float, default=30.0)
    ap.add_argument("--idle", type=int, nargs="+", default=[], metavar="N", help="so many silent connections instead")
    ap.add_argument("--growth", type=int, default=0, metavar="N", help="so many rebalances instead")
    a = ap.parse_args()
    if a.idle or a.growth:
        others(a)
        return
    rows = []
    print(HEAD, flush=True)
    for members in a.members:
        size = Size(max(1, members // a.group), members, members * a.partitions)
        with two_brokers() as kafka:
            f = row(kafka, size, a.seconds, a.connections)
        rows.append(f)
        print(
            f"{members:8,} {f['connections']:12,} {f['heartbeats_per_s']:13,} "
            f"{f['cpu_percent']:5} % {f['idle_cpu_percent']:7} % "
            f"{f['idle_mb']:4} MB {f['memory_mb']:5} MB {f['topic_kb']:7,} kB {f['takeover_s']} s",
            flush=True,
        )
    finish({"bench": "capacity", "peer": None, "interval_s": INTERVAL_S, "rows": rows})


if __name__ == "__main__":
    main()
