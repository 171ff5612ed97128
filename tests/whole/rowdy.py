"""A peer that does not behave: garbage, halves of requests, requests whose answers it never reads, connections that it
closes by halves, and requests in the name of others with an epoch or a member id that is not theirs. Whatever it says,
nobody else is to notice; what it asks for in the name of others must be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.wire.apis import Api
from sidecar.wire.frames import SIZE, request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.whole.client import Client
from tests.whole.judge import LOADING_MS
from tests.whole.loop import SimLoop
from tests.whole.share import ShareMember
from tests.whole.streams import StreamsMember
from tests.whole.universe import Proc
from tests.whole.violation import Violation

if TYPE_CHECKING:
    from tests.whole.world import World

FAR = 10**12
"""No member comes to such an offset."""
PIPELINED = 300


class Rowdy:
    def __init__(self, proc: Proc, world: World, addresses: Sequence[tuple[str, int]]) -> None:
        self.proc, self.world = proc, world
        self.addresses = addresses
        self.rng = world.rng
        self.loop = SimLoop(proc, world.net)
        self._open: list[asyncio.StreamWriter] = []
        proc.later(0, lambda: self.loop.create_task(self._main()))

    async def _main(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [
            self.garbage,
            self.half_a_frame,
            self.never_reads,
            self.closes_by_halves,
            self.beats_for_others,
            self.commits_for_others,
        ]
        try:
            while True:
                await asyncio.sleep(self.rng.uniform(0.1, 2.0))
                act = self.rng.choice(acts)
                self.world.judge.figures[f"rowdy: {act.__name__}"] += 1
                try:
                    await act()
                except (OSError, asyncio.IncompleteReadError, *NO_ANSWER):
                    self.world.judge.figures["rowdy: cut short"] += 1
        except Exception as exc:  # noqa: BLE001 - it travels to the judge
            self.world.judge.broke(exc)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection(*self.rng.choice(self.addresses))
        self._open.append(writer)
        if len(self._open) > 10:
            self._open.pop(0).close()
        return reader, writer

    # ---- bytes ----------------------------------------------------------------------------------------------
    async def garbage(self) -> None:
        _, writer = await self._connect()
        writer.write(self.rng.randbytes(self.rng.randrange(1, 3_000)))

    async def half_a_frame(self) -> None:
        """The other half never comes."""
        _, writer = await self._connect()
        writer.write(SIZE.pack(self.rng.randrange(10, 100_000)) + self.rng.randbytes(9))

    async def never_reads(self) -> None:
        _, writer = await self._connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        req = hb.HeartbeatRequest("g2", 1, "nobody").encode(4)
        for i in range(PIPELINED):
            writer.write(request_frame(Api.HEARTBEAT, 4, i, "rowdy", True, req))

    async def closes_by_halves(self) -> None:
        reader, writer = await self._connect()
        writer.write(
            request_frame(Api.HEARTBEAT, 4, 1, "rowdy", True, hb.HeartbeatRequest("g2", 1, "nobody").encode(4))
        )
        writer.write_eof()
        async with asyncio.timeout(5.0):
            await reader.read()
        writer.close()

    # ---- in the name of others ------------------------------------------------------------------------------
    def _somebody(self) -> Client | None:
        known = [c for c in self.world.clients if c.proc.alive and c.member_id and c.epoch > 0]
        return self.rng.choice(known) if known else None

    async def _ask(self, module: Any, what: str, req: Any, high: int) -> Any:
        host, port = self.rng.choice(self.addresses)
        conn = await BrokerConnection.open(host, port, "rowdy", 2.0)
        try:
            return await conn.request(module, what, req, high=high, timeout_s=5.0)
        finally:
            conn.close()

    async def beats_for_others(self) -> None:
        c = self._somebody()
        if c is None:
            return
        group_id, epoch = c.habits.group_id, c.epoch + self.rng.randrange(50, 60)
        instance = c.habits.instance_id
        began_ms = self.world.universe.now_ms
        res = await self._ask(hb, "Heartbeat", hb.HeartbeatRequest(group_id, epoch, c.member_id, instance), 4)
        waited_ms = self.world.universe.now_ms - began_ms
        # Where a group is still loading, Kafka says NONE, too: a broker at once, a sidecar when it has waited for it.
        if waited_ms < LOADING_MS and group_id not in self.world.judge.moving.homes:
            self._refused(res.error_code, f"a heartbeat of {c.name} in generation {epoch}")
        req = ch.ConsumerGroupHeartbeatRequest(group_id, c.member_id, epoch, instance)
        res = await self._ask(ch, "ConsumerGroupHeartbeat", req, 1)
        self._refused(res.error_code, f"a heartbeat of {c.name} in epoch {epoch}")
        if isinstance(c, StreamsMember):
            of_streams = st.StreamsGroupHeartbeatRequest(group_id, c.member_id, epoch, -1, instance)
            res = await self._ask(st, "StreamsGroupHeartbeat", of_streams, 1)
            self._refused(res.error_code, f"a heartbeat of {c.name} in epoch {epoch} of its streams group")
        elif isinstance(c, ShareMember):
            res = await self._ask(
                sh, "ShareGroupHeartbeat", sh.ShareGroupHeartbeatRequest(group_id, c.member_id, epoch), 1
            )
            self._refused(res.error_code, f"a heartbeat of {c.name} in epoch {epoch} of its share group")

    async def commits_for_others(self) -> None:
        c = self._somebody()
        if c is None:
            return
        epoch = c.epoch + self.rng.randrange(50, 60)
        member_id = self.rng.choice((c.member_id, "nobody"))
        if c.habits.group_id in self.world.judge.moving.homes:
            member_id = "nobody"  # no broker tells generations: a group just taken in takes its members' commits in any
        part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=FAR)
        topics = [oc.OffsetCommitRequestTopic(name=t, partitions=[part]) for t in c.habits.topics]
        req = oc.OffsetCommitRequest(c.habits.group_id, epoch, member_id, None, topics=topics)
        res = await self._ask(oc, "OffsetCommit", req, 9)
        for t in res.topics:
            for p in t.partitions:
                self._refused(p.error_code, f"a commit of {member_id} in epoch {epoch}")

    def _refused(self, code: int, what: str) -> None:
        self.world.judge.figures["rowdy: refused"] += 1
        if code == Code.NONE:
            raise Violation(f"{what} was accepted")
