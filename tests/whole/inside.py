"""Looks inside running sidecars, four times a second: what they have must agree with the logs and with the brokers.

Nothing here asks a sidecar to do anything, so that a run goes the same way with and without these looks.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

from sidecar.coordinator.moves.adoption_event import SESSION_TIMEOUT_MS
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.runtime.events import FOR_EVER_MS
from sidecar.core.runtime.lease import Lease, PartitionLease
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.turn import Now
from sidecar.link.clock import CLOCK
from sidecar.process.coordination import Coordination
from sidecar.wire.apis import Api
from tests.sim.world import Violation as Differs
from tests.whole.fold import Fold
from tests.whole.kafka import Kafka
from tests.whole.same import same_group
from tests.whole.sidecar import Sidecar, SimTail
from tests.whole.stored import OFFSETS
from tests.whole.universe import Life, Proc, Universe
from tests.whole.violation import Violation

EVERY_MS = 250.0
LEASE_MS = 15_000
"""ownership.proof_ms: for so long after a takeover nobody is removed for silence."""
ROUNDING_MS = 2
WAITS_MS, JOINS_WAIT_MS = 20_000, 31_000
"""A request waits for the word who owns its group (3 s), for a takeover (3 s), and then until its records are committed
or given up (10 s, and 3 s more for the last try); a join for a whole rebalance (10 s) before that."""
HELD_MS = 1_000
ANOTHER_TOPIC_MS = 6_000
"""A sidecar looks for its state topic every 2 s, and believes the third time that it is gone."""
AT_THE_END_MS = 9_000
WELL_AGAIN_MS = 3_000
"""The time that a process has that stood still to answer the requests that waited."""
USUAL_ERRORS = (
    "shard dropped",
    "process ended",
    "two sidecars with one node id",
    "another sidecar has this node id",  # a wall clock that went back makes the one before it look younger
    "sidecars have different patterns",
    "a group cannot be read",
    "the state topic is another one",
    "no use of the state topic",
    "the broker refuses the sidecar",
    "the state topic is not set to keep its records",
    # who leads at a coordinator that is none any more sees members whose records their successors have removed
    "a member of the owners' group is no sidecar",
)
"""Lines of the level error that faults alone bring about."""
LONG = (Api.JOIN_GROUP, Api.SYNC_GROUP)
NEVER = (-1e12, -1e12)
_granted: WeakKeyDictionary[Lease | PartitionLease, tuple[float, float]] = WeakKeyDictionary()
"""The time at which a lease was last granted, and its end, on the clock of the process."""
_lost: WeakKeyDictionary[Lease | PartitionLease, float] = WeakKeyDictionary()
"""The time at which it was last lost before its end, on the same clock."""


def _listen() -> None:
    extended, lost = Lease.extended, Lease.lost
    proved, unproved = PartitionLease.proved, PartitionLease.unproved

    def on_lease(self: Lease, until_ms: int, until_wall_ms: int = FOR_EVER_MS) -> None:
        extended(self, until_ms, until_wall_ms)
        _granted[self] = time.clock_gettime(CLOCK) * 1000, until_ms

    def on_loss(self: Lease) -> None:
        lost(self)
        _lost[self] = time.clock_gettime(CLOCK) * 1000

    def on_proof(self: PartitionLease, until: Now) -> None:
        proved(self, until)
        _granted[self] = time.clock_gettime(CLOCK) * 1000, until.mono_ms

    def on_end_of_proof(self: PartitionLease) -> None:
        unproved(self)
        _lost[self] = time.clock_gettime(CLOCK) * 1000

    Lease.extended, Lease.lost = on_lease, on_loss  # type: ignore[method-assign]
    PartitionLease.proved, PartitionLease.unproved = on_proof, on_end_of_proof  # type: ignore[method-assign]


_listen()


class Inside:
    def __init__(self, universe: Universe, kafka: Kafka, fold: Fold, moving: Collection[str]) -> None:
        """`moving`: groups that are taken in from the broker. It tells no sessions, so they have those of clients'
        defaults, and whoever joins waits so much longer for a member that is gone."""
        self._moving = moving
        self.sidecars: Mapping[int, Sidecar] = {}
        self._universe, self._kafka, self._fold = universe, kafka, fold
        self._asked: dict[str, float] = {}
        """The time at which a member of the owners' group last asked the broker that leads it, as the controller has
        it."""
        self._disturbed: dict[Proc, float] = {}
        """The time at which a process last stood still."""
        self._slept_ms: dict[Proc, float] = {}
        self._slept: dict[Proc, list[tuple[int, float]]] = defaultdict(list)
        """The times at which its host was seen to have been suspended, on its clock, and for how long."""
        self._deaf: dict[tuple[Proc, int], list[float]] = defaultdict(list)
        """By partition: the times at which a process was seen standing still, or without a lease on it."""
        self._leased_ms: dict[tuple[str, int], float] = {}
        """By host and partition: until when its sidecar has a lease on it, as it was last seen."""
        self._rebalances: dict[tuple[str, str], tuple[int, float]] = {}
        """By host and group: the generation that ends, and since when its members are to join, as the owner has it."""
        self.expected: tuple[str, ...] = ()
        """Beginnings of lines of the level error that are not usual, and are what the scene is about."""
        self._of_another_topic: dict[Proc, float] = {}
        """Processes that have read a state topic that is gone, each with the time until which it may not know."""

    def forget(self) -> None:
        """The state topic is another one. Whoever runs now is to notice, soon."""
        until_ms = self._universe.now_ms + ANOTHER_TOPIC_MS
        self._of_another_topic = {s.proc: until_ms for s in self.sidecars.values()}

    def hears(self, node_id: int, group_id: str, member_id: str) -> None:
        """Called when this broker is asked in the name of this member."""
        nodes = self._kafka.cluster.nodes
        p = nodes[node_id].groups.partition(group_id)
        leader = self._kafka.leader(OFFSETS, p)
        if leader is not None and leader != node_id:
            told = nodes[leader].image.partition(OFFSETS, p)
            if told is None or told.leader != node_id:
                return
        # Without a leader nobody else can have been told anything; and one that does not know yet that it leads still
        # follows this broker, and has what is committed here.
        self._asked[member_id] = self._universe.now_ms

    def look(self) -> None:
        """Looks as often as it is time to."""
        while self._universe.now_ms >= self._universe.look_ms:
            self._universe.look_ms += EVERY_MS
            self._look()

    def _look(self) -> None:
        for s in self.sidecars.values():
            if s.proc.life is not Life.RUNS:
                self._disturbed[s.proc] = self._universe.now_ms
                for p in range(len(self._fold.parts)):
                    self._deaf[s.proc, p].append(self._universe.now_ms)
                continue
            slept_ms = s.proc.slept_ms - self._slept_ms.get(s.proc, 0.0)
            if slept_ms:
                self._slept_ms[s.proc] = s.proc.slept_ms
                self._slept[s.proc].append((s.proc.boot_ms(), slept_ms))
                self._disturbed[s.proc] = self._universe.now_ms
            self._errors(s)
            if s.app is not None and isinstance(s.app.half, Coordination):
                self._lease(s, s.app.half)
                knows = self._universe.now_ms >= self._of_another_topic.get(s.proc, 0.0)
                if knows:
                    self._tail(s, s.app.half)
                service = s.app.half.coordinator.service
                for owner in service.owners:
                    if not self._note_lease(s, service, owner.partition):
                        self._deaf[s.proc, owner.partition].append(self._universe.now_ms)
                    self._proof(s, owner)
                    if knows:
                        self._live(s, owner)
                    self._held(s, owner)
                    self._look_for_rebalances(s, owner)
            self._waiting(s, WAITS_MS, JOINS_WAIT_MS)

    # ---- what is asked of it --------------------------------------------------------------------------------
    def heard_ms(self, node_id: int, group_id: str, since_ms: float) -> float:
        """For how long this sidecar could hear the members of this group since then."""
        deaf = self._deaf[self.sidecars[node_id].proc, self._fold.partition_of(group_id)]
        return self._universe.now_ms - since_ms - EVERY_MS * (len(deaf) - bisect_left(deaf, since_ms))

    def rebalances(self, host: str, group_id: str, before_ms: float) -> bool:
        """Whether the sidecar of this host has had its members join since before then, without a pause."""
        s = next(s for s in self.sidecars.values() if s.proc.host == host)
        if s.app is not None and isinstance(s.app.half, Coordination):
            # It may have stood still since it was last looked at, with a rebalance that was over a moment later.
            self._look_for_rebalances(s, s.app.half.coordinator.service.owner_of(group_id))
        return self._rebalances.get((host, group_id), (0, before_ms))[1] < before_ms

    def had_a_lease(self, host: str, group_id: str, asked_ms: float) -> bool:
        """Whether the sidecar of this host had a lease on this group when it was asked this, or has got one since."""
        s = next(s for s in self.sidecars.values() if s.proc.host == host)
        p = self._fold.partition_of(group_id)
        if s.app is not None and isinstance(s.app.half, Coordination):
            service = s.app.half.coordinator.service
            self._note_lease(s, service, p)
            if any(self._granted(s, lease, asked_ms) for lease in (service.lease, service.owners[p].lease)):
                return True
        return asked_ms < self._leased_ms.get((host, p), 0.0) + 2 * EVERY_MS

    def _granted(self, s: Sidecar, lease: Lease | PartitionLease, asked_ms: float) -> bool:
        """Between two looks a lease may come and go. A process that stood still has not been looked at."""
        granted_ms, until_ms = _granted.get(lease, NEVER)
        lost_ms = _lost.get(lease, NEVER[0])
        began_ms = self._universe.now_ms - s.proc.boot_ms()  # of the process' clock
        return asked_ms < began_ms + until_ms and (granted_ms > lost_ms or asked_ms <= began_ms + lost_ms)

    def _note_lease(self, s: Sidecar, service: Service, p: int) -> bool:
        left_ms = max(service.lease.until_ms, service.owners[p].lease.proved_until.mono_ms) - s.proc.boot_ms()
        key, now_ms = (s.proc.host, p), self._universe.now_ms
        self._leased_ms[key] = now_ms + left_ms if left_ms > 0 else min(now_ms, self._leased_ms.get(key, 0.0))
        return left_ms > 0

    def at_the_end(self) -> None:
        """Checks that no request waits for anything: nothing has happened for a while."""
        for s in self.sidecars.values():
            self._waiting(s, AT_THE_END_MS, AT_THE_END_MS)

    # ---- one sidecar ----------------------------------------------------------------------------------------
    def _errors(self, s: Sidecar) -> None:
        for line in s.lines.errors:
            if not line.startswith((*USUAL_ERRORS, *self.expected)):
                raise Violation(f"sidecar {s.node_id} says: {line}")

    def _lease(self, s: Sidecar, half: Coordination) -> None:
        """Checks the end of the lease. It counts from when the brokers were asked, which is before they heard it."""
        asked_ms = self._asked.get(half.cluster_watch.ownership.member_id)
        if asked_ms is None or asked_ms <= self._disturbed.get(s.proc, -1.0):
            return
        now_ms = s.proc.boot_ms() - self._universe.now_ms
        late_ms = half.coordinator.service.lease.until_ms - (now_ms + asked_ms + LEASE_MS + ROUNDING_MS)
        if late_ms > 0:
            told = f"the lease of sidecar {s.node_id} lasts {late_ms:.0f} ms too long"
            raise Violation(f"{told}: nobody who could commit has heard of it")

    def _proof(self, s: Sidecar, owner: Owner) -> None:
        """Checks a partition's own proof. It ends at the latest a lease after another owner's claim. On a host that was
        suspended one clock may have stood still; a proof is over when either says so."""
        part = self._fold.parts[owner.partition]
        until_ms = part.claimed_ms + LEASE_MS + ROUNDING_MS - self._universe.now_ms
        by_boot_ms = owner.lease.proved_until.mono_ms - (s.proc.boot_ms() + until_ms)
        by_wall_ms = owner.lease.proved_until.wall_ms - (s.proc.wall_ms() + until_ms)
        late_ms = min(by_boot_ms, by_wall_ms)
        if part.claimed != owner.lifecycle.owner_epoch and late_ms > 0:
            raise Violation(f"a proof of sidecar {s.node_id} for {owner.partition} lasts {late_ms:.0f} ms too long")

    def _tail(self, s: Sidecar, half: Coordination) -> None:
        """Checks that a tail that has read as far as the judge has read the same."""
        tail, state = half.cluster_watch.tail, half.state
        assert isinstance(tail, SimTail)
        for p, part in enumerate(self._fold.parts):
            if tail.applied[p] != part.position:
                continue
            read = {key: value for group in state.partitions[p].groups.values() for key, value in group.items()}
            if read != part.values:
                keys = sorted(str(k) for k in {*read, *part.values} if read.get(k) != part.values.get(k))
                raise Violation(f"the tail of sidecar {s.node_id} differs from the log {p} in {', '.join(keys[:5])}")

    def _live(self, s: Sidecar, owner: Owner) -> None:
        """An owner whose records are all committed, and who has not been replaced, has what the log says."""
        p, shard = owner.partition, owner.shard
        part = self._fold.parts[p]
        if (
            owner.phase is not Phase.SERVING
            or shard is None
            or not owner.idle
            or part.claimed != owner.lifecycle.owner_epoch
        ):
            return
        self._fold.read(p)
        if not self._fold.is_whole(p):
            return
        for group_id in sorted({*shard.groups, *part.shard.groups}):
            if group_id in owner.loader.queue.left or group_id in self._fold.foreign:
                continue
            live, folded = shard.groups.get(group_id), part.shard.groups.get(group_id)
            where = f"{group_id} in sidecar {s.node_id}"
            if live is None or folded is None:
                raise Violation(f"{where}: it is in the live state or in the log, not in both")
            if type(live) is not type(folded):
                raise Violation(f"{where}: live a {live.kind} group, in the log a {folded.kind} group")
            try:
                same_group(live, folded)
            except Differs as exc:
                raise Violation(f"{where}: {exc}") from exc

    def _held(self, s: Sidecar, owner: Owner) -> None:
        """A request waits for a takeover, but not longer than it should."""
        calm = self._universe.now_ms - self._disturbed.get(s.proc, -1e9) > WELL_AGAIN_MS
        for held in (*owner.held, *owner.loader.queue.everybody()) if calm else ():
            if held.until_ms + HELD_MS < s.proc.boot_ms():
                raise Violation(f"sidecar {s.node_id} holds a request longer than it should: {held.event}")

    def _look_for_rebalances(self, s: Sidecar, owner: Owner) -> None:
        host = s.proc.host
        groups = owner.shard.groups if owner.shard is not None else {}
        preparing = {
            group_id: group.generation
            for group_id, group in groups.items()
            if isinstance(group, ClassicGroup) and group.state is State.PREPARING
        }
        for key, (generation, _) in list(self._rebalances.items()):
            mine = key[0] == host and self._fold.partition_of(key[1]) == owner.partition
            if mine and preparing.get(key[1]) != generation:
                del self._rebalances[key]
        for group_id, generation in preparing.items():
            self._rebalances.setdefault((host, group_id), (generation, self._universe.now_ms))

    def _waiting(self, s: Sidecar, bound_ms: int, joins_ms: int) -> None:
        """Nobody's request is forgotten, also of those who have given up by themselves."""
        if s.app is None or self._universe.now_ms - self._disturbed.get(s.proc, -1e9) < WELL_AGAIN_MS:
            return
        at_ms = s.proc.boot_ms()
        for front in s.app.fronts:
            for run in front.channel.under_way.values():
                # A write is given up when its process has run for so long.
                waited_ms = at_ms - run.now_ms - sum(ms for woke_ms, ms in self._slept[s.proc] if woke_ms > run.now_ms)
                limit_ms = joins_ms if run.api_key in LONG else bound_ms
                if run.api_key in LONG and run.event is not None and run.event.group_id in self._moving:
                    limit_ms += SESSION_TIMEOUT_MS
                if waited_ms > limit_ms:
                    name = Api(run.api_key).name
                    raise Violation(
                        f"in sidecar {s.node_id} a request waits for its answer for {waited_ms:.0f} ms: {name}"
                    )
