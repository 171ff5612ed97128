"""A toy kind of group with epochs: a crew, in which each partition is assigned to two members. It knows core/modern and
core/runtime, and nothing else of the coordinator knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from sidecar.assign.layout import Layout
from sidecar.core.modern import inspect, records
from sidecar.core.modern import registration as modern
from sidecar.core.modern.assignment_resend import must_send_assignment
from sidecar.core.modern.assignor_run import RunInput, RunOutput
from sidecar.core.modern.config import ModernConfig
from sidecar.core.modern.epochs import after_removal, bump_epoch, note_if_settled, refresh_metadata_hash
from sidecar.core.modern.events import MemberHeartbeat, MemberReply
from sidecar.core.modern.explain import Explainer
from sidecar.core.modern.group import LEAVE_EPOCH, ModernGroup
from sidecar.core.modern.parked_joins import ParkedAnswers, waits
from sidecar.core.modern.release import GroupRelease
from sidecar.core.modern.sessions import REMOVING, arm_session, forget, removing_timers
from sidecar.core.modern.soft_state import ModernSoft, Waiting
from sidecar.core.modern.target_assignment import AssignorDone, Targets
from sidecar.core.modern.target_table import MemberTable, MemberTargets
from sidecar.core.modern.validation import check_epoch, check_size, unknown_member
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.inspect import MemberView, Names, Note
from sidecar.core.runtime.records import Partitions, Record, RecordKind, Role, Tombstone
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.schema import published

CREW = "crew"
GROUP, MEMBER, TARGET_EPOCH, TARGET = "crew_group", "crew_member", "crew_target_epoch", "crew_target"


# ---- events ---------------------------------------------------------------------------------------------------------
class CrewReply(MemberReply):
    assignment: Partitions | None = None


class CrewBeat(MemberHeartbeat):
    answer: ClassVar[type[Answer]] = CrewReply

    names: tuple[str, ...] = ()


# ---- records --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CrewRecord:
    """All but the targets."""

    group_id: str
    sub_id: str
    fields: Mapping[str, Any]
    why: str = ""

    kind: ClassVar[str] = ""

    def body(self) -> dict[str, Any]:
        return dict(self.fields)

    @classmethod
    def of(cls, group_id: str, sub_id: str, body: Mapping[str, Any]) -> Self:
        head = ("owner_epoch", "time_ms", "revision", "why")
        return cls(group_id, sub_id, {k: v for k, v in body.items() if k not in head}, body["why"])


@dataclass(frozen=True, slots=True)
class GroupEpoch(CrewRecord):
    kind = GROUP


@dataclass(frozen=True, slots=True)
class MemberState(CrewRecord):
    kind = MEMBER


class TargetEpoch(records.TargetMetadataRecord):
    __slots__ = ()
    kind = TARGET_EPOCH


class MemberTarget(records.TargetMemberRecord):
    __slots__ = ()
    kind = TARGET


@dataclass(frozen=True, slots=True)
class Target(records.TargetRecord):
    kind = TARGET_EPOCH
    metadata_record = TargetEpoch

    def member(self, member_id: str) -> MemberTarget:
        return MemberTarget(self.group_id, member_id, self.table.get(member_id) or {}, self.names, self.why)


def _schema(name: str, **fields: object) -> str:
    head = json.loads(published()["target_member-v1"])["fields"][:4]
    own = [{"name": n, "type": t} for n, t in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": head + own})


NAMES = {"type": "array", "items": "string"}
FILES = {
    **published(),
    "crew_group-v1": _schema("CrewGroup", epoch="int", hash="long"),
    "crew_member-v1": _schema("CrewMember", client_id="string", names=NAMES, epoch="int"),
    "crew_target_epoch-v1": published()["target_metadata-v1"],
    "crew_target-v1": published()["target_member-v1"],
}
RECORDS = (
    RecordKind(GROUP, GroupEpoch, "crew_group-v1", Role.GROUP),
    RecordKind(MEMBER, MemberState, "crew_member-v1", Role.MEMBER),
    RecordKind(TARGET_EPOCH, TargetEpoch, "crew_target_epoch-v1", Role.TARGET_EPOCH),
    RecordKind(TARGET, MemberTarget, "crew_target-v1", Role.TARGET),
)


# ---- hard state -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CrewMember:
    member_id: str
    client_id: str = ""
    names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_epoch: int = -1

    @property
    def holds(self) -> bool:
        return self.member_epoch > 0

    def reconciled_to(self, epoch: int) -> bool:
        return self.member_epoch == epoch


@dataclass(slots=True)
class Crew(ModernGroup[CrewMember]):
    target: MemberTargets[MemberTable] = field(default_factory=MemberTargets)

    kind = CREW
    protocol_type = CREW
    metadata_record = TargetEpoch
    held_bytes = 0

    @property
    def owners(self) -> Mapping[str, Partitions]:
        """Members that were told of a target which is not empty."""
        return {m.member_id: parts for m in self.members.values() if m.holds and (parts := self.target.of(m.member_id))}

    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def tombstones(self, why: str) -> list[Tombstone]:
        keys = [(kind, m) for m in self.members for kind in (TARGET, MEMBER)]
        return [Tombstone(k, self.group_id, sub_id, why) for k, sub_id in (*keys, (TARGET_EPOCH, ""), (GROUP, ""))]

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(name for m in self.members.values() for name in m.names)

    def hash_over(self, image: TopicImage) -> int:
        return image.hash_of(self.subscribed_topics())

    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> GroupEpoch:
        return GroupEpoch(self.group_id, "", {"epoch": epoch, "hash": metadata_hash}, why)

    def empty_target_record(self, member_id: str, why: str) -> MemberTarget:
        return MemberTarget(self.group_id, member_id, {}, {}, why)

    def replay(self, r: Record) -> None:
        if isinstance(r, GroupEpoch):
            self.epoch, self.metadata_hash = r.fields["epoch"], r.fields["hash"]
        elif isinstance(r, MemberState):
            before = self.members.get(r.sub_id, CrewMember(r.sub_id))
            names, epoch = tuple(r.fields["names"]), r.fields["epoch"]
            previous = before.member_epoch if epoch != before.member_epoch else before.previous_epoch
            self.members[r.sub_id] = CrewMember(r.sub_id, r.fields["client_id"], names, epoch, previous)
        elif isinstance(r, Target):
            self.target.adopt(r.table)
            self.replay_target_metadata(r.metadata())
        elif isinstance(r, TargetEpoch):
            self.replay_target_metadata(r)
        elif isinstance(r, MemberTarget):
            self.target.put(r.sub_id, r.partitions)
        elif r.kind == MEMBER:
            self.members.pop(r.sub_id, None)
        elif r.kind == TARGET:
            self.target.drop(r.sub_id)


# ---- targets --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class CrewSoft(ModernSoft):
    void: bool = False
    """The next result is void."""


@dataclass(frozen=True, slots=True)
class CrewRun(RunInput):
    kind = CREW
    member_record = TARGET

    members: tuple[str, ...]
    layout: Layout
    target: MemberTargets[MemberTable]


def pairs(inp: CrewRun) -> dict[str, list[int]]:
    """The assignor: each partition is two neighbours', if there are two."""
    parts: dict[str, list[int]] = {m: [] for m in inp.members}
    for p in range(inp.layout.off[-1]):
        for m in {inp.members[(p + i) % len(inp.members)] for i in (0, 1)}:
            parts[m].append(p)
    return parts


def _snapshot(turn: Turn, group: Crew, assignor: str) -> CrewRun:
    image = turn.image
    topics = tuple(image.by_name[n] for n in sorted(group.subscribed_topics()) if n in image.by_name)
    head = (group.group_id, turn.next_run(), group.epoch, assignor, image)
    return CrewRun(*head, tuple(sorted(group.members)), Layout.of(topics), group.target.frozen())


def run(inp: CrewRun, assignor: Any) -> RunOutput:
    table = MemberTable.of_parts(inp.layout, assignor(inp))
    changed = tuple(m for m in inp.members if inp.target.get(m) != table.get(m))
    return RunOutput(table, changed, len(changed))


def _result(turn: Turn, group: Crew, inp: CrewRun, out: RunOutput) -> Target | None:
    soft: CrewSoft = turn.soft_of(group.group_id)
    if soft.void:
        soft.void = False
        return None
    when = (inp.epoch, turn.now.wall_ms)
    return Target(group.group_id, out.table, out.changed, *when, inp.assignor, inp.image.names, inp.why, inp.run_id)


TARGETS = Targets(CREW, _snapshot, run, _result, lambda group, config: config.assignors[0])


# ---- members --------------------------------------------------------------------------------------------------------
def remove(turn: Turn, group: Crew, gone: Sequence[tuple[CrewMember, str]]) -> None:
    for member, why in gone:
        for kind in (TARGET, MEMBER):
            turn.write(Tombstone(kind, group.group_id, member.member_id, why))
        forget(turn, group.group_id, member.member_id)
    after_removal(turn, group, gone)


RELEASE = GroupRelease(CREW, remove)


def _write(turn: Turn, group_id: str, m: CrewMember, why: str) -> None:
    fields = {"client_id": m.client_id, "names": list(m.names), "epoch": m.member_epoch}
    turn.write(MemberState(group_id, m.member_id, fields, why))


def beat(turn: Turn, hb: CrewBeat, token: int) -> None:
    config: ModernConfig = turn.ports.config[(CREW, hb.group_id)]
    if hb.member_epoch == LEAVE_EPOCH:
        group = turn.groups[hb.group_id]
        remove(turn, group, [(group.members[hb.member_id], "left")])
        turn.reply(token, CrewReply(member_id=hb.member_id, member_epoch=LEAVE_EPOCH))
    elif not RELEASE.sent_away(turn, hb, token):
        reply = step(turn, hb, config)
        if waits(turn, hb, turn.soft_of(hb.group_id), config, False):
            PARKED.wait(turn, hb, token, reply, False)
        else:
            turn.reply(token, reply)


def step(turn: Turn, hb: CrewBeat, config: ModernConfig) -> CrewReply:
    group: Crew = turn.groups.get(hb.group_id) or Crew(hb.group_id)
    check_size(group, hb.member_id, None, config.max_size)
    member = group.members.get(hb.member_id)
    if member is None:
        if hb.member_epoch:
            raise unknown_member(hb.member_id, hb.group_id)
        _write(turn, hb.group_id, CrewMember(hb.member_id, hb.member_id, hb.names), "joined")
        group = turn.groups[hb.group_id]
        bump_epoch(turn, group, f"{hb.member_id} joined", Reason.JOINED)
    else:
        check_epoch(CREW, member, hb.member_epoch, reply_lost=True)
    refresh_metadata_hash(turn, group)
    TARGETS.update(turn, group)
    before = group.members[hb.member_id]
    if before.member_epoch != group.assignment_epoch and hb.member_id in group.target:
        _write(turn, hb.group_id, replace(before, member_epoch=group.assignment_epoch), "has its target")
        note_if_settled(turn, group)
    now = group.members[hb.member_id]
    arm_session(turn, hb.group_id, hb.member_id, config.session_timeout_ms)
    soft: CrewSoft = turn.soft_of(hb.group_id)
    due = hb.member_epoch == 0 or now is not before
    named = must_send_assignment(soft, now, not due, due, turn.now.mono_ms, config.heartbeat_interval_ms)
    assignment = group.target.of(hb.member_id) if named else None
    return CrewReply(
        member_id=now.member_id,
        member_epoch=now.member_epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=assignment,
    )


def _second(turn: Turn, w: Waiting) -> Waiting:
    again = CrewBeat(w.request.group_id, w.request.member_id, w.reply.member_epoch)
    return replace(w, reply=step(turn, again, turn.ports.config[(CREW, w.request.group_id)]))


PARKED = ParkedAnswers(CREW, _second)


# ---- people ---------------------------------------------------------------------------------------------------------
def _view(group: Crew, m: CrewMember, names: Names) -> MemberView:
    parts = inspect.by_name(group.target.of(m.member_id), names)
    owns = parts if m.member_epoch == group.assignment_epoch else {}
    return MemberView(m.member_id, m.client_id, protocol=CREW, epoch=m.member_epoch, owns=owns, target=parts)


def _member_notes(sub_id: str, body: Any, last: Any) -> list[Note]:
    return [Note("left" if body is None else "joined", sub_id)] if body is None or last is None else []


INSPECT = inspect.inspecting(
    Explainer(GROUP, MEMBER, TARGET_EPOCH, _view, lambda group, m, gave_up: m),
    states=inspect.STATES,
    history={GROUP: inspect.group_notes, TARGET_EPOCH: inspect.target_notes, MEMBER: _member_notes},
)
KIND = GroupKind(
    name=CREW,
    make=Crew,
    soft=CrewSoft,
    config=lambda: ModernConfig(assignors=("pairs",)),
    records=RECORDS,
    events={CrewBeat: beat, AssignorDone: modern.assignor_done(TARGETS, PARKED), **RELEASE.events()},
    timers={**TARGETS.timers(), **PARKED.timers(), **removing_timers(remove)},
    removing=REMOVING,
    loaded=modern.loaded,
    member_loaded=modern.member_loaded,
    touched=modern.touched,
    topics_changed=modern.topics_changed,
    inspect=INSPECT,
    answer_waiting=modern.answer_waiting,
    run=run,
)
ASSIGNORS: Mapping[str, Mapping[str, Any]] = {CREW: {"pairs": pairs}}
