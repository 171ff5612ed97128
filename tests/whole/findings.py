"""Findings of a safety review, planted anew: `planted.py` plays with them, most of them in a scene (scenes/). L and a
number is a finding about liveness, S and a number one about safety; tests of the mended code name it too."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import sidecar.coordinator.membership.member_lease as lease_module
import sidecar.coordinator.membership.owners_client as owners_client_module
import sidecar.coordinator.runtime.lease_proofs as proofs_module
import sidecar.coordinator.statelog.topic_watch as state_topic_module
import sidecar.front.clock as front_clock
import sidecar.process.coordination as coordination
from sidecar.api.call import Call
from sidecar.coordinator import clock
from sidecar.coordinator.membership.map_check import MapCheck
from sidecar.coordinator.membership.owners_group import OwnersGroup
from sidecar.coordinator.membership.peer_links import Peers
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.lease_proofs import LeaseProofs
from sidecar.coordinator.runtime.tail_listener import TailListener
from sidecar.coordinator.runtime.takeovers import Takeovers
from sidecar.coordinator.statelog.fence import Fence
from sidecar.coordinator.statelog.fenced_writer import FencedWriter
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.topic_watch import StateTopic
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.runtime.events import FOR_EVER_MS
from sidecar.core.runtime.group_loader import GroupLoader
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.placement import partition_for
from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.link.messages import GroupRules
from sidecar.process.coordination import Coordination
from sidecar.state.fold import Claims
from sidecar.state.schema import StateError
from tests.whole.bugs import Patch, has_no_placeholders
from tests.whole.world import World


# ---- findings of the safety review that show in a scene -------------------------------------------------------
def waits_for_whoever_is_silent(patch: Patch, world: World) -> None:
    """L1: a request that is given up leaves its connection open, and the same address is always asked first."""

    async def within(self: Any, timeout_s: float, response: Any) -> bytes:
        async with asyncio.timeout(max(timeout_s, 10.0)):
            return bytes(await response)

    async def first(self: Any) -> tuple[BrokerConnection, Any]:
        last: Exception = ConnectionLost("nobody")
        for host, port in dict.fromkeys([*self.bootstrap, *self.brokers.values()]):
            try:
                return await BrokerConnection.open(host, port, self.client_id, 60.0), (host, port)
            except ConnectionLost as exc:
                last = exc
        raise last

    patch.setattr(BrokerConnection, "_within", within)
    patch.setattr(Cluster, "_first_that_answers", first)
    patch.setattr(owners_client_module, "WATCH_S", 1e6)


def waits_at_the_old_coordinator(patch: Patch, world: World) -> None:
    """A join at a broker that stands still is waited for, whoever coordinates the owners' group meanwhile."""
    patch.setattr(owners_client_module, "WATCH_S", 1e6)


def takes_part_before_it_has_read(patch: Patch, world: World) -> None:
    """L2: a sidecar that has just been started takes partitions from owners that know them."""
    real = OwnersGroup.__init__

    def planted(self: Any, *args: Any) -> None:
        real(self, *args)
        self.take_part()

    patch.setattr(OwnersGroup, "__init__", planted)


def removes_the_peer_of_the_first_day(patch: Patch, world: World) -> None:
    """L3: the link knows the member id under which a peer was first seen."""
    real = OwnersGroup._remove

    async def planted(self: Any, node: int, member_id: str, why: str) -> bool:
        first = self.__dict__.setdefault("first_ids", {})
        return await real(self, node, first.get(node, member_id), why)

    show = Coordinator.owners_assigned

    def assigned(self: Any, a: Any, missed: bool = False) -> None:
        for s in world.sidecars.values():
            half = s.app.half if s.app is not None else None
            if isinstance(half, Coordination) and half.coordinator is self:
                first = half.cluster_watch.ownership.__dict__.setdefault("first_ids", {})
                for node, member in a.members.items():
                    first.setdefault(node, member[0])
        show(self, a, missed)

    patch.setattr(OwnersGroup, "_remove", planted)
    patch.setattr(Coordinator, "owners_assigned", assigned)


def hears_only_who_hangs_up(patch: Patch, world: World) -> None:
    """L6: a link says nothing as long as nobody closes it."""

    async def planted(self: Any, node: int, peer: Any, transport: Any, link: Any) -> bool:
        await link.lost
        return False

    patch.setattr(Peers, "_ping_until_silent", planted)


def waits_for_its_predecessor(patch: Patch, world: World) -> None:
    """Waits until the session of a killed sidecar is over, which is still a member of the owners' group."""

    async def planted(self: Any) -> None:
        return None

    patch.setattr(OwnersGroup, "_send_predecessors_away", planted)


def leaves_behind_its_own_join(patch: Patch, world: World) -> None:
    """L4: a LeaveGroup for a dead peer stands behind the JoinGroup that waits for it."""
    lane = Cluster.lane

    async def planted(self: Cluster, node_id: int, kind: Lane, which: int = 0) -> BrokerConnection:
        return await lane(self, node_id, Lane.OWNERS if kind is Lane.REMOVAL else kind, which)

    patch.setattr(Cluster, "lane", planted)


def lets_offsets_get_old(patch: Patch, world: World) -> None:
    """S1: at the broker a managed group is empty, and offsets of empty groups expire."""
    has_no_placeholders(patch, world)


def believes_the_highest_claim(patch: Patch, world: World) -> None:
    """S3: a producer id that is lower than the one before makes everything void that its owner writes."""

    def highest(self: Claims, owner_epoch: int) -> None:
        self.claimed = max(self.claimed, owner_epoch)

    patch.setattr(Claims, "claim", highest)
    patch.setattr(Takeovers, "_still_mine", lambda self, p: True)


def follows_its_own_patterns(patch: Patch, world: World) -> None:
    """S4: whatever is stored, each sidecar coordinates what its own settings name."""
    patch.setattr(Rules, "matches", lambda self, group_id: self._own.matches(group_id))
    real = Rules.message
    patch.setattr(Rules, "message", lambda self: GroupRules(moved=real(self).moved))


def leaves_out_what_it_cannot_read(patch: Patch, world: World) -> None:
    """S5: what a damaged record gave to a member looks free."""
    patch.setattr(StateLog, "records", _readable)


def _readable(self: Any, partition: int, group_id: str) -> Generator[Any, None, None]:
    for key, value in self.partitions[partition].groups.get(group_id, {}).items():
        try:
            yield self.codec.decode(key, value)[0]
        except StateError:
            continue


def an_unreadable_group_takes_its_partition_down(patch: Patch, world: World) -> None:
    """S5: every owner in turn fails at the same record."""

    def planted(self: Any, group_id: str, why: str) -> None:
        raise InvariantError(why)

    patch.setattr(GroupLoader, "_keep_unreadable", planted)


def both_twins_own(patch: Patch, world: World) -> None:
    """S8: what is assigned to a node id is everybody's who has it."""
    patch.setattr(MapCheck, "without_doubles", lambda self, a, own_id: a)


def goes_on_after_a_turn_that_broke(patch: Patch, world: World) -> None:
    """S9: a bug in a turn, now and then. Who asked loses its answer, and the state stays as far as the turn came."""
    real, turns = Shard.handle, itertools.count(1)

    def breaks(self: Any, event: Any, token: int, now: Any) -> Any:
        fx = real(self, event, token, now)
        if fx.records and next(turns) % 7 == 0:
            raise ValueError("a bug")
        return fx

    patch.setattr(Shard, "handle", breaks)
    patch.setattr(Owner, "_broken", lambda self, exc, now: None)


# ---- the state topic ------------------------------------------------------------------------------------------
def goes_on_without_its_topic(patch: Patch, world: World) -> None:
    """S6: what is in memory is served, though it is in no log any more."""

    async def never(self: StateTopic, topics: Iterable[Topic], cluster: Cluster) -> None:
        """Does not look at the state topic."""

    patch.setattr(StateTopic, "look", never)
    patch.setattr(TailListener, "tail_went_back", lambda self, partition: None)


def lets_anybody_join_at_once(patch: Patch, world: World) -> None:
    """Gives the first member that comes back what others still work on, when the state topic was lost."""
    patch.setattr(Quarantine, "closed_until_ms", lambda self, now_ms: 0)


def believes_that_the_topic_is_kept(patch: Patch, world: World) -> None:
    """S6: how the state topic is set is nobody's concern."""

    def nothing(topic: str, configs: Mapping[str, str]) -> str:
        return ""

    patch.setattr(state_topic_module, "policy_fault", nothing)
    patch.setattr(coordination, "policy_fault", nothing)


# ---- clocks ---------------------------------------------------------------------------------------------------
def counts_leases_by_the_monotonic_clock(patch: Patch, world: World) -> None:
    """S7: it does not count the time for which its host was suspended."""
    patch.setattr(clock, "CLOCK", time.CLOCK_MONOTONIC)
    patch.setattr(front_clock, "CLOCK", time.CLOCK_MONOTONIC)


def counts_leases_by_one_clock(patch: Patch, world: World) -> None:
    """S7: while a whole machine stands still, no clock goes on but the wall's."""

    def planted(sent: Now, lease_ms: int) -> Now:
        return Now(sent.mono_ms + lease_ms, FOR_EVER_MS)

    patch.setattr(lease_module, "lease_end", planted)
    patch.setattr(proofs_module, "lease_end", planted)


# ---- brokers that give no answer, or none yet -------------------------------------------------------------------
def proves_no_partition(patch: Patch, world: World) -> None:
    """L5: a lease is what the coordinator of the owners' group says, and nothing else."""
    patch.setattr(LeaseProofs, "look", lambda self: None)


def says_not_why_there_is_no_fence(patch: Patch, world: World) -> None:
    """L9: where the brokers cannot keep transactions, each takeover fails with COORDINATOR_NOT_AVAILABLE."""

    async def planted(self: Any, code: int) -> str:
        return ""

    patch.setattr(Fence, "_remedy", planted)


def expects_to_know_the_owners(patch: Patch, world: World) -> None:
    """L10: before they are known, a division by zero."""

    def planted(self: Call, group_id: str) -> int:
        return self.view.owners[partition_for(group_id, len(self.view.owners))]

    patch.setattr(Call, "owner_of", planted)


def renews_fences_by_takeovers(patch: Patch, world: World) -> None:
    """Every hour each partition is taken over from itself, and everything is decoded anew."""

    def planted(self: Service, owner: Any, now: Now) -> None:
        real(self, owner, now)
        if owner.lifecycle.renewing:
            self.out.pop()
            owner.lifecycle.rest("the fence is renewed", 0, now)
            owner._drop()

    real = Service._renew
    patch.setattr(Service, "_renew", planted)


def writes_no_more_than_a_batch(patch: Patch, world: World) -> None:
    """L8: what is larger fails, the state is built anew, and the same is to be written again."""

    async def planted(self: Any, entry: Any) -> None:
        self._task = None
        self._fail(WriteLost("MESSAGE_TOO_LARGE"))

    patch.setattr(FencedWriter, "_write_large", planted)
