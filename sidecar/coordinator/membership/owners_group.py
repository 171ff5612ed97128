"""Agreement on the owner of each partition: the sidecars are an ordinary classic group at the brokers, which arbitrate.

The wire client is our own, because the placement is ours and a lost peer must be noticed in milliseconds. A second
connection carries the heartbeats (owners_heartbeat.py). A sidecar relies on its *lease* (member_lease.py). It ends
`proof_ms` after the last request that the coordinator could answer only with the other brokers and only to a live
member: the SyncGroup of the group's leader, which is written, and a commit in each generation and at intervals
(lease_commit.py).
A broker that is coordinator no more can answer JoinGroup and SyncGroup of any other member from its memory. The lease
is longer than the brokers need to elect another coordinator when one dies (`broker.session.timeout.ms`, 9 s). No owner
removes a silent member for as long after a takeover (Turn.arm_removal), or until the former owner has recorded that it
answers no more (giving_up.py). The lease also ends a session timeout after the last answer of any broker, so that a
sidecar that is cut off soon sends its clients to others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Set
from dataclasses import replace

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.giving_up import GivingUp
from sidecar.coordinator.membership.join_trouble import AGAIN_S, JoinTrouble
from sidecar.coordinator.membership.lease_commit import LeaseCommits
from sidecar.coordinator.membership.map_check import MapCheck
from sidecar.coordinator.membership.member_lease import MemberLease
from sidecar.coordinator.membership.owners_client import Lost, OwnersClient, check
from sidecar.coordinator.membership.owners_heartbeat import HeartbeatPorts, OwnersHeartbeats
from sidecar.coordinator.membership.owners_protocol import NO_GENERATION, Assignment, SidecarInfo, joining
from sidecar.coordinator.membership.peer_links import LEFT, TOPICS, Answers, Peer, Peers
from sidecar.coordinator.membership.ports import OwnershipSettings, OwnersListener
from sidecar.coordinator.membership.rebalance_barriers import Barriers
from sidecar.coordinator.membership.roster import Members, assignment_of
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import place
from sidecar.kafka.cluster import Address, Cluster
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger, Tasks
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sg

PROTOCOL_TYPE, PROTOCOL = "sidecar", "beside-leader-v1"


class OwnersGroup:
    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        address: Address,
        settings: OwnershipSettings,
        listener: OwnersListener,
        roster: Members,
        log: Logger,
        tasks: Tasks,
        answers: Answers | None = None,
    ) -> None:
        """`answers`: the listener that answers the pings of other sidecars; None: there is none."""
        self.cluster = cluster
        self.settings = settings
        self.listener = listener
        self.roster = roster
        self._giving_up = GivingUp(roster, tasks, settings.front_within)
        self._barriers = Barriers(settings.rebalance_wait_ms / 1000, log)
        self._enrolled = ""
        """The member id under which this sidecar has its record in the state topic; "" before there is one."""
        self.log = log
        self.tasks = tasks
        self.member_id = ""
        self.assignment = Assignment()
        self.is_leader = False
        self._lease = MemberLease(settings.session_timeout_ms, settings.proof_ms, listener.lease_proved)
        self._group = OwnersClient(cluster, settings.group_id, log)
        self.trouble = JoinTrouble(roster.due, log)
        self.map_check = MapCheck(node_id, roster, self._group, log)
        started_ms, peer_port = int(time.time() * 1000), 0 if answers is None else answers.port
        info = SidecarInfo(node_id, *address, started_ms, peer_port, settings.patterns, kinds=settings.kinds)
        self._info = replace(info, version=settings.version)
        self._removed: dict[str, int] = {}
        """Peers that this sidecar has removed since it last joined: member id -> node id of the broker that did it."""
        self._expects_until_s = 0.0
        """Monotonic time until which this sidecar joins again and again: a peer reported that it has left, and the next
        generation, without that peer, has not come yet."""
        self._rejoin = asyncio.Event()
        self._joining = False
        self._answers = answers
        on_words = {LEFT: self._peer_left, TOPICS: listener.topics_changed}
        callbacks = (self._remove, listener.peers_suspected, on_words)
        self.peers = Peers(settings.peers, node_id, self._members, *callbacks, tasks, log)
        self._stopping = False
        self._enabled = asyncio.Event()
        self._enabled.set()
        self._warm = asyncio.Event()
        proof = (settings.group_id, settings.proof_topic, settings.proof_ms)
        self._lease_commits = LeaseCommits(cluster, *proof, self._live_member, self._lease.committed, log)
        ports = HeartbeatPorts(self._live_member, self._rebalances, self._unknown)
        heartbeats = OwnersHeartbeats(cluster, settings, self._lease, ports, log)
        self.confirm_map = heartbeats.confirm_map
        self._tasks: list[asyncio.Task[None]] = [
            self.tasks.spawn(self._run(), "ownership"),
            self.tasks.spawn(heartbeats.rounds(), "ownership-heartbeat"),
            self.tasks.spawn(self._lease_commits.rounds(), "ownership-proof"),
        ]

    async def stop(self, for_good: bool = True) -> bool:
        """Leaves the group, so that the others need not wait for the session to end. Returns whether the group is empty
        then. `for_good`: a sidecar of another version may take this one's place, so its record says that it left."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.stop()
        if self.member_id:
            await self._group.try_leave(self.member_id)
        if for_good and self._enrolled:
            member_id, self._enrolled = self._enrolled, ""
            await self.roster.left(member_id, self._giving_up.last_info(self._info))
        return await self._group.alone()

    @property
    def withdrawn(self) -> bool:
        return not self._enabled.is_set()

    def withdraw(self, why: str) -> None:
        """Leaves the group and owns nothing until `resume`: this sidecar's broker is gone, so no client can come."""
        if self.withdrawn:
            return
        self._enabled.clear()
        member_id = self.member_id
        self._lost(why)
        if self._enrolled == member_id:
            self._giving_up.publish_withdrawal(member_id, self._info)
        if self._answers is not None:
            self._answers.send_left()
        self._rejoin.set()
        if member_id:
            self._leave_surely(member_id)

    def _leave_surely(self, member_id: str) -> None:
        self.tasks.spawn(self._group.leave_surely(member_id, lambda: self._stopping), "withdraw")

    def resume(self) -> None:
        self._enabled.set()

    @property
    def takes_part(self) -> bool:
        return self._warm.is_set()

    def take_part(self) -> None:
        """Lets this sidecar join, once its tail has read the state topic. Before that, a takeover would stop the groups
        until everything is read, although their previous owner had it all in memory."""
        self._warm.set()

    def place_anew(self) -> None:
        """Makes the group's leader join again, because the roster has changed: other members count as sidecars now."""
        if self.is_leader:
            self._rejoin.set()

    def placement_changed(self) -> None:
        """Makes the group's leader join again if the leaders of `__consumer_offsets` now give another owner map."""
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
                    self._leave_surely(self.member_id)
                    raise Lost("withdrawn while joining")
                self.trouble.over()
                self.peers.watch()
                if self.assignment.generation == before and time.monotonic() < self._expects_until_s:
                    await asyncio.sleep(AGAIN_S)
                    continue
                self._expects_until_s = 0.0
                await self._rejoin.wait()
            except NO_ANSWER as exc:
                await asyncio.sleep(self.trouble.met(exc))
            except Lost as exc:
                self.trouble.problem = str(exc)
                self._lost(str(exc))
                await asyncio.sleep(0.05)

    async def _send_predecessors_away(self) -> None:
        """Removes earlier members with this sidecar's client id. One that was killed did not leave, and the first
        JoinGroup would wait until its session ends. It cannot be running: its address is ours. Runs only at the start:
        two sidecars with one node id must not remove each other for ever."""
        group = await self._group.describe()
        check(group.error_code, "DescribeGroups")
        for member in group.members:
            if member.client_id == self.cluster.client_id:
                self.log.info("a former member of this node is removed", member_id=member.member_id)
                await self._group.leave(member.member_id)

    def _peer_left(self) -> None:
        self._expects_until_s = time.monotonic() + self.settings.session_timeout_ms / 1000
        self._rejoin.set()

    def _lost(self, why: str) -> None:
        member_id, self.member_id = self.member_id, ""
        self.is_leader = False
        self._lease.lost()
        self.assignment = replace(self.assignment, generation=NO_GENERATION)
        self.listener.owners_lost(why)
        self._giving_up.add_former(member_id)

    async def _join(self) -> None:
        node = await self._group.coordinator()
        conn = await self.cluster.lane(node, Lane.OWNERS)
        removed = list(self._removed.items())
        for member_id, at in removed:
            if at != node:  # the removal by the former coordinator may have died with it
                self._removed[member_id] = await self._group.leave(member_id)
        watch = self.tasks.spawn(self._group.close_when_moved(node, conn), "ownership-coordinator")
        try:
            await self._join_at(conn)
            for member_id, _ in removed:  # a peer that was removed meanwhile may be in this generation
                self._removed.pop(member_id, None)
        finally:
            watch.cancel()

    async def _join_at(self, conn: BrokerConnection) -> None:
        info = self._giving_up.info(self._info)
        meta, sent = joining(info, self.listener.barriers()), now()
        timeout_ms = self.settings.session_timeout_ms
        # Members learn of a rebalance by answers to heartbeats, which wait until commits of the coordinator are
        # written: while a broker that died is in the in-sync set, for longer than a session.
        rebalance_ms = max(timeout_ms, self.settings.proof_ms)
        while True:
            if self.member_id and self._enrolled != self.member_id:
                await self.roster.enrol(self.member_id, info, self._group.present)
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
        check(res.error_code, "JoinGroup")
        self._rejoin.clear()  # what has changed counts in this generation's map; what changes now may not
        self.member_id = res.member_id
        # The broker kept this member while the request was parked: it answers only to those it knows.
        self._lease.answered(sent)
        self.is_leader = res.leader == res.member_id
        assignments: list[sg.SyncGroupRequestAssignment] = []
        whole = b""
        if self.is_leader:
            self._barriers.reported(m.metadata for m in res.members)
            sidecars = await self.roster.sidecars({m.member_id: m.metadata for m in res.members})
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
        check(out.error_code, "SyncGroup")
        assignment = await self.map_check.checked(res.generation_id, res.leader, out.assignment, whole or None)
        if self.member_id != res.member_id:
            raise Lost("lost while joining")
        before, self.assignment = self.assignment, assignment
        missed = before.generation not in (NO_GENERATION, res.generation_id - 1, res.generation_id)
        self.listener.owners_assigned(self.map_check.without_doubles(self.assignment, self.member_id), missed)
        if not self.is_leader:
            self._lease_commits.at_once()
        self._lease.answered(sent, written=self.is_leader)
        self._giving_up.assigned(before, self.assignment, self.member_id, self._info)

    # ---- peers --------------------------------------------------------------------------------------------
    def _members(self) -> Mapping[int, Peer]:
        return {} if self._stopping else self.assignment.peers()

    async def _remove(self, node: int, member_id: str, why: str) -> bool:
        try:
            self._removed[member_id] = await self._group.leave(member_id)
        except NO_ANSWER as exc:
            self.log.warning("a lost peer could not be removed yet", peer=node, error=str(exc) or "timed out")
            return False
        self._rejoin.set()
        return True

    # ---- called by the heartbeats ---------------------------------------------------------------------------
    def _rebalances(self) -> None:
        if not self._joining:
            self._rejoin.set()

    def _unknown(self, why: str) -> None:
        self._lost(why)
        self._rejoin.set()

    def _live_member(self) -> tuple[str, int] | None:
        """Returns member id and generation once a broker has answered this member; None before. A broker hands out the
        member id before the member joins, and does not know it until then."""
        known = self.member_id and self._lease.has_answer and self.assignment.generation != NO_GENERATION
        return (self.member_id, self.assignment.generation) if known else None


def sidecar_of(group: OwnersGroup, node: int) -> tuple[SidecarInfo | None, bool | None]:
    """Returns, for people, the record of this node's sidecar, and whether it reports to be ready; None for unknown."""
    member_id = group.assignment.members.get(node, ("", "", 0))[0]
    return group.roster.info_of(member_id), group.peers.ready.get(node)
