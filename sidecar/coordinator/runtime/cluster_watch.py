"""Keeps the coordinator informed: of topics, leaders and addresses, of the broker's settings, of the state topic, of
who owns what. It decides when this sidecar withdraws because its broker is gone, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.former_owners import FormerOwners
from sidecar.coordinator.membership.leader_cache import Leaders
from sidecar.coordinator.membership.owner_map import Assignment
from sidecar.coordinator.membership.owners_group import Ownership
from sidecar.coordinator.membership.peer_links import PeerListener
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.coordinator.membership.roster import ENROL_S, Roster
from sidecar.coordinator.migration.group_configs import Configs
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.topic_refresh import ALL, Names
from sidecar.coordinator.statelog.startup import OFFSETS, Control
from sidecar.coordinator.statelog.tail import StateLog, Tail
from sidecar.coordinator.statelog.topic_lookup import Known, any_there
from sidecar.coordinator.statelog.topic_watch import StateTopic
from sidecar.coordinator.statelog.unfenced_append import append_unfenced
from sidecar.core.runtime.turn import Now
from sidecar.kafka.cluster import Cluster, ClusterView, ConnectionLost
from sidecar.link.messages import View
from sidecar.link.ports import Logger, Tasks
from sidecar.state.codec import Encoded
from sidecar.state.keys import ROSTER
from sidecar.state.schema import StateError
from sidecar.wire.primitives import WireError

NewTail = Callable[..., Tail]
"""It is made as a Tail is."""
QUICK_S, GONE_S = 0.1, 5.0
"""So often leaders are asked for while one cannot be reached, and so long after that was last seen."""
LATE_MS = 200
"""What waits for longer may wait for a leader that stands still: the kernel there takes connections all the same."""
CHECK_S = 10.0
"""How often the settings of the state topic are read."""
FOREIGN = "see that broker and bootstrap of each sidecar lead to one cluster; the claim tells node and address"
KINDS_ALIKE = "give all sidecars the same groups.kinds, and a version that knows them; groups that are there go on"
CONTROLLER_LAG_S = 0.1
"""The controller's word reaches the broker a little after it has answered."""


@dataclass(frozen=True)
class FollowerSettings:
    broker: str
    tail_bootstrap: str
    tail_client_id: str
    same_listener: bool
    metadata_refresh_s: float
    settings_refresh_s: float
    broker_gone_s: float
    follow_leader_s: float
    tail_wait_s: float
    ownership: OwnershipSettings


class Follower:
    def __init__(
        self,
        settings: FollowerSettings,
        leaders: tuple[int, ...],
        control: Control,
        cluster: Cluster,
        configs: Configs,
        state: StateLog,
        coordinator: Coordinator,
        log: Logger,
        tasks: Tasks,
        new_tail: NewTail = Tail,
        peers: PeerListener | None = None,
    ) -> None:
        """`leaders`: of `__consumer_offsets`, as found at the start; `peers`: where this sidecar answers pings."""
        self._settings = settings
        self._offsets = Leaders(OFFSETS, tuple(leaders))
        self._state = Leaders(coordinator.settings.topic)
        self._log_of_state = state
        self._led_since_s: dict[int, float] = {}
        """Of partitions of `__consumer_offsets` whose leaders have moved."""
        self._members_since: dict[int, tuple[str, float]] = {}
        """Node id of a sidecar -> its member id in the owners' group, and since when it has that."""
        self._control = control
        self._cluster = cluster
        self._configs = configs
        self._coordinator = coordinator
        self._log = log
        self._tasks = tasks
        self._broker_seen = time.monotonic()
        self._giving_up: asyncio.Task[None] | None = None
        """While the broker is silent."""
        s = coordinator.settings
        self._suspects: frozenset[int] = frozenset()
        self._lacking: dict[str, list[int]] = {}
        """Kind of groups that this sidecar coordinates -> node ids of those that do not."""
        self._unread = set(range(len(state.partitions)))
        self.state_topic = StateTopic(s.topic, control.view.topics, log)
        coordinator.pin_state_topic(self.state_topic.id)
        coordinator.appender.found_another = self._found_another_topic
        coordinator.broker_silence = self._silence
        self._known = Known(control.view.topics)
        self._fresh = coordinator.fresh
        self._fresh.served = True
        coordinator.topics(control.view.topics)
        self.tail = new_tail(settings.tail_bootstrap, s.topic, settings.tail_client_id, state, self)

        async def append(partition: int, records: list[Encoded]) -> None:
            await append_unfenced(cluster, coordinator.appender, state, s.topic, partition, records, ENROL_S)

        self._roster = Roster(state, append, configs.all_read, log)
        self._former = FormerOwners(state, self._roster, lambda: coordinator.assignment, s.lease_ms)
        self._former.tells(coordinator.service.owners)
        self.ownership = Ownership(
            cluster, s.node_id, s.address, settings.ownership, self, self._roster, log, tasks, peers
        )
        self._roster.came_late = self.ownership.place_anew
        self._follow()

    def _follow(self) -> None:
        """From now on, until the process ends."""
        self._show()
        if not self._unread:
            self.ownership.take_part()
        spawn = self._tasks.spawn
        spawn(self._wait_for_the_tail(), "tail read")
        spawn(self._follow_metadata(), "metadata")
        spawn(self._follow_settings(), "settings")
        spawn(self._check_state_topic(), "state topic")

    def _show(self) -> None:
        self._coordinator.show(self._view())

    def _view(self) -> View:
        return View(
            owners=self._owners(),
            leaders=self._offsets.now,
            brokers=dict(self._control.view.brokers),
            authorizer=self._configs.authorizer,
            suspects=tuple(sorted(self._suspects)),
            idle_ms=self._configs.idle_ms,
            lacking=tuple(self._lacking),
        )

    def _owners(self) -> tuple[int, ...]:
        """As the owners' group says. A sidecar that has withdrawn is no member and hears no more of it; the claims
        tell it who has taken over, and before that nobody has."""
        owners, own = self._coordinator.assignment.owners, self._coordinator.settings.node_id
        if not self.ownership.withdrawn:
            return owners
        return tuple(-1 if n == own else n for n in map(self._claimant, range(len(owners))))

    def _claimant(self, partition: int) -> int:
        """Node id of the partition's last owner; -1 if no record tells."""
        claims = self._log_of_state.partitions[partition].claims
        try:
            return self._log_of_state.codec.claimed_by(next(reversed(claims.values())))[0]
        except (StateError, StopIteration):
            return -1

    # ---- the owners' group --------------------------------------------------------------------------------
    def owners_assigned(self, a: Assignment) -> None:
        before, at_s = self._members_since, time.monotonic()
        named = {node: member_id for node, (member_id, _, _) in a.members.items()}
        self._members_since = {
            node: before[node] if node in before and before[node][0] == member_id else (member_id, at_s)
            for node, member_id in named.items()
        }
        self._coordinator.owners_assigned(a)
        self._find_lacking(a)
        self._show()

    def _find_lacking(self, a: Assignment) -> None:
        """No group of a kind begins as long as it might be given to a sidecar that does not coordinate that kind."""
        others = replace(a, members={n: m for n, m in a.members.items() if n != self._coordinator.settings.node_id})
        found = {kind: nodes for kind in self._settings.ownership.kinds if (nodes := others.lacking(kind))}
        if found != self._lacking:
            for kind, nodes in found.items():
                self._log.warning("groups of a kind wait", kind=kind, nodes=nodes, remedy=KINDS_ALIKE)
            self._lacking = found

    def owners_lost(self, why: str) -> None:
        self._coordinator.owners_lost(why)

    def lease_proved(self, until: Now) -> None:
        self._coordinator.lease_proved(until)

    def peers_suspected(self, nodes: frozenset[int]) -> None:
        self._suspects = nodes
        self._show()

    def offsets_leaders(self) -> Sequence[int]:
        return self._offsets.now

    def new_leaders(self) -> Set[int]:
        """And those whose leader has no sidecar beside it that has been well for as long."""
        before_s = time.monotonic() - self._settings.follow_leader_s
        new = {p for p, since_s in self._led_since_s.items() if since_s > before_s}
        well = {node for node, (_, since_s) in self._members_since.items() if since_s <= before_s}
        return new | {p for p, leader in enumerate(self._offsets.now) if leader not in well}

    def barriers(self) -> Set[int]:
        owners = self._coordinator.service.owners
        return {o.partition for o in owners if o.shard is not None and o.shard.in_barrier()}

    # ---- the state topic ----------------------------------------------------------------------------------
    def setting_stored(self, group_id: str, name: str) -> None:
        if not group_id and name.endswith(ROSTER):  # which is no setting
            self._roster.record_read()
            self._former.look_again(self._coordinator.service.owners, now())
            return
        self._coordinator.setting_stored(group_id, name)

    def claim_read(self, partition: int) -> None:
        self._former.claim_read(partition, now().mono_ms)
        self._coordinator.takeovers.claim_read(partition)
        if self.ownership.withdrawn:
            self._show()
        if partition not in self._unread:  # what was claimed before may have come with a copy of the topic
            self._say_foreign(partition)

    def _say_foreign(self, partition: int) -> None:
        """Sidecars of two clusters share a state topic if one of them has another cluster's `bootstrap`."""
        claims = self._log_of_state.partitions[partition].claims
        own = self._control.view.cluster_id
        try:
            there = self._log_of_state.codec.claimed_in(next(reversed(claims.values())))
        except (StateError, StopIteration):
            return  # damaged, or compacted already: nobody can tell
        if own and there not in ("", own) and self._roster.due("foreign"):
            where = {"partition": partition, "own": own, "theirs": there}
            self._log.error("a sidecar of another cluster has claimed a partition", **where, remedy=FOREIGN)

    def tail_read(self, partition: int) -> None:
        if partition in self._unread:
            self._unread.discard(partition)
            if not self._unread:
                self._coordinator.state_read()
                self.ownership.take_part()

    async def _wait_for_the_tail(self) -> None:
        """Some partitions may have no leader; the others are not to wait for them for ever."""
        await asyncio.sleep(self._settings.tail_wait_s)
        if self._unread:
            self._log.warning("the state topic is not read to its end yet", partitions=len(self._unread))
            self.ownership.take_part()

    def tail_went_back(self, partition: int) -> None:
        self._tasks.broken("state-tail", self.state_topic.went_back(partition))

    def _found_another_topic(self) -> None:
        self._tasks.broken("state topic", self.state_topic.made_anew())

    async def _check_state_topic(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.state_topic.check(self._cluster, len(self._control.view.brokers))

    def tail_trouble(self, text: str) -> None:
        self._log.debug("state tail", problem=text)

    def tail_broke(self, exc: BaseException) -> None:
        self._tasks.broken("state-tail", exc)

    # ---- the brokers --------------------------------------------------------------------------------------
    async def _follow_metadata(self) -> None:
        refresh_s = self._settings.metadata_refresh_s
        due_s = time.monotonic() + refresh_s
        while True:
            wanted = await self._fresh.rest(min(QUICK_S, refresh_s))
            if time.monotonic() >= due_s:
                await self._refresh()
                due_s = time.monotonic() + refresh_s
            elif wanted:
                await self._look()
            elif self._leaders_may_move():
                self._take_leaders(await self._ask_for_leaders())

    def _leaders_may_move(self) -> bool:
        """There is no leader, or it cannot be connected to, or somebody waits longer than a leader would let him."""
        if any(n < 0 or self._cluster.unreached(n, GONE_S) for n in set(self._offsets.now)):
            return True
        c = self._coordinator
        waited = c.placeholders.commits.waited_for(LATE_MS)
        return waited or c.service.loading() > 0 or c.takeovers.tenures.late(LATE_MS / 1000)

    async def _ask_for_leaders(self) -> ClusterView:
        """An empty view if nobody answers."""
        try:
            return await self._cluster.refresh([OFFSETS, self._coordinator.settings.topic])
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self._log.debug("leaders not refreshed", problem=str(exc) or "timed out")
            return ClusterView()

    def _take_leaders(self, view: ClusterView) -> None:
        before = self._offsets.now
        if len(view.leaders.get(OFFSETS, ())) == len(before) and self._offsets.take(view):
            moved = (p for p, (was, n) in enumerate(zip(before, self._offsets.now, strict=True)) if was != n)
            self._led_since_s.update(dict.fromkeys(moved, time.monotonic()))
        if self._state.take(view):
            self._coordinator.takeovers.tenures.led_by(self._state.now)
        self._show()
        self.ownership.placement_changed()

    async def _refresh(self) -> None:
        """Topics and client addresses from the broker beside us, leaders from whichever broker answers."""
        s = self._settings
        try:
            await self._fresh.during(self._list(ALL))
            if self._giving_up is None:
                self.ownership.resume()
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self._log.debug("metadata not refreshed", problem=str(exc) or "timed out")
            if time.monotonic() - self._broker_seen > s.broker_gone_s:
                self._withdraw()
        self._take_leaders(self._control.view if s.same_listener else await self._ask_for_leaders())

    def _silence(self, quiet_ms: int) -> None:
        """A front says that the broker is silent, or, -1, that it answers again. Its clients wait and find that out
        sooner than the rare look at the topics."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if quiet_ms >= 0:
            left_s = max(self._settings.broker_gone_s - quiet_ms / 1000, 0.0)
            self._giving_up = self._tasks.spawn(self._withdraw_in(left_s), "broker silent")

    async def _withdraw_in(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._withdraw()

    def _withdraw(self) -> None:
        self.ownership.withdraw(f"broker {self._settings.broker} does not answer")
        self._show()

    async def _look(self) -> None:
        """A look for who cannot wait for the next refresh."""
        try:
            await self._fresh.during(self._list(self._fresh.names()))
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self._log.debug("metadata not refreshed", problem=str(exc) or "timed out")

    async def _list(self, names: Names) -> None:
        """Read all topics, if one of these is there. Raises ConnectionLost, TimeoutError, WireError."""
        if names is not ALL and not await any_there(names, self._control):
            return
        await self._control.look(self._settings.broker_gone_s)
        self._broker_seen = time.monotonic()
        await self.state_topic.look(self._control.view.topics, self._cluster)
        self._coordinator.pin_state_topic(self.state_topic.id)
        self._coordinator.topics(await self._known.next(self._control.view.topics, self._control))

    async def _follow_settings(self) -> None:
        """The broker's group settings, again and again, and at once when a change passed through us."""
        wanted = self._configs.wanted
        while True:
            await self._read_settings()
            try:
                async with asyncio.timeout(self._settings.settings_refresh_s):
                    await wanted.wait()
            except TimeoutError:
                continue
            wanted.clear()
            await self._read_settings()
            await asyncio.sleep(CONTROLLER_LAG_S)

    async def _read_settings(self) -> None:
        try:
            if await self._configs.refresh(self._cluster):
                self._coordinator.config_changed()
                self._show()
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self._log.debug("settings not read", problem=str(exc) or "timed out")

    # ---- health -------------------------------------------------------------------------------------------
    def problems(self) -> list[str]:
        """Why this sidecar is not ready; empty when it is."""
        if self.ownership.withdrawn:
            return [f"the broker {self._settings.broker} does not answer; this sidecar owns nothing until it does"]
        service = self._coordinator.service
        found = [self.state_topic.problem] if self.state_topic.problem else []
        if self.ownership.double:
            found.append(f"another sidecar, beside the broker at {self.ownership.double}, has the same node id")
        if not self.ownership.takes_part:
            return [*found, f"{len(self._unread)} partitions of the state topic are being read"]
        if not service.map:
            found.append("no owner is known yet")
        elif not self._coordinator.leased():
            found.append("the lease on the owned partitions is not proved")
        if loading := service.loading():
            found.append(f"{loading} partitions are being taken over")
        if problem := service.problem():
            found.append(f"partitions cannot be taken over: {problem}")
        return found

    async def stop(self, for_good: bool) -> bool:
        """Returns whether no other sidecar is left."""
        last = await self.ownership.stop(for_good)
        await asyncio.to_thread(self.tail.stop)
        return last
