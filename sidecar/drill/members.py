"""Members on our own wire client that heartbeat and commit fast, and note when a coordinator accepted each request.

Each has a group of its own, whose id hashes to the same partition as the group under test, so that it has the same
coordinator and never disturbs that group. It does not back off, as it measures the coordinator. The times of unmodified
clients are in their journals.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from sidecar.coordinator.membership.lease_commit import COMMIT_V
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Address, Cluster
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import sync_group as sg

HEARTBEAT_EVERY_S = 0.1
COMMIT_EVERY_S = 0.05
PATIENCE_S = 0.5
"""Seconds for a connection, or for an answer; then the coordinator is looked up and asked anew, in parallel."""
SECURED_S = 5.0
"""Seconds for a connection with a login, which is four answers more, and whose keys all members compute in one
thread."""
ANSWER_S = 15.0
"""Timeout of an answer, in seconds."""
JOIN_S = 5.0
LATE = 6
"""Most requests of one kind that may be unanswered at once."""
SESSION_MS = 45_000
LOST = (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND, Code.ILLEGAL_GENERATION)
ELSEWHERE = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE)

LOOK_S, LATE_S = 0.1, 0.1
"""Interval of the checks whether the members' own loop stands still, and the delay from which on it does. Members send
no requests meanwhile."""

Accepted = list[tuple[float, float]]
"""Times of accepted requests: (sent, answered), in monotonic seconds."""


def first_after(accepted: Accepted, at: float) -> float | None:
    """Return the seconds from `at` to the answer of the first accepted request that was sent after `at`."""
    return next((answered - at for sent, answered in list(accepted) if sent > at), None)


class Speaker(Protocol):
    """The joins and heartbeats of a member, by its protocol. `epoch`: its generation in the classic protocol."""

    member_id: str
    epoch: int

    async def heartbeat(self, conn: BrokerConnection) -> int:
        """Join if needed, heartbeat, and return the error code; a join alone returns REBALANCE_IN_PROGRESS."""


class ConsumerSpeaker:
    """A KIP-848 member. It subscribes to no topic, so it never has to give a partition up."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = f"{group}-member"
        self.epoch = 0

    async def heartbeat(self, conn: BrokerConnection) -> int:
        req = ch.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = SESSION_MS, [], []
        res = await conn.request(ch, "ConsumerGroupHeartbeat", req, timeout_s=ANSWER_S)
        if res.error_code == Code.NONE:
            self.epoch = res.member_epoch
        elif res.error_code in LOST:
            self.epoch = 0
        return int(res.error_code)


class ClassicSpeaker:
    """A classic member: JoinGroup, SyncGroup, Heartbeat. It is the only member, and so the leader, of its group."""

    instance_id: str | None = None

    def __init__(self, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.epoch = -1
        self._joining = asyncio.Lock()
        """Lock for joins: two at once would be two members, and the rebalance would wait for both."""

    async def heartbeat(self, conn: BrokerConnection) -> int:
        async with self._joining:
            if self.epoch < 0:
                return await self._join(conn)
        req = hb.HeartbeatRequest(self.group, self.epoch, self.member_id)
        code = int((await conn.request(hb, "Heartbeat", req, timeout_s=ANSWER_S)).error_code)
        if code in LOST or code == Code.REBALANCE_IN_PROGRESS:
            self._lost(code)
        return code

    def _lost(self, code: int) -> None:
        self.epoch = -1
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self, conn: BrokerConnection) -> int:
        metadata = struct.pack(">hii", 0, 0, -1)  # ConsumerProtocolSubscription v0: no topics, no user data
        req = jg.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        res = await conn.request(jg, "JoinGroup", req, timeout_s=JOIN_S)
        if res.error_code == Code.MEMBER_ID_REQUIRED:
            self.member_id = req.member_id = res.member_id
            res = await conn.request(jg, "JoinGroup", req, timeout_s=JOIN_S)
        if res.error_code != Code.NONE:
            self._lost(res.error_code)
            return int(res.error_code)
        self.member_id = res.member_id
        assignment = struct.pack(">hii", 0, 0, -1)  # ConsumerProtocolAssignment v0: nothing
        sync = sg.SyncGroupRequest(self.group, res.generation_id, self.member_id, self.instance_id)
        sync.protocol_type, sync.protocol_name = "consumer", "range"
        sync.assignments = [sg.SyncGroupRequestAssignment(self.member_id, assignment)]
        out = await conn.request(sg, "SyncGroup", sync, timeout_s=JOIN_S)
        if out.error_code != Code.NONE:
            self._lost(out.error_code)
            return int(out.error_code)
        self.epoch = res.generation_id
        return int(Code.REBALANCE_IN_PROGRESS)


class ConsumerNewcomer:
    """KIP-848 members: each turn is a member that joins, gets the partitions of a topic, and leaves."""

    epoch = 0
    TURNS = 100

    def __init__(self, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.member_id = f"{group}-member"

    async def heartbeat(self, conn: BrokerConnection) -> int:
        res = await self._beat(conn, 0)
        for _ in range(self.TURNS):
            if res.error_code != Code.NONE or (res.assignment is not None and res.assignment.topic_partitions):
                break
            await asyncio.sleep(COMMIT_EVERY_S)
            res = await self._beat(conn, res.member_epoch)
        else:
            return int(Code.REBALANCE_IN_PROGRESS)
        if res.error_code == Code.NONE:
            await self._beat(conn, -1)
        return int(res.error_code)

    async def _beat(self, conn: BrokerConnection, epoch: int) -> ch.ConsumerGroupHeartbeatResponse:
        req = ch.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=epoch)
        if epoch == 0:
            req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = SESSION_MS, [self.topic], []
        res: ch.ConsumerGroupHeartbeatResponse = await conn.request(
            ch, "ConsumerGroupHeartbeat", req, timeout_s=ANSWER_S
        )
        return res


class ClassicNewcomer(ClassicSpeaker):
    """Classic members: each turn is a member that joins, leads its group through a generation, and leaves. It is a
    static member: one that could not leave is replaced by the next."""

    instance_id: str | None = "newcomer"

    async def heartbeat(self, conn: BrokerConnection) -> int:
        self.member_id = ""
        code = await self._join(conn)
        self.epoch = -1  # it commits nothing
        if code != Code.REBALANCE_IN_PROGRESS:
            return code
        identity = lg.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        req = lg.LeaveGroupRequest(self.group, members=[identity])
        await conn.request(lg, "LeaveGroup", req, low=3, timeout_s=ANSWER_S)
        return int(Code.NONE)


def speaker(group: str, kind: str, topic: str, newcomer: bool) -> Speaker:
    if newcomer:
        return ConsumerNewcomer(group, topic) if kind == "consumer" else ClassicNewcomer(group)
    return ConsumerSpeaker(group) if kind == "consumer" else ClassicSpeaker(group)


class Member:
    """One member. `topic`: any topic that exists; the member commits offsets of its partition 0."""

    def __init__(
        self,
        group: str,
        kind: str,
        bootstrap: Sequence[Address],
        topic: str,
        newcomer: bool = False,
        security: Security = PLAINTEXT,
    ) -> None:
        """`newcomer`: the member joins and leaves again and again, and its heartbeats are its finished turns."""
        self.group = group
        self.newcomer = newcomer
        self.heartbeats: Accepted = []
        self.commits: Accepted = []
        self.refused: Counter[str] = Counter()
        self._speaker = speaker(group, kind, topic, newcomer)
        self._bootstrap = list(bootstrap)
        self._security = security
        self._topic = topic
        self._offset = itertools.count(1)

    @property
    def epoch(self) -> int:
        """Member epoch, or generation. It stays the same as long as the member need not join again."""
        return self._speaker.epoch

    async def run(self, stopped: Callable[[], bool]) -> None:
        await asyncio.gather(
            self._converse(self._heartbeat, HEARTBEAT_EVERY_S, stopped),
            self._converse(self._commit, COMMIT_EVERY_S, stopped),
        )

    async def _coordinator(self) -> BrokerConnection:
        cluster = Cluster(self._bootstrap, self.group, {}, security=self._security)
        try:
            node = await cluster.coordinator_node(self.group, 0)
            address = cluster.brokers[node]
            patience_s = PATIENCE_S if self._security is PLAINTEXT else SECURED_S
            return await BrokerConnection.open(*address, self.group, patience_s, security=self._security)
        except ConnectionLost:
            self._bootstrap.append(self._bootstrap.pop(0))  # it may be the first one that is silent
            raise
        finally:
            cluster.close()

    async def _converse(
        self, turn: Callable[[BrokerConnection], Awaitable[int]], pause_s: float, stopped: Callable[[], bool]
    ) -> None:
        """Ask the coordinator again and again; `turn` asks once and returns the error code. A late answer still counts
        while the coordinator is looked up and asked anew. An answer that cannot be read, or any other unexpected
        exception, ends the conversation, also if it comes late."""
        conn: BrokerConnection | None = None
        late: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as requests:
            while not stopped():
                try:
                    if conn is None or conn.closed:
                        conn = await self._coordinator()
                    request = requests.create_task(self._ask(conn, turn))
                    done, _ = await asyncio.wait({request}, timeout=PATIENCE_S)
                    if not done:
                        late.add(request)
                        request.add_done_callback(late.discard)
                        conn = None  # it is closed when its request ends
                except ConnectionLost as exc:
                    self.refused[type(exc).__name__] += 1
                while len(late) >= LATE and not stopped():
                    await asyncio.wait(late, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(pause_s)
            for task in late:
                task.cancel()
        if conn is not None:
            conn.close()

    async def _ask(self, conn: BrokerConnection, turn: Callable[[BrokerConnection], Awaitable[int]]) -> None:
        started, keep = time.monotonic(), False
        try:
            keep = await turn(conn) not in ELSEWHERE and time.monotonic() - started < PATIENCE_S
        except (ConnectionLost, TimeoutError) as exc:
            self.refused[type(exc).__name__] += 1
        finally:
            if not keep:
                conn.close()

    async def _heartbeat(self, conn: BrokerConnection) -> int:
        sent = time.monotonic()
        return self._note(await self._speaker.heartbeat(conn), self.heartbeats, sent)

    async def _commit(self, conn: BrokerConnection) -> int:
        if self._speaker.epoch < 1:
            return Code.NONE  # the heartbeat joins first
        part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=next(self._offset))
        topic = oc.OffsetCommitRequestTopic(name=self._topic, partitions=[part])
        req = oc.OffsetCommitRequest(self.group, self._speaker.epoch, self._speaker.member_id, topics=[topic])
        sent = time.monotonic()
        res = await conn.request(oc, "OffsetCommit", req, high=COMMIT_V, timeout_s=ANSWER_S)
        return self._note(int(res.topics[0].partitions[0].error_code), self.commits, sent)

    def _note(self, code: int, accepted: Accepted, sent: float) -> int:
        if code == Code.NONE:
            accepted.append((sent, time.monotonic()))
        else:
            self.refused[name_of(code)] += 1
        return code


class Members:
    """A thread with an event loop in which all members of a drill run."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.failed: BaseException | None = None
        self.stood_still: list[tuple[float, float]] = []
        """Times, from and to, in monotonic seconds, in which no member could send or receive anything."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)

    def start(self) -> Members:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    async def _watch(self) -> None:
        while not self._stop.is_set():
            due_s = time.monotonic() + LOOK_S
            await asyncio.sleep(LOOK_S)
            if (now_s := time.monotonic()) - due_s > LATE_S:
                self.stood_still.append((due_s, now_s))

    def _run(self) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(self._watch(), *(m.run(self._stop.is_set) for m in self.members))

        try:
            asyncio.run(all_of_them())
        except Exception as exc:
            self.failed = exc  # raised by the drill that waits for a member
            raise
