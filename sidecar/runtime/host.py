"""The partitions this sidecar owns: taking over, serving, giving up.

Takeover: Init -> claim -> replay through the claim -> serve (decision 4). A group is decoded when first touched,
the rest in slices of a millisecond. Commits: a handler's records go to the writer, its reply waits for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sidecar.assign.spec import Assignor
from sidecar.core.consumer.run import RunInput, RunOutput, run
from sidecar.core.errors import Code, InvariantError
from sidecar.core.events import AssignorDone, Effects, GroupConfig, Log, RegexResolved, ResolveRegex, RunAssignor
from sidecar.core.placement import partition_for
from sidecar.core.records import Kind, TargetRecord, Tombstone
from sidecar.core.regex import resolve
from sidecar.core.shard import Now, Shard
from sidecar.core.topics import Topic, TopicImage
from sidecar.kafka.cluster import Address, Cluster
from sidecar.kafka.produce import Appender
from sidecar.runtime.background import Background
from sidecar.runtime.log import Logger
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.ownership import Assignment, Ownership
from sidecar.runtime.tail import Tail
from sidecar.runtime.tasks import Supervisor
from sidecar.runtime.waiters import Waiters
from sidecar.runtime.writer import Fenced, FencedWriter, WriteLost
from sidecar.state.codec import OWNER_CLAIM, Encoded, EncodedTargets, RevisionKey, Stamp, StateCodec
from sidecar.state.keys import encode_key
from sidecar.state.schema import StateError

TICK_S = 0.05
SLICE_S = 0.001
GAP_MS = 1_000
"""A pause of the whole process longer than this is given back to every member's session."""


def now() -> Now:
    return Now(int(time.monotonic() * 1000), int(time.time() * 1000))


@dataclass(slots=True)
class OwnedShard:
    partition: int
    shard: Shard
    writer: FencedWriter
    undecoded: set[str]
    revisions: dict[RevisionKey, int] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    fenced_at: float = field(default_factory=time.monotonic)


class Host:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        node_id: int,
        address: Address,
        tail: Tail,
        codec: StateCodec,
        assignors: Mapping[str, Assignor],
        config: Callable[[str], GroupConfig],
        write_timeout_s: float,
        fence_interval_s: float,
        claims_kept: int,
        metrics: Metrics,
        log: Logger,
        tasks: Supervisor,
        background: Background,
    ) -> None:
        self.background = background
        self.cluster = cluster
        self.topic = topic
        self.partitions = partitions
        self.node_id = node_id
        self.address = address
        self.tail = tail
        self.codec = codec
        self.assignors = assignors
        self.config = config
        self.write_timeout_s = write_timeout_s
        self.fence_interval_s = fence_interval_s
        self.claims_kept = claims_kept
        self.metrics = metrics
        self.log = log
        self.tasks = tasks
        self.appender = Appender(cluster, write_timeout_s)
        self.image = TopicImage()
        self.active: dict[int, OwnedShard] = {}
        self.assigned: set[int] = set()
        self.ownership: Ownership | None = None
        self._topics: tuple[Topic, ...] = ()
        self._taking: dict[int, asyncio.Task[None]] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._last_tick_ms = 0
        self._deaf_ms = 0
        self._loads = Waiters()
        self.moves = Waiters()
        """By group: an assignor run or a resolution of its regular expressions has ended."""

    # ---- lookups ------------------------------------------------------------------------------------------
    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self.partitions)

    def find(self, group_id: str) -> OwnedShard | Code:
        """The shard that serves this group here and now, or the error that says why not."""
        p = self.partition_of(group_id)
        if p not in self.assigned or self.ownership is None or not self.ownership.lease_valid():
            return Code.NOT_COORDINATOR
        owned = self.active.get(p)
        if owned is None:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        if group_id in owned.undecoded:
            self._decode(owned, group_id)
        return owned

    async def wait_loaded(self, group_id: str, timeout_s: float) -> None:
        """Until the takeover of this group's partition has ended, one way or the other, or the time is over."""
        await self._loads.wait(self.partition_of(group_id), timeout_s)

    def owner_node(self, group_id: str) -> int | None:
        """Node id beside which the owner of this group stands; None while unknown."""
        owners = self.ownership.assignment.owners if self.ownership else ()
        p = self.partition_of(group_id)
        return owners[p] if p < len(owners) and owners[p] >= 0 else None

    def known(self, group_id: str) -> bool:
        """Is there such a group? At its owner from the state itself, elsewhere from the tail, a little later."""
        p = self.partition_of(group_id)
        owned = self.active.get(p)
        if owned is not None:
            return group_id in owned.shard.groups or group_id in owned.undecoded
        return group_id in self.tail.partitions[p].groups

    # ---- ownership ----------------------------------------------------------------------------------------
    def on_assignment(self, a: Assignment) -> None:
        mine = {p for p, n in enumerate(a.owners) if n == self.node_id}
        for p in self.assigned - mine:
            self._release(p, "moved to another sidecar")
        gained = mine - self.assigned
        self.assigned = mine
        self.log.info("owners", generation=a.generation, mine=len(mine), gained=len(gained), sidecars=len(a.members))
        for p in gained:
            self._taking[p] = self.tasks.spawn(self._take_over(p, a, "assigned"), f"takeover-{p}")

    def on_lost(self, why: str) -> None:
        self.log.warning("ownership lost", why=why, partitions=len(self.assigned))
        for p in list(self.assigned):
            self._release(p, why)
        self.assigned = set()

    def _release(self, p: int, why: str) -> None:
        task = self._taking.pop(p, None)
        if task is not None:
            task.cancel()
        owned = self.active.pop(p, None)
        if owned is not None:
            if owned.task is not None:
                owned.task.cancel()
            owned.writer.stop(WriteLost(why))
        self._loads.wake(p)
        self.metrics.owned.set(len(self.active))

    async def _take_over(self, p: int, a: Assignment, why: str) -> None:
        start = time.monotonic()
        pause = 0.05
        while True:
            writer = FencedWriter(self.cluster, self.appender, self.topic, p, self.write_timeout_s, self.tasks)
            try:
                await writer.init()
                fenced = time.monotonic()
                offset = await self._claim(writer, a, why)
                claimed = time.monotonic()
                await self.tail.wait_past(p, offset)
                break
            except WriteLost as exc:
                writer.stop(exc)
                self.log.warning("takeover failed, trying again", partition=p, error=str(exc))
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
        tail = self.tail.partitions[p]
        shard = Shard(self.assignors, self.config)
        shard.image = self.image
        owned = OwnedShard(p, shard, writer, set(tail.groups))
        self.active[p] = owned
        self._taking.pop(p, None)
        self._loads.wake(p)
        took = time.monotonic() - start
        self.metrics.takeover_seconds.observe(took)
        self.metrics.owned.set(len(self.active))
        level = self.log.info if tail.groups else self.log.debug
        level(
            "took over",
            partition=p,
            owner_epoch=writer.owner_epoch,
            groups=len(tail.groups),
            ms=round(took * 1000),
            fence_ms=round((fenced - start) * 1000),
            claim_ms=round((claimed - fenced) * 1000),
        )
        owned.task = self.tasks.spawn(self._decode_all(owned), f"decode-{p}")

    async def _claim(self, writer: FencedWriter, a: Assignment, why: str) -> int:
        """Append schemas that the partition lacks, then the claim. Returns the claim's offset."""
        member = self.ownership.member_id if self.ownership else ""
        stamp = Stamp(writer.owner_epoch, now().wall_ms)
        host, port = self.address
        claim = self.codec.claim(stamp, self.node_id, f"{host}:{port}", member, a.generation, why)
        tail = self.tail.partitions[writer.partition]
        schemas = [
            r
            for r, fp in zip(self.codec.schema_records(), sorted(self.codec.schemas.texts), strict=True)
            if fp not in tail.schemas
        ]
        old = sorted(tail.claims)[: max(0, len(tail.claims) - self.claims_kept)]
        stale = [Encoded(encode_key(OWNER_CLAIM, "", epoch), None) for epoch in old]
        offset = await writer.append_wait([*schemas, *stale, claim])
        if offset < 0:
            raise WriteLost("the broker does not say where the claim is")
        return offset

    async def refence(self, owned: OwnedShard) -> None:
        """Brokers forget fences: take over from ourselves, in between two batches."""
        if self.ownership is None:
            return
        a = self.ownership.assignment
        self._release(owned.partition, "renewing the fence")
        self._taking[owned.partition] = self.tasks.spawn(
            self._take_over(owned.partition, a, "fence renewed"), f"takeover-{owned.partition}"
        )

    # ---- decoding -----------------------------------------------------------------------------------------
    def _decode(self, owned: OwnedShard, group_id: str) -> None:
        owned.undecoded.discard(group_id)
        records = []
        for key, value in self.tail.partitions[owned.partition].groups.get(group_id, {}).items():
            try:
                record, revision = self.codec.decode(key, value)
            except (StateError, ValueError) as exc:
                self.log.error("record skipped", key=str(key), error=str(exc))
                self.metrics.invariant_violations.inc()
                continue
            owned.revisions[(key.kind, key.group_id, key.sub_id)] = revision
            records.append(record)
        owned.shard.load(group_id, records, now())

    async def _decode_all(self, owned: OwnedShard) -> None:
        while owned.undecoded:
            until = time.monotonic() + SLICE_S
            while owned.undecoded and time.monotonic() < until:
                self._decode(owned, next(iter(owned.undecoded)))
            await asyncio.sleep(0)

    # ---- effects ------------------------------------------------------------------------------------------
    def commit(self, owned: OwnedShard, fx: Effects, done: Callable[[bool], None]) -> None:
        """Append what an event led to; `done(True)` once it, and all before it, is committed."""
        records: list[Encoded] = []
        if fx.records:
            stamp = Stamp(owned.writer.owner_epoch, now().wall_ms)
            for r in fx.records:
                if isinstance(r, TargetRecord):
                    records += self._targets(owned, r, stamp)
                    self.metrics.assignments.labels(r.assignor).inc()
                    r = r.metadata()
                key = (str(r.kind), r.group_id, r.sub_id)
                if isinstance(r, Tombstone):
                    owned.revisions.pop(key, None)
                    revision = 0
                else:
                    revision = owned.revisions[key] = owned.revisions.get(key, 0) + 1
                if r.kind is Kind.GROUP and not isinstance(r, Tombstone):
                    self.metrics.rebalances.labels("consumer").inc()
                records.append(self.codec.encode(r, stamp, revision))
        owned.writer.append(records, lambda offset: self._committed(owned, offset, done))
        for command in fx.commands:
            if isinstance(command, Log):
                if command.event == "assignor failed":
                    self.metrics.assignor_failures.labels(command.fields["assignor"]).inc()
                self.log.info(command.event, partition=owned.partition, **command.fields)
            elif isinstance(command, RunAssignor):
                self._run_assignor(owned, command.input)
            else:
                self.tasks.spawn(self._resolve(owned, command), "regex")

    def _committed(self, owned: OwnedShard, offset: int | None, done: Callable[[bool], None]) -> None:
        if offset is None and self.active.get(owned.partition) is owned:
            self._writer_failed(owned)
        done(offset is not None)

    def _writer_failed(self, owned: OwnedShard) -> None:
        """State in memory may be ahead of the log: drop it and, if the partition is still ours, build it anew."""
        p = owned.partition
        why = str(owned.writer.failure)
        fenced = isinstance(owned.writer.failure, Fenced)
        self.metrics.fenced.labels("fenced" if fenced else "write lost").inc()
        self.log.error("shard dropped", partition=p, why=why)
        self._release(p, why)
        if p in self.assigned and self.ownership is not None:
            a = self.ownership.assignment
            self._taking[p] = self.tasks.spawn(self._later(p, a, 1.0 if fenced else 0.1), f"takeover-{p}")

    async def _later(self, p: int, a: Assignment, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        await self._take_over(p, a, "rebuilt")

    def config_changed(self) -> None:
        """Answers that were remembered say the old heartbeat interval."""
        for owned in self.active.values():
            for group in owned.shard.groups.values():
                group.revision += 1

    def _targets(self, owned: OwnedShard, r: TargetRecord, stamp: Stamp) -> list[Encoded]:
        """The members' records of a new target: as made in the background, or now."""
        made = r.encoded
        if isinstance(made, EncodedTargets) and made.members == r.changed:
            owned.revisions.update(made.revisions)
            return list(made.values.values())
        out = []
        for member_id in r.changed:
            key = (str(Kind.TARGET_MEMBER), r.group_id, member_id)
            revision = owned.revisions[key] = owned.revisions.get(key, 0) + 1
            out.append(self.codec.encode(r.member(member_id), stamp, revision))
        return out

    def _run_assignor(self, owned: OwnedShard, inp: RunInput) -> None:
        """In a background thread; what comes back to a shard that is not ours any more is dropped."""
        assignor = self.assignors.get(inp.assignor)
        stamp = Stamp(owned.writer.owner_epoch, now().wall_ms)
        revisions = owned.revisions

        def work() -> tuple[RunOutput, EncodedTargets]:
            if assignor is None:
                raise LookupError(f"there is no assignor {inp.assignor}")
            out = run(inp, assignor)
            return out, self.codec.targets(inp.group_id, out.table, out.changed, inp.why, stamp, revisions)

        def done(result: object, error: BaseException | None) -> None:
            if self.active.get(owned.partition) is not owned:
                self.log.info("assignment dropped", group_id=inp.group_id, epoch=inp.epoch, why="the partition moved")
                self.moves.wake(inp.group_id)
                return
            event = AssignorDone(inp, None, repr(error))
            if isinstance(result, tuple):
                event = AssignorDone(inp, result[0], "", result[1])
            self._event(owned, inp.group_id, lambda: owned.shard.assignor_done(event, now()))

        limit_s = self.config(inp.group_id).assignor_timeout_ms / 1000
        self.background.submit(f"assignor {inp.assignor}", work, done, limit_s)

    def _event(self, owned: OwnedShard, group_id: str, handle: Callable[[], Effects]) -> None:
        """An event of a group that no request brought."""
        try:
            fx = handle()
        except InvariantError as exc:
            self.broken(owned, exc)
        else:
            self.commit(owned, fx, lambda ok: None)
        self.moves.wake(group_id)

    async def _resolve(self, owned: OwnedShard, ask: ResolveRegex) -> None:
        """With the sidecar's own sight of topics: the broker has no authorizer."""
        image = owned.shard.image
        found = await self.resolve(ask.regexes, image)
        self.resolved(owned, RegexResolved(ask.group_id, found, image.names_version))

    async def resolve(self, regexes: tuple[str, ...], image: TopicImage) -> dict[str, tuple[str, ...]]:
        """In the background."""
        future: asyncio.Future[dict[str, tuple[str, ...]]] = asyncio.get_running_loop().create_future()

        def done(result: object, error: BaseException | None) -> None:
            if future.done():
                return
            if isinstance(result, dict):
                future.set_result(result)
            else:
                future.set_exception(error or RuntimeError("no result"))

        self.background.submit("regex", lambda: resolve(regexes, image.by_name), done)
        return await future

    def resolved(self, owned: OwnedShard, event: RegexResolved) -> None:
        if self.active.get(owned.partition) is owned:
            self._event(owned, event.group_id, lambda: owned.shard.regex_resolved(event, now()))

    # ---- time and topics ----------------------------------------------------------------------------------
    def start(self) -> None:
        self._last_tick_ms = now().mono_ms
        self._ticker = self.tasks.spawn(self._tick(), "tick")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            at = now()
            gap_ms = at.mono_ms - self._last_tick_ms
            self._last_tick_ms = at.mono_ms
            if gap_ms > GAP_MS:
                self.log.warning("the process stood still", ms=gap_ms)
                self._deaf_ms += gap_ms
            elif self.ownership is None or not self.ownership.lease_valid():
                self._deaf_ms += gap_ms
            if self.ownership is None or not self.ownership.lease_valid():
                continue
            if self._deaf_ms:
                # Nobody could be heard meanwhile: members get that time back, none is expired for it.
                for owned in self.active.values():
                    owned.shard.timers.shift(self._deaf_ms)
                self._deaf_ms = 0
            for key in self.background.write_off():
                self.log.error("a background run hangs; another thread takes its place", run=key)
            for owned in list(self.active.values()):
                self._tick_one(owned, at)

    def _tick_one(self, owned: OwnedShard, at: Now) -> None:
        due = owned.shard.timers.next_ms()
        if due is not None and due <= at.mono_ms:
            try:
                fx = owned.shard.tick(at)
            except InvariantError as exc:
                self.broken(owned, exc)
                return
            if fx.records or fx.commands:
                self.commit(owned, fx, lambda ok: None)
        if time.monotonic() - owned.fenced_at > self.fence_interval_s and not owned.writer.busy:
            owned.fenced_at = time.monotonic()
            self.tasks.spawn(self.refence(owned), f"refence-{owned.partition}")

    def broken(self, owned: OwnedShard, exc: InvariantError) -> None:
        """A contradiction in the state: stop the shard, keep the trail, rebuild from the log."""
        self.metrics.invariant_violations.inc()
        self.log.error("invariant broken", partition=owned.partition, error=str(exc))
        owned.writer.failure = WriteLost(f"invariant broken: {exc}")
        self._writer_failed(owned)

    def topics(self, topics: tuple[Topic, ...]) -> None:
        if topics is self._topics:
            return
        self._topics = topics
        image, changed = self.image.next(topics)
        if changed:
            self.image = image
            for owned in self.active.values():
                owned.shard.topics_changed(image, changed)

    async def stop(self) -> None:
        """Let the writers finish what they have, then stop answering."""
        until = time.monotonic() + 1.0
        while any(o.writer.busy for o in self.active.values()) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for p in [*self.active, *self._taking]:
            self._release(p, "stopping")
        if self._ticker is not None:
            self._ticker.cancel()
        self.appender.close()
