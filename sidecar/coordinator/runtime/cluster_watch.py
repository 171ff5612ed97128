"""Keeps the coordinator informed, and shows fronts the cluster: topics and leaders (metadata_refresh.py), the broker's
settings (settings_refresh.py), the state topic (tail_listener.py), and the owner map. Its only decision is that this
sidecar withdraws when its broker is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from sidecar.coordinator.membership.former_owners import FormerOwners
from sidecar.coordinator.membership.owners_group import OwnersGroup
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.membership.peer_links import PeerListener
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.coordinator.membership.roster import ENROL_S, Roster
from sidecar.coordinator.runtime.broker_absence import BrokerAbsence
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.leader_watch import LeaderWatch
from sidecar.coordinator.runtime.metadata_refresh import MetadataRefresh
from sidecar.coordinator.runtime.settings_refresh import SettingsRefresh
from sidecar.coordinator.runtime.tail_listener import TailListener
from sidecar.coordinator.statelog.startup import Control
from sidecar.coordinator.statelog.tail import StateLog, Tail
from sidecar.coordinator.statelog.topic_watch import StateTopic
from sidecar.coordinator.statelog.unfenced_append import append_unfenced
from sidecar.core.runtime.turn import Now
from sidecar.link.messages import View
from sidecar.link.ports import Logger, Tasks
from sidecar.state.codec import Encoded
from sidecar.state.schema import StateError

NewTail = Callable[..., Tail]
"""Makes the tail: called with the arguments of Tail."""
CHECK_S = 10.0
"""Seconds between two reads of the state topic's settings."""
KINDS_ALIKE = "give all sidecars the same groups.kinds, and a version that knows them; groups that are there go on"


@dataclass(frozen=True)
class ClusterWatchSettings:
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


class ClusterWatch:
    def __init__(
        self,
        settings: ClusterWatchSettings,
        leaders: tuple[int, ...],
        control: Control,
        state: StateLog,
        coordinator: Coordinator,
        log: Logger,
        tasks: Tasks,
        new_tail: NewTail = Tail,
        peers: PeerListener | None = None,
    ) -> None:
        """`leaders`: the leaders of `__consumer_offsets` at the start; `peers`: the listener for peers' pings."""
        self._settings = settings
        self._control = control
        self._configs = coordinator.requests.configs
        self._state = state
        self._coordinator = coordinator
        self._log = log
        self._tasks = tasks
        self._suspects: frozenset[int] = frozenset()
        self._lacking: dict[str, list[int]] = {}
        """Kind of groups that this sidecar coordinates -> node ids of the sidecars that do not."""
        s, cluster = coordinator.settings, coordinator.cluster
        self.state_topic = StateTopic(s.topic, control.view.topics, log, settings.metadata_refresh_s)
        coordinator.pin_state_topic(self.state_topic.id)
        coordinator.appender.topic_recreated = lambda: tasks.broken("state topic", self.state_topic.made_anew())
        absence = BrokerAbsence(settings.broker_gone_s, self._withdraw, tasks)
        coordinator.broker_silence = absence.silence
        self._leaders = LeaderWatch(
            tuple(leaders), coordinator.requests.read_index.leaders, settings.follow_leader_s, cluster, log
        )

        async def append(partition: int, records: list[Encoded]) -> None:
            await append_unfenced(cluster, coordinator.appender, state, s.topic, partition, records, ENROL_S)

        roster = Roster(state, append, coordinator.requests.read_index.all_read, log)
        former = FormerOwners(state, roster, lambda: coordinator.assignment, s.lease_ms)
        former.set_lease_ends(coordinator.service.owners)
        self.from_tail = TailListener(coordinator, state, self.state_topic, roster, former, control, log, tasks)
        self.tail = new_tail(settings.tail_bootstrap, s.topic, settings.tail_client_id, state, self.from_tail)
        self.ownership = OwnersGroup(cluster, s.node_id, s.address, settings.ownership, self, roster, log, tasks, peers)
        if peers is not None:
            coordinator.fresh.notify_peers = peers.send_topics
            peers.ready = lambda: not self.problems()
        coordinator.takeovers.confirm_map = self.ownership.confirm_map
        roster.came_late = self.ownership.place_anew
        self.from_tail.read, self.from_tail.claimed = self.ownership.take_part, self._claimed
        self._follow(absence)

    def _follow(self, absence: BrokerAbsence) -> None:
        """Starts the tasks that keep the coordinator informed until the process ends."""
        s, coordinator = self._settings, self._coordinator
        metadata = MetadataRefresh(
            self._control, coordinator, self.state_topic, self._leaders, absence, s.same_listener, self._log
        )
        metadata.resume, metadata.placed = self.ownership.resume, self._placed
        settings = SettingsRefresh(
            self._configs, coordinator.cluster, s.settings_refresh_s, self._settings_changed, self._log
        )
        self._show()
        if not self.from_tail.unread:
            self.ownership.take_part()
        spawn = self._tasks.spawn
        spawn(self.from_tail.wait(s.tail_wait_s), "tail read")
        spawn(metadata.rounds(s.metadata_refresh_s), "metadata")
        spawn(settings.rounds(), "settings")
        spawn(self._check_state_topic(), "state topic")

    def _show(self) -> None:
        self._coordinator.show(self._view())

    def _view(self) -> View:
        return View(
            owners=self._owners(),
            leaders=self._leaders.of_offsets,
            brokers=dict(self._control.view.brokers),
            authorizer=self._configs.broker.authorizer,
            suspects=tuple(sorted(self._suspects)),
            idle_ms=self._configs.broker.idle_ms,
            lacking=tuple(self._lacking),
        )

    def _owners(self) -> tuple[int, ...]:
        """Returns the owners by partition, from the owner map. A sidecar that has just started, was lost or has
        withdrawn is no member and gets no map: then it takes the owners from the claims, with -1 in its own place."""
        if self._coordinator.service.owner_map.owners:
            return self._coordinator.assignment.owners
        own = self._coordinator.settings.node_id
        return tuple(-1 if n == own else n for n in map(self._claimant, range(len(self._state.partitions))))

    def _claimant(self, partition: int) -> int:
        """Returns the node id in the partition's last claim; -1 if there is none, or not all records are read."""
        if partition in self.from_tail.unread:
            return -1
        claims = self._state.partitions[partition].claims
        try:
            return self._state.codec.claimed_by(next(reversed(claims.values())))[0]
        except (StateError, StopIteration):
            return -1

    # ---- the owners' group --------------------------------------------------------------------------------
    def owners_assigned(self, a: Assignment, missed: bool = False) -> None:
        self._leaders.members_assigned(a)
        self._coordinator.owners_assigned(a, missed)
        self._find_lacking(a)
        self._show()

    def _find_lacking(self, a: Assignment) -> None:
        """Finds the kinds that other sidecars do not coordinate. No group of such a kind begins, as any sidecar may
        become its owner."""
        own, kinds = self._coordinator.settings.node_id, self._settings.ownership.kinds
        lacking = {kind: nodes for kind in kinds if (nodes := [n for n in a.lacking(kind) if n != own])}
        if lacking != self._lacking:
            for kind, nodes in lacking.items():
                self._log.warning("groups of a kind wait", kind=kind, nodes=nodes, remedy=KINDS_ALIKE)
            self._lacking = lacking

    def owners_lost(self, why: str) -> None:
        self._coordinator.owners_lost(why)
        self._show()

    def lease_proved(self, until: Now) -> None:
        self._coordinator.lease_proved(until)

    def peers_suspected(self, nodes: frozenset[int]) -> None:
        self._suspects = nodes
        self._show()

    def topics_changed(self) -> None:
        self._coordinator.fresh.topics_changed()

    def offsets_leaders(self) -> Sequence[int]:
        return self._leaders.of_offsets

    def new_leaders(self) -> Set[int]:
        return self._leaders.new()

    def barriers(self) -> Set[int]:
        owners = self._coordinator.service.owners
        return {o.partition for o in owners if o.shard is not None and o.shard.in_barrier()}

    # ---- called by the other watchers -----------------------------------------------------------------------
    def _claimed(self) -> None:
        if not self._coordinator.service.owner_map.owners:
            self._show()

    async def _check_state_topic(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.state_topic.check(self._coordinator.cluster, len(self._control.view.brokers))

    def _placed(self) -> None:
        """Shows the fronts leaders and addresses that may have moved, and lets the owners' group follow."""
        self._show()
        self.ownership.placement_changed()

    def _settings_changed(self) -> None:
        self._coordinator.config_changed()
        self._show()

    def _withdraw(self) -> None:
        self.ownership.withdraw(f"broker {self._settings.broker} does not answer")
        self._show()

    # ---- health -------------------------------------------------------------------------------------------
    def problems(self) -> list[str]:
        """Returns why this sidecar is not ready; empty when it is."""
        if self.ownership.withdrawn:
            return [f"the broker {self._settings.broker} does not answer; this sidecar owns nothing until it does"]
        service = self._coordinator.service
        reasons = [self.state_topic.problem] if self.state_topic.problem else []
        if double := self.ownership.map_check.double:
            reasons.append(f"another sidecar, beside the broker at {double}, has the same node id. Correct node_id")
        if not self.ownership.takes_part:
            return [*reasons, f"{len(self.from_tail.unread)} partitions of the state topic are being read"]
        if not service.owner_map.owners or not self._coordinator.leased():
            known = bool(service.owner_map.owners)
            reasons.append("the lease on the owned partitions is not proved" if known else "no owner is known yet")
            if problem := self.ownership.trouble.problem:
                reasons.append(f"this sidecar cannot join the owners' group: {problem}")
        if loading := service.loading():
            reasons.append(f"{loading} partitions are being taken over")
        if problem := service.problem():
            reasons.append(f"partitions cannot be taken over: {problem}")
        return reasons

    async def stop(self, for_good: bool) -> bool:
        """Leaves the owners' group, and stops the tail. Returns whether no other sidecar is left."""
        last = await self.ownership.stop(for_good)
        await asyncio.to_thread(self.tail.stop)
        return last
