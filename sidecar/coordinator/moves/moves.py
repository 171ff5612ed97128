"""Groups move between the brokers and the sidecars while their members live (docs/design/decisions.md, Moves).

managed_groups.py knows the wanted groups. The owner of a group takes it in (adoption.py) or gives it back (release.py).
This module decides what a client's request waits for meanwhile, and starts the moves that a new order or pattern needs.
The first request of a group that has no records here waits until its broker has been asked.

A takeover in the middle of a move needs no memory: a group with records that is not wanted is given back, and a member
of the broker's group that is a member here was taken in, and is removed there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.coordinator.moves.adoption import Adoptions, Outcome
from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.fleet_kinds import FleetKinds
from sidecar.coordinator.moves.forced_rebalance import RebalanceOrders
from sidecar.coordinator.moves.managed_groups import Rules, Store
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.coordinator.moves.parked_requests import Key, ParkedRequests
from sidecar.coordinator.moves.release import Releases
from sidecar.coordinator.moves.unserved_groups import UnservedGroups
from sidecar.coordinator.moves.unstable_groups import Patience, UnstableGroups
from sidecar.core.classic.events import JoinGroup
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.modern.events import MemberHeartbeat
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.pending_requests import Held, refuse
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.service import Service
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import Cluster
from sidecar.link.ports import Figures, Logger, Tasks
from sidecar.link.turn_queue import TurnQueue

Dispatch = partial[None]
"""Passes one request on; `args`: its token and event."""
STATE_READ = ""
"""The key of requests that wait until the state topic has been read to its end, in the place of a group id."""


@dataclass(frozen=True)
class MoveSettings:
    """Settings of the moves. `settle_s`: time after which every sidecar has read a new order or pattern; `hold_s`: how
    long a request waits while its group is taken in; `patience`: waiting for groups that are not stable; `at_once`:
    groups whose releases begin at the same time; `parked_max`: most requests that wait."""

    settle_s: float = 0.5
    hold_s: float = 5.0
    patience: Patience = Patience()
    at_once: int = 100
    parked_max: int = 100_000


@dataclass(frozen=True)
class MovePorts:
    """The coordinator's calls. `configs[(kind, group)]`: the settings in force; `leader_of(partition)`: node id of the
    broker of its groups, -1 while unknown; `run_commands()`: carries out the core's commands;
    `store(group, values, why)`: writes settings; `placeholder_gone(group)`: whether no placeholder is left at the
    broker; `vacate(group)`: removes a placeholder that is left of a group without records; `fleet`: all sidecars'
    kinds; `send_rules()`: sends the rules to all fronts; `turn_queue`: for requests that go on together."""

    configs: Mapping[tuple[str, str], Any]
    leader_of: Callable[[int], int]
    run_commands: Callable[[], None]
    store: Store
    placeholder_gone: Callable[[str], bool]
    vacate: Callable[[str], None]
    fleet: FleetKinds
    send_rules: Callable[[], None]
    turn_queue: TurnQueue


class Moves:
    def __init__(
        self,
        settings: MoveSettings,
        rules: Rules,
        service: Service,
        cluster: Cluster,
        ports: MovePorts,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.rules = rules
        self._hold_ms = int(settings.hold_s * 1000)
        self._service = service
        self._ports = ports
        self._figures = figures
        self._settled: BoundedCache[str, bool] = BoundedCache()
        """Groups whose requests go straight to the core: wanted ones that are here, or have no members elsewhere."""
        self.parked = ParkedRequests(service, settings.parked_max)
        self._queued: dict[str, deque[Dispatch]] = {}
        """Group id -> its requests that go on in later turns of the loop; newer requests of the group come behind
        them."""
        self.core = CoreClient(service, ports.configs, ports.run_commands)
        natives = NativeGroups(service, self.core, cluster, ports.leader_of, ports.fleet)
        self.unstable = UnstableGroups(settings.patience, rules, self.core, natives, ports.store, figures, log, tasks)
        self.adoptions = Adoptions(
            settings.settle_s, rules, self.core, natives, self.unstable, self._adoption_ended, log, tasks
        )
        unserved = UnservedGroups(rules, self.core, natives, ports.store, figures, log)
        self.releases = Releases(
            settings.at_once, rules, self.core, unserved, ports.placeholder_gone, figures, log, tasks
        )
        self.rebalance_orders = RebalanceOrders(rules, self._arrived, self.core.ask, ports.store, log, tasks)
        figures("patterns_differ").set_function(lambda: len(rules.differing()))

    # ---- requests -----------------------------------------------------------------------------------------
    def request(self, token: int, event: Event) -> None:
        """Passes a client's request to the core, parks it, or refuses it."""
        group_id = event.group_id
        if group_id in self._queued:
            self.enqueue(token, event)
        else:
            self._dispatch(token, event)

    def enqueue(self, token: int, event: Event) -> None:
        """Passes a request on in a later turn of the loop."""
        self._enqueue(event.group_id, partial(self._dispatch, token, event))

    def _dispatch(self, token: int, event: Event) -> None:
        group_id = event.group_id
        if group_id in self._settled or not group_id:
            self._service.request(token, event, now())
        elif not self.rules.ready:
            self._park(STATE_READ, token, event, self._hold_ms)
        else:
            self._look_at(token, event)

    def _look_at(self, token: int, event: Event) -> None:
        group_id = event.group_id
        owner = self._service.owner_of(group_id)
        if owner.shard is None or not owner.lease.valid(now()):
            # Whether the group is here is known when its partition is served. The core would hold the request too, but
            # then let it pass without the checks below.
            hold_ms = self._service.settings.hold_ms
            if owner.phase is Phase.ELSEWHERE or not hold_ms:
                self._service.request(token, event, now())
            else:
                self._park(owner.partition, token, event, hold_ms)
            return
        has_group = owner.has(group_id)
        if self.rules.wanted(group_id):
            if has_group and group_id not in self.adoptions.under_way:
                self._settled[group_id] = True
                self._service.request(token, event, now())
            else:
                self._park(group_id, token, event, self._hold_ms)
                self.adoptions.begin(group_id)
        elif has_group and (
            group_id not in self.releases.under_way
            or not _joins(event)
            or _returns(event, owner.shard.groups.get(group_id))
        ):
            self._service.request(token, event, now())
        else:
            refuse(self._service.out, token, event, Code.NOT_COORDINATOR)

    def _park(self, key: Key, token: int, event: Event, hold_ms: int) -> None:
        self.parked.park(key, token, event, hold_ms)
        for later in self._queued.pop(event.group_id, ()):  # they must not go on before this one
            later_token, later_event = later.args
            self.parked.park(key, later_token, later_event, hold_ms)

    def _go_on(self, held: Iterable[Held], dispatch: Callable[[int, Event], None]) -> None:
        """Passes requests on in slices. Each is dispatched by what holds at its turn."""
        for h in held:
            self._enqueue(h.event.group_id, partial(dispatch, h.token, h.event))

    def _enqueue(self, group_id: str, dispatch: Dispatch) -> None:
        self._queued.setdefault(group_id, deque()).append(dispatch)
        self._ports.turn_queue.add([partial(self._next, group_id)])

    def _next(self, group_id: str) -> None:
        queued = self._queued.get(group_id)
        if queued is None:  # they were parked anew
            return
        dispatch = queued.popleft()
        if not queued:
            del self._queued[group_id]
        dispatch()

    def _dispatch_adopted(self, token: int, event: Event) -> None:
        """Passes on a request that waited for the adoption of its group, which may not be remembered. It needs another
        look only if the group was ordered back or its partition was lost meanwhile."""
        if self.rules.wanted(event.group_id) and self.core.serves_group(event.group_id):
            self._service.request(token, event, now())
        else:
            self._dispatch(token, event)

    def _adoption_ended(self, group_id: str, outcome: Outcome) -> None:
        held = self.parked.take(group_id)
        if outcome is Outcome.NOT_TAKEN or not self.rules.wanted(group_id):  # it may have been ordered back meanwhile
            self._go_on(held, self._dispatch)
        else:
            self._settled[group_id] = True
            self._go_on(held, self._dispatch_adopted)
        if outcome is Outcome.TAKEN_IN:
            self._figures("moves", "sidecar", "done").inc()
        self._ports.run_commands()

    # ---- settings in the state topic ----------------------------------------------------------------------
    def begin(self, unread: frozenset[int] = frozenset()) -> None:
        """Puts the settings in force, once the state topic has been read to its end but for the partitions `unread`,
        and lets requests go on."""
        self.rules.begin(unread)
        self.rebalance_orders.begin()
        self._ports.send_rules()
        self._go_on(self.parked.take(STATE_READ), self._dispatch)
        self._ports.run_commands()

    def stored(self, group_id: str, name: str) -> None:
        """Takes in a setting that was written to the state topic, or removed from it."""
        sent = not self.rules.dirty
        if self.rules.stored(group_id, name):
            if sent:  # one message for all settings that are read together
                self._ports.turn_queue.add([self._follow_rules])
            if group_id:
                self._settled.forget(group_id)
            else:
                self._settled.clear()
            if self.rules.ready and group_id and self.core.serves_group(group_id):
                self._consider(group_id)
        elif group_id and name == cf.REBALANCE and self.rules.ready:
            self.rebalance_orders.stored(group_id)

    def _consider(self, group_id: str) -> None:
        """Moves the group to where an operator's order has just put it."""
        if not self.rules.wanted(group_id):
            self._vacate(group_id)
        elif not self.core.has(group_id):
            self.adoptions.begin(group_id)

    def _vacate(self, group_id: str) -> None:
        """Removes a placeholder of a group without records, which is the broker's at once. An owner that was cut off
        while it took the group in may have left it there, and the broker lets no client join beside it."""
        if not self.core.has(group_id):
            self._ports.vacate(group_id)

    # ---- takeovers and losses -------------------------------------------------------------------------------
    def took_over(self, partition: int) -> None:
        """Lets the partition's requests go on, once this sidecar serves it."""
        if self.rules.ready:
            self.releases.tick()
        self._go_on(self.parked.take(partition), self._dispatch)
        for group_id in self.rules.unwanted_in(partition):
            self._vacate(group_id)

    def stopped(self, partition: int) -> None:
        """Refuses the partition's requests if it is elsewhere now. Also called before it is taken over again."""
        self._settled.clear()
        if self._service.owners[partition].phase is Phase.ELSEWHERE:
            self.parked.refuse(partition, Code.NOT_COORDINATOR)

    def _arrived(self, group_id: str) -> bool:
        """Returns whether the group is served here, and no adoption of it is under way."""
        return self.core.serves_group(group_id) and group_id not in self.adoptions.under_way

    # ---- time ---------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Does all periodic work of the moves; called about every 50 ms."""
        self._follow_rules()
        for partition in self.parked.partitions():
            if self.core.serves(partition):
                self._go_on(self.parked.take(partition), self._dispatch)
        self.parked.expire()
        if self.rules.ready:
            self.rebalance_orders.tick()
            self.releases.tick()
            self.unstable.tick()

    def _follow_rules(self) -> None:
        """Sends changed rules to the fronts, and begins the releases that they ask for."""
        if self.rules.dirty and self.rules.ready:
            self.rules.dirty = False
            self._ports.send_rules()
            self.releases.tick()


def _joins(event: Event) -> bool:
    """Returns whether this is the request of a new member."""
    if isinstance(event, JoinGroup):
        return not event.member_id
    return isinstance(event, MemberHeartbeat) and event.joins()


def _returns(event: Event, group: Group | None) -> bool:
    """Returns whether this is a static member that was restarted: the others wait for it. A member of the consumer
    protocol has announced that it leaves for a while, and no member waits for it."""
    return isinstance(event, JoinGroup) and isinstance(group, ClassicGroup) and event.instance_id in group.static
