"""Consumers as real ones behave, in the one thing that matters here: what they say to a coordinator, and what they
believe to own. Each is a process of its own on a host of its own, with our own Kafka client on virtual time.

A consumer reads a partition from its committed offset on, and commits again and again; offsets only grow while it
keeps a partition. So an offset that goes back at the brokers is a commit of somebody who owned the partition no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from tests.whole.broker.codes import Err
from tests.whole.exactly_once import End, Producer
from tests.whole.loop import SimLoop
from tests.whole.net import Net
from tests.whole.universe import Proc

BACK_OFF_S = 0.1
REQUEST_S, LAST_S = 5.0, 2.0
COMMIT_V, FETCH_V = 9, 9
Place = tuple[str, int]
"""Topic and partition."""
HEARD = (
    "ConsumerGroupHeartbeat",
    "StreamsGroupHeartbeat",
    "ShareGroupHeartbeat",
    "Heartbeat",
    "JoinGroup",
    "SyncGroup",
)
"""By these a coordinator hears of a member."""
MOVED = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE)
WAIT = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.REQUEST_TIMED_OUT)


PARTITIONS_OF: dict[str, int] = {"t1": 4, "t2": 3}
"""Partitions of the topics of the simulation."""


class Judge(Protocol):
    """An observer of what clients are told."""

    def answered(self, client: Client, host: str, what: str, code: int, asked_ms: float) -> None:
        """By the sidecar of this host."""

    def broke(self, problem: Exception) -> None:
        """A client has ended by an exception."""

    def told(self, client: Client, what: str, epoch: int) -> None:
        """Called with the epoch, or the generation, that the client is in now."""

    def commits(self, client: Client, host: str, place: Place, offset: int) -> None:
        """A commit is sent to the sidecar of this host."""

    def committed(self, client: Client, place: Place, offset: int) -> None:
        """A commit was acknowledged."""

    def gives_up(self, client: Client, place: Place, offset: int) -> None:
        """Called when the client no longer waits for the answer to this commit."""

    def has_none(self, client: Client, what: str, asked_ms: float) -> None:
        """No answer: the connection is lost, or it has waited long enough."""

    def found(self, client: Client, host: str, told: str, asked_ms: float) -> None:
        """Called when the client has asked this host for its coordinator, and has not got a connection to it."""

    def decides(self, host: str, txn_id: str) -> bool:
        """Whether the broker of this host coordinates this transactional id, as the controller has it."""

    def disputed(self, txn_id: str) -> bool:
        """Some broker has not heard who coordinates this id."""

    def timed_out(self, producer_id: int, epoch: int) -> bool:
        """The coordinator of transactions has ended this producer's transaction, and fenced who goes on with it."""

    def owns(self, client: Client) -> None:
        """Called when the client has taken partitions, or given some up."""

    def aborts(self, client: Client, offsets: Mapping[Place, int]) -> None:
        """The transaction of these offsets is to be aborted."""

    def fetched(self, client: Client, place: Place, offset: int, asked_ms: float) -> None: ...

    def status(self, client: Client, code: StatusCode) -> None:
        """Called with a status of its streams group."""


@dataclass(frozen=True)
class Habits:
    """The behaviour of a client."""

    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    session_ms: int = 6_000
    rebalance_ms: int = 10_000
    heartbeat_ms: int = 1_000
    commit_ms: float = 1_000.0
    revoke_ms: float = 50.0
    """Milliseconds that it takes to give a partition up."""
    idle: frozenset[Place] = frozenset()
    """Partitions into which nothing comes: they are committed when they are taken, and never again."""
    exactly_once: str = ""
    """The transactions in which it commits: `old`, or `new` as of KIP-890; empty if it commits without."""


@dataclass(eq=False)
class Client:
    commits_as: ClassVar[str] = "classic"
    """The protocol whose errors its commits may get."""

    proc: Proc
    net: Net
    brokers: Sequence[tuple[str, int]]
    habits: Habits
    judge: Judge
    topic_ids: Callable[[], Mapping[str, bytes]]
    loop: SimLoop = field(init=False)
    member_id: str = ""
    epoch: int = 0
    """Member epoch or generation."""
    owned: dict[Place, int] = field(default_factory=dict)
    """The offset that it has come to in each partition that it owns."""
    leaving: bool = False
    conn: BrokerConnection | None = None
    waits_since_ms: float | None = None
    """The time at which the request was sent that has no answer yet."""
    steady: int = 0
    """Answers in a row that said that all is well."""
    well_ms: float = 0.0
    """The time at which the last of them came."""
    committing: bool = False
    """A commit has been sent and not been answered."""
    losses: int = 0
    """The number of times that it has given everything up."""
    spoke_ms: float = 0.0
    """The time of the last heartbeat or join that was answered so."""
    _failed: str = ""
    """The host that did not answer last."""
    _said: set[Place] = field(default_factory=set)
    """Partitions for which it has ever committed."""
    _producer: Producer | None = None
    _transaction: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One after the other."""
    _unsure: bool = False
    """The last one may have been committed or not."""

    def __post_init__(self) -> None:
        if self.habits.exactly_once:
            txn_id = f"{self.habits.group_id}-{self.habits.instance_id or self.name}"
            self._producer = Producer(self, txn_id, self.habits.exactly_once == "new")
        self.loop = SimLoop(self.proc, self.net)
        self.proc.later(0, lambda: self.loop.create_task(self._main()))

    @property
    def name(self) -> str:
        return self.proc.name

    async def _main(self) -> None:
        committing = self.loop.create_task(self._commits())
        try:
            await self.run()
        except Exception as exc:  # noqa: BLE001 - a client has no bugs
            self.judge.broke(exc)
        committing.cancel()
        self.proc.later(0, self.proc.crash)

    async def run(self) -> None:
        """The life of a member, until it leaves."""
        raise NotImplementedError

    def wanted(self) -> set[Place]:
        """Returns the partitions that it and the others of its group share."""
        return {(t, p) for t in self.habits.topics for p in range(PARTITIONS_OF[t])}

    async def pause(self, s: float) -> None:
        await asyncio.sleep(s * self.proc.universe.rng.uniform(0.8, 1.2))

    # ---- the coordinator ------------------------------------------------------------------------------------
    async def coordinator(self) -> BrokerConnection | None:
        """The connection to it; None: it is not known, and that was waited for."""
        if self.conn is not None and not self.conn.closed:
            return self.conn
        rng = self.proc.universe.rng
        host, port = rng.choice([b for b in self.brokers if b[0] != self._failed] or list(self.brokers))
        self._failed = ""
        asked_ms = self.proc.universe.now_ms
        try:
            first = await BrokerConnection.open(host, port, self.name, 2.0)
            try:
                key = self.habits.group_id
                req = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=[key])
                res = await first.request(fc, "FindCoordinator", req, high=4, timeout_s=REQUEST_S)
            finally:
                first.close()
            found = res.coordinators[0]
            if found.error_code == Code.NONE:
                self.conn = await BrokerConnection.open(found.host, found.port, self.name, 2.0)
                return self.conn
            self.judge.found(self, host, name_of(found.error_code), asked_ms)
        except NO_ANSWER as exc:
            self._failed = host  # it tries again, as every client does, and somebody else first
            self.judge.found(self, host, f"no answer ({exc!r})", asked_ms)
        await self.pause(BACK_OFF_S)
        return None

    def forget_coordinator(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None

    async def ask(self, module: Any, what: str, req: Any, high: int | None = None, timeout_s: float = REQUEST_S) -> Any:
        """The coordinator's answer; None if there is none, and then it is looked for anew."""
        conn = await self.coordinator()
        if conn is None:
            return None
        self.waits_since_ms = asked_ms = self.proc.universe.now_ms
        try:
            res = await conn.request(module, what, req, high=high, timeout_s=timeout_s)
        except NO_ANSWER:
            self.judge.has_none(self, what, asked_ms)
            self.steady = 0
            if conn is self.conn:
                self.forget_coordinator()
            await self.pause(BACK_OFF_S)
            return None
        finally:
            self.waits_since_ms = None
        code = getattr(res, "error_code", 0)
        self.judge.answered(self, conn.peer()[0], what, code, asked_ms)
        if code == Code.NONE:
            self.steady, self.well_ms = self.steady + 1, self.proc.universe.now_ms
            epoch = getattr(res, "member_epoch", getattr(res, "generation_id", 0))
            if epoch >= 0 and what in HEARD:  # else it has left, maybe for a while: its session goes on as it was
                self.spoke_ms = asked_ms
            self.judge.told(self, what, epoch)
        else:
            self.steady = 0
        if code in MOVED and conn is self.conn:
            self.forget_coordinator()
            await self.pause(BACK_OFF_S)
        elif code in WAIT:
            await self.pause(BACK_OFF_S)
        return res

    # ---- offsets --------------------------------------------------------------------------------------------
    async def take(self, places: Sequence[Place]) -> bool:
        """Own these from their committed offsets on. False: that did not come about."""
        places = [p for p in places if p not in self.owned]
        found = await self._committed(places)
        if found is None:
            return not places
        self.owned.update(found)
        if places:
            self.judge.owns(self)
        return True

    async def _committed(self, places: Sequence[Place]) -> dict[Place, int] | None:
        """Returns their committed offsets, 0 where there is none. None: it is refused, or in another epoch by now."""
        epoch = self.epoch
        by_topic: dict[str, list[int]] = {}
        for topic, p in places:
            by_topic.setdefault(topic, []).append(p)
        while places and epoch == self.epoch:
            asked_ms = self.proc.universe.now_ms
            wanted = [of.OffsetFetchRequestTopics(name=t, partition_indexes=ps) for t, ps in by_topic.items()]
            group = of.OffsetFetchRequestGroup(self.habits.group_id, self.member_id, self.epoch, wanted)
            req = of.OffsetFetchRequest(groups=[group], require_stable=True)
            res = await self.ask(of, "OffsetFetch", req, high=FETCH_V)
            if res is None:
                continue
            code = res.groups[0].error_code
            if code in (*MOVED, *WAIT):
                if code in MOVED:
                    self.forget_coordinator()
                await self.pause(BACK_OFF_S)
                continue
            if code != Code.NONE or epoch != self.epoch:
                return None
            found = {(t.name, p.partition_index): p for t in res.groups[0].topics for p in t.partitions}
            if any(p.error_code for p in found.values()):
                await self.pause(BACK_OFF_S)
                if not await self.still_in():
                    return None
                continue
            for place, p in found.items():
                self.judge.fetched(self, place, p.committed_offset, asked_ms)
            return {place: max(p.committed_offset, 0) for place, p in found.items()}
        return None if places else {}

    async def still_in(self) -> bool:
        """Returns whether it is still in its group. It is asked while it waits for something else than its heartbeats,
        which go on meanwhile. False: it must join again."""
        return True

    def transaction_has_timed_out(self) -> bool:
        return self._producer is not None and self.judge.timed_out(*self._producer.now)

    def producer_is_newer(self, code: int) -> bool:
        """A broker that is cut off does not know the producer: where it takes the transactional id to be coordinated
        nobody has heard of the id, or of the epoch, that was given out since."""
        mine, codes = self._producer, (Err.INVALID_PRODUCER_ID_MAPPING, Err.INVALID_PRODUCER_EPOCH)
        return mine is not None and code in codes and self.judge.disputed(mine.txn_id)

    async def commit(self) -> None:
        """Commits what it has come to."""
        if self._producer is not None:
            await self._in_transaction(self._producer)
            return
        sent = self._due()
        if not sent:
            return
        self._said.update(sent)
        by_topic: dict[str, list[oc.OffsetCommitRequestPartition]] = {}
        for (topic, p), offset in sent.items():
            part = oc.OffsetCommitRequestPartition(partition_index=p, committed_offset=offset)
            by_topic.setdefault(topic, []).append(part)
        topics = [oc.OffsetCommitRequestTopic(name=t, partitions=ps) for t, ps in by_topic.items()]
        h = self.habits
        req = oc.OffsetCommitRequest(h.group_id, self.epoch, self.member_id, h.instance_id, topics=topics)
        conn = self.conn
        if conn is None or conn.closed:
            return
        res = await self.store(conn, oc, "OffsetCommit", req, COMMIT_V, sent)
        for t in res.topics if res is not None else ():
            for part in t.partitions:
                if part.error_code == Code.NONE:
                    place = (t.name, part.partition_index)
                    self.judge.committed(self, place, sent[place])

    async def store(
        self, conn: BrokerConnection, module: Any, what: str, req: Any, high: int, sent: Mapping[Place, int]
    ) -> Any:
        """Commits these offsets over this connection. None: nobody has answered."""
        asked_ms = self.proc.universe.now_ms
        for place, offset in sent.items():
            self.judge.commits(self, conn.peer()[0], place, offset)
        self.committing = True
        try:
            res = await conn.request(module, what, req, high=high, timeout_s=REQUEST_S)
        except NO_ANSWER:
            self.judge.has_none(self, what, asked_ms)
            for place, offset in sent.items():
                self.judge.gives_up(self, place, offset)
            if conn is self.conn:
                self.forget_coordinator()
            return None
        finally:
            self.committing = False
        for t in res.topics:
            for part in t.partitions:
                self.judge.answered(self, conn.peer()[0], what, part.error_code, asked_ms)
                if part.error_code in MOVED and conn is self.conn:
                    self.forget_coordinator()
        return res

    async def commit_last(self) -> None:
        """Before it gives partitions up. It does not wait long for a transaction; whoever reads these offsets next does
        so until its end."""
        try:
            async with asyncio.timeout(LAST_S):
                await self.commit()
        except TimeoutError:
            return

    def _due(self) -> dict[Place, int]:
        return {place: n for place, n in self.owned.items() if place not in self._said or place not in self.habits.idle}

    async def _in_transaction(self, producer: Producer) -> None:
        async with self._transaction:
            if self._unsure and not await self._read_again():
                return
            sent = self._due()
            if not sent:
                return
            self._unsure = True
            end = await producer.commit(sent)
            if end is End.COMMITTED:
                self._unsure = False
                self._said.update(sent)
                for place, offset in sent.items():
                    self.judge.committed(self, place, offset)
            else:
                await self._read_again()

    async def _read_again(self) -> bool:
        """Reads the committed offsets again: what a transaction has not committed is done once more."""
        found = await self._committed([*self.owned])
        if found is None:
            return False
        self.owned.update({place: n for place, n in found.items() if place in self.owned})
        self._unsure = False
        return True

    async def _commits(self) -> None:
        """Consumes, and commits what it has consumed."""
        rng = self.proc.universe.rng
        try:
            while True:
                await self.pause(self.habits.commit_ms / 1000)
                for place in self.owned:
                    if place not in self.habits.idle:
                        self.owned[place] += rng.randrange(1, 20)
                await self.commit()
        except Exception as exc:  # noqa: BLE001 - as above
            self.judge.broke(exc)

    def lose_all(self) -> None:
        self.losses += 1
        if self.owned:
            self.owned.clear()
            self.judge.owns(self)
