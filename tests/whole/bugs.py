"""Bugs to plant in the outer layers of the sidecar: `planted.py` plays with them. Each takes a patch that is undone
after the run, and the world that it is planted in."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

import sidecar.api.access as access
import sidecar.api.offset_commit as offset_commit
import sidecar.api.offset_fetch as offset_fetch
import sidecar.core.consumer.step as consumer_step
from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.former_owners import FormerOwners
from sidecar.coordinator.membership.lease_commit import LeaseCommits
from sidecar.coordinator.membership.member_lease import MemberLease
from sidecar.coordinator.membership.owners_group import OwnersGroup
from sidecar.coordinator.moves.adoption import Adoptions
from sidecar.coordinator.moves.moves import Moves
from sidecar.coordinator.moves.parked_requests import ParkedRequests
from sidecar.coordinator.placeholder import commit_gate
from sidecar.coordinator.placeholder.commit_gate import CommitGate
from sidecar.coordinator.placeholder.inflight_commits import UnderWay
from sidecar.coordinator.placeholder.placeholders import Placeholders
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.takeovers import Takeovers
from sidecar.coordinator.statelog.fence import Fence, Producer
from sidecar.coordinator.statelog.fenced_writer import FencedWriter
from sidecar.coordinator.statelog.read_index import ReadIndex
from sidecar.coordinator.statelog.tail import StateLog, Tail
from sidecar.coordinator.statelog.write_errors import RETRIABLE
from sidecar.core.runtime.deferred_replies import DeferredReplies
from sidecar.core.runtime.lifecycle import Lifecycle
from sidecar.core.runtime.offset_checks import CheckReply, FetchCheck
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.pending_requests import Waiting
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.front.steady import Grants
from sidecar.kafka.cluster import ConnectionLost
from sidecar.state.batch import encode_batch
from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA
from sidecar.state.fold import PartitionFold
from sidecar.wire.generated import offset_commit as oc
from tests.sim import planted as core
from tests.whole.world import World

Patch = pytest.MonkeyPatch


# ---- the fenced writer ----------------------------------------------------------------------------------------
def answers_before_the_commit(patch: Patch, world: World) -> None:
    core.answers_before_the_commit(patch)


def takes_over_without_a_fence(patch: Patch, world: World) -> None:
    """A producer id that nobody had before: the broker lets it write, and the former owner, too."""
    ids = iter(range(1_000_000, 2_000_000))

    async def planted(self: Any) -> Producer:
        return Producer(next(ids), 0)

    patch.setattr(Fence, "take", planted)


def goes_on_after_it_was_fenced(patch: Patch, world: World) -> None:
    """Fences the new owner out in its turn and writes what it had, as it was."""
    real = FencedWriter._answered

    async def again(self: Any) -> None:
        await self.init()
        records = [r for e in self._sending for r in e.records]
        self._batch.data = encode_batch(records, 0, self.producer.id, self.producer.epoch, 0)
        self.producer.sequence = len(records)
        self._task = None
        self._put()

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        if not self.stopped and lost is None and code in (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED):
            self._work(again(self))
        else:
            real(self, code, offset, lost)

    patch.setattr(FencedWriter, "_answered", planted)


def tries_again_under_a_new_sequence(patch: Patch, world: World) -> None:
    """Writes once more what may have been written."""
    real = FencedWriter._answered

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        if not self.stopped and (lost is not None or code in RETRIABLE):
            records = [r for e in self._sending for r in e.records]
            self._batch.data = encode_batch(records, 0, self.producer.id, self.producer.epoch, self.producer.sequence)
            self.producer.sequence += len(records)
        real(self, code, offset, lost)

    patch.setattr(FencedWriter, "_answered", planted)


def takes_a_lost_connection_for_written(patch: Patch, world: World) -> None:
    real = FencedWriter._answered

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        real(self, Code.NONE if lost is not None else code, offset, None)

    patch.setattr(FencedWriter, "_answered", planted)


def asks_the_old_leader_for_ever(patch: Patch, world: World) -> None:
    """Takes the first leader of a partition for its leader for ever."""
    real: Any = FencedWriter._find_leader

    async def planted(self: Any, pause_s: float = 0.0) -> None:
        first = getattr(self, "first_leader", -1)
        if first < 0:
            await real(self, pause_s)
            self.first_leader = self._leader.node_id
            return
        self._leader.node_id = -1
        await asyncio.sleep(pause_s)
        self._leader.node_id, self._task = first, None
        if self._batch.left_s > 0:
            self._put()
        else:
            self._batch.deadline_s += 10.0
            self._put()

    patch.setattr(FencedWriter, "_find_leader", planted)
    patch.setattr(FencedWriter, "led_by", lambda self, node_id: None)


def gives_a_takeover_up(patch: Patch, world: World) -> None:
    """After the first attempt that failed it never tries again."""
    real = Owner.wake

    def planted(self: Any, now: Any, budget: Any, proved: bool = True) -> None:
        if self.phase is not Phase.PAUSING:
            real(self, now, budget, proved)

    patch.setattr(Owner, "wake", planted)


# ---- the tail -------------------------------------------------------------------------------------------------
def serves_before_its_claim_is_read(patch: Patch, world: World) -> None:
    """Records of the former owner, of before the claim, have not come in yet."""

    async def planted(self: Any, partition: int, offset: int) -> None:
        return

    patch.setattr(StateLog, "wait_applied", planted)
    patch.setattr(Takeovers, "_still_mine", lambda self, p: True)


def reads_nothing_before_its_claim(patch: Patch, world: World) -> None:
    """Takes its claim for the next record, also where a former owner has written others in between."""
    real = StateLog.wrote

    def planted(self: Any, partition: int, offset: int, records: Any) -> None:
        fold = self.partitions[partition]
        fold.position = max(fold.position, offset)
        real(self, partition, offset, records)

    patch.setattr(StateLog, "wrote", planted)


def keeps_what_was_removed(patch: Patch, world: World) -> None:
    """The tail does not see tombstones."""
    real = PartitionFold.apply

    def planted(self: Any, offset: int, key: Any, value: bytes | None, owner_epoch: int = -1) -> None:
        if value is None and key.kind not in (OWNER_CLAIM, SCHEMA, CONFIG):
            self.position = offset + 1
        else:
            real(self, offset, key, value, owner_epoch)

    patch.setattr(PartitionFold, "apply", planted)


def reads_out_of_order(patch: Patch, world: World) -> None:
    """Applies the records of one piece from its end."""
    real = Tail._apply

    def planted(self: Any, items: Any) -> None:
        real(self, items[::-1])

    patch.setattr(Tail, "_apply", planted)


# ---- the lease ------------------------------------------------------------------------------------------------
def looks_at_no_lease(patch: Patch, world: World) -> None:
    real = Service.request

    def planted(self: Any, token: int, event: Any, now: Any) -> None:
        before, self.lease.until_ms = self.lease.until_ms, 10**15
        try:
            real(self, token, event, now)
        finally:
            self.lease.until_ms = before

    patch.setattr(Service, "request", planted)
    patch.setattr(OwnersGroup, "_lost", lambda self, why: setattr(self, "member_id", ""))


def counts_the_lease_from_the_answer(patch: Patch, world: World) -> None:
    real = MemberLease.committed
    patch.setattr(MemberLease, "committed", lambda self, sent: real(self, now()))


def believes_heartbeats_alone(patch: Patch, world: World) -> None:
    """A coordinator of the owners' group that is cut off from the other brokers goes on answering."""

    async def planted(self: Any, conn: Any, member_id: str, generation: int) -> None:
        self._committed(now())

    patch.setattr(LeaseCommits, "_commit", planted)


def removes_whom_the_former_owner_answers(patch: Patch, world: World) -> None:
    """S7: a new owner counts sessions and rebalance timeouts from its takeover, whatever the former one's lease."""

    def planted(self: Turn, key: tuple[str, ...], timeout_ms: int, tag: int = 0) -> int:
        self.timers.set(key, self.now.mono_ms + timeout_ms, tag)
        return self.now.mono_ms + timeout_ms

    patch.setattr(Turn, "arm_removal", planted)


def takes_silence_for_a_word(patch: Patch, world: World) -> None:
    """Former owners that have said nothing are thought to have given everything up."""
    patch.setattr(FormerOwners, "_is_over", lambda self, claim, following: True)


def gives_no_time_back(patch: Patch, world: World) -> None:
    """A sidecar that stood still removes whoever it could not hear."""
    patch.setattr(Owner, "shift", lambda self, by_ms, now: None)


def keeps_a_problem(patch: Patch, world: World) -> None:
    """Reports the problem of a takeover for ever, also when the partition went to another sidecar."""
    real = Lifecycle.resigned

    def planted(self: Any, why: str) -> bool:
        problem = self.problem
        ended = real(self, why)
        self.problem = problem
        return ended

    patch.setattr(Lifecycle, "resigned", planted)


def stays_withdrawn(patch: Patch, world: World) -> None:
    """Leaves when its broker is gone, and does not come back with it."""
    patch.setattr(OwnersGroup, "resume", lambda self: None)


def keeps_an_instance_for_ever(patch: Patch, world: World) -> None:
    """A static member that was removed still has its instance id."""
    real: Any = vars(consumer_step)["_find_or_make"]
    last: dict[tuple[str, str], str] = {}

    def planted(group: Any, hb: Any, member_id: str) -> Any:
        if hb.instance_id is not None and hb.member_epoch == 0:
            key = group.group_id, hb.instance_id
            if group.static_member(hb.instance_id) is None and last.get(key, member_id) != member_id:
                raise CoordinatorError(Code.UNRELEASED_INSTANCE_ID, "planted")
            last[key] = member_id
        return real(group, hb, member_id)

    patch.setattr(consumer_step, "_find_or_make", planted)


# ---- offsets --------------------------------------------------------------------------------------------------
def has_no_placeholders(patch: Patch, world: World) -> None:
    """Commits go on in nobody's name, and the broker takes those of a former owner."""
    patch.setattr(Placeholders, "occupied", lambda self, group_id, members: None)


def takes_no_placeholder_over(patch: Patch, world: World) -> None:
    """A new owner lets offsets be fetched while the former one's commits may still arrive."""
    real = commit_gate.ready_for
    patch.setattr(
        commit_gate, "ready_for", lambda placeholder, event: isinstance(event, FetchCheck) or real(placeholder, event)
    )


def waits_for_no_commits(patch: Patch, world: World) -> None:
    """A commit of the former member is still under way when the new one fetches."""
    patch.setattr(UnderWay, "before_commit", lambda self, *args: frozenset())
    patch.setattr(UnderWay, "before_fetch", lambda self, *args: frozenset())


def forgets_commits_in_doubt(patch: Patch, world: World) -> None:
    """A commit whose front has lost its connection counts as ended."""
    real = CommitGate.ended
    patch.setattr(CommitGate, "ended", lambda self, ticket, sure: real(self, ticket, True))


def says_that_all_is_stored(patch: Patch, world: World) -> None:
    """Answers that all is stored, whatever the broker answers."""
    real: Any = vars(offset_commit)["store"]

    def planted(call: Any, group_id: str, version: int, body: bytes) -> Generator[Any, Any, bytes]:
        answer = yield from real(call, group_id, version, body)
        res = oc.OffsetCommitResponse.decode(version, answer)
        codes = {p.error_code for t in res.topics for p in t.partitions}
        if not codes - {Code.NONE}:
            return bytes(answer)
        for t in res.topics:
            for p in t.partitions:
                p.error_code = Code.NONE
        return res.encode(version)

    patch.setattr(offset_commit, "store", planted)


def asks_nobody_about_transactions(patch: Patch, world: World) -> None:
    """A TxnOffsetCommit goes on without a look at its member, and in nobody's name."""
    world.exactly_once = True
    real: Any = vars(offset_commit)["_check"]

    def planted(call: Any, event: Any) -> Generator[Any, Any, CheckReply]:
        return CheckReply() if event.transactional else (yield from real(call, event))

    patch.setattr(offset_commit, "_check", planted)


def shows_offsets_of_open_transactions(patch: Patch, world: World) -> None:
    """Answers a client that asks for stable offsets with what is committed by now."""
    world.exactly_once = True
    real: Any = vars(offset_fetch)["_by_keeper"]

    def planted(call: Any, req: Any) -> Any:
        req.require_stable = False
        return real(call, req)

    patch.setattr(offset_fetch, "_by_keeper", planted)


# ---- moves ----------------------------------------------------------------------------------------------------
def leaves_whom_the_former_owner_took_in(patch: Patch, world: World) -> None:
    """An owner died when it had written a group down; the next one leaves its members in the broker's group."""
    patch.setattr(Adoptions, "remove_adopted", lambda self, group_id: None)


def a_release_ends_with_its_owner(patch: Patch, world: World) -> None:
    """Keeps a group after a takeover that was on its way back to the broker."""
    real = Moves.took_over

    def planted(self: Any, partition: int) -> None:
        self.releases.under_way |= set(self.rules.kept[partition])
        real(self, partition)

    patch.setattr(Moves, "took_over", planted)


# ---- answers --------------------------------------------------------------------------------------------------
def withdraws_no_grant(patch: Patch, world: World) -> None:
    """The front goes on answering from its memory when a group has changed."""
    patch.setattr(Grants, "void", lambda self, groups: None)


def hears_no_touch(patch: Patch, world: World) -> None:
    """Takes a member for silent that the front answers from its memory."""
    patch.setattr(Shard, "touch", lambda self, group_id, member_id, now: None)


def tells_of_no_other_owner(patch: Patch, world: World) -> None:
    """Clients are led to the owners of the first day."""
    real = Coordinator.show

    def planted(self: Any, view: Any) -> None:
        if not world.clients:
            real(self, view)

    patch.setattr(Coordinator, "show", planted)


def holds_requests_for_ever(patch: Patch, world: World) -> None:
    """As long as a takeover lasts."""
    real: Any = Waiting.refuse

    def planted(self: Any, code: Code, now_ms: int | None = None) -> None:
        if now_ms is None and code != Code.NOT_COORDINATOR:
            real(self, code, now_ms)

    patch.setattr(Waiting, "refuse", planted)
    patch.setattr(ParkedRequests, "expire", lambda self: None)


def forgets_who_waits(patch: Patch, world: World) -> None:
    """An owner that drops its state answers nobody."""
    patch.setattr(DeferredReplies, "refuse_open", lambda self, code: None)


def forgets_who_waits_for_a_placeholder(patch: Patch, world: World) -> None:
    """A commit or fetch that waits for a placeholder when the partition goes away is never answered."""

    def planted(self: Any, partition: int) -> None:
        for group in [g for g in self._groups.values() if g.partition == partition]:
            group.gone = True
            del self._groups[group.group_id]
            self.commits.forget(group.group_id)

    patch.setattr(Placeholders, "stopped", planted)
    patch.setattr(CommitGate, "tick", lambda self: None)


def passes_on_what_it_has_heard_nothing_of(patch: Patch, world: World) -> None:
    """Passes a join on to the broker if the group was the broker's, as far as is known here."""

    async def planted(self: Any, partitions: Any) -> bool:
        return True

    patch.setattr(ReadIndex, "is_read", planted)


def asks_leaders_only(patch: Patch, world: World) -> None:
    """Whether all of a partition has been read, nobody knows as long as it has no leader."""

    async def planted(self: Any, partition: int) -> int:
        raise ConnectionLost("planted")

    patch.setattr(ReadIndex, "_of_replicas", planted)


def asks_nobody_for_rights(patch: Patch, world: World) -> None:
    """Lets every client read every group."""

    def planted(call: Any, group_id: str) -> Generator[Any, Any, Code]:
        return Code.NONE
        yield

    patch.setattr(access, "kept_read", lambda call, group_id: Code.NONE)
    patch.setattr(access, "refused_read", planted)
