"""Who owns which partition: the sidecars are an ordinary classic group on the brokers, and the broker is the arbiter.

Our own wire client, because the placement is ours and a lost peer must be noticed in milliseconds. A second
connection carries the heartbeats: a parked JoinGroup must not hold them up. What a sidecar may rely on is its
*lease*: it ends `proof_ms` after the last request that the coordinator could answer only with the other brokers and
only to a live member: the SyncGroup of the group's leader, which is written, and a commit in each generation and now
and then (lease_commit.py). To any other member a broker that has lost its office can answer JoinGroup and SyncGroup
from what it remembers. The lease is longer than the brokers take to make another one coordinator when that one dies
(`broker.session.timeout.ms`, 9 s), and no owner removes a silent member for as long after a takeover
(Turn.arm_removal), or until the former owner has said that it answers no more (giving_up.py). And the lease ends a
session timeout after the last answer of any broker, so that a sidecar that is cut off sends its clients away soon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from sidecar.coordinator.clock import lease_end, now
from sidecar.coordinator.membership.giving_up import GivingUp
from sidecar.coordinator.membership.lease_commit import Confirming
from sidecar.coordinator.membership.owner_map import Assignment, Said, joining
from sidecar.coordinator.membership.peer_links import Answers, Peer, Peers
from sidecar.coordinator.membership.ports import Listener, OwnershipSettings
from sidecar.coordinator.membership.rebalance_barriers import Barriers
from sidecar.coordinator.membership.roster import REMEDY, Members, assignment_of
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.placement import place
from sidecar.kafka.cluster import Address, Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import BrokerConnection
from sidecar.link.ports import Logger, Tasks
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import sync_group as sg
from sidecar.wire.primitives import WireError

LEAVE_AGAIN_S = 0.1
BRISK_S = 0.1
"""The time between two heartbeats while the coordinator of the owners' group is looked for, and a little longer: it has
news then. Its own broker may be the one that died, and what was owned there is nobody's until all have joined again."""
BRISK_FOR_S = 2.0
WATCH_S = 1.0
"""So often it is asked, while a request waits at the coordinator of the owners' group, whether that is another one."""
STABLE = "Stable"
NEVER = Now(-(1 << 62), -(1 << 62))
PROTOCOL_TYPE, PROTOCOL = "sidecar", "beside-leader-v1"
"""The connection for JoinGroup and SyncGroup: a JoinGroup that the broker holds back holds up all that comes behind it
on its connection, and a LeaveGroup for a lost peer is what it waits for."""


class Ownership:
    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        address: Address,
        settings: OwnershipSettings,
        listener: Listener,
        roster: Members,
        log: Logger,
        tasks: Tasks,
        answers: Answers | None = None,
    ) -> None:
        """`answers`: where this sidecar answers the pings of others; None: nowhere."""
        self.cluster = cluster
        self.node_id = node_id
        self.address = address
        self.settings = settings
        self.listener = listener
        self._roster = roster
        self._giving_up = GivingUp(roster, tasks, settings.front_within)
        self._barriers = Barriers(settings.rebalance_wait_ms / 1000, log)
        self._enrolled = ""
        """The member id under which the state topic says who this sidecar is."""
        self.log = log
        self.tasks = tasks
        self.member_id = ""
        self.assignment = Assignment()
        self.is_leader = False
        self._committed = NEVER
        """When the last request was sent whose answer proves that something could be committed."""
        self._heard = NEVER
        """When the last request was sent that a broker answered, as to a member that was alive when it last heard."""
        self.double = ""
        """Where another sidecar is that has this node id, and was started later."""
        self._started_ms = int(time.time() * 1000)
        self._removed: dict[str, int] = {}
        """Member ids of peers that this sidecar has had removed since it last joined, and by which broker."""
        self._expects_until_s = 0.0
        """A peer has said that it has left: until when a generation without it is waited for."""
        self._rejoin = asyncio.Event()
        self._joining = False
        self._answers = answers
        says = (self._remove, listener.peers_suspected, self._peer_left)
        self._peers = Peers(settings.peers, node_id, self._members, *says, tasks, log)
        self._stopping = False
        self._enabled = asyncio.Event()
        self._enabled.set()
        self._warm = asyncio.Event()
        said = (settings.group_id, settings.proof_topic, settings.proof_ms)
        self._confirming = Confirming(cluster, *said, self._live_member, self._commit_written, log)
        self._tasks: list[asyncio.Task[None]] = [
            self.tasks.spawn(self._run(), "ownership"),
            self.tasks.spawn(self._heartbeats(), "ownership-heartbeat"),
            self.tasks.spawn(self._confirming.rounds(), "ownership-proof"),
        ]

    async def stop(self, for_good: bool = True) -> bool:
        """Leave the group, so that the others need not wait for the session to end. Returns whether nobody is left.
        `for_good`: a sidecar of another version may come in the place of this one."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peers.stop()
        if self.member_id:
            await self._try_leave(self.member_id)
        if for_good and self._enrolled:
            member_id, self._enrolled = self._enrolled, ""
            await self._roster.left(member_id, self._giving_up.leaves(self._said()))
        return await self._alone()

    async def _alone(self) -> bool:
        """Nobody is in the owners' group, as far as the brokers can be asked."""
        try:
            group = await self._look()
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.debug("other sidecars not looked for", error=str(exc) or "timed out")
            return False
        return group.error_code == Code.NONE and not group.members

    async def _look(self) -> Any:
        conn = await self.cluster.coordinator(self.settings.group_id, 0)
        req = dg.DescribeGroupsRequest(groups=[self.settings.group_id])
        res = await conn.request(dg, "DescribeGroups", req, high=5, timeout_s=2.0)
        return res.groups[0]

    async def _try_leave(self, member_id: str) -> None:
        try:
            await self._leave(member_id)
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.warning("could not leave the owners' group; the session will end by itself", error=str(exc))

    async def _leave_surely(self, member_id: str) -> None:
        """The broker that coordinates the owners' group may be the one that is gone; the next one starts every session
        anew, and what this member owned would be nobody's for as long."""
        while not self._stopping:
            try:
                await self._leave(member_id)
                return
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self.log.debug("could not leave the owners' group, trying again", error=str(exc) or "timed out")
                await asyncio.sleep(LEAVE_AGAIN_S)

    @property
    def withdrawn(self) -> bool:
        return not self._enabled.is_set()

    def withdraw(self, why: str) -> None:
        """Own nothing until `resume`: the broker beside this sidecar is gone, so no client can come here."""
        if self.withdrawn:
            return
        self._enabled.clear()
        member_id = self.member_id
        self._lost(why)
        if self._enrolled == member_id:
            self._giving_up.withdrew(member_id, self._said())
        if self._answers is not None:
            self._answers.say_left()
        self._rejoin.set()
        if member_id:
            self.tasks.spawn(self._leave_surely(member_id), "withdraw")

    def resume(self) -> None:
        self._enabled.set()

    @property
    def takes_part(self) -> bool:
        return self._warm.is_set()

    def take_part(self) -> None:
        """What is in the state topic is known now. Before that, whoever takes partitions over stops their groups until
        it has read everything, and the owner that was there knew it all."""
        self._warm.set()

    def place_anew(self) -> None:
        """Another member counts than before."""
        if self.is_leader:
            self._rejoin.set()

    def placement_changed(self) -> None:
        """Leadership of `__consumer_offsets` moved: the group's leader asks for a new placement."""
        if self.is_leader and self.assignment.owners:
            wanted = self._owners_among(set(self.assignment.members))
            if tuple(wanted) != self.assignment.owners:
                self._rejoin.set()

    def _owners_among(self, alive: Set[int]) -> list[int]:
        leaders, owners, new = self.listener.offsets_leaders(), self.assignment.owners, self.listener.new_leaders()
        return place(leaders, alive, owners, new | self._barriers.stay(leaders, owners, new))

    # ---- the group ----------------------------------------------------------------------------------------
    async def _run(self) -> None:
        await self._warm.wait()
        first = True
        while True:
            try:
                await self._enabled.wait()
                if first:
                    await self._send_predecessors_away()
                    first = False
                self._joining, before = True, self.assignment.generation
                await self._join()
                self._joining = False
                if self.withdrawn:
                    self.tasks.spawn(self._leave_surely(self.member_id), "withdraw")
                    raise _Lost("withdrawn while joining")
                self._rejoin.clear()
                self._peers.watch()
                if self.assignment.generation == before and time.monotonic() < self._expects_until_s:
                    await asyncio.sleep(LEAVE_AGAIN_S)
                    continue
                self._expects_until_s = 0.0
                await self._rejoin.wait()
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self.log.debug("owners' group not reached", error=str(exc) or "timed out")
                await asyncio.sleep(0.1)
            except _Lost as exc:
                self._lost(str(exc))
                await asyncio.sleep(0.05)

    async def _send_predecessors_away(self) -> None:
        """Whoever was here under this name before did not leave, if it was killed, and the first JoinGroup would wait
        until its session is over. It is not there any more: its address is ours. Only at the start: two sidecars with
        one node id are not to shut each other out for ever."""
        group = await self._look()
        if group.error_code != Code.NONE:
            raise ConnectionLost(f"DescribeGroups: {name_of(group.error_code)}")
        for member in group.members:
            if member.client_id == self.cluster.client_id:
                self.log.info("a former member of this node is removed", member_id=member.member_id)
                await self._leave(member.member_id)

    def _peer_left(self) -> None:
        self._expects_until_s = time.monotonic() + self.settings.session_timeout_ms / 1000
        self._rejoin.set()

    def _lost(self, why: str) -> None:
        member_id, self.member_id = self.member_id, ""
        self.is_leader = False
        self._committed = NEVER
        self.listener.owners_lost(why)
        self._giving_up.lost(member_id)

    async def _join(self) -> None:
        node = await self.cluster.coordinator_node(self.settings.group_id, 0)
        conn = await self.cluster.lane(node, Lane.OWNERS)
        for member_id, at in list(self._removed.items()):
            if at != node:  # what the former coordinator did may have died with it
                self._removed[member_id] = await self._leave(member_id)
        watch = self.tasks.spawn(self._watch_coordinator(node, conn), "ownership-coordinator")
        try:
            await self._join_at(conn)
            self._removed.clear()
        finally:
            watch.cancel()

    async def _watch_coordinator(self, node: int, conn: BrokerConnection) -> None:
        """While a JoinGroup or SyncGroup waits there. A broker that stands still or is cut off neither answers nor
        closes; nothing comes of it any more when the others say that another broker coordinates the group."""
        found = node
        while found == node:
            await asyncio.sleep(WATCH_S)
            try:
                found = await self.cluster.coordinator_node(self.settings.group_id, 0)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self.log.debug("coordinator of the owners' group not found", error=str(exc) or "timed out")
        self.log.info("another broker coordinates the owners' group; joining there", node=found, before=node)
        conn.close()

    def _said(self) -> Said:
        peer_port = 0 if self._answers is None else self._answers.port
        s = self.settings
        return Said(self.node_id, *self.address, self._started_ms, peer_port, s.patterns, kinds=s.kinds)

    async def _join_at(self, conn: BrokerConnection) -> None:
        said = self._giving_up.said(self._said())
        meta, sent = joining(said, self.listener.barriers()), now()
        timeout_ms = self.settings.session_timeout_ms
        # That there is a rebalance is told in answers to heartbeats, which wait until commits of the coordinator are
        # written: while a broker that died is in the in-sync set, for longer than a session.
        rebalance_ms = max(timeout_ms, self.settings.proof_ms)
        while True:
            if self.member_id and self._enrolled != self.member_id:
                await self._roster.enrol(self.member_id, said, self._present)
                self._enrolled = self.member_id
            req = jg.JoinGroupRequest(
                group_id=self.settings.group_id,
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=rebalance_ms,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[jg.JoinGroupRequestProtocol(name=PROTOCOL, metadata=meta)],
            )
            sent = now()
            res = await conn.request(jg, "JoinGroup", req, timeout_s=timeout_ms / 1000 + 65)
            if res.error_code == Code.MEMBER_ID_REQUIRED:
                self.member_id = res.member_id
                continue
            break
        _check(res.error_code, "JoinGroup")
        self.member_id = res.member_id
        # The broker kept this member while the request was parked: it answers only to those it knows.
        self._prove(sent)
        self.is_leader = res.leader == res.member_id
        assignments: list[sg.SyncGroupRequestAssignment] = []
        whole = b""
        if self.is_leader:
            self._barriers.told(m.metadata for m in res.members)
            sidecars = await self._roster.sidecars({m.member_id: m.metadata for m in res.members})
            whole = assignment_of(sidecars, self._owners_among, self.log)
            assignments = [sg.SyncGroupRequestAssignment(member_id=m.member_id, assignment=whole) for m in res.members]
        sync = sg.SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=res.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        sent = now()
        out = await conn.request(sg, "SyncGroup", sync, timeout_s=timeout_ms / 1000 + 5)
        _check(out.error_code, "SyncGroup")
        if self.is_leader:
            self._committed = sent
        else:
            self._confirming.at_once()
        self._prove(sent)
        found = await self._checked(res, out.assignment, whole)
        if self.member_id != res.member_id:
            raise _Lost("lost while joining")
        before, self.assignment = self.assignment, found
        self.listener.owners_assigned(self._without_doubles(self.assignment))
        self._giving_up.assigned(before, self.assignment, self.member_id, self._said())

    async def _present(self) -> set[str]:
        group = await self._look()
        _check(group.error_code, "DescribeGroups")
        return {m.member_id for m in group.members}

    async def _checked(self, res: jg.JoinGroupResponse, told: bytes, whole: bytes) -> Assignment:
        """The map of this generation. Raises ConnectionLost if it is a stranger's: whoever may READ the group can lead
        it when the sidecars have left it, and can speak in the leader's name."""
        if self.is_leader and told != whole:
            if self._roster.due("forged"):
                self.log.error("somebody has spoken in this sidecar's name in the owners' group", remedy=REMEDY)
            raise ConnectionLost("the map is somebody else's")
        if not self.is_leader and not self._roster.enrolled(res.leader):
            await self._judge(res.leader)
        try:
            return Assignment.decode(res.generation_id, told)
        except ValueError as exc:
            if self._roster.due("unreadable"):
                self.log.error("the map of owners cannot be read", leader=res.leader, remedy=REMEDY)
            raise ConnectionLost(f"the map of owners cannot be read: {exc}") from None

    async def _judge(self, leader: str) -> None:
        """Raises ConnectionLost if this leader is no sidecar and is removed, or if that cannot be told. A broker that
        has lost the group's last records has it with former members, of which one led it."""
        group = await self._look()
        if group.group_state != STABLE:
            raise ConnectionLost("the owners' group has changed already")
        metadata = next((m.member_metadata for m in group.members if m.member_id == leader), b"")
        if await self._roster.surely_none(leader, metadata):
            self._roster.report_leader(leader)
            await self._leave(leader)
            raise ConnectionLost("a stranger leads the owners' group")

    def _without_doubles(self, a: Assignment) -> Assignment:
        """What is assigned to this node id is not this sidecar's, if another one has the same id. For a moment that may
        be so while one sidecar takes another one's place; but two of them would shut each other out for ever."""
        member_id, host, port = a.members.get(self.node_id, (self.member_id, "", 0))
        if member_id == self.member_id:
            self.double = ""
            return a
        self.double = f"{host}:{port}"
        self.log.error("another sidecar has this node id; this one owns nothing", node_id=self.node_id, at=self.double)
        return replace(a, owners=tuple(-1 if n == self.node_id else n for n in a.owners))

    # ---- peers --------------------------------------------------------------------------------------------
    def _members(self) -> Mapping[int, Peer]:
        return {} if self._stopping else self.assignment.peers()

    async def _remove(self, node: int, member_id: str, why: str) -> bool:
        try:
            self._removed[member_id] = await self._leave(member_id)
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.warning("a lost peer could not be removed yet", peer=node, error=str(exc) or "timed out")
            return False
        self._rejoin.set()
        return True

    async def _heartbeats(self) -> None:
        """Every `heartbeat_ms`, on its own connection."""
        conn: Any = None
        beat_s = self.settings.heartbeat_ms / 1000
        brisk_until_s = 0.0
        while True:
            await asyncio.sleep(min(beat_s, BRISK_S) if time.monotonic() < brisk_until_s else beat_s)
            if self._live_member() is None:
                continue
            try:
                if conn is None or conn.closed:
                    member, sent = self.member_id, now()
                    node = await self.cluster.coordinator_node(self.settings.group_id, 0)
                    if member == self.member_id:
                        self._prove(sent)  # a broker answers; if that node does not, another will soon be coordinator
                    conn = await self.cluster.open(node)
                req = hb.HeartbeatRequest(
                    group_id=self.settings.group_id,
                    generation_id=self.assignment.generation,
                    member_id=self.member_id,
                )
                asked, sent = self._live_member(), now()
                res = await conn.request(hb, "Heartbeat", req, timeout_s=self.settings.session_timeout_ms / 2000)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self.log.debug("owners' heartbeat failed", error=str(exc) or "timed out")
                if conn is not None:
                    conn.close()
                conn = None
                brisk_until_s = time.monotonic() + BRISK_FOR_S
                continue
            if asked != self._live_member():
                continue  # it has joined again since, and that of which this answer speaks is over
            code = res.error_code
            if code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
                self._prove(sent)
                if code == Code.REBALANCE_IN_PROGRESS and not self._joining:
                    self._rejoin.set()
            elif code == Code.ILLEGAL_GENERATION:
                if not self._joining:
                    self._rejoin.set()
            elif code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
                self._lost(f"owners' group: {Code(code).name}")
                self._rejoin.set()
            else:
                conn.close()
                brisk_until_s = time.monotonic() + BRISK_FOR_S

    def _live_member(self) -> tuple[str, int] | None:
        there = self.member_id and self.assignment.generation >= 0
        return (self.member_id, self.assignment.generation) if there else None

    def _commit_written(self, sent: Now) -> None:
        self._committed = sent
        self._prove(self._heard)

    def _prove(self, sent: Now) -> None:
        """A broker has answered what was sent then."""
        self._heard = sent
        s = self.settings
        session, proof = lease_end(sent, s.session_timeout_ms), lease_end(self._committed, s.proof_ms)
        until = min(session, proof, key=lambda end: end.mono_ms)
        if until.mono_ms > sent.mono_ms:
            self.listener.lease_proved(until)

    async def _leave(self, member_id: str) -> int:
        """Return the node id of the broker that did it. Raises ConnectionLost, TimeoutError, WireError if the group may
        still have this member."""
        node = await self.cluster.coordinator_node(self.settings.group_id, 0)
        conn = await self.cluster.lane(node, Lane.REMOVAL)
        member = lg.MemberIdentity(member_id=member_id)
        req = lg.LeaveGroupRequest(group_id=self.settings.group_id, member_id=member_id, members=[member])
        res = await conn.request(lg, "LeaveGroup", req, timeout_s=2.0)
        code = res.error_code or (res.members[0].error_code if res.members else Code.NONE)
        if code not in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
            raise ConnectionLost(f"LeaveGroup: {name_of(code)}")
        return node


class _Lost(Exception):
    pass


def _check(code: int, what: str) -> None:
    if code == Code.NONE:
        return
    name = name_of(code)
    if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.FENCED_INSTANCE_ID):
        raise _Lost(f"{what}: {name}")
    raise ConnectionLost(f"{what}: {name}")
