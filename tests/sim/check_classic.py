"""Invariants of generations: which clients get their members, and what was assigned in each. Members of the classic
protocol in a consumer group have an epoch in the place of a generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.core.classic.embedded import assigned
from sidecar.core.classic.events import ClassicHeartbeat, JoinReply, LeaveGroup, SyncGroup, SyncReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, MemberRecord, State
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import CurrentRecord
from sidecar.core.consumer.records import Kind as ConsumerKind
from sidecar.core.consumer.records import MemberRecord as ConsumerMemberRecord
from sidecar.core.migration.downgrade import WHY as DOWNGRADED
from sidecar.core.migration.upgrade import WHY as UPGRADED
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CommitCheck
from sidecar.core.runtime.records import Epochs, Record, Tombstone
from tests.sim.front import Ask
from tests.sim.log import Writer
from tests.sim.world import SESSION_MS, TICK_MS, TOPIC_IDS, Violation, World

Generation = tuple[str, int]
"""Group and generation."""
NOBODY_WAS_IN_IT = ("an empty", "group deleted")
"""Beginnings of the reasons for which a group goes."""
IN_ANY_CASE_MS = 4_000
"""No member has a rebalance timeout as short as that."""


class Generations:
    def __init__(self, world: World, group: Callable[[str], Any]) -> None:
        self.world, self.group = world, group
        self._sets: dict[Generation, list[str]] = {}
        """Members of the group when the generation began."""
        self._announced: dict[Generation, tuple[str, str | None]] = {}
        """Leader and protocol in the answers to members."""
        self._given: dict[Generation, dict[str, bytes]] = {}
        """Assignments in the log."""
        self._turned: dict[tuple[str, str], tuple[int, int, Writer]] = {}
        """The generation of a group, with the member id "", or the epoch of a member; since when; by whom."""
        self._instances: dict[str, str] = {}
        """Member id -> instance id."""
        self._downgraded: dict[str, str] = {}
        """Groups of which half a turn is in the log, and why they became classic ones."""
        self._era: dict[str, int] = {}
        """The generation with which the group became a classic one; what was assigned before is not known here."""
        self.stable_ms: dict[str, int] = {}
        """The time at which a classic group was assigned last, or came into being with what its members had."""
        self._had: dict[tuple[str, str], list[Epochs]] = {}
        """Assignments of a member of a consumer group in its present epoch, in their order."""
        self._states: dict[str, State] = {}
        self._began: dict[str, tuple[int, int]] = {}
        """The time at which a rebalance of a group with members began, and the owner epoch of that time."""
        self._pending: dict[str, dict[str, tuple[int, int]]] = {}
        """Member ids that were given out and have not come back: when and in which owner epoch."""
        self._assigned: dict[str, tuple[int, int]] = {}
        """The last generation of a classic group that has an assignment, and the one before."""

    def _root(self, member_id: str) -> str:
        """A static member by its instance id, whatever its member id is now."""
        return self._instances.get(member_id, member_id)

    def floor(self, group_id: str) -> int:
        """Oldest generation that counts: members of earlier ones may not know yet that they lost their partitions."""
        return self._assigned.get(group_id, (0, 0))[1]

    # ---- the log --------------------------------------------------------------------------------------------
    def note(self, record: Record, writer: Writer, owner_epoch: int) -> None:
        """The record has been applied."""
        group_id = record.group_id
        if isinstance(record, GroupRecord):
            self._note_group(record, writer, owner_epoch)
        elif isinstance(record, MemberRecord | ConsumerMemberRecord):
            self._pending.get(group_id, {}).pop(record.member_id, None)
            if record.instance_id is not None:
                self._instances[record.member_id] = record.instance_id
        elif isinstance(record, AssignmentRecord):
            group = self.group(group_id)
            given = self._given.get((group_id, group.generation))
            if given is not None:  # a static member's is handed over
                given[record.member_id] = record.assignment
        elif isinstance(record, CurrentRecord):
            key = (group_id, record.sub_id)
            if self._turned.get(key, (-1, 0, writer))[0] != record.member_epoch:
                self._turned[key] = (record.member_epoch, self.world.sched.now, writer)
                self._had[key] = []
            self._had[key].append(record.assigned)
        elif isinstance(record, Tombstone) and is_root(record):
            for gone in (self._pending, self._states, self._began):
                gone.pop(group_id, None)
            _, before = self._assigned.pop(group_id, (0, 0))
            if record.why.startswith(DOWNGRADED):
                self._downgraded[group_id] = record.why
            if record.why == UPGRADED:
                self._assigned[group_id] = (before, before)
                self._era.pop(group_id, None)
                _forget(self._given, group_id)
            if self.begins_anew(record):
                self._era.pop(group_id, None)
                for of in (self._sets, self._announced, self._given, self._turned, self._had):
                    _forget(of, group_id)

    def batch_written(self, group_id: str) -> None:
        """All records of a turn are in the log."""
        why = self._downgraded.pop(group_id, "")
        group = self.group(group_id)
        if why and "replaces" not in why and isinstance(group, ClassicGroup) and group.state is State.STABLE:
            raise Violation(f"{group_id} was {why}, and does not rebalance")

    def begins_anew(self, record: Record) -> bool:
        """Whether generations of the group begin anew: nobody was in it."""
        return (
            isinstance(record, Tombstone) and is_root(record) and record.why.startswith(("an empty", "group deleted"))
        )

    def _note_group(self, r: GroupRecord, writer: Writer, owner_epoch: int) -> None:
        group_id, key, now = r.group_id, (r.group_id, r.generation), self.world.sched.now
        if self._turned.get((group_id, ""), (-1, 0, writer))[0] != r.generation:
            self._turned[group_id, ""] = (r.generation, now, writer)
        self._era.setdefault(group_id, r.generation)
        last, _ = self._assigned.get(group_id, (0, 0))
        group = self.group(group_id)
        before, self._states[group_id] = self._states.get(group_id), r.state
        if r.state is State.PREPARING:
            if before in (State.STABLE, State.COMPLETING):
                self._began[group_id] = (now, owner_epoch)
            return
        began, by = self._began.pop(group_id, (0, owner_epoch))
        if r.state is State.COMPLETING:
            # Until the leader has assigned, members hold what they were given last.
            self._assigned[group_id] = (last, last)
            members = sorted(self._root(m) for m in group.members)
            known = self._sets.setdefault(key, members)
            if known != members:
                raise Violation(f"generation {r.generation} of {group_id} is given to {members}, and was to {known}")
            if by == owner_epoch and now - began < IN_ANY_CASE_MS:
                self._nobody_is_missing(group_id, owner_epoch)
        elif r.state is State.STABLE and key not in self._given:
            self._given[key] = dict(group.assignments)
            self._assigned[group_id] = (r.assigned_generation, last)
            self.stable_ms[group_id] = now

    def _nobody_is_missing(self, group_id: str, owner_epoch: int) -> None:
        """The join phase is over before its time, so nobody was to be waited for."""
        soon = self.world.sched.now - SESSION_MS + TICK_MS
        for member_id, (given_ms, by) in self._pending.get(group_id, {}).items():
            if by == owner_epoch and given_ms > soon:
                raise Violation(f"the join phase of {group_id} is over, but {member_id} was given its id, and may come")

    def asked(self, event: Event) -> None:
        """Notes the request: a member may leave with a member id that it was given."""
        if isinstance(event, LeaveGroup):
            for m in event.members:
                self._pending.get(event.group_id, {}).pop(m.member_id, None)

    # ---- answers --------------------------------------------------------------------------------------------
    def answered(self, ask: Ask, answer: Answer, member_id: str, writer: Writer, lease_end_ms: int) -> None:
        """An answer without an error, or one that gives a new member its id."""
        event, group_id = ask.event, ask.event.group_id
        if isinstance(answer, JoinReply) and answer.code:
            if isinstance(self.group(group_id), ClassicGroup):
                self._pending.setdefault(group_id, {})[member_id] = (ask.taken_ms, ask.owner_epoch)
        elif isinstance(answer, JoinReply):
            self._joined(group_id, answer, member_id)
        elif isinstance(answer, SyncReply):
            assert isinstance(event, SyncGroup)
            self._synced(event, answer)
            self._current(ask, member_id, event.generation, writer, lease_end_ms)
        elif isinstance(event, ClassicHeartbeat):
            self._current(ask, member_id, event.generation, writer, lease_end_ms)
        elif isinstance(event, CommitCheck) and isinstance(self.group(group_id), ClassicGroup):
            self._current(ask, member_id, event.member_epoch, writer, lease_end_ms)

    def _joined(self, group_id: str, answer: JoinReply, member_id: str) -> None:
        key = (group_id, answer.generation)
        consumer = not answer.leader
        reached, _, _ = self._turned.get((group_id, member_id if consumer else ""), (0, 0, None))
        if answer.generation > reached:
            raise Violation(f"a reply before its records were committed: {member_id} is told generation {key}")
        if answer.members and answer.leader != member_id:
            raise Violation(f"the members of {key} are told to {member_id}, who does not lead")
        if consumer:
            return
        known = self._announced.setdefault(key, (self._root(answer.leader), answer.protocol))
        if known != (self._root(answer.leader), answer.protocol):
            raise Violation(
                f"generation {key} is told with {answer.leader} and {answer.protocol}, and was with {known}"
            )
        members = sorted(self._root(m.member_id) for m in answer.members)
        if members and key in self._sets and members != self._sets[key]:
            raise Violation(f"the leader of {key} is told of {members}, but it was given to {self._sets[key]}")

    def _synced(self, event: SyncGroup, answer: SyncReply) -> None:
        if isinstance(self.group(event.group_id), ConsumerGroup):
            self._synced_consumer(event, answer)
            return
        key = (event.group_id, event.generation)
        given = self._given.get(key)
        if given is None:
            if event.generation < self._era.get(event.group_id, 0):
                return  # the group was another one when the answer was made
            raise Violation(f"{event.member_id} has an assignment of {key} before its records were committed")
        if given.get(event.member_id, b"") != answer.assignment:
            raise Violation(f"{event.member_id} is given what {key} does not assign to it")

    def _synced_consumer(self, event: SyncGroup, answer: SyncReply) -> None:
        """The member may have come further meanwhile, and a topic may have gone; the group may have been a classic one
        when the answer was made."""
        key = (event.group_id, event.member_id)
        epoch, _, _ = self._turned.get(key, (-1, 0, None))
        if epoch != event.generation:
            return
        told = assigned(answer.assignment) or {}
        places = {(TOPIC_IDS[t], p) for t, ps in told.items() for p in ps if t in TOPIC_IDS}
        if not any(all(p in had.get(t, ()) for t, p in places) for had in self._had[key]):
            raise Violation(f"{event.member_id} is given {told}, which {key} does not have in epoch {epoch}")

    def _current(self, ask: Ask, member_id: str, generation: int, writer: Writer, lease_end_ms: int) -> None:
        group_id = ask.event.group_id
        key = (group_id, "" if isinstance(self.group(group_id), ClassicGroup) else member_id)
        now, when, by = self._turned.get(key, (generation, 0, writer))
        if generation != now and when < ask.taken_ms and (by == writer or self.world.sched.now >= lease_end_ms):
            raise Violation(f"{member_id} is told that all is well in {generation}, but {group_id} is in {now}")


def _forget(of: dict[Any, Any], group_id: str) -> None:
    for key in [k for k in of if k[0] == group_id]:
        del of[key]


def is_root(record: Tombstone) -> bool:
    return record.kind in (GroupRecord.kind, ConsumerKind.GROUP)
